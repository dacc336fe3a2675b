package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/snapshot"
)

func alerts(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "part-*"))
	require.NoError(t, err)
	var all []string
	for _, n := range names {
		b, err := os.ReadFile(n)
		require.NoError(t, err)
		all = append(all, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
	}
	slices.Sort(all)
	return all
}

// model is what the detector finds with all rules from the start.
func model(n int64) (list []string) {
	type seen struct {
		cents, at int64
		n         int
	}
	accounts := map[string]*seen{}
	final := map[string]Rule{}
	for _, r := range rules {
		final[r.Name] = r
	}
	for i := range n {
		t := transaction(i)
		a := accounts[t.Account]
		if a == nil {
			a = &seen{at: -1 << 62}
			accounts[t.Account] = a
		}
		a.n++
		for _, r := range final {
			if t.Millis < a.at+soon.Milliseconds() && a.cents <= r.Small && t.Cents >= r.Large {
				list = append(list, t.Account+" "+r.Name)
			}
		}
		if t.Cents <= 500 {
			a.cents, a.at = t.Cents, t.Millis
		}
	}
	return list
}

func TestAlertsAreExactAfterInterruptions(t *testing.T) {
	to, dir := t.TempDir(), t.TempDir()
	c := config{to: to, dir: dir, transactions: 60_000}
	for i := 0; ; i++ {
		require.Less(t, i, 80)
		// The rules come beside the transactions, of which there are hardly any before.
		if c.rate = 40_000; !rulesKnown(t, dir) {
			c.rate = 0.001
		}
		c.parallelism = 1 + i%3
		// Longer and longer, as each has to come further than the one before on any machine.
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond<<(i/8))
		err := c.run(ctx)
		cancel()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	got := alerts(t, to)
	require.Equal(t, slices.Compact(slices.Clone(got)), got, "an alert is there twice")
	want := model(c.transactions)
	require.NotEmpty(t, want)
	require.Len(t, got, len(want))
}

// rulesKnown says whether the last checkpoint has all rules.
func rulesKnown(t *testing.T, dir string) bool {
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	loc, err := blobstore.Parse("file://" + filepath.ToSlash(dir))
	require.NoError(t, err)
	last, err := snapshot.Latest(t.Context(), pool, loc, nil)
	if errors.Is(err, snapshot.ErrNoSnapshot) {
		return false
	}
	require.NoError(t, err)
	known := ""
	for r, err := range snapshot.Rows(t.Context(), last.Snapshot, nil) {
		require.NoError(t, err)
		if r.State.Name == ruleState.Name {
			b, _ := r.AppendJSON(nil)
			known += string(b)
		}
	}
	for _, r := range rules[1:] { // the first is replaced
		if !strings.Contains(known, fmt.Sprint(r.Large)) {
			return false
		}
	}
	return true
}
