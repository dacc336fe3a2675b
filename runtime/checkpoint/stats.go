package checkpoint

import (
	"math"
	"slices"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// Status of a checkpoint in the history.
type Status string

// Statuses, as Flink's REST API names them.
const (
	StatusInProgress Status = "IN_PROGRESS"
	StatusCompleted  Status = "COMPLETED"
	StatusFailed     Status = "FAILED"
)

// Stats is what is known of one checkpoint: what Flink's web UI shows. Times are
// milliseconds since 1970, 0 for what has not happened.
type Stats struct {
	ID      int64
	Type    event.SnapshotType
	Post    event.PostAction
	Options event.Options
	Status  Status
	// Periodic says that the periodic trigger asked for it.
	Periodic bool
	// The phases: each time is the end of one, Triggered the beginning of the first.
	Requested   int64 // when it was asked for: it may have had to wait
	Triggered   int64
	Located     int64 // its place was ready
	Coordinated int64 // the operator coordinators gave their state
	Mastered    int64 // the master hooks gave theirs, and the tasks were triggered
	LastAck     int64
	Ended       int64 // completed (the metadata object is durable) or failed
	Path        string
	Discarded   bool // completed, and subsumed since
	// Reason, Failure and FailedTask of one that failed. FailedTask is empty if it
	// was no task.
	Reason     event.Reason
	Failure    string
	FailedTask string
	// Sizes in bytes: newly written by this checkpoint, and of all it refers to.
	CheckpointedSize  int64
	FullSize          int64
	InFlightBytes     int64 // persisted channel state
	ProcessedBytes    int64 // processed while aligning
	MetadataOperators int
	Tasks             int // that take part
	Acknowledged      int
	Vertices          []VertexStats
}

// VertexStats is the part of one vertex.
type VertexStats struct {
	ID           metadata.OperatorID
	Name         string
	Subtasks     []SubtaskStats // by subtask; those that take no part have AckAt 0
	Acknowledged int
	LastAck      int64
}

// SubtaskStats is the part of one subtask.
type SubtaskStats struct {
	Subtask int32
	Attempt int32
	AckAt   int64 // 0: not acknowledged
	event.Metrics
	Finished bool
}

// EndToEndMillis is how long a checkpoint took until its end, so far until its
// last acknowledgement.
func (s *Stats) EndToEndMillis() int64 {
	switch {
	case s.Ended > 0:
		return s.Ended - s.Triggered
	case s.LastAck > 0:
		return s.LastAck - s.Triggered
	}
	return 0
}

// Spread is the smallest, the mean and the largest of some values.
type Spread struct {
	Min, Avg, Max, Sum int64
	Count              int
}

func (s *Spread) add(v int64) {
	if s.Count == 0 {
		s.Min, s.Max = v, v
	}
	s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	s.Sum += v
	s.Count++
	s.Avg = s.Sum / int64(s.Count)
}

// Spreads of the subtasks of a vertex that have acknowledged: what Flink shows
// under a checkpoint's details.
type Spreads struct {
	EndToEnd, Sync, Async, Alignment, StartDelay, CheckpointedSize, FullSize, InFlight, Processed Spread
}

// Spreads computes them; triggered is the checkpoint's.
func (v *VertexStats) Spreads(triggered int64) Spreads {
	var s Spreads
	for i := range v.Subtasks {
		t := &v.Subtasks[i]
		if t.AckAt == 0 {
			continue
		}
		s.EndToEnd.add(t.AckAt - triggered)
		s.Sync.add(t.SyncMillis)
		s.Async.add(t.AsyncMillis)
		s.Alignment.add(t.AlignmentMillis)
		s.StartDelay.add(t.StartDelayMillis)
		s.CheckpointedSize.add(t.BytesPersisted)
		s.FullSize.add(t.TotalBytes)
		s.InFlight.add(t.BytesPersistedDuringAlignment)
		s.Processed.add(t.BytesProcessedDuringAlignment)
	}
	return s
}

// Counts of checkpoints since the coordinator began.
type Counts struct {
	Restored, Total, InProgress, Completed, Failed int64
	// Rejected requests never became a checkpoint.
	Rejected int64
}

// History is the checkpoints of a job: the newest ones with all details, and
// figures of all that completed.
type History struct {
	Counts Counts
	// Newest last.
	Checkpoints     []*Stats
	LatestCompleted *Stats
	LatestFailed    *Stats
	LatestSavepoint *Stats
	LatestRestored  *Restored
	// Of the completed checkpoints: milliseconds and bytes.
	EndToEnd, CheckpointedSize, FullSize, InFlight, Processed Spread

	size int
}

// Restored is a restore of the job.
type Restored struct {
	ID        int64
	At        int64
	Path      string
	Savepoint bool
}

func newHistory(size int) *History { return &History{size: size} }

// Find gives the statistics of a checkpoint that is remembered, nil for another.
func (h *History) Find(id int64) *Stats {
	for _, s := range h.Checkpoints {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Clone is a deep copy, to be read while the Core goes on.
func (h *History) Clone() *History {
	c := *h
	c.Checkpoints = make([]*Stats, len(h.Checkpoints))
	copies := map[*Stats]*Stats{}
	clone := func(s *Stats) *Stats {
		if s == nil {
			return nil
		}
		if d := copies[s]; d != nil {
			return d
		}
		d := *s
		d.Vertices = slices.Clone(s.Vertices)
		for i := range d.Vertices {
			d.Vertices[i].Subtasks = slices.Clone(d.Vertices[i].Subtasks)
		}
		copies[s] = &d
		return &d
	}
	for i, s := range h.Checkpoints {
		c.Checkpoints[i] = clone(s)
	}
	c.LatestCompleted, c.LatestFailed, c.LatestSavepoint = clone(h.LatestCompleted), clone(h.LatestFailed), clone(h.LatestSavepoint)
	if r := h.LatestRestored; r != nil {
		d := *r
		c.LatestRestored = &d
	}
	return &c
}

func (h *History) rejected() { h.Counts.Rejected++ }

func (h *History) restored(r Restored) {
	h.Counts.Restored++
	h.LatestRestored = &r
}

func (h *History) begin(c *Core, p *pending) *Stats {
	s := &Stats{ID: p.id, Type: p.barrier.Options.Type, Post: p.req.Post, Options: p.barrier.Options, Status: StatusInProgress, Periodic: p.req.periodic(),
		Requested: p.req.arrived, Triggered: c.now, Tasks: len(p.plan.wait), Vertices: make([]VertexStats, len(c.g.Vertices))}
	for v := range s.Vertices {
		s.Vertices[v].ID, s.Vertices[v].Name = c.g.Vertices[v].ID, c.g.Vertices[v].Name
	}
	for _, i := range p.plan.wait {
		v, subtask := c.g.place(i)
		s.Vertices[v].Subtasks = append(s.Vertices[v].Subtasks, SubtaskStats{Subtask: subtask, Attempt: c.tasks[i].attempt})
	}
	h.Counts.Total++
	h.Counts.InProgress++
	h.Checkpoints = append(h.Checkpoints, s)
	h.trim()
	return s
}

// trim forgets the oldest that have ended.
func (h *History) trim() {
	for i := 0; len(h.Checkpoints) > h.size && i < len(h.Checkpoints); {
		if h.Checkpoints[i].Status == StatusInProgress {
			i++
			continue
		}
		h.Checkpoints = slices.Delete(h.Checkpoints, i, i+1)
	}
}

func (s *Stats) acked(c *Core, task int, a *event.Ack) {
	v, subtask := c.g.place(task)
	s.Acknowledged++
	s.LastAck = c.now
	w := &s.Vertices[v]
	w.Acknowledged++
	w.LastAck = c.now
	i, ok := slices.BinarySearchFunc(w.Subtasks, subtask, func(t SubtaskStats, k int32) int { return int(t.Subtask - k) })
	if !ok {
		return
	}
	// AckAt 0 stands for none; virtual time may begin at 0.
	w.Subtasks[i].AckAt, w.Subtasks[i].Metrics, w.Subtasks[i].Finished = max(c.now, 1), a.Metrics, a.Finished
	add := func(sum *int64, v int64) {
		if v > 0 {
			*sum += min(v, math.MaxInt64-*sum)
		}
	}
	add(&s.CheckpointedSize, a.Metrics.BytesPersisted)
	add(&s.FullSize, a.Metrics.TotalBytes)
	add(&s.InFlightBytes, a.Metrics.BytesPersistedDuringAlignment)
	add(&s.ProcessedBytes, a.Metrics.BytesProcessedDuringAlignment)
}

func (h *History) completed(c *Core, p *pending, path string) {
	s := p.stats
	s.Status, s.Ended, s.Path = StatusCompleted, c.now, path
	s.MetadataOperators = len(p.meta.Operators)
	h.Counts.InProgress--
	h.Counts.Completed++
	h.EndToEnd.add(s.EndToEndMillis())
	h.CheckpointedSize.add(s.CheckpointedSize)
	h.FullSize.add(s.FullSize)
	h.InFlight.add(s.InFlightBytes)
	h.Processed.add(s.ProcessedBytes)
	if p.savepoint() {
		h.LatestSavepoint = s
	} else {
		h.LatestCompleted = s
	}
	h.trim()
}

func (h *History) failed(c *Core, p *pending, reason event.Reason, err error, by *event.Task) {
	s := p.stats
	s.Status, s.Ended, s.Reason = StatusFailed, c.now, reason
	if err != nil {
		s.Failure = err.Error()
	}
	if by != nil {
		s.FailedTask = c.g.taskName(*by)
	}
	h.Counts.InProgress--
	h.Counts.Failed++
	h.LatestFailed = s
	h.trim()
}

func (h *History) discarded(id int64) {
	if s := h.Find(id); s != nil {
		s.Discarded = true
	}
	if s := h.LatestCompleted; s != nil && s.ID == id {
		s.Discarded = true
	}
}
