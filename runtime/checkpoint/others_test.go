package checkpoint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// A job begins with a checkpoint of another job, whose files its own checkpoints name,
// and is killed and started again. Those files stay if the job does not own them, also
// if its journal is lost and an acknowledgement names them once more; and they go in
// the end if it has claimed them.
func TestFilesOfAnotherJob(t *testing.T) {
	for _, mode := range []incremental.RestoreMode{incremental.Legacy, incremental.Claim} {
		t.Run(mode.String(), func(t *testing.T) {
			cfg, store := localConfig(t)
			begin := func(log string) (*fakeJob, func()) {
				l, err := NewLogStore(store, log, nil)
				require.NoError(t, err)
				cfg.Store = l
				j := newFakeJob(t)
				return j, j.start(t, cfg)
			}
			checkpoint := func(j *fakeJob) Result {
				r, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
				require.NoError(t, err)
				return r
			}
			j, stop := begin("their-log")
			j.run(t)
			theirs := checkpoint(j)
			stop()
			var named metadata.StreamHandle
			s, err := j.c.open(t.Context(), theirs.Path)
			require.NoError(t, err)
			for _, h := range s.Checkpoint.StreamHandles() {
				if f, ok := h.(*metadata.FileHandle); ok && strings.Contains(f.Path.Go(), "/shared/") {
					named = f
				}
			}
			require.NotNil(t, named)

			cfg.Job = strings.Repeat("cd", 16)
			cfg.Restore = RestoreSettings{Path: theirs.Path, Mode: mode}
			j, stop = begin("our-log")
			j.named = named
			j.run(t)
			checkpoint(j)
			stop()
			if mode == incremental.Legacy {
				kept := "ckp/" + cfg.Job + "/registry/kept-1-LEGACY"
				require.NoError(t, blobstore.WriteAll(t.Context(), store, kept, []byte("damaged"), &blobstore.WriteOptions{}))
				refused := cfg
				refused.Graph, refused.Tasks = j.graph, j
				_, err := New(t.Context(), refused)
				require.ErrorIs(t, err, incremental.ErrKeptUnknown)
				require.ErrorContains(t, err, kept[len("ckp/"):])
				require.NoError(t, store.Delete(t.Context(), kept))
			}
			j, stop = begin("our-log")
			defer stop()
			j.named = named
			j.run(t)
			second := checkpoint(j)
			j.mu.Lock()
			j.named = nil
			j.mu.Unlock()
			checkpoint(j)
			_, err = j.c.cleaner.Clean(t.Context())
			require.NoError(t, err)
			j.c.Acknowledge(fakeAck(second.ID, j.tasks()[1], 1, named))
			_, err = j.c.History(t.Context()) // it was taken
			require.NoError(t, err)
			_, err = j.c.cleaner.Clean(t.Context())
			require.NoError(t, err)

			if mode == incremental.Claim {
				for _, name := range objects(t, store) {
					require.False(t, strings.HasPrefix(name, "ckp/"+strings.Repeat("ab", 16)), name)
				}
				return
			}
			s, err = j.c.open(t.Context(), theirs.Path)
			require.NoError(t, err)
			report, err := snapshot.Check(t.Context(), s, nil)
			require.NoError(t, err)
			require.True(t, report.Usable, report.Reason)
		})
	}
}
