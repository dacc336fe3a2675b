package keyed

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

func attachMap[K, N, UK comparable, UV any](b Backend[K], name string, ns serializer.Serializer[N], key serializer.Serializer[UK], value serializer.Serializer[UV], opts []Option) (e mapEngine[K, N, UK, UV]) {
	o, err := apply(opts)
	d := &Descriptor[K]{err: err}
	if o.ttl.on() {
		w := serializer.WithTTL(value)
		d.Meta = serializer.NewKeyedState(name, "MAP", ns.Type(), serializer.NewMap(key.Type(), w.Type()))
		d.native = func(env *engine.Env) engine.State {
			n := &ttlMap[K, N, UK, UV]{}
			n.store.setUp(d, ns, key, w, env, o)
			if !o.ttl.KeepInSnapshots {
				n.store.keep = func(v wrapped[UV], now int64) bool { return !o.ttl.expired(v.Timestamp, now) }
				n.store.live = n.anyLive
			}
			n.store.sweep = n.sweepOne
			e = n
			return &n.store
		}
		d.bytes = func(env *engine.BytesEnv, id uint16) engine.BytesState {
			n := newBytesMap(d, ns, key, w, env, id, o)
			n.expired = func(v *wrapped[UV], at int64) bool { return o.ttl.expired(v.Timestamp, at) }
			e = &expiringMap[K, N, UK, UV]{n}
			return n
		}
	} else {
		d.Meta = serializer.NewKeyedState(name, "MAP", ns.Type(), serializer.NewMap(key.Type(), value.Type()))
		d.native = func(env *engine.Env) engine.State {
			n := &nativeMap[K, N, UK, UV]{}
			n.setUp(d, ns, key, value, env, o)
			e = n
			return n
		}
		d.bytes = func(env *engine.BytesEnv, id uint16) engine.BytesState {
			n := newBytesMap(d, ns, key, value, env, id, o)
			e = n
			return n
		}
	}
	if err := b.Attach(d); err != nil {
		return failedMap[K, N, UK, UV]{err}
	}
	return e
}

// nativeMap is a map state of native values.
type nativeMap[K, N, UK comparable, UV any] struct {
	native[K, N, table.Sorted]
	key   codec[UK]
	value serializer.Serializer[UV]
	maps  *table.SortedStore[UK, UV]
	// keep tells which values have not expired; nil without TTL.
	keep func(v UV, now int64) bool
	buf  []table.Pair[UK, UV] // of each
	busy bool                 // buf is in use
	// pointers: values are pointers or interfaces, and nil is written as Flink's null.
	pointers bool

	loading sync.Mutex // of maps
}

func (n *nativeMap[K, N, UK, UV]) setUp(d *Descriptor[K], ns serializer.Serializer[N], key serializer.Serializer[UK], value serializer.Serializer[UV], env *engine.Env, o options) {
	n.init(d, ns, env, o)
	n.key, n.value = codecOf(key), value
	var equal func(a, b UK) bool
	if !n.key.plain && !n.key.empty {
		equal = n.key.equal
	}
	n.maps = table.NewSortedStore[UK, UV](env.Views, n.key.order(), equal)
	kind := reflect.TypeFor[UV]().Kind()
	n.pointers = kind == reflect.Pointer || kind == reflect.Interface
}

// null tells whether a value is nil: the first word of a pointer, or of an interface,
// is zero.
func (n *nativeMap[K, N, UK, UV]) null(v *UV) bool {
	return n.pointers && *(*unsafe.Pointer)(unsafe.Pointer(v)) == nil
}

func (n *nativeMap[K, N, UK, UV]) get(k Key[K], ns N, uk UK) (v UV, ok bool, err error) {
	if !n.mine(&k) {
		return v, false, n.foreign(&k)
	}
	e := n.tab.Find(int(k.group), n.in(k.hash, ns), k.key, ns)
	if e == nil {
		return v, false, nil
	}
	if p := n.maps.Find(&e.Val, uk); p != nil {
		return p.Value, true, nil
	}
	return v, false, nil
}

