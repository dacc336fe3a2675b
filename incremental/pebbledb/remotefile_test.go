package pebbledb

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

// oneHangs is a source whose first read ends with its context.
type oneHangs struct {
	sst.Source
	reads int
}

func (s *oneHangs) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if s.reads++; s.reads == 1 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.Source.ReadAt(ctx, p, off)
}

// TestReaderGivesUp: who waits for a request of somebody whose context ends, an upload
// that is aborted say, makes one of its own, and does not learn why the other ended.
func TestReaderGivesUp(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), chunkSize/8)
	for name, c := range map[string]struct {
		cause error // of the end
		place bool  // whether it got one among the transfers
	}{
		"cancelled":                 {context.Canceled, true},
		"failed":                    {errInjected, true},
		"cancelled without a place": {context.Canceled, false},
		"failed without a place":    {errInjected, false},
		"found damage elsewhere":    {damage.ErrCorrupt, false},
	} {
		for _, all := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				p := NewProcess(&ProcessOptions{MemoryBytes: 32 << 20, Transfers: 1})
				t.Cleanup(p.Close)
				synctest.Test(t, func(t *testing.T) {
					src := &oneHangs{Source: sst.Bytes(data)}
					e := sumEntry{Name: "000004.sst", Size: int64(len(data)), Sum: checksum(xxhash.Sum64(data))}
					r := newRemoteFile(t.Context(), p, vfs.NewMem(), "/cache", "table", e, src)
					if !c.place {
						src.reads++
						require.NoError(t, p.transfers.Acquire(t.Context(), 1))
					}
					ctx, end := context.WithCancelCause(t.Context())
					first := make(chan error)
					require.NoError(t, r.use())
					go func() {
						defer r.done()
						_, err := r.readAt(ctx, make([]byte, 10), 0)
						first <- err
					}()
					synctest.Wait()
					second := make(chan error)
					got := make([]byte, len(data))
					go func() {
						if all {
							whole, err := r.fetchAll(t.Context())
							if err == nil && !whole {
								err = errors.New("it is not whole")
							}
							second <- err
							return
						}
						_, err := r.source().ReadAt(t.Context(), got, 0)
						if err == io.EOF || bytes.Equal(got, data) {
							err = nil
						}
						second <- err
					}()
					synctest.Wait()
					end(c.cause)
					require.Error(t, <-first)
					if !c.place {
						p.transfers.Release(1)
					}
					require.NoError(t, <-second)
					require.NoError(t, r.damaged)
				})
			})
		}
	}
}
