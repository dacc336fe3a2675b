//go:build integration

package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/tidemark/tidemark/internal/flinkverify"
)

// TestARealFlinkGoesOn runs the job in legs, by turns here and in a real Flink, each
// of which goes on from the snapshot with which the one before ended, also at more
// parallelism. What they have written together is what the model says, each line once.
// CHAINS is a number of random chains to run beside those that are always run, SEED
// where they begin.
func TestARealFlinkGoesOn(t *testing.T) {
	for _, version := range flinkverify.Versions() {
		t.Run(version, func(t *testing.T) {
			flink := flinkverify.Start(t, version)
			for _, c := range append(chains(), randomChains(t)...) {
				t.Run(c.String(), func(t *testing.T) { c.run(t, flink, false) })
			}
			for _, c := range flatChains() {
				t.Run("flat, "+c.String(), func(t *testing.T) { c.run(t, flink, true) })
			}
			t.Logf("Flink %s passed %d commands", version, flink.Done)
		})
	}
}

// runFlink is a leg in Flink.
func (l leg) runFlink(t *testing.T, flink *flinkverify.Flink, x exchange) {
	t.Helper()
	args := fmt.Sprintf("pipeline %s --results %s --numbers %d --parallelism %d --backend %s --pace %d", x.from, x.results, numbers, l.parallelism, l.backend, rate/1000)
	if x.flat {
		args += " --flat"
	}
	if l.end == "" {
		flink.Pass(t, "%s", args)
		return
	}
	args += fmt.Sprintf(" --out %s --stop-at %d", x.to, x.stopAt)
	switch l.end {
	case "canonical", "native":
		args += " --stop --snapshot " + l.end
	case "checkpoint":
		args += " --snapshot checkpoint"
	case "incremental":
		args += " --snapshot checkpoint --incremental --conf execution.checkpointing.data-inline-threshold=0"
	case "unaligned":
		args += fmt.Sprintf(" --snapshot checkpoint --unaligned --slow %d", l.slow(x).Milliseconds())
	}
	flink.Pass(t, "%s", args)
}
