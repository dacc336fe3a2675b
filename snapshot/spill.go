package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"
)

// Disk usage compares two long lists: the objects that there are, and those that
// snapshots name. Neither is held in memory. The first comes sorted from the store
// and is kept as it comes (spool); the second is sorted in pieces, each written
// to a temporary file, and merged (sorter). In both, a name is stored as the length
// it has in common with the one before it and the rest:
//
//	uvarint  bytes in common with the name before
//	uvarint  bytes that follow
//	...      these bytes
//	         the numbers of the entry, as uvarints
//
// The files are private to one call and gone after it.

// errSpill marks failures of temporary files, which are not the store's.
var errSpill = errors.New("temporary file")

// tempFile is a file in dir that is removed when it is closed.
type tempFile struct{ *os.File }

func newTempFile(dir string) (*tempFile, error) {
	f, err := os.CreateTemp(dir, "tidemark-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSpill, err)
	}
	return &tempFile{f}, nil
}

func (f *tempFile) Close() error {
	err := f.File.Close()
	return errors.Join(err, os.Remove(f.Name()))
}

// nameWriter writes entries with front-coded names.
type nameWriter struct {
	w    *bufio.Writer
	last []byte
	buf  [binary.MaxVarintLen64]byte
	err  error
	n    int64 // bytes written
}

func (w *nameWriter) uvarint(v uint64) {
	n := binary.PutUvarint(w.buf[:], v)
	w.write(w.buf[:n])
}

func (w *nameWriter) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.n += int64(len(b))
	}
}

func (w *nameWriter) name(s string) {
	n := 0
	for n < len(s) && n < len(w.last) && s[n] == w.last[n] {
		n++
	}
	w.uvarint(uint64(n))
	w.uvarint(uint64(len(s) - n))
	if w.err == nil {
		_, w.err = w.w.WriteString(s[n:])
		w.n += int64(len(s) - n)
	}
	w.last = append(w.last[:n], s[n:]...)
}

// nameReader reads what nameWriter wrote.
type nameReader struct {
	r    *bufio.Reader
	name []byte
	err  error
}

func (r *nameReader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(r.r)
	r.err = err
	return v
}

// next reads a name into r.name; false at the end or after an error.
func (r *nameReader) next() bool {
	common := r.uvarint()
	if r.err != nil {
		if r.err == io.EOF {
			r.err = nil
		}
		return false
	}
	n := r.uvarint()
	if r.err == nil && (common > uint64(len(r.name)) || n > 1<<20) {
		r.err = errors.New("damaged")
	}
	if r.err != nil {
		return false
	}
	r.name = slices.Grow(r.name[:common], int(n))[:common+n]
	_, r.err = io.ReadFull(r.r, r.name[common:])
	return r.err == nil
}

// spool keeps a sorted listing, in memory while it is short.
type spool struct {
	dir   string
	limit int
	mem   bytes.Buffer
	file  *tempFile
	w     nameWriter
}

func newSpool(dir string, limit int) *spool {
	s := &spool{dir: dir, limit: limit}
	s.w.w = bufio.NewWriterSize(s, 64<<10)
	return s
}

// Write implements io.Writer for the encoder.
func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && s.mem.Len()+len(p) > s.limit {
		f, err := newTempFile(s.dir)
		if err != nil {
			return 0, err
		}
		s.file = f
		if _, err := f.Write(s.mem.Bytes()); err != nil {
			return 0, fmt.Errorf("%w: %w", errSpill, err)
		}
		s.mem = bytes.Buffer{}
	}
	if s.file != nil {
		n, err := s.file.Write(p)
		if err != nil {
			err = fmt.Errorf("%w: %w", errSpill, err)
		}
		return n, err
	}
	return s.mem.Write(p)
}

// listed is one object of a listing.
type listed struct {
	name    string
	size    int64
	modTime time.Time
}

