package metadata

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidemark/tidemark/internal/javaio"
)

const (
	fileMagic        = 0x4960672d
	masterStateMagic = 0xc96b1696

	// maxDepth limits nested handles: changelog handles and key-groups handles
	// of the stream grammar, the only recursion of the format.
	maxDepth = 16

	// maxKeyGroups is Flink's upper bound of the max parallelism.
	maxKeyGroups = 1 << 15
)

// Least number of bytes that one element of a list takes, by which counts are
// checked against what is left.
const (
	minMasterState  = 18
	minNamedState   = 7
	minOffset       = 8
	minNamedHandle  = 3
	minChange       = 8
	minChangeFile   = 9
	minKeyedHandle  = 1
	minChannelBlock = 20
)

func minOperator(version int32) int64 {
	switch {
	case version == 2:
		return 32
	case version >= 5:
		return 33
	}
	return 29
}

func minChannel(version int32) int64 {
	if version >= 6 {
		return 18
	}
	return 25
}

func decode(r io.Reader, opts *DecodeOptions) (*Checkpoint, error) {
	d := newDecoder(r, opts)
	var ops []OperatorState
	c := d.checkpoint(visitor{
		header: func(operators int) { ops = list[OperatorState](operators) },
		operator: func(o *OperatorState, _ int64) error {
			ops = append(ops, *o)
			return nil
		},
	})
	if d.err != nil {
		return nil, d.err
	}
	c.Operators = ops
	return c, nil
}

// visitor is called while a checkpoint is read.
type visitor struct {
	header   func(operators int) // all in front of the operators stands in decoder.c
	operator func(o *OperatorState, from int64) error
}

// DecodeEach reads one _metadata object like Decode, but hands each operator to
// each and lets it go, so that memory follows the largest operator. The
// checkpoint it returns has no Operators. An error of each stops the reading
// and is returned as it is. The *Checkpoint given to each is the one that is
// returned, as far as it was read: all but its Properties.
func DecodeEach(r io.Reader, opts *DecodeOptions, each func(*Checkpoint, *OperatorState) error) (*Checkpoint, error) {
	d := newDecoder(r, opts)
	c := d.checkpoint(visitor{operator: func(o *OperatorState, _ int64) error { return each(d.c, o) }})
	if d.err != nil {
		return nil, d.err
	}
	return c, nil
}

// checkpoint reads the whole file. It is nil after an error.
func (d *decoder) checkpoint(v visitor) *Checkpoint {
	c := &Checkpoint{Changelog114: d.opts.Changelog114}
	d.c = c
	at := d.offset()
	if magic := uint32(d.i32("magic")); d.err == nil && magic != fileMagic {
		d.damage(at, "magic", fmt.Sprintf("is %08x, not %08x: no checkpoint metadata", magic, uint32(fileMagic)))
	}
	at = d.offset()
	c.Version = d.i32("version")
	if d.err != nil {
		return nil
	}
	switch {
	case c.Version == 1:
		d.unsupported(at, "is 1, the layout of Flink 1.1 and 1.2, which current Flink refuses, too: resume the job from it with a Flink that reads it, and take a new savepoint")
	case c.Version < MinVersion || c.Version > MaxVersion:
		d.unsupported(at, fmt.Sprintf("is %d; known are %d to %d", c.Version, MinVersion, MaxVersion))
	}
	at = d.offset()
	c.ID = d.i64("checkpointID")
	if d.err == nil && c.ID < 0 {
		d.is(at, "checkpointID", c.ID)
	}
	n := d.count("masterStateCount", minMasterState)
	c.MasterStates = list[MasterState](n)
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push("masterState", i)
		c.MasterStates = append(c.MasterStates, d.masterState())
		d.path.pop()
	}
	n = d.count("operatorCount", minOperator(c.Version))
	if d.err == nil && v.header != nil {
		v.header(n)
	}
	seen := make(map[OperatorID]struct{}, min(n, 1024))
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push("operator", i)
		at = d.offset()
		o := d.operator(c.Version)
		if d.err == nil {
			if _, dup := seen[o.ID]; dup {
				d.damage(d.idOffset, "id", "is "+o.ID.String()+", which an operator before it has")
			}
			seen[o.ID] = struct{}{}
		}
		d.path.pop()
		if d.err == nil {
			if err := v.operator(&o, at); err != nil {
				d.err = err
			}
		}
	}
	if d.err != nil {
		return nil
	}
	if c.Version >= 4 {
		c.Properties = d.properties()
	} else {
		d.expectEnd()
	}
	if d.err != nil {
		return nil
	}
	return c
}

