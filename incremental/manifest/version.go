package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/internal/damage"
)

// Bound is an internal key: a user key and sequence<<8|kind.
type Bound struct {
	Key     []byte
	Trailer uint64
}

// Compare orders internal keys: by user key, then newest first.
func (b Bound) Compare(o Bound) int {
	if c := bytes.Compare(b.Key, o.Key); c != 0 {
		return c
	}
	return cmp.Compare(o.Trailer, b.Trailer)
}

// rangeDelSentinel is the trailer of a largest key that is the end of a range
// deletion and not itself in the file: sequence 2^56-1, kind 0x0f.
const rangeDelSentinel = maxSeq<<8 | 0x0f

// Exclusive says that a largest key is not itself in the file.
func (b Bound) Exclusive() bool { return b.Trailer == rangeDelSentinel }

// Table is one live table.
type Table struct {
	Level  int
	Number uint64
	PathID uint32
	Size   int64 // bytes
	// Smallest and Largest bound the internal keys.
	Smallest, Largest       Bound
	SmallestSeq, LargestSeq uint64
	HasSeqs                 bool // false in edits of before RocksDB 3.0
	Epoch                   uint64
	OldestAncestorTime      uint64 // seconds since 1970
	CreationTime            uint64 // seconds since 1970
	Checksum                []byte // of the file, if the database was set to compute one
	ChecksumName            string
	TailSize                uint64 // bytes from the end of data to the end of the file; 0 if unknown
}

// Family is one column family.
type Family struct {
	ID         uint32
	Name       string
	Comparator string // empty if no edit told one
	// Tables are sorted: level 0 newest first, by largest sequence; then by level
	// and smallest key.
	Tables []Table
}

// Version is the newest state that a MANIFEST describes.
type Version struct {
	LastSequence uint64
	NextFile     uint64
	DBID         string
	Families     []*Family // in the order of their ids, dropped ones left out
	HasBlobs     bool      // it lists blob files
	Edits        int
}

// Options changes how a MANIFEST is decoded. Nil is the default.
type Options struct {
	Name string // for errors
}

// Decode replays a whole MANIFEST. Damage is a *damage.Error.
func Decode(data []byte, opts *Options) (*Version, error) {
	if opts == nil {
		opts = &Options{}
	}
	v, err := decode(data)
	if err != nil {
		var d *damage.Error
		if errors.As(err, &d) && d.Name == "" {
			d.Name = opts.Name
		}
		return nil, err
	}
	return v, nil
}

type family struct {
	id         uint32
	name       string
	comparator string
	tables     map[uint64]Table
}

type replay struct {
	families map[uint32]*family
	version  Version
}

func decode(data []byte) (*Version, error) {
	r := &replay{families: map[uint32]*family{0: {name: "default", tables: map[uint64]Table{}}}}
	l := &logReader{data: data}
	type pending struct {
		e  *edit
		at int64
	}
	var group []pending
	for {
		record, at, ok, err := l.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		e, err := decodeEdit(record, at)
		if err != nil {
			return nil, err
		}
		r.version.Edits++
		if e.group != nil {
			if n := len(group); n > 0 && *e.group+1 != *group[n-1].e.group {
				return nil, corrupt(at, "atomic group", fmt.Sprintf("has %d edits left behind one with %d left", *e.group, *group[n-1].e.group))
			}
			group = append(group, pending{e, at})
			if *e.group > 0 {
				continue
			}
			for _, p := range group {
				if err := r.apply(p.e, p.at); err != nil {
					return nil, err
				}
			}
			group = group[:0]
			continue
		}
		if len(group) > 0 {
			return nil, corrupt(at, "atomic group", "is not complete")
		}
		if err := r.apply(e, at); err != nil {
			return nil, err
		}
	}
	if r.version.Edits == 0 {
		return nil, corrupt(0, "", "has no records")
	}
	// A group that the end of the log cuts off was never in force.
	return r.finish()
}

