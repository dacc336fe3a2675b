package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

const (
	// chunkSize is the unit in which a table is fetched and remembered.
	chunkSize = 1 << 20
	// maxFetch is the most that one request asks for.
	maxFetch = 4 << 20
)

// errGone is what a reader gets of a file that nobody needs any more.
var errGone = errors.New("the file is no longer part of the database")

// remoteFile is a file of a checkpoint that is read from the blob store as it is
// needed. What was fetched lies in a sparse file beside the database; when all of
// it is there and its checksum is right, the file is linked to where the database
// looks for it. Chunks are fetched once, however many wait for them.
type remoteFile struct {
	entry   sumEntry // what the checkpoint says of it
	display string   // in errors
	src     sst.Source
	mem     *chunkCache // instead of a cache file
	fs      vfs.FS      // of the cache file
	path    string      // of the cache file
	proc    *Process
	life    context.Context // of the database

	mu       sync.Mutex
	file     vfs.File // cache file, open while there are readers or fetches
	users    int      // readers and fetches
	present  []uint64
	missing  int
	fetching map[int]*fetch
	complete bool
	refs     int  // places that show it
	gone     bool // nobody needs it: it goes with its last user
	last     int  // chunk that was fetched last, and how many at once
	streak   int
	noCache  bool // the disk took nothing of it
	cacheErr error
	damaged  error
}

// fetch is one request under way, of chunks first..last.
type fetch struct {
	first, last int
	done        chan struct{}
	data        []byte // kept if it could not be cached
	err         error
	// ended says that the context of who made the request ended: others ask again.
	ended bool
}

func newRemoteFile(life context.Context, p *Process, fs vfs.FS, path, display string, e sumEntry, src sst.Source) *remoteFile {
	n := int((e.Size + chunkSize - 1) / chunkSize)
	return &remoteFile{entry: e, display: display, src: src, fs: fs, path: path, proc: p, life: life,
		present: make([]uint64, (n+63)/64), missing: n, fetching: map[int]*fetch{}}
}

func (r *remoteFile) chunks() int { return int((r.entry.Size + chunkSize - 1) / chunkSize) }

func (r *remoteFile) has(i int) bool { return r.present[i/64]&(1<<(i%64)) != 0 }

// use opens the cache file for a reader; done ends it.
func (r *remoteFile) use() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.useLocked()
}

func (r *remoteFile) useLocked() error {
	if r.damaged != nil {
		return r.damaged
	}
	if r.gone && r.file == nil {
		return fmt.Errorf("%s: %w", r.display, errGone)
	}
	if r.file == nil && !r.noCache && r.mem == nil {
		f, err := r.fs.OpenReadWrite(r.path, vfs.WriteCategoryUnspecified)
		if err != nil {
			if !r.complete {
				// Without room on the disk it is still readable.
				r.forgetLocked(err)
				r.users++
				return nil
			}
			return err
		}
		r.file = f
	}
	r.users++
	return nil
}

// forgetLocked gives up the cache.
func (r *remoteFile) forgetLocked(err error) {
	r.noCache, r.cacheErr = true, err
	clear(r.present)
	r.missing = r.chunks()
}

func (r *remoteFile) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	if r.users > 0 {
		return
	}
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
	if r.gone {
		r.fs.Remove(r.path)
	}
}

func (r *remoteFile) isGone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

// whyNotCached is why the disk does not have the file.
func (r *remoteFile) whyNotCached() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cacheErr
}

// begun says whether the cache file may be there.
func (r *remoteFile) begun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file != nil || r.complete || r.missing < r.chunks()
}

// whole says that the cache file was put there from elsewhere, and is proven.
func (r *remoteFile) whole() {
	r.mu.Lock()
	r.complete = true
	r.mu.Unlock()
}

// ref says that one more place shows the file; drop that one less does. The last
// drop gives it up: it goes with its last user.
func (r *remoteFile) ref() {
	r.mu.Lock()
	r.refs++
	r.mu.Unlock()
}

func (r *remoteFile) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs--
	if r.refs > 0 || r.gone {
		return
	}
	r.gone = true
	if r.users == 0 {
		r.fs.Remove(r.path)
	}
}

