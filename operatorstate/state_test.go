package operatorstate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// inline opens what lies in handles.
type inline struct{}

func (inline) OpenStream(_ context.Context, h metadata.StreamHandle, _ bool) (sst.Source, string, error) {
	return sst.Bytes(h.(*metadata.ByteStreamHandle).Data), "file", nil
}

func write(t testing.TB, s *operatorstate.Snapshot, opts *operatorstate.WriteOptions) *metadata.OperatorHandle {
	t.Helper()
	var out memory
	states, err := s.WriteTo(t.Context(), &out, opts)
	require.NoError(t, err)
	return &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, States: states, Delegate: &metadata.ByteStreamHandle{Data: out}}
}

func reopen(t testing.TB, handles []*metadata.OperatorHandle, n, subtask int) *operatorstate.Backend {
	t.Helper()
	r, err := operatorstate.Redistribute(handles, n)
	require.NoError(t, err)
	b, err := operatorstate.Open(t.Context(), inline{}, r.Parts(subtask))
	require.NoError(t, err)
	return b
}

// Random changes, snapshots, some of them written late, and restores at other
// parallelisms, against slices and maps.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type subtask struct {
			b      *operatorstate.Backend
			split  *operatorstate.ListState[int64]
			union  *operatorstate.ListState[string]
			rules  *operatorstate.BroadcastState[string, int64]
			wants  []int64
			wantsU []string
		}
		var tasks []*subtask
		rules := map[string]int64{}
		register := func(k *subtask) {
			var err [3]error
			k.split, err[0] = operatorstate.List(k.b, "split", serializer.Int64)
			k.union, err[1] = operatorstate.Union(k.b, "union", serializer.String)
			k.rules, err[2] = operatorstate.Broadcast(k.b, "rules", serializer.String, serializer.Int64)
			if err := errors.Join(err[:]...); err != nil {
				t.Fatal(err)
			}
		}
		start := func(n int) {
			tasks = nil
			for range n {
				tasks = append(tasks, &subtask{b: operatorstate.New()})
				register(tasks[len(tasks)-1])
			}
		}
		start(rapid.IntRange(1, 4).Draw(t, "parallelism"))
		type held struct {
			snaps  []*operatorstate.Snapshot
			wants  [][]int64
			wantsU [][]string
			rules  map[string]int64
		}
		var pending []held
		next := int64(0)
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		drop := func(i int) {
			for _, s := range pending[i].snaps {
				s.Release()
			}
			pending = slices.Delete(pending, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				k := rapid.SampledFrom(tasks).Draw(t, "task")
				n := rapid.SampledFrom([]int{1, 2, 3, 255, 257, 600}).Draw(t, "n")
				var add []int64
				for range n {
					next++
					add = append(add, next)
				}
				k.split.Append(add...)
				k.wants = append(k.wants, add...)
				u := fmt.Sprint("u", next)
				k.union.Append(u)
				k.wantsU = append(k.wantsU, u)
			},
			"set": func(t *rapid.T) {
				k := rapid.SampledFrom(tasks).Draw(t, "task")
				if len(k.wants) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(k.wants)-1).Draw(t, "i")
				next++
				k.split.Set(i, next)
				k.wants[i] = next
			},
			"delete": func(t *rapid.T) {
				k := rapid.SampledFrom(tasks).Draw(t, "task")
				m := int64(rapid.IntRange(2, 300).Draw(t, "every"))
				gone := func(v int64) bool { return v%m == 0 }
				before := len(k.wants)
				k.wants = slices.DeleteFunc(slices.Clone(k.wants), gone)
				if n := k.split.DeleteFunc(gone); n != before-len(k.wants) {
					t.Fatalf("%d deleted, expected %d", n, before-len(k.wants))
				}
			},
			"replace": func(t *rapid.T) {
				k := rapid.SampledFrom(tasks).Draw(t, "task")
				k.wants = slices.Clone(k.wants[:len(k.wants)/2])
				k.split.Replace(k.wants)
				k.union.Clear()
				k.wantsU = nil
			},
			"rules": func(t *rapid.T) {
				next++
				k, gone := key.Draw(t, "key"), rapid.Bool().Draw(t, "gone")
				for _, s := range tasks {
					if gone {
						s.rules.Delete(k)
					} else {
						s.rules.Put(k, next)
					}
				}
				if rules[k] = next; gone {
					delete(rules, k)
				}
			},
			"clear rules": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "really") > 0 {
					t.Skip()
				}
				for _, s := range tasks {
					s.rules.Clear()
				}
				clear(rules)
			},
			"snapshot": func(t *rapid.T) {
				if len(pending) > 3 {
					drop(rapid.IntRange(0, 3).Draw(t, "released"))
				}
				h := held{rules: maps.Clone(rules)}
				for _, k := range tasks {
					h.snaps = append(h.snaps, k.b.Snapshot())
					h.wants = append(h.wants, slices.Clone(k.wants))
					h.wantsU = append(h.wantsU, slices.Clone(k.wantsU))
				}
				pending = append(pending, h)
			},
			"release": func(t *rapid.T) {
				if len(pending) == 0 {
					t.Skip()
				}
				drop(rapid.IntRange(0, len(pending)-1).Draw(t, "which"))
			},
			"restore": func(t *rapid.T) {
				if len(pending) == 0 {
					t.Skip()
				}
				h := pending[rapid.IntRange(0, len(pending)-1).Draw(t, "which")]
				opts := &operatorstate.WriteOptions{Compress: rapid.Bool().Draw(t, "compress")}
				var handles []*metadata.OperatorHandle
				for _, s := range h.snaps {
					var out memory
					states, err := s.WriteTo(context.Background(), &out, opts)
					if err != nil {
						t.Fatal(err)
					}
					handles = append(handles, &metadata.OperatorHandle{States: states, Delegate: &metadata.ByteStreamHandle{Data: out}})
				}
				n := rapid.IntRange(1, 5).Draw(t, "parallelism")
				r, err := operatorstate.Redistribute(handles, n)
				if err != nil {
					t.Fatal(err)
				}
				tasks = nil
				var all []int64
				for i := range n {
					b, err := operatorstate.Open(context.Background(), inline{}, r.Parts(i))
					if err != nil {
						t.Fatal(err)
					}
					if rapid.IntRange(0, 3).Draw(t, "unregistered") == 0 { // once more, as nobody's state
						var out memory
						states, err := b.Snapshot().WriteTo(context.Background(), &out, nil)
						if err != nil {
							t.Fatal(err)
						}
						h := &metadata.OperatorHandle{States: states, Delegate: &metadata.ByteStreamHandle{Data: out}}
						if b, err = operatorstate.Open(context.Background(), inline{}, []operatorstate.Part{{Handle: h, States: states}}); err != nil {
							t.Fatal(err)
						}
					}
					k := &subtask{b: b}
					register(k)
					for _, v := range k.split.All() {
						k.wants = append(k.wants, v)
					}
					for _, v := range k.union.All() {
						k.wantsU = append(k.wantsU, v)
					}
					if n == len(h.wants) && !slices.Equal(k.wants, h.wants[i]) {
						t.Fatalf("subtask %d has %v, expected %v", i, k.wants, h.wants[i])
					}
					if want := slices.Concat(h.wantsU...); !slices.Equal(k.wantsU, want) {
						t.Fatalf("union is %v, expected %v", k.wantsU, want)
					}
					if got := maps.Collect(k.rules.All()); !maps.Equal(got, h.rules) {
						t.Fatalf("rules are %v, expected %v", got, h.rules)
					}
					all = append(all, k.wants...)
					tasks = append(tasks, k)
				}
				if want := slices.Concat(h.wants...); !slices.Equal(slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(want))) {
					t.Fatalf("split is %v, expected %v", all, want)
				}
				rules = maps.Clone(h.rules)
			},
			"": func(t *rapid.T) {
				for i, k := range tasks {
					if k.split.Len() != len(k.wants) || k.rules.Len() != len(rules) {
						t.Fatalf("subtask %d: %d and %d, expected %d and %d", i, k.split.Len(), k.rules.Len(), len(k.wants), len(rules))
					}
					for j, v := range k.split.All() {
						if v != k.wants[j] || k.split.At(j) != v {
							t.Fatalf("subtask %d: %d at %d, expected %d", i, v, j, k.wants[j])
						}
					}
					if got := maps.Collect(k.rules.All()); !maps.Equal(got, rules) {
						t.Fatalf("rules are %v, expected %v", got, rules)
					}
					for key, v := range rules {
						if got, ok := k.rules.Get(key); !ok || got != v {
							t.Fatalf("rule %s is %d", key, got)
						}
					}
				}
			},
		})
	})
}

