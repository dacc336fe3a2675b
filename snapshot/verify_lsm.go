package snapshot

import (
	"context"
	"errors"
	"strings"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
)

// lsm verifies a database of our own state backend: each file against its checksum in
// the file PEBBLE, then each live row of the handle's key groups. Rows that are
// overwritten or deleted are covered by the checksums alone.
func (d *databaseCheck) lsm(ctx context.Context, h *metadata.IncrementalHandle, files []incremental.File) error {
	c := d.c
	sums, err := pebbledb.ReadSums(ctx, files, "")
	if err != nil {
		if ctxErr(err) {
			return err
		}
		return d.w.problem("", -1, &coded{"database-corrupt", d.urls[pebbledb.SumsName], err})
	}
	bySum := map[string]pebbledb.FileSum{}
	for _, s := range sums {
		bySum[s.Name] = s
	}
	whole := true
	for _, f := range files {
		s, ok := bySum[f.Name]
		delete(bySum, f.Name)
		url := d.urls[f.Name]
		switch {
		case f.Name == pebbledb.SumsName:
			continue
		case !ok:
			err = &damage.Error{Name: url, Offset: -1, Detail: "is not named by the file " + pebbledb.SumsName, Err: damage.ErrCorrupt}
		default:
			if choose := c.opts.Sample.choose(url); choose != nil && !choose(0) {
				c.leftOut(1)
				continue
			}
			err = s.Check(ctx, f.Source, url)
		}
		if ctxErr(err) {
			return err
		}
		if err != nil {
			whole = false
			if err := d.w.problem("", -1, &coded{"checksum-mismatch", url, err}); err != nil {
				return err
			}
			continue
		}
		if strings.HasSuffix(f.Name, ".sst") {
			c.mu.Lock()
			c.report.Tables++
			c.mu.Unlock()
		}
	}
	for name := range bySum {
		whole = false
		err := &damage.Error{Name: d.urls[pebbledb.SumsName], Offset: -1, Detail: "names " + name + ", which the handle does not list", Err: damage.ErrCorrupt}
		if err := d.w.problem("", -1, &coded{"database-corrupt", "", err}); err != nil {
			return err
		}
	}
	if d.meta == nil || c.opts.Sample != nil {
		return nil // its rows are in no order that a sample could be drawn by
	}
	return d.lsmRows(ctx, h, files, whole)
}

// lsmRows decodes all rows. Where files are damaged that was told, and a failure of
// reading says nothing new.
func (d *databaseCheck) lsmRows(ctx context.Context, h *metadata.IncrementalHandle, files []incremental.File, whole bool) error {
	f := d.meta
	db, err := d.c.sc.dbs.lsm(ctx, files, d.c.sc.s.Name, f.prefix, len(f.states))
	if err == nil {
		defer d.c.sc.dbs.done(db)
		rs := f.readers()
		for i := range rs {
			if err = d.lsmState(ctx, h, db, &rs[i], i); err != nil {
				break
			}
		}
	}
	if err == nil || ctxErr(err) {
		return err
	}
	if !whole && errors.Is(err, damage.ErrCorrupt) {
		return nil
	}
	return d.w.problem("", -1, &coded{"database-corrupt", d.urls[pebbledb.SumsName], err})
}

// lsmState decodes the rows of one state.
func (d *databaseCheck) lsmState(ctx context.Context, h *metadata.IncrementalHandle, db stateDB, r *stateReader, id int) error {
	f := d.meta
	w := &worker{scan: d.w.scan, unit: d.w.unit, emit: d.c.newWorker().row}
	lower, upper := incremental.KeyGroupBounds(h.Range, f.op.MaxParallelism)
	it := db.state(id, r.meta.Name).scan(ctx, lower, upper)
	defer it.Close()
	for it.Next() {
		if err := f.emitPair(w, r, keyGroupOf(it.Key(), f.prefix), it.Key(), it.Value(), -1); err != nil {
			return err
		}
	}
	return it.Err()
}
