package snapshot

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// verifyAll verifies with data.
func verifyAll(t testing.TB, pool *blobstore.Pool, loc blobstore.Location) *Verification {
	v, err := VerifyAt(t.Context(), pool, loc, &VerifyOptions{Data: &DataOptions{NoOthers: true, Classes: goldenClasses(t)}})
	require.NoError(t, err)
	return v
}

// With checksums every flipped bit of every file is found, also where the file has
// no checksum of its own: OPTIONS files, key groups of the heap, meta blocks.
func TestChecksumsFindEveryFlippedBit(t *testing.T) {
	tried := 0
	for _, c := range testdata.Goldens(t) {
		f := memFixture(t)
		sn := c.Snapshots[len(c.Snapshots)-1]
		from, err := blobstore.Parse(c.File(sn.Path))
		require.NoError(t, err)
		s, err := Open(t.Context(), f.pool, from, nil)
		require.NoError(t, err)
		p, err := PlanCopy(t.Context(), s, f.loc("a"), &CopyOptions{Checksums: true})
		require.NoError(t, err)
		_, err = p.Apply(t.Context())
		require.NoError(t, err)
		v := verifyAll(t, f.pool, f.loc("a"))
		require.Empty(t, codes(v), c.Name)
		require.EqualValues(t, len(p.Files), v.Checksums.Verified, c.Name)
		require.Empty(t, v.Data.NoChecksum, "%s: everything in a file is protected", c.Name)
		names, err := objectsIn(t.Context(), f.pool, f.loc("a"))
		require.NoError(t, err)
		for name, size := range names {
			if size == 0 || tried > 150 && name != ChecksumsName {
				continue
			}
			store, path := f.store("a/" + name)
			whole, err := blobstore.ReadAll(t.Context(), store, path, 1<<24)
			require.NoError(t, err)
			for _, at := range []int{0, len(whole) / 2, len(whole) - 1} {
				broken := bytes.Clone(whole)
				broken[at] ^= 1
				f.putBytes("a/"+name, broken)
				v := verifyAll(t, f.pool, f.loc("a"))
				require.NotEmpty(t, codes(v), "%s/%s byte %d", c.Name, name, at)
				tried++
			}
			f.putBytes("a/"+name, whole)
		}
	}
	require.Greater(t, tried, 150)
}

func TestChecksumsOfAWriter(t *testing.T) {
	f := memFixture(t)
	w, err := NewWriter(t.Context(), f.pool, SavepointIn(f.loc("a")), &WriterOptions{MemoryThreshold: 4, Checksums: true})
	require.NoError(t, err)
	c := newCheckpoint(1, nil)
	h := c.Operators[0].Subtasks[0].ManagedKeyed.(*metadata.IncrementalHandle)
	for _, size := range []int{3, 5, 100_000} {
		file := w.File(t.Context(), ScopeShared)
		for part := range bytes.Lines(bytes.Repeat([]byte("0123456\n"), size/8+1)) {
			_, err := file.Write(part[:min(len(part), size-int(file.Size()))])
			require.NoError(t, err)
		}
		made, err := file.Close()
		require.NoError(t, err)
		h.Shared = append(h.Shared, metadata.NamedHandle{Name: metadata.String("000001.sst"), Handle: made})
		h.Meta = made
	}
	require.NoError(t, w.Commit(t.Context(), c))
	s, err := Open(t.Context(), f.pool, f.loc("a"), nil)
	require.NoError(t, err)
	sums, err := ReadChecksums(t.Context(), s)
	require.NoError(t, err)
	require.Len(t, sums.Files, 2, "what lies in _metadata needs none of its own")
	v, err := VerifyAt(t.Context(), f.pool, f.loc("a"), nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, v.Checksums.Files)
	require.Zero(t, v.Checksums.Without)
	_, err = WriteChecksums(t.Context(), s, nil)
	require.ErrorIs(t, err, blobstore.ErrExist)
	// They are those that reading the files gives.
	f.remove("a/" + ChecksumsName)
	again, err := WriteChecksums(t.Context(), s, nil)
	require.NoError(t, err)
	require.Equal(t, sums, again)
	// du knows whose they are.
	u, err := DiskUsage(t.Context(), f.pool, f.root, nil)
	require.NoError(t, err)
	require.Zero(t, u.Unreferenced.Objects)
	require.EqualValues(t, 2, u.Metadata.Objects)
}

// Another _metadata than the one that the checksums are of is damage.
func TestChecksumsOfAnotherMetadata(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 2)
	s, err := Open(t.Context(), f.pool, f.loc("ckp/"+jobA+"/chk-2"), nil)
	require.NoError(t, err)
	_, err = WriteChecksums(t.Context(), s, nil)
	require.NoError(t, err)
	c := *s.Checkpoint
	c.ID = 99
	f.write("ckp/"+jobA+"/chk-2", &c)
	v, err := VerifyAt(t.Context(), f.pool, f.loc("ckp/"+jobA+"/chk-2"), nil)
	require.NoError(t, err)
	require.Equal(t, "checksum-mismatch", codes(v))
}

// Moved folders keep their checksums, since paths are those of the handles.
func TestChecksumsOfAConversionMove(t *testing.T) {
	f := memFixture(t)
	largeSnapshot(t, f, "a", 50, CreateCanonical)
	convertTo2 := func(to blobstore.Location) {
		s, err := Open(t.Context(), f.pool, f.loc("a"), nil)
		require.NoError(t, err)
		p, err := PlanConvert(t.Context(), s, to, &ConvertOptions{Format: stream.HeapFormat, MemoryThreshold: -1, Checksums: true})
		require.NoError(t, err)
		_, err = p.Apply(t.Context())
		require.NoError(t, err)
	}
	convertTo2(f.loc("b"))
	names, err := objectsIn(t.Context(), f.pool, f.loc("b"))
	require.NoError(t, err)
	for name := range names {
		store, path := f.store("b/" + name)
		b, err := blobstore.ReadAll(context.Background(), store, path, 1<<24)
		require.NoError(t, err)
		f.putBytes("moved/"+name, b)
	}
	v := verifyAll(t, f.pool, f.loc("moved"))
	require.Empty(t, codes(v))
	require.EqualValues(t, len(names)-2, v.Checksums.Verified)
}

func FuzzChecksums(f *testing.F) {
	c := &Checksums{Metadata: FileChecksum{Size: 3, XXH64: sumText(7)}, Files: []FileChecksum{{"a", 1, sumText(1)}, {"file:/b", 2, sumText(2)}}}
	whole, err := c.encode()
	require.NoError(f, err)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeChecksums("x", data)
		if err != nil {
			var d *damage.Error
			require.True(t, errors.As(err, &d))
			return
		}
		b, err := c.encode()
		require.NoError(t, err)
		again, err := decodeChecksums("x", b)
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}
