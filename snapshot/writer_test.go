package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// writeSnapshot writes a checkpoint of an inline, an exclusive, a shared and a
// task-owned file.
func writeSnapshot(ctx context.Context, pool *blobstore.Pool, layout Layout) (err error) {
	w, err := NewWriter(ctx, pool, layout, &WriterOptions{MemoryThreshold: 100})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Abort(ctx))
		}
	}()
	file := func(scope FileScope, n int) (metadata.StreamHandle, error) {
		f := w.File(ctx, scope)
		defer f.Abort()
		for range n {
			if _, err := f.Write([]byte("0123456789")); err != nil {
				return nil, err
			}
		}
		return f.Close()
	}
	own, err := file(ScopeExclusive, 30)
	if err != nil {
		return err
	}
	c := newCheckpoint(7, own)
	h := c.Operators[0].Subtasks[0].ManagedKeyed.(*metadata.IncrementalHandle)
	for i, n := range []int{10, 11, 40} {
		shared, err := file([]FileScope{ScopeExclusive, ScopeShared, ScopeTaskOwned}[i], n)
		if err != nil {
			return err
		}
		h.Shared = append(h.Shared, metadata.NamedHandle{Name: metadata.String(fmt.Sprintf("%06d.sst", i)), Handle: shared})
	}
	return w.Commit(ctx, c)
}

func (f *fixture) names() (names []string) {
	s, path := f.store("")
	if path != "" {
		path += "/"
	}
	for info, err := range s.List(context.Background(), &blobstore.ListOptions{Prefix: path}) {
		require.NoError(f.t, err)
		names = append(names, info.Name)
	}
	return names
}

func TestWriterLayout(t *testing.T) {
	for _, f := range []*fixture{memFixture(t), localFixture(t)} {
		layout, err := CheckpointLayout(f.loc("ckp"), jobA, 7)
		require.NoError(t, err)
		require.NoError(t, writeSnapshot(t.Context(), f.pool, layout))
		s, err := Open(t.Context(), f.pool, layout.Dir, nil)
		require.NoError(t, err)
		require.Equal(t, RefCheckpoint, s.Kind)
		require.EqualValues(t, 7, s.ID)
		v, err := VerifyAt(t.Context(), f.pool, layout.Dir, nil)
		require.NoError(t, err)
		require.Empty(t, codes(v))
		h := s.Checkpoint.Operators[0].Subtasks[0].ManagedKeyed.(*metadata.IncrementalHandle)
		require.IsType(t, &metadata.RelativeFileHandle{}, h.Meta)
		require.IsType(t, &metadata.ByteStreamHandle{}, h.Shared[0].Handle) // 100 bytes are not above the threshold
		require.IsType(t, &metadata.FileHandle{}, h.Shared[1].Handle)
		require.Contains(t, h.Shared[1].Handle.(*metadata.FileHandle).Path.Go(), ":/")
		require.Contains(t, h.Shared[1].Handle.(*metadata.FileHandle).Path.Go(), "/ckp/"+jobA+"/shared/")
		require.Contains(t, h.Shared[2].Handle.(*metadata.FileHandle).Path.Go(), "/ckp/"+jobA+"/taskowned/")
		// Nothing is overwritten.
		require.ErrorIs(t, writeSnapshot(t.Context(), f.pool, layout), ErrAlreadyThere)

		layout, err = SavepointLayout(f.loc("save"), jobA)
		require.NoError(t, err)
		require.NoError(t, writeSnapshot(t.Context(), f.pool, layout))
		s, err = Open(t.Context(), f.pool, layout.Dir, nil)
		require.NoError(t, err)
		require.Equal(t, RefSavepoint, s.Kind)
		for _, h := range s.Checkpoint.StreamHandles() {
			require.NotEqual(t, metadata.TagFile, h.Tag(), "the files of a savepoint are relative")
		}
	}
}

func TestWriterLayoutNames(t *testing.T) {
	f := memFixture(t)
	_, err := CheckpointLayout(f.root, "job", 1)
	require.ErrorContains(t, err, `"job" is no job ID`)
	_, err = CheckpointLayout(f.root, jobA, -1)
	require.ErrorContains(t, err, "negative")
	_, err = SavepointLayout(f.root, "")
	require.ErrorContains(t, err, "no job ID")
	require.Regexp(t, "^[0-9a-f]{32}$", NewJobID())
	layout, err := SavepointLayout(f.root, jobA)
	require.NoError(t, err)
	require.Equal(t, "aaaaaa", savepointJob(baseName(layout.Dir.Path)))
}

