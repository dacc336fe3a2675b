package keyed

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

func attachList[K, N comparable, T any](b Backend[K], name string, ns serializer.Serializer[N], s serializer.Serializer[T], opts []Option) (e listEngine[K, N, T]) {
	o, err := apply(opts)
	d := &Descriptor[K]{err: err}
	if o.ttl.on() {
		w := serializer.WithTTL(s)
		d.Meta = serializer.NewKeyedState(name, "LIST", ns.Type(), serializer.NewList(w.Type()))
		d.native = func(env *engine.Env) engine.State {
			n := &ttlList[K, N, T]{}
			n.store.setUp(d, ns, w, env, o)
			if !o.ttl.KeepInSnapshots {
				n.store.live = n.anyLive
				n.store.keep = func(v wrapped[T], now int64) bool { return !o.ttl.expired(v.Timestamp, now) }
			}
			n.store.sweep = n.sweepOne
			e = n
			return &n.store
		}
		d.bytes = func(env *engine.BytesEnv, id uint16) engine.BytesState {
			n := newBytesList(d, ns, w, env, id, o)
			n.expired = func(v *wrapped[T], at int64) bool { return o.ttl.expired(v.Timestamp, at) }
			e = &expiringList[K, N, T]{store: n}
			return n
		}
	} else {
		d.Meta = serializer.NewKeyedState(name, "LIST", ns.Type(), serializer.NewList(s.Type()))
		d.native = func(env *engine.Env) engine.State {
			n := &nativeList[K, N, T]{}
			n.setUp(d, ns, s, env, o)
			e = n
			return n
		}
		d.bytes = func(env *engine.BytesEnv, id uint16) engine.BytesState {
			n := newBytesList(d, ns, s, env, id, o)
			e = n
			return n
		}
	}
	if err := b.Attach(d); err != nil {
		return failedList[K, N, T]{err}
	}
	return e
}

// nativeList is a list state of native values: elements are runs of an arena.
type nativeList[K, N comparable, T any] struct {
	native[K, N, table.Run]
	ser   serializer.Serializer[T]
	arena *table.Arena[T]
	// keep tells which elements have not expired; nil without TTL.
	keep func(v T, now int64) bool

	loading sync.Mutex // of the arena
}

func (n *nativeList[K, N, T]) setUp(d *Descriptor[K], ns serializer.Serializer[N], s serializer.Serializer[T], env *engine.Env, o options) {
	n.init(d, ns, env, o)
	n.ser, n.arena = s, table.NewArena[T](env.Views)
}

func (n *nativeList[K, N, T]) get(k Key[K], ns N) ([]T, error) {
	if !n.mine(&k) {
		return nil, n.foreign(&k)
	}
	e := n.tab.Find(int(k.group), n.in(k.hash, ns), k.key, ns)
	if e == nil {
		return nil, nil
	}
	return n.arena.Elements(&e.Val), nil
}

func (n *nativeList[K, N, T]) add(k Key[K], ns N, v T) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	h := n.in(k.hash, ns)
	e := n.tab.Find(int(k.group), h, k.key, ns)
	if e == nil {
		n.tab.Insert(int(k.group), h, k.key, ns, n.arena.Append1(table.Run{}, v))
		return nil
	}
	if !n.tab.Shared() && n.arena.Push(&e.Val, v) {
		return nil
	}
	n.tab.Set(int(k.group), h, e, n.arena.Append1(e.Val, v))
	return nil
}

func (n *nativeList[K, N, T]) addAll(k Key[K], ns N, v []T) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	if len(v) == 0 {
		return nil
	}
	e, h := n.find(&k, ns)
	if e == nil {
		n.tab.Insert(int(k.group), h, k.key, ns, n.arena.Append(table.Run{}, v...))
		return nil
	}
	n.tab.Set(int(k.group), h, e, n.arena.Append(e.Val, v...))
	return nil
}

func (n *nativeList[K, N, T]) update(k Key[K], ns N, v []T) error {
	if len(v) == 0 {
		return n.clear(k, ns)
	}
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	h := n.in(k.hash, ns)
	e := n.tab.Find(int(k.group), h, k.key, ns)
	if e == nil {
		n.tab.Insert(int(k.group), h, k.key, ns, n.arena.Append(table.Run{}, v...))
		return nil
	}
	if e.Val.Len() == len(v) && !n.tab.Shared() {
		copy(n.arena.Elements(&e.Val), v)
		return nil
	}
	// v may be what get gave: it is copied before the old run is let go.
	old := e.Val
	run, same := n.arena.Resize(old, len(v))
	copy(n.arena.Get(run), v)
	n.tab.Set(int(k.group), h, e, run)
	if same {
		n.arena.Trim(run, old.Len())
	} else {
		n.arena.Free(old)
	}
	return nil
}

func (n *nativeList[K, N, T]) clear(k Key[K], ns N) error {
	if !n.mine(&k) {
		return n.foreign(&k)
	}
	if e, h := n.find(&k, ns); e != nil {
		run := e.Val
		n.tab.Remove(int(k.group), h, e)
		n.arena.Free(run)
	}
	return nil
}

