// Package restart decides whether and when a failed job starts again: Flink's
// restart strategies. A strategy is a state machine without clock: it is told when
// a failure happened, and how long to wait comes back.
//
//	s, _ := restart.NewExponentialDelay(restart.ExponentialDelayOptions{})
//	d := s.Failed(now)
//	if !d.Restart {
//		// the job has failed for good, for d.Why
//	}
//	// after d.Delay: restart
//
// A strategy belongs to one job and is not for concurrent use.
package restart

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Decision about a failure.
type Decision struct {
	Restart bool
	Delay   time.Duration // before the restart
	Attempt int           // counts the restarts, from 1
	// Why the job does not restart, in a few words.
	Why string
}

// Strategy decides about each failure of a job, in the order of their times.
type Strategy interface {
	// Failed is a failure at time now that the job has not yet decided about.
	// Failures during the wait before a restart are not told.
	Failed(now time.Time) Decision
	String() string
}

// ErrOption is wrapped by the error of an option that makes no sense.
var ErrOption = errors.New("restart strategy")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrOption, fmt.Sprintf(format, args...))
}

// None never restarts (Flink's "none", "off" and "disable").
func None() Strategy { return none{} }

type none struct{}

func (none) Failed(time.Time) Decision { return Decision{Why: "the job has no restart strategy"} }
func (none) String() string            { return "no restart" }

// FixedDelayOptions of NewFixedDelay.
type FixedDelayOptions struct {
	Attempts int           // restarts; 0 is 1, negative is any number
	Delay    time.Duration // 0 is 1 s; NoDelay is none
}

// NoDelay stands for a delay of zero where zero is the default.
const NoDelay = time.Duration(-1)

// NewFixedDelay restarts a number of times, after the same delay each.
func NewFixedDelay(o FixedDelayOptions) (Strategy, error) {
	if o.Attempts == 0 {
		o.Attempts = 1
	}
	var err error
	if o.Delay, err = delay("delay", o.Delay, time.Second); err != nil {
		return nil, err
	}
	return &fixed{o: o}, nil
}

func delay(name string, d, def time.Duration) (time.Duration, error) {
	switch {
	case d == 0:
		return def, nil
	case d == NoDelay:
		return 0, nil
	case d < 0:
		return 0, bad("%s is %s", name, d)
	}
	return d, nil
}

type fixed struct {
	o FixedDelayOptions
	n int
}

func (f *fixed) Failed(time.Time) Decision {
	if f.o.Attempts >= 0 && f.n >= f.o.Attempts {
		return Decision{Attempt: f.n, Why: fmt.Sprintf("the job was restarted %d times, which is the limit", f.n)}
	}
	f.n++
	return Decision{Restart: true, Delay: f.o.Delay, Attempt: f.n}
}

func (f *fixed) String() string {
	if f.o.Attempts < 0 {
		return fmt.Sprintf("fixed delay of %s, any number of times", f.o.Delay)
	}
	return fmt.Sprintf("fixed delay of %s, %d times", f.o.Delay, f.o.Attempts)
}

// FailureRateOptions of NewFailureRate.
type FailureRateOptions struct {
	MaxFailures int           // within Interval; 0 is 1
	Interval    time.Duration // 0 is 1 min
	Delay       time.Duration // 0 is 1 s; NoDelay is none
}

// NewFailureRate restarts unless there were more failures within an interval than
// are allowed.
func NewFailureRate(o FailureRateOptions) (Strategy, error) {
	if o.MaxFailures == 0 {
		o.MaxFailures = 1
	}
	if o.MaxFailures < 0 || o.MaxFailures > 1<<20 {
		return nil, bad("failures per interval is %d: from 1 to %d are possible", o.MaxFailures, 1<<20)
	}
	var err error
	if o.Interval, err = delay("interval", o.Interval, time.Minute); err != nil {
		return nil, err
	}
	if o.Delay, err = delay("delay", o.Delay, time.Second); err != nil {
		return nil, err
	}
	return &rate{o: o}, nil
}

type rate struct {
	o     FailureRateOptions
	times []time.Time // of the last MaxFailures+1 failures, a ring
	next  int
	n     int
}

