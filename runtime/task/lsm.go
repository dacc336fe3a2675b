package task

import (
	"errors"
	"fmt"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/lsm"
)

// BackendLSM keeps keyed state in a Pebble database for each operator and subtask:
// what rocksdb is in Flink's configuration. Its checkpoints are incremental.
const BackendLSM BackendKind = "lsm"

// openLSM makes a backend in the folder that localDir gives. With LocalRecovery what a
// local copy in an earlier one has is not fetched again.
func openLSM[K comparable](e *Env, c keyed.Config[K]) (keyed.Backend[K], error) {
	o := e.slot.opts
	if o.Dir == "" {
		return nil, errors.New("the lsm backend needs a folder: StateOptions.Dir")
	}
	dir, err := e.localDir()
	if err != nil {
		return nil, err
	}
	if !o.LocalRecovery {
		if err := e.slot.removeEarlier(); err != nil {
			return nil, err
		}
	}
	db := pebbledb.Options{KeepLocal: o.LocalRecovery, NoClaim: o.NoClaim && !e.slot.owned(), Failed: func(err error) {
		// Whatever the task does, it learns of it with its next batch at the latest.
		e.Execute(func() error { return fmt.Errorf("keyed state: %w", err) })
	}}
	if o.LocalRecovery {
		for _, dir := range e.slot.earlier {
			copies, err := pebbledb.LocalCopies(nil, dir)
			if err != nil {
				return nil, err
			}
			db.Local = append(db.Local, copies...)
		}
	}
	return lsm.Open(dir, c, &lsm.Options{Process: o.LSM, Name: fmt.Sprintf("%s, subtask %d", e.Name, e.Subtask), Database: db})
}
