package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// Prefixes of the names under which Flink keeps timers as states.
const (
	eventTimers      = "_timer_state/event_"
	processingTimers = "_timer_state/processing_"
)

// legacyMagic begins the timers of one key group in raw keyed state.
const legacyMagic = 0xf1cd859f

// isLegacyTimers looks at the first key group that has bytes.
func isLegacyTimers(ctx context.Context, src sst.Source, regions []stream.Region) (bool, error) {
	for _, r := range regions {
		if r.To-r.From < 4 {
			continue
		}
		var b [4]byte
		if _, err := src.ReadAt(ctx, b[:], r.From); err != nil {
			return false, err
		}
		return be32(b[:]) == legacyMagic, nil
	}
	return false, nil
}

// legacyTimers reads the timers that RocksDB with heap timers, and ForSt, keep in
// raw keyed state. Of each key group:
//
//	int32 magic 0xf1cd859f, int32 version 2, int32 n, n × service
//	service := utf name, SNAP of the key, SNAP of the namespace,
//	           int32 n, n × timer (event time), int32 n, n × timer (processing time)
//	timer   := key namespace int64 timestamp
//
// Source: Flink, InternalTimerServiceSerializationProxy.java and
// InternalTimersSnapshotReaderWriters.java.
func (sc *scan) legacyTimers(ctx context.Context, j handleJob, src sst.Source, name string, regions []stream.Region) ([]*unit, error) {
	if r := regions[0]; sc.metaOnly {
		b, err := readRange(ctx, src, name, r.From, r.To)
		if err != nil {
			return nil, err
		}
		return nil, sc.readLegacyTimers(&worker{scan: sc, emit: func(*StateRow) error { return nil }, unit: &unit{operator: j.operator, subtask: j.subtask}}, b, name, r)
	}
	return j.single(func(ctx context.Context, w *worker) error {
		for _, r := range regions {
			b, err := readRange(ctx, src, name, r.From, r.To)
			if err == nil {
				err = sc.readLegacyTimers(w, b, name, r)
			}
			if err != nil {
				var stop *emitError
				if errors.As(err, &stop) {
					return stop.err
				}
				if err = w.problem("", r.KeyGroup, err); err != nil {
					return err
				}
			}
		}
		return nil
	}), nil
}

// emitError marks an error of the consumer, which ends the scan.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

func (sc *scan) readLegacyTimers(w *worker, b []byte, name string, region stream.Region) error {
	r := javaio.NewReader(b)
	fail := func(field, detail string) error {
		return &damage.Error{Name: name, Offset: region.From + int64(r.Offset()), Field: field, Detail: detail, Err: damage.ErrCorrupt}
	}
	if magic := uint32(r.I32()); magic != legacyMagic {
		return fail("timer magic", fmt.Sprintf("is %#x", magic))
	}
	if v := r.I32(); v != 2 {
		return &damage.Error{Name: name, Offset: region.From + 4, Field: "timer version", Detail: fmt.Sprintf("is %d", v), Err: damage.ErrUnsupportedVersion}
	}
	for range r.Count(2 + 2*6 + 8) {
		service := r.UTF().Go()
		if r.Err() != nil {
			break
		}
		keyType, err := serializer.ReadVersionedSnapshot(r)
		if err != nil {
			return named(name, err)
		}
		nsType, err := serializer.ReadVersionedSnapshot(r)
		if err != nil {
			return named(name, err)
		}
		for _, prefix := range []string{eventTimers, processingTimers} {
			state := sc.cat.add(w.unit.operator, w.unit.subtask, prefix+service, StateTimer, keyType, nsType, nil, nil, false)
			if err := sc.legacyQueue(w, r, state, name, region); err != nil {
				return err
			}
		}
	}
	if err := r.Err(); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fail("timers", "end early")
		}
		return fail("timers", err.Error())
	}
	if r.Len() > 0 {
		return fail("timers", fmt.Sprintf("are followed by %d bytes", r.Len()))
	}
	return nil
}

func (sc *scan) legacyQueue(w *worker, r *javaio.Reader, state *State, name string, region stream.Region) error {
	plain := sc.decode(false)
	key, ns := serializer.NewDecoder(state.Key, plain), serializer.NewDecoder(state.Namespace, plain)
	dec := &rowDecoders{key: key, namespace: ns}
	wanted := sc.wants(state)
	match := sc.keyMatch(state.Key)
	for range r.Count(8) {
		at := region.From + int64(r.Offset())
		b := r.Peek()
		n, err := key.Skip(b)
		m := 0
		if err == nil {
			m, err = ns.Skip(b[n:])
		}
		if err != nil || len(b)-n-m < 8 {
			return &damage.Error{Name: name, Offset: at, Field: "timer", Detail: "is damaged", Err: errors.Join(damage.ErrCorrupt, err)}
		}
		r.Next(n + m)
		ts := r.I64()
		if !wanted {
			continue
		}
		w.row = StateRow{State: state, Subtask: w.unit.subtask, KeyGroup: region.KeyGroup, Key: b[:n:n], Namespace: b[n : n+m : n+m], Timestamp: ts, File: name, Offset: at, dec: dec}
		if !match.row(&w.row) {
			continue
		}
		if err := w.emit(&w.row); err != nil {
			return &emitError{err}
		}
	}
	return nil
}
