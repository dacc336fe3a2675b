package lsm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/serializer"
)

// countedRows counts the rows that are read.
type countedRows struct {
	engine.Rows
	n int
}

func (c *countedRows) Get(dst, key []byte) ([]byte, bool, error) {
	c.n++
	return c.Rows.Get(dst, key)
}

func (c *countedRows) Scan(from, to []byte, f func(key, value []byte) bool) error {
	return c.Rows.Scan(from, to, func(key, value []byte) bool {
		c.n++
		return f(key, value)
	})
}

// TestSweepOfLargeMap: cleaning up some rows of a map that is larger than what is kept in
// memory does not read all of it, for each of them.
func TestSweepOfLargeMap(t *testing.T) {
	p := NewProcess(&ProcessOptions{MemoryBytes: 64 << 20})
	defer p.Close()
	clock := new(keyed.ManualClock)
	b, err := Open(t.TempDir(), keyed.Config[string]{Key: serializer.String, MaxParallelism: 1, Clock: clock}, &Options{Process: p})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	const entries, count = 20_000, 256
	m := keyed.Map(b, "m", serializer.Int64, serializer.Int64, keyed.WithTTL(keyed.TTLConfig{Duration: time.Second, Background: -1}))
	for i := range int64(entries) {
		require.NoError(t, m.Put(b.Key("a"), i, i))
	}
	snap, err := b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	snap.Release()
	require.NoError(t, b.wait())
	b.states[0].st.Evict(1 << 40)
	require.Zero(t, b.states[0].st.Stats().Entries)
	rows := &countedRows{Rows: b.rows}
	b.env.Rows = rows
	clock.Advance(time.Minute)
	b.CleanUp(count)
	require.LessOrEqual(t, rows.n, 3*count)
	for range entries / count {
		b.CleanUp(count)
	}
	clock.Set(0)
	left := 0
	require.NoError(t, m.Entries(b.Key("a"), func(int64, int64) bool { left++; return true }))
	require.Zero(t, left)
}
