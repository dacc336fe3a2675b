package keyed

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// native is what all states of native values share: a table from keys and
// namespaces to S.
type native[K, N comparable, S any] struct {
	meta  serializer.StateMeta
	keys  *Keys[K]
	ns    codec[N]
	env   *engine.Env
	tab   *table.Table[K, N, S]
	first int
	count uint
	ttl   TTLConfig

	batches sync.Pool // for each

	sweepGroup int          // where Sweep goes on
	sweepAt    table.Cursor // likewise
	perAccess  int

	// warm touches what the values of entries point to: one after the other the
	// misses of the cache would be waited for, in a loop they overlap. It may be nil.
	warm func(entries []table.Entry[K, N, S])

	// live tells whether a value has anything that is not expired at now; nil where
	// snapshots leave out nothing. sweep removes what has expired; nil without TTL. Of
	// a large value it looks at a part: more tells that it wants to go on.
	live  func(s S, now int64) bool
	sweep func(e *table.Entry[K, N, S], group int, hash uint32, now int64) (expired int, more bool)
}

func (n *native[K, N, S]) init(d *Descriptor[K], ns serializer.Serializer[N], env *engine.Env, o options) {
	n.meta, n.keys, n.ns, n.env, n.ttl = d.Meta, d.Keys, codecOf(ns), env, o.ttl
	n.first, n.count = env.First, uint(env.Count)
	var equal table.Equal[K, N]
	if key := n.keys.codec; !key.plain || !n.ns.plain && !n.ns.empty {
		equal = func(k1 K, n1 N, k2 K, n2 N) bool { return key.equal(k1, k2) && n.ns.equal(n1, n2) }
	}
	n.tab = table.New[K, N, S](env.Views, n.tableOptions(equal))
	n.sweepGroup = n.first
	if o.ttl.on() {
		if n.perAccess = o.ttl.Background; n.perAccess == 0 {
			n.perAccess = 5
		}
	}
}

func (n *native[K, N, S]) tableOptions(equal table.Equal[K, N]) table.Options[K, N] {
	return table.Options[K, N]{
		First: n.env.First, Count: n.env.Count, Equal: equal, Hash: n.hashOf,
		KeepHash: !n.keys.codec.cheap() || !n.ns.cheap(),
	}
}

func (n *native[K, N, S]) hashOf(k K, ns N) uint32 {
	return n.mix(n.keys.codec.hash32(k), ns)
}

func (n *native[K, N, S]) mix(h uint32, ns N) uint32 {
	if n.ns.empty {
		return h
	}
	x := (uint64(h)<<32 | uint64(n.ns.hash32(ns))) * 0x9e3779b97f4a7c15
	return uint32(x >> 32)
}

func (n *native[K, N, S]) mine(k *Key[K]) bool { return uint(int(k.group)-n.first) < n.count }

func (n *native[K, N, S]) foreign(k *Key[K]) error {
	return &KeyGroupError{k.key, int(k.group), n.keys.groups}
}

// in is the hash of a key in a namespace.
func (n *native[K, N, S]) in(h uint32, ns N) uint32 {
	if unsafe.Sizeof(ns) == 0 { // known where it is compiled
		return h
	}
	return n.mix(h, ns)
}

// find gives the entry of a key of this subtask, and its hash. What is called for each
// record does the same without the call.
func (n *native[K, N, S]) find(k *Key[K], ns N) (*table.Entry[K, N, S], uint32) {
	h := n.mix(k.hash, ns)
	return n.tab.Find(int(k.group), h, k.key, ns), h
}

// put sets the value of a key.
func (n *native[K, N, S]) put(k *Key[K], ns N, s S) {
	if e, h := n.find(k, ns); e != nil {
		n.tab.Set(int(k.group), h, e, s)
	} else {
		n.tab.Insert(int(k.group), h, k.key, ns, s)
	}
}

// touchedTable is from how many entries on a table is touched for a batch of records.
const touchedTable = 4096

// touchAhead is how many keys of a batch are touched before the first is looked at.
const touchAhead = 64

