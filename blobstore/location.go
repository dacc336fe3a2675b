package blobstore

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"
)

// Location is a parsed URL of an object, a folder or a root. It is comparable
// with ==, but two spellings of one place differ: see Same and Key.
//
// Flink's own spellings become ours: s3a, s3p and s3n are s3; abfs, abfss, wasb
// and wasbs are azblob with their container and account; file:/x, file:///x and a
// path without scheme are file. What the user wrote is kept for messages.
type Location struct {
	Scheme string // normalized, lower case
	// Authority is the bucket, "container@account" (or only "container" in
	// azblob://container), a namenode's host:port, a nameservice, the name of a
	// memory store; "" for file. An Azure account outside core.windows.net is its
	// whole host name.
	Authority string
	Path      string // name below the root: no leading or trailing "/", no "", "." or ".." part
	// Query are driver parameters ("endpoint=…&region=…"), as written. They may
	// be secret and are shown nowhere.
	Query string
	// Spelling is the scheme as written ("s3a"), for messages and for rewriting;
	// "" for a path without scheme.
	Spelling string
}

// The schemes that Parse knows, as written and as normalized. Others are kept as
// they are; whether a driver knows them is found out by Open.
var spellings = map[string]string{
	"s3a": "s3", "s3p": "s3", "s3n": "s3",
	"abfs": "azblob", "abfss": "azblob", "wasb": "azblob", "wasbs": "azblob",
}

const azurePublic = "core.windows.net"

// Parse reads a URL or plain path as a user writes it. A plain path is a local
// one and made absolute. A URL may have a query with driver parameters. Paths are
// not percent-decoded: Flink's Path prints them raw. As Flink does, empty parts
// and "." are dropped; ".." is refused in a URL, since Flink never writes it and
// object stores take it literally. User information is refused, apart from
// the container in container@account; no error repeats it or the query.
func Parse(s string) (Location, error) { return parse(s, true) }

// ParsePath is Parse for a path found in metadata: "?" has no meaning in it, and
// a path without scheme must be absolute. Flink writes paths with their scheme,
// "file:/x" for local ones.
func ParsePath(s string) (Location, error) { return parse(s, false) }

func parse(s string, typed bool) (Location, error) {
	if s == "" {
		return Location{}, fmt.Errorf("empty URL: %w", ErrInvalidName)
	}
	if strings.IndexByte(s, 0) >= 0 {
		return Location{}, fmt.Errorf("URL has a NUL byte: %w", ErrInvalidName)
	}
	spelling, rest, ok := strings.Cut(s, ":")
	if !ok || !isScheme(spelling) {
		return parsePlain(s, typed)
	}
	loc := Location{Scheme: strings.ToLower(spelling), Spelling: spelling}
	if norm, ok := spellings[loc.Scheme]; ok {
		loc.Scheme = norm
	}
	bad := func(format string, args ...any) (Location, error) {
		return Location{}, fmt.Errorf("%s://…: %w: %w", spelling, fmt.Errorf(format, args...), ErrInvalidName)
	}
	if typed {
		rest, loc.Query, _ = strings.Cut(rest, "?")
		if _, err := url.ParseQuery(loc.Query); err != nil {
			return bad("the query after %q cannot be read", "?")
		}
	}
	authority := ""
	switch {
	case strings.HasPrefix(rest, "//"):
		authority, rest, _ = strings.Cut(rest[2:], "/")
	case !strings.HasPrefix(rest, "/"):
		return bad(`expected %s:// or %s:/ (a local name with a colon is written "./%s:…")`, spelling, spelling, spelling)
	}
	var err error
	if loc.Authority, err = normalAuthority(loc, authority); err != nil {
		return bad("%w", err)
	}
	if loc.Path, err = cleanPath(rest); err != nil {
		return bad("%w", err)
	}
	return loc, nil
}