// A snapshot is written while the task goes on: no data race, and it has what was
// there when it was taken.
func TestSnapshotBesideTask(t *testing.T) {
	b := operatorstate.New()
	list, err := operatorstate.List(b, "l", serializer.Int64)
	require.NoError(t, err)
	rules, err := operatorstate.Broadcast(b, "r", serializer.Int64, serializer.Int64)
	require.NoError(t, err)
	for i := range int64(2000) {
		list.Append(i)
		rules.Put(i, i)
	}
	var wg sync.WaitGroup
	for round := range int64(20) {
		snap := b.Snapshot()
		wants, rulesWant := list.Len(), rules.Len()
		var first int64 = -1
		if list.Len() > 0 {
			first = list.At(0)
		}
		wg.Go(func() {
			defer snap.Release()
			got := reopen(t, []*metadata.OperatorHandle{write(t, snap, &operatorstate.WriteOptions{Compress: round%2 == 0})}, 1, 0)
			l, err := operatorstate.List(got, "l", serializer.Int64)
			require.NoError(t, err)
			require.Equal(t, wants, l.Len())
			if first >= 0 {
				require.Equal(t, first, l.At(0))
			}
			r, err := operatorstate.Broadcast(got, "r", serializer.Int64, serializer.Int64)
			require.NoError(t, err)
			require.Equal(t, rulesWant, r.Len())
		})
		for i := range int64(300) {
			list.Append(i)
			list.Set(int(i*7), round)
			rules.Put(i, round)
			rules.Delete(round*100 + i)
		}
		list.DeleteFunc(func(v int64) bool { return v%97 == 5 })
	}
	wg.Wait()
}