func (r *rate) Failed(now time.Time) Decision {
	// More than MaxFailures within the interval: the one that is so many back is young.
	if len(r.times) <= r.o.MaxFailures {
		r.times = append(r.times, now)
	} else {
		r.times[r.next] = now
	}
	r.next = (r.next + 1) % (r.o.MaxFailures + 1)
	if len(r.times) > r.o.MaxFailures && now.Sub(r.times[r.next]) <= r.o.Interval {
		return Decision{Attempt: r.n, Why: fmt.Sprintf("%d failures within %s, %d are allowed", len(r.times), r.o.Interval, r.o.MaxFailures)}
	}
	r.n++
	return Decision{Restart: true, Delay: r.o.Delay, Attempt: r.n}
}

func (r *rate) String() string {
	return fmt.Sprintf("failure rate of at most %d per %s, delay of %s", r.o.MaxFailures, r.o.Interval, r.o.Delay)
}

// ExponentialDelayOptions of NewExponentialDelay. The defaults are Flink's.
type ExponentialDelayOptions struct {
	Initial    time.Duration // 0 is 1 s
	Max        time.Duration // 0 is 1 min
	Multiplier float64       // 0 is 1.5; at least 1
	// ResetAfter without a failure the delay is Initial again; 0 is 1 h.
	ResetAfter time.Duration
	// Jitter is the part of the delay that is added or taken off at random; 0 is
	// 0.1, NoJitter none, at most 1.
	Jitter float64
	// Attempts before the next reset; 0 and negative are any number.
	Attempts int
	// Seed makes the jitter repeatable; 0 is a random one.
	Seed uint64
}

// NoJitter stands for a jitter of zero, where zero is the default.
const NoJitter = -1

// NewExponentialDelay restarts after delays that grow with each failure, until the
// job has run well for a while.
func NewExponentialDelay(o ExponentialDelayOptions) (Strategy, error) {
	var err error
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{{"initial backoff", &o.Initial, time.Second}, {"maximum backoff", &o.Max, time.Minute}, {"reset threshold", &o.ResetAfter, time.Hour}} {
		if *d.v, err = delay(d.name, *d.v, d.def); err != nil {
			return nil, err
		}
		if *d.v == 0 {
			return nil, bad("%s is 0", d.name)
		}
	}
	if o.Multiplier == 0 {
		o.Multiplier = 1.5
	}
	switch o.Jitter {
	case 0:
		o.Jitter = 0.1
	case NoJitter:
		o.Jitter = 0
	}
	if !(o.Multiplier >= 1) || math.IsInf(o.Multiplier, 0) {
		return nil, bad("backoff multiplier is %v: at least 1 is possible", o.Multiplier)
	}
	if !(o.Jitter >= 0 && o.Jitter <= 1) {
		return nil, bad("jitter factor is %v: from 0 to 1 is possible", o.Jitter)
	}
	if o.Max < o.Initial {
		return nil, bad("maximum backoff of %s is below the initial one of %s", o.Max, o.Initial)
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return &exponential{o: o, r: rand.New(rand.NewPCG(o.Seed, 0))}, nil
}

type exponential struct {
	o       ExponentialDelayOptions
	r       *rand.Rand
	current time.Duration // 0: none yet
	resume  time.Time     // when the last restart was due
	streak  int           // restarts since the last reset
	n       int
}

func (e *exponential) Failed(now time.Time) Decision {
	if e.current == 0 || now.Sub(e.resume) >= e.o.ResetAfter {
		e.current, e.streak = e.o.Initial, 0
	} else {
		e.current = time.Duration(min(float64(e.current)*e.o.Multiplier, float64(e.o.Max)))
	}
	if e.o.Attempts > 0 && e.streak >= e.o.Attempts {
		return Decision{Attempt: e.n, Why: fmt.Sprintf("the job was restarted %d times without running for %s in between, which is the limit", e.streak, e.o.ResetAfter)}
	}
	e.streak++
	e.n++
	d := e.current
	if e.o.Jitter > 0 {
		d += time.Duration(float64(d) * e.o.Jitter * (2*e.r.Float64() - 1))
	}
	d = min(d, e.o.Max)
	e.resume = now.Add(d)
	return Decision{Restart: true, Delay: d, Attempt: e.n}
}

func (e *exponential) String() string {
	s := fmt.Sprintf("exponential delay from %s to %s by %v, jitter %v, reset after %s", e.o.Initial, e.o.Max, e.o.Multiplier, e.o.Jitter, e.o.ResetAfter)
	if e.o.Attempts > 0 {
		s += fmt.Sprintf(", %d times in a row", e.o.Attempts)
	}
	return s
}
