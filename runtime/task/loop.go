package task

import (
	"fmt"

	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/mailbox"
)

// turns bounds what is done between two looks at the mailbox's other side: it is
// looked at after each batch anyway, this is for the flush of what waits.
const turns = 1 << 10

// action is the default action of the mailbox: it polls the source or the inputs
// until there is a mail, nothing to do, or no room for what comes of it.
func (t *Task) action(c *mailbox.Controller) error {
	for range turns {
		if t.flushDue.Load() {
			t.flush()
		}
		if t.stopping != 0 && t.source == nil || t.ending {
			t.rest(c) // a savepoint decides how it goes on
			return nil
		}
		if !t.room(c) {
			return nil
		}
		more, err := t.step(c)
		if err != nil || !more || c.Completed() {
			return err
		}
		if t.mail.HasMail() {
			return nil
		}
	}
	return nil
}

// rest suspends the action until something wakes it.
func (t *Task) rest(c *mailbox.Controller) {
	t.woken.Store(false)
	t.flush()
	t.suspend(c)
}

// room says whether all outputs have a buffer left; if not the action is suspended
// until they have.
func (t *Task) room(c *mailbox.Controller) bool {
	for _, o := range t.d.Outputs {
		if o.Partition.Available() {
			continue
		}
		t.woken.Store(false)
		if o.Partition.Await(t.wake) {
			t.suspend(c)
			return false
		}
	}
	return true
}

// step processes a batch or an event; more is false if there was none, and the
// action is suspended.
func (t *Task) step(c *mailbox.Controller) (more bool, err error) {
	if t.source != nil {
		return t.stepSource(c)
	}
	return t.stepInputs(c)
}

func (t *Task) stepSource(c *mailbox.Controller) (bool, error) {
	if t.finished || t.stopping != 0 {
		t.rest(c)
		return false, nil
	}
	if t.d.FinishedBefore {
		return true, t.endOfData(c, true)
	}
	t.woken.Store(false)
	r, err := t.source.Poll()
	if err != nil {
		return false, fmt.Errorf("operator %s: %w", t.d.Operators[0].Name, err)
	}
	switch r {
	case PollNone:
		t.flush()
		t.suspend(c)
		return false, nil
	case PollEnd:
		return true, t.endOfData(c, true)
	}
	return true, nil
}

func (t *Task) stepInputs(c *mailbox.Controller) (bool, error) {
	t.woken.Store(false)
	n := len(t.inputs)
	for k := range n {
		i := (t.turn + k) % n
		in := &t.inputs[i]
		it, ok, err := in.Gate.Poll()
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		t.turn = (i + 1) % n
		if it.Event != nil {
			return true, t.event(c, i, it)
		}
		return true, t.records(c, i, it)
	}
	for i := range t.inputs {
		if !t.inputs[i].Gate.Ended() && !t.inputs[i].Gate.Await(t.wake) {
			return true, nil
		}
	}
	t.flush()
	t.suspend(c)
	return false, nil
}

// records reads a buffer, until there is a mail or no room for what comes of it; the
// rest comes again then.
func (t *Task) records(c *mailbox.Controller, i int, it channel.Item) error {
	in := &t.inputs[i]
	for {
		more, err := in.end.read(it.Records, it.Channel)
		if err != nil {
			return fmt.Errorf("operator %s: %w", t.d.Operators[in.Operator].Name, err)
		}
		t.handler.AddProcessedBytes(in.end.takeBytes())
		if !more {
			return nil
		}
		if t.mail.HasMail() || !t.available() {
			return nil
		}
	}
}

func (t *Task) available() bool {
	for _, o := range t.d.Outputs {
		if !o.Partition.Available() {
			return false
		}
	}
	return true
}

// urgent is called when a gate has an event with priority, by another goroutine.
func (t *Task) urgent() {
	_ = t.mail.PutFirst(mailbox.Mail{Name: "priority event", Run: func() error {
		if t.handler == nil {
			return nil
		}
		for i := range t.inputs {
			for {
				it, ok, err := t.inputs[i].Gate.PollPriority()
				if err != nil {
					return err
				}
				if !ok {
					break
				}
				if err := t.event(t.mail.Controller(), i, it); err != nil {
					return err
				}
			}
		}
		return nil
	}})
}

// event processes an event that came out of a channel of gate i.
func (t *Task) event(c *mailbox.Controller, i int, it channel.Item) error {
	e, ch := it.Event, int32(t.bases[i]+it.Channel)
	switch e.Kind {
	case channel.Barrier:
		return t.handle(barrier.Event{Kind: barrier.BarrierArrived, Channel: ch, Barrier: e.Barrier})
	case channel.Announcement:
		return t.handle(barrier.Event{Kind: barrier.Announced, Channel: ch, Barrier: e.Barrier})
	case channel.Cancel:
		return t.handle(barrier.Event{Kind: barrier.Cancelled, Channel: ch, ID: e.ID})
	case channel.EndOfData:
		t.dataEnds++
		t.drained = t.drained || e.Drain
		if t.dataEnds == t.bases[len(t.inputs)] {
			return t.endOfData(c, t.drained)
		}
	case channel.EndOfPartition:
		if err := t.handle(barrier.Event{Kind: barrier.EndOfPartition, Channel: ch}); err != nil {
			return err
		}
		return t.maybeEnd(c)
	}
	return nil
}

