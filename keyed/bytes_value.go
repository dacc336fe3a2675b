package keyed

import (
	"bytes"
	"slices"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
)

// cell is an entry of a value state: a value, or the knowledge that there is none.
type cell[V any] struct {
	val  V
	gen  uint32 // of its last change; 0: it is as stored
	dead bool   // there is no value
	unit unit   // what the value is taken to need, without a sizer
}

// bytesValue is a value state over rows.
type bytesValue[K, N comparable, V any] struct {
	cached[K, N, cell[V]]
	ser  serializer.Serializer[V]
	size func(v *V) int64 // nil: the mean
	// expired tells whether a stored value has expired; nil without TTL.
	expired func(v *V, at int64) bool
}

func newBytesValue[K, N comparable, V any](d *Descriptor[K], ns serializer.Serializer[N], s serializer.Serializer[V], b *engine.BytesEnv, id uint16, o options) *bytesValue[K, N, V] {
	n := &bytesValue[K, N, V]{ser: s, size: sizer[V]()}
	n.setUp(d, ns, b, id, o)
	return n
}

func (n *bytesValue[K, N, V]) bytes(c *cell[V]) int64 {
	switch {
	case c.dead:
		return 0
	case n.size != nil:
		return n.size(&c.val)
	}
	return c.unit.bytes()
}

func (n *bytesValue[K, N, V]) get(k Key[K], ns N) (v V, ok bool, err error) {
	if !n.mine(&k) {
		return v, false, n.foreign(&k)
	}
	if e, r := n.find(&k, ns); e != nil {
		n.touch(r)
		return e.Val.val, !e.Val.dead, nil
	}
	return n.load(&k, ns)
}

// load reads a value from its row and keeps it.
func (n *bytesValue[K, N, V]) load(k *Key[K], ns N) (v V, ok bool, err error) {
	if err := n.b.Room(); err != nil {
		return v, false, err
	}
	n.row = n.appendRow(n.row[:0], int(k.group), k.key, ns)
	n.val, ok, err = n.b.Rows.Get(n.val[:0], n.row)
	if err != nil {
		return v, false, err
	}
	return n.keep(k, ns, n.val, ok)
}

// keep decodes a row and makes an entry of it.
func (n *bytesValue[K, N, V]) keep(k *Key[K], ns N, row []byte, ok bool) (v V, _ bool, err error) {
	c := cell[V]{dead: !ok}
	if ok {
		if c.val, err = one(n.ser, row); err != nil {
			return v, false, n.rowError("value", err)
		}
		c.unit = n.observe(len(row))
	}
	n.insert(int(k.group), n.mix(k.hash, ns), k.key, ns, c, n.bytes(&c))
	return c.val, ok, nil
}

func (n *bytesValue[K, N, V]) set(k Key[K], ns N, v V) error {
	return n.put(&k, ns, cell[V]{val: v})
}

func (n *bytesValue[K, N, V]) clear(k Key[K], ns N) error {
	return n.put(&k, ns, cell[V]{dead: true})
}

func (n *bytesValue[K, N, V]) put(k *Key[K], ns N, c cell[V]) error {
	if !n.mine(k) {
		return n.foreign(k)
	}
	if err := n.b.Room(); err != nil {
		return err
	}
	c.gen = n.b.Gen
	if n.size == nil && !c.dead {
		if c.unit = n.mean(); n.weigh() {
			n.val = n.ser.Append(n.val[:0], c.val)
			c.unit = n.observe(len(n.val))
		}
	}
	h := n.mix(k.hash, ns)
	e, r := n.tab.Find(int(k.group), h, k.key, ns)
	bytes := n.bytes(&c)
	if e == nil {
		n.changed(n.insert(int(k.group), h, k.key, ns, c, bytes), bytes)
		return nil
	}
	if c.dead && e.Val.dead {
		return nil
	}
	n.touch(r)
	n.b.Used += bytes - n.bytes(&e.Val)
	if e.Val.gen != c.gen {
		n.changed(r, bytes)
	}
	n.tab.Set(e, r, c)
	return nil
}

