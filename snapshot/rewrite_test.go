package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// TestGoldensRewritten reads each canonical, heap and operator state file that a
// real Flink wrote, and writes it again: to the same bytes; to the same entries
// where they are compressed, since there the compressor is free.
func TestGoldensRewritten(t *testing.T) { rewriteGoldens(t, testdata.Goldens(t), 2) }

// TestAllGoldensRewritten is the same for the whole set, where it is present.
func TestAllGoldensRewritten(t *testing.T) {
	cases, least := testdata.ManyGoldens(t, 50)
	rewriteGoldens(t, cases, least)
}

func rewriteGoldens(t *testing.T, cases []*testdata.Case, least int) {
	same := map[string]int{}
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			s, err := Open(t.Context(), testPool(t), loc, nil)
			require.NoError(t, err)
			for i := range s.Checkpoint.Operators {
				op := &s.Checkpoint.Operators[i]
				for k := range op.Subtasks {
					sub := &op.Subtasks[k]
					where := fmt.Sprintf("%s/%s operator %d subtask %d", c.Name, sn.Path, i, k)
					if h, ok := sub.ManagedKeyed.(*metadata.KeyGroupsHandle); ok {
						rewriteKeyed(t, where, s, op, h, same)
					}
					if h := sub.ManagedOperator; h != nil && !h.Empty {
						rewriteOperator(t, where, s, h, same)
					}
				}
			}
		}
	}
	t.Log(same)
	for _, what := range []string{"canonical, same bytes", "heap, same bytes", "operator, same bytes"} {
		require.GreaterOrEqual(t, same[what], least, what)
	}
}

// whole reads all of a handle's stream; nil if it refers to none.
func whole(t *testing.T, s *Snapshot, h metadata.StreamHandle) []byte {
	src, _, err := s.OpenStream(t.Context(), h, false)
	require.NoError(t, err)
	if src == nil || src.Size() == 0 {
		return nil
	}
	b := make([]byte, src.Size())
	_, err = src.ReadAt(t.Context(), b, 0)
	require.NoError(t, err)
	return b
}

func rewriteKeyed(t *testing.T, where string, s *Snapshot, op *metadata.OperatorState, h *metadata.KeyGroupsHandle, same map[string]int) {
	file := whole(t, s, h.Delegate)
	if file == nil {
		return
	}
	meta, err := serializer.ReadKeyedBackendMeta(javaio.NewReader(file))
	require.NoError(t, err, where)
	options := rewriteOptions{stream.KeyedWriterOptions{Key: meta.Key, States: meta.States, KeyGroups: h.Range, MaxParallelism: int(op.MaxParallelism), Compress: meta.Compressed},
		&serializer.DecodeOptions{Classes: goldenClasses(t), Kryo: serializer.KryoOf(s.Checkpoint.Version)}}
	if h.Form != metadata.TagSavepointKeyGroups {
		options.Format = stream.HeapFormat
	}
	for i := range meta.States {
		if _, opaque := meta.States[i].Opaque(); opaque || meta.States[i].Kind == serializer.KeyValueV2 {
			return
		}
	}
	for name, rewrite := range map[string]func(*testing.T, io.Writer, rewriteOptions, *serializer.KeyedBackendMeta, []byte, []stream.Region) []int64{
		"whole": rewriteWhole, "parts": rewriteParts,
	} {
		if name == "whole" && options.Format == stream.HeapFormat {
			continue
		}
		regions, err := stream.Regions(where, h.Range.Start, h.Offsets, int64(len(file)), 0)
		require.NoError(t, err)
		var out bytes.Buffer
		offsets := rewrite(t, &out, options, meta, file, regions)
		kind := options.Format.String()
		if !meta.Compressed {
			require.Equal(t, h.Offsets, offsets, "%s, %s", where, name)
			require.Equal(t, file, out.Bytes(), "%s, %s", where, name)
			same[kind+", same bytes"]++
			continue
		}
		same[kind+", same entries"]++
		again, err := stream.Regions(where, h.Range.Start, offsets, int64(out.Len()), 0)
		require.NoError(t, err)
		require.Equal(t, entriesOf(t, options, meta, file, regions), entriesOf(t, options, meta, out.Bytes(), again), "%s, %s", where, name)
	}
}

