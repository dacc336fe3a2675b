package snapshot

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/incremental/pebbledb/staterows"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// lsmSink writes entries as rows of an LSM database, lists by appending.
type lsmSink struct {
	stateSink
	t  testing.TB
	db *pebbledb.DB
}

func (s *lsmSink) group(kg int32) error { s.kg = kg; return nil }
func (s *lsmSink) state(id int) error   { s.begin(id); return nil }
func (s *lsmSink) end() error           { return nil }

func (s *lsmSink) pair(key, value []byte) error {
	row := binary.BigEndian.AppendUint16(nil, uint16(s.kg))
	row = binary.BigEndian.AppendUint16(row, uint16(s.id))
	row = append(row, key[s.f.prefix:]...)
	b := s.db.Pebble().NewBatch()
	defer b.Close()
	if s.r.state.Kind != StateList {
		require.NoError(s.t, b.Set(row, []byte("older"), nil))
		require.NoError(s.t, s.db.Apply(s.t.Context(), b))
		b = s.db.Pebble().NewBatch()
		require.NoError(s.t, b.Set(row, value, nil))
		return s.db.Apply(s.t.Context(), b)
	}
	require.NoError(s.t, s.eachElement(value, true, func(e []byte) error { return b.Merge(row, e, nil) }))
	return s.db.Apply(s.t.Context(), b)
}

func (s *lsmSink) element(_, _, _ []byte) error { panic("no heap state here") }
func (s *lsmSink) timer([]byte) error           { panic("no heap state here") }

// lsmSnapshot makes a checkpoint of the LSM state backend of a snapshot in the
// canonical format.
func lsmSnapshot(t testing.TB, pool *blobstore.Pool, from, to blobstore.Location) {
	s, err := Open(t.Context(), pool, from, nil)
	require.NoError(t, err)
	w, err := NewWriter(t.Context(), pool, SavepointIn(to), &WriterOptions{MemoryThreshold: 1})
	require.NoError(t, err)
	p := pebbledb.NewProcess(nil)
	defer p.Close()
	sc := newScan(s, &ScanOptions{Classes: goldenClasses(t)})
	c := *s.Checkpoint
	c.Operators = append([]metadata.OperatorState{}, c.Operators...)
	for i := range c.Operators {
		o := &c.Operators[i]
		o.Subtasks = append([]metadata.SubtaskState{}, o.Subtasks...)
		for k := range o.Subtasks {
			sub := &o.Subtasks[k]
			h, ok := sub.ManagedKeyed.(*metadata.KeyGroupsHandle)
			if !ok {
				continue
			}
			in, err := sc.openInput(t.Context(), handleJob{operator: &sc.cat.operators[i], subtask: sub.Index}, h, false)
			require.NoError(t, err)
			meta := in.out.meta
			db, err := pebbledb.Open(t.Context(), p, "/db", &pebbledb.Options{KeyGroups: h.Range, FS: vfs.NewMem(), Merger: staterows.Merger("tidemark.append.1")})
			require.NoError(t, err)
			require.NoError(t, in.read(t.Context(), h.Range, &lsmSink{stateSink{f: in.out, rs: in.out.readers()}, t, db}))
			f, err := db.Checkpoint(s.Checkpoint.ID, func(func(*pebble.Batch) error) error { return nil })
			require.NoError(t, err)
			up, err := f.Upload(t.Context(), func(ctx context.Context, shared bool) pebbledb.FileWriter {
				if shared {
					return w.File(ctx, ScopeShared)
				}
				return w.File(ctx, ScopeExclusive)
			}, nil)
			require.NoError(t, err)
			f.Release()
			file := w.File(t.Context(), ScopeExclusive)
			head, err := meta.Append(nil)
			require.NoError(t, err)
			_, err = file.Write(head)
			require.NoError(t, err)
			up.Handle.Meta, err = file.Close()
			require.NoError(t, err)
			require.NoError(t, db.Close())
			sub.ManagedKeyed = up.Handle
		}
	}
	cp, err := c.MapStreams(func(around metadata.KeyedHandle, h metadata.StreamHandle) (metadata.StreamHandle, error) {
		if _, ours := around.(*metadata.IncrementalHandle); ours {
			return h, nil
		}
		src, _, err := s.OpenStream(t.Context(), h, false)
		require.NoError(t, err)
		b := make([]byte, src.Size())
		_, err = src.ReadAt(t.Context(), b, 0)
		require.NoError(t, err)
		return &metadata.ByteStreamHandle{Name: "x", Data: b}, nil
	})
	require.NoError(t, err)
	require.NoError(t, w.Commit(t.Context(), cp))
}

// TestGoldensAsLSM writes the keyed state of goldens as checkpoints of the LSM state
// backend, and holds that everything that reads snapshots finds the same in them.
func TestGoldensAsLSM(t *testing.T) { goldensAsLSM(t, testdata.Goldens(t), 5) }

// TestAllGoldensAsLSM is the same for the whole set, where it is present.
func TestAllGoldensAsLSM(t *testing.T) {
	cases, least := testdata.ManyGoldens(t, 20)
	goldensAsLSM(t, cases, least)
}