func (n *nativeList[K, N, T]) all(f func(At[K, N], []T) bool) error {
	n.native.all(func(e *table.Entry[K, N, table.Run]) bool { return f(At[K, N]{e.Key, e.NS}, n.arena.Get(e.Val)) })
	return nil
}

func (n *nativeList[K, N, T]) getAt(v View, k Key[K], ns N) ([]T, error) {
	run, _, ok, err := n.at(v, &k, ns)
	if err != nil || !ok {
		return nil, err
	}
	return n.arena.At(run), nil
}

func (n *nativeList[K, N, T]) allAt(v View, f func(At[K, N], []T) bool) error {
	return n.eachIn(v, func(e *table.Entry[K, N, table.Run], _ *table.View) bool {
		return f(At[K, N]{e.Key, e.NS}, n.arena.At(e.Val))
	})
}

// Write implements engine.State.
func (n *nativeList[K, N, T]) Write(kw *stream.KeyedWriter, index int, w *table.View, group int, dropAt int64) error {
	var buf []byte
	drop := dropAt != 0 && n.keep != nil
	return n.write(kw, index, w, group, dropAt, func(key, ns []byte, run table.Run) error {
		list := n.arena.At(run)
		count := len(list)
		if drop {
			count = 0
			for i := range list {
				if n.keep(list[i], dropAt) {
					count++
				}
			}
		}
		if err := kw.List(key, ns, count); err != nil {
			return err
		}
		for i := range list {
			if drop && !n.keep(list[i], dropAt) {
				continue
			}
			buf = n.ser.Append(buf[:0], list[i])
			if err := kw.Element(buf); err != nil {
				return err
			}
		}
		return nil
	})
}

// Loader implements engine.State.
func (n *nativeList[K, N, T]) Loader(from *snapshot.State) (engine.Loader, error) {
	l, err := n.newLoader(from, n.keys.Serializer.Type(), n.ns.ser.Type())
	if err != nil {
		return nil, err
	}
	x := &listLoader[K, N, T]{loader: l, list: n}
	old := from.Value
	if old != nil && old.Kind == serializer.KindList {
		old = old.Elem()
	}
	if x.convert, err = migration(old, n.ser.Type()); err != nil {
		return nil, err
	}
	if x.convert != nil {
		x.skip = serializer.NewDecoder(old, nil)
	}
	return x, nil
}

type listLoader[K, N comparable, T any] struct {
	loader[K, N, table.Run]
	list    *nativeList[K, N, T]
	convert serializer.Convert
	skip    *serializer.Decoder // of old elements, with convert
	buf     []byte
	elems   []T
}

func (l *listLoader[K, N, T]) Load(r *snapshot.StateRow) error {
	k, ns, group, hash, err := l.place(r)
	if err != nil {
		return err
	}
	l.elems = l.elems[:0]
	b, count := r.Value, -1
	switch r.Form {
	case snapshot.FormJoined, snapshot.FormElements:
	case snapshot.FormValue: // int32 count, elements
		if len(b) < 4 {
			return rowDamage(r, "value", serializer.ErrShort)
		}
		count = int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
	default:
		return rowDamage(r, "value", fmt.Errorf("is no list"))
	}
	for len(b) > 0 || count > 0 {
		elem, size := b, 0
		if l.convert != nil {
			if size, err = l.skip.Skip(b); err == nil {
				l.buf, err = l.convert(l.buf[:0], b[:size])
				elem = l.buf
			}
			if err != nil {
				return rowDamage(r, "value", err)
			}
		}
		v, n, err := l.list.ser.Read(elem)
		if err != nil {
			return rowDamage(r, "value", err)
		}
		if l.convert == nil {
			size = n
		}
		l.elems = append(l.elems, v)
		if b = b[size:]; r.Form == snapshot.FormJoined && len(b) > 0 {
			b = b[1:]
		}
		if count > 0 {
			if count--; count == 0 {
				break
			}
		} else if size == 0 {
			break // elements without bytes
		}
	}
	if len(b) > 0 || count > 0 {
		return rowDamage(r, "value", nil)
	}
	if len(l.elems) == 0 {
		return nil
	}
	l.list.loading.Lock()
	run := l.list.arena.Alloc(len(l.elems))
	copy(l.list.arena.Get(run), l.elems)
	l.list.loading.Unlock()
	l.n.tab.Load(group, hash, k, ns, run)
	return nil
}

// ttlList is a list state whose elements expire.
type ttlList[K, N comparable, T any] struct {
	store nativeList[K, N, wrapped[T]]
	out   []T
	in    []wrapped[T]
	sweep listSweep
}

// listSweep is where sweepOne goes on in a list.
type listSweep struct {
	group   int
	hash    uint32
	at      int // elements looked at
	expired int // of them
}

