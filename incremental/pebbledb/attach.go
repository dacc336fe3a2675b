package pebbledb

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark/tidemark/metadata"
)

// attach adds the wanted key groups of another checkpoint, by attaching its tables
// or, where Pebble cannot, by copying. known gets the tables that the database has
// now and that lie in the blob store. It gives the files to be fetched.
func (d *DB) attach(ctx context.Context, i int, c *checkpoint, known map[string]stored) ([]*remoteFile, error) {
	want := intersect(c.groups, d.opts.KeyGroups)
	dir := d.Scratch("from-" + strconv.Itoa(i))
	if err := d.opts.FS.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// The other database is opened to be read: its MANIFEST says which tables are in
	// which level. Each table is known by its file name there, by its object name here.
	defer d.removeDir(dir)
	if _, err := d.place(ctx, c, dir); err != nil {
		return nil, err
	}
	r, err := d.readOnly(dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	plan, ok, err := planAttach(r.db, c, want)
	if err != nil {
		return nil, err
	}
	if !ok {
		if err := d.copyFrom(ctx, r.db, want); err != nil {
			return nil, err
		}
		return nil, nil
	}
	tables := map[string]remoteTable{}
	for _, t := range c.tables {
		tables[t.entry.Name] = t
	}
	var files []*remoteFile
	used := map[string]bool{}
	for _, step := range plan {
		for k := range step {
			x := &step[k]
			t, ok := tables[x.file]
			if !ok {
				return nil, fmt.Errorf("the MANIFEST names table %s, which the checkpoint lacks", x.file)
			}
			name := objectName(t.entry)
			if !used[name] {
				used[name] = true
				f, err := d.object(t, name, c.name)
				if err != nil {
					return nil, err
				}
				files = append(files, f)
				s := t.stored
				s.entry.Name = name
				if reusable(s.handle) {
					known[name] = s
				}
			}
			x.ObjName = name
		}
	}
	d.warm(ctx, files)
	for _, step := range plan {
		ext := make([]pebble.ExternalFile, len(step))
		for k, x := range step {
			ext[k] = x.ExternalFile
		}
		err := d.guard(func() error {
			return d.fs.unread(func() error {
				_, err := d.db.IngestExternalFiles(ctx, ext)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// external is a table to attach.
type external struct {
	pebble.ExternalFile
	file    string // its name in the checkpoint
	largest uint64 // sequence number
}

// planAttach lists the tables that have wanted keys, in steps. All keys of an
// attached table get one sequence number, higher with each step: so the lowest
// level comes first, and of level 0 the oldest. Tables of one step do not overlap.
//
// ok is false if the tables cannot be attached: those whose values lie in blob
// files are accepted by Pebble and cannot be read afterwards.
func planAttach(db *pebble.DB, c *checkpoint, want metadata.KeyGroupRange) (plan [][]external, ok bool, err error) {
	in := span(want)
	for _, t := range c.tables {
		if !isSST(t.entry.Name) {
			return nil, false, nil
		}
	}
	levels, err := db.SSTables()
	if err != nil {
		return nil, false, err
	}
	for l := len(levels) - 1; l >= 0; l-- {
		var step []external
		for _, t := range levels[l] {
			if len(t.GetBlobReferenceFiles()) > 0 {
				return nil, false, nil
			}
			start, end, inclusive := t.Smallest.UserKey, t.Largest.UserKey, !t.Largest.IsExclusiveSentinel()
			if bytes.Compare(start, in.Start) < 0 {
				start = in.Start
			}
			if bytes.Compare(end, in.End) >= 0 {
				end, inclusive = in.End, false
			}
			if c := bytes.Compare(start, end); c > 0 || c == 0 && !inclusive {
				continue
			}
			file, err := externalName(db, t)
			if err != nil {
				return nil, false, err
			}
			if file == "" {
				file = t.BackingSSTNum.String() + ".sst"
			}
			step = append(step, external{
				ExternalFile: pebble.ExternalFile{Locator: "", Size: max(t.Size, 1), StartKey: bytes.Clone(start), EndKey: bytes.Clone(end), EndKeyIsInclusive: inclusive, HasPointKey: true},
				file:         file, largest: uint64(t.LargestSeqNum)})
		}
		if l > 0 {
			if len(step) > 0 {
				plan = append(plan, step)
			}
			continue
		}
		sort.SliceStable(step, func(i, j int) bool { return step[i].largest < step[j].largest })
		for len(step) > 0 {
			n := 1
			for n < len(step) && !overlapsAny(step[:n], step[n]) {
				n++
			}
			plan = append(plan, step[:n])
			step = step[n:]
		}
	}
	return plan, true, nil
}

func overlapsAny(files []external, x external) bool {
	for _, f := range files {
		if bytes.Compare(f.StartKey, x.EndKey) <= 0 && bytes.Compare(x.StartKey, f.EndKey) <= 0 {
			return true
		}
	}
	return false
}

// copyFrom adds the wanted key groups of another database by writing them anew.
func (d *DB) copyFrom(ctx context.Context, from *pebble.DB, want metadata.KeyGroupRange) error {
	in := span(want)
	it, err := from.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: in.Start, UpperBound: in.End})
	if err != nil {
		return err
	}
	defer it.Close()
	t := d.NewTables()
	defer t.Discard()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := t.Set(it.Key(), v); err != nil {
			return err
		}
		if t.rows&1023 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	return d.Ingest(ctx, t)
}
