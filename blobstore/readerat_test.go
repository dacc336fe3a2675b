package blobstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestReadAll(t *testing.T) {
	s := seeded(t, map[string]string{"x": "12345", "empty": ""})
	b, err := ReadAll(t.Context(), s, "x", 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(b))
	b, err = ReadAll(t.Context(), s, "empty", 0)
	require.NoError(t, err)
	require.Empty(t, b)
	_, err = ReadAll(t.Context(), s, "x", 4)
	require.ErrorIs(t, err, ErrTooLarge)
	require.EqualError(t, err, "read mem:///x: 5 bytes: larger than the limit of 4")
	_, err = ReadAll(t.Context(), s, "absent", 4)
	require.ErrorIs(t, err, ErrNotExist)
}

func TestReaderAt(t *testing.T) {
	const size = 100_000
	data := randomBytes(size)
	var c Counter
	s := Count(seeded(t, map[string]string{"x": string(data), "empty": ""}), &c)
	for _, bs := range []int{1, 999, 4096, size - 1, size, size + 1} {
		t.Run(fmt.Sprint("block ", bs), func(t *testing.T) {
			if bs == 1 {
				s = seeded(t, map[string]string{"x": string(data[:500]), "empty": ""})
				r, err := NewReaderAt(t.Context(), s, "x", 500, &ReaderAtOptions{BlockSize: bs})
				require.NoError(t, err)
				require.NoError(t, iotest.TestReader(io.NewSectionReader(r, 0, 500), data[:500]))
				s = Count(seeded(t, map[string]string{"x": string(data), "empty": ""}), &c)
				return
			}
			r, err := NewReaderAt(t.Context(), s, "x", size, &ReaderAtOptions{BlockSize: bs})
			require.NoError(t, err)
			require.NoError(t, iotest.TestReader(io.NewSectionReader(r, 0, size), data))
			rnd := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				off, n := rnd.IntN(size+10), rnd.IntN(20_000)
				p := make([]byte, n)
				got, err := r.ReadAt(p, int64(off))
				want := data[min(off, size):min(off+n, size)]
				require.Equal(t, len(want), got)
				require.True(t, bytes.Equal(want, p[:got]))
				if got < n {
					require.Equal(t, io.EOF, err)
				} else {
					require.NoError(t, err)
				}
			}
			_, err = r.ReadAt(make([]byte, 1), -1)
			require.Error(t, err)
			require.NoError(t, r.Close())
			require.Zero(t, r.cache.Used())
			_, err = r.ReadAt(make([]byte, 1), 0)
			require.ErrorIs(t, err, ErrClosed)
		})
	}
	r, err := NewReaderAt(t.Context(), s, "empty", -1, nil)
	require.NoError(t, err)
	n, err := r.ReadAt(make([]byte, 1), 0)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
	_, err = NewReaderAt(t.Context(), s, "absent", -1, nil)
	require.ErrorIs(t, err, ErrNotExist)
}

// How many requests it makes is what a reader of tables pays for.
func TestReaderAtRequests(t *testing.T) {
	const bs, blocks = 1000, 64
	data := randomBytes(bs * blocks)
	var c Counter
	s := Count(seeded(t, map[string]string{"x": string(data)}), &c)
	open := func(o ReaderAtOptions) (*ReaderAt, func(off, n int) int64) {
		o.BlockSize = bs
		r, err := NewReaderAt(t.Context(), s, "x", int64(len(data)), &o)
		require.NoError(t, err)
		return r, func(off, n int) int64 {
			before := c.Counts()
			p := make([]byte, n)
			_, err := r.ReadAt(p, int64(off))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data[off:off+n], p))
			return c.Counts().Sub(before).RangedReads
		}
	}
	_, read := open(ReaderAtOptions{})
	require.EqualValues(t, 1, read(5_500, 10), "a first read gets its block")
	require.EqualValues(t, 0, read(5_000, 1000), "which stays")
	require.EqualValues(t, 1, read(20_000, 7_000), "several blocks come by one request")
	require.EqualValues(t, 2, read(19_999, 8_002), "what lies between is not fetched again: block 19, then 27 and 28")
	before := c.Counts()
	_, read = open(ReaderAtOptions{Cache: NewBlockCache(1 << 20)})
	total := int64(0)
	for off := 0; off < len(data); off += 100 {
		total += read(off, 100)
	}
	require.EqualValues(t, 8, total, "in sequence 1, 2, 4, 8 and then 16 blocks at once")
	require.EqualValues(t, len(data), c.Counts().Sub(before).BytesRead, "nothing twice")

	cache := NewBlockCache(8 * bs)
	r, read := open(ReaderAtOptions{Cache: cache})
	_, read2 := open(ReaderAtOptions{Cache: cache})
	for i := range 40 {
		read(i*1500, 1)
		read2(i*1500, 1)
		require.LessOrEqual(t, cache.Used(), int64(8*bs))
	}
	require.NoError(t, r.Close())
	require.EqualValues(t, 0, read2(39*1500, 1), "closing one leaves the blocks of the other")
}

