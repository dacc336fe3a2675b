// Package incremental reads the embedded databases of incremental checkpoints:
// the tables and MANIFEST of RocksDB and ForSt, as Flink 1.x and 2.x write them.
//
// A handle lists the database's files by local name. Open resolves, through the
// MANIFEST, which tables belong to which column family (one for each state) and
// level; Family.Scan merges them to the entries that RocksDB itself would show:
//
//	newest version of each key, without what a point or range deletion hides,
//	merge operands appended to their base with "," between, as Flink's list state
//
// Keys and values are the bytes that Flink wrote: the key is key group, key,
// namespace and, in a map state, user key. Nothing here knows serializers.
//
// The tables are read by package sst and the MANIFEST by package manifest.
//
// Checkpoints share such files. Registry, the shared state registry, knows which
// checkpoint needs which file, and a Cleaner deletes what nobody needs.
package incremental
