package keyed

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
)

// timerCell is an entry of a queue: a timer, or the knowledge that there is none.
type timerCell struct {
	gen   uint32
	dead  bool
	fresh bool // the store had none when its generation began
}

// timerHorizon is up to where a key group's timers are all in memory.
type timerHorizon struct {
	whole bool  // to the end
	at    int64 // else to before this time,
	row   []byte
}

// bytesTimers is a queue over rows that are ordered by time. The earliest timers of each
// key group are in memory, up to a horizon; behind it only those that were touched.
type bytesTimers[K, N comparable] struct {
	cached[K, timerPlace[N], timerCell]
	nsSer    serializer.Serializer[N]
	nsCodec  codec[N]
	queues   []timerHeap // a node for each timer in memory, and some stale ones
	tree     tournament
	horizons []timerHorizon
	live     int  // timers
	counted  bool // live is right
}

const (
	timerBatch = 512 // timers read at a time
	timerKept  = 128 // of a key group when memory is short
)

func newBytesTimers[K, N comparable](d *Descriptor[K], ns serializer.Serializer[N], b *engine.BytesEnv, id uint16) *bytesTimers[K, N] {
	n := &bytesTimers[K, N]{nsSer: ns, nsCodec: codecOf(ns), counted: true}
	n.setUp(d, timerPlaces[N]{ns}, b, id, options{})
	n.toRow, n.fromRow = n.appendTimer, n.readTimer
	n.hash = func(k K, p timerPlace[N]) uint32 { return n.timerHash(n.keys.codec.hash32(k), p) }
	n.lengths = false
	var equal table.Equal[K, timerPlace[N]]
	if key := n.keys.codec; !key.plain || !n.nsCodec.plain && !n.nsCodec.empty {
		equal = func(k1 K, p1 timerPlace[N], k2 K, p2 timerPlace[N]) bool {
			return p1.at == p2.at && key.equal(k1, k2) && n.nsCodec.equal(p1.ns, p2.ns)
		}
	}
	n.tab = table.NewCache[K, timerPlace[N], timerCell](b.Views, b.First, b.Count, equal, n.hash)
	n.queues, n.tree = make([]timerHeap, b.Count), newTournament(b.Count)
	n.horizons = make([]timerHorizon, b.Count)
	for g := range n.horizons {
		n.horizons[g].whole = true
	}
	return n
}

func (n *bytesTimers[K, N]) timerHash(h uint32, p timerPlace[N]) uint32 {
	x := (uint64(h)<<32 ^ uint64(p.at)) * 0x9e3779b97f4a7c15
	if !n.nsCodec.empty {
		x = (x ^ x>>32 ^ uint64(n.nsCodec.hash32(p.ns))<<16) * 0xbf58476d1ce4e5b9
	}
	return uint32(x >> 32)
}

func (n *bytesTimers[K, N]) appendTimer(dst []byte, group int, k K, p timerPlace[N]) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(group))
	dst = binary.BigEndian.AppendUint16(dst, n.id)
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.at)^1<<63)
	return n.nsSer.Append(n.keys.Serializer.Append(dst, k), p.ns)
}

func (n *bytesTimers[K, N]) readTimer(row []byte) (k K, p timerPlace[N], user []byte, err error) {
	if len(row) < 12 {
		return k, p, nil, n.rowError("timer", serializer.ErrShort)
	}
	p.at = int64(binary.BigEndian.Uint64(row[4:]) ^ 1<<63)
	k, used, err := n.keys.Serializer.Read(row[12:])
	if err != nil {
		return k, p, nil, n.rowError("timer's key", err)
	}
	if p.ns, err = one(n.nsSer, row[12+used:]); err != nil {
		return k, p, nil, n.rowError("timer's namespace", err)
	}
	return k, p, nil, nil
}

// known tells whether a timer that is not in memory is nowhere.
func (n *bytesTimers[K, N]) known(g int, at int64) bool {
	h := &n.horizons[g]
	return h.whole || at < h.at
}

// times tells the tree of a key group's first time, or of the horizon behind which it may be.
func (n *bytesTimers[K, N]) times(g int) {
	at := n.queues[g].head()
	if h := &n.horizons[g]; !h.whole {
		at = min(at, h.at)
	}
	n.tree.set(g, at)
}

// look finds a timer, in its row if need be.
func (n *bytesTimers[K, N]) look(k *Key[K], p timerPlace[N]) (e *table.CacheEntry[K, timerPlace[N], timerCell], r table.Ref, h uint32, stored bool, err error) {
	if !n.mine(k) {
		return nil, r, 0, false, n.foreign(k)
	}
	if err := n.b.Room(); err != nil {
		return nil, r, 0, false, err
	}
	h = n.timerHash(k.hash, p)
	if e, r = n.tab.Find(int(k.group), h, k.key, p); e != nil {
		return e, r, h, false, nil
	}
	if !n.known(int(k.group)-n.first, p.at) {
		n.row = n.appendTimer(n.row[:0], int(k.group), k.key, p)
		n.val, stored, err = n.b.Rows.Get(n.val[:0], n.row)
	}
	return nil, r, h, stored, err
}

