package keyed

import (
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// timerPlace is what a timer is besides its key.
type timerPlace[N comparable] struct {
	ns N
	at int64
}

func attachTimers[K, N comparable](b Backend[K], name string, ns serializer.Serializer[N]) (e timerEngine[K, N]) {
	d := &Descriptor[K]{}
	d.native = func(env *engine.Env) engine.State {
		d.Meta = serializer.NewTimerState(name, serializer.NewTimer(d.Keys.Serializer.Type(), ns.Type()))
		n := &nativeTimers[K, N]{}
		n.init(d, timerPlaces[N]{ns}, env, options{})
		n.nsSer, n.nsCodec = ns, codecOf(ns)
		key, space := &n.keys.codec, &n.nsCodec
		o := table.Options[K, timerPlace[N]]{
			First: env.First, Count: env.Count, KeepHash: !key.cheap() || !space.cheap(),
			Hash: func(k K, p timerPlace[N]) uint32 { return n.timerHash(key.hash32(k), p) },
		}
		if !key.plain || !space.plain && !space.empty {
			o.Equal = func(k1 K, p1 timerPlace[N], k2 K, p2 timerPlace[N]) bool {
				return p1.at == p2.at && key.equal(k1, k2) && space.equal(p1.ns, p2.ns)
			}
		}
		n.tab = table.New[K, timerPlace[N], uint16](env.Views, o)
		e = n
		return n
	}
	d.bytes = func(env *engine.BytesEnv, id uint16) engine.BytesState {
		d.Meta = serializer.NewTimerState(name, serializer.NewTimer(d.Keys.Serializer.Type(), ns.Type()))
		n := newBytesTimers(d, ns, env, id)
		e = n
		return n
	}
	d.Meta.Name = name
	if err := b.Attach(d); err != nil {
		return failedTimers[K, N]{err}
	}
	return e
}

// timerPlaces serializes the place of a timer.
type timerPlaces[N comparable] struct{ ns serializer.Serializer[N] }

func (s timerPlaces[N]) Append(dst []byte, p timerPlace[N]) []byte {
	return s.ns.Append(serializer.Int64.Append(dst, p.at), p.ns)
}

func (s timerPlaces[N]) Read(b []byte) (p timerPlace[N], n int, err error) {
	if p.at, n, err = serializer.Int64.Read(b); err != nil {
		return p, 0, err
	}
	ns, m, err := s.ns.Read(b[n:])
	p.ns = ns
	return p, n + m, err
}

func (s timerPlaces[N]) Type() *serializer.Type { return s.ns.Type() }

// nativeTimers is a set of timers: a table, which is what snapshots read, and a
// queue, which is derived from it. Values of the table are a number that tells a
// timer's node in the queue from one of a timer that was the same and was deleted.
//
// Deleting leaves the node in the queue, to be passed over when it is reached. When
// there are more of those than timers, each deletion looks for some.
type nativeTimers[K, N comparable] struct {
	native[K, timerPlace[N], uint16]
	nsSer   serializer.Serializer[N]
	nsCodec codec[N]
	queue   timerQueue[K, N]
	gen     uint16
	stale   int // nodes whose timer was deleted
}

func (n *nativeTimers[K, N]) timerHash(h uint32, p timerPlace[N]) uint32 {
	x := (uint64(h)<<32 ^ uint64(p.at)) * 0x9e3779b97f4a7c15
	if !n.nsCodec.empty {
		x = (x ^ x>>32 ^ uint64(n.nsCodec.hash32(p.ns))<<16) * 0xbf58476d1ce4e5b9
	}
	return uint32(x >> 32)
}

func (n *nativeTimers[K, N]) register(k Key[K], ns N, at int64) (bool, error) {
	if !n.mine(&k) {
		return false, n.foreign(&k)
	}
	p := timerPlace[N]{ns, at}
	h := n.timerHash(k.hash, p)
	if e := n.tab.Find(int(k.group), h, k.key, p); e != nil {
		return false, nil
	}
	n.gen++
	n.tab.Insert(int(k.group), h, k.key, p, n.gen)
	n.queue.push(&timerNode[K, N]{ns: ns, at: uint64(at) ^ 1<<63, key: k.key, hash: k.hash, group: k.group, gen: n.gen})
	return true, nil
}

func (n *nativeTimers[K, N]) delete(k Key[K], ns N, at int64) (bool, error) {
	if !n.mine(&k) {
		return false, n.foreign(&k)
	}
	p := timerPlace[N]{ns, at}
	h := n.timerHash(k.hash, p)
	e := n.tab.Find(int(k.group), h, k.key, p)
	if e == nil {
		return false, nil
	}
	n.tab.Remove(int(k.group), h, e)
	if n.stale++; n.stale > 64+n.tab.Len() {
		n.stale -= n.queue.clean(4, func(t *timerNode[K, N]) bool { e, _ := n.entry(t); return e != nil })
	}
	return true, nil
}

// entry gives what a node stands for and its hash, nil if the timer was deleted.
func (n *nativeTimers[K, N]) entry(t *timerNode[K, N]) (*table.Entry[K, timerPlace[N], uint16], uint32) {
	p := timerPlace[N]{t.ns, int64(t.at ^ 1<<63)}
	h := n.timerHash(t.hash, p)
	e := n.tab.Find(int(t.group), h, t.key, p)
	if e != nil && e.Val != t.gen {
		e = nil
	}
	return e, h
}

// settle removes what is stale from the front and gives the first node with its
// entry, nil if there is none.
func (n *nativeTimers[K, N]) settle() (t *timerNode[K, N], e *table.Entry[K, timerPlace[N], uint16], hash uint32) {
	q := &n.queue
	for {
		if t = q.peek(); t == nil {
			if !q.fill() {
				return nil, nil, 0
			}
			// The misses of all their entries overlap here and not when they fire.
			kept := q.near[:0]
			for i := range q.near {
				if e, _ := n.entry(&q.near[i]); e != nil {
					kept = append(kept, q.near[i])
				}
			}
			gone := len(q.near) - len(kept)
			clear(q.near[len(kept):])
			q.near = kept
			q.count -= gone
			n.stale -= gone
			continue
		}
		if e, hash = n.entry(t); e != nil {
			return t, e, hash
		}
		q.pop()
		n.stale--
	}
}

func (n *nativeTimers[K, N]) next() (int64, bool, error) {
	t, _, _ := n.settle()
	if t == nil {
		return 0, false, nil
	}
	return int64(t.at ^ 1<<63), true, nil
}

func (n *nativeTimers[K, N]) pop(to int64) (t Timer[K, N], ok bool, err error) {
	node, e, hash := n.settle()
	if node == nil {
		return t, false, nil
	}
	if t = (Timer[K, N]{int64(node.at ^ 1<<63), Key[K]{node.key, node.hash, node.group}, node.ns}); t.At > to {
		return t, false, nil
	}
	n.tab.Remove(int(t.Key.group), hash, e)
	n.queue.pop()
	return t, true, nil
}

func (n *nativeTimers[K, N]) len() (int, error) { return n.tab.Len(), nil }

func (n *nativeTimers[K, N]) all(f func(Timer[K, N]) bool) error {
	n.native.all(func(e *table.Entry[K, timerPlace[N], uint16]) bool {
		return f(Timer[K, N]{e.NS.at, n.keys.Make(e.Key), e.NS.ns})
	})
	return nil
}

func (n *nativeTimers[K, N]) allAt(v View, f func(K, N, int64) bool) error {
	return n.eachIn(v, func(e *table.Entry[K, timerPlace[N], uint16], _ *table.View) bool {
		return f(e.Key, e.NS.ns, e.NS.at)
	})
}

// Write implements engine.State.
func (n *nativeTimers[K, N]) Write(kw *stream.KeyedWriter, index int, w *table.View, group int, _ int64) error {
	count := n.tab.Count(w, group)
	if count == 0 {
		return nil
	}
	if err := kw.State(index, count); err != nil {
		return err
	}
	var key, ns []byte
	return n.each(w, group, func(e *table.Entry[K, timerPlace[N], uint16]) error {
		key = n.keys.Serializer.Append(key[:0], e.Key)
		ns = n.nsSer.Append(ns[:0], e.NS.ns)
		return kw.Timer(e.NS.at, key, ns)
	})
}

// Loader implements engine.State.
func (n *nativeTimers[K, N]) Loader(from *snapshot.State) (engine.Loader, error) {
	if _, err := n.newLoader(from, n.keys.Serializer.Type(), n.nsSer.Type()); err != nil {
		return nil, err
	}
	return &timerLoader[K, N]{n}, nil
}

type timerLoader[K, N comparable] struct{ n *nativeTimers[K, N] }

func (l *timerLoader[K, N]) Load(r *snapshot.StateRow) error {
	n := l.n
	k, err := one(n.keys.Serializer, r.Key)
	if err != nil {
		return rowDamage(r, "key", err)
	}
	ns, err := one(n.nsSer, r.Namespace)
	if err != nil {
		return rowDamage(r, "namespace", err)
	}
	key := n.keys.Make(k)
	if err := checkGroup(r, int(key.group)); err != nil {
		return err
	}
	if !n.mine(&key) {
		return n.foreign(&key)
	}
	p := timerPlace[N]{ns, r.Timestamp}
	n.tab.Load(int(key.group), n.timerHash(key.hash, p), k, p, 0)
	return nil
}

// Loaded implements engine.State: the queue is made of what was loaded.
func (n *nativeTimers[K, N]) Loaded() {
	n.tab.Loaded()
	n.queue, n.stale = timerQueue[K, N]{}, 0
	for g := n.first; g < n.first+int(n.count); g++ {
		n.tab.Each(g, func(e *table.Entry[K, timerPlace[N], uint16]) bool {
			n.queue.push(&timerNode[K, N]{ns: e.NS.ns, at: uint64(e.NS.at) ^ 1<<63, key: e.Key, hash: n.keys.codec.hash32(e.Key), group: uint16(g), gen: e.Val})
			return true
		})
	}
}
