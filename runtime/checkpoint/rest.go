package checkpoint

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// Statistics is a History in the form in which Flink's REST API gives it, at
// /jobs/:jobid/checkpoints, so that what reads that reads this. Times are
// milliseconds since 1970, durations milliseconds, sizes bytes.
type Statistics struct {
	Counts struct {
		Restored   int64 `json:"restored"`
		Total      int64 `json:"total"`
		InProgress int64 `json:"in_progress"`
		Completed  int64 `json:"completed"`
		Failed     int64 `json:"failed"`
	} `json:"counts"`
	Summary struct {
		CheckpointedSize Quantiles `json:"checkpointed_size"`
		StateSize        Quantiles `json:"state_size"`
		EndToEnd         Quantiles `json:"end_to_end_duration"`
		Processed        Quantiles `json:"processed_data"`
		Persisted        Quantiles `json:"persisted_data"`
	} `json:"summary"`
	Latest struct {
		Completed *CheckpointStatistics `json:"completed"`
		Savepoint *CheckpointStatistics `json:"savepoint"`
		Failed    *CheckpointStatistics `json:"failed"`
		Restored  *RestoredStatistics   `json:"restored"`
	} `json:"latest"`
	// Newest first.
	History []CheckpointStatistics `json:"history"`
}

// Quantiles of the completed checkpoints that the History remembers; min, max and
// avg are of all that completed.
type Quantiles struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
	Avg int64 `json:"avg"`
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P95 int64 `json:"p95"`
	P99 int64 `json:"p99"`
}

// CheckpointStatistics is one checkpoint.
type CheckpointStatistics struct {
	ID               int64  `json:"id"`
	Status           Status `json:"status"`
	IsSavepoint      bool   `json:"is_savepoint"`
	SavepointFormat  string `json:"savepointFormat,omitempty"`
	Type             string `json:"checkpoint_type"`
	Triggered        int64  `json:"trigger_timestamp"`
	LatestAck        int64  `json:"latest_ack_timestamp"`
	CheckpointedSize int64  `json:"checkpointed_size"`
	StateSize        int64  `json:"state_size"`
	EndToEnd         int64  `json:"end_to_end_duration"`
	Processed        int64  `json:"processed_data"`
	Persisted        int64  `json:"persisted_data"`
	Subtasks         int    `json:"num_subtasks"`
	Acknowledged     int    `json:"num_acknowledged_subtasks"`
	// Completed.
	Path      string `json:"external_path,omitempty"`
	Discarded bool   `json:"discarded,omitempty"`
	// Failed.
	FailedAt int64  `json:"failure_timestamp,omitempty"`
	Failure  string `json:"failure_message,omitempty"`
	// Phases are not in Flink's answer: how long each took, 0 for those that were
	// not reached.
	Phases struct {
		Waited       int64 `json:"waited"` // from the request to the trigger
		Location     int64 `json:"location"`
		Coordinators int64 `json:"coordinators"`
		Hooks        int64 `json:"master_hooks"`
		Tasks        int64 `json:"tasks"`    // until the last acknowledgement
		Finalize     int64 `json:"finalize"` // until the metadata object is durable
	} `json:"phases"`
	// Tasks by the ID of their vertex.
	Tasks map[string]TaskStatistics `json:"tasks"`
}

// TaskStatistics is the part of one vertex.
type TaskStatistics struct {
	Name             string `json:"name"` // not in Flink's answer
	Subtasks         int    `json:"num_subtasks"`
	Acknowledged     int    `json:"num_acknowledged_subtasks"`
	LatestAck        int64  `json:"latest_ack_timestamp"`
	CheckpointedSize MinMax `json:"checkpointed_size"`
	StateSize        MinMax `json:"state_size"`
	EndToEnd         MinMax `json:"end_to_end_duration"`
	Sync             MinMax `json:"sync_duration"`
	Async            MinMax `json:"async_duration"`
	Alignment        MinMax `json:"alignment_duration"`
	StartDelay       MinMax `json:"start_delay"`
	Processed        MinMax `json:"processed_data"`
	Persisted        MinMax `json:"persisted_data"`
}

