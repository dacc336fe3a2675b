// Package serializer reads and writes what Apache Flink's type serializers
// write: the snapshot of a serializer, which is the schema of a state, and the
// values themselves. It needs no class of the job: a Type is decoded from the
// snapshot's bytes alone, and values are decoded with nothing but the Type.
//
// A serializer snapshot has two layers:
//
//	SERSNAP  i32 proxy version (2), then a SNAP    in the meta block of a state file
//	SNAP     utf class name, i32 version, body     also every nested snapshot
//
// A body has no length, so that a class this package does not know ends what can
// be read, except where a frame surrounds it. Integers are big-endian and utf is
// modified UTF-8 after a uint16 byte length. Source: Flink,
// TypeSerializerSnapshot.java, TypeSerializerSnapshotSerializationUtil.java and
// the snapshot classes named in snapshot.go; docs/format/serializers.md draws
// each of them.
package serializer
