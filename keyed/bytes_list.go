package keyed

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
)

// listCell is an entry of a list state. If it is whole, run is the list; else run has
// only what was added since from, behind a list that was not read.
type listCell struct {
	run table.Run
	gen uint32 // of the last change
	// from is how many elements of run were there when the generation began: those
	// behind are appended to the row.
	from    int32
	whole   bool
	replace bool // the row is written anew in this generation
	unit    unit // what an element is taken to need, without a sizer
}

// bytesList is a list state over rows.
type bytesList[K, N comparable, T any] struct {
	cached[K, N, listCell]
	ser   serializer.Serializer[T]
	arena *table.Arena[T]
	size  func(v *T) int64
	// expired tells whether an element has expired; nil without TTL.
	expired func(v *T, at int64) bool
	elems   []T
	skip    *serializer.Decoder // the owner's
	trimmer sync.Pool           // of decoders, for Trim

	// Runs of entries that were dropped stay as they are while room is made once more,
	// since the caller may hold a slice of them.
	dropped, dropping []table.Run
	droppedAt         uint64
}

func newBytesList[K, N comparable, T any](d *Descriptor[K], ns serializer.Serializer[N], s serializer.Serializer[T], b *engine.BytesEnv, id uint16, o options) *bytesList[K, N, T] {
	n := &bytesList[K, N, T]{ser: s, arena: table.NewArena[T](b.Views), size: sizer[T](), skip: serializer.NewDecoder(s.Type(), nil)}
	n.trimmer.New = func() any { return serializer.NewDecoder(s.Type(), nil) }
	n.setUp(d, ns, b, id, o)
	return n
}

// bytes is what the elements take.
func (n *bytesList[K, N, T]) bytes(c *listCell) int64 {
	if c.run.Len() == 0 {
		return 0
	}
	var zero T
	room := int64(unsafe.Sizeof(zero)) * int64(table.Room(c.run.Len()))
	if n.size == nil {
		return room + int64(c.run.Len())*c.unit.bytes()
	}
	if l := n.arena.Get(c.run); len(l) > 0 {
		room += int64(len(l)) * n.size(&l[len(l)-1]) // elements are alike
	}
	return room
}

// read decodes a row onto the end of out.
func (n *bytesList[K, N, T]) read(out []T, row []byte) ([]T, error) {
	for first := true; len(row) > 0 || first && row != nil; first = false {
		if !first {
			row = row[1:]
		}
		v, used, err := n.ser.Read(row)
		if err != nil {
			return out, n.rowError("element", err)
		}
		out = append(out, v)
		row = row[used:]
	}
	return out, nil
}

// appendElements serializes elements with Flink's delimiter between them.
func (n *bytesList[K, N, T]) appendElements(dst []byte, elems []T) []byte {
	for i := range elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = n.ser.Append(dst, elems[i])
	}
	return dst
}

// entry finds the entry of a key, whole if want is true, in which case it is read if need
// be; nil if there is none yet.
func (n *bytesList[K, N, T]) entry(k *Key[K], ns N, want bool) (*table.CacheEntry[K, N, listCell], table.Ref, error) {
	if !n.mine(k) {
		return nil, table.Ref{}, n.foreign(k)
	}
	e, r := n.find(k, ns)
	if e != nil && (e.Val.whole || !want) {
		n.touch(r)
		return e, r, nil
	}
	if !want {
		return nil, r, nil
	}
	if e == nil {
		if err := n.b.Room(); err != nil {
			return nil, r, err
		}
	} else if e.Val.gen != n.b.Gen || n.b.Done+1 != n.b.Gen {
		// What was added before may be on its way into the row.
		if err := n.b.Wait(); err != nil {
			return nil, r, err
		}
	}
	var err error
	var ok bool
	n.row = n.appendRow(n.row[:0], int(k.group), k.key, ns)
	if n.val, ok, err = n.b.Rows.Get(n.val[:0], n.row); err != nil {
		return nil, r, err
	}
	n.elems = n.elems[:0]
	each := n.mean()
	if ok {
		if n.elems, err = n.read(n.elems, n.val); err != nil {
			return nil, r, err
		}
		each = n.observe(len(n.val) / max(1, len(n.elems)))
	}
	if e == nil {
		c := listCell{whole: true, run: n.newRun(n.elems), unit: each}
		r = n.insert(int(k.group), n.mix(k.hash, ns), k.key, ns, c, n.bytes(&c))
		return n.tab.At(r), r, nil
	}
	c := e.Val
	stored := len(n.elems)
	if c.gen == n.b.Gen {
		n.elems = append(n.elems, n.arena.Get(c.run)[c.from:]...)
	}
	n.b.Used -= n.bytes(&c)
	n.arena.Free(c.run)
	c.run, c.from, c.whole, c.unit = n.newRun(n.elems), int32(stored), true, each
	n.b.Used += n.bytes(&c)
	n.tab.Set(e, r, c)
	return e, r, nil
}

