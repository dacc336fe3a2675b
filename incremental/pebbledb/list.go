package pebbledb

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// listed is a file of a frozen checkpoint.
type listed struct {
	name   string // in the handle
	path   string // local; "" for a table of another database
	size   int64
	table  bool
	remote *remoteFile // if it is not here, or not as a file
}

// listing is what a frozen checkpoint consists of.
type listing struct {
	shared, private []listed
	empty           []string
	objects         map[string]bool // names of tables of other databases
}

// list lists the files of a checkpoint, and opens it to see that Pebble can.
func (d *DB) list(f *Frozen) (*listing, error) {
	names, err := d.fs.List(f.dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	l := &listing{objects: map[string]bool{}}
	here := map[string]bool{}
	for _, n := range names {
		if n == "LOCK" || n == SumsName || strings.HasSuffix(n, ".log") {
			continue // the log is empty: there is none
		}
		path := d.fs.PathJoin(f.dir, n)
		info, err := d.fs.Stat(path)
		if err != nil {
			return nil, err
		}
		file := listed{name: n, path: path, size: info.Size(), table: isTable(n), remote: d.fs.at(path)}
		switch {
		case file.table:
			here[n] = true
			l.shared = append(l.shared, file)
		case !isPrivate(n):
			return nil, fmt.Errorf("%s is no file of a checkpoint", path)
		case file.size == 0:
			l.empty = append(l.empty, n)
		default:
			l.private = append(l.private, file)
		}
	}
	r, err := d.readOnly(f.dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	tables, err := r.db.SSTables()
	if err != nil {
		return nil, err
	}
	for _, level := range tables {
		for _, t := range level {
			if f.firstAfter != 0 && uint64(t.LargestSeqNum) >= f.firstAfter {
				return nil, fmt.Errorf("table %s has what was written after the checkpoint: it flushed too early", t.FileNum)
			}
			name, err := externalName(r.db, t)
			if err != nil {
				return nil, err
			}
			if own := t.BackingSSTNum.String() + ".sst"; name == "" && !here[own] {
				return nil, fmt.Errorf("%s: %s is missing", f.dir, own)
			}
			if name == "" || l.objects[name] {
				continue
			}
			d.fs.mu.Lock()
			o := d.fs.objects[name]
			d.fs.mu.Unlock()
			if o == nil {
				return nil, fmt.Errorf("table %s of another database is not known", name)
			}
			l.objects[name] = true
			l.shared = append(l.shared, listed{name: name, size: o.entry.Size, table: true, remote: o})
		}
	}
	return l, nil
}

// externalName is the name of the object behind a table of another database; "" for
// the database's own.
func externalName(db *pebble.DB, t pebble.SSTableInfo) (string, error) {
	if t.BackingType == pebble.BackingTypeLocal {
		return "", nil
	}
	for _, m := range db.ObjProvider().List() {
		if m.DiskFileNum == t.BackingSSTNum && m.IsExternal() {
			return m.Remote.CustomObjectName, nil
		}
	}
	return "", fmt.Errorf("table %s: its object is not in the catalog", t.FileNum)
}

// isPrivate says whether a file belongs to one checkpoint alone.
func isPrivate(n string) bool {
	for _, p := range []string{"MANIFEST-", "OPTIONS-", "REMOTE-OBJ-CATALOG-", "marker."} {
		if strings.HasPrefix(n, p) {
			return plainName(n)
		}
	}
	return false
}

// keepObjects frees the disk of tables of other databases that no version has any
// more. An iterator on an old version may still come back to one.
func (w *workFS) keepObjects(live map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, r := range w.objects {
		if !live[name] {
			r.evict()
		}
	}
}
