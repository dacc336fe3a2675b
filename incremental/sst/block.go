package sst

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const (
	// hashIndexMaxBlock is the longest block whose footer word may have the flag
	// of a hash index.
	hashIndexMaxBlock  = 64 << 10
	hashIndexFlag      = 1 << 31
	reservedFlag       = 1 << 30
	uniformFlag        = 1 << 29
	separatedValueFlag = 1 << 28
	restartMask        = 1<<28 - 1
)

// block is the frame of a decoded block: entries lie in data[:limit], the restart
// offsets behind them.
type block struct {
	data     []byte
	limit    int
	restarts int
}

// parseBlock checks the frame of a decoded payload. at and kind are for errors.
func parseBlock(data []byte, at int64, kind string) (block, error) {
	if len(data) < 8 {
		return block{}, corrupt(at, kind, fmt.Sprintf("has %d bytes, at least 8 are needed", len(data)))
	}
	end := len(data) - 4
	word := binary.LittleEndian.Uint32(data[end:])
	if len(data) <= hashIndexMaxBlock && word&hashIndexFlag != 0 {
		if end < 2 {
			return block{}, corrupt(at, kind, "has no room for its hash index")
		}
		buckets := int(binary.LittleEndian.Uint16(data[end-2:]))
		if end -= 2 + buckets; end < 0 {
			return block{}, corrupt(at, kind, fmt.Sprintf("has no room for its hash index of %d buckets", buckets))
		}
	} else if word&hashIndexFlag != 0 {
		return block{}, corrupt(at, kind, "has an impossible restart count")
	}
	switch {
	case word&separatedValueFlag != 0:
		return block{}, unsupported(at, kind, "keeps values apart from keys")
	case word&reservedFlag != 0:
		return block{}, unsupported(at, kind, "uses a reserved flag")
	}
	n := int(word & restartMask)
	if n > end/4 {
		return block{}, corrupt(at, kind, fmt.Sprintf("has no room for %d restarts", n))
	}
	return block{data: data, limit: end - 4*n, restarts: n}, nil
}

// restart is the offset of the i-th restart point.
func (b *block) restart(i int) int {
	return int(binary.LittleEndian.Uint32(b.data[b.limit+4*i:]))
}

// blockIter walks over the entries of one block that has values with a length:
// data, metaindex, properties, range deletions.
type blockIter struct {
	block
	pos   int // of the next entry
	key   []byte
	value []byte // aliases the block
	at    int64
	kind  string
	err   error
}

// init starts at the first entry; next moves onto it. The key buffer is kept.
func (it *blockIter) init(data []byte, at int64, kind string) error {
	b, err := parseBlock(data, at, kind)
	it.block, it.at, it.kind, it.err = b, at, kind, err
	it.pos, it.key, it.value = 0, it.key[:0], nil
	return err
}

// next moves to the next entry; false at the end or if the entry is corrupt.
func (it *blockIter) next() bool {
	d, p := it.data[:it.limit], it.pos
	if p >= len(d) {
		return false
	}
	var shared, unshared, length int
	if p+3 <= len(d) && d[p]|d[p+1]|d[p+2] < 0x80 {
		shared, unshared, length = int(d[p]), int(d[p+1]), int(d[p+2])
		p += 3
	} else {
		var ok bool
		if shared, p, ok = uvarint(d, p); !ok {
			return it.fail("shared length is no varint")
		}
		if unshared, p, ok = uvarint(d, p); !ok {
			return it.fail("key length is no varint")
		}
		if length, p, ok = uvarint(d, p); !ok {
			return it.fail("value length is no varint")
		}
	}
	if shared > len(it.key) {
		return it.fail("shares more than the key before has")
	}
	if unshared > len(d)-p || length > len(d)-p-unshared {
		return it.fail("reaches beyond the block")
	}
	it.key = append(it.key[:shared], d[p:p+unshared]...)
	p += unshared
	it.value = d[p : p+length : p+length]
	it.pos = p + length
	return true
}

func (it *blockIter) fail(detail string) bool {
	it.err = corrupt(it.at, it.kind, fmt.Sprintf("entry at byte %d of the decoded block %s", it.pos, detail))
	return false
}

// valueOffset is where the current value begins in the decoded block.
func (it *blockIter) valueOffset() int { return it.pos - len(it.value) }

// seekGE moves to the first entry whose user key is at least target. Keys are internal.
func (it *blockIter) seekGE(target []byte) bool {
	// The last restart point whose user key is below target; everything before
	// the restart after it is passed by.
	lo, hi := 0, it.restarts
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		key, ok := it.restartKey(mid)
		if !ok {
			return false
		}
		if bytes.Compare(key, target) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	it.pos, it.key = 0, it.key[:0]
	if lo > 0 {
		it.pos = it.restart(lo - 1)
	}
	for it.next() {
		if len(it.key) < 8 {
			return it.fail("has a key without sequence number")
		}
		if bytes.Compare(it.key[:len(it.key)-8], target) >= 0 {
			return true
		}
	}
	return false
}

// restartKey is the user key at a restart point.
func (it *blockIter) restartKey(i int) ([]byte, bool) {
	p := it.restart(i)
	it.pos = p
	if p >= it.limit {
		return nil, it.fail("is a restart point beyond the entries")
	}
	d := it.data[:it.limit]
	shared, p, ok := uvarint(d, p)
	if !ok || shared != 0 {
		return nil, it.fail("is a restart point that shares a key")
	}
	n, p, ok := uvarint(d, p)
	if !ok {
		return nil, it.fail("key length is no varint")
	}
	if _, p, ok = uvarint(d, p); !ok {
		return nil, it.fail("value length is no varint")
	}
	if n > len(d)-p || n < 8 {
		return nil, it.fail("has an impossible key length")
	}
	return d[p : p+n-8], true
}

// uvarint reads a varint32 at p and gives the position behind it.
func uvarint(d []byte, p int) (v, next int, ok bool) {
	var x uint64
	for shift := uint(0); shift < 35; shift += 7 {
		if p >= len(d) {
			return 0, p, false
		}
		c := d[p]
		p++
		x |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int(x), p, x <= 1<<32-1
		}
	}
	return 0, p, false
}
