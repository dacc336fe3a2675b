// Package settings collects what stateutil is told by flags, environment,
// its own configuration file and a Flink configuration, in that precedence:
// a flag beats STATEUTIL_… in the environment, which beats stateutil.yaml,
// which beats --flink-conf.
//
// The names are the same everywhere: the flag --max-rps is STATEUTIL_MAX_RPS
// in the environment and max-rps in the file. Lists are separated by commas in
// the environment and are YAML lists in the file. Two things exist in the file
// and the environment only: url (the default URL) and, in the file only, store
// (settings of the stores by Flink's or Hadoop's own key).
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// EnvPrefix begins every environment variable of ours.
const EnvPrefix = "STATEUTIL_"

// Sources says where settings come from.
type Sources struct {
	// File is the configuration file; empty is DefaultFile, which may be absent.
	File    string
	Environ []string // as os.Environ gives it
}

// Loaded is what the environment and the files say beyond the flags.
type Loaded struct {
	// URLs are used when a command is given none.
	URLs []string
	// Store are driver settings by Flink's or Hadoop's own key. Secret.
	Store map[string]string
	// File is the configuration file that was read, if any.
	File string
	// Denied is why DefaultFile was passed over although it is there: this user may
	// not read it, as when a service runs with the home of another.
	Denied error
}

// DefaultFile is stateutil/stateutil.yaml in the user's configuration folder.
// The current folder is not searched on purpose: it may be a checkpoint that
// somebody else wrote, and a file in it could widen --trust.
func DefaultFile() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "stateutil", "stateutil.yaml")
}

// Apply sets every flag that the command line left alone to what the
// environment or else the file says, and returns the rest.
func Apply(flags *pflag.FlagSet, src Sources) (*Loaded, error) {
	k := koanf.New(".")
	out := &Loaded{Store: map[string]string{}}

	name := src.File
	if name == "" {
		name = lookup(src.Environ, EnvPrefix+"CONFIG")
	}
	optional := name == ""
	if optional {
		name = DefaultFile()
	}
	known := map[string]bool{"url": true}
	flags.VisitAll(func(f *pflag.Flag) { known[f.Name] = f.Name != "config" && f.Name != "help" && f.Name != "version" })
	if name != "" {
		b, err := os.ReadFile(name)
		switch {
		case optional && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
		case optional && errors.Is(err, fs.ErrPermission):
			out.Denied = fmt.Errorf("configuration file: %w", err)
		case err != nil:
			return nil, fmt.Errorf("configuration file: %w", err)
		default:
			if err := k.Load(rawbytes.Provider(b), yaml.Parser()); err != nil {
				return nil, fmt.Errorf("configuration file %s: %w", name, err)
			}
			out.File = name
		}
	}
	for _, key := range slices.Sorted(slices.Values(k.Keys())) {
		top, rest, _ := strings.Cut(key, ".")
		switch {
		case top == "store" && rest != "":
			out.Store[rest] = k.String(key)
		case !known[key]:
			return nil, fmt.Errorf("configuration file %s: unknown setting %q", out.File, key)
		}
	}

	err := k.Load(env.Provider(".", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return src.Environ },
		TransformFunc: func(key, value string) (string, any) {
			name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, EnvPrefix)), "_", "-")
			if !known[name] {
				return "", nil
			}
			if isList(flags.Lookup(name)) || name == "url" {
				return name, splitList(value)
			}
			return name, value
		},
	}), nil)
	if err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}

	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if failed != nil || f.Changed || !known[f.Name] || !k.Exists(f.Name) {
			return
		}
		values := []string{k.String(f.Name)}
		if isList(f) {
			if values = k.Strings(f.Name); len(values) == 0 && k.String(f.Name) != "" {
				values = []string{k.String(f.Name)}
			}
		}
		for _, v := range values {
			if err := f.Value.Set(v); err != nil {
				failed = fmt.Errorf("setting %s: %q: %w", f.Name, v, err)
			}
		}
	})
	if failed != nil {
		return nil, failed
	}
	if out.URLs = k.Strings("url"); len(out.URLs) == 0 && k.String("url") != "" {
		out.URLs = []string{k.String("url")}
	}
	return out, nil
}

func isList(f *pflag.Flag) bool {
	if f == nil {
		return false
	}
	_, ok := f.Value.(pflag.SliceValue)
	return ok
}

func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func lookup(environ []string, name string) string {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
