package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/faultproxy"
)

// The toy is the smallest store over a network: a memory store behind HTTP. With it
// the suite's fault cases are shown to pass where they should, and (see
// TestSuiteFindsMistakes) to fail where they should.
type toy struct {
	base   string // http://host:port/
	token  string
	client *http.Client
	flaws  flaws
}

// flaws are mistakes that a driver can make.
type flaws struct {
	shortReads  bool // takes an early end for the end
	notTemp     bool // does not mark what another try may cure
	showsToken  bool // shows the credential in errors
	listsPart   bool // takes a broken listing for a whole one
	deaf        bool // does not heed the context
	overwrites  bool // ignores IfAbsent
	leavesParts bool // shows what was not committed
}

const toyToken = "toy-secret-token"

func toyServer(t *testing.T) string {
	s := blobstore.NewMem()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if r.Header.Get("Authorization") != toyToken {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answer := func(err error) {
			switch {
			case err == nil:
			case errors.Is(err, blobstore.ErrNotExist):
				w.WriteHeader(http.StatusNotFound)
			case errors.Is(err, blobstore.ErrExist):
				w.WriteHeader(http.StatusPreconditionFailed)
			case errors.Is(err, blobstore.ErrInvalidName):
				w.WriteHeader(http.StatusBadRequest)
			default:
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		q := r.URL.Query()
		name := q.Get("name")
		once := &blobstore.WriteOptions{IfAbsent: r.Header.Get("If-None-Match") == "*"}
		switch r.Method {
		case "LIST":
			o := &blobstore.ListOptions{Prefix: name, StartAfter: q.Get("after"), Delimiter: q.Get("fold") != ""}
			var page []blobstore.Info
			for i, err := range s.List(ctx, o) {
				if err != nil {
					answer(err)
					return
				}
				if page = append(page, i); len(page) == 1000 {
					break
				}
			}
			json.NewEncoder(w).Encode(page)
		case http.MethodPut:
			b, err := io.ReadAll(r.Body)
			if err != nil || int64(len(b)) != r.ContentLength {
				return
			}
			answer(blobstore.WriteAll(ctx, s, name, b, once))
		case http.MethodDelete:
			answer(s.Delete(ctx, name))
		case "COPY":
			answer(s.Copy(ctx, name, q.Get("from"), once))
		case http.MethodGet, http.MethodHead:
			i, err := s.Stat(ctx, name)
			if err != nil {
				answer(err)
				return
			}
			off, _ := strconv.ParseInt(q.Get("offset"), 10, 64)
			n, _ := strconv.ParseInt(q.Get("length"), 10, 64)
			rd, err := s.OpenRange(ctx, name, off, n)
			if err != nil {
				answer(err)
				return
			}
			left := max(0, i.Size-off)
			if n >= 0 {
				left = min(left, n)
			}
			w.Header().Set("Content-Length", fmt.Sprint(left))
			w.Header().Set("Etag", i.ETag)
			w.Header().Set("X-Size", fmt.Sprint(i.Size))
			if r.Method == http.MethodGet {
				io.Copy(w, rd)
			}
		}
	})
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

func newToy(t *testing.T, addr, token string, f flaws) *toy {
	return &toy{base: "http://" + addr + "/", token: token, client: &http.Client{Transport: &http.Transport{}}, flaws: f}
}

func (s *toy) URL() string { return "toy://x" }
func (s *toy) Capabilities() blobstore.Capabilities {
	return blobstore.Capabilities{ExclusiveCreate: true, ServerCopy: true}
}

func (s *toy) Close() error { s.client.CloseIdleConnections(); return nil }

func (s *toy) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	u := "toy://x/" + name
	if s.flaws.showsToken {
		u += "?" + s.token
	}
	return &blobstore.Error{Op: op, URL: u, Err: err}
}

func (s *toy) temporary(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.flaws.notTemp:
		return errors.New("network")
	}
	return fmt.Errorf("network: %w", blobstore.ErrTemporary)
}

