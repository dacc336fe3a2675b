package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/task"
)

// SequenceSplit is a part of a sequence: the numbers From to To, both included, that
// are still to be read.
type SequenceSplit struct {
	ID       string
	From, To int64
}

// Sequence is the source of the numbers from, from+1, ... to. Its splits and the
// state of its enumerator are those of Flink's NumberSequenceSource, byte for byte.
// Records have no timestamp.
func Sequence(from, to int64) Source[int64, SequenceSplit, []SequenceSplit] {
	return sequence{from, to, 0}
}

// SlowSequence is a Sequence of which a subtask reads so many numbers each second.
func SlowSequence(from, to int64, perSecond float64) Source[int64, SequenceSplit, []SequenceSplit] {
	return sequence{from, to, perSecond}
}

type sequence struct {
	from, to int64
	rate     float64 // each second, in each subtask; 0 is no limit
}

func (sequence) Splits() VersionedSerializer[SequenceSplit]        { return sequenceSplits{} }
func (sequence) Checkpoints() VersionedSerializer[[]SequenceSplit] { return sequenceCheckpoints{} }

type sequenceSplits struct{}

func (sequenceSplits) Version() int32 { return 1 }

// Serialize: modified UTF-8 ID, int64 from, int64 to.
func (sequenceSplits) Serialize(s SequenceSplit) ([]byte, error) { return appendSplit(nil, s) }

func appendSplit(b []byte, s SequenceSplit) ([]byte, error) {
	id := javaio.NewString(s.ID)
	if len(id) > math.MaxUint16 {
		return nil, fmt.Errorf("the ID of a split has %d bytes", len(id))
	}
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(id))), id...)
	return javaio.AppendI64(javaio.AppendI64(b, s.From), s.To), nil
}

func (sequenceSplits) Deserialize(version int32, b []byte) (s SequenceSplit, err error) {
	if version != 1 {
		return s, fmt.Errorf("sequence split of version %d; version 1 is known", version)
	}
	s, b, err = readSplit(b)
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("sequence split: %d bytes follow it", len(b))
	}
	return s, err
}

func readSplit(b []byte) (s SequenceSplit, rest []byte, err error) {
	if len(b) < 2 || len(b) < 18+int(binary.BigEndian.Uint16(b)) {
		return s, nil, errors.New("sequence split ends early")
	}
	n := int(binary.BigEndian.Uint16(b))
	raw := javaio.String(b[2 : 2+n])
	if s.ID = raw.Go(); javaio.NewString(s.ID) != raw {
		return s, nil, fmt.Errorf("a split of a sequence has an ID that is no text: %q", string(raw))
	}
	b = b[2+n:]
	s.From, s.To = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))
	return s, b[16:], nil
}

type sequenceCheckpoints struct{}

func (sequenceCheckpoints) Version() int32 { return 1 }

