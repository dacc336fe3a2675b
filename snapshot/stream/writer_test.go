package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

func typ(t testing.TB, words string) *serializer.Type {
	ty, err := serializer.ParseType(words, nil)
	require.NoError(t, err)
	return ty
}

// writerStates are a value, a list and a map state and timers.
func writerStates(t testing.TB, key, namespace string) []serializer.StateMeta {
	ns := typ(t, namespace)
	return []serializer.StateMeta{
		serializer.NewKeyedState("v", "VALUE", ns, typ(t, "long")),
		serializer.NewKeyedState("l", "LIST", ns, typ(t, "list<string>")),
		serializer.NewKeyedState("m", "MAP", ns, typ(t, "map<string,long>")),
		serializer.NewTimerState("_timer_state/event_t", serializer.NewTimer(typ(t, key), ns)),
	}
}

func TestCanonicalWriterExample(t *testing.T) {
	var out bytes.Buffer
	w, err := NewKeyedWriter(&out, KeyedWriterOptions{
		Key: typ(t, "long"), States: []serializer.StateMeta{serializer.NewKeyedState("v", "VALUE", typ(t, "voidnamespace"), typ(t, "long"))},
		KeyGroups: metadata.KeyGroupRange{Start: 0, Count: 128}, MaxParallelism: 128,
	})
	require.NoError(t, err)
	head := w.Size()
	require.NoError(t, w.KeyGroup(86))
	require.NoError(t, w.State(0, 1))
	require.NoError(t, w.Value(unhex(t, "0000000000000001"), []byte{0}, unhex(t, "0000000000000005")))
	offsets, err := w.Finish()
	require.NoError(t, err)
	want := make([]int64, 128)
	want[86] = head
	require.Equal(t, want, offsets)
	require.Equal(t, unhex(t, canonicalExample), out.Bytes()[head:])
	require.EqualValues(t, out.Len(), w.Size())
}

// The example of CompositeKeySerializationUtils' lengths: key "a" and namespace
// "b", both of variable length.
func TestCanonicalWriterLengths(t *testing.T) {
	var out bytes.Buffer
	w, err := NewKeyedWriter(&out, KeyedWriterOptions{
		Key: typ(t, "string"), States: writerStates(t, "string", "string"),
		KeyGroups: metadata.KeyGroupRange{Start: 0, Count: 300}, MaxParallelism: 300,
	})
	require.NoError(t, err)
	head := w.Size()
	require.NoError(t, w.KeyGroup(257))
	require.NoError(t, w.State(1, 2))
	require.NoError(t, w.List(unhex(t, "0261"), unhex(t, "0262"), 2))
	require.NoError(t, w.Element(unhex(t, "0263")))
	require.NoError(t, w.Element(unhex(t, "022c")))
	require.NoError(t, w.List(unhex(t, "0262"), unhex(t, "0262"), 0)) // the same as none
	require.NoError(t, w.State(2, 1))
	require.NoError(t, w.Map(unhex(t, "0261"), unhex(t, "0262"), 2))
	require.NoError(t, w.Pair(unhex(t, "0264"), unhex(t, "0000000000000007")))
	require.NoError(t, w.NullPair(unhex(t, "0265"), nil))
	require.NoError(t, w.State(3, 1))
	require.NoError(t, w.Timer(5, unhex(t, "0261"), unhex(t, "0262")))
	_, err = w.Finish()
	require.NoError(t, err)
	require.Equal(t, unhex(t, "0001 00000008 8101 0261 02 0262 02 00000005 0263 2c 022c"+
		"0002 0000000a 0101 0261 02 0262 02 0264 00000009 00 0000000000000007"+
		"     0000000a 8101 0261 02 0262 02 0265 00000001 01"+
		"0003 0000000e 8101 8000000000000005 0261 0262 00000000 ffff"), out.Bytes()[head:])
	for n, want := range map[int]string{0: "00", 5: "05", 255: "ff", 256: "0001", 70000: "701101"} {
		require.Equal(t, unhex(t, want), appendLength(nil, n))
	}
}