func TestReaderAtNoticesChange(t *testing.T) {
	ctx := t.Context()
	s := seeded(t, map[string]string{"x": strings.Repeat("a", 1000)})
	r, err := NewReaderAt(ctx, s, "x", 1001, nil)
	require.NoError(t, err)
	_, err = r.ReadAt(make([]byte, 1), 0)
	require.EqualError(t, err, "read mem:///x: has 1000 bytes where 1001 were expected")

	r, err = NewReaderAt(ctx, s, "x", -1, &ReaderAtOptions{BlockSize: 100})
	require.NoError(t, err)
	_, err = r.ReadAt(make([]byte, 1), 0)
	require.NoError(t, err)
	require.NoError(t, WriteAll(ctx, s, "x", []byte(strings.Repeat("b", 1000)), nil))
	_, err = r.ReadAt(make([]byte, 1), 500)
	require.ErrorContains(t, err, "replaced while it was read")

	f := NewFaults(Fault{Op: "open", Short: 50})
	r, err = NewReaderAt(ctx, f.Wrap(s), "x", 1000, nil)
	require.NoError(t, err)
	_, err = r.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	// A failure is not kept.
	f = NewFaults(Fault{Op: "open", Nth: 1})
	r, err = NewReaderAt(ctx, f.Wrap(s), "x", 1000, nil)
	require.NoError(t, err)
	_, err = r.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrInjected)
	_, err = r.ReadAt(make([]byte, 1), 0)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(ctx)
	r, err = NewReaderAt(ctx, s, "x", 1000, nil)
	require.NoError(t, err)
	cancel()
	_, err = r.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, context.Canceled)
}

func TestReaderAtConcurrent(t *testing.T) {
	data := randomBytes(200_000)
	var c Counter
	s := Count(seeded(t, map[string]string{"x": string(data)}), &c)
	r, err := NewReaderAt(t.Context(), s, "x", int64(len(data)), &ReaderAtOptions{BlockSize: 5000, Cache: NewBlockCache(1 << 20)})
	require.NoError(t, err)
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 0))
			p := make([]byte, 7000)
			for range 500 {
				off := rnd.IntN(len(data) - len(p))
				if _, err := r.ReadAt(p, int64(off)); err != nil {
					errs <- err
				} else if !bytes.Equal(p, data[off:off+len(p)]) {
					errs <- errors.New("other bytes")
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	require.NoError(t, <-errs)
	require.EqualValues(t, len(data), c.Counts().BytesRead, "each block is fetched once")
}

func BenchmarkReaderAt(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(b.Context(), "file://"+dir, nil)
	require.NoError(b, err)
	const size = 64 << 20
	require.NoError(b, WriteAll(b.Context(), s, "x", randomBytes(size), nil))
	for _, c := range []struct {
		name       string
		sequential bool
	}{{"sequential", true}, {"random", false}} {
		b.Run(c.name, func(b *testing.B) {
			r, err := NewReaderAt(b.Context(), s, "x", size, nil)
			require.NoError(b, err)
			p := make([]byte, 4096)
			rnd := rand.New(rand.NewPCG(1, 1))
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			off := int64(0)
			for b.Loop() {
				if c.sequential {
					off = (off + 4096) % size
				} else {
					off = rnd.Int64N(size - 4096)
				}
				if _, err := r.ReadAt(p, off); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
