package incremental

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/manifest"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

// File is one file of an embedded database, as a handle lists it.
type File struct {
	// Name is the local name, "000012.sst", "CURRENT", "MANIFEST-000004": what
	// links it to the MANIFEST. The name under which the bytes are stored does not matter.
	Name string
	// Source reads it. Its size may be wrong for a table, since Flink never checks
	// the sizes in handles: the MANIFEST's is used. It must be right for other files.
	Source sst.Source
}

// Options changes how a database is opened. Nil is the default.
type Options struct {
	// Name precedes the local name in errors: the handle's or snapshot's name.
	Name string
	// CacheBytes bounds the memory for tails (index, properties) of open tables
	// that no iterator uses just now; 0 is 32 MiB, negative keeps none.
	CacheBytes int64
	// OnDamage, if set, is told of each file or block that cannot be used, and
	// reading goes on without it. What is then read may lack entries and may hold
	// older values of them, so say so to the user. It may be called from many
	// goroutines. Nil makes the first damage the error of the operation. A file that
	// the store does not have is damage, too; its other failures stay errors.
	OnDamage func(error)
}

const (
	defaultCacheBytes = 32 << 20
	// maxManifestBytes bounds what is read into memory; RocksDB begins a new
	// MANIFEST at 1 GiB by default, Flink's have kilobytes.
	maxManifestBytes = 1 << 30
	bytewise         = "leveldb.BytewiseComparator"
)

// Database is the RocksDB or ForSt database of one incremental handle, read only:
// the newest version that its MANIFEST describes. For concurrent use.
type Database struct {
	name         string
	onDamage     func(error)
	cache        *tableCache
	files        map[string]sst.Source
	names        []string // of files, in the order given
	families     []*Family
	byName       map[string]*Family
	fromManifest bool
	lastSequence uint64
	manifestName string
}

// Open reads the MANIFEST among files and resolves the live tables of each column
// family. Tables themselves are opened when they are needed. Without a MANIFEST
// it opens each table and takes all of them as live, see FromManifest; a MANIFEST
// that is damaged is an error, or with OnDamage treated as if it were not there.
func Open(ctx context.Context, files []File, opts *Options) (*Database, error) {
	if opts == nil {
		opts = &Options{}
	}
	d := &Database{
		name: opts.Name, onDamage: opts.OnDamage,
		files: make(map[string]sst.Source, len(files)), byName: map[string]*Family{},
	}
	d.cache = newTableCache(cmp.Or(opts.CacheBytes, defaultCacheBytes))
	for _, f := range files {
		if _, ok := d.files[f.Name]; ok {
			return nil, d.corrupt(f.Name, "stands twice in the handle")
		}
		d.files[f.Name] = f.Source
		d.names = append(d.names, f.Name)
	}
	version, err := d.readVersion(ctx)
	if err != nil {
		if err := d.tolerate(err); err != nil {
			return nil, err
		}
		version = nil
	}
	if version != nil {
		return d, d.useVersion(version)
	}
	return d, d.useTables(ctx)
}

func (d *Database) fileName(local string) string {
	if d.name == "" {
		return local
	}
	return d.name + "/" + local
}

func (d *Database) corrupt(local, detail string) error {
	return &damage.Error{Name: d.fileName(local), Offset: -1, Detail: detail, Err: damage.ErrCorrupt}
}

// isDamage says that err is about bytes that are wrong or not understood.
func isDamage(err error) bool {
	return errors.Is(err, damage.ErrCorrupt) || errors.Is(err, damage.ErrUnsupportedVersion)
}

// missing makes damage of the store's word that a file of the handle is not there.
func (d *Database) missing(local string, err error) error {
	if errors.Is(err, blobstore.ErrNotExist) || errors.Is(err, fs.ErrNotExist) {
		return &damage.Error{Name: d.fileName(local), Offset: -1, Detail: "is listed in the handle but not in the store", Err: fmt.Errorf("%w: %w", damage.ErrCorrupt, err)}
	}
	return err
}

// tolerate is nil if damage may be passed by, after it was told to OnDamage.
func (d *Database) tolerate(err error) error {
	if d.onDamage == nil || !isDamage(err) {
		return err
	}
	d.onDamage(err)
	return nil
}