// touch brings the entries of the first keys of a batch into the cache.
func (n *native[K, N, S]) touch(keys []Key[K], ns N) {
	x := byte(0)
	for i := range keys[:min(len(keys), touchAhead)] {
		if k := &keys[i]; n.mine(k) {
			x ^= n.tab.Touch(int(k.group), n.in(k.hash, ns))
		}
	}
	warmed.Store(uint32(x))
}

// access is called first by every operation of a state with TTL.
func (n *native[K, N, S]) access() int64 {
	if n.perAccess > 0 {
		n.Sweep(n.perAccess)
	}
	return n.env.Millis()
}

// Sweep implements engine.State.
func (n *native[K, N, S]) Sweep(count int) {
	if n.sweep == nil || n.tab.Len() == 0 {
		return
	}
	now, expired := n.env.Millis(), 0
	for groups := 0; count > 0 && groups < 8; count-- {
		at := n.sweepAt
		e, hash := n.tab.Step(n.sweepGroup, &n.sweepAt)
		if e == nil {
			n.sweepAt = table.Cursor{}
			if n.sweepGroup++; n.sweepGroup == n.first+int(n.count) {
				n.sweepGroup = n.first
			}
			groups++
			count++
			continue
		}
		found, more := n.sweep(e, n.sweepGroup, hash, now)
		if expired += found; more {
			n.sweepAt = at
		}
	}
	if expired > 0 {
		n.env.Expired(int64(expired))
	}
}

// Meta implements engine.State.
func (n *native[K, N, S]) Meta() *serializer.StateMeta { return &n.meta }

// Release implements engine.State.
func (n *native[K, N, S]) Release(w *table.View) { n.tab.Release(w) }

// Passed implements engine.State.
func (n *native[K, N, S]) Passed(w *table.View, group int) { n.tab.Passed(w, group) }

// TouchKeys implements Toucher.
func (n *native[K, N, S]) TouchKeys(keys []Key[K]) {
	var ns N
	// A small table is in the cache anyway; where there are namespaces the keys do not tell.
	if unsafe.Sizeof(ns) == 0 && n.tab.Len() >= touchedTable {
		n.touch(keys, ns)
	}
}

// Loaded implements engine.State.
func (n *native[K, N, S]) Loaded() { n.tab.Loaded() }

// Stats implements engine.State.
func (n *native[K, N, S]) Stats() engine.Stats {
	return engine.Stats{Entries: n.tab.Len(), OldVersions: n.tab.OldVersions()}
}

