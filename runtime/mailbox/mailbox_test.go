package mailbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a mailbox in a goroutine and gives its result.
func run(ctx context.Context, m *Mailbox, action DefaultAction) <-chan error {
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, action) }()
	return done
}

func result(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the mailbox does not end")
		return nil
	}
}

func TestMailsRunBetweenActions(t *testing.T) {
	m := New()
	var order []string
	actions := 0
	done := run(t.Context(), m, func(c *Controller) error {
		order = append(order, "action")
		if actions++; actions == 1 {
			for _, name := range []string{"first", "second"} {
				require.NoError(t, m.Put(Mail{Name: name, Run: func() error { order = append(order, name); return nil }}))
			}
			require.NoError(t, m.PutFirst(Mail{Run: func() error { order = append(order, "urgent"); return nil }}))
			require.True(t, m.HasMail())
			return nil
		}
		require.False(t, m.HasMail())
		c.Complete()
		return nil
	})
	require.NoError(t, result(t, done))
	require.Equal(t, []string{"action", "urgent", "first", "second", "action"}, order)
}

// A mail that puts itself again must not keep the action from running.
func TestMailsDoNotStarveTheAction(t *testing.T) {
	m := New()
	mails, actions := 0, 0
	var again func() error
	again = func() error { mails++; return m.Put(Mail{Run: again}) }
	require.NoError(t, again())
	done := run(t.Context(), m, func(c *Controller) error {
		if actions++; actions == 5 {
			c.Complete()
		}
		return nil
	})
	require.NoError(t, result(t, done))
	require.LessOrEqual(t, mails, 7)
}

func TestSuspendedActionWaitsAndMailsRun(t *testing.T) {
	m := New()
	suspended := make(chan *Suspension, 1)
	actions := 0
	done := run(t.Context(), m, func(c *Controller) error {
		if actions++; actions == 2 {
			c.Complete()
			return nil
		}
		suspended <- c.Suspend()
		return nil
	})
	s := <-suspended
	for range 3 {
		ran := make(chan bool)
		require.NoError(t, m.Put(Mail{Run: func() error {
			require.True(t, m.Controller().Suspended())
			require.Same(t, s, m.Controller().Suspend())
			close(ran)
			return nil
		}}))
		<-ran
	}
	s.Resume()
	s.Resume()
	require.NoError(t, result(t, done))
	require.Equal(t, 2, actions)
}

// A resumption that comes before the action returned is not lost.
func TestResumeInsideTheAction(t *testing.T) {
	m := New()
	actions := 0
	done := run(t.Context(), m, func(c *Controller) error {
		if actions++; actions == 3 {
			c.Complete()
			return nil
		}
		c.Suspend().Resume()
		return nil
	})
	require.NoError(t, result(t, done))
}

func TestErrorsEndTheLoop(t *testing.T) {
	broken := errors.New("broken")
	m := New()
	require.NoError(t, m.Put(Mail{Name: "timer", Run: func() error { return broken }}))
	err := result(t, run(t.Context(), m, func(*Controller) error { return nil }))
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "timer: broken")
	err = result(t, run(t.Context(), m, func(*Controller) error { return broken }))
	require.ErrorIs(t, err, broken)
}

// Wherever the task is, the end of its context ends it.
func TestCancellation(t *testing.T) {
	reason := errors.New("task was cancelled")
	for name, action := range map[string]func(m *Mailbox, entered chan struct{}) DefaultAction{
		"suspended": func(_ *Mailbox, entered chan struct{}) DefaultAction {
			return func(c *Controller) error {
				c.Suspend()
				close(entered)
				return nil
			}
		},
		"busy": func(m *Mailbox, entered chan struct{}) DefaultAction {
			return func(*Controller) error {
				close(entered)
				for !m.HasMail() { // records are processed
					time.Sleep(time.Microsecond)
				}
				return nil
			}
		},
		"yielding": func(m *Mailbox, entered chan struct{}) DefaultAction {
			return func(*Controller) error {
				close(entered)
				return m.Executor(DefaultPriority).Yield(context.Background())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			m := New()
			entered := make(chan struct{})
			done := run(ctx, m, action(m, entered))
			<-entered
			cancel(reason)
			if name == "yielding" { // it waits with a context of its own
				require.Eventually(t, m.HasMail, time.Minute, time.Millisecond) // the interrupt
				require.NoError(t, m.Put(Mail{Run: func() error { return nil }}))
			}
			require.ErrorIs(t, result(t, done), reason)
			require.False(t, m.HasMail(), "the interrupt is gone with the loop")
		})
	}
}

