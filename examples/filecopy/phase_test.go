//go:build unix

package main

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
)

// phase is something a process may be in the middle of when it is killed.
type phase int

const (
	phaseTakeOver phase = iota // of the store of completed checkpoints, until the job starts
	phaseRestore               // until all keyed state is open
	phaseSync                  // of a snapshot: from a task's snapshot mail to its next record
	phaseAsync                 // files of a checkpoint are being written
	phaseMetadata              // so is its _metadata
	phaseRecord                // so is its record in the log of completed checkpoints
	phaseCommit                // the sink renames files
	phaseDelete                // files that nobody needs are being deleted
	phaseCount
)

var phaseNames = [phaseCount]string{"takeover", "restore", "sync part", "async part", "metadata", "record", "sink commit", "deletion"}

func (p phase) String() string { return phaseNames[p] }

// phases says how often a process is inside each phase. It lies in a file that is
// mapped into memory, which another process reads, also after this one is gone.
type phases struct {
	inside, entered [phaseCount]atomic.Int32
}

const phasesBytes = int(unsafe.Sizeof(phases{}))

// openPhases makes the file if it is not there. Each process forgets it with its end.
func openPhases(name string) (*phases, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(phasesBytes)); err != nil {
		return nil, err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, phasesBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*phases)(unsafe.Pointer(&b[0])), nil
}

// enter counts until the result is called.
func (p *phases) enter(which phase) (leave func()) {
	p.entered[which].Add(1)
	p.inside[which].Add(1)
	return func() { p.inside[which].Add(-1) }
}

// watch puts a store's calls among the phases.
func (p *phases) watch(s blobstore.Store) blobstore.Store {
	w := watched{s, p}
	temporary, t := s.(blobstore.TemporaryLister)
	directories, d := s.(blobstore.DirectoryRemover)
	switch {
	case t && d:
		return struct {
			watched
			blobstore.TemporaryLister
			blobstore.DirectoryRemover
		}{w, temporary, directories}
	case t:
		return struct {
			watched
			blobstore.TemporaryLister
		}{w, temporary}
	}
	return w
}

type watched struct {
	blobstore.Store
	phases *phases
}

func (w watched) Create(ctx context.Context, name string, opts *blobstore.WriteOptions) (blobstore.Writer, error) {
	of := phaseAsync
	switch {
	case strings.HasSuffix(name, "/_metadata"):
		of = phaseMetadata
	case strings.Contains(name, "/checkpoints-log/"):
		of = phaseRecord
	}
	leave := w.phases.enter(of)
	inner, err := w.Store.Create(ctx, name, opts)
	if err != nil {
		leave()
		return nil, err
	}
	return &watchedWriter{inner, leave}, nil
}

func (w watched) Delete(ctx context.Context, name string) error {
	defer w.phases.enter(phaseDelete)()
	return w.Store.Delete(ctx, name)
}

func (w watched) DeleteAll(ctx context.Context, names []string) error {
	defer w.phases.enter(phaseDelete)()
	return w.Store.DeleteAll(ctx, names)
}

type watchedWriter struct {
	blobstore.Writer
	leave func() // nil once left
}

func (w *watchedWriter) end() {
	if w.leave != nil {
		w.leave()
		w.leave = nil
	}
}

func (w *watchedWriter) Commit() error {
	defer w.end()
	return w.Writer.Commit()
}

func (w *watchedWriter) Abort() error {
	defer w.end()
	return w.Writer.Abort()
}

// watchedSink is the job's sink.
type watchedSink struct {
	*stream.FileSink[string]
	phases *phases
}

func (s watchedSink) Commit(ctx context.Context, e *task.Env, list []stream.FileCommittable) error {
	defer s.phases.enter(phaseCommit)()
	return s.FileSink.Commit(ctx, e, list)
}

// watchedNumber is the job's keyed function.
type watchedNumber struct {
	number
	phases *phases
	opened func()
	leave  func() // the synchronous part; nil outside
}

func (n *watchedNumber) Open(rt *stream.KeyedRuntime[string]) error {
	defer n.opened()
	return n.number.Open(rt)
}

func (n *watchedNumber) Process(x *stream.KeyedContext[string, string], line string) error {
	n.left()
	return n.number.Process(x, line)
}

func (n *watchedNumber) Snapshot(*task.Snapshotting) error {
	n.left()
	n.leave = n.phases.enter(phaseSync)
	return nil
}

func (n *watchedNumber) left() {
	if n.leave != nil {
		n.leave()
		n.leave = nil
	}
}

func (n *watchedNumber) Complete(int64) error { n.left(); return nil }
func (n *watchedNumber) Aborted(int64) error  { n.left(); return nil }
func (n *watchedNumber) Close() error         { n.left(); return nil }
