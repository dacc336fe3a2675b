package barrier

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime/event"
)

// TestStories runs testdata/*.story: events, one by one, and the actions that each
// leads to.
//
//	new channels=N [at-least-once]
//	barrier channel=C id=N [alignment=A] [timeout=T] [rpc]
//	announce channel=C id=N timeout=T
//	cancel channel=C id=N
//	end channel=C
//	timer id=N
//	process bytes=N
//	clock at=T
//
// Checkpoint N is triggered by the coordinator at N seconds.
func TestStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.story")
	require.NoError(t, err)
	require.NotEmpty(t, stories)
	for _, path := range stories {
		var h *Handler
		var now time.Duration
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var channel int32
			var id, n int64
			var timeout string
			alignment := "aligned"
			d.MaybeScanArgs(t, "channel", &channel)
			d.MaybeScanArgs(t, "id", &id)
			d.MaybeScanArgs(t, "timeout", &timeout)
			d.MaybeScanArgs(t, "alignment", &alignment)
			b := event.Barrier{ID: id, Timestamp: id * 1000}
			switch alignment {
			case "aligned":
				b.Options.Alignment = event.Aligned
			case "unaligned":
				b.Options.Alignment = event.Unaligned
			case "forced":
				b.Options.Alignment = event.ForcedAligned
			case "at-least-once":
				b.Options.Alignment = event.AtLeastOnce
			default:
				d.Fatalf(t, "no alignment %s", alignment)
			}
			if timeout != "" {
				v, err := time.ParseDuration(timeout)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				b.Options.AlignedTimeout = v
			}
			ev := Event{Channel: channel, At: int64(now), ID: id, Barrier: b, RPC: d.HasArg("rpc")}
			switch d.Cmd {
			case "new":
				var channels int
				d.ScanArgs(t, "channels", &channels)
				h, now = New(Options{Channels: channels, AtLeastOnce: d.HasArg("at-least-once")}), 0
				return ""
			case "clock":
				var at string
				d.ScanArgs(t, "at", &at)
				v, err := time.ParseDuration(at)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				now = v
				return ""
			case "process":
				d.ScanArgs(t, "bytes", &n)
				h.AddProcessedBytes(int(n))
				return ""
			case "barrier":
				ev.Kind = BarrierArrived
			case "announce":
				ev.Kind = Announced
			case "cancel":
				ev.Kind = Cancelled
			case "end":
				ev.Kind = EndOfPartition
			case "timer":
				ev.Kind = TimerFired
			default:
				d.Fatalf(t, "no command %s", d.Cmd)
			}
			var out strings.Builder
			for _, a := range h.Handle(ev) {
				fmt.Fprintln(&out, a)
			}
			if out.Len() == 0 {
				return "nothing\n"
			}
			return out.String()
		})
	}
}
