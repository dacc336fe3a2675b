package mailbox

import (
	"context"
	"errors"
	"sync/atomic"
)

// DefaultAction is what a task does when it has no mail. It processes a batch and
// returns soon after HasMail is true. When it can do nothing it calls
// Controller.Suspend and returns.
type DefaultAction func(c *Controller) error

// Controller is how a default action, or a mail, steers the loop. Its methods are
// for the task's goroutine.
type Controller struct {
	m          *Mailbox
	suspension Suspension
	suspended  bool
	completed  bool
}

// Suspension is a suspended default action. It is valid until it is resumed.
type Suspension struct {
	m       *Mailbox
	resumed atomic.Bool
}

// Suspend stops the default action until Resume; mails are run meanwhile. It may
// be resumed before the action returned. While suspended, another call gives the
// same Suspension.
func (c *Controller) Suspend() *Suspension {
	if !c.suspended {
		c.suspended = true
		c.suspension.resumed.Store(false)
	}
	return &c.suspension
}

// Resume lets the default action run again. Any goroutine may call it, more than
// once: a late call resumes what was suspended again, which then finds nothing to
// do and suspends. It costs no allocation.
func (s *Suspension) Resume() {
	if !s.resumed.Swap(true) {
		s.m.signal()
	}
}

// Suspended says that the default action waits for Resume.
func (c *Controller) Suspended() bool {
	if c.suspended && c.suspension.resumed.Load() {
		c.suspended = false
	}
	return c.suspended
}

// Complete makes Run return nil once the running action or mail returned (Flink's
// allActionsCompleted).
func (c *Controller) Complete() { c.completed = true }

// Completed says that Complete was called.
func (c *Controller) Completed() bool { return c.completed }

// Controller is the one that the default action gets.
func (m *Mailbox) Controller() *Controller { return &m.ctl }

// Run runs mails and the default action in turn until Complete, an error of one of
// them, or the end of ctx, whose cause it returns. Each turn runs the mails that
// are there when it begins, so that mails which put mails do not starve the action.
// It does not close the mailbox. Within a moment after ctx ended it returns, unless
// an action or mail does not.
func (m *Mailbox) Run(ctx context.Context, action DefaultAction) error {
	if m.running {
		return errors.New("mailbox runs already")
	}
	m.running = true
	defer func() { m.running = false }()
	release := m.interruptOn(ctx)
	defer release()
	for {
		if err := m.turn(ctx); err != nil || m.ctl.completed {
			return err
		}
		if m.ctl.Suspended() {
			if m.attention.Load() == 0 {
				<-m.wake // a mail, a resumption or the end of ctx
			}
			continue
		}
		if err := action(&m.ctl); err != nil || m.ctl.completed {
			return err
		}
	}
}

// interruptOn makes HasMail true and wakes the loop when ctx ends.
func (m *Mailbox) interruptOn(ctx context.Context) (release func()) {
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		m.attention.Add(interrupt)
		m.signal()
		close(set)
	})
	return func() {
		if !stop() {
			<-set
			m.attention.Add(-interrupt)
		}
	}
}

// turn runs the mails that are there now.
func (m *Mailbox) turn(ctx context.Context) error {
	for n := m.attention.Load(); n != 0; n-- {
		if n >= interrupt {
			return context.Cause(ctx)
		}
		ran, err := m.TryRun(MinPriority)
		if err != nil || m.ctl.completed {
			return err
		}
		if !ran {
			return nil
		}
		if m.attention.Load() >= interrupt {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Executor puts mails of one priority and waits for them (Flink's MailboxExecutor).
type Executor struct {
	m        *Mailbox
	priority int
}

// Executor gives the executor of a priority.
func (m *Mailbox) Executor(priority int) Executor { return Executor{m, priority} }

// Execute puts a mail. Any goroutine may call it. The error is ErrClosed.
func (e Executor) Execute(name string, run func() error) error {
	return e.m.Put(Mail{Name: name, Priority: e.priority, Run: run})
}

// TryYield runs one waiting mail of at least the executor's priority. Only for the
// task's goroutine: from inside an action or a mail.
func (e Executor) TryYield() (ran bool, err error) { return e.m.TryRun(e.priority) }

// Yield runs one mail of at least the executor's priority and waits for it if there
// is none. It is how an operator waits without blocking the task. The error is that
// of the mail or the cause of ctx's end.
func (e Executor) Yield(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ran, err := e.m.TryRun(e.priority); ran {
			return err
		}
		select {
		case <-e.m.wake:
			// The token may have been for the loop. It looks at everything again
			// before it waits, and a resumption is a flag, so that none is lost.
		case <-ctx.Done():
		}
	}
}
