//go:build linux

package main

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

type bytesState = keyed.ValueState[int64, []byte]

// load makes the state of w2, w3 and w4: value100 of each key, in permuted order.
func load(n int) (backend, *bytesState) {
	b := open()
	s := keyed.Value(b, "state", serializer.Bytes)
	for _, k := range permutation(n, 3) {
		must(s.Set(b.Key(k), value100(k, 0)))
	}
	return b, s
}

// place is where snapshots go: a local folder without fsync, as Flink's files.
type place struct {
	dir   string
	store blobstore.Store
	pool  *blobstore.Pool
	temp  bool
}

func newPlace() *place {
	p := &place{dir: *dir}
	if p.dir == "" {
		d, err := os.MkdirTemp("", "backends")
		must(err)
		p.dir, p.temp = d, true
	}
	abs, err := filepath.Abs(p.dir)
	must(err)
	p.store, err = blobstore.Open(context.Background(), "file://"+abs+"?fsync=off", nil)
	must(err)
	p.pool = blobstore.NewPool(nil, nil)
	p.dir = abs
	return p
}

func (p *place) close() {
	must(p.store.Close())
	must(p.pool.Close())
	if p.temp {
		must(os.RemoveAll(p.dir))
	}
}

// save writes a snapshot with its metadata and gives the milliseconds of
// both parts, and the CPU time of the second.
func (p *place) save(b backend, name string, f keyed.Format) (sync, async, cpu float64) {
	ctx := context.Background()
	start := time.Now()
	snap, err := b.Snapshot(ctx, 1)
	must(err)
	sync = ms(start)
	start, cpu = time.Now(), processCPU()
	w := p.writer(name)
	h, err := snap.Upload(ctx, w, &keyed.UploadOptions{WriteOptions: keyed.WriteOptions{Format: f}})
	must(err)
	async, cpu = ms(start), (processCPU()-cpu)*1e3
	snap.Release()
	must(w.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{{
		ID: metadata.OperatorID{1}, Parallelism: 1, MaxParallelism: int32(b.MaxParallelism()),
		Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}},
	}}}))
	return sync, async, cpu
}

// writer begins a snapshot in a folder, in place of what is there.
func (p *place) writer(name string) *snapshot.Writer {
	must(os.RemoveAll(filepath.Join(p.dir, name)))
	loc, err := blobstore.Parse("file://" + filepath.Join(p.dir, name) + "?fsync=off")
	must(err)
	w, err := snapshot.NewWriter(context.Background(), p.pool, snapshot.SavepointIn(loc), nil)
	must(err)
	return w
}

func (p *place) bytes(name string) (n float64) {
	files, err := os.ReadDir(filepath.Join(p.dir, name))
	must(err)
	for _, f := range files {
		info, err := f.Info()
		must(err)
		n += float64(info.Size())
	}
	return n
}

func ms(start time.Time) float64 { return float64(time.Since(start).Nanoseconds()) / 1e6 }

var formats = []struct {
	name   string
	format keyed.Format
}{{"checkpoint", keyed.FormatCheckpoint}, {"canonical", keyed.FormatCanonical}}

func w3() error {
	n := count(1_000_000)
	p := newPlace()
	defer p.close()
	variant := fmt.Sprintf(*label+"/%dk/", n/1000)
	syncs, asyncs, cpus, size := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}, map[string]float64{}
	var loads, mem, rss []float64
	for range *runs {
		before := heapMiB()
		start := time.Now()
		b, _ := load(n)
		loads = append(loads, float64(n)/time.Since(start).Seconds())
		mem = append(mem, heapMiB()-before)
		rss = append(rss, currentRSS())
		for _, f := range formats {
			s, a, c := p.save(b, f.name, f.format)
			cpus[f.name] = append(cpus[f.name], c)
			syncs[f.name], asyncs[f.name], size[f.name] = append(syncs[f.name], s), append(asyncs[f.name], a), p.bytes(f.name)
		}
		must(b.Close())
	}
	report("w3", variant+"load", "throughput", "ops/s", loads...)
	report("w3", variant+"load", "heap_after_setup", "MiB", mem...)
	report("w3", variant+"load", "rss_after_setup", "MiB", rss...)
	for _, f := range formats {
		report("w3", variant+f.name, "sync", "ms", syncs[f.name]...)
		report("w3", variant+f.name, "async", "ms", asyncs[f.name]...)
		report("w3", variant+f.name, "async_cpu", "ms", cpus[f.name]...)
		report("w3", variant+f.name, "bytes_written", "B", size[f.name])
	}
	return nil
}

