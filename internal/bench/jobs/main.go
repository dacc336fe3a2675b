//go:build linux

// Jobs measures the runtime on the workloads W6 and W6b of bench-flink, whose
// WORKLOADS.md defines them, and prints the same JSON lines with the same variant
// names, so that its table joins ours with Flink's:
//
//	go run ./internal/bench/jobs w6 > ours.jsonl     # channels and barriers
//	go run ./internal/bench/jobs w6b                 # back-to-back checkpoints
//	go run ./internal/bench/jobs skew                # a checkpoint behind a slow subtask
//
// Files are not synced, as Flink does not; -fsync measures with our default.
//
// Beside the throughput by the clock it reports the CPU time of the process for each
// record, for comparisons on a machine that is not quiet. Human lines go to stderr.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
)

var (
	records = flag.Int64("records", 30_000_000, "records of w6")
	runs    = flag.Int("runs", 3, "timed runs")
	warm    = flag.Int("warm", 1, "rounds before them")
	only    = flag.String("only", "", "regular expression of variants")
	dir     = flag.String("dir", "", "where checkpoints go; a temporary directory if empty")
	gogc    = flag.Int("gogc", 100, "GOGC")
	synced  = flag.Bool("fsync", false, "sync files and folders of checkpoints")
	profile = flag.String("cpuprofile", "", "file for a CPU profile")
	allocs  = flag.String("memprofile", "", "file for a profile of allocations")
	tracing = flag.String("trace", "", "file for an execution trace")
)

func main() {
	flag.Parse()
	debug.SetGCPercent(*gogc)
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "jobs:", err)
		os.Exit(1)
	}
}