func TestHeapWriterExample(t *testing.T) {
	var out bytes.Buffer
	w, err := NewKeyedWriter(&out, KeyedWriterOptions{
		Format: HeapFormat, Key: typ(t, "string"), States: writerStates(t, "string", "string"),
		KeyGroups: metadata.KeyGroupRange{Start: 3, Count: 3}, MaxParallelism: 128,
	})
	require.NoError(t, err)
	head := w.Size()
	require.NoError(t, w.KeyGroup(4))
	require.NoError(t, w.State(2, 1))
	require.NoError(t, w.Map(unhex(t, "0261"), unhex(t, "0262"), 2))
	require.NoError(t, w.Pair(unhex(t, "0264"), unhex(t, "0000000000000007")))
	require.NoError(t, w.NullPair(unhex(t, "0265"), []byte{1}))
	require.NoError(t, w.State(1, 2))
	require.NoError(t, w.List(unhex(t, "0261"), unhex(t, "0262"), 1))
	require.NoError(t, w.Element(unhex(t, "0263")))
	require.NoError(t, w.List(unhex(t, "0262"), unhex(t, "0262"), 0))
	require.NoError(t, w.State(3, 1))
	require.NoError(t, w.Timer(-1, unhex(t, "0261"), unhex(t, "0262")))
	offsets, err := w.Finish()
	require.NoError(t, err)
	empty := "0000 00000000 0001 00000000 0002 00000000 0003 00000000"
	require.Equal(t, unhex(t, "00000003"+empty+
		"00000004 0002 00000001 0262 0261 00000002 0264 00 0000000000000007 0265 01"+
		"0001 00000002 0262 0261 00000001 0263 0262 0262 00000000"+
		"0003 00000001 7fffffffffffffff 0261 0262 0000 00000000"+
		"00000005"+empty), out.Bytes()[head:])
	require.Equal(t, []int64{head, head + 28, int64(out.Len()) - 28}, offsets)
}

// Random state is written and read back, in both formats, with frames and without.
func TestWritersRoundTrip(t *testing.T) {
	for _, format := range []KeyedFormat{CanonicalFormat, HeapFormat} {
		for _, compress := range []bool{false, true} {
			for _, maxParallelism := range []int{128, 300} {
				for seed := range uint64(10) {
					t.Run(fmt.Sprintf("%s/%v/%d/%d", format, compress, maxParallelism, seed), func(t *testing.T) {
						roundTrip(t, rand.New(rand.NewPCG(seed, 5)), format, compress, maxParallelism)
					})
				}
			}
		}
	}
}

