package keyedtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
)

// Run runs all tests but those of goldens and the model.
func (o Opener) Run(t *testing.T) {
	t.Run("restore", o.testRestore)
	t.Run("register", o.testRegister)
	t.Run("incompatible", o.testIncompatible)
	t.Run("foreign key", o.testForeignKey)
	t.Run("closed", o.testClosed)
	t.Run("cancel", o.testCancel)
	t.Run("migration", o.testMigration)
	t.Run("two sources", o.testTwoSources)
	t.Run("renumbered", o.testRenumbered)
	t.Run("concurrent readers", o.testConcurrentReaders)
	t.Run("close while writing", o.testCloseWhileWriting)
}

func sum(a, b int64) int64 { return a + b }

// mean is an aggregator whose accumulator is a sum and a count.
type mean struct{}

type sumCount = serializer.Pair[int64, int64]

func (mean) New() sumCount                    { return sumCount{} }
func (mean) Add(a sumCount, v int64) sumCount { return sumCount{F0: a.F0 + v, F1: a.F1 + 1} }
func (mean) Merge(a, b sumCount) sumCount     { return sumCount{F0: a.F0 + b.F0, F1: a.F1 + b.F1} }
func (mean) Result(a sumCount) float64        { return float64(a.F0) / float64(a.F1) }

// states are one of each kind, of keys of type string.
type states struct {
	value  *keyed.ValueState[string, string]
	list   *keyed.ListStateIn[string, serializer.Window, int64]
	m      *keyed.MapState[string, int64, string]
	red    *keyed.ReducingStateIn[string, string, int64]
	agg    *keyed.AggregatingState[string, int64, sumCount, float64]
	timers *keyed.TimerService[string, serializer.Window]
}

func register(b keyed.Backend[string]) *states {
	return &states{
		value:  keyed.Value(b, "value", serializer.String),
		list:   keyed.ListIn(b, "list", serializer.TimeWindows, serializer.Int64),
		m:      keyed.Map(b, "map", serializer.Int64, serializer.String),
		red:    keyed.ReducingIn(b, "red", sum, serializer.String, serializer.Int64),
		agg:    keyed.Aggregating(b, "agg", mean{}, serializer.Tuple2(serializer.Int64, serializer.Int64)),
		timers: keyed.Timers(b, "user-timers", serializer.TimeWindows),
	}
}

// fill puts something into every state.
func (s *states) fill(t testing.TB, b keyed.Backend[string]) {
	w := serializer.Window{Start: 0, End: 10}
	for _, key := range []string{"alice", "bob", "größe", ""} {
		k := b.Key(key)
		require.NoError(t, s.value.Set(k, "v "+key))
		require.NoError(t, s.list.AddAll(k, w, []int64{1, 2, 0x2c}))
		require.NoError(t, s.list.Add(k, w, 4))
		for u := range int64(100) {
			require.NoError(t, s.m.Put(k, u-50, key))
		}
		require.NoError(t, s.red.Add(k, "x", 3))
		require.NoError(t, s.red.Add(k, "x", 4))
		require.NoError(t, s.agg.Add(k, 3))
		require.NoError(t, s.agg.Add(k, 4))
		_, err := s.timers.Event.Register(k, w, 9)
		require.NoError(t, err)
		_, err = s.timers.Processing.Register(k, w, -5)
		require.NoError(t, err)
	}
}

func (s *states) check(t testing.TB, b keyed.Backend[string]) {
	t.Helper()
	require.NoError(t, b.Err())
	w := serializer.Window{Start: 0, End: 10}
	for _, key := range []string{"alice", "bob", "größe", ""} {
		k := b.Key(key)
		v, ok, err := s.value.Get(k)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "v "+key, v)
		list, err := s.list.Get(k, w)
		require.NoError(t, err)
		require.Equal(t, []int64{1, 2, 0x2c, 4}, list)
		var keys []int64
		require.NoError(t, s.m.Entries(k, func(u int64, v string) bool {
			keys = append(keys, u)
			return v == key
		}))
		require.Len(t, keys, 100)
		require.EqualValues(t, 0, keys[0], "negative numbers sort behind the others, as their bytes do")
		require.EqualValues(t, -50, keys[50])
		r, _, err := s.red.Get(k, "x")
		require.NoError(t, err)
		require.EqualValues(t, 7, r)
		a, _, err := s.agg.Get(k)
		require.NoError(t, err)
		require.EqualValues(t, 3.5, a)
	}
	n, err := s.timers.Event.Len()
	require.NoError(t, err)
	require.Equal(t, 4, n)
	at, ok, err := s.timers.Processing.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, -5, at)
}

// testRestore writes all kinds of state in both formats and reads them back.
func (o Opener) testRestore(t *testing.T) {
	for _, wo := range []keyed.WriteOptions{{}, {Format: keyed.FormatCanonical}, {Compress: true}, {Format: keyed.FormatCanonical, Compress: true}} {
		for _, max := range []int{128, 300} {
			b := o.Open(t, keyed.Config[string]{MaxParallelism: max})
			s := register(b)
			s.fill(t, b)
			s.check(t, b)
			from := keyed.RestoreSource{Snapshot: Save[string](t, NewStorage(t), wo, b)}

			first := o.Open(t, keyed.Config[string]{MaxParallelism: max})
			s = register(first)
			require.NoError(t, first.Restore(t.Context(), from))
			s.check(t, first)

			late := o.Open(t, keyed.Config[string]{MaxParallelism: max})
			require.NoError(t, late.Restore(t.Context(), from))
			// What nobody registers goes on, in either format.
			for _, format := range []keyed.Format{keyed.FormatCanonical, keyed.FormatCheckpoint} {
				sn := Save[string](t, NewStorage(t), keyed.WriteOptions{Format: format}, late)
				again := o.Open(t, keyed.Config[string]{MaxParallelism: max})
				s = register(again)
				require.NoError(t, again.Restore(t.Context(), keyed.RestoreSource{Snapshot: sn}))
				s.check(t, again)
			}
			register(late).check(t, late)
		}
	}
}

