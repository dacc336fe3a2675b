package keyed

import (
	"iter"
	"sync/atomic"
	"unsafe"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// ValueState is a value for each key.
type ValueState[K comparable, V any] struct {
	in ValueStateIn[K, struct{}, V]
}

// ValueStateIn is a value for each key and namespace.
type ValueStateIn[K, N comparable, V any] struct {
	e      valueEngine[K, N, V]
	native *nativeValue[K, N, V] // e, if it is one: handles do themselves what is done for each record
}

// valueEngine is a backend's implementation of a value state.
type valueEngine[K, N comparable, V any] interface {
	get(k Key[K], ns N) (V, bool, error)
	set(k Key[K], ns N, v V) error
	clear(k Key[K], ns N) error
	getMany(keys []Key[K], ns N, out []V, found []bool) error
	setMany(keys []Key[K], ns N, v []V) error
	all(f func(at At[K, N], v V) bool) error
	getAt(v View, k Key[K], ns N) (V, bool, error)
	allAt(v View, f func(at At[K, N], v V) bool) error
}

// Value registers a value state.
func Value[K comparable, V any](b Backend[K], name string, s serializer.Serializer[V], opts ...Option) *ValueState[K, V] {
	return &ValueState[K, V]{*ValueIn(b, name, serializer.VoidNS, s, opts...)}
}

// ValueIn registers a value state with namespaces.
func ValueIn[K, N comparable, V any](b Backend[K], name string, ns serializer.Serializer[N], s serializer.Serializer[V], opts ...Option) *ValueStateIn[K, N, V] {
	e := attachValue(b, name, "VALUE", ns, s, opts)
	n, _ := e.(*nativeValue[K, N, V])
	return &ValueStateIn[K, N, V]{e, n}
}

func attachValue[K, N comparable, V any](b Backend[K], name, kind string, ns serializer.Serializer[N], s serializer.Serializer[V], opts []Option) (e valueEngine[K, N, V]) {
	o, err := apply(opts)
	d := &Descriptor[K]{err: err}
	if o.ttl.on() {
		w := serializer.WithTTL(s)
		d.Meta = serializer.NewKeyedState(name, kind, ns.Type(), w.Type())
		d.native = func(env *engine.Env) engine.State {
			n := &ttlValue[K, N, V]{}
			n.store.ser = w
			n.store.init(d, ns, env, o)
			if !o.ttl.KeepInSnapshots {
				n.store.live = func(s wrapped[V], now int64) bool { return !o.ttl.expired(s.Timestamp, now) }
			}
			n.store.sweep = n.sweepOne
			e = n
			return &n.store
		}
		d.bytes = func(env *engine.BytesEnv, id uint16) engine.BytesState {
			n := newBytesValue(d, ns, w, env, id, o)
			n.expired = func(v *wrapped[V], at int64) bool { return o.ttl.expired(v.Timestamp, at) }
			e = &expiringValue[K, N, V]{n}
			return n
		}
	} else {
		d.Meta = serializer.NewKeyedState(name, kind, ns.Type(), s.Type())
		d.native = func(env *engine.Env) engine.State {
			n := &nativeValue[K, N, V]{ser: s}
			n.init(d, ns, env, o)
			n.warm = warmBytes[K, N, V]()
			e = n
			return n
		}
		d.bytes = func(env *engine.BytesEnv, id uint16) engine.BytesState {
			n := newBytesValue(d, ns, s, env, id, o)
			e = n
			return n
		}
	}
	if err := b.Attach(d); err != nil {
		return failedValue[K, N, V]{err}
	}
	return e
}

// Get gives the value of a key; ok is false if there is none.
func (s *ValueState[K, V]) Get(k Key[K]) (v V, ok bool, err error) {
	if n := s.in.native; n != nil {
		if e := n.tab.FindPlain(int(k.group), k.hash, k.key, struct{}{}); e != nil {
			return e.Val, true, nil
		}
	}
	return s.in.e.get(k, struct{}{})
}

// Set sets the value of a key.
func (s *ValueState[K, V]) Set(k Key[K], v V) error {
	if n := s.in.native; n != nil {
		if e := n.tab.FindPlain(int(k.group), k.hash, k.key, struct{}{}); e != nil {
			if n.tab.Shared() {
				n.tab.Set(int(k.group), k.hash, e, v)
			} else {
				e.Val = v
			}
			return nil
		}
		return n.setNew(k, struct{}{}, v)
	}
	return s.in.e.set(k, struct{}{}, v)
}

// Clear removes the value of a key.
func (s *ValueState[K, V]) Clear(k Key[K]) error { return s.in.e.clear(k, struct{}{}) }

// GetMany gets the values of many keys at once: out and found are as long as keys.
func (s *ValueState[K, V]) GetMany(keys []Key[K], out []V, found []bool) error {
	return s.in.e.getMany(keys, struct{}{}, out, found)
}

// SetMany sets the values of many keys, v[i] for keys[i].
func (s *ValueState[K, V]) SetMany(keys []Key[K], v []V) error {
	return s.in.e.setMany(keys, struct{}{}, v)
}

// All iterates over all keys, by key group, else in no order. The state may be changed
// meanwhile; keys that are added may be seen or not.
func (s *ValueState[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		s.in.e.all(func(at At[K, struct{}], v V) bool { return yield(at.Key, v) })
	}
}

// GetAt is Get in a view, from any goroutine.
func (s *ValueState[K, V]) GetAt(v View, k Key[K]) (V, bool, error) {
	return s.in.e.getAt(v, k, struct{}{})
}

// AllAt calls f for all keys of a view until it returns false, from any goroutine.
func (s *ValueState[K, V]) AllAt(v View, f func(k K, v V) bool) error {
	return s.in.e.allAt(v, func(at At[K, struct{}], v V) bool { return f(at.Key, v) })
}

// Get gives the value of a key in a namespace; ok is false if there is none.
func (s *ValueStateIn[K, N, V]) Get(k Key[K], ns N) (v V, ok bool, err error) { return s.e.get(k, ns) }

// Set sets the value of a key in a namespace.
func (s *ValueStateIn[K, N, V]) Set(k Key[K], ns N, v V) error { return s.e.set(k, ns, v) }

// Clear removes the value of a key in a namespace.
func (s *ValueStateIn[K, N, V]) Clear(k Key[K], ns N) error { return s.e.clear(k, ns) }

// GetMany gets the values of many keys at once: out and found are as long as keys.
func (s *ValueStateIn[K, N, V]) GetMany(keys []Key[K], ns N, out []V, found []bool) error {
	return s.e.getMany(keys, ns, out, found)
}

// SetMany sets the values of many keys, v[i] for keys[i].
func (s *ValueStateIn[K, N, V]) SetMany(keys []Key[K], ns N, v []V) error {
	return s.e.setMany(keys, ns, v)
}

// All iterates over all keys and namespaces, see ValueState.All.
func (s *ValueStateIn[K, N, V]) All() iter.Seq2[At[K, N], V] {
	return func(yield func(At[K, N], V) bool) { s.e.all(yield) }
}

// GetAt is Get in a view, from any goroutine.
func (s *ValueStateIn[K, N, V]) GetAt(v View, k Key[K], ns N) (V, bool, error) {
	return s.e.getAt(v, k, ns)
}

// AllAt calls f for all entries of a view until it returns false, from any goroutine.
func (s *ValueStateIn[K, N, V]) AllAt(v View, f func(at At[K, N], v V) bool) error {
	return s.e.allAt(v, f)
}

// nativeValue is a value state of native values.
type nativeValue[K, N comparable, V any] struct {
	native[K, N, V]
	ser serializer.Serializer[V]
}

func (n *nativeValue[K, N, V]) get(k Key[K], ns N) (v V, ok bool, err error) {
	if !n.mine(&k) {
		return v, false, n.foreign(&k)
	}
	e := n.tab.Find(int(k.group), n.in(k.hash, ns), k.key, ns)
	if e == nil {
		return v, false, nil
	}
	return e.Val, true, nil
}

func (n *nativeValue[K, N, V]) set(k Key[K], ns N, v V) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	h := n.in(k.hash, ns)
	e := n.tab.Find(int(k.group), h, k.key, ns)
	switch {
	case e == nil:
		n.tab.Insert(int(k.group), h, k.key, ns, v)
	case n.tab.Shared():
		n.tab.Set(int(k.group), h, e, v)
	default:
		e.Val = v
	}
	return nil
}