func (n *nativeMap[K, N, UK, UV]) put(k Key[K], ns N, uk UK, v UV) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	h := n.in(k.hash, ns)
	e := n.tab.Find(int(k.group), h, k.key, ns)
	if e == nil {
		n.tab.Insert(int(k.group), h, k.key, ns, n.maps.Put(table.Sorted{}, uk, v))
		return nil
	}
	if !n.tab.Shared() && !e.Val.Large() {
		if p := n.maps.Find(&e.Val, uk); p != nil {
			p.Value = v
			return nil
		}
		if n.maps.Insert(&e.Val, uk, v) {
			return nil
		}
	}
	if s := n.maps.Put(e.Val, uk, v); s != e.Val {
		n.tab.Set(int(k.group), h, e, s)
	}
	return nil
}

func (n *nativeMap[K, N, UK, UV]) remove(k Key[K], ns N, uk UK) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	h := n.in(k.hash, ns)
	e := n.tab.Find(int(k.group), h, k.key, ns)
	if e == nil || !n.tab.Shared() && n.maps.Delete(&e.Val, uk) {
		return nil
	}
	s, ok := n.maps.Remove(e.Val, uk)
	switch {
	case !ok:
	case s.Len() == 0:
		n.tab.Remove(int(k.group), h, e)
	case s != e.Val:
		n.tab.Set(int(k.group), h, e, s)
	}
	return nil
}

func (n *nativeMap[K, N, UK, UV]) empty(k Key[K], ns N) (bool, error) {
	if !n.mine(&k) {
		return false, n.foreign(&k)
	}
	return n.tab.Find(int(k.group), n.in(k.hash, ns), k.key, ns) == nil, nil
}

func (n *nativeMap[K, N, UK, UV]) clear(k Key[K], ns N) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	if e, h := n.find(&k, ns); e != nil {
		s := e.Val
		n.tab.Remove(int(k.group), h, e)
		n.maps.Free(s)
	}
	return nil
}

func (n *nativeMap[K, N, UK, UV]) each(k Key[K], ns N, from *UK, f func(UK, UV) bool) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	e, _ := n.find(&k, ns)
	if e == nil {
		return nil
	}
	s := e.Val
	if p, small := n.maps.Run(s); small && !n.busy {
		// A copy, since f may change the map.
		if from != nil {
			p = n.maps.From(s, *from)
		}
		n.buf = append(n.buf[:0], p...)
		n.busy = true
		for i := range n.buf {
			if !f(n.buf[i].Key, n.buf[i].Value) {
				break
			}
		}
		n.busy = false
		return nil
	}
	n.maps.Hold(s, from, f)
	return nil
}

func (n *nativeMap[K, N, UK, UV]) all(f func(At[K, N], UK, UV) bool) error {
	n.native.all(func(e *table.Entry[K, N, table.Sorted]) bool {
		more, at := true, At[K, N]{e.Key, e.NS}
		n.maps.Hold(e.Val, nil, func(uk UK, v UV) bool {
			more = f(at, uk, v)
			return more
		})
		return more
	})
	return nil
}

func (n *nativeMap[K, N, UK, UV]) getAt(v View, k Key[K], ns N, uk UK) (uv UV, ok bool, err error) {
	s, _, found, err := n.at(v, &k, ns)
	if err != nil || !found {
		return uv, false, err
	}
	uv, ok = n.maps.FrozenGet(s, uk)
	return uv, ok, nil
}

func (n *nativeMap[K, N, UK, UV]) eachAt(v View, k Key[K], ns N, f func(UK, UV) bool) error {
	s, _, found, err := n.at(v, &k, ns)
	if err != nil || !found {
		return err
	}
	n.maps.Frozen(s, f)
	return nil
}

func (n *nativeMap[K, N, UK, UV]) allAt(v View, f func(At[K, N], UK, UV) bool) error {
	return n.eachIn(v, func(e *table.Entry[K, N, table.Sorted], _ *table.View) bool {
		more, at := true, At[K, N]{e.Key, e.NS}
		n.maps.Frozen(e.Val, func(uk UK, v UV) bool {
			more = f(at, uk, v)
			return more
		})
		return more
	})
}

