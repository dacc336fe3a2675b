package stream

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// KeyedFormat is a format of keyed state in one file.
type KeyedFormat uint8

// Formats of keyed state.
const (
	// CanonicalFormat is that of canonical savepoints, which every state backend
	// reads. Its handle is a metadata.TagSavepointKeyGroups.
	CanonicalFormat KeyedFormat = iota
	// HeapFormat is the heap backend's own, of its checkpoints and native
	// savepoints. Its handle is a metadata.TagKeyGroupsWithID.
	HeapFormat
)

// String is "canonical" or "heap".
func (f KeyedFormat) String() string {
	if f == HeapFormat {
		return "heap"
	}
	return "canonical"
}

// KeyedWriterOptions say what a keyed state file holds. All but Compress and a
// range that begins at 0 are required.
type KeyedWriterOptions struct {
	Format KeyedFormat
	Key    *serializer.Type
	// States are the meta infos, made by serializer.NewKeyedState and
	// NewTimerState; the position is the state's index.
	States         []serializer.StateMeta
	KeyGroups      metadata.KeyGroupRange
	MaxParallelism int
	Compress       bool // key groups in snappy frames
	// At, if positive, is the position in the file at which the writer begins: it
	// writes no meta block, but the key groups alone. So several writers can make one
	// file, each a part of its key groups.
	At int64
}

// KeyedWriter writes the keyed state of one subtask as a state file of Flink: the
// counterpart of Canonical and Heap, whose comments draw the bytes. For each key
// group with state, in ascending order:
//
//	w.KeyGroup(12)
//	w.State(0, 2)                 // a value state of two entries
//	w.Value(key, namespace, value)
//	w.Value(key, namespace, value)
//	w.State(1, 1)                 // a map state
//	w.Map(key, namespace, 2)      // one map of two entries
//	w.Pair(userKey, value)
//	w.NullPair(userKey, nil)
//	w.State(2, 1)                 // timers
//	w.Timer(timestamp, key, namespace)
//
// and at the end Finish. Parts are serialized values without any framing; the
// writer copies them and keeps no slice. It holds about 64 KiB and, in the
// canonical format, its largest entry. No call allocates once its buffer has grown
// to that.
//
// Errors stay: after one, every call returns it, so only Finish need be checked.
// Besides those of the underlying writer they are misuse, such as key groups out
// of order; nothing that was written is then of use. Not for concurrent use.
type KeyedWriter struct {
	out     output
	format  KeyedFormat
	states  []writerState
	groups  metadata.KeyGroupRange
	prefix  int // bytes of the key group in a composite key
	offsets []int64

	kg       int32 // the open key group; before the range's start if there is none
	open     bool  // a key group is open
	seen     []bool
	state    int // the open state; -1 if there is none
	left     int // entries that heap state still has to get
	finished bool
	compress bool

	// The open list or map.
	collection string // its kind; "" if there is none
	parts      int    // that it still has to get
	got        int    // that it has got

	// Canonical format. Positions are in out.buf.
	run     int    // the state of the last entry
	lastKey int    // where its key begins
	valueAt int    // where its value begins
	mapKey  []byte // composite key of the open map, without a user key
}

// writerState is what the writer knows of a state.
type writerState struct {
	name    string
	kind    string // VALUE, LIST, MAP, …; "" for timers
	lengths bool   // lengths follow key and namespace in composite keys
}