// evict removes what was fetched, if nobody reads it just now.
func (r *remoteFile) evict() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users > 0 || r.mem != nil || r.refs > 1 || !r.complete && r.missing == r.chunks() {
		return
	}
	r.fs.Remove(r.path)
	clear(r.present)
	r.missing, r.complete = r.chunks(), false
}

// readAt is that of io.ReaderAt, between use and done.
func (r *remoteFile) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: read at offset %d", r.display, off)
	}
	if off >= r.entry.Size {
		return 0, io.EOF
	}
	var eof error
	if int64(len(p)) > r.entry.Size-off {
		p, eof = p[:r.entry.Size-off], io.EOF
	}
	n := 0
	for n < len(p) {
		i := int((off + int64(n)) / chunkSize)
		end := min(int64(i+1)*chunkSize, off+int64(len(p)))
		part := p[n : end-off]
		if err := r.readChunk(ctx, i, part, off+int64(n)); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, eof
}

// readChunk reads p at off, all of which lies in chunk i.
func (r *remoteFile) readChunk(ctx context.Context, i int, p []byte, off int64) error {
	for {
		r.mu.Lock()
		if r.damaged != nil {
			r.mu.Unlock()
			return r.damaged
		}
		if r.mem != nil && r.mem.read(r, i, p, off-int64(i)*chunkSize) {
			r.mu.Unlock()
			return nil
		}
		if r.complete || r.has(i) {
			file := r.file
			r.mu.Unlock()
			n, err := file.ReadAt(p, off)
			if n == len(p) {
				return nil
			}
			return fmt.Errorf("%s: %s: byte %d: %w", r.display, r.path, off+int64(n), noEOF(err))
		}
		f, mine := r.begin(i, r.ahead(i))
		r.mu.Unlock()
		if mine {
			r.run(ctx, f)
		} else {
			select {
			case <-f.done:
			case <-ctx.Done():
				return ctx.Err()
			case <-r.life.Done():
				return context.Cause(r.life)
			}
		}
		if f.err != nil {
			if !mine && f.ended && ctx.Err() == nil && r.life.Err() == nil {
				continue
			}
			return f.err
		}
		if f.data != nil {
			copy(p, f.data[off-int64(f.first)*chunkSize:])
			return nil
		}
	}
}

func noEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ahead is how many chunks to fetch at i: more for what looks like a scan.
func (r *remoteFile) ahead(i int) int {
	if r.mem != nil {
		if r.last == i-1 && i > 0 {
			r.streak = min(r.streak*2, maxFetch/chunkSize)
		} else {
			r.streak = 1
		}
		r.last = i + r.streak - 1
		return r.streak
	}
	switch {
	case i > 1 && r.has(i-1) && r.has(i-2):
		return maxFetch / chunkSize
	case i > 0 && r.has(i-1):
		return 2
	}
	return 1
}

// begin gives the request that brings chunk i: one under way, or a new one of up
// to n missing chunks, which the caller has to run.
func (r *remoteFile) begin(i, n int) (f *fetch, mine bool) {
	if f, ok := r.fetching[i]; ok {
		return f, false
	}
	f = &fetch{first: i, last: i, done: make(chan struct{})}
	r.fetching[i] = f
	for k := i + 1; k < i+n && k < r.chunks() && !r.has(k) && r.fetching[k] == nil; k++ {
		f.last = k
		r.fetching[k] = f
	}
	return f, true
}

// run makes the request.
func (r *remoteFile) run(ctx context.Context, f *fetch) {
	off := int64(f.first) * chunkSize
	length := min(int64(f.last+1)*chunkSize, r.entry.Size) - off
	data, err := r.request(ctx, off, length)
	r.mu.Lock()
	file := r.file
	if r.noCache {
		file = nil
	}
	r.mu.Unlock()
	cached := false
	var werr error
	if err == nil && r.mem != nil {
		for k := f.first; k <= f.last; k++ {
			at := int64(k-f.first) * chunkSize
			r.mem.put(r, k, data[at:min(at+chunkSize, length)])
		}
	}
	if err == nil && file != nil {
		_, werr = file.WriteAt(data, off)
		cached = werr == nil
	}
	r.mu.Lock()
	if werr != nil {
		r.cacheErr = werr
	}
	for k := f.first; k <= f.last; k++ {
		delete(r.fetching, k)
		if cached && !r.has(k) {
			r.present[k/64] |= 1 << (k % 64)
			r.missing--
		}
	}
	if err == nil && !cached {
		f.data = data
	}
	if errors.Is(err, damage.ErrCorrupt) && r.damaged == nil {
		r.damaged = err
	}
	f.err, f.ended = err, err != nil && ctx.Err() != nil
	r.mu.Unlock()
	close(f.done)
}

