package heap_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/keyed/internal/keyedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var opener = keyedtest.Opener{String: open[string], Int64: open[int64]}

func open[K comparable](_ keyedtest.TB, c keyed.Config[K]) (keyedtest.Backend[K], error) {
	b, err := heap.Open(c)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// TestBackend runs what all backends must do.
func TestBackend(t *testing.T) { opener.Run(t) }

// TestModel does random things to the backend and to plain maps.
func TestModel(t *testing.T) { opener.Model(t) }

// TestHistories runs many short histories, see keyedtest.Opener.Histories.
func TestHistories(t *testing.T) { opener.Histories(t) }

// TestGoldens restores what a real Flink wrote and compares the rows.
func TestGoldens(t *testing.T) { opener.Goldens(t, testdata.Goldens(t)) }

// TestAllGoldens is the same for the whole set, where it is present.
func TestAllGoldens(t *testing.T) { opener.Goldens(t, testdata.AllGoldens(t)) }
