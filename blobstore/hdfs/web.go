package hdfs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jcmturner/gokrb5/v8/spnego"

	"github.com/tidemark/tidemark/blobstore"
)

// web is the backend of webhdfs:// and swebhdfs://. It asks a namenode where to
// read or write and then talks to that datanode; redirections are never followed
// by the HTTP client itself, so that neither credentials nor data go where they
// should not: credentials only to namenodes, data only to the datanode named.
type web struct {
	cfg    *settings
	krb    *kerberos // nil: user.name or a delegation token
	http   *http.Client
	active atomic.Int32 // index in cfg.web
	spoke  atomic.Bool  // a namenode has answered

	uploads    context.Context // done when the store is closed
	endUploads context.CancelFunc

	paged atomic.Bool // false once the server is known not to page listings

	mu      sync.Mutex
	cookies map[string]string    // hadoop.auth by namenode; replaces SPNEGO until it expires
	dead    map[string]time.Time // hosts of datanodes that could not be reached, and when
}

func newWeb(cfg *settings, krb *kerberos) (*web, error) {
	w := &web{cfg: cfg, krb: krb, cookies: map[string]string{}, dead: map[string]time.Time{}}
	w.paged.Store(true)
	w.uploads, w.endUploads = context.WithCancel(context.Background())
	namenodes := map[string]bool{}
	for _, base := range cfg.web {
		u, err := url.Parse(base)
		if err != nil {
			return nil, err
		}
		namenodes[u.Host] = true
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			c, err := cfg.dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			limit := cfg.dataTimeout
			if namenodes[addr] {
				limit = cfg.rpcTimeout
			}
			return &limitedConn{Conn: c, limit: limit}, nil
		},
		TLSHandshakeTimeout: cfg.connectTimeout,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true, // Content-Length is compared with what comes
		ReadBufferSize:      64 << 10,
		WriteBufferSize:     64 << 10,
	}
	if cfg.caFile != "" {
		pem, err := os.ReadFile(cfg.caFile)
		if err != nil {
			return nil, err
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate in PEM form", cfg.caFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	w.http = &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

func (w *web) capabilities() blobstore.Capabilities {
	return blobstore.Capabilities{ExclusiveCreate: true, Directories: true}
}

func (w *web) close() error {
	w.endUploads()
	if w.krb != nil {
		w.krb.close()
	}
	w.http.CloseIdleConnections()
	return nil
}

// address builds a request's URL. Parameter names are in lower case: Hadoop 3.5
// ignores "startAfter" as documented.
func (w *web) address(base, path, op string, params url.Values) string {
	q := url.Values{"op": {op}}
	for k, v := range params {
		q[k] = v
	}
	switch {
	case w.cfg.delegationToken != "":
		q.Set("delegation", w.cfg.delegationToken)
	case w.krb == nil:
		q.Set("user.name", w.cfg.user)
	}
	return base + "/webhdfs/v1" + escapePath(path) + "?" + q.Encode()
}

// escapePath escapes each part of a path for itself. url.URL leaves ";" as it is,
// with which a server begins a part's parameters: it takes ".;" for ".".
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// namenode asks the active namenode, and gives its answer to decode if that is a
// success. It tries the others, and again, as settings.retryFor allows.
func (w *web) namenode(ctx context.Context, method, path, op string, params url.Values, decode func(*http.Response) error) error {
	tries := newAttempts(ctx, w.cfg, len(w.cfg.web), int(w.active.Load()))
	for tries.next() {
		err := w.once(ctx, w.cfg.web[tries.index], method, path, op, params, decode)
		if err == nil {
			w.active.Store(int32(tries.index))
			w.spoke.Store(true)
			return nil
		}
		// So answers a namenode that is just being stopped; or something else that has
		// never been one.
		if errors.Is(err, errNoWebHDFS) && w.spoke.Load() {
			err = &transportError{err}
		}
		// A standby namenode answers CREATE so instead of with StandbyException.
		if op == "CREATE" && isClass(err, "UnknownHostException", "IllegalArgumentException") && strings.Contains(err.Error(), "UnknownHostException") {
			err = &transportError{err}
		}
		if !tries.failed(err) {
			break
		}
	}
	return tries.err()
}

func (w *web) once(ctx context.Context, base, method, path, op string, params url.Values, decode func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, method, w.address(base, path, op, params), nil)
	if err != nil {
		return errors.New("the request's URL is not valid")
	}
	if err := w.authorize(ctx, base, req); err != nil {
		return err
	}
	resp, err := w.do(req)
	if err != nil {
		return err
	}
	defer drain(resp)
	if resp.StatusCode == http.StatusUnauthorized && w.forgetCookie(base) {
		drain(resp)
		return w.once(ctx, base, method, path, op, params, decode)
	}
	w.keepCookie(base, resp)
	if err := webError(resp); err != nil {
		return err
	}
	if decode == nil {
		return nil
	}
	if err := decode(resp); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	return nil
}

// do sends a request. Errors of net/http repeat the whole URL, with its tokens.
func (w *web) do(req *http.Request) (*http.Response, error) {
	resp, err := w.http.Do(req)
	if err == nil {
		return resp, nil
	}
	if req.Context().Err() != nil {
		return nil, req.Context().Err()
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var verify *tls.CertificateVerificationError
	if errors.As(err, &verify) {
		return nil, fmt.Errorf("%s: %w", req.URL.Host, err) // no use in trying again
	}
	var line textproto.ProtocolError
	if errors.As(err, &line) { // it quotes a line of the header, which may be a cookie
		err = errors.New("the header of the answer is malformed")
	}
	return nil, connectionError("%s: %w", req.URL.Host, err)
}

var errNoWebHDFS = errors.New("is this WebHDFS?")

// drain reads what is left of a small answer, so that the connection serves again.
func drain(resp *http.Response) {
	io.CopyN(io.Discard, resp.Body, maxWebAnswer)
	resp.Body.Close()
}

// webError is the error that an answer stands for; nil for success and redirection.
func webError(resp *http.Response) error {
	if resp.StatusCode < 400 {
		return nil
	}
	if e := decodeException(resp.Body); e != nil {
		return e
	}
	err := fmt.Errorf("%s: HTTP status %d %s", resp.Request.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		if strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Negotiate") {
			return fmt.Errorf("%w: the server wants Kerberos (hadoop.security.authentication=kerberos): %w", err, blobstore.ErrPermission)
		}
		return fmt.Errorf("%w: %w", err, blobstore.ErrPermission)
	case http.StatusForbidden:
		return fmt.Errorf("%w: %w", err, blobstore.ErrPermission)
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", err, errNoWebHDFS)
	}
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return &transportError{err}
	}
	return err
}