func (s *toy) call(ctx context.Context, method, name string, q url.Values, body io.Reader, once bool) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if method != "LIST" {
		if err := blobstore.ValidName(name); err != nil {
			return nil, err
		}
	}
	reqCtx := ctx
	if s.flaws.deaf {
		reqCtx = context.WithoutCancel(ctx)
	}
	if q == nil {
		q = url.Values{}
	}
	q.Set("name", name)
	req, err := http.NewRequestWithContext(reqCtx, method, s.base+"?"+q.Encode(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", s.token)
	if once && !s.flaws.overwrites {
		req.Header.Set("If-None-Match", "*")
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, s.temporary(ctx, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	res.Body.Close()
	switch res.StatusCode {
	case http.StatusForbidden:
		return nil, blobstore.ErrPermission
	case http.StatusNotFound:
		return nil, blobstore.ErrNotExist
	case http.StatusPreconditionFailed:
		return nil, blobstore.ErrExist
	}
	return nil, fmt.Errorf("status %d", res.StatusCode)
}

func (s *toy) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	return s.OpenRange(ctx, name, 0, -1)
}

func (s *toy) OpenRange(ctx context.Context, name string, offset, length int64) (blobstore.Reader, error) {
	if offset < 0 {
		return nil, s.fail("open", name, errors.New("negative offset"))
	}
	res, err := s.call(ctx, "GET", name, url.Values{"offset": {fmt.Sprint(offset)}, "length": {fmt.Sprint(length)}}, nil, false)
	if err != nil {
		return nil, s.fail("open", name, err)
	}
	return &toyReader{s, ctx, res.Body, toyInfo(name, res)}, nil
}

func toyInfo(name string, res *http.Response) blobstore.Info {
	n, _ := strconv.ParseInt(res.Header.Get("X-Size"), 10, 64)
	return blobstore.Info{Name: name, Size: n, ETag: res.Header.Get("Etag")}
}

type toyReader struct {
	s    *toy
	ctx  context.Context
	body io.ReadCloser
	info blobstore.Info
}

func (r *toyReader) Info() blobstore.Info { return r.info }
func (r *toyReader) Close() error         { return r.body.Close() }
func (r *toyReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, r.s.fail("read", r.info.Name, err)
	}
	n, err := r.body.Read(p)
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF && r.s.flaws.shortReads {
		if err != nil {
			err = io.EOF
		}
		return n, err
	}
	return n, r.s.fail("read", r.info.Name, r.s.temporary(r.ctx, err))
}

func (s *toy) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	res, err := s.call(ctx, "HEAD", name, url.Values{"length": {"0"}}, nil, false)
	if err != nil {
		return blobstore.Info{}, s.fail("stat", name, err)
	}
	res.Body.Close()
	return toyInfo(name, res), nil
}

func (s *toy) List(ctx context.Context, o *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	if o == nil {
		o = &blobstore.ListOptions{}
	}
	return func(yield func(blobstore.Info, error) bool) {
		after := o.StartAfter
		for {
			q := url.Values{"after": {after}}
			if o.Delimiter {
				q.Set("fold", "1")
			}
			res, err := s.call(ctx, "LIST", o.Prefix, q, nil, false)
			var page []blobstore.Info
			if err == nil {
				if err = json.NewDecoder(res.Body).Decode(&page); err != nil {
					err = s.temporary(ctx, err)
				}
				res.Body.Close()
			}
			if err != nil {
				if s.flaws.listsPart && errors.Is(err, blobstore.ErrTemporary) {
					return
				}
				yield(blobstore.Info{}, s.fail("list", o.Prefix, err))
				return
			}
			for _, i := range page {
				if err := ctx.Err(); err != nil {
					yield(blobstore.Info{}, s.fail("list", o.Prefix, err))
					return
				}
				if !yield(i, nil) {
					return
				}
				after = i.Name
			}
			if len(page) < 1000 {
				return
			}
		}
	}
}

type toyWriter struct {
	s     *toy
	ctx   context.Context
	name  string
	once  bool
	buf   bytes.Buffer
	ended error
}

func (s *toy) Create(ctx context.Context, name string, o *blobstore.WriteOptions) (blobstore.Writer, error) {
	err := ctx.Err()
	if err == nil {
		err = blobstore.ValidNewName(name)
	}
	if err != nil {
		return nil, s.fail("create", name, err)
	}
	return &toyWriter{s: s, ctx: ctx, name: name, once: o != nil && o.IfAbsent}, nil
}

func (w *toyWriter) use() error {
	if w.ended == nil {
		w.ended = w.ctx.Err()
	}
	return w.ended
}

func (w *toyWriter) Write(p []byte) (int, error) {
	if err := w.use(); err != nil {
		return 0, w.s.fail("write", w.name, err)
	}
	w.buf.Write(p)
	if w.s.flaws.leavesParts {
		res, err := w.s.call(w.ctx, "PUT", w.name, nil, bytes.NewReader(w.buf.Bytes()), false)
		if err == nil {
			res.Body.Close()
		}
	}
	return len(p), nil
}

func (w *toyWriter) Commit() error {
	if err := w.use(); err != nil {
		return w.s.fail("commit", w.name, err)
	}
	w.ended = blobstore.ErrClosed
	res, err := w.s.call(w.ctx, "PUT", w.name, nil, bytes.NewReader(w.buf.Bytes()), w.once)
	if err == nil {
		res.Body.Close()
	}
	return w.s.fail("commit", w.name, err)
}

func (w *toyWriter) Abort() error {
	if w.ended == nil {
		w.ended = blobstore.ErrClosed
	}
	return nil
}

func (s *toy) Delete(ctx context.Context, name string) error {
	res, err := s.call(ctx, "DELETE", name, nil, nil, false)
	if err == nil {
		res.Body.Close()
	}
	return s.fail("delete", name, err)
}

