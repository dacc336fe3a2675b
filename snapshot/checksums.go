package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/damage"
)

// ChecksumsName is the name of the object beside _metadata that holds a checksum of
// it and of each file that it names. Flink does not look at it. It is optional.
//
//	{"version":1,"metadata":{"size":n,"xxh64":"…"},"files":n}
//	{"path":"…","size":n,"xxh64":"…"}        for each file, by path
//	xxh64 0123456789abcdef                   of all bytes before this line
//
// A path is as the handle has it: relative to the folder, or an absolute URL; so the
// object stays right when the folder is moved.
const ChecksumsName = incremental.ChecksumsName

const (
	checksumsVersion = 1
	maxChecksums     = 1 << 30
)

// FileChecksum is the checksum of one file.
type FileChecksum struct {
	Path string `json:"path,omitempty"` // as in the handle; "" for _metadata
	Size int64  `json:"size"`           // bytes
	// XXH64 of the first Size bytes, 16 hex digits: a merged file may have grown since.
	XXH64 string `json:"xxh64"`
}

// Checksums are the content of the object.
type Checksums struct {
	Metadata FileChecksum
	Files    []FileChecksum // by path
}

type checksumsHead struct {
	Version  int          `json:"version"`
	Metadata FileChecksum `json:"metadata"`
	Files    int          `json:"files"`
}

func sumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// encode gives the object.
func (c *Checksums) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(checksumsHead{checksumsVersion, c.Metadata, len(c.Files)}); err != nil {
		return nil, err
	}
	for i := range c.Files {
		if err := e.Encode(&c.Files[i]); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(&b, "xxh64 %s\n", sumText(xxhash.Sum64(b.Bytes())))
	return b.Bytes(), nil
}

// decodeChecksums reads the object. Errors are *damage.Error.
func decodeChecksums(name string, data []byte) (*Checksums, error) {
	bad := func(off int, field, detail string, err error) error {
		return &damage.Error{Name: name, Offset: int64(off), Field: field, Detail: detail, Err: err}
	}
	const tail = len("xxh64 0123456789abcdef\n")
	if len(data) < tail {
		return nil, bad(len(data), "", "ends early", damage.ErrCorrupt)
	}
	end := len(data) - tail
	last := string(data[end:])
	digits, ok := strings.CutPrefix(strings.TrimSuffix(last, "\n"), "xxh64 ")
	if !ok || !validSum(digits) {
		return nil, bad(end, "last line", "is no checksum", damage.ErrCorrupt)
	}
	if got := sumText(xxhash.Sum64(data[:end])); got != digits {
		return nil, bad(0, "XXH64", "is "+got+", the last line says "+digits, damage.ErrCorrupt)
	}
	c, files := &Checksums{}, -1
	for off := 0; off < end; {
		n := bytes.IndexByte(data[off:end], '\n')
		if n < 0 {
			return nil, bad(off, "", "a line has no end", damage.ErrCorrupt)
		}
		line := data[off : off+n]
		if files < 0 {
			var h checksumsHead
			if err := json.Unmarshal(line, &h); err != nil {
				return nil, bad(off, "first line", err.Error(), damage.ErrCorrupt)
			}
			if h.Version != checksumsVersion {
				return nil, bad(off, "version", "is "+strconv.Itoa(h.Version), damage.ErrUnsupportedVersion)
			}
			if h.Files < 0 || !validSum(h.Metadata.XXH64) {
				return nil, bad(off, "first line", "has no number of files or no checksum", damage.ErrCorrupt)
			}
			c.Metadata, files = h.Metadata, h.Files
		} else {
			var f FileChecksum
			if err := json.Unmarshal(line, &f); err != nil || f.Path == "" || f.Size < 0 || !validSum(f.XXH64) {
				return nil, bad(off, "file", "is not path, size and checksum", damage.ErrCorrupt)
			}
			c.Files = append(c.Files, f)
		}
		off += n + 1
	}
	if files != len(c.Files) {
		return nil, bad(0, "files", fmt.Sprintf("is %d, and %d follow", files, len(c.Files)), damage.ErrCorrupt)
	}
	return c, nil
}

func validSum(s string) bool {
	_, err := strconv.ParseUint(s, 16, 64)
	return err == nil && len(s) == 16
}

