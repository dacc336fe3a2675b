package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// entrySink takes the entries of keyed state on their way from one format to
// another: key groups ascend, each state comes once in a key group, with all of its
// entries there. Entries come in either of two forms, whatever the state was begun
// with, and map entries of one key and namespace stand together:
//
//	pair     as canonical savepoints and RocksDB hold them: composite key, value; a
//	         map's entries one by one
//	element  as the heap's format holds them: namespace, key, the whole value
//
// Slices are valid during the call. A sink belongs to one goroutine.
type entrySink interface {
	group(kg int32) error
	state(id int) error
	pair(key, value []byte) error
	element(namespace, key, value []byte) error
	timer(t []byte) error // a timer without its key group
	end() error           // of the last key group
}

// convertCount counts what passed.
type convertCount struct {
	Entries int64 `json:"entries"`
	Expired int64 `json:"expired"`
}

func (c *convertCount) add(o convertCount) {
	c.Entries += o.Entries
	c.Expired += o.Expired
}

// stateSink is what the sinks share: which state is open.
type stateSink struct {
	f  *keyedFile // of what is written
	rs []stateReader
	r  *stateReader
	kg int32
	id int
}

func (s *stateSink) begin(id int) { s.id, s.r = id, &s.rs[id] }

// cannot is the error of an entry that does not allow what the format needs.
func (s *stateSink) cannot(what string, err error) error {
	if err == nil {
		err = damage.ErrCorrupt
	}
	return fmt.Errorf("state %s, key group %d: %s: %w", s.r.meta.Name, s.kg, what, err)
}

// counted takes the count off a list or map of the heap's format.
func (s *stateSink) counted(value []byte) (int, []byte, error) {
	if len(value) < 4 || int32(be32(value)) < 0 {
		return 0, nil, s.cannot("a list or map has no count", nil)
	}
	return int(be32(value)), value[4:], nil
}

// eachElement calls f for each element of a list, in either form.
func (s *stateSink) eachElement(value []byte, joined bool, f func(elem []byte) error) error {
	n := -1
	if !joined {
		var err error
		if n, value, err = s.counted(value); err != nil {
			return err
		}
		if n == 1 { // ends where the list does
			return f(value)
		}
	}
	for k := 0; n >= 0 && k < n || n < 0 && len(value) > 0; k++ {
		if s.r.dec.elem == nil {
			return s.cannot("the elements of a list cannot be told apart", &serializer.OpaqueError{})
		}
		m, err := s.r.dec.elem.Skip(value)
		if err != nil {
			return s.cannot("the elements of a list cannot be told apart", err)
		}
		if err := f(value[:m:m]); err != nil {
			return err
		}
		if value = value[m:]; joined && len(value) > 0 {
			value = value[1:]
		}
	}
	if n >= 0 && len(value) != 0 {
		return s.cannot("a list goes on behind its last element", nil)
	}
	return nil
}

// eachMapEntry calls f for each entry of a map of the heap's format.
func (s *stateSink) eachMapEntry(value []byte, f func(userKey, value []byte, null bool) error) error {
	n, b, err := s.counted(value)
	if err != nil {
		return err
	}
	if s.r.mapKey == nil || s.r.mapValue == nil {
		return s.cannot("the entries of a map cannot be told apart", &serializer.OpaqueError{})
	}
	for range n {
		k, err := s.r.mapKey.Skip(b)
		if err != nil || k >= len(b) {
			return s.cannot("the entries of a map cannot be told apart", err)
		}
		key, null := b[:k:k], b[k] != 0
		b = b[k+1:]
		v := 0
		if !null {
			if v, err = s.r.mapValue.Skip(b); err != nil {
				return s.cannot("the entries of a map cannot be told apart", err)
			}
		}
		if err := f(key, b[:v:v], null); err != nil {
			return err
		}
		b = b[v:]
	}
	if len(b) != 0 {
		return s.cannot("a map goes on behind its last entry", nil)
	}
	return nil
}