// rewriteWhole copies the pairs of a canonical file as they are.
func rewriteWhole(t *testing.T, out io.Writer, o rewriteOptions, meta *serializer.KeyedBackendMeta, file []byte, regions []stream.Region) []int64 {
	w, err := stream.NewKeyedWriter(out, o.KeyedWriterOptions)
	require.NoError(t, err)
	c := stream.NewCanonical(t.Context(), sst.Bytes(file), "f", meta.Compressed)
	for _, g := range regions {
		require.NoError(t, w.KeyGroup(g.KeyGroup))
		c.Open(g)
		for last := -1; c.Next(); last = c.State() {
			if c.State() != last {
				require.NoError(t, w.State(c.State(), -1))
			}
			require.NoError(t, w.Composite(c.Key(), c.Value()))
		}
		require.NoError(t, c.Err())
	}
	offsets, err := w.Finish()
	require.NoError(t, err)
	return offsets
}

// rewriteParts takes every key, list and map apart and puts it together again.
func rewriteParts(t *testing.T, out io.Writer, o rewriteOptions, meta *serializer.KeyedBackendMeta, file []byte, regions []stream.Region) []int64 {
	w, err := stream.NewKeyedWriter(out, o.KeyedWriterOptions)
	require.NoError(t, err)
	states := make([][]goldenEntry, len(meta.States))
	for _, g := range regions {
		require.NoError(t, w.KeyGroup(g.KeyGroup))
		order := readGroup(t, o, meta, file, g, states)
		for _, i := range order {
			m := &meta.States[i]
			require.NoError(t, w.State(i, len(states[i])))
			for _, e := range states[i] {
				switch {
				case m.Kind == serializer.PriorityQueue:
					require.NoError(t, w.Timer(e.timestamp, e.key, e.namespace))
				case m.StateType() == "LIST":
					require.NoError(t, w.List(e.key, e.namespace, len(e.values)))
					for _, v := range e.values {
						require.NoError(t, w.Element(v))
					}
				case m.StateType() == "MAP":
					require.NoError(t, w.Map(e.key, e.namespace, len(e.values)))
					for i, v := range e.values {
						if e.nulls[i] {
							require.NoError(t, w.NullPair(e.userKeys[i], v))
						} else {
							require.NoError(t, w.Pair(e.userKeys[i], v))
						}
					}
				default:
					require.NoError(t, w.Value(e.key, e.namespace, e.values[0]))
				}
			}
			states[i] = states[i][:0]
		}
	}
	offsets, err := w.Finish()
	require.NoError(t, err)
	return offsets
}

// goldenClasses are classes of the generator's job that no snapshot describes.
func goldenClasses(t testing.TB) serializer.Classes {
	classes := serializer.Classes{}
	for _, words := range []string{
		"enum:tidemark.goldens.model.Color<RED,GREEN,BLUE>",
		"pojo:tidemark.goldens.model.Animal$Cat<legs int, lives int, name string, weight double>",
		"pojo:tidemark.goldens.model.Blob<bytes bytes, maybe long?, number int, parts list<string>, title string>",
		"pojo:tidemark.goldens.model.Blob$Registered<bytes bytes, color enum:Color, extra double, maybe long?, number int, parts list<string>, title string>",
	} {
		typ, err := serializer.ParseType(words, classes)
		require.NoError(t, err)
		classes[typ.JavaClass] = typ
	}
	return classes
}

type rewriteOptions struct {
	stream.KeyedWriterOptions
	decode *serializer.DecodeOptions
}

// goldenEntry is an entry in parts.
type goldenEntry struct {
	key, namespace []byte
	values         [][]byte
	userKeys       [][]byte
	nulls          []bool
	timestamp      int64
}

