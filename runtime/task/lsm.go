package task

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/lsm"
)

// BackendLSM keeps keyed state in a Pebble database for each operator and subtask:
// what rocksdb is in Flink's configuration. Its checkpoints are incremental.
const BackendLSM BackendKind = "lsm"

// openLSM makes a backend in a folder of its own,
//
//	<Dir>/<operator ID>/<subtask>/<run>
//
// With LocalRecovery the folders of earlier attempts, also of a process that was
// killed, are kept until this one has a complete checkpoint, and what a local copy
// there has is not fetched again.
func openLSM[K comparable](e *Env, c keyed.Config[K]) (keyed.Backend[K], error) {
	o := e.slot.opts
	if o.Dir == "" {
		return nil, errors.New("the lsm backend needs a folder: StateOptions.Dir")
	}
	of := filepath.Join(o.Dir, e.Operator.String(), strconv.Itoa(e.Subtask))
	dir := filepath.Join(of, e.Run)
	var earlier []string
	entries, err := os.ReadDir(of)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, x := range entries {
		if x.IsDir() && x.Name() != e.Run {
			earlier = append(earlier, filepath.Join(of, x.Name()))
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	e.slot.earlier = earlier
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
		for _, dir := range earlier {
			copies, err := pebbledb.LocalCopies(nil, dir)
			if err != nil {
				return nil, err
			}
			db.Local = append(db.Local, copies...)
		}
	}
	return lsm.Open(dir, c, &lsm.Options{Process: o.LSM, Name: fmt.Sprintf("%s, subtask %d", e.Name, e.Subtask), Database: db})
}

// removeEarlier drops the folders of earlier attempts.
func (s *slot) removeEarlier() error {
	for _, dir := range s.earlier {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	s.earlier = nil
	return nil
}

// confirmed tells the backend that a checkpoint is complete.
func (s *slot) confirmed(id int64) error {
	if s.keyed == nil {
		return nil
	}
	s.keyed.Confirmed(id)
	return s.removeEarlier()
}

// owned says that the snapshot the attempt starts from is one that the job took.
func (s *slot) owned() bool { return s.from == nil || s.from.Own }
