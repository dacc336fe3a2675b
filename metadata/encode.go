package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
)

// NotRepresentableError says everything that stopped an encoder. It wraps
// ErrNotRepresentable.
type NotRepresentableError struct {
	Version int32
	// Problems names the field and what is wrong, one each, in file order:
	// "operator[0].uid: operator uids need version 5". At most 20.
	Problems []string
	More     int // problems beyond those
}

func (e *NotRepresentableError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d: ", e.Version)
	b.WriteString(strings.Join(e.Problems, "; "))
	if e.More > 0 {
		fmt.Fprintf(&b, "; and %d more", e.More)
	}
	b.WriteString(": ")
	b.WriteString(ErrNotRepresentable.Error())
	return b.String()
}

// Unwrap gives errors.Is its sentinel.
func (e *NotRepresentableError) Unwrap() error { return ErrNotRepresentable }

const mostProblems = 20

// encode writes c after a dry run that finds all problems.
func encode(w io.Writer, c *Checkpoint, opts *EncodeOptions) error {
	e, err := dryRun(c, opts)
	if err != nil {
		return err
	}
	if opts != nil && opts.SelfCheck {
		if err := selfCheck(c); err != nil {
			return err
		}
	}
	e = &encoder{w: w, buf: make([]byte, 0, int(min(e.n, outputSize)))}
	e.checkpoint(c)
	e.flush()
	return e.err
}

// EncodedSize is the number of bytes that Encode writes for c.
func EncodedSize(c *Checkpoint) (int64, error) {
	e, err := dryRun(c, nil)
	if err != nil {
		return 0, err
	}
	return e.n, nil
}

func dryRun(c *Checkpoint, opts *EncodeOptions) (*encoder, error) {
	e := &encoder{problems: &NotRepresentableError{Version: c.Version}}
	if opts != nil && opts.Release != "" {
		r, err := parseRelease(opts.Release)
		if err != nil {
			return nil, err
		}
		e.release = &r
	}
	if c.Version < MinVersion || c.Version > MaxVersion {
		return nil, &FormatError{Offset: 4, Field: "version", Detail: fmt.Sprintf("is %d; %d to %d can be written", c.Version, MinVersion, MaxVersion), Err: ErrUnsupportedVersion}
	}
	e.checkpoint(c)
	if len(e.problems.Problems) > 0 {
		return nil, e.problems
	}
	return e, nil
}

const outputSize = 64 << 10

// encoder writes a checkpoint. In a dry run (problems is set) it writes nothing,
// counts the bytes and checks what the version can hold.
type encoder struct {
	w        io.Writer
	buf      []byte
	n        int64
	err      error
	problems *NotRepresentableError
	release  *release
	path     fieldPath
	version  int32
	short    bool // changelog handles of Flink 1.14
	depth    int

	maxParallelism int32 // of the operator that is being written
}

func (e *encoder) dry() bool { return e.problems != nil }

func (e *encoder) problem(field, format string, args ...any) {
	if !e.dry() {
		return
	}
	if len(e.problems.Problems) == mostProblems {
		e.problems.More++
		return
	}
	text := fmt.Sprintf(format, args...)
	if f := e.path.field(field); f != "" {
		text = f + ": " + text
	}
	e.problems.Problems = append(e.problems.Problems, text)
}

// room makes room for n bytes, at most outputSize, and returns the buffer.
func (e *encoder) room(n int) {
	if cap(e.buf)-len(e.buf) < n {
		e.flush()
		if cap(e.buf) < n {
			e.buf = make([]byte, 0, n)
		}
	}
}

func (e *encoder) flush() {
	if e.err == nil && len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

func (e *encoder) u8(v uint8) {
	if e.dry() {
		e.n++
		return
	}
	e.room(1)
	e.buf = append(e.buf, v)
}

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) i32(v int32) {
	if e.dry() {
		e.n += 4
		return
	}
	e.room(4)
	e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v))
}

func (e *encoder) i64(v int64) {
	if e.dry() {
		e.n += 8
		return
	}
	e.room(8)
	e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v))
}

// length writes a count or length as an i32.
func (e *encoder) length(field string, n int) {
	if int64(n) > 1<<31-1 {
		e.problem(field, "%d do not fit a 32-bit count", n)
	}
	e.i32(int32(n))
}

func (e *encoder) utf(field string, s String) {
	if e.dry() {
		e.n += 2 + int64(len(s))
		if len(s) > javaio.MaxStringBytes {
			e.problem(field, "is a string of %d encoded bytes; %d fit", len(s), javaio.MaxStringBytes)
		}
		if !asciiText(s) && !s.Valid() {
			e.problem(field, "is not modified UTF-8")
		}
		return
	}
	e.room(2 + len(s))
	e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(len(s)))
	e.buf = append(e.buf, s...)
}

