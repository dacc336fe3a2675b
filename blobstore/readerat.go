package blobstore

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ReaderAtOptions change a ReaderAt. Nil or zero is the default.
type ReaderAtOptions struct {
	// BlockSize in bytes is the unit of fetching and caching; 0 is 64 KiB.
	BlockSize int
	// Cache is shared with other readers; nil is one of 64 blocks of its own.
	Cache *BlockCache
	// ReadAhead is how many blocks a sequential reader gets at most by one ranged
	// read: it gets 1, 2, 4, … 0 is 16, 1 is none ahead. What was read ahead takes
	// part in the cache.
	ReadAhead int
}

// BlockCache holds blocks of many ReaderAts, the last used ones, in bounded memory.
// For concurrent use.
type BlockCache struct {
	max int64

	mu     sync.Mutex
	blocks map[blockKey]*list.Element
	order  list.List // of *block, the last used first
	used   int64     // bytes of the loaded ones
	free   [][]byte  // buffers to use again, some
}

type blockKey struct {
	r *ReaderAt
	n int64 // number of the block
}

type block struct {
	key   blockKey
	ready chan struct{} // closed when data or err is set
	data  []byte
	err   error

	loaded bool // in the cache for good; under the lock of the cache
}

// NewBlockCache makes a cache of maxBytes; blocks being loaded come on top.
func NewBlockCache(maxBytes int64) *BlockCache {
	return &BlockCache{max: maxBytes, blocks: map[blockKey]*list.Element{}}
}

// Used is the number of bytes held.
func (c *BlockCache) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// evict drops the least used blocks beyond the limit; with the lock held.
func (c *BlockCache) evict() {
	for e := c.order.Back(); e != nil && c.used > c.max; {
		b, prev := e.Value.(*block), e.Prev()
		if b.loaded {
			c.remove(e)
		}
		e = prev
	}
}

func (c *BlockCache) remove(e *list.Element) {
	b := c.order.Remove(e).(*block)
	delete(c.blocks, b.key)
	c.used -= int64(len(b.data))
	c.recycle(b.data)
	b.data = nil // nobody holds it: data are copied under the lock
}

// maxFree bounds the buffers kept for use.
const maxFree = 16

func (c *BlockCache) recycle(data []byte) {
	if len(c.free) < maxFree {
		c.free = append(c.free, data)
	}
}

// buffer gives n bytes of any content.
func (c *BlockCache) buffer(n int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.free) - 1; i >= 0; i-- {
		if b := c.free[i]; int64(cap(b)) >= n {
			c.free[i] = c.free[len(c.free)-1]
			c.free = c.free[:len(c.free)-1]
			return b[:n]
		}
	}
	return make([]byte, n)
}

// ReaderAt reads an object at any offset, by ranged reads of whole blocks that are
// kept in a cache. An object that is replaced meanwhile is noticed by its ETag and
// size, and reading fails from then on, also where the store ignores conditions. For
// concurrent use: two readers of one block fetch it once.
type ReaderAt struct {
	parent context.Context
	ctx    context.Context // ends with parent and with Close
	cancel context.CancelFunc
	s      Store
	name   string
	size   int64
	bs     int64
	ahead  int64
	cache  *BlockCache

	mu     sync.Mutex
	etag   string
	known  bool  // etag is set
	next   int64 // the block after the last fetched one
	window int64 // blocks fetched by the last read in sequence
}

// NewReaderAt makes a ReaderAt of an object of size bytes, which is checked at the
// first read; if size is negative the store is asked. Reads are under ctx.
func NewReaderAt(ctx context.Context, s Store, name string, size int64, opts *ReaderAtOptions) (*ReaderAt, error) {
	var o ReaderAtOptions
	if opts != nil {
		o = *opts
	}
	if o.BlockSize <= 0 {
		o.BlockSize = 64 << 10
	}
	if o.Cache == nil {
		o.Cache = NewBlockCache(64 * int64(o.BlockSize))
	}
	if o.ReadAhead <= 0 {
		o.ReadAhead = 16
	}
	r := &ReaderAt{s: s, name: name, size: size, bs: int64(o.BlockSize), ahead: int64(o.ReadAhead), cache: o.Cache, next: -1}
	if size < 0 {
		i, err := s.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		r.size, r.etag, r.known = i.Size, i.ETag, true
	}
	r.parent = ctx
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r, nil
}

// Size is that of the object in bytes.
func (r *ReaderAt) Size() int64 { return r.size }

