// Package runtime runs jobs in one process: it makes tasks of a stream.Job, runs
// them, takes checkpoints, and restarts them from the newest one after a failure.
//
//	err := runtime.Run(ctx, job, &runtime.Options{
//		Checkpoints: "file:///var/checkpoints",
//		Interval:    time.Second,
//	})
//
// Execution is the JobMaster: one goroutine that owns the state of the job. It
// drives the state machine of package checkpoint, which decides about checkpoints,
// and hands triggers and events to the tasks. Each task is a goroutine of its own.
// docs/design/runtime.md tells how the parts fit together.
package runtime
