package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/scale"
	"github.com/tidemark/tidemark/metadata"
)

// w5 is the checkpoint of 50,000 handles that Flink's own printing was measured
// with.
var w5 = scale.Shape{Operators: 10, Subtasks: 100, SharedFiles: 50, Root: "mem://w5/checkpoints"}

func scaleFixture(b testing.TB, s scale.Shape) (*fixture, blobstore.Location) {
	f := memFixture(b)
	s.Root = f.url("checkpoints")
	var buf bytes.Buffer
	require.NoError(b, metadata.Encode(&buf, scale.Checkpoint(s)))
	dir := "checkpoints/" + scale.JobID + "/chk-42"
	f.putBytes(dir+"/"+MetadataName, buf.Bytes())
	return f, f.loc(dir)
}

func benchmarkInspect(b *testing.B, s scale.Shape) {
	f, loc := scaleFixture(b, s)
	run := func() {
		snap, err := Open(context.Background(), f.pool, loc, nil)
		require.NoError(b, err)
		in := Inspect(snap, nil)
		require.Positive(b, in.Totals.Files)
	}
	peak := scale.PeakHeap(run)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
}

func BenchmarkInspect50k(b *testing.B)  { benchmarkInspect(b, w5) }
func BenchmarkInspect500k(b *testing.B) { benchmarkInspect(b, scale.Large) }

// bigStore shows many objects without holding them: a function of the number.
type bigStore struct {
	blobstore.Store // holds the metadata objects
	n               int
	base, job       string
	calls           atomic.Int64
}

const bigName = "ckp/%s/shared/%08x-0000-4000-8000-000000000000"

func (s *bigStore) name(i int) string {
	const hexDigits = "0123456789abcdef"
	b := make([]byte, 0, 128)
	b = append(b, s.base...)
	b = append(b, "ckp/"...)
	b = append(b, s.job...)
	b = append(b, "/shared/"...)
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[i>>shift&15])
	}
	return string(append(b, "-0000-4000-8000-000000000000"...))
}

func (s *bigStore) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		shared := s.base + "ckp/" + s.job + "/shared/"
		done := false
		emit := func() bool { // the shared files, which sort after chk-N
			if done {
				return true
			}
			done = true
			if opts.Delimiter && len(opts.Prefix) < len(shared) {
				return yield(blobstore.Info{Name: shared, IsPrefix: true}, nil)
			}
			from := 0
			if strings.HasPrefix(opts.StartAfter, shared) {
				from = sort.Search(s.n, func(i int) bool { return s.name(i) > opts.StartAfter })
			}
			for i := from; i < s.n; i++ {
				if i%1000 == 0 {
					s.calls.Add(1)
				}
				if !yield(blobstore.Info{Name: s.name(i), Size: 1 << 20, ModTime: time.Unix(1e9, 0)}, nil) {
					return false
				}
			}
			return true
		}
		s.calls.Add(1)
		for info, err := range s.Store.List(ctx, opts) {
			if err == nil && info.Name > shared && !emit() {
				return
			}
			if !yield(info, err) {
				return
			}
		}
		if opts.Delimiter && opts.Prefix != s.base+"ckp/"+s.job+"/" && opts.Prefix != shared {
			return
		}
		emit()
	}
}

func (s *bigStore) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	s.calls.Add(1)
	if rest, ok := strings.CutPrefix(name, s.base+"ckp/"+s.job+"/shared/"); ok && len(rest) == 36 {
		if i, err := strconv.ParseInt(rest[:8], 16, 64); err == nil && int(i) < s.n && rest[8:] == "-0000-4000-8000-000000000000" {
			return blobstore.Info{Name: name, Size: 1 << 20}, nil
		}
	}
	return s.Store.Stat(ctx, name)
}

// bigFixture has n shared files, of which each of the checkpoints names perEach.
func bigFixture(b testing.TB, n, checkpoints, perEach int) (*fixture, *bigStore) {
	f := localFixture(b) // so that the metadata is not in memory
	for i := range checkpoints {
		c := &metadata.Checkpoint{Version: 4, ID: int64(i), Properties: metadata.NullProperties()}
		o := metadata.OperatorState{ID: metadata.OperatorIDFromUID("op"), Parallelism: 1000, MaxParallelism: 32768}
		step := max(1, (n-perEach)/max(1, checkpoints-1))
		for t := range 1000 {
			h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, CheckpointID: int64(i), BackendID: "b", Range: metadata.KeyGroupRange{Start: int32(t * 32), Count: 32},
				Meta: &metadata.ByteStreamHandle{Name: "m", Data: []byte("m")}, ID: "h"}
			for k := t * perEach / 1000; k < (t+1)*perEach/1000; k++ {
				h.Shared = append(h.Shared, metadata.NamedHandle{Name: "x.sst", Handle: absolute(f.url(fmt.Sprintf(bigName, jobA, i*step+k)), 1<<20)})
			}
			o.Subtasks = append(o.Subtasks, metadata.SubtaskState{Index: int32(t), ManagedKeyed: h})
		}
		c.Operators = append(c.Operators, o)
		f.write(fmt.Sprintf("ckp/%s/chk-%d", jobA, i), c)
	}
	var big *bigStore
	f.pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
		big = &bigStore{Store: s, n: n, base: f.root.Path + "/", job: jobA}
		return big
	})
	_, _, err := f.pool.Resolve(context.Background(), f.root)
	require.NoError(b, err)
	return f, big
}

// BenchmarkDiskUsage1M: a million objects, ten checkpoints that name a quarter of
// a million each, overlapping.
func BenchmarkDiskUsage1M(b *testing.B) {
	f, _ := bigFixture(b, 1_000_000, 10, 250_000)
	dir := b.TempDir()
	run := func() {
		u, err := DiskUsage(context.Background(), f.pool, f.root, &UsageOptions{TempDir: dir})
		require.NoError(b, err)
		require.EqualValues(b, 1_000_010, u.Total.Objects)
		require.EqualValues(b, 999_997, u.Referenced.Objects)
		require.True(b, u.Conclusive)
	}
	peak := scale.PeakHeap(run)
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
}

// BenchmarkList1M: the same tree listed and checked.
func BenchmarkList1M(b *testing.B) {
	f, big := bigFixture(b, 1_000_000, 10, 100_000)
	run := func() {
		n := 0
		for row, err := range List(context.Background(), f.pool, f.root, nil) {
			require.NoError(b, err)
			require.True(b, row.Usable, row.Reason)
			n++
		}
		require.Equal(b, 10, n)
	}
	big.calls.Store(0)
	peak := scale.PeakHeap(run)
	calls := big.calls.Load()
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	b.ReportMetric(float64(calls), "store-calls")
}

// BenchmarkCheck100k: one folder of shared files, listed once.
func BenchmarkCheck100k(b *testing.B) {
	f, _ := bigFixture(b, 100_000, 1, 100_000)
	s, err := Open(context.Background(), f.pool, f.loc("ckp/"+jobA+"/chk-0"), nil)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		r, err := Check(context.Background(), s, nil)
		require.NoError(b, err)
		require.True(b, r.Usable)
	}
}
