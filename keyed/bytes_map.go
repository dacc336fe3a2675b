package keyed

import (
	"reflect"
	"unsafe"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
)

// mapCell is the entry of a map state's key: those of its map that are known. If it is
// whole, there are no others.
type mapCell struct {
	s     table.Sorted
	gen   uint32 // of the last change
	wiped uint32 // the generation in which all rows were deleted
	dead  int32  // cells of s without a value
	whole bool
	unit  unit // what a cell is taken to need beside its own size
}

// userCell is an entry of a map.
type userCell[UV any] struct {
	v     UV
	gen   uint32
	dead  bool // there is no value
	fresh bool // the store had none when its generation began
}

// mapChange is a user key changed in a generation.
type mapChange[UK comparable] struct {
	num uint32
	uk  UK
}

// bytesMap is a map state over rows, one for each user key.
type bytesMap[K, N, UK comparable, UV any] struct {
	cached[K, N, mapCell]
	key      codec[UK]
	value    serializer.Serializer[UV]
	maps     *table.SortedStore[UK, userCell[UV]]
	order    func(a, b UK) int
	flat     bool              // user keys and values have no pointers
	changes  [][]mapChange[UK] // like dirty
	pointers bool
	expired  func(v *UV, at int64) bool // nil without TTL

	buf  []table.Pair[UK, UV] // of each
	busy bool
	olds []UK
}

// Limits of maps.
const (
	loadedMap = 1 << 14 // rows that are read to make a map whole
	wipedMap  = 1 << 10 // rows that are deleted one by one
)

func newBytesMap[K, N, UK comparable, UV any](d *Descriptor[K], ns serializer.Serializer[N], key serializer.Serializer[UK], value serializer.Serializer[UV], b *engine.BytesEnv, id uint16, o options) *bytesMap[K, N, UK, UV] {
	n := &bytesMap[K, N, UK, UV]{key: codecOf(key), value: value, flat: plainMemory[UK]() && plainMemory[UV]()}
	n.setUp(d, ns, b, id, o)
	var equal func(a, b UK) bool
	if !n.key.plain && !n.key.empty {
		equal = n.key.equal
	}
	n.order = n.key.order()
	n.maps = table.NewSortedStore[UK, userCell[UV]](b.Views, n.order, equal)
	n.changes = make([][]mapChange[UK], b.Count)
	kind := reflect.TypeFor[UV]().Kind()
	n.pointers = kind == reflect.Pointer || kind == reflect.Interface
	return n
}

func (n *bytesMap[K, N, UK, UV]) null(v *UV) bool {
	return n.pointers && *(*unsafe.Pointer)(unsafe.Pointer(v)) == nil
}

// bytes is what a map takes beside its entry, from the number of its cells.
func (n *bytesMap[K, N, UK, UV]) bytes(c *mapCell) int64 {
	each := int64(unsafe.Sizeof(table.Pair[UK, userCell[UV]]{})) * 3 / 2
	if !n.flat {
		each += c.unit.bytes()
	}
	return int64(c.s.Len()) * each
}

// decode reads the value of a row; user is how long its user key is.
func (n *bytesMap[K, N, UK, UV]) decode(row []byte, user int) (v UV, err error) {
	if len(row) < 1 {
		return v, n.rowError("value", serializer.ErrShort)
	}
	if row[0] != 0 {
		return v, nil // null, as far as the Go type can say
	}
	if v, err = one(n.value, row[1:]); err != nil {
		return v, n.rowError("value", err)
	}
	n.observe(user + len(row))
	return v, nil
}

func (n *bytesMap[K, N, UK, UV]) encode(dst []byte, v *UV) []byte {
	if n.null(v) {
		return append(dst, 1)
	}
	return n.value.Append(append(dst, 0), *v)
}

// keep replaces an entry and accounts for it.
func (n *bytesMap[K, N, UK, UV]) keep(e *table.CacheEntry[K, N, mapCell], r table.Ref, c mapCell, before int64) {
	n.b.Used += n.bytes(&c) - before
	if c != e.Val {
		n.tab.Set(e, r, c)
	}
}

