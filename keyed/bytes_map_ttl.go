package keyed

import (
	"encoding/binary"

	"github.com/tidemark/tidemark/keyed/internal/table"
)

// Trim implements engine.BytesState.
func (n *bytesMap[K, N, UK, UV]) Trim(value []byte, at int64) ([]byte, bool) {
	return value, n.expired != nil && !n.ttl.KeepInSnapshots && n.oldRow(value, at)
}

func (n *bytesMap[K, N, UK, UV]) oldRow(value []byte, at int64) bool {
	return len(value) >= 9 && value[0] == 0 && n.ttl.expired(int64(binary.BigEndian.Uint64(value[1:])), at)
}

// Sweep implements engine.BytesState. Of a map in memory with something expired all that
// is known is looked at; rows are looked at one by one, since a map may have many.
func (n *bytesMap[K, N, UK, UV]) Sweep(count int) error {
	if n.expired == nil {
		return nil
	}
	now := n.b.Millis()
	return n.sweepBoth(count, func(e *table.CacheEntry[K, N, mapCell]) (old bool) {
		seen := 0
		n.maps.Each(e.Val.s, nil, func(_ UK, x userCell[UV]) bool {
			old = !x.dead && n.expired(&x.v, now)
			seen++
			return !old && seen < 4*table.SmallMap
		})
		return old
	}, func(value []byte) bool { return n.oldRow(value, now) }, func(k *Key[K], ns N, user []byte) (int, error) {
		var uks []UK
		if user != nil {
			uk, err := one(n.key.ser, user)
			if err != nil {
				return 0, n.rowError("map key", err)
			}
			uks = append(uks, uk)
		} else if e, _ := n.find(k, ns); e != nil {
			n.maps.Each(e.Val.s, nil, func(uk UK, x userCell[UV]) bool {
				if !x.dead && n.expired(&x.v, now) {
					uks = append(uks, uk)
				}
				return true
			})
		}
		gone := 0
		for _, uk := range uks {
			v, ok, err := n.get(*k, ns, uk)
			if err == nil && ok && n.expired(&v, now) {
				gone++
				err = n.remove(*k, ns, uk)
			}
			if err != nil {
				return gone, err
			}
		}
		return gone, nil
	})
}

func (n *bytesMap[K, N, UK, UV]) access() (int64, error) {
	if n.due() {
		if err := n.Sweep(n.perAccess * sweepEvery); err != nil {
			return 0, err
		}
	}
	return n.b.Millis(), nil
}

// expiringMap is a map state whose entries expire, over one of stamped values.
type expiringMap[K, N, UK comparable, UV any] struct {
	store *bytesMap[K, N, UK, wrapped[UV]]
}

func (n *expiringMap[K, N, UK, UV]) get(k Key[K], ns N, uk UK) (v UV, ok bool, err error) {
	s := n.store
	now, err := s.access()
	if err != nil {
		return v, false, err
	}
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

func (n *expiringMap[K, N, UK, UV]) put(k Key[K], ns N, uk UK, v UV) error {
	now, err := n.store.access()
	if err != nil {
		return err
	}
	return n.store.put(k, ns, uk, wrapped[UV]{Timestamp: now, Value: v})
}

func (n *expiringMap[K, N, UK, UV]) remove(k Key[K], ns N, uk UK) error {
	return n.store.remove(k, ns, uk)
}

func (n *expiringMap[K, N, UK, UV]) empty(k Key[K], ns N) (bool, error) {
	empty := true
	err := n.visit(k, ns, nil, func(UK, UV) bool {
		empty = false
		return false
	}, false)
	return empty, err
}

func (n *expiringMap[K, N, UK, UV]) clear(k Key[K], ns N) error { return n.store.clear(k, ns) }

func (n *expiringMap[K, N, UK, UV]) each(k Key[K], ns N, from *UK, f func(UK, UV) bool) error {
	return n.visit(k, ns, from, f, n.store.ttl.OnRead)
}

// visit gives the entries that have not expired, or may be returned once more, and
// removes the expired ones.
func (n *expiringMap[K, N, UK, UV]) visit(k Key[K], ns N, from *UK, f func(UK, UV) bool, touch bool) error {
	s := n.store
	now, err := s.access()
	if err != nil {
		return err
	}
	var failed error
	err = s.each(k, ns, from, func(uk UK, w wrapped[UV]) bool {
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

func (n *expiringMap[K, N, UK, UV]) all(f func(At[K, N], UK, UV) bool) error {
	return n.store.all(func(at At[K, N], uk UK, v wrapped[UV]) bool {
		return n.store.ttl.expired(v.Timestamp, n.store.b.Millis()) || f(at, uk, v.Value)
	})
}

func (n *expiringMap[K, N, UK, UV]) getAt(w View, k Key[K], ns N, uk UK) (v UV, ok bool, err error) {
	x, ok, err := n.store.getAt(w, k, ns, uk)
	if err != nil || !ok || n.store.ttl.expired(x.Timestamp, n.store.b.Millis()) {
		return v, false, err
	}
	return x.Value, true, nil
}

func (n *expiringMap[K, N, UK, UV]) eachAt(w View, k Key[K], ns N, f func(UK, UV) bool) error {
	now := n.store.b.Millis()
	return n.store.eachAt(w, k, ns, func(uk UK, v wrapped[UV]) bool {
		return n.store.ttl.expired(v.Timestamp, now) || f(uk, v.Value)
	})
}

func (n *expiringMap[K, N, UK, UV]) allAt(w View, f func(At[K, N], UK, UV) bool) error {
	now := n.store.b.Millis()
	return n.store.allAt(w, func(at At[K, N], uk UK, v wrapped[UV]) bool {
		return n.store.ttl.expired(v.Timestamp, now) || f(at, uk, v.Value)
	})
}
