package metadata_test

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/scale"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
)

// large is the 500,000-handle _metadata, encoded.
func large(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	c := scale.Checkpoint(scale.Large)
	n, err := metadata.EncodedSize(c)
	require.NoError(t, err)
	b.Grow(int(n))
	require.NoError(t, metadata.Encode(&b, c))
	return b.Bytes()
}

func oneCore(b testing.TB) {
	was := runtime.GOMAXPROCS(1)
	b.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

func BenchmarkDecodeLarge(b *testing.B) {
	in := large(b)
	oneCore(b)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		c, err := metadata.Decode(bytes.NewReader(in), nil)
		require.NoError(b, err)
		require.Len(b, c.Operators, 10)
	}
}

func BenchmarkEncodeLarge(b *testing.B) {
	c := scale.Checkpoint(scale.Large)
	n, err := metadata.EncodedSize(c)
	require.NoError(b, err)
	oneCore(b)
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, metadata.Encode(io.Discard, c))
	}
}

func BenchmarkVerifyRoundTripLarge(b *testing.B) {
	in := large(b)
	oneCore(b)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, metadata.VerifyRoundTrip(bytes.NewReader(in), nil))
	}
}

func BenchmarkStreamHandlesLarge(b *testing.B) {
	c := scale.Checkpoint(scale.Large)
	b.ReportAllocs()
	for b.Loop() {
		var n, size int64
		for _, h := range c.StreamHandles() {
			n++
			size += metadata.StateSize(h)
		}
		require.EqualValues(b, 510000, n)
	}
}

func BenchmarkDecodeMedium(b *testing.B) {
	var in bytes.Buffer
	require.NoError(b, metadata.Encode(&in, scale.Checkpoint(scale.Medium)))
	oneCore(b)
	b.SetBytes(int64(in.Len()))
	b.ReportAllocs()
	for b.Loop() {
		_, err := metadata.Decode(bytes.NewReader(in.Bytes()), nil)
		require.NoError(b, err)
	}
}

func BenchmarkDumpMedium(b *testing.B) {
	var in bytes.Buffer
	require.NoError(b, metadata.Encode(&in, scale.Checkpoint(scale.Medium)))
	oneCore(b)
	b.SetBytes(int64(in.Len()))
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, metadata.Dump(io.Discard, bytes.NewReader(in.Bytes()), nil))
	}
}

// A small file: what each of thousands of snapshots costs.
func BenchmarkDecodeSmall(b *testing.B) {
	g := testdata.Golden(b, "f120-rocksdb-chain")
	in, err := os.ReadFile(g.File(g.Snapshot + "/_metadata"))
	require.NoError(b, err)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := metadata.Decode(bytes.NewReader(in), nil)
		require.NoError(b, err)
	}
}

// The budget of the 500,000-handle checkpoint: time on one core and heap. The
// limits are far above what is measured, so that a busy machine passes and only
// a lost order of magnitude fails.
func TestLargeCheckpointBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	file := t.TempDir() + "/_metadata"
	require.NoError(t, os.WriteFile(file, large(t), 0o644))
	runtime.GC()
	open := func() *os.File {
		f, err := os.Open(file)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	var c *metadata.Checkpoint
	var took time.Duration
	peak := scale.PeakHeap(func() {
		start := time.Now()
		var err error
		c, err = metadata.Decode(open(), nil)
		require.NoError(t, err)
		took = time.Since(start)
	})
	runtime.GC()
	t.Logf("decode: %v, peak heap %.1f MiB", took, float64(peak)/(1<<20))
	require.Less(t, peak, int64(150<<20))
	require.Less(t, took, 5*time.Second)

	peak = scale.PeakHeap(func() {
		start := time.Now()
		require.NoError(t, metadata.Encode(io.Discard, c))
		took = time.Since(start)
	})
	t.Logf("encode: %v, peak heap %.1f MiB above the checkpoint", took, float64(peak)/(1<<20))
	require.Less(t, peak, int64(4<<20))
	c = nil

	peak = scale.PeakHeap(func() {
		start := time.Now()
		require.NoError(t, metadata.VerifyRoundTrip(open(), nil))
		took = time.Since(start)
	})
	t.Logf("verify round trip: %v, peak heap %.1f MiB", took, float64(peak)/(1<<20))
	require.Less(t, peak, int64(64<<20))
}

func TestWalkAllocatesNothingPerHandle(t *testing.T) {
	var size int64
	allocs := func(subtasks int) float64 {
		c := scale.Checkpoint(scale.Shape{Operators: 2, Subtasks: subtasks})
		return testing.AllocsPerRun(10, func() {
			for p, h := range c.StreamHandles() {
				if p.Part == metadata.PartShared {
					size += metadata.StateSize(h)
				}
			}
			for _, h := range c.KeyedHandles() {
				size += int64(h.KeyGroups().Count)
			}
		})
	}
	few, many := allocs(1), allocs(100)
	require.NotZero(t, size)
	require.Equal(t, few, many)
	require.LessOrEqual(t, many, 6.0)
}

func TestDecodeTakesFewAllocations(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, metadata.Encode(&b, scale.Checkpoint(scale.Shape{Operators: 1})))
	n := testing.AllocsPerRun(3, func() {
		_, err := metadata.Decode(bytes.NewReader(b.Bytes()), nil)
		require.NoError(t, err)
	})
	require.Less(t, n, 3000.0, "for 50,000 handles")
}

func TestFieldNamesThePlace(t *testing.T) {
	seen := map[string]bool{}
	for _, file := range testdata.GoldenMetadata(t) {
		f, err := os.ReadFile(file)
		require.NoError(t, err)
		c, err := metadata.Decode(bytes.NewReader(f), nil)
		require.NoError(t, err)
		perFile := map[string]bool{}
		for p, h := range c.StreamHandles() {
			field := c.Field(p)
			require.NotEmpty(t, field)
			require.False(t, perFile[field], field)
			perFile[field] = true
			if p.Slot.Keyed() {
				require.NotNil(t, p.Keyed, field)
			} else {
				require.Nil(t, p.Keyed, field)
			}
			require.Equal(t, p.Materialized, strings.Contains(field, ".materialized["), field)
			require.NotNil(t, h)
			seen[p.Slot.String()+" "+p.Part.String()] = true
		}
	}
	for _, want := range []string{"coordinator whole", "managedOperator delegate", "rawOperator delegate", "managedKeyed delegate",
		"managedKeyed meta", "managedKeyed shared", "managedKeyed private", "managedKeyed changelog", "rawKeyed delegate",
		"inputChannel delegate", "outputChannel delegate"} {
		require.True(t, seen[want], "no golden has %s", want)
	}
}