func run(workloads []string) error {
	if mix(12345) != 17540659726606785873 {
		return errors.New("the generator does not give what WORKLOADS.md says")
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if *tracing != "" {
		f, err := os.Create(*tracing)
		if err != nil {
			return err
		}
		if err := trace.Start(f); err != nil {
			return err
		}
		defer trace.Stop()
	}
	if *allocs != "" {
		f, err := os.Create(*allocs)
		if err != nil {
			return err
		}
		defer func() { _ = pprof.Lookup("allocs").WriteTo(f, 0) }()
	}
	if *dir == "" {
		d, err := os.MkdirTemp("", "jobs")
		if err != nil {
			return err
		}
		defer os.RemoveAll(d)
		*dir = d
	}
	if len(workloads) == 0 {
		return errors.New("name workloads: w6, w6b, skew")
	}
	for _, w := range workloads {
		f := map[string]func() error{"w6": throughput, "w6b": backToBack, "skew": skewed}[w]
		if f == nil {
			return fmt.Errorf("no workload %s", w)
		}
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
		report(w, w, "peak_rss", "MiB", peakRSS())
	}
	return nil
}

const countKeys = 100_000

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// span is when the function saw its first record and when its last subtask ended.
type span struct{ first, last, seen atomic.Int64 }

func (s *span) begin() {
	for now := time.Now().UnixNano(); ; {
		old := s.first.Load()
		if old != 0 && old <= now || s.first.CompareAndSwap(old, now) {
			return
		}
	}
}

func (s *span) end(seen int64) {
	s.seen.Add(seen)
	for now := time.Now().UnixNano(); ; {
		old := s.last.Load()
		if old >= now || s.last.CompareAndSwap(old, now) {
			return
		}
	}
}

type count struct {
	s    *span
	seen int64
	n    *keyed.ValueState[int64, int64]
}

func (c *count) Open(rt *stream.KeyedRuntime[int64]) error {
	c.n = keyed.Value(rt.Keyed, "c", serializer.Int64)
	return nil
}

func (c *count) Process(x *stream.KeyedContext[int64, int64], v int64) error {
	if c.seen == 0 {
		c.s.begin()
	}
	c.seen++
	n, _, err := c.n.Get(x.Key)
	if err != nil {
		return err
	}
	x.Emit(v)
	return c.n.Set(x.Key, n+1)
}

func (c *count) Close() error {
	c.s.end(c.seen)
	return nil
}

type pass struct {
	s    *span
	seen int64
}

func (p *pass) Open(*stream.Runtime) error { return nil }

func (p *pass) Process(x *stream.Context[int64], v int64) error {
	if p.seen == 0 {
		p.s.begin()
	}
	p.seen++
	x.Emit(v)
	return nil
}

func (p *pass) Close() error {
	p.s.end(p.seen)
	return nil
}

func throughputJob(kind string, s *span) *stream.Job {
	j := stream.NewJob("w6", &stream.JobOptions{Parallelism: 2})
	numbers := stream.From(j, stream.Sequence(0, *records-1), stream.UID("numbers"))
	var mid *stream.Stream[int64]
	if kind == "rebalance" {
		mid = stream.Apply(numbers.Rebalance(), func() stream.Function[int64, int64] { return &pass{s: s} }, stream.UID("pass"))
	} else {
		byKey := stream.KeyBy(numbers, serializer.Int64, func(v int64) int64 { return int64(mix(uint64(v)) % countKeys) })
		mid = stream.Process(byKey, func() stream.KeyedFunction[int64, int64, int64] { return &count{s: s} }, stream.UID("count"))
	}
	stream.Discard(mid)
	return j
}

func options(mode, folder string, interval time.Duration) *runtime.Options {
	o := &runtime.Options{Restart: runtime.NoRestart()}
	if interval > 0 {
		o.Checkpoints, o.Interval = "file://"+filepath.ToSlash(folder), interval
		if !*synced {
			o.Checkpoints += "?fsync=off"
		}
		switch mode {
		case "unaligned":
			o.Mode = runtime.Unaligned
		case "atleastonce":
			o.Mode = runtime.AtLeastOnce
		}
	}
	return o
}

type samples map[string][]float64

func (s samples) add(metric string, v float64) { s[metric] = append(s[metric], v) }

func throughput() error {
	results := map[string]samples{}
	variants := [][2]string{{"rebalance", "none"}, {"keyby-count", "none"}, {"keyby-count", "aligned"}, {"keyby-count", "unaligned"}, {"keyby-count", "atleastonce"}}
	for i := -*warm; i < *runs; i++ {
		for _, v := range variants {
			name := v[0] + "/" + v[1]
			if !regexp.MustCompile(*only).MatchString(name) {
				continue
			}
			got, err := throughputRun(v[0], v[1])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if i < 0 {
				continue
			}
			if results[name] == nil {
				results[name] = samples{}
			}
			for k, x := range got {
				results[name].add(k, x)
			}
		}
	}
	for _, v := range variants {
		name := v[0] + "/" + v[1]
		for _, m := range [][2]string{{"throughput", "records/s"}, {"cpu_per_record", "ns"}, {"checkpoints", "checkpoints"}, {"checkpoint_p50", "ms"}, {"checkpoint_p99", "ms"},
			{"checkpoint_max", "ms"}, {"checkpoint_size_p50", "B"}} {
			if x := results[name][m[0]]; len(x) > 0 {
				report("w6", name, m[0], m[1], x...)
			}
		}
	}
	return nil
}

func throughputRun(kind, mode string) (map[string]float64, error) {
	folder, err := os.MkdirTemp(*dir, "w6")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	var s span
	interval := 100 * time.Millisecond
	if mode == "none" {
		interval = 0
	}
	cpu := processCPU()
	o := options(mode, folder, interval)
	var seen observer
	o.Observer = &seen
	if err := runtime.Run(context.Background(), throughputJob(kind, &s), o); err != nil {
		return nil, err
	}
	cpu = processCPU() - cpu
	if s.seen.Load() != *records {
		return nil, fmt.Errorf("%d records, want %d", s.seen.Load(), *records)
	}
	got := map[string]float64{
		"throughput":     float64(*records) / (float64(s.last.Load()-s.first.Load()) / 1e9),
		"cpu_per_record": cpu / float64(*records) * 1e9,
	}
	if len(seen.millis) > 0 {
		got["checkpoints"] = float64(len(seen.millis))
		got["checkpoint_p50"], got["checkpoint_p99"], got["checkpoint_max"] = quantile(seen.millis, 0.5), quantile(seen.millis, 0.99), quantile(seen.millis, 1)
		got["checkpoint_size_p50"] = quantile(seen.bytes, 0.5)
	}
	return got, nil
}

// observer gathers the completed checkpoints of a job.
type observer struct{ millis, bytes []float64 }

func (o *observer) CheckpointCompleted(s *checkpoint.Stats) {
	o.millis, o.bytes = append(o.millis, float64(s.EndToEndMillis())), append(o.bytes, float64(s.FullSize))
}

func (o *observer) CheckpointFailed(*checkpoint.Stats) {}

func quantile(v []float64, q float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[min(len(v)-1, max(0, int(math.Ceil(q*float64(len(v))))-1))]
}

// backToBack is a nearly idle job; each checkpoint is triggered when the one before
// is complete.
func backToBack() error {
	for _, mode := range []string{"aligned", "unaligned"} {
		name := "back-to-back/p4-" + mode
		if !regexp.MustCompile(*only).MatchString(name) {
			continue
		}
		if err := backToBackMode(name, mode); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func backToBackMode(name, mode string) error {
	folder, err := os.MkdirTemp(*dir, "w6")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	var s span
	j := stream.NewJob("w6b", &stream.JobOptions{Parallelism: 4})
	slow := stream.From(j, stream.SlowSequence(0, math.MaxInt64-1, 250), stream.UID("slow"))
	byKey := stream.KeyBy(slow, serializer.Int64, func(v int64) int64 { return v % 100 })
	stream.Discard(stream.Process(byKey, func() stream.KeyedFunction[int64, int64, int64] { return &count{s: &s} }, stream.UID("count")))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e, err := runtime.Start(ctx, j, options(mode, folder, time.Hour))
	if err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		if _, err = e.Checkpoint(ctx, event.Checkpoint, ""); err == nil {
			break
		}
		if tries == 100 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	all := samples{}
	for i := -*warm; i < *runs; i++ {
		var micros []float64
		begun := time.Now()
		for range 100 {
			t := time.Now()
			if _, err := e.Checkpoint(ctx, event.Checkpoint, ""); err != nil {
				return err
			}
			micros = append(micros, float64(time.Since(t).Nanoseconds())/1e3)
		}
		if i < 0 {
			continue
		}
		all.add("rate", 100/time.Since(begun).Seconds())
		all.add("p50", quantile(micros, 0.5))
		all.add("p99", quantile(micros, 0.99))
		all.add("max", quantile(micros, 1))
	}
	report("w6b", name, "rate", "checkpoints/s", all["rate"]...)
	for _, m := range []string{"p50", "p99", "max"} {
		report("w6b", name, m, "us", all[m]...)
	}
	cancel()
	if err := e.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

type line struct {
	Workload string    `json:"workload"`
	Variant  string    `json:"variant"`
	Metric   string    `json:"metric"`
	Value    float64   `json:"value"`
	Unit     string    `json:"unit"`
	Runs     []float64 `json:"runs"`
}

func report(workload, variant, metric, unit string, values ...float64) {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	l := line{workload, variant, metric, sorted[len(sorted)/2], unit, values}
	b, _ := json.Marshal(l)
	fmt.Println(string(b))
	fmt.Fprintf(os.Stderr, "%-6s %-26s %-20s %16.3f %s\n", workload, variant, metric, l.Value, unit)
}

func processCPU() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return float64(ts.Nano()) / 1e9
}

func peakRSS() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Maxrss) / 1024
}