func roundTrip(t *testing.T, r *rand.Rand, format KeyedFormat, compress bool, maxParallelism int) {
	text := func() []byte {
		n := r.IntN(20)
		if r.IntN(300) == 0 {
			n = 1 << (10 + r.IntN(8))
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + r.IntN(4))
		}
		return serializer.AppendString(nil, string(b))
	}
	long := func() []byte { return binary.BigEndian.AppendUint64(nil, r.Uint64()) }
	groups := metadata.KeyGroupRange{Start: int32(r.IntN(50)), Count: int32(1 + r.IntN(40))}
	options := KeyedWriterOptions{Format: format, Key: typ(t, "string"), States: writerStates(t, "string", "voidnamespace"), KeyGroups: groups, MaxParallelism: maxParallelism, Compress: compress}
	var out bytes.Buffer
	w, err := NewKeyedWriter(&out, options)
	require.NoError(t, err)
	ns := []byte{0}
	want := map[int32][]string{}
	add := func(kg int32, state int, parts ...any) {
		want[kg] = append(want[kg], fmt.Sprint(state, parts))
	}
	for kg := groups.Start; kg <= groups.End(); kg++ {
		if r.IntN(4) == 0 {
			continue
		}
		require.NoError(t, w.KeyGroup(kg))
		for _, state := range r.Perm(4)[:r.IntN(5)] {
			n := r.IntN(30)
			require.NoError(t, w.State(state, n))
			for range n {
				key := text()
				switch state {
				case 0:
					v := long()
					require.NoError(t, w.Value(key, ns, v))
					add(kg, state, key, v)
				case 1:
					m := r.IntN(5)
					require.NoError(t, w.List(key, ns, m))
					joined, counted := []byte{}, binary.BigEndian.AppendUint32(nil, uint32(m))
					for i := range m {
						v := text()
						require.NoError(t, w.Element(v))
						if i > 0 {
							joined = append(joined, ',')
						}
						joined, counted = append(joined, v...), append(counted, v...)
					}
					if format == HeapFormat {
						add(kg, state, key, counted)
					} else if m > 0 {
						add(kg, state, key, joined)
					}
				case 2:
					m := r.IntN(5)
					require.NoError(t, w.Map(key, ns, m))
					counted := binary.BigEndian.AppendUint32(nil, uint32(m))
					for range m {
						k, v, flag := text(), long(), byte(0)
						if r.IntN(3) == 0 {
							v, flag = nil, 1
							require.NoError(t, w.NullPair(k, nil))
						} else {
							require.NoError(t, w.Pair(k, v))
						}
						v = append([]byte{flag}, v...)
						counted = append(append(counted, k...), v...)
						if format == CanonicalFormat {
							add(kg, state, append(append(slices.Clone(key), 0), k...), v)
						}
					}
					if format == HeapFormat {
						add(kg, state, key, counted)
					}
				case 3:
					ts := int64(r.Uint64())
					require.NoError(t, w.Timer(ts, key, ns))
					add(kg, state, append(append(binary.BigEndian.AppendUint64(nil, uint64(ts)^1<<63), key...), 0), []byte(nil))
				}
			}
		}
	}
	offsets, err := w.Finish()
	require.NoError(t, err)
	require.EqualValues(t, out.Len(), w.Size())

	head := javaio.NewReader(out.Bytes())
	meta, err := serializer.ReadKeyedBackendMeta(head)
	require.NoError(t, err)
	require.Equal(t, compress, meta.Compressed)
	require.Len(t, meta.States, 4)
	none := int64(0)
	regions, err := Regions("f", groups.Start, offsets, int64(out.Len()), none)
	require.NoError(t, err)
	got := map[int32][]string{}
	src := sst.Bytes(out.Bytes())
	if format == CanonicalFormat {
		c := NewCanonical(t.Context(), src, "f", compress)
		for _, g := range regions {
			c.Open(g)
			for c.Next() {
				key := c.Key()[1:]
				if maxParallelism > 128 {
					key = key[1:]
				}
				if c.State() < 2 {
					key = key[:len(key)-1] // the namespace
				}
				v := c.Value()
				if c.State() == 3 {
					require.Empty(t, v)
					v = nil
				}
				got[g.KeyGroup] = append(got[g.KeyGroup], fmt.Sprint(c.State(), []any{key, v}))
			}
			require.NoError(t, c.Err())
		}
	} else {
		require.Len(t, regions, int(groups.Count))
		states := make([]HeapState, 4)
		for i := range states {
			m := &meta.States[i]
			d := func(t *serializer.Type) Skipper { return serializer.NewDecoder(t, nil) }
			if states[i] = (HeapState{Name: m.Name, Queue: i == 3, Element: d(m.Value())}); i < 3 {
				states[i].Key, states[i].Namespace, states[i].Value = d(meta.Key), d(m.Namespace()), d(m.Value())
			}
		}
		h := NewHeap(t.Context(), src, "f", compress, states)
		for _, g := range regions {
			h.Open(g)
			for h.Next() {
				got[g.KeyGroup] = append(got[g.KeyGroup], fmt.Sprint(h.State(), []any{h.Key(), h.Value()}))
			}
			require.NoError(t, h.Err())
		}
	}
	require.Equal(t, want, got)
}

