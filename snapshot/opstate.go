package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// Names of states that Flink's own operators register.
const (
	stateCoordinator  = "coordinator"
	stateRawKeyed     = "raw-keyed"
	stateRawOperator  = "_default_"
	stateSourceReader = "SourceReaderState"
	stateSinkWriter   = "writer_raw_states"
	stateCommitter    = "streaming_committer_raw_states"
	committablesName  = "committables"
)

// snappyHead is the length of the identifier in front of snappy frames.
const snappyHead = 10

// single makes the one unit of a handle that is small by nature.
func (j handleJob) single(run func(ctx context.Context, w *worker) error) []*unit {
	return []*unit{{operator: j.operator, subtask: j.subtask, run: run}}
}

// wants registers a state and reports whether it is selected.
func (sc *scan) wants(s *State) bool { return sc.opts.State == nil || sc.opts.State(s) }

// coordinator is the state of an operator's coordinator. That of a FLIP-27 source
// is recognized by its frame:
//
//	int32 version (1), int32 version of the enumerator's serializer,
//	int32 length, bytes
//
// Source: Flink, SourceCoordinatorSerdeUtils.java.
func (sc *scan) coordinator(j handleJob, h *metadata.ByteStreamHandle) ([]*unit, error) {
	version, payload, ok := sourceCoordinator(h.Data)
	kind := StateCoordinator
	if ok {
		kind = StateSourceCoordinator
	}
	state := sc.cat.add(j.operator, j.subtask, stateCoordinator, kind, nil, nil, nil, nil, false)
	if !sc.wants(state) || sc.verify != nil && !sc.verify.partition(sc.s.Name, "", nil, false, j.operator.Position) {
		return nil, nil
	}
	return j.single(func(_ context.Context, w *worker) error {
		w.row = StateRow{State: state, Subtask: -1, KeyGroup: -1, Value: h.Data, Form: FormBytes, File: sc.s.Location.String(), Offset: -1}
		if ok {
			w.row.Form, w.row.Value, w.row.Version = FormVersionedBytes, payload, version
		}
		return w.emit(&w.row)
	}), nil
}

func sourceCoordinator(b []byte) (version int32, payload []byte, ok bool) {
	if len(b) < 12 || be32(b) != 1 || int64(be32(b[8:])) != int64(len(b)-12) {
		return 0, nil, false
	}
	return int32(be32(b[4:])), b[12:], true
}

// master is the state of a master hook.
func (sc *scan) master(j handleJob, m *metadata.MasterState) ([]*unit, error) {
	state := sc.cat.add(j.operator, j.subtask, m.Name.Go(), StateMaster, nil, nil, nil, nil, false)
	if !sc.wants(state) || sc.verify != nil && !sc.verify.partition(sc.s.Name+m.Name.Go(), "", nil, false, 0) {
		return nil, nil
	}
	return j.single(func(_ context.Context, w *worker) error {
		w.row = StateRow{State: state, Subtask: -1, KeyGroup: -1, Value: m.Payload, Form: FormVersionedBytes, Version: m.Version, File: sc.s.Location.String(), Offset: -1}
		return w.emit(&w.row)
	}), nil
}

