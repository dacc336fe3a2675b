package snapshot

import (
	"bytes"
	"context"
	"errors"

	"github.com/tidemark/tidemark/metadata"
)

// diffWorker compares one unit.
type diffWorker struct {
	d      *differ
	u      *diffUnit
	counts []diffCount
	enc    DiffEncoder
	send   func([]byte) error
	budget int64

	block []byte
	rows  int64
	json  [2][]byte
}

func (d *differ) progress(n int64) {
	rows := d.rows.Add(n)
	if d.opts.Progress != nil && n > 0 {
		d.opts.Progress(rows)
	}
}

func (w *diffWorker) run(ctx context.Context) (err error) {
	var sides [2]*diffInput
	defer func() {
		for _, s := range sides {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	for i := range sides {
		sides[i] = &diffInput{w: w, side: i, loaded: newLoaded(w.d, i, w.u.op, w.budget)}
		if err := sides[i].load(ctx); err != nil {
			return err
		}
	}
	pairs := w.u.op.pairs[:w.u.op.keyed]
	if !w.u.keyed {
		pairs = w.u.op.pairs[w.u.op.keyed:]
	}
	for _, p := range pairs {
		a, err := sides[0].source(ctx, p)
		if err != nil {
			return err
		}
		b, err := sides[1].source(ctx, p)
		if err != nil {
			return err
		}
		if err := w.merge(ctx, p, a, b); err != nil {
			return err
		}
		for _, s := range sides {
			s.closeSources()
		}
	}
	w.d.progress(w.rows & 0xffff)
	if len(w.block) > 0 {
		return w.send(w.block)
	}
	return nil
}

// diffInput is one side of a unit.
type diffInput struct {
	w      *diffWorker
	side   int
	sub    *scan
	loaded *loaded
	dbs    []*diffHandle // whose keys stream in order
	open   []*dbSource

	readers map[*diffHandle][]stateReader
}

// load sorts what does not stream in the order of keys.
func (in *diffInput) load(ctx context.Context) error {
	side, u := in.w.d.sides[in.side], in.w.u
	opts := side.sc.opts
	if u.keyed {
		opts.KeyGroups = &u.span
	}
	in.sub = newScan(side.s, &opts)
	in.sub.cat = side.sc.cat
	in.sub.classes.Store(side.sc.classes.Load())
	w := &worker{scan: in.sub, emit: in.loaded.add}
	do := func(j handleJob, prepare func() ([]*unit, error)) error {
		units, err := prepare()
		if err != nil {
			if !tolerable(err) {
				return err
			}
			return in.sub.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Err: err})
		}
		for _, unit := range units {
			if err := w.do(ctx, unit); err != nil {
				return err
			}
		}
		return nil
	}
	if !u.keyed {
		for _, j := range in.sub.otherJobs(u.op.pos[in.side], u.op.ops[in.side]) {
			if err := do(j, func() ([]*unit, error) { return j.prepare(ctx) }); err != nil {
				return err
			}
		}
		return in.loaded.begin()
	}
	overlap := int32(-1)
	ordered := true
	for _, h := range u.handles[in.side] {
		if _, ok := h.h.(*metadata.IncrementalHandle); ok {
			ordered = ordered && h.range_.Start > overlap
			overlap = max(overlap, h.range_.End())
		}
	}
	for _, h := range u.handles[in.side] {
		if _, ok := h.h.(*metadata.IncrementalHandle); ok && ordered && !u.op.whole {
			in.dbs = append(in.dbs, h)
			continue
		}
		if err := do(h.job, func() ([]*unit, error) {
			if h.raw {
				return in.sub.rawKeyed(ctx, h.job, h.h)
			}
			return in.sub.keyed(ctx, h.job, h.h)
		}); err != nil {
			return err
		}
	}
	return in.loaded.begin()
}