// Serialize: int32 count, then the splits.
func (sequenceCheckpoints) Serialize(list []SequenceSplit) (b []byte, err error) {
	b = javaio.AppendI32(nil, int32(len(list)))
	for _, s := range list {
		if b, err = appendSplit(b, s); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (sequenceCheckpoints) Deserialize(version int32, b []byte) (list []SequenceSplit, err error) {
	if version != 1 {
		return nil, fmt.Errorf("sequence enumerator of version %d; version 1 is known", version)
	}
	if len(b) < 4 {
		return nil, errors.New("sequence enumerator ends early")
	}
	n := int32(binary.BigEndian.Uint32(b))
	if b = b[4:]; n < 0 || int64(n)*18 > int64(len(b)) {
		return nil, fmt.Errorf("sequence enumerator: %d splits in %d bytes", n, len(b))
	}
	for range n {
		var s SequenceSplit
		if s, b, err = readSplit(b); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("sequence enumerator: %d bytes follow it", len(b))
	}
	return list, nil
}

// splitSequence cuts a range into parts whose lengths differ by one at most, as
// Flink's NumberSequenceIterator.split does for ranges below 2^63 numbers.
func splitSequence(from, to int64, parts int) []SequenceSplit {
	if from > to {
		return nil
	}
	last := uint64(to) - uint64(from) // one less than how many there are
	n := uint64(parts)
	// (last+1) / n without overflow.
	hi, lo := uint64(0), last+1
	if lo == 0 {
		hi = 1
	}
	var each, extra uint64
	if hi >= n { // 2^64 numbers in one part
		return []SequenceSplit{{"1", from, to}}
	}
	each, extra = bits.Div64(hi, lo, n)
	var list []SequenceSplit
	at := uint64(from)
	for i := range n {
		length := each
		if i < extra {
			length++
		}
		if length == 0 {
			break
		}
		list = append(list, SequenceSplit{strconv.Itoa(len(list) + 1), int64(at), int64(at + length - 1)})
		at += length
	}
	return list
}

func (s sequence) NewEnumerator(c checkpoint.EnumeratorContext[SequenceSplit], restored *[]SequenceSplit) (checkpoint.SplitEnumerator[SequenceSplit, []SequenceSplit], error) {
	e := &sequenceEnumerator{c: c}
	if restored != nil {
		e.left = *restored
	} else {
		e.left = splitSequence(s.from, s.to, int(c.Parallelism()))
	}
	return e, nil
}

// sequenceEnumerator is Flink's IteratorSourceEnumerator.
type sequenceEnumerator struct {
	c    checkpoint.EnumeratorContext[SequenceSplit]
	left []SequenceSplit
}

func (e *sequenceEnumerator) Start() error          { return nil }
func (e *sequenceEnumerator) AddReader(int32) error { return nil }
func (e *sequenceEnumerator) Close() error          { return nil }

func (e *sequenceEnumerator) HandleSplitRequest(subtask int32, _ string) error {
	if len(e.left) == 0 {
		return e.c.NoMoreSplits(subtask)
	}
	s := e.left[0]
	e.left = e.left[1:]
	return e.c.Assign(subtask, s)
}

func (e *sequenceEnumerator) AddSplitsBack(splits []SequenceSplit, _ int32) error {
	e.left = append(e.left, splits...)
	return nil
}

func (e *sequenceEnumerator) Snapshot(int64) ([]SequenceSplit, error) {
	return append([]SequenceSplit(nil), e.left...), nil
}

func (s sequence) NewReader(e *task.Env) (Reader[int64, SequenceSplit], error) {
	return &sequenceReader{env: e, rate: s.rate}, nil
}

// sequenceReader is Flink's IteratorSourceReader.
type sequenceReader struct {
	env     *task.Env
	splits  []SequenceSplit // the first is being read
	noMore  bool
	rate    float64
	begun   time.Time
	emitted int64
	stop    func()
}

func (r *sequenceReader) Start() error {
	r.begun = time.Now()
	if len(r.splits) == 0 {
		return RequestSplit(r.env)
	}
	return nil
}

func (r *sequenceReader) Add(splits []SequenceSplit) error {
	r.splits = append(r.splits, splits...)
	return nil
}

func (r *sequenceReader) NoMoreSplits() error {
	r.noMore = true
	return nil
}

func (r *sequenceReader) Poll(out *task.Collector[int64]) (task.PollResult, error) {
	for len(r.splits) > 0 && r.splits[0].From > r.splits[0].To {
		r.splits = r.splits[1:]
		if len(r.splits) == 0 && !r.noMore {
			if err := RequestSplit(r.env); err != nil {
				return 0, err
			}
		}
	}
	if len(r.splits) == 0 {
		if r.noMore {
			return task.PollEnd, nil
		}
		return task.PollNone, nil
	}
	n := int64(task.BatchSize)
	if r.rate > 0 {
		due := int64(time.Since(r.begun).Seconds()*r.rate) - r.emitted
		if due <= 0 {
			wait := time.Duration(float64(r.emitted+1)/r.rate*1e9) - time.Since(r.begun)
			timer := time.AfterFunc(max(wait, time.Millisecond), r.env.Wake)
			r.stop = func() { timer.Stop() }
			return task.PollNone, nil
		}
		n = min(n, due)
	}
	s := &r.splits[0]
	if left := uint64(s.To) - uint64(s.From); left < uint64(n) {
		n = int64(left) + 1
	}
	for v := s.From; n > 0; n-- {
		out.Add(v, task.NoTimestamp)
		r.emitted++
		if v == math.MaxInt64 {
			s.To-- // the end of all numbers: From cannot go past it
			break
		}
		v++
		s.From = v
	}
	return task.PollMore, nil
}

func (r *sequenceReader) Snapshot(int64) ([]SequenceSplit, error) {
	var list []SequenceSplit
	for _, s := range r.splits {
		if s.From <= s.To {
			list = append(list, s)
		}
	}
	return list, nil
}

func (r *sequenceReader) Close() error {
	if r.stop != nil {
		r.stop()
	}
	return nil
}