func TestOperatorWriter(t *testing.T) {
	for _, compress := range []bool{false, true} {
		t.Run(fmt.Sprint(compress), func(t *testing.T) {
			str := typ(t, "string")
			var out bytes.Buffer
			w, err := NewOperatorWriter(&out, OperatorWriterOptions{
				Lists: []serializer.StateMeta{
					serializer.NewListState("list", false, str), serializer.NewListState("none", false, str), serializer.NewListState("union", true, str),
				},
				Broadcasts: []serializer.StateMeta{serializer.NewBroadcastState("b", str, str), serializer.NewBroadcastState("empty", str, str)},
				Compress:   compress,
			})
			require.NoError(t, err)
			values := [][]byte{}
			for i := range 3 {
				values = append(values, serializer.AppendString(nil, string(bytes.Repeat([]byte{byte('a' + i)}, i*100_000))))
			}
			require.NoError(t, w.State(0, 3))
			for _, v := range values {
				require.NoError(t, w.Element(v))
			}
			require.NoError(t, w.State(2, 1))
			require.NoError(t, w.Element(values[0]))
			require.NoError(t, w.State(3, 2))
			require.NoError(t, w.Pair(values[0], values[1]))
			require.NoError(t, w.Pair(values[1], values[0]))
			parts, err := w.Finish()
			require.NoError(t, err)
			require.EqualValues(t, out.Len(), w.Size())
			meta, err := serializer.ReadOperatorBackendMeta(javaio.NewReader(out.Bytes()))
			require.NoError(t, err)
			require.Equal(t, compress, meta.Compressed)
			counts, all := []int{}, []int64{}
			for _, p := range parts {
				counts = append(counts, len(p.Offsets))
				all = append(all, p.Offsets...)
			}
			require.Equal(t, []int{3, 0, 1, 1, 1}, counts)
			op := NewOperator(t.Context(), sst.Bytes(out.Bytes()), "f", compress, all)
			skip := serializer.NewDecoder(str, nil)
			read := func(o int64) []byte {
				require.NoError(t, op.Open(o))
				b, err := op.Value("x", skip)
				require.NoError(t, err)
				b = bytes.Clone(b)
				require.NoError(t, op.End())
				return b
			}
			for i, o := range parts[0].Offsets {
				require.Equal(t, values[i], read(o))
			}
			require.Equal(t, values[0], read(parts[2].Offsets[0]))
			require.NoError(t, op.Open(parts[3].Offsets[0]))
			n, err := op.Count()
			require.NoError(t, err)
			require.Equal(t, 2, n)
			for i := range 2 {
				k, v, err := op.Pair(skip, skip)
				require.NoError(t, err)
				require.Equal(t, values[i], k)
				require.Equal(t, values[1-i], v)
			}
			require.NoError(t, op.End())
			require.NoError(t, op.Open(parts[4].Offsets[0]))
			n, err = op.Count()
			require.NoError(t, err)
			require.Zero(t, n)
			require.NoError(t, op.End())
		})
	}
}