func (n *bytesMap[K, N, UK, UV]) get(k Key[K], ns N, uk UK) (v UV, ok bool, err error) {
	if !n.mine(&k) {
		return v, false, n.foreign(&k)
	}
	e, r := n.find(&k, ns)
	if e != nil {
		n.touch(r)
		if c, ok := n.maps.Get(e.Val.s, uk); ok || e.Val.whole {
			return c.v, ok && !c.dead, nil
		}
	}
	if n.b.Used > n.b.Allow {
		if err := n.b.Room(); err != nil {
			return v, false, err
		}
		e, r = n.find(&k, ns)
	}
	n.row = n.appendRow(n.row[:0], int(k.group), k.key, ns)
	prefix := len(n.row)
	n.row = n.key.ser.Append(n.row, uk)
	if n.val, ok, err = n.b.Rows.Get(n.val[:0], n.row); err != nil {
		return v, false, err
	}
	x := userCell[UV]{dead: !ok}
	if ok {
		if x.v, err = n.decode(n.val, len(n.row)-prefix); err != nil {
			return v, false, err
		}
	}
	if e == nil {
		c := mapCell{s: n.maps.Put(table.Sorted{}, uk, x), unit: n.mean()}
		if x.dead {
			c.dead = 1
		}
		n.insert(int(k.group), n.mix(k.hash, ns), k.key, ns, c, n.bytes(&c))
		return x.v, ok, nil
	}
	c := e.Val
	before := n.bytes(&c)
	c.s, c.unit = n.maps.Put(c.s, uk, x), n.mean()
	if x.dead {
		c.dead++
	}
	n.keep(e, r, c, before)
	return x.v, ok, nil
}

func (n *bytesMap[K, N, UK, UV]) put(k Key[K], ns N, uk UK, v UV) error {
	return n.change(&k, ns, uk, userCell[UV]{v: v})
}

func (n *bytesMap[K, N, UK, UV]) remove(k Key[K], ns N, uk UK) error {
	return n.change(&k, ns, uk, userCell[UV]{dead: true})
}

// change sets or deletes a user key without reading its row.
func (n *bytesMap[K, N, UK, UV]) change(k *Key[K], ns N, uk UK, x userCell[UV]) error {
	if !n.mine(k) {
		return n.foreign(k)
	}
	if err := n.b.Room(); err != nil {
		return err
	}
	x.gen = n.b.Gen
	if !n.flat && !x.dead && n.weigh() {
		n.val = n.encode(n.key.ser.Append(n.val[:0], uk), &x.v)
		n.observe(len(n.val))
	}
	h := n.mix(k.hash, ns)
	e, r := n.tab.Find(int(k.group), h, k.key, ns)
	if e == nil {
		c := mapCell{s: n.maps.Put(table.Sorted{}, uk, x), gen: x.gen, unit: n.mean()}
		if x.dead {
			c.dead = 1
		}
		r = n.insert(int(k.group), h, k.key, ns, c, n.bytes(&c))
		n.noteChange(r, uk)
		return nil
	}
	n.touch(r)
	c := e.Val
	old, known := n.maps.Get(c.s, uk)
	if !known && c.whole {
		old, known = userCell[UV]{dead: true}, true
		if x.dead {
			return nil
		}
		c.dead++ // which Put makes again
	}
	if known {
		if old.dead && x.dead {
			return nil
		}
		inGen := old.gen == x.gen
		x.fresh = inGen && old.fresh || !inGen && old.dead && n.stored(old.gen)
		if x.dead && inGen && old.fresh { // the store never had it
			before := n.bytes(&c)
			c.s, _ = n.maps.Remove(c.s, uk)
			if !c.whole { // that there is none is known
				c.s = n.maps.Put(c.s, uk, userCell[UV]{dead: true})
				c.dead++
			}
			c.gen = x.gen
			n.keep(e, r, c, before)
			return nil
		}
		if old.dead {
			c.dead--
		}
		if !inGen {
			n.noteChange(r, uk)
		}
	} else {
		n.noteChange(r, uk)
	}
	if x.dead {
		c.dead++
	}
	before := n.bytes(&c)
	c.gen, c.unit = x.gen, n.mean()
	c.s = n.maps.Put(c.s, uk, x)
	if c.dead > 16 && int(c.dead) > c.s.Len()/2 {
		n.purge(&c)
	}
	n.keep(e, r, c, before)
	return nil
}

func (n *bytesMap[K, N, UK, UV]) noteChange(r table.Ref, uk UK) {
	n.changes[r.Shard()] = append(n.changes[r.Shard()], mapChange[UK]{r.Number(), uk})
	n.b.Dirty += int64(unsafe.Sizeof(table.Pair[UK, userCell[UV]]{}))*2 + n.meanBytes
}