// ReadChecksums reads the checksums that lie beside a snapshot's _metadata. Its error is
// blobstore.ErrNotExist if there are none, damage with a place, or that of the store.
func ReadChecksums(ctx context.Context, s *Snapshot) (*Checksums, error) {
	at := s.Dir.Join(ChecksumsName)
	store, name, err := s.pool.Resolve(ctx, at)
	if err != nil {
		return nil, err
	}
	b, err := blobstore.ReadAll(ctx, store, name, maxChecksums)
	if err != nil {
		return nil, err
	}
	return decodeChecksums(at.String(), b)
}

// summedFile is a physical file of a snapshot, with what its checksums say.
type summedFile struct {
	at   blobstore.Location
	path string        // as the first handle has it
	sum  *FileChecksum // nil if there is none
}

// summedFiles are the files of a snapshot, each once, in the order of their
// addresses; c may be nil.
func summedFiles(s *Snapshot, c *Checksums) []summedFile {
	byPath := map[string]*FileChecksum{}
	if c != nil {
		for i := range c.Files {
			byPath[c.Files[i].Path] = &c.Files[i]
		}
	}
	files := map[string]*summedFile{}
	for _, h := range s.Checkpoint.StreamHandles() {
		t := s.Resolve(h)
		if t.Kind != TargetObject && t.Kind != TargetSegment {
			continue
		}
		key := t.Location.Key()
		f := files[key]
		if f == nil {
			f = &summedFile{at: t.Location, path: t.Written}
			files[key] = f
		}
		if f.sum == nil {
			f.sum = byPath[t.Written]
		}
	}
	var out []summedFile
	for _, k := range slices.Sorted(maps.Keys(files)) {
		out = append(out, *files[k])
	}
	return out
}

// sumObject reads an object, up to limit bytes if that is not negative.
func sumObject(ctx context.Context, pool *blobstore.Pool, at blobstore.Location, limit int64, read func(int64)) (FileChecksum, error) {
	store, name, err := pool.Resolve(ctx, at)
	if err != nil {
		return FileChecksum{}, err
	}
	r, err := store.OpenRange(ctx, name, 0, limit)
	if err != nil {
		return FileChecksum{}, err
	}
	defer r.Close()
	h := xxhash.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{&counted{r: r, tell: read}}, make([]byte, 256<<10))
	if err != nil {
		return FileChecksum{}, err
	}
	return FileChecksum{Size: n, XXH64: sumText(h.Sum64())}, nil
}

// ChecksumOptions change WriteChecksums. Nil is the default.
type ChecksumOptions struct {
	// Workers is how many files are read at a time; 0 is 4.
	Workers int
	// Progress is told of bytes as they are read, from any goroutine.
	Progress func(bytes int64)
}

// WriteChecksums reads all files of a snapshot and writes their checksums beside its
// _metadata. What is damaged already gets the checksum of the damage: verify first.
// Checksums that are there are not replaced: the error is blobstore.ErrExist.
func WriteChecksums(ctx context.Context, s *Snapshot, opts *ChecksumOptions) (*Checksums, error) {
	var o ChecksumOptions
	if opts != nil {
		o = *opts
	}
	if o.Workers <= 0 {
		o.Workers = 4
	}
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	at := s.Dir.Join(ChecksumsName)
	store, name, err := s.pool.Resolve(ctx, at)
	if err != nil {
		return nil, err
	}
	if _, err := store.Stat(ctx, name); err == nil {
		return nil, fmt.Errorf("%s: %w", at, blobstore.ErrExist)
	} else if !errors.Is(err, blobstore.ErrNotExist) {
		return nil, err
	}
	c := &Checksums{}
	if c.Metadata, err = sumObject(ctx, s.pool, s.Location, -1, o.Progress); err != nil {
		return nil, err
	}
	files := summedFiles(s, nil)
	c.Files = make([]FileChecksum, len(files))
	if err := parallel(ctx, o.Workers, len(files), func(ctx context.Context, i int) error {
		sum, err := sumObject(ctx, s.pool, files[i].at, -1, o.Progress)
		if err != nil {
			return missing(files[i].at, err)
		}
		sum.Path = files[i].path
		c.Files[i] = sum
		return nil
	}); err != nil {
		return nil, err
	}
	return c, writeChecksums(ctx, store, name, c)
}

