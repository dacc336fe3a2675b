package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb/staterows"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// dataWorker decodes records for one goroutine.
type dataWorker struct {
	c       *dataCheck
	records int64
	opaque  map[string]int64 // records by class
	hashers map[*serializer.Type]*serializer.Hasher
}

func (c *dataCheck) newWorker() *dataWorker {
	w := &dataWorker{c: c, opaque: map[string]int64{}, hashers: map[*serializer.Type]*serializer.Hasher{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = append(c.workers, w)
	return w
}

// row decodes a row to its last byte.
func (w *dataWorker) row(r *StateRow) error {
	if w.records++; w.records&0xfff == 0 && w.c.stopped() {
		return errStop
	}
	if err := r.Check(); err != nil {
		return w.damage(r, "record-corrupt", err)
	}
	if class, ok := r.Undecoded(); ok {
		w.opaque[class]++
	}
	if r.KeyGroup >= 0 && r.Key != nil && r.dec != nil && r.dec.key != nil && r.State.Kind.Keyed() {
		if err := w.hash(r); err != nil {
			return w.damage(r, "wrong-key-group", err)
		}
	}
	return nil
}

// stopped says that the store failed.
func (c *dataCheck) stopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed != nil
}

// hash sees that a key lies in the key group that its hash code asks for, where
// that can be computed without the job's classes.
func (w *dataWorker) hash(r *StateRow) error {
	t := r.dec.key.Type()
	h, known := w.hashers[t]
	if !known {
		h = serializer.NewHasher(t, nil, w.c.sc.opts.Kryo)
		w.hashers[t] = h
	}
	if h == nil {
		return nil
	}
	kg, n, err := h.KeyGroup(r.Key, int(r.State.Operator.MaxParallelism))
	var no *serializer.HashError
	switch {
	case errors.As(err, &no):
		w.hashers[t] = nil // only the class knows
	case err != nil, n != len(r.Key):
	case int32(kg) != r.KeyGroup:
		return &damage.Error{Offset: -1, Field: "key", Detail: fmt.Sprintf("hashes to key group %d and stands in %d", kg, r.KeyGroup), Err: damage.ErrCorrupt}
	}
	return nil
}

func (w *dataWorker) damage(r *StateRow, code string, err error) error {
	d := &damage.Error{Name: r.File, Offset: r.Offset, Detail: err.Error(), Err: damage.ErrCorrupt}
	var inner *damage.Error
	if errors.As(err, &inner) {
		d.Field, d.Detail = inner.Field, inner.Detail
		if inner.Offset >= 0 {
			d.Detail += fmt.Sprintf(" (byte %d of its part)", inner.Offset)
		}
	}
	w.c.problem(&ScanProblem{Operator: r.State.Operator, State: r.State.Name, Subtask: r.Subtask, KeyGroup: r.KeyGroup, Err: &coded{code: code, err: d}})
	return nil
}

// database verifies all files of an incremental handle and decodes each entry of
// its tables.
func (c *dataCheck) database(j handleJob, h *metadata.IncrementalHandle) []*unit {
	return j.single(func(ctx context.Context, w *worker) error {
		f, err := c.sc.databaseMeta(ctx, j, h)
		if err != nil {
			// Its blocks can be verified all the same, only not its records.
			if err := w.problem("", -1, err); err != nil {
				return err
			}
			f = nil
		}
		d := &databaseCheck{c: c, j: j, w: w, meta: f, urls: map[string]string{}, sizes: map[string]int64{}}
		return d.run(ctx, h)
	})
}

// databaseCheck verifies one database.
type databaseCheck struct {
	c    *dataCheck
	j    handleJob
	w    *worker
	meta *keyedFile // nil if it cannot be read
	// urls and sizes are those of the objects, by local name.
	urls  map[string]string
	sizes map[string]int64
}

func (d *databaseCheck) run(ctx context.Context, h *metadata.IncrementalHandle) error {
	c := d.c
	var files []incremental.File
	for _, list := range [][]metadata.NamedHandle{h.Shared, h.Private} {
		for i := range list {
			local := list[i].Name.Go()
			src, name, err := c.sc.s.OpenStream(ctx, list[i].Handle, false)
			if err != nil {
				if err := d.w.problem("", -1, readError(name, err)); err != nil {
					return err
				}
				continue
			}
			if src != nil {
				d.urls[local], d.sizes[local] = name, src.Size()
				files = append(files, incremental.File{Name: local, Source: src})
			}
		}
	}
	if staterows.Is(files) {
		return d.lsm(ctx, h, files)
	}
	db, err := incremental.Open(ctx, files, &incremental.Options{OnDamage: func(err error) { d.found("", "", err) }})
	if err != nil {
		return d.w.problem("", -1, &coded{"database-corrupt", "", err})
	}
	summary, err := db.Verify(ctx, &incremental.VerifyOptions{
		Workers: cap(c.slots), Slots: c.slots,
		OnDamage: func(x incremental.Finding) { d.found(x.File, x.Family, x.Err) },
		Choose:   func(name string) func(uint64) bool { return c.opts.Sample.choose(d.urls[name]) },
		Entries:  d.entries,
		Recall:   d.recall,
		OnTable:  d.table,
		OnOptions: func(local string, data []byte) {
			d.c.options(d.j, d.urls[local], data)
		},
	})
	for _, local := range summary.WithoutChecksum {
		c.unprotected("RocksDB files", d.urls[local], d.sizes[local])
	}
	if err != nil && !ctxErr(err) {
		return d.w.problem("", -1, err)
	}
	return err
}

// options compares the OPTIONS files of an operator's subtasks, which have no
// checksum and the same settings.
func (c *dataCheck) options(j handleJob, url string, data []byte) {
	c.mu.Lock()
	first, ok := c.firstOptions[j.operator]
	if !ok {
		c.firstOptions[j.operator] = optionsFile{url, bytes.Clone(data)}
	}
	c.mu.Unlock()
	if !ok || first.url == url {
		return
	}
	if at, line, differ := incremental.CompareOptions(first.data, data); differ {
		err := &damage.Error{Name: url, Offset: at, Detail: fmt.Sprintf("%s is one bit from the same line of %s: one of the two is damaged", line, baseName(first.url)), Err: damage.ErrCorrupt}
		c.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Err: &coded{"options-differ", url, err}})
	}
}

