package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// handle gives the checkpoint core an event and does what it says. Events that come
// of that wait until it is done.
func (e *Execution) handle(ev checkpoint.Event) {
	e.pendingEv = append(e.pendingEv, ev)
	if e.handling {
		return
	}
	e.handling = true
	for len(e.pendingEv) > 0 {
		ev := e.pendingEv[0]
		e.pendingEv = e.pendingEv[1:]
		e.actions = e.core.Handle(time.Now().UnixMilli(), &ev, e.actions[:0])
		for i := range e.actions {
			e.do(&e.actions[i])
		}
	}
	e.handling = false
}

func (e *Execution) do(a *checkpoint.Action) {
	switch a.Kind {
	case checkpoint.ActStartTimer:
		e.startTimer(a.Timer, a.ID, a.At)
	case checkpoint.ActStopTimer:
		if t := e.timers[timerKey{a.Timer, a.ID}]; t != nil {
			t.Stop()
			delete(e.timers, timerKey{a.Timer, a.ID})
		}
	case checkpoint.ActReserve:
		e.answer(checkpoint.Event{Kind: checkpoint.EvReserved, ID: a.ID})
	case checkpoint.ActLocation:
		e.locate(a.ID, a.Barrier.Options)
	case checkpoint.ActDiscardLocation:
		e.discardLocation(a.ID)
	case checkpoint.ActCoordinator:
		ev := checkpoint.Event{Kind: checkpoint.EvCoordinator, ID: a.ID, Operator: a.Operator}
		if c := e.coordinator(a.Operator); c != nil {
			ev.Data, ev.Err = c.Checkpoint(a.ID)
		} else {
			ev.Err = errors.New("the coordinator is gone")
		}
		e.answer(ev)
	case checkpoint.ActTrigger:
		if x := e.runningTask(a.Task); x != nil {
			x.t.Trigger(a.Barrier)
		} else {
			e.answer(checkpoint.Event{Kind: checkpoint.EvDecline, Decline: &event.Decline{ID: a.Barrier.ID, Task: a.Task, Reason: event.DeclinedTaskNotReady}})
		}
	case checkpoint.ActCommit:
		e.commit(a.ID, a.Checkpoint)
	case checkpoint.ActStore:
		e.answer(checkpoint.Event{Kind: checkpoint.EvStored})
	case checkpoint.ActNotifyComplete:
		if x := e.runningTask(a.Task); x != nil {
			x.t.NotifyComplete(a.ID)
		}
	case checkpoint.ActNotifyAborted:
		if x := e.runningTask(a.Task); x != nil {
			x.t.NotifyAborted(a.ID)
		}
	case checkpoint.ActCoordinatorComplete:
		if c := e.coordinator(a.Operator); c != nil {
			e.later(func() { e.check(a.Operator, c.Complete(a.ID)) })
		}
	case checkpoint.ActCoordinatorAborted:
		if c := e.coordinator(a.Operator); c != nil {
			e.later(func() { e.check(a.Operator, c.Aborted(a.ID)) })
		}
	case checkpoint.ActDeliver:
		if x := e.runningTask(a.Task); x != nil {
			x.t.OperatorEvent(a.Operator, a.Data)
		}
	case checkpoint.ActResult:
		e.answerRequest(a)
	case checkpoint.ActRestore:
		e.restoreKnown = true
		if err := e.toRestore(a.Retained); err != nil {
			e.later(func() { e.failForGood(err) })
			return
		}
		e.later(e.maybeRestart)
	case checkpoint.ActFailJob:
		err := a.Err
		if a.Fatal {
			e.later(func() { e.failForGood(err) })
		} else {
			e.later(func() { e.failed(err) })
		}
	case checkpoint.ActEnded:
		e.coreEnded = true
	case checkpoint.ActCompleted:
		e.opts.Log.Debug("checkpoint completed", "id", a.ID)
	case checkpoint.ActFailed:
		e.opts.Log.Warn("checkpoint failed", "id", a.ID, "reason", a.Reason, "error", a.Err)
	}
}

// answer is an event that comes of an action.
func (e *Execution) answer(ev checkpoint.Event) { e.pendingEv = append(e.pendingEv, ev) }

// later runs f once the actions are done. The action must not be used in it.
func (e *Execution) later(f func()) { e.inbox.put(f) }

func (e *Execution) runningTask(t event.Task) *running {
	if e.run == nil {
		return nil
	}
	if x := e.run.tasks[t]; x != nil && !x.finished {
		return x
	}
	return nil
}

