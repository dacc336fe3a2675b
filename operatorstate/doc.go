// Package operatorstate is operator state: what an operator's subtask keeps beside
// its keys, such as the offsets of a source. It is Flink's operator state backend
// with Flink's snapshots and Flink's redistribution.
//
//	b := operatorstate.New()
//	offsets, err := operatorstate.List(b, "offsets", serializer.Int64)
//	rules, err := operatorstate.Broadcast(b, "rules", serializer.String, serializer.MustOf[Rule]())
//
// Three kinds of state differ in what a subtask gets when a job is restored:
//
//	List       split: the elements of all subtasks are dealt out among the new ones
//	Union      each new subtask gets the elements of all old ones
//	Broadcast  each new subtask gets one copy of the map, which all subtasks share
//
// State is changed in place. A Snapshot is a frozen view: taking it copies nothing
// but a few pointers, whatever the size of the state; writing it goes on beside the
// running task, and costs copies of only what is changed meanwhile. Elements, keys
// and values are handed out and taken as they are: what they point to must not be
// changed, but put anew.
//
// Restored state waits as bytes until it is registered. Then its serializer is
// compared with the old one: values are read as they are, migrated, or the state is
// refused with ErrIncompatible and its name. State that nobody registers is kept and
// goes into the next snapshot.
//
// A Backend and its states belong to one goroutine, that of the task. A Snapshot may
// be written by another.
package operatorstate
