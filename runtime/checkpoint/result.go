package checkpoint

import (
	"context"
	"fmt"
	"slices"
)

// JobResult is how a job ended for good, as its Store keeps it: an entry of Flink's
// JobResultStore. It is written before the first checkpoint is discarded, so that a
// job whose process dies while it cleans up does not begin anew, from nothing: who
// comes next finds the result, runs nothing and goes on cleaning up.
type JobResult struct {
	// Status is JobSuspended for a job that has not ended.
	Status JobStatus
	// Error is why it did not finish.
	Error string
	// Clean: nothing is left to be discarded. Flink calls an entry without it dirty.
	Clean bool
}

// Ended says that there is a result.
func (r JobResult) Ended() bool { return r.Status != JobSuspended }

// Result is that which New found in the store. A job that has one must not run: its
// Coordinator is there for Shutdown, with the same status, which ends the clean-up.
func (c *Coordinator) Result() JobResult { return c.found }

// final says whether a job that ended so is over. One that did not finish and whose
// checkpoints are kept can be started again and goes on from them.
func (c *Coordinator) final(s JobStatus) bool {
	return s == JobFinished || s != JobSuspended && slices.Contains(c.core.opts.Discard, s)
}

// record writes the result of the job. Nothing may be discarded if that fails.
func (c *Coordinator) record(ctx context.Context, s JobStatus, cause error) error {
	if c.found.Ended() {
		return nil // it is there
	}
	r := JobResult{Status: s}
	if cause != nil {
		r.Error = cause.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := c.put(ctx, func(s *Content) { s.Result = r }); err != nil {
		return fmt.Errorf("how the job ended cannot be written down, so that its checkpoints are kept and it goes on from them when it is started again: %w", err)
	}
	return nil
}

// recordClean notes that nothing is left.
func (c *Coordinator) recordClean(ctx context.Context) {
	c.contentMu.Lock()
	r := c.content.Result
	c.contentMu.Unlock()
	if !r.Ended() || r.Clean {
		return
	}
	if err := c.put(ctx, func(s *Content) { s.Result.Clean = true }); err != nil {
		c.log.Warn("that the job is cleaned up cannot be written down; whoever starts it again looks once more", "err", err)
	}
}
