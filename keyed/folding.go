package keyed

import "github.com/tidemark/tidemark/serializer"

// ReducingState is a value for each key into which values are reduced.
type ReducingState[K comparable, V any] struct {
	in ReducingStateIn[K, struct{}, V]
}

// ReducingStateIn is a ReducingState for each key and namespace.
type ReducingStateIn[K, N comparable, V any] struct {
	e      valueEngine[K, N, V]
	native *nativeValue[K, N, V] // e, if it is one
	reduce func(a, b V) V
}

// Reducing registers a reducing state. reduce gives a new value and leaves its
// arguments as they are.
func Reducing[K comparable, V any](b Backend[K], name string, reduce func(a, b V) V, s serializer.Serializer[V], opts ...Option) *ReducingState[K, V] {
	return &ReducingState[K, V]{*ReducingIn(b, name, reduce, serializer.VoidNS, s, opts...)}
}

// ReducingIn registers a reducing state with namespaces.
func ReducingIn[K, N comparable, V any](b Backend[K], name string, reduce func(a, b V) V, ns serializer.Serializer[N], s serializer.Serializer[V], opts ...Option) *ReducingStateIn[K, N, V] {
	e := attachValue(b, name, "REDUCING", ns, s, opts)
	n, _ := e.(*nativeValue[K, N, V])
	return &ReducingStateIn[K, N, V]{e, n, reduce}
}

// Get gives the value of a key; ok is false if there is none.
func (s *ReducingState[K, V]) Get(k Key[K]) (v V, ok bool, err error) {
	if n := s.in.native; n != nil {
		if e := n.tab.FindPlain(int(k.group), k.hash, k.key, struct{}{}); e != nil {
			return e.Val, true, nil
		}
	}
	return s.in.e.get(k, struct{}{})
}

// Add reduces a value into that of the key.
func (s *ReducingState[K, V]) Add(k Key[K], v V) error { return s.in.Add(k, struct{}{}, v) }

// Clear removes the value of a key.
func (s *ReducingState[K, V]) Clear(k Key[K]) error { return s.in.e.clear(k, struct{}{}) }

// GetAt is Get in a view, from any goroutine.
func (s *ReducingState[K, V]) GetAt(v View, k Key[K]) (V, bool, error) {
	return s.in.e.getAt(v, k, struct{}{})
}

// AllAt calls f for all keys of a view until it returns false, from any goroutine.
func (s *ReducingState[K, V]) AllAt(v View, f func(k K, v V) bool) error {
	return s.in.e.allAt(v, func(at At[K, struct{}], v V) bool { return f(at.Key, v) })
}

// Get gives the value of a key in a namespace; ok is false if there is none.
func (s *ReducingStateIn[K, N, V]) Get(k Key[K], ns N) (v V, ok bool, err error) {
	return s.e.get(k, ns)
}

// Add reduces a value into that of the key in the namespace.
func (s *ReducingStateIn[K, N, V]) Add(k Key[K], ns N, v V) error {
	if n := s.native; n != nil {
		if !n.mine(&k) {
			return n.foreign(&k)
		}
		if e := n.tab.Find(int(k.group), n.in(k.hash, ns), k.key, ns); e != nil {
			moves := n.tab.Moves(int(k.group))
			if v := s.reduce(e.Val, v); n.tab.Moves(int(k.group)) == moves && !n.tab.Shared() {
				e.Val = v
			} else { // it may have changed the state
				n.put(&k, ns, v)
			}
		} else {
			n.put(&k, ns, v)
		}
		return nil
	}
	old, ok, err := s.e.get(k, ns)
	if err != nil {
		return err
	}
	if ok {
		v = s.reduce(old, v)
	}
	return s.e.set(k, ns, v)
}

// Clear removes the value of a key in a namespace.
func (s *ReducingStateIn[K, N, V]) Clear(k Key[K], ns N) error { return s.e.clear(k, ns) }

// MergeNamespaces reduces the values of a key in some namespaces into that in
// another, as when sessions are merged. The target may be one of the sources.
func (s *ReducingStateIn[K, N, V]) MergeNamespaces(k Key[K], target N, sources []N) error {
	return mergeValues(s.e, k, target, sources, s.reduce)
}

// GetAt is Get in a view, from any goroutine.
func (s *ReducingStateIn[K, N, V]) GetAt(v View, k Key[K], ns N) (V, bool, error) {
	return s.e.getAt(v, k, ns)
}

// AllAt calls f for all entries of a view until it returns false, from any goroutine.
func (s *ReducingStateIn[K, N, V]) AllAt(v View, f func(at At[K, N], v V) bool) error {
	return s.e.allAt(v, f)
}

func mergeValues[K, N comparable, V any](e valueEngine[K, N, V], k Key[K], target N, sources []N, merge func(a, b V) V) error {
	var sum V
	found := false
	for _, ns := range sources {
		if ns == target {
			continue
		}
		v, ok, err := e.get(k, ns)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := e.clear(k, ns); err != nil {
			return err
		}
		if found {
			v = merge(sum, v)
		}
		sum, found = v, true
	}
	if !found {
		return nil
	}
	v, ok, err := e.get(k, target)
	if err != nil {
		return err
	}
	if ok {
		sum = merge(v, sum)
	}
	return e.set(k, target, sum)
}

