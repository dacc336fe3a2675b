package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
)

// diffEntry is a row on its way through a comparison.
type diffEntry struct {
	key   []byte // by which rows of a state are sorted and found again
	value []byte
	form  ValueForm
	null  bool

	keyGroup, subtask, version int32
	timestamp                  int64
	k, ns, userKey             []byte
	dec                        *rowDecoders

	// db, if not nil, is the reader of an entry of RocksDB whose parts are not told
	// apart yet: key is the composite key.
	db *dbSource
}

// row makes a row of the entry.
func (e *diffEntry) row(st *State) *StateRow {
	if e.db != nil {
		e.db.parts(e)
	}
	return &StateRow{State: st, Subtask: e.subtask, KeyGroup: e.keyGroup, Timestamp: e.timestamp, Key: e.k, Namespace: e.ns, UserKey: e.userKey,
		Value: e.value, Form: e.form, Null: e.null, Version: e.version, Offset: -1, dec: e.dec}
}

// diffSource gives the rows of one state in the order of their keys.
type diffSource interface {
	// next moves on; the entry is valid until the next call.
	next() (*diffEntry, error)
}

// openDatabase is a database of a handle with its states.
type openDatabase struct {
	f  *keyedFile
	db stateDB
}

// database opens the handle's database, once for all units.
func (h *diffHandle) database(ctx context.Context, sc *scan) (*openDatabase, error) {
	h.once.Do(func() {
		inc := h.h.(*metadata.IncrementalHandle)
		o := &openDatabase{}
		if o.f, h.err = sc.databaseMeta(ctx, h.job, inc); h.err != nil {
			return
		}
		if o.db, h.err = sc.openDatabase(ctx, h.job, inc, o.f); h.err == nil {
			h.open = o
		}
	})
	return h.open, h.err
}

// dbSource reads one state of a database within some key groups.
type dbSource struct {
	f  *keyedFile
	r  *stateReader
	it pairIterator
	e  diffEntry
	w  *worker
}

func newDBSource(ctx context.Context, o *openDatabase, ks *keyedState, r *stateReader, span metadata.KeyGroupRange, w *worker) *dbSource {
	id := slices.IndexFunc(o.f.states, func(s keyedState) bool { return s.meta == ks.meta })
	table := o.db.state(id, ks.meta.Name)
	if table == nil {
		return nil
	}
	lower, upper := incremental.KeyGroupBounds(span, o.f.op.MaxParallelism)
	return &dbSource{f: o.f, r: r, it: table.scan(ctx, lower, upper), w: w}
}

func (s *dbSource) next() (*diffEntry, error) {
	for s.it.Next() {
		key, value := s.it.Key(), s.it.Value()
		if len(key) < s.f.prefix {
			continue // outside any key group: verify tells
		}
		s.e = diffEntry{key: key, value: value, form: FormValue, db: s}
		switch s.r.state.Kind {
		case StateTimer:
			s.e.form, s.e.value = FormNone, nil
		case StateList:
			s.e.form = FormJoined
		case StateMap:
			if len(value) == 0 {
				continue
			}
			s.e.null, s.e.value = value[0] != 0, value[1:]
		}
		return &s.e, nil
	}
	if err := s.it.Err(); err != nil {
		return nil, s.w.problem(s.r.meta.Name, -1, err)
	}
	return nil, nil
}

func (s *dbSource) close() { s.it.Close() }

// parts tells the parts of a composite key apart.
func (s *dbSource) parts(e *diffEntry) {
	e.db, e.dec, e.subtask = nil, s.r.dec, s.f.subtask
	if s.r.state.Kind == StateTimer {
		t := e.key[s.f.prefix:]
		e.keyGroup = keyGroupOf(e.key, s.f.prefix)
		if len(t) < 8 {
			e.k = t
			return
		}
		e.timestamp = int64(binary.BigEndian.Uint64(t)) ^ -1<<63
		e.k = t[8:]
		if s.r.timerKey != nil {
			if n, err := s.r.timerKey.Skip(e.k); err == nil {
				e.k, e.ns = e.k[:n:n], e.k[n:]
			}
		}
		return
	}
	e.keyGroup, e.k, e.ns, e.userKey, _ = s.r.comp.split(e.key)
}

func keyGroupOf(key []byte, prefix int) int32 {
	if prefix == 2 {
		return int32(binary.BigEndian.Uint16(key))
	}
	return int32(key[0])
}

// chain is one source after the other, of ascending keys.
type chain struct{ sources []diffSource }

func (c *chain) next() (*diffEntry, error) {
	for len(c.sources) > 0 {
		e, err := c.sources[0].next()
		if e != nil || err != nil {
			return e, err
		}
		c.sources = c.sources[1:]
	}
	return nil, nil
}

