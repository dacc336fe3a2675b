package pebbledb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/metadata"
)

func isEnd(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Restore makes a database of the key groups that opts wants, from the checkpoints
// of one or more databases whose key groups do not overlap. It returns as soon as
// the database can be read: tables are read from the blob store as they are needed
// and fetched in the background. Until all are here no compaction runs.
//
// The checkpoint with the most of the wanted key groups becomes the database, with
// its tables as they are; what else it has is cut off. The tables of the others are
// attached, level by level. So nothing is rewritten, and the first checkpoint
// refers to the same files.
//
// A damaged or truncated file is an error here, or of the first read that needs
// it, and then fails the database: *damage.Error says which file and where.
//
// ctx holds for Restore alone. Without sources it is Open.
func Restore(ctx context.Context, p *Process, dir string, sources []Source, opts *Options) (*DB, error) {
	d, err := prepare(ctx, p, dir, opts)
	if err != nil {
		return nil, err
	}
	// Pebble reads tables without a context: those reads end with the database's.
	stop := context.AfterFunc(ctx, func() { d.end(context.Cause(ctx)) })
	err = d.restore(ctx, sources)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if failed := d.Err(); failed != nil {
			err = failed
		}
		if ctx.Err() == nil {
			d.spoilUnproven()
		}
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *DB) restore(ctx context.Context, sources []Source) error {
	loaded := make([]*checkpoint, len(sources))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxUploads)
	for i := range sources {
		s := &sources[i]
		if intersect(s.Handle.Range, d.opts.KeyGroups).Count <= 0 {
			continue
		}
		g.Go(func() (err error) {
			loaded[i], err = s.load(gctx, d.opts.Merger.Name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	from := slices.DeleteFunc(loaded, func(c *checkpoint) bool { return c == nil })
	for i, a := range from {
		for _, b := range from[:i] {
			if intersect(intersect(a.groups, b.groups), d.opts.KeyGroups).Count > 0 {
				return fmt.Errorf("%s and %s both have key groups %d to %d", a.name, b.name, intersect(a.groups, b.groups).Start, intersect(a.groups, b.groups).End())
			}
		}
	}
	if len(from) == 0 {
		if err := d.openPebble(); err != nil {
			return err
		}
		d.sched.setOpen(true)
		return nil
	}
	// The one with the most key groups first; of equal ones the larger, whose tables
	// would be the most to attach.
	sort.SliceStable(from, func(i, j int) bool {
		a, b := intersect(from[i].groups, d.opts.KeyGroups).Count, intersect(from[j].groups, d.opts.KeyGroups).Count
		if a != b {
			return a > b
		}
		return from[i].bytes() > from[j].bytes()
	})
	base := from[0]
	remote, err := d.place(ctx, base, d.fs.dir)
	if err != nil {
		return err
	}
	d.prefetch(remote)
	if err := d.openPebble(); err != nil {
		return err
	}
	if err := d.guard(func() error { return d.cut(ctx, intersect(base.groups, d.opts.KeyGroups)) }); err != nil {
		return fmt.Errorf("%s: %w", base.name, err)
	}
	known := map[string]stored{}
	for _, t := range base.tables {
		if reusable(t.handle) {
			known[t.entry.Name] = t.stored
		}
	}
	for i, other := range from[1:] {
		attached, err := d.attach(ctx, i, other, known)
		if err != nil {
			return fmt.Errorf("%s: %w", other.name, err)
		}
		remote = append(remote, attached...)
	}
	if !d.opts.NoClaim {
		d.up.base = known
	}
	d.files = nil
	return d.fetch(ctx, remote)
}

func (c *checkpoint) bytes() (n int64) {
	for _, t := range c.tables {
		n += t.entry.Size
	}
	return n
}

func intersect(a, b metadata.KeyGroupRange) metadata.KeyGroupRange {
	start, end := max(a.Start, b.Start), min(a.Start+a.Count, b.Start+b.Count)
	return metadata.KeyGroupRange{Start: start, Count: max(0, end-start)}
}

// span are the keys of a range of key groups.
func span(r metadata.KeyGroupRange) pebble.KeyRange {
	return pebble.KeyRange{Start: groupPrefix(r.Start), End: groupPrefix(r.Start + r.Count)}
}

func groupPrefix(kg int32) []byte { return binary.BigEndian.AppendUint16(nil, uint16(kg)) }

// lastKey is above all keys: there are no more than 32768 key groups.
var lastKey = []byte{0xff, 0xff}

// restoredName is the name under which Pebble gets a private file. It numbers its
// catalogs by the marker that points to them, which begins at 1 in each checkpoint:
// so it may come to write a new catalog under the name of the one that it has read,
// and then removes "the old one". Its first own number is 2; ours is 0.
func restoredName(name string) string {
	switch {
	case strings.HasPrefix(name, "REMOTE-OBJ-CATALOG-"):
		return "REMOTE-OBJ-CATALOG-000000"
	case strings.HasPrefix(name, "marker.remote-obj-catalog."):
		return "marker.remote-obj-catalog.000001.REMOTE-OBJ-CATALOG-000000"
	}
	return name
}

// place shows the files of a checkpoint in a folder, and gives those that are not
// here.
func (d *DB) place(ctx context.Context, c *checkpoint, dir string) ([]*remoteFile, error) {
	for name, data := range c.private {
		if err := writeFile(d.opts.FS, d.opts.FS.PathJoin(dir, restoredName(name)), data); err != nil {
			return nil, err
		}
	}
	local := d.localCopies()
	var remote []*remoteFile
	for _, t := range c.tables {
		if t.object {
			r, err := d.object(t, t.entry.Name, c.name)
			if err != nil {
				return nil, err
			}
			remote = append(remote, r)
			continue
		}
		path := d.opts.FS.PathJoin(dir, t.entry.Name)
		if d.linkLocal(t.entry, path, local) {
			continue
		}
		r, err := d.remoteFile(t, c.name)
		if err != nil {
			return nil, err
		}
		d.fs.mapRemote(path, r)
		remote = append(remote, r)
	}
	return remote, ctx.Err()
}

// remoteFile gives the file that a table is until it is here. Tables of several
// checkpoints may be the same one.
func (d *DB) remoteFile(t remoteTable, display string) (*remoteFile, error) {
	name := objectName(t.entry)
	if r := d.files[name]; r != nil && !r.isGone() {
		if r.entry.identity() != t.entry.identity() {
			return nil, t.entry.mismatch(display+": "+t.entry.Name, r.entry.Sum)
		}
		return r, nil
	}
	if display != "" {
		display += ": "
	}
	// One that was given up may still have readers, and removes its own file with the last.
	d.fetches++
	path := d.opts.FS.PathJoin(d.dir, "fetch", fmt.Sprintf("%d-%s", d.fetches, name))
	r := newRemoteFile(d.life, d.p, d.opts.FS, path, display+t.entry.Name, t.entry, t.src)
	d.files[name] = r
	return r, nil
}

// object makes a table known by its object name.
func (d *DB) object(t remoteTable, name, display string) (*remoteFile, error) {
	r, err := d.remoteFile(t, display)
	if err != nil {
		return nil, err
	}
	d.fs.mu.Lock()
	_, known := d.fs.objects[name]
	d.fs.objects[name] = r
	d.fs.mu.Unlock()
	if known {
		return r, nil
	}
	r.ref()
	if !r.begun() && d.linkLocal(t.entry, r.path, d.localCopies()) {
		r.whole()
	}
	return r, nil
}

// cut drops what lies outside of a range of key groups.
func (d *DB) cut(ctx context.Context, keep metadata.KeyGroupRange) error {
	in := span(keep)
	var outside []pebble.KeyRange
	if keep.Start > 0 {
		outside = append(outside, pebble.KeyRange{Start: []byte{0}, End: in.Start})
	}
	outside = append(outside, pebble.KeyRange{Start: in.End, End: lastKey})
	tables, err := d.db.SSTables()
	if err != nil {
		return err
	}
	var edges []*remoteFile // tables that are cut are opened
	any := make([]bool, len(outside))
	for _, level := range tables {
		for _, t := range level {
			for i, o := range outside {
				if bytes.Compare(t.Largest.UserKey, o.Start) < 0 || bytes.Compare(t.Smallest.UserKey, o.End) >= 0 {
					continue
				}
				any[i] = true
				if bytes.Compare(t.Smallest.UserKey, o.Start) < 0 || bytes.Compare(t.Largest.UserKey, o.End) >= 0 {
					if r := d.fs.at(d.fs.PathJoin(d.fs.dir, t.BackingSSTNum.String()+".sst")); r != nil {
						edges = append(edges, r)
					}
				}
			}
		}
	}
	d.warm(ctx, edges)
	for i, o := range outside {
		if !any[i] {
			continue
		}
		err := d.fs.unread(func() error {
			// Damaged blocks at the edge are found by reading them first.
			if err := d.readEdges(ctx, o); err != nil {
				return err
			}
			return d.db.Excise(ctx, o)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readEdges reads in all tables what lies just before and behind a span.
func (d *DB) readEdges(ctx context.Context, o pebble.KeyRange) error {
	tables, err := d.db.SSTables()
	if err != nil {
		return err
	}
	// Bounds keep the search of one table out of the others of its level.
	for _, level := range tables {
		for _, t := range level {
			if bytes.Compare(t.Smallest.UserKey, o.Start) < 0 && bytes.Compare(t.Largest.UserKey, o.Start) >= 0 ||
				bytes.Compare(t.Smallest.UserKey, o.End) < 0 && bytes.Compare(t.Largest.UserKey, o.End) >= 0 {
				it, err := d.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: t.Smallest.UserKey, UpperBound: append(bytes.Clone(t.Largest.UserKey), 0)})
				if err != nil {
					return err
				}
				it.SeekLT(o.Start)
				err = it.Error()
				it.SeekGE(o.End)
				if err = errors.Join(err, it.Error(), it.Close()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
