package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// One checkpoint that completed, one that failed, and what is told of them.
func TestStatistics(t *testing.T) {
	s := &story{t: t, metas: map[int64]*metadata.Checkpoint{}, requests: map[int64]*Request{}, sources: map[metadata.OperatorID]*storySource{}}
	id := metadata.OperatorIDFromUID("source")
	s.graph = Graph{Vertices: []Vertex{{ID: id, Name: "source", Parallelism: 2, MaxParallelism: 8, Operators: []Operator{{ID: id}}}}}
	s.opts = Options{Alignment: event.Aligned, TolerableFailures: 9}
	s.newCore()
	for _, line := range []string{
		"0 running all", "1000 trigger 1 checkpoint", "1010 ack 1 source[0] own=a", "1030 ack 1 source[1] own=b",
		"2000 trigger 2 checkpoint", "2005 decline 2 source[1] CHECKPOINT_DECLINED full", "3000 trigger 3 savepoint file:/sp",
	} {
		s.play(line)
	}
	st := s.core.History().Clone().Statistics()
	b, err := json.Marshal(st)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, map[string]any{"restored": 0., "total": 3., "in_progress": 1., "completed": 1., "failed": 1.}, got["counts"])
	h := got["history"].([]any)
	require.Len(t, h, 3)
	first := h[2].(map[string]any)
	require.Equal(t, "COMPLETED", first["status"])
	require.Equal(t, "CHECKPOINT", first["checkpoint_type"])
	require.Equal(t, 30., first["end_to_end_duration"])
	require.Equal(t, 20., first["state_size"])
	require.Equal(t, storyDir+"chk-1/_metadata", first["external_path"])
	require.Equal(t, map[string]any{"min": 10., "max": 30., "avg": 20.}, first["tasks"].(map[string]any)[id.String()].(map[string]any)["end_to_end_duration"])
	second := h[1].(map[string]any)
	require.Equal(t, "FAILED", second["status"])
	require.Equal(t, "CHECKPOINT_DECLINED: task source[1]: full", second["failure_message"])
	third := h[0].(map[string]any)
	require.Equal(t, "SAVEPOINT", third["checkpoint_type"])
	require.Equal(t, "CANONICAL", third["savepointFormat"])
	require.Equal(t, int64(30), st.Summary.EndToEnd.P99)
	require.Equal(t, int64(1), st.Latest.Completed.ID)
	require.Nil(t, st.Latest.Restored)

	var text strings.Builder
	require.NoError(t, s.core.History().WriteMetrics(&text, `job="x"`))
	require.Contains(t, text.String(), "# TYPE flink_jobmanager_job_lastCheckpointDuration gauge\nflink_jobmanager_job_lastCheckpointDuration{job=\"x\"} 30\n")
	require.Contains(t, text.String(), "flink_jobmanager_job_numberOfFailedCheckpoints{job=\"x\"} 1\n")
}
