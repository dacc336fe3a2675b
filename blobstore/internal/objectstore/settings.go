package objectstore

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

// Settings are what a driver was given: the parameters of the URL, which never
// hold secrets, and the values of Options.Config by Flink's or Hadoop's key. A
// parameter goes before a value. The first error sticks; see Err.
type Settings struct {
	query  url.Values
	config map[string]string
	known  []string
	err    error
}

// NewSettings reads loc's query and opts.
func NewSettings(loc blobstore.Location, opts *blobstore.Options) *Settings {
	s := &Settings{}
	s.query, s.err = url.ParseQuery(loc.Query)
	if s.err != nil { // its message may show a value
		s.err = fmt.Errorf("bad query in the URL: %w", blobstore.ErrInvalidName)
	}
	if opts != nil {
		s.config = opts.Config
	}
	return s
}

// Param gives the URL's parameter, or "".
func (s *Settings) Param(name string) string {
	s.known = append(s.known, name)
	return s.query.Get(name)
}

// Config gives the first value that is set among keys, or "".
func (s *Settings) Config(keys ...string) string {
	for _, k := range keys {
		if v := s.config[k]; v != "" {
			return v
		}
	}
	return ""
}

// Bool reads a boolean, given as parameter or by key; def if neither is set.
func (s *Settings) Bool(param string, def bool, keys ...string) bool {
	v, from := s.Param(param), param
	if v == "" {
		for _, k := range keys {
			if v = s.config[k]; v != "" {
				from = k
				break
			}
		}
	}
	if v == "" {
		return def
	}
	b, err := strconv.ParseBool(strings.ToLower(v))
	if err != nil {
		s.fail("%s: %q is neither true nor false", from, v)
	}
	return b
}

// Duration reads a parameter such as "30s"; def if it is not set.
func (s *Settings) Duration(param string, def time.Duration) time.Duration {
	v := s.Param(param)
	if v == "" {
		return def
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		s.fail("%s: %q is not a positive time such as 30s", param, v)
		return def
	}
	return d
}

// Size reads a parameter in bytes of at least least; def if it is not set.
func (s *Settings) Size(param string, def, least int64) int64 {
	v := s.Param(param)
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least {
		s.fail("%s: %q is not a number of bytes of at least %d", param, v, least)
		return def
	}
	return n
}

// OneOf reads a parameter that has fixed values, the first being the default.
func (s *Settings) OneOf(param string, values ...string) string {
	v := s.Param(param)
	if v == "" {
		return values[0]
	}
	if !slices.Contains(values, v) {
		s.fail("%s: %q is not one of %s", param, v, strings.Join(values, ", "))
	}
	return v
}

// Endpoint reads an address of the server as a URL with scheme and host, no
// user, query or fragment; "" if none is set. A bare host:port becomes https, or
// http where plain is set.
func (s *Settings) Endpoint(plain bool, keys ...string) string {
	v, from := s.Param("endpoint"), "endpoint"
	if v == "" {
		for _, k := range keys {
			if v = s.config[k]; v != "" {
				from = k
				break
			}
		}
	}
	if v == "" {
		return ""
	}
	if !strings.Contains(v, "://") {
		if plain {
			v = "http://" + v
		} else {
			v = "https://" + v
		}
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		s.fail("%s is not an address such as https://host:port", from) // not shown: it may hold a password
		return ""
	}
	return strings.TrimSuffix(v, "/")
}

func (s *Settings) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: %w", blobstore.ErrSettings, fmt.Errorf(format, args...))
	}
}

// Err gives the first error: a bad value, or a parameter nobody has read. Call it
// last.
func (s *Settings) Err() error {
	if s.err != nil {
		return s.err
	}
	var unknown []string
	for k := range s.query {
		if !slices.Contains(s.known, k) {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	slices.Sort(s.known)
	return fmt.Errorf("%w: unknown URL parameter %q: this store knows %s", blobstore.ErrSettings, unknown[0], strings.Join(slices.Compact(s.known), ", "))
}
