package barrier_test

import (
	"fmt"

	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/event"
)

// Two inputs: the one whose barrier came waits for the other.
func Example() {
	h := barrier.New(barrier.Options{Channels: 2})
	b := event.Barrier{ID: 1, Options: event.Options{Alignment: event.Aligned}}
	for channel := range int32(2) {
		for _, a := range h.Handle(barrier.Event{Kind: barrier.BarrierArrived, Channel: channel, Barrier: b}) {
			fmt.Println(a)
		}
	}
	// Output:
	// block channel 0
	// all barriers of 1 received, alignment 0s, 0 bytes processed in it
	// trigger barrier 1 (checkpoint aligned), start delay 0s
	// unblock all
}