// split takes a composite key apart.
func (s *stateSink) split(key []byte) (k, namespace, userKey []byte, err error) {
	kg, k, namespace, userKey, ok := s.r.comp.split(key)
	if !ok || kg != s.kg {
		return nil, nil, nil, s.cannot(fmt.Sprintf("a key of %d bytes is no %s and %s of it", len(key), words(s.r.key), words(s.r.namespace)), nil)
	}
	return k, namespace, userKey, nil
}

// canonicalSink writes a canonical savepoint. Pairs are copied as they are.
type canonicalSink struct {
	stateSink
	w *stream.KeyedWriter
	// entries counts what is written: a map's entries one by one.
	entries int64
	buf     []byte
}

func (s *canonicalSink) group(kg int32) error {
	s.kg = kg
	return s.w.KeyGroup(kg)
}

func (s *canonicalSink) state(id int) error {
	s.begin(id)
	return s.w.State(id, 0)
}

func (s *canonicalSink) pair(key, value []byte) error {
	s.entries++
	return s.w.Composite(key, value)
}

func (s *canonicalSink) timer(t []byte) error {
	s.buf = s.buf[:0]
	if s.f.prefix == 2 {
		s.buf = append(s.buf, byte(s.kg>>8))
	}
	s.buf = append(append(s.buf, byte(s.kg)), t...)
	return s.pair(s.buf, nil)
}

func (s *canonicalSink) element(namespace, key, value []byte) error {
	switch s.r.state.Kind {
	case StateList:
		n, _, err := s.counted(value)
		if err != nil || n == 0 { // an empty list is none
			return err
		}
		s.entries++
		if err := s.w.List(key, namespace, n); err != nil {
			return err
		}
		return s.eachElement(value, false, s.w.Element)
	case StateMap:
		n, _, err := s.counted(value)
		if err != nil || n == 0 {
			return err
		}
		s.entries += int64(n)
		if err := s.w.Map(key, namespace, n); err != nil {
			return err
		}
		return s.eachMapEntry(value, func(userKey, v []byte, null bool) error {
			if null {
				return s.w.NullPair(userKey, nil)
			}
			return s.w.Pair(userKey, v)
		})
	}
	s.entries++
	return s.w.Value(key, namespace, value)
}

func (s *canonicalSink) end() error { return nil }

// heapSink writes the heap's format. The number of entries stands in front of
// them, so those of one state in a key group are gathered before they are written:
// in memory if they are few, else in a temporary file.
type heapSink struct {
	stateSink
	w       *stream.KeyedWriter
	block   entryBlock
	count   int
	entries int64 // as canonicalSink counts them

	// The map that pairs are gathered for: its composite key without a user key,
	// where its count stands in the block, and the count.
	mapKey []byte
	mapAt  int64
	mapN   uint32
	open   bool
	begun  bool // a state is
}

func (s *heapSink) group(kg int32) error {
	if err := s.endState(); err != nil {
		return err
	}
	s.kg = kg
	return s.w.KeyGroup(kg)
}

func (s *heapSink) state(id int) error {
	if err := s.endState(); err != nil {
		return err
	}
	s.begin(id)
	s.begun, s.count = true, 0
	return nil
}

func (s *heapSink) end() error { return s.endState() }

func (s *heapSink) endState() error {
	if !s.begun {
		return nil
	}
	s.begun = false
	if err := s.endMap(); err != nil || s.count == 0 {
		return err
	}
	r, err := s.block.reader()
	if err != nil {
		return err
	}
	if err := s.w.State(s.id, s.count); err != nil {
		return err
	}
	if err := s.w.Encoded(s.count, r); err != nil {
		return err
	}
	s.block.reset()
	return nil
}

func (s *heapSink) endMap() error {
	if !s.open {
		return nil
	}
	s.open = false
	return s.block.putCount(s.mapAt, s.mapN)
}

// entry counts an entry that begins.
func (s *heapSink) entry() error {
	if s.count++; s.count > math.MaxInt32 {
		return s.cannot("more entries than the format can count", nil)
	}
	return s.endMap()
}

