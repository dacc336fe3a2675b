package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/export"
	"github.com/tidemark/tidemark/snapshot/table"
)

// columnFormats are the formats of files of columns.
var columnFormats = map[string]export.Format{"parquet": export.Parquet, "arrow": export.Arrow}

// columnMemory is what the garbage collector tries to stay below while files of
// columns are written, unless GOMEMLIMIT says otherwise.
const columnMemory = 160 << 20

// readColumns writes Parquet or Arrow: one state to a file, or all that are
// selected to a folder, a file for each.
func (g *global) readColumns(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, o *readOptions, format string, choose *rowChooser, count *undecodedCount, progress *terminal.Progress) error {
	if g.getenv("GOMEMLIMIT") == "" {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(columnMemory))
	}
	eo := &export.Options{Format: columnFormats[format], Scan: opts, Limit: o.limit, Undecoded: count.add}
	if choose.choosing() {
		eo.Match = func(int) func(*snapshot.StateRow) bool { return choose.match() }
	}
	if progress != nil {
		eo.Progress = func(rows int64) {
			progress.Update(func() string { return terminal.Plural(rows, "row", "rows") })
		}
	}
	if o.output == "" {
		eo.Format = export.ArrowStream
		var first *table.Schema
		err := export.Write(ctx, s, func(t *table.Schema) (io.Writer, error) {
			if first != nil {
				return nil, export.ErrStates
			}
			first = t
			return g.output(progress), nil
		}, eo)
		if err == nil && first == nil {
			err = export.ErrStates
		}
		return statesError(err)
	}
	if _, err := os.Stat(dirOf(filepath.Clean(o.output))); err != nil {
		return unwritable(err)
	}
	if st, err := os.Stat(o.output); o.all || strings.HasSuffix(o.output, "/") || err == nil && st.IsDir() {
		names, err := export.ToDir(ctx, s, o.output, eo)
		if err == nil {
			progress.Stop()
			g.note("%s written to %s", terminal.Plural(int64(len(names)), "file", "files"), o.output)
		}
		return err
	}
	return statesError(export.ToFile(ctx, s, o.output, eo))
}

func statesError(err error) error {
	if errors.Is(err, export.ErrStates) {
		return usage("%w: choose one by --operator and --state (stateutil states lists them), or give a folder: -o DIR/", err)
	}
	return err
}