// expectEnd expects the end of the file.
func (d *decoder) expectEnd() {
	at := d.offset()
	if d.more() {
		d.damage(at, "", "the checkpoint ends here, but more bytes follow")
	}
}

// maxProperties is the largest object stream that is looked into. Flink's have
// less than 1 KiB; decoded objects take a multiple of their bytes.
const maxProperties = 1 << 20

// propertiesMagic begins every Java object stream.
var propertiesMagic = [4]byte{0xac, 0xed, 0x00, 0x05}

// properties reads the rest of the file.
func (d *decoder) properties() RawProperties {
	at := d.offset()
	head := d.need(4, "properties")
	if d.err != nil {
		return nil
	}
	if [4]byte(head) != propertiesMagic {
		d.damage(at, "properties", fmt.Sprintf("begin with %x, not with the header of a Java object stream", head))
		return nil
	}
	p := append(make(RawProperties, 0, 1024), head...)
	for d.more() && d.err == nil {
		p = append(p, d.take()...)
	}
	if d.err != nil {
		return nil
	}
	if d.trace != nil {
		d.trace(traced{offset: at, raw: p, size: int64(len(p)), field: d.path.field("properties"), kind: traceRest})
	}
	d.checkProperties(at, p)
	return p
}

// checkProperties finds properties that Java could not read either: cut off or
// otherwise broken. Objects of an unknown shape are none of its business.
func (d *decoder) checkProperties(at int64, p RawProperties) {
	if len(p) > maxProperties {
		return
	}
	_, n, err := javaio.ReadObjectStream(p)
	var e *FormatError
	switch {
	case errors.As(err, &e) && errors.Is(err, ErrCorrupt):
		d.damage(at+e.Offset, "properties."+e.Field, e.Detail)
	case err == nil && n < len(p):
		d.deviation(at+int64(n), "properties", fmt.Sprintf("are followed by %d bytes, which Flink ignores", len(p)-n))
	}
}

func (d *decoder) masterState() (m MasterState) {
	at := d.offset()
	if magic := uint32(d.i32("magic")); d.err == nil && magic != masterStateMagic {
		d.damage(at, "magic", fmt.Sprintf("is %08x, not %08x", magic, uint32(masterStateMagic)))
	}
	at = d.offset()
	n := d.i32("recordLength")
	if d.err == nil && n <= 0 {
		d.is(at, "recordLength", int64(n))
	}
	if d.err != nil || !d.frame(at, "recordLength", int64(n)) {
		return m
	}
	m.Version = d.i32("version")
	m.Name = d.utf("name")
	m.Payload = d.bytes32("payload")
	d.unframe("recordLength")
	return m
}

func (d *decoder) operator(version int32) (o OperatorState) {
	if version >= 5 {
		o.Name = d.utf("name")
		o.UID = d.utf("uid")
	}
	d.idOffset = d.offset()
	copy(o.ID[:], d.raw(16, "id"))
	at := d.offset()
	o.Parallelism = d.i32("parallelism")
	if d.err == nil && o.Parallelism < 0 {
		d.is(at, "parallelism", int64(o.Parallelism))
	}
	at = d.offset()
	o.MaxParallelism = d.i32("maxParallelism")
	if d.err == nil {
		switch {
		case o.MaxParallelism < o.Parallelism:
			d.damage(at, "maxParallelism", fmt.Sprintf("is %d, below the parallelism %d", o.MaxParallelism, o.Parallelism))
		case o.MaxParallelism > maxKeyGroups:
			d.damage(at, "maxParallelism", fmt.Sprintf("is %d; Flink allows %d", o.MaxParallelism, maxKeyGroups))
		}
	}
	d.maxParallelism = o.MaxParallelism
	if version == 2 {
		o.ChainLength = d.i32("chainLength")
	} else {
		d.path.enter("coordinator")
		o.Coordinator = d.coordinator()
		d.path.pop()
	}
	at = d.offset()
	n := d.i32("subtaskCount")
	switch {
	case d.err != nil:
		return o
	case n < 0 && version == 2:
		d.is(at, "subtaskCount", int64(n))
	case n < 0:
		if n != -1 {
			d.deviation(at, "subtaskCount", fmt.Sprintf("is %d; for a finished operator Flink writes -1", n))
		}
		o.FinishedCount = n
		if o.Coordinator != nil && d.err == nil {
			d.damage(at, "subtaskCount", fmt.Sprintf("is %d (finished), but the operator has coordinator state", n))
		}
		return o
	case n > o.Parallelism:
		d.damage(at, "subtaskCount", fmt.Sprintf("is %d, but the parallelism is %d", n, o.Parallelism))
	case d.beyond(int64(n), 4):
		d.tooMany(at, "subtaskCount", int64(n))
	}
	if d.err != nil {
		return o
	}
	o.Subtasks = list[SubtaskState](int(n))
	last, sorted := int32(-1), true
	var seen map[int32]struct{}
	for i := 0; i < int(n) && d.err == nil; i++ {
		d.path.push("subtask", i)
		at = d.offset()
		index := d.i32("index")
		finished := false
		if d.err == nil && index < 0 && version >= 3 {
			index, finished = -(index + 1), true
		}
		if d.err == nil && (index < 0 || index >= o.Parallelism) {
			d.damage(at, "index", fmt.Sprintf("is %d, but the parallelism is %d", index, o.Parallelism))
		}
		// Subtasks stand in ascending order in all that Flink writes.
		if d.err == nil && sorted && index <= last {
			sorted = false
			seen = make(map[int32]struct{}, i+1)
			for j := range o.Subtasks {
				seen[o.Subtasks[j].Index] = struct{}{}
			}
		}
		if d.err == nil && !sorted {
			if _, dup := seen[index]; dup {
				d.damage(at, "index", fmt.Sprintf("is %d, which an entry before it has", index))
			}
			seen[index] = struct{}{}
		}
		last = index
		if d.err == nil {
			// Decoded in place: the struct is large.
			o.Subtasks = append(o.Subtasks, SubtaskState{Index: index, Finished: finished})
			if !finished {
				d.subtask(version, &o.Subtasks[len(o.Subtasks)-1])
			}
		}
		d.path.pop()
	}
	return o
}

