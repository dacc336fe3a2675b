package hdfs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
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

// fakeWeb is a WebHDFS of one namenode and one datanode in memory, which can be
// told to misbehave. It takes note of every request.
type fakeWeb struct {
	namenode, datanode *httptest.Server

	mu       sync.Mutex
	files    map[string]fakeFile
	nextID   int64
	requests []string // "NN GET /path op=… auth" …

	// before may answer a request itself.
	before  func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool
	hadoop2 bool // answers 307 whatever noredirect says, and cannot page
}

type fakeFile struct {
	id   int64
	data []byte
}

func newFakeWeb(t testing.TB) *fakeWeb {
	f := &fakeWeb{files: map[string]fakeFile{}, nextID: 100}
	f.namenode = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, true) }))
	f.datanode = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, false) }))
	t.Cleanup(f.namenode.Close)
	t.Cleanup(f.datanode.Close)
	return f
}

func (f *fakeWeb) open(t testing.TB, config ...string) *store {
	t.Setenv("HADOOP_CONF_DIR", "")
	return f.openHere(t, config...)
}

// openHere is open with the environment as it is, for parallel tests.
func (f *fakeWeb) openHere(t testing.TB, config ...string) *store {
	opts := &blobstore.Options{Config: map[string]string{KeyRetryMillis: "400"}}
	for i := 0; i < len(config); i += 2 {
		opts.Config[config[i]] = config[i+1]
	}
	s, err := openStore(blobstore.Location{Scheme: "webhdfs", Authority: strings.TrimPrefix(f.namenode.URL, "http://"), Query: "user=alice"}, opts)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func exception(w http.ResponseWriter, code int, class, message string) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"RemoteException": map[string]string{
		"exception": class, "javaClassName": "org.apache.hadoop." + class, "message": message}})
}

const secretToken = "SECRETTOKEN"

func (f *fakeWeb) serve(w http.ResponseWriter, r *http.Request, toNamenode bool) {
	path, _ := strings.CutPrefix(r.URL.Path, "/webhdfs/v1")
	q := r.URL.Query()
	op := q.Get("op")
	who := "DN"
	if toNamenode {
		who = "NN"
	}
	f.mu.Lock()
	f.requests = append(f.requests, fmt.Sprintf("%s %s %s %s cookie=%q auth=%q", who, r.Method, path, r.URL.RawQuery, r.Header.Get("Cookie"), r.Header.Get("Authorization")))
	before := f.before
	f.mu.Unlock()
	if before != nil && before(w, r, op, toNamenode) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if toNamenode && r.ContentLength != 0 {
		exception(w, 500, "IOException", "a body for the namenode")
		return
	}
	if toNamenode && (op == "OPEN" || op == "CREATE") {
		q.Del("noredirect")
		q.Set("delegation", secretToken)
		location := f.datanode.URL + r.URL.EscapedPath() + "?" + q.Encode()
		if f.hadoop2 {
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		json.NewEncoder(w).Encode(map[string]string{"Location": location})
		return
	}
	file, there := f.files[path]
	switch op {
	case "CREATE":
		f.mu.Unlock()
		data, err := io.ReadAll(r.Body)
		f.mu.Lock()
		f.nextID++
		f.files[path] = fakeFile{f.nextID, data}
		if err == nil {
			w.WriteHeader(http.StatusCreated)
		}
	case "OPEN":
		offset, _ := strconv.Atoi(q.Get("offset"))
		length, _ := strconv.Atoi(q.Get("length"))
		data := file.data[offset:min(len(file.data), offset+length)]
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data)
	case "GETFILESTATUS":
		switch {
		case there:
			json.NewEncoder(w).Encode(map[string]any{"FileStatus": map[string]any{"type": "FILE", "length": len(file.data), "fileId": file.id, "modificationTime": 1}})
		case strings.Count(path, "/") == 1 && !strings.Contains(path, "."):
			json.NewEncoder(w).Encode(map[string]any{"FileStatus": map[string]any{"type": "DIRECTORY"}})
		default:
			exception(w, 404, "FileNotFoundException", "File does not exist: "+path)
		}
	case "RENAME":
		to := q.Get("destination")
		_, taken := f.files[to]
		switch {
		case !there:
			exception(w, 404, "FileNotFoundException", "rename source not found")
		case taken && q.Get("renameoptions") != "OVERWRITE":
			exception(w, 403, "FileAlreadyExistsException", "rename destination already exists")
		default:
			delete(f.files, path)
			f.files[to] = file
		}
	case "DELETE":
		delete(f.files, path)
		fmt.Fprintf(w, `{"boolean":%t}`, there)
	default:
		exception(w, 400, "IllegalArgumentException", "Invalid value for webhdfs parameter \"op\": "+op)
	}
}

