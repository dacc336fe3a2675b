package job

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// state is a typed handle of a keyed state in one subtask.
type state[K comparable] interface {
	// put adds what a row has, through the handle.
	put(k keyed.Key[K], r *snapshot.StateRow) error
	// copyTo reads every entry through the handle and puts it into the handle that to
	// gives for its key, which is of the same type.
	copyTo(to func(K) (keyed.Key[K], state[K])) error
}

// stored reads values as a state has them in a snapshot, with or without the time
// of the last access.
type stored[V any] struct {
	plain serializer.Serializer[V]
	ttl   bool
}

func (s stored[V]) read(b []byte) (v V, n int, err error) {
	if !s.ttl {
		return s.plain.Read(b)
	}
	e, n, err := serializer.WithTTL(s.plain).Read(b)
	return e.Value, n, err
}

// one reads a value that is all of b.
func (s stored[V]) one(b []byte) (V, error) {
	v, n, err := s.read(b)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d bytes are left of %d", len(b)-n, len(b))
	}
	return v, err
}

func whole[T any](s serializer.Serializer[T], b []byte) (T, error) { return stored[T]{plain: s}.one(b) }

// spec is what a state is declared with.
type spec[K, N comparable] struct {
	b    keyed.Backend[K]
	s    *snapshot.State
	ns   serializer.Serializer[N]
	opts []keyed.Option
}

func (d spec[K, N]) name() string { return d.s.Name }

// valueType is the type of a value, without the time of its last access.
func valueType(s *snapshot.State) *serializer.Type {
	t := s.Value
	if s.Kind == snapshot.StateList {
		t = s.Element
		if t == nil {
			t = s.Value.Elem()
		}
	}
	if t.Kind == serializer.KindTTL {
		t = t.Elem()
	}
	return t
}

// lifetime is longer than any test, so that nothing expires.
const lifetime = 10 * 24 * time.Hour

type valueState[K, N comparable, V any] struct {
	*keyed.ValueStateIn[K, N, V]
	ns serializer.Serializer[N]
	v  stored[V]
}

func newValue[V any, K, N comparable](d spec[K, N], v serializer.Serializer[V]) state[K] {
	return &valueState[K, N, V]{keyed.ValueIn(d.b, d.name(), d.ns, v, d.opts...), d.ns, stored[V]{v, d.s.TTL}}
}

func (s *valueState[K, N, V]) put(k keyed.Key[K], r *snapshot.StateRow) error {
	ns, err := whole(s.ns, r.Namespace)
	if err != nil {
		return err
	}
	v, err := s.v.one(r.Value)
	if err != nil {
		return err
	}
	return s.Set(k, ns, v)
}

func (s *valueState[K, N, V]) copyTo(to func(K) (keyed.Key[K], state[K])) error {
	for at := range s.All() {
		k, other := to(at.Key)
		v, ok, err := s.Get(k, at.Namespace)
		if err != nil || !ok {
			return missing(k.Value(), err)
		}
		if err := other.(*valueState[K, N, V]).Set(k, at.Namespace, v); err != nil {
			return err
		}
	}
	return nil
}

func missing(key any, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("key %v is iterated, and a look-up does not find it", key)
}

type listState[K, N comparable, V any] struct {
	*keyed.ListStateIn[K, N, V]
	ns serializer.Serializer[N]
	v  stored[V]
}

func newList[V any, K, N comparable](d spec[K, N], v serializer.Serializer[V]) state[K] {
	return &listState[K, N, V]{keyed.ListIn(d.b, d.name(), d.ns, v, d.opts...), d.ns, stored[V]{v, d.s.TTL}}
}

func (s *listState[K, N, V]) put(k keyed.Key[K], r *snapshot.StateRow) error {
	ns, err := whole(s.ns, r.Namespace)
	if err != nil {
		return err
	}
	var all []V
	for b := r.Value; len(b) > 0; {
		v, n, err := s.v.read(b)
		if err != nil {
			return err
		}
		if b = b[n:]; r.Form == snapshot.FormJoined && len(b) > 0 {
			b = b[1:]
		}
		all = append(all, v)
	}
	// The first by itself, so that both ways to add are used.
	if err := s.Add(k, ns, all[0]); err != nil {
		return err
	}
	return s.AddAll(k, ns, all[1:])
}

func (s *listState[K, N, V]) copyTo(to func(K) (keyed.Key[K], state[K])) error {
	for at := range s.All() {
		k, other := to(at.Key)
		list, err := s.Get(k, at.Namespace)
		if err != nil || len(list) == 0 {
			return missing(k.Value(), err)
		}
		if err := other.(*listState[K, N, V]).Update(k, at.Namespace, list); err != nil {
			return err
		}
	}
	return nil
}

type mapState[K, N, UK comparable, UV any] struct {
	*keyed.MapStateIn[K, N, UK, UV]
	ns  serializer.Serializer[N]
	key serializer.Serializer[UK]
	v   stored[UV]
}

func newMap[UK comparable, UV any, K, N comparable](d spec[K, N], key serializer.Serializer[UK], v serializer.Serializer[UV]) state[K] {
	return &mapState[K, N, UK, UV]{keyed.MapIn(d.b, d.name(), d.ns, key, v, d.opts...), d.ns, key, stored[UV]{v, d.s.TTL}}
}

func (s *mapState[K, N, UK, UV]) put(k keyed.Key[K], r *snapshot.StateRow) error {
	ns, err := whole(s.ns, r.Namespace)
	if err != nil {
		return err
	}
	uk, err := whole(s.key, r.UserKey)
	if err != nil {
		return err
	}
	var v UV // nil is null
	if !r.Null {
		if v, err = s.v.one(r.Value); err != nil {
			return err
		}
	}
	return s.Put(k, ns, uk, v)
}

