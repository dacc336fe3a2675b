package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
)

// rowSorter sorts records in bounded memory: a record is a sort key and a payload.
// What does not fit is written, sorted, to temporary files, which are merged.
//
//	run := ( uvarint key length, uvarint payload length, key, payload )*
type rowSorter struct {
	dir     string
	budget  int64
	spilled *atomic.Int64

	chunks  [][]byte
	entries []sortEntry
	size    int64
	runs    []*tempFile
}

type sortEntry struct {
	prefix [2]uint64 // the first bytes of the key, to compare fast
	rec    []byte    // key and payload
	key    int       // bytes of the key
}

const (
	sortChunk = 256 << 10
	// entryBytes is what a record takes beside itself.
	entryBytes = 48
)

var sortChunks = sync.Pool{New: func() any { b := make([]byte, 0, sortChunk); return &b }}

// add keeps a copy of a record.
func (s *rowSorter) add(key, payload []byte) error {
	n := len(key) + len(payload)
	if s.size += int64(n) + entryBytes; s.size > s.budget && len(s.entries) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
		s.size = int64(n) + entryBytes
	}
	last := len(s.chunks) - 1
	if last < 0 || cap(s.chunks[last])-len(s.chunks[last]) < n {
		switch {
		case n > sortChunk:
			s.chunks = append(s.chunks, make([]byte, 0, n))
		case s.budget < sortChunk:
			s.chunks = append(s.chunks, make([]byte, 0, max(int64(n), s.budget)))
		default:
			s.chunks = append(s.chunks, (*sortChunks.Get().(*[]byte))[:0])
		}
		last++
	}
	c := s.chunks[last]
	from := len(c)
	c = append(append(c, key...), payload...)
	s.chunks[last] = c
	s.entries = append(s.entries, sortEntry{keyPrefix(key), c[from:len(c):len(c)], len(key)})
	return nil
}

func keyPrefix(key []byte) [2]uint64 {
	if len(key) >= 16 {
		return [2]uint64{binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:])}
	}
	var b [16]byte
	copy(b[:], key)
	return [2]uint64{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
}

// compare orders records by key.
func (e *sortEntry) compare(o *sortEntry) int {
	switch {
	case e.prefix[0] != o.prefix[0]:
		return cmp.Compare(e.prefix[0], o.prefix[0])
	case e.prefix[1] != o.prefix[1]:
		return cmp.Compare(e.prefix[1], o.prefix[1])
	}
	return bytes.Compare(e.rec[:e.key], o.rec[:o.key])
}

// sort brings the records in memory into order: those of one key by their payload,
// so that two runs say the same.
func (s *rowSorter) sort() {
	slices.SortFunc(s.entries, func(a, b sortEntry) int {
		if c := a.compare(&b); c != 0 {
			return c
		}
		return bytes.Compare(a.rec[a.key:], b.rec[b.key:])
	})
}

// free gives the memory of the records back.
func (s *rowSorter) free() {
	for i := range s.chunks {
		if cap(s.chunks[i]) == sortChunk {
			sortChunks.Put(&s.chunks[i])
		}
	}
	clear(s.entries)
	s.chunks, s.entries, s.size = nil, s.entries[:0], 0
}

func (s *rowSorter) spill() error {
	s.sort()
	i := 0
	err := s.writeRun(func() (key, payload []byte, ok bool, err error) {
		if i == len(s.entries) {
			return nil, nil, false, nil
		}
		e := &s.entries[i]
		i++
		return e.rec[:e.key], e.rec[e.key:], true, nil
	})
	s.free()
	if err == nil && len(s.runs) >= maxRuns {
		err = s.mergeAll()
	}
	return err
}

// mergeAll makes one run of all.
func (s *rowSorter) mergeAll() error {
	old := s.runs
	s.runs = nil
	m, err := openRuns(old, s.budget)
	if err == nil {
		err = s.writeRun(func() (key, payload []byte, ok bool, err error) {
			ok, err = m.next()
			return m.key(), m.payload(), ok, err
		})
	}
	for _, f := range old {
		err = errors.Join(err, f.Close())
	}
	return err
}

