package incremental

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/incremental/manifest"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

// VerifyOptions changes what Database.Verify does. Nil is the default.
type VerifyOptions struct {
	// Choose, if not nil, gives for a table the choice of its data blocks, as in
	// sst.VerifyOptions; nil is all.
	Choose func(name string) func(block uint64) bool
	// Entries, if not nil, is called for each table that is read, and gives what is
	// called for its entries as sst.VerifyOptions.OnEntry; f is nil for a table that
	// the MANIFEST does not list. The calls for different tables come from different
	// goroutines.
	Entries func(f *Family, name string) func(key []byte, trailer uint64, value []byte, block int64) error
	// Recall, if not nil, gives what an earlier run found in the same bytes under the
	// same settings, so that a table that several handles share is read once; false
	// if it was not read. It may be called from many goroutines.
	Recall func(f *Family, name string) (report *sst.Report, damage []error, ok bool)
	// OnOptions, if not nil, is given each OPTIONS file, to be compared with others by
	// CompareOptions.
	OnOptions func(name string, data []byte)
	// Workers is how many tables are read at once; 0 is 1. Slots, if not nil, bounds
	// it over all runs that share it: a table takes a place while it is read.
	Workers int
	Slots   chan struct{}
	// OnDamage is told of each finding. Calls come one at a time.
	OnDamage func(Finding)
	// OnTable is told when a table was read, its report and damage in hand; f is nil for a
	// table that the MANIFEST does not list. Calls come one at a time.
	OnTable func(f *Family, name string, report *sst.Report, damage []error)
}

// Finding is one piece of damage.
type Finding struct {
	File   string // local name
	Family string // the column family's name; empty if the file is not a live table
	Err    error  // a *damage.Error
}

// VerifySummary is what Database.Verify saw.
type VerifySummary struct {
	Findings int
	Tables   int
	Bytes    int64 // verified
	Entries  uint64
	// WithoutChecksum lists the files that have no checksum of their own, so that
	// only what is structurally impossible is found: CURRENT, OPTIONS and tables
	// that were written without.
	WithoutChecksum []string
}

// verification is one run of Database.Verify.
type verification struct {
	db   *Database
	opts *VerifyOptions

	mu      sync.Mutex
	summary VerifySummary
	seen    []seenTable
}

// seenTable is what the comparison of tables with each other needs.
type seenTable struct {
	family  *Family
	name    string
	number  uint64
	session string
	version uint32
	at      int64
}

// Verify reads every file of the handle whole: CURRENT, MANIFEST and OPTIONS, and
// each table as sst.Verify does, and compares tables with what the MANIFEST says of
// them and with each other. It returns an error only if reading itself failed or
// the context ended; damage goes to OnDamage and is counted.
func (d *Database) Verify(ctx context.Context, opts *VerifyOptions) (*VerifySummary, error) {
	if opts == nil {
		opts = &VerifyOptions{}
	}
	v := &verification{db: d, opts: opts}
	settings, err := v.smallFiles(ctx)
	if err != nil {
		return &v.summary, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, opts.Workers))
	live := map[string]bool{}
	for _, f := range d.families {
		for i := range f.Tables {
			t := &f.Tables[i]
			live[t.name] = true
			g.Go(func() error { return v.table(gctx, f, t) })
		}
	}
	for _, name := range d.names {
		if strings.HasSuffix(name, ".sst") && !live[name] {
			t := &Table{name: name, Size: d.files[name].Size(), LargestSeq: sst.MaxSeq}
			g.Go(func() error { return v.table(gctx, nil, t) })
		}
	}
	if err := g.Wait(); err != nil {
		return &v.summary, err
	}
	v.compareVersions(settings)
	slices.Sort(v.summary.WithoutChecksum)
	return &v.summary, nil
}

