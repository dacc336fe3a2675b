// Package servertest finds the servers that testdata/servers has started, for the
// integration tests of the drivers.
package servertest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/faultproxy"
)

// Env gives an environment variable. Its absence fails the test: who sets the tag
// integration wants the servers to be there.
func Env(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run the tests as testdata/servers/README.md says", name)
	}
	return v
}

// Fresh gives a URL with the same server and bucket, and a path that nobody uses.
func Fresh(rawURL string) string {
	base, query, ok := strings.Cut(rawURL, "?")
	base = strings.TrimSuffix(base, "/") + "/test-" + strings.ToLower(rand.Text())
	if ok {
		base += "?" + query
	}
	return base
}

// With sets parameters of a URL: name, value, name, value.
func With(t testing.TB, rawURL string, params ...string) string {
	t.Helper()
	base, query, _ := strings.Cut(rawURL, "?")
	q, err := url.ParseQuery(query)
	require.NoError(t, err)
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	return base + "?" + q.Encode()
}

// Open opens a store; the test or the suite closes it.
func Open(t testing.TB, rawURL string, opts *blobstore.Options) blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(context.Background(), rawURL, opts)
	require.NoError(t, err)
	return s
}

// Proxy puts a faulty network before the server of the URL's endpoint, and gives
// the URL that goes through it.
func Proxy(t testing.TB, rawURL string) (*faultproxy.Proxy, string) {
	t.Helper()
	_, query, _ := strings.Cut(rawURL, "?")
	q, err := url.ParseQuery(query)
	require.NoError(t, err)
	u, err := url.Parse(q.Get("endpoint"))
	require.NoError(t, err)
	p, err := faultproxy.Start("127.0.0.1:0", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	u.Host = p.Addr()
	return p, With(t, rawURL, "endpoint", u.String())
}
