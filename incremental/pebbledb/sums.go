package pebbledb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/damage"
)

// SumsName is the local name of the private file that marks a handle's files as a
// Pebble database and has their sizes and checksums.
const SumsName = "PEBBLE"

// sumsVersion is that of the file.
const sumsVersion = 1

// maxSums bounds the file: half a million tables.
const maxSums = 128 << 20

// checksum is XXH64 of a file's bytes; 16 hex digits in JSON.
type checksum uint64

func (c checksum) String() string { return fmt.Sprintf("%016x", uint64(c)) }

// MarshalText implements encoding.TextMarshaler.
func (c checksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *checksum) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil || len(b) != 16 {
		return fmt.Errorf("%q is no XXH64 in 16 hex digits", b)
	}
	*c = checksum(v)
	return nil
}

// sums is the file PEBBLE.
type sums struct {
	Version  int    `json:"version"`
	Engine   string `json:"engine"`
	Format   uint64 `json:"formatMajorVersion"`
	Comparer string `json:"comparer"`
	Merger   string `json:"merger"`
	// Incarnation is the life of the backend that made the checkpoint.
	Incarnation string `json:"incarnation"`
	Checkpoint  int64  `json:"checkpoint"`
	KeyGroups   [2]int `json:"keyGroups"` // first and last
	// Empty are files of no bytes, whose names mean something; no handle has them.
	Empty []string   `json:"empty"`
	Files []sumEntry `json:"files"`
}

const engineName = "pebble"

// sumEntry is a file of the checkpoint.
type sumEntry struct {
	Name string   `json:"name"` // as in the handle
	Size int64    `json:"size"`
	Sum  checksum `json:"xxh64"`
	// Incarnation and Local are where it was written first: the life of a backend,
	// and the name there. Empty for private files.
	Incarnation string `json:"incarnation,omitempty"`
	Local       string `json:"local,omitempty"`
	// Physical is the size of the object of which it is a segment; 0 if it is none.
	Physical int64 `json:"physical,omitempty"`
	// Copy is how often it was written anew while the base had it.
	Copy int `json:"copy,omitempty"`
}

// identity says what the content is. An upload of the same content has the same one.
func (e sumEntry) identity() incremental.Identity {
	if e.Incarnation == "" {
		return incremental.Identity{}
	}
	return incremental.Identity{Incarnation: e.Incarnation, Name: e.Local, Size: e.Size, Checksum: "xxh64:" + e.Sum.String()}
}

// registered is the file for the shared state registry, which keeps the first upload of
// an identity: so a copy that is to take the place of an earlier one has another.
func (e sumEntry) registered() incremental.Identity {
	id := e.identity()
	if e.Copy > 0 && id.Name != "" {
		id.Name += "#" + strconv.Itoa(e.Copy)
	}
	return id
}

func (e sumEntry) mismatch(display string, got checksum) error {
	return &damage.Error{Name: display, Offset: 0, Field: "XXH64", Detail: fmt.Sprintf("of %d bytes is %s, the checkpoint says %s", e.Size, got, e.Sum), Err: damage.ErrCorrupt}
}

func (e sumEntry) wrongSize(display string, got int64) error {
	return &damage.Error{Name: display, Offset: -1, Detail: fmt.Sprintf("has %d bytes, the checkpoint says %d", got, e.Size), Err: damage.ErrCorrupt}
}

// encode gives the file: one line of JSON for what is common and one for each
// file, and a last line with the checksum of all before it.
func (s *sums) encode() []byte {
	var b bytes.Buffer
	head := *s
	head.Version, head.Engine, head.Files = sumsVersion, engineName, nil
	line := func(v any) {
		j, err := json.Marshal(v)
		if err != nil {
			panic(err) // strings and numbers only
		}
		b.Write(j)
		b.WriteByte('\n')
	}
	line(struct {
		sums
		Files int `json:"files"`
	}{head, len(s.Files)})
	for _, e := range s.Files {
		line(e)
	}
	b.WriteString(s.lastLine(b.Bytes()))
	return b.Bytes()
}

func (*sums) lastLine(before []byte) string {
	return fmt.Sprintf("xxh64 %016x\n", xxhash.Sum64(before))
}

// decodeSums reads the file. Errors are *damage.Error.
func decodeSums(display string, data []byte) (*sums, error) {
	bad := func(off int, field, format string, args ...any) error {
		return &damage.Error{Name: display, Offset: int64(off), Field: field, Detail: fmt.Sprintf(format, args...), Err: damage.ErrCorrupt}
	}
	const tail = len("xxh64 0123456789abcdef\n")
	if len(data) < tail {
		return nil, bad(len(data), "", "the file ends here")
	}
	end := len(data) - tail
	var sum checksum
	last := strings.TrimSuffix(strings.TrimPrefix(string(data[end:]), "xxh64 "), "\n")
	if err := sum.UnmarshalText([]byte(last)); err != nil {
		return nil, bad(end, "last line", "%q is no checksum", data[end:])
	}
	if got := checksum(xxhash.Sum64(data[:end])); got != sum {
		return nil, bad(0, "XXH64", "of %d bytes is %s, the last line says %s", end, got, sum)
	}
	var head struct {
		sums
		Files int `json:"files"`
	}
	off := 0
	next := func(field string, v any) error {
		i := bytes.IndexByte(data[off:end], '\n')
		if i < 0 {
			return bad(off, field, "has no end")
		}
		if err := json.Unmarshal(data[off:off+i], v); err != nil {
			return bad(off, field, "%v", err)
		}
		off += i + 1
		return nil
	}
	if err := next("first line", &head); err != nil {
		return nil, err
	}
	if head.Version != sumsVersion || head.Engine != engineName {
		return nil, &damage.Error{Name: display, Offset: 0, Field: "version", Detail: fmt.Sprintf("is %d of engine %q", head.Version, head.Engine), Err: damage.ErrUnsupportedVersion}
	}
	// A line has more than 32 bytes.
	if head.Files < 0 || head.Files > (end-off)/32 {
		return nil, bad(0, "files", "is %d", head.Files)
	}
	s := head.sums
	s.Files = make([]sumEntry, head.Files)
	for i := range s.Files {
		at, e := off, &s.Files[i]
		if err := next(fmt.Sprintf("file[%d]", i), e); err != nil {
			return nil, err
		}
		if !plainName(e.Name) || e.Size < 0 || e.Physical < 0 || e.Copy < 0 || e.Local != "" && !plainName(e.Local) {
			return nil, bad(at, fmt.Sprintf("file[%d]", i), "is %q of %d bytes", e.Name, e.Size)
		}
	}
	if off != end {
		return nil, bad(off, "", "%d bytes too many", end-off)
	}
	for _, n := range s.Empty {
		if !plainName(n) {
			return nil, bad(0, "empty", "has %q", n)
		}
	}
	return &s, nil
}

// plainName says whether a name is that of a file in a folder and no path.
func plainName(n string) bool {
	return n != "" && n != "." && n != ".." && len(n) <= 200 && !strings.ContainsAny(n, "/\\\x00\n")
}