func (f *fakeWeb) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.requests, "\n")
}

// Credentials go to the namenode alone, data to the datanode alone, and neither
// into an error.
func TestWebSecrets(t *testing.T) {
	f := newFakeWeb(t)
	s := f.open(t, KeyDelegationToken, "OURTOKEN")
	s.b.(*web).krb = &kerberos{} // as with SPNEGO, with a cookie that serves in its place
	s.b.(*web).cfg.delegationToken = ""
	s.b.(*web).cookies[f.namenode.URL] = `"COOKIE"`
	put := func() error {
		w, err := s.Create(t.Context(), "d/x", nil)
		if err != nil {
			return err
		}
		defer w.Abort()
		if _, err := w.Write([]byte("content")); err != nil {
			return err
		}
		return w.Commit()
	}
	require.NoError(t, put())
	r, err := s.Open(t.Context(), "d/x")
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	for line := range strings.Lines(f.seen()) {
		require.Equal(t, strings.HasPrefix(line, "NN"), strings.Contains(line, "COOKIE"), line)
	}

	// The datanode is gone: the address in the error has no parameters.
	f.datanode.Close()
	_, err = s.Open(t.Context(), "d/x")
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	require.NotContains(t, err.Error(), secretToken)
	err = put()
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	require.NotContains(t, err.Error(), secretToken)

	s = f.open(t, KeyDelegationToken, "OURTOKEN")
	f.namenode.Close()
	_, err = s.Stat(t.Context(), "d/x")
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	require.NotContains(t, err.Error(), "OURTOKEN")
	require.NotContains(t, fmt.Sprint(s.URL()), "OURTOKEN")
}

// A header that is none may hold a cookie, and net/http would quote it.
func TestWebMalformedHeader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			io.WriteString(c, "HTTP/1.1 200 OK\r\nSet-Cookie: hadoop.auth=\"u=a\x00b&s=COOKIE\"\r\n\r\n{}")
			c.Close()
		}
	}()
	f := newFakeWeb(t)
	f.namenode.URL = "http://" + l.Addr().String()
	_, err = f.open(t, KeyRetryMillis, "50").Stat(t.Context(), "d/x")
	require.ErrorContains(t, err, "malformed")
	require.NotContains(t, err.Error(), "COOKIE")
}

