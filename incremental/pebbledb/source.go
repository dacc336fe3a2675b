package pebbledb

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
)

// Source is a checkpoint to restore from.
type Source struct {
	Name   string // in errors
	Handle *metadata.IncrementalHandle
	// Open gives the bytes behind a handle. It is called from many goroutines, and
	// what it gives is used until the database is closed. The sizes of what it gives
	// are checked.
	Open func(context.Context, metadata.StreamHandle) (sst.Source, error)
}

// checkpoint is a source whose small files are here.
type checkpoint struct {
	name    string
	sums    *sums
	groups  metadata.KeyGroupRange
	private map[string][]byte
	tables  []remoteTable
}

// remoteTable is a table in the blob store.
type remoteTable struct {
	stored
	src sst.Source
	// object says that it is another database's: it is found by its name in the
	// catalog, not as a file.
	object bool
}

// maxPrivate bounds the private files of one checkpoint in memory. A MANIFEST has
// some hundred bytes for a table.
const maxPrivate = 256 << 20

var (
	localTable  = regexp.MustCompile(`^[0-9]{6,19}\.(sst|blob)$`)
	incarnation = regexp.MustCompile(`^[0-9a-f-]{36}$`)
	objectTable = regexp.MustCompile(`^[0-9a-f-]{36}-[0-9]{6,19}\.sst$`)
)

// objectName is that of a table when another database attaches it.
func objectName(e sumEntry) string {
	if objectTable.MatchString(e.Name) {
		return e.Name
	}
	return e.Incarnation + "-" + e.Local
}

// load fetches the small files of a checkpoint and checks what it says of itself.
func (s *Source) load(ctx context.Context, merger string) (*checkpoint, error) {
	h := s.Handle
	c := &checkpoint{name: s.Name, groups: h.Range, private: map[string][]byte{}}
	bad := func(name, format string, args ...any) error {
		return &damage.Error{Name: s.at(name), Offset: -1, Detail: fmt.Sprintf(format, args...), Err: damage.ErrCorrupt}
	}
	handles := map[string]metadata.StreamHandle{}
	for _, list := range [][]metadata.NamedHandle{h.Private, h.Shared} {
		for _, n := range list {
			name := n.Name.Go()
			if handles[name] != nil {
				return nil, bad(name, "is there twice")
			}
			if n.Handle == nil {
				return nil, bad(name, "has no handle")
			}
			handles[name] = n.Handle
		}
	}
	if handles[SumsName] == nil {
		return nil, &damage.Error{Name: s.Name, Offset: -1, Detail: "has no file " + SumsName + ": it is no checkpoint of a Pebble database", Err: damage.ErrUnsupportedVersion}
	}
	// All small files come at once, and are checked then.
	small, err := s.readSmall(ctx)
	if err != nil {
		return nil, err
	}
	if c.sums, err = decodeSums(s.at(SumsName), small[SumsName]); err != nil {
		return nil, err
	}
	m := c.sums
	if m.Format > uint64(formatVersion) || m.Format < uint64(pebble.FormatTableFormatV6) {
		return nil, &damage.Error{Name: s.at(SumsName), Offset: 0, Field: "formatMajorVersion", Detail: fmt.Sprintf("is %d", m.Format), Err: damage.ErrUnsupportedVersion}
	}
	if m.Comparer != pebble.DefaultComparer.Name {
		return nil, &damage.Error{Name: s.at(SumsName), Offset: 0, Field: "comparer", Detail: fmt.Sprintf("is %q", m.Comparer), Err: damage.ErrUnsupportedVersion}
	}
	if m.Merger != merger {
		return nil, fmt.Errorf("%s: merge operator is %q, the database has %q", s.at(SumsName), m.Merger, merger)
	}
	for _, n := range m.Empty {
		if !isPrivate(n) {
			return nil, bad(SumsName, "names a file %q that has no place in a checkpoint", n)
		}
		c.private[n] = nil
	}
	seen := map[string]bool{}
	for _, e := range m.Files {
		handle := handles[e.Name]
		if handle == nil {
			return nil, bad(e.Name, "is named by %s but the handle has it not", SumsName)
		}
		if seen[e.Name] {
			return nil, bad(SumsName, "names %s twice", e.Name)
		}
		seen[e.Name] = true
		local, object := localTable.MatchString(e.Name), objectTable.MatchString(e.Name)
		switch {
		case local || object:
			if !incarnation.MatchString(e.Incarnation) || !localTable.MatchString(e.Local) {
				return nil, bad(SumsName, "does not say where table %s is from", e.Name)
			}
			src, err := s.Open(ctx, handle)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.at(e.Name), err)
			}
			if size := src.Size(); size >= 0 && size != e.Size {
				return nil, bad(e.Name, "has %d bytes in its handle, the checkpoint says %d", size, e.Size)
			}
			c.tables = append(c.tables, remoteTable{stored: stored{e, handle}, src: src, object: object})
		case isPrivate(e.Name):
			data, ok := small[e.Name]
			if !ok {
				return nil, bad(e.Name, "is in the list of shared files")
			}
			if int64(len(data)) != e.Size {
				return nil, e.wrongSize(s.at(e.Name), int64(len(data)))
			}
			if got := checksum(xxhash.Sum64(data)); got != e.Sum {
				return nil, e.mismatch(s.at(e.Name), got)
			}
			c.private[e.Name] = data
		default:
			return nil, bad(SumsName, "names a file %q that has no place in a checkpoint", e.Name)
		}
	}
	for _, n := range h.Shared {
		if !seen[n.Name.Go()] {
			return nil, bad(n.Name.Go(), "has no checksum in %s", SumsName)
		}
	}
	return c, nil
}

