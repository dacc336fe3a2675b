package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two checkpoints under way: what was sent after the second close waits for both.
func TestGatewayOfTwoCheckpoints(t *testing.T) {
	var g gateway
	ev := func(s string) []byte { return []byte(s) }
	require.True(t, g.send(ev("a")))
	g.mark(1)
	require.True(t, g.send(ev("b")), "the coordinator's state is not taken yet: this belongs to it")
	g.close(1)
	require.False(t, g.send(ev("c")))
	g.mark(2)
	require.False(t, g.send(ev("d")))
	g.close(2)
	require.False(t, g.send(ev("e")))
	require.Nil(t, g.open(2), "the barrier of 1 has not passed")
	require.Equal(t, [][]byte{ev("c"), ev("d"), ev("e")}, g.open(1))
	require.True(t, g.send(ev("f")))
	require.Nil(t, g.open(1), "once more does nothing")
	g.mark(3)
	g.close(3)
	require.False(t, g.send(ev("g")))
	require.Equal(t, 1, g.reset())
	require.True(t, g.send(ev("h")))
}

// The older one ends first: only what waited for it alone may go.
func TestGatewayOpensInOrder(t *testing.T) {
	var g gateway
	g.mark(1)
	g.close(1)
	g.send([]byte("a"))
	g.mark(2)
	g.close(2)
	g.send([]byte("b"))
	require.Equal(t, [][]byte{[]byte("a")}, g.open(1))
	require.False(t, g.send([]byte("c")))
	require.Equal(t, [][]byte{[]byte("b"), []byte("c")}, g.open(2))
}