func TestWebBadLocations(t *testing.T) {
	for name, c := range map[string]struct{ location, want string }{
		"no host":          {"http:///x", "no address of a datanode"},
		"other scheme":     {"file:///etc/passwd", "no address of a datanode"},
		"user information": {"http://a:b@127.0.0.1/x", "no address of a datanode"},
		"no URL":           {"http://[::", "no address of a datanode"},
		"empty":            {"", "no Location"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWeb(t)
			f.files["/d/x"] = fakeFile{1, []byte("content")}
			f.before = func(w http.ResponseWriter, r *http.Request, op string, _ bool) bool {
				if op == "OPEN" {
					json.NewEncoder(w).Encode(map[string]string{"Location": c.location})
				}
				return op == "OPEN"
			}
			_, err := f.open(t).Open(t.Context(), "d/x")
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("from TLS to none", func(t *testing.T) {
		f := newFakeWeb(t)
		s := f.open(t)
		f.files["/d/x"] = fakeFile{1, []byte("content")}
		s.cfg.web[0] = "https://" + strings.TrimPrefix(s.cfg.web[0], "http://")
		s.b.(*web).http.Transport = plainTransport{}
		_, err := s.Open(t.Context(), "d/x")
		require.ErrorContains(t, err, "without TLS: refused")
		require.NotContains(t, f.seen(), "DN ")
	})
}

// plainTransport speaks http whatever the URL says, as if TLS had been done.
type plainTransport struct{}

func (plainTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return http.DefaultTransport.RoundTrip(r)
}

// A datanode may not send us elsewhere.
func TestWebFollowsNoRedirection(t *testing.T) {
	f := newFakeWeb(t)
	f.files["/d/x"] = fakeFile{1, []byte("content")}
	f.before = func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool {
		if !toNamenode {
			http.Redirect(w, r, f.namenode.URL+"/elsewhere", http.StatusTemporaryRedirect)
		}
		return !toNamenode
	}
	s := f.open(t)
	_, err := s.Open(t.Context(), "d/x")
	require.ErrorContains(t, err, "307")
	require.NotContains(t, f.seen(), "elsewhere")
}

// Hadoop 2 answers with a redirection and does not page listings.
func TestWebOfHadoop2(t *testing.T) {
	f := newFakeWeb(t)
	f.hadoop2 = true
	s := f.open(t)
	f.files["/d/x"] = fakeFile{1, []byte("content")}
	r, err := s.Open(t.Context(), "d/x")
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	f.before = func(w http.ResponseWriter, r *http.Request, op string, _ bool) bool {
		if op == "LISTSTATUS" {
			io.WriteString(w, `{"FileStatuses":{"FileStatus":[{"pathSuffix":"x","type":"FILE","length":7},{"pathSuffix":"y","type":"FILE"}]}}`)
		}
		return op == "LISTSTATUS"
	}
	for range 2 {
		var got []string
		for i, err := range s.List(t.Context(), &blobstore.ListOptions{Prefix: "d/"}) {
			require.NoError(t, err)
			got = append(got, i.Name)
		}
		require.Equal(t, []string{"d/x", "d/y"}, got)
	}
	require.Equal(t, 1, strings.Count(f.seen(), "LISTSTATUS_BATCH"), "asked once")
}

func TestWebListingPages(t *testing.T) {
	f := newFakeWeb(t)
	ignore := false
	f.before = func(w http.ResponseWriter, r *http.Request, op string, _ bool) bool {
		q := r.URL.Query()
		if op != "LISTSTATUS_BATCH" {
			return false
		}
		for key := range q { // 3.5 ignores others
			if key != strings.ToLower(key) {
				t.Errorf("parameter %q is not in lower case", key)
			}
		}
		name, left := "a", 1
		if q.Get("startafter") == "a" && !ignore {
			name, left = "b", 0
		}
		fmt.Fprintf(w, `{"DirectoryListing":{"partialListing":{"FileStatuses":{"FileStatus":[{"pathSuffix":%q,"type":"FILE"}]}},"remainingEntries":%d}}`, name, left)
		return true
	}
	s := f.open(t)
	var got []string
	for i, err := range s.List(t.Context(), nil) {
		require.NoError(t, err)
		got = append(got, i.Name)
	}
	require.Equal(t, []string{"a", "b"}, got)

	ignore = true // page one for ever
	var last error
	for _, err := range s.List(t.Context(), nil) {
		last = err
	}
	require.ErrorContains(t, last, "do not advance")
}

// The answer to a rename is lost: done or not, Commit tells the truth.
func TestWebLostAnswerToRename(t *testing.T) {
	for _, ifAbsent := range []bool{false, true} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("if absent %t, done %t", ifAbsent, done), func(t *testing.T) {
				f := newFakeWeb(t)
				lost := 0
				f.before = func(w http.ResponseWriter, r *http.Request, op string, _ bool) bool {
					if op != "RENAME" || lost > 0 {
						return false
					}
					lost++
					if done {
						f.before = nil
						f.serve(httptest.NewRecorder(), r, true)
					}
					panic(http.ErrAbortHandler) // the connection breaks
				}
				s := f.open(t)
				require.NoError(t, putWeb(t.Context(), s, "d/x", "content", ifAbsent))
				require.Equal(t, "content", string(f.files["/d/x"].data))
				require.Len(t, f.files, 1, "no temporary file is left")
			})
		}
	}
	// Somebody else's object is not taken for ours.
	f := newFakeWeb(t)
	f.files["/d/x"] = fakeFile{1, []byte("theirs")}
	require.ErrorIs(t, putWeb(t.Context(), f.open(t), "d/x", "content", true), blobstore.ErrExist)
	require.Equal(t, "theirs", string(f.files["/d/x"].data))
}