// setNew is set of a key that FindPlain did not find.
func (n *nativeValue[K, N, V]) setNew(k Key[K], ns N, v V) error {
	if !n.mine(&k) || !n.tab.Plain() {
		return n.set(k, ns, v)
	}
	n.tab.Insert(int(k.group), n.in(k.hash, ns), k.key, ns, v)
	return nil
}

func (n *nativeValue[K, N, V]) clear(k Key[K], ns N) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	if e, h := n.find(&k, ns); e != nil {
		n.tab.Remove(int(k.group), h, e)
	}
	return nil
}

func (n *nativeValue[K, N, V]) getMany(keys []Key[K], ns N, out []V, found []bool) (err error) {
	for i := range keys {
		if i%touchAhead == 0 {
			n.touch(keys[i:], ns)
		}
		if out[i], found[i], err = n.get(keys[i], ns); err != nil {
			return err
		}
	}
	return nil
}

func (n *nativeValue[K, N, V]) setMany(keys []Key[K], ns N, v []V) error {
	for i := range keys {
		if i%touchAhead == 0 {
			n.touch(keys[i:], ns)
		}
		if err := n.set(keys[i], ns, v[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *nativeValue[K, N, V]) all(f func(At[K, N], V) bool) error {
	n.native.all(func(e *table.Entry[K, N, V]) bool { return f(At[K, N]{e.Key, e.NS}, e.Val) })
	return nil
}

func (n *nativeValue[K, N, V]) getAt(v View, k Key[K], ns N) (V, bool, error) {
	s, _, ok, err := n.at(v, &k, ns)
	return s, ok, err
}

func (n *nativeValue[K, N, V]) allAt(v View, f func(At[K, N], V) bool) error {
	return n.eachIn(v, func(e *table.Entry[K, N, V], _ *table.View) bool { return f(At[K, N]{e.Key, e.NS}, e.Val) })
}

// Write implements engine.State.
func (n *nativeValue[K, N, V]) Write(kw *stream.KeyedWriter, index int, w *table.View, group int, dropAt int64) error {
	var buf []byte
	return n.write(kw, index, w, group, dropAt, func(key, ns []byte, v V) error {
		buf = n.ser.Append(buf[:0], v)
		return kw.Value(key, ns, buf)
	})
}

// Loader implements engine.State.
func (n *nativeValue[K, N, V]) Loader(from *snapshot.State) (engine.Loader, error) {
	l, err := n.newLoader(from, n.keys.Serializer.Type(), n.ns.ser.Type())
	if err != nil {
		return nil, err
	}
	convert, err := migration(from.Value, n.ser.Type())
	if err != nil {
		return nil, err
	}
	return &valueLoader[K, N, V]{l, n.ser, convert, nil}, nil
}

type valueLoader[K, N comparable, V any] struct {
	loader[K, N, V]
	ser     serializer.Serializer[V]
	convert serializer.Convert
	buf     []byte
}

func (l *valueLoader[K, N, V]) Load(r *snapshot.StateRow) (err error) {
	k, ns, group, hash, err := l.place(r)
	if err != nil {
		return err
	}
	b := r.Value
	if l.convert != nil {
		if l.buf, err = l.convert(l.buf[:0], b); err != nil {
			return rowDamage(r, "value", err)
		}
		b = l.buf
	}
	v, err := one(l.ser, b)
	if err != nil {
		return rowDamage(r, "value", err)
	}
	l.n.tab.Load(group, hash, k, ns, v)
	return nil
}

// ttlValue is a value state whose values expire, over one of stamped values.
type ttlValue[K, N comparable, V any] struct {
	store nativeValue[K, N, wrapped[V]]
}

func (n *ttlValue[K, N, V]) get(k Key[K], ns N) (v V, ok bool, err error) {
	s := &n.store
	now := s.access()
	if !s.mine(&k) {
		return v, false, s.foreign(&k)
	}
	e, h := s.find(&k, ns)
	if e == nil {
		return v, false, nil
	}
	if s.ttl.expired(e.Val.Timestamp, now) {
		v = e.Val.Value
		s.tab.Remove(int(k.group), h, e)
		if !s.ttl.ReturnExpired {
			var none V
			return none, false, nil
		}
		return v, true, nil
	}
	if s.ttl.OnRead && e.Val.Timestamp != now {
		s.tab.Set(int(k.group), h, e, wrapped[V]{Timestamp: now, Value: e.Val.Value})
	}
	return e.Val.Value, true, nil
}

func (n *ttlValue[K, N, V]) set(k Key[K], ns N, v V) error {
	return n.store.set(k, ns, wrapped[V]{Timestamp: n.store.access(), Value: v})
}

func (n *ttlValue[K, N, V]) clear(k Key[K], ns N) error { return n.store.clear(k, ns) }

func (n *ttlValue[K, N, V]) getMany(keys []Key[K], ns N, out []V, found []bool) (err error) {
	for i := range keys {
		if i%touchAhead == 0 {
			n.store.touch(keys[i:], ns)
		}
		if out[i], found[i], err = n.get(keys[i], ns); err != nil {
			return err
		}
	}
	return nil
}

func (n *ttlValue[K, N, V]) setMany(keys []Key[K], ns N, v []V) error {
	for i := range keys {
		if i%touchAhead == 0 {
			n.store.touch(keys[i:], ns)
		}
		if err := n.set(keys[i], ns, v[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *ttlValue[K, N, V]) all(f func(At[K, N], V) bool) error {
	return n.store.all(func(at At[K, N], v wrapped[V]) bool {
		return n.store.ttl.expired(v.Timestamp, n.store.env.Millis()) || f(at, v.Value)
	})
}

func (n *ttlValue[K, N, V]) getAt(w View, k Key[K], ns N) (v V, ok bool, err error) {
	x, ok, err := n.store.getAt(w, k, ns)
	if err != nil || !ok || n.store.ttl.expired(x.Timestamp, n.store.env.Millis()) {
		return v, false, err
	}
	return x.Value, true, nil
}

func (n *ttlValue[K, N, V]) allAt(w View, f func(At[K, N], V) bool) error {
	now := n.store.env.Millis()
	return n.store.allAt(w, func(at At[K, N], v wrapped[V]) bool {
		return n.store.ttl.expired(v.Timestamp, now) || f(at, v.Value)
	})
}

func (n *ttlValue[K, N, V]) sweepOne(e *table.Entry[K, N, wrapped[V]], group int, hash uint32, now int64) (expired int, more bool) {
	if !n.store.ttl.expired(e.Val.Timestamp, now) {
		return 0, false
	}
	n.store.tab.Remove(group, hash, e)
	return 1, false
}

// failedValue is a state that could not be registered.
type failedValue[K, N comparable, V any] struct{ err error }

func (f failedValue[K, N, V]) get(Key[K], N) (v V, ok bool, err error) { return v, false, f.err }
func (f failedValue[K, N, V]) set(Key[K], N, V) error                  { return f.err }
func (f failedValue[K, N, V]) clear(Key[K], N) error                   { return f.err }
func (f failedValue[K, N, V]) getMany([]Key[K], N, []V, []bool) error  { return f.err }
func (f failedValue[K, N, V]) setMany([]Key[K], N, []V) error          { return f.err }
func (f failedValue[K, N, V]) all(func(At[K, N], V) bool) error        { return f.err }
func (f failedValue[K, N, V]) getAt(View, Key[K], N) (v V, ok bool, err error) {
	return v, false, f.err
}
func (f failedValue[K, N, V]) allAt(View, func(At[K, N], V) bool) error { return f.err }

// warmed keeps reads that have no other use from being left out.
var warmed atomic.Uint32

// warmBytes is native.warm of byte slices and strings.
func warmBytes[K, N comparable, V any]() func([]table.Entry[K, N, V]) {
	var zero V
	switch any(zero).(type) {
	case []byte, string: // both begin with a pointer and a length
		return func(entries []table.Entry[K, N, V]) {
			x := byte(0)
			for i := range entries {
				v := *(*string)(unsafe.Pointer(&entries[i].Val))
				for at := 0; at < min(len(v), 320); at += 64 { // the rest comes by itself
					x ^= v[at]
				}
				if len(v) > 0 {
					x ^= v[len(v)-1]
				}
			}
			warmed.Store(uint32(x))
		}
	}
	return nil
}
