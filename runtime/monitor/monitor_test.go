package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
)

// made is a job that never ran: what is shown of its history is known.
type made struct {
	h   *checkpoint.History
	err error
}

func (made) JobID() string                                          { return "0badc0de0000000000000000000000aa" }
func (made) Name() string                                           { return `count "words" <b>` }
func (made) Status() runtime.Status                                 { return runtime.Running }
func (made) Restarts() int                                          { return 2 }
func (m made) History(context.Context) (*checkpoint.History, error) { return m.h, m.err }
func metricsOf(ack, sync, async, aligned, bytes int64) (m event.Metrics) {
	m.StartDelayMillis, m.SyncMillis, m.AsyncMillis, m.AlignmentMillis, m.BytesPersisted, m.TotalBytes = ack, sync, async, aligned, bytes, 2*bytes
	return m
}

func twoCheckpoints() *checkpoint.History {
	done := &checkpoint.Stats{
		ID: 7, Status: checkpoint.StatusCompleted, Periodic: true, Requested: 990, Triggered: 1000, Located: 1001, Coordinated: 1003, Mastered: 1003, LastAck: 1020, Ended: 1025,
		Path: "file:///c/chk-7/_metadata", CheckpointedSize: 3000, FullSize: 6000, InFlightBytes: 10, ProcessedBytes: 20, Tasks: 2, Acknowledged: 2,
		Options: event.Options{Alignment: event.Unaligned},
		Vertices: []checkpoint.VertexStats{{Name: "Source", Acknowledged: 2, LastAck: 1020, Subtasks: []checkpoint.SubtaskStats{
			{Subtask: 0, AckAt: 1010, Metrics: metricsOf(1, 2, 3, 4, 1000)}, {Subtask: 1, AckAt: 1020, Metrics: metricsOf(3, 4, 5, 8, 2000)}}}, {Name: "Idle"}},
	}
	failed := &checkpoint.Stats{
		ID: 8, Type: event.SavepointNative, Status: checkpoint.StatusFailed, Requested: 2000, Triggered: 2000, Located: 2005, Coordinated: 2005, Mastered: 2005, Ended: 2100,
		Reason: event.CheckpointAsyncException, FailedTask: "Source (1)", Failure: "disk <full>", Tasks: 2,
		Vertices: []checkpoint.VertexStats{{Name: "Source", Subtasks: make([]checkpoint.SubtaskStats, 2)}},
	}
	h := &checkpoint.History{Checkpoints: []*checkpoint.Stats{done, failed}, LatestCompleted: done, LatestFailed: failed,
		LatestRestored: &checkpoint.Restored{ID: 3, At: 900, Path: "p"}}
	h.Counts = checkpoint.Counts{Restored: 1, Total: 2, Completed: 1, Failed: 1}
	h.EndToEnd = checkpoint.Spread{Min: 25, Avg: 25, Max: 25, Sum: 25, Count: 1}
	return h
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r.Code, r.Body.String()
}

