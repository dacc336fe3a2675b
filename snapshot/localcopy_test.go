package snapshot

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// TestLocalCopies writes a state file with a copy and reads it where the copy is right,
// damaged, or could not be written.
func TestLocalCopies(t *testing.T) {
	data := make([]byte, 300<<10)
	for i := range data {
		data[i] = byte(i * 7)
	}
	file := func(dir string) string { // the copy's, without its proof
		all, err := filepath.Glob(filepath.Join(dir, "*"+copySuffix))
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0][:len(all[0])-len(copySuffix)]
	}
	for _, x := range []struct {
		name   string
		dir    func(dir string) string // where the copy is to go
		damage func(dir string)
		local  bool
	}{
		{"right", nil, func(string) {}, true},
		{"a bit turned", nil, func(dir string) {
			b, err := os.ReadFile(file(dir))
			require.NoError(t, err)
			b[100_000] ^= 4
			require.NoError(t, os.WriteFile(file(dir), b, 0o600))
		}, false},
		{"longer", nil, func(dir string) {
			f, err := os.OpenFile(file(dir), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.Write([]byte{0})
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, false},
		{"cut in the middle", nil, func(dir string) { require.NoError(t, os.Truncate(file(dir), 1000)) }, false},
		{"no proof", nil, func(dir string) { require.NoError(t, os.Remove(file(dir)+copySuffix)) }, false},
		{"a proof of zeros", nil, func(dir string) { require.NoError(t, os.WriteFile(file(dir)+copySuffix, make([]byte, 100), 0o600)) }, false},
		{"a folder for a file", nil, func(dir string) {
			name := file(dir)
			require.NoError(t, os.Remove(name))
			require.NoError(t, os.Mkdir(name, 0o700))
		}, false},
		{"cannot be written", func(dir string) string {
			at := filepath.Join(dir, "file")
			require.NoError(t, os.WriteFile(at, nil, 0o600))
			return filepath.Join(at, "copies")
		}, func(string) {}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := memFixture(t)
			dir := t.TempDir()
			to := dir
			if x.dir != nil {
				to = x.dir(dir)
			}
			layout, err := CheckpointLayout(f.loc("ckp"), jobA, 7)
			require.NoError(t, err)
			w, err := NewWriter(t.Context(), f.pool, layout, nil)
			require.NoError(t, err)
			out := w.File(t.Context(), ScopeExclusive)
			out.KeepCopy(to)
			for p := data; len(p) > 0; p = p[10_000:] {
				n, err := out.Write(p[:min(len(p), 10_000)])
				require.NoError(t, err)
				require.Equal(t, min(len(p), 10_000), n)
				if len(p) <= 10_000 {
					break
				}
			}
			h, err := out.Close()
			require.NoError(t, err)
			require.Equal(t, x.dir != nil, out.CopyError() != nil)
			// An aborted file leaves nothing.
			gone := w.File(t.Context(), ScopeExclusive)
			gone.KeepCopy(to)
			_, err = gone.Write(data)
			require.NoError(t, err)
			require.NoError(t, gone.Abort())
			require.NoError(t, w.Commit(t.Context(), newCheckpoint(7, h)))
			x.damage(dir)

			s, err := Open(t.Context(), f.pool, layout.Dir, nil)
			require.NoError(t, err)
			with := s.WithLocalCopies(FindLocalCopies(dir, filepath.Join(dir, "missing")))
			for range 2 {
				src, name, err := with.OpenStream(t.Context(), h, false)
				require.NoError(t, err)
				at, err := blobstore.Parse(filepath.Join(dir, filepath.Base(name)))
				require.NoError(t, err)
				require.Equal(t, x.local, name == at.String(), name)
				got := make([]byte, len(data))
				_, err = src.ReadAt(t.Context(), got, 0)
				require.NoError(t, err)
				require.Equal(t, data, got)
			}
			if !x.local { // a wrong copy is not looked at by the next process
				require.Zero(t, FindLocalCopies(dir).Len())
			}
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.LessOrEqual(t, len(entries), 2, "the aborted file left something")
		})
	}
}

// A proof does not count for a file of the same name elsewhere, nor for another size.
func TestLocalCopyOfAnotherFile(t *testing.T) {
	f := localFixture(t)
	dir := t.TempDir()
	layout, err := CheckpointLayout(f.loc("ckp"), jobA, 7)
	require.NoError(t, err)
	w, err := NewWriter(t.Context(), f.pool, layout, nil)
	require.NoError(t, err)
	out := w.File(t.Context(), ScopeExclusive)
	out.KeepCopy(dir)
	_, err = io.Copy(out, io.LimitReader(zeros{}, 100<<10))
	require.NoError(t, err)
	h, err := out.Close()
	require.NoError(t, err)
	l := FindLocalCopies(dir)
	require.Equal(t, 1, l.Len())
	at := layout.Dir.Join(h.(*metadata.RelativeFileHandle).Path.String())
	for _, x := range []struct {
		of   blobstore.Location
		size int64
		used bool
	}{{at, 100 << 10, true}, {at, 100<<10 - 1, false}, {f.loc("elsewhere").Join(at.Path), 100 << 10, false}} {
		src, _ := l.open(t.Context(), f.pool, x.of, x.size)
		require.Equal(t, x.used, src != nil)
	}
	// A context that has ended says nothing about a copy.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l = FindLocalCopies(dir)
	src, _ := l.open(ctx, f.pool, at, 100<<10)
	require.Nil(t, src)
	src, _ = l.open(t.Context(), f.pool, at, 100<<10)
	require.NotNil(t, src)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
