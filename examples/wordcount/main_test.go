package main

import (
	"bytes"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInterruptedAndRescaled(t *testing.T) {
	want := map[string]int64{}
	const lines = 20_000
	for i := range int64(lines) {
		for _, w := range bytes.Fields([]byte(text(i))) {
			want[string(w)]++
		}
	}
	require.Len(t, want, len(dictionary))
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	// Too slow to end in that time.
	require.Error(t, run(ctx, &out, dir, lines, 5000, 2, false, ""))
	require.NoError(t, run(t.Context(), &out, dir, lines, 0, 3, false, ""))
	for w, n := range want {
		require.Regexp(t, `(?m)^`+w+` +`+strconv.FormatInt(n, 10)+`$`, out.String())
	}
}
