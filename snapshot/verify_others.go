package snapshot

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/sst"
)

// DataCache remembers what verification found in tables of RocksDB. For concurrent
// use; the zero value is ready.
type DataCache struct {
	mu     sync.Mutex
	tables map[string]verifiedTable
}

type verifiedTable struct {
	report *sst.Report
	damage []error
}

// maxCached bounds the tables that are remembered.
const maxCached = 1 << 17

func (c *DataCache) get(key string) (verifiedTable, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.tables[key]
	return t, ok
}

func (c *DataCache) put(key string, t verifiedTable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables == nil {
		c.tables = map[string]verifiedTable{}
	}
	if len(c.tables) < maxCached {
		c.tables[key] = t
	}
}

const (
	// maxOthers bounds how many other snapshots are opened.
	maxOthers = 1000
	// maxCandidates bounds how many are verified to find a clean one.
	maxCandidates = 8
)

// others looks for the snapshots that share what is damaged, and for the newest
// sound one: in the folder above the snapshot's, and in those of DataOptions.Around.
func (c *dataCheck) others(ctx context.Context) error {
	var refs []Ref
	known := map[string]bool{c.v.s.Location.Key(): true}
	up := c.v.s.Dir
	up.Path = parentPath(up.Path)
	for _, root := range append([]blobstore.Location{up}, c.opts.Around...) {
		for ref, err := range Find(ctx, c.v.s.pool, root, nil) {
			if err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				c.searchFailed(err)
				continue
			}
			if !ref.Incomplete && !known[ref.Location.Key()] {
				known[ref.Location.Key()] = true
				refs = append(refs, ref)
			}
		}
	}
	refs = newestFirst(refs)
	if len(refs) > maxOthers {
		c.searchFailed(errors.New("there are more snapshots; the newest were looked at"))
		refs = refs[:maxOthers]
	}
	shares := map[string][]string{}
	tried := 0
	for _, ref := range refs {
		s, err := Open(ctx, c.v.s.pool, ref.Location, &c.v.s.opts)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !passable(err) {
				c.searchFailed(err)
			}
			continue
		}
		c.report.Searched++
		shared := false
		for f := range Files(s) {
			if c.damaged[f.URL] {
				shared = true
				shares[f.URL] = append(shares[f.URL], ref.Dir.String())
			}
		}
		if shared || c.report.NewestClean != "" || tried == maxCandidates {
			continue
		}
		tried++
		clean, err := c.clean(ctx, s)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			c.searchFailed(err)
		}
		if clean {
			c.report.NewestClean = ref.Dir.String()
		}
	}
	for file, snapshots := range shares {
		c.report.SharedBy = append(c.report.SharedBy, SharedDamage{file, snapshots})
	}
	slices.SortFunc(c.report.SharedBy, func(a, b SharedDamage) int { return cmp.Compare(a.File, b.File) })
	return nil
}

func (c *dataCheck) searchFailed(err error) {
	if c.report.SearchError == "" {
		c.report.SearchError = briefError(err)
	}
}

// clean verifies another snapshot like this one.
func (c *dataCheck) clean(ctx context.Context, s *Snapshot) (bool, error) {
	data := *c.opts
	data.NoOthers = true
	v, err := Verify(ctx, s, &VerifyOptions{MaxFindings: 1, Data: &data})
	return err == nil && v.OK, err
}
