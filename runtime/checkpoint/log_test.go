package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
)

func newLog(t *testing.T, s blobstore.Store) *LogStore {
	l, err := NewLogStore(s, "job/log", &LogOptions{Backoff: time.Microsecond})
	require.NoError(t, err)
	return l
}

func content(next int64, ids ...int64) Content {
	c := Content{NextID: next, FirstID: 1}
	for _, id := range ids {
		c.Retained = append(c.Retained, Completed{ID: id, Path: fmt.Sprintf("s3://b/a \"b\"/chk-%d/_metadata", id)})
	}
	return c
}

func TestLogStore(t *testing.T) {
	ctx := context.Background()
	store := blobstore.NewMem()
	a := newLog(t, store)
	require.ErrorContains(t, a.Put(ctx, content(1)), "not taken over")
	got, err := a.TakeOver(ctx)
	require.NoError(t, err)
	require.Equal(t, Content{NextID: 1, FirstID: 1}, got)
	for i := int64(1); i <= 40; i++ {
		require.NoError(t, a.Put(ctx, content(i+10, i, i+1)))
	}
	n := 0
	for _, err := range store.List(ctx, nil) {
		require.NoError(t, err)
		n++
	}
	require.LessOrEqual(t, n, deleteAtOnce+2, "old records are deleted")

	b := newLog(t, store)
	got, err = b.TakeOver(ctx)
	require.NoError(t, err)
	require.Equal(t, content(50, 40, 41), got)
	require.ErrorIs(t, a.Put(ctx, content(60, 42)), ErrFenced)
	require.ErrorIs(t, a.Put(ctx, content(60, 42)), ErrFenced)
	for i := int64(1); i <= 40; i++ { // also after b's records were deleted again
		require.NoError(t, b.Put(ctx, content(i+100, i+50)))
	}
	a.err = nil
	require.ErrorIs(t, a.Put(ctx, content(60, 42)), ErrFenced)
	got, err = newLog(t, store).TakeOver(ctx)
	require.NoError(t, err)
	require.Equal(t, content(140, 90), got)
}

// Many take over at the same time and add records until they are fenced: each
// content that somebody was told to be the store's is a successor of the one that
// it was based on.
func TestLogStoreRace(t *testing.T) {
	ctx := context.Background()
	store := blobstore.NewMem()
	var mu sync.Mutex
	based := map[int64]int64{} // new content by its base: nobody else may build on it
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			l := newLog(t, store)
			for range 5 {
				c, err := l.TakeOver(ctx)
				if !errorsOK(t, err) {
					return
				}
				for range 10 {
					next := content(c.NextID + 1)
					if err := l.Put(ctx, next); err != nil {
						if !errors.Is(err, ErrFenced) {
							t.Error(err)
						}
						break
					}
					mu.Lock()
					based[c.NextID]++
					if based[c.NextID] > 1 {
						t.Errorf("two built on %d", c.NextID)
					}
					mu.Unlock()
					c = next
				}
			}
		})
	}
	wg.Wait()
	last, err := newLog(t, store).TakeOver(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(len(based)+1), last.NextID, "nothing that was confirmed is lost")
	require.Greater(t, len(based), 10)
}

func errorsOK(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// A fault at every call, before and after it happened. What Put says is what a
// newcomer finds; in doubt it may find either.
func TestLogStoreFaults(t *testing.T) {
	ctx := context.Background()
	broken := errors.New("broken")
	for _, after := range []bool{false, true} {
		for _, all := range []bool{false, true} {
			for n := 1; ; n++ {
				store := blobstore.NewMem()
				old := newLog(t, store)
				_, err := old.TakeOver(ctx)
				require.NoError(t, err)
				require.NoError(t, old.Put(ctx, content(5, 1)))
				calls := 0
				faults := blobstore.NewFaults(blobstore.Fault{Err: broken, After: after, Name: func(string) bool {
					calls++
					return calls == n || all && calls >= n
				}})
				l := newLog(t, faults.Wrap(store))
				before, err := l.TakeOver(ctx)
				put := errors.New("not tried")
				if err == nil {
					require.Equal(t, content(5, 1), before)
					put = l.Put(ctx, content(9, 2))
				}
				got, err := newLog(t, store).TakeOver(ctx)
				require.NoError(t, err)
				switch {
				case put == nil:
					require.Equal(t, content(9, 2), got)
				case errors.Is(put, ErrInDoubt):
					require.Contains(t, []int64{5, 9}, got.NextID)
				default:
					require.Equal(t, content(5, 1), got, "%v", put)
				}
				if !faults.Fired() {
					require.NoError(t, put)
					break
				}
			}
		}
	}
}

func TestLogRecordDamage(t *testing.T) {
	rec := logRecord{epoch: 3, takeover: true, owner: "ME", Content: content(48, 41, 42)}
	rec.Retained[0].Mode, rec.Retained[0].Savepoint = Claimed, true
	rec.Stopped = "file:/sp/a \"savepoint\"/_metadata"
	rec.Result = JobResult{Status: JobFailed, Error: "two\nlines \"quoted\""}
	data := encodeLog(&rec)
	got, err := decodeLog("x", data)
	require.NoError(t, err)
	require.Equal(t, rec, got)
	for i := range data {
		_, err := decodeLog("job/log/7", data[:i])
		require.ErrorIs(t, err, damage.ErrCorrupt)
		flipped := append([]byte(nil), data...)
		flipped[i] ^= 1
		if got, err := decodeLog("job/log/7", flipped); err == nil {
			require.Equal(t, rec, got, "byte %d", i) // the case of a hex digit
		} else {
			require.ErrorIs(t, err, damage.ErrCorrupt)
			require.True(t, strings.HasPrefix(err.Error(), "job/log/7: byte "), err)
		}
	}
	// It is an error and not skipped.
	ctx := context.Background()
	store := blobstore.NewMem()
	l := newLog(t, store)
	_, err = l.TakeOver(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Put(ctx, content(2, 1)))
	require.NoError(t, blobstore.WriteAll(ctx, store, l.name(l.seq+1), data[:40], nil))
	_, err = newLog(t, store).TakeOver(ctx)
	require.ErrorIs(t, err, damage.ErrCorrupt)
}

func FuzzDecodeLog(f *testing.F) {
	rec := logRecord{epoch: 3, owner: "ME", Content: content(48, 41, 42)}
	f.Add(encodeLog(&rec))
	rec.Stopped = "file:/sp/a/_metadata"
	f.Add(encodeLog(&rec))
	rec.Result = JobResult{Status: JobFinished, Clean: true}
	f.Add(encodeLog(&rec))
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := decodeLog("x", b)
		if err != nil {
			require.ErrorIs(t, err, damage.ErrCorrupt)
			return
		}
		back, err := decodeLog("x", encodeLog(&rec))
		require.NoError(t, err)
		require.Equal(t, rec, back)
	})
}
