package blobstore

import (
	"fmt"
	"strings"
)

// Mapping says that what was at Old and below it is now at New.
type Mapping struct{ Old, New Location }

// ParseMapping reads "OLD=NEW". Where there are several "=", the one before
// something that looks like a path from a root or like a URL parts the two.
func ParseMapping(s string) (Mapping, error) {
	at, found := -1, 0
	for i := range len(s) {
		if s[i] == '=' && i > 0 && i < len(s)-1 && looksRooted(s[i+1:]) {
			at, found = i, found+1
		}
	}
	if found == 0 && strings.Count(s, "=") == 1 {
		at, found = strings.IndexByte(s, '='), 1
	}
	if found != 1 || at == 0 || at == len(s)-1 {
		return Mapping{}, fmt.Errorf("a mapping is written OLD=NEW, two URLs or absolute paths: %w", ErrInvalidName)
	}
	// The old place is as metadata has it, the new one as the user types it.
	old, err := ParsePath(s[:at])
	if err != nil {
		return Mapping{}, err
	}
	to, err := Parse(s[at+1:])
	if err != nil {
		return Mapping{}, err
	}
	return Mapping{old, to}, nil
}

func looksRooted(s string) bool {
	if s[0] == '/' || s[0] == '.' || isDrivePath(s) {
		return true
	}
	scheme, rest, ok := strings.Cut(s, ":")
	return ok && isScheme(scheme) && strings.HasPrefix(rest, "/")
}

func (m Mapping) String() string { return m.Old.String() + "=" + m.New.String() }

// Map gives the new place of l, if it is at Old or below.
func (m Mapping) Map(l Location) (Location, bool) {
	name, ok := l.Rel(m.Old)
	if !ok {
		return l, false
	}
	return m.New.Join(name), true
}

// Mappings are tried together: the one with the longest Old that matches wins, of
// equal ones the first. A location is mapped once; New is not mapped again.
type Mappings []Mapping

// Map gives the new place of l; false, and l itself, if no mapping matches.
func (ms Mappings) Map(l Location) (Location, bool) {
	best := -1
	for i, m := range ms {
		if l.HasPrefix(m.Old) && (best < 0 || len(m.Old.Path) > len(ms[best].Old.Path)) {
			best = i
		}
	}
	if best < 0 {
		return l, false
	}
	return ms[best].Map(l)
}

// Prefixes are places of which everything at and below them belongs to the set.
type Prefixes []Location

// Contain says whether l is in the set.
func (ps Prefixes) Contain(l Location) bool {
	for _, p := range ps {
		if l.HasPrefix(p) {
			return true
		}
	}
	return false
}