// Write implements engine.State.
func (n *nativeMap[K, N, UK, UV]) Write(kw *stream.KeyedWriter, index int, w *table.View, group int, dropAt int64) error {
	var ukey, value []byte
	drop := dropAt != 0 && n.keep != nil
	return n.write(kw, index, w, group, dropAt, func(key, ns []byte, s table.Sorted) error {
		count := s.Len()
		if drop {
			count = 0
			n.maps.Frozen(s, func(_ UK, v UV) bool {
				if n.keep(v, dropAt) {
					count++
				}
				return true
			})
		}
		err := kw.Map(key, ns, count)
		n.maps.Frozen(s, func(uk UK, v UV) bool {
			if err != nil || drop && !n.keep(v, dropAt) {
				return err == nil
			}
			ukey = n.key.ser.Append(ukey[:0], uk)
			if n.null(&v) {
				err = kw.NullPair(ukey, nil)
				return true
			}
			value = n.value.Append(value[:0], v)
			err = kw.Pair(ukey, value)
			return true
		})
		return err
	})
}

// Loader implements engine.State.
func (n *nativeMap[K, N, UK, UV]) Loader(from *snapshot.State) (engine.Loader, error) {
	l, err := n.newLoader(from, n.keys.Serializer.Type(), n.ns.ser.Type())
	if err != nil {
		return nil, err
	}
	x := &mapLoader[K, N, UK, UV]{loader: l, maps: n}
	if err := keeps("map key", from.UserKey, n.key.ser.Type()); err != nil {
		return nil, err
	}
	if x.convert, err = migration(from.Value, n.value.Type()); err != nil {
		return nil, err
	}
	return x, nil
}

type mapLoader[K, N, UK comparable, UV any] struct {
	loader[K, N, table.Sorted]
	maps    *nativeMap[K, N, UK, UV]
	convert serializer.Convert
	buf     []byte
}

func (l *mapLoader[K, N, UK, UV]) Load(r *snapshot.StateRow) error {
	k, ns, group, hash, err := l.place(r)
	if err != nil {
		return err
	}
	uk, err := one(l.maps.key.ser, r.UserKey)
	if err != nil {
		return rowDamage(r, "map key", err)
	}
	var v UV // of a null value, as far as the Go type can say
	if !r.Null {
		b := r.Value
		if l.convert != nil {
			if l.buf, err = l.convert(l.buf[:0], b); err != nil {
				return rowDamage(r, "value", err)
			}
			b = l.buf
		}
		if v, err = one(l.maps.value, b); err != nil {
			return rowDamage(r, "value", err)
		}
	}
	m := l.maps
	m.loading.Lock()
	defer m.loading.Unlock()
	if e := m.tab.Find(group, hash, k, ns); e != nil {
		e.Val = m.maps.Put(e.Val, uk, v)
		return nil
	}
	m.tab.Load(group, hash, k, ns, m.maps.Put(table.Sorted{}, uk, v))
	return nil
}

// ttlMap is a map state whose entries expire.
type ttlMap[K, N, UK comparable, UV any] struct {
	store nativeMap[K, N, UK, wrapped[UV]]

	sweep mapSweep[UK]
	old   []UK
}

func (n *ttlMap[K, N, UK, UV]) anyLive(s table.Sorted, now int64) (any bool) {
	n.store.maps.Frozen(s, func(_ UK, v wrapped[UV]) bool {
		any = !n.store.ttl.expired(v.Timestamp, now)
		return !any
	})
	return any
}

func (n *ttlMap[K, N, UK, UV]) get(k Key[K], ns N, uk UK) (v UV, ok bool, err error) {
	s := &n.store
	now := s.access()
	w, ok, err := s.get(k, ns, uk)
	if !ok || err != nil {
		return v, false, err
	}
	if s.ttl.expired(w.Timestamp, now) {
		if err := s.remove(k, ns, uk); err != nil || !s.ttl.ReturnExpired {
			return v, false, err
		}
		return w.Value, true, nil
	}
	if s.ttl.OnRead && w.Timestamp != now {
		err = s.put(k, ns, uk, wrapped[UV]{Timestamp: now, Value: w.Value})
	}
	return w.Value, true, err
}

func (n *ttlMap[K, N, UK, UV]) put(k Key[K], ns N, uk UK, v UV) error {
	return n.store.put(k, ns, uk, wrapped[UV]{Timestamp: n.store.access(), Value: v})
}

func (n *ttlMap[K, N, UK, UV]) remove(k Key[K], ns N, uk UK) error { return n.store.remove(k, ns, uk) }

