package snapshot

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What encoding/json would pass over in silence is an error that names its line.
func TestDescriptionSlips(t *testing.T) {
	const whole = `{"format": 1,
 "classes": ["pojo:a.B<x:long>"],
 "operators": [{"uid": "op", "max_parallelism": 8,
   "keyed": {"key_type": "string",
    "states": [{"name": "s", "kind": "value", "type": "pojo:a.B", "ttl_ms": 5,
      "entries": [{"key": "a", "value": {"x": 1}}]}],
    "timers": [{"key": "a", "time": 1, "domain": "event"}]}}]}`
	create := func(text string) error {
		d, err := ReadDescription(strings.NewReader(text), nil)
		if err == nil {
			f := memFixture(t)
			_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc("made")), d, nil)
		}
		return err
	}
	require.NoError(t, create(whole))
	for _, c := range []struct{ old, new, want string }{
		{`"uid": "op"`, `"uid": "op", "uid": "op"`, `line 3: member "uid" comes twice`},
		{`"uid": "op"`, `"uid": "op", "\u0075id": "op"`, `line 3: member "uid" comes twice`},
		{`"uid": "op"`, `"UID": "op"`, `line 3: unknown field "UID"`},
		{`"time": 1`, `"Time": 1`, `line 7: unknown field "Time"`},
		{`{"x": 1}`, `{"x": 1, "x": 2}`, `line 6: member "x" comes twice`},
		{`"key": "a", "value"`, `"key": "b", "key": "a", "value"`, `line 6: member "key" comes twice`},
		{`"timers": [`, `"states": [], "timers": [`, `line 7: member "states" comes twice`},
		{`"key": "a", "value"`, "\"key\": \"\xff\", \"value\"", `line 6: byte 0xff is not UTF-8`},
		{`"key": "a", "value"`, `"key": null, "value"`, `its key is null`},
		{`"key": "a", "time"`, `"key": null, "time"`, `its key is null`},
		{`["pojo:a.B<x:long>"]`, `["pojo:a.B<x:long>", "pojo:a.B<y:long>"]`, `classes: class a.B comes twice`},
		{`"ttl_ms": 5`, `"ttl_ms": -5`, `ttl_ms is -5, not milliseconds above 0`},
		{`"max_parallelism": 8`, `"coordinator_version": 1`, `a coordinator_version and no coordinator`},
	} {
		text := strings.Replace(whole, c.old, c.new, 1)
		require.NotEqual(t, whole, text)
		require.ErrorContains(t, create(text), c.want)
	}
	many := `{"x": 1` + strings.Repeat(` `, 3)
	for i := range 40 {
		many += `, "m` + strings.Repeat("a", i) + `": 1`
	}
	_, err := ReadDescription(strings.NewReader(strings.Replace(whole, `{"x": 1`, many+`, "maaa": 1`, 1)), nil)
	require.ErrorContains(t, err, `member "maaa" comes twice`)
	_, err = ReadDescription(strings.NewReader(strings.Replace(whole, `{"x": 1`, many, 1)), nil)
	require.NoError(t, err)
	_, _, err = ReadClasses(strings.NewReader("pojo:a.B<x:long>\npojo:a.B<y:long>\n"))
	require.EqualError(t, err, "line 2: class a.B comes twice")
	_, err = ReadDescription(strings.NewReader(`[]`), nil)
	require.ErrorContains(t, err, "line 1: the description cannot be a JSON array")
}