func w4() error {
	n := count(1_000_000)
	p := newPlace()
	defer p.close()
	b, _ := load(n)
	for _, f := range formats {
		p.save(b, f.name, f.format)
	}
	must(b.Close())
	for _, f := range formats {
		variant := fmt.Sprintf(*label+"/%dk/%s", n/1000, f.name)
		if err := restored(variant, p.pool, filepath.Join(p.dir, f.name), n); err != nil {
			return err
		}
	}
	return nil
}

// histogram counts nanoseconds in 64 buckets for each power of two.
type histogram struct {
	buckets [64 * 64]int64
	n, max  int64
}

func (h *histogram) add(ns int64) {
	h.n++
	h.max = max(h.max, ns)
	if ns < 64 {
		h.buckets[max(ns, 0)]++
		return
	}
	e := bits.Len64(uint64(ns)) - 7
	h.buckets[(e+1)*64+int(ns>>e)&63]++
}

func (h *histogram) quantile(q float64) float64 {
	left := int64(q * float64(h.n))
	for i, c := range h.buckets {
		if left -= c; left < 0 {
			if i < 64 {
				return float64(i)
			}
			e := i/64 - 1
			return float64((int64(i%64) + 64) << e)
		}
	}
	return float64(h.max)
}

// dip updates uniform keys around a snapshot that another goroutine writes.
func dip() error {
	n := count(1_000_000)
	p := newPlace()
	defer p.close()
	b, s := load(n)
	pool := make([][]byte, 1024)
	for i := range pool {
		pool[i] = value100(int64(i), 1)
	}
	keys := uniform(n, 1<<20, 1)
	i := 0
	phase := func(end func() bool) (h *histogram, perSecond float64) {
		h = &histogram{}
		start := time.Now()
		last := start
		for !end() {
			v := append([]byte(nil), pool[i&1023]...)
			must(s.Set(b.Key(keys[i&(1<<20-1)]), v))
			i++
			now := time.Now()
			h.add(now.Sub(last).Nanoseconds())
			last = now
		}
		return h, float64(h.n) / time.Since(start).Seconds()
	}
	timed := func(d float64) func() bool {
		calls, until := 0, time.Now().Add(time.Duration(d*float64(time.Second)))
		return func() bool {
			calls++
			return calls&255 == 0 && time.Now().After(until)
		}
	}
	for _, f := range formats {
		base := fmt.Sprintf(*label+"/%dk/dip-%s", n/1000, f.name)
		if !wanted(base) {
			continue
		}
		results := map[string][]float64{}
		for run := range 1 + *runs {
			runtime.GC()
			keep := func(metric string, v float64) {
				if run > 0 {
					results[metric] = append(results[metric], v)
				}
			}
			keepAll := func(phase string, h *histogram, perSecond float64) {
				keep(phase+" throughput", perSecond)
				keep(phase+" p50", h.quantile(0.5)/1000)
				keep(phase+" p99", h.quantile(0.99)/1000)
				keep(phase+" p99.9", h.quantile(0.999)/1000)
				keep(phase+" max", float64(h.max)/1000)
			}
			h, t := phase(timed(*seconds))
			keepAll("before", h, t)
			start := time.Now()
			snap, err := b.Snapshot(context.Background(), 1)
			must(err)
			keep("sync", ms(start))
			done := make(chan float64, 1)
			go func() {
				start := time.Now()
				_, err := snap.Upload(context.Background(), p.writer(f.name), &keyed.UploadOptions{WriteOptions: keyed.WriteOptions{Format: f.format}})
				must(err)
				took := ms(start)
				snap.Release()
				done <- took
			}()
			var async float64
			h, t = phase(func() bool {
				select {
				case async = <-done:
					return true
				default:
					return false
				}
			})
			keepAll("during", h, t)
			keep("async", async)
			h, t = phase(timed(1))
			keepAll("after", h, t)
		}
		for _, ph := range []string{"before", "during", "after"} {
			report("w3dip", base+"/"+ph, "throughput", "ops/s", results[ph+" throughput"]...)
			for _, q := range []string{"p50", "p99", "p99.9", "max"} {
				report("w3dip", base+"/"+ph, q, "us", results[ph+" "+q]...)
			}
		}
		report("w3dip", base, "sync", "ms", results["sync"]...)
		report("w3dip", base, "async_under_load", "ms", results["async"]...)
	}
	return b.Close()
}