// merged are two sources with entries between each other.
type merged struct {
	sources []diffSource
	heads   []*diffEntry
	last    int // whose head was given out; -1 at the start
}

func newMerged(sources ...diffSource) *merged { return &merged{sources: sources, last: -1} }

func (m *merged) next() (*diffEntry, error) {
	if m.heads == nil {
		m.heads = make([]*diffEntry, len(m.sources))
		for i, s := range m.sources {
			e, err := s.next()
			if err != nil {
				return nil, err
			}
			m.heads[i] = e
		}
	} else if m.last >= 0 {
		e, err := m.sources[m.last].next()
		if err != nil {
			return nil, err
		}
		m.heads[m.last] = e
	}
	m.last = -1
	for i, e := range m.heads {
		if e != nil && (m.last < 0 || bytes.Compare(e.key, m.heads[m.last].key) < 0) {
			m.last = i
		}
	}
	if m.last < 0 {
		return nil, nil
	}
	return m.heads[m.last], nil
}

// loaded are the rows of a unit's side that come in no order: they are sorted by
// state and key.
type loaded struct {
	d       *differ
	side    int
	op      *diffOperator
	sorter  rowSorter
	pairOf  map[*State]int
	decs    []*rowDecoders
	decOf   map[*rowDecoders]int
	key     []byte
	payload []byte
	n       int64

	merge *sortMerge
	at    int // pair of the record that merge stands on; -1 at the end
	e     diffEntry
}

func newLoaded(d *differ, side int, op *diffOperator, budget int64) *loaded {
	return &loaded{d: d, side: side, op: op, pairOf: map[*State]int{}, decOf: map[*rowDecoders]int{},
		sorter: rowSorter{dir: d.opts.TempDir, budget: budget, spilled: &d.spilled}}
}

// add takes a row of a scan.
func (l *loaded) add(r *StateRow) error {
	pair, known := l.pairOf[r.State]
	if !known {
		var ok bool
		if pair, ok = l.d.index[keyOfState(r.State)]; !ok {
			pair = -1
		}
		l.pairOf[r.State] = pair
	}
	if pair < 0 {
		return nil
	}
	l.key = binary.BigEndian.AppendUint32(l.key[:0], uint32(pair))
	switch r.State.Kind {
	case StateBroadcast:
		l.key, _ = r.AppendMapKeyJSON(l.key)
		return l.put(r, r.Value)
	case StateRawKeyed:
		l.key = binary.BigEndian.AppendUint32(l.key, uint32(r.KeyGroup))
		return l.put(r, r.Value)
	}
	if r.State.Kind.Keyed() {
		l.rowKey(r, &l.d.pairs[pair])
		return l.put(r, r.Value)
	}
	head := len(l.key)
	switch r.Form {
	case FormElements:
		return l.elements(r, head)
	case FormByteParts, FormVersioned:
		var err error
		r.frames(func(p []byte) {
			if err == nil {
				l.key = append(l.key[:head], p...)
				err = l.put(r, append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...))
			}
		})
		return err
	}
	l.key = binary.BigEndian.AppendUint32(l.key, uint32(r.Subtask))
	return l.put(r, r.Value)
}

// rowKey appends the key of a row of keyed state: as RocksDB has it, or decoded.
func (l *loaded) rowKey(r *StateRow, p *statePair) {
	if l.op.whole {
		if r.State.Kind == StateTimer {
			l.key = binary.BigEndian.AppendUint64(l.key, uint64(r.Timestamp)^1<<63)
		}
		if p.sameKeys {
			for _, part := range [][]byte{r.Key, r.Namespace, r.UserKey} {
				l.key = binary.BigEndian.AppendUint32(l.key, uint32(len(part)))
				l.key = append(l.key, part...)
			}
			return
		}
		l.key, _ = r.AppendKeyJSON(l.key)
		l.key, _ = r.AppendNamespaceJSON(append(l.key, 0))
		l.key, _ = r.AppendMapKeyJSON(append(l.key, 0))
		return
	}
	if incremental.KeyGroupBytes(r.State.Operator.MaxParallelism) == 2 {
		l.key = append(l.key, byte(r.KeyGroup>>8))
	}
	l.key = append(l.key, byte(r.KeyGroup))
	if r.State.Kind == StateTimer {
		l.key = appendTimer(l.key, r)
		return
	}
	lengths := r.dec.key != nil && r.dec.namespace != nil && r.dec.key.Type().FixedLength() < 0 && r.dec.namespace.Type().FixedLength() < 0
	l.key = append(l.key, r.Key...)
	if lengths {
		l.key = appendLength(l.key, len(r.Key))
	}
	l.key = append(l.key, r.Namespace...)
	if lengths {
		l.key = appendLength(l.key, len(r.Namespace))
	}
	l.key = append(l.key, r.UserKey...)
}