// authorize adds what proves who we are, to requests to namenodes only.
func (w *web) authorize(ctx context.Context, base string, req *http.Request) error {
	if w.krb == nil || w.cfg.delegationToken != "" {
		return nil
	}
	w.mu.Lock()
	cookie := w.cookies[base]
	w.mu.Unlock()
	if cookie != "" {
		req.Header.Set("Cookie", "hadoop.auth="+cookie)
		return nil
	}
	spn := "HTTP/" + strings.ToLower(req.URL.Hostname())
	c, _, _, err := w.krb.ticket(ctx, spn) // cached afterwards
	if err != nil {
		return err
	}
	if err := spnego.SetSPNEGOHeader(c, req, spn); err != nil {
		return fmt.Errorf("kerberos: %w: %w", err, blobstore.ErrPermission)
	}
	return nil
}

func (w *web) keepCookie(base string, resp *http.Response) {
	for _, c := range resp.Cookies() {
		if c.Name == "hadoop.auth" && w.krb != nil {
			w.mu.Lock()
			w.cookies[base] = strconv.Quote(strings.Trim(c.Value, `"`))
			w.mu.Unlock()
		}
	}
}

// forgetCookie says whether there was one: it may have expired.
func (w *web) forgetCookie(base string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, had := w.cookies[base]
	delete(w.cookies, base)
	return had
}