// rawKeyed is raw keyed state: legacy timers if they are, else bytes.
func (sc *scan) rawKeyed(ctx context.Context, j handleJob, h metadata.KeyedHandle) ([]*unit, error) {
	g, ok := h.(*metadata.KeyGroupsHandle)
	if !ok {
		return nil, fmt.Errorf("raw keyed state has a handle of tag %d: %w", h.Tag(), damage.ErrCorrupt)
	}
	src, name, err := sc.s.OpenStream(ctx, g.Delegate, false)
	if err != nil || src == nil {
		return nil, err
	}
	regions, err := stream.Regions(name, g.Range.Start, g.Offsets, src.Size(), -1)
	if err != nil {
		return nil, err
	}
	if r := sc.opts.KeyGroups; r != nil {
		var kept []stream.Region
		for _, x := range regions {
			if r.Contains(x.KeyGroup) {
				kept = append(kept, x)
			}
		}
		regions = kept
	}
	if len(regions) == 0 {
		return nil, nil
	}
	if sc.verify != nil {
		regions = sc.verify.rawKeyed(name, src, regions)
		if len(regions) == 0 {
			return nil, nil
		}
	}
	timers, err := isLegacyTimers(ctx, src, regions)
	if err != nil {
		return nil, err
	}
	if timers {
		return sc.legacyTimers(ctx, j, src, name, regions)
	}
	state := sc.cat.add(j.operator, j.subtask, stateRawKeyed, StateRawKeyed, nil, nil, nil, nil, false)
	if !sc.wants(state) || sc.narrowed() {
		return nil, nil
	}
	return j.single(func(ctx context.Context, w *worker) error {
		for _, r := range regions {
			b, err := readRange(ctx, src, name, r.From, r.To)
			if err != nil {
				if err = w.problem(state.Name, r.KeyGroup, err); err != nil {
					return err
				}
				continue
			}
			w.row = StateRow{State: state, Subtask: j.subtask, KeyGroup: r.KeyGroup, Value: b, Form: FormBytes, File: name, Offset: r.From}
			if err := w.emit(&w.row); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// readRange reads bytes [from, to) of src, both inside it.
func readRange(ctx context.Context, src sst.Source, name string, from, to int64) ([]byte, error) {
	if from < 0 || to < from || to > src.Size() || to-from > math.MaxInt32 {
		return nil, &damage.Error{Name: name, Offset: from, Field: "range", Detail: fmt.Sprintf("to byte %d of %d", to, src.Size()), Err: damage.ErrCorrupt}
	}
	b := make([]byte, to-from)
	if len(b) == 0 {
		return b, nil
	}
	if _, err := src.ReadAt(ctx, b, from); err != nil {
		return nil, readError(name, err)
	}
	return b, nil
}

// rawOperator is raw operator state: bytes of each partition, which reaches to the
// next one.
func (sc *scan) rawOperator(ctx context.Context, j handleJob, h *metadata.OperatorHandle) ([]*unit, error) {
	src, name, err := sc.s.OpenStream(ctx, h.Delegate, false)
	if err != nil || src == nil {
		return nil, err
	}
	op := stream.NewOperator(ctx, src, name, false, allOffsets(h))
	var units []*unit
	for i := range h.States {
		p := &h.States[i]
		state := sc.cat.add(j.operator, j.subtask, p.Name.Go(), StateRawOperator, nil, nil, nil, nil, false)
		if !sc.wants(state) || sc.verify != nil && !sc.verify.partition(name, "raw operator state", src, false, i) {
			continue
		}
		units = append(units, j.single(func(ctx context.Context, w *worker) error {
			var value []byte
			for _, o := range p.Offsets {
				from, to, err := op.Extent(o)
				if err == nil {
					var b []byte
					if b, err = readRange(ctx, src, name, from, to); err == nil {
						value = append(binary.BigEndian.AppendUint32(value, uint32(len(b))), b...)
					}
				}
				if err != nil {
					if err = w.problem(state.Name, -1, err); err != nil {
						return err
					}
				}
			}
			w.row = StateRow{State: state, Subtask: j.subtask, KeyGroup: -1, Value: value, Form: FormByteParts, File: name, Offset: -1}
			return w.emit(&w.row)
		})...)
	}
	return units, nil
}

func allOffsets(h *metadata.OperatorHandle) []int64 {
	var all []int64
	for i := range h.States {
		all = append(all, h.States[i].Offsets...)
	}
	return all
}

// managedOperator is list, union and broadcast state.
func (sc *scan) managedOperator(ctx context.Context, j handleJob, h *metadata.OperatorHandle, o *metadata.OperatorState) ([]*unit, error) {
	src, name, err := sc.s.OpenStream(ctx, h.Delegate, false)
	if err != nil || src == nil {
		return nil, err
	}
	if h.Empty || src.Size() == 0 {
		return nil, nil
	}
	offsets := allOffsets(h)
	limit := src.Size()
	for _, x := range offsets {
		if x > 0 {
			limit = min(limit, x)
		}
	}
	head, err := readHead(ctx, src, name, limit)
	if err != nil {
		return nil, err
	}
	meta, err := serializer.ReadOperatorBackendMeta(javaio.NewReader(head))
	if err != nil {
		return nil, named(name, err)
	}
	if sc.verify != nil {
		end := meta.Size
		if meta.Compressed && (limit < src.Size() || limit == end+snappyHead) { // a file without partitions has the head, too
			end += snappyHead
		}
		sc.verify.metaEnd(j, name, "operator state", end, limit)
	}
	for _, u := range meta.Unknown {
		if err := sc.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Opaque: true, Err: named(name, &u)}); err != nil {
			return nil, err
		}
	}
	metas := map[string]*serializer.StateMeta{}
	for _, list := range [][]serializer.StateMeta{meta.Lists, meta.Broadcasts} {
		for i := range list {
			metas[list[i].Name] = &list[i]
		}
	}
	var units []*unit
	for i := range h.States {
		p := &h.States[i]
		m := metas[p.Name.Go()]
		if m == nil {
			if err := sc.problem(&ScanProblem{Operator: j.operator, State: p.Name.Go(), Subtask: j.subtask, KeyGroup: -1, Opaque: meta.Open,
				Err: fmt.Errorf("%s: the state is not in the file's meta block: %w", name, damage.ErrCorrupt)}); err != nil {
				return nil, err
			}
			continue
		}
		// Every subtask has a copy of a broadcast state: the first one's is read.
		if p.Mode == metadata.ModeBroadcast && j.subtask != firstWithState(o, p.Name) && sc.verify == nil {
			continue
		}
		if sc.verify != nil && !sc.verify.partition(name, "operator state", src, meta.Compressed, i) {
			continue
		}
		units = append(units, sc.operatorState(j, src, name, meta, m, p, offsets)...)
	}
	return units, nil
}

// firstWithState is the subtask whose entry is the first that holds the state.
func firstWithState(o *metadata.OperatorState, name metadata.String) int32 {
	for i := range o.Subtasks {
		if h := o.Subtasks[i].ManagedOperator; h != nil {
			for k := range h.States {
				if h.States[k].Name == name {
					return o.Subtasks[i].Index
				}
			}
		}
	}
	return -1
}

func (sc *scan) operatorState(j handleJob, src sst.Source, name string, meta *serializer.OperatorBackendMeta, m *serializer.StateMeta, p *metadata.NamedPartitions, offsets []int64) []*unit {
	plain := sc.decode(false)
	if p.Mode == metadata.ModeBroadcast {
		keyType, valueType := m.MapTypes()
		state := sc.cat.add(j.operator, j.subtask, m.Name, StateBroadcast, nil, nil, keyType, valueType, false)
		if !sc.wants(state) {
			return nil
		}
		return j.single(func(ctx context.Context, w *worker) error {
			op := stream.NewOperator(ctx, src, name, meta.Compressed, offsets)
			if err := sc.readBroadcast(w, op, state, keyType, valueType, p, name); err != nil {
				return w.problem(state.Name, -1, err)
			}
			return nil
		})
	}
	kind := StateOperatorList
	if p.Mode == metadata.ModeUnion {
		kind = StateUnion
	}
	elem := m.Value()
	stored := m.Name
	versioned := elem != nil && elem.Kind == serializer.KindBytes
	switch {
	case versioned && stored == stateSinkWriter:
		kind = StateSinkWriter
	case versioned && stored == stateCommitter:
		kind, stored = StateCommittables, committablesName
	case !versioned || stored != stateSourceReader:
		versioned = false
	}
	state := sc.cat.add(j.operator, j.subtask, stored, kind, nil, nil, nil, elem, false)
	if !sc.wants(state) {
		return nil
	}
	return j.single(func(ctx context.Context, w *worker) error {
		op := stream.NewOperator(ctx, src, name, meta.Compressed, offsets)
		var skip stream.Skipper = noSkipper{}
		dec := &rowDecoders{}
		if elem != nil {
			skip = serializer.NewDecoder(elem, plain)
			dec.elem = serializer.NewDecoder(elem, plain)
		}
		w.row = StateRow{State: state, Subtask: j.subtask, KeyGroup: -1, Form: FormElements, File: name, Offset: -1, dec: dec}
		var value []byte
		for _, o := range p.Offsets {
			b, err := readElement(op, o, m.Name, skip)
			if err != nil {
				if err = w.problem(state.Name, -1, err); err != nil {
					return err
				}
				continue
			}
			value = append(value, b...)
		}
		w.row.Value = value
		if versioned {
			if kind == StateCommittables {
				value = committables(value)
			}
			if v, ok := commonVersion(value); ok {
				w.row.Form, w.row.Value, w.row.Version = FormVersioned, value, v
			}
		}
		return w.emit(&w.row)
	})
}

func readElement(op *stream.Operator, offset int64, field string, s stream.Skipper) ([]byte, error) {
	if err := op.Open(offset); err != nil {
		return nil, err
	}
	b, err := op.Value(field, s)
	if err != nil {
		return nil, err
	}
	b = bytes.Clone(b) // End may read on
	return b, op.End()
}

// commonVersion checks that every part of value is int32 version, int32 length
// and that many bytes, all of one version.
func commonVersion(value []byte) (version int32, ok bool) {
	for b := value; len(b) > 0; {
		if len(b) < 12 {
			return 0, false
		}
		n := int64(be32(b))
		if n < 8 || n > int64(len(b)-4) || int64(be32(b[8:])) != n-8 {
			return 0, false
		}
		v := int32(be32(b[4:]))
		if ok && v != version {
			return 0, false
		}
		version, ok = v, true
		b = b[4+n:]
	}
	return version, ok
}

func (sc *scan) readBroadcast(w *worker, op *stream.Operator, state *State, keyType, valueType *serializer.Type, p *metadata.NamedPartitions, name string) error {
	plain := sc.decode(false)
	framed := sc.decode(true)
	if keyType == nil || valueType == nil {
		return &serializer.OpaqueError{}
	}
	key, value := serializer.NewDecoder(keyType, plain), serializer.NewDecoder(valueType, plain)
	dec := &rowDecoders{userKey: serializer.NewDecoder(keyType, framed), value: serializer.NewDecoder(valueType, framed)}
	for _, o := range p.Offsets {
		if err := op.Open(o); err != nil {
			return err
		}
		n, err := op.Count()
		if err != nil {
			return err
		}
		for range n {
			at := op.Offset()
			k, v, err := op.Pair(key, value)
			if err != nil {
				return err
			}
			w.row = StateRow{State: state, Subtask: w.unit.subtask, KeyGroup: -1, UserKey: k, Value: v, Form: FormValue, File: name, Offset: at, dec: dec}
			if err := w.emit(&w.row); err != nil {
				return err
			}
		}
		if err := op.End(); err != nil {
			return err
		}
	}
	return nil
}