// Aggregator folds values IN into an accumulator, which is what the state holds,
// and makes results of it: Flink's AggregateFunction. Its methods give new
// accumulators and leave their arguments as they are.
type Aggregator[IN, ACC, OUT any] interface {
	New() ACC
	Add(acc ACC, v IN) ACC
	Result(acc ACC) OUT
	Merge(a, b ACC) ACC
}

// AggregatingState is an accumulator for each key.
type AggregatingState[K comparable, IN, ACC, OUT any] struct {
	in AggregatingStateIn[K, struct{}, IN, ACC, OUT]
}

// AggregatingStateIn is an AggregatingState for each key and namespace.
type AggregatingStateIn[K, N comparable, IN, ACC, OUT any] struct {
	e      valueEngine[K, N, ACC]
	native *nativeValue[K, N, ACC] // e, if it is one
	agg    Aggregator[IN, ACC, OUT]
}

// Aggregating registers an aggregating state; s is the serializer of accumulators.
func Aggregating[K comparable, IN, ACC, OUT any](b Backend[K], name string, agg Aggregator[IN, ACC, OUT], s serializer.Serializer[ACC], opts ...Option) *AggregatingState[K, IN, ACC, OUT] {
	return &AggregatingState[K, IN, ACC, OUT]{*AggregatingIn(b, name, agg, serializer.VoidNS, s, opts...)}
}

// AggregatingIn registers an aggregating state with namespaces.
func AggregatingIn[K, N comparable, IN, ACC, OUT any](b Backend[K], name string, agg Aggregator[IN, ACC, OUT], ns serializer.Serializer[N], s serializer.Serializer[ACC], opts ...Option) *AggregatingStateIn[K, N, IN, ACC, OUT] {
	e := attachValue(b, name, "AGGREGATING", ns, s, opts)
	n, _ := e.(*nativeValue[K, N, ACC])
	return &AggregatingStateIn[K, N, IN, ACC, OUT]{e, n, agg}
}

// Get gives the result of a key; ok is false if nothing was added.
func (s *AggregatingState[K, IN, ACC, OUT]) Get(k Key[K]) (v OUT, ok bool, err error) {
	return s.in.Get(k, struct{}{})
}

// Add adds a value to the key's accumulator.
func (s *AggregatingState[K, IN, ACC, OUT]) Add(k Key[K], v IN) error {
	return s.in.Add(k, struct{}{}, v)
}

// Clear removes the key's accumulator.
func (s *AggregatingState[K, IN, ACC, OUT]) Clear(k Key[K]) error {
	return s.in.e.clear(k, struct{}{})
}

// GetAt is Get in a view, from any goroutine.
func (s *AggregatingState[K, IN, ACC, OUT]) GetAt(v View, k Key[K]) (OUT, bool, error) {
	return s.in.GetAt(v, k, struct{}{})
}

// AccumulatorsAt calls f for all keys of a view until it returns false, from any
// goroutine.
func (s *AggregatingState[K, IN, ACC, OUT]) AccumulatorsAt(v View, f func(k K, acc ACC) bool) error {
	return s.in.e.allAt(v, func(at At[K, struct{}], acc ACC) bool { return f(at.Key, acc) })
}

// Get gives the result of a key in a namespace; ok is false if nothing was added.
func (s *AggregatingStateIn[K, N, IN, ACC, OUT]) Get(k Key[K], ns N) (v OUT, ok bool, err error) {
	acc, ok, err := s.e.get(k, ns)
	if err != nil || !ok {
		return v, false, err
	}
	return s.agg.Result(acc), true, nil
}

// Add adds a value to the accumulator of a key in a namespace.
func (s *AggregatingStateIn[K, N, IN, ACC, OUT]) Add(k Key[K], ns N, v IN) error {
	if n := s.native; n != nil {
		if !n.mine(&k) {
			return n.foreign(&k)
		}
		if e := n.tab.Find(int(k.group), n.in(k.hash, ns), k.key, ns); e != nil {
			moves := n.tab.Moves(int(k.group))
			if v := s.agg.Add(e.Val, v); n.tab.Moves(int(k.group)) == moves && !n.tab.Shared() {
				e.Val = v
			} else { // it may have changed the state
				n.put(&k, ns, v)
			}
		} else {
			n.put(&k, ns, s.agg.Add(s.agg.New(), v))
		}
		return nil
	}
	acc, ok, err := s.e.get(k, ns)
	if err != nil {
		return err
	}
	if !ok {
		acc = s.agg.New()
	}
	return s.e.set(k, ns, s.agg.Add(acc, v))
}

// Clear removes the accumulator of a key in a namespace.
func (s *AggregatingStateIn[K, N, IN, ACC, OUT]) Clear(k Key[K], ns N) error { return s.e.clear(k, ns) }

// MergeNamespaces merges the accumulators of a key in some namespaces into that in
// another, as when sessions are merged. The target may be one of the sources.
func (s *AggregatingStateIn[K, N, IN, ACC, OUT]) MergeNamespaces(k Key[K], target N, sources []N) error {
	return mergeValues(s.e, k, target, sources, s.agg.Merge)
}

// GetAt is Get in a view, from any goroutine.
func (s *AggregatingStateIn[K, N, IN, ACC, OUT]) GetAt(v View, k Key[K], ns N) (out OUT, ok bool, err error) {
	acc, ok, err := s.e.getAt(v, k, ns)
	if err != nil || !ok {
		return out, false, err
	}
	return s.agg.Result(acc), true, nil
}