func (w *web) stat(ctx context.Context, path string) (status, error) {
	var s status
	err := w.namenode(ctx, http.MethodGet, path, "GETFILESTATUS", nil, func(resp *http.Response) (err error) {
		s, err = decodeFileStatus(resp.Body)
		return err
	})
	return s, err
}

func (w *web) list(ctx context.Context, dir, after string) (page, error) {
	var p page
	decode := func(resp *http.Response) (err error) {
		p, err = decodeListing(resp.Body)
		return err
	}
	if w.paged.Load() {
		params := url.Values{}
		if after != "" {
			params.Set("startafter", after)
		}
		err := w.namenode(ctx, http.MethodGet, dir, "LISTSTATUS_BATCH", params, decode)
		if !isClass(err, "IllegalArgumentException", "UnsupportedOperationException", "QueryParamException") {
			return p, err
		}
		// Hadoop 2 has no such operation.
		if werr := w.namenode(ctx, http.MethodGet, dir, "LISTSTATUS", nil, decode); werr != nil {
			return p, err
		}
		w.paged.Store(false)
	} else if err := w.namenode(ctx, http.MethodGet, dir, "LISTSTATUS", nil, decode); err != nil {
		return p, err
	}
	// All at once, in the same order.
	kept := p.entries[:0]
	for _, e := range p.entries {
		if after == "" || signedLess(after, e.name) {
			kept = append(kept, e)
		}
	}
	p.entries = kept
	return p, nil
}

func (w *web) mode(full uint32) string { return strconv.FormatUint(uint64(full&^w.cfg.umask), 8) }

func (w *web) mkdirs(ctx context.Context, dir string) error {
	ok, err := w.boolean(ctx, http.MethodPut, dir, "MKDIRS", url.Values{"permission": {w.mode(0o777)}})
	if err == nil && !ok {
		err = errors.New("the namenode did not make the directory")
	}
	return err
}

func (w *web) boolean(ctx context.Context, method, path, op string, params url.Values) (bool, error) {
	var ok bool
	err := w.namenode(ctx, method, path, op, params, func(resp *http.Response) (err error) {
		ok, err = decodeBoolean(resp.Body)
		return err
	})
	return ok, err
}

// rename uses the renameoptions: without them the answer to any failure is only
// "false", and a directory of the new name would swallow the file.
func (w *web) rename(ctx context.Context, from, to string, overwrite bool) error {
	option := "NONE"
	if overwrite {
		option = "OVERWRITE"
	}
	return w.namenode(ctx, http.MethodPut, from, "RENAME", url.Values{"destination": {to}, "renameoptions": {option}}, nil)
}

func (w *web) remove(ctx context.Context, path string) (bool, error) {
	return w.boolean(ctx, http.MethodDelete, path, "DELETE", url.Values{"recursive": {"false"}})
}

// locate asks a namenode which datanode to go to for data, other than those that
// could not be reached of late.
func (w *web) locate(ctx context.Context, method, path, op string, params url.Values) (string, error) {
	q := url.Values{"noredirect": {"true"}}
	for k, v := range params {
		q[k] = v
	}
	if dead := w.deadHosts(); dead != "" {
		q.Set("excludedatanodes", dead)
		location, err := w.location(ctx, method, path, op, q)
		if !isClass(err, "IOException") { // which says: none is left
			return location, err
		}
		q.Del("excludedatanodes")
	}
	return w.location(ctx, method, path, op, q)
}

const deadTime = time.Minute

// deadHosts lists them for the parameter excludedatanodes. That takes a host, or
// a host with the port of the native protocol, which we do not know.
func (w *web) deadHosts() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var hosts []string
	for host, at := range w.dead {
		if time.Since(at) > deadTime {
			delete(w.dead, host)
			continue
		}
		hosts = append(hosts, host)
	}
	return strings.Join(hosts, ",")
}

