// Package monitor shows what becomes of a job's checkpoints: a page like that of
// Flink's web UI, the same as JSON in the form of Flink's REST API, metrics in
// Prometheus' text format under the names of Flink's reporter, and a span for each
// checkpoint and its phases in the form of OpenTelemetry.
//
//	e, err := runtime.Start(ctx, job, &runtime.Options{Observer: monitor.Spans(jobID, exporter), …})
//	http.ListenAndServe("localhost:8081", monitor.Handler(e))
//
// It reads copies of the statistics and holds nothing up.
package monitor

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
)

// Job is what is shown: a *runtime.Execution.
type Job interface {
	JobID() string
	Name() string
	Status() runtime.Status
	Restarts() int
	History(ctx context.Context) (*checkpoint.History, error)
}

// Handler serves
//
//	/                  a page with the checkpoints of the job
//	/checkpoint/ID     a page with the details of one
//	/checkpoints       as JSON: Flink's /jobs/:jobid/checkpoints
//	/checkpoints/ID    as JSON: Flink's /jobs/:jobid/checkpoints/details/:id
//	/metrics           for Prometheus
//
// It changes nothing and has no authentication.
func Handler(j Job) http.Handler {
	m := http.NewServeMux()
	with := func(f func(w http.ResponseWriter, r *http.Request, h *checkpoint.History)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			h, err := j.History(r.Context())
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			f(w, r, h)
		}
	}
	one := func(f func(w http.ResponseWriter, s *checkpoint.Stats)) http.HandlerFunc {
		return with(func(w http.ResponseWriter, r *http.Request, h *checkpoint.History) {
			id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
			s := h.Find(id)
			if err != nil || s == nil {
				http.Error(w, "no such checkpoint is remembered", http.StatusNotFound)
				return
			}
			f(w, s)
		})
	}
	m.HandleFunc("GET /{$}", with(func(w http.ResponseWriter, _ *http.Request, h *checkpoint.History) {
		servePage(w, "job", jobPage{j, h})
	}))
	m.HandleFunc("GET /checkpoint/{id}", one(func(w http.ResponseWriter, s *checkpoint.Stats) { servePage(w, "checkpoint", checkpointPage{j, s}) }))
	m.HandleFunc("GET /checkpoints", with(func(w http.ResponseWriter, _ *http.Request, h *checkpoint.History) { serveJSON(w, overview(h)) }))
	m.HandleFunc("GET /checkpoints/{id}", one(func(w http.ResponseWriter, s *checkpoint.Stats) { serveJSON(w, details(s)) }))
	m.HandleFunc("GET /metrics", with(func(w http.ResponseWriter, _ *http.Request, h *checkpoint.History) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(AppendMetrics(nil, j, h)) // a client that is gone
	}))
	return m
}

func serveJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // likewise
}
