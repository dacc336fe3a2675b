package lsm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// tables is the handle of one subtask's database.
type tables struct {
	handle *metadata.IncrementalHandle
	meta   *serializer.KeyedBackendMeta
}

// maxMeta bounds the meta information of a handle.
const maxMeta = 64 << 20

// isTables tells whether a handle is one of ours.
func isTables(h *metadata.IncrementalHandle) bool {
	for _, p := range h.Private {
		if p.Name.Go() == pebbledb.SumsName {
			return true
		}
	}
	return false
}

// tablesOf gives the handles that overlap the backend's key groups, of the operator that is
// restored; nil unless all are ours.
func (b *Backend[K]) tablesOf(ctx context.Context, s *source) (ours []tables, position int, err error) {
	position = -1
	c := s.Snapshot.Checkpoint
	for i := range c.Operators {
		op := &c.Operators[i]
		var of []tables
		other := false
		for j := range op.Subtasks {
			h := op.Subtasks[j].ManagedKeyed
			if h == nil {
				continue
			}
			inc, ok := h.(*metadata.IncrementalHandle)
			if !ok || !isTables(inc) {
				other = true
				break
			}
			of = append(of, tables{handle: inc})
		}
		if other || len(of) == 0 {
			continue
		}
		if s.Operator != nil && !s.Operator(stateOperator(i, op)) {
			continue
		}
		if position >= 0 {
			return nil, 0, fmt.Errorf("%s and %s both have keyed state: select one of them", operatorName(stateOperator(position, &c.Operators[position])), operatorName(stateOperator(i, op)))
		}
		ours, position = of, i
	}
	for i := range ours {
		src, name, err := s.Snapshot.OpenStream(ctx, ours[i].handle.Meta, false)
		if err != nil {
			return nil, 0, err
		}
		if src == nil {
			return nil, 0, fmt.Errorf("the state of subtask %d has no meta information: %w", i, metadata.ErrCorrupt)
		}
		data, err := readAll(ctx, src, name)
		if err != nil {
			return nil, 0, err
		}
		if ours[i].meta, err = readMeta(ctx, data); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	return ours, position, nil
}

func readAll(ctx context.Context, src sst.Source, name string) ([]byte, error) {
	size := src.Size()
	if size < 0 || size > maxMeta {
		return nil, &metadata.FormatError{Name: name, Offset: -1, Detail: fmt.Sprintf("has %d bytes, too many for meta information", size), Err: metadata.ErrCorrupt}
	}
	data := make([]byte, size)
	n, err := src.ReadAt(ctx, data, 0)
	switch {
	case int64(n) == size:
		return data, nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &metadata.FormatError{Name: name, Offset: int64(n), Detail: fmt.Sprintf("ends, the handle says %d bytes", size), Err: metadata.ErrCorrupt}
	case errors.Is(err, blobstore.ErrNotExist):
		return nil, &metadata.FormatError{Name: name, Offset: -1, Detail: "the handle points at nothing", Err: metadata.ErrCorrupt}
	}
	return nil, fmt.Errorf("%s: %w", name, err) // of the store, or of ctx: no damage
}

func stateOperator(i int, op *metadata.OperatorState) *snapshot.StateOperator {
	return &snapshot.StateOperator{
		Position: i, ID: op.ID.String(), UID: op.UID.Go(), Name: op.Name.Go(), MaxParallelism: op.MaxParallelism, Parallelism: op.Parallelism,
	}
}

// statesOf lists the states of a source.
func (b *Backend[K]) statesOf(ctx context.Context, s *source) ([]*snapshot.State, error) {
	ours, position, err := b.tablesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	if position < 0 {
		return snapshot.States(ctx, s.Snapshot, s.opts)
	}
	s.tables = ours
	op := stateOperator(position, &s.Snapshot.Checkpoint.Operators[position])
	var states []*snapshot.State
	for _, t := range ours {
		for i := range t.meta.States {
			_, st := typesOf(&t.meta.States[i], t.meta.Key)
			st.Operator = op
			states = append(states, st)
		}
	}
	return states, nil
}

// sameStates tells whether all databases number their states alike and declare them with
// the same types, so that their rows need not be rewritten, and gives the longest list.
func sameStates(all []tables) (states []serializer.StateMeta, same bool) {
	for _, t := range all {
		a, b := states, t.meta.States
		if len(a) > len(b) {
			a, b = b, a
		}
		for i := range a {
			if a[i].Name != b[i].Name || sameState(&a[i], &b[i]) != nil {
				return nil, false
			}
		}
		states = b
	}
	return states, true
}

// sameState compares two declarations of a state.
func sameState(a, b *serializer.StateMeta) error {
	_, x := typesOf(a, nil)
	_, y := typesOf(b, nil)
	if x.Kind != y.Kind {
		return fmt.Errorf("is a %s state in one place and a %s state in another: %w", x.Kind, y.Kind, keyed.ErrIncompatible)
	}
	return keyed.SameTypes(x, y)
}

// checkStates compares what subtasks say of a state that nobody has registered: its types
// have to be the same. They differ if some subtasks had registered it with a new type, and
// others not yet. Rows of a registered state are converted, those of each subtask by
// themselves.
func (b *Backend[K]) checkStates(all []tables) error {
	first := map[string]*serializer.StateMeta{}
	for _, t := range all {
		if t.meta.Key == nil {
			return fmt.Errorf("the type of the keys is not known: %w", metadata.ErrCorrupt)
		}
		if c := serializer.CompatKey(t.meta.Key, b.keys.Serializer.Type()); c.Verdict != serializer.AsIs {
			name := "of no name"
			if len(t.meta.States) > 0 {
				name = t.meta.States[0].Name
			}
			return fmt.Errorf("state %s: key: %s: %w", name, c, keyed.ErrIncompatible)
		}
		seen := map[string]bool{}
		for i := range t.meta.States {
			m := &t.meta.States[i]
			if seen[m.Name] {
				return fmt.Errorf("state %s is declared twice: %w", m.Name, metadata.ErrCorrupt)
			}
			seen[m.Name] = true
			f := first[m.Name]
			if f == nil {
				first[m.Name] = m
				continue
			}
			if at, known := b.byName[m.Name]; known && b.states[at].st != nil {
				continue
			}
			if err := sameState(f, m); err != nil {
				return fmt.Errorf("state %s: subtasks declare it with different types: %w", m.Name, err)
			}
		}
	}
	return nil
}

// overlapping gives the databases that have some of the backend's key groups.
func (b *Backend[K]) overlapping(s *source) (mine []tables) {
	want := b.KeyGroups()
	for _, t := range s.tables {
		r := t.handle.Range
		if r.Start <= want.End() && r.End() >= want.Start {
			mine = append(mine, t)
		}
	}
	return mine
}

// pebbleSource tells the database where the files of a checkpoint are.
func (s *source) pebbleSource(t tables) pebbledb.Source {
	return pebbledb.Source{
		Name:   fmt.Sprintf("%s, key groups %d to %d", s.Snapshot.Location, t.handle.Range.Start, t.handle.Range.End()),
		Handle: t.handle,
		Open: func(ctx context.Context, h metadata.StreamHandle) (sst.Source, error) {
			src, _, err := s.Snapshot.OpenStream(ctx, h, false)
			return src, err
		},
	}
}

// openTables opens the databases of a checkpoint as the backend's; ok is false if their
// rows have to be copied.
func (b *Backend[K]) openTables(ctx context.Context, s *source) (ok bool, err error) {
	mine := b.overlapping(s)
	metas, same := sameStates(mine)
	if !same {
		return false, nil
	}
	if err := b.checkStates(mine); err != nil {
		return false, err
	}
	type migration struct {
		id      uint16
		old     *snapshot.State
		convert serializer.Convert
	}
	var migrations []migration
	var states []state
	byName := map[string]int{}
	for i := range metas {
		st := state{meta: metas[i]}
		if at, known := b.byName[metas[i].Name]; known && b.states[at].st != nil {
			types, old := typesOf(&metas[i], mine[0].meta.Key)
			reg := b.states[at]
			if err := keyed.SameKind(old, &reg.meta); err != nil {
				return false, fmt.Errorf("state %s: %w", metas[i].Name, err)
			}
			convert, err := reg.st.Convert(types)
			if err != nil {
				return false, fmt.Errorf("state %s: %w", metas[i].Name, err)
			}
			if convert != nil {
				migrations = append(migrations, migration{uint16(i), old, convert})
			}
			st = reg
		}
		byName[metas[i].Name] = i
		states = append(states, st)
	}
	for _, st := range b.states {
		if _, known := byName[st.meta.Name]; !known {
			byName[st.meta.Name] = len(states)
			states = append(states, st)
		}
	}
	var sources []pebbledb.Source
	for _, t := range mine {
		sources = append(sources, s.pebbleSource(t))
	}
	b.drains.close()
	b.rows.renew()
	if err := b.db.Close(); err != nil {
		return false, err
	}
	db, err := pebbledb.Restore(ctx, b.opts.Process.db, b.dir, sources, &b.opts.Database)
	if err != nil {
		return false, err
	}
	b.mu.Lock()
	b.db = db
	b.mu.Unlock()
	b.states, b.byName, b.fresh = states, byName, false
	for i, st := range b.states {
		if st.st != nil {
			st.st.Renumber(uint16(i))
		}
	}
	b.use()
	for _, m := range migrations {
		if err := b.migrate(m.id, m.old, m.convert); err != nil {
			return false, fmt.Errorf("state %s: %w", b.states[m.id].meta.Name, err)
		}
	}
	return true, nil
}

// copyTables copies the rows of databases that number their states in other ways.
func (b *Backend[K]) copyTables(ctx context.Context, s *source) (rows int64, err error) {
	mine := b.overlapping(s)
	if err := b.checkStates(mine); err != nil {
		return 0, err
	}
	for _, st := range s.states {
		if err := b.expect(st); err != nil {
			return 0, fmt.Errorf("state %s: %w", st.Name, err)
		}
	}
	if err := b.db.Acquire(); err != nil {
		return 0, err
	}
	defer b.db.Release()
	defer b.opts.Process.db.Reserve(2 * b.opts.Process.runBytes(1))() // a run is in memory
	for i, t := range mine {
		n, err := b.copyTable(ctx, s, t, b.db.Scratch(fmt.Sprintf("rows-%d", i)))
		if err != nil {
			return rows, err
		}
		rows += n
	}
	b.fresh = false
	return rows, nil
}

func (b *Backend[K]) copyTable(ctx context.Context, s *source, t tables, dir string) (rows int64, err error) {
	o := b.opts.Database
	o.Local, o.KeepLocal, o.Failed = nil, false, nil
	db, err := pebbledb.Restore(ctx, b.opts.Process.db, dir, []pebbledb.Source{s.pebbleSource(t)}, &o)
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, db.Close(), removeAll(&o, dir))
	}()
	it, err := db.Pebble().NewIter(nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	type target struct {
		id      uint16
		kind    snapshot.StateKind
		convert serializer.Convert
		elem    *serializer.Decoder
	}
	targets := make([]target, len(t.meta.States))
	for i := range t.meta.States {
		types, old := typesOf(&t.meta.States[i], t.meta.Key)
		at := b.byName[old.Name]
		x := target{id: uint16(at), kind: old.Kind}
		if st := b.states[at].st; st != nil {
			if x.convert, err = st.Convert(types); err != nil {
				return 0, fmt.Errorf("state %s: %w", old.Name, err)
			}
		}
		if old.Kind == snapshot.StateList && old.Value != nil {
			x.elem = serializer.NewDecoder(old.Value, nil)
		}
		targets[i] = x
	}
	out := b.db.NewTables()
	defer out.Discard()
	w := &runWriter{size: b.opts.Process.runBytes(1), apply: func(data []byte, rows []row) error { return setRows(out, data, rows) }}
	var key, value []byte
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		v, err := it.ValueAndErr()
		if err != nil {
			return rows, err
		}
		if len(k) < 4 || int(binary.BigEndian.Uint16(k[2:])) >= len(targets) {
			return rows, fmt.Errorf("%s: a row of no state: %w", s.Snapshot.Location, metadata.ErrCorrupt)
		}
		x := &targets[binary.BigEndian.Uint16(k[2:])]
		key = append(binary.BigEndian.AppendUint16(append(key[:0], k[:2]...), x.id), k[4:]...)
		if value, err = convertRow(value[:0], v, x.kind, x.convert, x.elem); err != nil {
			return rows, err
		}
		if err := w.add(key, value); err != nil {
			return rows, err
		}
		if rows++; rows&1023 == 0 && ctx.Err() != nil {
			return rows, ctx.Err()
		}
	}
	if err := it.Error(); err != nil {
		return rows, err
	}
	if err := w.flush(); err != nil {
		return rows, err
	}
	return rows, b.db.Ingest(ctx, out)
}

func removeAll(o *pebbledb.Options, dir string) error {
	fs := o.FS
	if fs == nil {
		fs = vfs.Default
	}
	return fs.RemoveAll(dir)
}
