package gcs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

func openTest(t *testing.T, h http.HandlerFunc, params string) *store {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	loc, err := blobstore.Parse("gs://b/?anonymous=true&endpoint=" + s.URL + params)
	require.NoError(t, err)
	st, err := open(t.Context(), loc, nil)
	require.NoError(t, err)
	t.Cleanup(func() { st.Close() })
	return st.(*store)
}

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		query, emulator string
		config          map[string]string
		want            settings
	}{
		"defaults":   {"", "", nil, settings{endpoint: defaultEndpoint}},
		"emulator":   {"", "localhost:4443", nil, settings{endpoint: "http://localhost:4443", anonymous: true}},
		"parameters": {"endpoint=http://h:1&anonymous=true&user_project=p&list=sort", "other:1", nil, settings{endpoint: "http://h:1", anonymous: true, userProject: "p", sort: true}},
		"Flink": {"", "", map[string]string{
			"gs.auth.service.account.json.keyfile": "/key.json", "fs.gs.storage.root.url": "https://own.example/", "fs.gs.requester.pays.project.id": "p",
		}, settings{endpoint: "https://own.example", keyFile: "/key.json", userProject: "p"}},
		"anonymous by Hadoop": {"", "", map[string]string{"fs.gs.auth.type": "UNAUTHENTICATED"}, settings{endpoint: defaultEndpoint, anonymous: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("STORAGE_EMULATOR_HOST", c.emulator)
			c.want.bucket, c.want.partSize, c.want.pageSize, c.want.timeout = "b", 16<<20, 1000, time.Minute
			got, err := read(blobstore.Location{Scheme: "gs", Authority: "b", Query: c.query}, &blobstore.Options{Config: c.config})
			require.NoError(t, err)
			require.Equal(t, c.want, *got)
		})
	}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		status          int
		reason, message string
		is              error
		text            string
	}{
		"absent":    {404, "notFound", "No such object: b/x", blobstore.ErrNotExist, "open gs://b/x: does not exist"},
		"no bucket": {404, "notFound", "The specified bucket does not exist.", blobstore.ErrNotExist, "bucket does not exist"},
		"denied":    {403, "forbidden", "no access.", blobstore.ErrPermission, "access denied (forbidden: no access, HTTP 403)"},
		"no token":  {401, "required", "Anonymous caller", blobstore.ErrPermission, "HTTP 401"},
		"quota":     {403, "userRateLimitExceeded", "slow", blobstore.ErrTemporary, "userRateLimitExceeded"},
		"throttled": {429, "rateLimitExceeded", "slow", blobstore.ErrTemporary, "HTTP 429"},
		"backend":   {503, "backendError", "x", blobstore.ErrTemporary, "HTTP 503"},
		"bad":       {400, "invalid", "bad\nthing", nil, "invalid: bad thing, HTTP 400"},
		"a page":    {502, "", "", blobstore.ErrTemporary, "HTTP 502"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(c.status)
				if c.reason == "" {
					io.WriteString(w, "<html>")
					return
				}
				json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": c.status, "message": c.message, "errors": []any{map[string]string{"reason": c.reason}}}})
			}, "")
			_, err := s.Open(t.Context(), "x")
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "\n")
			for _, kind := range []error{blobstore.ErrNotExist, blobstore.ErrPermission, blobstore.ErrTemporary, blobstore.ErrExist} {
				require.Equal(t, kind == c.is, errors.Is(err, kind), "%v is %v", err, kind)
			}
			if c.is == blobstore.ErrTemporary {
				var after interface{ RetryAfter() time.Duration }
				require.ErrorAs(t, err, &after)
				require.Equal(t, 2*time.Second, after.RetryAfter())
			}
		})
	}
}

func TestNoCredentials(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	s := openTest(t, func(http.ResponseWriter, *http.Request) { t.Error("nothing to ask for without credentials") }, "")
	s.anonymous = false
	for name, file := range map[string]string{"absent": t.TempDir() + "/none", "no key": "gcs_test.go"} {
		s.keyFile = file
		_, err := s.Stat(t.Context(), "x")
		require.ErrorContains(t, err, "key file", name)
		require.NotContains(t, err.Error(), "\n")
	}
	s.keyFile = ""
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", t.TempDir()+"/none")
	_, err := s.Stat(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrPermission)
	require.ErrorContains(t, err, "GOOGLE_APPLICATION_CREDENTIALS")
}

func TestWrongChecksum(t *testing.T) {
	s := openTest(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Goog-Hash", "crc32c=AAAAAA==,md5=xxx")
		io.WriteString(w, "not what was stored")
	}, "")
	r, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer r.Close()
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, blobstore.ErrDataCorrupt)
}