// purge drops cells without a value that the store has none of either.
func (n *bytesMap[K, N, UK, UV]) purge(c *mapCell) {
	if !c.whole {
		return
	}
	n.olds = n.olds[:0]
	n.maps.Each(c.s, nil, func(uk UK, x userCell[UV]) bool {
		if x.dead && n.stored(x.gen) {
			n.olds = append(n.olds, uk)
		}
		return true
	})
	for _, uk := range n.olds {
		c.s, _ = n.maps.Remove(c.s, uk)
		c.dead--
	}
}

// load makes the entry of a key whole if its map is not too large.
func (n *bytesMap[K, N, UK, UV]) load(k *Key[K], ns N, most int) (*table.CacheEntry[K, N, mapCell], table.Ref, error) {
	if !n.mine(k) {
		return nil, table.Ref{}, n.foreign(k)
	}
	e, r := n.find(k, ns)
	if e != nil && e.Val.whole {
		n.touch(r)
		return e, r, nil
	}
	if err := n.b.Room(); err != nil {
		return nil, r, err
	}
	e, r = n.find(k, ns)
	var c mapCell
	if e != nil {
		c = e.Val
	}
	before := n.bytes(&c)
	n.row = n.appendRow(n.row[:0], int(k.group), k.key, ns)
	prefix := len(n.row)
	count := 0
	var failed error
	err := n.b.Rows.Scan(n.row, after(n.row), func(row, value []byte) bool {
		if count++; count > most {
			return false
		}
		uk, err := one(n.key.ser, row[prefix:])
		if err != nil {
			failed = n.rowError("map key", err)
			return false
		}
		if _, known := n.maps.Get(c.s, uk); known {
			return true
		}
		var x userCell[UV]
		if x.v, failed = n.decode(value, len(row)-prefix); failed != nil {
			return false
		}
		c.s = n.maps.Put(c.s, uk, x)
		return true
	})
	if err == nil {
		err = failed
	}
	c.whole = err == nil && count <= most
	if c.whole {
		n.purge(&c)
	}
	c.unit = n.mean()
	if e == nil {
		r = n.insert(int(k.group), n.mix(k.hash, ns), k.key, ns, c, n.bytes(&c))
		return n.tab.At(r), r, err
	}
	n.keep(e, r, c, before)
	return e, r, err
}

func (n *bytesMap[K, N, UK, UV]) empty(k Key[K], ns N) (bool, error) {
	if !n.mine(&k) {
		return false, n.foreign(&k)
	}
	if e, r := n.find(&k, ns); e != nil && (e.Val.whole || e.Val.s.Len() > int(e.Val.dead)) {
		n.touch(r)
		return e.Val.s.Len() == int(e.Val.dead), nil
	}
	e, _, err := n.load(&k, ns, loadedMap)
	if err != nil {
		return false, err
	}
	if e.Val.whole || e.Val.s.Len() > int(e.Val.dead) {
		return e.Val.s.Len() == int(e.Val.dead), nil
	}
	empty := true
	err = n.each(k, ns, nil, func(UK, UV) bool { empty = false; return false })
	return empty, err
}

func (n *bytesMap[K, N, UK, UV]) clear(k Key[K], ns N) error {
	if err := n.b.Room(); err != nil {
		return err
	}
	e, r, err := n.load(&k, ns, wipedMap)
	if err != nil {
		return err
	}
	c := e.Val
	before := n.bytes(&c)
	if c.whole && c.s.Len() == int(c.dead) {
		return nil
	}
	gen := n.b.Gen
	if !c.whole || c.s.Len() > wipedMap {
		if c.wiped != gen {
			n.changed(r, 0)
		}
		n.maps.Free(c.s)
		n.keep(e, r, mapCell{gen: gen, wiped: gen, whole: true}, before)
		return nil
	}
	n.olds = n.olds[:0]
	n.maps.Each(c.s, nil, func(uk UK, x userCell[UV]) bool {
		if !x.dead {
			n.olds = append(n.olds, uk)
		}
		return true
	})
	for _, uk := range n.olds {
		x, _ := n.maps.Get(c.s, uk)
		if x.gen == gen && x.fresh {
			c.s, _ = n.maps.Remove(c.s, uk)
			continue
		}
		if x.gen != gen {
			n.noteChange(r, uk)
		}
		c.s = n.maps.Put(c.s, uk, userCell[UV]{gen: gen, dead: true})
		c.dead++
	}
	c.gen = gen
	n.keep(e, r, c, before)
	return nil
}

