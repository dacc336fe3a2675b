package lsm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// frozen is a database at the end of a generation, once it is settled.
type frozen struct {
	id int64
	db *pebbledb.Frozen // the drainer's until settled

	mu       sync.Mutex
	settled  chan struct{}
	ready    *pebbledb.Frozen
	err      error
	released bool
}

func (f *frozen) settle(db *pebbledb.Frozen, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready, f.err = db, err
	if f.released && db != nil {
		db.Release()
	}
	close(f.settled)
}

func (f *frozen) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released {
		return
	}
	f.released = true
	if f.ready != nil {
		f.ready.Release()
	}
}

// wait gives the database as it is in the snapshot.
func (f *frozen) wait(ctx context.Context) (*pebbledb.Frozen, error) {
	select {
	case <-f.settled:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released {
		return nil, keyed.ErrClosed
	}
	return f.ready, f.err
}

// snap is a snapshot of the backend.
type snap[K comparable] struct {
	b      *Backend[K]
	id     int64
	at     int64 // milliseconds, for TTL
	states []state
	f      *frozen

	mu       sync.RWMutex // read by writers, written by release
	released bool
}

// Snapshot implements keyed.Backend: what was changed since the last generation is set
// aside, to be written beside the task. No two snapshots that are not released have the
// same number.
func (b *Backend[K]) Snapshot(ctx context.Context, id int64) (keyed.Snapshot, error) {
	start := time.Now()
	err := b.failure()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = b.err
	}
	if err == nil && b.taken(id) {
		err = errors.New("one of that number is not released yet")
	}
	if err != nil {
		return nil, fmt.Errorf("keyed: snapshot %d: %w", id, err)
	}
	b.poll()
	s := &snap[K]{b: b, id: id, at: b.env.Millis(), f: &frozen{id: id, settled: make(chan struct{})}, states: b.states[:len(b.states):len(b.states)]}
	b.freeze(s.f)
	b.track(s)
	b.metrics.Time(keyed.MetricSnapshotSync, time.Since(start))
	return s, nil
}

// taken tells whether a snapshot of that number is there. The database could not take
// another one, and what was frozen for it would be lost.
func (b *Backend[K]) taken(id int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := range b.open {
		if s, ok := v.(*snap[K]); ok && s.id == id {
			return true
		}
	}
	return false
}

func (s *snap[K]) metas() []serializer.StateMeta {
	metas := make([]serializer.StateMeta, len(s.states))
	for i := range s.states {
		metas[i] = s.states[i].meta
	}
	return metas
}

// begin is the beginning of Write and Upload; end has to be called.
func (s *snap[K]) begin(ctx context.Context) (ctx2 context.Context, end func(), err error) {
	s.mu.RLock()
	if s.released || s.b.closed.Load() {
		s.mu.RUnlock()
		return nil, nil, keyed.ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.b.drains.life, func() { cancel(keyed.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.mu.RUnlock()
	}, nil
}

func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); err != nil && c != nil {
		return c
	}
	return err
}

// Write implements keyed.Snapshot. One file is always in the canonical format.
func (s *snap[K]) Write(ctx context.Context, w io.Writer, opts *keyed.WriteOptions) (*keyed.Written, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("keyed: snapshot %d: %w", s.id, err)
	}
	defer end()
	out, err := s.write(ctx, w, opts)
	if err != nil {
		return nil, fmt.Errorf("keyed: snapshot %d: %w", s.id, cause(ctx, err))
	}
	return out, nil
}

