package lsm_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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

var opener = keyedtest.Opener{String: open[string], Int64: open[int64], Incremental: true}

// inDir is a backend that removes its folder.
type inDir[K comparable] struct {
	*lsm.Backend[K]
	dir string
}

func (b *inDir[K]) Close() error {
	err := b.Backend.Close()
	if err == nil {
		err = os.RemoveAll(b.dir)
	}
	return err
}

func open[K comparable](t keyedtest.TB, c keyed.Config[K]) (keyedtest.Backend[K], error) {
	dir, err := os.MkdirTemp("", "lsm")
	require.NoError(t, err)
	b, err := lsm.Open(dir, c, &lsm.Options{Process: process})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &inDir[K]{b, dir}, nil
}

// TestBackend runs what all backends must do.
func TestBackend(t *testing.T) { opener.Run(t) }

// TestModel does random things to the backend and to plain maps.
func TestModel(t *testing.T) { opener.Model(t) }

// TestGoldens restores what a real Flink wrote and compares the rows.
func TestGoldens(t *testing.T) { opener.Goldens(t, testdata.Goldens(t)) }

// TestAllGoldens is the same for the whole set, where it is present.
func TestAllGoldens(t *testing.T) { opener.Goldens(t, testdata.AllGoldens(t)) }