// NewKeyedWriter writes the meta block to w. The error is that of types that
// cannot be written, of a range outside the max parallelism, or of w.
func NewKeyedWriter(w io.Writer, o KeyedWriterOptions) (*KeyedWriter, error) {
	switch {
	case o.Key == nil:
		return nil, fmt.Errorf("a key type is needed")
	case o.MaxParallelism < 1 || o.MaxParallelism > 1<<15:
		return nil, fmt.Errorf("max parallelism %d is not from 1 to 32768", o.MaxParallelism)
	case o.KeyGroups.Start < 0 || o.KeyGroups.Count < 1 || int64(o.KeyGroups.Start)+int64(o.KeyGroups.Count) > int64(o.MaxParallelism):
		return nil, fmt.Errorf("key groups %d to %d are not in a max parallelism of %d", o.KeyGroups.Start, o.KeyGroups.End(), o.MaxParallelism)
	}
	k := &KeyedWriter{
		out: output{w: w}, format: o.Format, groups: o.KeyGroups, prefix: 1, compress: o.Compress,
		offsets: make([]int64, o.KeyGroups.Count), states: make([]writerState, len(o.States)), seen: make([]bool, len(o.States)),
		kg: o.KeyGroups.Start - 1, state: -1,
	}
	if o.MaxParallelism > 128 {
		k.prefix = 2
	}
	names := map[string]bool{}
	for i := range o.States {
		m, s := &o.States[i], &k.states[i]
		s.name = m.Name
		if names[m.Name] {
			return nil, fmt.Errorf("two states are called %s", m.Name)
		}
		names[m.Name] = true
		switch {
		case m.Kind == serializer.PriorityQueue && m.Value() != nil:
		case m.Kind == serializer.KeyValue && m.Value() != nil && m.Namespace() != nil:
			s.kind = m.StateType()
			s.lengths = o.Key.FixedLength() < 0 && m.Namespace().FixedLength() < 0
		default:
			return nil, fmt.Errorf("state %s: a %s cannot be written as keyed state", m.Name, m.Kind)
		}
	}
	if o.At > 0 {
		k.out.written = o.At
		return k, nil
	}
	meta := serializer.KeyedBackendMeta{Compressed: o.Compress, Key: o.Key, States: o.States}
	head, err := meta.Append(make([]byte, 0, firstBlock))
	if err != nil {
		return nil, err
	}
	k.out.buf = head
	k.out.spill(len(head))
	return k, k.out.err
}

func (w *KeyedWriter) misuse(format string, args ...any) error {
	if w.out.err == nil {
		w.out.err = fmt.Errorf("keyed state writer: "+format, args...)
	}
	return w.out.err
}

// KeyGroup begins a key group. They ascend; one that is left out has no state.
func (w *KeyedWriter) KeyGroup(kg int32) error {
	if !w.groups.Contains(kg) || kg <= w.kg {
		return w.misuse("key group %d does not follow %d in %d to %d", kg, w.kg, w.groups.Start, w.groups.End())
	}
	w.endKeyGroup()
	w.emptyUntil(kg)
	w.begin(kg)
	return w.out.err
}

// begin opens a key group. A canonical one is written with its first entry.
func (w *KeyedWriter) begin(kg int32) {
	w.kg, w.open = kg, true
	clear(w.seen)
	if w.format == HeapFormat {
		w.offsets[kg-w.groups.Start] = w.out.position()
		w.out.buf = binary.BigEndian.AppendUint32(w.out.buf, uint32(kg))
	}
}

// emptyUntil writes the key groups before kg that were left out.
func (w *KeyedWriter) emptyUntil(kg int32) {
	if w.format == HeapFormat {
		for w.kg+1 < kg && w.out.err == nil {
			w.begin(w.kg + 1)
			w.endKeyGroup()
		}
	}
	w.kg = kg - 1
}

// State begins a state of the open key group. entries is the number of Value,
// List, Map and Timer calls that follow; the heap format has it in front of them
// and keeps the writer to it, the canonical one does not need it.
func (w *KeyedWriter) State(index, entries int) error {
	switch {
	case !w.open:
		return w.misuse("no key group is open")
	case index < 0 || index >= len(w.states):
		return w.misuse("there is no state %d", index)
	case w.seen[index]:
		return w.misuse("state %s comes twice in key group %d", w.states[index].name, w.kg)
	}
	w.endState()
	w.seen[index] = true
	w.state, w.left = index, entries
	if w.format == HeapFormat {
		if entries < 0 || entries > math.MaxInt32 {
			return w.misuse("state %s cannot have %d entries", w.states[index].name, entries)
		}
		w.heapBlock(index, entries)
	}
	return w.out.err
}

func (w *KeyedWriter) heapBlock(index, entries int) {
	if w.compress {
		w.out.open()
	}
	w.out.buf = binary.BigEndian.AppendUint16(w.out.buf, uint16(index))
	w.out.buf = binary.BigEndian.AppendUint32(w.out.buf, uint32(entries))
}