// readVersion decodes the MANIFEST; nil if the handle has none.
func (d *Database) readVersion(ctx context.Context) (*manifest.Version, error) {
	var manifests []string
	for _, n := range d.names {
		if manifest.IsManifest(n) {
			manifests = append(manifests, n)
		}
	}
	switch len(manifests) {
	case 0:
		if _, ok := d.files["CURRENT"]; ok {
			return nil, d.corrupt("CURRENT", "names a MANIFEST that the handle does not list")
		}
		return nil, nil
	case 1:
		// CURRENT can name no other, so it need not be read.
		d.manifestName = manifests[0]
	default:
		current, ok := d.files["CURRENT"]
		if !ok {
			return nil, d.corrupt("CURRENT", "is not listed, but more than one MANIFEST is")
		}
		data, err := d.readFile(ctx, "CURRENT", current, 4096)
		if err != nil {
			return nil, err
		}
		name, err := manifest.Current(data, &manifest.Options{Name: d.fileName("CURRENT")})
		if err != nil {
			return nil, err
		}
		if _, ok := d.files[name]; !ok {
			return nil, d.corrupt("CURRENT", fmt.Sprintf("names %s, which the handle does not list", name))
		}
		d.manifestName = name
	}
	data, err := d.readFile(ctx, d.manifestName, d.files[d.manifestName], maxManifestBytes)
	if err != nil {
		return nil, err
	}
	return manifest.Decode(data, &manifest.Options{Name: d.fileName(d.manifestName)})
}

// readFile reads a whole small file.
func (d *Database) readFile(ctx context.Context, local string, src sst.Source, limit int64) ([]byte, error) {
	size := src.Size()
	if size > limit {
		return nil, d.corrupt(local, fmt.Sprintf("has %d bytes, more than %d", size, limit))
	}
	// The size comes from a handle: grow with what is really there.
	var buf []byte
	for off := int64(0); off < size; {
		n := min(size-off, 1<<20)
		buf = slices.Grow(buf, int(n))[:off+n]
		m, err := src.ReadAt(ctx, buf[off:], off)
		if int64(m) < n {
			if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, &damage.Error{Name: d.fileName(local), Offset: off + int64(m), Detail: fmt.Sprintf("the file ends here, not at its size of %d bytes", size), Err: damage.ErrCorrupt}
			}
			if err = d.missing(local, err); isDamage(err) {
				return nil, err
			}
			return nil, fmt.Errorf("%s: %w", d.fileName(local), err)
		}
		off += n
	}
	return buf, nil
}

func (d *Database) useVersion(v *manifest.Version) error {
	d.fromManifest = true
	d.lastSequence = v.LastSequence
	for _, mf := range v.Families {
		if mf.Comparator != "" && mf.Comparator != bytewise {
			err := &damage.Error{Name: d.fileName(d.manifestName), Offset: -1, Field: "comparator of " + mf.Name, Detail: fmt.Sprintf("is %q", mf.Comparator), Err: damage.ErrUnsupportedVersion}
			if err := d.tolerate(err); err != nil {
				return err
			}
			continue
		}
		f := &Family{ID: mf.ID, Name: mf.Name, db: d}
		for _, t := range mf.Tables {
			local := manifest.TableName(t.Number)
			f.Tables = append(f.Tables, Table{
				Level: t.Level, Number: t.Number, Size: t.Size,
				Smallest: t.Smallest.Key, Largest: t.Largest.Key,
				SmallestSeq: t.SmallestSeq, LargestSeq: t.LargestSeq,
				name: local, smallest: t.Smallest, largest: t.Largest, bounded: true, hasSeqs: t.HasSeqs,
			})
		}
		d.addFamily(f)
	}
	return nil
}

func (d *Database) addFamily(f *Family) {
	d.families = append(d.families, f)
	d.byName[f.Name] = f
}