// testRegister names what is wrong with a state.
func (o Opener) testRegister(t *testing.T) {
	b := o.Open(t, keyed.Config[string]{})
	keyed.Value(b, "s", serializer.Int64)
	require.NoError(t, b.Err())
	twice := keyed.Value(b, "s", serializer.Int64)
	require.ErrorContains(t, b.Err(), "state s is registered already")
	require.ErrorContains(t, twice.Set(b.Key("a"), 1), "state s is registered already")
	_, err := b.Snapshot(t.Context(), 1)
	require.ErrorContains(t, err, "state s is registered already")

	b = o.Open(t, keyed.Config[string]{})
	require.ErrorContains(t, keyed.List(b, "l", serializer.Int64, keyed.TTL(time.Microsecond)).Clear(b.Key("a")), "less than a millisecond")

	_, err = o.String(t, keyed.Config[string]{})
	require.ErrorContains(t, err, "key serializer")
	_, err = o.String(t, keyed.Config[string]{Key: serializer.String, MaxParallelism: 1 << 16})
	require.ErrorContains(t, err, "max parallelism")
}

// testIncompatible refuses state of another type by name, before anything is read.
func (o Opener) testIncompatible(t *testing.T) {
	b := o.Open(t, keyed.Config[string]{})
	s := keyed.Value(b, "total", serializer.Int64)
	require.NoError(t, s.Set(b.Key("a"), 1))
	from := keyed.RestoreSource{Snapshot: Save[string](t, NewStorage(t), keyed.WriteOptions{}, b)}

	c := o.Open(t, keyed.Config[string]{})
	keyed.Value(c, "total", serializer.String)
	err := c.Restore(t.Context(), from)
	require.ErrorIs(t, err, keyed.ErrIncompatible)
	require.ErrorContains(t, err, "state total: value: incompatible")

	c = o.Open(t, keyed.Config[string]{})
	require.NoError(t, c.Restore(t.Context(), from))
	keyed.List(c, "total", serializer.Int64)
	require.ErrorIs(t, c.Err(), keyed.ErrIncompatible)
	require.ErrorContains(t, c.Err(), "state total: is a value state in the snapshot, registered as list")

	d, err := o.Int64(t, keyed.Config[int64]{Key: serializer.Int64})
	require.NoError(t, err)
	keyed.Value(d, "total", serializer.Int64)
	require.ErrorContains(t, d.Restore(t.Context(), from), "state total: key: incompatible")
	require.NoError(t, d.Close())

	c = o.Open(t, keyed.Config[string]{MaxParallelism: 64})
	require.ErrorContains(t, c.Restore(t.Context(), from), "has max parallelism 128, this backend 64")
}

// testForeignKey refuses keys of another subtask.
func (o Opener) testForeignKey(t *testing.T) {
	c := keyed.Config[string]{}
	c.KeyGroups.Count = 1
	b := o.Open(t, c)
	s := keyed.Value(b, "s", serializer.Int64)
	k := b.Key("alice")
	require.NotZero(t, k.Group())
	var foreign *keyed.KeyGroupError
	require.ErrorAs(t, s.Set(k, 1), &foreign)
	require.Equal(t, k.Group(), foreign.Group)
	_, _, err := s.Get(k)
	require.ErrorAs(t, err, &foreign)
}

// testClosed ends everything with ErrClosed.
func (o Opener) testClosed(t *testing.T) {
	b := o.Open(t, keyed.Config[string]{})
	s := keyed.Value(b, "s", serializer.Int64)
	v, err := b.View()
	require.NoError(t, err)
	snap, err := b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	v.Close()
	_, _, err = s.GetAt(v, b.Key("a"))
	require.ErrorIs(t, err, keyed.ErrClosed)
	require.NoError(t, b.Close())
	_, err = snap.Write(context.Background(), nil, nil)
	require.ErrorIs(t, err, keyed.ErrClosed)
	_, err = b.View()
	require.ErrorIs(t, err, keyed.ErrClosed)
	_, err = b.Snapshot(t.Context(), 2)
	require.ErrorIs(t, err, keyed.ErrClosed)
	snap.Release()
}

// testCancel ends a snapshot with its context.
func (o Opener) testCancel(t *testing.T) {
	b := o.Open(t, keyed.Config[string]{})
	register(b).fill(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	snap, err := b.Snapshot(ctx, 1)
	require.NoError(t, err)
	defer snap.Release()
	cancel()
	_, err = snap.Write(ctx, &failing{}, nil)
	require.ErrorIs(t, err, context.Canceled)
	// The same snapshot can still be written.
	_, err = snap.Write(t.Context(), &failing{errors.New("disk full")}, nil)
	require.ErrorContains(t, err, "snapshot 1: disk full")
	_, err = snap.Write(t.Context(), &failing{}, nil)
	require.NoError(t, err)
}

type failing struct{ err error }

func (f *failing) Write(p []byte) (int, error) { return len(p), f.err }
