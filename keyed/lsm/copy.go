package lsm

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// copyRows copies the rows of any snapshot into tables of the database: a goroutine for
// each of some ranges of key groups.
func (b *Backend[K]) copyRows(ctx context.Context, s *source) (int64, error) {
	if err := b.db.Acquire(); err != nil {
		return 0, err
	}
	defer b.db.Release()
	b.fresh = false
	var rows atomic.Int64
	ranges := splitGroups(b.KeyGroups(), runtime.GOMAXPROCS(0))
	tables := make([]*pebbledb.Tables, len(ranges))
	size := b.opts.Process.runBytes(len(ranges))
	defer b.opts.Process.db.Reserve(2 * size * len(ranges))() // runs are in memory
	g, gctx := errgroup.WithContext(ctx)
	for i, r := range ranges {
		t := b.db.NewTables()
		defer t.Discard()
		tables[i] = t
		opts := *s.opts
		opts.KeyGroups, opts.Workers = &r, 1
		g.Go(func() error {
			w := &runWriter{size: size, apply: func(data []byte, rows []row) error { return setRows(t, data, rows) }}
			encoders := map[*snapshot.State]*rowEncoder[K]{}
			var last *snapshot.State
			var enc *rowEncoder[K]
			err := snapshot.Scan(gctx, s.Snapshot, &opts, func(int) func(*snapshot.StateRow) error {
				return func(r *snapshot.StateRow) error {
					if r.State != last {
						if enc = encoders[r.State]; enc == nil {
							var err error
							if enc, err = b.encoder(r.State, s.decode); err != nil {
								return fmt.Errorf("state %s: %w", r.State.Name, err)
							}
							encoders[r.State] = enc
						}
						last = r.State
					}
					if n := rows.Add(1); n&1023 == 0 && b.closed.Load() {
						return keyed.ErrClosed
					}
					return enc.add(w, r)
				}
			})
			if err != nil {
				return err
			}
			return w.flush()
		})
	}
	if err := g.Wait(); err != nil {
		return rows.Load(), err
	}
	return rows.Load(), b.db.Ingest(ctx, tables...)
}

// splitGroups cuts key groups into n ranges of about the same size, or as many as there
// are.
func splitGroups(r metadata.KeyGroupRange, n int) []metadata.KeyGroupRange {
	n = max(1, min(n, int(r.Count)))
	ranges := make([]metadata.KeyGroupRange, n)
	for i := range ranges {
		from, to := int(r.Count)*i/n, int(r.Count)*(i+1)/n
		ranges[i] = metadata.KeyGroupRange{Start: r.Start + int32(from), Count: int32(to - from)}
	}
	return ranges
}

// setRows writes sorted rows into tables.
func setRows(t *pebbledb.Tables, data []byte, rows []row) error {
	for i := range rows {
		r := &rows[i]
		if err := t.Set(data[r.key:r.value], data[r.value:r.end]); err != nil {
			return err
		}
	}
	return nil
}

// rowEncoder makes rows of those of a snapshot.
type rowEncoder[K comparable] struct {
	keys    *keyed.Keys[K]
	kind    snapshot.StateKind
	name    string
	id      uint16
	lengths bool
	convert serializer.Convert
	elem    *serializer.Decoder // of a list's elements, as they were written
	buf     []byte
	value   []byte
}

func (b *Backend[K]) encoder(s *snapshot.State, decode *serializer.DecodeOptions) (*rowEncoder[K], error) {
	i := b.byName[s.Name]
	e := &rowEncoder[K]{keys: b.keys, kind: s.Kind, name: s.Name, id: uint16(i)}
	types := oldTypes(s)
	if s.Kind != snapshot.StateTimer {
		ns := s.Namespace
		if ns == nil {
			ns = b.states[i].meta.Namespace()
		}
		e.lengths = b.keys.Serializer.Type().FixedLength() < 0 && ns != nil && ns.FixedLength() < 0
	}
	if st := b.states[i].st; st != nil {
		var err error
		if e.convert, err = st.Convert(types); err != nil {
			return nil, err
		}
	}
	if s.Kind == snapshot.StateList && types.Value != nil {
		e.elem = serializer.NewDecoder(types.Value, decode)
	}
	return e, nil
}

