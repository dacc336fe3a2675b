package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// TestGoldensConverted converts every golden into both formats, and the results on
// into the other: each is whole by itself and has the same rows.
func TestGoldensConverted(t *testing.T) { convertGoldens(t, testdata.Goldens(t), 2) }

// TestAllGoldensConverted is the same for the whole set, where it is present.
func TestAllGoldensConverted(t *testing.T) {
	cases, least := testdata.ManyGoldens(t, 100)
	convertGoldens(t, cases, least)
}

func convertGoldens(t *testing.T, cases []*testdata.Case, least int) {
	converted := map[string]int{}
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			t.Run(c.Name+"/"+sn.Path, func(t *testing.T) {
				f := memFixture(t)
				loc, err := blobstore.Parse(c.File(sn.Path))
				require.NoError(t, err)
				want := rowsFor(t, f.pool, loc)
				for _, format := range []stream.KeyedFormat{stream.CanonicalFormat, stream.HeapFormat} {
					for _, compress := range []Compression{CompressionKeep, CompressionSnappy} {
						to := f.loc(format.String() + "-" + string(compress))
						opts := &ConvertOptions{Format: format, Compression: compress, Classes: goldenClasses(t), Workers: 2, MemoryThreshold: -1}
						convertTo(t, f.pool, loc, to, opts)
						got := rowsFor(t, f.pool, to)
						require.Equal(t, want, got, "%s", format)
						if format == stream.HeapFormat {
							eachMapOnce(t, f.pool, to)
						}
						converted[format.String()]++
						// And on to the other format.
						again := *opts
						again.Format = stream.HeapFormat - format
						convertTo(t, f.pool, to, f.loc(to.Base()+"-again"), &again)
						require.Equal(t, want, rowsFor(t, f.pool, f.loc(to.Base()+"-again")), "%s and back", format)
					}
				}
			})
		}
	}
	t.Log(converted)
	require.Greater(t, converted["heap"], least)
}

// eachMapOnce fails if a snapshot in the heap's format has two maps of a key: Flink
// would keep the second alone.
func eachMapOnce(t testing.TB, pool *blobstore.Pool, loc blobstore.Location) {
	s, err := Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	at := map[string]int64{}
	for r, err := range Rows(t.Context(), s, &ScanOptions{Classes: goldenClasses(t)}) {
		require.NoError(t, err)
		if r.State.Kind != StateMap {
			continue
		}
		k := fmt.Sprintf("%s %s %x %x", r.State.Operator.ID, r.State.Name, r.Key, r.Namespace)
		if first, ok := at[k]; ok && first != r.Offset {
			t.Errorf("%s: two maps of one key, %s, at %d and %d", loc, k, first, r.Offset)
		}
		at[k] = r.Offset
	}
}

// rowsFor are all rows of a snapshot, sorted. Lists and maps without entries are
// left out: only the heap's format has such.
func rowsFor(t testing.TB, pool *blobstore.Pool, loc blobstore.Location) []string {
	s, err := Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	var rows []string
	for r, err := range Rows(t.Context(), s, &ScanOptions{Classes: goldenClasses(t)}) {
		require.NoError(t, err)
		b, _ := r.AppendJSON(nil)
		var m map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(b, &m))
		delete(m, "operator_uid") // older versions have no place for them
		delete(m, "operator_name")
		if r.State.Kind.Keyed() && string(m["value"]) == "[]" {
			continue
		}
		b, err = json.Marshal(m)
		require.NoError(t, err)
		rows = append(rows, string(b))
	}
	slices.Sort(rows)
	return rows
}

func convertTo(t testing.TB, pool *blobstore.Pool, from, to blobstore.Location, opts *ConvertOptions) *Converted {
	s, err := Open(t.Context(), pool, from, nil)
	require.NoError(t, err)
	p, err := PlanConvert(t.Context(), s, to, opts)
	if errors.Is(err, ErrInFlight) {
		o := *opts
		o.DropInFlight = true
		p, err = PlanConvert(t.Context(), s, to, &o)
		opts = &o
	}
	require.NoError(t, err)
	require.False(t, p.Done)
	made, err := p.Apply(t.Context())
	require.NoError(t, err)
	require.Empty(t, codes(made.Verification), "%s", from)
	require.Zero(t, made.Left)
	result, err := Open(t.Context(), pool, to, nil)
	require.NoError(t, err)
	for _, h := range result.Checkpoint.StreamHandles() {
		switch h.(type) {
		case *metadata.FileHandle, *metadata.SegmentHandle:
			t.Errorf("%s: a handle of tag %s", to, h.Tag())
		}
	}
	names, err := objectsIn(t.Context(), pool, to)
	require.NoError(t, err)
	require.Len(t, names, made.Files+1, "nothing else is left")
	for n := range names {
		require.False(t, strings.HasSuffix(n, recordSuffix))
	}
	again, err := PlanConvert(t.Context(), s, to, opts)
	if len(p.Files) > 0 && made.Files > 0 {
		require.NoError(t, err)
		require.True(t, again.Done)
	}
	return made
}

