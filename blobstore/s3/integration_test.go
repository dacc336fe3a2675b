//go:build integration

package s3

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
	"github.com/tidemark/tidemark/blobstore/internal/servertest"
	"github.com/tidemark/tidemark/blobstore/storetest"
)

func serverURL(t testing.TB) string {
	return servertest.With(t, servertest.Env(t, "TIDEMARK_TEST_S3_URL"), "part_size", "5242880", "page_size", "400")
}

func TestConformance(t *testing.T) {
	base := serverURL(t)
	storetest.Run(t, func(t *testing.T) blobstore.Store {
		return servertest.Open(t, servertest.Fresh(base), nil)
	}, &storetest.Options{
		PartSize:             minPart,
		Objects:              1300, // more than three pages
		NoObjectBesideFolder: true, // of versitygw over files; S3 has
		Secrets:              []string{os.Getenv("AWS_SECRET_ACCESS_KEY"), "wrong-secret", "testkey"},
		SkipName: func(name string) string {
			if err := objectstore.InXML(name); err != nil {
				return err.Error()
			}
			return ""
		},
		Faults: func(t *testing.T) storetest.FaultEnv {
			direct := servertest.Fresh(base)
			proxy, through := servertest.Proxy(t, direct)
			return storetest.FaultEnv{
				Store: servertest.Open(t, through, nil), Direct: servertest.Open(t, direct, nil), Network: proxy,
				Denied: servertest.Open(t, direct, &blobstore.Options{Config: map[string]string{
					"s3.access-key": "testkey", "s3.secret-key": "wrong-secret",
				}}),
			}
		},
	})
}

func TestRetried(t *testing.T) { servertest.Retried(t, servertest.Fresh(serverURL(t))) }

// A process that dies in the middle of an upload leaves parts, which are found with
// their size, and which another process can drop.
func TestUploadOfDeadProcess(t *testing.T) {
	base := servertest.Fresh(serverURL(t))
	s := servertest.Open(t, base, nil)
	defer s.Close()
	loc, err := blobstore.Parse(base)
	require.NoError(t, err)
	root := openTest(t, loc.Root().String()+"?"+loc.Query, nil)
	u := &upload{s: root, name: loc.Path + "/chk-1/state", id: "x"}
	require.NoError(t, u.Begin(t.Context()))
	require.NoError(t, u.Part(t.Context(), 0, make([]byte, minPart), false))

	tl := s.(blobstore.TemporaryLister)
	var found []blobstore.Info
	for in, err := range tl.ListTemporary(t.Context(), "chk-1/") {
		require.NoError(t, err)
		found = append(found, in)
	}
	require.Len(t, found, 1)
	require.EqualValues(t, minPart, found[0].Size)
	require.WithinDuration(t, time.Now(), found[0].ModTime, time.Hour)
	require.NoError(t, tl.DeleteTemporary(t.Context(), found[0].Name))
	for in, err := range tl.ListTemporary(t.Context(), "") {
		require.NoError(t, err)
		t.Fatal("left: ", in.Name)
	}
	require.ErrorIs(t, u.Complete(t.Context()), blobstore.ErrNotExist)
}

// What one request may not copy is copied in parts, by the server all the same.
func TestCopyInParts(t *testing.T) {
	limit, size := copyLimit, copySize
	copyLimit, copySize = 6<<20, minPart
	defer func() { copyLimit, copySize = limit, size }()
	s := servertest.Open(t, servertest.Fresh(serverURL(t)), nil)
	defer s.Close()
	data := make([]byte, 3*minPart+12345)
	for i := range data {
		data[i] = byte(i * i >> 9)
	}
	w, err := s.Create(t.Context(), "from", nil)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	require.NoError(t, s.Copy(t.Context(), "to", "from", nil))
	r, err := s.Open(t.Context(), "to")
	require.NoError(t, err)
	defer r.Close()
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	require.ErrorIs(t, s.Copy(t.Context(), "to", "from", &blobstore.WriteOptions{IfAbsent: true}), blobstore.ErrExist)
	for in, err := range s.(blobstore.TemporaryLister).ListTemporary(t.Context(), "") {
		require.NoError(t, err)
		t.Fatal("left: ", in.Name)
	}
}