func (n *bytesList[K, N, T]) newRun(elems []T) table.Run {
	if len(elems) == 0 {
		return table.Run{}
	}
	return n.arena.Append(table.Run{}, elems...)
}

func (n *bytesList[K, N, T]) get(k Key[K], ns N) ([]T, error) {
	e, _, err := n.entry(&k, ns, true)
	if err != nil || e.Val.run.Len() == 0 {
		return nil, err
	}
	return n.arena.Get(e.Val.run), nil
}

func (n *bytesList[K, N, T]) add(k Key[K], ns N, v T) error { return n.append(&k, ns, []T{v}) }

func (n *bytesList[K, N, T]) addAll(k Key[K], ns N, v []T) error {
	if len(v) == 0 {
		return nil
	}
	return n.append(&k, ns, v)
}

// append adds elements without reading the row.
func (n *bytesList[K, N, T]) append(k *Key[K], ns N, v []T) error {
	if err := n.b.Room(); err != nil {
		return err
	}
	e, r, err := n.entry(k, ns, false)
	if err != nil {
		return err
	}
	each := n.elementUnit(v)
	if e == nil {
		c := listCell{gen: n.b.Gen, run: n.newRun(v), unit: each}
		bytes := n.bytes(&c)
		n.changed(n.insert(int(k.group), n.mix(k.hash, ns), k.key, ns, c, bytes), bytes)
		return nil
	}
	c := e.Val
	n.begin(&c, r)
	before := n.bytes(&c)
	c.unit = each
	if len(v) == 1 {
		c.run = n.arena.Append1(c.run, v[0])
	} else {
		c.run = n.arena.Append(c.run, v...)
	}
	n.b.Used += n.bytes(&c) - before
	n.tab.Set(e, r, c)
	return nil
}

// elementUnit is what each of some elements that are written is taken to need.
func (n *bytesList[K, N, T]) elementUnit(v []T) unit {
	if n.size == nil && len(v) > 0 && n.weigh() {
		n.val = n.ser.Append(n.val[:0], v[len(v)-1])
		n.observe(len(n.val))
	}
	return n.mean()
}

// begin makes a change part of the present generation.
func (n *bytesList[K, N, T]) begin(c *listCell, r table.Ref) {
	if c.gen == n.b.Gen {
		return
	}
	bytes := n.bytes(c)
	if !c.whole && n.stored(c.gen) { // what was added before is in the row
		n.b.Used -= bytes
		n.arena.Free(c.run)
		c.run = table.Run{}
	}
	c.gen, c.from, c.replace = n.b.Gen, int32(c.run.Len()), false
	n.changed(r, bytes)
}

func (n *bytesList[K, N, T]) update(k Key[K], ns N, v []T) error {
	if err := n.b.Room(); err != nil {
		return err
	}
	e, r, err := n.entry(&k, ns, false)
	if err != nil {
		return err
	}
	each := n.elementUnit(v)
	if e == nil {
		c := listCell{gen: n.b.Gen, whole: true, replace: true, run: n.newRun(v), unit: each}
		bytes := n.bytes(&c)
		n.changed(n.insert(int(k.group), n.mix(k.hash, ns), k.key, ns, c, bytes), bytes)
		return nil
	}
	c := e.Val
	if c.whole && c.run.Len() == 0 && len(v) == 0 {
		return nil
	}
	before := n.bytes(&c)
	c.unit = each
	if c.gen != n.b.Gen {
		c.gen = n.b.Gen
		n.changed(r, before)
	}
	c.whole, c.replace, c.from = true, true, 0
	// v may be what get gave: it is copied before the old run is let go.
	old := c.run
	if len(v) == 0 {
		c.run = table.Run{}
		n.arena.Free(old)
	} else if run, same := n.arena.Resize(old, len(v)); same {
		copy(n.arena.Get(run), v)
		n.arena.Trim(run, old.Len())
		c.run = run
	} else {
		copy(n.arena.Get(run), v)
		n.arena.Free(old)
		c.run = run
	}
	n.b.Used += n.bytes(&c) - before
	n.tab.Set(e, r, c)
	return nil
}

func (n *bytesList[K, N, T]) clear(k Key[K], ns N) error { return n.update(k, ns, nil) }

func (n *bytesList[K, N, T]) all(f func(At[K, N], []T) bool) error {
	return n.held(func(v View) error { return n.allAt(v, f) })
}

