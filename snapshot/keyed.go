package snapshot

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb/staterows"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// maxMetaBytes bounds the meta block of a state file.
const maxMetaBytes = 256 << 20

// keyedFile is the meta block of one keyed handle and what follows from it.
type keyedFile struct {
	sc      *scan
	op      *StateOperator
	subtask int32
	name    string // of the state file
	meta    *serializer.KeyedBackendMeta
	prefix  int
	states  []keyedState
	match   *keyMatch
}

// keyedState is a state as one handle declares it.
type keyedState struct {
	meta   *serializer.StateMeta
	state  *State
	wanted bool

	key, namespace, userKey, value, elem *serializer.Type
}

// readHead reads the first bytes of a stream for a meta block: up to limit.
func readHead(ctx context.Context, src sst.Source, name string, limit int64) ([]byte, error) {
	n := min(limit, src.Size())
	if n > maxMetaBytes {
		n = maxMetaBytes
	}
	b := make([]byte, n)
	if _, err := src.ReadAt(ctx, b, 0); err != nil {
		return nil, readError(name, err)
	}
	return b, nil
}

func readError(name string, err error) error {
	if ctxErr(err) {
		return err
	}
	return &fileError{name, err}
}

// fileError is an error of reading a file.
type fileError struct {
	name string
	err  error
}

func (e *fileError) Error() string { return e.name + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// parseKeyedMeta reads a keyed meta block and registers its states.
func (sc *scan) parseKeyedMeta(j handleJob, name string, head []byte) (*keyedFile, error) {
	meta, err := serializer.ReadKeyedBackendMeta(javaio.NewReader(head))
	if err != nil {
		return nil, named(name, err)
	}
	f := &keyedFile{sc: sc, op: j.operator, subtask: j.subtask, name: name, meta: meta, prefix: incremental.KeyGroupBytes(j.operator.MaxParallelism)}
	sc.learn(meta)
	f.match = sc.keyMatch(meta.Key)
	if sc.narrowed() {
		sc.learnPlace(f)
	}
	f.states = make([]keyedState, len(meta.States))
	for i := range meta.States {
		f.addState(&f.states[i], &meta.States[i])
	}
	for _, u := range meta.Unknown {
		if err := sc.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Opaque: true, Err: named(name, &u)}); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *keyedFile) addState(ks *keyedState, m *serializer.StateMeta) {
	ks.meta, ks.key, ks.namespace, ks.value = m, f.meta.Key, m.Namespace(), m.Value()
	kind := keyedKind(m)
	switch kind {
	case StateTimer:
		ks.namespace, ks.value = nil, nil
		if t := m.Value(); t != nil && t.Kind == serializer.KindTimer && len(t.Fields) == 3 {
			ks.key, ks.namespace = t.Fields[1].Type, t.Fields[2].Type
		}
	case StateList:
		ks.elem = m.Element()
		if m.Kind == serializer.KeyValueV2 {
			ks.value = nil
		}
	case StateMap:
		ks.userKey, ks.value = m.MapTypes()
	}
	shown := ks.value
	if kind == StateList && shown == nil {
		shown = ks.elem
	}
	ks.state = f.sc.cat.add(f.op, f.subtask, m.Name, kind, ks.key, ks.namespace, ks.userKey, shown, m.TTL())
	if kind != StateTimer && m.Kind == serializer.KeyValue {
		f.sc.cat.whole(ks.state, m.Value())
	}
	if kind == StateList {
		f.sc.cat.element(ks.state, ks.elem)
	}
	ks.wanted = f.sc.opts.State == nil || f.sc.opts.State(ks.state)
}

// named puts the name of a file into damage that has none.
func named(name string, err error) error {
	if d, ok := err.(*damage.Error); ok && d.Name == "" {
		c := *d
		c.Name = name
		return &c
	}
	return &fileError{name, err}
}

