package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func linesOf(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	var all []string
	for _, n := range names {
		b, err := os.ReadFile(n)
		require.NoError(t, err)
		if s := strings.TrimSuffix(string(b), "\n"); s != "" {
			all = append(all, strings.Split(s, "\n")...)
		}
	}
	slices.Sort(all)
	return all
}

func TestInterruptedOften(t *testing.T) {
	from, to, dir := t.TempDir(), t.TempDir(), t.TempDir()
	for f := range 5 {
		var b strings.Builder
		for i := range 3000 {
			fmt.Fprintf(&b, "file %d line %d\n", f, i)
		}
		require.NoError(t, os.WriteFile(filepath.Join(from, fmt.Sprintf("f%d", f)), []byte(b.String()), 0o600))
	}
	c := config{job: jobID, from: from, to: to, dir: dir, pause: 15 * time.Millisecond}
	interrupted := 0
	for i := 0; ; i++ {
		require.Less(t, i, 80)
		c.parallelism = 1 + i%3
		// Longer and longer, as each has to come further than the one before on any machine.
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond<<(i/8))
		err := c.run(ctx)
		cancel()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		interrupted++
	}
	t.Log("interrupted", interrupted, "times")
	require.Equal(t, linesOf(t, from, "*"), linesOf(t, to, "part-*"))
	left, err := filepath.Glob(filepath.Join(to, ".part*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
