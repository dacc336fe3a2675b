package metadata

import (
	"iter"
	"strconv"
)

// Slot is the place in a checkpoint that a handle was acknowledged for.
type Slot uint8

// Slots.
const (
	SlotCoordinator Slot = iota
	SlotManagedOperator
	SlotRawOperator
	SlotManagedKeyed
	SlotRawKeyed
	SlotInputChannel
	SlotOutputChannel
)

var slotNames = [...]string{"coordinator", "managedOperator", "rawOperator", "managedKeyed", "rawKeyed", "inputChannel", "outputChannel"}

// String is the slot's name as it stands in field paths, such as "managedKeyed".
func (s Slot) String() string {
	if int(s) < len(slotNames) {
		return slotNames[s]
	}
	return "slot " + strconv.Itoa(int(s))
}

// Keyed says that the slot holds keyed handles.
func (s Slot) Keyed() bool { return s == SlotManagedKeyed || s == SlotRawKeyed }

// Part is what a stream handle is to the handle around it.
type Part uint8

// Parts.
const (
	PartWhole     Part = iota // the coordinator's state: nothing is around it
	PartDelegate              // the stream behind offsets: key groups, operator state, channels
	PartMeta                  // metadata of an incremental handle
	PartShared                // a shared file of an incremental handle
	PartPrivate               // a private file of an incremental handle
	PartChangelog             // a file of changes
)

var partNames = [...]string{"whole", "delegate", "meta", "shared", "private", "changelog"}

func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return "part " + strconv.Itoa(int(p))
}

// Place says where in a checkpoint a handle stands.
type Place struct {
	Operator     *OperatorState
	Subtask      *SubtaskState // nil for the coordinator
	OperatorPos  int           // position in Checkpoint.Operators
	SubtaskPos   int           // position in OperatorState.Subtasks, not the subtask index; -1 for the coordinator
	Slot         Slot
	Part         Part
	Materialized bool        // inside the materialized part of a changelog handle
	Keyed        KeyedHandle // the innermost keyed handle around it; nil outside keyed slots
	Name         String      // the local file name of a shared or private file
	Pos          int         // position in the list it stands in: channels, shared, private, files of a changelog; else 0

	ordinal int // number of the handle within its subtask
}

// StreamHandles visits every stream handle of the checkpoint that names bytes,
// in file order. Null handles are left out. What a *KeyGroupsHandle of the
// stream grammar wraps is visited in its place, so that only byte stream, file,
// relative file, segment and empty segment handles appear. Master states and
// inline changes (ChangelogBytesHandle) are no stream handles: see
// Checkpoint.MasterStates and KeyedHandles.
//
// The iteration allocates nothing for a handle; the handles are the checkpoint's
// own.
func (c *Checkpoint) StreamHandles() iter.Seq2[Place, StreamHandle] {
	return func(yield func(Place, StreamHandle) bool) {
		w := walker{stream: yield}
		w.checkpoint(c)
	}
}

// KeyedHandles visits every keyed handle, outermost first: a changelog handle,
// then its materialized and its change handles. Null handles are left out.
func (c *Checkpoint) KeyedHandles() iter.Seq2[Place, KeyedHandle] {
	return func(yield func(Place, KeyedHandle) bool) {
		w := walker{keyed: yield}
		w.checkpoint(c)
	}
}

// Field is the path of a place that StreamHandles of c gave, as a decoder's
// errors name it: operator[3].subtask[0].managedKeyed.shared[12].handle.
func (c *Checkpoint) Field(p Place) string {
	w := walker{}
	var path string
	w.stream = func(q Place, _ StreamHandle) bool {
		if q.ordinal != p.ordinal || q.SubtaskPos != p.SubtaskPos {
			return true
		}
		path = w.path()
		return false
	}
	w.at.OperatorPos = p.OperatorPos
	w.operator(&c.Operators[p.OperatorPos], p.SubtaskPos)
	return path
}

const maxWalkDepth = maxDepth + 1

// walker walks handles and knows where it is. Its steps report false once the
// caller has had enough.
type walker struct {
	stream func(Place, StreamHandle) bool
	keyed  func(Place, KeyedHandle) bool
	at     Place
	// The nesting inside changelog handles: position in materialized (>= 0) or
	// in changes (-1 - position).
	nest  [maxWalkDepth]int32
	depth int
}

func (w *walker) checkpoint(c *Checkpoint) {
	for i := range c.Operators {
		w.at.OperatorPos = i
		if !w.operator(&c.Operators[i], allSubtasks) {
			return
		}
	}
}

const allSubtasks = -2

// operator walks the coordinator (only == -1), one subtask or everything.
func (w *walker) operator(o *OperatorState, only int) bool {
	w.at.Operator = o
	w.at.ordinal = 0
	w.at.Subtask, w.at.SubtaskPos = nil, -1
	if only < 0 && !w.leaf(SlotCoordinator, PartWhole, 0, "", o.Coordinator) {
		return false
	}
	for i := range o.Subtasks {
		if only != allSubtasks && only != i {
			continue
		}
		w.at.Subtask, w.at.SubtaskPos, w.at.ordinal = &o.Subtasks[i], i, 0
		if !w.subtask(&o.Subtasks[i]) {
			return false
		}
	}
	return true
}

