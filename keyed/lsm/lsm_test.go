package lsm_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/keyedtest"
	"github.com/tidemark/tidemark/keyed/lsm"
)

// process is small, so that tests evict.
var process = lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 8 << 20})

func TestMain(m *testing.M) {
	code := m.Run()
	process.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

var opener = keyedtest.Opener{String: open[string], Int64: open[int64], Near: near(disk), Incremental: true}

// inDir is a backend that removes its folder.
type inDir[K comparable] struct {
	*lsm.Backend[K]
	dir string
	fs  vfs.FS
}

// Folder is where its local copies are.
func (b *inDir[K]) Folder() string { return b.dir }

func (b *inDir[K]) Close() error {
	err := b.Backend.Close()
	if err == nil {
		if err = b.fs.RemoveAll(b.dir); errors.Is(err, fs.ErrNotExist) {
			err = nil // it was closed before
		}
	}
	return err
}

// place is where backends keep their folders.
type place struct {
	process *lsm.Process
	fs      vfs.FS
	dir     func() (string, error)
}

var disk = &place{process, vfs.Default, func() (string, error) { return os.MkdirTemp("", "lsm") }}

func open[K comparable](t keyedtest.TB, c keyed.Config[K]) (keyedtest.Backend[K], error) {
	return openIn(t, disk, c, nil)
}

func near(p *place) func(keyedtest.TB, keyed.Config[string], []string) (keyedtest.Backend[string], error) {
	return func(t keyedtest.TB, c keyed.Config[string], folders []string) (keyedtest.Backend[string], error) {
		return openIn(t, p, c, folders)
	}
}

// openIn opens a backend that uses the local copies in some folders of others.
func openIn[K comparable](t keyedtest.TB, p *place, c keyed.Config[K], folders []string) (keyedtest.Backend[K], error) {
	dir, err := p.dir()
	require.NoError(t, err)
	var local []string
	for _, f := range folders {
		copies, err := pebbledb.LocalCopies(p.fs, f)
		if !errors.Is(err, fs.ErrNotExist) { // it went with the backend
			require.NoError(t, err)
		}
		local = append(local, copies...)
	}
	b, err := lsm.Open(dir, c, &lsm.Options{Process: p.process, Database: pebbledb.Options{FS: p.fs, KeepLocal: true, Local: local}})
	if err != nil {
		_ = p.fs.RemoveAll(dir)
		return nil, err
	}
	return &inDir[K]{b, dir, p.fs}, nil
}

// TestBackend runs what all backends must do.
func TestBackend(t *testing.T) { opener.Run(t) }

// TestModel does random things to the backend and to plain maps.
func TestModel(t *testing.T) { opener.Model(t) }

// TestHistories runs many short histories in memory, see keyedtest.Opener.Histories. The
// budget is so small that entries are dropped and read again.
func TestHistories(t *testing.T) {
	p := &place{process: lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 512 << 10}), fs: vfs.NewMem()}
	defer p.process.Close()
	folders := 0
	p.dir = func() (string, error) {
		folders++
		return fmt.Sprintf("/%d", folders), nil
	}
	o := opener
	o.Near = near(p)
	o.String = func(t keyedtest.TB, c keyed.Config[string]) (keyedtest.Backend[string], error) {
		return openIn(t, p, c, nil)
	}
	o.Histories(t)
	left, err := p.fs.List("/")
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestGoldens restores what a real Flink wrote and compares the rows.
func TestGoldens(t *testing.T) { opener.Goldens(t, testdata.Goldens(t)) }

// TestAllGoldens is the same for the whole set, where it is present.
func TestAllGoldens(t *testing.T) { opener.Goldens(t, testdata.AllGoldens(t)) }
