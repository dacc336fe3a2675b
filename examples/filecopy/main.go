// Filecopy copies the lines of the files of a folder into files of another, exactly
// once: whatever happens on the way, each line is in the output as often as it is in
// the input. It ends when all is copied.
//
//	go run ./examples/filecopy -from docs -to /tmp/copied -dir /tmp/filecopy
//
// With -number each line gets its number among those that are equal to it, for which
// the job keeps a count by line: in memory, or with -databases on disk.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// jobID is the same in each run, so that a run finds the checkpoints of the one before.
const jobID = "0badc0de0000000000000000000000bb"

func main() {
	c := config{job: jobID}
	flag.StringVar(&c.from, "from", "", "folder of files to copy")
	flag.StringVar(&c.to, "to", "", "folder of the copies")
	flag.StringVar(&c.dir, "dir", "filecopy-checkpoints", "folder of checkpoints, or its URL")
	flag.IntVar(&c.parallelism, "parallelism", 2, "subtasks of each operator")
	flag.DurationVar(&c.pause, "pause", 0, "pause after each 100 lines of a subtask, to have time to kill it")
	flag.BoolVar(&c.number, "number", false, "write before each line its number among those equal to it")
	flag.StringVar(&c.state.Dir, "databases", "", "folder of databases for the state, whose checkpoints are incremental; memory if empty")
	flag.BoolVar(&c.state.LocalRecovery, "local-recovery", false, "restore from what is left in the databases' folder, where it is the right thing")
	flag.IntVar(&c.retained, "retained", 1, "completed checkpoints to keep")
	verbose := flag.Bool("v", false, "log what happens")
	flag.Parse()
	if c.from == "" || c.to == "" {
		fmt.Fprintln(os.Stderr, "filecopy: -from and -to are needed")
		os.Exit(64)
	}
	if *verbose {
		c.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "filecopy:", err)
		os.Exit(1)
	}
}

type config struct {
	from, to, dir string
	job           string // ID
	parallelism   int
	pause         time.Duration
	number        bool
	retained      int
	state         task.StateOptions
	log           *slog.Logger
}

func (c *config) run(ctx context.Context) error {
	return runtime.Run(ctx, c.pipeline(stream.Lines(c.to), newNumber), c.options())
}

// options are how the job is run.
func (c *config) options() *runtime.Options {
	o := &runtime.Options{Checkpoints: c.dir, JobID: c.job, Durable: true, Interval: 100 * time.Millisecond, Retained: c.retained, State: c.state, Log: c.log}
	if o.State.Dir != "" {
		o.State.Backend = task.BackendLSM
	}
	return o
}

// pipeline is the job's graph.
func (c *config) pipeline(sink stream.Sink[string, stream.FileCommittable], number func() stream.KeyedFunction[string, string, string]) *stream.Job {
	job := stream.NewJob("file copy", &stream.JobOptions{Parallelism: c.parallelism, MaxParallelism: 128})
	lines := stream.From(job, files{c.from, c.pause}, stream.UID("files"))
	if c.number {
		byLine := stream.KeyBy(lines, serializer.String, func(line string) string { return line })
		lines = stream.Process(byLine, number, stream.UID("number"))
	} else {
		lines = lines.Rebalance() // so that there is something in flight between tasks
	}
	stream.To(lines, sink, stream.UID("copies"))
	return job
}

// number counts the lines that are equal.
type number struct {
	seen *keyed.ValueState[string, int64]
}

func newNumber() stream.KeyedFunction[string, string, string] { return &number{} }

// Open registers the state.
func (n *number) Open(rt *stream.KeyedRuntime[string]) error {
	n.seen = keyed.Value(rt.Keyed, "seen", serializer.Int64)
	return nil
}

// Process writes a line with its number.
func (n *number) Process(x *stream.KeyedContext[string, string], line string) error {
	seen, _, err := n.seen.Get(x.Key)
	if err != nil {
		return err
	}
	x.Emit(strconv.FormatInt(seen+1, 10) + "\t" + line)
	return n.seen.Set(x.Key, seen+1)
}

// files is a source of the lines of a folder's files. A split is a file from an
// offset on.
type files struct {
	dir   string
	pause time.Duration
}

// split is the rest of a file.
type split struct {
	name   string
	offset int64
}

// Splits implements stream.Source.
func (files) Splits() stream.VersionedSerializer[split] { return splits{} }

// Checkpoints implements stream.Source.
func (files) Checkpoints() stream.VersionedSerializer[[]split] { return splitLists{} }

type splits struct{}

// Version implements stream.VersionedSerializer.
func (splits) Version() int32 { return 1 }

// Serialize: int64 offset, then the name.
func (splits) Serialize(s split) ([]byte, error) {
	return append(binary.BigEndian.AppendUint64(nil, uint64(s.offset)), s.name...), nil
}

// Deserialize implements stream.VersionedSerializer.
func (splits) Deserialize(version int32, b []byte) (split, error) {
	if version != 1 || len(b) < 8 {
		return split{}, fmt.Errorf("split of %d bytes and version %d", len(b), version)
	}
	return split{string(b[8:]), int64(binary.BigEndian.Uint64(b))}, nil
}

type splitLists struct{}

// Version implements stream.VersionedSerializer.
func (splitLists) Version() int32 { return 1 }

