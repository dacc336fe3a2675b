package job

import (
	"bytes"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// The classes of flink-verify as types of Go.
type (
	address struct {
		_      struct{} `flink:"pojo=org.tidemark.verify.Address"`
		Street *string
		Zip    int32
	}
	person struct {
		_       struct{} `flink:"pojo=org.tidemark.verify.Person"`
		Name    *string
		Age     int32
		Balance *int64
		Address *address
	}
	userKey struct {
		_      struct{} `flink:"pojo=org.tidemark.verify.UserKey"`
		Region int32
		ID     string `flink:"id"`
	}
	// anything is a value that is known at run time only.
	anything = serializer.Value
)

// sameType tells whether a serializer of Go's is that of a type: their snapshots are
// the same.
func sameType[T any](s serializer.Serializer[T], t *serializer.Type) bool {
	a, err := s.Type().AppendSnapshot(nil)
	if err != nil {
		return false
	}
	b, err := t.AppendSnapshot(nil)
	return err == nil && bytes.Equal(a, b)
}

// openKeyed makes the keyed part of an operator for the type of its keys: a type of
// Go for a few, else values that are known at run time only. Each type of keys with
// each type of values is compiled anew, so that there are not many.
func openKeyed(o *operator, key *serializer.Type) (keyedOperator, error) {
	keys := serializer.MustOf[userKey]()
	switch {
	case sameType(serializer.String, key):
		return newKeyed(o, serializer.String, textStates)
	case sameType(serializer.Int64, key):
		return newKeyed(o, serializer.Int64, numberStates)
	case sameType(keys, key):
		return newKeyed(o, keys, plainStates[userKey])
	}
	return newKeyed(o, serializer.Dynamic(key), anyStates)
}

// declare makes the handle of a state; nil if it knows no type of Go for it.
type declare[K comparable] func(b keyed.Backend[K], s *snapshot.State, opts []keyed.Option) state[K]

// textStates are states of the types of Go that a program would use, and windows.
func textStates(b keyed.Backend[string], s *snapshot.State, opts []keyed.Option) state[string] {
	switch s.Namespace.Kind {
	case serializer.KindVoidNamespace:
	case serializer.KindTimeWindow:
		return statesIn(spec[string, serializer.Window]{b, s, serializer.TimeWindows, opts})
	default:
		return nil
	}
	d := spec[string, struct{}]{b, s, serializer.VoidNS, opts}
	v := valueType(s)
	people, texts := serializer.MustOf[person](), serializer.MustOf[*string]()
	switch {
	case s.Kind == snapshot.StateValue && sameType(serializer.Int64, v):
		return newValue(d, serializer.Int64)
	case s.Kind == snapshot.StateValue && sameType(people, v):
		return newValue(d, people)
	case s.Kind == snapshot.StateList && sameType(serializer.Int32, v):
		return newList(d, serializer.Int32)
	case s.Kind == snapshot.StateMap && sameType(serializer.String, s.UserKey) && sameType(texts, v):
		return newMap(d, serializer.String, texts)
	case s.Kind == snapshot.StateReducing && sameType(serializer.Int64, v):
		return newReducing(d, sum, serializer.Int64)
	case s.Kind == snapshot.StateAggregating && sameType(averages, v):
		return newAggregating(d, addAverages, averages)
	}
	return plainStates(b, s, opts)
}

// average is a sum and a count.
type average = serializer.Pair[int64, int64]

var averages = serializer.Tuple2(serializer.Int64, serializer.Int64)

func addAverages(a, b average) average { return average{F0: a.F0 + b.F0, F1: a.F1 + b.F1} }

// numberStates are states of types without pointers.
func numberStates(b keyed.Backend[int64], s *snapshot.State, opts []keyed.Option) state[int64] {
	if s.Namespace.Kind != serializer.KindVoidNamespace {
		return nil
	}
	d := spec[int64, struct{}]{b, s, serializer.VoidNS, opts}
	v := valueType(s)
	switch {
	case s.Kind == snapshot.StateValue && sameType(serializer.Int64, v):
		return newValue(d, serializer.Int64)
	case s.Kind == snapshot.StateMap && sameType(serializer.String, s.UserKey) && sameType(serializer.Int32, v):
		return newMap(d, serializer.String, serializer.Int32)
	}
	return plainStates(b, s, opts)
}

// plainStates are states of values that are known at run time only.
func plainStates[K comparable](b keyed.Backend[K], s *snapshot.State, opts []keyed.Option) state[K] {
	if s.Namespace.Kind != serializer.KindVoidNamespace {
		return nil
	}
	d := spec[K, struct{}]{b, s, serializer.VoidNS, opts}
	if s.Kind == snapshot.StateAggregating {
		return newAggregating(d, last[anything], serializer.Dynamic(valueType(s)))
	}
	return statesIn(d)
}

// anyStates are states of values that are known at run time only, and windows.
func anyStates(b keyed.Backend[anything], s *snapshot.State, opts []keyed.Option) state[anything] {
	if s.Namespace.Kind == serializer.KindTimeWindow {
		return statesIn(spec[anything, serializer.Window]{b, s, serializer.TimeWindows, opts})
	}
	return plainStates(b, s, opts)
}

func statesIn[K, N comparable](d spec[K, N]) state[K] {
	switch d.s.Kind {
	case snapshot.StateValue:
		return newValue(d, serializer.Dynamic(valueType(d.s)))
	case snapshot.StateList:
		return newList(d, serializer.Dynamic(valueType(d.s)))
	case snapshot.StateMap:
		return newMap(d, serializer.Dynamic(d.s.UserKey), serializer.Dynamic(valueType(d.s)))
	case snapshot.StateReducing:
		return newReducing(d, last[anything], serializer.Dynamic(valueType(d.s)))
	}
	return nil
}
