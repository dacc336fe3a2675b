package checkpoint

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidemark/tidemark/metadata"
)

// runner is the goroutine of one OperatorCoordinator, with a queue in front of it:
// Flink's OperatorCoordinatorHolder. What it sends goes through the inbox of the
// Coordinator, so that it stays in order with its checkpoints.
type runner struct {
	c           *Coordinator
	op          metadata.OperatorID
	of          OperatorCoordinator
	parallelism int32
	started     bool

	mu    sync.Mutex
	queue []func(OperatorCoordinator) error
	wake  chan struct{}
}

// do queues a call.
func (r *runner) do(f func(OperatorCoordinator) error) {
	r.mu.Lock()
	r.queue = append(r.queue, f)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *runner) run(ctx context.Context) {
	defer func() {
		if err := r.of.Close(); err != nil {
			r.c.log.Warn("the coordinator of an operator did not close", "operator", r.op.String(), "err", err)
		}
	}()
	for {
		r.mu.Lock()
		batch := r.queue
		r.queue = nil
		r.mu.Unlock()
		for _, f := range batch {
			if ctx.Err() != nil {
				return
			}
			if err := f(r.of); err != nil {
				r.Fail(err)
			}
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
	}
}

// checkpoint takes the state. An error of it fails the checkpoint, not the job.
func (r *runner) checkpoint(id int64) {
	r.do(func(o OperatorCoordinator) error {
		data, err := o.Checkpoint(id)
		r.c.event(Event{Kind: EvCoordinator, ID: id, Operator: r.op, Data: data, Err: err})
		return nil
	})
}

// reset gives the coordinator its state back and, the first time, starts it.
func (r *runner) reset(id int64, state []byte) {
	r.do(func(o OperatorCoordinator) error {
		if err := o.Reset(id, state); err != nil || r.started {
			return err
		}
		r.started = true
		return o.Start()
	})
}

// Operator implements CoordinatorContext.
func (r *runner) Operator() metadata.OperatorID { return r.op }

// Parallelism implements CoordinatorContext.
func (r *runner) Parallelism() int32 { return r.parallelism }

// Send implements CoordinatorContext.
func (r *runner) Send(subtask int32, data []byte) {
	r.c.event(Event{Kind: EvSend, Operator: r.op, Subtask: subtask, Data: data})
}

// Fail implements CoordinatorContext.
func (r *runner) Fail(err error) {
	r.c.post(func() {
		r.c.cfg.Tasks.Fail(fmt.Errorf("the coordinator of operator %s: %w", r.c.core.g.operatorName(r.op), err), false)
	})
}

// Backlog implements CoordinatorContext.
func (r *runner) Backlog(on bool) { r.c.event(Event{Kind: EvBacklog, Operator: r.op, On: on}) }
