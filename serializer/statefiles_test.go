package serializer_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// The readers here know just enough of the state files to hand every value of a
// golden to this package; reading state is the snapshot package's work.

// place opens the streams of one snapshot.
type place struct {
	dir      string // of _metadata
	from, to string // prefix of absolute paths and what it stands for
}

func (p place) open(h metadata.StreamHandle) ([]byte, error) {
	abs := func(path string) string {
		path = strings.TrimPrefix(strings.TrimPrefix(path, "file:"), "//")
		if p.from != "" && strings.HasPrefix(path, p.from) {
			return p.to + path[len(p.from):]
		}
		return filepath.Join(p.dir, filepath.Base(path))
	}
	switch h := h.(type) {
	case *metadata.ByteStreamHandle:
		return h.Data, nil
	case *metadata.FileHandle:
		return os.ReadFile(abs(h.Path.Go()))
	case *metadata.RelativeFileHandle:
		return os.ReadFile(filepath.Join(p.dir, h.Path.Go()))
	case *metadata.SegmentHandle:
		b, err := os.ReadFile(abs(h.Path.Go()))
		if err != nil {
			return nil, err
		}
		if h.Start+h.Length > int64(len(b)) {
			return nil, io.ErrUnexpectedEOF
		}
		return b[h.Start : h.Start+h.Length], nil
	}
	return nil, fmt.Errorf("no data in a %T", h)
}

// record is one entry of keyed state, or one timer.
type record struct {
	operator  string // ID
	state     *serializer.StateMeta
	key       *serializer.Type
	keyGroup  int
	keyBytes  []byte
	keyJSON   string
	nsJSON    string
	mapKey    string // JSON, canonical map state
	value     string // JSON; canonical list state joined to one array
	timestamp int64  // timers
	ttlMin    int64
	ttlMax    int64
	hasTTL    bool
}

type stateReader struct {
	t       testing.TB
	kryo    serializer.KryoVersion
	classes serializer.Classes
	blocks  int
	opaque  map[string]int
}

func readMetadata(t testing.TB, path string) *metadata.Checkpoint {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	c, err := metadata.Decode(bytes.NewReader(b), nil)
	require.NoError(t, err, path)
	return c
}

// keyedHandles are the handles with data: those of a changelog are its
// materialized ones.
func keyedHandles(h metadata.KeyedHandle) []metadata.KeyedHandle {
	switch h := h.(type) {
	case nil:
		return nil
	case *metadata.ChangelogHandle:
		var list []metadata.KeyedHandle
		for _, m := range h.Materialized {
			list = append(list, keyedHandles(m)...)
		}
		return list
	}
	return []metadata.KeyedHandle{h}
}

// keyed reads the managed keyed state of one subtask; emit gets each record.
func (r *stateReader) keyed(p place, op *metadata.OperatorState, h metadata.KeyedHandle, emit func(record)) error {
	for _, h := range keyedHandles(h) {
		switch h := h.(type) {
		case *metadata.IncrementalHandle:
			b, err := p.open(h.Meta)
			if err != nil {
				return err
			}
			in := javaio.NewReader(b)
			m, err := serializer.ReadKeyedBackendMeta(in)
			if err != nil {
				return err
			}
			r.blocks++
			if in.Len() != 0 {
				return fmt.Errorf("meta block leaves %d bytes", in.Len())
			}
			r.note(m.Unknown)
		case *metadata.KeyGroupsHandle:
			b, err := p.open(h.Delegate)
			if err != nil {
				return err
			}
			in := javaio.NewReader(b)
			m, err := serializer.ReadKeyedBackendMeta(in)
			if err != nil {
				return err
			}
			r.blocks++
			r.note(m.Unknown)
			first := int64(len(b))
			for _, o := range h.Offsets {
				if o > 0 {
					first = min(first, o)
				}
			}
			if m.Size != first {
				return fmt.Errorf("meta block has %d bytes, the first key group begins at %d", m.Size, first)
			}
			canonical := h.Form == metadata.TagSavepointKeyGroups
			for k, o := range h.Offsets { // RocksDB before 1.16 wrote canonical data in the other kind of handle
				if o > 0 && int32(binary.BigEndian.Uint32(b[o:])) != h.Range.Start+int32(k) {
					canonical = true
				}
			}
			for k, o := range h.Offsets {
				if o <= 0 {
					continue
				}
				kg := int(h.Range.Start) + k
				end := int64(len(b))
				for _, e := range h.Offsets[k+1:] {
					if e > 0 {
						end = e
						break
					}
				}
				if canonical {
					err = r.canonical(m, op, kg, b[o:end], emit)
				} else {
					err = r.heap(m, op, kg, b[o:end], emit)
				}
				if err != nil {
					return fmt.Errorf("key group %d: %w", kg, err)
				}
			}
		}
	}
	return nil
}