// Each store call fails once, before it happens or when its answer is lost, and is
// cut off by a cancelled context: afterwards the whole snapshot is there, or nothing.
func TestWriterFaults(t *testing.T) {
	for _, answer := range []bool{false, true} {
		for n := 1; ; n++ {
			f := memFixture(t)
			rules := blobstore.NewFaults(blobstore.Fault{Nth: n, Err: errInjected, After: answer})
			pool := blobstore.NewPool(nil, rules.Wrap)
			layout, err := CheckpointLayout(f.loc("ckp"), jobA, 7)
			require.NoError(t, err)
			err = writeSnapshot(t.Context(), pool, layout)
			s, openErr := Open(t.Context(), f.pool, layout.Dir, nil)
			if err == nil {
				require.NoError(t, openErr)
				r, err := Check(t.Context(), s, nil)
				require.NoError(t, err)
				require.Empty(t, r.Reason)
			} else {
				require.ErrorIs(t, err, errInjected)
				require.ErrorIs(t, openErr, ErrNoSnapshot)
				require.Empty(t, f.names(), "fault %d", n)
			}
			if !rules.Fired() {
				require.NoError(t, err)
				require.Greater(t, n, 8)
				break
			}
		}
	}
}

func TestWriterCancelled(t *testing.T) {
	for n := 1; ; n++ {
		f := localFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		rules := blobstore.NewFaults(blobstore.Fault{Nth: n, Hang: true})
		pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return rules.Wrap(s) })
		layout, err := CheckpointLayout(f.loc("ckp"), jobA, 7)
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- writeSnapshot(ctx, pool, layout) }()
		var got error
		for running := true; running; {
			select {
			case got = <-done:
				running = false
			case <-time.After(time.Millisecond):
				if rules.Fired() {
					cancel()
				}
			}
		}
		cancel()
		if !rules.Fired() {
			require.NoError(t, got)
			break
		}
		require.ErrorIs(t, got, context.Canceled)
		require.Empty(t, f.names())
	}
}

// Of two writers of one place one commits, and the other takes nothing of it away.
func TestWriterRace(t *testing.T) {
	f := localFixture(t)
	layout := SavepointIn(f.loc("save"))
	var ws []*Writer
	var cs []*metadata.Checkpoint
	for i := range 2 {
		w, err := NewWriter(t.Context(), f.pool, layout, &WriterOptions{MemoryThreshold: -1})
		require.NoError(t, err)
		file := w.File(t.Context(), ScopeExclusive)
		_, err = file.Write(bytes.Repeat([]byte{byte(i)}, 10+i))
		require.NoError(t, err)
		h, err := file.Close()
		require.NoError(t, err)
		ws, cs = append(ws, w), append(cs, newCheckpoint(int64(i), h))
	}
	require.NoError(t, ws[1].Commit(t.Context(), cs[1]))
	require.ErrorIs(t, ws[0].Commit(t.Context(), cs[0]), ErrAlreadyThere)
	require.NoError(t, ws[0].Abort(t.Context()))
	require.NoError(t, ws[1].Abort(t.Context()))
	v, err := VerifyAt(t.Context(), f.pool, layout.Dir, nil)
	require.NoError(t, err)
	require.Empty(t, codes(v))
	require.Len(t, f.names(), 2)
}

func TestWriterEnds(t *testing.T) {
	f := memFixture(t)
	w, err := NewWriter(t.Context(), f.pool, SavepointIn(f.loc("save")), nil)
	require.NoError(t, err)
	empty := w.File(t.Context(), ScopeExclusive)
	h, err := empty.Close()
	require.NoError(t, err)
	require.Nil(t, h)
	_, err = empty.Close()
	require.ErrorIs(t, err, blobstore.ErrClosed)
	late := w.File(t.Context(), ScopeExclusive)
	_, err = late.Write(make([]byte, DefaultMemoryThreshold+1))
	require.NoError(t, err)
	require.EqualValues(t, DefaultMemoryThreshold+1, late.Size())
	require.NoError(t, w.Abort(t.Context()))
	_, err = late.Close()
	require.ErrorIs(t, err, blobstore.ErrClosed)
	require.ErrorIs(t, w.Commit(t.Context(), newCheckpoint(1, nil)), blobstore.ErrClosed)
	require.Empty(t, strings.Join(f.names(), " "))
}