func (s *spool) add(o listed) error {
	s.w.name(o.name)
	s.w.uvarint(uint64(max(o.size, 0)))
	millis := uint64(0)
	if !o.modTime.IsZero() {
		millis = uint64(max(o.modTime.UnixMilli(), 0)) + 1
	}
	s.w.uvarint(millis)
	return s.w.err
}

// all yields what was added, in order. The listed is reused but for its name,
// which is valid until the next one.
func (s *spool) all() iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		if err := s.w.w.Flush(); err != nil {
			yield(listed{}, err)
			return
		}
		var src io.Reader = bytes.NewReader(s.mem.Bytes())
		if s.file != nil {
			if _, err := s.file.Seek(0, io.SeekStart); err != nil {
				yield(listed{}, fmt.Errorf("%w: %w", errSpill, err))
				return
			}
			src = s.file
		}
		r := nameReader{r: bufio.NewReaderSize(src, 64<<10)}
		for r.next() {
			o := listed{name: string(r.name), size: int64(r.uvarint())}
			if millis := r.uvarint(); millis > 0 {
				o.modTime = time.UnixMilli(int64(millis - 1)).UTC()
			}
			if r.err != nil {
				break
			}
			if !yield(o, nil) {
				return
			}
		}
		if r.err != nil {
			yield(listed{}, fmt.Errorf("%w: %w", errSpill, r.err))
		}
	}
}

func (s *spool) close() error {
	if s.file != nil {
		return s.file.Close()
	}
	return nil
}

// reference is one snapshot naming one object, or a segment of it.
type reference struct {
	name     string
	snapshot int32
	whole    bool
	start    int64
	end      int64 // of a whole object its size, -1 unknown
}