// readGroup reads a key group into states, and tells the order of those in it.
func readGroup(t *testing.T, o rewriteOptions, meta *serializer.KeyedBackendMeta, file []byte, g stream.Region, states [][]goldenEntry) (order []int) {
	decoder := func(t *serializer.Type) *serializer.Decoder { return serializer.NewDecoder(t, o.decode) }
	add := func(state int, e goldenEntry) {
		if !slices.Contains(order, state) {
			order = append(order, state)
		}
		e.key, e.namespace = bytes.Clone(e.key), bytes.Clone(e.namespace)
		for i := range e.values {
			e.values[i] = bytes.Clone(e.values[i])
		}
		for i := range e.userKeys {
			e.userKeys[i] = bytes.Clone(e.userKeys[i])
		}
		states[state] = append(states[state], e)
	}
	timer := func(state int, b []byte) {
		ts := int64(uint64(be32(b))<<32|uint64(be32(b[4:]))) ^ -1<<63
		n, err := decoder(meta.Key).Skip(b[8:])
		require.NoError(t, err)
		add(state, goldenEntry{timestamp: ts, key: b[8 : 8+n], namespace: b[8+n:]})
	}
	if o.Format == stream.HeapFormat {
		hs := make([]stream.HeapState, len(meta.States))
		for i := range hs {
			m := &meta.States[i]
			hs[i] = stream.HeapState{Name: m.Name, Queue: m.Kind == serializer.PriorityQueue, Element: decoder(m.Value()), Value: decoder(m.Value()), Key: decoder(meta.Key)}
			if !hs[i].Queue {
				hs[i].Namespace = decoder(m.Namespace())
			}
		}
		h := stream.NewHeap(t.Context(), sst.Bytes(file), "f", meta.Compressed, hs)
		h.Open(g)
		// Blocks without entries, 6 bytes each, keep their place.
		at, last := g.From+4, -1
		empties := func(to int64) {
			for ; !meta.Compressed && at < to; at += 6 {
				order = append(order, int(be32(file[at:])>>16))
			}
		}
		for h.Next() {
			m := &meta.States[h.State()]
			if h.State() != last {
				empties(h.Offset() - 6)
				last = h.State()
			}
			at = h.Offset() + int64(len(h.Namespace())+len(h.Key())+len(h.Value()))
			e := goldenEntry{key: h.Key(), namespace: h.Namespace(), values: [][]byte{h.Value()}}
			switch {
			case m.Kind == serializer.PriorityQueue:
				timer(h.State(), h.Key())
				continue
			case m.StateType() == "LIST":
				e.values = nil
				for b := h.Value()[4:]; len(b) > 0; {
					n, err := decoder(m.Element()).Skip(b)
					require.NoError(t, err)
					e.values = append(e.values, b[:n])
					b = b[n:]
				}
			case m.StateType() == "MAP":
				e.values = nil
				k, v := m.MapTypes()
				for b := h.Value()[4:]; len(b) > 0; {
					n, err := decoder(k).Skip(b)
					require.NoError(t, err)
					null, size := b[n] != 0, 0
					if !null {
						size, err = decoder(v).Skip(b[n+1:])
						require.NoError(t, err)
					}
					e.userKeys, e.nulls, e.values = append(e.userKeys, b[:n]), append(e.nulls, null), append(e.values, b[n+1:n+1+size])
					b = b[n+1+size:]
				}
			}
			add(h.State(), e)
		}
		require.NoError(t, h.Err())
		empties(g.To)
		return order
	}
	c := stream.NewCanonical(t.Context(), sst.Bytes(file), "f", meta.Compressed)
	c.Open(g)
	for c.Next() {
		m, key, value := &meta.States[c.State()], c.Key(), c.Value()
		prefix := 1
		if o.MaxParallelism > 128 {
			prefix = 2
		}
		if m.Kind == serializer.PriorityQueue {
			timer(c.State(), key[prefix:])
			continue
		}
		comp := newCompositeKey(prefix, meta.Key, m.Namespace(), m.StateType() == "MAP", o.decode)
		_, k, ns, userKey, ok := comp.split(key)
		require.True(t, ok)
		e := goldenEntry{key: k, namespace: ns, values: [][]byte{value}}
		switch m.StateType() {
		case "LIST":
			e.values = nil
			for b := value; len(b) > 0; {
				n, err := decoder(m.Element()).Skip(b)
				require.NoError(t, err)
				e.values = append(e.values, b[:n])
				if b = b[n:]; len(b) > 0 {
					b = b[1:]
				}
			}
		case "MAP":
			// The entries of one map stand together.
			if list := states[c.State()]; len(list) > 0 {
				if last := &list[len(list)-1]; bytes.Equal(last.key, k) && bytes.Equal(last.namespace, ns) {
					last.values, last.userKeys, last.nulls = append(last.values, bytes.Clone(value[1:])), append(last.userKeys, bytes.Clone(userKey)), append(last.nulls, value[0] != 0)
					continue
				}
			}
			e.userKeys, e.nulls, e.values = [][]byte{userKey}, []bool{value[0] != 0}, [][]byte{value[1:]}
		}
		add(c.State(), e)
	}
	require.NoError(t, c.Err())
	return order
}