// Serialize: for each split, uint32 length and the split.
func (splitLists) Serialize(list []split) (b []byte, err error) {
	for _, s := range list {
		x, _ := splits{}.Serialize(s)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(x))), x...)
	}
	return b, nil
}

// Deserialize implements stream.VersionedSerializer.
func (splitLists) Deserialize(version int32, b []byte) (list []split, err error) {
	for len(b) > 0 {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
			return nil, errors.New("list of splits ends early")
		}
		n := int(binary.BigEndian.Uint32(b))
		s, err := splits{}.Deserialize(version, b[4:4+n])
		if err != nil {
			return nil, err
		}
		list, b = append(list, s), b[4+n:]
	}
	return list, nil
}

// NewEnumerator implements stream.Source.
func (f files) NewEnumerator(c checkpoint.EnumeratorContext[split], restored *[]split) (checkpoint.SplitEnumerator[split, []split], error) {
	e := &enumerator{c: c}
	if restored != nil {
		e.left = *restored
		return e, nil
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, x := range entries {
		if x.Type().IsRegular() {
			e.left = append(e.left, split{name: x.Name()})
		}
	}
	return e, nil
}

// enumerator gives a reader that asks the next file.
type enumerator struct {
	c    checkpoint.EnumeratorContext[split]
	left []split
}

// Start implements checkpoint.SplitEnumerator.
func (e *enumerator) Start() error { return nil }

// AddReader implements checkpoint.SplitEnumerator.
func (e *enumerator) AddReader(int32) error { return nil }

// Close implements checkpoint.SplitEnumerator.
func (e *enumerator) Close() error { return nil }

// HandleSplitRequest implements checkpoint.SplitEnumerator.
func (e *enumerator) HandleSplitRequest(subtask int32, _ string) error {
	if len(e.left) == 0 {
		return e.c.NoMoreSplits(subtask)
	}
	s := e.left[0]
	e.left = e.left[1:]
	return e.c.Assign(subtask, s)
}

// AddSplitsBack implements checkpoint.SplitEnumerator.
func (e *enumerator) AddSplitsBack(s []split, _ int32) error {
	e.left = append(e.left, s...)
	return nil
}

// Snapshot implements checkpoint.SplitEnumerator.
func (e *enumerator) Snapshot(int64) ([]split, error) { return slices.Clone(e.left), nil }

// NewReader implements stream.Source.
func (f files) NewReader(e *task.Env) (stream.Reader[string, split], error) {
	return &reader{env: e, files: f}, nil
}

// reader reads one file after the other.
type reader struct {
	env    *task.Env
	files  files
	splits []split // the first is open if f is not nil
	noMore bool
	f      *os.File
	r      *bufio.Reader
	until  time.Time // pause
	timer  *time.Timer
}

// Start implements stream.Reader.
func (r *reader) Start() error {
	if len(r.splits) > 0 {
		return nil
	}
	return stream.RequestSplit(r.env)
}

// Add implements stream.Reader.
func (r *reader) Add(s []split) error {
	r.splits = append(r.splits, s...)
	return nil
}

// NoMoreSplits implements stream.Reader.
func (r *reader) NoMoreSplits() error {
	r.noMore = true
	return nil
}

// Poll implements stream.Reader: it reads 100 lines.
func (r *reader) Poll(out *task.Collector[string]) (task.PollResult, error) {
	if len(r.splits) == 0 {
		if r.noMore {
			return task.PollEnd, nil
		}
		return task.PollNone, nil
	}
	if wait := time.Until(r.until); wait > 0 {
		r.timer = time.AfterFunc(wait, r.env.Wake)
		return task.PollNone, nil
	}
	s := &r.splits[0]
	if r.f == nil {
		if err := r.open(s); err != nil {
			return 0, err
		}
	}
	for range 100 {
		line, err := r.r.ReadString('\n')
		s.offset += int64(len(line))
		if n := len(line); n > 0 {
			if line[n-1] == '\n' {
				line = line[:n-1]
			}
			out.Add(line, task.NoTimestamp)
		}
		if errors.Is(err, io.EOF) {
			return task.PollMore, r.next()
		}
		if err != nil {
			return 0, err
		}
	}
	if r.files.pause > 0 {
		r.until = time.Now().Add(r.files.pause)
	}
	return task.PollMore, nil
}

func (r *reader) open(s *split) error {
	f, err := os.Open(filepath.Join(r.files.dir, filepath.Base(s.name)))
	if err != nil {
		return err
	}
	if _, err := f.Seek(s.offset, io.SeekStart); err != nil {
		return errors.Join(err, f.Close())
	}
	r.f, r.r = f, bufio.NewReaderSize(f, 64<<10)
	return nil
}

// next ends a file and asks for another.
func (r *reader) next() error {
	err := r.f.Close()
	r.f, r.splits = nil, r.splits[1:]
	if err != nil || len(r.splits) > 0 || r.noMore {
		return err
	}
	return stream.RequestSplit(r.env)
}

// Snapshot implements stream.Reader.
func (r *reader) Snapshot(int64) ([]split, error) { return slices.Clone(r.splits), nil }

// Close implements stream.Reader.
func (r *reader) Close() error {
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.f != nil {
		return r.f.Close()
	}
	return nil
}
