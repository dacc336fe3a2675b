// Package keyed is Flink's keyed state for Go programs: values, lists, maps,
// reducing and aggregating state of keys and namespaces, timers, expiry, and
// snapshots in Flink's formats.
//
// A backend holds the state of one subtask: the key groups of its range. Package
// keyed/heap is one that keeps all of it as Go values in memory. A state is a
// typed handle, made once:
//
//	visits := keyed.Value(backend, "visits", serializer.Int64)
//
//	k := backend.Key("alice") // hash and key group once, used by every state
//	n, _, err := visits.Get(k)
//	err = visits.Set(k, n+1)
//
// Windows and sessions have their state in a namespace: ValueIn, ListIn and so on
// take the namespace's serializer, and their handles a namespace with each call.
//
// # Ownership
//
// A value belongs to the state once it is set: neither it nor a value that Get gave
// may be changed, since a snapshot may be reading it. Slices that ListState gives are
// valid until the next call of a method of the state.
//
// Keys, namespaces and user keys are the same if they are written alike. Strings in them
// have to be UTF-8: anything else is written as U+FFFD and not found again when it was
// restored.
//
// # Concurrency
//
// A backend, its handles and timers belong to one goroutine, the task. Other
// goroutines read through a View: methods whose name ends in At. Backend.Key,
// Snapshot.Write and View.Close may be called from any goroutine.
//
// # Errors
//
// Making a handle cannot fail at once. What is wrong with a state (a name in use,
// a serializer that does not fit the restored state: ErrIncompatible) is returned
// by every call of its handle and by Backend.Err.
package keyed
