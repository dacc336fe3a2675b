package task

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/mailbox"
)

// checkpoints are those that the task takes part in, until they are written: Flink's
// SubtaskCheckpointCoordinatorImpl.
type checkpoints struct {
	mu   sync.Mutex
	byID map[int64]*running
	// aborted are those whose abortion came before their barrier; the newest, and
	// those above what was taken.
	aborted map[int64]bool
	last    int64 // the newest that was taken or aborted by a barrier
}

// running is a checkpoint of the task.
type running struct {
	id        int64
	cancel    context.CancelCauseFunc
	capture   *channel.Capture
	received  bool
	alignment int64 // ms
	bytes     int64
}

func (c *checkpoints) init() { c.byID, c.aborted = map[int64]*running{}, map[int64]bool{} }

func (c *checkpoints) get(id int64) *running {
	r := c.byID[id]
	if r == nil {
		r = &running{id: id, alignment: -1}
		c.byID[id] = r
	}
	return r
}

// capture is that of the channel state of a checkpoint.
func (c *checkpoints) capture(id int64) *channel.Capture {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.get(id)
	if r.capture == nil {
		r.capture = channel.NewCapture(id)
	}
	return r.capture
}

func (c *checkpoints) allReceived(id, alignment, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id <= c.last && c.byID[id] == nil {
		return // it was taken, and has come to nothing
	}
	r := c.get(id)
	r.received, r.alignment, r.bytes = true, alignment, bytes
	if r.capture != nil {
		r.capture.InputsDone()
	}
}

// abort ends what is written for a checkpoint, or will be.
func (c *checkpoints) abort(id int64, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.byID[id]; r != nil {
		r.stop(cause)
		delete(c.byID, id)
	}
	if id > c.last {
		c.aborted[id] = true
	}
}

var errTaskFinished = errors.New("the task had finished before")

var errAborted = errors.New("the checkpoint was aborted")

func (r *running) stop(cause error) {
	if r.capture != nil {
		r.capture.Abort(cause)
	}
	if r.cancel != nil {
		r.cancel(cause)
	}
}

func (c *checkpoints) abortAll(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.byID {
		r.stop(cause)
	}
	clear(c.byID)
}

// isAborted says that a checkpoint was aborted and its barrier has not come.
func (c *checkpoints) isAborted(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aborted[id]
}

// begin says whether a checkpoint is to be taken: not if it was aborted before its
// barrier came.
func (c *checkpoints) begin(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.aborted[id]
	if r := c.byID[id]; gone && r != nil { // what an input brought of it meanwhile
		r.stop(errAborted)
		delete(c.byID, id)
	}
	for k := range c.aborted {
		if k <= id {
			delete(c.aborted, k)
		}
	}
	c.last = max(c.last, id)
	return !gone
}

func (c *checkpoints) done(id int64) (r running) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.byID[id]; p != nil {
		r = *p
		delete(c.byID, id)
	}
	return r
}

// alarm is Timers.At for the task itself, which has no operator's end.
func (s *timerService) alarm(millis int64, f func() error) (stop func()) {
	stopped := false
	cancel := s.clock.AfterFunc(s.until(millis), func() {
		(*Task)(s).execute(func() error {
			if stopped {
				return nil
			}
			return f()
		})
	})
	return func() {
		stopped = true
		cancel()
	}
}

// Trigger puts a checkpoint mail: for sources, and for tasks in front of which all
// have finished. What cannot be taken is declined.
func (t *Task) Trigger(b event.Barrier) {
	err := t.mail.Put(mailbox.Mail{Name: fmt.Sprintf("checkpoint %d", b.ID), Run: func() error { return t.triggered(b) }})
	if err != nil {
		t.d.Owner.Decline(event.Decline{ID: b.ID, Task: t.d.Task, Reason: event.DeclinedTaskClosing, Err: err.Error()})
	}
}