func writeChecksums(ctx context.Context, store blobstore.Store, name string, c *Checksums) error {
	slices.SortFunc(c.Files, func(a, b FileChecksum) int { return strings.Compare(a.Path, b.Path) })
	b, err := c.encode()
	if err != nil {
		return err
	}
	return blobstore.WriteAll(ctx, store, name, b, nil)
}

// ChecksumReport is what verification found of the checksums beside _metadata.
type ChecksumReport struct {
	// Files are those with a checksum, Without those of the snapshot that have none.
	Files   int64 `json:"files"`
	Without int64 `json:"without,omitempty"`
	// Verified were read and compared, with --data.
	Verified int64 `json:"verified"`
	Bytes    int64 `json:"bytes"` // that were read for it
}

// checksums compares the snapshot with its checksums, if it has some; the files only
// if data is to be verified. covered are the addresses of files that are proven whole.
func (v *verifier) checksums(ctx context.Context, opts *DataOptions) (covered map[string]bool, err error) {
	own := v.s.Dir.Join(ChecksumsName).String()
	c, err := ReadChecksums(ctx, v.s)
	var d *damage.Error
	switch {
	case errors.Is(err, blobstore.ErrNotExist):
		return nil, nil
	case errors.As(err, &d):
		v.add(Finding{Severity: Damage, Code: "checksums-corrupt", File: own, Offset: d.Offset, Detail: strings.TrimSpace(d.Field + " " + d.Detail)})
		return nil, nil
	case errors.Is(err, blobstore.ErrPermission):
		v.denied(own)
		v.add(Finding{Severity: Unread, Code: "no-access", File: own, Offset: -1, Detail: "the store denies access"})
		return nil, nil
	case err != nil:
		return nil, err
	}
	mismatch := func(file string, want, got FileChecksum) {
		detail := fmt.Sprintf("XXH64 of %d bytes is %s, %s says %s", got.Size, got.XXH64, ChecksumsName, want.XXH64)
		if got.Size != want.Size {
			detail = fmt.Sprintf("has %d bytes, %s says %d", got.Size, ChecksumsName, want.Size)
		}
		v.add(Finding{Severity: Damage, Code: "checksum-mismatch", File: file, Offset: -1, Detail: detail})
	}
	got, err := sumObject(ctx, v.s.pool, v.s.Location, -1, func(int64) {})
	if err != nil {
		return nil, err
	}
	covered = map[string]bool{}
	if got != c.Metadata {
		mismatch(v.file, c.Metadata, got)
	} else {
		covered[v.file], covered[v.s.Location.String()+" (inline)"] = true, true
	}
	report := &ChecksumReport{}
	v.out.Checksums = report
	files := summedFiles(v.s, c)
	var todo []summedFile
	for _, f := range files {
		if f.sum == nil {
			report.Without++
			continue
		}
		report.Files++
		if opts != nil {
			if choose := opts.Sample.choose(f.at.String()); choose == nil || choose(0) {
				todo = append(todo, f)
			}
		}
	}
	if report.Without > 0 {
		v.add(Finding{Severity: Note, Code: "checksum-missing", File: own, Offset: -1, Detail: fmt.Sprintf("has no checksum of %d of %d files", report.Without, len(files))})
	}
	if len(todo) == 0 {
		return covered, nil
	}
	sums, errs := make([]FileChecksum, len(todo)), make([]error, len(todo))
	if err := parallel(ctx, max(opts.Workers, 2), len(todo), func(ctx context.Context, i int) error {
		sums[i], errs[i] = sumObject(ctx, v.s.pool, todo[i].at, todo[i].sum.Size, func(int64) {})
		if errs[i] != nil && !errors.Is(errs[i], blobstore.ErrNotExist) && !errors.Is(errs[i], blobstore.ErrPermission) && !errors.Is(errs[i], blobstore.ErrIsDirectory) {
			return errs[i]
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, f := range todo {
		if errs[i] != nil {
			continue // the check of files tells of it
		}
		report.Verified++
		report.Bytes += sums[i].Size
		if want := (FileChecksum{Size: f.sum.Size, XXH64: f.sum.XXH64}); sums[i] != want {
			mismatch(f.at.String(), want, sums[i])
			continue
		}
		covered[f.at.String()] = true
	}
	return covered, nil
}
