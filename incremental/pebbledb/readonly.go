package pebbledb

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// ReadOnlyOptions change OpenReadOnly. Nil is the default.
type ReadOnlyOptions struct {
	Name string // in errors
	// Merger is the merge operator, by the name that is in the checkpoint; nil is
	// Pebble's own.
	Merger func(name string) *pebble.Merger
}

// IsCheckpoint says whether the files of an incremental handle are those of a
// Pebble database.
func IsCheckpoint(files []incremental.File) bool {
	for _, f := range files {
		if f.Name == SumsName {
			return true
		}
	}
	return false
}

// OpenReadOnly reads the database that the files of an incremental handle are,
// where they lie: nothing is written to a disk. Memory is bounded by that of the
// process: blocks, and of chunks of tables a quarter on top, and what is in flight.
//
// A handle's key groups must be given as bounds to what is read: a database that was
// rescaled has no others, but the handle says so, not the files.
//
// ctx holds until the Reader is closed. A damaged file is an error here or when it is
// read; AsDamage tells it from other failures.
func OpenReadOnly(ctx context.Context, p *Process, files []incremental.File, opts *ReadOnlyOptions) (*Reader, error) {
	var o ReadOnlyOptions
	if opts != nil {
		o = *opts
	}
	// The files stand for handles, so that they are checked as those of a restore are.
	sources := map[string]sst.Source{}
	h := &metadata.IncrementalHandle{}
	var text sst.Source
	for _, f := range files {
		if sources[f.Name] != nil {
			return nil, &damage.Error{Name: o.Name, Offset: -1, Detail: fmt.Sprintf("has file %q twice", f.Name), Err: damage.ErrCorrupt}
		}
		sources[f.Name] = f.Source
		n := metadata.NamedHandle{Name: javaio.NewString(f.Name), Handle: &metadata.FileHandle{Path: javaio.NewString(f.Name), Size: f.Source.Size()}}
		if isTable(f.Name) {
			h.Shared = append(h.Shared, n)
			continue
		}
		h.Private = append(h.Private, n)
		if f.Name == SumsName {
			text = f.Source
		}
	}
	s := &Source{Name: o.Name, Handle: h, Open: func(_ context.Context, h metadata.StreamHandle) (sst.Source, error) {
		return sources[h.(*metadata.FileHandle).Path.Go()], nil
	}}
	merger := pebble.DefaultMerger
	if o.Merger != nil && text != nil {
		m, err := s.sums(ctx, text)
		if err != nil {
			return nil, err
		}
		if merger = o.Merger(m.Merger); merger == nil {
			return nil, &damage.Error{Name: s.at(SumsName), Offset: 0, Field: "merger", Detail: fmt.Sprintf("is %q", m.Merger), Err: damage.ErrUnsupportedVersion}
		}
	}
	c, err := s.load(ctx, merger.Name)
	if err != nil {
		return nil, err
	}
	if !p.attach() {
		return nil, fmt.Errorf("%s: the process: %w", o.Name, ErrClosed)
	}
	const dir = "/db"
	mem := vfs.NewMem()
	w := newWorkFS(mem, dir, func(error) {})
	err = mem.MkdirAll(dir, 0o755)
	for name, data := range c.private {
		if err == nil {
			err = writeFile(mem, mem.PathJoin(dir, name), data)
		}
	}
	life, end := context.WithCancelCause(ctx)
	for _, t := range c.tables {
		r := newRemoteFile(life, p, mem, "", s.at(t.entry.Name), t.entry, t.src)
		r.mem = p.chunks
		r.ref()
		if t.object {
			w.objects[t.entry.Name] = r
		} else {
			w.remote[mem.PathJoin(dir, t.entry.Name)] = r
		}
	}
	done := func() error {
		end(ErrClosed)
		for _, m := range []map[string]*remoteFile{w.remote, w.objects} {
			for _, r := range m {
				p.chunks.forget(r)
			}
		}
		p.detach()
		return nil
	}
	var r *Reader
	if err == nil {
		r, err = openReadOnly(p, &Options{Merger: merger}, w, dir)
	}
	if err != nil {
		done()
		return nil, AsDamage(o.Name, err)
	}
	r.close = done
	return r, nil
}