func appendLength(dst []byte, n int) []byte {
	for {
		dst = append(dst, byte(n))
		if n >>= 8; n == 0 {
			return dst
		}
	}
}

func (e *rowEncoder[K]) damage(r *snapshot.StateRow, field, detail string) error {
	return &metadata.FormatError{Name: r.File, Offset: r.Offset, Field: "state " + e.name + ": " + field, Detail: detail, Err: metadata.ErrCorrupt}
}

// add encodes a row. Only its key is decoded, to see that it is where it belongs.
func (e *rowEncoder[K]) add(w *runWriter, r *snapshot.StateRow) error {
	k, used, err := e.keys.Serializer.Read(r.Key)
	if err != nil || used != len(r.Key) {
		detail := "has bytes left over"
		if err != nil {
			detail = err.Error()
		}
		return e.damage(r, "key", detail)
	}
	if g := e.keys.Make(k).Group(); int32(g) != r.KeyGroup {
		return e.damage(r, "key", fmt.Sprintf("of key group %d stands in %d", g, r.KeyGroup))
	}
	dst := binary.BigEndian.AppendUint16(e.buf[:0], uint16(r.KeyGroup))
	dst = binary.BigEndian.AppendUint16(dst, e.id)
	if e.kind == snapshot.StateTimer {
		dst = binary.BigEndian.AppendUint64(dst, uint64(r.Timestamp)^1<<63)
		e.buf = append(append(dst, r.Key...), r.Namespace...)
		return w.add(e.buf, nil)
	}
	dst = append(dst, r.Key...)
	if e.lengths {
		dst = appendLength(dst, len(r.Key))
	}
	dst = append(dst, r.Namespace...)
	if e.lengths {
		dst = appendLength(dst, len(r.Namespace))
	}
	e.buf = append(dst, r.UserKey...)
	switch e.kind {
	case snapshot.StateMap:
		e.value = append(e.value[:0], 0)
		if r.Null {
			e.value[0] = 1
		} else if e.value, err = convertValue(e.value, r.Value, e.convert); err != nil {
			return e.damage(r, "value", err.Error())
		}
	case snapshot.StateList:
		b, count := r.Value, -1
		if r.Form == snapshot.FormValue {
			if len(b) < 4 {
				return e.damage(r, "value", serializer.ErrShort.Error())
			}
			count = int(int32(binary.BigEndian.Uint32(b)))
			b = b[4:]
			if count == 0 {
				return nil
			}
		}
		if e.value, err = e.joined(e.value[:0], b, count, r.Form == snapshot.FormJoined); err != nil {
			return e.damage(r, "value", err.Error())
		}
		if len(b) == 0 && count < 0 {
			return nil // no elements
		}
	default:
		if e.value, err = convertValue(e.value[:0], r.Value, e.convert); err != nil {
			return e.damage(r, "value", err.Error())
		}
	}
	return w.add(e.buf, e.value)
}

func convertValue(dst, b []byte, convert serializer.Convert) ([]byte, error) {
	if convert == nil {
		return append(dst, b...), nil
	}
	return convert(dst, b)
}

// joined makes a list's row: elements with a ',' between them.
func (e *rowEncoder[K]) joined(dst, b []byte, count int, commas bool) ([]byte, error) {
	if commas && e.convert == nil {
		return append(dst, b...), nil
	}
	if e.elem == nil {
		return nil, fmt.Errorf("is a list of an unknown type")
	}
	return joinElements(dst, b, count, commas, e.elem, e.convert)
}

func joinElements(dst, b []byte, count int, commas bool, elem *serializer.Decoder, convert serializer.Convert) ([]byte, error) {
	for first := true; len(b) > 0 || count > 0; first = false {
		if !first {
			dst = append(dst, ',')
			if commas {
				b = b[1:]
			}
		}
		n, err := elem.Skip(b)
		if err == nil {
			dst, err = convertValue(dst, b[:n], convert)
		}
		if err != nil {
			return nil, err
		}
		if b = b[n:]; count > 0 {
			if count--; count == 0 {
				break
			}
		} else if n == 0 {
			break // elements without bytes
		}
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("has bytes left over")
	}
	return dst, nil
}

