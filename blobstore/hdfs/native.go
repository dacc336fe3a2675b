package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/colinmarc/hdfs/v2"

	"github.com/tidemark/tidemark/blobstore"
)

// native is the backend of hdfs://.
type native struct {
	cfg  *settings
	krb  *kerberos // nil: simple authentication
	rpc  *rpcClient
	pool *sessionPool

	mu       sync.Mutex
	defaults *serverDefaults
	web      *web // made when first needed, see byWeb
}

func newNative(cfg *settings) (*native, error) {
	if err := checkProtection(cfg, false); err != nil {
		return nil, err
	}
	n := &native{cfg: cfg}
	if cfg.kerberos {
		n.krb = &kerberos{login: cfg.login}
	}
	n.rpc = newRPCClient(cfg, n.krb)
	n.pool = &sessionPool{cfg: cfg, krb: n.krb, rpc: n.rpc, all: map[*session]struct{}{}}
	return n, nil
}

func (n *native) capabilities() blobstore.Capabilities {
	return blobstore.Capabilities{ExclusiveCreate: true, Directories: true}
}

func (n *native) stat(ctx context.Context, path string) (status, error) {
	return n.rpc.getFileInfo(ctx, path)
}

func (n *native) list(ctx context.Context, dir, after string) (page, error) {
	return n.rpc.getListing(ctx, dir, after)
}

func (n *native) mkdirs(ctx context.Context, dir string) error { return n.rpc.mkdirs(ctx, dir) }

func (n *native) rename(ctx context.Context, from, to string, overwrite bool) error {
	return n.rpc.rename(ctx, from, to, overwrite)
}

func (n *native) remove(ctx context.Context, path string) (bool, error) {
	return n.rpc.delete(ctx, path)
}

func (n *native) close() error {
	n.pool.close()
	n.rpc.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.web != nil {
		n.web.close()
	}
	if n.krb != nil {
		n.krb.close()
	}
	return nil
}

// session takes a session, once it is known that the library can work with this
// cluster. Asking our own RPC client first also gives the better errors: the
// library says "unexpected sequence number" for a wrong kind of authentication.
func (n *native) session(ctx context.Context) (*session, serverDefaults, error) {
	n.mu.Lock()
	d := n.defaults
	n.mu.Unlock()
	if d == nil {
		got, err := n.rpc.getServerDefaults(ctx)
		if err != nil {
			return nil, got, err
		}
		n.mu.Lock()
		n.defaults, d = &got, &got
		n.mu.Unlock()
	}
	if err := checkProtection(n.cfg, d.encrypt); err != nil {
		return nil, *d, err
	}
	s, err := n.pool.get(ctx)
	return s, *d, err
}