func putWeb(ctx context.Context, s *store, name, content string, ifAbsent bool) error {
	w, err := s.Create(ctx, name, &blobstore.WriteOptions{IfAbsent: ifAbsent})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.WriteString(w, content); err != nil {
		return err
	}
	return w.Commit()
}

// A file that comes out shorter than it was written is written again.
func TestWebShortUpload(t *testing.T) {
	f := newFakeWeb(t)
	short := 0
	f.before = func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool {
		if toNamenode || op != "CREATE" || short > 0 {
			return false
		}
		short++
		io.Copy(io.Discard, r.Body)
		f.mu.Lock()
		f.files[strings.TrimPrefix(r.URL.Path, "/webhdfs/v1")] = fakeFile{50, []byte("con")}
		f.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		return true
	}
	require.NoError(t, putWeb(t.Context(), f.open(t), "d/x", "content", false))
	require.Equal(t, "content", string(f.files["/d/x"].data))
	require.Len(t, f.files, 1)
}

// An answer that ends early is taken up where it ended, of the same file only.
func TestWebReadEndsEarly(t *testing.T) {
	content := strings.Repeat("0123456789", 30_000)
	for name, c := range map[string]struct {
		cut     int // bytes that each answer gives; 0 is all
		replace bool
		want    string
	}{
		"in pieces":  {cut: 70_000},
		"no data":    {cut: -1, want: "ends early"},
		"replaced":   {cut: 70_000, replace: true, want: "replaced"},
		"other size": {cut: 1, want: "announces"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWeb(t)
			f.files["/d/x"] = fakeFile{1, []byte(content)}
			f.before = func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool {
				if toNamenode || op != "OPEN" {
					return false
				}
				offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
				rest := content[offset:]
				if c.cut == 1 {
					io.WriteString(w, rest[:100])
					return true
				}
				w.Header().Set("Content-Length", strconv.Itoa(len(rest)))
				io.WriteString(w, rest[:min(len(rest), max(0, c.cut))])
				return true
			}
			s := f.open(t)
			r, err := s.Open(t.Context(), "d/x")
			var got []byte
			if err == nil {
				if c.replace {
					f.mu.Lock()
					f.files["/d/x"] = fakeFile{2, []byte(content)}
					f.mu.Unlock()
				}
				got, err = io.ReadAll(r)
				r.Close()
			}
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.True(t, strings.HasPrefix(content, string(got)))
				return
			}
			require.NoError(t, err)
			require.Equal(t, content, string(got))
		})
	}
}

