package task

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

type declines struct{ list []event.Decline }

func (*declines) Running(event.Task)                                    {}
func (*declines) Ack(event.Ack)                                         {}
func (d *declines) Decline(x event.Decline)                             { d.list = append(d.list, x) }
func (*declines) EndOfData(event.Task)                                  {}
func (*declines) ToCoordinator(event.Task, metadata.OperatorID, []byte) {}

// A checkpoint whose operators cannot be written gives back the buffers that its
// barrier overtook, and nothing of it is left when the last barrier comes.
func TestFailedCheckpointReleasesBuffers(t *testing.T) {
	pool := channel.NewPool(nil)
	p, err := channel.NewPartition(pool, 0, 1, nil)
	require.NoError(t, err)
	broken, owner := errors.New("no place"), &declines{}
	task := New(Descriptor{Owner: owner, Outputs: []OutputDescriptor{{Partition: p}}, Writer: func(event.Barrier) (*snapshot.Writer, error) { return nil, broken }})
	task.ctx = t.Context()
	require.NoError(t, p.End(0, append(p.Begin(0), channel.TagRecord, 'x')))
	require.NoError(t, task.checkpoint(event.Barrier{ID: 1, Options: event.Options{Alignment: event.Unaligned}}, 0))
	task.async.Wait()
	require.Len(t, owner.list, 1)
	require.Contains(t, owner.list[0].Err, broken.Error())
	p.Close()
	require.Zero(t, pool.Usage().InUse)
	task.checkpoints.allReceived(1, 0, 0)
	require.Empty(t, task.checkpoints.byID)
	// Nor of one that was aborted before its first barrier.
	task.NotifyAborted(2)
	task.checkpoints.capture(2)
	require.False(t, task.checkpoints.begin(2))
	task.checkpoints.allReceived(2, 0, 0)
	require.Empty(t, task.checkpoints.byID)
}