// endOfData is the end of the input: with drain, time comes to its end and operators
// send what they have left.
func (t *Task) endOfData(c *mailbox.Controller, drain bool) error {
	if t.finished {
		return nil
	}
	switch {
	case t.d.FinishedBefore:
		for _, o := range t.d.Outputs {
			if err := o.Partition.Broadcast(channel.AppendWatermark(nil, MaxWatermark)); err != nil {
				return err
			}
		}
	case drain:
		if t.source != nil {
			if err := t.source.(interface{ End() error }).End(); err != nil {
				return err
			}
		}
		for i := range t.chain {
			if err := t.chain[i].op.Finish(); err != nil {
				return fmt.Errorf("operator %s: finish: %w", t.d.Operators[i].Name, err)
			}
		}
	}
	t.finished = true
	for _, o := range t.d.Outputs {
		o.Partition.Emit(channel.Event{Kind: channel.EndOfData, Drain: drain}, false)
	}
	t.d.Owner.EndOfData(t.d.Task)
	return t.maybeEnd(c)
}

// maybeEnd completes a task that has nothing more to wait for: after its last record
// a checkpoint that has its last state, if there are any, and that those behind it
// have processed all of its output. Until then barriers have to pass through it: once
// it has ended the tasks behind it are triggered themselves, wherever they are in what
// it has sent.
func (t *Task) maybeEnd(c *mailbox.Controller) error {
	if !t.finished || t.ending || t.stopping != 0 || t.d.Checkpoints && t.finalAt != finalDone {
		return nil // completed comes back
	}
	t.flush()
	for _, o := range t.d.Outputs {
		if o.Partition.AwaitRead(func() { t.execute(func() error { return t.maybeEnd(c) }) }) {
			return nil
		}
	}
	return t.end(c)
}

// finalDone stands in finalAt once the final checkpoint is complete.
const finalDone = -1

// end completes the task.
func (t *Task) end(c *mailbox.Controller) error {
	t.ending = true
	for _, o := range t.d.Outputs {
		o.Partition.Emit(channel.Event{Kind: channel.EndOfPartition}, false)
	}
	c.Complete()
	return nil
}

// handle gives the barrier handler an event and does what it says.
func (t *Task) handle(ev barrier.Event) error {
	ev.At = t.clock.Millis() * 1e6
	for _, a := range t.handler.Handle(ev) {
		if err := t.do(&a); err != nil {
			return err
		}
	}
	return nil
}

func (t *Task) do(a *barrier.Action) error {
	switch a.Kind {
	case barrier.Block:
		g, ch := t.gateOf(a.Channel)
		g.Block(ch)
	case barrier.UnblockAll:
		for i := range t.inputs {
			t.inputs[i].Gate.UnblockAll()
		}
	case barrier.Trigger:
		return t.checkpoint(a.Barrier, a.StartDelay)
	case barrier.Abort:
		return t.abortCheckpoint(a.ID, a.Reason)
	case barrier.StartTimer:
		id := a.ID
		t.barrierTimer = (*timerService)(t).alarm(a.At/1e6, func() error {
			return t.handle(barrier.Event{Kind: barrier.TimerFired, ID: id})
		})
	case barrier.StopTimer:
		if t.barrierTimer != nil {
			t.barrierTimer()
			t.barrierTimer = nil
		}
	case barrier.StartCapture:
		g, ch := t.gateOf(a.Channel)
		g.StartCapture(ch, t.checkpoints.capture(a.ID))
	case barrier.StopCapture:
		g, ch := t.gateOf(a.Channel)
		g.StopCapture(ch)
	case barrier.Convert:
		g, ch := t.gateOf(a.Channel)
		g.Convert(ch, a.ID)
	case barrier.AllReceived:
		t.checkpoints.allReceived(a.ID, a.Alignment.Milliseconds(), a.Bytes)
	}
	return nil
}

func (t *Task) gateOf(ch int32) (*channel.Gate, int) {
	i := 0
	for int(ch) >= t.bases[i+1] {
		i++
	}
	return t.inputs[i].Gate, int(ch) - t.bases[i]
}

// abortCheckpoint gives a checkpoint up, because of what came in, and tells those
// behind.
func (t *Task) abortCheckpoint(id int64, reason event.Reason) error {
	for i := range t.inputs {
		t.inputs[i].Gate.AbortCapture(id)
	}
	t.checkpoints.abort(id, fmt.Errorf("checkpoint %d: %s", id, reason.Text()))
	for _, o := range t.d.Outputs {
		o.Partition.Emit(channel.Event{Kind: channel.Cancel, ID: id}, false)
	}
	t.d.Owner.Decline(event.Decline{ID: id, Task: t.d.Task, Reason: reason})
	return nil
}