func (r *ReaderAt) fail(err error) error {
	return &Error{Op: "read", URL: joinURL(r.s.URL(), r.name), Err: err}
}

// Close ends reads under way and drops the blocks.
func (r *ReaderAt) Close() error {
	r.cancel()
	c := r.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if b := e.Value.(*block); b.key.r == r && b.loaded {
			c.remove(e)
		}
		e = next
	}
	return nil
}

// ReadAt is that of io.ReaderAt.
func (r *ReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, r.fail(errNegativeOffset)
	}
	want := len(p)
	p = p[:max(0, min(int64(len(p)), r.size-off))]
	n, err := 0, error(nil)
	for n < len(p) && err == nil {
		var m int
		m, err = r.step(p[n:], off+int64(n))
		n += m
	}
	if err == nil && n < want {
		err = io.EOF
	}
	return n, err
}

// step copies from the block at off, or from several that it fetches at once. p
// does not go beyond the end of the object.
func (r *ReaderAt) step(p []byte, off int64) (int, error) {
	first := off / r.bs
	c := r.cache
	c.mu.Lock()
	if e, ok := c.blocks[blockKey{r, first}]; ok {
		c.order.MoveToFront(e)
		b := e.Value.(*block)
		if b.loaded {
			defer c.mu.Unlock()
			return copy(p, b.data[off-first*r.bs:]), nil
		}
		c.mu.Unlock()
		select {
		case <-b.ready:
			return 0, b.err // and look again
		case <-r.ctx.Done():
			return 0, r.stopped()
		}
	}
	if r.ctx.Err() != nil {
		c.mu.Unlock()
		return 0, r.stopped()
	}
	// All blocks of p, and some more if the reader goes on where it stopped; up to
	// one that is there already.
	last := (off + int64(len(p)) - 1) / r.bs
	r.mu.Lock()
	if first == r.next && r.ahead > 1 {
		r.window = min(2*max(r.window, 1), r.ahead)
	} else {
		r.window = 1
	}
	last = min(max(last, first+r.window-1), (r.size-1)/r.bs)
	var loading []*block
	for n := first; n <= last && int64(len(loading))*r.bs < maxFetch; n++ {
		k := blockKey{r, n}
		if _, ok := c.blocks[k]; ok {
			break
		}
		b := &block{key: k, ready: make(chan struct{})}
		c.blocks[k] = c.order.PushFront(b)
		loading = append(loading, b)
	}
	r.next = first + int64(len(loading))
	r.mu.Unlock()
	c.mu.Unlock()

	data, err := r.load(first, len(loading))
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for i := 0; n < len(p) && i < len(data); i++ {
		n += copy(p[n:], data[i][off+int64(n)-(first+int64(i))*r.bs:])
	}
	closed := r.ctx.Err() != nil
	for i, b := range loading {
		b.err = err
		if err != nil || closed { // Close did not see it
			c.order.Remove(c.blocks[b.key])
			delete(c.blocks, b.key)
		} else {
			b.data, b.loaded = data[i], true
			c.used += int64(len(b.data))
		}
		close(b.ready)
	}
	c.evict()
	return n, err
}

// maxFetch bounds one ranged read, so that a big ReadAt needs not twice its memory.
const maxFetch = 4 << 20

// stopped is the error after Close, or after the end of the caller's context.
func (r *ReaderAt) stopped() error {
	if err := r.parent.Err(); err != nil {
		return r.fail(err)
	}
	return r.fail(ErrClosed)
}

// load gets n blocks from the first on by one ranged read.
func (r *ReaderAt) load(first int64, n int) ([][]byte, error) {
	at, to := first*r.bs, min(r.size, (first+int64(n))*r.bs)
	src, err := r.s.OpenRange(r.ctx, r.name, at, to-at)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	if err := r.same(src.Info()); err != nil {
		return nil, err
	}
	data := make([][]byte, n)
	for i := range data {
		data[i] = r.cache.buffer(min(r.bs, to-at))
		k, err := io.ReadFull(src, data[i])
		at += int64(k)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, r.fail(fmt.Errorf("ended at byte %d of %d: %w", at, r.size, io.ErrUnexpectedEOF))
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// same checks that this is still the object that was read before.
func (r *ReaderAt) same(i Info) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i.Size != r.size {
		return r.fail(fmt.Errorf("has %d bytes where %d were expected", i.Size, r.size))
	}
	if r.known && i.ETag != r.etag {
		return r.fail(errors.New("replaced while it was read"))
	}
	r.etag, r.known = i.ETag, true
	return nil
}