func (d *decoder) coordinator() StreamHandle {
	at := d.offset()
	tag := d.peekTag("tag")
	if d.err == nil && tag != TagNull && tag != TagByteStream {
		d.damage(at, "tag", fmt.Sprintf("is %s; coordinator state is inline or absent", tag))
		return nil
	}
	return d.stream()
}

func (d *decoder) subtask(version int32, s *SubtaskState) {
	if version == 2 {
		s.Duration = d.i64("duration")
		at := d.offset()
		if n := d.i32("legacyStateCount"); d.err == nil && n != 0 {
			d.damage(at, "legacyStateCount", fmt.Sprintf("is %d: state of Flink 1.1, which has no reader", n))
		}
	}
	s.ManagedOperatorFlag, s.ManagedOperator = d.flaggedOperator("managedOperator", "managedOperatorFlag")
	s.RawOperatorFlag, s.RawOperator = d.flaggedOperator("rawOperator", "rawOperatorFlag")
	d.path.enter("managedKeyed")
	s.ManagedKeyed = d.keyed(false)
	d.path.pop()
	d.path.enter("rawKeyed")
	s.RawKeyed = d.keyed(true)
	d.path.pop()
	if version >= 3 {
		s.InputChannels = d.channels(version, true)
		s.OutputChannels = d.channels(version, false)
	}
	if version >= 7 {
		at := d.offset()
		s.ReferenceMarker = d.u8("referenceMarker")
		if s.ReferenceMarker > 1 {
			d.deviation(at, "referenceMarker", fmt.Sprintf("is %d; Flink writes 0 or 1 and reads this as 0", s.ReferenceMarker))
		}
		if s.ReferenceMarker == 1 {
			s.ReferenceID = d.i64("referenceID")
		}
	}
}

func (d *decoder) flaggedOperator(slot, flagName string) (flag int32, h *OperatorHandle) {
	at := d.offset()
	flag = d.i32(flagName)
	if flag == 0 || d.err != nil {
		return flag, nil
	}
	if flag != 1 {
		d.deviation(at, flagName, fmt.Sprintf("is %d; Flink writes 0 or 1", flag))
	}
	d.path.enter(slot)
	at = d.offset()
	h = d.operatorHandle()
	if h == nil {
		d.nullHandle(at)
	}
	d.path.pop()
	return flag, h
}

// nullHandle reports a null handle at at where Flink needs one.
func (d *decoder) nullHandle(at int64) {
	d.deviation(at, "tag", "is null, which Flink does not accept here")
}

// some reads a stream handle that Flink does not accept to be null.
func (d *decoder) some() StreamHandle {
	at := d.offset()
	h := d.stream()
	if h == nil {
		d.nullHandle(at)
	}
	return h
}

// list makes room for n elements that were checked against what is left, but
// not for very many at once, for what is left may not be known.
func list[T any](n int) []T {
	if n == 0 {
		return nil
	}
	return make([]T, 0, min(n, unchecked))
}