// The synchronous part does not depend on the size.
func TestSnapshotAllocations(t *testing.T) {
	var allocs []float64
	for _, n := range []int{1_000, 1_000_000} {
		b := operatorstate.New()
		list, err := operatorstate.List(b, "l", serializer.Int64)
		require.NoError(t, err)
		list.Append(make([]int64, n)...)
		rules, err := operatorstate.Broadcast(b, "r", serializer.Int64, serializer.Int64)
		require.NoError(t, err)
		for i := range int64(n) {
			rules.Put(i, i)
		}
		allocs = append(allocs, testing.AllocsPerRun(100, func() { b.Snapshot().Release() }))
	}
	require.Equal(t, allocs[0], allocs[1])
	require.Less(t, allocs[0], 20.0)
}

func TestRegistration(t *testing.T) {
	b := operatorstate.New()
	l, err := operatorstate.List(b, "x", serializer.Int64)
	require.NoError(t, err)
	again, err := operatorstate.List(b, "x", serializer.Int64)
	require.NoError(t, err)
	require.Same(t, l, again)
	_, err = operatorstate.Union(b, "x", serializer.Int64)
	require.ErrorIs(t, err, operatorstate.ErrIncompatible)
	require.EqualError(t, err, "state x: registered before as SPLIT_DISTRIBUTE of long: incompatible state")
	_, err = operatorstate.Broadcast(b, "x", serializer.String, serializer.Int64)
	require.ErrorIs(t, err, operatorstate.ErrIncompatible)

	l.Append(1, 2)
	h := []*metadata.OperatorHandle{write(t, b.Snapshot(), nil)}
	r := reopen(t, h, 1, 0)
	require.Equal(t, "x", r.Restored()[0].Name)
	_, err = operatorstate.List(r, "x", serializer.String)
	require.ErrorIs(t, err, operatorstate.ErrIncompatible)
	require.ErrorContains(t, err, "state x: incompatible")
	_, err = operatorstate.Union(r, "x", serializer.Int64)
	require.EqualError(t, err, "state x: restored as SPLIT_DISTRIBUTE of long, registered as UNION of long: incompatible state")
	l, err = operatorstate.List(r, "x", serializer.Int64)
	require.NoError(t, err, "a refusal loses nothing")
	require.Equal(t, 2, l.Len())

	r = reopen(t, h, 1, 0)
	r.Forget("x")
	require.Empty(t, r.Restored())
}

