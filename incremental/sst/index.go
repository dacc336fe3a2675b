package sst

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// indexIter walks over one index block: the top level of a two-level index, a
// partition of it, or the whole index.
type indexIter struct {
	block
	pos      int
	key      []byte // as stored: a user key, or an internal key
	handle   Handle
	firstKey []byte // internal; index type 3 only

	delta     bool // values are delta encoded and have no length
	withFirst bool // values end in the first internal key
	internal  bool // keys end in 8 bytes of sequence and kind
	at        int64
	err       error
}

func (it *indexIter) init(b block, at int64, p *Properties) {
	*it = indexIter{block: b, key: it.key[:0], at: at, delta: p.IndexValueIsDelta, withFirst: p.IndexType == IndexWithFirstKey, internal: !p.IndexKeyIsUserKey}
}

func (it *indexIter) fail(detail string) bool {
	it.err = corrupt(it.at, "index block", fmt.Sprintf("entry at byte %d of the decoded block %s", it.pos, detail))
	return false
}

// next moves to the next entry.
func (it *indexIter) next() bool {
	d, p := it.data[:it.limit], it.pos
	if p >= len(d) || it.err != nil {
		return false
	}
	shared, p, ok := uvarint(d, p)
	if !ok {
		return it.fail("shared length is no varint")
	}
	unshared, p, ok := uvarint(d, p)
	if !ok {
		return it.fail("key length is no varint")
	}
	end := len(d)
	if !it.delta {
		length, q, ok := uvarint(d, p)
		if !ok {
			return it.fail("value length is no varint")
		}
		p = q
		if unshared > len(d)-p || length > len(d)-p-unshared {
			return it.fail("reaches beyond the block")
		}
		end = p + unshared + length
	}
	if shared > len(it.key) {
		return it.fail("shares more than the key before has")
	}
	if unshared > end-p {
		return it.fail("reaches beyond the block")
	}
	it.key = append(it.key[:shared], d[p:p+unshared]...)
	p += unshared
	if it.internal && len(it.key) < 8 {
		return it.fail("has a key without sequence number")
	}
	if it.delta && shared != 0 {
		v, n := binary.Varint(d[p:end])
		if n <= 0 {
			return it.fail("size difference is no varint")
		}
		p += n
		it.handle.Offset += it.handle.Size + trailerSize
		it.handle.Size += uint64(v) // wraps to a size that the file cannot hold
	} else {
		h, n := decodeHandle(d[p:end])
		if n <= 0 {
			return it.fail("has no block handle")
		}
		p += n
		it.handle = h
	}
	if it.withFirst {
		n, q, ok := uvarint(d[:end], p)
		if !ok || n > end-q || n < 8 {
			return it.fail("has no first key")
		}
		it.firstKey = d[q : q+n]
		p = q + n
	}
	if !it.delta && p != end {
		return it.fail("has bytes behind its handle")
	}
	it.pos = p
	return true
}

// userKey is the separator without sequence number: at least every user key of
// the block, at most every one of the next.
func (it *indexIter) userKey() []byte {
	if it.internal {
		return it.key[:len(it.key)-8]
	}
	return it.key
}

// seekGE moves to the first entry whose user key is at least target.
func (it *indexIter) seekGE(target []byte) bool {
	if it.err != nil {
		return false
	}
	lo, hi := 0, it.restarts
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		p := it.restart(mid)
		if p >= it.limit {
			if p == 0 { // a block without entries has one restart
				return false
			}
			it.pos = p
			return it.fail("is a restart point beyond the entries")
		}
		it.pos, it.key = p, it.key[:0]
		if !it.next() {
			return false
		}
		if bytes.Compare(it.userKey(), target) < 0 {
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
		if bytes.Compare(it.userKey(), target) >= 0 {
			return true
		}
	}
	return false
}