func (s *toy) DeleteAll(ctx context.Context, names []string) error {
	var errs []error
	for _, n := range names {
		errs = append(errs, s.Delete(ctx, n))
	}
	return errors.Join(errs...)
}

func (s *toy) Copy(ctx context.Context, dst, src string, o *blobstore.WriteOptions) error {
	err := blobstore.ValidNewName(dst)
	if err == nil {
		var res *http.Response
		if res, err = s.call(ctx, "COPY", dst, url.Values{"from": {src}}, nil, o != nil && o.IfAbsent); err == nil {
			res.Body.Close()
		}
	}
	return s.fail("copy", dst, err)
}

func toyFaults(f flaws, wrap func(blobstore.Store) blobstore.Store) func(t *testing.T) FaultEnv {
	return func(t *testing.T) FaultEnv {
		addr := toyServer(t)
		p, err := faultproxy.Start("127.0.0.1:0", addr)
		require.NoError(t, err)
		t.Cleanup(func() { p.Close() })
		return FaultEnv{
			Store:   wrap(newToy(t, p.Addr(), toyToken, f)),
			Direct:  newToy(t, addr, toyToken, flaws{}),
			Denied:  newToy(t, addr, "wrong-"+toyToken, f),
			Network: p,
		}
	}
}

func TestToyConformance(t *testing.T) {
	plain := func(s blobstore.Store) blobstore.Store { return s }
	Run(t, func(t *testing.T) blobstore.Store { return newToy(t, toyServer(t), toyToken, flaws{}) },
		&Options{Secrets: []string{toyToken}, PartSize: 1 << 20, Faults: toyFaults(flaws{}, plain)})
}

// With Retry a fault that happens once is not seen at all.
func TestToyWithRetry(t *testing.T) {
	retry := func(s blobstore.Store) blobstore.Store {
		return blobstore.Retry(s, &blobstore.RetryOptions{Attempts: 4, CallTimeout: 2 * time.Second, BaseDelay: 10 * time.Millisecond})
	}
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			o := (&Options{Secrets: []string{toyToken}, PartSize: 1 << 20}).withDefaults()
			f := toyFaults(flaws{}, retry)(t)
			f.Patience = 30 * time.Second
			c.run(&env{t, f.Store, &o}, &f)
			f.heal()
		})
	}
	for name, rule := range map[string]faultproxy.Rule{
		"reset": {ResetAfter: 1_000_000}, "end": {CloseAfter: 1_000_000}, "stall": {StallAfter: 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			f := toyFaults(flaws{}, retry)(t)
			e := &env{t, f.Store, &Options{}}
			data := pattern(faultSize, 1)
			e.put("x", data)
			rule.Direction, rule.Limit = "down", 1
			f.Set(rule)
			e.requireObject("x", data)
		})
	}
}

// mistakes are found by a case of the suite each.
var mistakes = map[string]struct {
	flaws flaws
	in    string
}{
	"short reads":         {flaws{shortReads: true}, "ClosedMidRead"},
	"not marked":          {flaws{notTemp: true}, "ServerGone"},
	"shows a credential":  {flaws{showsToken: true}, "Denied"},
	"part of a listing":   {flaws{listsPart: true}, "ResetMidList"},
	"deaf to the context": {flaws{deaf: true}, "Blackhole"},
	"two winners":         {flaws{overwrites: true}, "IfAbsentRace"},
	"visible parts":       {flaws{leavesParts: true}, "InvisibleBeforeCommit"},
}

// TestSuiteFindsMistakes: a driver that makes one does not pass. The failing runs
// are in processes of their own.
func TestSuiteFindsMistakes(t *testing.T) {
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run=^TestMistake$")
			c.Env = append(os.Environ(), "STORETEST_MISTAKE="+name)
			out, err := c.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s does not find it:\n%s", m.in, out)
			require.Contains(t, string(out), "--- FAIL: TestMistake/"+m.in)
		})
	}
}

func TestMistake(t *testing.T) {
	m, ok := mistakes[os.Getenv("STORETEST_MISTAKE")]
	if !ok {
		t.Skip("for TestSuiteFindsMistakes")
	}
	promptly = time.Second // it waits for nothing else, as the driver is deaf
	o := (&Options{Secrets: []string{toyToken}, PartSize: 1 << 20}).withDefaults()
	for _, c := range cases {
		if c.name == m.in {
			t.Run(c.name, func(t *testing.T) { c.run(&env{t, newToy(t, toyServer(t), toyToken, m.flaws), &o}) })
		}
	}
	for _, c := range faultCases {
		if c.name == m.in {
			t.Run(c.name, func(t *testing.T) {
				f := toyFaults(m.flaws, func(s blobstore.Store) blobstore.Store { return s })(t)
				f.Patience = 5 * time.Second
				c.run(&env{t, f.Store, &o}, &f)
			})
		}
	}
}