// TestConvertRandom converts random descriptions, at sizes that make parts and
// temporary files of everything, and on to the other format and back.
func TestConvertRandom(t *testing.T) {
	classes, hash := verifyClasses(t)
	seeds := uint64(60)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		f := memFixture(t)
		d, err := ReadDescription(bytes.NewReader(flinkverify.RandomDescription(seed)), &DescriptionOptions{Classes: classes, Hash: hash})
		require.NoError(t, err, "seed %d", seed)
		kind := []CreateKind{CreateCanonical, CreateCheckpoint}[seed%2]
		_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc("a")), d, &CreateOptions{Kind: kind, Compress: seed%3 == 0, MemoryThreshold: -1})
		require.NoError(t, err, "seed %d", seed)
		want := rowsFor(t, f.pool, f.loc("a"))
		from := "a"
		for i, format := range []stream.KeyedFormat{stream.HeapFormat, stream.CanonicalFormat, stream.HeapFormat, stream.HeapFormat} {
			s, err := Open(t.Context(), f.pool, f.loc(from), nil)
			require.NoError(t, err)
			p, err := PlanConvert(t.Context(), s, f.loc(from+"x"), &ConvertOptions{Format: format, Workers: 3, Compression: []Compression{CompressionNone, CompressionSnappy}[i/2%2], MemoryThreshold: -1, TempDir: t.TempDir()})
			require.NoError(t, err, "seed %d", seed)
			p.sizes = convertSizes{chunk: 100, ahead: 50, block: 16, record: 1}
			made, err := p.Apply(t.Context())
			require.NoError(t, err, "seed %d", seed)
			require.Empty(t, codes(made.Verification))
			from += "x"
			require.Equal(t, want, rowsFor(t, f.pool, f.loc(from)), "seed %d", seed)
			left, err := os.ReadDir(p.opts.TempDir)
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
}

// TestConvertDropsExpired converts goldens with TTL at moments between the times of
// last access, and holds that exactly what was accessed before is gone.
func TestConvertDropsExpired(t *testing.T) {
	tested := 0
	for _, c := range testdata.AllGoldens(t) {
		if !strings.Contains(c.Name, "ttl") {
			continue
		}
		for _, sn := range c.Snapshots {
			f := memFixture(t)
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			all := accessTimes(t, f.pool, loc)
			var times []int64
			for _, a := range all {
				if a.ttl {
					times = append(times, a.time)
				}
			}
			slices.Sort(times)
			for i, cut := range []int64{times[0] - 1, times[len(times)/2], times[len(times)-1]} {
				var want []string
				for _, a := range all {
					if !a.ttl || a.time > cut {
						want = append(want, a.text)
					}
				}
				for _, format := range []stream.KeyedFormat{stream.CanonicalFormat, stream.HeapFormat} {
					to := f.loc(fmt.Sprint(format, i))
					made := convertTo(t, f.pool, loc, to, &ConvertOptions{Format: format, MemoryThreshold: -1, Now: time.UnixMilli(cut + 1000), TTL: func(*State) time.Duration { return time.Second }})
					var got []string
					for _, a := range accessTimes(t, f.pool, to) {
						got = append(got, a.text)
					}
					require.ElementsMatch(t, want, got, "%s %s", c.Name, format)
					require.EqualValues(t, len(all)-len(want), made.Expired)
				}
			}
			tested++
		}
	}
	require.NotZero(t, tested)
}

type access struct {
	text string
	ttl  bool
	time int64
}

// accessTimes are all values, list elements and map entries with the time of their
// last access.
func accessTimes(t testing.TB, pool *blobstore.Pool, loc blobstore.Location) (all []access) {
	s, err := Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	for r, err := range Rows(t.Context(), s, nil) {
		require.NoError(t, err)
		head := fmt.Sprint(r.State.Operator.ID, r.State.Name, r.KeyGroup, r.Timestamp, r.Key, r.Namespace, r.UserKey)
		values := [][]byte{r.Value}
		if r.State.Kind == StateList {
			elements, err := rowElements(r)
			require.NoError(t, err)
			values = nil
			for b := elements; len(b) > 0; {
				n, err := r.dec.elem.Skip(b)
				require.NoError(t, err)
				values = append(values, b[:n])
				b = b[n:]
			}
		}
		for _, v := range values {
			a := access{text: head + fmt.Sprint(v), ttl: r.State.TTL}
			if a.ttl {
				a.time = int64(binary.BigEndian.Uint64(v))
			}
			all = append(all, a)
		}
	}
	return all
}

// largeSnapshot makes one of several files of keyed state.
func largeSnapshot(t testing.TB, f *fixture, name string, entries int, kind CreateKind) {
	var list []any
	for i := range entries {
		list = append(list, map[string]any{"key": i, "value": fmt.Sprintf("%0*d", 100, i)})
	}
	text, err := json.Marshal(map[string]any{"format": 1, "operators": []any{map[string]any{"uid": "large", "max_parallelism": 128, "parallelism": 8,
		"keyed":           map[string]any{"key_type": "long", "states": []any{map[string]any{"name": "v", "kind": "value", "type": "string", "entries": list}}},
		"operator_states": []any{map[string]any{"name": "offsets", "mode": "list", "type": "list<long>", "entries": []int{1, 2, 3}}},
	}}})
	require.NoError(t, err)
	d, err := ReadDescription(bytes.NewReader(text), nil)
	require.NoError(t, err)
	_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc(name)), d, &CreateOptions{Kind: kind, MemoryThreshold: -1})
	require.NoError(t, err)
}