func (w *walker) subtask(s *SubtaskState) bool {
	if h := s.ManagedOperator; h != nil && !w.leaf(SlotManagedOperator, PartDelegate, 0, "", h.Delegate) {
		return false
	}
	if h := s.RawOperator; h != nil && !w.leaf(SlotRawOperator, PartDelegate, 0, "", h.Delegate) {
		return false
	}
	return w.keyedHandle(SlotManagedKeyed, s.ManagedKeyed) &&
		w.keyedHandle(SlotRawKeyed, s.RawKeyed) &&
		w.channels(SlotInputChannel, s.InputChannels) &&
		w.channels(SlotOutputChannel, s.OutputChannels)
}

func (w *walker) channels(slot Slot, hs []ChannelHandle) bool {
	for i := range hs {
		if !w.leaf(slot, PartDelegate, i, "", hs[i].Delegate) {
			return false
		}
	}
	return true
}

func (w *walker) keyedHandle(slot Slot, h KeyedHandle) bool {
	if h == nil {
		return true
	}
	outer := w.at.Keyed
	defer func() { w.at.Keyed = outer }()
	w.at.Slot, w.at.Keyed = slot, h
	if w.keyed != nil {
		w.at.Part, w.at.Pos, w.at.Name = PartWhole, 0, ""
		if !w.keyed(w.at, h) {
			return false
		}
	}
	switch h := h.(type) {
	case *KeyGroupsHandle:
		return w.leaf(slot, PartDelegate, 0, "", h.Delegate)
	case *IncrementalHandle:
		if !w.leaf(slot, PartMeta, 0, "", h.Meta) {
			return false
		}
		for i := range h.Shared {
			if !w.leaf(slot, PartShared, i, h.Shared[i].Name, h.Shared[i].Handle) {
				return false
			}
		}
		for i := range h.Private {
			if !w.leaf(slot, PartPrivate, i, h.Private[i].Name, h.Private[i].Handle) {
				return false
			}
		}
	case *ChangelogFileHandle:
		for i := range h.Files {
			if !w.leaf(slot, PartChangelog, i, "", h.Files[i].Handle) {
				return false
			}
		}
	case *ChangelogHandle:
		if w.depth == maxWalkDepth { // deeper than any file can be
			return true
		}
		d, was := w.depth, w.at.Materialized
		w.depth++
		w.at.Materialized = true
		for i, m := range h.Materialized {
			w.nest[d] = int32(i)
			if !w.keyedHandle(slot, m) {
				return false
			}
		}
		w.at.Materialized = was
		for i, m := range h.Changes {
			w.nest[d] = int32(-1 - i)
			if !w.keyedHandle(slot, m) {
				return false
			}
		}
		w.depth--
	}
	return true
}

func (w *walker) leaf(slot Slot, part Part, pos int, name String, h StreamHandle) bool {
	h = Innermost(h)
	if h == nil || w.stream == nil {
		return true
	}
	w.at.Slot, w.at.Part, w.at.Pos, w.at.Name = slot, part, pos, name
	if slot == SlotCoordinator || !slot.Keyed() {
		w.at.Keyed = nil
	}
	w.at.ordinal++
	return w.stream(w.at, h)
}

// path is the field path of the handle that leaf is at.
func (w *walker) path() string {
	b := make([]byte, 0, 96)
	index := func(name string, i int) {
		b = append(b, name...)
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, ']')
	}
	index("operator", w.at.OperatorPos)
	if w.at.Subtask != nil {
		index(".subtask", w.at.SubtaskPos)
	}
	b = append(b, '.')
	switch w.at.Slot {
	case SlotInputChannel, SlotOutputChannel:
		index(w.at.Slot.String(), w.at.Pos)
	default:
		b = append(b, w.at.Slot.String()...)
	}
	for _, n := range w.nest[:w.depth] {
		if n >= 0 {
			index(".materialized", int(n))
		} else {
			index(".changes", int(-1-n))
		}
	}
	switch w.at.Part {
	case PartDelegate:
		b = append(b, ".delegate"...)
	case PartMeta:
		b = append(b, ".meta"...)
	case PartShared:
		index(".shared", w.at.Pos)
		b = append(b, ".handle"...)
	case PartPrivate:
		index(".private", w.at.Pos)
		b = append(b, ".handle"...)
	case PartChangelog:
		index(".files", w.at.Pos)
		b = append(b, ".handle"...)
	}
	return string(b)
}

// Innermost unwraps the key-groups handles of the stream grammar (rare); nil
// for a null handle.
func Innermost(h StreamHandle) StreamHandle {
	for range maxWalkDepth {
		kg, ok := h.(*KeyGroupsHandle)
		if !ok {
			break
		}
		h = kg.Delegate
	}
	return h
}

// StateSize is the size in bytes that the handle states: the length of inline
// data, a file's size (-1 if its writer did not know it), a segment's length, 0
// for null and empty handles.
func StateSize(h StreamHandle) int64 {
	switch h := Innermost(h).(type) {
	case *ByteStreamHandle:
		return int64(len(h.Data))
	case *FileHandle:
		return h.Size
	case *RelativeFileHandle:
		return h.Size
	case *SegmentHandle:
		return h.Length
	}
	return 0
}
