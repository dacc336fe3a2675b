package pebbledb

import (
	"container/list"
	"sync"
)

// chunkCache keeps the chunks of tables that are read where there is no disk to
// keep them on: by tools. The least recently read go first.
type chunkCache struct {
	mu    sync.Mutex
	left  int64 // bytes
	order *list.List
	byKey map[chunkKey]*list.Element
}

type chunkKey struct {
	r *remoteFile
	i int
}

type cachedChunk struct {
	key  chunkKey
	data []byte
}

func newChunkCache(size int64) *chunkCache {
	return &chunkCache{left: size, order: list.New(), byKey: map[chunkKey]*list.Element{}}
}

// read copies from a chunk; false if it is not there.
func (c *chunkCache) read(r *remoteFile, i int, p []byte, off int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[chunkKey{r, i}]
	if !ok {
		return false
	}
	c.order.MoveToFront(e)
	copy(p, e.Value.(*cachedChunk).data[off:])
	return true
}

func (c *chunkCache) put(r *remoteFile, i int, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := chunkKey{r, i}
	if _, ok := c.byKey[k]; ok {
		return
	}
	c.byKey[k] = c.order.PushFront(&cachedChunk{k, data})
	c.left -= int64(len(data))
	for c.left < 0 && c.order.Len() > 1 {
		c.removeLocked(c.order.Back())
	}
}

func (c *chunkCache) removeLocked(e *list.Element) {
	x := e.Value.(*cachedChunk)
	c.order.Remove(e)
	delete(c.byKey, x.key)
	c.left += int64(len(x.data))
}

// forget drops the chunks of a file.
func (c *chunkCache) forget(r *remoteFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range r.chunks() {
		if e, ok := c.byKey[chunkKey{r, i}]; ok {
			c.removeLocked(e)
		}
	}
}
