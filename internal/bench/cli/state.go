//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
)

// stateCases read snapshots that a real Flink wrote: index has the kind, backend,
// number of keys and URL of each, with tabs between them, as the benchmark that
// leaves them for Flink's State Processor API writes it. Output to a pipe is
// counted; files go to a folder of their own.
func stateCases(index string) ([]benchCase, error) {
	b, err := os.ReadFile(index)
	if err != nil {
		return nil, err
	}
	out, err := os.MkdirTemp("", "stateutil-bench-out-")
	if err != nil {
		return nil, err
	}
	var cases []benchCase
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) < 4 {
			continue
		}
		name, url := f[1]+"-"+f[0]+"-"+f[2], f[3]
		add := func(what string, args ...string) {
			cases = append(cases, benchCase{name: what + "-" + name, args: func(string) []string { return append(args, url) }})
		}
		add("states", "states")
		add("jsonl", "read", "--all", "--format", "jsonl")
		add("jsonl-unordered", "read", "--all", "--unordered", "--format", "jsonl")
		add("where", "read", "--all", "--format", "jsonl", "--where", "key = 4711")
		add("parquet", "read", "--all", "--quiet", "--format", "parquet", "-o", filepath.Join(out, "parquet")+"/")
		add("arrow", "read", "--all", "--quiet", "--format", "arrow", "-o", filepath.Join(out, "arrow")+"/")
		cases = append(cases, benchCase{name: "get-" + name, args: func(string) []string { return []string{"get", url, "1234567"} }})
	}
	cleanup = append(cleanup, out)
	return cases, nil
}

// cleanup are folders to remove at the end.
var cleanup []string