// otherJobs are the handles of an operator that are not keyed.
func (sc *scan) otherJobs(pos int, op *StateOperator) []handleJob {
	if op == nil {
		return nil
	}
	var jobs []handleJob
	for j := range sc.jobs() {
		if j.operator.Position == pos && !j.keyed {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// source gives the rows of a state in the order of their keys.
func (in *diffInput) source(ctx context.Context, pair int) (diffSource, error) {
	st := in.w.d.pairs[pair].any()
	dbs := &chain{}
	for _, h := range in.dbs {
		o, err := h.database(ctx, in.w.d.sides[in.side].sc)
		if err != nil {
			if !tolerable(err) {
				return nil, err
			}
			if err := in.sub.problem(&ScanProblem{Operator: h.job.operator, Subtask: h.job.subtask, KeyGroup: -1, Err: err}); err != nil {
				return nil, err
			}
			continue
		}
		if in.readers == nil {
			in.readers = map[*diffHandle][]stateReader{}
		}
		rs := in.readers[h]
		if rs == nil {
			rs = o.f.readers()
			in.readers[h] = rs
		}
		for i := range rs {
			r := &rs[i]
			if r.meta.Name != st.Name || r.state.Kind != st.Kind {
				continue
			}
			w := &worker{scan: in.sub, unit: &unit{operator: h.job.operator, subtask: h.job.subtask}}
			src := newDBSource(ctx, o, r.keyedState, r, intersect(h.range_, in.w.u.span), w)
			if src != nil {
				in.open = append(in.open, src)
				dbs.sources = append(dbs.sources, src)
			}
		}
	}
	switch {
	case len(dbs.sources) == 0:
		return in.loaded.of(pair), nil
	case len(in.dbs) == len(in.w.u.handles[in.side]):
		return dbs, nil
	}
	return newMerged(dbs, in.loaded.of(pair)), nil
}

func (in *diffInput) closeSources() {
	for _, s := range in.open {
		s.close()
	}
	in.open = in.open[:0]
}

func (in *diffInput) close() error {
	in.closeSources()
	for _, h := range in.w.u.handles[in.side] {
		if h.left.Add(-1) == 0 {
			if h.open != nil { // nobody needs its tables any more
				in.w.d.sides[in.side].sc.dbs.done(h.open.db)
			}
			h.open = nil
		}
	}
	return in.loaded.sorter.close()
}

// merge compares the rows of a state.
func (w *diffWorker) merge(ctx context.Context, pair int, a, b diffSource) error {
	p, n := &w.d.pairs[pair], &w.counts[pair]
	x, err := a.next()
	if err != nil {
		return err
	}
	y, err := b.next()
	if err != nil {
		return err
	}
	for x != nil || y != nil {
		if w.rows++; w.rows&0xffff == 0 {
			w.d.progress(0x10000)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		c := 0
		switch {
		case x == nil:
			c = 1
		case y == nil:
			c = -1
		default:
			c = bytes.Compare(x.key, y.key)
		}
		switch {
		case c < 0:
			n.old++
			n.removed++
			err = w.row(Removed, p, x, nil)
		case c > 0:
			n.new++
			n.added++
			err = w.row(Added, p, nil, y)
		default:
			n.old++
			n.new++
			if !w.same(p, x, y) {
				n.changed++
				err = w.row(Changed, p, x, y)
			}
		}
		if err != nil {
			return err
		}
		if c <= 0 {
			if x, err = a.next(); err != nil {
				return err
			}
		}
		if c >= 0 {
			if y, err = b.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// same compares two values.
func (w *diffWorker) same(p *statePair, x, y *diffEntry) bool {
	if x.null || y.null {
		return x.null == y.null
	}
	if x.version != y.version {
		return false
	}
	if p.sameValues && x.form == y.form && bytes.Equal(x.value, y.value) {
		return true
	}
	switch x.form {
	case FormNone:
		return true
	case FormBytes, FormVersionedBytes, FormByteParts, FormVersioned:
		return bytes.Equal(x.value, y.value)
	}
	var ttl [2][2]int64
	var has [2]bool
	for i, e := range []*diffEntry{x, y} {
		r := e.row(p.states[i])
		var undecoded string
		w.json[i], ttl[i][0], ttl[i][1], has[i] = r.appendValue(w.json[i][:0], &undecoded)
	}
	if !bytes.Equal(w.json[0], w.json[1]) {
		return false
	}
	return w.d.opts.IgnoreTTL || has[0] == has[1] && ttl[0] == ttl[1]
}

// row encodes a row that differs.
func (w *diffWorker) row(change Change, p *statePair, x, y *diffEntry) (err error) {
	if w.enc == nil {
		return nil
	}
	r := DiffRow{Change: change}
	if x != nil {
		r.Old = x.row(p.states[0])
	}
	if y != nil {
		r.New = y.row(p.states[1])
	}
	if w.block, err = w.enc.Append(w.block, &r); err != nil || len(w.block) < blockBytes {
		return err
	}
	b := w.block
	w.block = make([]byte, 0, blockBytes+blockBytes/4)
	return w.send(b)
}
