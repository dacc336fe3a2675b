// Package stream reads and writes the bytes behind the state handles of a snapshot: the
// framing of canonical and heap keyed state, operator state, timers in raw keyed
// state, changelog files and channel state.
//
// It knows where an entry, a key and a value begin and end, and nothing of where
// files lie. Where only a serializer knows how long a value is, the caller gives
// a Skipper. Readers stream: they hold one window of the file, as large as its
// largest entry, and give out slices of it that are valid until the next call.
// None is for concurrent use; any number may read one file side by side.
//
// KeyedWriter and OperatorWriter write what Canonical, Heap and Operator read: the
// bytes of a real Flink, for the same entries in the same order.
//
// Damage is a *damage.Error with the name given by the caller and the offset in
// the stream. Inside a compressed region an offset counts decoded bytes from the
// region's start.
//
// Source: Flink, FullSnapshotAsyncWriter, HeapSnapshotStrategy,
// KeyGroupPartitioner, OperatorBackendSerializationProxy,
// InternalTimerServiceSerializationProxy, StateChangeFormat and
// ChannelStateSerializerImpl; compared with files of Flink 1.20.0 and 2.3.0.
package stream

// Skipper knows how long a serialized value is.
type Skipper interface {
	// Skip returns the length of the value at the start of b. If b ends inside the
	// value the error is or wraps io.ErrUnexpectedEOF; any other error is damage.
	Skip(b []byte) (n int, err error)
}
