package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
)

// A name in --ttl that is no state's, or of a state without TTL, would drop or count
// nothing; two times for one state leave it open which counts.
func TestTTLNames(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (exit.Code, string) {
		var out, errs bytes.Buffer
		code := Run(t.Context(), args, Env{Out: &out, Err: &errs, Now: time.Now})
		return code, errs.String()
	}
	const text = `{"format": 1, "operators": [{"uid": "op", "keyed": {"key_type": "string", "states": [
		{"name": "old", "kind": "value", "type": "long", "ttl": true, "entries": [{"key": "a", "value": 1, "last_access": 1000}]},
		{"name": "plain", "kind": "value", "type": "long", "entries": [{"key": "a", "value": 1}]}]}}]}`
	at := filepath.Join(dir, "at")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d.json"), []byte(text), 0o600))
	code, errs := run("create", "--from", filepath.Join(dir, "d.json"), at)
	require.Equal(t, exit.Done, code, errs)
	for _, c := range []struct{ ttl, want string }{
		{"--ttl=nosuch=7d", `--ttl: no state "nosuch" in at has values with TTL`},
		{"--ttl=plain=7d", `--ttl: no state "plain" in at has values with TTL`},
		{"--ttl==7d", `--ttl is "=7d"`},
		{"--ttl=old=7d --ttl=old=8d", `--ttl old=8d: there is one for this state already`},
		{"--ttl=7d --ttl=8d", `--ttl 8d: there is one for all states already`},
	} {
		for _, command := range []string{"stats " + at, "convert --to heap --drop-expired --apply " + at + " " + filepath.Join(dir, "to")} {
			code, errs := run(append(strings.Fields(command), strings.Fields(c.ttl)...)...)
			require.Equal(t, exit.Usage, code, errs)
			require.Contains(t, errs, c.want)
		}
	}
	require.NoFileExists(t, filepath.Join(dir, "to", "_metadata"))
	code, errs = run("convert", "--to", "heap", "--drop-expired", "--ttl=old=7d", "--ttl=1h", "--apply", at, filepath.Join(dir, "to"))
	require.Equal(t, exit.Done, code, errs)
}