// sweepPart is how many elements of a list, or entries of a map, are looked at in one go.
const sweepPart = 64

func (n *ttlList[K, N, T]) anyLive(run table.Run, now int64) bool {
	for _, v := range n.store.arena.At(run) {
		if !n.store.ttl.expired(v.Timestamp, now) {
			return true
		}
	}
	return false
}

func (n *ttlList[K, N, T]) get(k Key[K], ns N) ([]T, error) {
	s := &n.store
	now := s.access()
	if !s.mine(&k) {
		return nil, s.foreign(&k)
	}
	e, h := s.find(&k, ns)
	if e == nil {
		return nil, nil
	}
	list := s.arena.Get(e.Val)
	n.out = n.out[:0]
	live := 0
	for i := range list {
		expired := s.ttl.expired(list[i].Timestamp, now)
		if !expired {
			live++
		}
		if !expired || s.ttl.ReturnExpired {
			n.out = append(n.out, list[i].Value)
		}
	}
	switch {
	case live == 0:
		run := e.Val
		s.tab.Remove(int(k.group), h, e)
		s.arena.Free(run)
	case s.ttl.OnRead:
		n.in = n.in[:0]
		for i := range list {
			if !s.ttl.expired(list[i].Timestamp, now) {
				n.in = append(n.in, wrapped[T]{Timestamp: now, Value: list[i].Value})
			}
		}
		if err := s.update(k, ns, n.in); err != nil {
			return nil, err
		}
	}
	if len(n.out) == 0 {
		return nil, nil
	}
	return n.out, nil
}

func (n *ttlList[K, N, T]) wrap(v []T, now int64) []wrapped[T] {
	n.in = n.in[:0]
	for i := range v {
		n.in = append(n.in, wrapped[T]{Timestamp: now, Value: v[i]})
	}
	return n.in
}

func (n *ttlList[K, N, T]) add(k Key[K], ns N, v T) error {
	return n.store.add(k, ns, wrapped[T]{Timestamp: n.store.access(), Value: v})
}

func (n *ttlList[K, N, T]) addAll(k Key[K], ns N, v []T) error {
	return n.store.addAll(k, ns, n.wrap(v, n.store.access()))
}

func (n *ttlList[K, N, T]) update(k Key[K], ns N, v []T) error {
	return n.store.update(k, ns, n.wrap(v, n.store.access()))
}

func (n *ttlList[K, N, T]) clear(k Key[K], ns N) error { return n.store.clear(k, ns) }

// unexpired are the values of a list that have not expired.
func (n *ttlList[K, N, T]) unexpired(list []wrapped[T], now int64) []T {
	var out []T
	for i := range list {
		if !n.store.ttl.expired(list[i].Timestamp, now) {
			out = append(out, list[i].Value)
		}
	}
	return out
}

func (n *ttlList[K, N, T]) all(f func(At[K, N], []T) bool) error {
	return n.store.all(func(at At[K, N], v []wrapped[T]) bool {
		out := n.unexpired(v, n.store.env.Millis())
		return len(out) == 0 || f(at, out)
	})
}

func (n *ttlList[K, N, T]) getAt(v View, k Key[K], ns N) ([]T, error) {
	list, err := n.store.getAt(v, k, ns)
	return n.unexpired(list, n.store.env.Millis()), err
}

func (n *ttlList[K, N, T]) allAt(v View, f func(At[K, N], []T) bool) error {
	now := n.store.env.Millis()
	return n.store.allAt(v, func(at At[K, N], v []wrapped[T]) bool {
		out := n.unexpired(v, now)
		return len(out) == 0 || f(at, out)
	})
}

// sweepOne looks at a part of a list, and removes what has expired after the last
// part.
func (n *ttlList[K, N, T]) sweepOne(e *table.Entry[K, N, table.Run], group int, hash uint32, now int64) (expired int, more bool) {
	s := &n.store
	list := s.arena.Get(e.Val)
	c := &n.sweep
	if c.group != group || c.hash != hash || c.at > len(list) {
		*c = listSweep{group: group, hash: hash}
	}
	to := min(c.at+sweepPart, len(list))
	for ; c.at < to; c.at++ {
		if s.ttl.expired(list[c.at].Timestamp, now) {
			c.expired++
		}
	}
	if c.at < len(list) {
		return 0, true
	}
	found := c.expired
	*c = listSweep{group: -1}
	if found == 0 {
		return 0, false
	}
	live := 0
	for i := range list {
		if !s.ttl.expired(list[i].Timestamp, now) {
			live++
		}
	}
	old := e.Val
	if live == 0 {
		s.tab.Remove(group, hash, e)
	} else {
		to := s.arena.Alloc(live)
		kept := s.arena.Get(to)[:0]
		for i := range list {
			if !s.ttl.expired(list[i].Timestamp, now) {
				kept = append(kept, list[i])
			}
		}
		s.tab.Set(group, hash, e, to)
	}
	s.arena.Free(old)
	return len(list) - live, false
}
