package monitor

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/tidemark/tidemark/runtime/checkpoint"
)

// Span is a piece of time of a checkpoint, as OpenTelemetry has it.
type Span struct {
	Trace      [16]byte // the same for all spans of a checkpoint
	ID         [8]byte
	Parent     [8]byte // zero for the checkpoint itself
	Name       string
	Start, End time.Time
	Attributes []Attribute
	// Failure is why it has failed; "" if it has not.
	Failure string
}

// Attribute of a span: a string or an int64.
type Attribute struct {
	Key   string
	Value any
}

// Exporter takes spans: an OTLP, or an adapter to an OpenTelemetry SDK. It is called
// by the coordinator's goroutine and must not block.
type Exporter interface{ Export(spans []Span) }

// Spans makes a trace of each checkpoint that has ended: a span for the checkpoint,
// with the name and attributes of Flink's, below it one for each of its phases, and
// below that of the tasks one for each subtask. job is the job's ID.
func Spans(job string, to Exporter) checkpoint.Observer { return &tracer{job, to} }

type tracer struct {
	job string
	to  Exporter
}

func (t *tracer) CheckpointCompleted(s *checkpoint.Stats) { t.to.Export(spansOf(t.job, s)) }
func (t *tracer) CheckpointFailed(s *checkpoint.Stats)    { t.to.Export(spansOf(t.job, s)) }

// spansOf are those of a checkpoint that has ended. IDs follow from the job and the
// checkpoint, so that whoever knows these finds the trace.
func spansOf(job string, s *checkpoint.Stats) []Span {
	if s == nil {
		return nil
	}
	var trace [16]byte
	id := func(name string) (id [8]byte) {
		h := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%s", job, s.ID, name))
		copy(id[:], h[:])
		return id
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%s/%d", job, s.ID))
	copy(trace[:], h[:])
	root := Span{
		Trace: trace, ID: id(""), Name: "Checkpoint", Start: time.UnixMilli(s.Triggered), End: time.UnixMilli(max(s.Ended, s.Triggered)), Failure: failureOf(s),
		Attributes: []Attribute{
			{"jobId", job}, {"checkpointId", s.ID}, {"checkpointType", typeOf(s)}, {"checkpointStatus", string(s.Status)},
			{"checkpointedSize", s.CheckpointedSize}, {"fullSize", s.FullSize}, {"persistedData", s.InFlightBytes}, {"processedData", s.ProcessedBytes},
		},
	}
	list := []Span{root}
	for _, p := range phases(s) {
		span := Span{Trace: trace, ID: id(p.Name), Parent: root.ID, Name: p.Name, Start: time.UnixMilli(p.Begin), End: time.UnixMilli(p.End)}
		list = append(list, span)
	}
	for i := range s.Vertices {
		v := &s.Vertices[i]
		for _, x := range v.Subtasks {
			if x.AckAt == 0 {
				continue
			}
			list = append(list, Span{
				Trace: trace, ID: id(fmt.Sprintf("%d/%d", i, x.Subtask)), Parent: id("tasks"), Name: fmt.Sprintf("%s (%d)", v.Name, x.Subtask),
				Start: time.UnixMilli(s.Triggered + max(0, x.StartDelayMillis)), End: time.UnixMilli(max(x.AckAt, s.Triggered+x.StartDelayMillis)),
				Attributes: []Attribute{
					{"subtask", int64(x.Subtask)}, {"attempt", int64(x.Attempt)}, {"startDelayMillis", x.StartDelayMillis}, {"alignmentMillis", x.AlignmentMillis},
					{"syncMillis", x.SyncMillis}, {"asyncMillis", x.AsyncMillis}, {"checkpointedSize", x.BytesPersisted}, {"persistedData", x.BytesPersistedDuringAlignment},
				},
			})
		}
	}
	return list
}
