//go:build integration

package azure

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
	"github.com/tidemark/tidemark/blobstore/internal/servertest"
	"github.com/tidemark/tidemark/blobstore/storetest"
)

const testPart = 1 << 20

func serverURL(t testing.TB) string {
	return servertest.With(t, servertest.Env(t, "TIDEMARK_TEST_AZURE_URL"), "part_size", "1048576", "page_size", "400")
}

// freshContainer makes a container of its own for each store: the server's listings
// take time for every blob of a container.
func freshContainer(t testing.TB, rawURL string) string {
	base, query, _ := strings.Cut(rawURL, "?")
	_, account, _ := strings.Cut(strings.TrimSuffix(base, "/"), "@")
	fresh := "azblob://test-" + strings.ToLower(rand.Text()) + "@" + account + "?" + query
	loc, err := blobstore.Parse(fresh)
	require.NoError(t, err)
	direct, err := open(t.Context(), loc, nil)
	require.NoError(t, err)
	defer direct.Close()
	c, err := direct.(*store).connect()
	require.NoError(t, err)
	_, err = c.Create(t.Context(), nil)
	require.NoError(t, err)
	return servertest.Fresh(fresh)
}

func TestConformance(t *testing.T) {
	base := serverURL(t)
	wrong := base64.StdEncoding.EncodeToString([]byte("another key"))
	storetest.Run(t, func(t *testing.T) blobstore.Store {
		return servertest.Open(t, freshContainer(t, base), nil)
	}, &storetest.Options{
		PartSize: testPart,
		Objects:  1300, // more than three pages
		Secrets:  []string{os.Getenv("AZURE_STORAGE_KEY"), wrong, "Signature="},
		SkipName: func(name string) string {
			if err := objectstore.InXML(name); err != nil {
				return err.Error()
			}
			if strings.Contains(name, `\`) || strings.Contains(name+"/", "./") {
				return "the service changes such names"
			}
			return ""
		},
		Faults: func(t *testing.T) storetest.FaultEnv {
			direct := freshContainer(t, base)
			proxy, through := servertest.Proxy(t, direct)
			return storetest.FaultEnv{
				Store: servertest.Open(t, through, nil), Direct: servertest.Open(t, direct, nil), Network: proxy,
				Denied: servertest.Open(t, direct, &blobstore.Options{Config: map[string]string{"fs.azure.account.key.tidemark": wrong}}),
			}
		},
	})
}

func TestRetried(t *testing.T) { servertest.Retried(t, freshContainer(t, serverURL(t))) }

// An upload that is dropped takes no other writer's blocks with it.
func TestAbortSparesAnotherWriter(t *testing.T) {
	s := servertest.Open(t, freshContainer(t, serverURL(t)), nil)
	defer s.Close()
	data := make([]byte, 2*testPart+1)
	begin := func() blobstore.Writer {
		w, err := s.Create(t.Context(), "x", &blobstore.WriteOptions{IfAbsent: true})
		require.NoError(t, err)
		_, err = w.Write(data)
		require.NoError(t, err)
		return w
	}
	a, b := begin(), begin()
	require.Eventually(t, func() bool { // the parts of both have arrived
		for in, err := range s.(blobstore.TemporaryLister).ListTemporary(t.Context(), "") {
			require.NoError(t, err)
			return in.Size == 4*testPart
		}
		return false
	}, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, a.Abort())
	require.NoError(t, b.Commit())
	in, err := s.Stat(t.Context(), "x")
	require.NoError(t, err)
	require.EqualValues(t, len(data), in.Size)
}
