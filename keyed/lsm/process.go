package lsm

import (
	"sync"

	"github.com/tidemark/tidemark/incremental/pebbledb"
)

// Process is what all backends of an operating system process share: the one memory
// budget, of entries, memtables and blocks together, and the limits of files,
// compactions and transfers. For concurrent use.
type Process struct {
	db    *pebbledb.Process
	limit int64 // of entries
	step  int64

	mu       sync.Mutex
	backends int
	taken    int64 // by all
}

// ProcessOptions are the limits of a Process. Nil or zero is the default.
type ProcessOptions = pebbledb.ProcessOptions

// NewProcess makes a Process. It is closed after its backends.
func NewProcess(opts *ProcessOptions) *Process {
	p := &Process{db: pebbledb.NewProcess(opts)}
	total := p.db.MemoryBytes()
	// Blocks have to have room for the filters and indexes of all tables, or each read of a
	// row reads those of its table again.
	p.limit = total - max(total/10*3, min(32<<20, total/2))
	p.step = max(p.limit/64, 1<<16)
	return p
}

// memtable is the size of a database's memtables: they only pass on what is drained in sorted
// batches, and what they take is missing for blocks.
func (p *Process) memtable() int { return int(min(max(p.db.MemoryBytes()/64, 1<<20), 8<<20)) }

// runBytes is about how many bytes of rows each of some goroutines sorts at a time while
// they are copied: all of them together hold an eighth of the budget, or a quarter at most.
func (p *Process) runBytes(goroutines int) int {
	return int(min(max(p.db.MemoryBytes()/8/int64(goroutines), 1<<20), 16<<20))
}

// Close frees the caches.
func (p *Process) Close() { p.db.Close() }

var shared = sync.OnceValue(func() *Process { return NewProcess(nil) })

// share is a backend's part of the budget of entries.
type share struct {
	p        *Process
	taken    int64
	releases []func()
}

func (p *Process) join() *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends++
	return &share{p: p}
}

// grow takes one step more, if the budget has it or if the backend has less than its
// fair part: others then give back when they next look.
func (s *share) grow() bool {
	p := s.p
	p.mu.Lock()
	fair := p.limit / int64(max(1, p.backends))
	ok := p.taken+p.step <= p.limit || s.taken+p.step <= fair
	if ok {
		p.taken += p.step
		s.taken += p.step
	}
	p.mu.Unlock()
	if ok {
		s.releases = append(s.releases, p.db.Reserve(int(p.step)))
	}
	return ok
}

// fair is a backend's part if all were alike.
func (s *share) fair() int64 {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.limit / int64(max(1, s.p.backends))
}

// shrink gives a step back where others need it.
func (s *share) shrink() {
	p := s.p
	for {
		p.mu.Lock()
		over := p.taken > p.limit && s.taken > p.limit/int64(max(1, p.backends)) && len(s.releases) > 1
		if over {
			p.taken -= p.step
			s.taken -= p.step
		}
		p.mu.Unlock()
		if !over {
			return
		}
		s.release()
	}
}

func (s *share) release() {
	last := len(s.releases) - 1
	s.releases[last]()
	s.releases = s.releases[:last]
}

// leave gives everything back.
func (s *share) leave() {
	p := s.p
	p.mu.Lock()
	p.backends--
	p.taken -= s.taken
	s.taken = 0
	p.mu.Unlock()
	for len(s.releases) > 0 {
		s.release()
	}
}