func compareReferences(a, b reference) int {
	if r := strings.Compare(a.name, b.name); r != 0 {
		return r
	}
	if a.whole != b.whole {
		if a.whole {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.snapshot, b.snapshot), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
}

// sorter sorts references in bounded memory. Equal ones are kept once.
type sorter struct {
	dir    string
	budget int64 // bytes in memory
	buf    []reference
	size   int64
	runs   []*run
	err    error
}

// maxRuns bounds how many files are merged at a time.
const maxRuns = 64

// referenceBytes is what a reference takes beside its name: itself, and the
// allocation of the name.
const referenceBytes = 48 + 16

type run struct{ file *tempFile }

func (s *sorter) add(r reference) error {
	if s.err != nil {
		return s.err
	}
	s.buf = append(s.buf, r)
	s.size += int64(len(r.name)) + referenceBytes
	if s.size > s.budget {
		s.err = s.spill()
	}
	return s.err
}

func (s *sorter) sortBuffer() {
	slices.SortFunc(s.buf, compareReferences)
	s.buf = slices.CompactFunc(s.buf, func(a, b reference) bool { return compareReferences(a, b) == 0 })
}

func (s *sorter) spill() error {
	s.sortBuffer()
	if len(s.runs) >= maxRuns {
		if err := s.mergeRuns(); err != nil {
			return err
		}
	}
	err := s.writeRun(func(yield func(reference, error) bool) {
		for _, r := range s.buf {
			if !yield(r, nil) {
				return
			}
		}
	})
	clear(s.buf)
	s.buf, s.size = s.buf[:0], 0
	return err
}

// mergeRuns makes one run of all.
func (s *sorter) mergeRuns() error {
	old := s.runs
	s.runs = nil
	err := s.writeRun(mergeSources(readRuns(old)))
	for _, r := range old {
		err = errors.Join(err, r.file.Close())
	}
	return err
}

func (s *sorter) writeRun(refs iter.Seq2[reference, error]) error {
	f, err := newTempFile(s.dir)
	if err != nil {
		return err
	}
	s.runs = append(s.runs, &run{f})
	w := nameWriter{w: bufio.NewWriterSize(f, 64<<10)}
	for r, err := range refs {
		if err != nil {
			return err
		}
		w.name(r.name)
		flag := uint64(r.snapshot) << 1
		if r.whole {
			flag |= 1
		}
		w.uvarint(flag)
		if !r.whole {
			w.uvarint(uint64(r.start))
		}
		w.uvarint(uint64(r.end + 1))
		if w.err != nil {
			break
		}
	}
	if w.err == nil {
		w.err = w.w.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("%w: %w", errSpill, w.err)
	}
	return nil
}

func readRuns(runs []*run) []iter.Seq2[reference, error] {
	var out []iter.Seq2[reference, error]
	for _, r := range runs {
		out = append(out, r.all())
	}
	return out
}

func (r *run) all() iter.Seq2[reference, error] {
	return func(yield func(reference, error) bool) {
		if _, err := r.file.Seek(0, io.SeekStart); err != nil {
			yield(reference{}, fmt.Errorf("%w: %w", errSpill, err))
			return
		}
		n := nameReader{r: bufio.NewReaderSize(r.file, 64<<10)}
		for n.next() {
			ref := reference{name: string(n.name)}
			flag := n.uvarint()
			ref.snapshot, ref.whole = int32(flag>>1), flag&1 != 0
			if !ref.whole {
				ref.start = int64(n.uvarint())
			}
			ref.end = int64(n.uvarint()) - 1
			if n.err != nil {
				break
			}
			if !yield(ref, nil) {
				return
			}
		}
		if n.err != nil {
			yield(reference{}, fmt.Errorf("%w: %w", errSpill, n.err))
		}
	}
}

// sorted yields all references in order, each once. Nothing may be added after.
func (s *sorter) sorted() iter.Seq2[reference, error] {
	if s.err != nil {
		return func(yield func(reference, error) bool) { yield(reference{}, s.err) }
	}
	s.sortBuffer()
	sources := readRuns(s.runs)
	sources = append(sources, func(yield func(reference, error) bool) {
		for _, r := range s.buf {
			if !yield(r, nil) {
				return
			}
		}
	})
	return mergeSources(sources)
}

func (s *sorter) close() error {
	var errs []error
	for _, r := range s.runs {
		errs = append(errs, r.file.Close())
	}
	s.runs, s.buf = nil, nil
	return errors.Join(errs...)
}

// mergeSources merges sorted sequences and drops doubles.
func mergeSources(sources []iter.Seq2[reference, error]) iter.Seq2[reference, error] {
	if len(sources) == 1 {
		return sources[0]
	}
	return func(yield func(reference, error) bool) {
		var h mergeHeap
		defer func() {
			for _, s := range h {
				s.stop()
			}
		}()
		for _, seq := range sources {
			next, stop := iter.Pull2(seq)
			s := &mergeSource{next: next, stop: stop}
			if ok, err := s.advance(); err != nil {
				stop()
				yield(reference{}, err)
				return
			} else if ok {
				h = append(h, s)
			}
		}
		heap.Init(&h)
		var last reference
		first := true
		for len(h) > 0 {
			s := h[0]
			if first || compareReferences(last, s.head) != 0 {
				if !yield(s.head, nil) {
					return
				}
				last, first = s.head, false
			}
			ok, err := s.advance()
			if err != nil {
				yield(reference{}, err)
				return
			}
			if ok {
				heap.Fix(&h, 0)
			} else {
				heap.Pop(&h)
			}
		}
	}
}

type mergeSource struct {
	head reference
	next func() (reference, error, bool)
	stop func()
}

func (s *mergeSource) advance() (bool, error) {
	r, err, ok := s.next()
	if !ok {
		s.stop()
		return false, nil
	}
	s.head = r
	return true, err
}

type mergeHeap []*mergeSource

func (h mergeHeap) Len() int           { return len(h) }
func (h mergeHeap) Less(i, j int) bool { return compareReferences(h[i].head, h[j].head) < 0 }
func (h mergeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *mergeHeap) Push(x any)        { *h = append(*h, x.(*mergeSource)) }
func (h *mergeHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
