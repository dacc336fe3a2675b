package keyed

import (
	"encoding/binary"
	"slices"

	"github.com/tidemark/tidemark/keyed/internal/table"
)

// expiringValue is a value state whose values expire, over a value state of stamped ones.
type expiringValue[K, N comparable, V any] struct {
	store *bytesValue[K, N, wrapped[V]]
}

func (n *expiringValue[K, N, V]) get(k Key[K], ns N) (v V, ok bool, err error) {
	s := n.store
	now, err := s.access()
	if err != nil {
		return v, false, err
	}
	w, ok, err := s.get(k, ns)
	if err != nil || !ok {
		return v, false, err
	}
	if s.ttl.expired(w.Timestamp, now) {
		if err := s.clear(k, ns); err != nil || !s.ttl.ReturnExpired {
			return v, false, err
		}
		return w.Value, true, nil
	}
	if s.ttl.OnRead && w.Timestamp != now {
		err = s.set(k, ns, wrapped[V]{Timestamp: now, Value: w.Value})
	}
	return w.Value, true, err
}

func (n *expiringValue[K, N, V]) set(k Key[K], ns N, v V) error {
	now, err := n.store.access()
	if err != nil {
		return err
	}
	return n.store.set(k, ns, wrapped[V]{Timestamp: now, Value: v})
}

func (n *expiringValue[K, N, V]) clear(k Key[K], ns N) error { return n.store.clear(k, ns) }

func (n *expiringValue[K, N, V]) getMany(keys []Key[K], ns N, out []V, found []bool) (err error) {
	wrap := make([]wrapped[V], len(keys)) // reads ahead, in the order of the rows
	if err := n.store.getMany(keys, ns, wrap, found); err != nil {
		return err
	}
	for i := range keys {
		if out[i], found[i], err = n.get(keys[i], ns); err != nil {
			return err
		}
	}
	return nil
}

func (n *expiringValue[K, N, V]) setMany(keys []Key[K], ns N, v []V) error {
	for i := range keys {
		if err := n.set(keys[i], ns, v[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *expiringValue[K, N, V]) all(f func(At[K, N], V) bool) error {
	return n.store.all(func(at At[K, N], v wrapped[V]) bool {
		return n.store.ttl.expired(v.Timestamp, n.store.b.Millis()) || f(at, v.Value)
	})
}

func (n *expiringValue[K, N, V]) getAt(w View, k Key[K], ns N) (v V, ok bool, err error) {
	x, ok, err := n.store.getAt(w, k, ns)
	if err != nil || !ok || n.store.ttl.expired(x.Timestamp, n.store.b.Millis()) {
		return v, false, err
	}
	return x.Value, true, nil
}

func (n *expiringValue[K, N, V]) allAt(w View, f func(At[K, N], V) bool) error {
	now := n.store.b.Millis()
	return n.store.allAt(w, func(at At[K, N], v wrapped[V]) bool {
		return n.store.ttl.expired(v.Timestamp, now) || f(at, v.Value)
	})
}

// Sweep implements engine.BytesState.
func (n *bytesValue[K, N, V]) Sweep(count int) error {
	if n.expired == nil {
		return nil
	}
	now := n.b.Millis()
	return n.sweepBoth(count, func(e *table.CacheEntry[K, N, cell[V]]) bool {
		return !e.Val.dead && n.expired(&e.Val.val, now)
	}, func(value []byte) bool {
		return n.oldRow(value, now)
	}, func(k *Key[K], ns N, _ []byte) (int, error) {
		v, ok, err := n.get(*k, ns)
		if err != nil || !ok || !n.expired(&v, now) {
			return 0, err
		}
		return 1, n.clear(*k, ns)
	})
}

// Trim implements engine.BytesState.
func (n *bytesValue[K, N, V]) Trim(value []byte, at int64) ([]byte, bool) {
	return value, n.expired != nil && !n.ttl.KeepInSnapshots && n.oldRow(value, at)
}

func (n *bytesValue[K, N, V]) oldRow(value []byte, at int64) bool {
	return len(value) >= 8 && n.ttl.expired(int64(binary.BigEndian.Uint64(value)), at)
}

// access is called first by every operation of a state with TTL. It gives the time.
func (n *cached[K, N, S]) due() bool {
	if n.perAccess <= 0 {
		return false
	}
	if n.since++; n.since < sweepEvery {
		return false
	}
	n.since = 0
	return true
}

// sweepEvery is after how many accesses as many entries and rows are looked at.
const sweepEvery = 256

// sweepGroups is how many key groups a clean-up looks into at most.
const sweepGroups = 8

func (n *bytesValue[K, N, V]) access() (int64, error) {
	if n.due() {
		if err := n.Sweep(n.perAccess * sweepEvery); err != nil {
			return 0, err
		}
	}
	return n.b.Millis(), nil
}

// sweepPlace is where a clean-up goes on.
type sweepPlace struct {
	group int
	next  uint32
	row   []byte // the last row that was looked at
}

// sweepBoth looks at about count entries and at as many rows. What may have expired is
// looked at again and removed by remove, which belongs to the owner as all of it does;
// it gives the number of values it removed. user is nil for an entry, else what follows
// the namespace in the key of the row.
func (n *cached[K, N, S]) sweepBoth(count int, old func(e *table.CacheEntry[K, N, S]) bool, oldRow func(value []byte) bool, remove func(k *Key[K], ns N, user []byte) (int, error)) error {
	type place struct {
		k    Key[K]
		ns   N
		user []byte
	}
	var found []place
	p := &n.scan
	for groups, left := 0, count; left > 0 && groups < sweepGroups; left-- {
		e, next := n.tab.Next(n.first+p.group, p.next)
		p.next = next
		if e == nil {
			p.next = 0
			if p.group++; p.group == int(n.count) {
				p.group = 0
			}
			groups++
			left++
			continue
		}
		if old(e) {
			found = append(found, place{k: n.keys.Make(e.Key), ns: e.NS})
		}
	}
	left := count
	if err := n.sweepRows(&left, oldRow, func(k K, ns N, user []byte) {
		found = append(found, place{n.keys.Make(k), ns, append([]byte{}, user...)})
	}); err != nil {
		return err
	}
	expired := 0
	for i := range found {
		c, err := remove(&found[i].k, found[i].ns, found[i].user)
		if err != nil {
			return err
		}
		expired += c
	}
	if expired > 0 {
		n.b.Expired(int64(expired))
	}
	return nil
}

// sweepRows looks at the next rows of the state, in its key groups one after the other.
func (n *cached[K, N, S]) sweepRows(left *int, old func(value []byte) bool, found func(k K, ns N, user []byte)) error {
	p := &n.scan
	for range sweepGroups {
		group := n.first
		if p.row != nil {
			group = int(binary.BigEndian.Uint16(p.row))
		}
		prefix := n.groupPrefix(group)
		from := prefix
		if len(p.row) > 4 {
			from = append(slices.Clone(p.row), 0)
		}
		var failed error
		err := n.b.Rows.Scan(from, after(prefix), func(key, value []byte) bool {
			p.row = append(p.row[:0], key...)
			if old(value) {
				k, ns, user, err := n.readRow(key)
				if failed = err; err != nil {
					return false
				}
				found(k, ns, user)
			}
			*left--
			return *left > 0
		})
		if err != nil {
			return err
		}
		if failed != nil || *left <= 0 {
			return failed
		}
		if group++; group == n.first+int(n.count) {
			group = n.first
		}
		p.row = n.groupPrefix(group)
	}
	return nil
}
