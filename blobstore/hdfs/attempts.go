package hdfs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// attempts walks over the namenodes of a cluster until one answers: all of them
// at least once, then again for as long as settings.retryFor, with growing pauses
// after each round.
type attempts struct {
	ctx   context.Context
	hosts int
	until time.Time

	index  int // of the namenode to try now
	count  int // tries so far, with this one
	inARow int // since the last pause
	pause  time.Duration
	last   error // of the last try
	final  error // not nil: given up
}

var firstPause = 50 * time.Millisecond // constant but for tests

const (
	maxPause = 2 * time.Second
	// A client may have asked all the datanodes that have a block already.
	dataTries = 3
)

func newAttempts(ctx context.Context, cfg *settings, hosts, first int) *attempts {
	return &attempts{ctx: ctx, hosts: hosts, until: time.Now().Add(cfg.retryFor), index: first % hosts, pause: firstPause}
}

// next says whether to try (again), after a pause if one is due.
func (a *attempts) next() bool {
	if a.count > 0 {
		a.index = (a.index + 1) % a.hosts
	}
	if a.inARow >= a.hosts {
		if time.Now().Add(a.pause).After(a.until) {
			a.final = a.last
			return false
		}
		if err := sleep(a.ctx, a.pause); err != nil {
			a.final = err
			return false
		}
		a.pause, a.inARow = min(2*a.pause, maxPause), 0
	}
	a.count++
	a.inARow++
	return true
}

// failed takes note of an error and says whether another try makes sense.
func (a *attempts) failed(err error) bool {
	if a.ctx.Err() != nil {
		err = a.ctx.Err()
	} else if data := (*dataError)(nil); errors.As(err, &data) {
		a.last = err
		if a.count < dataTries {
			return true
		}
	} else if tryOther(err) {
		// What an active namenode says (safe mode) tells more than that the others
		// are on standby or gone.
		if a.last == nil || !isClass(err, "StandbyException") {
			a.last = err
		}
		return true
	}
	a.final = err
	return false
}

func (a *attempts) err() error {
	if a.final == nil {
		return a.last
	}
	if a.final == a.last && a.count > 1 && !errors.Is(a.final, context.Canceled) {
		return fmt.Errorf("after %d tries: %w", a.count, a.final)
	}
	return a.final
}

// sleep waits for d or until the context is done.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
