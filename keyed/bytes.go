package keyed

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"reflect"
	"unsafe"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
)

// cached is what all states over rows of bytes share: a table of decoded entries S in
// front of the rows, which is cache and write buffer in one.
//
// A row's key is
//
//	offset  bytes  field
//	0       2      key group
//	2       2      state, its position in the backend's meta information
//	4              key, namespace (and user key), as Flink's RocksDB backend has them
//
// and its value is that of Flink's.
type cached[K, N comparable, S any] struct {
	meta    serializer.StateMeta
	keys    *Keys[K]
	ns      codec[N]
	tab     *table.Cache[K, N, S]
	first   int
	count   uint
	ttl     TTLConfig
	b       *engine.BytesEnv
	id      uint16
	lengths bool // lengths follow key and namespace
	// Timers have rows, and a hash, of their own.
	toRow   func(dst []byte, group int, k K, ns N) []byte
	fromRow func(row []byte) (k K, ns N, user []byte, err error)
	hash    func(k K, ns N) uint32
	fixed   int64

	// dirty has the numbers of the entries changed in this generation, by key group.
	dirty [][]uint32
	// hot has a bit for each entry that was used since the hand passed it.
	hot       [][]uint64
	handGroup int
	handNext  uint32

	row, val []byte // scratch of the owner

	// keySize and nsSize are what keys and namespaces take beside their own size.
	keySize func(*K) int64
	nsSize  func(*N) int64
	// Of entries without a size of their own: the mean of those seen serialized.
	meanBytes int64
	weighed   uint32 // written ones that might have been looked at

	perAccess int
	since     int // accesses since the last clean-up
	scan      sweepPlace
}

func (n *cached[K, N, S]) setUp(d *Descriptor[K], ns serializer.Serializer[N], b *engine.BytesEnv, id uint16, o options) {
	n.meta, n.keys, n.ns, n.ttl = d.Meta, d.Keys, codecOf(ns), o.ttl
	n.first, n.count = b.First, uint(b.Count)
	n.b, n.id = b, id
	var equal table.Equal[K, N]
	if key := n.keys.codec; !key.plain || !n.ns.plain && !n.ns.empty {
		equal = func(k1 K, n1 N, k2 K, n2 N) bool { return key.equal(k1, k2) && n.ns.equal(n1, n2) }
	}
	n.tab = table.NewCache[K, N, S](b.Views, b.First, b.Count, equal, n.hashOf)
	n.toRow, n.fromRow, n.hash = n.appendRow, n.readRow, n.hashOf
	if o.ttl.on() {
		if n.perAccess = o.ttl.Background; n.perAccess == 0 {
			n.perAccess = 1
		}
	}
	n.lengths = n.keys.Serializer.Type().FixedLength() < 0 && ns.Type().FixedLength() < 0
	n.fixed = int64(unsafe.Sizeof(table.CacheEntry[K, N, S]{})) + 16
	n.keySize, n.nsSize = sizer[K](), sizer[N]()
	n.dirty, n.hot = make([][]uint32, b.Count), make([][]uint64, b.Count)
	n.handGroup = n.first
	n.meanBytes = 64
}

func (n *cached[K, N, S]) hashOf(k K, ns N) uint32 { return n.mix(n.keys.codec.hash32(k), ns) }

func (n *cached[K, N, S]) mix(h uint32, ns N) uint32 {
	if n.ns.empty {
		return h
	}
	x := (uint64(h)<<32 | uint64(n.ns.hash32(ns))) * 0x9e3779b97f4a7c15
	return uint32(x >> 32)
}

func (n *cached[K, N, S]) mine(k *Key[K]) bool { return uint(int(k.group)-n.first) < n.count }

func (n *cached[K, N, S]) foreign(k *Key[K]) error {
	return &KeyGroupError{k.key, int(k.group), n.keys.groups}
}

// find gives the entry of a key of this subtask.
func (n *cached[K, N, S]) find(k *Key[K], ns N) (*table.CacheEntry[K, N, S], table.Ref) {
	return n.tab.Find(int(k.group), n.mix(k.hash, ns), k.key, ns)
}

// Meta implements engine.BytesState.
func (n *cached[K, N, S]) Meta() *serializer.StateMeta { return &n.meta }

// Release implements engine.BytesState.
func (n *cached[K, N, S]) Release(w *table.View) { n.tab.Release(w) }

// Stats implements engine.BytesState.
func (n *cached[K, N, S]) Stats() engine.Stats {
	return engine.Stats{Entries: n.tab.Len(), OldVersions: n.tab.OldVersions()}
}

