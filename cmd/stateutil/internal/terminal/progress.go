package terminal

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progressDelay is how long work must last before it shows progress: what ends
// sooner leaves the screen alone.
const progressDelay = 500 * time.Millisecond

// Progress is one line on a terminal that says how far long work has come. The
// nil Progress shows nothing. For concurrent use.
type Progress struct {
	text  atomic.Pointer[func() string]
	mu    sync.Mutex
	timer *time.Timer
	bars  *mpb.Progress
	bar   *mpb.Bar
	done  bool
}

// NewProgress shows what Update was told last, on w, once half a second passed.
func NewProgress(w io.Writer) *Progress {
	p := &Progress{}
	p.timer = time.AfterFunc(progressDelay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.done {
			return
		}
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(120*time.Millisecond))
		p.bar = p.bars.New(0, mpb.SpinnerStyle().PositionLeft(), mpb.BarWidth(2), mpb.BarRemoveOnComplete(),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
				if f := p.text.Load(); f != nil {
					return (*f)()
				}
				return ""
			})))
	})
	return p
}

// Update says how far the work has come; the text is made only when shown.
func (p *Progress) Update(text func() string) {
	if p != nil {
		p.text.Store(&text)
	}
}

// Print writes a line above the progress line; false if none stands there, and
// nothing was written.
func (p *Progress) Print(line string) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.bars == nil {
		return false
	}
	_, err := p.bars.Write([]byte(line + "\n"))
	return err == nil
}

// Stop removes the line. It may be called more than once.
func (p *Progress) Stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	p.done = true
	p.timer.Stop()
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
}