func (r *stateReader) note(unknown []serializer.UnknownError) {
	for _, u := range unknown {
		if r.opaque == nil {
			r.opaque = map[string]int{}
		}
		r.opaque[u.Class]++
	}
}

func unsnappy(b []byte) ([]byte, error) { return io.ReadAll(snappy.NewReader(bytes.NewReader(b))) }

func (r *stateReader) decoder(t *serializer.Type, framed bool) *serializer.Decoder {
	return serializer.NewDecoder(t, &serializer.DecodeOptions{Framed: framed, Strict: true, Kryo: r.kryo, Classes: r.classes})
}

func (r *stateReader) heap(m *serializer.KeyedBackendMeta, op *metadata.OperatorState, kg int, b []byte, emit func(record)) error {
	if got := int(int32(binary.BigEndian.Uint32(b))); got != kg {
		return fmt.Errorf("holds key group %d", got)
	}
	b = b[4:]
	if m.Compressed {
		var err error
		if b, err = unsnappy(b); err != nil {
			return err
		}
	}
	for range m.States {
		id, n := int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint32(b[2:]))
		b = b[6:]
		s := &m.States[id]
		for range n {
			rec := record{operator: op.ID.String(), state: s, key: m.Key, keyGroup: kg}
			if s.Kind == serializer.PriorityQueue {
				k, err := r.timer(&rec, b)
				if err != nil {
					return fmt.Errorf("%s: %w", s.Name, err)
				}
				b = b[k:]
				emit(rec)
				continue
			}
			for part, t := range []*serializer.Type{s.Namespace(), m.Key, s.Value()} {
				d := r.decoder(t, false)
				js, k, err := d.AppendJSON(nil, b)
				if err != nil {
					return fmt.Errorf("%s: part %d of %s: %w", s.Name, part, t, err)
				}
				switch part {
				case 0:
					rec.nsJSON = string(js)
				case 1:
					rec.keyJSON, rec.keyBytes = string(js), b[:k]
				default:
					rec.value = string(js)
					rec.ttlMin, rec.ttlMax, rec.hasTTL = d.TTL()
				}
				b = b[k:]
			}
			emit(rec)
		}
	}
	if len(b) != 0 {
		return fmt.Errorf("leaves %d bytes", len(b))
	}
	return nil
}

func (r *stateReader) timer(rec *record, b []byte) (int, error) {
	t := rec.state.Value()
	d := r.decoder(t, false)
	rec.timestamp = int64(binary.BigEndian.Uint64(b) ^ 1<<63)
	n, err := d.Skip(b)
	if err != nil {
		return 0, err
	}
	key, ns := t.Fields[1].Type, t.Fields[2].Type
	js, k, err := r.decoder(key, false).AppendJSON(nil, b[8:])
	if err != nil {
		return 0, err
	}
	rec.keyJSON, rec.keyBytes = string(js), b[8:8+k]
	js, _, err = r.decoder(ns, false).AppendJSON(nil, b[8+k:])
	rec.nsJSON, rec.value = string(js), "null"
	return n, err
}

func suffixLen(n int) int {
	k := 1
	for n >>= 8; n > 0; n >>= 8 {
		k++
	}
	return k
}

