//go:build linux

package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// restored measures restores of a snapshot of n keys, each into an empty backend.
func restored(variant string, pool *blobstore.Pool, dir string, n int) error {
	if !wanted(variant) {
		return nil
	}
	ctx := context.Background()
	results := map[string][]float64{}
	for range *runs {
		runtime.GC()
		loc, err := blobstore.Parse(dir)
		must(err)
		sn, err := snapshot.Open(ctx, pool, loc, nil)
		must(err)
		keep := func(metric string, v float64) { results[metric] = append(results[metric], v) }
		start, cpu := time.Now(), processCPU()
		b := open()
		s := keyed.Value(b, "state", serializer.Bytes)
		must(b.Restore(ctx, keyed.RestoreSource{Snapshot: sn}))
		keep("restore_complete", ms(start))
		keep("restore_cpu", (processCPU()-cpu)*1e3)
		if _, ok, err := s.Get(b.Key(42)); !ok || err != nil {
			return fmt.Errorf("key 42: %v %v", ok, err)
		}
		keep("first_get", ms(start))
		keep("first_get_cpu", (processCPU()-cpu)*1e3)
		start = time.Now()
		seen := 0
		for range s.All() {
			seen++
		}
		if seen != n {
			return fmt.Errorf("%s: %d keys of %d", dir, seen, n)
		}
		keep("scan_keys", ms(start))
		must(b.Close())
	}
	for _, metric := range []string{"restore_complete", "restore_cpu", "first_get", "first_get_cpu", "scan_keys"} {
		report("w4", variant, metric, "ms", results[metric]...)
	}
	return nil
}

// w4kept restores what Flink wrote. A heap backend gets the snapshots of Flink's heap
// backend, one that spills all canonical ones: that of the heap is called
// canonical-to-rocksdb there.
func w4kept() error {
	f, err := os.Open(filepath.Join(*kept, "index.tsv"))
	if err != nil {
		return err
	}
	defer f.Close()
	p := newPlace()
	defer p.close()
	r := csv.NewReader(f)
	r.Comma = '\t'
	for {
		line, err := r.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(line) != 4 {
			return fmt.Errorf("index.tsv: a line has %d fields", len(line))
		}
		name, of := line[0], line[1]
		n, err := strconv.Atoi(line[2])
		if err != nil {
			return err
		}
		switch heap := of == "hashmap"; {
		case *kind == "heap" && !heap, *kind == "lsm" && name != "canonical":
			continue
		case *kind == "lsm" && heap:
			name = "canonical-to-rocksdb"
		}
		variant := fmt.Sprintf("%s/%dk/%s", of, n/1000, name)
		if err := restored(variant, p.pool, strings.TrimPrefix(line[3], "file:"), n); err != nil {
			return err
		}
	}
}