// readSmall reads the private files.
func (s *Source) readSmall(ctx context.Context) (map[string][]byte, error) {
	list := s.Handle.Private
	blobs := make([][]byte, len(list))
	var total atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxUploads)
	for i, n := range list {
		name := n.Name.Go()
		g.Go(func() error {
			src, err := s.Open(ctx, n.Handle)
			if err != nil {
				return fmt.Errorf("%s: %w", s.at(name), err)
			}
			if total.Add(max(0, src.Size())) > maxPrivate {
				return &damage.Error{Name: s.at(name), Offset: -1, Detail: fmt.Sprintf("has %d bytes, too many for a file that is no table", src.Size()), Err: damage.ErrCorrupt}
			}
			blobs[i], err = readWhole(ctx, src, s.at(name), src.Size())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	small := make(map[string][]byte, len(list))
	for i, n := range list {
		small[n.Name.Go()] = blobs[i]
	}
	return small, nil
}

// sums reads the file PEBBLE.
func (s *Source) sums(ctx context.Context, src sst.Source) (*sums, error) {
	if src.Size() > maxSums {
		return nil, &damage.Error{Name: s.at(SumsName), Offset: -1, Detail: fmt.Sprintf("has %d bytes", src.Size()), Err: damage.ErrCorrupt}
	}
	text, err := readWhole(ctx, src, s.at(SumsName), src.Size())
	if err != nil {
		return nil, err
	}
	return decodeSums(s.at(SumsName), text)
}

func (s *Source) at(name string) string {
	if s.Name == "" {
		return name
	}
	return s.Name + ": " + name
}

func isSST(name string) bool { return len(name) > 4 && name[len(name)-4:] == ".sst" }

// readWhole reads a small file, whose size was checked.
func readWhole(ctx context.Context, src sst.Source, display string, size int64) ([]byte, error) {
	if size < 0 {
		return nil, &damage.Error{Name: display, Offset: -1, Detail: "has an unknown size", Err: damage.ErrCorrupt}
	}
	// The size is what a handle says: memory follows what comes.
	var data []byte
	for int64(len(data)) < size {
		have := len(data)
		data = slices.Grow(data, int(min(size-int64(have), 1<<20)))
		data = data[:min(int64(cap(data)), size)]
		n, err := src.ReadAt(ctx, data[have:], int64(have))
		if have+n < len(data) {
			if isEnd(err) {
				return nil, &damage.Error{Name: display, Offset: int64(have + n), Detail: fmt.Sprintf("the file ends here, it should have %d bytes", size), Err: damage.ErrCorrupt}
			}
			return nil, fmt.Errorf("%s: byte %d: %w", display, have+n, err)
		}
	}
	return data, nil
}