func (s *snap[K]) write(ctx context.Context, w io.Writer, opts *keyed.WriteOptions) (*keyed.Written, error) {
	start := time.Now()
	var o keyed.WriteOptions
	if opts != nil {
		o = *opts
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := s.f.wait(ctx)
	if err != nil {
		return nil, err
	}
	r, err := f.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := s.b
	metas := s.metas()
	kw, err := stream.NewKeyedWriter(&stopper{ctx, w}, stream.KeyedWriterOptions{
		Format: stream.CanonicalFormat, Key: b.keys.Serializer.Type(), States: metas,
		KeyGroups: b.KeyGroups(), MaxParallelism: b.MaxParallelism(), Compress: o.Compress,
	})
	if err != nil {
		return nil, err
	}
	if err := s.copyRows(ctx, r.Pebble(), kw); err != nil {
		return nil, err
	}
	offsets, err := kw.Finish()
	if err != nil {
		return nil, err
	}
	b.metrics.Add(keyed.MetricSnapshotBytes, kw.Size())
	b.metrics.Time(keyed.MetricSnapshotAsync, time.Since(start))
	return &keyed.Written{Offsets: offsets, Bytes: kw.Size(), Format: keyed.FormatCanonical, KeyGroups: b.KeyGroups(), States: metas}, nil
}

// copyRows writes the rows as they are, but for the key group, which has one byte or two,
// and the state.
func (s *snap[K]) copyRows(ctx context.Context, db *pebble.DB, kw *stream.KeyedWriter) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	var key []byte
	group, id := -1, -1
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		if len(k) < 4 {
			return fmt.Errorf("lsm: a row has a key of %d bytes", len(k))
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		g, i := int(binary.BigEndian.Uint16(k)), int(binary.BigEndian.Uint16(k[2:]))
		if i >= len(s.states) {
			return fmt.Errorf("lsm: a row is of state %d, there are %d", i, len(s.states))
		}
		if st := s.states[i].st; st != nil {
			var drop bool
			if value, drop = st.Trim(value, s.at); drop {
				continue
			}
		}
		if g != group {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := kw.KeyGroup(int32(g)); err != nil {
				return err
			}
			group, id = g, -1
		}
		if i != id {
			if err := kw.State(i, 0); err != nil {
				return err
			}
			id = i
		}
		if key = key[:0]; s.b.MaxParallelism() > 128 {
			key = append(key, k[0])
		}
		key = append(append(key, k[1]), k[4:]...)
		if err := kw.Composite(key, value); err != nil {
			return err
		}
	}
	return it.Error()
}

// Upload implements keyed.Snapshot: a checkpoint is a *metadata.IncrementalHandle, with
// the tables that the last confirmed one lacks; a canonical savepoint a
// *metadata.KeyGroupsHandle.
func (s *snap[K]) Upload(ctx context.Context, to *snapshot.Writer, opts *keyed.UploadOptions) (metadata.KeyedHandle, error) {
	var o keyed.UploadOptions
	if opts != nil {
		o = *opts
	}
	if o.Format == keyed.FormatCanonical {
		return keyed.UploadFile(ctx, s, to, opts)
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("keyed: snapshot %d: %w", s.id, err)
	}
	defer end()
	h, err := s.upload(ctx, to, &o)
	if err != nil {
		return nil, fmt.Errorf("keyed: snapshot %d: %w", s.id, cause(ctx, err))
	}
	if h == nil {
		return nil, nil
	}
	return h, nil
}

func (s *snap[K]) upload(ctx context.Context, to *snapshot.Writer, o *keyed.UploadOptions) (*metadata.IncrementalHandle, error) {
	start := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := s.f.wait(ctx)
	if err != nil || len(s.states) == 0 {
		return nil, err
	}
	meta, err := (&serializer.KeyedBackendMeta{Key: s.b.keys.Serializer.Type(), States: s.metas()}).Append(nil)
	if err != nil {
		return nil, err
	}
	up, err := f.Upload(ctx, func(ctx context.Context, shared bool) pebbledb.FileWriter {
		scope := snapshot.ScopeExclusive
		if shared {
			scope = snapshot.ScopeShared
		}
		return to.File(ctx, scope)
	}, &pebbledb.UploadOptions{Full: o.Full, Forward: o.Forward, Merge: to.Merging()})
	if err != nil {
		return nil, err
	}
	w := to.File(ctx, snapshot.ScopeExclusive)
	defer w.Abort()
	if _, err := io.Copy(w, bytes.NewReader(meta)); err != nil {
		return nil, err
	}
	if up.Handle.Meta, err = w.Close(); err != nil {
		return nil, err
	}
	s.b.metrics.Add(keyed.MetricSnapshotBytes, up.Bytes+int64(len(meta)))
	s.b.metrics.Time(keyed.MetricSnapshotAsync, time.Since(start))
	return up.Handle, nil
}

// Release implements keyed.Snapshot. It waits for a Write or Upload that goes on.
func (s *snap[K]) Release() {
	s.release()
	s.b.untrack(s)
}

func (s *snap[K]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	s.f.release()
}

// stopper is a writer that ends with a context.
type stopper struct {
	ctx context.Context
	w   io.Writer
}

func (s *stopper) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.w.Write(p)
}
