package incremental_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

const benchHandles = 500_000

func manyFiles(prefix string) []incremental.AckFile {
	files := make([]incremental.AckFile, benchHandles)
	for i := range files {
		name := fmt.Sprintf("%08x-5e11-4c52-9d3e-%012x", i, i)
		files[i] = incremental.AckFile{
			Identity: incremental.Identity{Incarnation: "7f3c", Name: fmt.Sprintf("%06d.sst", i), Size: int64(i), Checksum: name[:8]},
			Handle:   &metadata.FileHandle{Path: javaio.NewString("s3://bucket/ckp/7f3c0a0b0c0d0e0f0102030405060708/shared/" + prefix + name), Size: int64(i)},
		}
	}
	return files
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkRestore(b *testing.B) {
	var handles []metadata.StreamHandle
	for _, f := range manyFiles("") {
		handles = append(handles, f.Handle)
	}
	c := snapshotOf(1, handles...)
	restore := func() *incremental.Registry {
		r := incremental.NewRegistry()
		if _, err := r.Restore(c, "s3://bucket/ckp/7f3c0a0b0c0d0e0f0102030405060708/chk-1/_metadata", incremental.Claim, nil); err != nil {
			b.Fatal(err)
		}
		return r
	}
	before := heapInUse()
	r := restore()
	bytes := heapInUse() - before
	runtime.KeepAlive(r)
	r = nil
	b.ReportAllocs()
	for b.Loop() {
		restore()
	}
	b.ReportMetric(float64(bytes)/benchHandles, "B/file")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchHandles, "ns/file")
	runtime.KeepAlive(c)
}

// BenchmarkRegister is one checkpoint after another in which one file in a hundred
// is new and one is gone.
func BenchmarkRegister(b *testing.B) {
	files := manyFiles("")
	before := heapInUse()
	r := incremental.NewRegistry()
	r.Begin(0)
	start := time.Now()
	if err := r.Register(0, files); err != nil {
		b.Fatal(err)
	}
	first := time.Since(start)
	bytes := heapInUse() - before
	r.Confirm(0, "")
	id := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		id++
		for i := int(id % 100); i < len(files); i += 100 {
			name := fmt.Sprintf("%06d-%d.sst", i, id)
			files[i].Identity.Name = name
			files[i].Handle = &metadata.FileHandle{Path: javaio.NewString("s3://bucket/ckp/7f3c0a0b0c0d0e0f0102030405060708/shared/" + name)}
		}
		r.Begin(id)
		if err := r.Register(id, files); err != nil {
			b.Fatal(err)
		}
		r.Confirm(id, "")
		r.Subsume(id - 1)
		for {
			batch := r.Take(time.Time{}, 4000)
			if len(batch) == 0 {
				break
			}
			for _, d := range batch {
				r.Done(d, nil, time.Time{})
			}
		}
	}
	b.ReportMetric(float64(bytes)/benchHandles, "B/file")
	b.ReportMetric(float64(first.Milliseconds()), "ms-first")
}