func asciiText(s String) bool {
	i := 0
	for ; i+4 <= len(s); i += 4 {
		if (s[i]|s[i+1]|s[i+2]|s[i+3])&0x80 != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if s[i]&0x80 != 0 {
			return false
		}
	}
	return true
}

// rest writes bytes without a length.
func (e *encoder) rest(b []byte) {
	if e.dry() {
		e.n += int64(len(b))
		return
	}
	if len(b) >= outputSize {
		e.flush()
		if e.err == nil {
			_, e.err = e.w.Write(b)
		}
		return
	}
	e.room(len(b))
	e.buf = append(e.buf, b...)
}

func (e *encoder) bytes32(field string, b []byte) {
	e.length(field, len(b))
	e.rest(b)
}

func (e *encoder) int64s(vs []int64) {
	if e.dry() {
		e.n += 8 * int64(len(vs))
		return
	}
	for _, v := range vs {
		e.i64(v)
	}
}

func (e *encoder) offsets(field string, vs []int64) {
	e.length(field, len(vs))
	e.int64s(vs)
}

func (e *encoder) checkpoint(c *Checkpoint) {
	e.header(c)
	e.length("operators", len(c.Operators))
	seen := make(map[OperatorID]struct{})
	for i := range c.Operators {
		e.path.push("operator", i)
		if e.dry() {
			if _, dup := seen[c.Operators[i].ID]; dup {
				e.problem("id", "is %s, which an operator before it has", c.Operators[i].ID)
			}
			seen[c.Operators[i].ID] = struct{}{}
		}
		e.operator(&c.Operators[i])
		e.path.pop()
	}
	e.properties(c)
}

// header writes all in front of the operator count.
func (e *encoder) header(c *Checkpoint) {
	e.version, e.short = c.Version, c.Changelog114
	e.i32(fileMagic)
	e.i32(c.Version)
	if e.release != nil {
		e.checkVersion(c.Version)
	}
	if c.ID < 0 {
		e.problem("checkpointID", "is %d", c.ID)
	}
	e.i64(c.ID)
	e.length("masterStates", len(c.MasterStates))
	for i := range c.MasterStates {
		e.path.push("masterState", i)
		m := &c.MasterStates[i]
		e.i32(-0x3694e96a) // c96b1696
		e.length("payload", 10+len(m.Name)+len(m.Payload))
		e.i32(m.Version)
		e.utf("name", m.Name)
		e.bytes32("payload", m.Payload)
		e.path.pop()
	}
}

func (e *encoder) properties(c *Checkpoint) {
	switch {
	case c.Version < 4:
		if len(c.Properties) > 0 {
			e.problem("properties", "checkpoint properties need version 4")
		}
	case len(c.Properties) < 5:
		e.problem("properties", "are missing; version %d ends with a Java object stream, at least that of null", c.Version)
	case [4]byte(c.Properties[:4]) != propertiesMagic:
		e.problem("properties", "begin with %x, not with the header of a Java object stream", []byte(c.Properties[:4]))
	default:
		e.rest(c.Properties)
	}
}

func (e *encoder) operator(o *OperatorState) {
	if e.version >= 5 {
		e.utf("name", o.Name)
		e.utf("uid", o.UID)
	} else {
		if o.Name != "" {
			e.problem("name", "operator names (%q) need version 5", o.Name.Go())
		}
		if o.UID != "" {
			e.problem("uid", "operator uids (%q) need version 5", o.UID.Go())
		}
	}
	e.rest(o.ID[:])
	if o.Parallelism < 0 {
		e.problem("parallelism", "is %d", o.Parallelism)
	}
	if o.MaxParallelism < o.Parallelism || o.MaxParallelism > maxKeyGroups {
		e.problem("maxParallelism", "is %d with the parallelism %d; Flink allows up to %d", o.MaxParallelism, o.Parallelism, maxKeyGroups)
	}
	e.maxParallelism = o.MaxParallelism
	e.i32(o.Parallelism)
	e.i32(o.MaxParallelism)
	if e.version == 2 {
		e.i32(o.ChainLength)
		if o.Coordinator != nil {
			e.problem("coordinator", "coordinator state needs version 3")
		}
	} else {
		if o.ChainLength != 0 {
			e.problem("chainLength", "only version 2 has it")
		}
		if o.Coordinator != nil && o.Coordinator.Tag() != TagByteStream {
			e.problem("coordinator", "is a handle with tag %s; coordinator state is inline or absent", o.Coordinator.Tag())
		}
		e.path.enter("coordinator")
		e.stream(o.Coordinator)
		e.path.pop()
	}
	if o.FinishedCount < 0 {
		if e.version == 2 {
			e.problem("", "fully finished operators need version 3")
		}
		if len(o.Subtasks) > 0 {
			e.problem("", "is fully finished but has %d subtask states", len(o.Subtasks))
		}
		if o.Coordinator != nil {
			e.problem("coordinator", "is there though the operator is fully finished")
		}
		e.finishing()
		e.i32(o.FinishedCount)
		return
	}
	if o.FinishedCount > 0 {
		e.problem("", "has the finished count %d; finished operators have a negative one", o.FinishedCount)
	}
	e.length("subtasks", len(o.Subtasks))
	if e.dry() {
		e.uniqueSubtasks(o)
	}
	for i := range o.Subtasks {
		e.path.push("subtask", i)
		e.subtask(o, &o.Subtasks[i])
		e.path.pop()
	}
}