// runWriter collects rows, of any order, and writes them in sorted runs.
type runWriter struct {
	// size is about how many bytes of rows a run has. It ends with a key group that is
	// whole, if rows come by key groups, unless the last one makes it twice as long.
	size  int
	apply func(data []byte, rows []row) error
	data  []byte
	rows  []row
	group uint16 // the largest in the run
}

func (w *runWriter) add(key, value []byte) error {
	g := binary.BigEndian.Uint16(key)
	if n := len(w.data) + len(key) + len(value); len(w.rows) > 0 && n > w.size && (g > w.group || n > 2*w.size) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.rows) == 0 || g > w.group {
		w.group = g
	}
	r := row{key: uint32(len(w.data)), op: engine.OpSet}
	w.data = append(w.data, key...)
	r.value = uint32(len(w.data))
	w.data = append(w.data, value...)
	r.end = uint32(len(w.data))
	r.prefix, r.sort = sortKeys(key)
	w.rows = append(w.rows, r)
	return nil
}

// flush writes the run. Of rows with one key the one that came last is the last.
func (w *runWriter) flush() error {
	less := func(a, b row) int {
		if c := compareRows(&a, &b, w.data); c != 0 {
			return c
		}
		return cmp.Compare(a.key, b.key)
	}
	if !slices.IsSortedFunc(w.rows, less) {
		slices.SortFunc(w.rows, less)
	}
	err := w.apply(w.data, w.rows)
	w.data, w.rows = w.data[:0], w.rows[:0]
	return err
}

// applyRows writes sorted rows.
func (b *Backend[K]) applyRows(data []byte, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	if err := b.db.Acquire(); err != nil {
		return err
	}
	defer b.db.Release()
	batch := b.db.Pebble().NewBatch()
	defer func() { _ = batch.Close() }()
	for i := range rows {
		r := &rows[i]
		if err := batch.Set(data[r.key:r.value], data[r.value:r.end], nil); err != nil {
			return err
		}
		if batch.Len() > batchBytes {
			if err := b.db.Apply(b.drains.life, batch); err != nil {
				return err
			}
			batch.Reset()
		}
	}
	return b.db.Apply(b.drains.life, batch)
}

// convertRow makes the value of a row one of another type.
func convertRow(dst, v []byte, kind snapshot.StateKind, convert serializer.Convert, elem *serializer.Decoder) ([]byte, error) {
	switch {
	case convert == nil:
		return append(dst, v...), nil
	case kind == snapshot.StateMap && len(v) > 0:
		if dst = append(dst, v[0]); v[0] != 0 {
			return dst, nil
		}
		return convert(dst, v[1:])
	case kind == snapshot.StateList:
		return joinElements(dst, v, -1, true, elem, convert)
	}
	return convert(dst, v)
}

// migrate rewrites the rows of a state whose values change. A snapshot that was taken
// before declares the old type: it is finished first.
func (b *Backend[K]) migrate(id uint16, old *snapshot.State, convert serializer.Convert) error {
	if err := b.wait(); err != nil {
		return err
	}
	var elem *serializer.Decoder
	if old.Kind == snapshot.StateList {
		elem = serializer.NewDecoder(old.Value, nil)
	}
	w := &runWriter{size: b.opts.Process.runBytes(1), apply: b.applyRows}
	var value []byte
	var failed error
	for g := b.env.First; g < b.env.First+b.env.Count; g++ {
		from := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(g)), id)
		to := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(from)+1)
		if binary.BigEndian.Uint32(from) == 1<<32-1 {
			to = []byte{0xff, 0xff, 0xff, 0xff, 0xff}
		}
		err := b.rows.Scan(from, to, func(key, v []byte) bool {
			value, failed = convertRow(value[:0], v, old.Kind, convert, elem)
			if failed == nil {
				failed = w.add(key, value)
			}
			return failed == nil
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return fmt.Errorf("migration: %w", err)
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	b.rows.renew()
	return nil
}
