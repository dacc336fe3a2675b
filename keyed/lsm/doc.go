// Package lsm is a backend that keeps keyed state on disk, in a Pebble database (a
// log-structured merge tree) of its own, for state larger than memory. Entries in use are
// Go values in a cache, which is the write buffer too: reading and writing them costs
// what a hash table costs, and what is written often is stored once.
//
// Its checkpoints are incremental: each stores the tables that the last confirmed one
// lacks. They restore at once, whatever their size, at any parallelism. Its savepoints are
// in the canonical format that every backend of Flink reads, and it restores snapshots of
// every kind, of this module and of Flink.
//
// # Memory
//
// All backends of a Process share one budget (256 MiB unless ProcessOptions says
// otherwise) for entries, memtables and blocks. Beside it are what Pebble keeps of each
// table, iterators, and the entries that changed while a view or snapshot is open, which
// are there twice. Sizes of entries are exact for types without pointers, strings and
// byte slices; of others they are taken from the mean of their serialized form.
//
// A list that ListState.Get gave lies in this memory. It is valid until the next call of
// the backend that may add an entry, but for the calls that take it as an argument.
//
// # Durability
//
// The working folder is not durable: there is no log, nothing is synced, and Open removes
// what is there. What is durable is in snapshots.
//
// # Errors
//
// An error of the database is one of the backend: the operation that meets it returns it,
// and so do Snapshot and View and, from then on, every operation that needs the database.
// It never ends the process.
package lsm
