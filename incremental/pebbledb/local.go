package pebbledb

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// keepLocal makes the links a local copy: the checksums lie beside them, as the
// proof of what they are.
func (f *Frozen) keepLocal(text []byte) {
	d := f.d
	err := writeFile(d.opts.FS, d.opts.FS.PathJoin(f.dir, SumsName), text)
	if err != nil {
		d.log.Warn("no local copy is kept", "checkpoint", f.id, "error", err)
		return
	}
	d.up.mu.Lock()
	if f.id > d.up.baseID {
		d.up.copies[f.id] = f.dir
	}
	d.up.mu.Unlock()
}

func writeFile(fs vfs.FS, path string, data []byte) error {
	w, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

func readFile(fs vfs.FS, path string, limit int64) ([]byte, error) {
	r, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, limit))
}

// LocalCopy is the folder of the local copy of a checkpoint, for Options.Local;
// "" if there is none. Only that of the last confirmed checkpoint lasts, and those of
// later ones.
func (d *DB) LocalCopy(id int64) string {
	d.up.mu.Lock()
	defer d.up.mu.Unlock()
	return d.up.copies[id]
}

// localCopy is a folder with files that say what they are.
type localCopy struct {
	dir     string
	entries map[string]sumEntry // by object name
}

// localCopies reads what the folders of Options.Local have. What cannot be read is
// passed over: the files are in the blob store.
func (d *DB) localCopies() []localCopy {
	d.local.Do(func() {
		fs := d.opts.FS
		for _, dir := range d.opts.Local {
			data, err := readFile(fs, fs.PathJoin(dir, SumsName), maxSums)
			if err == nil {
				var s *sums
				if s, err = decodeSums(fs.PathJoin(dir, SumsName), data); err == nil {
					c := localCopy{dir: dir, entries: map[string]sumEntry{}}
					for _, e := range s.Files {
						if e.Incarnation != "" {
							c.entries[objectName(e)] = e
						}
					}
					d.copies = append(d.copies, c)
					continue
				}
			}
			d.log.Info("a local copy is not used", "folder", dir, "error", err)
		}
	})
	return d.copies
}

// linkLocal links a file from a local copy if it is the one wanted: written by the
// same life of a backend, under the same name, with the same checksum, and still
// of that size. Its bytes are compared with the checksum in the background, see prove.
func (d *DB) linkLocal(e sumEntry, path string, copies []localCopy) bool {
	for _, c := range copies {
		have, ok := c.entries[objectName(e)]
		if !ok || have.identity() != e.identity() {
			continue
		}
		from := d.opts.FS.PathJoin(c.dir, have.Name)
		info, err := d.opts.FS.Stat(from)
		if err == nil && info.Size() != e.Size {
			err = e.wrongSize(from, info.Size())
		}
		if err == nil {
			err = vfs.LinkOrCopy(d.opts.FS, from, path)
		}
		if err != nil {
			d.log.Info("a local file is not used", "file", from, "error", err)
			continue
		}
		d.linkedMu.Lock()
		d.linked = append(d.linked, linkedFile{e, c.dir, from, path})
		d.linkedMu.Unlock()
		return true
	}
	return false
}

// linkedFile is a file that came from a local copy.
type linkedFile struct {
	entry     sumEntry
	dir, from string
	path      string // where it was linked to
}

// unproven gives the file that came from a local copy as a table of the database, if it
// is not proven yet.
func (d *DB) unproven(table string) (linkedFile, bool) {
	path := d.fs.PathJoin(d.fs.dir, table)
	d.linkedMu.Lock()
	defer d.linkedMu.Unlock()
	i := slices.IndexFunc(d.linked, func(l linkedFile) bool { return l.path == path })
	if i < 0 {
		return linkedFile{}, false
	}
	return d.linked[i], true
}

// prove compares the bytes of what was linked from local copies with the checksums.
// Pebble's own checksums guard what is read meanwhile. A copy with a wrong file
// is spoiled, so that the next attempt does not use it, and the database fails.
func (d *DB) prove(ctx context.Context) error {
	d.linkedMu.Lock()
	linked := slices.Clone(d.linked)
	d.linkedMu.Unlock()
	for _, l := range linked {
		if err := d.proveFile(ctx, l); err != nil {
			if ctx.Err() == nil {
				d.spoil([]linkedFile{l})
			}
			return err
		}
	}
	d.linkedMu.Lock()
	d.linked = nil
	d.linkedMu.Unlock()
	return nil
}

// spoilUnproven makes the local copies unusable that the database has files from which
// are not proven: if it fails, they may be why, and the next attempt must not fail of
// them again. The files are in the blob store.
func (d *DB) spoilUnproven() {
	d.linkedMu.Lock()
	linked := d.linked
	d.linked = nil
	d.linkedMu.Unlock()
	d.spoil(linked)
}

func (d *DB) spoil(linked []linkedFile) {
	spoiled := map[string]bool{}
	for _, l := range linked {
		if !spoiled[l.dir] {
			spoiled[l.dir] = true
			d.log.Warn("a local copy is not used any more", "folder", l.dir)
			d.opts.FS.Remove(d.opts.FS.PathJoin(l.dir, SumsName))
		}
	}
}

func (d *DB) proveFile(ctx context.Context, l linkedFile) error {
	f, err := d.opts.FS.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) { // compacted
		f, err = d.opts.FS.Open(l.from)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nobody needs it any more
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sum, err := sumOf(ctx, f, l.entry.Size)
	if err == nil && sum != l.entry.Sum {
		err = l.entry.mismatch(l.from, sum)
	}
	return err
}

// LocalCopies are the folders of local copies that databases have left in a folder:
// those of an earlier attempt, for Options.Local. A nil fs is the disk.
func LocalCopies(fs vfs.FS, dir string) ([]string, error) {
	if fs == nil {
		fs = vfs.Default
	}
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var copies []string
	for _, name := range names {
		at := fs.PathJoin(dir, name)
		if _, err := fs.Stat(fs.PathJoin(at, SumsName)); err == nil {
			copies = append(copies, at)
		}
	}
	return copies, nil
}