func (s *heapSink) element(namespace, key, value []byte) error {
	switch s.r.state.Kind {
	case StateMap:
		n, _, err := s.counted(value)
		if err != nil {
			return err
		}
		s.entries += int64(n)
	default:
		s.entries++
	}
	if err := s.entry(); err != nil {
		return err
	}
	return s.block.append(namespace, key, value)
}

func (s *heapSink) timer(t []byte) error {
	s.entries++
	if err := s.entry(); err != nil {
		return err
	}
	return s.block.append(t)
}

func (s *heapSink) pair(key, value []byte) error {
	if s.r.state.Kind == StateTimer {
		if len(key) < s.f.prefix {
			return s.cannot("a timer is too short", nil)
		}
		return s.timer(key[s.f.prefix:])
	}
	k, namespace, userKey, err := s.split(key)
	if err != nil {
		return err
	}
	s.entries++
	switch s.r.state.Kind {
	case StateMap:
		return s.mapPair(key[:len(key)-len(userKey)], k, namespace, userKey, value)
	case StateList:
		if err := s.entry(); err != nil {
			return err
		}
		at := s.block.size
		if err := s.block.append(namespace, k, noCount); err != nil {
			return err
		}
		n := uint32(0)
		if err := s.eachElement(value, true, func(e []byte) error {
			n++
			return s.block.append(e)
		}); err != nil {
			return err
		}
		return s.block.putCount(at+int64(len(namespace)+len(k)), n)
	}
	if err := s.entry(); err != nil {
		return err
	}
	return s.block.append(namespace, k, value)
}

var noCount = make([]byte, 4)

func (s *heapSink) mapPair(prefix, key, namespace, userKey, value []byte) error {
	if len(value) == 0 {
		return s.cannot("a map value has no null flag", nil)
	}
	if !s.open || !bytes.Equal(prefix, s.mapKey) {
		if err := s.entry(); err != nil {
			return err
		}
		s.mapKey = append(s.mapKey[:0], prefix...)
		s.mapAt, s.mapN, s.open = s.block.size+int64(len(namespace)+len(key)), 0, true
		if err := s.block.append(namespace, key, noCount); err != nil {
			return err
		}
	}
	s.mapN++
	if value[0] != 0 { // what a serializer wrote for null is not there in this format
		value = value[:1]
	}
	return s.block.append(userKey, value)
}

// ttlSink leaves out values that are past their time to live, and passes the rest
// on: whole values, elements of lists, entries of maps.
type ttlSink struct {
	stateSink
	sink entrySink
	// limits are by state: what was last accessed then or before, in epoch
	// milliseconds, is expired; no value is as old as math.MinInt64.
	limits  []int64
	expired int64
	buf     []byte
}

func (s *ttlSink) group(kg int32) error {
	s.kg = kg
	return s.sink.group(kg)
}

func (s *ttlSink) state(id int) error {
	s.begin(id)
	return s.sink.state(id)
}

func (s *ttlSink) timer(t []byte) error { return s.sink.timer(t) }

func (s *ttlSink) end() error { return s.sink.end() }

// old reports whether a value, which begins with the time of its last access, is
// expired.
func (s *ttlSink) old(value []byte) (bool, error) {
	if len(value) < 8 {
		return false, s.cannot("a value with TTL is too short for its time of access", nil)
	}
	if int64(binary.BigEndian.Uint64(value)) <= s.limits[s.id] {
		s.expired++
		return true, nil
	}
	return false, nil
}

// list gives a list without its expired elements.
func (s *ttlSink) list(value []byte, joined bool) ([]byte, int, error) {
	n := 0
	s.buf = s.buf[:0]
	if !joined {
		s.buf = append(s.buf, noCount...)
	}
	err := s.eachElement(value, joined, func(e []byte) error {
		old, err := s.old(e)
		if err != nil || old {
			return err
		}
		if joined && n > 0 {
			s.buf = append(s.buf, ',')
		}
		n++
		s.buf = append(s.buf, e...)
		return nil
	})
	if !joined {
		binary.BigEndian.PutUint32(s.buf, uint32(n))
	}
	return s.buf, n, err
}

