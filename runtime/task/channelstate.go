package task

import (
	"context"

	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// writeChannels writes the channel state of a checkpoint. That of the inputs belongs
// to the chain's head and that of the outputs to its tail, as in Flink.
func (t *Task) writeChannels(ctx context.Context, capture *channel.Capture, to *snapshot.Writer, states []event.OperatorSubtask, m *event.Metrics) error {
	cs, err := capture.Write(ctx, to, t.d.Task.Subtask)
	if err != nil || cs == nil {
		return err
	}
	in, out := states[0].State, states[len(states)-1].State
	in.InputChannels = append(in.InputChannels, cs.Inputs...)
	out.OutputChannels = append(out.OutputChannels, cs.Outputs...)
	m.BytesPersistedDuringAlignment = cs.Bytes
	m.BytesPersisted += cs.Bytes
	return nil
}

// recoverChannels makes the gates give what was in flight when the restored snapshot
// was taken, before anything new.
func (t *Task) recoverChannels() error {
	gates := make([]*channel.Gate, 0, len(t.inputs))
	for _, in := range t.inputs {
		gates = append(gates, in.Gate)
		if in.Recovery == nil {
			continue
		}
		var keep func(element []byte) (bool, error)
		if group := in.Codec.keyGroup(t.d.MaxParallelism); group != nil {
			first, last := serializer.KeyGroupRange(int(t.d.Task.Subtask), t.d.Parallelism, t.d.MaxParallelism)
			keep = func(element []byte) (bool, error) {
				g, err := group(element)
				return g < 0 || g >= first && g <= last, err
			}
		}
		if err := in.Gate.Recover(t.ctx, in.Recovery, keep); err != nil {
			return err
		}
	}
	if len(gates) > 1 {
		channel.NewRecoveryGroup(gates...)
	}
	return nil
}
