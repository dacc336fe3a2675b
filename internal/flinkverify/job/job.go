// Package job holds the state of a job in this project's state backends. Everything
// goes in and out through what an engine would use: typed handles, timers, TTL,
// snapshots, restores. So what a snapshot of it holds is what the backends wrote.
//
// It is made for tests: a description becomes a snapshot by snapshot.CreateFrom, its
// rows are put into the backends of each subtask by Fill, and Write makes the
// snapshot that a real Flink is to restore. Restore is the way back.
package job

import (
	"context"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Kind is a keyed state backend.
type Kind string

// Backends.
const (
	Heap Kind = "heap"
	LSM  Kind = "lsm"
)

// Options are how a job runs.
type Options struct {
	Backend Kind // "" is Heap
	// Dir is where backends on disk keep their databases; it is the job's alone.
	Dir string
	// Parallelism of all operators; 0 is what the snapshot says. An operator whose max
	// parallelism is less has that.
	Parallelism int
	// Classes and Hash are those of the keys' and values' classes.
	Classes serializer.Classes
	Hash    serializer.HashRules
}

// Job is the state of all operators, each with the backends of its subtasks. It
// belongs to one goroutine.
type Job struct {
	operators []*operator
}

// operator is one operator with state.
type operator struct {
	id          metadata.OperatorID
	of          *snapshot.StateOperator
	states      []*snapshot.State // as declared
	parallelism int
	opts        *Options

	keyed keyedOperator // nil without keyed state
	state *stateOperator
}

// keyedOperator is the keyed state of an operator, whatever its keys are.
type keyedOperator interface {
	put(r *snapshot.StateRow) error
	restore(ctx context.Context, from keyed.RestoreSource) error
	copyTo(other keyedOperator) error
	write(ctx context.Context, to *snapshot.Writer, subtask int, id int64, o *keyed.UploadOptions) (metadata.KeyedHandle, error)
	close() error
}

// open makes a job without state that declares the states of a snapshot.
func open(ctx context.Context, schema *snapshot.Snapshot, opts *Options) (*Job, error) {
	if opts == nil {
		opts = &Options{}
	}
	states, err := snapshot.States(ctx, schema, &snapshot.ScanOptions{Classes: opts.Classes})
	if err != nil {
		return nil, err
	}
	byPosition := map[int][]*snapshot.State{}
	for _, s := range states {
		byPosition[s.Operator.Position] = append(byPosition[s.Operator.Position], s)
	}
	j := &Job{}
	for i := range schema.Checkpoint.Operators {
		all := byPosition[i]
		if len(all) == 0 {
			continue
		}
		o := &operator{id: schema.Checkpoint.Operators[i].ID, of: all[0].Operator, states: all, opts: opts, parallelism: opts.Parallelism}
		if o.parallelism == 0 {
			o.parallelism = int(o.of.Parallelism)
		}
		o.parallelism = min(o.parallelism, int(o.of.MaxParallelism))
		j.operators = append(j.operators, o)
		for _, s := range all {
			if s.Kind.Keyed() {
				if o.keyed, err = openKeyed(o, s.Key); err != nil {
					return nil, j.failed(o, err)
				}
				break
			}
		}
		if o.state, err = openState(o); err != nil {
			return nil, j.failed(o, err)
		}
	}
	return j, nil
}

// failed ends a job that an error made useless.
func (j *Job) failed(o *operator, err error) error {
	_ = j.Close()
	return fmt.Errorf("operator %s: %w", o.id, err)
}

// Fill makes a job with the state of a snapshot, each row of which is put through
// the handle of its state.
func Fill(ctx context.Context, from *snapshot.Snapshot, opts *Options) (*Job, error) {
	j, err := open(ctx, from, opts)
	if err != nil {
		return nil, err
	}
	byPosition := map[int]*operator{}
	for _, o := range j.operators {
		byPosition[o.of.Position] = o
	}
	for r, err := range snapshot.Rows(ctx, from, nil) {
		if err != nil {
			_ = j.Close()
			return nil, err
		}
		o := byPosition[r.State.Operator.Position]
		if r.State.Kind.Keyed() {
			err = o.keyed.put(r)
		} else {
			err = o.state.put(r)
		}
		if err != nil {
			return nil, j.failed(o, fmt.Errorf("state %s: %w", r.State.Name, err))
		}
	}
	return j, nil
}

// Restore makes a job with the states that schema declares and the state of from, by
// the backends' own restore. Operators are found by their IDs.
func Restore(ctx context.Context, schema, from *snapshot.Snapshot, opts *Options) (*Job, error) {
	j, err := open(ctx, schema, opts)
	if err != nil {
		return nil, err
	}
	for _, o := range j.operators {
		id := o.id.String()
		if o.keyed != nil {
			src := keyed.RestoreSource{Snapshot: from, Operator: func(so *snapshot.StateOperator) bool { return so.ID == id }, Classes: o.opts.Classes}
			if err := o.keyed.restore(ctx, src); err != nil {
				return nil, j.failed(o, err)
			}
		}
		if err := o.state.restore(ctx, from); err != nil {
			return nil, j.failed(o, err)
		}
	}
	return j, nil
}

// Copy makes a job of another parallelism or backend with the same state, which is
// read and put through the handles.
func (j *Job) Copy(ctx context.Context, schema *snapshot.Snapshot, opts *Options) (*Job, error) {
	to, err := open(ctx, schema, opts)
	if err != nil {
		return nil, err
	}
	for i, o := range j.operators {
		if o.keyed != nil {
			if err := o.keyed.copyTo(to.operators[i].keyed); err != nil {
				return nil, to.failed(o, err)
			}
		}
		o.state.copyTo(to.operators[i].state)
	}
	return to, nil
}

// Close closes all backends.
func (j *Job) Close() error {
	var first error
	for _, o := range j.operators {
		if o.keyed != nil {
			if err := o.keyed.close(); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// WriteOptions are how a job is written. Nil is a canonical savepoint.
type WriteOptions struct {
	// Kind is as for snapshot.CreateFrom; a native savepoint or checkpoint is in the
	// backend's own format, which of LSM no Flink reads.
	Kind     snapshot.CreateKind
	Version  int32 // of the metadata; 0 is metadata.DefaultVersion
	ID       int64 // of the checkpoint; 0 is 1
	Compress bool
}

// Write writes a snapshot of the job.
func (j *Job) Write(ctx context.Context, w *snapshot.Writer, opts *WriteOptions) (err error) {
	var o WriteOptions
	if opts != nil {
		o = *opts
	}
	if o.Version == 0 {
		o.Version = metadata.DefaultVersion
	}
	if o.ID == 0 {
		o.ID = 1
	}
	upload := &keyed.UploadOptions{WriteOptions: keyed.WriteOptions{Format: keyed.FormatCanonical, Compress: o.Compress}}
	p := metadata.SavepointProperties(metadata.FormatCanonical)
	switch o.Kind {
	case snapshot.CreateNative:
		upload.Format, p = keyed.FormatCheckpoint, metadata.SavepointProperties(metadata.FormatNative)
	case snapshot.CreateCheckpoint:
		upload.Format, p = keyed.FormatCheckpoint, metadata.CheckpointProperties(metadata.RetainOnCancellation)
	}
	c := &metadata.Checkpoint{Version: o.Version, ID: o.ID}
	if c.Version >= 4 {
		if c.Properties, err = metadata.NewProperties(p); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil {
			_ = w.Abort(ctx)
		}
	}()
	for _, op := range j.operators {
		m := metadata.OperatorState{ID: op.id, Parallelism: int32(op.parallelism), MaxParallelism: op.of.MaxParallelism}
		if c.Version >= 5 {
			m.UID, m.Name = javaio.NewString(op.of.UID), javaio.NewString(op.of.Name)
		}
		if c.Version == 2 {
			m.ChainLength = 1
		}
		for i := range op.parallelism {
			s := metadata.SubtaskState{Index: int32(i)}
			if c.Version == 2 {
				s.Duration = -1
			}
			if op.keyed != nil {
				upload.ID = fmt.Sprintf("%s-%d-%d", strings.ToLower(op.id.String()), i, o.ID)
				if s.ManagedKeyed, err = op.keyed.write(ctx, w, i, o.ID, upload); err != nil {
					return fmt.Errorf("operator %s: %w", op.id, err)
				}
			}
			if s.ManagedOperator, err = op.state.write(ctx, w, i, o.Compress); err != nil {
				return fmt.Errorf("operator %s: %w", op.id, err)
			}
			if s.ManagedOperator != nil {
				s.ManagedOperatorFlag = 1
			}
			if s.ManagedKeyed != nil || s.ManagedOperator != nil {
				m.Subtasks = append(m.Subtasks, s)
			}
		}
		c.Operators = append(c.Operators, m)
	}
	return w.Commit(ctx, c)
}