// useTables opens every table and groups them by what they say of themselves.
func (d *Database) useTables(ctx context.Context) error {
	byKey := map[string]*Family{}
	for _, local := range d.names {
		if !strings.HasSuffix(local, ".sst") {
			continue
		}
		t := Table{name: local, Size: d.files[local].Size(), LargestSeq: sst.MaxSeq}
		fmt.Sscanf(local, "%d.sst", &t.Number)
		r, err := d.cache.open(ctx, d, &t)
		if err != nil {
			if err := d.tolerate(err); err != nil {
				return err
			}
			continue
		}
		p := r.Properties()
		if !p.FamilyKnown() || p.Ingested() && p.GlobalSeq == 0 {
			err := d.corrupt(local, "was made outside of the database: its column family and sequence number are known to the MANIFEST alone, which is not there")
			if err := d.tolerate(err); err != nil {
				return err
			}
			continue
		}
		f := byKey[p.ColumnFamilyName]
		if f == nil {
			f = &Family{ID: p.ColumnFamilyID, Name: p.ColumnFamilyName, db: d}
			byKey[p.ColumnFamilyName] = f
			d.addFamily(f)
		}
		f.Tables = append(f.Tables, t)
	}
	slices.SortFunc(d.families, func(a, b *Family) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name)) })
	for _, f := range d.families {
		slices.SortFunc(f.Tables, func(a, b Table) int { return cmp.Compare(b.Number, a.Number) })
	}
	return nil
}

// FromManifest says that the MANIFEST told which tables are live. Without it the
// files of the handle are taken as exactly the live set, which they are in every
// handle that Flink wrote.
func (d *Database) FromManifest() bool { return d.fromManifest }

// LastSequence is the newest sequence number of the database, 0 without MANIFEST.
func (d *Database) LastSequence() uint64 { return d.lastSequence }

// Families are the column families in the order of their ids. Flink has one for
// each state and an empty one with the name "default". The slice may not be changed.
func (d *Database) Families() []*Family { return d.families }

// Family finds a column family by name, in Flink the state's name; nil if there is none.
func (d *Database) Family(name string) *Family { return d.byName[name] }

// Family is one column family. It may not be changed.
type Family struct {
	ID   uint32
	Name string
	// Tables are the live tables: level 0 newest first, then by level and key.
	Tables []Table

	db *Database
}

// Table is one live table of a column family.
type Table struct {
	Level  int // 0 for all tables if there is no MANIFEST
	Number uint64
	Size   int64 // bytes
	// Smallest and Largest are user keys that bound the table, both inclusive; nil
	// without MANIFEST.
	Smallest, Largest       []byte
	SmallestSeq, LargestSeq uint64

	name              string // local
	smallest, largest manifest.Bound
	bounded           bool // the bounds are known
	hasSeqs           bool
}

// FileName is the table's local name.
func (t *Table) FileName() string { return t.name }

// Bytes is the sum of the sizes of the family's tables, which may hold more than
// the live entries.
func (f *Family) Bytes() int64 {
	var n int64
	for i := range f.Tables {
		n += f.Tables[i].Size
	}
	return n
}

// Properties reads what a table says of itself: counts of entries and deletions,
// compression, times.
func (f *Family) Properties(ctx context.Context, t *Table) (*sst.Properties, error) {
	r, err := f.db.cache.open(ctx, f.db, t)
	if err != nil {
		return nil, err
	}
	return r.Properties(), nil
}

// overlaps says that the table may hold user keys from lower to before upper.
func (t *Table) overlaps(lower, upper []byte) bool {
	if !t.bounded {
		return true
	}
	if upper != nil && string(t.smallest.Key) >= string(upper) {
		return false
	}
	if lower != nil {
		if c := cmp.Compare(string(t.largest.Key), string(lower)); c < 0 || c == 0 && t.largest.Exclusive() {
			return false
		}
	}
	return true
}

// readerOptions are those with which a table is opened.
func (d *Database) readerOptions(t *Table) sst.Options {
	return sst.Options{Name: d.fileName(t.name), LargestSeq: t.LargestSeq, HasLargestSeq: t.bounded && t.hasSeqs}
}

// source gives the table's bytes, as long as the MANIFEST says.
func (d *Database) source(t *Table) (sst.Source, error) {
	src, ok := d.files[t.name]
	if !ok {
		return nil, d.corrupt(t.name, "is live by the MANIFEST, but the handle does not list it")
	}
	if t.bounded && src.Size() != t.Size {
		return sst.Section(src, 0, t.Size), nil
	}
	return src, nil
}
