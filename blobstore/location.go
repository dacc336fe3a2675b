package blobstore

import (
	"fmt"
	"net/url"
	"strings"
)

// Location is a parsed URL of an object, a folder or a root. It is comparable.
//
// Flink's own spellings become ours: s3a, s3p and s3n are s3; abfs, abfss, wasb
// and wasbs are azblob with their container and account; file:/x, file:///x and a
// path without scheme are file. What the user wrote is kept for messages.
type Location struct {
	Scheme    string // normalized
	Authority string // bucket, container@account, namenode or nameservice; "" for file
	Path      string // name below the root: no leading or trailing "/"
	// Query are driver parameters ("endpoint=…&region=…"), as written.
	Query string
	// Spelling is the scheme as written ("s3a"), for messages and for rewriting.
	Spelling string
}

// Parse reads a URL or plain path. Paths are not percent-decoded (Flink's Path
// prints them raw), and user information other than a container name is refused.
func Parse(s string) (Location, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || !isScheme(scheme) {
		return Location{Scheme: "file", Spelling: "", Path: strings.Trim(s, "/")}, nil
	}
	loc := Location{Scheme: strings.ToLower(scheme), Spelling: scheme}
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		loc.Authority, rest, _ = strings.Cut(after, "/")
	}
	rest, loc.Query, _ = strings.Cut(rest, "?")
	loc.Path = strings.Trim(rest, "/")
	switch loc.Scheme {
	case "s3a", "s3p", "s3n":
		loc.Scheme = "s3"
	}
	if loc.Query != "" {
		if _, err := url.ParseQuery(loc.Query); err != nil {
			return Location{}, fmt.Errorf("%s://…: bad query: %w", loc.Scheme, ErrInvalidName)
		}
	}
	return loc, nil
}

func isScheme(s string) bool {
	for i, c := range s {
		alpha := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !alpha && (i == 0 || !(c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return len(s) > 1 // one letter is a Windows drive
}

// Root is the location without its path.
func (l Location) Root() Location { l.Path = ""; return l }

// Join appends a relative name.
func (l Location) Join(name string) Location {
	switch {
	case name == "":
	case l.Path == "":
		l.Path = name
	default:
		l.Path += "/" + name
	}
	return l
}

// String is the URL without query and credentials.
func (l Location) String() string {
	if l.Scheme == "file" {
		if l.Spelling == "" {
			return "/" + l.Path
		}
		return "file:/" + l.Path
	}
	scheme := l.Spelling
	if scheme == "" {
		scheme = l.Scheme
	}
	return scheme + "://" + l.Authority + "/" + l.Path
}

func (l Location) rootKey() string { return l.Scheme + "://" + l.Authority + "?" + l.Query }
