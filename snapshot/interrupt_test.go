package snapshot_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
)

// vague is a store whose errors do not say that the context ended.
type vague struct{ blobstore.Store }

func (s vague) OpenRange(ctx context.Context, name string, off, n int64) (blobstore.Reader, error) {
	if ctx.Err() != nil {
		return nil, errors.New("connection reset by peer")
	}
	return s.Store.OpenRange(ctx, name, off, n)
}

// What an interrupt leaves unread is no problem of the snapshot.
func TestInterruptIsNoProblem(t *testing.T) {
	c := testdata.Golden(t, "f230-rocksdb-native")
	pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return vague{s} })
	defer pool.Close()
	loc, err := blobstore.Parse(c.File(c.Snapshot))
	require.NoError(t, err)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	for stopAfter := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		opts := &snapshot.ScanOptions{Workers: 1, OnProblem: func(p *snapshot.ScanProblem) { t.Errorf("after %d rows: %v", stopAfter, p) }}
		n := 0
		err := snapshot.Scan(ctx, s, opts, func(int) func(*snapshot.StateRow) error {
			return func(*snapshot.StateRow) error {
				if n++; n > stopAfter {
					cancel()
				}
				return nil
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		cancel()
	}
	// Nor is what a consumer that has had enough leaves.
	for range 20 {
		opts := &snapshot.ScanOptions{OnProblem: func(p *snapshot.ScanProblem) { t.Errorf("after the first row: %v", p) }}
		for _, err := range snapshot.Rows(t.Context(), s, opts) {
			require.NoError(t, err)
			break
		}
	}
}