// each calls f for each entry of a view's key group, from any goroutine.
func (n *cached[K, N, S]) each(w *table.View, group int, f func(e *table.CacheEntry[K, N, S]) error) error {
	buf := make([]table.CacheEntry[K, N, S], 0, 64)
	for from, done := uint32(0), false; !done; {
		buf, from, done = n.tab.Batch(w, group, from, buf[:0])
		for i := range buf {
			if err := f(&buf[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendRow appends the key of a row.
func (n *cached[K, N, S]) appendRow(dst []byte, group int, k K, ns N) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(group))
	dst = binary.BigEndian.AppendUint16(dst, n.id)
	at := len(dst)
	dst = n.keys.Serializer.Append(dst, k)
	if !n.lengths {
		return n.ns.ser.Append(dst, ns)
	}
	dst = appendLength(dst, len(dst)-at)
	at = len(dst)
	dst = n.ns.ser.Append(dst, ns)
	return appendLength(dst, len(dst)-at)
}

// appendLength appends a length as CompositeKeySerializationUtils does: in
// little-endian order, as short as it can be.
func appendLength(dst []byte, n int) []byte {
	for {
		dst = append(dst, byte(n))
		if n >>= 8; n == 0 {
			return dst
		}
	}
}

// lengthSize is the number of bytes that appendLength takes.
func lengthSize(n int) int { return max(1, (bits.Len(uint(n))+7)/8) }

// groupPrefix is what all rows of a key group begin with.
func (n *cached[K, N, S]) groupPrefix(group int) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(group)), n.id)
}

// after is the first key behind all that begin with a prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return []byte{0xff, 0xff, 0xff, 0xff, 0xff}
}

// readRow takes the key of a row apart; user is what follows the namespace.
func (n *cached[K, N, S]) readRow(row []byte) (k K, ns N, user []byte, err error) {
	b := row[4:]
	k, used, err := n.keys.Serializer.Read(b)
	if err != nil {
		return k, ns, nil, n.rowError("key", err)
	}
	if b = b[used:]; n.lengths {
		b = b[min(lengthSize(used), len(b)):]
	}
	ns, used, err = n.ns.ser.Read(b)
	if err != nil {
		return k, ns, nil, n.rowError("namespace", err)
	}
	if b = b[used:]; n.lengths {
		b = b[min(lengthSize(used), len(b)):]
	}
	return k, ns, b, nil
}

func (n *cached[K, N, S]) rowError(part string, err error) error {
	return fmt.Errorf("keyed: state %s: stored %s: %w", n.meta.Name, part, err)
}

// Renumber implements engine.BytesState.
func (n *cached[K, N, S]) Renumber(id uint16) { n.id = id }

// touch marks an entry as used.
func (n *cached[K, N, S]) touch(r table.Ref) {
	h, num := n.hot[r.Shard()], r.Number()
	if w := num >> 6; int(w) < len(h) {
		if bit := uint64(1) << (num & 63); h[w]&bit == 0 {
			h[w] |= bit
		}
		return
	}
	n.growHot(r)
}

func (n *cached[K, N, S]) growHot(r table.Ref) {
	h := make([]uint64, 2*(r.Number()>>6)+2)
	copy(h, n.hot[r.Shard()])
	h[r.Number()>>6] |= 1 << (r.Number() & 63)
	n.hot[r.Shard()] = h
}

// insert adds an entry that is not there; bytes is what it takes beside its own size.
func (n *cached[K, N, S]) insert(group int, hash uint32, k K, ns N, s S, bytes int64) table.Ref {
	r := n.tab.Insert(group, hash, k, ns, s)
	n.b.Used += n.weight(&k, &ns) + bytes
	return r
}

// weight is what an entry takes beside its value.
func (n *cached[K, N, S]) weight(k *K, ns *N) int64 {
	w := n.fixed
	if n.keySize != nil {
		w += n.keySize(k)
	} else {
		w += 64 // pointers: a guess
	}
	if n.nsSize != nil {
		w += n.nsSize(ns)
	}
	return w
}

// changed notes an entry whose generation becomes the present one.
func (n *cached[K, N, S]) changed(r table.Ref, bytes int64) {
	n.dirty[r.Shard()] = append(n.dirty[r.Shard()], r.Number())
	n.b.Dirty += n.fixed + bytes
}