// endState closes the open state, if there is one.
func (w *KeyedWriter) endState() {
	if w.state < 0 {
		return
	}
	w.endEntry()
	if w.format == HeapFormat {
		if w.left != 0 {
			w.misuse("state %s in key group %d lacks %d entries", w.states[w.state].name, w.kg, w.left)
		}
		if w.compress {
			w.out.close()
		}
		w.out.spill(len(w.out.buf))
	}
	w.state = -1
}

// endKeyGroup closes the open key group, if there is one.
func (w *KeyedWriter) endKeyGroup() {
	if !w.open {
		return
	}
	w.endState()
	w.open = false
	if w.format == HeapFormat {
		for i, seen := range w.seen {
			if !seen {
				w.heapBlock(i, 0)
				if w.compress {
					w.out.close()
				}
			}
		}
		w.out.spill(len(w.out.buf))
		return
	}
	if w.offsets[w.kg-w.groups.Start] == 0 {
		return // no entries
	}
	w.out.buf[w.lastKey] |= 0x80
	w.out.buf = append(w.out.buf, 0xff, 0xff)
	if w.compress {
		w.out.close()
	}
	w.out.spill(len(w.out.buf))
}

// entry checks that an entry may begin and counts it.
func (w *KeyedWriter) entry(timer bool) bool {
	switch {
	case w.out.err != nil:
	case w.state < 0:
		w.misuse("no state is open")
	case timer != (w.states[w.state].kind == ""):
		w.misuse("state %s holds %s", w.states[w.state].name, map[bool]string{true: "values", false: "timers"}[timer])
	default:
		w.endEntry()
		if w.left--; w.left < 0 && w.format == HeapFormat {
			w.misuse("state %s in key group %d has more entries than it was begun with", w.states[w.state].name, w.kg)
		}
		return w.out.err == nil
	}
	return false
}

// beginPair begins a canonical entry: the state, where it changes, and room for the
// key's length. The key comes next.
func (w *KeyedWriter) beginPair() {
	group := w.kg - w.groups.Start
	if w.offsets[group] == 0 {
		w.offsets[group] = w.out.position()
		if w.compress {
			w.out.open()
		}
		w.out.buf = binary.BigEndian.AppendUint16(w.out.buf, uint16(w.state))
	} else if w.run != w.state {
		w.out.buf[w.lastKey] |= 0x80
		w.out.buf = binary.BigEndian.AppendUint16(w.out.buf, uint16(w.state))
	}
	w.run = w.state
	w.out.spill(len(w.out.buf)) // nothing in it changes any more
	w.out.buf = append(w.out.buf, 0, 0, 0, 0)
	w.lastKey = len(w.out.buf)
}

// endKey ends the key of a canonical entry; the value comes next.
func (w *KeyedWriter) endKey() {
	w.putLength(w.lastKey)
	w.out.buf = append(w.out.buf, 0, 0, 0, 0)
	w.valueAt = len(w.out.buf)
}

// putLength puts the number of bytes from from to the end in front of them.
func (w *KeyedWriter) putLength(from int) {
	n := len(w.out.buf) - from
	if n > math.MaxInt32 {
		w.misuse("a key or value of %d bytes does not fit into the format", n)
	}
	binary.BigEndian.PutUint32(w.out.buf[from-4:], uint32(n))
}

// appendComposite appends a key group, key and namespace as in CompositeKeySerializationUtils.
func (w *KeyedWriter) appendComposite(dst, key, namespace []byte) []byte {
	return AppendComposite(w.appendKeyGroup(dst), key, namespace, w.states[w.state].lengths)
}

// AppendComposite appends a key and a namespace as they stand behind the key group in
// the keys of RocksDB and of the canonical format. With lengths, which is where neither
// has a fixed length, each is followed by its own.
func AppendComposite(dst, key, namespace []byte, lengths bool) []byte {
	dst = append(dst, key...)
	if lengths {
		dst = appendLength(dst, len(key))
	}
	dst = append(dst, namespace...)
	if lengths {
		dst = appendLength(dst, len(namespace))
	}
	return dst
}

func (w *KeyedWriter) appendKeyGroup(dst []byte) []byte {
	if w.prefix == 1 {
		return append(dst, byte(w.kg))
	}
	return binary.BigEndian.AppendUint16(dst, uint16(w.kg))
}

// appendLength appends n in little-endian order, as short as it can be.
func appendLength(dst []byte, n int) []byte {
	for {
		dst = append(dst, byte(n))
		if n >>= 8; n == 0 {
			return dst
		}
	}
}