func (s *ttlSink) pair(key, value []byte) error {
	if s.limits[s.id] == math.MinInt64 {
		return s.sink.pair(key, value)
	}
	var old bool
	var err error
	switch s.r.state.Kind {
	case StateList:
		n := 0
		value, n, err = s.list(value, true)
		old = n == 0
	case StateMap:
		if len(value) > 0 && value[0] == 0 {
			old, err = s.old(value[1:])
		}
	default:
		old, err = s.old(value)
	}
	if err != nil || old {
		return err
	}
	return s.sink.pair(key, value)
}

func (s *ttlSink) element(namespace, key, value []byte) error {
	if s.limits[s.id] == math.MinInt64 {
		return s.sink.element(namespace, key, value)
	}
	var old bool
	var err error
	switch s.r.state.Kind {
	case StateList:
		n := 0
		value, n, err = s.list(value, false)
		old = n == 0
	case StateMap:
		n := uint32(0)
		s.buf = append(s.buf[:0], noCount...)
		err = s.eachMapEntry(value, func(userKey, v []byte, null bool) error {
			if !null {
				if old, err := s.old(v); err != nil || old {
					return err
				}
			}
			n++
			s.buf = appendMapEntry(s.buf, userKey, v, null)
			return nil
		})
		value, old = s.buf, n == 0
		binary.BigEndian.PutUint32(value, n)
	default:
		old, err = s.old(value)
	}
	if err != nil || old {
		return err
	}
	return s.sink.element(namespace, key, value)
}

func appendMapEntry(dst, userKey, value []byte, null bool) []byte {
	dst = append(dst, userKey...)
	if null {
		return append(dst, 1)
	}
	return append(append(dst, 0), value...)
}

// entryBlock gathers bytes, the first limit of them in memory, the others in a
// temporary file.
type entryBlock struct {
	dir   string
	limit int
	size  int64

	mem     []byte // what is not in the file yet
	flushed int64
	file    *tempFile
}

func (b *entryBlock) append(parts ...[]byte) error {
	for _, p := range parts {
		b.mem = append(b.mem, p...)
		b.size += int64(len(p))
	}
	if len(b.mem) < b.limit {
		return nil
	}
	return b.flush()
}

func (b *entryBlock) flush() error {
	if b.file == nil {
		var err error
		if b.file, err = newTempFile(b.dir); err != nil {
			return err
		}
	}
	if _, err := b.file.WriteAt(b.mem, b.flushed); err != nil {
		return fmt.Errorf("%w: %w", errSpill, err)
	}
	b.flushed += int64(len(b.mem))
	b.mem = b.mem[:0]
	return nil
}

// putCount writes n over the four bytes at a position, which may lie in the file,
// in memory, or in both.
func (b *entryBlock) putCount(at int64, n uint32) error {
	var p [4]byte
	binary.BigEndian.PutUint32(p[:], n)
	if in := b.flushed - at; in > 0 {
		in = min(in, 4)
		if _, err := b.file.WriteAt(p[:in], at); err != nil {
			return fmt.Errorf("%w: %w", errSpill, err)
		}
		copy(b.mem, p[in:])
		return nil
	}
	copy(b.mem[at-b.flushed:], p[:])
	return nil
}

// reader reads all that was gathered.
func (b *entryBlock) reader() (io.Reader, error) {
	if b.flushed == 0 {
		return bytes.NewReader(b.mem), nil
	}
	if err := b.flush(); err != nil {
		return nil, err
	}
	return io.NewSectionReader(b.file, 0, b.flushed), nil
}

// reset makes it empty.
func (b *entryBlock) reset() { b.mem, b.size, b.flushed = b.mem[:0], 0, 0 }

func (b *entryBlock) close() error {
	if b.file == nil {
		return nil
	}
	err := b.file.Close()
	b.file = nil
	return err
}
