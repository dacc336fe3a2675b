package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// memStore keeps objects in memory, for tests and for small jobs. Stores opened by
// mem://NAME are shared in the process by that name and live as long as it does;
// NewMem gives one of its own. Copying an object shares its bytes.
type memStore struct {
	url string

	mu      sync.RWMutex
	objects memIndex
	clock   int64 // nanoseconds, never the same for two commits, so that it is an ETag
}

var (
	memMu     sync.Mutex
	memStores = map[string]*memStore{}
)

func init() { Register(openMem, "mem") }

func openMem(_ context.Context, loc Location, _ *Options) (Store, error) {
	if loc.Query != "" {
		return nil, &Error{Op: "open", URL: loc.String(), Err: fmt.Errorf("%w: a memory store takes no URL parameters", ErrSettings)}
	}
	memMu.Lock()
	defer memMu.Unlock()
	s, ok := memStores[loc.Authority]
	if !ok {
		s = &memStore{url: loc.Root().String()}
		memStores[loc.Authority] = s
	}
	return s, nil
}

// NewMem makes an empty store in memory that no URL reaches.
func NewMem() Store { return &memStore{url: "mem://"} }

// memObject is one object; data is never changed, so that readers need no lock.
type memObject struct {
	name string
	data string
	time int64
}

// memIndex is a sorted list in sorted pieces of bounded length, so that finding,
// adding and removing are cheap at any size and a listing can go on from a name.
type memIndex struct {
	pieces [][]memObject // none is empty
}

const memPiece = 256

// find gives the place of name, or of the first one after it.
func (x *memIndex) find(name string) (piece, i int, found bool) {
	piece, _ = slices.BinarySearchFunc(x.pieces, name, func(p []memObject, name string) int {
		return strings.Compare(p[len(p)-1].name, name)
	})
	if piece == len(x.pieces) {
		return piece, 0, false
	}
	i, found = slices.BinarySearchFunc(x.pieces[piece], name, func(o memObject, name string) int {
		return strings.Compare(o.name, name)
	})
	return piece, i, found
}

func (x *memIndex) get(name string) (memObject, bool) {
	if p, i, ok := x.find(name); ok {
		return x.pieces[p][i], true
	}
	return memObject{}, false
}

func (x *memIndex) put(o memObject) {
	p, i, ok := x.find(o.name)
	switch {
	case ok:
		x.pieces[p][i] = o
		return
	case p == len(x.pieces): // after all others
		if p > 0 && len(x.pieces[p-1]) < memPiece {
			x.pieces[p-1] = append(x.pieces[p-1], o)
		} else {
			x.pieces = append(x.pieces, append(make([]memObject, 0, memPiece), o))
		}
		return
	case len(x.pieces[p]) == memPiece:
		half := append(make([]memObject, 0, memPiece), x.pieces[p][memPiece/2:]...)
		clear(x.pieces[p][memPiece/2:])
		x.pieces[p] = x.pieces[p][:memPiece/2]
		x.pieces = slices.Insert(x.pieces, p+1, half)
		if i > memPiece/2 {
			p, i = p+1, i-memPiece/2
		}
	}
	x.pieces[p] = slices.Insert(x.pieces[p], i, o)
}

func (x *memIndex) remove(name string) {
	p, i, ok := x.find(name)
	if !ok {
		return
	}
	x.pieces[p] = slices.Delete(x.pieces[p], i, i+1)
	if len(x.pieces[p]) == 0 {
		x.pieces = slices.Delete(x.pieces, p, p+1)
	}
}

// from appends up to cap(dst)-len(dst) objects in order, those that sort at or
// after name; after it if past is set.
func (x *memIndex) from(name string, past bool, dst []memObject) []memObject {
	p, i, found := x.find(name)
	if found && past {
		i++
	}
	for ; p < len(x.pieces) && len(dst) < cap(dst); p, i = p+1, 0 {
		n := min(len(x.pieces[p])-i, cap(dst)-len(dst))
		dst = append(dst, x.pieces[p][i:i+n]...)
	}
	return dst
}

func (s *memStore) URL() string { return s.url }

func (s *memStore) Capabilities() Capabilities {
	return Capabilities{ExclusiveCreate: true, ServerCopy: true}
}

func (s *memStore) Close() error { return nil }

func (s *memStore) fail(op, name string, err error) error {
	return &Error{Op: op, URL: joinURL(s.url, name), Err: err}
}

func (o *memObject) info() Info {
	return Info{Name: o.name, Size: int64(len(o.data)), ModTime: time.Unix(0, o.time), ETag: strconv.FormatInt(o.time, 36)}
}

