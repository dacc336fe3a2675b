package monitor

import (
	"slices"
	"strconv"

	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

// The types below are those of Flink's REST API, as far as there is something to
// tell: CheckpointingStatistics and CheckpointStatistics. Times are milliseconds,
// sizes are bytes.

type restSpread struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
	Avg int64 `json:"avg"`
}

func spreadOf(s checkpoint.Spread) restSpread { return restSpread{s.Min, s.Max, s.Avg} }

type restCounts struct {
	Restored   int64 `json:"restored"`
	Total      int64 `json:"total"`
	InProgress int64 `json:"in_progress"`
	Completed  int64 `json:"completed"`
	Failed     int64 `json:"failed"`
}

// restQuantiles are of the completed checkpoints that the history remembers; min, max
// and avg are of all that completed.
type restQuantiles struct {
	restSpread
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P95  int64 `json:"p95"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
}

type restSummary struct {
	CheckpointedSize restQuantiles `json:"checkpointed_size"`
	StateSize        restQuantiles `json:"state_size"`
	EndToEnd         restQuantiles `json:"end_to_end_duration"`
	Processed        restQuantiles `json:"processed_data"`
	Persisted        restQuantiles `json:"persisted_data"`
}

func summary(h *checkpoint.History) restSummary {
	of := func(all checkpoint.Spread, value func(*checkpoint.Stats) int64) restQuantiles {
		q := restQuantiles{restSpread: spreadOf(all)}
		var v []int64
		for _, s := range h.Checkpoints {
			if s.Status == checkpoint.StatusCompleted {
				v = append(v, value(s))
			}
		}
		if len(v) == 0 {
			return q
		}
		slices.Sort(v)
		at := func(perMille int) int64 { return v[(len(v)-1)*perMille/1000] }
		q.P50, q.P90, q.P95, q.P99, q.P999 = at(500), at(900), at(950), at(990), at(999)
		return q
	}
	return restSummary{
		CheckpointedSize: of(h.CheckpointedSize, func(s *checkpoint.Stats) int64 { return s.CheckpointedSize }),
		StateSize:        of(h.FullSize, func(s *checkpoint.Stats) int64 { return s.FullSize }),
		EndToEnd:         of(h.EndToEnd, (*checkpoint.Stats).EndToEndMillis),
		Processed:        of(h.Processed, func(s *checkpoint.Stats) int64 { return s.ProcessedBytes }),
		Persisted:        of(h.InFlight, func(s *checkpoint.Stats) int64 { return s.InFlightBytes }),
	}
}

type restRestored struct {
	ID        int64  `json:"id"`
	At        int64  `json:"restore_timestamp"`
	Savepoint bool   `json:"is_savepoint"`
	Path      string `json:"external_path,omitempty"`
}

type restLatest struct {
	Completed *restCheckpoint `json:"completed"`
	Savepoint *restCheckpoint `json:"savepoint"`
	Failed    *restCheckpoint `json:"failed"`
	Restored  *restRestored   `json:"restored"`
}

type restOverview struct {
	Counts  restCounts        `json:"counts"`
	Summary restSummary       `json:"summary"`
	Latest  restLatest        `json:"latest"`
	History []*restCheckpoint `json:"history"` // newest first
}

type restCheckpoint struct {
	ID               int64               `json:"id"`
	Status           string              `json:"status"`
	Savepoint        bool                `json:"is_savepoint"`
	SavepointFormat  string              `json:"savepointFormat,omitempty"`
	Trigger          int64               `json:"trigger_timestamp"`
	LatestAck        int64               `json:"latest_ack_timestamp"`
	CheckpointedSize int64               `json:"checkpointed_size"`
	StateSize        int64               `json:"state_size"`
	EndToEnd         int64               `json:"end_to_end_duration"`
	Processed        int64               `json:"processed_data"`
	Persisted        int64               `json:"persisted_data"`
	Subtasks         int                 `json:"num_subtasks"`
	Acknowledged     int                 `json:"num_acknowledged_subtasks"`
	Type             string              `json:"checkpoint_type"`
	Tasks            map[string]restTask `json:"tasks,omitempty"`
	Path             string              `json:"external_path,omitempty"`
	Discarded        bool                `json:"discarded"`
	FailedAt         int64               `json:"failure_timestamp,omitempty"`
	Failure          string              `json:"failure_message,omitempty"`
	// Phases are ours: how long each took, in milliseconds.
	Phases map[string]int64 `json:"phases,omitempty"`
}

type restTask struct {
	ID               string     `json:"id"`
	Name             string     `json:"name"`
	Status           string     `json:"status"`
	LatestAck        int64      `json:"latest_ack_timestamp"`
	CheckpointedSize int64      `json:"checkpointed_size"`
	StateSize        int64      `json:"state_size"`
	EndToEnd         int64      `json:"end_to_end_duration"`
	Subtasks         int        `json:"num_subtasks"`
	Acknowledged     int        `json:"num_acknowledged_subtasks"`
	Sync             restSpread `json:"sync_duration"`
	Async            restSpread `json:"async_duration"`
	Alignment        restSpread `json:"alignment_duration"`
	StartDelay       restSpread `json:"start_delay"`
	Processed        restSpread `json:"processed"`
	Persisted        restSpread `json:"persisted"`
}

func overview(h *checkpoint.History) restOverview {
	o := restOverview{
		Counts:  restCounts{h.Counts.Restored, h.Counts.Total, h.Counts.InProgress, h.Counts.Completed, h.Counts.Failed},
		Summary: summary(h),
		Latest:  restLatest{Completed: short(h.LatestCompleted), Savepoint: short(h.LatestSavepoint), Failed: short(h.LatestFailed)},
		History: []*restCheckpoint{},
	}
	if r := h.LatestRestored; r != nil {
		o.Latest.Restored = &restRestored{r.ID, r.At, r.Savepoint, r.Path}
	}
	for i := len(h.Checkpoints) - 1; i >= 0; i-- {
		o.History = append(o.History, short(h.Checkpoints[i]))
	}
	return o
}

// short is a checkpoint without its tasks.
func short(s *checkpoint.Stats) *restCheckpoint {
	if s == nil {
		return nil
	}
	c := &restCheckpoint{
		ID: s.ID, Status: string(s.Status), Savepoint: s.Type.IsSavepoint(), Trigger: s.Triggered, LatestAck: orMinusOne(s.LastAck),
		CheckpointedSize: s.CheckpointedSize, StateSize: s.FullSize, EndToEnd: s.EndToEndMillis(), Processed: s.ProcessedBytes, Persisted: s.InFlightBytes,
		Subtasks: s.Tasks, Acknowledged: s.Acknowledged, Type: typeOf(s), Path: s.Path, Discarded: s.Discarded, Failure: failureOf(s),
	}
	switch s.Type {
	case event.SavepointCanonical:
		c.SavepointFormat = "CANONICAL"
	case event.SavepointNative:
		c.SavepointFormat = "NATIVE"
	}
	if s.Status == checkpoint.StatusFailed {
		c.FailedAt = s.Ended
	}
	return c
}

func orMinusOne(at int64) int64 {
	if at == 0 {
		return -1
	}
	return at
}

// typeOf is Flink's RestAPICheckpointType.
func typeOf(s *checkpoint.Stats) string {
	switch {
	case s.Type.IsSavepoint() && s.Post != event.None:
		return "SYNC_SAVEPOINT"
	case s.Type.IsSavepoint():
		return "SAVEPOINT"
	case s.Options.Alignment == event.Unaligned:
		return "UNALIGNED_CHECKPOINT"
	}
	return "CHECKPOINT"
}

// failureOf is why a checkpoint has failed: the reason, the task and its error.
func failureOf(s *checkpoint.Stats) string {
	if s.Status != checkpoint.StatusFailed {
		return ""
	}
	text := s.Reason.Text()
	if s.FailedTask != "" {
		text += " (" + s.FailedTask + ")"
	}
	if s.Failure != "" {
		text += ": " + s.Failure
	}
	return text
}

// details is a checkpoint with its phases and tasks.
func details(s *checkpoint.Stats) *restCheckpoint {
	c := short(s)
	c.Phases = map[string]int64{}
	for _, p := range phases(s) {
		c.Phases[p.Name] = p.End - p.Begin
	}
	c.Tasks = map[string]restTask{}
	for i := range s.Vertices {
		v := &s.Vertices[i]
		if len(v.Subtasks) == 0 {
			continue
		}
		x := v.Spreads(s.Triggered)
		t := restTask{
			ID: v.ID.String(), Name: v.Name, Status: string(s.Status), LatestAck: orMinusOne(v.LastAck), CheckpointedSize: x.CheckpointedSize.Sum, StateSize: x.FullSize.Sum,
			EndToEnd: x.EndToEnd.Max, Subtasks: len(v.Subtasks), Acknowledged: v.Acknowledged, Sync: spreadOf(x.Sync), Async: spreadOf(x.Async),
			Alignment: spreadOf(x.Alignment), StartDelay: spreadOf(x.StartDelay), Processed: spreadOf(x.Processed), Persisted: spreadOf(x.InFlight),
		}
		key := t.ID
		if _, twice := c.Tasks[key]; twice {
			key += "#" + strconv.Itoa(i)
		}
		c.Tasks[key] = t
	}
	return c
}

// phase is a part of a checkpoint's time, in milliseconds since 1970.
type phase struct {
	Name       string
	Begin, End int64
}

// phases are those that a checkpoint has passed, in their order.
func phases(s *checkpoint.Stats) (list []phase) {
	at := s.Triggered
	if s.Requested > 0 && s.Requested < at {
		list = append(list, phase{"waiting", s.Requested, at})
	}
	acks := s.LastAck
	if s.Status != checkpoint.StatusCompleted && s.Acknowledged < s.Tasks {
		acks = 0 // the phase has not ended
	}
	for _, p := range []phase{{"location", 0, s.Located}, {"coordinators", 0, s.Coordinated}, {"master hooks", 0, s.Mastered}, {"tasks", 0, acks}, {"commit", 0, s.Ended}} {
		if p.End == 0 || p.Name == "commit" && acks == 0 {
			break
		}
		p.Begin, at = at, p.End
		list = append(list, p)
	}
	return list
}
