package stream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemark/tidemark/runtime/task"
)

// FileSink writes records to files of a folder, each of which is there as a whole or
// not at all, and all of which together have each record exactly once: an
// exactly-once sink in the way of Flink's FileSink.
//
// A file that is being written is called
//
//	.part-<run>-<subtask>-<number>.inprogress
//
// and part-<run>-<subtask>-<number> with its suffix when it is committed. Run is
// another one for each restart of the job. The folder belongs to one sink.
//
// A savepoint names files that the job itself commits with its next checkpoint. One that
// has neither stopped the job nor been followed by a checkpoint needs them as they
// are: a job that is started from another snapshot meanwhile removes them, and one that
// is started from the savepoint then fails with the name of the file that is lost.
type FileSink[T any] struct {
	// Dir is the folder; it is made if it is not there.
	Dir string
	// Suffix of the files' names, such as ".txt".
	Suffix string
	// Encode appends a record to a file.
	Encode func(dst []byte, v T) []byte
	// RollBytes ends a file that is as large; 0 is 128 MiB. Each checkpoint ends one
	// in any case.
	RollBytes int64
	// NoSync does not wait until files are on the disk before they are committed. It
	// holds against the end of the process, but not against that of the computer.
	NoSync bool
}

// Lines is the FileSink of text, one line for each record.
func Lines(dir string) *FileSink[string] {
	return &FileSink[string]{Dir: dir, Suffix: ".txt", Encode: func(dst []byte, v string) []byte { return append(append(dst, v...), '\n') }}
}

// FileCommittable is a file to be renamed.
type FileCommittable struct {
	Temporary, Final string // names in the folder
	Size             int64
}

const inProgress = ".inprogress"

// NewWriter implements Sink.
func (s *FileSink[T]) NewWriter(e *task.Env) (SinkWriter[T, FileCommittable], error) {
	if err := os.MkdirAll(s.Dir, 0o777); err != nil {
		return nil, err
	}
	w := &fileWriter[T]{sink: s, name: fmt.Sprintf("part-%s-%d", e.Run, e.Subtask), roll: s.RollBytes}
	if w.roll <= 0 {
		w.roll = 128 << 20
	}
	return w, nil
}

// Commit implements Sink.
func (s *FileSink[T]) Commit(ctx context.Context, _ *task.Env, list []FileCommittable) error {
	for _, c := range list {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		from, to := filepath.Join(s.Dir, c.Temporary), filepath.Join(s.Dir, c.Final)
		// A rename would replace a file that is there; the names are unique.
		err := os.Rename(from, to)
		if errors.Is(err, fs.ErrNotExist) {
			info, statErr := os.Stat(to)
			if statErr != nil {
				return fmt.Errorf("%s is lost: neither it nor %s is there", from, c.Final)
			}
			if info.Size() != c.Size {
				return fmt.Errorf("%s has %d bytes, %d were written", to, info.Size(), c.Size)
			}
			continue // committed before
		}
		if err != nil {
			return err
		}
	}
	return s.syncDir()
}

func (s *FileSink[T]) syncDir() error {
	if s.NoSync {
		return nil
	}
	d, err := os.Open(s.Dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Recover implements Sink.
func (s *FileSink[T]) Recover(ctx context.Context, e *task.Env) error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range entries {
		name := f.Name()
		if !strings.HasPrefix(name, ".part-") || !strings.HasSuffix(name, inProgress) || strings.HasPrefix(name, ".part-"+e.Run+"-") {
			continue
		}
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Committables implements Sink.
func (s *FileSink[T]) Committables() VersionedSerializer[FileCommittable] {
	return fileCommittables{}
}

type fileCommittables struct{}

func (fileCommittables) Version() int32 { return 1 }

// Serialize: two names, each after a uint16 length, and the size as int64.
func (fileCommittables) Serialize(c FileCommittable) ([]byte, error) {
	var b []byte
	for _, s := range []string{c.Temporary, c.Final} {
		if len(s) > 1<<16-1 {
			return nil, fmt.Errorf("file name of %d bytes", len(s))
		}
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	return binary.BigEndian.AppendUint64(b, uint64(c.Size)), nil
}

func (fileCommittables) Deserialize(version int32, b []byte) (c FileCommittable, err error) {
	if version != 1 {
		return c, fmt.Errorf("file committable of version %d; version 1 is known", version)
	}
	for _, s := range []*string{&c.Temporary, &c.Final} {
		if len(b) < 2 {
			return c, errors.New("file committable ends early")
		}
		n := int(binary.BigEndian.Uint16(b))
		if b = b[2:]; len(b) < n {
			return c, errors.New("file committable ends early")
		}
		if *s = string(b[:n]); *s == "" || *s != filepath.Base(*s) || *s == ".." {
			return c, fmt.Errorf("file committable: %q is no file name", *s)
		}
		b = b[n:]
	}
	if len(b) != 8 {
		return c, fmt.Errorf("file committable: %d bytes where a size of 8 stands", len(b))
	}
	c.Size = int64(binary.BigEndian.Uint64(b))
	return c, nil
}

type fileWriter[T any] struct {
	sink   *FileSink[T]
	name   string
	number int
	roll   int64

	f    *os.File
	w    *bufio.Writer
	size int64
	buf  []byte
	done []FileCommittable
}

func (w *fileWriter[T]) temporary() string {
	return fmt.Sprintf(".%s-%d%s", w.name, w.number, inProgress)
}

func (w *fileWriter[T]) Write(v T, _ int64) error {
	if w.f == nil {
		f, err := os.OpenFile(filepath.Join(w.sink.Dir, w.temporary()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		w.f, w.size = f, 0
		if w.w == nil {
			w.w = bufio.NewWriterSize(f, 64<<10)
		} else {
			w.w.Reset(f)
		}
	}
	w.buf = w.sink.Encode(w.buf[:0], v)
	n, err := w.w.Write(w.buf)
	w.size += int64(n)
	if err == nil && w.size >= w.roll {
		err = w.end()
	}
	return err
}

// end finishes the file.
func (w *fileWriter[T]) end() error {
	if w.f == nil {
		return nil
	}
	err := w.w.Flush()
	if err == nil && !w.sink.NoSync {
		err = w.f.Sync()
	}
	if err = errors.Join(err, w.f.Close()); err != nil {
		return err
	}
	w.done = append(w.done, FileCommittable{Temporary: w.temporary(), Final: fmt.Sprintf("%s-%d%s", w.name, w.number, w.sink.Suffix), Size: w.size})
	w.f = nil
	w.number++
	return nil
}

func (w *fileWriter[T]) PreCommit() ([]FileCommittable, error) {
	if err := w.end(); err != nil {
		return nil, err
	}
	list := w.done
	w.done = nil
	if len(list) == 0 {
		return nil, nil
	}
	// A checkpoint may name them from now on: their names have to last as well.
	return list, w.sink.syncDir()
}

// Close drops the file that is being written. Pre-committed files stay: a checkpoint
// that is completing may have them, and the next run's Recover removes them otherwise.
func (w *fileWriter[T]) Close() error {
	if w.f == nil {
		return nil
	}
	err := errors.Join(w.f.Close(), os.Remove(filepath.Join(w.sink.Dir, w.temporary())))
	w.f = nil
	return err
}