type optionsFile struct {
	url  string
	data []byte
}

// found makes a finding of damage in a file of the database.
func (d *databaseCheck) found(local, family string, err error) {
	var e *damage.Error
	if local == "" && errors.As(err, &e) {
		local = e.Name
	}
	_ = d.w.problem(family, -1, &coded{"database-corrupt", d.urls[local], err})
}

// cacheKey tells a table and the types it is read with apart from others.
func (d *databaseCheck) cacheKey(f *incremental.Family, local string) string {
	key := fmt.Sprintf("%s\x00%d\x00%s", d.urls[local], d.sizes[local], local)
	if f != nil && d.meta != nil {
		for i := range d.meta.states {
			if ks := &d.meta.states[i]; ks.meta.Name == f.Name {
				key += "\x00" + words(ks.key) + "\x00" + words(ks.namespace) + "\x00" + words(ks.userKey) + "\x00" + words(ks.value) + "\x00" + words(ks.elem)
			}
		}
	}
	return key
}

func (d *databaseCheck) recall(f *incremental.Family, local string) (*sst.Report, []error, bool) {
	if d.c.opts.Cache == nil {
		return nil, nil, false
	}
	t, ok := d.c.opts.Cache.get(d.cacheKey(f, local))
	if ok {
		d.c.mu.Lock()
		d.c.report.Recalled++
		d.c.mu.Unlock()
	}
	return t.report, t.damage, ok
}

func (d *databaseCheck) table(f *incremental.Family, local string, report *sst.Report, damage []error) {
	c := d.c
	c.mu.Lock()
	c.report.Tables++
	c.report.Blocks += int64(report.DataBlocks)
	c.report.LeftOut += int64(report.SkippedBlocks)
	c.mu.Unlock()
	if c.opts.Cache != nil {
		c.opts.Cache.put(d.cacheKey(f, local), verifiedTable{report, damage})
	}
}

// entries decodes the entries of a table.
func (d *databaseCheck) entries(fam *incremental.Family, local string) func(key []byte, trailer uint64, value []byte, block int64) error {
	if fam == nil || d.meta == nil {
		return nil
	}
	f := *d.meta
	f.name = d.urls[local]
	rs := f.readers()
	var r *stateReader
	for i := range rs {
		if rs[i].meta.Name == fam.Name {
			r = &rs[i]
		}
	}
	if r == nil {
		return nil
	}
	dw := d.c.newWorker()
	w := &worker{scan: d.w.scan, unit: d.w.unit, emit: dw.row}
	held := make([]bool, max(f.op.MaxParallelism, 0))
	d.c.holds(f.op, held)
	return func(key []byte, trailer uint64, value []byte, block int64) error {
		if len(key) < f.prefix {
			return w.problem(r.meta.Name, -1, f.damage(block, "key", fmt.Sprintf("of %d bytes has no key group", len(key))))
		}
		kg := int32(key[0])
		if f.prefix == 2 {
			kg = int32(binary.BigEndian.Uint16(key))
		}
		switch sst.Kind(trailer) {
		case sst.KindValue, sst.KindMerge:
			if int(kg) >= len(held) {
				return w.problem(r.meta.Name, kg, &coded{"wrong-key-group", f.name, f.damage(block, "key group", fmt.Sprintf("is %d, beyond the max parallelism %d", kg, len(held)))})
			}
			held[kg] = true
			return f.emitPair(w, r, kg, key, value, block)
		}
		return nil
	}
}

