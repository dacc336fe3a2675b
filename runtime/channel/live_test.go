package channel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// TestLive is TestPlane with a goroutine for each task and for each asynchronous part,
// in memory and over TCP: for the race detector, and for what only happens then.
func TestLive(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		for _, o := range []event.Options{{Alignment: event.Aligned}, {Alignment: event.Unaligned}, {Alignment: event.Aligned, AlignedTimeout: time.Nanosecond}} {
			t.Run(fmt.Sprintf("tcp=%v/%s", tcp, o), func(t *testing.T) { live(t, tcp, o) })
		}
	}
}

type wrote struct {
	st  *State
	err error
}

func live(t *testing.T, tcp bool, o event.Options) {
	const writers, readers, checkpoints, every = 2, 3, 6, 1500
	pl := newPlane(t, writers, readers, 256, false)
	var conns []*Conn
	var server *Server
	if tcp {
		var err error
		server, err = Listen("127.0.0.1:0")
		require.NoError(t, err)
		for _, r := range pl.readers {
			for k, w := range pl.writers {
				name := fmt.Sprint(k, r.index)
				require.NoError(t, server.Offer(name, w.p, r.index, func(err error) { t.Error(err) }))
				c, err := Dial(t.Context(), server.Addr(), name, pl.pool, r.g, k, &DialOptions{Buffers: 3})
				require.NoError(t, err)
				conns = append(conns, c)
			}
		}
	}
	// A snapshot for each checkpoint, written while it goes on.
	snapshots := map[int64]*snapshot.Writer{}
	pools := map[int64]*blobstore.Pool{}
	for id := int64(1); id <= checkpoints; id++ {
		snapshots[id], pools[id] = newSnapshot(t, id, -1)
	}
	var mu sync.Mutex
	results := map[*Capture]chan wrote{}
	pl.begun = func(c *Capture, subtask int) {
		done := make(chan wrote, 1)
		mu.Lock()
		results[c] = done
		mu.Unlock()
		go func() {
			st, err := c.Write(context.Background(), snapshots[c.ID()], int32(subtask))
			done <- wrote{st, err}
		}()
	}
	pl.write = func(c *Capture, _ *snapshot.Writer, _ int) (*State, error) {
		w := <-results[c]
		return w.st, w.err
	}
	var tasks sync.WaitGroup
	for _, w := range pl.writers {
		tasks.Go(func() {
			for id := int64(1); id <= checkpoints; id++ {
				for range every {
					w.write(t)
				}
				pl.barrier(w, event.Barrier{ID: id, Options: o})
				if o.Timeoutable() {
					w.p.AlignedBarrierTimeout(id)
				}
			}
			w.p.Flush()
			w.p.Emit(Event{Kind: EndOfPartition}, false)
			require.NoError(t, w.p.Drained(context.Background()))
		})
	}
	for _, r := range pl.readers {
		tasks.Go(func() {
			wake := make(chan struct{}, 1)
			for n := 0; !r.g.Ended(); n++ {
				if pl.step(r, 7) {
					if n%50 == 0 {
						time.Sleep(50 * time.Microsecond) // so that something is in flight
					}
					continue
				}
				if r.g.Await(func() {
					select {
					case wake <- struct{}{}:
					default:
					}
				}) {
					<-wake
				}
			}
		})
	}
	tasks.Wait()
	kinds := map[string]int{}
	for id := int64(1); id <= checkpoints; id++ {
		complete := true
		for _, r := range pl.readers {
			complete = complete && r.done[id] && !r.aborted[id]
		}
		if complete {
			kinds["complete"]++
			pl.check(id, snapshots[id], pools[id], writers, readers+1, kinds)
			continue
		}
		// Captures of a reader that never heard of it in time do not exist; the others
		// were aborted, but for those of the writers.
		for _, w := range pl.writers {
			w.capture[id].Abort(errors.New("aborted"))
			_, err := pl.write(w.capture[id], nil, 0)
			_ = err // complete or aborted
		}
		for _, r := range pl.readers {
			if c := r.capture[id]; c != nil {
				c.Abort(errors.New("aborted"))
				<-results[c]
			}
		}
		require.NoError(t, snapshots[id].Abort(t.Context()))
	}
	require.NotZero(t, kinds["complete"], "no checkpoint was completed")
	t.Log(kinds)
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	if server != nil {
		require.NoError(t, server.Close())
	}
	for _, p := range pools {
		require.NoError(t, p.Close())
	}
	pl.close()
}