// noteDead takes note of a datanode that err says cannot be reached.
func (w *web) noteDead(u *url.URL, err error) {
	host := u.Hostname()
	if !isTransport(err) || strings.ContainsRune(host, ':') {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[host] = time.Now()
}

func (w *web) location(ctx context.Context, method, path, op string, q url.Values) (string, error) {
	location := ""
	err := w.namenode(ctx, method, path, op, q, func(resp *http.Response) error {
		if location = resp.Header.Get("Location"); location != "" { // Hadoop 2 knows no noredirect
			return nil
		}
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("HTTP status %d without a Location", resp.StatusCode)
		}
		var err error
		location, err = decodeLocation(resp.Body)
		return err
	})
	if err != nil {
		return "", err
	}
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", errors.New("the namenode's Location is no address of a datanode")
	}
	if u.Scheme == "http" && strings.HasPrefix(w.cfg.web[w.active.Load()], "https:") {
		return "", fmt.Errorf("the namenode sends to %s without TLS: refused", u.Host)
	}
	return location, nil
}

// webTries is how often a read is begun: the namenode may name a dead datanode again.
const webTries = 6

func (w *web) open(ctx context.Context, path string, offset, length int64, fileID uint64) (io.ReadCloser, status, error) {
	until := time.Now().Add(w.cfg.retryFor)
	for failures := 0; ; {
		st, err := w.stat(ctx, path)
		if err != nil {
			return nil, st, err
		}
		left := remaining(st.size, offset, length)
		switch {
		case fileID != 0 && st.fileID != fileID:
			return nil, st, errReplaced
		case st.dir:
			return nil, st, blobstore.ErrIsDirectory
		case left == 0:
			return io.NopCloser(eofReader{}), st, nil
		}
		params := url.Values{"offset": {strconv.FormatInt(offset, 10)}, "length": {strconv.FormatInt(left, 10)}}
		location, err := w.locate(ctx, http.MethodGet, path, "OPEN", params)
		if err != nil {
			return nil, st, err
		}
		body, err := w.get(ctx, location, left)
		if err == nil {
			var now status
			if now, err = w.stat(ctx, path); err == nil && now.fileID == st.fileID {
				return body, st, nil
			}
			body.Close()
			if err == nil { // the name has got another file meanwhile
				if time.Now().After(until) {
					return nil, st, fmt.Errorf("%w, again and again for %v", errReplaced, w.cfg.retryFor)
				}
				continue
			}
		}
		// A datanode that has lost the namenode may find it again as late as we would.
		var remote *remoteError
		patient := errors.As(err, &remote) && time.Now().Before(until)
		if failures++; !tryOther(err) || failures >= webTries && !patient {
			return nil, st, err
		}
		if err := sleep(ctx, min(firstPause<<min(failures, 6), maxPause)); err != nil {
			return nil, st, err
		}
	}
}

// get begins to read from a datanode, which must announce exactly size bytes.
func (w *web) get(ctx context.Context, location string, size int64) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location, nil)
	if err != nil {
		return nil, errors.New("the datanode's URL is not valid")
	}
	resp, err := w.do(req)
	if err != nil {
		w.noteDead(req.URL, err)
		return nil, err
	}
	switch err := webError(resp); {
	case err != nil:
		drain(resp)
		return nil, err
	case resp.StatusCode != http.StatusOK:
		resp.Body.Close()
		return nil, connectionError("%s: HTTP status %d instead of data", req.URL.Host, resp.StatusCode)
	case resp.ContentLength >= 0 && resp.ContentLength != size:
		resp.Body.Close()
		return nil, connectionError("%s announces %d bytes instead of %d", req.URL.Host, resp.ContentLength, size)
	}
	return &webBody{ctx: ctx, host: req.URL.Host, body: resp.Body, left: size}, nil
}

// webBody is what a datanode sends. That it ends early is seen by its length only.
type webBody struct {
	ctx  context.Context
	host string
	body io.ReadCloser
	left int64
}

func (b *webBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case b.left == 0:
		return n, nil
	case err == nil:
		return n, nil
	case b.ctx.Err() != nil:
		return n, b.ctx.Err()
	}
	if err = noEOF(err); errors.Is(err, io.ErrUnexpectedEOF) {
		err = errEarlyEnd
	}
	return n, connectionError("%s: %w", b.host, err)
}

// errEarlyEnd is all that a datanode says of a corrupt block, or of one whose
// datanodes are dead.
var errEarlyEnd = errors.New("the data ends early: the connection broke, or the block is corrupt or missing")