// getMany reads what is not there in the order of the rows.
func (n *bytesValue[K, N, V]) getMany(keys []Key[K], ns N, out []V, found []bool) error {
	type miss struct {
		i        int
		from, to int // of its row's key
	}
	var misses []miss
	var rows []byte
	for i := range keys {
		k := &keys[i]
		if !n.mine(k) {
			return n.foreign(k)
		}
		if e, r := n.find(k, ns); e != nil {
			n.touch(r)
			out[i], found[i] = e.Val.val, !e.Val.dead
			continue
		}
		from := len(rows)
		rows = n.appendRow(rows, int(k.group), k.key, ns)
		misses = append(misses, miss{i, from, len(rows)})
	}
	slices.SortFunc(misses, func(a, b miss) int { return bytes.Compare(rows[a.from:a.to], rows[b.from:b.to]) })
	for _, m := range misses {
		k := &keys[m.i]
		if err := n.b.Room(); err != nil {
			return err
		}
		if e, _ := n.find(k, ns); e != nil { // a key that comes twice
			out[m.i], found[m.i] = e.Val.val, !e.Val.dead
			continue
		}
		val, ok, err := n.b.Rows.Get(n.val[:0], rows[m.from:m.to])
		n.val = val
		if err == nil {
			out[m.i], found[m.i], err = n.keep(k, ns, val, ok)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setMany leaves the batch to the write-back.
func (n *bytesValue[K, N, V]) setMany(keys []Key[K], ns N, v []V) error {
	for i := range keys {
		if err := n.set(keys[i], ns, v[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *bytesValue[K, N, V]) all(f func(At[K, N], V) bool) error {
	return n.held(func(v View) error { return n.allAt(v, f) })
}

func (n *bytesValue[K, N, V]) getAt(v View, k Key[K], ns N) (x V, ok bool, err error) {
	c, found, rows, row, err := n.seen(v, &k, ns)
	if err != nil || found {
		return c.val, found && !c.dead, err
	}
	b, ok, err := rows.Get(nil, row)
	if err != nil || !ok {
		return x, false, err
	}
	if x, err = one(n.ser, b); err != nil {
		return x, false, n.rowError("value", err)
	}
	return x, true, nil
}

func (n *bytesValue[K, N, V]) allAt(v View, f func(At[K, N], V) bool) error {
	return n.eachRow(v, func(_ int, e *table.CacheEntry[K, N, cell[V]]) bool {
		return e.Val.dead || f(At[K, N]{e.Key, e.NS}, e.Val.val)
	}, func(k K, ns N, _, value []byte) (bool, error) {
		x, err := one(n.ser, value)
		if err != nil {
			return false, n.rowError("value", err)
		}
		return f(At[K, N]{k, ns}, x), nil
	})
}

// Freeze implements engine.BytesState.
func (n *bytesValue[K, N, V]) Freeze() engine.Changes {
	gen := n.b.Gen
	return n.freeze(func(e *table.CacheEntry[K, N, cell[V]], row, value []byte, put func(engine.Op, []byte, []byte)) ([]byte, []byte) {
		switch {
		case e.Val.gen != gen:
		case e.Val.dead:
			put(engine.OpDelete, row, nil)
		default:
			value = n.ser.Append(value, e.Val.val)
			put(engine.OpSet, row, value)
		}
		return row, value
	})
}

// Evict implements engine.BytesState.
func (n *bytesValue[K, N, V]) Evict(want int64) int64 {
	return n.evict(want,
		func(e *table.CacheEntry[K, N, cell[V]]) bool { return n.stored(e.Val.gen) },
		func(e *table.CacheEntry[K, N, cell[V]]) int64 { return n.bytes(&e.Val) }, nil)
}

// Convert implements engine.BytesState.
func (n *bytesValue[K, N, V]) Convert(old *engine.OldTypes) (serializer.Convert, error) {
	return n.convertTypes(old, nil, n.ser.Type())
}

// Reset implements engine.BytesState.
func (n *bytesValue[K, N, V]) Reset() {}