// get checks the name and the context.
func (s *memStore) get(ctx context.Context, op, name string) (memObject, error) {
	err := ctx.Err()
	if err == nil {
		err = checkName(name)
	}
	if err != nil {
		return memObject{}, s.fail(op, name, err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects.get(name)
	if !ok {
		return memObject{}, s.fail(op, name, ErrNotExist)
	}
	return o, nil
}

func (s *memStore) Open(ctx context.Context, name string) (Reader, error) {
	return s.OpenRange(ctx, name, 0, -1)
}

func (s *memStore) OpenRange(ctx context.Context, name string, offset, length int64) (Reader, error) {
	o, err := s.get(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, s.fail("open", name, errNegativeOffset)
	}
	data := o.data[min(offset, int64(len(o.data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return &memReader{s: s, ctx: ctx, info: o.info(), data: data}, nil
}

type memReader struct {
	s      *memStore
	ctx    context.Context
	info   Info
	data   string
	closed bool
}

func (r *memReader) Info() Info { return r.info }

func (r *memReader) Read(p []byte) (int, error) {
	if r.closed {
		return 0, r.s.fail("read", r.info.Name, ErrClosed)
	}
	if err := r.ctx.Err(); err != nil {
		return 0, r.s.fail("read", r.info.Name, err)
	}
	if r.data == "" {
		return 0, io.EOF
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

func (r *memReader) Close() error { r.closed, r.data = true, ""; return nil }

func (s *memStore) Stat(ctx context.Context, name string) (Info, error) {
	o, err := s.get(ctx, "stat", name)
	if err != nil {
		return Info{}, err
	}
	return o.info(), nil
}

// List takes the lock for some hundred objects at a time. An object that is there
// all the while is listed exactly once.
func (s *memStore) List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	var o ListOptions
	if opts != nil {
		o = *opts
	}
	return func(yield func(Info, error) bool) {
		next, past := max(o.Prefix, o.StartAfter), false // the first name that may be listed
		batch := make([]memObject, 0, 16)
		for {
			if err := ctx.Err(); err != nil {
				yield(Info{}, s.fail("list", o.Prefix, err))
				return
			}
			s.mu.RLock()
			batch = s.objects.from(next, past, batch[:0])
			s.mu.RUnlock()
			if len(batch) == 0 {
				return
			}
			for i := range batch {
				b := &batch[i]
				if b.name < next { // folded into the last prefix
					continue
				}
				rest, ok := strings.CutPrefix(b.name, o.Prefix)
				if !ok {
					return
				}
				next, past = b.name, true
				slash := strings.IndexByte(rest, '/')
				if o.Delimiter && slash >= 0 {
					dir := b.name[:len(o.Prefix)+slash+1]
					next, past = dir[:len(dir)-1]+"0", false // "0" is the byte after "/"
					if dir > o.StartAfter && !yield(Info{Name: dir, IsPrefix: true}, nil) {
						return
					}
				} else if b.name > o.StartAfter && !yield(b.info(), nil) {
					return
				}
				if i%64 == 63 && ctx.Err() != nil {
					break
				}
			}
			if cap(batch) < memPiece {
				batch = make([]memObject, 0, memPiece)
			}
		}
	}
}

type memWriter struct {
	s        *memStore
	ctx      context.Context
	name     string
	ifAbsent bool
	buf      []byte
	ended    error
}

func (s *memStore) Create(ctx context.Context, name string, opts *WriteOptions) (Writer, error) {
	err := ctx.Err()
	if err == nil {
		err = ValidNewName(name)
	}
	if err != nil {
		return nil, s.fail("create", name, err)
	}
	w := &memWriter{s: s, ctx: ctx, name: name}
	if opts != nil {
		w.ifAbsent = opts.IfAbsent
		w.buf = make([]byte, 0, max(0, min(opts.SizeHint, 64<<20))) // a hint, not a promise
	}
	return w, nil
}

func (w *memWriter) use(op string) error {
	if w.ended == nil {
		if err := w.ctx.Err(); err != nil {
			w.ended, w.buf = err, nil
		}
	}
	if w.ended != nil {
		return w.s.fail(op, w.name, w.ended)
	}
	return nil
}

func (w *memWriter) Write(p []byte) (int, error) {
	if err := w.use("write"); err != nil {
		return 0, err
	}
	w.buf = append(w.buf, p...)
	return len(p), nil
}

func (w *memWriter) Commit() error {
	if err := w.use("commit"); err != nil {
		return err
	}
	data := w.buf
	if cap(data)-len(data) > len(data)/8 { // not twice the memory for as long as it lives
		data = slices.Clone(data)
	}
	w.ended, w.buf = ErrClosed, nil
	return w.s.put("commit", w.name, unsafe.String(unsafe.SliceData(data), len(data)), w.ifAbsent)
}

func (w *memWriter) Abort() error {
	if w.ended == nil {
		w.ended, w.buf = ErrClosed, nil
	}
	return nil
}

// put takes data, which nobody changes any more.
func (s *memStore) put(op, name, data string, ifAbsent bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ifAbsent {
		if _, ok := s.objects.get(name); ok {
			return s.fail(op, name, ErrExist)
		}
	}
	s.clock = max(s.clock+1, time.Now().UnixNano())
	s.objects.put(memObject{name: strings.Clone(name), data: data, time: s.clock})
	return nil
}

func (s *memStore) Delete(ctx context.Context, name string) error {
	err := ctx.Err()
	if err == nil {
		err = checkName(name)
	}
	if err != nil {
		return s.fail("delete", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.remove(name)
	return nil
}

func (s *memStore) DeleteAll(ctx context.Context, names []string) error {
	var errs []error
	for _, n := range names {
		errs = append(errs, s.Delete(ctx, n))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (s *memStore) Copy(ctx context.Context, dst, src string, opts *WriteOptions) error {
	o, err := s.get(ctx, "copy", src)
	if err != nil {
		return err
	}
	if err := ValidNewName(dst); err != nil {
		return s.fail("copy", dst, err)
	}
	return s.put("copy", dst, o.data, opts != nil && opts.IfAbsent)
}
