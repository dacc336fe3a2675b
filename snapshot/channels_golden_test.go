package snapshot_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
)

// TestInFlightRecordsOfGoldens puts the two sides of each channel together, and
// compares the records with those that the job had in flight.
func TestInFlightRecordsOfGoldens(t *testing.T) {
	checked := 0
	for _, c := range append(testdata.Goldens(t), testdata.AllGoldens(t)...) {
		if !strings.Contains(c.Name, "-unaligned") {
			continue
		}
		for _, sn := range c.Snapshots {
			want, ok := inFlight(t, c.File(sn.Expected))
			if !ok {
				continue
			}
			checked++
			t.Run(c.Name, func(t *testing.T) {
				pool := blobstore.NewPool(nil, nil)
				defer pool.Close()
				loc, err := blobstore.Parse(c.File(sn.Path))
				require.NoError(t, err)
				s, err := snapshot.Open(t.Context(), pool, loc, nil)
				require.NoError(t, err)
				require.Equal(t, want, joined(t, s))
			})
		}
	}
	require.NotZero(t, checked)
}

func inFlight(t *testing.T, file string) ([]int64, bool) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var m struct {
			Kind  string
			Value []int64
		}
		if !strings.Contains(sc.Text(), `"in-flight-records"`) {
			continue
		}
		require.NoError(t, json.Unmarshal(sc.Bytes(), &m))
		slices.Sort(m.Value)
		return m.Value, true
	}
	return nil, false
}

// joined gives the Long values of the records of all channels. An exchange between
// two operators joins subpartition d of subtask u to channel u of subtask d; it
// does not tell which operators, so that each output is tried with the inputs at
// its place until the bytes are whole records.
func joined(t *testing.T, s *snapshot.Snapshot) []int64 {
	var inputs, outputs []*snapshot.InFlight
	for f := range snapshot.InFlightChannels(s, nil) {
		if f.Output {
			outputs = append(outputs, f)
		} else {
			inputs = append(inputs, f)
		}
	}
	read := func(f *snapshot.InFlight) []byte {
		r, err := f.Open(t.Context())
		require.NoError(t, err)
		b := make([]byte, 0, f.Bytes)
		for {
			n, err := r.Read(b[len(b):cap(b)])
			b = b[:len(b)+n]
			if err != nil {
				return b
			}
			b = slices.Grow(b, 512)
		}
	}
	var values []int64
	add := func(b []byte) bool {
		var got []int64
		for len(b) > 0 {
			if len(b) < 4 {
				return false
			}
			n := int(binary.BigEndian.Uint32(b))
			if n != 17 || len(b) < 4+n || b[4] != 0 { // tag, timestamp, Long
				return false
			}
			v := int64(binary.BigEndian.Uint64(b[13:]))
			if int64(binary.BigEndian.Uint64(b[5:])) != 1000*v {
				return false
			}
			got = append(got, v)
			b = b[4+n:]
		}
		values = append(values, got...)
		return true
	}
	used := map[*snapshot.InFlight]bool{}
	for _, in := range inputs {
		head := read(in)
		matched := false
		for _, out := range outputs {
			if !used[out] && out.Channel == in.Subtask && out.Subtask == in.Channel && add(append(slices.Clone(head), read(out)...)) {
				used[out], matched = true, true
				break
			}
		}
		if !matched {
			require.True(t, add(head), "input gate %d channel %d of subtask %d", in.Gate, in.Channel, in.Subtask)
		}
	}
	for _, out := range outputs {
		if !used[out] {
			require.True(t, add(read(out)), "subpartition %d of subtask %d", out.Channel, out.Subtask)
		}
	}
	slices.Sort(values)
	return values
}
