package heap

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// snap is a snapshot of the backend.
type snap[K comparable] struct {
	*view[K]
	id int64
	at int64 // milliseconds, for TTL

	mu       sync.RWMutex // read by writers, written by release and the last Write
	released bool
	last     bool // a Write with Last has begun
}

// Write implements keyed.Snapshot.
func (s *snap[K]) Write(ctx context.Context, w io.Writer, opts *keyed.WriteOptions) (*keyed.Written, error) {
	out, err := s.write(ctx, w, opts)
	if err != nil {
		return nil, fmt.Errorf("keyed: snapshot %d: %w", s.id, err)
	}
	return out, nil
}

func (s *snap[K]) write(ctx context.Context, w io.Writer, opts *keyed.WriteOptions) (*keyed.Written, error) {
	start := time.Now()
	var o keyed.WriteOptions
	if opts != nil {
		o = *opts
	}
	if o.Last {
		// It reads alone: what it has passed is gone for all others.
		s.mu.Lock()
		defer s.mu.Unlock()
	} else {
		s.mu.RLock()
		defer s.mu.RUnlock()
	}
	if s.released || s.last {
		return nil, keyed.ErrClosed
	}
	if o.Last {
		s.last = true
	}
	b := s.b
	metas := make([]serializer.StateMeta, len(s.states))
	for i, st := range s.states {
		metas[i] = *st.Meta()
	}
	format := stream.HeapFormat
	if o.Format == keyed.FormatCanonical {
		format = stream.CanonicalFormat
	}
	stop := &stopper{ctx: ctx, closed: b.closed.Load, w: w}
	kw, err := stream.NewKeyedWriter(stop, stream.KeyedWriterOptions{
		Format: format, Key: b.keys.Serializer.Type(), States: metas,
		KeyGroups: b.KeyGroups(), MaxParallelism: b.MaxParallelism(), Compress: o.Compress,
	})
	if err != nil {
		return nil, err
	}
	for g := b.env.First; g < b.env.First+b.env.Count; g++ {
		if err := stop.check(); err != nil {
			return nil, err
		}
		if err := kw.KeyGroup(int32(g)); err != nil {
			return nil, err
		}
		for i, st := range s.states {
			if err := st.Write(kw, i, s.w, g, s.at); err != nil {
				return nil, fmt.Errorf("state %s: %w", metas[i].Name, err)
			}
			if o.Last {
				st.Passed(s.w, g)
			}
		}
	}
	offsets, err := kw.Finish()
	if err != nil {
		return nil, err
	}
	b.metrics.Add(keyed.MetricSnapshotBytes, kw.Size())
	b.metrics.Time(keyed.MetricSnapshotAsync, time.Since(start))
	return &keyed.Written{Offsets: offsets, Bytes: kw.Size(), Format: o.Format, KeyGroups: b.KeyGroups(), States: metas}, nil
}

// Upload implements keyed.Snapshot: the handle is a *metadata.KeyGroupsHandle in
// either format.
func (s *snap[K]) Upload(ctx context.Context, to *snapshot.Writer, opts *keyed.UploadOptions) (metadata.KeyedHandle, error) {
	return keyed.UploadFile(ctx, s, to, opts)
}

// Release implements keyed.Snapshot. It waits for a Write that goes on.
func (s *snap[K]) Release() {
	s.release()
	s.b.untrack(s)
}

func (s *snap[K]) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	s.close()
}

// stopper is a writer that ends with a context or the backend.
type stopper struct {
	ctx    context.Context
	closed func() bool
	w      io.Writer
}

func (s *stopper) check() error {
	if s.closed() {
		return keyed.ErrClosed
	}
	return s.ctx.Err()
}

func (s *stopper) Write(p []byte) (int, error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}
