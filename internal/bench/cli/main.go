//go:build unix

// Cli measures stateutil as whole processes: wall time, CPU time and peak
// resident memory as the kernel counts them (wait4), over data that it makes.
//
//	go run ./internal/bench/cli                    # every case
//	go run ./internal/bench/cli -runs 20 inspect-50k
//	go run ./internal/bench/cli -keep DIR du-1m    # keep the data for another time
//	go run ./internal/bench/cli -index index.tsv get-rocksdb-native-5000000
//	                                               # snapshots that a Flink wrote; see stateCases
//
// The 50,000-handle metadata has the shape of the one that Flink was measured
// with: one operator of 1,000 subtasks, each with an incremental handle of 50
// shared files, 5 private ones and one of metadata, on S3 paths with random names.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// benchCase is one command line over data made by make below the data folder.
type benchCase struct {
	name string
	data string // folder; "" needs none
	make func(dir string) error
	args func(dir string) []string
	code int // exit code that is right for it
}

var cases = []benchCase{
	{name: "version", args: func(string) []string { return []string{"--version"} }},
	{name: "help", args: func(string) []string { return []string{"--help"} }},
	{name: "inspect-small", data: "small", make: makeSmall, args: func(d string) []string { return []string{"inspect", d} }},
	{name: "ls-small", data: "small", make: makeSmall, args: func(d string) []string { return []string{"ls", d} }},
	{name: "verify-small", data: "small", make: makeSmall, args: func(d string) []string { return []string{"verify", d} }},
	{name: "inspect-50k", data: "meta-50k", make: func(d string) error { return makeMetadata(d, 1, 1000, 50) },
		args: func(d string) []string { return []string{"inspect", d} }},
	{name: "files-50k", data: "meta-50k", make: func(d string) error { return makeMetadata(d, 1, 1000, 50) },
		args: func(d string) []string { return []string{"files", "--no-relocate", "--trust", "s3://bucket", d} }},
	{name: "inspect-500k", data: "meta-500k", make: func(d string) error { return makeMetadata(d, 10, 1000, 50) },
		args: func(d string) []string { return []string{"inspect", d} }},
	{name: "inspect-500k-json", data: "meta-500k", make: func(d string) error { return makeMetadata(d, 10, 1000, 50) },
		args: func(d string) []string { return []string{"inspect", "--json", d} }},
	{name: "ls-1m", data: "tree-1m", make: makeTree, args: func(d string) []string { return []string{"ls", d} }},
	{name: "ls-1m-no-check", data: "tree-1m", make: makeTree, args: func(d string) []string { return []string{"ls", "--no-check", d} }},
	{name: "du-1m", data: "tree-1m", make: makeTree, args: func(d string) []string { return []string{"du", d} }},
	{name: "du-1m-list", data: "tree-1m", make: makeTree, args: func(d string) []string { return []string{"du", "--list", "all", "--json", d} }},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	runs := flag.Int("runs", 10, "runs of each case; a fifth of it for cases that take over two seconds")
	program := flag.String("stateutil", "", "the binary; empty builds one without symbols")
	keep := flag.String("keep", "", "keep the data in this folder, and use what is there")
	only := flag.String("make", "", "make the data of this case and stop (used by the program itself)")
	index := flag.String("index", "", "measure reading the snapshots that this index.tsv lists instead; see stateCases")
	flag.Parse()
	if *index != "" {
		var err error
		if cases, err = stateCases(*index); err != nil {
			return err
		}
		defer func() {
			for _, dir := range cleanup {
				os.RemoveAll(dir)
			}
		}()
	}

	dir := *keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "stateutil-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	if *only != "" {
		for _, c := range cases {
			if c.name == *only {
				return c.make(filepath.Join(dir, c.data))
			}
		}
		return fmt.Errorf("no case %q", *only)
	}
	if *program == "" {
		*program = filepath.Join(dir, "stateutil")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", *program, "./cmd/stateutil")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build: %w", err)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "case\truns\twall min\twall median\twall max\tcpu median\tpeak RSS\toutput\t")
	for _, c := range cases {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), c.name) {
			continue
		}
		data := filepath.Join(dir, c.data)
		if c.make != nil {
			if _, err := os.Stat(data + ".made"); err != nil {
				if err := makeInChild(c.name, dir); err != nil {
					return fmt.Errorf("%s: make: %w", c.name, err)
				}
				if err := os.WriteFile(data+".made", nil, 0o666); err != nil {
					return err
				}
			}
		}
		if err := measure(w, &c, *program, data, *runs); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		w.Flush()
	}
	return nil
}

// makeInChild makes data in a process of its own: what a process starts inherits
// its peak memory until exec, so this one must stay small.
func makeInChild(name, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-keep", dir, "-make", name)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func measure(w *tabwriter.Writer, c *benchCase, program, data string, runs int) error {
	var wall, cpu []time.Duration
	var rss int64
	var size int64
	for i := 0; i < runs+1; i++ {
		cmd := exec.Command(program, c.args(data)...)
		var out counter
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		began := time.Now()
		err := cmd.Run()
		took := time.Since(began)
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			return err
		}
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			return fmt.Errorf("exit code %d: %s", got, strings.TrimSpace(errs.String()))
		}
		if i == 0 { // warm-up: the page cache
			if took > 2*time.Second {
				runs = max(runs/5, 1)
			}
			continue
		}
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		wall = append(wall, took)
		cpu = append(cpu, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		rss = max(rss, peakBytes(usage))
		size = int64(out)
	}
	slices.Sort(wall)
	slices.Sort(cpu)
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
	fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%.1f MiB\t%d B\t\n", c.name, len(wall), ms(wall[0]), ms(wall[len(wall)/2]), ms(wall[len(wall)-1]), ms(cpu[len(cpu)/2]), float64(rss)/(1<<20), size)
	return nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
