package channel

import "sync"

// queue is what waits in a channel: buffers and events, those with priority in
// front. The two ends are two goroutines; each hand-over takes the lock once for a
// buffer, not for a record.
type queue struct {
	mu       sync.Mutex
	entries  []entry // a circular buffer
	head     int
	n        int
	priority int // of them, in front
	bytes    int // of data
	closed   bool
	// announces: a timeoutable barrier that has to wait puts an announcement in front.
	announces bool
	// notify is called, without the lock, when there is something where there was
	// nothing, and for a priority entry.
	notify func(priority bool)
	// left is called with the lock held when a timeoutable barrier comes to its turn
	// or is taken over by the reader, so that the writer need not capture anything.
	left func(id int64)
	// ended is called, with the lock held, when an EndOfData or EndOfPartition is taken.
	ended func(kind EventKind)
}

// entry is a buffer or an event.
type entry struct {
	view        // data if seg is not nil
	event       *Event
	overtaken   []view // data that the event overtook in this queue, retained
	timeoutable bool
	urgent      bool // it was polled from among those with priority
}

func (q *queue) at(i int) *entry { return &q.entries[(q.head+i)&(len(q.entries)-1)] }

func (q *queue) grow() {
	if q.n < len(q.entries) {
		return
	}
	list := make([]entry, max(8, 2*len(q.entries)))
	for i := range q.n {
		list[i] = *q.at(i)
	}
	q.entries, q.head = list, 0
}

// insert puts e at place i; q.mu is held.
func (q *queue) insert(i int, e entry) {
	q.grow()
	if i == 0 && q.n > 0 {
		q.head = (q.head - 1) & (len(q.entries) - 1)
		q.n++
		*q.at(0) = e
		return
	}
	q.n++
	for k := q.n - 1; k > i; k-- {
		*q.at(k) = *q.at(k - 1)
	}
	*q.at(i) = e
}

// removeAt takes out the i-th entry; q.mu is held.
func (q *queue) removeAt(i int) entry {
	e := *q.at(i)
	for ; i > 0; i-- {
		*q.at(i) = *q.at(i - 1)
	}
	*q.at(0) = entry{}
	q.head = (q.head + 1) & (len(q.entries) - 1)
	q.n--
	return e
}

// addData appends a part of a segment, for which the caller used it once. If the
// last entry is the part in front of it, that grows instead and the use is given
// back: a reader that is behind gets one buffer where a writer flushed many times.
func (q *queue) addData(v view) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		v.seg.unuse()
		return
	}
	q.bytes += v.len()
	if q.n > q.priority {
		if last := q.at(q.n - 1); last.seg == v.seg && last.end == v.start {
			last.end = v.end
			q.mu.Unlock()
			v.seg.unuse()
			return
		}
	}
	first, notify := q.n == 0, q.notify
	q.insert(q.n, entry{view: v})
	q.mu.Unlock()
	if first && notify != nil {
		notify(false)
	}
}

// addEvent appends an event.
func (q *queue) addEvent(ev *Event) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	timeoutable := ev.Kind == Barrier && ev.Barrier.Options.Timeoutable()
	first, announce := q.n == 0, false
	if timeoutable && q.announces && q.n > q.priority {
		q.insert(q.priority, entry{event: &Event{Kind: Announcement, Barrier: ev.Barrier}})
		q.priority++
		announce = true
	}
	q.insert(q.n, entry{event: ev, timeoutable: timeoutable})
	notify := q.notify
	q.mu.Unlock()
	if notify != nil && (first || announce) {
		notify(announce)
	}
}

// addPriority puts an event in front of all data and gives what it overtook: each
// view is retained.
func (q *queue) addPriority(ev *Event) []view {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return nil
	}
	var overtaken []view
	if ev.Kind == Barrier {
		overtaken = q.dataBefore(q.n)
	}
	q.insert(q.priority, entry{event: ev})
	q.priority++
	notify := q.notify
	q.mu.Unlock()
	if notify != nil {
		notify(true)
	}
	return overtaken
}

// dataBefore retains the data in front of place i; q.mu is held.
func (q *queue) dataBefore(i int) []view {
	var out []view
	for k := q.priority; k < i; k++ {
		if e := q.at(k); e.seg != nil {
			e.seg.retain()
			out = append(out, e.view)
		}
	}
	return out
}

// convert lets the timeoutable barrier id overtake the data in front of it. It
// gives what it overtook, retained; ok is false if it is not in the queue any more.
// If keep is true the reader takes it over: the overtaken data comes with the event.
func (q *queue) convert(id int64, keep bool) (overtaken []view, ok bool) {
	q.mu.Lock()
	for i := q.priority; i < q.n; i++ {
		e := q.at(i)
		if !e.timeoutable || e.event.Barrier.ID != id {
			continue
		}
		overtaken = q.dataBefore(i)
		moved := q.removeAt(i)
		b := *moved.event
		b.Barrier.Options = b.Barrier.Options.ToUnaligned()
		moved.event, moved.timeoutable = &b, false
		if keep {
			moved.overtaken = overtaken
			if q.left != nil {
				q.left(id)
			}
		}
		q.insert(q.priority, moved)
		q.priority++
		notify := q.notify
		q.mu.Unlock()
		if notify != nil {
			notify(true)
		}
		return overtaken, true
	}
	q.mu.Unlock()
	return nil, false
}

// what says which entries a poll takes.
type what uint8

const (
	anything     what = iota
	onlyPriority      // leaves data and what is behind it
	noData            // leaves data: a sender has no credit for it
)

// poll takes the next entry; more says that there is something behind it, or that
// something was left.
func (q *queue) poll(take what) (e entry, more, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == 0 || take == onlyPriority && q.priority == 0 || take == noData && q.at(0).seg != nil {
		return entry{}, q.n > 0, false
	}
	e = q.removeAt(0)
	if q.priority > 0 {
		q.priority--
		e.urgent = true
	} else if e.timeoutable && q.left != nil {
		q.left(e.event.Barrier.ID)
	}
	if e.seg != nil {
		q.bytes -= e.len()
	} else if k := e.event.Kind; (k == EndOfData || k == EndOfPartition) && q.ended != nil {
		q.ended(k)
	}
	return e, q.n > 0, true
}

// receivePriority is addPriority at the reader's end of a transport: what the event
// overtook there comes with it.
func (q *queue) receivePriority(ev *Event) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	e := entry{event: ev}
	if ev.Kind == Barrier {
		e.overtaken = q.dataBefore(q.n)
	}
	q.insert(q.priority, e)
	q.priority++
	notify := q.notify
	q.mu.Unlock()
	if notify != nil {
		notify(true)
	}
}

// close drops what is in the queue and takes nothing more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.n > 0 {
		e := q.removeAt(0)
		e.drop()
	}
	q.priority, q.bytes = 0, 0
}

// drop releases what an entry holds.
func (e *entry) drop() {
	if e.seg != nil {
		e.seg.unuse()
	}
	releaseViews(e.overtaken)
}

func releaseViews(views []view) {
	for _, v := range views {
		v.seg.release()
	}
}

// size is how much data waits.
func (q *queue) size() (buffers, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := q.priority; i < q.n; i++ {
		if q.at(i).seg != nil {
			buffers++
		}
	}
	return buffers, q.bytes
}
