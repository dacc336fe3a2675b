package objectstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

func TestSettings(t *testing.T) {
	in := objectstore.NewSettings(blobstore.Location{Query: "flag=true&wait=3s&size=100&kind=b"}, &blobstore.Options{
		Config: map[string]string{"k.flag": "false", "k.other": "TRUE", "k2": "v"},
	})
	require.True(t, in.Bool("flag", false, "k.flag"), "a parameter goes before a key")
	require.True(t, in.Bool("other", false, "k.other"))
	require.True(t, in.Bool("third", true))
	require.Equal(t, 3*time.Second, in.Duration("wait", 0))
	require.EqualValues(t, 100, in.Size("size", 1, 1))
	require.EqualValues(t, 7, in.Size("size2", 7, 1))
	require.Equal(t, "b", in.OneOf("kind", "a", "b"))
	require.Equal(t, "a", in.OneOf("kind2", "a", "b"))
	require.Equal(t, "v", in.Config("k1", "k2"))
	require.NoError(t, in.Err())
}

func TestSettingsRefuse(t *testing.T) {
	for name, c := range map[string]struct{ query, want string }{
		"unknown parameter": {"secret_key=hush", `unknown URL parameter "secret_key"`},
		"not a flag":        {"flag=maybe", "neither true nor false"},
		"no time":           {"wait=soon", "not a positive time"},
		"negative time":     {"wait=-1s", "not a positive time"},
		"too small":         {"size=5", "at least 10"},
		"no choice":         {"kind=c", "not one of a, b"},
		"user in endpoint":  {"endpoint=http://me:hush@host", "not an address"},
		"no host":           {"endpoint=http://", "not an address"},
		"other scheme":      {"endpoint=ftp://host", "not an address"},
	} {
		t.Run(name, func(t *testing.T) {
			in := objectstore.NewSettings(blobstore.Location{Query: c.query}, nil)
			in.Bool("flag", false)
			in.Duration("wait", time.Second)
			in.Size("size", 10, 10)
			in.OneOf("kind", "a", "b")
			in.Endpoint(false)
			err := in.Err()
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hush")
		})
	}
}

func TestSettingsEndpoint(t *testing.T) {
	for given, want := range map[string]string{
		"http://127.0.0.1:9000/": "http://127.0.0.1:9000", "https://h/acct": "https://h/acct", "minio:9000": "https://minio:9000", "": "",
	} {
		in := objectstore.NewSettings(blobstore.Location{}, &blobstore.Options{Config: map[string]string{"e": given}})
		require.Equal(t, want, in.Endpoint(false, "e"))
		require.NoError(t, in.Err())
	}
	in := objectstore.NewSettings(blobstore.Location{}, &blobstore.Options{Config: map[string]string{"e": "minio:9000"}})
	require.Equal(t, "http://minio:9000", in.Endpoint(true, "e"))
}