func (n *bytesTimers[K, N]) register(k Key[K], ns N, at int64) (bool, error) {
	p := timerPlace[N]{at: at, ns: ns}
	e, r, h, stored, err := n.look(&k, p)
	if err != nil || stored || e != nil && !e.Val.dead {
		return false, err
	}
	c := timerCell{gen: n.b.Gen, fresh: true}
	if e == nil {
		r = n.insert(int(k.group), h, k.key, p, c, 24)
		n.changed(r, 24)
	} else {
		if e.Val.gen == c.gen {
			c.fresh = e.Val.fresh
		} else {
			c.fresh = n.stored(e.Val.gen)
			n.changed(r, 24)
		}
		n.tab.Set(e, r, c)
	}
	n.live++
	g := int(k.group) - n.first
	if n.queues[g].push(at, r.Number()) {
		n.times(g)
	}
	return true, nil
}

func (n *bytesTimers[K, N]) delete(k Key[K], ns N, at int64) (bool, error) {
	p := timerPlace[N]{at: at, ns: ns}
	e, r, h, stored, err := n.look(&k, p)
	if err != nil || e == nil && !stored || e != nil && e.Val.dead {
		return false, err
	}
	n.live--
	if e == nil {
		n.changed(n.insert(int(k.group), h, k.key, p, timerCell{gen: n.b.Gen, dead: true}, 24), 24)
		return true, nil
	}
	n.bury(h, e, r)
	g := int(k.group) - n.first
	q := &n.queues[g]
	if q.stale++; q.stale > 64 && q.stale > len(q.nodes)/2 {
		n.sieve(g, func(dueNode) bool { return true })
	}
	return true, nil
}

// bury removes a timer in memory: without a trace if the store never had it.
func (n *bytesTimers[K, N]) bury(h uint32, e *table.CacheEntry[K, timerPlace[N], timerCell], r table.Ref) {
	switch c := e.Val; {
	case c.gen == n.b.Gen && c.fresh:
		n.b.Used -= n.weight(&e.Key, &e.NS) + 24
		n.tab.Remove(h, e, r)
	default:
		if c.gen != n.b.Gen {
			n.changed(r, 24)
		}
		n.tab.Set(e, r, timerCell{gen: n.b.Gen, dead: true})
	}
}

// sieve keeps the nodes of a key group's heap that stand for a timer and that keep wants,
// each timer's once.
func (n *bytesTimers[K, N]) sieve(g int, keep func(dueNode) bool) {
	q := &n.queues[g]
	q.nodes = q.filter(func(t dueNode) bool { return n.alive(g, t) && keep(t) })
	n.times(g)
}

// alive tells whether a node of a heap still stands for a timer.
func (n *bytesTimers[K, N]) alive(g int, t dueNode) bool {
	e := n.tab.At(table.RefTo(g, t.num))
	return e.Live() && !e.Val.dead && e.NS.at == t.at
}

// settle brings the first timer of all to the front of its heap.
func (n *bytesTimers[K, N]) settle() (g int, t dueNode, ok bool, err error) {
	for {
		g = n.tree.winner()
		q, h := &n.queues[g], &n.horizons[g]
		if len(q.nodes) == 0 && h.whole {
			// Timers at the end of time look like empty queues to the tree.
			for g = range n.queues {
				if q, h = &n.queues[g], &n.horizons[g]; len(q.nodes) > 0 || !h.whole {
					break
				}
			}
			if len(q.nodes) == 0 && h.whole {
				return 0, t, false, nil
			}
		}
		if !h.whole && q.head() > h.at || len(q.nodes) == 0 {
			if err := n.refill(g); err != nil {
				return 0, t, false, err
			}
			continue
		}
		t = q.nodes[0]
		if n.alive(g, t) {
			return g, t, true, nil
		}
		q.pop()
		q.stale--
		n.times(g)
	}
}

