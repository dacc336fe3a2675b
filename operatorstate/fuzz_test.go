package operatorstate_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
)

// FuzzOpen changes a file and two of the offsets that its handle lists. Errors are
// damage, and what opens can be registered and written again.
func FuzzOpen(f *testing.F) {
	b := operatorstate.New()
	l, err := operatorstate.List(b, "l", serializer.String)
	require.NoError(f, err)
	l.Append("a", "bb")
	bc, err := operatorstate.Broadcast(b, "b", serializer.String, serializer.Int64)
	require.NoError(f, err)
	bc.Put("k", 1)
	add := func(h *metadata.OperatorHandle, data []byte) {
		f.Add(data, h.States[0].Name.Go(), uint8(h.States[0].Mode), first(h.States[0].Offsets), first(h.States[len(h.States)-1].Offsets))
	}
	for _, compress := range []bool{false, true} {
		h := write(f, b.Snapshot(), &operatorstate.WriteOptions{Compress: compress})
		add(h, h.Delegate.(*metadata.ByteStreamHandle).Data)
	}
	c := testdata.Golden(f, "f120-operator-p3")
	s := openSnapshot(f, c.File(c.Snapshot))
	for i := range s.Checkpoint.Operators {
		for k := range s.Checkpoint.Operators[i].Subtasks {
			h := s.Checkpoint.Operators[i].Subtasks[k].ManagedOperator
			if h == nil || len(h.States) == 0 {
				continue
			}
			if file, ok := h.Delegate.(*metadata.RelativeFileHandle); ok {
				data, err := os.ReadFile(c.File(c.Snapshot + "/" + file.Path.Go()))
				require.NoError(f, err)
				add(h, data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, name string, mode uint8, one, two int64) {
		states := []metadata.NamedPartitions{{Name: metadata.String(name), Mode: metadata.DistributionMode(mode), Offsets: []int64{one, two}}}
		h := &metadata.OperatorHandle{States: states, Delegate: &metadata.ByteStreamHandle{Data: data}}
		b, err := operatorstate.Open(context.Background(), inline{}, []operatorstate.Part{{Handle: h, States: states}})
		if err != nil {
			var unknown *serializer.UnknownError
			if !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, damage.ErrUnsupportedVersion) && !errors.As(err, &unknown) {
				t.Fatal(err)
			}
			return
		}
		snap := b.Snapshot()
		for _, m := range b.Restored() {
			if m.Kind != serializer.Broadcast {
				operatorstate.List(b, m.Name, serializer.Dynamic(m.Value()))
			} else {
				operatorstate.Broadcast(b, m.Name, serializer.String, serializer.Int64)
			}
		}
		var out memory
		snap.WriteTo(context.Background(), &out, nil)
	})
}

func first(offsets []int64) int64 {
	if len(offsets) == 0 {
		return 0
	}
	return offsets[0]
}
