// Package servertest finds the servers that testdata/servers has started, for the
// integration tests of the drivers.
package servertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

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

// Retried reads, lists, and stats through a network that breaks off again and again,
// with blobstore.Retry in front: nothing is lost and no error is seen. The URL is
// of an empty root.
func Retried(t *testing.T, rawURL string) {
	ctx := t.Context()
	direct := Open(t, rawURL, nil)
	defer direct.Close()
	proxy, through := Proxy(t, rawURL)
	store := blobstore.Retry(Open(t, through, nil), &blobstore.RetryOptions{Attempts: 12, BaseDelay: time.Millisecond})
	defer store.Close()

	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("dir/object-%02d", i))
	}
	for _, name := range names {
		w, err := direct.Create(ctx, name, nil)
		require.NoError(t, err)
		if name == names[0] {
			_, err = w.Write(data)
			require.NoError(t, err)
		}
		require.NoError(t, w.Commit())
	}
	for what, rule := range map[string]faultproxy.Rule{
		"reset in a body": {ResetAfter: 700_000, Direction: "down", Limit: 4},
		"closed early":    {CloseAfter: 300_000, Direction: "down", Limit: 4},
		"refused":         {Refuse: true, Limit: 3},
		"reset at once":   {ResetAfter: 20, Direction: "down", Limit: 5},
	} {
		proxy.Set(rule)
		proxy.Cut()
		before := proxy.Stats().Faults
		r, err := store.Open(ctx, names[0])
		require.NoError(t, err, what)
		got, err := io.ReadAll(r)
		require.NoError(t, err, what)
		r.Close()
		require.True(t, bytes.Equal(data, got), "%s: other bytes", what)
		var listed []string
		for in, err := range store.List(ctx, nil) {
			require.NoError(t, err, what)
			listed = append(listed, in.Name)
		}
		require.Equal(t, names, listed, what)
		require.Greater(t, proxy.Stats().Faults, before, "%s: the case has not happened", what)
		proxy.Set(faultproxy.Rule{})
	}
}
