package task

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/snapshot"
)

// localDir makes the folder of an operator on the local disk,
//
//	<Dir>/<operator ID>/<subtask>/<run>
//
// and finds those of earlier attempts, also of a process that was killed. With
// LocalRecovery they are kept until this one has a complete checkpoint.
func (e *Env) localDir() (dir string, err error) {
	of := filepath.Join(e.slot.opts.Dir, e.Operator.String(), strconv.Itoa(e.Subtask))
	entries, err := os.ReadDir(of)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	e.slot.earlier = nil
	for _, x := range entries {
		if x.IsDir() && x.Name() != e.Run {
			e.slot.earlier = append(e.slot.earlier, filepath.Join(of, x.Name()))
		}
	}
	dir = filepath.Join(of, e.Run)
	return dir, os.MkdirAll(dir, 0o777)
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

// checkpointPrefix begins the name of a folder in localDir with what a checkpoint has.
const checkpointPrefix = "chk-"

// openCopies prepares local recovery for a backend whose state is one file in a
// checkpoint: copies of those files go to
//
//	<localDir>/chk-<checkpoint ID>
//
// Those of earlier attempts of all subtasks stand in for the files, since the parallelism
// may have changed.
func (e *Env) openCopies() error {
	s := e.slot
	if s.opts.Dir == "" {
		return errors.New("local recovery needs a folder: StateOptions.Dir")
	}
	dir, err := e.localDir()
	if err != nil {
		return err
	}
	s.copies = dir
	if s.from == nil {
		return nil
	}
	of := filepath.Join(s.opts.Dir, e.Operator.String())
	all, err := fs.Glob(os.DirFS(of), "*/*/"+checkpointPrefix+"*")
	if err != nil {
		return err
	}
	for i, at := range all {
		all[i] = filepath.Join(of, filepath.FromSlash(at))
	}
	if found := snapshot.FindLocalCopies(all...); found.Len() > 0 {
		from := *s.from
		from.Snapshot = from.Snapshot.WithLocalCopies(found)
		s.from = &from
	}
	return nil
}

// copyDir is where the copy of a checkpoint's file goes; "" for nowhere.
func (s *slot) copyDir(id int64) string {
	if s.copies == "" {
		return ""
	}
	return filepath.Join(s.copies, checkpointPrefix+strconv.FormatInt(id, 10))
}

// copyFailed tells that a checkpoint has no local copy. As in Flink it is none the worse
// for it: a restart reads from the store.
func (s *slot) copyFailed(of Place, id int64, err error) {
	if s.opts.Log != nil {
		s.opts.Log.Warn("no local copy is kept", "operator", of.Name, "subtask", of.Subtask, "checkpoint", id, "error", err)
	}
}

// copyLeft tells that local copies which nobody needs could not be removed.
func (s *slot) copyLeft(id int64, err error) {
	if s.opts.Log != nil {
		s.opts.Log.Warn("a local copy is left", "checkpoint", id, "error", err)
	}
}

// keepCopies drops the copies of checkpoints before one that is complete, if that has a
// copy.
func (s *slot) keepCopies(id int64) error {
	entries, err := os.ReadDir(s.copies)
	if err != nil {
		return err
	}
	var before []string
	has := false
	for _, x := range entries {
		digits, ok := strings.CutPrefix(x.Name(), checkpointPrefix)
		n, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case !ok || err != nil:
		case n == id:
			has = true
		case n < id:
			before = append(before, filepath.Join(s.copies, x.Name()))
		}
	}
	if !has {
		return nil
	}
	for _, dir := range before {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// confirmed tells the backend that a checkpoint is complete.
func (s *slot) confirmed(id int64) error {
	if s.keyed == nil {
		return nil
	}
	s.keyed.Confirmed(id)
	if s.copies != "" {
		if err := errors.Join(s.keepCopies(id), s.removeEarlier()); err != nil {
			s.copyLeft(id, err)
		}
		return nil
	}
	return s.removeEarlier()
}

// aborted tells the backend that a checkpoint came to nothing.
func (s *slot) aborted(id int64) error {
	if s.keyed == nil {
		return nil
	}
	s.keyed.Aborted(id)
	if s.copies == "" {
		return nil
	}
	if err := os.RemoveAll(s.copyDir(id)); err != nil {
		s.copyLeft(id, err)
	}
	return nil
}

// owned says that the snapshot the attempt starts from is one that the job took.
func (s *slot) owned() bool { return s.from == nil || s.from.Own }
