package blobstore

import (
	"path"
	"strings"
)

// Entropy is Flink's way to spread load over an object store: a marker in the
// configured path ("s3.entropy.key", commonly "_entropy_") is replaced by random
// characters for each state file, and left out for metadata. So the state files are
// not below the directory of their metadata.
//
// Source: Flink, EntropyInjector.java: only the path of the URI is looked at, only
// the first occurrence counts, and the URI is normalized afterwards.
type Entropy struct {
	Marker string
	Length int // of what replaces it, "s3.entropy.length"; Flink's default is 4
}

// DefaultEntropyLength is Flink's for "s3.entropy.length".
const DefaultEntropyLength = 4

func (e Entropy) cut(l Location) (before, after string, ok bool) {
	if e.Marker == "" {
		return l.Path, "", false
	}
	return strings.Cut(l.Path, e.Marker)
}

// In says whether the marker is in l.
func (e Entropy) In(l Location) bool { _, _, ok := e.cut(l); return ok }

// Remove gives the location without the marker, at which metadata lies. Without a
// marker in it l is unchanged.
func (e Entropy) Remove(l Location) Location { return e.resolve(l, "") }

// Resolve gives the location with random in the place of the marker.
func (e Entropy) Resolve(l Location, random string) Location { return e.resolve(l, random) }

func (e Entropy) resolve(l Location, s string) Location {
	if before, after, ok := e.cut(l); ok {
		l.Path = strings.TrimPrefix(path.Clean("/"+before+s+after), "/")
	}
	return l
}

// Parent is the part of a location with a marker in which all data lie, whatever
// replaces the marker: its whole parts before the marker. Listing it finds both
// metadata and state files, and those of others beside them.
func (e Entropy) Parent(l Location) Location {
	if before, _, ok := e.cut(l); ok {
		l.Path = strings.TrimSuffix(before[:strings.LastIndexByte(before, '/')+1], "/")
	}
	return l
}

// Match says whether l is at or below the configured location with some entropy in
// the place of the marker, and gives that and the name below.
func (e Entropy) Match(configured, l Location) (random, name string, ok bool) {
	before, after, ok := e.cut(configured)
	if !ok || !l.SameStore(configured) {
		return "", "", false
	}
	n := e.Length
	if n <= 0 {
		n = DefaultEntropyLength
	}
	rest, ok := strings.CutPrefix(l.Path, before)
	if !ok || len(rest) < n {
		return "", "", false
	}
	random, rest = rest[:n], rest[n:]
	for _, c := range []byte(random) {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return "", "", false
		}
	}
	if rest, ok = strings.CutPrefix(rest, after); !ok || rest != "" && rest[0] != '/' {
		return "", "", false
	}
	return random, strings.TrimPrefix(rest, "/"), true
}