func (n *bytesMap[K, N, UK, UV]) each(k Key[K], ns N, from *UK, f func(UK, UV) bool) error {
	e, _, err := n.load(&k, ns, loadedMap)
	if err != nil {
		return err
	}
	if !e.Val.whole {
		return n.merge(n.b.Rows, n.cells(e.Val.s, from), n.appendRow(nil, int(k.group), k.key, ns), from, f)
	}
	s := e.Val.s
	if p, small := n.maps.Run(s); small && !n.busy {
		if from != nil {
			p = n.maps.From(s, *from)
		}
		n.buf = n.buf[:0]
		for i := range p {
			if !p[i].Value.dead {
				n.buf = append(n.buf, table.Pair[UK, UV]{Key: p[i].Key, Value: p[i].Value.v})
			}
		}
		n.busy = true // f may change the map, and iterate
		for i := range n.buf {
			if !f(n.buf[i].Key, n.buf[i].Value) {
				break
			}
		}
		n.busy = false
		return nil
	}
	n.maps.Hold(s, from, func(uk UK, x userCell[UV]) bool { return x.dead || f(uk, x.v) })
	return nil
}

// cells are the known entries of a map from a user key on.
func (n *bytesMap[K, N, UK, UV]) cells(s table.Sorted, from *UK) []table.Pair[UK, userCell[UV]] {
	var out []table.Pair[UK, userCell[UV]]
	n.maps.Each(s, from, func(uk UK, x userCell[UV]) bool {
		out = append(out, table.Pair[UK, userCell[UV]]{Key: uk, Value: x})
		return true
	})
	return out
}

func (n *bytesMap[K, N, UK, UV]) frozenCells(s table.Sorted) []table.Pair[UK, userCell[UV]] {
	var out []table.Pair[UK, userCell[UV]]
	n.maps.Frozen(s, func(uk UK, x userCell[UV]) bool {
		out = append(out, table.Pair[UK, userCell[UV]]{Key: uk, Value: x})
		return true
	})
	return out
}

// merge calls f for the entries of a map whose known cells stand in front of its rows.
func (n *bytesMap[K, N, UK, UV]) merge(rows engine.Rows, cells []table.Pair[UK, userCell[UV]], prefix []byte, from *UK, f func(UK, UV) bool) error {
	start := prefix
	if from != nil {
		start = n.key.ser.Append(append([]byte(nil), prefix...), *from)
	}
	i, more := 0, true
	known := func() {
		if x := &cells[i]; !x.Value.dead {
			more = f(x.Key, x.Value.v)
		}
		i++
	}
	var failed error
	err := rows.Scan(start, after(prefix), func(row, value []byte) bool {
		uk, err := one(n.key.ser, row[len(prefix):])
		if err != nil {
			failed = n.rowError("map key", err)
			return false
		}
		for more && i < len(cells) && n.order(cells[i].Key, uk) < 0 {
			known()
		}
		if !more {
			return false
		}
		if i < len(cells) && n.order(cells[i].Key, uk) == 0 {
			known()
			return more
		}
		v, err := n.decodeAt(value)
		if err != nil {
			failed = err
			return false
		}
		more = f(uk, v)
		return more
	})
	if err == nil {
		err = failed
	}
	for err == nil && more && i < len(cells) {
		known()
	}
	return err
}

// decodeAt is decode for any goroutine.
func (n *bytesMap[K, N, UK, UV]) decodeAt(row []byte) (v UV, err error) {
	if len(row) < 1 {
		return v, n.rowError("value", serializer.ErrShort)
	}
	if row[0] != 0 {
		return v, nil
	}
	if v, err = one(n.value, row[1:]); err != nil {
		err = n.rowError("value", err)
	}
	return v, err
}

func (n *bytesMap[K, N, UK, UV]) all(f func(At[K, N], UK, UV) bool) error {
	return n.held(func(v View) error { return n.allAt(v, f) })
}

func (n *bytesMap[K, N, UK, UV]) getAt(v View, k Key[K], ns N, uk UK) (uv UV, ok bool, err error) {
	c, found, rows, row, err := n.seen(v, &k, ns)
	if err != nil {
		return uv, false, err
	}
	if found {
		if x, ok := n.maps.FrozenGet(c.s, uk); ok || c.whole {
			return x.v, ok && !x.dead, nil
		}
		row = n.appendRow(nil, int(k.group), k.key, ns)
	}
	b, ok, err := rows.Get(nil, n.key.ser.Append(row, uk))
	if err != nil || !ok {
		return uv, false, err
	}
	uv, err = n.decodeAt(b)
	return uv, err == nil, err
}