// evict is engine.BytesState.Evict: the hand goes round all entries; those that are
// not wanted twice and that clean allows are dropped. bytes gives their size.
func (n *cached[K, N, S]) evict(want int64, clean func(e *table.CacheEntry[K, N, S]) bool, bytes func(e *table.CacheEntry[K, N, S]) int64, drop func(e *table.CacheEntry[K, N, S])) int64 {
	var freed int64
	if n.tab.Len() == 0 {
		return 0
	}
	for passed := 0; freed < want; {
		e, next := n.tab.Next(n.handGroup, n.handNext)
		if e == nil {
			n.handNext = 0
			if n.handGroup++; n.handGroup == n.first+int(n.count) {
				n.handGroup = n.first
			}
			if passed++; passed > 2*int(n.count) {
				break // twice around: what is left is dirty
			}
			continue
		}
		n.handNext = next
		r := n.tab.RefOf(n.handGroup, next)
		if !clean(e) {
			continue
		}
		if h := n.hot[r.Shard()]; int(r.Number()>>6) < len(h) {
			if bit := uint64(1) << (r.Number() & 63); h[r.Number()>>6]&bit != 0 {
				h[r.Number()>>6] &^= bit
				continue
			}
		}
		freed += n.weight(&e.Key, &e.NS) + bytes(e)
		hash := n.hash(e.Key, e.NS)
		if drop != nil {
			drop(e)
		}
		n.tab.Remove(hash, e, r)
	}
	n.b.Used -= freed
	return freed
}

// stored tells whether the store has what was changed in a generation.
func (n *cached[K, N, S]) stored(gen uint32) bool { return gen <= n.b.Done }

// observe moves the mean of serialized sizes, and gives what such a value is taken to need.
func (n *cached[K, N, S]) observe(bytes int) unit {
	n.meanBytes += (int64(bytes)*2 - n.meanBytes) / 16
	return unitOf(int64(bytes) * 2)
}

// mean is what a value of unknown size is taken to need.
func (n *cached[K, N, S]) mean() unit { return unitOf(n.meanBytes) }

// weigh tells whether a value that is written, and has no size of its own, is to be
// serialized to learn how large they are: the first ones, and some of the others.
func (n *cached[K, N, S]) weigh() bool {
	n.weighed++
	return n.weighed <= 32 || n.weighed%64 == 0
}

// unit is how many bytes a value is taken to need: (4 + two low bits) << the others. It
// is kept with the entry, so that what was added to the bytes in use is taken from them
// again although the mean has moved.
type unit uint8

func unitOf(bytes int64) unit {
	n := uint64(max(bytes, 4))
	shift := bits.Len64(n) - 3
	return unit(4*shift) | unit(n>>shift&3)
}

func (u unit) bytes() int64 { return int64(4+u&3) << (u >> 2) }

// changes are the changes of a generation.
type changes[K, N comparable, S any] struct {
	n     *cached[K, N, S]
	gen   uint32
	dirty [][]uint32
	// put writes one entry; row is scratch that begins with its key.
	put func(e *table.CacheEntry[K, N, S], row, value []byte, put func(op engine.Op, key, value []byte)) (row2, value2 []byte)
}

func (n *cached[K, N, S]) freeze(put func(e *table.CacheEntry[K, N, S], row, value []byte, put func(op engine.Op, key, value []byte)) ([]byte, []byte)) *changes[K, N, S] {
	c := &changes[K, N, S]{n: n, gen: n.b.Gen, dirty: n.dirty, put: put}
	n.dirty = make([][]uint32, len(n.dirty))
	return c
}

// Len implements engine.Changes.
func (c *changes[K, N, S]) Len(group int) int { return len(c.dirty[group-c.n.first]) }

// Group implements engine.Changes.
func (c *changes[K, N, S]) Group(view *table.View, group int, put func(op engine.Op, key, value []byte)) {
	var row, value []byte
	for _, num := range c.dirty[group-c.n.first] {
		e, ok := c.n.tab.Seen(view, table.RefTo(group-c.n.first, num))
		if !ok {
			continue
		}
		row = c.n.toRow(row[:0], group, e.Key, e.NS)
		row, value = c.put(&e, row, value[:0], put)
	}
}

// BytesView is a View of a backend whose entries are rows.
type BytesView interface {
	NativeView
	Rows() engine.Rows
	// Stored is the last generation that the rows have.
	Stored() uint32
}