func parsePlain(s string, typed bool) (Location, error) {
	if !typed && !filepath.IsAbs(s) && !strings.HasPrefix(s, "/") {
		return Location{}, fmt.Errorf("%q is relative: %w", s, ErrInvalidName)
	}
	abs := s
	if typed {
		var err error
		if abs, err = filepath.Abs(s); err != nil {
			return Location{}, fmt.Errorf("%q: %w", s, err)
		}
	}
	p, err := cleanPath(filepath.ToSlash(abs))
	if err != nil {
		return Location{}, fmt.Errorf("%q: %w: %w", s, err, ErrInvalidName)
	}
	return Location{Scheme: "file", Path: p}, nil
}

// cleanPath drops empty and "." parts and refuses "..".
func cleanPath(p string) (string, error) {
	clean := p != ""
	for rest, more := p, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		switch part {
		case "", ".":
			clean = false
		case "..":
			return "", errors.New(`the path has a part ".."`)
		}
	}
	if clean {
		return p, nil
	}
	return strings.TrimPrefix(path.Clean("/"+p), "/"), nil
}

// normalAuthority checks an authority and brings it to the form of the field. Its
// errors do not repeat it: a secret key with a "/" in it may have been cut there.
func normalAuthority(loc Location, a string) (string, error) {
	user, host, hasUser := strings.Cut(a, "@")
	if !hasUser {
		user, host = "", a
	}
	if hasUser && (loc.Scheme != "azblob" || user == "" || strings.ContainsAny(user, ":@")) || strings.Contains(host, "@") {
		return "", errors.New("user information in a URL is not accepted: give credentials by configuration or environment")
	}
	for _, c := range a {
		if unicode.IsSpace(c) || unicode.IsControl(c) || strings.ContainsRune("\\<>\"^`{|}", c) {
			return "", fmt.Errorf("the host or bucket has a character %q", c)
		}
	}
	switch loc.Scheme {
	case "file":
		if a != "" && !strings.EqualFold(a, "localhost") {
			return "", errors.New("a file URL with a host: a local path is written file:///path or /path")
		}
		return "", nil
	case "s3", "gs":
		if a == "" {
			return "", errors.New("names no bucket")
		}
		if strings.Contains(a, ":") {
			return "", errors.New(`":" cannot be in the name of a bucket`)
		}
	case "azblob":
		return azureAuthority(loc.Spelling, user, host)
	case "hdfs", "webhdfs", "swebhdfs":
		for hp := range strings.SplitSeq(a, ",") {
			if _, port, ok := cutPort(hp); ok && strings.Trim(port, "0123456789") != "" {
				return "", errors.New("the port is not a number")
			}
		}
	}
	return a, nil
}

func cutPort(hostport string) (host, port string, ok bool) {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 || strings.HasSuffix(hostport, "]") {
		return hostport, "", false
	}
	return hostport[:i], hostport[i+1:], true
}

// azureAuthority makes container@account from what abfs and wasb have:
// container@account.dfs.core.windows.net, …blob… in the older one. Both reach the
// same blobs.
func azureAuthority(spelling, container, host string) (string, error) {
	if strings.EqualFold(spelling, "azblob") {
		if container == "" { // azblob://container, the account is configured
			container, host = host, ""
		}
		if container == "" {
			return "", errors.New("names no container")
		}
		if strings.Contains(container, ":") {
			return "", errors.New(`":" cannot be in the name of a container`)
		}
		if host == "" {
			return container, nil
		}
	} else if container == "" {
		return "", fmt.Errorf("expected %s://CONTAINER@ACCOUNT.dfs.%s/…", spelling, azurePublic)
	}
	if _, port, ok := cutPort(host); ok && strings.Trim(port, "0123456789") != "" {
		return "", errors.New("the port is not a number")
	}
	host = strings.ToLower(host)
	account, domain, ok := strings.Cut(host, ".")
	if account == "" {
		return "", errors.New("names no account")
	}
	if !ok {
		return container + "@" + account, nil
	}
	endpoint := domain
	if after, ok := strings.CutPrefix(domain, "dfs."); ok {
		endpoint = after
	} else if after, ok := strings.CutPrefix(domain, "blob."); ok {
		endpoint = after
	} else {
		return container + "@" + host, nil
	}
	if endpoint == azurePublic {
		return container + "@" + account, nil
	}
	return container + "@" + account + ".blob." + endpoint, nil
}