func (r *remoteFile) request(ctx context.Context, off, length int64) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(r.life, func() { cancel(context.Cause(r.life)) })
	defer stop()
	release, err := r.proc.transfer(ctx, length)
	if err != nil {
		if r.life.Err() != nil {
			return nil, context.Cause(r.life)
		}
		return nil, err // not the cause, which has nothing to do with this file
	}
	defer release()
	data := make([]byte, length)
	n, err := r.src.ReadAt(ctx, data, off)
	switch {
	case int64(n) == length:
		return data, nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &damage.Error{Name: r.display, Offset: off + int64(n), Detail: fmt.Sprintf("the file ends here, it should have %d bytes", r.entry.Size), Err: damage.ErrCorrupt}
	}
	return nil, fmt.Errorf("%s: byte %d: %w", r.display, off, err)
}

// fetchAll fetches what is missing and checks the checksum. It ends early, with
// nil, if nobody needs the file any more or the disk does not take it.
func (r *remoteFile) fetchAll(ctx context.Context) (whole bool, err error) {
	if err := r.use(); err != nil {
		if errors.Is(err, errGone) {
			return false, nil
		}
		return false, err
	}
	defer r.done()
	for {
		r.mu.Lock()
		if r.complete || r.gone || r.noCache || r.damaged != nil {
			whole, err := r.complete, r.damaged
			r.mu.Unlock()
			return whole, err
		}
		i := r.firstMissing()
		if i < 0 {
			r.mu.Unlock()
			return r.check(ctx)
		}
		f, mine := r.begin(i, maxFetch/chunkSize)
		r.mu.Unlock()
		if mine {
			r.run(ctx, f)
		} else {
			select {
			case <-f.done:
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		if f.err != nil {
			if !mine && f.ended && ctx.Err() == nil && r.life.Err() == nil {
				continue // an upload that was aborted, say
			}
			return false, f.err
		}
		if f.data != nil { // could not be cached
			return false, nil
		}
	}
}

func (r *remoteFile) firstMissing() int {
	if r.missing == 0 {
		return -1
	}
	for w, word := range r.present {
		if ^word != 0 {
			if i := w*64 + bits.TrailingZeros64(^word); i < r.chunks() {
				return i
			}
		}
	}
	return -1
}

// check compares the checksum of the whole file, once.
func (r *remoteFile) check(ctx context.Context) (bool, error) {
	r.mu.Lock()
	file := r.file
	r.mu.Unlock()
	sum, err := sumOf(ctx, file, r.entry.Size)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.path, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sum != r.entry.Sum {
		r.damaged = r.entry.mismatch(r.display, sum)
		return false, r.damaged
	}
	r.complete = true
	return true, nil
}

// sumOf reads size bytes and gives their checksum.
func sumOf(ctx context.Context, f io.ReaderAt, size int64) (checksum, error) {
	h := xxhash.New()
	buf := make([]byte, min(size, 256<<10))
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-off)], off)
		h.Write(buf[:n])
		off += int64(n)
		if err != nil && off < size {
			return 0, fmt.Errorf("byte %d: %w", off, noEOF(err))
		}
	}
	return checksum(h.Sum64()), nil
}

// source reads a remoteFile like any other; for an upload of it.
func (r *remoteFile) source() sst.Source { return remoteSource{r} }

type remoteSource struct{ r *remoteFile }

func (s remoteSource) Size() int64 { return s.r.entry.Size }

func (s remoteSource) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := s.r.use(); err != nil {
		return 0, err
	}
	defer s.r.done()
	return s.r.readAt(ctx, p, off)
}
