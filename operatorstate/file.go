package operatorstate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// file is what is needed of a state file, in memory: runs of bytes with those
// partitions that a subtask gets. A partition reaches to the next one of the file,
// whoever gets that.
type file struct {
	name       string
	size       int64
	ends       []int64 // where partitions begin, and the file's end, ascending
	runs       []run   // ascending
	compressed bool
	op         *stream.Operator // of a compressed file
}

type run struct {
	from int64
	data []byte
}

// maxGap is how many bytes that nobody asked for are read rather than asking the
// store once more.
const maxGap = 256 << 10

// load reads the partitions of some states. all are the offsets of the whole file.
func load(ctx context.Context, src sst.Source, name string, compressed bool, all []int64, states []metadata.NamedPartitions) (*file, error) {
	f := &file{name: name, size: src.Size(), compressed: compressed}
	f.ends = append(slices.Clone(all), f.size)
	slices.Sort(f.ends)
	f.ends = slices.Compact(f.ends)
	var wanted []int64
	for i := range states {
		wanted = append(wanted, states[i].Offsets...)
	}
	slices.Sort(wanted)
	for i := 1; i < len(wanted); i++ {
		// Also what Flink 1.18.0 wrote with compression (FLINK-34063).
		if wanted[i] == wanted[i-1] {
			return nil, &damage.Error{Name: name, Offset: wanted[i], Field: "partition offset", Detail: "is that of two partitions", Err: damage.ErrCorrupt}
		}
	}
	var from, to int64 = 0, -1
	read := func() error {
		if to < 0 {
			return nil
		}
		b, err := readRange(ctx, src, from, to)
		if err != nil {
			return named(name, err)
		}
		f.runs = append(f.runs, run{from, b})
		return nil
	}
	for _, o := range wanted {
		end, err := f.end(o)
		if err != nil {
			return nil, err
		}
		if to >= 0 && o <= to+maxGap {
			to = max(to, end)
			continue
		}
		if err := read(); err != nil {
			return nil, err
		}
		from, to = o, end
	}
	if err := read(); err != nil {
		return nil, err
	}
	if compressed {
		f.op = stream.NewOperator(ctx, f, name, true, all)
	}
	return f, nil
}

// end is where the partition at an offset ends.
func (f *file) end(offset int64) (int64, error) {
	if offset <= 0 || offset >= f.size {
		return 0, &damage.Error{Name: f.name, Offset: -1, Field: "partition offset", Detail: fmt.Sprintf("is %d in a file of %d bytes", offset, f.size), Err: damage.ErrCorrupt}
	}
	i, _ := slices.BinarySearch(f.ends, offset+1)
	return f.ends[i], nil
}

// partition gives the decoded bytes of a partition; valid until the next call.
func (f *file) partition(offset int64) ([]byte, error) {
	if f.compressed {
		if err := f.op.Open(offset); err != nil {
			return nil, err
		}
		return f.op.Rest()
	}
	end, err := f.end(offset)
	if err != nil {
		return nil, err
	}
	return f.bytes(offset, end), nil
}

// bytes are those of a run.
func (f *file) bytes(from, to int64) []byte {
	i := sort.Search(len(f.runs), func(i int) bool { return f.runs[i].from > from }) - 1
	if i < 0 {
		return nil
	}
	r := f.runs[i]
	return r.data[min(from-r.from, int64(len(r.data))):min(to-r.from, int64(len(r.data)))]
}

// Size and ReadAt make it a source of what was read.
func (f *file) Size() int64 { return f.size }

func (f *file) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	n := copy(p, f.bytes(off, off+int64(len(p))))
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readRange reads bytes in steps: the end may be a lie.
func readRange(ctx context.Context, src sst.Source, from, to int64) ([]byte, error) {
	var out []byte
	for step := int64(64 << 10); int64(len(out)) < to-from; step *= 2 {
		at := int64(len(out))
		k := min(step, to-from-at)
		out = slices.Grow(out, int(k))[:at+k]
		if m, err := src.ReadAt(ctx, out[at:], from+at); err != nil && (err != io.EOF || int64(m) < k) {
			if err == io.EOF {
				err = &damage.Error{Offset: from + at + int64(m), Field: "file", Detail: fmt.Sprintf("ends, expected byte %d", to), Err: damage.ErrCorrupt}
			}
			return nil, err
		}
	}
	return out, nil
}
