//go:build integration

package gcs

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/servertest"
	"github.com/tidemark/tidemark/blobstore/storetest"
)

func serverURL(t testing.TB) string {
	return servertest.With(t, servertest.Env(t, "TIDEMARK_TEST_GCS_URL"), "part_size", "1048576", "page_size", "400")
}

// freshBucket makes a bucket of its own for each store: the server's listings take
// time for every object of a bucket, also outside the prefix.
func freshBucket(t testing.TB, rawURL string) string {
	name := "test-" + strings.ToLower(rand.Text())
	_, query, _ := strings.Cut(rawURL, "?")
	q, err := url.ParseQuery(query)
	require.NoError(t, err)
	resp, err := http.Post(q.Get("endpoint")+"/storage/v1/b?project=test", "application/json", strings.NewReader(`{"name":"`+name+`"}`))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return servertest.Fresh("gs://" + name + "?" + query)
}

func TestConformance(t *testing.T) {
	base := serverURL(t)
	storetest.Run(t, func(t *testing.T) blobstore.Store {
		return servertest.Open(t, freshBucket(t, base), nil)
	}, &storetest.Options{
		PartSize: 1 << 20,
		Objects:  1300, // more than three pages
		SkipName: func(name string) string {
			if strings.ContainsAny(name, "\r\n") {
				return "Google Cloud Storage has no line breaks in names"
			}
			return ""
		},
		Faults: func(t *testing.T) storetest.FaultEnv {
			direct := freshBucket(t, base)
			proxy, through := servertest.Proxy(t, direct)
			// The server has no access control: this is what the real one answers.
			closed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				io.WriteString(w, `{"error":{"code":403,"message":"Caller does not have storage.objects.get access.","errors":[{"reason":"forbidden"}]}}`)
			}))
			t.Cleanup(closed.Close)
			return storetest.FaultEnv{
				Store: servertest.Open(t, through, nil), Direct: servertest.Open(t, direct, nil), Network: proxy,
				Denied: servertest.Open(t, servertest.With(t, direct, "endpoint", closed.URL), nil),
			}
		},
	})
}

func TestRetried(t *testing.T) { servertest.Retried(t, freshBucket(t, serverURL(t))) }
