package event

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// SourceKind is what a source's reader and its coordinator say to each other.
type SourceKind uint8

// Kinds, with the Flink class of the same meaning.
const (
	RegisterReader SourceKind = iota + 1 // reader to coordinator: ReaderRegistrationEvent; Host
	RequestSplit                         // reader to coordinator: RequestSplitEvent; Host
	AddSplits                            // coordinator to reader: AddSplitEvent; Version, Splits
	NoMoreSplits                         // coordinator to reader: NoMoreSplitsEvent
	SourceUser                           // both ways: SourceEventWrapper; Data
)

var sourceKinds = []string{"", "register reader", "request split", "add splits", "no more splits", "source event"}

func (k SourceKind) String() string { return named(sourceKinds, uint8(k), "source kind") }

// SourceEvent is an operator event between a source's coordinator and a reader.
type SourceEvent struct {
	Kind    SourceKind
	Version int32 // of the split serializer
	Host    string
	Splits  [][]byte
	Data    []byte
}

// Encode gives the bytes of a SourceEvent:
//
//	bytes  field
//	1      kind
//	4      version, big-endian
//	       host, data: each a uvarint length and bytes
//	       uvarint number of splits, then each like data
//
// It travels between the tasks of a running job only and is never stored.
func (e *SourceEvent) Encode() []byte {
	b := []byte{byte(e.Kind)}
	b = binary.BigEndian.AppendUint32(b, uint32(e.Version))
	put := func(p []byte) { b = append(binary.AppendUvarint(b, uint64(len(p))), p...) }
	put([]byte(e.Host))
	put(e.Data)
	b = binary.AppendUvarint(b, uint64(len(e.Splits)))
	for _, s := range e.Splits {
		put(s)
	}
	return b
}

var errSourceEvent = errors.New("source event is damaged")

// DecodeSource reads what Encode wrote. The slices of the result are those of b.
func DecodeSource(b []byte) (*SourceEvent, error) {
	if len(b) < 5 {
		return nil, fmt.Errorf("%d bytes: %w", len(b), errSourceEvent)
	}
	e := &SourceEvent{Kind: SourceKind(b[0]), Version: int32(binary.BigEndian.Uint32(b[1:]))}
	if e.Kind < RegisterReader || e.Kind > SourceUser {
		return nil, fmt.Errorf("kind %d: %w", b[0], errSourceEvent)
	}
	b = b[5:]
	ok := true
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			ok = false
			return 0
		}
		b = b[n:]
		return v
	}
	get := func() []byte {
		n := number()
		if !ok || n > uint64(len(b)) {
			ok = false
			return nil
		}
		p := b[:n:n]
		b = b[n:]
		return p
	}
	e.Host = string(get())
	if p := get(); len(p) > 0 {
		e.Data = p
	}
	n := number()
	if n > uint64(len(b)) { // each split has at least its length
		ok = false
	}
	for i := uint64(0); ok && i < n; i++ {
		e.Splits = append(e.Splits, get())
	}
	if !ok || len(b) > 0 {
		return nil, fmt.Errorf("%s: %w", e.Kind, errSourceEvent)
	}
	return e, nil
}
