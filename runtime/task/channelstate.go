package task

import (
	"context"
	"errors"

	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// writeChannels writes the channel state of a checkpoint. That of the inputs belongs
// to the chain's head and that of the outputs to its tail, as in Flink.
func (t *Task) writeChannels(ctx context.Context, capture *channel.Capture, to *snapshot.Writer, states []event.OperatorSubtask, m *event.Metrics) error {
	return errors.ErrUnsupported
}