func (r *replay) apply(e *edit, at int64) error {
	f := r.families[e.family]
	switch {
	case e.add != nil:
		if f != nil && (e.family != 0 || *e.add != f.name) {
			return corrupt(at, "column family", fmt.Sprintf("%d is added twice", e.family))
		}
		if f == nil {
			f = &family{id: e.family, name: *e.add, tables: map[uint64]Table{}}
			r.families[e.family] = f
		}
	case f == nil:
		return corrupt(at, "column family", fmt.Sprintf("%d does not exist", e.family))
	case e.drop:
		delete(r.families, e.family)
		return nil
	}
	if e.comparator != nil {
		f.comparator = *e.comparator
	}
	if e.lastSequence != nil {
		r.version.LastSequence = max(r.version.LastSequence, *e.lastSequence)
	}
	if e.nextFile != nil {
		r.version.NextFile = *e.nextFile
	}
	if e.dbID != "" {
		r.version.DBID = e.dbID
	}
	r.version.HasBlobs = r.version.HasBlobs || e.blobs
	for _, d := range e.deleted {
		t, ok := f.tables[d.number]
		if !ok || t.Level != d.level {
			return corrupt(at, "deleted file", fmt.Sprintf("%d is not on level %d", d.number, d.level))
		}
		delete(f.tables, d.number)
	}
	for _, t := range e.added {
		if _, ok := f.tables[t.Number]; ok {
			return corrupt(at, "new file", fmt.Sprintf("%d is there already", t.Number))
		}
		f.tables[t.Number] = t
	}
	return nil
}

func (r *replay) finish() (*Version, error) {
	v := &r.version
	for _, f := range r.families {
		out := &Family{ID: f.id, Name: f.name, Comparator: f.comparator}
		for _, t := range f.tables {
			out.Tables = append(out.Tables, t)
		}
		slices.SortFunc(out.Tables, compareTables)
		for i := 1; i < len(out.Tables); i++ {
			a, b := &out.Tables[i-1], &out.Tables[i]
			if a.Level > 0 && a.Level == b.Level && a.Largest.Compare(b.Smallest) >= 0 {
				return nil, corrupt(-1, "level", fmt.Sprintf("%d of column family %q has overlapping files %d and %d", a.Level, f.name, a.Number, b.Number))
			}
		}
		v.Families = append(v.Families, out)
	}
	slices.SortFunc(v.Families, func(a, b *Family) int { return cmp.Compare(a.ID, b.ID) })
	return v, nil
}

func compareTables(a, b Table) int {
	if c := cmp.Compare(a.Level, b.Level); c != 0 {
		return c
	}
	if a.Level == 0 {
		return cmp.Or(cmp.Compare(b.LargestSeq, a.LargestSeq), cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(b.Number, a.Number))
	}
	return cmp.Or(a.Smallest.Compare(b.Smallest), cmp.Compare(a.Number, b.Number))
}

var currentName = regexp.MustCompile(`^MANIFEST-[0-9]{1,20}$`)

// Current reads a CURRENT file: the name of the MANIFEST in force and a newline.
func Current(data []byte, opts *Options) (string, error) {
	name, ok := strings.CutSuffix(string(data[:min(len(data), 64)]), "\n")
	if !ok || !currentName.MatchString(name) || len(data) != len(name)+1 {
		d := &damage.Error{Offset: 0, Detail: fmt.Sprintf("is %q, not the name of a MANIFEST", data[:min(len(data), 64)]), Err: damage.ErrCorrupt}
		if opts != nil {
			d.Name = opts.Name
		}
		return "", d
	}
	return name, nil
}

// IsManifest says that a local name is that of a MANIFEST.
func IsManifest(name string) bool { return currentName.MatchString(name) }

// TableName is the local name of a table: at least six digits and ".sst".
func TableName(number uint64) string { return fmt.Sprintf("%06d.sst", number) }