// changes verifies the change sets of a changelog handle, each for itself: nothing
// is applied, so that memory does not grow with them.
func (c *dataCheck) changes(ch *changes) []*unit {
	return ch.j.single(func(ctx context.Context, w *worker) error {
		dw := c.newWorker()
		reader := stream.NewChangelog(ctx)
		for i, seg := range ch.segments() {
			object := c.v.file
			if seg.file != nil {
				object = targetName(c.sc.s, seg.file.Handle)
				if t := c.sc.s.Resolve(seg.file.Handle); t.Kind == TargetObject {
					c.unprotected("changelog", object, max(t.Length, 0))
				}
			}
			data := true
			if choose := c.opts.Sample.choose(object); choose != nil && !choose(uint64(i)) {
				// What declares states must be read; records are not decoded.
				c.leftOut(1)
				data = false
			}
			err := ch.lost(ch.readSegment(ctx, reader, seg, func(name string, x stream.Change) error {
				if len(x.Data) > 0 && x.Data[0] == opMetadata {
					if err := ch.declare(name, x); err != nil {
						return err
					}
					ch.register()
					return nil
				}
				if !data {
					return nil
				}
				dw.records++
				return c.change(ch, w, dw, name, x)
			}))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// change decodes one record of a changelog.
func (c *dataCheck) change(ch *changes, w *worker, dw *dataWorker, name string, x stream.Change) error {
	bad := func(state string, err error) error {
		d := &damage.Error{Name: name, Offset: x.Offset, Field: "change", Detail: err.Error(), Err: damage.ErrCorrupt}
		var inner *damage.Error
		if errors.As(err, &inner) {
			d.Field, d.Detail = "change: "+inner.Field, inner.Detail
		}
		return w.problem(state, x.KeyGroup, &coded{"record-corrupt", "", d})
	}
	if len(x.Data) < 3 {
		return bad("", errChange)
	}
	id := int16(binary.BigEndian.Uint16(x.Data[1:]))
	s := ch.states[id]
	switch {
	case s == nil && ch.incomplete:
		return nil // declared in a segment that is lost
	case s == nil:
		return bad("", fmt.Errorf("is of state %d, which was not declared", id))
	case !ch.handle.Range.Contains(x.KeyGroup) && x.KeyGroup != -1:
		return bad(s.meta.Name, fmt.Errorf("is of key group %d, outside %s", x.KeyGroup, rangeText(ch.handle.Range.Start, ch.handle.Range.End())))
	case s.state == nil:
		dw.opaque["the key"]++
		return nil
	}
	err := ch.apply(s, x)
	if err == nil {
		err = s.checkApplied()
	}
	clear(s.entries)
	clear(s.timers)
	var opaque *serializer.OpaqueError
	if errors.As(err, &opaque) {
		dw.opaque[opaque.Class]++
		return nil
	}
	if err != nil {
		return bad(s.meta.Name, err)
	}
	return nil
}

// checkApplied decodes the values that one change has brought.
func (s *changedState) checkApplied() error {
	for _, e := range s.entries {
		if e.set && s.comp.value != nil {
			if n, err := s.comp.value.Skip(e.value); err != nil {
				return err
			} else if n != len(e.value) {
				return fmt.Errorf("value leaves %d bytes", len(e.value)-n)
			}
		}
		for b := e.elements; len(b) > 0 && s.comp.elem != nil; {
			n, err := s.comp.elem.Skip(b)
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
			b = b[n:]
		}
		for _, v := range e.entries {
			if len(v) > 1 && v[0] == 0 && s.comp.mapValue != nil {
				if n, err := s.comp.mapValue.Skip(v[1:]); err != nil {
					return err
				} else if n != len(v)-1 {
					return fmt.Errorf("map value leaves %d bytes", len(v)-1-n)
				}
			}
		}
	}
	return nil
}
