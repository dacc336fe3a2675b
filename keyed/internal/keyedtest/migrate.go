package keyedtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
)

// orderV1 and orderV2 are two versions of one Java class.
type orderV1 struct {
	_     struct{} `flink:"pojo=com.example.Order"`
	ID    int64    `flink:"id"`
	Color string   `flink:"color"`
	Old   []string `flink:"old"`
}

type orderV2 struct {
	_     struct{} `flink:"pojo=com.example.Order"`
	ID    int64    `flink:"id"`
	Color string   `flink:"color"`
	Note  *string  `flink:"note"`
	Count int32    `flink:"count"`
}

type orderV3 struct {
	_  struct{} `flink:"pojo=com.example.Order"`
	ID string   `flink:"id"`
}

// testMigration reads values, elements and entries of a class that lost a field and
// got two, before and after they are registered, with TTL and without.
func (o Opener) testMigration(t *testing.T) {
	clock := &keyed.ManualClock{}
	clock.Set(500)
	ttl := keyed.TTL(time.Second)
	conf := keyed.Config[string]{Clock: clock}
	b := o.Open(t, conf)
	v1 := orderV1{ID: 7, Color: "red", Old: []string{"x"}}
	s1 := serializer.MustOf[orderV1]()
	k := b.Key("a")
	require.NoError(t, keyed.Value(b, "value", s1).Set(k, v1))
	require.NoError(t, keyed.List(b, "list", s1).AddAll(k, []orderV1{v1, v1}))
	require.NoError(t, keyed.Map(b, "map", serializer.String, s1).Put(k, "u", v1))
	require.NoError(t, keyed.Value(b, "ttl", s1, ttl).Set(k, v1))

	want := orderV2{ID: 7, Color: "red"}
	s2 := serializer.MustOf[orderV2]()
	for _, wo := range []keyed.WriteOptions{{}, {Format: keyed.FormatCanonical}} {
		from := keyed.RestoreSource{Snapshot: Save[string](t, NewStorage(t), wo, b)}
		for _, first := range []bool{true, false} {
			c := o.Open(t, conf)
			if !first {
				require.NoError(t, c.Restore(t.Context(), from))
			}
			value, list := keyed.Value(c, "value", s2), keyed.List(c, "list", s2)
			m, expiring := keyed.Map(c, "map", serializer.String, s2), keyed.Value(c, "ttl", s2, ttl)
			if first {
				require.NoError(t, c.Restore(t.Context(), from))
			}
			require.NoError(t, c.Err())
			v, _, err := value.Get(k)
			require.NoError(t, err)
			require.Equal(t, want, v)
			l, err := list.Get(k)
			require.NoError(t, err)
			require.Equal(t, []orderV2{want, want}, l)
			v, _, err = m.Get(k, "u")
			require.NoError(t, err)
			require.Equal(t, want, v)
			v, _, err = expiring.Get(k)
			require.NoError(t, err)
			require.Equal(t, want, v)
			clock.Set(1500) // the time of the value came along
			_, ok, err := expiring.Get(k)
			require.NoError(t, err)
			require.False(t, ok)
			clock.Set(500)
		}
		c := o.Open(t, conf)
		keyed.Value(c, "value", serializer.MustOf[orderV3]())
		err := c.Restore(t.Context(), from)
		require.ErrorIs(t, err, keyed.ErrIncompatible)
		require.ErrorContains(t, err, "state value: value: incompatible: field id")

		c = o.Open(t, conf)
		keyed.Value(c, "value", s2, ttl)
		require.ErrorContains(t, c.Restore(t.Context(), from), "state value: value: incompatible")
	}
}
