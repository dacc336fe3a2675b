package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// raw counts the records of a key in raw keyed state, and keeps some of them, each in
// a partition of raw operator state. The same count stands in managed state beside it.
// What it writes for a key group or a partition is a piece:
//
//	piece     := int32 length  bytes  int32 CRC-32
//	key group := int32 group  ( int64 key  int64 count )*
//	partition := the record in decimal digits
type raw struct {
	managed *keyed.ValueState[int64, int64]
	groups  metadata.KeyGroupRange
	counts  map[int]map[int64]int64 // by key group
	marks   []int64
	groupOf func(key int64) int
}

func isMarked(v int64) bool { return v%marks == 0 }

func (r *raw) Open(rt *stream.KeyedRuntime[int64]) error {
	r.managed = keyed.Value(rt.Keyed, "managed", serializer.Int64)
	r.groups, r.counts = rt.KeyGroups(), map[int]map[int64]int64{}
	r.groupOf = func(key int64) int {
		return serializer.AssignKeyGroup(int32(key^key>>32), rt.MaxParallelism) // Java's Long.hashCode
	}
	if err := rt.RawKeyed(r.restore); err != nil {
		return err
	}
	return rt.RawOperator(func(b []byte) error {
		b, err := piece(b)
		if err != nil {
			return fmt.Errorf("a partition: %w", err)
		}
		v, err := strconv.ParseInt(string(b), 10, 64)
		r.marks = append(r.marks, v)
		return err
	})
}

func (r *raw) restore(group int, b []byte) error {
	b, err := piece(b)
	if err != nil {
		return fmt.Errorf("key group %d: %w", group, err)
	}
	if len(b)%16 != 4 || int(binary.BigEndian.Uint32(b)) != group || r.counts[group] != nil || !r.groups.Contains(int32(group)) {
		return fmt.Errorf("these are not the bytes of key group %d", group)
	}
	m := map[int64]int64{}
	for b = b[4:]; len(b) > 0; b = b[16:] {
		key := int64(binary.BigEndian.Uint64(b))
		if _, twice := m[key]; twice || r.groupOf(key) != group {
			return fmt.Errorf("key %d in key group %d", key, group)
		}
		m[key] = int64(binary.BigEndian.Uint64(b[8:]))
	}
	r.counts[group] = m
	return nil
}

func (r *raw) Process(c *keyedContext, v int64) error {
	key := c.Key.Value()
	g := r.groupOf(key)
	if r.counts[g] == nil {
		r.counts[g] = map[int64]int64{}
	}
	r.counts[g][key]++
	n := r.counts[g][key]
	before, _, err := r.managed.Get(c.Key)
	if err != nil {
		return err
	}
	if n != before+1 {
		return fmt.Errorf("key %d was counted %d times in raw state, %d in managed state", key, n, before+1)
	}
	if isMarked(v) {
		r.marks = append(r.marks, v)
	}
	c.Emit(fmt.Sprintf("raw %d %d", key, n))
	return r.managed.Set(c.Key, n)
}

// Snapshot writes the groups from the last to the first; of those without keys every
// other one has bytes.
func (r *raw) Snapshot(s *task.Snapshotting) error {
	for g := int(r.groups.End()); g >= int(r.groups.Start); g-- {
		m := r.counts[g]
		if len(m) == 0 && g%2 == 1 {
			continue
		}
		b := binary.BigEndian.AppendUint32(nil, uint32(g))
		for key, n := range m {
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(key)), uint64(n))
		}
		w, err := s.RawKeyed(g)
		if err != nil {
			return err
		}
		if err := writePiece(w, b); err != nil {
			return err
		}
	}
	for _, v := range r.marks {
		if err := writePiece(s.RawOperator(), strconv.AppendInt(nil, v, 10)); err != nil {
			return err
		}
	}
	return nil
}

func (r *raw) Finish(c *stream.Context[string]) error {
	for _, v := range r.marks {
		c.Emit(fmt.Sprintf("mark %d", v))
	}
	r.marks = nil
	return nil
}

// piece takes off the frame of exactly one piece.
func piece(b []byte) ([]byte, error) {
	if len(b) < 8 || uint64(binary.BigEndian.Uint32(b)) != uint64(len(b)-8) {
		return nil, fmt.Errorf("%d bytes are not one piece", len(b))
	}
	body := b[4 : len(b)-4]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, errors.New("its checksum is another one")
	}
	return body, nil
}

func writePiece(w io.Writer, b []byte) error {
	p := append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	_, err := w.Write(binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE(b)))
	return err
}