// each calls f for each entry of a view's key group, from any goroutine.
func (n *native[K, N, S]) each(w *table.View, group int, f func(e *table.Entry[K, N, S]) error) error {
	lent, _ := n.batches.Get().(*[]table.Entry[K, N, S])
	if lent == nil {
		lent = new([]table.Entry[K, N, S])
	}
	buf := *lent
	defer func() {
		if n.tab.Pointers() {
			clear(buf[:cap(buf)]) // nothing of what entries point to is kept
		}
		*lent = buf[:0]
		n.batches.Put(lent)
	}()
	for from, done := uint64(0), false; !done; {
		buf, from, done = n.tab.Batch(w, group, from, buf[:0])
		for i := range buf {
			if n.warm != nil && i%touchAhead == 0 {
				n.warm(buf[i:min(i+touchAhead, len(buf))])
			}
			if err := f(&buf[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a view's key group: begin is told the number of entries, put writes
// one, after its key and namespace were serialized.
func (n *native[K, N, S]) write(kw *stream.KeyedWriter, index int, w *table.View, group int, dropAt int64, put func(key, ns []byte, s S) error) error {
	count := 0
	drop := dropAt != 0 && n.live != nil
	if drop {
		err := n.each(w, group, func(e *table.Entry[K, N, S]) error {
			if n.live(e.Val, dropAt) {
				count++
			}
			return nil
		})
		if err != nil {
			return err
		}
	} else {
		count = n.tab.Count(w, group)
	}
	if count == 0 {
		return nil
	}
	if err := kw.State(index, count); err != nil {
		return err
	}
	var key, ns []byte
	return n.each(w, group, func(e *table.Entry[K, N, S]) error {
		if drop && !n.live(e.Val, dropAt) {
			return nil
		}
		key = n.keys.Serializer.Append(key[:0], e.Key)
		ns = n.ns.ser.Append(ns[:0], e.NS)
		return put(key, ns, e.Val)
	})
}

// at gives the entry of a key in a view for lookups.
func (n *native[K, N, S]) at(v View, k *Key[K], ns N) (s S, w *table.View, ok bool, err error) {
	w, err = viewOf(v)
	if err != nil {
		return s, nil, false, err
	}
	if !n.mine(k) {
		return s, nil, false, n.foreign(k)
	}
	e, ok := n.tab.Lookup(w, int(k.group), n.mix(k.hash, ns), k.key, ns)
	return e.Val, w, ok, nil
}

// NativeView is a View of a backend of native values.
type NativeView interface {
	View
	Native() *table.View
}

func viewOf(v View) (*table.View, error) {
	nv, ok := v.(NativeView)
	if !ok {
		return nil, fmt.Errorf("keyed: a view of another backend")
	}
	w := nv.Native()
	if w.Closed() {
		return nil, fmt.Errorf("keyed: view: %w", ErrClosed)
	}
	return w, nil
}

// all iterates over all entries, for the owner.
func (n *native[K, N, S]) all(f func(e *table.Entry[K, N, S]) bool) {
	for g := n.first; g < n.first+int(n.count); g++ {
		if !n.tab.Each(g, f) {
			return
		}
	}
}

// loader reads what all rows have: key, namespace and place.
type loader[K, N comparable, S any] struct {
	n *native[K, N, S]
}

func (n *native[K, N, S]) newLoader(from *snapshot.State, key, ns *serializer.Type) (loader[K, N, S], error) {
	l := loader[K, N, S]{n: n}
	if err := keeps("key", from.Key, key); err != nil {
		return l, err
	}
	return l, keeps("namespace", from.Namespace, ns)
}

func incompatible(part string, c serializer.Compatibility) error {
	return fmt.Errorf("%s: %s: %w", part, c, ErrIncompatible)
}

// place decodes the key and namespace of a row.
func (l *loader[K, N, S]) place(r *snapshot.StateRow) (k K, ns N, group int, hash uint32, err error) {
	k, used, err := l.n.keys.Serializer.Read(r.Key)
	if err != nil || used != len(r.Key) {
		return k, ns, 0, 0, rowDamage(r, "key", err)
	}
	ns, used, err = l.n.ns.ser.Read(r.Namespace)
	if err != nil || used != len(r.Namespace) {
		return k, ns, 0, 0, rowDamage(r, "namespace", err)
	}
	key := l.n.keys.Make(k)
	if err := checkGroup(r, int(key.group)); err != nil {
		return k, ns, 0, 0, err
	}
	if !l.n.mine(&key) {
		return k, ns, 0, 0, l.n.foreign(&key)
	}
	return k, ns, int(key.group), l.n.mix(key.hash, ns), nil
}

func rowDamage(r *snapshot.StateRow, field string, err error) error {
	detail := "has bytes left over"
	if err != nil {
		detail = err.Error()
	}
	return &metadata.FormatError{Name: r.File, Offset: r.Offset, Field: "state " + r.State.Name + ": " + field, Detail: detail, Err: metadata.ErrCorrupt}
}

// one reads exactly one value.
func one[T any](s serializer.Serializer[T], b []byte) (v T, err error) {
	v, n, err := s.Read(b)
	if err == nil && n != len(b) {
		err = fmt.Errorf("has %d bytes left over", len(b)-n)
	}
	return v, err
}

// eachIn calls f for each entry of a view, from any goroutine.
func (n *native[K, N, S]) eachIn(v View, f func(e *table.Entry[K, N, S], w *table.View) bool) error {
	w, err := viewOf(v)
	if err != nil {
		return err
	}
	for g := n.first; g < n.first+int(n.count); g++ {
		err := n.each(w, g, func(e *table.Entry[K, N, S]) error {
			if !f(e, w) {
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
	}
	return nil
}

var errStop = errors.New("stop")

func checkGroup(r *snapshot.StateRow, group int) error {
	if int32(group) != r.KeyGroup {
		return rowDamage(r, "key", fmt.Errorf("of key group %d stands in %d", group, r.KeyGroup))
	}
	return nil
}