func rowsOf(v View) (*table.View, engine.Rows, error) {
	bv, ok := v.(BytesView)
	if !ok {
		return nil, nil, fmt.Errorf("keyed: a view of another backend")
	}
	w := bv.Native()
	if w.Closed() {
		return nil, nil, fmt.Errorf("keyed: view: %w", ErrClosed)
	}
	return w, bv.Rows(), nil
}

// seen looks for a key in a view: among the entries first, else row is the key of its row.
func (n *cached[K, N, S]) seen(v View, k *Key[K], ns N) (s S, found bool, rows engine.Rows, row []byte, err error) {
	w, rows, err := rowsOf(v)
	if err != nil {
		return s, false, nil, nil, err
	}
	if !n.mine(k) {
		return s, false, nil, nil, n.foreign(k)
	}
	if e, ok := n.tab.Lookup(w, int(k.group), n.mix(k.hash, ns), k.key, ns); ok {
		return e.Val, true, rows, nil, nil
	}
	return s, false, rows, n.appendRow(nil, int(k.group), k.key, ns), nil
}

// eachRow calls f for the rows of a view whose keys have no entry in it, after entry
// for each entry, by key group.
func (n *cached[K, N, S]) eachRow(v View, entry func(group int, e *table.CacheEntry[K, N, S]) bool, f func(k K, ns N, user, value []byte) (bool, error)) error {
	w, rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	for g := n.first; g < n.first+int(n.count); g++ {
		err := n.each(w, g, func(e *table.CacheEntry[K, N, S]) error {
			if !entry(g, e) {
				return errStop
			}
			return nil
		})
		if err == errStop {
			return nil
		}
		if err != nil {
			return err
		}
		var failed error
		prefix := n.groupPrefix(g)
		stop := false
		err = rows.Scan(prefix, after(prefix), func(key, value []byte) bool {
			k, ns, user, err := n.fromRow(key)
			if err != nil {
				failed = err
				return false
			}
			if _, ok := n.tab.Lookup(w, g, n.hash(k, ns), k, ns); ok {
				return true
			}
			more, err := f(k, ns, user, value)
			failed, stop = err, !more
			return more && err == nil
		})
		if err != nil {
			return err
		}
		if failed != nil || stop {
			return failed
		}
	}
	return nil
}

// held calls f with a view of the present, for iterations during which the state may change.
func (n *cached[K, N, S]) held(f func(v View) error) error {
	v, err := n.b.Hold()
	if err != nil {
		return err
	}
	defer v.Close()
	return f(v.(View))
}

// Convert implements engine.BytesState.
func (n *cached[K, N, S]) convertTypes(old *engine.OldTypes, user, value *serializer.Type) (serializer.Convert, error) {
	for _, p := range []struct {
		part     string
		old, new *serializer.Type
	}{{"key", old.Key, n.keys.Serializer.Type()}, {"namespace", old.Namespace, n.ns.ser.Type()}, {"map key", old.UserKey, user}} {
		if err := keeps(p.part, p.old, p.new); err != nil {
			return nil, err
		}
	}
	if value == nil {
		return nil, nil
	}
	return migration(old.Value, value)
}

// plainMemory tells whether values of a type have no pointers.
func plainMemory[V any]() bool { return !table.HasPointers(reflect.TypeFor[V]()) }

// sizer gives the bytes that a value takes beside its own size; nil if that is only known
// from its serialized form.
func sizer[V any]() func(v *V) int64 {
	var zero V
	switch any(zero).(type) {
	case string:
		return func(v *V) int64 { return int64(len(*(*string)(unsafe.Pointer(v)))) + 8 }
	case []byte:
		return func(v *V) int64 { return int64(cap(*(*[]byte)(unsafe.Pointer(v)))) + 8 }
	}
	if plainMemory[V]() {
		return func(*V) int64 { return 0 }
	}
	if texts, ok := textsIn(reflect.TypeFor[V](), 0, nil); ok {
		return func(v *V) (n int64) {
			for _, at := range texts {
				n += int64(len(*(*string)(unsafe.Add(unsafe.Pointer(v), at)))) + 8
			}
			return n
		}
	}
	return nil
}

// textsIn gives where the strings and byte slices of a type are; ok is false if it has
// other pointers.
func textsIn(t reflect.Type, at uintptr, texts []uintptr) (_ []uintptr, ok bool) {
	switch {
	case t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return append(texts, at), true // both begin with a pointer and a length
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if texts, ok = textsIn(f.Type, at+f.Offset, texts); !ok {
				return nil, false
			}
		}
		return texts, true
	}
	return texts, !table.HasPointers(t)
}