// refill reads the next timers of a key group.
func (n *bytesTimers[K, N]) refill(g int) error {
	if err := n.b.Room(); err != nil {
		return err
	}
	h := &n.horizons[g]
	if h.whole {
		return nil
	}
	var failed error
	count := 0
	end := after(n.groupPrefix(n.first + g))
	err := n.b.Rows.Scan(h.row, end, func(row, _ []byte) bool {
		if count++; count > timerBatch {
			return false
		}
		k, p, _, err := n.readTimer(row)
		if err != nil {
			failed = err
			return false
		}
		h.at = p.at
		h.row = append(append(h.row[:0], row...), 0)
		hash := n.hash(k, p)
		if e, _ := n.tab.Find(n.first+g, hash, k, p); e == nil {
			r := n.insert(n.first+g, hash, k, p, timerCell{}, 24)
			n.queues[g].push(p.at, r.Number())
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if err == nil && count <= timerBatch {
		h.whole, h.row = true, nil
	}
	n.times(g)
	return err
}

func (n *bytesTimers[K, N]) next() (int64, bool, error) {
	_, t, ok, err := n.settle()
	return t.at, ok, err
}

func (n *bytesTimers[K, N]) pop(to int64) (t Timer[K, N], ok bool, err error) {
	if err := n.b.Room(); err != nil {
		return t, false, err
	}
	g, node, ok, err := n.settle()
	if err != nil || !ok || node.at > to {
		return t, false, err
	}
	r := table.RefTo(g, node.num)
	e := n.tab.At(r)
	t = Timer[K, N]{e.NS.at, Key[K]{e.Key, n.keys.codec.hash32(e.Key), uint16(g + n.first)}, e.NS.ns}
	n.bury(n.timerHash(t.Key.hash, e.NS), e, r)
	n.live--
	n.queues[g].pop()
	n.times(g)
	return t, true, nil
}

func (n *bytesTimers[K, N]) len() (int, error) {
	if !n.counted {
		count := 0
		if err := n.all(func(Timer[K, N]) bool { count++; return true }); err != nil {
			return 0, err
		}
		n.live, n.counted = count, true
	}
	return n.live, nil
}

func (n *bytesTimers[K, N]) all(f func(Timer[K, N]) bool) error {
	return n.held(func(v View) error {
		return n.allAt(v, func(k K, ns N, at int64) bool { return f(Timer[K, N]{at, n.keys.Make(k), ns}) })
	})
}

func (n *bytesTimers[K, N]) allAt(v View, f func(K, N, int64) bool) error {
	return n.eachRow(v, func(_ int, e *table.CacheEntry[K, timerPlace[N], timerCell]) bool {
		return e.Val.dead || f(e.Key, e.NS.ns, e.NS.at)
	}, func(k K, p timerPlace[N], _, _ []byte) (bool, error) {
		return f(k, p.ns, p.at), nil
	})
}

// Freeze implements engine.BytesState.
func (n *bytesTimers[K, N]) Freeze() engine.Changes {
	gen := n.b.Gen
	return n.freeze(func(e *table.CacheEntry[K, timerPlace[N], timerCell], row, value []byte, put func(engine.Op, []byte, []byte)) ([]byte, []byte) {
		switch {
		case e.Val.gen != gen:
		case e.Val.dead:
			put(engine.OpDelete, row, nil)
		default:
			put(engine.OpSet, row, nil)
		}
		return row, value
	})
}

// Evict implements engine.BytesState: first what is behind the horizon, and what is known
// to be nowhere; then horizons come nearer.
func (n *bytesTimers[K, N]) Evict(want int64) int64 {
	var freed int64
	groups := len(n.queues)
	for range groups {
		if freed >= want {
			break
		}
		g := n.handGroup - n.first
		if n.handGroup++; n.handGroup == n.first+groups {
			n.handGroup = n.first
		}
		freed += n.evictGroup(g)
	}
	return freed
}

func (n *bytesTimers[K, N]) evictGroup(g int) (freed int64) {
	q, h := &n.queues[g], &n.horizons[g]
	var ats []int64
	for _, t := range q.nodes {
		if n.alive(g, t) {
			ats = append(ats, t.at)
		}
	}
	to := int64(math.MaxInt64) // timers after it go
	if len(ats) > 2*timerKept {
		slices.Sort(ats)
		to = ats[timerKept]
	}
	if !h.whole && h.at <= to {
		to = h.at
	}
	if to < math.MaxInt64 && (h.whole || to < h.at) {
		h.whole, h.at = false, to+1
		h.row = binary.BigEndian.AppendUint64(n.groupPrefix(n.first+g), uint64(to+1)^1<<63)
	}
	for next := uint32(0); ; {
		var e *table.CacheEntry[K, timerPlace[N], timerCell]
		if e, next = n.tab.Next(n.first+g, next); e == nil {
			break
		}
		if !n.stored(e.Val.gen) || !e.Val.dead && (h.whole || e.NS.at <= to) {
			continue
		}
		freed += n.weight(&e.Key, &e.NS) + 24
		n.tab.Remove(n.hash(e.Key, e.NS), e, n.tab.RefOf(n.first+g, next))
	}
	n.b.Used -= freed
	if freed > 0 {
		n.sieve(g, func(dueNode) bool { return true })
	}
	return freed
}

// Convert implements engine.BytesState.
func (n *bytesTimers[K, N]) Convert(old *engine.OldTypes) (serializer.Convert, error) {
	if err := keeps("key", old.Key, n.keys.Serializer.Type()); err != nil {
		return nil, err
	}
	return nil, keeps("namespace", old.Namespace, n.nsSer.Type())
}

// Reset implements engine.BytesState: nothing is known of the rows any more.
func (n *bytesTimers[K, N]) Reset() {
	n.counted = false
	for g := range n.horizons {
		n.horizons[g] = timerHorizon{at: math.MinInt64, row: n.groupPrefix(n.first + g)}
		n.times(g)
	}
}

// Sweep implements engine.BytesState: timers do not expire.
func (n *bytesTimers[K, N]) Sweep(int) error { return nil }

// Trim implements engine.BytesState.
func (n *bytesTimers[K, N]) Trim(value []byte, _ int64) ([]byte, bool) { return value, false }