func (s *mapState[K, N, UK, UV]) copyTo(to func(K) (keyed.Key[K], state[K])) error {
	for at, e := range s.All() {
		k, other := to(at.Key)
		v, ok, err := s.Get(k, at.Namespace, e.Key)
		if err != nil || !ok {
			return missing(fmt.Sprint(k.Value(), " ", e.Key), err)
		}
		if err := other.(*mapState[K, N, UK, UV]).Put(k, at.Namespace, e.Key, v); err != nil {
			return err
		}
	}
	return nil
}

type reducingState[K, N comparable, V any] struct {
	*keyed.ReducingStateIn[K, N, V]
	b  keyed.Backend[K]
	ns serializer.Serializer[N]
	v  stored[V]
}

func newReducing[V any, K, N comparable](d spec[K, N], reduce func(a, b V) V, v serializer.Serializer[V]) state[K] {
	return &reducingState[K, N, V]{keyed.ReducingIn(d.b, d.name(), reduce, d.ns, v, d.opts...), d.b, d.ns, stored[V]{v, d.s.TTL}}
}

func (s *reducingState[K, N, V]) put(k keyed.Key[K], r *snapshot.StateRow) error {
	ns, err := whole(s.ns, r.Namespace)
	if err != nil {
		return err
	}
	v, err := s.v.one(r.Value)
	if err != nil {
		return err
	}
	return s.Add(k, ns, v)
}

func (s *reducingState[K, N, V]) copyTo(to func(K) (keyed.Key[K], state[K])) error {
	view, err := s.b.View()
	if err != nil {
		return err
	}
	defer view.Close()
	var failed error
	err = s.AllAt(view, func(at keyed.At[K, N], _ V) bool {
		k, other := to(at.Key)
		v, ok, err := s.Get(k, at.Namespace)
		if err != nil || !ok {
			failed = missing(k.Value(), err)
		} else {
			failed = other.(*reducingState[K, N, V]).Add(k, at.Namespace, v)
		}
		return failed == nil
	})
	if err != nil {
		return err
	}
	return failed
}

// aggregatingState takes accumulators, so that it can be filled with any.
type aggregatingState[K comparable, V any] struct {
	*keyed.AggregatingState[K, V, V, V]
	b keyed.Backend[K]
	v stored[V]
}

type aggregator[V any] struct{ add func(a, b V) V }

func (aggregator[V]) New() (zero V)    { return zero }
func (a aggregator[V]) Add(acc, v V) V { return a.add(acc, v) }
func (aggregator[V]) Result(acc V) V   { return acc }
func (a aggregator[V]) Merge(x, y V) V { return a.add(x, y) }
func last[V any](_, b V) V             { return b }
func sum(a, b int64) int64             { return a + b }

func newAggregating[V any, K comparable](d spec[K, struct{}], add func(a, b V) V, v serializer.Serializer[V]) state[K] {
	return &aggregatingState[K, V]{keyed.Aggregating(d.b, d.name(), aggregator[V]{add}, v, d.opts...), d.b, stored[V]{v, d.s.TTL}}
}

func (s *aggregatingState[K, V]) put(k keyed.Key[K], r *snapshot.StateRow) error {
	v, err := s.v.one(r.Value)
	if err != nil {
		return err
	}
	return s.Add(k, v)
}

func (s *aggregatingState[K, V]) copyTo(to func(K) (keyed.Key[K], state[K])) error {
	view, err := s.b.View()
	if err != nil {
		return err
	}
	defer view.Close()
	var failed error
	err = s.AccumulatorsAt(view, func(key K, _ V) bool {
		k, other := to(key)
		v, ok, err := s.Get(k)
		if err != nil || !ok {
			failed = missing(k.Value(), err)
		} else {
			failed = other.(*aggregatingState[K, V]).Add(k, v)
		}
		return failed == nil
	})
	if err != nil {
		return err
	}
	return failed
}

// timers are one of the two queues of a service.
type timers[K, N comparable] struct {
	q  *keyed.TimerQueue[K, N]
	ns serializer.Serializer[N]
}

func (s *timers[K, N]) put(k keyed.Key[K], r *snapshot.StateRow) error {
	ns, err := whole(s.ns, r.Namespace)
	if err != nil {
		return err
	}
	_, err = s.q.Register(k, ns, r.Timestamp)
	return err
}

func (s *timers[K, N]) copyTo(to func(K) (keyed.Key[K], state[K])) error {
	for t := range s.q.All() {
		k, other := to(t.Key.Value())
		if added, err := other.(*timers[K, N]).q.Register(k, t.Namespace, t.At); err != nil || !added {
			return missing(k.Value(), err)
		}
	}
	return nil
}

const (
	eventTimers      = "_timer_state/event_"
	processingTimers = "_timer_state/processing_"
)

// declareTimers makes the two queues of the service that a timer state belongs to.
func declareTimers[K, N comparable](d spec[K, N], states map[string]state[K]) {
	service := strings.TrimPrefix(strings.TrimPrefix(d.s.Name, eventTimers), processingTimers)
	if states[eventTimers+service] != nil {
		return
	}
	t := keyed.Timers(d.b, service, d.ns)
	states[eventTimers+service] = &timers[K, N]{t.Event, d.ns}
	states[processingTimers+service] = &timers[K, N]{t.Processing, d.ns}
}
