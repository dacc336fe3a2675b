// Package pebbledb makes a Pebble database the files of an incremental
// checkpoint, and such files a database again. It knows nothing of states: keys
// are bytes that begin with their key group (2 bytes, big-endian).
//
// One Process serves all databases of an operating system process: it has the one
// memory budget, the limit of compactions and the limits of transfers. A DB is
// the working database of one keyed subtask:
//
//	p, _ := pebbledb.NewProcess(nil)
//	db, _ := pebbledb.Open(ctx, p, dir, &pebbledb.Options{KeyGroups: own})
//	db.Apply(ctx, batch)                      // writes
//	db.Pebble().Get(key)                      // reads, between Acquire and Release
//
//	f, _ := db.Checkpoint(ctx, 7, nil)        // synchronous part: no I/O
//	up, _ := f.Upload(ctx, create, nil)       // asynchronous part: only new tables
//	f.Release()
//	db.Confirmed(7)                           // later checkpoints refer to 7's tables
//
//	db, _ = pebbledb.Restore(ctx, p, dir, sources, &pebbledb.Options{KeyGroups: own})
//
// The working directory is never durable: there is no write-ahead log and
// nothing is synced. What is durable is what checkpoints uploaded.
//
// # Files of a checkpoint
//
//	shared   000012.sst                 a table of this database or of the one it was restored from
//	shared   <incarnation>-000012.sst   a table of another database, attached when subtasks merged
//	private  MANIFEST-000004            which tables there are, and in which level
//	private  OPTIONS-000003             what the database was opened with
//	private  REMOTE-OBJ-CATALOG-000002  which numbers the attached tables have
//	private  PEBBLE                     engine, format version, empty marker files, size and checksum of each file
//
// docs/format/pebble-checkpoint.md draws them, docs/design/lsm-files.md says why.
package pebbledb