// Value writes an entry in one piece. The value of a list state is, in the
// canonical format, its elements with a byte ',' between them, of at least one; in
// the heap's an int32 count and the elements: List and Element make either. That
// of a map state is, in the heap's format, what Map and Pair make; the canonical
// one has no maps in one piece.
func (w *KeyedWriter) Value(key, namespace, value []byte) error {
	if !w.entry(false) {
		return w.out.err
	}
	if w.format == HeapFormat {
		w.out.buf = append(append(append(w.out.buf, namespace...), key...), value...)
		w.out.spill(len(w.out.buf))
		return w.out.err
	}
	if w.states[w.state].kind == "MAP" {
		return w.misuse("state %s: a map is written by Map and Pair", w.states[w.state].name)
	}
	w.beginPair()
	w.out.buf = w.appendComposite(w.out.buf, key, namespace)
	w.endKey()
	w.out.buf = append(w.out.buf, value...)
	w.putLength(w.valueAt)
	return w.out.err
}

// Composite writes an entry of the canonical format as RocksDB holds it: the
// composite key, which begins with the key group, and the value: in a map state a
// null flag and the value of one user key, with timers none.
func (w *KeyedWriter) Composite(key, value []byte) error {
	if !w.entry(w.state >= 0 && w.states[w.state].kind == "") {
		return w.out.err
	}
	if w.format == HeapFormat {
		return w.misuse("the heap format has no composite keys")
	}
	kg := int32(-1)
	switch {
	case len(key) >= 1 && w.prefix == 1:
		kg = int32(key[0])
	case len(key) >= 2 && w.prefix == 2:
		kg = int32(binary.BigEndian.Uint16(key))
	}
	if kg != w.kg {
		return w.misuse("a key of key group %d is written into key group %d", kg, w.kg)
	}
	w.beginPair()
	w.out.buf = append(w.out.buf, key...)
	w.endKey()
	w.out.buf = append(w.out.buf, value...)
	w.putLength(w.valueAt)
	return w.out.err
}

// Encoded writes n entries of the heap's format that are serialized already, as
// they stand in a file of that format one after the other. It reads r to its end.
func (w *KeyedWriter) Encoded(n int, r io.Reader) error {
	switch {
	case w.out.err != nil:
		return w.out.err
	case w.state < 0:
		return w.misuse("no state is open")
	case w.format != HeapFormat:
		return w.misuse("the canonical format has no entries in one piece")
	}
	w.endEntry()
	if w.left -= n; w.left < 0 {
		return w.misuse("state %s in key group %d has more entries than it was begun with", w.states[w.state].name, w.kg)
	}
	for w.out.err == nil {
		w.out.buf = slices.Grow(w.out.buf, outputBlock)
		at := len(w.out.buf)
		got, err := r.Read(w.out.buf[at : at+outputBlock])
		w.out.buf = w.out.buf[:at+got]
		w.out.spill(len(w.out.buf))
		switch {
		case err == io.EOF:
			return w.out.err
		case err != nil:
			w.out.err = err
		}
	}
	return w.out.err
}

// List begins a list of that many elements, which come by Element. An empty list
// is written in the heap's format only: elsewhere it is the same as none.
func (w *KeyedWriter) List(key, namespace []byte, elements int) error {
	return w.collect("LIST", key, namespace, elements)
}

// Map begins a map of that many entries, which come by Pair and NullPair. An empty
// map is treated as an empty list is.
func (w *KeyedWriter) Map(key, namespace []byte, entries int) error {
	return w.collect("MAP", key, namespace, entries)
}

func (w *KeyedWriter) collect(kind string, key, namespace []byte, n int) error {
	if !w.entry(false) {
		return w.out.err
	}
	if s := &w.states[w.state]; s.kind != kind {
		return w.misuse("state %s is no %s", s.name, kind)
	}
	if n < 0 || n > math.MaxInt32 {
		return w.misuse("state %s: %d parts", w.states[w.state].name, n)
	}
	w.collection, w.parts, w.got = kind, n, 0
	switch {
	case w.format == HeapFormat:
		w.out.buf = append(append(w.out.buf, namespace...), key...)
		w.out.buf = binary.BigEndian.AppendUint32(w.out.buf, uint32(n))
	case kind == "MAP":
		w.mapKey = w.appendComposite(w.mapKey[:0], key, namespace)
	case n > 0:
		w.beginPair()
		w.out.buf = w.appendComposite(w.out.buf, key, namespace)
		w.endKey()
	}
	return w.out.err
}