// What a POJO has got or lost is migrated, the keys of broadcast state too, which Flink
// holds as objects.
func TestMigration(t *testing.T) {
	pojo := func(fields ...serializer.Field) serializer.Serializer[serializer.Value] {
		return serializer.Dynamic(serializer.NewPOJO("com.example.Rule", fields...))
	}
	field := func(name string, kind serializer.Kind) serializer.Field {
		return serializer.Field{Name: name, Type: serializer.Basic(kind)}
	}
	before := pojo(field("id", serializer.KindLong), field("old", serializer.KindString))
	after := pojo(field("extra", serializer.KindString), field("id", serializer.KindLong))
	value := func(fields ...serializer.NamedValue) serializer.Value {
		return serializer.Object{Class: "com.example.Rule", Fields: fields}
	}
	b := operatorstate.New()
	l, err := operatorstate.List(b, "l", before)
	require.NoError(t, err)
	l.Append(value(serializer.NamedValue{Name: "id", Value: int64(7)}, serializer.NamedValue{Name: "old", Value: "x"}))
	bc, err := operatorstate.Broadcast(b, "b", serializer.String, before)
	require.NoError(t, err)
	bc.Put("k", l.At(0))
	h := []*metadata.OperatorHandle{write(t, b.Snapshot(), nil)}
	r := reopen(t, h, 1, 0)
	l, err = operatorstate.List(r, "l", after)
	require.NoError(t, err)
	id, _ := l.At(0).(serializer.Object).Get("id")
	require.Equal(t, int64(7), id)
	_, has := l.At(0).(serializer.Object).Get("old")
	require.False(t, has)
	bc, err = operatorstate.Broadcast(r, "b", serializer.String, after)
	require.NoError(t, err)
	v, ok := bc.Get("k")
	require.True(t, ok)
	require.Equal(t, l.At(0), v)

	// Constants of an enum in another order: as is for Flink, not for the bytes.
	type color int32
	b = operatorstate.New()
	colors, err := operatorstate.Union(b, "c", serializer.Enum[color]("com.example.Color", "RED", "GREEN"))
	require.NoError(t, err)
	colors.Append(1)
	r = reopen(t, []*metadata.OperatorHandle{write(t, b.Snapshot(), nil)}, 3, 2)
	colors, err = operatorstate.Union(r, "c", serializer.Enum[color]("com.example.Color", "RED", "BLUE", "GREEN"))
	require.NoError(t, err)
	require.Equal(t, color(2), colors.At(0))
}

// State that nobody registers goes on, and is written without being read.
func TestUnregisteredStateGoesOn(t *testing.T) {
	b := operatorstate.New()
	l, err := operatorstate.List(b, "l", serializer.String)
	require.NoError(t, err)
	l.Append("a", "b", "c")
	bc, err := operatorstate.Broadcast(b, "b", serializer.String, serializer.String)
	require.NoError(t, err)
	bc.Put("k", "v")
	bc.Put("l", "w")
	h := []*metadata.OperatorHandle{write(t, b.Snapshot(), nil)}
	for range 3 {
		r := reopen(t, h, 1, 0)
		_, err := operatorstate.Union(r, "new", serializer.Bool)
		require.NoError(t, err)
		h = []*metadata.OperatorHandle{write(t, r.Snapshot(), &operatorstate.WriteOptions{Compress: true})}
	}
	r := reopen(t, h, 1, 0)
	l, err = operatorstate.List(r, "l", serializer.String)
	require.NoError(t, err)
	require.Equal(t, "c", l.At(2))
	bc, err = operatorstate.Broadcast(r, "b", serializer.String, serializer.String)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"k": "v", "l": "w"}, maps.Collect(bc.All()))
}

func TestUnwritableValue(t *testing.T) {
	b := operatorstate.New()
	l, err := operatorstate.List(b, "l", serializer.Enum[int32]("com.example.Color", "RED"))
	require.NoError(t, err)
	l.Append(5)
	var out memory
	_, err = b.Snapshot().WriteTo(t.Context(), &out, nil)
	require.ErrorContains(t, err, "state l: ")
}

