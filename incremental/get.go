package incremental

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/incremental/sst"
)

// version is one entry of the key that Get looks for.
type version struct {
	trailer uint64
	value   []byte
}

// Get looks up one user key and appends its value to dst. It reads the tail of
// each table that may hold the key, unless it is open already, and one data block
// of it; and nothing below the level, or among tables of level 0 older than the
// one, that has the newest version.
func (f *Family) Get(ctx context.Context, key, dst []byte) (value []byte, ok bool, err error) {
	var versions []version
	var tombs []tombstone
	upper := append(slices.Clone(key), 0)
	found := false // a value or deletion, at:
	level, seq := 0, uint64(0)
	iter := tableIters.Get().(*sst.Iter)
	defer func() {
		iter.Close()
		tableIters.Put(iter)
	}()
	for i := range f.Tables {
		t := &f.Tables[i]
		// A version on one level is newer than all those on the levels below, and
		// among tables of level 0 the sequences tell.
		if found && (t.Level > level || t.LargestSeq < seq) {
			if t.Level > level {
				break
			}
			continue
		}
		if !t.overlaps(key, upper) {
			continue
		}
		r, err := f.db.cache.open(ctx, f.db, t)
		if err != nil {
			if err = f.db.tolerate(err); err != nil {
				return dst, false, err
			}
			continue
		}
		for _, d := range r.RangeDels() {
			ts, ok := t.clip(d)
			if !ok || bytes.Compare(ts.start.Key, key) > 0 || bytes.Compare(ts.end.Key, key) < 0 {
				continue
			}
			tombs = append(tombs, ts)
			if bytes.Compare(ts.start.Key, key) < 0 && bytes.Compare(ts.end.Key, key) > 0 {
				found, level, seq = true, t.Level, max(seq, ts.seq)
			}
		}
		r.InitIter(ctx, iter, &sst.IterOptions{Lower: key, Upper: upper, ReadAhead: 1})
		for ok := iter.SeekGE(key); ok; ok = iter.Next() {
			v := version{trailer: iter.Trailer()}
			if k := iter.Kind(); k == sst.KindValue || k == sst.KindMerge {
				v.value = bytes.Clone(iter.Value())
			}
			versions = append(versions, v)
			if iter.Kind() != sst.KindMerge {
				found, level, seq = true, t.Level, max(seq, iter.Seq())
				break // older ones in this table do not count
			}
		}
		if err := iter.Err(); err != nil {
			if err = f.db.tolerate(err); err != nil {
				return dst, false, err
			}
		}
	}
	return f.collapse(key, dst, versions, tombs)
}

// collapse finds what the versions of one key, of several tables, amount to.
func (f *Family) collapse(key, dst []byte, versions []version, tombs []tombstone) ([]byte, bool, error) {
	slices.SortStableFunc(versions, func(a, b version) int { return cmp.Compare(b.trailer, a.trailer) })
	var ts tombstones
	ts.reset()
	for _, t := range tombs {
		ts.add(t)
	}
	n := 0 // versions that count
	for i, v := range versions {
		if i+1 < len(versions) && versions[i+1].trailer == v.trailer && !f.db.fromManifest {
			return dst, false, f.db.corrupt(fmt.Sprintf("column family %q", f.Name), fmt.Sprintf("key %x stands in two tables with sequence %d: without a MANIFEST the live ones cannot be told", key, v.trailer>>8))
		}
		if !ts.empty() && ts.over(key, v.trailer) > v.trailer>>8 {
			break
		}
		kind := sst.Kind(v.trailer)
		if kind == sst.KindValue || kind == sst.KindMerge {
			n++
		}
		if kind != sst.KindMerge {
			break
		}
	}
	if n == 0 {
		return dst, false, nil
	}
	for i := n - 1; i >= 0; i-- {
		dst = append(dst, versions[i].value...)
		if i > 0 {
			dst = append(dst, mergeDelimiter)
		}
	}
	return dst, true, nil
}