// session is a resumable upload as the documentation describes it: it may keep
// less than it was sent, and ignores what it has already.
type session struct {
	mu     sync.Mutex
	bytes  []byte
	keep   func(n int) int                             // of n new bytes
	broken func(w http.ResponseWriter, done bool) bool // after the effect: the answer is lost
	done   bool
	meta   map[string]string
	puts   int
}

func (u *session) serve(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		defer u.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		switch r.Method {
		case http.MethodGet: // the finished object
			json.NewEncoder(w).Encode(map[string]any{"name": "x", "size": strconv.Itoa(len(u.bytes)), "generation": "1", "metadata": u.meta})
			return
		case http.MethodPost:
			var res struct{ Metadata map[string]string }
			require.NoError(t, json.Unmarshal(body, &res))
			u.meta = res.Metadata
			w.Header().Set("Location", "http://"+r.Host+"/session")
			return
		}
		u.puts++
		var from, to int
		var total string
		_, err = fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-%d/%s", &from, &to, &total)
		require.NoError(t, err)
		require.Len(t, body, to-from+1)
		require.LessOrEqual(t, from, len(u.bytes), "a gap")
		if !u.done && from+len(body) > len(u.bytes) {
			fresh := body[len(u.bytes)-from:]
			u.bytes = append(u.bytes, fresh[:u.keep(len(fresh))]...)
		}
		u.done = total == strconv.Itoa(len(u.bytes))
		if u.broken != nil && u.broken(w, u.done) {
			return
		}
		if u.done {
			fmt.Fprintf(w, `{"name":"x","size":"%d","generation":"1"}`, len(u.bytes))
			return
		}
		if len(u.bytes) > 0 {
			w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(u.bytes)-1))
		}
		w.WriteHeader(http.StatusPermanentRedirect)
	}
}

func TestResumableUpload(t *testing.T) {
	data := make([]byte, 5*chunkUnit+77)
	for i := range data {
		data[i] = byte(i * i >> 5)
	}
	all := func(n int) int { return n }
	for name, u := range map[string]*session{
		"whole":        {keep: all},
		"keeps a part": {keep: func(n int) int { return (n + 1) / 2 }},
		"answer of one lost": {keep: all, broken: func() func(http.ResponseWriter, bool) bool {
			n := 0
			return func(w http.ResponseWriter, _ bool) bool {
				n++
				if n == 2 {
					w.WriteHeader(503)
				}
				return n == 2
			}
		}()},
		"last answer lost": {keep: all, broken: func() func(http.ResponseWriter, bool) bool {
			lost := false
			return func(w http.ResponseWriter, done bool) bool {
				if done && !lost {
					lost = true
					w.WriteHeader(502)
					return true
				}
				return false
			}
		}()},
		"then session gone": {keep: all, broken: func() func(http.ResponseWriter, bool) bool {
			n := 0
			return func(w http.ResponseWriter, done bool) bool {
				if done {
					n++
					w.WriteHeader(map[bool]int{true: 503, false: 410}[n == 1])
					return true
				}
				return false
			}
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, u.serve(t), "&part_size=524288")
			w, err := s.Create(t.Context(), "x", &blobstore.WriteOptions{IfAbsent: true})
			require.NoError(t, err)
			_, err = w.Write(data)
			require.NoError(t, err)
			require.False(t, u.done)
			require.NoError(t, w.Commit())
			require.True(t, bytes.Equal(data, u.bytes))
			require.NotEmpty(t, u.meta[writerKey])
		})
	}
}

func TestUploadThatStoresOtherBytesIsRemoved(t *testing.T) {
	var deleted string
	s := openTest(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted = r.URL.String()
			return
		}
		io.WriteString(w, `{"name":"x","size":"5","generation":"17","crc32c":"AAAAAA=="}`)
	}, "")
	w, err := s.Create(t.Context(), "x", nil)
	require.NoError(t, err)
	io.WriteString(w, "hello")
	require.ErrorIs(t, w.Commit(), blobstore.ErrDataCorrupt)
	require.Contains(t, deleted, "/o/x?ifGenerationMatch=17")
}

func TestRewriteGoesOn(t *testing.T) {
	n := 0
	s := openTest(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(404)
			return
		}
		n++
		require.Equal(t, "0", r.URL.Query().Get("ifGenerationMatch"))
		require.Equal(t, strings.Repeat("t", n-1), r.URL.Query().Get("rewriteToken"))
		fmt.Fprintf(w, `{"done":%v,"rewriteToken":"%s"}`, n == 4, strings.Repeat("t", n))
	}, "")
	require.NoError(t, s.Copy(t.Context(), "to", "from", &blobstore.WriteOptions{IfAbsent: true}))
	require.Equal(t, 4, n)
}