// entriesOf are all entries of a file, sorted.
func entriesOf(t *testing.T, o rewriteOptions, meta *serializer.KeyedBackendMeta, file []byte, regions []stream.Region) (all []string) {
	for _, g := range regions {
		states := make([][]goldenEntry, len(meta.States))
		readGroup(t, o, meta, file, g, states)
		for i := range states {
			for _, e := range states[i] {
				all = append(all, fmt.Sprint(g.KeyGroup, i, e))
			}
		}
	}
	sort.Strings(all)
	return all
}

func rewriteOperator(t *testing.T, where string, s *Snapshot, h *metadata.OperatorHandle, same map[string]int) {
	file := whole(t, s, h.Delegate)
	if file == nil {
		return
	}
	meta, err := serializer.ReadOperatorBackendMeta(javaio.NewReader(file))
	require.NoError(t, err, where)
	if len(meta.Unknown) > 0 {
		return
	}
	decode := &serializer.DecodeOptions{Classes: goldenClasses(t), Kryo: serializer.KryoOf(s.Checkpoint.Version)}
	var out bytes.Buffer
	w, err := stream.NewOperatorWriter(&out, stream.OperatorWriterOptions{Lists: meta.Lists, Broadcasts: meta.Broadcasts, Compress: meta.Compressed, Version: meta.Version})
	require.NoError(t, err)
	r := stream.NewOperator(t.Context(), sst.Bytes(file), where, meta.Compressed, allOffsets(h))
	find := func(name string) []int64 {
		for i := range h.States {
			if h.States[i].Name.Go() == name {
				return h.States[i].Offsets
			}
		}
		return nil
	}
	for i := range meta.Lists {
		offsets := find(meta.Lists[i].Name)
		require.NoError(t, w.State(i, len(offsets)))
		for _, o := range offsets {
			b, err := readElement(r, o, "element", serializer.NewDecoder(meta.Lists[i].Value(), decode))
			require.NoError(t, err, where)
			require.NoError(t, w.Element(b))
		}
	}
	for i := range meta.Broadcasts {
		m := &meta.Broadcasts[i]
		require.NoError(t, r.Open(find(m.Name)[0]))
		n, err := r.Count()
		require.NoError(t, err)
		require.NoError(t, w.State(len(meta.Lists)+i, n))
		for range n {
			k, v, err := r.Pair(serializer.NewDecoder(m.Key(), decode), serializer.NewDecoder(m.Value(), decode))
			require.NoError(t, err)
			require.NoError(t, w.Pair(k, v))
		}
	}
	parts, err := w.Finish()
	require.NoError(t, err)
	byName := func(a, b metadata.NamedPartitions) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) }
	want := slices.SortedFunc(slices.Values(h.States), byName)
	got := slices.SortedFunc(slices.Values(parts), byName)
	if meta.Compressed {
		same["operator, compressed"]++
		require.Len(t, got, len(want))
		if len(allOffsets(h)) == 0 {
			same["operator, compressed, empty"]++
			require.Equal(t, file, out.Bytes(), where)
		}
		return
	}
	require.Equal(t, file, out.Bytes(), where)
	for i := range want { // an empty list of offsets may be nil
		require.Equal(t, want[i].Name, got[i].Name)
		require.Equal(t, want[i].Mode, got[i].Mode)
		require.ElementsMatch(t, want[i].Offsets, got[i].Offsets)
	}
	same["operator, same bytes"]++
}
