package operatorstate

import (
	"context"
	"fmt"
	"io"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// frozen is a state as it was when a snapshot was taken.
type frozen interface {
	parts() int
	write(context.Context, *stream.OperatorWriter) error
	release()
}

// Snapshot is the state of a Backend as it was. Release ends it.
type Snapshot struct {
	lists, broadcasts []part
}

type part struct {
	meta serializer.StateMeta
	frozen
}

// WriteOptions change how a snapshot is written. Nil is the default.
type WriteOptions struct {
	// Compress writes snappy frames: Flink's snapshot compression.
	Compress bool
	// Version of the file; 0 is 6. Flink 1.16 and 1.17 read 5 only, which cannot be
	// compressed.
	Version int32
}

// Snapshot freezes the state. This is the synchronous part: it takes a few
// allocations for each state, whatever its size.
func (b *Backend) Snapshot() *Snapshot {
	s := &Snapshot{}
	add := func(m *serializer.StateMeta, f frozen) {
		if m.Kind == serializer.Broadcast {
			s.broadcasts = append(s.broadcasts, part{*m, f})
		} else {
			s.lists = append(s.lists, part{*m, f})
		}
	}
	for _, st := range b.states {
		add(st.meta(), st.freeze())
	}
	for _, r := range b.restored {
		add(&r.meta, r)
	}
	return s
}

// Release lets go of the frozen state, which must not be written any more. It may be
// called from any goroutine, and more than once.
func (s *Snapshot) Release() {
	for _, list := range [][]part{s.lists, s.broadcasts} {
		for _, p := range list {
			p.release()
		}
	}
}

// Write writes the state to a file of a snapshot, or, if it is small, puts it into
// the handle. It may run beside the task. A Backend without any state has no handle.
// A value that its serializer cannot write is an error with the state's name.
func (s *Snapshot) Write(ctx context.Context, to *snapshot.Writer, opts *WriteOptions) (*metadata.OperatorHandle, error) {
	if len(s.lists)+len(s.broadcasts) == 0 {
		return nil, nil
	}
	f := to.File(ctx, snapshot.ScopeExclusive)
	defer f.Abort()
	states, err := s.WriteTo(ctx, f, opts)
	if err != nil {
		return nil, err
	}
	delegate, err := f.Close()
	if err != nil {
		return nil, err
	}
	return &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, States: states, Delegate: delegate}, nil
}

// WriteTo writes the file and gives what the handle says of it.
func (s *Snapshot) WriteTo(ctx context.Context, to io.Writer, opts *WriteOptions) ([]metadata.NamedPartitions, error) {
	if opts == nil {
		opts = &WriteOptions{}
	}
	o := stream.OperatorWriterOptions{Compress: opts.Compress, Version: opts.Version}
	for i := range s.lists {
		o.Lists = append(o.Lists, s.lists[i].meta)
	}
	for i := range s.broadcasts {
		o.Broadcasts = append(o.Broadcasts, s.broadcasts[i].meta)
	}
	w, err := stream.NewOperatorWriter(to, o)
	if err != nil {
		return nil, err
	}
	for i := range s.lists {
		if err := s.lists[i].writeAs(ctx, w, i); err != nil {
			return nil, err
		}
	}
	for i := range s.broadcasts {
		if err := s.broadcasts[i].writeAs(ctx, w, len(s.lists)+i); err != nil {
			return nil, err
		}
	}
	return w.Finish()
}

func (p *part) writeAs(ctx context.Context, w *stream.OperatorWriter, index int) (err error) {
	defer func() {
		// A serializer without an error result panics with one, as its interface says.
		if r := recover(); r != nil {
			cause, ok := r.(error)
			if !ok {
				cause = fmt.Errorf("%v", r)
			}
			err = fmt.Errorf("state %s: %w", p.meta.Name, cause)
		}
	}()
	if err := w.State(index, p.parts()); err != nil {
		return err
	}
	return p.write(ctx, w)
}