// seenList is the list of an entry of a view, of which rows may have the first part.
func (n *bytesList[K, N, T]) seenList(rows engine.Rows, c *listCell, row func() []byte) ([]T, error) {
	run := n.arena.At(c.run)
	if c.whole {
		return run, nil
	}
	b, ok, err := rows.Get(nil, row())
	if err != nil {
		return nil, err
	}
	var out []T
	if ok {
		if out, err = n.read(nil, b); err != nil {
			return nil, err
		}
	}
	return append(out, run[c.from:]...), nil
}

func (n *bytesList[K, N, T]) getAt(v View, k Key[K], ns N) ([]T, error) {
	c, found, rows, row, err := n.seen(v, &k, ns)
	if err != nil {
		return nil, err
	}
	if found {
		list, err := n.seenList(rows, n.inView(v, &c), func() []byte { return n.appendRow(nil, int(k.group), k.key, ns) })
		if len(list) == 0 {
			return nil, err
		}
		return list, err
	}
	b, ok, err := rows.Get(nil, row)
	if err != nil || !ok {
		return nil, err
	}
	return n.read(nil, b)
}

// inView prepares an entry of a view: what is in the rows already is not read twice. A
// view is opened when all frozen generations are in the store.
func (n *bytesList[K, N, T]) inView(v View, c *listCell) *listCell {
	if !c.whole && c.gen <= v.(BytesView).Stored() {
		c.from = int32(c.run.Len())
	}
	return c
}

func (n *bytesList[K, N, T]) allAt(v View, f func(At[K, N], []T) bool) error {
	_, rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	var failed error
	err = n.eachRow(v, func(group int, e *table.CacheEntry[K, N, listCell]) bool {
		list, err := n.seenList(rows, n.inView(v, &e.Val), func() []byte { return n.appendRow(nil, group, e.Key, e.NS) })
		if err != nil {
			failed = err
			return false
		}
		return len(list) == 0 || f(At[K, N]{e.Key, e.NS}, list)
	}, func(k K, ns N, _, value []byte) (bool, error) {
		list, err := n.read(nil, value)
		return err == nil && f(At[K, N]{k, ns}, list), err
	})
	if err == nil {
		err = failed
	}
	return err
}

// Freeze implements engine.BytesState.
func (n *bytesList[K, N, T]) Freeze() engine.Changes {
	gen := n.b.Gen
	return n.freeze(func(e *table.CacheEntry[K, N, listCell], row, value []byte, put func(engine.Op, []byte, []byte)) ([]byte, []byte) {
		c := &e.Val
		list := n.arena.At(c.run)
		switch {
		case c.gen != gen:
		case c.replace && len(list) == 0:
			put(engine.OpDelete, row, nil)
		case c.replace:
			value = n.appendElements(value, list)
			put(engine.OpSet, row, value)
		case len(list) > int(c.from):
			value = n.appendElements(value, list[c.from:])
			put(engine.OpAppend, row, value)
		}
		return row, value
	})
}

// Evict implements engine.BytesState.
func (n *bytesList[K, N, T]) Evict(want int64) int64 {
	if n.droppedAt != n.b.Relieved {
		for _, r := range n.dropped {
			n.arena.Free(r)
		}
		n.dropped, n.dropping, n.droppedAt = n.dropping, n.dropped[:0], n.b.Relieved
	}
	return n.evict(want,
		func(e *table.CacheEntry[K, N, listCell]) bool { return n.stored(e.Val.gen) },
		func(e *table.CacheEntry[K, N, listCell]) int64 { return n.bytes(&e.Val) },
		func(e *table.CacheEntry[K, N, listCell]) { n.dropping = append(n.dropping, e.Val.run) })
}

// Convert implements engine.BytesState.
func (n *bytesList[K, N, T]) Convert(old *engine.OldTypes) (serializer.Convert, error) {
	return n.convertTypes(old, nil, n.ser.Type())
}

// Reset implements engine.BytesState.
func (n *bytesList[K, N, T]) Reset() {}

// Trim implements engine.BytesState.
func (n *bytesList[K, N, T]) Trim(value []byte, at int64) (left []byte, drop bool) {
	if n.expired == nil || n.ttl.KeepInSnapshots {
		return value, false
	}
	skip := n.trimmer.Get().(*serializer.Decoder)
	defer n.trimmer.Put(skip)
	live, old := n.stamps(skip, value, at)
	if old == 0 || live == 0 {
		return value, live == 0
	}
	for rest := value; ; rest = rest[1:] {
		size, err := skip.Skip(rest)
		if err != nil {
			return value, false
		}
		if !n.ttl.expired(int64(binary.BigEndian.Uint64(rest)), at) {
			if len(left) > 0 {
				left = append(left, ',')
			}
			left = append(left, rest[:size]...)
		}
		if rest = rest[size:]; len(rest) == 0 {
			return left, false
		}
	}
}