func (r *stateReader) canonical(m *serializer.KeyedBackendMeta, op *metadata.OperatorState, kg int, b []byte, emit func(record)) error {
	if m.Compressed {
		var err error
		if b, err = unsnappy(b); err != nil {
			return err
		}
	}
	prefix := 1
	if op.MaxParallelism > 128 {
		prefix = 2
	}
	id := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	for {
		n := int(binary.BigEndian.Uint32(b))
		key := bytes.Clone(b[4 : 4+n])
		b = b[4+n:]
		n = int(binary.BigEndian.Uint32(b))
		value := b[4 : 4+n]
		b = b[4+n:]
		last := key[0]&0x80 != 0
		key[0] &= 0x7f
		s := &m.States[id]
		rec := record{operator: op.ID.String(), state: s, key: m.Key, keyGroup: kg}
		if s.Kind == serializer.PriorityQueue {
			if _, err := r.timer(&rec, key[prefix:]); err != nil {
				return fmt.Errorf("%s: %w", s.Name, err)
			}
			emit(rec)
		} else if err := r.canonicalEntry(&rec, key[prefix:], value, emit); err != nil {
			return fmt.Errorf("%s: key %x value %x: %w", s.Name, key, value, err)
		}
		if last {
			if id = int(binary.BigEndian.Uint16(b)); id == 0xffff {
				return nil
			}
			b = b[2:]
		}
	}
}

func (r *stateReader) canonicalEntry(rec *record, key, value []byte, emit func(record)) error {
	s := rec.state
	suffixed := rec.key.FixedLength() < 0 && s.Namespace().FixedLength() < 0
	take := func(t *serializer.Type, b []byte) (string, int, error) {
		js, n, err := r.decoder(t, false).AppendJSON(nil, b)
		if err == nil && suffixed {
			return string(js), n + suffixLen(n), nil
		}
		return string(js), n, err
	}
	js, n, err := take(rec.key, key)
	if err != nil {
		return err
	}
	rec.keyJSON, rec.keyBytes = js, key[:n]
	key = key[n:]
	if rec.nsJSON, n, err = take(s.Namespace(), key); err != nil {
		return err
	}
	key = key[n:]
	switch s.StateType() {
	case "MAP":
		kt, vt := s.MapTypes()
		js, _, err := r.decoder(kt, true).AppendJSON(nil, key)
		if err != nil {
			return fmt.Errorf("map key: %w", err)
		}
		rec.mapKey = string(js)
		if value[0] != 0 {
			rec.value = "null"
			break
		}
		d := r.decoder(vt, true)
		if js, _, err = d.AppendJSON(nil, value[1:]); err != nil {
			return fmt.Errorf("map value: %w", err)
		}
		rec.value = string(js)
		rec.ttlMin, rec.ttlMax, rec.hasTTL = d.TTL()
	case "LIST":
		if len(key) != 0 {
			return fmt.Errorf("key leaves %d bytes", len(key))
		}
		d := r.decoder(s.Element(), false)
		var out []byte
		for len(value) > 0 {
			out = append(out, ',')
			var n int
			if out, n, err = d.AppendJSON(out, value); err != nil {
				return fmt.Errorf("element: %w", err)
			}
			if lo, hi, ok := d.TTL(); ok {
				if !rec.hasTTL {
					rec.ttlMin, rec.ttlMax, rec.hasTTL = lo, hi, true
				}
				rec.ttlMin, rec.ttlMax = min(rec.ttlMin, lo), max(rec.ttlMax, hi)
			}
			value = value[n:]
			if len(value) > 0 {
				value = value[1:]
			}
		}
		rec.value = "[" + strings.TrimPrefix(string(out), ",") + "]"
	default:
		if len(key) != 0 {
			return fmt.Errorf("key leaves %d bytes", len(key))
		}
		d := r.decoder(s.Value(), true)
		js, _, err := d.AppendJSON(nil, value)
		if err != nil {
			return err
		}
		rec.value = string(js)
		rec.ttlMin, rec.ttlMax, rec.hasTTL = d.TTL()
	}
	emit(*rec)
	return nil
}