// found reports damage; any other error is returned.
func (v *verification) found(file string, f *Family, err error) error {
	if err == nil {
		return nil
	}
	if !isDamage(err) {
		return err
	}
	x := Finding{File: file, Err: err}
	if f != nil {
		x.Family = f.Name
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.summary.Findings++
	if v.opts.OnDamage != nil {
		v.opts.OnDamage(x)
	}
	return nil
}

// smallFiles reads everything but the tables.
func (v *verification) smallFiles(ctx context.Context) (*rocksOptions, error) {
	d := v.db
	var settings *rocksOptions
	for _, local := range d.names {
		name := d.fileName(local)
		switch {
		case local == "CURRENT":
			v.summary.WithoutChecksum = append(v.summary.WithoutChecksum, local)
			data, err := d.readFile(ctx, local, d.files[local], 4096)
			if err == nil {
				var current string
				if current, err = manifest.Current(data, &manifest.Options{Name: name}); err == nil && current != d.manifestName {
					err = d.corrupt(local, fmt.Sprintf("names %s, which the handle does not list", current))
				}
			}
			if err := v.found(local, nil, err); err != nil {
				return nil, err
			}
		case manifest.IsManifest(local):
			data, err := d.readFile(ctx, local, d.files[local], maxManifestBytes)
			if err == nil {
				_, err = manifest.Decode(data, &manifest.Options{Name: name})
			}
			if err := v.found(local, nil, err); err != nil {
				return nil, err
			}
			v.summary.Bytes += int64(len(data))
		case strings.HasPrefix(local, "OPTIONS-"):
			v.summary.WithoutChecksum = append(v.summary.WithoutChecksum, local)
			data, err := d.readFile(ctx, local, d.files[local], 64<<20)
			if err == nil {
				settings, err = parseOptions(local, name, data)
			}
			if err := v.found(local, nil, err); err != nil {
				return nil, err
			}
			if err == nil {
				var families []string
				if d.fromManifest {
					for _, f := range d.families {
						families = append(families, f.Name)
					}
				}
				for _, err := range checkOptions(name, data, families) {
					if err := v.found(local, nil, err); err != nil {
						return nil, err
					}
				}
				if v.opts.OnOptions != nil {
					v.opts.OnOptions(local, data)
				}
			}
		}
	}
	if _, ok := d.files["CURRENT"]; !ok && d.manifestName != "" {
		if err := v.found("CURRENT", nil, d.corrupt("CURRENT", "is not listed in the handle")); err != nil {
			return nil, err
		}
	}
	return settings, nil
}

func (v *verification) table(ctx context.Context, f *Family, t *Table) error {
	d := v.db
	src, ok := d.files[t.name]
	if !ok {
		_, err := d.source(t)
		return v.found(t.name, f, err)
	}
	if t.bounded && src.Size() != t.Size {
		if err := v.found(t.name, f, d.corrupt(t.name, fmt.Sprintf("has %d bytes, %d by the MANIFEST", src.Size(), t.Size))); err != nil {
			return err
		}
	}
	src, err := d.source(t)
	if err != nil {
		return err
	}
	var report *sst.Report
	var damages []error
	recalled := false
	if v.opts.Recall != nil {
		report, damages, recalled = v.opts.Recall(f, t.name)
		for _, err := range damages {
			_ = v.found(t.name, f, err)
		}
	}
	if !recalled {
		if v.opts.Slots != nil {
			select {
			case v.opts.Slots <- struct{}{}:
				defer func() { <-v.opts.Slots }()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		opts := &sst.VerifyOptions{Options: d.readerOptions(t), OnDamage: func(err error) {
			damages = append(damages, err)
			_ = v.found(t.name, f, err) // which is damage
		}}
		if v.opts.Choose != nil {
			opts.Choose = v.opts.Choose(t.name)
		}
		if v.opts.Entries != nil {
			opts.OnEntry = v.opts.Entries(f, t.name)
		}
		if report, err = sst.Verify(ctx, src, opts); err != nil {
			return v.found(t.name, f, d.missing(t.name, err))
		}
	}
	if len(damages) == 0 && t.bounded {
		for _, err := range d.compareWithManifest(t, report) {
			if err := v.found(t.name, f, err); err != nil {
				return err
			}
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.summary.Tables++
	v.summary.Bytes += report.Bytes
	v.summary.Entries += report.Entries
	if report.Properties != nil {
		if report.Footer.Checksum == sst.ChecksumNone {
			v.summary.WithoutChecksum = append(v.summary.WithoutChecksum, t.name)
		}
		v.seen = append(v.seen, seenTable{f, t.name, t.Number, report.Properties.CreatingSession, report.Footer.FormatVersion, report.Footer.Offset + 41})
	}
	if v.opts.OnTable != nil && !recalled {
		v.opts.OnTable(f, t.name, report, damages)
	}
	return nil
}

// compareWithManifest sees that a sound table is the one that the MANIFEST means.
func (d *Database) compareWithManifest(t *Table, r *sst.Report) []error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, &damage.Error{Name: d.fileName(t.name), Offset: -1, Detail: fmt.Sprintf(format, args...), Err: damage.ErrCorrupt})
	}
	if r.Smallest != nil {
		if bytes.Compare(r.Smallest, t.smallest.Key) < 0 {
			bad("begins with key %x, with %x by the MANIFEST", r.Smallest, t.smallest.Key)
		}
		if c := bytes.Compare(r.Largest, t.largest.Key); c > 0 || c == 0 && t.largest.Exclusive() {
			bad("ends with key %x, with %x by the MANIFEST", r.Largest, t.largest.Key)
		}
		// Without range deletions nothing else can have widened the bounds.
		if r.RangeDels == 0 && r.SkippedBlocks == 0 && (!bytes.Equal(r.Smallest, t.smallest.Key) || !bytes.Equal(r.Largest, t.largest.Key)) {
			bad("holds keys %x to %x, %x to %x by the MANIFEST", r.Smallest, r.Largest, t.smallest.Key, t.largest.Key)
		}
	}
	if t.hasSeqs && (r.Entries > 0 || r.RangeDels > 0) {
		if r.SmallestSeq < t.SmallestSeq || r.LargestSeq > t.LargestSeq ||
			r.SkippedBlocks == 0 && (r.SmallestSeq != t.SmallestSeq || r.LargestSeq != t.LargestSeq) {
			bad("has sequences %d to %d, %d to %d by the MANIFEST", r.SmallestSeq, r.LargestSeq, t.SmallestSeq, t.LargestSeq)
		}
	}
	return errs
}

// compareVersions looks for a table whose format version is not the one of its
// database. Nothing in a table itself covers that field (before version 6), and some
// versions differ in nothing that must show. Tables newer than the OPTIONS file were
// written with its settings; of others those written in one session agree.
func (v *verification) compareVersions(o *rocksOptions) {
	sessions := map[string]map[uint32]int{}
	for _, t := range v.seen {
		if sessions[t.session] == nil {
			sessions[t.session] = map[uint32]int{}
		}
		sessions[t.session][t.version]++
	}
	for _, t := range v.seen {
		var written uint32
		if o != nil && t.family != nil {
			written = o.formatVersions[t.family.Name]
		}
		var detail string
		if written != 0 && t.number > o.number {
			if t.version != written {
				detail = fmt.Sprintf("is %d, but its database writes %d", t.version, written)
			}
		} else if counts := sessions[t.session]; t.session != "" && len(counts) > 1 {
			// The fewer are wrong, or of as many those that the settings do not ask for.
			for version, n := range counts {
				if own := counts[t.version]; version != t.version && (n > own || n == own && t.version != written) {
					detail = fmt.Sprintf("is %d, but %d in other tables of the same session", t.version, version)
				}
			}
		}
		if detail != "" {
			_ = v.found(t.name, t.family, &damage.Error{Name: v.db.fileName(t.name), Offset: t.at, Field: "footer.formatVersion", Detail: detail, Err: damage.ErrCorrupt})
		}
	}
}
