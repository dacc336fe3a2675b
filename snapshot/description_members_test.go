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
	// Whatever is wrong is told with the file and the line, in one line.
	long := strings.Repeat("x", 70_000)
	for _, c := range []struct{ old, new, want string }{
		{`"a", "value": {"x": 1}`, `"a", "value": {"x": "many"}`, `line 6: operator op: state s: entries[0]: key "a": x of long: "many" is no integer`},
		{`"a", "value": {"x": 1}`, `"a", "value": {"y": 1}`, `line 6: operator op: state s: entries[0]: key "a": value of pojo:a.B: has a field "y" that the type lacks`},
		{`"a", "value": {"x": 1}`, `"a", "value": [[]]`, `line 6: operator op: state s: entries[0]: key "a": x of long: cannot be an array`},
		{`"a", "value": {"x": 1}`, `"a", "value": true`, `line 6: operator op: state s: entries[0]: key "a": value of pojo:a.B: cannot be a boolean`},
		{`{"key": "a", "value": {"x": 1}}]`, `{"key": "a", "value": {"x": 1}},` + "\n\n" + `{"key": "a", "value": {"x": 1}}]`, `line 8: operator op: state s: two entries have the same key: "a"`},
		{`{"key": "a", "value": {"x": 1}}]`, `{"key": "a"}]`, `line 6: operator op: state s: entries[0]: key "a": has no value`},
		{`{"key": "a", "value": {"x": 1}}]`, `{"value": {"x": 1}}]`, `line 6: operator op: state s: entries[0]: has no key`},
		{`"kind": "value", "type": "pojo:a.B", "ttl_ms": 5,`, `"kind": "list", "type": "list<string>",`, `line 6: operator op: state s: entries[0]: key "a": is no array`},
		{`"kind": "value", "type": "pojo:a.B", "ttl_ms": 5,
      "entries": [{"key": "a", "value": {"x": 1}}]`, `"kind": "list", "type": "list<string>", "entries": [{"key": "a", "value": ["x", null]}]`,
			`line 5: operator op: state s: entries[0]: key "a": [1]: a list state has no null elements`},
		{`"max_parallelism": 8,`, `"operator_states": [{"name": "o", "mode": "union", "type": "list<string>", "entries": [null]}],`, `line 3: operator op: operator state o: entries[0]: a list has no null elements`},
		{`"domain": "event"`, `"domain": "Event"`, `line 7: operator op: timers[0]: domain is "Event", not event or processing`},
		{`"time": 1`, `"time": 1.5`, `line 7: operator op: timers[0]: time is "1.5", not milliseconds`},
		{`"kind": "value"`, `"kind": "valu"`, `line 5: operator op: state s: kind is "valu"`},
		{`"type": "pojo:a.B"`, `"type": "pojo:a.C"`, `line 5: operator op: state s: type "pojo:a.C": byte 8: class a.C is not known`},
		{`"type": "pojo:a.B"`, `"type": "pojo:` + long + `"`, `line 5: operator op: state s: type "pojo:xxx`},
		{`"key_type": "string"`, `"key_type": "long[]"`, `line 6: operator op: state s: entries[0]: key "a": value of long[]: cannot be a string`},
		{`"key_type": "string"`, `"key_type": "map<string>"`, `line 4: operator op: key_type: type "map<string>": byte 11: 2 types expected, not 1`},
		{`"name": "s"`, `"name": ""`, `line 5: operator op: state : has no name`},
		{`"name": "s"`, `"name": "_timer_state/event_user-timers"`, `operator op: state _timer_state/event_user-timers is that of the timers`},
		{`"name": "s"`, `"name": "` + long + `"`, `: its name has 70000 bytes, more than 65535`},
		{`"uid": "op"`, `"uid": "` + long + `"`, `: its uid has 70000 bytes, more than 65535`},
		{`"domain": "event"`, `"domain": "event", "service": "` + long + `"`, `timers[0]: its service has 70024 bytes, more than 65535`},
		{`"max_parallelism": 8`, `"max_parallelism": 32769`, `line 3: operator op: max parallelism 32769 is not from 1 to 32768`},
		{`"max_parallelism": 8`, `"max_parallelism": 8, "parallelism": 9`, `line 3: operator op: parallelism 9 is not from 1 to the max parallelism 8`},
		{`"max_parallelism": 8`, `"parallelism": -1`, `line 3: operator op: parallelism -1 is not from 1`},
		{`"max_parallelism": 8`, `"max_parallelism": 1e9`, `line 3: operators`},
		{`["pojo:a.B<x:long>"]`, `["pojo:a.B<x:lang>"]`, `line 5: operator op: state s: type "pojo:a.B": byte 8: class a.B is not known`},
		{`"format": 1`, `"format": 2`, `line 1: format is 2: only 1 is known`},
		{`"format": 1,`, `"format": 1, "hash_codes": {"a.B": "x"},`, `line 1: hash_codes: class a.B: "x" is neither`},
		{`"uid": "op"`, `"uid_hash": "op"`, `line 3: operators[0]: `},
		{`"timers": [`, `"timers": [{"key": "a", "time": 1, "domain": "event"},` + "\n", `line 8: operator op: two timers of key "a" are the same`},
	} {
		text := strings.Replace(whole, c.old, c.new, 1)
		require.NotEqual(t, whole, text)
		d, err := ReadDescription(strings.NewReader(text), &DescriptionOptions{Name: "a.json"})
		if err == nil {
			f := memFixture(t)
			_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc("made")), d, &CreateOptions{Version: 5})
			require.Empty(t, f.names(), c.new)
		}
		var bad *DescriptionError
		require.ErrorAs(t, err, &bad, c.new)
		require.Regexp(t, `^a\.json: line \d+: `, err.Error())
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "\n")
		require.Less(t, len(err.Error()), 1500)
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

// TestLongNames says that a message ends a long name behind a whole character.
func TestLongNames(t *testing.T) {
	name := "x" + strings.Repeat("ä", 200) // byte 200 is in the middle of one
	require.Equal(t, "x"+strings.Repeat("ä", 99)+"…", shortName(name))
	require.Equal(t, "short", shortName("short"))
}