func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		alpha := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !alpha && (i == 0 || !(c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return len(s) > 1 // one letter is a Windows drive
}

// Root is the location without its path.
func (l Location) Root() Location { l.Path = ""; return l }

// Join appends a relative name, which must be valid (ValidName) or "".
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

// Dir is the folder that holds l; the root is its own.
func (l Location) Dir() Location {
	l.Path = l.Path[:max(0, strings.LastIndexByte(l.Path, '/'))]
	return l
}

// Base is the last part of the path, "" for the root.
func (l Location) Base() string { return l.Path[strings.LastIndexByte(l.Path, '/')+1:] }

// String is the URL as Flink would print it, in the spelling of the user, without
// query and credentials. Parse gives it back, apart from the query; where the path
// has a "?" and a scheme, ParsePath does.
func (l Location) String() string {
	if l.Scheme == "file" {
		p := "/" + l.Path
		if runtime.GOOS == "windows" && isDrivePath(l.Path) && l.Spelling == "" {
			p = l.Path
		}
		if l.Spelling == "" {
			return p
		}
		return l.Spelling + ":" + p
	}
	scheme := l.Spelling
	if scheme == "" {
		scheme = l.Scheme
	}
	authority := l.Authority
	if l.Scheme == "azblob" {
		authority = azureSpelled(scheme, authority)
	}
	if l.Path == "" {
		return scheme + "://" + authority
	}
	return scheme + "://" + authority + "/" + l.Path
}

// azureSpelled is the inverse of azureAuthority for the spelling.
func azureSpelled(spelling, authority string) string {
	container, account, ok := strings.Cut(authority, "@")
	if !ok {
		return authority
	}
	service := ""
	switch strings.ToLower(spelling) {
	case "abfs", "abfss":
		service = ".dfs."
	case "wasb", "wasbs":
		service = ".blob."
	default:
		return authority
	}
	if !strings.Contains(account, ".") {
		if strings.Contains(account, ":") {
			return authority
		}
		return container + "@" + account + service + azurePublic
	}
	name, domain, _ := strings.Cut(account, ".")
	if endpoint, ok := strings.CutPrefix(domain, "blob."); ok {
		return container + "@" + name + service + endpoint
	}
	return authority
}

func isDrivePath(p string) bool {
	return len(p) >= 2 && p[1] == ':' && (p[0]|0x20) >= 'a' && (p[0]|0x20) <= 'z'
}

// defaultPorts are left out of Key: a URL with and without them is one place.
var defaultPorts = map[string]string{"hdfs": ":8020", "webhdfs": ":9870", "swebhdfs": ":9871"}

// storeKey is the same for all spellings of one root.
func (l Location) storeKey() string {
	return l.Scheme + "://" + strings.TrimSuffix(l.Authority, defaultPorts[l.Scheme])
}

func (l Location) rootKey() string { return l.storeKey() + "?" + l.Query }

// Key is a text that is equal for two locations of one object, whatever scheme
// they were reached by (s3a and s3, abfss and wasb, file:/x and /x), and whatever
// their query. It is not meant to be shown.
func (l Location) Key() string { return l.storeKey() + "/" + l.Path }

// Same says whether l and o are one place; see Key.
func (l Location) Same(o Location) bool { return l.Path == o.Path && l.storeKey() == o.storeKey() }

// SameStore says whether l and o lie in one store: same bucket, same cluster.
func (l Location) SameStore(o Location) bool { return l.storeKey() == o.storeKey() }

// Rel gives the name of l below dir, "" if they are the same place. It compares
// whole parts: s3://b/ckp-old/x is not below s3a://b/ckp.
func (l Location) Rel(dir Location) (string, bool) {
	if !l.SameStore(dir) {
		return "", false
	}
	if dir.Path == "" {
		return l.Path, true
	}
	rest, ok := strings.CutPrefix(l.Path, dir.Path)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

// HasPrefix says whether l is dir or lies below it.
func (l Location) HasPrefix(dir Location) bool { _, ok := l.Rel(dir); return ok }
