package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
)

// results writes lines to files of a folder, each by one rename. The lines are in the
// committables, so that Flink commits those of a snapshot of ours, and the reverse.
type results struct{ dir string }

type file struct{ name, text string }

func (r results) NewWriter(e *task.Env) (stream.SinkWriter[string, file], error) {
	return &writer{name: fmt.Sprintf("%s-%d", e.Run, e.Subtask)}, nil
}

func (r results) Committables() stream.VersionedSerializer[file] { return files{} }

func (r results) Commit(_ context.Context, e *task.Env, list []file) error {
	for _, f := range list {
		from := filepath.Join(r.dir, fmt.Sprintf(".%s-%d", e.Run, e.Subtask))
		if err := os.WriteFile(from, []byte(f.text), 0o666); err != nil {
			return err
		}
		if err := os.Rename(from, filepath.Join(r.dir, f.name)); err != nil {
			return err
		}
	}
	return nil
}

func (r results) Recover(context.Context, *task.Env) error { return nil }

// files are the name, in modified UTF-8 after its length of two bytes, and the text.
type files struct{}

func (files) Version() int32 { return 1 }

func (files) Serialize(f file) ([]byte, error) {
	name := javaio.NewString(f.name)
	b := binary.BigEndian.AppendUint16(nil, uint16(len(name)))
	return append(append(b, name...), f.text...), nil
}

func (files) Deserialize(version int32, b []byte) (f file, err error) {
	if version != 1 || len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
		return f, errors.New("no file of results")
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	return file{javaio.String(b[2:n]).Go(), string(b[n:])}, nil
}

type writer struct {
	name  string
	files int
	text  strings.Builder
}

func (w *writer) Write(v string, _ int64) error {
	w.text.WriteString(v)
	w.text.WriteByte('\n')
	return nil
}

func (w *writer) PreCommit() ([]file, error) {
	if w.text.Len() == 0 {
		return nil, nil
	}
	f := file{fmt.Sprintf("%s-%d", w.name, w.files), w.text.String()}
	w.files++
	w.text.Reset()
	return []file{f}, nil
}

func (w *writer) Close() error { return nil }