// convertLarge converts it, with records of all files.
func convertLarge(t testing.TB, pool *blobstore.Pool, from, to blobstore.Location) (*Converted, error) {
	s, err := Open(t.Context(), pool, from, nil)
	if err != nil {
		return nil, err
	}
	p, err := PlanConvert(t.Context(), s, to, &ConvertOptions{Format: stream.HeapFormat, Workers: 1, MemoryThreshold: -1})
	if err != nil {
		return nil, err
	}
	p.sizes.record = 1
	return p.Apply(t.Context())
}

// Each store call fails once, before it happens or when its answer is lost:
// afterwards there is no snapshot or a whole one, and the same conversion run again
// is whole and leaves nothing else.
func TestConvertFaults(t *testing.T) {
	resumed, step := 0, 1
	if testing.Short() {
		step = 5
	}
	for _, answer := range []bool{false, true} {
		for n := 1; ; n += step {
			f := memFixture(t)
			largeSnapshot(t, f, "a", 12, CreateCanonical)
			want := rowsFor(t, f.pool, f.loc("a"))
			rules := blobstore.NewFaults(blobstore.Fault{Nth: n, Err: errInjected, After: answer})
			_, err := convertLarge(t, blobstore.NewPool(nil, rules.Wrap), f.loc("a"), f.loc("b"))
			if _, openErr := Open(t.Context(), f.pool, f.loc("b"), nil); openErr == nil {
				require.Equal(t, want, rowsFor(t, f.pool, f.loc("b")), "call %d", n)
			} else {
				require.ErrorIs(t, openErr, ErrNoSnapshot)
				require.ErrorIs(t, err, errInjected, "call %d", n)
			}
			made, again := convertLarge(t, f.pool, f.loc("a"), f.loc("b"))
			require.NoError(t, again, "call %d", n)
			require.Empty(t, codes(made.Verification))
			require.Equal(t, want, rowsFor(t, f.pool, f.loc("b")), "call %d", n)
			resumed += made.Resumed
			if !rules.Fired() {
				require.NoError(t, err)
				require.Greater(t, n, 30)
				break
			}
		}
	}
	require.Greater(t, resumed, 20/step)
}

// A process that converts is killed at a store call, or a few later, and another completes
// its work: what has a record is not made again. In the first round every file has one, as
// _metadata is all that is missing.
func TestConvertKilled(t *testing.T) {
	if f := toBeKilled(t); f != nil {
		_, err := convertLarge(t, f.pool, f.loc("a"), f.loc("b"))
		require.NoError(t, err)
		return
	}
	dir := t.TempDir()
	f := &fixture{t, testPool(t), parse(t, "file://"+dir)}
	largeSnapshot(t, f, "a", 4000, CreateCanonical)
	want := rowsFor(t, f.pool, f.loc("a"))
	made, err := convertLarge(t, f.pool, f.loc("a"), f.loc("whole"))
	require.NoError(t, err)
	files, records := made.Files, 8
	random := killRandom(t)
	for round := range 8 {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "b")))
		if round == 0 {
			require.True(t, killAt(t, dir, killPoint{Nth: 1, Op: "create", Suffix: "/b/_metadata", Wait: true}))
		}
		for range 1 + random.IntN(2) {
			point := killPoint{Nth: 1 + random.IntN(files+records+1), Op: []string{"create", "write", "commit"}[random.IntN(3)], Wait: random.IntN(2) == 0}
			if round > 0 && !killAt(t, dir, point) {
				break // it had less left to do
			}
		}
		recorded := 0
		if _, err := Open(t.Context(), f.pool, f.loc("b"), nil); err == nil {
			require.Equal(t, want, rowsFor(t, f.pool, f.loc("b")))
		} else {
			require.ErrorIs(t, err, ErrNoSnapshot)
			done, err := filepath.Glob(filepath.Join(dir, "b", "*"+recordSuffix))
			require.NoError(t, err)
			recorded = len(done)
		}
		if round == 0 {
			require.Equal(t, records, recorded)
		}
		made, err := convertLarge(t, f.pool, f.loc("a"), f.loc("b"))
		require.NoError(t, err)
		require.Empty(t, codes(made.Verification))
		require.Equal(t, want, rowsFor(t, f.pool, f.loc("b")))
		names, err := objectsIn(t.Context(), f.pool, f.loc("b"))
		require.NoError(t, err)
		require.Len(t, names, files+1, "the data and _metadata, and no records of a run that was killed behind it")
		require.GreaterOrEqual(t, made.Resumed, recorded, "what was done before is not done again")
		t.Logf("%d files and %d with a record, %d taken over", files, recorded, made.Resumed)
	}
}
