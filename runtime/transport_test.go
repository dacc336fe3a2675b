package runtime_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

// joins counts the channels that a transport has made.
type joins struct {
	channel.Transport
	n atomic.Int64
}

type joinedLinks struct {
	channel.Links
	j *joins
}

func (j *joins) Open(o channel.LinkOptions) (channel.Links, error) {
	l, err := j.Transport.Open(o)
	return joinedLinks{l, j}, err
}

func (l joinedLinks) Join(p *channel.Partition, sub int, g *channel.Gate, ch int) error {
	l.j.n.Add(1)
	return l.Links.Join(p, sub, g, ch)
}

// TestOverTCP runs a job whose subtasks are joined by TCP in each barrier mode, with a
// failure after a checkpoint that has data in flight, and goes on from a savepoint at
// another parallelism. The result is the one in memory: each line once.
func TestOverTCP(t *testing.T) {
	for _, m := range []struct {
		name     string
		opts     runtime.Options
		inFlight bool
	}{
		{"aligned", runtime.Options{}, false},
		{"unaligned", runtime.Options{Mode: runtime.Unaligned}, true},
		{"aligned with timeout", runtime.Options{AlignedTimeout: time.Millisecond}, true},
	} {
		t.Run(m.name, func(t *testing.T) {
			const n, keys = 40_000, 100
			to := t.TempDir()
			var fail, fast atomic.Bool
			hook := func(v int64) error {
				if fail.CompareAndSwap(true, false) {
					return errInjected
				}
				switch { // the job must not end before what is done to it here
				case fast.Load():
				case v < n/2:
					time.Sleep(200 * time.Microsecond)
				default:
					time.Sleep(10 * time.Millisecond)
				}
				return nil
			}
			over := &joins{Transport: channel.Loopback{}}
			o := m.opts
			o.Checkpoints, o.Restart, o.Transport = "file://"+filepath.ToSlash(t.TempDir()), fixedDelay(t, 1), over
			o.BufferSize, o.BuffersPerChannel, o.FlushInterval = 1<<10, 2, 5*time.Millisecond
			e, err := runtime.Start(t.Context(), copyJob(n, keys, 2, to, hook), &o)
			require.NoError(t, err)
			taken := func() {
				for deadline := time.Now().Add(time.Minute); ; {
					r := checkpointWhenRunning(t, e)
					h, err := e.History(t.Context())
					require.NoError(t, err)
					if !m.inFlight || h.Find(r.ID).InFlightBytes > 0 {
						return
					}
					require.True(t, time.Now().Before(deadline), "no checkpoint has data in flight")
				}
			}
			taken()
			fail.Store(true)
			for e.Restarts() == 0 {
				time.Sleep(time.Millisecond)
			}
			taken()
			// 4 channels from the sources to the hook and 4 from there on, in two attempts.
			require.EqualValues(t, 16, over.n.Load())
			fast.Store(true)
			var r checkpoint.Result
			o.Restore = ""
			if r, err = e.Stop(t.Context(), event.SavepointCanonical, o.Checkpoints, false); err == nil {
				o.Restore = r.Path
			} else {
				require.NoError(t, e.Wait(), "the job was faster than its stop")
			}
			if o.Restore != "" {
				o.Restart = runtime.NoRestart()
				require.NoError(t, runtime.Run(t.Context(), copyJob(n, keys, 3, to, nil), &o))
				require.EqualValues(t, 16+18, over.n.Load())
			}
			requireCounts(t, readLines(t, to), n, keys)
		})
	}
}