func (b *webBody) Close() error { return b.body.Close() }

func (w *web) create(ctx context.Context, path string, _ status) (upload, error) {
	params := url.Values{"overwrite": {"false"}, "createparent": {"false"}, "permission": {w.mode(0o666)}}
	if w.cfg.replication > 0 {
		params.Set("replication", strconv.Itoa(w.cfg.replication))
	}
	if w.cfg.blockSize > 0 {
		params.Set("blocksize", strconv.FormatInt(w.cfg.blockSize, 10))
	}
	location, err := w.locate(ctx, http.MethodPut, path, "CREATE", params)
	if err != nil {
		return nil, err
	}
	// Not of ctx: an upload that is cancelled is brought to an orderly end, see discard.
	detached, cancel := context.WithCancel(w.uploads)
	pr, pw := io.Pipe()
	req, err := http.NewRequestWithContext(detached, http.MethodPut, location, pr)
	if err != nil {
		cancel()
		return nil, errors.New("the datanode's URL is not valid")
	}
	req.Header.Set("Content-Type", "application/octet-stream") // HttpFS insists
	u := &webUpload{w: w, ctx: ctx, cancel: cancel, path: path, pipe: pw, done: make(chan struct{})}
	go func() {
		defer close(u.done)
		u.err = u.put(req)
		pr.CloseWithError(errUploadEnded)
	}()
	return u, nil
}

var errUploadEnded = errors.New("the upload has ended")

// webUpload sends a file to a datanode as it is written.
type webUpload struct {
	w      *web
	ctx    context.Context
	cancel context.CancelFunc // breaks the connection
	path   string
	pipe   *io.PipeWriter
	done   chan struct{} // closed after err is set
	err    error
}

func (u *webUpload) put(req *http.Request) error {
	resp, err := u.w.do(req)
	if err != nil {
		u.w.noteDead(req.URL, err)
		return err
	}
	defer drain(resp)
	if err := webError(resp); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusCreated {
		return connectionError("%s: HTTP status %d instead of 201", req.URL.Host, resp.StatusCode)
	}
	return nil
}

func (u *webUpload) Write(p []byte) (int, error) {
	stop := context.AfterFunc(u.ctx, u.cancel)
	n, err := u.pipe.Write(p)
	stop()
	if err == nil {
		return n, nil
	}
	<-u.done
	switch {
	case u.ctx.Err() != nil:
		err = u.ctx.Err()
	case u.err != nil:
		err = u.err
	default:
		err = connectionError("the datanode ended the upload early")
	}
	return n, err
}

func (u *webUpload) finish() error {
	stop := context.AfterFunc(u.ctx, u.cancel)
	u.pipe.Close()
	<-u.done
	stop()
	u.cancel()
	if u.err != nil {
		u.sweep()
	}
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	return u.err
}

const (
	discardTime = 500 * time.Millisecond
	sweeps      = 4
)

// discard ends the upload as if it were complete, and the caller removes the file.
// Breaking it off has the same effect, since the datanode then closes the file as
// it is; but nobody can say when.
func (u *webUpload) discard() {
	u.pipe.Close()
	t := time.NewTimer(discardTime)
	defer t.Stop()
	select {
	case <-u.done:
	case <-t.C:
	}
	u.cancel()
	<-u.done
	if u.err != nil {
		u.sweep()
	}
}

// sweep removes the file of an upload that broke, some times: the datanode may
// make it a moment after it was removed.
func (u *webUpload) sweep() {
	var remote *remoteError
	broken := isTransport(u.err) || errors.Is(u.err, context.Canceled) || errors.As(u.err, &remote) && remote.lostBehind()
	if !broken || u.w.uploads.Err() != nil { // or the store is closed: it is left behind
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTime)
	defer cancel()
	for pause, n := 20*time.Millisecond, 0; n < sweeps; pause, n = 2*pause, n+1 {
		if there, err := u.w.remove(ctx, u.path); there || err != nil || sleep(ctx, pause) != nil {
			return
		}
	}
}
