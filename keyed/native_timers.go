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
	at int64
	ns N
}

func attachTimers[K, N comparable](b Backend[K], name string, ns serializer.Serializer[N]) (e timerEngine[K, N]) {
	d := &Descriptor[K]{}
	d.native = func(env *engine.Env) engine.State {
		d.Meta = serializer.NewTimerState(name, serializer.NewTimer(d.Keys.Serializer.Type(), ns.Type()))
		n := &nativeTimers[K, N]{}
		n.init(d, timerPlaces[N]{ns}, env, options{})
		n.ns.plain = plainTimer[N](ns)
		if key := n.keys.codec; key.plain && n.ns.plain {
			n.tab = table.New[K, timerPlace[N], struct{}](env.Views, env.First, env.Count, nil, n.hashOf)
		}
		n.nsSer, n.nsCodec = ns, codecOf(ns)
		n.queues = make([]timerHeap, env.Count)
		n.tree = newTournament(env.Count)
		e = n
		return n
	}
	d.Meta.Name = name
	if err := b.Attach(d); err != nil {
		return failedTimers[K, N]{err}
	}
	return e
}

func plainTimer[N comparable](ns serializer.Serializer[N]) bool {
	c := codecOf(ns)
	return c.plain || c.empty
}

// timerPlaces serializes the place of a timer where == does not do.
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

// nativeTimers is a queue of timers: a table without values, which is the set and
// what snapshots read, and for each key group a heap of times, which is derived.
//
// Deleting leaves the timer's place in the heap, to be passed over when it is
// reached, or removed with others when they are half of a heap.
type nativeTimers[K, N comparable] struct {
	native[K, timerPlace[N], struct{}]
	nsSer   serializer.Serializer[N]
	nsCodec codec[N]
	queues  []timerHeap
	tree    tournament
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
	p := timerPlace[N]{at, ns}
	h := n.timerHash(k.hash, p)
	if e, _ := n.tab.Find(int(k.group), h, k.key, p); e != nil {
		return false, nil
	}
	r := n.tab.Insert(int(k.group), h, k.key, p, struct{}{})
	g := int(k.group) - n.first
	if q := &n.queues[g]; q.push(at, r.Number()) {
		n.tree.set(g, at)
	}
	return true, nil
}

func (n *nativeTimers[K, N]) delete(k Key[K], ns N, at int64) (bool, error) {
	if !n.mine(&k) {
		return false, n.foreign(&k)
	}
	p := timerPlace[N]{at, ns}
	h := n.timerHash(k.hash, p)
	e, r := n.tab.Find(int(k.group), h, k.key, p)
	if e == nil {
		return false, nil
	}
	n.tab.Remove(h, e, r)
	g := int(k.group) - n.first
	q := &n.queues[g]
	if q.stale++; q.stale > 64 && q.stale > len(q.nodes)/2 {
		q.nodes = q.filter(func(t timerNode) bool { return n.alive(g, t) })
		n.tree.set(g, q.head())
	}
	return true, nil
}

// alive tells whether a node of a heap still stands for a timer.
func (n *nativeTimers[K, N]) alive(g int, t timerNode) bool {
	e := n.tab.At(n.tab.RefOf(g+n.first, t.num+1))
	return e.Live() && e.NS.at == t.at
}

// settle removes what is stale from the front.
func (n *nativeTimers[K, N]) settle() (g int, t timerNode, ok bool) {
	for {
		g = n.tree.winner()
		q := &n.queues[g]
		if len(q.nodes) == 0 {
			// Timers at the end of time look like empty queues to the tree.
			for g = range n.queues {
				if q = &n.queues[g]; len(q.nodes) > 0 {
					break
				}
			}
			if len(q.nodes) == 0 {
				return 0, t, false
			}
		}
		t = q.nodes[0]
		if n.alive(g, t) {
			return g, t, true
		}
		q.pop()
		q.stale--
		n.tree.set(g, q.head())
	}
}

func (n *nativeTimers[K, N]) next() (int64, bool, error) {
	_, t, ok := n.settle()
	return t.at, ok, nil
}

func (n *nativeTimers[K, N]) pop(to int64) (t Timer[K, N], ok bool, err error) {
	g, node, ok := n.settle()
	if !ok || node.at > to {
		return t, false, nil
	}
	r := n.tab.RefOf(g+n.first, node.num+1)
	e := n.tab.At(r)
	t = Timer[K, N]{e.NS.at, Key[K]{e.Key, n.keys.codec.hash32(e.Key), uint16(g + n.first)}, e.NS.ns}
	n.tab.Remove(n.timerHash(t.Key.hash, e.NS), e, r)
	q := &n.queues[g]
	q.pop()
	n.tree.set(g, q.head())
	return t, true, nil
}

func (n *nativeTimers[K, N]) len() (int, error) { return n.tab.Len(), nil }

func (n *nativeTimers[K, N]) all(f func(Timer[K, N]) bool) error {
	n.native.all(func(e *table.Entry[K, timerPlace[N], struct{}]) bool {
		return f(Timer[K, N]{e.NS.at, n.keys.Make(e.Key), e.NS.ns})
	})
	return nil
}

func (n *nativeTimers[K, N]) allAt(v View, f func(K, N, int64) bool) error {
	return n.eachIn(v, func(e *table.Entry[K, timerPlace[N], struct{}], _ *table.View) bool {
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
	return n.each(w, group, func(e *table.Entry[K, timerPlace[N], struct{}]) error {
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
	p := timerPlace[N]{r.Timestamp, ns}
	n.tab.Load(int(key.group), n.timerHash(key.hash, p), k, p, struct{}{})
	return nil
}

// Loaded implements engine.State: the heaps are made of what was loaded.
func (n *nativeTimers[K, N]) Loaded() {
	n.tab.Loaded()
	for g := range n.queues {
		q := &n.queues[g]
		q.nodes, q.stale = q.nodes[:0], 0
		for next := uint32(0); ; {
			var e *table.Entry[K, timerPlace[N], struct{}]
			if e, next = n.tab.Next(g+n.first, next); e == nil {
				break
			}
			q.nodes = append(q.nodes, timerNode{e.NS.at, next - 1})
		}
		q.heapify()
		n.tree.set(g, q.head())
	}
}
