package snapshot

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/incremental/pebbledb/staterows"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// lsmMerger is the merge operator that keyed/lsm gives to its databases.
const lsmMerger = staterows.MergerName + "1"

// lsmCreation makes databases of keyed/lsm in a folder of its own, one at a time.
type lsmCreation struct {
	p   *pebbledb.Process
	dir string
}

func newLSMCreation(tempDir string) (*lsmCreation, error) {
	dir, err := os.MkdirTemp(tempDir, "tidemark-create-")
	if err != nil {
		return nil, err
	}
	return &lsmCreation{pebbledb.NewProcess(&pebbledb.ProcessOptions{MemoryBytes: 64 << 20, OpenFiles: 256}), dir}, nil
}

func (l *lsmCreation) close() {
	l.p.Close()
	_ = os.RemoveAll(l.dir)
}

// database writes the keyed state of a range of key groups as the files of a database,
// all into the snapshot's own folder: so it needs no other, and can be moved.
func (c *creation) database(ctx context.Context, p *operatorPlan, groups metadata.KeyGroupRange) (_ metadata.KeyedHandle, err error) {
	dir, err := os.MkdirTemp(c.lsm.dir, "")
	if err != nil {
		return nil, err
	}
	db, err := pebbledb.Open(ctx, c.lsm.p, filepath.Join(dir, "db"), &pebbledb.Options{KeyGroups: groups, Merger: staterows.Merger(lsmMerger)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := db.Close(); err == nil {
			err = closed
		}
		_ = os.RemoveAll(dir)
	}()
	w := staterows.NewWriter(db)
	defer w.Close()
	for i, entries := range p.left(groups) {
		rows := lsmRows{w: w, index: i, state: &p.states[i]}
		if ns := p.states[i].meta.Namespace(); ns != nil {
			rows.lengths = p.key.FixedLength() < 0 && ns.FixedLength() < 0
		}
		for k := 0; k < len(entries) && entries[k].keyGroup <= int(groups.End()); k++ {
			if err := rows.put(ctx, &entries[k]); err != nil {
				return nil, err
			}
			c.countEntry(rows.state.kind)
		}
	}
	if err := w.Flush(ctx); err != nil {
		return nil, err
	}
	frozen, err := db.Checkpoint(c.opts.CheckpointID, nil)
	if err != nil {
		return nil, err
	}
	defer frozen.Release()
	up, err := frozen.Upload(ctx, func(ctx context.Context, _ bool) pebbledb.FileWriter {
		return c.w.File(ctx, ScopeExclusive)
	}, &pebbledb.UploadOptions{Full: true})
	if err != nil {
		return nil, err
	}
	for _, h := range slices.Concat(up.Handle.Shared, up.Handle.Private) {
		c.count(h.Handle, metadata.StateSize(h.Handle))
	}
	metas := make([]serializer.StateMeta, len(p.states))
	for i := range p.states {
		metas[i] = p.states[i].meta
	}
	up.Handle.Meta, err = c.file(ctx, func(w io.Writer) error {
		b, err := (&serializer.KeyedBackendMeta{Key: p.key, States: metas}).Append(nil)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c.made.OwnFormat = true
	return up.Handle, nil
}

// lsmRows writes the rows of a state (docs/format/lsm.md).
type lsmRows struct {
	w          *staterows.Writer
	index      int // of the state
	state      *plannedState
	lengths    bool // follow key and namespace
	key, value []byte
}

// put writes the rows of an entry: one for each pair of a map, else one, of an empty
// list or map none.
func (r *lsmRows) put(ctx context.Context, e *plannedEntry) error {
	if r.state.kind == StateTimer {
		r.key = binary.BigEndian.AppendUint64(r.key[:0], uint64(e.timestamp)^1<<63)
		return r.w.Put(ctx, e.keyGroup, r.index, append(append(r.key, e.key...), e.ns...), nil)
	}
	r.key = stream.AppendComposite(r.key[:0], e.key, e.ns, r.lengths)
	value := e.value
	switch r.state.kind {
	case StateMap:
		n := len(r.key)
		for i := range e.parts {
			p := &e.parts[i]
			r.key = append(r.key[:n], p.key...)
			if r.value = append(r.value[:0], 0); p.null {
				r.value[0] = 1
			} else {
				r.value = append(r.value, p.value...)
			}
			if err := r.w.Put(ctx, e.keyGroup, r.index, r.key, r.value); err != nil {
				return err
			}
		}
		return nil
	case StateList:
		if len(e.parts) == 0 {
			return nil
		}
		r.value = r.value[:0]
		for i := range e.parts {
			if i > 0 {
				r.value = append(r.value, ',')
			}
			r.value = append(r.value, e.parts[i].value...)
		}
		value = r.value
	}
	return r.w.Put(ctx, e.keyGroup, r.index, r.key, value)
}
