package snapshot

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidemark/tidemark/blobstore"
)

// Names that Flink gives to the folders of a job.
const (
	sharedDir    = "shared"
	taskOwnedDir = "taskowned"
	changelogDir = "dstl"
)

// isJobID reports whether s is a job ID as a folder's name: 32 lower-case hex digits.
func isJobID(s string) bool { return len(s) == 32 && isHex(s) }

func isHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}

// checkpointNumber is the n of chk-<n>, decimal without padding; -1 for another name.
func checkpointNumber(name string) int64 {
	digits, ok := strings.CutPrefix(name, "chk-")
	if !ok || digits == "" || digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && len(digits) > 1) {
		return -1
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// savepointJob is the six hex digits of savepoint-<6 hex>-<12 hex>; "" for another name.
func savepointJob(name string) string {
	rest, ok := strings.CutPrefix(name, "savepoint-")
	if !ok || len(rest) != 6+1+12 || rest[6] != '-' || !isHex(rest[:6]) || !isHex(rest[7:]) {
		return ""
	}
	return rest[:6]
}

// entropyMarker is the usual value of s3.entropy.key. In the configured folder it
// stands for random characters; for metadata Flink leaves it out.
const entropyMarker = "_entropy_"

// withoutEntropy leaves the marker out of an address that was copied from a
// configuration; false if there is none in it.
func withoutEntropy(loc blobstore.Location) (blobstore.Location, bool) {
	before, after, ok := strings.Cut("/"+loc.Path+"/", "/"+entropyMarker+"/")
	if !ok {
		return loc, false
	}
	loc.Path = strings.Trim(before+"/"+after, "/")
	return loc, true
}

// parentPath and baseName take the path of a Location apart.
func parentPath(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

func baseName(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

func joinPath(dir, name string) string {
	switch {
	case dir == "":
		return name
	case name == "":
		return dir
	}
	return dir + "/" + name
}

// below gives what follows dir in p, without slash in between: "" for dir
// itself. Everything is below the root "".
func below(p, dir string) (rest string, ok bool) {
	if dir == "" {
		return p, true
	}
	if !strings.HasPrefix(p, dir) {
		return "", false
	}
	if len(p) == len(dir) {
		return "", true
	}
	if p[len(dir)] != '/' {
		return "", false
	}
	return p[len(dir)+1:], true
}

// jobOf finds the innermost job ID among the parts of p: the path before it, and
// what follows. ok is false if there is none.
func jobOf(p string) (before, job, after string, ok bool) {
	for end := len(p); end > 0; {
		start := strings.LastIndexByte(p[:end], '/') + 1
		if isJobID(p[start:end]) {
			return strings.TrimSuffix(p[:start], "/"), p[start:end], strings.TrimPrefix(p[end:], "/"), true
		}
		end = start - 1
	}
	return "", "", "", false
}

func firstPart(p string) string {
	first, _, _ := strings.Cut(p, "/")
	return first
}

// refusal is a reason not to follow a handle; it wraps ErrRefused. The code is
// that of the finding.
type refusal struct{ code, reason string }

func (r *refusal) Error() string { return r.reason }
func (r *refusal) Unwrap() error { return ErrRefused }

func refuse(code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// Codes of refusals.
const (
	codeBadPath    = "bad-path"
	codeClimbsOut  = "climbs-out"
	codeLocalFile  = "local-from-remote"
	codeOtherStore = "other-store"
	codeSpecial    = "special-file"
	codeBadSegment = "bad-segment"
)

// checkParts refuses what no name may contain: bytes that are not UTF-8, control
// characters, and parts that climb or mean nothing.
func checkParts(p string) error {
	if !utf8.ValidString(p) {
		return refuse(codeBadPath, "path is not valid text")
	}
	for i := 0; i < len(p); i++ {
		if p[i] < 0x20 || p[i] == 0x7f {
			return refuse(codeBadPath, "control character in the path")
		}
	}
	for rest := p; ; {
		part, after, more := strings.Cut(rest, "/")
		switch part {
		case "..":
			return refuse(codeClimbsOut, `climbs out of its directory by ".."`)
		case ".":
			return refuse(codeBadPath, `"." in the path`)
		case "":
			return refuse(codeBadPath, "empty part in the path")
		}
		if !more {
			return nil
		}
		rest = after
	}
}

// splitScheme cuts the scheme off a path as Flink prints it. A path without one
// gives "".
func splitScheme(s string) (scheme, rest string) {
	i := strings.IndexByte(s, ':')
	if i < 2 { // one letter is a Windows drive
		return "", s
	}
	for j := 0; j < i; j++ {
		c := s[j]
		alpha := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !alpha && (j == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return "", s
		}
	}
	return s[:i], s[i+1:]
}

// parseWritten reads an absolute path as it stands in a handle. Unlike
// blobstore.Parse it takes nothing in it for a parameter: a "?" belongs to the
// path, since metadata must not configure a store. hasScheme is false for a path
// that begins with "/"; its Scheme is then "file" and the caller decides.
//
// Double slashes are one, as in Flink's Path.
func parseWritten(s string) (loc blobstore.Location, hasScheme bool, err error) {
	scheme, rest := splitScheme(s)
	if !strings.HasPrefix(rest, "/") {
		return loc, false, refuse(codeBadPath, "not an absolute path")
	}
	authority := ""
	if scheme != "" {
		if after, ok := strings.CutPrefix(rest, "//"); ok {
			authority, rest, _ = strings.Cut(after, "/")
		}
		if strings.ContainsAny(authority, "?#%\\ ") {
			return loc, true, refuse(codeBadPath, "malformed authority")
		}
		loc, err = blobstore.Parse(scheme + "://" + authority + "/")
		if err != nil {
			if errors.Is(err, blobstore.ErrInvalidName) {
				return loc, true, refuse(codeBadPath, "malformed authority")
			}
			return loc, true, refuse(codeBadPath, "not an address: %v", err)
		}
		if loc.Query != "" {
			return loc, true, refuse(codeBadPath, "malformed authority")
		}
	} else {
		loc = blobstore.Location{Scheme: "file"}
	}
	if strings.Contains(rest, "//") {
		rest = collapse(rest)
	}
	loc.Path = strings.Trim(rest, "/")
	if loc.Path == "" {
		return loc, scheme != "", nil
	}
	return loc, scheme != "", checkParts(loc.Path)
}

func collapse(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		if p[i] == '/' && i > 0 && p[i-1] == '/' {
			continue
		}
		b.WriteByte(p[i])
	}
	return b.String()
}

// checkRelative applies the rules for relative handles: a plain path below the
// folder. Flink itself writes only a bare file name.
func checkRelative(p string) error {
	switch {
	case p == "":
		return refuse(codeBadPath, "empty relative path")
	case p[0] == '/':
		return refuse(codeBadPath, "absolute path in a relative handle")
	}
	if scheme, _ := splitScheme(p); scheme != "" {
		return refuse(codeBadPath, "relative path with a scheme")
	}
	return checkParts(p)
}

// shown is a path as written, fit for messages: no credentials, no control
// characters, not endless.
func shown(s string) string {
	if scheme, rest := splitScheme(s); scheme != "" {
		if after, ok := strings.CutPrefix(rest, "//"); ok {
			authority, path, _ := strings.Cut(after, "/")
			if i := strings.LastIndexByte(authority, '@'); i >= 0 && strings.Contains(authority[:i], ":") {
				s = scheme + "://…@" + authority[i+1:] + "/" + path
			}
		}
	}
	const longest = 1024
	if len(s) > longest {
		cut := longest
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}

// isBookkeeping says that a name is one of those under which a job of our runtime
// keeps what is no part of a snapshot and no garbage either: the log of completed
// checkpoints (runtime/checkpoint.LogStore) and the journal of the shared state
// registry (incremental.Cleaner). Nobody's snapshot names them, and a job that
// loses its log does not know its checkpoints any more.
func isBookkeeping(name string) bool {
	dir, base := parentPath(name), baseName(name)
	switch baseName(dir) {
	case "checkpoints-log":
		return len(base) == 19 && strings.Trim(base, "0123456789") == ""
	case "registry":
		return strings.HasPrefix(base, "pending-") || strings.HasPrefix(base, "kept-")
	}
	return false
}
