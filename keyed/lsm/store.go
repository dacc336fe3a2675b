package lsm

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// openStore opens an empty database in a directory.
func openStore(dir string, fs vfs.FS) (*pebble.DB, error) {
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, DisableWAL: true, FormatMajorVersion: pebble.FormatValueSeparation})
	if err != nil {
		return nil, fmt.Errorf("lsm: %w", err)
	}
	return db, nil
}
