package keyed

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
)

// plainRows are rows in a map.
type plainRows map[string]string

func (r plainRows) Get(dst, key []byte) ([]byte, bool, error) {
	v, ok := r[string(key)]
	return append(dst, v...), ok, nil
}

func (r plainRows) Scan(from, to []byte, f func(key, value []byte) bool) error {
	for _, k := range slices.Sorted(maps.Keys(r)) {
		if k >= string(from) && k < string(to) && !f([]byte(k), []byte(r[k])) {
			break
		}
	}
	return nil
}

// write is what a backend does with the changes of a generation.
func (r plainRows) write(c engine.Changes, w *table.View, groups int) {
	for g := range groups {
		c.Group(w, g, func(op engine.Op, key, value []byte) {
			switch k := string(key); op {
			case engine.OpSet:
				r[k] = string(value)
			case engine.OpDelete:
				delete(r, k)
			case engine.OpAppend:
				if old, ok := r[k]; ok {
					value = []byte(old + "," + string(value))
				}
				r[k] = string(value)
			case engine.OpDeleteRange:
				maps.DeleteFunc(r, func(x, _ string) bool { return x >= k && x < string(value) })
			}
		})
	}
}

// TestBytesInUse does random things to states over rows. When all is stored and dropped
// nothing is in use any more: what entries are taken to need is what they are freed with.
func TestBytesInUse(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	keys, err := NewKeys(Config[string]{Key: serializer.String, MaxParallelism: 4})
	require.NoError(t, err)
	rows := plainRows{}
	views := table.NewViews()
	env := &engine.BytesEnv{
		Env:  &engine.Env{Views: views, Count: 4, MaxParallelism: 4, Millis: func() int64 { return 0 }},
		Rows: rows, Gen: 1, Allow: 1 << 40, Full: 1 << 40,
	}
	d := &Descriptor[string]{Keys: keys}
	value := newBytesValue(d, serializer.VoidNS, serializer.List(serializer.String), env, 0, options{})
	text := newBytesValue(d, serializer.String, serializer.String, env, 1, options{})
	list := newBytesList(d, serializer.VoidNS, serializer.List(serializer.String), env, 2, options{})
	texts := newBytesList(d, serializer.VoidNS, serializer.String, env, 3, options{})
	m := newBytesMap(d, serializer.VoidNS, serializer.String, serializer.List(serializer.String), env, 4, options{})
	timers := newBytesTimers(d, serializer.String, env, 5)
	states := []engine.BytesState{value, text, list, texts, m, timers}
	var pending []func() // generations that are frozen and not written
	freeze := func() {
		w := views.Open(false)
		var changes []engine.Changes
		for _, s := range states {
			changes = append(changes, s.Freeze())
		}
		env.Gen++
		gen := env.Gen
		env.Dirty = 0
		pending = append(pending, func() {
			for i, c := range changes {
				rows.write(c, w, 4)
				states[i].Release(w)
			}
			w.Close()
			env.Done = gen - 1
		})
	}
	settle := func() {
		for _, f := range pending {
			f()
		}
		pending = nil
	}
	env.Wait = func() error { settle(); return nil }
	env.Relieve = env.Wait

	const rounds = 6
	for range rounds {
		for range 2000 {
			k := keys.Make(fmt.Sprint("key ", r.IntN(200)))
			s := strings.Repeat("x", 1<<r.IntN(10))
			switch r.IntN(15) {
			case 0:
				require.NoError(t, value.set(k, struct{}{}, []string{s, s}))
			case 1:
				_, _, err = value.get(k, struct{}{})
			case 2:
				err = value.clear(k, struct{}{})
			case 3:
				err = text.set(k, s, s)
			case 4, 5:
				err = list.add(k, struct{}{}, []string{s})
			case 6:
				err = list.addAll(k, struct{}{}, [][]string{{s}, {s, s}, {}})
			case 7:
				_, err = list.get(k, struct{}{})
			case 8:
				err = list.update(k, struct{}{}, [][]string{{s}})
			case 9:
				err = texts.addAll(k, struct{}{}, []string{s, s})
			case 10, 11:
				err = m.put(k, struct{}{}, fmt.Sprint(r.IntN(100)), []string{s})
			case 12:
				err = m.remove(k, struct{}{}, fmt.Sprint(r.IntN(100)))
			case 13:
				if _, _, err = m.get(k, struct{}{}, fmt.Sprint(r.IntN(100))); r.IntN(10) == 0 {
					err = m.clear(k, struct{}{})
				}
			case 14:
				if _, err = timers.register(k, s, r.Int64N(50)); r.IntN(2) == 0 {
					_, err = timers.delete(k, s, r.Int64N(50))
				}
			}
			require.NoError(t, err)
			switch r.IntN(300) {
			case 0:
				freeze()
			case 1:
				settle()
			case 2:
				for _, s := range states {
					s.Evict(1 << r.IntN(20))
				}
			}
		}
		freeze()
		settle()
		for _, s := range states[:len(states)-1] {
			s.Evict(1 << 40)
			s.Evict(1 << 40)
			require.Zero(t, s.Stats().Entries)
		}
		for ok := true; ok && err == nil; {
			_, ok, err = timers.pop(1 << 40)
		}
		require.NoError(t, err)
		freeze()
		settle()
		timers.Evict(1 << 40)
		require.Zero(t, timers.Stats().Entries)
		require.Zero(t, env.Used)
	}
}