func (e *Execution) startTimer(timer checkpoint.Timer, id, at int64) {
	key := timerKey{timer, id}
	if t := e.timers[key]; t != nil {
		t.Stop()
	}
	e.timers[key] = time.AfterFunc(time.Until(time.UnixMilli(at)), func() {
		e.inbox.put(func() { e.handle(checkpoint.Event{Kind: checkpoint.EvTimer, Timer: timer, ID: id}) })
	})
}

// locate prepares the folder of a checkpoint.
func (e *Execution) locate(id int64, o event.Options) {
	e.background.Go(func() {
		dir, err := e.newWriter(id, o)
		e.inbox.put(func() { e.handle(checkpoint.Event{Kind: checkpoint.EvLocation, ID: id, Dir: dir, Err: err}) })
	})
}

func (e *Execution) newWriter(id int64, o event.Options) (dir string, err error) {
	var layout snapshot.Layout
	switch {
	case o.Type.IsSavepoint():
		target := e.root
		if o.Target != "" {
			if target, err = blobstore.Parse(o.Target); err != nil {
				return "", err
			}
		}
		layout, err = snapshot.SavepointLayout(target, e.opts.JobID)
	case e.opts.Checkpoints == "":
		err = errors.New("the job has no folder for checkpoints")
	default:
		layout, err = snapshot.CheckpointLayout(e.root, e.opts.JobID, id)
	}
	if err != nil {
		return "", err
	}
	w, err := snapshot.NewWriter(e.workers, e.opts.Pool, layout, nil)
	if err != nil {
		return "", err
	}
	e.writersMu.Lock()
	e.writers[id] = w
	e.writersMu.Unlock()
	return layout.Dir.String(), nil
}

// writer is called by tasks, from their goroutines.
func (e *Execution) writer(b event.Barrier) (*snapshot.Writer, error) {
	e.writersMu.Lock()
	defer e.writersMu.Unlock()
	if w := e.writers[b.ID]; w != nil {
		return w, nil
	}
	return nil, fmt.Errorf("checkpoint %d is over", b.ID)
}

func (e *Execution) takeWriter(id int64) *snapshot.Writer {
	e.writersMu.Lock()
	defer e.writersMu.Unlock()
	w := e.writers[id]
	delete(e.writers, id)
	return w
}

// discardLocation removes all that was written for a checkpoint, and what is still
// being written when it comes.
func (e *Execution) discardLocation(id int64) {
	w := e.takeWriter(id)
	if w == nil {
		return
	}
	e.background.Go(func() {
		if err := w.Abort(e.workers); err != nil {
			e.opts.Log.Warn("files of a checkpoint are left", "id", id, "error", err)
		}
	})
}

// commit writes the metadata of a checkpoint.
func (e *Execution) commit(id int64, c *metadata.Checkpoint) {
	w := e.takeWriter(id)
	if w == nil {
		e.answer(checkpoint.Event{Kind: checkpoint.EvCommitted, ID: id, Outcome: checkpoint.NotWritten, Err: errors.New("the checkpoint has no place")})
		return
	}
	e.background.Go(func() {
		ev := checkpoint.Event{Kind: checkpoint.EvCommitted, ID: id, Dir: w.Layout().Dir.Join(snapshot.MetadataName).String()}
		if err := w.Commit(e.workers, c); err != nil {
			ev.Outcome, ev.Err, ev.Dir = checkpoint.NotWritten, err, ""
			if aborted := w.Abort(e.workers); aborted != nil {
				ev.Outcome, ev.Err = checkpoint.InDoubt, errors.Join(err, aborted)
			}
		}
		e.inbox.put(func() { e.handle(ev) })
	})
}

func (e *Execution) answerRequest(a *checkpoint.Action) {
	q := e.requests[a.Request.Number]
	if q == nil {
		return
	}
	delete(e.requests, a.Request.Number)
	q.id, q.path = a.ID, a.Dir
	if a.Reason != event.NoFailure {
		q.err = fmt.Errorf("%s: %s", a.Request.Type, a.Reason.Text())
		if a.Err != nil {
			q.err = fmt.Errorf("%s: %s: %w", a.Request.Type, a.Reason.Text(), a.Err)
		}
	}
	close(q.done)
}

// toRestore opens the checkpoint that the next attempt starts from. One that cannot
// be read fails the job: an older one would be a silent loss.
func (e *Execution) toRestore(list []checkpoint.Completed) error {
	if len(list) == 0 {
		e.restored = nil
		return nil
	}
	if e.restored != nil && e.restored.ID == list[0].ID {
		return nil
	}
	return e.restoreFrom(context.WithoutCancel(e.workers), list[0].Path)
}