func (e *encoder) uniqueSubtasks(o *OperatorState) {
	sorted := true
	for i := 1; i < len(o.Subtasks); i++ {
		sorted = sorted && o.Subtasks[i].Index > o.Subtasks[i-1].Index
	}
	if sorted {
		return
	}
	seen := make(map[int32]struct{}, len(o.Subtasks))
	for i := range o.Subtasks {
		index := o.Subtasks[i].Index
		if _, dup := seen[index]; dup {
			e.path.push("subtask", i)
			e.problem("index", "is %d, which an entry before it has", index)
			e.path.pop()
		}
		seen[index] = struct{}{}
	}
}

// finishing checks that the release knows finished operators and subtasks.
func (e *encoder) finishing() {
	if e.release != nil && e.release.before(1, 14) {
		e.problem("", "finished operators and subtasks need Flink 1.14, not %s", e.release)
	}
}

func (e *encoder) subtask(o *OperatorState, s *SubtaskState) {
	if s.Index < 0 || s.Index >= o.Parallelism {
		e.problem("index", "is %d with the parallelism %d", s.Index, o.Parallelism)
	}
	if s.Finished {
		if e.version == 2 {
			e.problem("", "finished subtasks need version 3")
		}
		if s.ManagedOperator != nil || s.RawOperator != nil || s.ManagedKeyed != nil || s.RawKeyed != nil ||
			len(s.InputChannels)+len(s.OutputChannels) > 0 || s.ReferenceMarker != 0 {
			e.problem("", "is finished but has state")
		}
		e.finishing()
		e.i32(-s.Index - 1)
		return
	}
	e.i32(s.Index)
	if e.version == 2 {
		e.i64(s.Duration)
		e.i32(0)
	} else if s.Duration != 0 {
		e.problem("duration", "only version 2 has it")
	}
	e.flagged("managedOperator", s.ManagedOperatorFlag, s.ManagedOperator)
	e.flagged("rawOperator", s.RawOperatorFlag, s.RawOperator)
	e.path.enter("managedKeyed")
	e.keyed(s.ManagedKeyed)
	e.path.pop()
	e.path.enter("rawKeyed")
	e.keyed(s.RawKeyed)
	e.path.pop()
	if e.version >= 3 {
		e.channels("inputChannel", s.InputChannels, true)
		e.channels("outputChannel", s.OutputChannels, false)
	} else {
		if len(s.InputChannels) > 0 {
			e.problem("inputChannel", "channel state needs version 3")
		}
		if len(s.OutputChannels) > 0 {
			e.problem("outputChannel", "channel state needs version 3")
		}
	}
	if e.version >= 7 {
		e.u8(s.ReferenceMarker)
		if s.ReferenceMarker == 1 {
			e.i64(s.ReferenceID)
		}
	} else if s.ReferenceMarker != 0 {
		e.problem("referenceID", "references to older checkpoints (%d) need version 7", s.ReferenceID)
	}
}

func (e *encoder) flagged(slot string, flag int32, h *OperatorHandle) {
	e.path.enter(slot)
	if h != nil && flag == 0 {
		flag = 1 // a handle made by hand
	}
	e.i32(flag)
	if flag != 0 {
		e.operatorHandle(h)
	}
	e.path.pop()
}

var errSelfCheck = errors.New("self-check failed")

// selfCheck reads what would be written, and writes what was read.
func selfCheck(c *Checkpoint) error {
	pr, pw := io.Pipe()
	go func() {
		e := &encoder{w: pw, buf: make([]byte, 0, outputSize)}
		e.checkpoint(c)
		e.flush()
		pw.CloseWithError(e.err)
	}()
	err := verifyRoundTrip(pr, &DecodeOptions{Changelog114: c.Changelog114})
	pr.CloseWithError(errSelfCheck)
	if err != nil {
		return fmt.Errorf("%w: %w", errSelfCheck, err)
	}
	return nil
}