// appendLength is what trimLength takes off.
func appendLength(dst []byte, n int) []byte {
	for {
		dst = append(dst, byte(n))
		if n >>= 8; n == 0 {
			return dst
		}
	}
}

// elements makes a row of each element of an operator's list.
func (l *loaded) elements(r *StateRow, head int) error {
	if r.dec == nil || r.dec.elem == nil {
		l.key = append(l.key, r.Value...)
		return l.put(r, r.Value)
	}
	for b := r.Value; len(b) > 0; {
		key, n, err := r.dec.elem.AppendJSON(l.key[:head], b)
		if err != nil || n == 0 {
			l.key = append(l.key[:head], b...)
			return l.put(r, b)
		}
		l.key = key
		if err := l.put(r, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// put writes a record:
//
//	key      int32 pair, key
//	payload  form, null, then as uvarints key group+1, subtask+1, version, timestamp and
//	         decoders+1; key, namespace, map key (length+1, bytes; 0 is none), value
func (l *loaded) put(r *StateRow, value []byte) error {
	dec := 0
	if r.dec != nil {
		var ok bool
		if dec, ok = l.decOf[r.dec]; !ok {
			l.decs = append(l.decs, r.dec)
			dec = len(l.decs)
			l.decOf[r.dec] = dec
		}
	}
	p := append(l.payload[:0], byte(r.Form), 0)
	if r.Null {
		p[1] = 1
	}
	p = binary.AppendUvarint(p, uint64(r.KeyGroup+1))
	p = binary.AppendUvarint(p, uint64(r.Subtask+1))
	p = binary.AppendUvarint(p, uint64(uint32(r.Version)))
	p = binary.AppendUvarint(p, uint64(r.Timestamp))
	p = binary.AppendUvarint(p, uint64(dec))
	for _, b := range [][]byte{r.Key, r.Namespace, r.UserKey} {
		if b == nil {
			p = append(p, 0)
			continue
		}
		p = binary.AppendUvarint(p, uint64(len(b))+1)
		p = append(p, b...)
	}
	l.payload = append(p, value...)
	if l.n++; l.n&0xffff == 0 {
		l.d.progress(0x10000)
	}
	return l.sorter.add(l.key, l.payload)
}

// begin ends the adding.
func (l *loaded) begin() error {
	l.d.progress(l.n & 0xffff)
	m, err := l.sorter.sorted()
	if err != nil {
		return err
	}
	l.merge = m
	return l.advance()
}

func (l *loaded) advance() error {
	ok, err := l.merge.next()
	l.at = -1
	if ok {
		l.at = int(binary.BigEndian.Uint32(l.merge.key()))
	}
	return err
}

// of gives the rows of a pair. Pairs must be asked for in ascending order.
func (l *loaded) of(pair int) diffSource { return &loadedSource{l, pair, false} }

type loadedSource struct {
	l     *loaded
	pair  int
	given bool
}

func (s *loadedSource) next() (*diffEntry, error) {
	l := s.l
	if s.given {
		if err := l.advance(); err != nil {
			return nil, err
		}
		s.given = false
	}
	for l.at >= 0 && l.at < s.pair {
		if err := l.advance(); err != nil {
			return nil, err
		}
	}
	if l.at != s.pair {
		return nil, nil
	}
	s.given = true
	return &l.e, l.parse()
}

func (l *loaded) parse() error {
	p := l.merge.payload()
	l.e = diffEntry{key: l.merge.key()[4:], form: ValueForm(p[0]), null: p[1] != 0}
	p = p[2:]
	bad := false
	num := func() uint64 {
		v, n := binary.Uvarint(p)
		if bad = bad || n <= 0; bad {
			return 0
		}
		p = p[n:]
		return v
	}
	part := func() []byte {
		n := num()
		if n == 0 || bad || n-1 > uint64(len(p)) {
			bad = bad || n != 0
			return nil
		}
		b := p[: n-1 : n-1]
		p = p[n-1:]
		return b
	}
	l.e.keyGroup = int32(num()) - 1
	l.e.subtask = int32(num()) - 1
	l.e.version = int32(uint32(num()))
	l.e.timestamp = int64(num())
	if dec := num(); dec > 0 && dec <= uint64(len(l.decs)) {
		l.e.dec = l.decs[dec-1]
	}
	l.e.k, l.e.ns, l.e.userKey = part(), part(), part()
	if bad {
		return fmt.Errorf("%w: damaged", errSpill)
	}
	l.e.value = p
	return nil
}

// tolerable says that an error of reading is a problem to be told.
func tolerable(err error) bool {
	return !errors.Is(err, errSpill) && (errors.Is(err, damage.ErrCorrupt) || !ctxErr(err))
}
