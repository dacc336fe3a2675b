package incremental

import (
	"bytes"
	"context"
	"slices"
)

// Split proposes up to n-1 ascending keys between lower and upper (as in
// ScanOptions) that cut the family into parts of similar size in bytes, for
// scans in parallel. With prefixBytes above 0 the keys are cut to that length:
// the length of the key group keeps each key group in one part.
//
// It looks at the bounds of tables and, where these are few, at their indexes.
func (f *Family) Split(ctx context.Context, lower, upper []byte, n, prefixBytes int) ([][]byte, error) {
	if n < 2 {
		return nil, nil
	}
	// weights are bytes that lie before the key and behind the one before.
	type weight struct {
		key   []byte
		bytes int64
	}
	var tables []*Table
	for i := range f.Tables {
		if t := &f.Tables[i]; t.overlaps(lower, upper) {
			tables = append(tables, t)
		}
	}
	var weights []weight
	const perTable = 64
	for _, t := range tables {
		if t.bounded && len(tables) > 16*n {
			weights = append(weights, weight{t.largest.Key, t.Size})
			continue
		}
		r, err := f.db.cache.open(ctx, f.db, t)
		if err != nil {
			if err = f.db.tolerate(err); err != nil {
				return nil, err
			}
			continue
		}
		keys, err := r.Separators(perTable)
		if err != nil {
			if err = f.db.tolerate(err); err != nil {
				return nil, err
			}
			continue
		}
		if t.bounded {
			keys = append(keys, t.largest.Key)
		}
		for _, k := range keys {
			weights = append(weights, weight{k, t.Size / int64(len(keys))})
		}
	}
	weights = slices.DeleteFunc(weights, func(w weight) bool {
		return lower != nil && bytes.Compare(w.key, lower) <= 0 || upper != nil && bytes.Compare(w.key, upper) >= 0
	})
	slices.SortFunc(weights, func(a, b weight) int { return bytes.Compare(a.key, b.key) })
	var total int64
	for _, w := range weights {
		total += w.bytes
	}
	var keys [][]byte
	var sum int64
	for _, w := range weights {
		sum += w.bytes
		if sum*int64(n) < total*int64(len(keys)+1) || len(keys) == n-1 {
			continue
		}
		k := w.key
		if prefixBytes > 0 && len(k) > prefixBytes {
			k = k[:prefixBytes]
		}
		if lower != nil && bytes.Compare(k, lower) <= 0 || len(k) == 0 {
			continue
		}
		if len(keys) > 0 && bytes.Compare(k, keys[len(keys)-1]) <= 0 {
			continue
		}
		keys = append(keys, bytes.Clone(k))
	}
	return keys, nil
}