// stamps counts the elements of a row that have expired and the others, without decoding
// them; a row that cannot be read has none that expired.
func (n *bytesList[K, N, T]) stamps(skip *serializer.Decoder, value []byte, at int64) (live, expired int) {
	for {
		size, err := skip.Skip(value)
		if err != nil || size < 8 {
			return 1, 0
		}
		if n.ttl.expired(int64(binary.BigEndian.Uint64(value)), at) {
			expired++
		} else {
			live++
		}
		if value = value[size:]; len(value) == 0 {
			return live, expired
		}
		value = value[1:]
	}
}

// Sweep implements engine.BytesState.
func (n *bytesList[K, N, T]) Sweep(count int) error {
	if n.expired == nil {
		return nil
	}
	now := n.b.Millis()
	return n.sweepBoth(count, func(e *table.CacheEntry[K, N, listCell]) bool {
		for _, v := range n.arena.Get(e.Val.run) {
			if n.expired(&v, now) {
				return true
			}
		}
		return false
	}, func(value []byte) bool {
		_, old := n.stamps(n.skip, value, now)
		return old > 0
	}, func(k *Key[K], ns N, _ []byte) (int, error) {
		list, err := n.get(*k, ns)
		if err != nil {
			return 0, err
		}
		var kept []T
		for i := range list {
			if !n.expired(&list[i], now) {
				kept = append(kept, list[i])
			}
		}
		if gone := len(list) - len(kept); gone > 0 {
			return gone, n.update(*k, ns, kept)
		}
		return 0, nil
	})
}

func (n *bytesList[K, N, T]) access() (int64, error) {
	if n.due() {
		if err := n.Sweep(n.perAccess * sweepEvery); err != nil {
			return 0, err
		}
	}
	return n.b.Millis(), nil
}

// expiringList is a list state whose elements expire, over one of stamped elements.
type expiringList[K, N comparable, T any] struct {
	store *bytesList[K, N, wrapped[T]]
	out   []T
	in    []wrapped[T]
}

func (n *expiringList[K, N, T]) get(k Key[K], ns N) ([]T, error) {
	s := n.store
	now, err := s.access()
	if err != nil {
		return nil, err
	}
	list, err := s.get(k, ns)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	n.out, n.in = n.out[:0], n.in[:0]
	for i := range list {
		expired := s.ttl.expired(list[i].Timestamp, now)
		if !expired {
			n.in = append(n.in, wrapped[T]{Timestamp: now, Value: list[i].Value})
		}
		if !expired || s.ttl.ReturnExpired {
			n.out = append(n.out, list[i].Value)
		}
	}
	switch {
	case len(n.in) == 0:
		err = s.clear(k, ns)
	case s.ttl.OnRead:
		err = s.update(k, ns, n.in)
	}
	if len(n.out) == 0 {
		return nil, err
	}
	return n.out, err
}

func (n *expiringList[K, N, T]) wrap(v []T) ([]wrapped[T], error) {
	now, err := n.store.access()
	n.in = n.in[:0]
	for i := range v {
		n.in = append(n.in, wrapped[T]{Timestamp: now, Value: v[i]})
	}
	return n.in, err
}

func (n *expiringList[K, N, T]) add(k Key[K], ns N, v T) error { return n.addAll(k, ns, []T{v}) }

func (n *expiringList[K, N, T]) addAll(k Key[K], ns N, v []T) error {
	w, err := n.wrap(v)
	if err != nil {
		return err
	}
	return n.store.addAll(k, ns, w)
}

func (n *expiringList[K, N, T]) update(k Key[K], ns N, v []T) error {
	w, err := n.wrap(v)
	if err != nil {
		return err
	}
	return n.store.update(k, ns, w)
}

func (n *expiringList[K, N, T]) clear(k Key[K], ns N) error { return n.store.clear(k, ns) }

func (n *expiringList[K, N, T]) unexpired(list []wrapped[T], now int64) (out []T) {
	for i := range list {
		if !n.store.ttl.expired(list[i].Timestamp, now) {
			out = append(out, list[i].Value)
		}
	}
	return out
}

func (n *expiringList[K, N, T]) all(f func(At[K, N], []T) bool) error {
	return n.store.all(func(at At[K, N], v []wrapped[T]) bool {
		out := n.unexpired(v, n.store.b.Millis())
		return len(out) == 0 || f(at, out)
	})
}

func (n *expiringList[K, N, T]) getAt(v View, k Key[K], ns N) ([]T, error) {
	list, err := n.store.getAt(v, k, ns)
	return n.unexpired(list, n.store.b.Millis()), err
}

func (n *expiringList[K, N, T]) allAt(v View, f func(At[K, N], []T) bool) error {
	now := n.store.b.Millis()
	return n.store.allAt(v, func(at At[K, N], v []wrapped[T]) bool {
		out := n.unexpired(v, now)
		return len(out) == 0 || f(at, out)
	})
}