// decoders makes one goroutine's decoders for a state.
func (f *keyedFile) decoders(ks *keyedState) *rowDecoders {
	framed := f.sc.decode(true)
	d := &rowDecoders{}
	if ks.key != nil {
		d.key = serializer.NewDecoder(ks.key, framed)
	}
	if ks.namespace != nil {
		d.namespace = serializer.NewDecoder(ks.namespace, framed)
	}
	if ks.userKey != nil {
		d.userKey = serializer.NewDecoder(ks.userKey, framed)
	}
	if ks.value != nil {
		d.value = serializer.NewDecoder(ks.value, framed)
	}
	if ks.elem != nil {
		d.elem = serializer.NewDecoder(ks.elem, f.sc.decode(false))
	}
	return d
}

// anyWanted reports whether any state of the file is selected.
func (f *keyedFile) anyWanted() bool {
	return !f.match.none && slices.ContainsFunc(f.states, func(k keyedState) bool { return k.wanted })
}

// keyed splits a managed keyed handle into units.
func (sc *scan) keyed(ctx context.Context, j handleJob, h metadata.KeyedHandle) ([]*unit, error) {
	if _, changelog := h.(*metadata.ChangelogHandle); sc.narrowed() && !changelog { // whose parts come here again
		// The first handle of an operator tells the type of its keys, and with it the
		// key group: of the others only those that have it are opened.
		at := sc.placeOf(j.operator)
		at.opening.Lock()
		defer at.opening.Unlock()
		if r := rangeOf(h); r != nil && sc.elsewhere(at, *r) {
			return nil, nil
		}
	}
	switch h := h.(type) {
	case *metadata.KeyGroupsHandle:
		return sc.keyGroups(ctx, j, h)
	case *metadata.IncrementalHandle:
		return sc.database(ctx, j, h)
	case *metadata.ChangelogHandle:
		return sc.changelog(ctx, j, h)
	}
	return nil, fmt.Errorf("managed keyed state has a handle of tag %d: %w", h.Tag(), damage.ErrCorrupt)
}

// keyGroups handles canonical and heap state: one stream with an offset for each
// key group.
func (sc *scan) keyGroups(ctx context.Context, j handleJob, h *metadata.KeyGroupsHandle) ([]*unit, error) {
	src, name, err := sc.s.OpenStream(ctx, h.Delegate, false)
	if err != nil || src == nil {
		return nil, err
	}
	f, regions, err := sc.openKeyGroups(ctx, j, h, src, name)
	if err != nil || !f.anyWanted() {
		return nil, err
	}
	canonical := h.Form == metadata.TagSavepointKeyGroups || looksCanonical(ctx, src, regions)
	if sc.verify != nil {
		regions = sc.verify.keyGroups(j, f, src, regions, canonical)
	}
	return f.splitRegions(j, sc.selectRegions(regions, f), func(ctx context.Context, w *worker, regions []stream.Region) error {
		if canonical {
			return f.readCanonical(ctx, w, src, regions)
		}
		return f.readHeap(ctx, w, src, regions)
	}), nil
}

func (sc *scan) openKeyGroups(ctx context.Context, j handleJob, h *metadata.KeyGroupsHandle, src sst.Source, name string) (*keyedFile, []stream.Region, error) {
	regions, err := stream.Regions(name, h.Range.Start, h.Offsets, src.Size(), 0)
	if err != nil {
		return nil, nil, err
	}
	limit := src.Size()
	for _, r := range regions {
		limit = min(limit, r.From)
	}
	head, err := readHead(ctx, src, name, limit)
	if err != nil {
		return nil, nil, err
	}
	f, err := sc.parseKeyedMeta(j, name, head)
	return f, regions, err
}

