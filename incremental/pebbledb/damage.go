package pebbledb

import (
	"errors"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark/tidemark/internal/damage"
)

var (
	fileInError  = regexp.MustCompile(`(?:file|table) ([0-9]{6,19})\b`)
	blockInError = regexp.MustCompile(`block ([0-9]+)/[0-9]+`)
)

// AsDamage makes Pebble's errors of damaged files *damage.Error; it leaves others as
// they are. name is that of the database or of the handle.
func AsDamage(name string, err error) error {
	if err == nil || !pebble.IsCorruptionError(err) && !errors.Is(err, damage.ErrCorrupt) {
		return err
	}
	return toDamage(name, "", err)
}

// toDamage finds in Pebble's text which file is damaged, and where.
func toDamage(name, file string, err error) *damage.Error {
	var d *damage.Error
	if errors.As(err, &d) {
		return d
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	if m := fileInError.FindStringSubmatch(text); m != nil && file == "" {
		file = m[1] + ".sst"
	}
	out := &damage.Error{Name: name, Offset: -1, Detail: text, Err: damage.ErrCorrupt}
	if file != "" {
		out.Name = strings.TrimPrefix(name+": "+file, ": ")
	}
	if m := blockInError.FindStringSubmatch(text); m != nil {
		if off, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			out.Offset = off
		}
	}
	return out
}

// Explain gives for an error of a read the one that says the most: why the database
// failed, if it did, or which file is damaged.
func (d *DB) Explain(err error) error {
	if err == nil || errors.Is(err, pebble.ErrNotFound) {
		return err
	}
	if failed := d.Err(); failed != nil {
		return failed
	}
	return AsDamage(d.name(), err)
}

// damaged is what Pebble says of a damaged file, as ours.
func (d *DB) damaged(info pebble.DataCorruptionInfo) error {
	return toDamage(d.name(), path.Base(info.Path), info.Details)
}