// MinMax over the subtasks that have acknowledged.
type MinMax struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
	Avg int64 `json:"avg"`
}

// RestoredStatistics is the latest restore.
type RestoredStatistics struct {
	ID          int64  `json:"id"`
	At          int64  `json:"restore_timestamp"`
	IsSavepoint bool   `json:"is_savepoint"`
	Path        string `json:"external_path"`
}

// Statistics gives the history in the form of Flink's REST API.
func (h *History) Statistics() *Statistics {
	s := &Statistics{History: []CheckpointStatistics{}}
	s.Counts.Restored, s.Counts.Total, s.Counts.InProgress = h.Counts.Restored, h.Counts.Total, h.Counts.InProgress
	s.Counts.Completed, s.Counts.Failed = h.Counts.Completed, h.Counts.Failed
	var completed []*Stats
	for _, c := range h.Checkpoints {
		if c.Status == StatusCompleted {
			completed = append(completed, c)
		}
	}
	quantiles := func(all Spread, of func(*Stats) int64) Quantiles {
		q := Quantiles{Min: all.Min, Max: all.Max, Avg: all.Avg}
		if len(completed) == 0 {
			return q
		}
		v := make([]int64, len(completed))
		for i, c := range completed {
			v[i] = of(c)
		}
		slices.Sort(v)
		at := func(p int) int64 { return v[(len(v)-1)*p/100] }
		q.P50, q.P90, q.P95, q.P99 = at(50), at(90), at(95), at(99)
		return q
	}
	s.Summary.CheckpointedSize = quantiles(h.CheckpointedSize, func(c *Stats) int64 { return c.CheckpointedSize })
	s.Summary.StateSize = quantiles(h.FullSize, func(c *Stats) int64 { return c.FullSize })
	s.Summary.EndToEnd = quantiles(h.EndToEnd, (*Stats).EndToEndMillis)
	s.Summary.Processed = quantiles(h.Processed, func(c *Stats) int64 { return c.ProcessedBytes })
	s.Summary.Persisted = quantiles(h.InFlight, func(c *Stats) int64 { return c.InFlightBytes })
	latest := func(c *Stats) *CheckpointStatistics {
		if c == nil {
			return nil
		}
		r := c.statistics()
		return &r
	}
	s.Latest.Completed, s.Latest.Savepoint, s.Latest.Failed = latest(h.LatestCompleted), latest(h.LatestSavepoint), latest(h.LatestFailed)
	if r := h.LatestRestored; r != nil {
		s.Latest.Restored = &RestoredStatistics{r.ID, r.At, r.Savepoint, r.Path}
	}
	for _, c := range slices.Backward(h.Checkpoints) {
		s.History = append(s.History, c.statistics())
	}
	return s
}

