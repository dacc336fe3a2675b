package monitor

import (
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
)

// AppendMetrics appends the metrics of a job in Prometheus' text format. Names and
// units are those of Flink's Prometheus reporter, so that dashboards for Flink show them;
// the phases of the newest completed checkpoint are ours.
func AppendMetrics(dst []byte, j Job, h *checkpoint.History) []byte {
	w := metrics{dst, `job_id="` + label(j.JobID()) + `",job_name="` + label(j.Name()) + `"`}
	const job = "flink_jobmanager_job_"
	running := int64(0)
	if j.Status() == runtime.Running {
		running = 1
	}
	w.gauge(job+"runningState", "1 if the job runs", running)
	w.gauge(job+"numRestarts", "restarts of the job", int64(j.Restarts()))
	w.gauge(job+"totalNumberOfCheckpoints", "checkpoints and savepoints that were begun", h.Counts.Total)
	w.gauge(job+"numberOfInProgressCheckpoints", "checkpoints under way", h.Counts.InProgress)
	w.gauge(job+"numberOfCompletedCheckpoints", "completed checkpoints", h.Counts.Completed)
	w.gauge(job+"numberOfFailedCheckpoints", "failed checkpoints", h.Counts.Failed)
	if r := h.LatestRestored; r != nil {
		w.gauge(job+"lastCheckpointRestoreTimestamp", "when the job was restored last, in milliseconds since 1970", r.At)
	}
	s := h.LatestCompleted
	if s == nil {
		return w.dst
	}
	w.gauge(job+"lastCompletedCheckpointId", "ID of the newest completed checkpoint", s.ID)
	w.gauge(job+"lastCheckpointDuration", "its duration in milliseconds", s.EndToEndMillis())
	w.gauge(job+"lastCheckpointSize", "bytes that it has newly written", s.CheckpointedSize)
	w.gauge(job+"lastCheckpointFullSize", "bytes that it refers to", s.FullSize)
	w.gauge(job+"lastCheckpointProcessedData", "bytes processed while it was aligned", s.ProcessedBytes)
	w.gauge(job+"lastCheckpointPersistedData", "bytes of its channel state", s.InFlightBytes)
	const phaseName = "tidemark_last_checkpoint_phase_milliseconds"
	w.head(phaseName, "how long each phase of it took")
	for _, p := range phases(s) {
		w.value(phaseName, `,phase="`+label(p.Name)+`"`, p.End-p.Begin)
	}
	return w.dst
}

type metrics struct {
	dst    []byte
	labels string
}

func (w *metrics) head(name, help string) {
	w.dst = append(w.dst, "# HELP "+name+" "+help+"\n# TYPE "+name+" gauge\n"...)
}

func (w *metrics) value(name, more string, v int64) {
	w.dst = append(w.dst, name+"{"+w.labels+more+"} "...)
	w.dst = append(strconv.AppendInt(w.dst, v, 10), '\n')
}

func (w *metrics) gauge(name, help string, v int64) {
	w.head(name, help)
	w.value(name, "", v)
}

// label escapes a label's value.
func label(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
}
