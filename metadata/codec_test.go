package metadata

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

func requireRoundTrip(t *testing.T, file string) *Checkpoint {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	c, err := Decode(bytes.NewReader(b), &DecodeOptions{Strict: true})
	require.NoError(t, err, file)
	var out bytes.Buffer
	require.NoError(t, Encode(&out, c), file)
	require.True(t, bytes.Equal(b, out.Bytes()), "%s: %d bytes became %d", file, len(b), out.Len())
	n, err := EncodedSize(c)
	require.NoError(t, err)
	require.EqualValues(t, len(b), n)
	require.NoError(t, VerifyRoundTrip(bytes.NewReader(b), nil), file)
	require.NoError(t, EncodeWith(io.Discard, c, &EncodeOptions{SelfCheck: true}), file)
	return c
}

func TestRoundTripGoldens(t *testing.T) {
	for _, file := range testdata.GoldenMetadata(t) {
		requireRoundTrip(t, file)
	}
}

func TestRoundTripAllGoldens(t *testing.T) {
	files := testdata.MetadataFiles(t, filepath.Join(testdata.Shared(t), "goldens", "data"))
	require.Len(t, files, 287)
	for _, file := range files {
		requireRoundTrip(t, file)
	}
}

func TestRoundTripCorpus(t *testing.T) {
	files := testdata.MetadataFiles(t, testdata.Corpus(t))
	require.Len(t, files, 162)
	versions := map[int32]int{}
	for _, file := range files {
		c := requireRoundTrip(t, file)
		versions[c.Version]++
	}
	t.Log(versions)
}

// What Flink's own loader saw in each golden.
func TestGoldensAgreeWithFlinksLoader(t *testing.T) {
	t.Run("committed", func(t *testing.T) { requireAsFlinkSaw(t, testdata.Goldens(t)) })
	t.Run("shared", func(t *testing.T) { requireAsFlinkSaw(t, testdata.AllGoldens(t)) })
}

func requireAsFlinkSaw(t *testing.T, cases []*testdata.Case) {
	for _, c := range cases {
		for _, s := range c.Snapshots {
			ck := requireRoundTrip(t, c.File(s.Path+"/_metadata"))
			require.Equal(t, s.MetadataVersion, ck.Version, c.Name)
			require.Equal(t, s.CheckpointID, ck.ID, c.Name)
			require.Len(t, ck.Operators, len(s.Operators), c.Name)
			byID := map[string]*OperatorState{}
			for i := range ck.Operators {
				byID[ck.Operators[i].ID.String()] = &ck.Operators[i]
			}
			for _, want := range s.Operators {
				got := byID[want.ID]
				require.NotNil(t, got, "%s: %s", c.Name, want.ID)
				require.Equal(t, want.Parallelism, got.Parallelism)
				require.Equal(t, want.MaxParallelism, got.MaxParallelism)
				require.Equal(t, want.FullyFinished, got.FullyFinished())
				finished := 0
				for _, st := range got.Subtasks {
					if st.Finished {
						finished++
					}
				}
				require.Equal(t, want.FinishedSubtasks, finished)
				require.Equal(t, slotCounts(want.Handles), handleCounts(got), "%s: %s", c.Name, want.ID)
			}
		}
	}
}

// slotCounts drops the classes from "managed_keyed:KeyGroupsStateHandle(…)".
func slotCounts(handles map[string]int) map[string]int {
	m := map[string]int{}
	for k, n := range handles {
		slot, _, _ := strings.Cut(k, ":")
		m[slot] += n
	}
	return m
}

func handleCounts(o *OperatorState) map[string]int {
	m := map[string]int{}
	add := func(slot string, n int) {
		if n > 0 {
			m[slot] += n
		}
	}
	one := func(present bool) int {
		if present {
			return 1
		}
		return 0
	}
	add("coordinator", one(o.Coordinator != nil))
	for _, s := range o.Subtasks {
		add("managed_operator", one(s.ManagedOperator != nil))
		add("raw_operator", one(s.RawOperator != nil))
		add("managed_keyed", one(s.ManagedKeyed != nil))
		add("raw_keyed", one(s.RawKeyed != nil))
		add("input_channel", len(s.InputChannels))
		add("result_subpartition", len(s.OutputChannels))
	}
	return m
}

func TestDecodeOneByteAtATime(t *testing.T) {
	for _, file := range testdata.GoldenMetadata(t) {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		want, err := Decode(bytes.NewReader(b), nil)
		require.NoError(t, err)
		got, err := Decode(iotest.OneByteReader(bytes.NewReader(b)), nil)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// addGoldens seeds a fuzz target with the small committed goldens.
func addGoldens(f *testing.F) {
	for _, file := range testdata.GoldenMetadata(f) {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		if len(b) < 16<<10 {
			f.Add(b)
		}
	}
}