// byWeb says how to reach a file that the native client cannot: erasure coded, or
// in an encryption zone, where it would read the ciphertext.
func (n *native) byWeb(s status) (*web, error) {
	what := "erasure coded"
	if s.encrypted {
		what = "in an encryption zone"
	}
	if len(n.cfg.web) == 0 {
		return nil, fmt.Errorf("%s, which the native client cannot handle: use %s: %w", what, n.cfg.webAdvice(), blobstore.ErrUnsupported)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.web == nil {
		w, err := newWeb(n.cfg, n.krb)
		if err != nil {
			return nil, err
		}
		n.web = w
	}
	return n.web, nil
}

func (s status) needsWeb() bool { return s.erasureCode || s.encrypted }

var errReplaced = errors.New("the file was replaced while it was being read")

func (n *native) open(ctx context.Context, path string, offset, length int64, fileID uint64) (io.ReadCloser, status, error) {
	var st status
	var body io.ReadCloser
	err := n.withSession(ctx, func(s *session, _ serverDefaults) (keep bool, err error) {
		b := &nativeBody{ctx: ctx, pool: n.pool, s: s, chunk: chunkRead}
		for until := time.Now().Add(n.cfg.retryFor); time.Now().Before(until); {
			if b.file, err = s.client.Open(path); err != nil {
				err = libraryError(err)
				if !isTransport(err) { // ask again for the message, which the library drops
					if _, rerr := n.rpc.getFileInfo(ctx, path); rerr != nil {
						err = rerr
					}
				}
				return false, err
			}
			st = fileStatus(b.file.Stat())
			if fileID != 0 && st.fileID != fileID {
				return true, errReplaced
			}
			if st.dir || st.needsWeb() {
				return true, nil
			}
			b.left = remaining(st.size, offset, length)
			if b.left == 0 {
				body = io.NopCloser(eofReader{})
				return true, nil
			}
			b.path, b.at = path, offset
			if err = b.begin(); err != nil {
				return false, s.dataFailure(err)
			}
			// The library asks for the status and for the blocks in two calls;
			// between them the name may have got another file.
			now, err := n.rpc.getFileInfo(ctx, path)
			if err != nil {
				return false, err
			}
			if now.fileID == st.fileID {
				body, b.fileID = b, st.fileID
				b.stop = context.AfterFunc(ctx, s.kill)
				return false, nil
			}
			b.file.Close()
		}
		return true, fmt.Errorf("%w, again and again for %v", errReplaced, n.cfg.retryFor)
	})
	switch {
	case err != nil:
		return nil, st, err
	case st.dir:
		return nil, st, blobstore.ErrIsDirectory
	case body == nil:
		w, err := n.byWeb(st)
		if err != nil {
			return nil, st, err
		}
		return w.open(ctx, path, offset, length, st.fileID)
	}
	return body, st, nil
}

// withSession calls f with a session, again with a new one while the connection
// to the namenode is what fails. Unless f hands the session on (keep is false and
// there is no error), it goes back to the pool or is closed.
func (n *native) withSession(ctx context.Context, f func(*session, serverDefaults) (keep bool, err error)) error {
	tries := newAttempts(ctx, n.cfg, 1, 0)
	for tries.next() {
		s, d, err := n.session(ctx)
		if err == nil {
			var keep bool
			stop := context.AfterFunc(ctx, s.kill)
			keep, err = f(s, d)
			stop()
			switch {
			case keep:
				n.pool.put(s)
			case err != nil:
				s.close()
			}
		}
		if err == nil {
			return nil
		}
		if !tries.failed(err) {
			return tries.err()
		}
	}
	return tries.err()
}

// remaining is how many bytes a range has in a file.
func remaining(size, offset, length int64) int64 {
	left := max(0, size-offset)
	if length >= 0 {
		left = min(left, length)
	}
	return left
}

type eofReader struct{}

func (eofReader) Read([]byte) (int, error) { return 0, io.EOF }

// fileStatus reads the library's FileInfo.
func fileStatus(fi fs.FileInfo) status {
	s := status{dir: fi.IsDir(), size: fi.Size(), modMillis: fi.ModTime().UnixMilli()}
	if sys, ok := fi.Sys().(interface {
		GetFlags() uint32
		GetFileId() uint64
	}); ok {
		s.fileID = sys.GetFileId()
		s.setFlags(sys.GetFlags())
	}
	return s
}

// nativeBody reads a range of a file through the library. It owns its session.
type nativeBody struct {
	ctx  context.Context
	pool *sessionPool
	s    *session
	stop func() bool // of the context's AfterFunc

	path   string
	fileID uint64
	file   *hdfs.FileReader
	at     int64 // offset in the file of the next byte from the library
	left   int64 // bytes still to be given out
	chunk  int   // see chunkRead
	first  [chunkRead]byte
	ahead  []byte // part of first that is not given out yet
	failed bool
}

// begin reads the first bytes, so that the blocks are known.
func (b *nativeBody) begin() error {
	if _, err := b.file.Seek(b.at, io.SeekStart); err != nil {
		return libraryError(err)
	}
	n, err := b.next(b.first[:min(int64(b.chunk), b.left)])
	b.ahead = b.first[:n]
	return err
}

// next reads once from the library, never more than it can check.
func (b *nativeBody) next(p []byte) (int, error) {
	for {
		n, err := b.file.Read(p[:min(len(p), b.chunk)])
		b.at += int64(n)
		if n > 0 {
			return n, nil
		}
		if err == nil {
			continue
		}
		var small *smallChunkError
		if errors.As(err, &small) && small.chunk > 1 && small.chunk <= b.chunk {
			// Once more with reads that are small enough.
			b.chunk = small.chunk - 1
			b.s.shared.minChunk.Store(int32(small.chunk))
			b.file.Close()
			if b.file, err = b.s.client.Open(b.path); err == nil {
				_, err = b.file.Seek(b.at, io.SeekStart)
			}
			if err == nil {
				continue
			}
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, libraryError(err)
	}
}

// maxFill is how much one Read gives at most; the context is looked at between two.
const maxFill = 256 << 10

func (b *nativeBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.failed {
		return 0, &transportError{net.ErrClosed}
	}
	p = p[:min(int64(len(p)), b.left, maxFill)]
	n := copy(p, b.ahead)
	b.ahead = b.ahead[n:]
	for n < len(p) {
		k, err := b.next(p[n:])
		n += k
		if err != nil {
			b.left -= int64(n)
			b.failed = true
			if b.ctx.Err() != nil {
				err = b.ctx.Err()
			}
			return n, err
		}
	}
	b.left -= int64(n)
	return n, nil
}

func (b *nativeBody) Close() error {
	if b.s == nil {
		return nil
	}
	b.file.Close()
	if b.stop() && !b.failed {
		b.pool.put(b.s)
	} else {
		b.s.close()
	}
	b.s = nil
	return nil
}

func (n *native) create(ctx context.Context, path string, parent status) (upload, error) {
	if parent.needsWeb() {
		w, err := n.byWeb(parent)
		if err != nil {
			return nil, err
		}
		return w.create(ctx, path, parent)
	}
	var up *nativeUpload
	tried := false
	err := n.withSession(ctx, func(s *session, d serverDefaults) (bool, error) {
		if tried { // the call that got no answer may have made it
			n.rpc.delete(ctx, path)
		}
		tried = true
		replication, blockSize := d.replication, d.blockSize
		if n.cfg.replication > 0 {
			replication = n.cfg.replication
		}
		if n.cfg.blockSize > 0 {
			blockSize = n.cfg.blockSize
		}
		f, err := s.client.CreateFile(path, replication, blockSize, os.FileMode(0o666&^n.cfg.umask))
		if err != nil {
			return false, libraryError(err)
		}
		up = &nativeUpload{ctx: ctx, pool: n.pool, s: s, file: f}
		up.stop = context.AfterFunc(ctx, s.kill)
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return up, nil
}

// nativeUpload writes a file through the library. It owns its session.
type nativeUpload struct {
	ctx  context.Context
	pool *sessionPool
	s    *session
	stop func() bool
	file *hdfs.FileWriter
}

func (u *nativeUpload) Write(p []byte) (int, error) {
	if len(p) == 0 { // the library would begin a block, which can never be completed
		return 0, nil
	}
	n, err := u.file.Write(p)
	if err == nil {
		err = u.s.shared.writeError()
	}
	return n, u.explain(err)
}

func (u *nativeUpload) explain(err error) error {
	if err == nil {
		return nil
	}
	if u.ctx.Err() != nil {
		return u.ctx.Err()
	}
	if first := u.s.shared.writeError(); first != nil {
		err = first
	}
	return libraryError(err)
}

// finish closes the file. The namenode refuses while fewer datanodes than needed
// have reported the last block, which is the usual case for a small file: they
// report a moment after they answered the writer.
func (u *nativeUpload) finish() error {
	deadline := time.Now().Add(u.pool.cfg.dataTimeout)
	err := u.file.Close()
	for pause := time.Millisecond; hdfs.IsErrReplicating(err) && time.Now().Before(deadline); pause = min(2*pause, time.Second) {
		if serr := sleep(u.ctx, pause); serr != nil {
			err = serr
			break
		}
		err = u.file.Close()
	}
	if err != nil {
		err = u.explain(err)
		u.discard()
		return err
	}
	s := u.s
	u.s = nil
	if u.stop() {
		u.pool.put(s)
	} else {
		s.close()
	}
	return nil
}

func (u *nativeUpload) discard() {
	if u.s == nil {
		return
	}
	u.stop()
	u.s.kill()
	u.file.Close() // fails at once, and ends the library's goroutines
	u.s.close()
	u.s = nil
}
