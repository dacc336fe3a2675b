package channel_test

import (
	"fmt"

	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/serializer"
)

// A partition and a gate in one process: records in a buffer, and a barrier behind
// them.
func Example() {
	pool := channel.NewPool(nil)
	p, err := channel.NewPartition(pool, 0, 1, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	g := channel.NewGate(0, 1)
	channel.Connect(p, 0, g, 0)

	for i, word := range []string{"to", "be"} {
		b := channel.AppendTimestamp(p.Begin(0), int64(i))
		if err := p.End(0, serializer.String.Append(b, word)); err != nil {
			fmt.Println(err)
			return
		}
	}
	p.EmitBarrier(event.Barrier{ID: 1, Options: event.Options{Alignment: event.Aligned}}, nil)
	p.Emit(channel.Event{Kind: channel.EndOfPartition}, false)

	for !g.Ended() {
		it, ok, err := g.Poll()
		if err != nil || !ok {
			fmt.Println(ok, err)
			return
		}
		if it.Event != nil {
			fmt.Println(it.Event)
			continue
		}
		for e, ok := it.Records.Next(); ok; e, ok = it.Records.Next() {
			word, _, err := serializer.String.Read(e[9:]) // behind the tag and the timestamp
			fmt.Println(word, err)
		}
	}
	g.Close()
	p.Close()
	// Output:
	// to <nil>
	// be <nil>
	// barrier 1 (checkpoint aligned)
	// end of partition
}
