package keyed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimerQueue compares the queue with a sorted list: times near and far, many the
// same, before what was given last, at both ends of time, and removed ones that are
// cleaned up or passed over.
func TestTimerQueue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 60 {
		var q timerQueue[int64, struct{}]
		type node struct {
			at    uint64
			group uint16
			key   int64
		}
		want := map[int64]node{} // by key, which is unique
		dead := 0
		alive := func(n *timerNode[int64, struct{}]) bool { _, ok := want[n.key]; return ok }
		now, next := uint64(1<<63+1_700_000_000_000), int64(0)
		spread := uint64(1) << r.IntN(50)
		edges := r.IntN(2)               // with times before all others, what comes next is always among them
		from, width := uint64(0), spread // many times lie together
		add := func() {
			at := now + from + r.Uint64N(width)
			switch r.IntN(40) + 3*edges {
			case 0:
				at = 0
			case 1:
				at = math.MaxUint64
			case 2:
				at = now - r.Uint64N(spread) // the past
			}
			n := node{at, uint16(r.IntN(8)), next}
			want[next] = n
			q.push(&timerNode[int64, struct{}]{at: n.at, key: next, group: n.group})
			next++
		}
		check := func(pops int) {
			left := make([]node, 0, len(want))
			for _, n := range want {
				left = append(left, n)
			}
			slices.SortFunc(left, func(a, b node) int {
				switch {
				case a.at < b.at || a.at == b.at && a.group < b.group:
					return -1
				case a.at > b.at || a.group > b.group:
					return 1
				}
				return 0
			})
			for i := 0; i < min(pops, len(left)); {
				n := q.peek()
				if n == nil {
					require.True(t, q.fill())
					continue
				}
				if !alive(n) {
					q.pop()
					dead--
					continue
				}
				require.Equal(t, want[n.key], node{n.at, n.group, n.key})
				require.Equal(t, left[i].at, n.at)
				require.Equal(t, left[i].group, n.group)
				if n.at > now && n.at < math.MaxUint64/2+1<<62 {
					now = n.at
				}
				delete(want, n.key)
				q.pop()
				i++
			}
			require.Equal(t, len(want)+dead, q.count)
		}
		for range 1 + r.IntN(30) {
			if from, width = 0, spread; r.IntN(2) == 0 {
				from, width = r.Uint64N(spread), 1+r.Uint64N(1+spread/64)
			}
			for range r.IntN(1 << r.IntN(13)) {
				add()
			}
			for k := range want {
				if r.IntN(3) == 0 {
					delete(want, k)
					dead++
				}
			}
			if r.IntN(2) == 0 {
				dead -= q.clean(r.IntN(5000), alive)
			}
			require.Equal(t, len(want)+dead, q.count)
			check(r.IntN(2000))
		}
		check(len(want))
		require.Empty(t, want)
	}
}

// TestTimersAgain registers and deletes the same timers again and again: what was
// deleted does not pile up.
func TestTimersAgain(t *testing.T) {
	var q timerQueue[int64, struct{}]
	gens, removed, pushed := map[int64]uint16{}, 0, 0
	for round := range uint16(1000) {
		for k := range int64(100) {
			gens[k] = round
			q.push(&timerNode[int64, struct{}]{at: 1<<63 + uint64(k)*1000, key: k, gen: round})
			pushed++
			removed += q.clean(4, func(n *timerNode[int64, struct{}]) bool { return gens[n.key] == n.gen })
		}
	}
	require.Equal(t, pushed-removed, q.count)
	require.Less(t, q.count, 400)
}

// TestTimersBetween: what comes next waits, sorted, and so many timers are added that lie
// behind it and before what was sorted last that they move into the buckets.
func TestTimersBetween(t *testing.T) {
	var q timerQueue[int64, struct{}]
	push := func(at uint64) { q.push(&timerNode[int64, struct{}]{at: 1<<63 + at}) }
	push(1000)
	push(70_000)
	require.Nil(t, q.peek())
	require.True(t, q.fill())
	require.Equal(t, uint64(1<<63+1000), q.peek().at)
	for i := range uint64(3 * nearNodes) {
		push(30_000 + i)
	}
	last := uint64(0)
	for range 3*nearNodes + 2 {
		for q.peek() == nil {
			require.True(t, q.fill())
		}
		require.GreaterOrEqual(t, q.peek().at, last)
		last = q.peek().at
		q.pop()
	}
}