func (s *rowSorter) writeRun(next func() (key, payload []byte, ok bool, err error)) error {
	f, err := newTempFile(s.dir)
	if err != nil {
		return err
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, int(min(s.budget, 256<<10))) // no more than what it writes takes in memory
	var head [2 * binary.MaxVarintLen64]byte
	var n int64
	for {
		key, payload, ok, err := next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		h := binary.AppendUvarint(binary.AppendUvarint(head[:0], uint64(len(key))), uint64(len(payload)))
		for _, b := range [][]byte{h, key, payload} {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("%w: %w", errSpill, err)
			}
			n += int64(len(b))
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errSpill, err)
	}
	if s.spilled != nil {
		s.spilled.Add(n)
	}
	return nil
}

// sorted gives the records in the order of their keys. Nothing may be added after.
func (s *rowSorter) sorted() (*sortMerge, error) {
	s.sort()
	m, err := openRuns(s.runs, s.budget)
	if err != nil {
		return nil, err
	}
	if len(s.entries) > 0 {
		src := &sortSource{entries: s.entries, order: len(m.sources)}
		if _, err := src.advance(); err != nil {
			return nil, err
		}
		m.sources = append(m.sources, src)
	}
	return m, nil
}

func (s *rowSorter) close() error {
	s.free()
	var err error
	for _, f := range s.runs {
		err = errors.Join(err, f.Close())
	}
	s.runs = nil
	return err
}

// sortMerge merges sorted runs.
type sortMerge struct {
	sources []*sortSource
	cur     *sortSource // whose record was given out
}

// openRuns begins to merge files, each with a buffer that is not larger than the budget of
// one of them.
func openRuns(runs []*tempFile, budget int64) (*sortMerge, error) {
	m := &sortMerge{}
	for i, f := range runs {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("%w: %w", errSpill, err)
		}
		src := &sortSource{r: bufio.NewReaderSize(f, int(min(budget, 64<<10))), order: i}
		ok, err := src.advance()
		if err != nil {
			return nil, err
		}
		if ok {
			m.sources = append(m.sources, src)
		}
	}
	return m, nil
}

// next moves to the next record; it is valid until the next call.
func (m *sortMerge) next() (bool, error) {
	if m.cur != nil {
		ok, err := m.cur.advance()
		if err != nil {
			return false, err
		}
		if !ok {
			m.sources = slices.DeleteFunc(m.sources, func(s *sortSource) bool { return s == m.cur })
		}
		m.cur = nil
	}
	for _, s := range m.sources {
		if m.cur == nil || s.before(m.cur) {
			m.cur = s
		}
	}
	return m.cur != nil, nil
}

func (m *sortMerge) key() []byte {
	if m.cur == nil {
		return nil
	}
	return m.cur.rec[:m.cur.key]
}

func (m *sortMerge) payload() []byte {
	if m.cur == nil {
		return nil
	}
	return m.cur.rec[m.cur.key:]
}

// sortSource is a run in a file, or in memory.
type sortSource struct {
	r       *bufio.Reader
	entries []sortEntry
	order   int

	sortEntry
	buf []byte
}

func (s *sortSource) before(o *sortSource) bool {
	if c := s.compare(&o.sortEntry); c != 0 {
		return c < 0
	}
	return s.order < o.order
}

func (s *sortSource) advance() (bool, error) {
	if s.r == nil {
		if len(s.entries) == 0 {
			return false, nil
		}
		s.sortEntry, s.entries = s.entries[0], s.entries[1:]
		return true, nil
	}
	key, err := binary.ReadUvarint(s.r)
	if err == io.EOF {
		return false, nil
	}
	var payload uint64
	if err == nil {
		payload, err = binary.ReadUvarint(s.r)
	}
	if err == nil {
		s.buf = slices.Grow(s.buf[:0], int(key+payload))[:key+payload]
		_, err = io.ReadFull(s.r, s.buf)
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", errSpill, err)
	}
	s.sortEntry = sortEntry{keyPrefix(s.buf[:key]), s.buf, int(key)}
	return true, nil
}
