package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

// TestTranscripts runs the stories under testdata/transcripts, each in a fresh
// copy of the goldens, in-process. The commands of a story, each with its lines
// of input:
//
//	run      command lines without "stateutil"; the output is what a person sees
//	damage   "delete FILE", "cut FILE BYTES", "patch FILE OFFSET HEX",
//	         "move OLD NEW", "write FILE HEX"
//	load     "URL FOLDER": copy a folder into a store (mem://…)
//
// Paths are below testdata/goldens.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "transcripts"), func(t *testing.T, path string) {
		script, err := filepath.Abs(path)
		require.NoError(t, err)
		dir := exampleFolder(t)
		root := filepath.Join(dir, "testdata", "goldens")
		t.Chdir(root)
		datadriven.RunTest(t, script, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				line = strings.TrimSpace(line)
				words := strings.Fields(line)
				switch d.Cmd {
				case "run":
					if strings.Count(strings.TrimSpace(d.Input), "\n") > 0 {
						fmt.Fprintf(&b, "$ stateutil %s\n", line)
					}
					b.WriteString(strings.ReplaceAll(runExample(root, "stateutil "+line), "/tidemark", "/goldens"))
				case "damage":
					require.NoError(t, wound(words), d.Pos)
				case "load":
					require.NoError(t, loadStore(t.Context(), words[0], words[1]), d.Pos)
				default:
					d.Fatalf(t, "unknown command %q", d.Cmd)
				}
			}
			return b.String()
		})
	})
}

// wound damages a copy of a golden; its times stay as they are.
func wound(words []string) error {
	st, err := os.Stat(words[1])
	if words[0] != "write" && err != nil {
		return err
	}
	switch words[0] {
	case "delete":
		return os.RemoveAll(words[1])
	case "move":
		return os.Rename(words[1], words[2])
	case "cut":
		n, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return err
		}
		if err := os.Truncate(words[1], n); err != nil {
			return err
		}
	case "patch", "write":
		b, err := hex.DecodeString(words[len(words)-1])
		if err != nil {
			return err
		}
		off := int64(0)
		if err := os.MkdirAll(filepath.Dir(words[1]), 0o777); err != nil {
			return err
		}
		if words[0] == "patch" {
			if off, err = strconv.ParseInt(words[2], 10, 64); err != nil {
				return err
			}
		}
		f, err := os.OpenFile(words[1], os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(b, off); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown damage %q", words[0])
	}
	at := fixedTime
	if st != nil {
		at = st.ModTime()
	}
	return os.Chtimes(words[1], at, at)
}

// loadStore copies a local folder into a store.
func loadStore(ctx context.Context, url, folder string) error {
	store, err := blobstore.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		w, err := store.Create(ctx, filepath.ToSlash(name), nil)
		if err != nil {
			return err
		}
		defer w.Abort()
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		return w.Commit()
	})
}