func TestJSON(t *testing.T) {
	h := Handler(made{h: twoCheckpoints()})
	code, body := get(t, h, "/checkpoints")
	require.Equal(t, 200, code)
	var o restOverview
	require.NoError(t, json.Unmarshal([]byte(body), &o))
	require.Equal(t, restCounts{Restored: 1, Total: 2, Completed: 1, Failed: 1}, o.Counts)
	require.Equal(t, restQuantiles{restSpread{25, 25, 25}, 25, 25, 25, 25, 25}, o.Summary.EndToEnd)
	require.Contains(t, body, `"end_to_end_duration":{"min":25,"max":25,"avg":25,"p50":25,`)
	require.Equal(t, &restRestored{ID: 3, At: 900, Path: "p"}, o.Latest.Restored)
	require.Nil(t, o.Latest.Savepoint)
	require.Len(t, o.History, 2)
	require.Equal(t, int64(8), o.History[0].ID, "the newest first")
	require.Equal(t, "the asynchronous part of a task failed (Source (1)): disk <full>", o.History[0].Failure)
	require.Equal(t, "NATIVE", o.History[0].SavepointFormat)
	require.Equal(t, int64(2100), o.History[0].FailedAt)
	require.Equal(t, int64(-1), o.History[0].LatestAck)
	require.Equal(t, "UNALIGNED_CHECKPOINT", o.History[1].Type)

	code, body = get(t, h, "/checkpoints/7")
	require.Equal(t, 200, code)
	var c restCheckpoint
	require.NoError(t, json.Unmarshal([]byte(body), &c))
	require.Equal(t, map[string]int64{"waiting": 10, "location": 1, "coordinators": 2, "master hooks": 0, "tasks": 17, "commit": 5}, c.Phases)
	require.Len(t, c.Tasks, 1)
	for _, x := range c.Tasks {
		require.Equal(t, "Source", x.Name)
		require.Equal(t, int64(3000), x.CheckpointedSize)
		require.Equal(t, int64(6000), x.StateSize)
		require.Equal(t, int64(20), x.EndToEnd)
		require.Equal(t, restSpread{Min: 2, Avg: 3, Max: 4}, x.Sync)
		require.Equal(t, restSpread{Min: 3, Avg: 4, Max: 5}, x.Async)
		require.Equal(t, restSpread{Min: 4, Avg: 6, Max: 8}, x.Alignment)
		require.Equal(t, restSpread{Min: 1, Avg: 2, Max: 3}, x.StartDelay)
	}
	code, body = get(t, h, "/checkpoints/8")
	require.Equal(t, 200, code)
	require.NotContains(t, body, `"commit"`)
	require.NotContains(t, body, `"tasks":1`)
	for _, path := range []string{"/checkpoints/9", "/checkpoints/x", "/checkpoint/9", "/nothing"} {
		code, _ = get(t, h, path)
		require.Equal(t, 404, code, path)
	}
	code, body = get(t, Handler(made{err: errors.New("it has ended")}), "/metrics")
	require.Equal(t, 503, code)
	require.Contains(t, body, "it has ended")
}

func TestPages(t *testing.T) {
	h := Handler(made{h: twoCheckpoints()})
	code, body := get(t, h, "/")
	require.Equal(t, 200, code)
	for _, want := range []string{"count &#34;words&#34; &lt;b&gt;", `<a href="/checkpoint/8">8</a>`, "disk &lt;full&gt;", "2 begun, 0 in progress, 1 completed, 1 failed, 1 restored",
		"1970-01-01 00:00:01.000", "2.9 KiB"} {
		require.Contains(t, body, want)
	}
	code, body = get(t, h, "/checkpoint/7")
	require.Equal(t, 200, code)
	for _, want := range []string{"checkpoint 7", "periodic", "Source: 2 of 2", "subtask 1", "file:///c/chk-7/_metadata", "<td>commit</td>"} {
		require.Contains(t, body, want)
	}
	require.NotContains(t, body, "Idle")
	_, body = get(t, h, "/checkpoint/8")
	require.Contains(t, body, "not acknowledged")
}

func TestMetrics(t *testing.T) {
	_, body := get(t, Handler(made{h: twoCheckpoints()}), "/metrics")
	labels := `{job_id="0badc0de0000000000000000000000aa",job_name="count \"words\" <b>"`
	for _, want := range []string{
		"flink_jobmanager_job_runningState" + labels + "} 1",
		"flink_jobmanager_job_numRestarts" + labels + "} 2",
		"flink_jobmanager_job_numberOfCompletedCheckpoints" + labels + "} 1",
		"flink_jobmanager_job_numberOfFailedCheckpoints" + labels + "} 1",
		"flink_jobmanager_job_lastCheckpointDuration" + labels + "} 25",
		"flink_jobmanager_job_lastCheckpointFullSize" + labels + "} 6000",
		"tidemark_last_checkpoint_phase_milliseconds" + labels + `,phase="tasks"} 17`,
		"# TYPE flink_jobmanager_job_numRestarts gauge",
	} {
		require.Contains(t, body, want+"\n")
	}
	// Each line is a comment or a sample with a number.
	for line := range strings.Lines(body) {
		require.Regexp(t, `^(# (HELP|TYPE) [a-zA-Z_]+ .+|[a-zA-Z_]+\{[^}]*\} -?[0-9]+)\n$`, line)
	}
	_, body = get(t, Handler(made{h: &checkpoint.History{}}), "/metrics")
	require.NotContains(t, body, "lastCheckpoint")
}