// triggered is the checkpoint mail.
func (t *Task) triggered(b event.Barrier) error {
	delay := time.Duration(max(0, t.clock.Millis()-b.Timestamp)) * time.Millisecond
	if t.handler == nil {
		if b.Options.Post == event.Terminate && !t.finished && !t.checkpoints.isAborted(b.ID) {
			t.stopping, t.draining = b.ID, b.ID // the end has to wait for the savepoint
			if err := t.endOfData(t.mail.Controller(), true); err != nil {
				return err
			}
		}
		return t.checkpoint(b, delay)
	}
	if t.handler.Open() == 0 {
		return t.checkpoint(b, delay)
	}
	for i := range t.inputs {
		for ch := range t.inputs[i].Gate.Channels() {
			if err := t.handle(barrier.Event{Kind: barrier.BarrierArrived, Channel: int32(t.bases[i] + ch), Barrier: b, RPC: true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpoint takes the task's snapshot: Flink's performCheckpoint. No record is
// processed meanwhile.
func (t *Task) checkpoint(b event.Barrier, startDelay time.Duration) error {
	start := time.Now()
	if !t.checkpoints.begin(b.ID) {
		// It was aborted already; those behind must not wait for it.
		for _, o := range t.d.Outputs {
			o.Partition.Emit(channel.Event{Kind: channel.Cancel, ID: b.ID}, false)
		}
		return nil
	}
	if !t.finished {
		for i := range t.chain {
			if err := t.chain[i].op.PrepareBarrier(b.ID); err != nil {
				return fmt.Errorf("operator %s: before the barrier of checkpoint %d: %w", t.d.Operators[i].Name, b.ID, err)
			}
		}
	}
	// The barrier says which checkpoint is complete: the notification may come later.
	for i := range t.live() {
		if k := t.chain[i].env.slot.keyed; k != nil && b.Base > 0 {
			k.Confirmed(b.Base)
		}
	}
	capture := t.emitBarrier(b)
	if t.d.FinishedBefore && capture != nil {
		// It has no state. Whoever is started from the checkpoint says the same again.
		capture.Abort(errTaskFinished)
		capture = nil
	}
	if t.finished && t.finalAt == 0 {
		t.finalAt = b.ID
	}
	if b.Options.Post != event.None {
		t.stopping = b.ID
	}
	// The last operator first, so that what an operator sends in its snapshot is not in
	// the state of one behind it.
	parts := make([]*frozen, len(t.chain))
	for i := len(t.chain) - 1; i >= 0; i-- {
		if t.d.FinishedBefore {
			parts[i] = &frozen{place: t.chain[i].env.Place, groups: t.chain[i].env.KeyGroups(), raw: &Snapshotting{}}
			continue
		}
		f, err := freeze(t.ctx, t.chain[i].op, t.chain[i].env, b)
		if err != nil {
			for _, p := range parts {
				if p != nil {
					p.release()
				}
			}
			return t.failedSnapshot(b, fmt.Errorf("operator %s: snapshot of checkpoint %d: %w", t.d.Operators[i].Name, b.ID, err))
		}
		parts[i] = f
	}
	m := event.Metrics{StartDelayMillis: startDelay.Milliseconds(), SyncMillis: time.Since(start).Milliseconds(), Unaligned: b.Options.Alignment == event.Unaligned}
	t.writeInBackground(b, parts, capture, m)
	return nil
}

// emitBarrier sends the barrier to all outputs, and begins to capture what it
// overtakes.
func (t *Task) emitBarrier(b event.Barrier) *channel.Capture {
	var capture *channel.Capture
	// One that came aligned over an exchange that forces it goes on, over the next that
	// does not, as it was before.
	onward := b.Options
	if onward.Alignment == event.ForcedAligned {
		onward.Alignment = event.Aligned
	}
	if b.Options.Alignment == event.Unaligned || b.Options.Alignment == event.ForcedAligned || onward.Timeoutable() {
		capture = t.checkpoints.capture(b.ID)
		if t.handler == nil || b.Options.Alignment != event.Unaligned || t.handler.Open() == 0 {
			capture.InputsDone() // nothing comes of inputs
		}
	}
	for _, o := range t.d.Outputs {
		o.Partition.EmitBarrier(b, capture)
	}
	if capture != nil {
		capture.OutputsDone()
	}
	if onward.Timeoutable() && len(t.d.Outputs) > 0 {
		at := b.Timestamp + b.Options.AlignedTimeout.Milliseconds()
		(*timerService)(t).alarm(at, func() error {
			for _, o := range t.d.Outputs {
				o.Partition.AlignedBarrierTimeout(b.ID)
			}
			return nil
		})
	}
	return capture
}

// failedSnapshot declines a checkpoint whose synchronous part failed; the job decides
// whether it goes on.
func (t *Task) failedSnapshot(b event.Barrier, err error) error {
	if t.ctx.Err() != nil {
		return err
	}
	t.checkpoints.abort(b.ID, err)
	t.d.Owner.Decline(event.Decline{ID: b.ID, Task: t.d.Task, Reason: event.TaskCheckpointFailure, Err: err.Error()})
	return nil
}

// writeInBackground is the asynchronous part.
func (t *Task) writeInBackground(b event.Barrier, parts []*frozen, capture *channel.Capture, m event.Metrics) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	t.checkpoints.mu.Lock()
	t.checkpoints.get(b.ID).cancel = cancel
	t.checkpoints.mu.Unlock()
	finished := t.finished && b.Options.Post != event.Suspend
	write := func() {
		defer cancel(nil)
		var states []event.OperatorSubtask
		var persisted event.Metrics
		err := t.guard(func() (err error) {
			states, persisted, err = t.write(ctx, b, parts, capture)
			return err
		})
		if err != nil && capture != nil {
			capture.Abort(err) // nobody else gives back what it holds
		}
		r := t.checkpoints.done(b.ID)
		switch {
		case err == nil:
			m.AsyncMillis, m.BytesPersisted, m.TotalBytes = persisted.AsyncMillis, persisted.BytesPersisted, persisted.TotalBytes
			m.BytesPersistedDuringAlignment = persisted.BytesPersistedDuringAlignment
			m.AlignmentMillis, m.BytesProcessedDuringAlignment = max(0, r.alignment), r.bytes
			t.d.Owner.Ack(event.Ack{ID: b.ID, Task: t.d.Task, State: states, Finished: finished, FinishedBefore: t.d.FinishedBefore, Metrics: m})
		case ctx.Err() != nil: // aborted, or the task ended: nobody waits for an answer
		default:
			t.d.Owner.Decline(event.Decline{ID: b.ID, Task: t.d.Task, Reason: event.CheckpointAsyncException, Err: err.Error()})
		}
	}
	if capture == nil && trivial(parts) {
		write() // nothing to write: a goroutine would only cost time
		return
	}
	t.async.Go(write)
}

// trivial says that no operator has anything to be written.
func trivial(parts []*frozen) bool {
	for _, p := range parts {
		if p.keyed != nil || p.operator != nil || p.raw.rawKeyed.used() || p.raw.rawOperator.used() {
			return false
		}
	}
	return true
}

func (t *Task) write(ctx context.Context, b event.Barrier, parts []*frozen, capture *channel.Capture) (states []event.OperatorSubtask, m event.Metrics, err error) {
	to, err := t.d.Writer(b)
	if err == nil && to == nil {
		err = errNoWriter
	}
	if err != nil {
		for _, p := range parts {
			p.release()
		}
		return nil, m, err
	}
	defer func() {
		if err != nil {
			// Nobody else knows of these files.
			if aborted := to.Abort(context.WithoutCancel(ctx)); aborted != nil {
				err = errors.Join(err, aborted)
			}
		}
	}()
	states, m, err = asyncPart(ctx, parts, to, b, t.d.State)
	if err != nil {
		return nil, m, err
	}
	if capture != nil {
		if err := t.writeChannels(ctx, capture, to, states, &m); err != nil {
			return nil, m, err
		}
	}
	m.TotalBytes = m.BytesPersisted
	return states, m, nil
}

// live are the operators that were opened.
func (t *Task) live() []link {
	if t.d.FinishedBefore {
		return nil
	}
	return t.chain
}

// NotifyComplete says that a checkpoint is complete.
func (t *Task) NotifyComplete(id int64) {
	_ = t.mail.Put(mailbox.Mail{Name: fmt.Sprintf("checkpoint %d complete", id), Run: func() error { return t.completed(id) }})
}

func (t *Task) completed(id int64) error {
	for i := range t.live() {
		l := &t.chain[i]
		if err := l.env.slot.confirmed(id); err != nil {
			return err
		}
		if err := l.op.Complete(id); err != nil {
			return fmt.Errorf("operator %s: checkpoint %d complete: %w", t.d.Operators[i].Name, id, err)
		}
	}
	c := t.mail.Controller()
	switch {
	case t.stopping == id && id != 0 && !t.ending:
		if !t.finished {
			// Stop with a savepoint, without drain: those behind hear of it the same way.
			t.finished = true
			for _, o := range t.d.Outputs {
				o.Partition.Emit(channel.Event{Kind: channel.EndOfData}, false)
			}
		}
		return t.end(c)
	case t.finished && t.finalAt > 0 && id >= t.finalAt:
		t.finalAt = finalDone
		return t.maybeEnd(c)
	}
	return nil
}

// NotifyAborted says that a checkpoint came to nothing.
func (t *Task) NotifyAborted(id int64) {
	t.checkpoints.abort(id, fmt.Errorf("checkpoint %d was aborted", id))
	_ = t.mail.Put(mailbox.Mail{Name: fmt.Sprintf("checkpoint %d aborted", id), Run: func() error { return t.abortedMail(id) }})
}

func (t *Task) abortedMail(id int64) error {
	for i := range t.inputs {
		t.inputs[i].Gate.AbortCapture(id)
	}
	if t.stopping == id {
		if t.draining == id {
			return fmt.Errorf("savepoint %d, which the job was to be stopped with, came to nothing, and the source has ended for it", id)
		}
		t.stopping = 0
		t.wake()
	}
	for i := range t.live() {
		l := &t.chain[i]
		if err := l.env.slot.aborted(id); err != nil {
			return err
		}
		if err := l.op.Aborted(id); err != nil {
			return fmt.Errorf("operator %s: checkpoint %d aborted: %w", t.d.Operators[i].Name, id, err)
		}
	}
	return nil
}

// OperatorEvent gives an operator of the chain what its coordinator sent.
func (t *Task) OperatorEvent(op metadata.OperatorID, data []byte) {
	_ = t.mail.Put(mailbox.Mail{Name: "operator event", Run: func() error {
		for i := range t.chain {
			if s, ok := t.chain[i].op.(SourceOperator); ok && t.d.Operators[i].ID == op {
				if err := s.Event(data); err != nil {
					return fmt.Errorf("operator %s: event of its coordinator: %w", t.d.Operators[i].Name, err)
				}
				t.wake()
				return nil
			}
		}
		return errors.New("an operator that the task has not got an event for")
	}})
}
