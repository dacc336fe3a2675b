//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// w2 is state larger than the cache.
func w2() error {
	n := count(5_000_000)
	const ops = 500_000
	b := open()
	s := keyed.Value(b, "state", serializer.Bytes)
	start := time.Now()
	for _, k := range permutation(n, 3) {
		must(s.Set(b.Key(k), value100(k, 0)))
	}
	report("w2", *label+"/load/permuted", "throughput", "ops/s", float64(n)/time.Since(start).Seconds())
	settle(b)
	passes := 1 + *runs
	uni, zip := uniform(n, ops*passes, 1), zipf(n, ops*passes, 0.99, 2)
	run := func(variant string, seq []int64, op func(k int64)) {
		if !wanted(*label + "/" + variant) {
			return
		}
		var results costs
		for pass := range passes {
			runtime.GC()
			took := measure(func() {
				for _, k := range seq[pass*ops : (pass+1)*ops] {
					op(k)
				}
			})
			if pass > 0 {
				results.add(took, ops)
			}
		}
		results.report("w2", *label+"/"+variant, "op")
	}
	get := func(k int64) {
		v, ok, err := s.Get(b.Key(k))
		must(err)
		if ok {
			Sink += int64(len(v))
		}
	}
	rmw := func(k int64) {
		key := b.Key(k)
		v, _, err := s.Get(key)
		must(err)
		v = slices.Clone(v)
		v[0]++
		must(s.Set(key, v))
	}
	run("get/uniform", uni, get)
	run("get/zipf", zip, get)
	run("getmissing/uniform", uni, func(k int64) { get(k + int64(n)) })
	run("rmw/zipf", zip, rmw)
	run("rmw/uniform", uni, rmw)
	return b.Close()
}

// settle waits until the files of the backend do not change for two seconds.
func settle(b backend) {
	d, ok := b.(*inDir)
	if !ok {
		return
	}
	for last, same := int64(-1), 0; same < 2; time.Sleep(time.Second) {
		if size := folderBytes(d.dir); size == last {
			same++
		} else {
			last, same = size, 0
		}
	}
}

func folderBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// w3inc is incremental checkpoints after rounds of changes.
func w3inc() error {
	n := count(1_000_000)
	p := newPlace()
	defer p.close()
	ctx := context.Background()
	results := map[string][]float64{}
	var order []string
	keep := func(variant, metric string, v float64) {
		k := variant + " " + metric
		if results[k] == nil {
			order = append(order, k)
		}
		results[k] = append(results[k], v)
	}
	base := fmt.Sprintf("%s/%dk/", *label, n/1000)
	for run := range *runs {
		b, s := load(n)
		settle(b)
		root := filepath.Join(p.dir, fmt.Sprintf("run-%d", run))
		loc, err := blobstore.Parse("file://" + root + "?fsync=off")
		must(err)
		id := int64(0)
		take := func(variant string, f keyed.Format) {
			id++
			w, err := snapshot.NewWriter(ctx, p.pool, snapshot.Layout{Dir: loc.Join(fmt.Sprintf("chk-%d", id)), Shared: loc.Join("shared"), TaskOwned: loc.Join("owned")}, nil)
			must(err)
			before := folderBytes(root)
			start := time.Now()
			snap, err := b.Snapshot(ctx, id)
			must(err)
			keep(base+variant, "sync", ms(start))
			start, cpu := time.Now(), processCPU()
			h, err := snap.Upload(ctx, w, &keyed.UploadOptions{WriteOptions: keyed.WriteOptions{Format: f}})
			must(err)
			keep(base+variant, "async", ms(start))
			keep(base+variant, "async_cpu", (processCPU()-cpu)*1e3)
			snap.Release()
			must(w.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: id, Operators: []metadata.OperatorState{{
				ID: metadata.OperatorID{1}, Parallelism: 1, MaxParallelism: int32(b.MaxParallelism()),
				Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}},
			}}}))
			b.Confirmed(id)
			keep(base+variant, "bytes_written", float64(folderBytes(root)-before))
		}
		take("inc-first", keyed.FormatCheckpoint)
		r := splitmix(7 + run)
		version := int64(0)
		change := func(count int, key func(i int) int64) {
			version++
			for i := range count {
				k := key(i)
				must(s.Set(b.Key(k), value100(k, version)))
			}
		}
		for _, share := range []int{1, 10} {
			change(n/100*share, func(int) int64 { return r.below(n) })
			take(fmt.Sprintf("inc-uniform%d", share), keyed.FormatCheckpoint)
		}
		for _, share := range []int{1, 10} {
			change(n/100*share, func(i int) int64 { return int64(n/2 + i) })
			take(fmt.Sprintf("inc-hot%d", share), keyed.FormatCheckpoint)
		}
		take("inc-unchanged", keyed.FormatCheckpoint)
		take("canonical", keyed.FormatCanonical)
		must(b.Close())
	}
	for _, k := range order {
		i := len(k) - 1
		for k[i] != ' ' {
			i--
		}
		unit := "ms"
		if k[i+1:] == "bytes_written" {
			unit = "B"
		}
		report("w3", k[:i], k[i+1:], unit, results[k]...)
	}
	return nil
}