func TestYieldKeepsToItsPriority(t *testing.T) {
	m := New()
	var order []int
	put := func(priority int) {
		require.NoError(t, m.Executor(priority).Execute("mail", func() error { order = append(order, priority); return nil }))
	}
	for _, p := range []int{0, 2, 1, 2, MinPriority} {
		put(p)
	}
	for {
		ran, err := m.Executor(2).TryYield()
		require.NoError(t, err)
		if !ran {
			break
		}
	}
	require.Equal(t, []int{2, 2}, order)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	require.ErrorIs(t, m.Executor(2).Yield(ctx), context.Canceled)
	require.NoError(t, m.Executor(1).Yield(t.Context()))
	require.NoError(t, m.Drain())
	require.Equal(t, []int{2, 2, 1, 0, MinPriority}, order)
	require.False(t, m.HasMail())
}

func TestYieldWaits(t *testing.T) {
	m := New()
	go m.Put(Mail{Priority: 3, Run: func() error { return nil }})
	require.NoError(t, m.Executor(3).Yield(t.Context()))
}

func TestShutdown(t *testing.T) {
	m := New()
	ran := 0
	mail := Mail{Name: "late", Run: func() error { ran++; return nil }}
	require.NoError(t, m.Put(mail))
	require.NoError(t, m.Put(mail))
	require.Equal(t, Open, m.State())
	m.Quiesce()
	require.Equal(t, Quiesced, m.State())
	require.EqualError(t, m.Put(mail), "late: mailbox is closed")
	require.ErrorIs(t, m.PutFirst(mail), ErrClosed)
	_, err := m.TryRun(DefaultPriority)
	require.NoError(t, err)
	left := m.Close()
	require.Len(t, left, 1)
	require.Equal(t, 1, ran)
	require.False(t, m.HasMail())
	require.Equal(t, "closed", m.State().String())
	m.Quiesce()
	require.Equal(t, Closed, m.State())
	require.Empty(t, m.Close())
}

// TestAgainstList compares random operations with a list.
func TestAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New()
		type put struct{ id, priority int }
		var want []put
		var got []int
		for id := range rapid.IntRange(1, 60).Draw(t, "steps") {
			priority := rapid.IntRange(-1, 3).Draw(t, "priority")
			mail := Mail{Priority: priority, Run: func() error { got = append(got, id); return nil }}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				want = append(want, put{id, priority})
				if m.Put(mail) != nil {
					t.Fatal("put")
				}
			case 1:
				want = slices.Insert(want, 0, put{id, priority})
				if m.PutFirst(mail) != nil {
					t.Fatal("put first")
				}
			default:
				i := slices.IndexFunc(want, func(p put) bool { return p.priority >= priority })
				ran, _ := m.TryRun(priority)
				if ran != (i >= 0) {
					t.Fatalf("ran %v, want index %d", ran, i)
				}
				if ran {
					if got[len(got)-1] != want[i].id {
						t.Fatalf("ran %d, want %d", got[len(got)-1], want[i].id)
					}
					want = slices.Delete(want, i, i+1)
				}
			}
			if m.HasMail() != (len(want) > 0) {
				t.Fatal("HasMail")
			}
		}
	})
}

// TestManyWriters is for the race detector: each mail is run once, in the order of
// its writer.
func TestManyWriters(t *testing.T) {
	m := New()
	const writers, each = 4, 2000
	var wg sync.WaitGroup
	last := [writers]int{}
	total := 0
	done := run(t.Context(), m, func(c *Controller) error {
		if total == writers*each {
			c.Complete()
			return nil
		}
		c.Suspend()
		return nil
	})
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				err := m.Put(Mail{Priority: w, Run: func() error {
					if last[w] != i {
						return errors.New("out of order")
					}
					last[w]++
					if total++; total == writers*each {
						m.Controller().Suspend().Resume()
					}
					return nil
				}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, result(t, done))
}

// BenchmarkPut is a mail from the task to itself.
func BenchmarkPut(b *testing.B) {
	m := New()
	mail := Mail{Run: func() error { return nil }}
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Put(mail)
		_, _ = m.TryRun(MinPriority)
	}
}

// BenchmarkHasMail is what a task pays for each record.
func BenchmarkHasMail(b *testing.B) {
	m := New()
	n := 0
	for b.Loop() {
		if m.HasMail() {
			n++
		}
	}
}

// BenchmarkWake is a mail to a task that sleeps, and its answer.
func BenchmarkWake(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	m := New()
	done := run(ctx, m, func(c *Controller) error { c.Suspend(); return nil })
	answer := make(chan struct{})
	mail := Mail{Run: func() error { answer <- struct{}{}; return nil }}
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Put(mail)
		<-answer
	}
	cancel()
	<-done
}