// Every misuse is an error that stays, whatever follows.
func TestWriterMisuse(t *testing.T) {
	key, ns := unhex(t, "0261"), []byte{0}
	for name, tc := range map[string]struct {
		do   func(w *KeyedWriter)
		want string
		only []KeyedFormat
	}{
		"no key group":          {func(w *KeyedWriter) { w.State(0, 0) }, "no key group is open", nil},
		"no state":              {func(w *KeyedWriter) { w.KeyGroup(4); w.Value(key, ns, nil) }, "no state is open", nil},
		"state of key group":    {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 0); w.KeyGroup(5); w.Value(key, ns, nil) }, "no state is open", nil},
		"unknown state":         {func(w *KeyedWriter) { w.KeyGroup(4); w.State(4, 0) }, "there is no state 4", nil},
		"state twice":           {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 0); w.State(1, 0); w.State(0, 0) }, "state v comes twice in key group 4", nil},
		"key group below":       {func(w *KeyedWriter) { w.KeyGroup(2) }, "key group 2 does not follow 2 in 3 to 5", nil},
		"key group above":       {func(w *KeyedWriter) { w.KeyGroup(6) }, "key group 6 does not follow 2 in 3 to 5", nil},
		"key groups descend":    {func(w *KeyedWriter) { w.KeyGroup(4); w.KeyGroup(3) }, "key group 3 does not follow 4 in 3 to 5", nil},
		"value for timers":      {func(w *KeyedWriter) { w.KeyGroup(4); w.State(3, 1); w.Value(key, ns, nil) }, "state _timer_state/event_t holds timers", nil},
		"timer for values":      {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 1); w.Timer(1, key, ns) }, "state v holds values", nil},
		"list for values":       {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 1); w.List(key, ns, 1) }, "state v is no LIST", nil},
		"too few elements":      {func(w *KeyedWriter) { w.KeyGroup(4); w.State(1, 1); w.List(key, ns, 2); w.Element(key) }, "state l: 1 parts are missing", nil},
		"too many elements":     {func(w *KeyedWriter) { w.KeyGroup(4); w.State(1, 1); w.List(key, ns, 0); w.Element(key) }, "state l: more parts than were announced", nil},
		"element without list":  {func(w *KeyedWriter) { w.KeyGroup(4); w.State(1, 1); w.Element(key) }, "no LIST is open", nil},
		"pair in list":          {func(w *KeyedWriter) { w.KeyGroup(4); w.State(1, 1); w.List(key, ns, 1); w.Pair(key, key) }, "no MAP is open", nil},
		"fewer entries":         {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 1) }, "state v in key group 4 lacks 1 entries", []KeyedFormat{HeapFormat}},
		"more entries":          {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 0); w.Value(key, ns, nil) }, "state v in key group 4 has more entries", []KeyedFormat{HeapFormat}},
		"composite in heap":     {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 1); w.Composite(key, nil) }, "no composite keys", []KeyedFormat{HeapFormat}},
		"composite elsewhere":   {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 1); w.Composite([]byte{5, 1}, nil) }, "key group 5 is written into key group 4", []KeyedFormat{CanonicalFormat}},
		"composite of nothing":  {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, 1); w.Composite(nil, nil) }, "key group -1 is written into key group 4", []KeyedFormat{CanonicalFormat}},
		"map in one piece":      {func(w *KeyedWriter) { w.KeyGroup(4); w.State(2, 1); w.Value(key, ns, nil) }, "a map is written by Map and Pair", []KeyedFormat{CanonicalFormat}},
		"negative entries":      {func(w *KeyedWriter) { w.KeyGroup(4); w.State(0, -1) }, "cannot have -1 entries", []KeyedFormat{HeapFormat}},
		"negative list":         {func(w *KeyedWriter) { w.KeyGroup(4); w.State(1, 1); w.List(key, ns, -1) }, "-1 parts", nil},
		"after the end":         {func(w *KeyedWriter) { w.Finish(); w.KeyGroup(4) }, "is finished", nil},
		"writing stays damaged": {func(w *KeyedWriter) { w.KeyGroup(9); w.KeyGroup(4); w.State(0, 1); w.Value(key, ns, nil) }, "key group 9", nil},
	} {
		formats := tc.only
		if formats == nil {
			formats = []KeyedFormat{CanonicalFormat, HeapFormat}
		}
		for _, format := range formats {
			t.Run(name+"/"+format.String(), func(t *testing.T) {
				w, err := NewKeyedWriter(io.Discard, KeyedWriterOptions{Format: format, Key: typ(t, "string"), States: writerStates(t, "string", "voidnamespace"), KeyGroups: metadata.KeyGroupRange{Start: 3, Count: 3}, MaxParallelism: 128})
				require.NoError(t, err)
				tc.do(w)
				_, err = w.Finish()
				require.ErrorContains(t, err, tc.want)
			})
		}
	}
}