// Every file of a snapshot fails at every byte that is cut off or changed with one
// line that names the file, or is read; it never panics.
func TestDamage(t *testing.T) {
	b := operatorstate.New()
	l, err := operatorstate.List(b, "l", serializer.String)
	require.NoError(t, err)
	l.Append("a", "bb")
	bc, err := operatorstate.Broadcast(b, "b", serializer.String, serializer.Int64)
	require.NoError(t, err)
	bc.Put("k", 1)
	for _, compress := range []bool{false, true} {
		h := write(t, b.Snapshot(), &operatorstate.WriteOptions{Compress: compress})
		data := h.Delegate.(*metadata.ByteStreamHandle).Data
		try := func(data []byte) error {
			bad := *h
			bad.Delegate = &metadata.ByteStreamHandle{Data: data}
			r, err := operatorstate.Open(t.Context(), inline{}, []operatorstate.Part{{Handle: &bad, States: h.States}})
			if err != nil {
				return err
			}
			_, err = operatorstate.List(r, "l", serializer.String)
			_, err2 := operatorstate.Broadcast(r, "b", serializer.String, serializer.Int64)
			return errors.Join(err, err2)
		}
		require.NoError(t, try(data))
		for i := 1; i < len(data); i++ {
			require.Error(t, try(data[:i:i]), "cut at %d", i)
		}
		for i := range data {
			for _, x := range []byte{0x01, 0x80, 0xff} {
				changed := slices.Clone(data)
				changed[i] ^= x
				if err := try(changed); err != nil && !errors.Is(err, operatorstate.ErrIncompatible) {
					require.True(t, errors.Is(err, damage.ErrCorrupt) || errors.Is(err, damage.ErrUnsupportedVersion) || strings.Contains(err.Error(), "file: "), "%d: %v", i, err)
				}
			}
		}
	}
	// Offsets that are lies.
	h := write(t, b.Snapshot(), nil)
	for _, offset := range []int64{-1, 1 << 40, int64(len(h.Delegate.(*metadata.ByteStreamHandle).Data))} {
		bad := *h
		bad.States = []metadata.NamedPartitions{{Name: "l", Offsets: []int64{offset}}}
		_, err := operatorstate.Open(t.Context(), inline{}, []operatorstate.Part{{Handle: &bad, States: bad.States}})
		require.ErrorIs(t, err, damage.ErrCorrupt)
	}
}

// Through a store: small state in the handle, large state in a file.
func TestWriteToStore(t *testing.T) {
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	root, err := blobstore.Parse("mem://operatorstate-" + t.Name())
	require.NoError(t, err)
	layout, err := snapshot.CheckpointLayout(root, snapshot.NewJobID(), 1)
	require.NoError(t, err)
	w, err := snapshot.NewWriter(t.Context(), pool, layout, nil)
	require.NoError(t, err)
	b := operatorstate.New()
	empty, err := b.Snapshot().Write(t.Context(), w, nil)
	require.NoError(t, err)
	require.Nil(t, empty)
	l, err := operatorstate.List(b, "l", serializer.Int64)
	require.NoError(t, err)
	op := metadata.OperatorState{Parallelism: 2, MaxParallelism: 128}
	for i := range 2 {
		h, err := b.Snapshot().Write(t.Context(), w, nil)
		require.NoError(t, err)
		if i == 0 {
			require.IsType(t, &metadata.ByteStreamHandle{}, h.Delegate)
		} else {
			require.IsType(t, &metadata.RelativeFileHandle{}, h.Delegate)
		}
		op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(i), ManagedOperatorFlag: 1, ManagedOperator: h})
		l.Append(make([]int64, 10_000)...)
	}
	require.NoError(t, w.Commit(t.Context(), &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{op}}))
	s, err := snapshot.Open(t.Context(), pool, layout.Dir, nil)
	require.NoError(t, err)
	got := subtasks(t, s, op.ID.String(), 4)
	for _, g := range got {
		l, err := operatorstate.List(g, "l", serializer.Int64)
		require.NoError(t, err)
		require.Equal(t, 2500, l.Len())
	}
	// A cancelled context ends writing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Snapshot().Write(ctx, w, nil)
	require.ErrorIs(t, err, context.Canceled)
}