func goldensAsLSM(t *testing.T, cases []*testdata.Case, least int) {
	n := 0
	for _, c := range cases {
		for _, sn := range c.Snapshots[len(c.Snapshots)-1:] {
			f := memFixture(t)
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			convertTo(t, f.pool, loc, f.loc("canonical"), &ConvertOptions{MemoryThreshold: -1, Classes: goldenClasses(t)})
			want := rowsFor(t, f.pool, f.loc("canonical"))
			lsmSnapshot(t, f.pool, f.loc("canonical"), f.loc("lsm"))
			require.Equal(t, want, rowsFor(t, f.pool, f.loc("lsm")), c.Name)
			v, err := VerifyAt(t.Context(), f.pool, f.loc("lsm"), &VerifyOptions{Data: &DataOptions{Classes: goldenClasses(t)}})
			require.NoError(t, err)
			require.Empty(t, codes(v), c.Name)
			a, err := Open(t.Context(), f.pool, f.loc("canonical"), nil)
			require.NoError(t, err)
			b, err := Open(t.Context(), f.pool, f.loc("lsm"), nil)
			require.NoError(t, err)
			if backends := Inspect(b, nil).Backends; len(backends) > 0 {
				require.Equal(t, []string{"lsm"}, backends, c.Name)
			}
			r, err := Diff(t.Context(), a, b, nil, nil, func([]byte) error { return nil })
			require.NoError(t, err)
			for _, st := range r.States {
				require.Zero(t, st.Added+st.Removed+st.Changed, "%s %s", c.Name, st.Name)
			}
			lookUp(t, a, b)
			copyTo(t, f.pool, f.loc("lsm"), f.loc("copy"))
			require.Equal(t, want, rowsFor(t, f.pool, f.loc("copy")), c.Name)
			for _, format := range []stream.KeyedFormat{stream.CanonicalFormat, stream.HeapFormat} {
				to := f.loc("back").Join(format.String())
				convertTo(t, f.pool, f.loc("lsm"), to, &ConvertOptions{Format: format, MemoryThreshold: -1, Classes: goldenClasses(t)})
				require.Equal(t, want, rowsFor(t, f.pool, to), "%s %s", c.Name, format)
			}
			n++
		}
	}
	require.GreaterOrEqual(t, n, least)
}

// lookUp asks both for every key of a.
func lookUp(t *testing.T, a, b *Snapshot) {
	keys := map[string]bool{}
	for r, err := range Rows(t.Context(), a, &ScanOptions{Classes: goldenClasses(t)}) {
		require.NoError(t, err)
		if r.State.Kind.Keyed() && len(keys) < 20 {
			keys[string(r.Key)] = true
		}
	}
	for k := range keys {
		var got [2][]string
		for i, s := range []*Snapshot{a, b} {
			for r, err := range Rows(t.Context(), s, &ScanOptions{Key: []byte(k), Classes: goldenClasses(t)}) {
				require.NoError(t, err)
				line, _ := r.AppendJSON(nil)
				got[i] = append(got[i], string(line))
			}
		}
		require.NotEmpty(t, got[0])
		require.ElementsMatch(t, got[0], got[1])
	}
}

// Every byte of the database's files of an LSM checkpoint matters to verification.
func TestVerifyOfLSMFindsFlippedBits(t *testing.T) {
	f := memFixture(t)
	largeSnapshot(t, f, "a", 40, CreateCanonical)
	lsmSnapshot(t, f.pool, f.loc("a"), f.loc("lsm"))
	names, err := objectsIn(t.Context(), f.pool, f.loc("lsm"))
	require.NoError(t, err)
	s, err := Open(t.Context(), f.pool, f.loc("lsm"), nil)
	require.NoError(t, err)
	own := map[string]bool{} // of the databases
	for at, h := range s.Checkpoint.StreamHandles() {
		if r, ok := h.(*metadata.RelativeFileHandle); ok && (at.Part == metadata.PartShared || at.Part == metadata.PartPrivate) {
			own[r.Path.Go()] = true
		}
	}
	tried := 0
	for name := range names {
		if !own[name] || tried > 60 {
			continue
		}
		store, path := f.store("lsm/" + name)
		whole, err := blobstore.ReadAll(t.Context(), store, path, 1<<20)
		require.NoError(t, err)
		for _, at := range []int{0, len(whole) / 3, len(whole) - 1} {
			broken := append([]byte{}, whole...)
			broken[at] ^= 4
			f.putBytes("lsm/"+name, broken)
			v, err := VerifyAt(t.Context(), f.pool, f.loc("lsm"), &VerifyOptions{Data: &DataOptions{NoOthers: true}})
			require.NoError(t, err)
			require.NotEmpty(t, codes(v), "%s byte %d", name, at)
			for _, x := range v.Findings {
				if x.Severity == Damage {
					require.True(t, strings.Contains(x.File, "lsm/"), "%+v", x)
				}
			}
			tried++
		}
		f.putBytes("lsm/"+name, whole)
	}
	require.Greater(t, tried, 20)
}
