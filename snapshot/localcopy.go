package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/sst"
)

// copySuffix is that of the name of a local copy's proof: JSON of a copyProof.
const copySuffix = ".copy"

// maxProof bounds a proof in bytes: a location is its only part without a bound.
const maxProof = 64 << 10

// copyProof says what a local copy is a copy of. It is written last, so that a copy
// without one is unfinished.
type copyProof struct {
	Location string `json:"location"` // of the file
	Size     int64  `json:"size"`     // bytes
	XXH64    string `json:"xxh64"`    // 16 hex digits
}

// localCopy is a copy of a state file that is being written. Its errors end the copy,
// never the file.
type localCopy struct {
	dir  string
	file *os.File // nil before the first byte, and after an error
	err  error
}

// KeepCopy has what is written kept in a folder of the local disk too, which is made
// if it is missing, for LocalCopies to find. It is called before the first Write. State
// that lies in _metadata has no copy. See CopyError.
func (f *FileWriter) KeepCopy(dir string) { f.copy = &localCopy{dir: dir} }

// CopyError is why there is no local copy after Close although KeepCopy was called.
func (f *FileWriter) CopyError() error {
	if f.copy == nil {
		return nil
	}
	return f.copy.err
}

func (c *localCopy) create(name string) {
	if c.err = os.MkdirAll(c.dir, 0o777); c.err == nil {
		c.file, c.err = os.OpenFile(filepath.Join(c.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}
}

func (c *localCopy) write(p []byte) {
	if c.file == nil {
		return
	}
	if _, err := c.file.Write(p); err != nil {
		c.drop(err)
	}
}

// drop removes the copy; err is why.
func (c *localCopy) drop(err error) {
	c.err = errors.Join(c.err, err)
	if c.file == nil {
		return
	}
	c.err = errors.Join(c.err, c.file.Close(), os.Remove(c.file.Name()))
	c.file = nil
}

// close ends the copy of a file that is in the store.
func (c *localCopy) close(p copyProof) {
	if c.file == nil {
		return
	}
	name := c.file.Name()
	if err := c.file.Close(); err != nil {
		c.err = errors.Join(err, os.Remove(name))
		return
	}
	b, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(name+copySuffix, b, 0o666)
	}
	if err != nil {
		c.err = errors.Join(err, os.Remove(name))
	}
}

// LocalCopies are copies of state files on the local disk that a restart reads instead
// of the files: Flink's local recovery of state that lies in one file. A copy is used
// if it was made of that very file, by location, and its bytes have the checksum that
// was taken when it was written; each is looked at once. It is safe for
// concurrent use.
type LocalCopies struct {
	of map[string]*foundCopy // by location of the file
}

type foundCopy struct {
	path  string
	proof copyProof

	mu     sync.Mutex
	proven bool
	err    error // why it is not used
}

// FindLocalCopies looks into folders for what KeepCopy left. What cannot be read is
// passed over: the files are in the store.
func FindLocalCopies(dirs ...string) *LocalCopies {
	l := &LocalCopies{of: map[string]*foundCopy{}}
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), copySuffix)
			if !ok {
				continue
			}
			path := filepath.Join(dir, name)
			if p, err := readProof(path + copySuffix); err == nil && p.Location != "" && validSum(p.XXH64) {
				l.of[p.Location] = &foundCopy{path: path, proof: p}
			}
		}
	}
	return l
}

func readProof(path string) (p copyProof, err error) {
	f, err := os.Open(path)
	if err != nil {
		return p, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProof))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}

// Len is how many copies there are.
func (l *LocalCopies) Len() int { return len(l.of) }

// WithLocalCopies is the same snapshot, whose files are read from copies where there are
// some.
func (s *Snapshot) WithLocalCopies(l *LocalCopies) *Snapshot {
	with := *s
	with.copies = l
	return &with
}

// open gives the copy of a file of a size; nil if there is none that is right.
func (l *LocalCopies) open(ctx context.Context, pool *blobstore.Pool, of blobstore.Location, size int64) (sst.Source, string) {
	if l == nil {
		return nil, ""
	}
	c := l.of[of.String()]
	if c == nil || c.proof.Size != size {
		return nil, ""
	}
	at, err := blobstore.Parse(c.path)
	if err != nil {
		return nil, ""
	}
	store, name, err := pool.Resolve(ctx, at)
	if err != nil || !c.prove(ctx, pool, at) {
		return nil, ""
	}
	return &objectSource{store: store, name: name, size: size}, at.String()
}

// prove tells whether a copy has the bytes it should have. One that has not is not
// looked at again, by a later process neither.
func (c *foundCopy) prove(ctx context.Context, pool *blobstore.Pool, at blobstore.Location) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proven || c.err != nil {
		return c.err == nil
	}
	sum, err := sumObject(ctx, pool, at, c.proof.Size+1, func(int64) {})
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		c.err = err
	case sum.Size != c.proof.Size || sum.XXH64 != c.proof.XXH64:
		c.err = errors.New("the copy is not what was written")
	}
	if c.err != nil {
		_ = os.Remove(c.path + copySuffix)
		return false
	}
	c.proven = true
	return true
}