func (s *Stats) statistics() CheckpointStatistics {
	c := CheckpointStatistics{ID: s.ID, Status: s.Status, IsSavepoint: s.Type.IsSavepoint(), Triggered: s.Triggered, LatestAck: s.LastAck,
		CheckpointedSize: s.CheckpointedSize, StateSize: s.FullSize, EndToEnd: s.EndToEndMillis(), Processed: s.ProcessedBytes, Persisted: s.InFlightBytes,
		Subtasks: s.Tasks, Acknowledged: s.Acknowledged, Path: s.Path, Discarded: s.Discarded, Tasks: map[string]TaskStatistics{}}
	switch {
	case s.Type == event.SavepointCanonical:
		c.SavepointFormat = metadata.FormatCanonical
	case s.Type == event.SavepointNative:
		c.SavepointFormat = metadata.FormatNative
	}
	switch {
	case s.Post != event.None:
		c.Type = "SYNC_SAVEPOINT"
	case c.IsSavepoint:
		c.Type = "SAVEPOINT"
	case s.Options.Alignment == event.Unaligned:
		c.Type = "UNALIGNED_CHECKPOINT"
	default:
		c.Type = "CHECKPOINT"
	}
	if s.Status == StatusFailed {
		c.FailedAt, c.Failure = s.Ended, s.Reason.String()
		if s.Failure != "" {
			c.Failure += ": " + s.Failure
		}
	}
	end := func(from, to int64) int64 {
		if to < from || to == 0 {
			return 0
		}
		return to - from
	}
	c.Phases.Waited = end(s.Requested, s.Triggered)
	c.Phases.Location = end(s.Triggered, s.Located)
	c.Phases.Coordinators = end(s.Located, s.Coordinated)
	c.Phases.Hooks = end(s.Coordinated, s.Mastered)
	if s.Mastered > 0 {
		c.Phases.Tasks = end(s.Mastered, s.LastAck)
	}
	if s.Status == StatusCompleted {
		c.Phases.Finalize = end(s.LastAck, s.Ended)
	}
	for i := range s.Vertices {
		v := &s.Vertices[i]
		p := v.Spreads(s.Triggered)
		of := func(x Spread) MinMax { return MinMax{x.Min, x.Max, x.Avg} }
		c.Tasks[v.ID.String()] = TaskStatistics{Name: v.Name, Subtasks: len(v.Subtasks), Acknowledged: v.Acknowledged, LatestAck: v.LastAck,
			CheckpointedSize: of(p.CheckpointedSize), StateSize: of(p.FullSize), EndToEnd: of(p.EndToEnd), Sync: of(p.Sync), Async: of(p.Async),
			Alignment: of(p.Alignment), StartDelay: of(p.StartDelay), Processed: of(p.Processed), Persisted: of(p.InFlight)}
	}
	return c
}

// WriteMetrics writes the figures that Flink's job manager reports, under Flink's
// names, in the text format that Prometheus reads (0.0.4). labels, "job="x"" or
// empty, go with each.
func (h *History) WriteMetrics(w io.Writer, labels string) error {
	var b strings.Builder
	if labels != "" {
		labels = "{" + labels + "}"
	}
	one := func(name, kind, help string, v int64) {
		name = "flink_jobmanager_job_" + name
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s%s %d\n", name, help, name, kind, name, labels, v)
	}
	one("totalNumberOfCheckpoints", "gauge", "Checkpoints and savepoints that were begun.", h.Counts.Total)
	one("numberOfInProgressCheckpoints", "gauge", "Of these, under way.", h.Counts.InProgress)
	one("numberOfCompletedCheckpoints", "gauge", "Of these, completed.", h.Counts.Completed)
	one("numberOfFailedCheckpoints", "gauge", "Of these, failed.", h.Counts.Failed)
	one("numberOfRestoredCheckpoints", "gauge", "Restores of the job.", h.Counts.Restored)
	if c := h.LatestCompleted; c != nil {
		one("lastCheckpointDuration", "gauge", "Milliseconds from the trigger to the end of the last completed checkpoint.", c.EndToEndMillis())
		one("lastCheckpointSize", "gauge", "Bytes that the last completed checkpoint has written.", c.CheckpointedSize)
		one("lastCheckpointFullSize", "gauge", "Bytes that the last completed checkpoint refers to.", c.FullSize)
		one("lastCheckpointPersistedData", "gauge", "Bytes of channel state in the last completed checkpoint.", c.InFlightBytes)
		one("lastCheckpointProcessedData", "gauge", "Bytes that were processed while it was aligned.", c.ProcessedBytes)
		one("lastCompletedCheckpointId", "gauge", "Its ID.", c.ID)
	}
	if r := h.LatestRestored; r != nil {
		one("lastCheckpointRestoreTimestamp", "gauge", "When the job was restored last, in milliseconds since 1970.", r.At)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
