package pebbledb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/internal/killtest"
	"github.com/tidemark/tidemark/metadata"
)

// A process that writes, checkpoints and restores real files is killed at random
// moments. Each next one finds the last checkpoint that was committed, whole, and goes
// on from there at another parallelism. TIDEMARK_KILLS is how often; 12 by default.
func TestKill(t *testing.T) {
	kills := 12
	if testing.Short() {
		kills = 3
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "store"), 0o755))
	killtest.Kill(t, "TestKilledChild", dir, kills, 150*time.Millisecond)
}

// latest is what the child commits: Flink's _metadata, in short.
type latest struct {
	Step    int
	Handles []latestHandle
}

type latestHandle struct {
	First, Count int32
	ID           int64
	Shared       map[string]latestFile
	Private      map[string]latestFile
}

type latestFile struct {
	Path string
	Size int64
}

func TestKilledChild(t *testing.T) {
	dir := killtest.Dir(t)
	fmt.Println("started")
	p := NewProcess(&ProcessOptions{MemoryBytes: 32 << 20})
	at := filepath.Join(dir, "latest")
	var l latest
	data, err := os.ReadFile(at)
	if err == nil {
		require.NoError(t, json.Unmarshal(data, &l))
	} else {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	create := func(_ context.Context, shared bool) FileWriter {
		name := filepath.Join(dir, "store", uuid.NewString())
		f, err := os.Create(name)
		require.NoError(t, err)
		return &diskWriter{f: f}
	}
	open := func(_ context.Context, h metadata.StreamHandle) (sst.Source, error) {
		f, err := os.Open(h.(*metadata.FileHandle).Path.Go())
		if err != nil {
			return nil, err
		}
		return sst.ReaderAt(f, h.(*metadata.FileHandle).Size), nil
	}
	want := map[int]int{}
	for n := 1; n <= l.Step; n++ {
		killStep(n, func(k int) { want[k] = n })
	}
	works, _ := filepath.Glob(filepath.Join(dir, "work-*"))
	var locals []string
	for _, w := range works {
		chks, _ := filepath.Glob(filepath.Join(w, "*", "chk-*"))
		locals = append(locals, chks...)
	}
	var sources []Source
	for _, h := range l.Handles {
		sources = append(sources, Source{Name: "latest", Handle: h.handle(), Open: open})
	}
	work := filepath.Join(dir, "work-"+uuid.NewString())
	par := int32(1 + l.Step%3)
	var tasks []*DB
	for i := range par {
		d, err := Restore(t.Context(), p, filepath.Join(work, strconv.Itoa(int(i))), sources,
			&Options{KeyGroups: groups(i*128/par, (i+1)*128/par), KeepLocal: true, Local: locals, MemTableBytes: 256 << 10})
		require.NoError(t, err)
		tasks = append(tasks, d)
	}
	task := func(k int) *DB {
		for _, d := range tasks {
			if d.opts.KeyGroups.Contains(int32(k % 128)) {
				return d
			}
		}
		return nil
	}
	for k := range 5000 {
		s := ""
		if n, ok := want[k]; ok {
			s = strconv.Itoa(n)
		}
		require.Equal(t, s, get(t, task(k).Pebble(), k), "key %d at step %d", k, l.Step)
	}
	fmt.Println("restored", l.Step)
	for _, w := range works {
		os.RemoveAll(w)
	}
	for n := l.Step + 1; ; n++ {
		for _, d := range tasks {
			b := d.Pebble().NewBatch()
			killStep(n, func(k int) {
				if d == task(k) {
					require.NoError(t, b.Set(key(k%128, k), strconv.AppendInt(nil, int64(n), 10), nil))
				}
			})
			require.NoError(t, d.Apply(t.Context(), b))
			require.NoError(t, b.Close())
		}
		now := latest{Step: n}
		var frozen []*Frozen
		for _, d := range tasks {
			f, err := d.Checkpoint(int64(n), func(func(*pebble.Batch) error) error { return nil })
			require.NoError(t, err)
			frozen = append(frozen, f)
		}
		for _, f := range frozen {
			up, err := f.Upload(t.Context(), create, nil)
			require.NoError(t, err)
			f.Release()
			now.Handles = append(now.Handles, asLatest(up.Handle))
		}
		data, err := json.Marshal(now)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(at+".new", data, 0o644))
		require.NoError(t, os.Rename(at+".new", at))
		fmt.Println("committed", n)
		for _, d := range tasks {
			d.Confirmed(int64(n))
		}
		// What is not needed any more goes, what a killed process left too.
		needed := map[string]bool{}
		for _, h := range now.Handles {
			for _, m := range []map[string]latestFile{h.Shared, h.Private} {
				for _, f := range m {
					needed[f.Path] = true
				}
			}
		}
		all, err := filepath.Glob(filepath.Join(dir, "store", "*"))
		require.NoError(t, err)
		for _, f := range all {
			if !needed[f] {
				require.NoError(t, os.Remove(f))
			}
		}
	}
}

func killStep(n int, f func(k int)) {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	for range 300 {
		f(r.IntN(5000))
	}
}

func asLatest(h *metadata.IncrementalHandle) latestHandle {
	l := latestHandle{First: h.Range.Start, Count: h.Range.Count, ID: h.CheckpointID, Shared: map[string]latestFile{}, Private: map[string]latestFile{}}
	for _, n := range h.Shared {
		f := n.Handle.(*metadata.FileHandle)
		l.Shared[n.Name.Go()] = latestFile{f.Path.Go(), f.Size}
	}
	for _, n := range h.Private {
		f := n.Handle.(*metadata.FileHandle)
		l.Private[n.Name.Go()] = latestFile{f.Path.Go(), f.Size}
	}
	return l
}

func (l latestHandle) handle() *metadata.IncrementalHandle {
	h := &metadata.IncrementalHandle{CheckpointID: l.ID, Range: metadata.KeyGroupRange{Start: l.First, Count: l.Count}}
	list := func(m map[string]latestFile) (to []metadata.NamedHandle) {
		for name, f := range m {
			to = append(to, metadata.NamedHandle{Name: javaio.NewString(name), Handle: &metadata.FileHandle{Path: javaio.NewString(f.Path), Size: f.Size}})
		}
		return to
	}
	h.Shared, h.Private = list(l.Shared), list(l.Private)
	return h
}

type diskWriter struct {
	f *os.File
	n int64
}

func (w *diskWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.n += int64(n)
	return n, err
}

func (w *diskWriter) Abort() error { return errors.Join(w.f.Close(), os.Remove(w.f.Name())) }

func (w *diskWriter) Close() (metadata.StreamHandle, error) {
	return &metadata.FileHandle{Path: javaio.NewString(w.f.Name()), Size: w.n}, w.f.Close()
}