// part checks that a part of the open collection may follow and counts it.
func (w *KeyedWriter) part(kind string) bool {
	switch {
	case w.out.err != nil:
		return false
	case w.collection != kind:
		w.misuse("no %s is open", kind)
		return false
	case w.parts == 0:
		w.misuse("state %s: more parts than were announced", w.states[w.state].name)
		return false
	}
	w.parts--
	w.got++
	return true
}

// endEntry closes the open list or map.
func (w *KeyedWriter) endEntry() {
	if w.collection == "" {
		return
	}
	if w.parts > 0 {
		w.misuse("state %s: %d parts are missing", w.states[w.state].name, w.parts)
	}
	if w.format == CanonicalFormat && w.collection == "LIST" && w.got > 0 {
		w.putLength(w.valueAt)
	}
	w.collection = ""
}

// Element writes an element of the open list.
func (w *KeyedWriter) Element(value []byte) error {
	if !w.part("LIST") {
		return w.out.err
	}
	if w.format == CanonicalFormat && w.got > 1 {
		w.out.buf = append(w.out.buf, ',')
	}
	w.out.buf = append(w.out.buf, value...)
	if w.format == HeapFormat {
		w.out.spill(len(w.out.buf))
	}
	return w.out.err
}

// Pair writes an entry of the open map.
func (w *KeyedWriter) Pair(userKey, value []byte) error { return w.pair(userKey, value, 0) }

// NullPair writes an entry of the open map whose value is null. A serializer that
// can write null leaves bytes behind the flag in Flink's canonical files, which no
// reader looks at; asWritten is those bytes, and may be nil.
func (w *KeyedWriter) NullPair(userKey, asWritten []byte) error {
	if w.format == HeapFormat {
		asWritten = nil
	}
	return w.pair(userKey, asWritten, 1)
}

func (w *KeyedWriter) pair(userKey, value []byte, null byte) error {
	if !w.part("MAP") {
		return w.out.err
	}
	if w.format == HeapFormat {
		w.out.buf = append(append(w.out.buf, userKey...), null)
		w.out.buf = append(w.out.buf, value...)
		w.out.spill(len(w.out.buf))
		return w.out.err
	}
	w.beginPair()
	w.out.buf = append(append(w.out.buf, w.mapKey...), userKey...)
	w.endKey()
	w.out.buf = append(append(w.out.buf, null), value...)
	w.putLength(w.valueAt)
	return w.out.err
}

// Timer writes a timer; its time is in epoch milliseconds.
func (w *KeyedWriter) Timer(timestamp int64, key, namespace []byte) error {
	if !w.entry(true) {
		return w.out.err
	}
	canonical := w.format == CanonicalFormat
	if canonical {
		w.beginPair()
		w.out.buf = w.appendKeyGroup(w.out.buf)
	}
	w.out.buf = binary.BigEndian.AppendUint64(w.out.buf, uint64(timestamp)^1<<63)
	w.out.buf = append(append(w.out.buf, key...), namespace...)
	if canonical {
		w.endKey()
	} else {
		w.out.spill(len(w.out.buf))
	}
	return w.out.err
}

// Finish writes what is left and gives the offsets of the handle, one for each key
// group of the range; 0 says that a canonical file has nothing of the key group.
// Any error of the writer before is returned here too.
func (w *KeyedWriter) Finish() (offsets []int64, err error) {
	if w.finished {
		return nil, w.misuse("is finished")
	}
	w.endKeyGroup()
	w.emptyUntil(w.groups.Start + w.groups.Count)
	w.out.finish()
	w.finished = true
	if w.out.err != nil {
		return nil, w.out.err
	}
	w.out.err = fmt.Errorf("keyed state writer: is finished")
	return w.offsets, nil
}

// Size is the number of bytes of the file so far, with those before At; after
// Finish of all of it.
func (w *KeyedWriter) Size() int64 { return w.out.written + int64(len(w.out.buf)) }