func TestSpans(t *testing.T) {
	h := twoCheckpoints()
	list := spansOf("job", h.Checkpoints[0])
	require.Len(t, list, 1+6+2)
	seen := map[[8]byte]Span{}
	for _, s := range list {
		require.Equal(t, list[0].Trace, s.Trace)
		require.NotContains(t, seen, s.ID)
		seen[s.ID] = s
		require.False(t, s.End.Before(s.Start), s.Name)
	}
	require.Equal(t, 25*time.Millisecond, list[0].End.Sub(list[0].Start))
	require.Equal(t, "tasks", seen[list[8].Parent].Name)
	require.Equal(t, list[0].ID, seen[list[8].Parent].Parent)
	require.Equal(t, "Source (1)", list[8].Name)
	require.Equal(t, list, spansOf("job", h.Checkpoints[0]))
	require.NotEqual(t, list[0].Trace, spansOf("other", h.Checkpoints[0])[0].Trace)
	require.Contains(t, spansOf("job", h.Checkpoints[1])[0].Failure, "disk <full>")
}

// TestOTLP runs a job whose checkpoints go to a collector, and looks at its page.
func TestOTLP(t *testing.T) {
	bodies := make(chan []byte, 1000)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- b
		if r.Header.Get("Content-Type") != "application/json" || r.URL.Path != "/v1/traces" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer collector.Close()
	exporter := NewOTLP(collector.URL+"/v1/traces", &OTLPOptions{Service: "words", Queue: 1000})
	defer exporter.Close()
	j := stream.NewJob("numbers", &stream.JobOptions{Parallelism: 2})
	stream.Discard(stream.From(j, stream.SlowSequence(0, 1<<40, 1000)).Rebalance())
	const id = "0badc0de0000000000000000000000bb"
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	e, err := runtime.Start(ctx, j, &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(t.TempDir()), JobID: id, Interval: 5 * time.Millisecond,
		TolerableFailures: -1, Observer: Spans(id, exporter)})
	require.NoError(t, err)
	var r otlpRequest
	require.NoError(t, json.Unmarshal(<-bodies, &r))
	require.Equal(t, "words", *r.ResourceSpans[0].Resource.Attributes[0].Value.String)
	spans := r.ResourceSpans[0].ScopeSpans[0].Spans
	require.Equal(t, "Checkpoint", spans[0].Name)
	require.Len(t, spans[0].TraceID, 32)
	require.Len(t, spans[0].SpanID, 16)
	require.Empty(t, spans[0].ParentID)
	require.Equal(t, spans[0].SpanID, spans[1].ParentID)
	code, body := get(t, Handler(e), "/")
	require.Equal(t, 200, code)
	require.Contains(t, body, id)
	enough := errors.New("enough")
	cancel(enough)
	require.ErrorIs(t, e.Wait(), enough)
	// The history outlives the job.
	code, body = get(t, Handler(e), "/")
	require.Equal(t, 200, code)
	require.Contains(t, body, "CANCELED")
}

// TestSlowCollector: a collector that does not answer holds nothing up.
func TestSlowCollector(t *testing.T) {
	release := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer collector.Close()
	o := NewOTLP(collector.URL, &OTLPOptions{Queue: 1})
	for range 10 {
		o.Export([]Span{{Name: "x"}})
	}
	close(release)
	o.Close()
}