// looksCanonical tells the two bodies apart where the handle does not: before
// Flink 1.16 RocksDB wrote canonical bodies behind the heap's handles, in 1.15 also
// behind those with an ID.
//
//	heap       int32 key group, int16 state, …
//	canonical  int16 state, int32 key length, key, …, int16 0xffff
func looksCanonical(ctx context.Context, src sst.Source, regions []stream.Region) bool {
	for _, r := range regions {
		if r.KeyGroup == 0 {
			continue
		}
		var b [4]byte
		if _, err := src.ReadAt(ctx, b[:], r.From); err != nil {
			return false
		}
		return int32(be32(b[:])) != r.KeyGroup
	}
	if len(regions) > 0 { // key group 0 alone, which reads as state 0
		r := regions[0]
		var head [6]byte
		var end [2]byte
		if _, err := src.ReadAt(ctx, head[:], r.From); err != nil || r.To-r.From < 8 {
			return false
		}
		if _, err := src.ReadAt(ctx, end[:], r.To-2); err != nil {
			return false
		}
		n := int64(be32(head[2:])) // of the heap a small state number
		return be32(head[:]) != 0 || n > 1 && n <= r.To-r.From-12 && end == [2]byte{0xff, 0xff}
	}
	return false
}

// selectRegions keeps the key groups that the options ask for.
func (sc *scan) selectRegions(regions []stream.Region, f *keyedFile) []stream.Region {
	r := sc.keyGroupRange(f)
	if r == nil {
		return regions
	}
	var kept []stream.Region
	for _, g := range regions {
		if r.Contains(g.KeyGroup) {
			kept = append(kept, g)
		}
	}
	return kept
}

// keyGroupRange is the range that the options narrow a handle to; nil for all of it.
func (sc *scan) keyGroupRange(f *keyedFile) *metadata.KeyGroupRange {
	if f.match.bytes != nil && f.meta.Key != nil {
		if kg, err := serializer.KeyGroup(f.meta.Key, f.match.bytes, int(f.op.MaxParallelism)); err == nil {
			return &metadata.KeyGroupRange{Start: int32(kg), Count: 1}
		}
	}
	return sc.opts.KeyGroups
}

// splitRegions makes units of about unitBytes.
func (f *keyedFile) splitRegions(j handleJob, regions []stream.Region, read func(context.Context, *worker, []stream.Region) error) []*unit {
	var units []*unit
	for len(regions) > 0 {
		n, size := 0, int64(0)
		for n < len(regions) && (n == 0 || size+regions[n].To-regions[n].From <= unitBytes) {
			size += regions[n].To - regions[n].From
			n++
		}
		part := regions[:n:n]
		regions = regions[n:]
		units = append(units, &unit{operator: j.operator, subtask: j.subtask, run: func(ctx context.Context, w *worker) error {
			return read(ctx, w, part)
		}})
	}
	return units
}

// stateReader is what a unit keeps of each state while it reads.
type stateReader struct {
	*keyedState
	dec   *rowDecoders
	comp  compositeKey
	match *keyMatch
	// Timers: the element's decoders, for its parts.
	timerKey, timerNS *serializer.Decoder
	// A map's parts in one heap value.
	mapKey, mapValue *serializer.Decoder
}

func (f *keyedFile) readers() []stateReader {
	rs := make([]stateReader, len(f.states))
	for i := range f.states {
		ks := &f.states[i]
		r := &rs[i]
		r.keyedState, r.dec = ks, f.decoders(ks)
		match := *f.match // with memory of its own
		r.match = &match
		plain := f.sc.decode(false)
		if ks.state.Kind == StateTimer {
			if ks.key != nil && ks.namespace != nil {
				r.timerKey, r.timerNS = serializer.NewDecoder(ks.key, plain), serializer.NewDecoder(ks.namespace, plain)
			}
			continue
		}
		r.comp = newCompositeKey(f.prefix, ks.key, ks.namespace, ks.state.Kind == StateMap, plain)
		if ks.state.Kind == StateMap && ks.userKey != nil && ks.value != nil {
			r.mapKey, r.mapValue = serializer.NewDecoder(ks.userKey, plain), serializer.NewDecoder(ks.value, plain)
		}
	}
	return rs
}