func (n *bytesMap[K, N, UK, UV]) eachAt(v View, k Key[K], ns N, f func(UK, UV) bool) error {
	c, _, rows, row, err := n.seen(v, &k, ns)
	if err != nil {
		return err
	}
	if row == nil {
		row = n.appendRow(nil, int(k.group), k.key, ns)
	}
	return n.frozenEach(rows, &c, row, f)
}

// frozenEach calls f for the entries of a map in a view.
func (n *bytesMap[K, N, UK, UV]) frozenEach(rows engine.Rows, c *mapCell, row []byte, f func(UK, UV) bool) error {
	if c.whole {
		n.maps.Frozen(c.s, func(uk UK, x userCell[UV]) bool { return x.dead || f(uk, x.v) })
		return nil
	}
	return n.merge(rows, n.frozenCells(c.s), row, nil, f)
}

func (n *bytesMap[K, N, UK, UV]) allAt(v View, f func(At[K, N], UK, UV) bool) error {
	_, rows, err := rowsOf(v)
	if err != nil {
		return err
	}
	var failed error
	err = n.eachRow(v, func(group int, e *table.CacheEntry[K, N, mapCell]) bool {
		more, at := true, At[K, N]{e.Key, e.NS}
		failed = n.frozenEach(rows, &e.Val, n.appendRow(nil, group, e.Key, e.NS), func(uk UK, v UV) bool {
			more = f(at, uk, v)
			return more
		})
		return more && failed == nil
	}, func(k K, ns N, user, value []byte) (bool, error) {
		uk, err := one(n.key.ser, user)
		if err != nil {
			return false, n.rowError("map key", err)
		}
		x, err := n.decodeAt(value)
		return err == nil && f(At[K, N]{k, ns}, uk, x), err
	})
	if err == nil {
		err = failed
	}
	return err
}

// mapChanges are the changes of a map state.
type mapChanges[K, N, UK comparable, UV any] struct {
	n     *bytesMap[K, N, UK, UV]
	gen   uint32
	wiped [][]uint32
	keys  [][]mapChange[UK]
}

// Freeze implements engine.BytesState.
func (n *bytesMap[K, N, UK, UV]) Freeze() engine.Changes {
	c := &mapChanges[K, N, UK, UV]{n, n.b.Gen, n.dirty, n.changes}
	n.dirty, n.changes = make([][]uint32, len(n.dirty)), make([][]mapChange[UK], len(n.changes))
	return c
}

// Len implements engine.Changes.
func (c *mapChanges[K, N, UK, UV]) Len(group int) int {
	return len(c.wiped[group-c.n.first]) + len(c.keys[group-c.n.first])
}

// Group implements engine.Changes.
func (c *mapChanges[K, N, UK, UV]) Group(view *table.View, group int, put func(op engine.Op, key, value []byte)) {
	n, shard := c.n, group-c.n.first
	var row, value []byte
	for _, num := range c.wiped[shard] {
		if e, ok := n.tab.Seen(view, table.RefTo(shard, num)); ok && e.Val.wiped == c.gen {
			row = n.appendRow(row[:0], group, e.Key, e.NS)
			put(engine.OpDeleteRange, row, after(row))
		}
	}
	for _, x := range c.keys[shard] {
		e, ok := n.tab.Seen(view, table.RefTo(shard, x.num))
		if !ok {
			continue
		}
		u, ok := n.maps.FrozenGet(e.Val.s, x.uk)
		if !ok || u.gen != c.gen {
			continue
		}
		row = n.key.ser.Append(n.appendRow(row[:0], group, e.Key, e.NS), x.uk)
		if u.dead {
			put(engine.OpDelete, row, nil)
			continue
		}
		value = n.encode(value[:0], &u.v)
		put(engine.OpSet, row, value)
	}
}

// Evict implements engine.BytesState.
func (n *bytesMap[K, N, UK, UV]) Evict(want int64) int64 {
	return n.evict(want,
		func(e *table.CacheEntry[K, N, mapCell]) bool { return n.stored(e.Val.gen) },
		func(e *table.CacheEntry[K, N, mapCell]) int64 { return n.bytes(&e.Val) },
		func(e *table.CacheEntry[K, N, mapCell]) { n.maps.Free(e.Val.s) })
}

// Convert implements engine.BytesState.
func (n *bytesMap[K, N, UK, UV]) Convert(old *engine.OldTypes) (serializer.Convert, error) {
	return n.convertTypes(old, n.key.ser.Type(), n.value.Type())
}

// Reset implements engine.BytesState.
func (n *bytesMap[K, N, UK, UV]) Reset() {}
