// Package mailbox is the single-threaded executor of a task: one goroutine, the
// task's, runs the default action (read a batch of input, or of a source) and, in
// between, mails that others put in: checkpoints, timers, priority events,
// notifications. So operators need no lock. The package starts no goroutine: Run
// works in the caller's.
//
// It is Flink's TaskMailboxImpl, MailboxProcessor and MailboxExecutorImpl in one.
// TaskMailbox.State is State, takeMail(priority) is what Executor.Yield does,
// runMailboxLoop is Run, suspendDefaultAction is Controller.Suspend,
// allActionsCompleted is Controller.Complete.
package mailbox

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Priorities of Flink's TaskMailbox. A mail of a lower priority is not run by
// somebody who yields with a higher one. In a chain, each operator has the
// priority of its place, so that one that waits inside of its processing runs
// nothing of the operators in front of it.
const (
	MinPriority     = -1
	DefaultPriority = 0
	MaxPriority     = 1<<31 - 1
)

// ErrClosed says that a mail was not taken because the mailbox is quiesced or closed.
var ErrClosed = errors.New("mailbox is closed")

// State of a mailbox. It only rises.
type State uint8

// States.
const (
	Open     State = iota // takes mails
	Quiesced              // takes none; those in it can still be run
	Closed                // takes none and has none
)

func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

var states = [...]string{"open", "quiesced", "closed"}

// Mail is something to run in the task's goroutine.
type Mail struct {
	// Name says what it is, for logs and errors.
	Name string
	// Priority decides who may run it, see Executor.Yield.
	Priority int
	// Run is called once. Its error ends Run, or comes out of Yield.
	Run func() error
}

// Mailbox is a queue of mails and the loop that runs them. Put and HasMail may be
// called by any goroutine; all the rest only by the one that calls Run.
type Mailbox struct {
	// attention is how many mails there are; the interrupt bit is above them.
	attention atomic.Int64
	wake      chan struct{} // one token: something changed

	mu    sync.Mutex
	state State
	mails ring

	ctl     Controller
	running bool
}

const interrupt = 1 << 40

// New makes an open mailbox.
func New() *Mailbox {
	m := &Mailbox{wake: make(chan struct{}, 1)}
	m.ctl.m, m.ctl.suspension.m = m, m
	return m
}

// HasMail says that a mail waits or that Run is to end: a default action looks at
// it after each record and returns if it is true. It costs one load.
func (m *Mailbox) HasMail() bool { return m.attention.Load() != 0 }

// Put appends a mail. It may be called by any goroutine and never blocks.
// The error is ErrClosed.
func (m *Mailbox) Put(mail Mail) error { return m.put(mail, false) }

// PutFirst puts a mail in front of all others (Flink's putFirst): for what must
// not wait, such as a failure.
func (m *Mailbox) PutFirst(mail Mail) error { return m.put(mail, true) }

func (m *Mailbox) put(mail Mail, first bool) error {
	m.mu.Lock()
	if m.state != Open {
		m.mu.Unlock()
		return fmt.Errorf("%s: %w", mail.Name, ErrClosed)
	}
	if first {
		m.mails.pushFront(mail)
	} else {
		m.mails.pushBack(mail)
	}
	m.attention.Add(1)
	m.mu.Unlock()
	m.signal()
	return nil
}

func (m *Mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// State is the mailbox's state.
func (m *Mailbox) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// take removes the oldest mail of at least that priority.
func (m *Mailbox) take(priority int) (Mail, bool) {
	if m.attention.Load()&(interrupt-1) == 0 {
		return Mail{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.mails.len() {
		if m.mails.at(i).Priority >= priority {
			mail := m.mails.remove(i)
			m.attention.Add(-1)
			return mail, true
		}
	}
	return Mail{}, false
}

// TryRun runs the oldest mail of at least that priority, if there is one. It is
// what a scheduler that steps a task by itself calls; Run and Executor are built
// on it.
func (m *Mailbox) TryRun(priority int) (ran bool, err error) {
	mail, ok := m.take(priority)
	if !ok {
		return false, nil
	}
	if err := mail.Run(); err != nil {
		return true, fmt.Errorf("%s: %w", mail.Name, err)
	}
	return true, nil
}

// Quiesce lets no further mail in (Flink's quiesce).
func (m *Mailbox) Quiesce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state == Open {
		m.state = Quiesced
	}
}

// Drain runs all mails that are left, whatever their priority. A mailbox that is
// open may get new ones meanwhile, which are run too.
func (m *Mailbox) Drain() error {
	for {
		if ran, err := m.TryRun(MinPriority); !ran || err != nil {
			return err
		}
	}
}

// Close drops the mails that are left and gives them to the caller, who may have
// to release what they hold.
func (m *Mailbox) Close() []Mail {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = Closed
	var left []Mail
	for m.mails.len() > 0 {
		left = append(left, m.mails.remove(0))
		m.attention.Add(-1)
	}
	return left
}
