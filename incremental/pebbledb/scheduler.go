package pebbledb

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// compactionLimit gives the compactions of all databases of a process a number of
// places. A free place goes to the database whose waiting compaction is the most
// urgent.
type compactionLimit struct {
	mu      sync.Mutex
	places  int
	running int
	members map[*scheduler]struct{}

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// grantInterval is how often waiting databases are asked although no compaction
// ended: one may have begun to wait while all places were taken.
const grantInterval = 100 * time.Millisecond

func newCompactionLimit(places int) *compactionLimit {
	l := &compactionLimit{places: places, members: map[*scheduler]struct{}{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

func (l *compactionLimit) close() {
	l.once.Do(func() { close(l.stop) })
	<-l.done
}

func (l *compactionLimit) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *compactionLimit) run() {
	defer close(l.done)
	t := time.NewTicker(grantInterval)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.wake:
		case <-t.C:
		}
		for l.grant() {
		}
	}
}

// take takes a place.
func (l *compactionLimit) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running >= l.places {
		return false
	}
	l.running++
	return true
}

func (l *compactionLimit) give() {
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
}

// grant lets the most urgent waiting compaction run; false if there is none or no
// place. The databases are called without the lock, since they call back.
func (l *compactionLimit) grant() bool {
	if !l.take() {
		return false
	}
	var best *scheduler
	var urgent pebble.WaitingCompaction
	l.mu.Lock()
	members := make([]*scheduler, 0, len(l.members))
	for s := range l.members {
		members = append(members, s)
	}
	l.mu.Unlock()
	for _, s := range members {
		if waiting, w := s.waiting(); waiting && (best == nil || moreUrgent(w, urgent)) {
			best, urgent = s, w
		}
	}
	if best == nil || !best.schedule() {
		l.give()
		return false
	}
	return true
}

func moreUrgent(a, b pebble.WaitingCompaction) bool {
	if a.Optional != b.Optional {
		return !a.Optional
	}
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.Score > b.Score
}

// scheduler is the compaction scheduler of one database: a gate before the limit
// of the process. While the gate is shut no compaction begins, so that Open, which
// waits for those that it started, returns at once, and a database whose tables
// are still in the blob store does not fetch them to compact them.
type scheduler struct {
	limit *compactionLimit

	mu      sync.Mutex
	idle    *sync.Cond // calling == 0
	db      pebble.DBForCompaction
	due     func() bool // whether level 0 is to be compacted now; set before the gate opens
	open    bool
	calling int // calls of db under way
}

func newScheduler(l *compactionLimit) *scheduler {
	s := &scheduler{limit: l}
	s.idle = sync.NewCond(&s.mu)
	return s
}

// Register implements pebble.CompactionScheduler.
func (s *scheduler) Register(_ int, db pebble.DBForCompaction) {
	s.mu.Lock()
	s.db = db
	s.mu.Unlock()
	s.limit.mu.Lock()
	s.limit.members[s] = struct{}{}
	s.limit.mu.Unlock()
}

// Unregister implements pebble.CompactionScheduler: it waits for calls of the
// database that are under way.
func (s *scheduler) Unregister() {
	s.limit.mu.Lock()
	delete(s.limit.members, s)
	s.limit.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.open = nil, false
	for s.calling > 0 {
		s.idle.Wait()
	}
}

// TrySchedule implements pebble.CompactionScheduler. It is called with Pebble's locks,
// so it cannot see whether the compaction is due: the limit asks for it at once.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	s.limit.poke()
	return false, nil
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (s *scheduler) UpdateGetAllowedWithoutPermission() { s.limit.poke() }

// setOpen opens or shuts the gate. Running compactions go on.
func (s *scheduler) setOpen(open bool) {
	s.mu.Lock()
	s.open = open
	s.mu.Unlock()
	if open {
		s.limit.poke()
	}
}

// call gives the database if compactions of it may begin; leave ends the call.
func (s *scheduler) call() pebble.DBForCompaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open || s.db == nil {
		return nil
	}
	s.calling++
	return s.db
}

func (s *scheduler) leave() {
	s.mu.Lock()
	s.calling--
	if s.calling == 0 {
		s.idle.Broadcast()
	}
	s.mu.Unlock()
}

func (s *scheduler) waiting() (bool, pebble.WaitingCompaction) {
	db := s.call()
	if db == nil {
		return false, pebble.WaitingCompaction{}
	}
	defer s.leave()
	waiting, w := db.GetWaitingCompaction()
	if waiting && !w.Optional && s.due != nil && !s.due() {
		waiting = false
	}
	return waiting, w
}

func (s *scheduler) schedule() bool {
	db := s.call()
	if db == nil {
		return false
	}
	defer s.leave()
	return db.Schedule(grantHandle{s.limit})
}

// grantHandle is the place of one compaction.
type grantHandle struct{ limit *compactionLimit }

func (grantHandle) Started()                                          {}
func (grantHandle) MeasureCPU(pebble.CompactionGoroutineKind)         {}
func (grantHandle) CumulativeStats(pebble.CompactionGrantHandleStats) {}
func (h grantHandle) Done()                                           { h.limit.give(); h.limit.poke() }

var _ pebble.CompactionScheduler = (*scheduler)(nil)