func TestWebAnswers(t *testing.T) {
	long := strings.Repeat("x", maxWebAnswer+1)
	for name, c := range map[string]struct {
		code       int
		body, want string
		is, isNot  error
	}{
		"not found":       {404, `{"RemoteException":{"exception":"FileNotFoundException","javaClassName":"java.io.FileNotFoundException","message":"gone\nat x"}}`, "FileNotFoundException: gone", blobstore.ErrNotExist, nil},
		"by a datanode":   {403, `{"RemoteException":{"exception":"RemoteException","javaClassName":"org.apache.hadoop.ipc.RemoteException","message":"org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.security.AccessControlException): no"}}`, "AccessControlException: no", blobstore.ErrPermission, nil},
		"no class":        {403, `{"RemoteException":{"exception":"FileAlreadyExistsException","message":"m"}}`, "FileAlreadyExistsException: m", blobstore.ErrExist, nil},
		"not WebHDFS":     {404, "<html>", "is this WebHDFS?", nil, blobstore.ErrTemporary},
		"forbidden":       {403, "<html>", "403 Forbidden", blobstore.ErrPermission, nil},
		"unauthorized":    {401, "<html>", "401 Unauthorized", blobstore.ErrPermission, nil},
		"bad gateway":     {502, "<html>", "502 Bad Gateway", blobstore.ErrTemporary, nil},
		"too many":        {429, "", "429", blobstore.ErrTemporary, nil},
		"HTML for 200":    {200, "<html>", "not the JSON", nil, blobstore.ErrTemporary},
		"other JSON":      {200, `{"boolean":true}`, "no FileStatus", nil, blobstore.ErrTemporary},
		"other type":      {200, `{"FileStatus":{"type":"SOCKET"}}`, `type "SOCKET"`, nil, nil},
		"negative length": {200, `{"FileStatus":{"type":"FILE","length":-1}}`, "negative length", nil, nil},
		"too long":        {200, `{"FileStatus":{"type":"` + long + `"}}`, "more than", nil, nil},
		"long exception":  {400, long, "400", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWeb(t)
			f.before = func(w http.ResponseWriter, _ *http.Request, _ string, _ bool) bool {
				w.WriteHeader(c.code)
				io.WriteString(w, c.body)
				return true
			}
			_, err := f.open(t).Stat(t.Context(), "d/x")
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if c.isNot != nil {
				require.NotErrorIs(t, err, c.isNot)
			}
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// A namenode that says nothing is left after the limit, and at once if cancelled.
func TestWebHangingNamenode(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	t.Setenv("HADOOP_CONF_DIR", "")
	s, err := openStore(blobstore.Location{Scheme: "webhdfs", Authority: l.Addr().String()}, &blobstore.Options{Config: map[string]string{
		"ipc.client.rpc-timeout.ms": "200", KeyRetryMillis: "300"}})
	require.NoError(t, err)
	defer s.Close()
	start := time.Now()
	_, err = s.Stat(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	require.ErrorContains(t, err, "no progress for 200ms")
	require.Less(t, time.Since(start), time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Stat(ctx, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func FuzzWebAnswers(f *testing.F) {
	for _, s := range []string{
		`{"FileStatus":{"pathSuffix":"","type":"FILE","length":7,"fileId":16400,"modificationTime":1700000000123,"ecBit":true}}`,
		`{"DirectoryListing":{"partialListing":{"FileStatuses":{"FileStatus":[{"pathSuffix":"a","type":"DIRECTORY"},{"pathSuffix":"é","type":"SYMLINK"}]}},"remainingEntries":3}}`,
		`{"FileStatuses":{"FileStatus":[{"pathSuffix":"a","type":"FILE","length":-1}]}}`,
		`{"boolean":false}`,
		`{"Location":"http://datanode:9864/webhdfs/v1/x?op=OPEN&delegation=x"}`,
		`{"RemoteException":{"exception":"RemoteException","javaClassName":"x","message":"org.apache.hadoop.ipc.RemoteException(a.B): c\n\tat d"}}`,
		`[`, `null`, `{"FileStatus":null}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if st, err := decodeFileStatus(strings.NewReader(s)); err == nil {
			require.GreaterOrEqual(t, st.size, int64(0))
		}
		if p, err := decodeListing(strings.NewReader(s)); err == nil {
			require.LessOrEqual(t, len(p.entries), len(s))
		}
		decodeBoolean(strings.NewReader(s))
		if l, err := decodeLocation(strings.NewReader(s)); err == nil {
			require.NotEmpty(t, l)
		}
		if e := decodeException(strings.NewReader(s)); e != nil {
			require.NotContains(t, e.Error(), "\n")
			require.Less(t, len(e.message), maxMessage+10)
		}
	})
}