func TestKeyedWriterOptions(t *testing.T) {
	key, states := typ(t, "string"), writerStates(t, "string", "voidnamespace")
	for want, o := range map[string]KeyedWriterOptions{
		"a key type is needed":                                    {States: states, KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 1},
		"max parallelism 0 is not from 1 to 32768":                {Key: key, KeyGroups: metadata.KeyGroupRange{Count: 1}},
		"max parallelism 32769 is not":                            {Key: key, KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 32769},
		"key groups 120 to 129 are not in a max parallelism":      {Key: key, KeyGroups: metadata.KeyGroupRange{Start: 120, Count: 10}, MaxParallelism: 128},
		"key groups 0 to -1 are not":                              {Key: key, MaxParallelism: 128},
		"two states are called v":                                 {Key: key, States: []serializer.StateMeta{states[0], states[0]}, KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128},
		"state x: a BROADCAST cannot be written as keyed state":   {Key: key, States: []serializer.StateMeta{serializer.NewBroadcastState("x", key, key)}, KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128},
		"state x: a KEY_VALUE cannot be written as keyed state":   {Key: key, States: []serializer.StateMeta{{Name: "x"}}, KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128},
		"state x: a OPERATOR cannot be written as keyed state":    {Key: key, States: []serializer.StateMeta{serializer.NewListState("x", true, key)}, KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128},
		"state x: a PRIORITY_QUEUE cannot be written as keyed st": {Key: key, States: []serializer.StateMeta{{Name: "x", Kind: serializer.PriorityQueue}}, KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128},
	} {
		_, err := NewKeyedWriter(io.Discard, o)
		require.ErrorContains(t, err, want)
	}
}

// failing takes n bytes.
type failing struct{ n int }

var errFull = errors.New("disk full")

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.n {
		n := f.n
		f.n = 0
		return n, errFull
	}
	f.n -= len(p)
	return len(p), nil
}

func TestWritersPassOnErrors(t *testing.T) {
	for _, compress := range []bool{false, true} {
		for n := 0; n < 400_000; n += 39_999 {
			w, err := NewKeyedWriter(&failing{n}, KeyedWriterOptions{Key: typ(t, "string"), States: writerStates(t, "string", "voidnamespace"), KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128, Compress: compress})
			if err == nil {
				value := make([]byte, 100_000)
				rand.NewChaCha8([32]byte{}).Read(value)
				w.KeyGroup(0)
				w.State(0, 4)
				for range 4 {
					w.Value([]byte("\x02a"), []byte{0}, value)
				}
				_, err = w.Finish()
			}
			require.ErrorIs(t, err, errFull)
		}
	}
}

// An entry costs no allocation, in either format.
func TestWriterAllocations(t *testing.T) {
	for _, format := range []KeyedFormat{CanonicalFormat, HeapFormat} {
		for _, compress := range []bool{false, true} {
			w, err := NewKeyedWriter(io.Discard, KeyedWriterOptions{Format: format, Key: typ(t, "string"), States: writerStates(t, "string", "voidnamespace"), KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128, Compress: compress})
			require.NoError(t, err)
			key, ns, value := []byte("\x04abc"), []byte{0}, make([]byte, 100)
			require.NoError(t, w.KeyGroup(0))
			require.NoError(t, w.State(2, 1<<30))
			entry := func() {
				_ = w.Map(key, ns, 2)
				_ = w.Pair(key, value)
				_ = w.NullPair(key, nil)
			}
			for range 2000 {
				entry() // the buffer grows to its size
			}
			require.Zero(t, testing.AllocsPerRun(5000, entry))
			require.NoError(t, w.out.err)
		}
	}
}

func BenchmarkKeyedWriter(b *testing.B) {
	for _, format := range []KeyedFormat{CanonicalFormat, HeapFormat} {
		for _, compress := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/snappy=%v", format, compress), func(b *testing.B) {
				w, err := NewKeyedWriter(io.Discard, KeyedWriterOptions{Format: format, Key: typ(b, "long"), States: writerStates(b, "long", "voidnamespace"), KeyGroups: metadata.KeyGroupRange{Count: 1}, MaxParallelism: 128, Compress: compress})
				require.NoError(b, err)
				key, ns, value := make([]byte, 8), []byte{0}, bytes.Repeat([]byte("0123456789"), 10)
				require.NoError(b, w.KeyGroup(0))
				require.NoError(b, w.State(0, 1<<31-1))
				b.ReportAllocs()
				b.SetBytes(int64(len(key) + len(value)))
				for b.Loop() {
					binary.BigEndian.PutUint64(key, binary.BigEndian.Uint64(key)+1)
					_ = w.Value(key, ns, value)
				}
				require.NoError(b, w.out.err)
			})
		}
	}
}
