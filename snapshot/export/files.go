package export

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/table"
)

// ToFile writes the one state that opts select to a file. If they select none or
// several the error is ErrStates.
func ToFile(ctx context.Context, s *snapshot.Snapshot, name string, opts *Options) (err error) {
	w := &writes{}
	defer func() { err = w.end(err) }()
	var first *snapshot.State
	err = Write(ctx, s, func(t *table.Schema) (io.Writer, error) {
		if first != nil {
			return nil, fmt.Errorf("%s and %s: %w", stateName(first), stateName(t.State), ErrStates)
		}
		first = t.State
		return w.create(name)
	}, opts)
	if err == nil && first == nil {
		err = fmt.Errorf("no state is selected: %w", ErrStates)
	}
	return err
}

// ToDir writes every state that opts select to a file OPERATOR.STATE with the
// format's extension in a folder, which is made if it is not there. OPERATOR is
// the operator's uid, name or ID, whichever is known; characters that are special
// somewhere are replaced by an underscore. It returns the names of the files.
func ToDir(ctx context.Context, s *snapshot.Snapshot, dir string, opts *Options) (names []string, err error) {
	made := os.Mkdir(dir, 0o777)
	if made != nil && !errors.Is(made, os.ErrExist) {
		return nil, made
	}
	w := &writes{}
	defer func() {
		if err = w.end(err); err != nil && made == nil {
			os.Remove(dir) // if nothing else is in it
		}
	}()
	format := Parquet
	if opts != nil {
		format = opts.Format
	}
	taken := map[string]bool{}
	err = Write(ctx, s, func(t *table.Schema) (io.Writer, error) {
		name := fileName(t.State)
		for n := 2; taken[strings.ToLower(name)]; n++ {
			name = fileName(t.State) + "." + strconv.Itoa(n)
		}
		taken[strings.ToLower(name)] = true
		name = filepath.Join(dir, name+format.Extension())
		names = append(names, name)
		return w.create(name)
	}, opts)
	return names, err
}

func stateName(s *snapshot.State) string { return operatorName(s.Operator) + "." + s.Name }

func operatorName(o *snapshot.StateOperator) string {
	for _, n := range []string{o.UID, o.Name, o.ID} {
		if n != "" {
			return n
		}
	}
	return "master"
}

// maxName is the longest name of a file, in bytes, that leaves room for an
// extension and a number everywhere.
const maxName = 200

func fileName(s *snapshot.State) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r < ' ', r == 0x7f, strings.ContainsRune(`/\:*?"<>|`, r):
			return '_'
		}
		return r
	}, strings.ToValidUTF8(stateName(s), "_"))
	if strings.HasPrefix(name, ".") {
		name = "_" + name[1:]
	}
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}

// writes are files under temporary names, which become what they are for together.
type writes struct {
	files []write
}

type write struct {
	f    *os.File
	w    *bufio.Writer
	name string
}

func (w *writes) create(name string) (io.Writer, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // a rename would replace a device
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".stateutil-*")
	if err != nil {
		return nil, err
	}
	b := bufio.NewWriterSize(f, 64<<10)
	w.files = append(w.files, write{f, b, name})
	return b, nil
}

// end renames all files, or after an error removes them.
func (w *writes) end(err error) error {
	for _, x := range w.files {
		if err == nil {
			err = x.w.Flush()
		}
		if err == nil {
			err = x.f.Chmod(0o644)
		}
		if cerr := x.f.Close(); err == nil {
			err = cerr
		}
	}
	for _, x := range w.files {
		if err == nil {
			err = os.Rename(x.f.Name(), x.name)
		}
		if err != nil {
			os.Remove(x.f.Name())
		}
	}
	return err
}
