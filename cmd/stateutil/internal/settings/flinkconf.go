package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

// FlinkConf is what we use of a Flink configuration.
type FlinkConf struct {
	File string
	// CheckpointDir and SavepointDir are the configured roots, or empty.
	CheckpointDir string
	SavepointDir  string
	// Store holds every other key with its value: the drivers pick theirs
	// (s3.access-key, fs.azure.account.key.…, dfs.nameservices). Secret.
	Store map[string]string
}

// The keys of the two directories, the current name first. Source: Flink,
// CheckpointingOptions.java and its deprecated keys.
var (
	checkpointDirKeys = []string{"execution.checkpointing.dir", "state.checkpoints.dir", "state.backend.fs.checkpointdir"}
	savepointDirKeys  = []string{"execution.checkpointing.savepoint-dir", "state.savepoints.dir", "savepoints.state.backend.fs.dir", "state.backend.fs.savepointdir"}
)

// hadoopPrefix marks Hadoop settings in a Flink configuration.
const hadoopPrefix = "flink.hadoop."

// ReadFlinkConf reads Flink's configuration: a file, or a conf folder, in which
// flink-conf.yaml is preferred to config.yaml as Flink 1.19 and 1.20 do.
//
// config.yaml is YAML 1.2, nested or flat. flink-conf.yaml is not YAML: Flink
// reads it line by line, "#" begins a comment, and a key ends at the first
// ": ". Source: Flink, GlobalConfiguration.java.
func ReadFlinkConf(path string) (*FlinkConf, error) {
	name := path
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		name = filepath.Join(path, "flink-conf.yaml")
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			name = filepath.Join(path, "config.yaml")
		}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("configuration of Flink: %w", err)
	}
	var kv map[string]string
	if filepath.Base(name) == "flink-conf.yaml" {
		kv = parseLegacy(string(b))
	} else if kv, err = parseStandard(b); err != nil {
		return nil, fmt.Errorf("configuration of Flink %s: %w", name, err)
	}
	c := &FlinkConf{File: name, Store: map[string]string{}}
	c.CheckpointDir = first(kv, checkpointDirKeys)
	c.SavepointDir = first(kv, savepointDirKeys)
	for _, k := range slices.Sorted(maps.Keys(kv)) {
		c.Store[k] = kv[k]
		if h, ok := strings.CutPrefix(k, hadoopPrefix); ok {
			c.Store[h] = kv[k]
		}
	}
	return c, nil
}

// URLs are the directories to look at when none was named.
func (c *FlinkConf) URLs() []string {
	var out []string
	for _, u := range []string{c.CheckpointDir, c.SavepointDir} {
		if u != "" && !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}

func first(kv map[string]string, keys []string) string {
	for _, k := range keys {
		if v := kv[k]; v != "" {
			return v
		}
	}
	return ""
}

func parseLegacy(s string) map[string]string {
	kv := map[string]string{}
	for line := range strings.Lines(s) {
		line, _, _ = strings.Cut(line, "#")
		k, v, ok := strings.Cut(strings.TrimSpace(line), ": ")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if ok && k != "" && v != "" {
			kv[k] = v
		}
	}
	return kv
}

func parseStandard(b []byte) (map[string]string, error) {
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(b), yaml.Parser()); err != nil {
		return nil, err
	}
	kv := map[string]string{}
	for key, v := range k.All() {
		switch v := v.(type) {
		case nil:
		case []any:
			parts := make([]string, len(v))
			for i, p := range v {
				parts[i] = fmt.Sprint(p)
			}
			kv[key] = strings.Join(parts, ";")
		default:
			kv[key] = fmt.Sprint(v)
		}
	}
	return kv, nil
}