// readCanonical reads key groups of a canonical savepoint.
func (f *keyedFile) readCanonical(ctx context.Context, w *worker, src sst.Source, regions []stream.Region) error {
	c := stream.NewCanonical(ctx, src, f.name, f.meta.Compressed)
	defer c.Close()
	rs := f.readers()
	for _, region := range regions {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.Open(region)
		for c.Next() {
			id := c.State()
			if id >= len(rs) {
				if !f.meta.Open {
					if err := w.problem("", region.KeyGroup, named(f.name, &damage.Error{Offset: c.Offset(), Field: "state id", Detail: fmt.Sprintf("is %d of %d states", id, len(rs)), Err: damage.ErrCorrupt})); err != nil {
						return err
					}
					break
				}
				continue // a state behind an unknown serializer: it has no name
			}
			if !rs[id].wanted {
				continue
			}
			if err := f.emitPair(w, &rs[id], region.KeyGroup, c.Key(), c.Value(), c.Offset()); err != nil {
				return err
			}
		}
		if err := c.Err(); err != nil {
			if err := w.problem("", region.KeyGroup, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// emitPair gives out one entry of canonical or RocksDB state.
func (f *keyedFile) emitPair(w *worker, r *stateReader, keyGroup int32, key, value []byte, offset int64) error {
	row := &w.row
	*row = StateRow{State: r.state, Subtask: f.subtask, KeyGroup: keyGroup, File: f.name, Offset: offset, dec: r.dec, Form: FormValue}
	if r.state.Kind == StateTimer {
		if len(key) < f.prefix {
			return w.problem(r.state.Name, keyGroup, f.damage(offset, "timer", "is too short"))
		}
		return f.emitTimer(w, r, key[f.prefix:])
	}
	kg, k, ns, userKey, ok := r.comp.split(key)
	if kg != keyGroup && kg >= 0 {
		return w.problem(r.state.Name, keyGroup, f.damage(offset, "key group of the key", fmt.Sprintf("is %d, in key group %d", kg, keyGroup)))
	}
	row.Key, row.Namespace, row.UserKey, row.Value = k, ns, userKey, value
	if !ok && r.key != nil && r.namespace != nil && !hasOpaque(r.key) && !hasOpaque(r.namespace) {
		return w.problem(r.state.Name, keyGroup, f.damage(offset, "key", fmt.Sprintf("of %d bytes is no %s and %s", len(key), words(r.key), words(r.namespace))))
	}
	if !r.match.row(row) {
		return nil
	}
	switch r.state.Kind {
	case StateList:
		row.Form = FormJoined
	case StateMap:
		if len(value) == 0 {
			return w.problem(r.state.Name, keyGroup, f.damage(offset, "map value", "has no null flag"))
		}
		if value[0] != 0 {
			row.Null, row.Value = true, nil
		} else {
			row.Value = value[1:]
		}
	}
	return w.emit(row)
}

func (f *keyedFile) damage(offset int64, field, detail string) error {
	return &damage.Error{Name: f.name, Offset: offset, Field: field, Detail: detail, Err: damage.ErrCorrupt}
}

// emitTimer gives out a timer: int64 timestamp with its sign bit flipped, key,
// namespace.
func (f *keyedFile) emitTimer(w *worker, r *stateReader, t []byte) error {
	row := &w.row
	row.Form = FormNone
	if len(t) < 8 {
		return w.problem(r.state.Name, row.KeyGroup, f.damage(row.Offset, "timer", "is too short"))
	}
	row.Timestamp = int64(uint64(be32(t))<<32|uint64(be32(t[4:]))) ^ -1<<63
	t = t[8:]
	row.Key = t
	if r.timerKey != nil {
		switch n, err := r.timerKey.Skip(t); {
		case err == nil:
			row.Key, row.Namespace = t[:n:n], t[n:]
		case !isOpaque(err): // an opaque key is shown as bytes, its namespace with it
			return w.problem(r.state.Name, row.KeyGroup, named(f.name, err))
		}
	}
	if !r.match.row(row) {
		return nil
	}
	return w.emit(row)
}

// readHeap reads key groups of the heap backend's own format.
func (f *keyedFile) readHeap(ctx context.Context, w *worker, src sst.Source, regions []stream.Region) error {
	rs := f.readers()
	var told error
	h := f.openHeap(ctx, src, rs, func(state, count int, offset int64) {
		err := fmt.Errorf("%s: byte %d: %d values of %s cannot be read nor told apart", f.name, offset, count, words(rs[state].meta.Value()))
		if err := f.sc.problem(&ScanProblem{Operator: f.op, State: rs[state].meta.Name, Subtask: f.subtask, KeyGroup: -1, Opaque: true, Rows: int64(count), Err: err}); err != nil {
			told = err
		}
	})
	defer h.Close()
	for _, region := range regions {
		if err := ctx.Err(); err != nil {
			return err
		}
		h.Open(region)
		for h.Next() {
			if told != nil {
				return told
			}
			r := &rs[h.State()]
			if !r.wanted {
				continue
			}
			if err := f.emitHeap(w, r, region.KeyGroup, h); err != nil {
				return err
			}
		}
		if told != nil {
			return told
		}
		if err := h.Err(); err != nil {
			if err := w.problem("", region.KeyGroup, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// openHeap makes a reader of the heap's format for the states of a file. lost is
// told of values that cannot be told apart.
func (f *keyedFile) openHeap(ctx context.Context, src sst.Source, rs []stateReader, lost func(state, count int, offset int64)) *stream.Heap {
	plain := f.sc.decode(false)
	decoder := func(t *serializer.Type) stream.Skipper {
		if t == nil {
			return noSkipper{}
		}
		return serializer.NewDecoder(t, plain)
	}
	states := make([]stream.HeapState, len(rs))
	for i := range rs {
		m := rs[i].meta
		states[i] = stream.HeapState{Name: m.Name}
		if rs[i].state.Kind == StateTimer {
			states[i].Queue, states[i].Element = true, decoder(m.Value())
			continue
		}
		states[i].Namespace, states[i].Key, states[i].Value = decoder(m.Namespace()), decoder(f.meta.Key), decoder(m.Value())
	}
	h := stream.NewHeap(ctx, src, f.name, f.meta.Compressed, states)
	if f.meta.Key != nil {
		hash := serializer.NewHasher(f.meta.Key, nil, f.sc.opts.Kryo)
		h.Fits = func(keyGroup int32, key []byte) bool {
			kg, n, err := hash.KeyGroup(key, int(f.op.MaxParallelism))
			return err == nil && n == len(key) && int32(kg) == keyGroup
		}
	}
	h.Lost = lost
	return h
}

// noSkipper stands for a serializer that is not known.
type noSkipper struct{}

func (noSkipper) Skip([]byte) (int, error) { return 0, &serializer.OpaqueError{} }

func (f *keyedFile) emitHeap(w *worker, r *stateReader, keyGroup int32, h *stream.Heap) error {
	row := &w.row
	*row = StateRow{State: r.state, Subtask: f.subtask, KeyGroup: keyGroup, File: f.name, Offset: h.Offset(), dec: r.dec, Form: FormValue}
	if r.state.Kind == StateTimer {
		return f.emitTimer(w, r, h.Key())
	}
	row.Key, row.Namespace, row.Value = h.Key(), h.Namespace(), h.Value()
	if !r.match.row(row) {
		return nil
	}
	if r.state.Kind == StateMap && r.mapKey != nil {
		return f.emitMap(w, r, h.Value())
	}
	return w.emit(row)
}

// emitMap gives out the entries of a map in one piece:
//
//	int32 n, n × ( key, bool null, value unless null )
func (f *keyedFile) emitMap(w *worker, r *stateReader, b []byte) error {
	row := &w.row
	if len(b) < 4 {
		return w.problem(r.state.Name, row.KeyGroup, f.damage(row.Offset, "map", "ends early"))
	}
	n := int(int32(be32(b)))
	b = b[4:]
	for range n {
		k, err := r.mapKey.Skip(b)
		if err != nil || k >= len(b) {
			return w.problem(r.state.Name, row.KeyGroup, f.damage(row.Offset, "map key", "is damaged"))
		}
		row.UserKey, row.Null, row.Value = b[:k:k], b[k] != 0, nil
		b = b[k+1:]
		if !row.Null {
			v, err := r.mapValue.Skip(b)
			if err != nil {
				return w.problem(r.state.Name, row.KeyGroup, f.damage(row.Offset, "map value", "is damaged"))
			}
			row.Value = b[:v:v]
			b = b[v:]
		}
		if err := w.emit(row); err != nil {
			return err
		}
	}
	return nil
}

// database splits an incremental handle into units: state by state, in ranges of
// key groups of about unitBytes.
func (sc *scan) database(ctx context.Context, j handleJob, h *metadata.IncrementalHandle) ([]*unit, error) {
	if sc.verify != nil {
		return sc.verify.database(j, h), nil
	}
	f, err := sc.databaseMeta(ctx, j, h)
	if err != nil || !f.anyWanted() {
		return nil, err
	}
	groups := h.Range
	if r := sc.keyGroupRange(f); r != nil {
		if groups = intersect(groups, *r); groups.Count <= 0 {
			return nil, nil
		}
	}
	db, err := sc.openDatabase(ctx, j, h, f)
	if err != nil || db == nil {
		return nil, err
	}
	var units []*unit
	for i := range f.states {
		ks := &f.states[i]
		if !ks.wanted {
			continue
		}
		table := db.state(i, ks.meta.Name)
		if table == nil {
			continue // registered, and nothing was ever written
		}
		parts, err := sc.splitTable(ctx, f, ks, table, groups)
		if err != nil {
			sc.dbs.done(db)
			return nil, err
		}
		for _, p := range parts {
			units = append(units, &unit{operator: j.operator, subtask: j.subtask, run: func(ctx context.Context, w *worker) error {
				return f.readTable(ctx, w, ks, table, p[0], p[1])
			}})
		}
	}
	return sc.dbs.closing(units, db), nil
}

// databaseMeta reads the meta block of an incremental handle, a file of its own.
func (sc *scan) databaseMeta(ctx context.Context, j handleJob, h *metadata.IncrementalHandle) (*keyedFile, error) {
	src, name, err := sc.s.OpenStream(ctx, h.Meta, false)
	if err != nil {
		return nil, err
	}
	if src == nil {
		return nil, fmt.Errorf("incremental handle has no meta state: %w", damage.ErrCorrupt)
	}
	head, err := readHead(ctx, src, name, src.Size())
	if err != nil {
		return nil, err
	}
	f, err := sc.parseKeyedMeta(j, name, head)
	if err == nil && sc.verify != nil {
		sc.verify.metaEnd(j, name, "meta", f.meta.Size, src.Size())
	}
	return f, err
}

// openDatabase opens the files of an incremental handle, whose meta block is f. It is nil
// where only the states are wanted and the files need not be looked at for them.
func (sc *scan) openDatabase(ctx context.Context, j handleJob, h *metadata.IncrementalHandle, f *keyedFile) (stateDB, error) {
	files, err := sc.databaseFiles(ctx, j, h)
	if err != nil {
		return nil, err
	}
	if staterows.Is(files) {
		if sc.metaOnly {
			return nil, nil
		}
		if run := sc.ctx.Load(); run != nil { // for as long as the scan goes on
			ctx = *run
		}
		return sc.dbs.lsm(ctx, files, sc.s.Name, f.prefix, len(f.states))
	}
	opts := &incremental.Options{Name: sc.s.Name}
	if sc.opts.OnProblem != nil {
		opts.OnDamage = func(err error) {
			_ = sc.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Err: err})
		}
	}
	db, err := incremental.Open(ctx, files, opts)
	if err != nil {
		return nil, err
	}
	return rocksDB{db}, nil
}

// databaseFiles are the files of an incremental handle.
func (sc *scan) databaseFiles(ctx context.Context, j handleJob, h *metadata.IncrementalHandle) ([]incremental.File, error) {
	var files []incremental.File
	for _, list := range [][]metadata.NamedHandle{h.Shared, h.Private} {
		for i := range list {
			src, name, err := sc.s.OpenStream(ctx, list[i].Handle, false)
			if err != nil {
				// The database says which of its files it misses, if it needs it at all.
				if err := sc.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Err: readError(name, err)}); err != nil {
					return nil, err
				}
				continue
			}
			if src != nil {
				files = append(files, incremental.File{Name: list[i].Name.Go(), Source: src})
			}
		}
	}
	return files, nil
}

func intersect(a, b metadata.KeyGroupRange) metadata.KeyGroupRange {
	start, end := max(a.Start, b.Start), min(a.End(), b.End())
	return metadata.KeyGroupRange{Start: start, Count: end - start + 1}
}

// splitTable gives the bounds of the parts of one state.
func (sc *scan) splitTable(ctx context.Context, f *keyedFile, ks *keyedState, table stateTable, groups metadata.KeyGroupRange) ([][2][]byte, error) {
	lower, upper := incremental.KeyGroupBounds(groups, f.op.MaxParallelism)
	if key := f.match.bytes; key != nil && groups.Count == 1 && f.prefix+len(key) > 0 && ks.state.Kind != StateTimer {
		// The key follows the key group (but in timers, where their time does); other
		// keys may have it as a prefix, and they are told apart by their namespace.
		lower = append(slices.Clone(lower), key...)
		return [][2][]byte{{lower, prefixEnd(lower)}}, nil
	}
	n := int(min(table.bytes()/unitBytes+1, int64(groups.Count)))
	if n <= 1 {
		return [][2][]byte{{lower, upper}}, nil
	}
	cuts, err := table.split(ctx, lower, upper, n, f.prefix)
	if err != nil {
		return nil, err
	}
	var parts [][2][]byte
	for _, c := range cuts {
		parts = append(parts, [2][]byte{lower, c})
		lower = c
	}
	return append(parts, [2][]byte{lower, upper}), nil
}

// prefixEnd is the smallest key above all that begin with p; nil if there is none.
func prefixEnd(p []byte) []byte {
	e := slices.Clone(p)
	for len(e) > 0 {
		if e[len(e)-1]++; e[len(e)-1] != 0 {
			return e
		}
		e = e[:len(e)-1]
	}
	return nil
}

// readTable reads one state of a database between two keys.
func (f *keyedFile) readTable(ctx context.Context, w *worker, ks *keyedState, table stateTable, lower, upper []byte) error {
	it := table.scan(ctx, lower, upper)
	defer it.Close()
	rs := f.readers()
	var r *stateReader
	for i := range rs {
		if rs[i].keyedState == ks {
			r = &rs[i]
		}
	}
	for it.Next() {
		key := it.Key()
		if len(key) < f.prefix {
			if err := w.problem(ks.meta.Name, -1, fmt.Errorf("%s: column family %s has a key of %d bytes: %w", f.name, table.name(), len(key), damage.ErrCorrupt)); err != nil {
				return err
			}
			continue
		}
		kg := int32(key[0])
		if f.prefix == 2 {
			kg = kg<<8 | int32(key[1])
		}
		if err := f.emitPair(w, r, kg, key, it.Value(), -1); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return w.problem(ks.meta.Name, -1, err)
	}
	return nil
}
