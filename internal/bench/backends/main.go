//go:build linux

// Backends measures the state backends on the workloads of bench-flink, whose
// WORKLOADS.md defines them, and prints the same JSON lines with the same variant
// names, so that its table joins ours with Flink's:
//
//	go run ./internal/bench/backends w1 > ours.jsonl         # point operations
//	go run ./internal/bench/backends -keys 5000000 w3 w4     # snapshots, restores
//	go run ./internal/bench/backends -keys 5000000 dip       # updates around a snapshot
//	go run ./internal/bench/backends w7                      # timers
//	go run ./internal/bench/backends -backend lsm w1         # as rocksdb-mm256
//	go run ./internal/bench/backends -backend lsm -name rocksdb-64c -budget 64 -keys 5000000 w2
//	go run ./internal/bench/backends -backend lsm -name rocksdb+inc w3inc
//	go run ./internal/bench/backends -backend lsm -name lsm w4rescale  # tables of one and of two subtasks, see -store
//	go run ./internal/bench/backends -backend lsm -keep DIR w4kept  # what bench-flink's w3 --keep DIR left
//
// cpu_per_op and cpu_per_timer are CPU time of the measuring thread, process_cpu_per_op
// that of all threads: with what is drained, compacted and collected meanwhile. Human
// lines go to stderr.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	keys    = flag.Int("keys", 0, "number of keys; 0 is the workload's own: 500000 for w1, 1000000 for the others")
	runs    = flag.Int("runs", 3, "timed runs")
	only    = flag.String("only", "", "regular expression of variants")
	parts   = flag.String("parts", "", "w1: some of values,lists,maps,folds; all if empty")
	seconds = flag.Float64("seconds", 3, "dip: length of a phase")
	dir     = flag.String("dir", "", "where snapshots go; a temporary directory if empty")
	store   = flag.String("store", "", "w4rescale: URL of a folder in a blob store where checkpoints go, s3://bucket/folder?endpoint=... if built with -tags integration; a local folder if empty")
	gogc    = flag.Int("gogc", 100, "GOGC")
	profile = flag.String("cpuprofile", "", "file for a CPU profile")
	kept    = flag.String("keep", "", "w4kept: folder with bench-flink's index.tsv")
	kind    = flag.String("backend", "heap", "heap or lsm")
	label   = flag.String("name", "", "what the backend is called in variants; hashmap, or rocksdb as Flink's figures are")
	budget  = flag.Int64("budget", 256, "memory budget of lsm in MiB")
	memMiB  = flag.Int64("memlimit", 0, "GOMEMLIMIT in MiB; 0 is none")
)

func main() {
	flag.Parse()
	if *label == "" {
		*label = map[string]string{"heap": "hashmap", "lsm": "rocksdb-mm256"}[*kind]
	}
	debug.SetGCPercent(*gogc)
	if *memMiB > 0 {
		debug.SetMemoryLimit(*memMiB << 20)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "backends:", err)
			os.Exit(1)
		}
	}
	err := run(flag.Args())
	pprof.StopCPUProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "backends:", err)
		os.Exit(1)
	}
}

func run(workloads []string) error {
	if err := checkVectors(); err != nil {
		return err
	}
	if len(workloads) == 0 {
		return fmt.Errorf("name workloads: w1, w2, w3, w3inc, w4, w4kept, w4rescale, dip, w7")
	}
	runtime.LockOSThread()
	for _, w := range workloads {
		f := map[string]func() error{"w1": w1, "w2": w2, "w3inc": w3inc, "w3": w3, "w4": w4, "w4kept": w4kept, "w4rescale": w4rescale, "dip": dip, "w7": w7}[w]
		if f == nil {
			return fmt.Errorf("no workload %s", w)
		}
		idle := otherCPU()
		start := time.Now()
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
		report(w, "process", "other_cores_busy", "cores", (otherCPU()-idle)/time.Since(start).Seconds())
		report(w, "process", "peak_rss", "MiB", peakRSS())
		report(w, "process", "gc_share_of_cpu", "1", gcShare())
	}
	return nil
}

func count(def int) int {
	if *keys > 0 {
		return *keys
	}
	return def
}

var onlyExp *regexp.Regexp

func wanted(variant string) bool {
	if onlyExp == nil {
		onlyExp = regexp.MustCompile(*only)
	}
	return onlyExp.MatchString(variant)
}

// line is a result.
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
	fmt.Fprintf(os.Stderr, "%-10s %-48s %-18s %14.3f %s\n", workload, variant, metric, l.Value, unit)
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

func processCPU() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano()).Seconds()
}

// otherCPU is the CPU time in seconds that other processes have used.
func otherCPU() float64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), "\n")
	total := 0.0
	for i, f := range strings.Fields(first)[1:] {
		if i == 3 || i == 4 || i > 7 { // idle, iowait, guests
			continue
		}
		n, _ := strconv.ParseFloat(f, 64)
		total += n
	}
	return total/100 - processCPU()
}

// gcShare is the part of the process's CPU time that the garbage collector took, as
// the runtime estimates it.
func gcShare() float64 {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	runtime.GC() // which is when the runtime brings them up to date
	metrics.Read(s)
	return s[0].Value.Float64() / (s[1].Value.Float64() - s[2].Value.Float64())
}

func peakRSS() float64 { return rss("VmHWM:") }

func currentRSS() float64 { return rss("VmRSS:") }

func rss(field string) float64 {
	b, _ := os.ReadFile("/proc/self/status")
	for l := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(l, field); ok {
			n, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return n / 1024
		}
	}
	return 0
}

func heapMiB() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// cost is what a number of operations took, in seconds: wall time, CPU time of the
// measuring thread and of the process.
type cost struct{ wall, thread, process float64 }

func measure(f func()) cost {
	p, c, s := processCPU(), threadCPU(), time.Now()
	f()
	return cost{time.Since(s).Seconds(), (threadCPU() - c).Seconds(), processCPU() - p}
}

// costs are those of some runs, for each operation.
type costs struct{ perSecond, thread, process []float64 }

func (c *costs) add(m cost, ops int) {
	n := float64(ops)
	c.perSecond = append(c.perSecond, n/m.wall)
	c.thread = append(c.thread, m.thread*1e9/n)
	c.process = append(c.process, m.process*1e9/n)
}

// report prints them; what is "op" or "timer".
func (c *costs) report(workload, variant, what string) {
	report(workload, variant, "throughput", what+"s/s", c.perSecond...)
	report(workload, variant, "cpu_per_"+what, "ns", c.thread...)
	report(workload, variant, "process_cpu_per_"+what, "ns", c.process...)
}
