package keyedtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// testTwoSources restores two snapshots that declare a state with different types: the
// bytes of one are not taken for the other's, whether or not the state is registered.
func (o Opener) testTwoSources(t *testing.T) {
	for _, format := range []keyed.Format{keyed.FormatCheckpoint, keyed.FormatCanonical} {
		wo := keyed.WriteOptions{Format: format}
		a, b := o.Open(t, keyed.Config[string]{}), o.Open(t, keyed.Config[string]{})
		require.NoError(t, keyed.Value(a, "v", serializer.Int64).Set(a.Key("a"), 1))
		require.NoError(t, keyed.Value(b, "v", serializer.Float64).Set(b.Key("b"), 1))
		from := []keyed.RestoreSource{{Snapshot: Save[string](t, NewStorage(t), wo, a)}, {Snapshot: Save[string](t, NewStorage(t), wo, b)}}
		for _, registered := range []bool{true, false} {
			c := o.Open(t, keyed.Config[string]{})
			if registered {
				keyed.Value(c, "v", serializer.Int64)
			}
			err := c.Restore(t.Context(), from...)
			require.ErrorIs(t, err, keyed.ErrIncompatible)
			require.ErrorContains(t, err, "state v: value")
		}
	}
}

type color int

// Two versions of an enum whose constants have other numbers.
var (
	redGreen = serializer.Enum[color]("com.example.Color", "RED", "GREEN")
	greenRed = serializer.Enum[color]("com.example.Color", "GREEN", "RED")
)

// testRenumbered restores values of an enum whose order changed. Keys of maps and
// namespaces are not migrated, and refused. Of two subtasks only one has registered its
// state when the next checkpoint is taken, so that it has both orders: whoever restores
// both reads the constants that were written, or is refused.
func (o Opener) testRenumbered(t *testing.T) {
	conf := func(first, count int32) keyed.Config[string] {
		return keyed.Config[string]{MaxParallelism: 4, KeyGroups: metadata.KeyGroupRange{Start: first, Count: count}}
	}
	storage := NewStorage(t)
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	var old, halves []keyed.Backend[string]
	for i := range int32(2) {
		b := o.Open(t, conf(2*i, 2))
		v := keyed.Value(b, "v", redGreen)
		m := keyed.Map(b, "m", redGreen, serializer.Int64)
		n := keyed.ValueIn(b, "n", redGreen, serializer.Int64)
		for at, name := range keys {
			if k := b.Key(name); int32(k.Group())/2 == i {
				require.NoError(t, v.Set(k, color(at%2)))
				require.NoError(t, m.Put(k, 1, 5))
				require.NoError(t, n.Set(k, 1, 5))
			}
		}
		old = append(old, b)
	}
	from := keyed.RestoreSource{Snapshot: Save(t, storage, keyed.WriteOptions{}, old...)}

	b := o.Open(t, conf(0, 2))
	require.NoError(t, b.Restore(t.Context(), from))
	keyed.Map(b, "m", greenRed, serializer.Int64)
	require.ErrorIs(t, b.Err(), keyed.ErrIncompatible)
	require.ErrorContains(t, b.Err(), "state m: map key: incompatible")
	b = o.Open(t, conf(0, 2))
	keyed.ValueIn(b, "n", greenRed, serializer.Int64)
	require.ErrorContains(t, b.Restore(t.Context(), from), "state n: namespace: incompatible")

	for i := range int32(2) {
		b := o.Open(t, conf(2*i, 2))
		require.NoError(t, b.Restore(t.Context(), from))
		if i == 0 {
			keyed.Value(b, "v", greenRed)
			require.NoError(t, b.Err())
		}
		halves = append(halves, b)
	}
	from = keyed.RestoreSource{Snapshot: Save(t, storage, keyed.WriteOptions{}, halves...)}
	for _, registered := range []bool{true, false} {
		b := o.Open(t, conf(0, 4))
		var v *keyed.ValueState[string, color]
		if registered {
			v = keyed.Value(b, "v", greenRed)
		}
		err := b.Restore(t.Context(), from)
		if !registered || !o.Incremental {
			require.ErrorIs(t, err, keyed.ErrIncompatible)
			require.ErrorContains(t, err, "state v: subtasks declare it with different types")
			continue
		}
		require.NoError(t, err)
		for at, name := range keys {
			x, ok, err := v.Get(b.Key(name))
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, color(1-at%2), x)
		}
	}
}