func (n *ttlMap[K, N, UK, UV]) empty(k Key[K], ns N) (bool, error) {
	empty := true
	err := n.visit(k, ns, nil, func(UK, UV) bool {
		empty = false
		return false
	}, false)
	return empty, err
}

func (n *ttlMap[K, N, UK, UV]) clear(k Key[K], ns N) error { return n.store.clear(k, ns) }

func (n *ttlMap[K, N, UK, UV]) each(k Key[K], ns N, from *UK, f func(UK, UV) bool) error {
	return n.visit(k, ns, from, f, n.store.ttl.OnRead)
}

// visit gives the entries that have not expired, or may be returned once more, and
// removes the expired ones.
func (n *ttlMap[K, N, UK, UV]) visit(k Key[K], ns N, from *UK, f func(UK, UV) bool, touch bool) error {
	s := &n.store
	now := s.access()
	var failed error
	err := s.each(k, ns, from, func(uk UK, w wrapped[UV]) bool {
		if s.ttl.expired(w.Timestamp, now) {
			if failed = s.remove(k, ns, uk); failed != nil || !s.ttl.ReturnExpired {
				return failed == nil
			}
		} else if touch && w.Timestamp != now {
			if failed = s.put(k, ns, uk, wrapped[UV]{Timestamp: now, Value: w.Value}); failed != nil {
				return false
			}
		}
		return f(uk, w.Value)
	})
	if err == nil {
		err = failed
	}
	return err
}

func (n *ttlMap[K, N, UK, UV]) all(f func(At[K, N], UK, UV) bool) error {
	return n.store.all(func(at At[K, N], uk UK, v wrapped[UV]) bool {
		return n.store.ttl.expired(v.Timestamp, n.store.env.Millis()) || f(at, uk, v.Value)
	})
}

func (n *ttlMap[K, N, UK, UV]) getAt(w View, k Key[K], ns N, uk UK) (v UV, ok bool, err error) {
	x, ok, err := n.store.getAt(w, k, ns, uk)
	if err != nil || !ok || n.store.ttl.expired(x.Timestamp, n.store.env.Millis()) {
		return v, false, err
	}
	return x.Value, true, nil
}

func (n *ttlMap[K, N, UK, UV]) eachAt(w View, k Key[K], ns N, f func(UK, UV) bool) error {
	now := n.store.env.Millis()
	return n.store.eachAt(w, k, ns, func(uk UK, v wrapped[UV]) bool {
		return n.store.ttl.expired(v.Timestamp, now) || f(uk, v.Value)
	})
}

func (n *ttlMap[K, N, UK, UV]) allAt(w View, f func(At[K, N], UK, UV) bool) error {
	now := n.store.env.Millis()
	return n.store.allAt(w, func(at At[K, N], uk UK, v wrapped[UV]) bool {
		return n.store.ttl.expired(v.Timestamp, now) || f(at, uk, v.Value)
	})
}

// mapSweep is where sweepOne goes on in a map, from a key on if on is set.
type mapSweep[UK any] struct {
	group int
	hash  uint32
	on    bool
	from  UK
}

// sweepOne looks at the next few entries of a map.
func (n *ttlMap[K, N, UK, UV]) sweepOne(e *table.Entry[K, N, table.Sorted], group int, hash uint32, now int64) (expired int, more bool) {
	s := &n.store
	c := &n.sweep
	var from *UK
	if c.on && c.group == group && c.hash == hash {
		from = &c.from
	}
	n.old = n.old[:0]
	seen := 0
	next := mapSweep[UK]{group: group, hash: hash}
	s.maps.Each(e.Val, from, func(uk UK, v wrapped[UV]) bool {
		if seen++; seen > sweepPart {
			next.on, next.from = true, uk
			return false
		}
		if s.ttl.expired(v.Timestamp, now) {
			n.old = append(n.old, uk)
		}
		return true
	})
	*c = next
	if len(n.old) == 0 {
		return 0, next.on
	}
	m := e.Val
	for _, uk := range n.old {
		m, _ = s.maps.Remove(m, uk)
	}
	if m.Len() == 0 {
		s.tab.Remove(group, hash, e)
	} else {
		s.tab.Set(group, hash, e, m)
	}
	return len(n.old), next.on
}
