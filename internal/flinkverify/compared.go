package flinkverify

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	className = regexp.MustCompile(`\b(pojo|enum):(?:[\w$]+\.)+(\w+)`)
	fieldName = regexp.MustCompile(`[<,]\w+:`)
)

// Compared is a description in a form that can be compared: operator by uid,
// states and entries sorted, class names short, rows without the names that no
// snapshot has.
func Compared(t testing.TB, b []byte) map[string]map[string]any {
	var d struct {
		Operators []struct {
			UID, UIDHash string
			Max          int `json:"max_parallelism"`
			Parallelism  int
			Keyed        struct {
				KeyType string `json:"key_type"`
				States  []struct {
					Name, Kind, Type string
					Entries          []struct{ Key, Namespace, Value any }
				}
				Timers []struct {
					Key    any
					Time   int64
					Domain string
				}
			}
			OperatorStates []struct {
				Name, Mode, Type string
				Entries          []any
			} `json:"operator_states"`
		}
	}
	require.NoError(t, json.Unmarshal(b, &d), "%s", b)
	ops := map[string]map[string]any{}
	for i, o := range d.Operators {
		uid := o.UID
		if uid == "" {
			uid = fmt.Sprint("uid_hash ", i)
		}
		m := map[string]any{"max": o.Max, "parallelism": o.Parallelism, "key": shortType(o.Keyed.KeyType)}
		for _, s := range o.Keyed.States {
			var entries []string
			for _, e := range s.Entries {
				entries = append(entries, plain(s.Type, o.Keyed.KeyType, []any{e.Key, e.Namespace, e.Value}))
			}
			sort.Strings(entries)
			m["state "+s.Name] = []any{s.Kind, shortType(s.Type), entries}
		}
		var timers []string
		for _, x := range o.Keyed.Timers {
			timers = append(timers, plain("", o.Keyed.KeyType, []any{x.Key, x.Time, x.Domain}))
		}
		sort.Strings(timers)
		m["timers"] = timers
		for _, s := range o.OperatorStates {
			entries := []string{}
			for _, e := range s.Entries {
				entries = append(entries, plain(s.Type, "", e))
			}
			sort.Strings(entries)
			m["operator state "+s.Name] = []any{s.Mode, shortType(s.Type), entries}
		}
		ops[uid] = m
	}
	return ops
}

func shortType(words string) string {
	if strings.HasPrefix(words, "avro<") || strings.Contains(words, "<avro<") {
		return "avro"
	}
	words = className.ReplaceAllString(words, "$1:$2")
	return fieldName.ReplaceAllStringFunc(words, func(f string) string {
		if name := f[1 : len(f)-1]; name == "pojo" || name == "enum" {
			return f
		}
		return f[:1]
	})
}

// plain is a value as text. Where rows are inside, objects are their values in order
// of the text, since the names differ; fields that are missing are null or zero.
func plain(typ, keyType string, v any) string {
	if strings.Contains(typ, "row<") || strings.Contains(keyType, "row<") {
		v = withoutNames(v)
	}
	b, err := json.Marshal(withDefaults(v))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func withoutNames(v any) any {
	switch v := v.(type) {
	case map[string]any:
		var values []string
		for _, x := range v {
			b, _ := json.Marshal(withoutNames(x))
			values = append(values, string(b))
		}
		sort.Strings(values)
		return values
	case []any:
		for i := range v {
			v[i] = withoutNames(v[i])
		}
	}
	return v
}

// withDefaults leaves out what a description may leave out: fields with null, zero,
// false or an empty text.
func withDefaults(v any) any {
	switch v := v.(type) {
	case float64:
		return v + 0 // no negative zero
	case string: // numbers that may stand as text, and zeros with a sign that Java drops
		switch v {
		case "-0.0":
			return 0.0
		case "-0.000":
			return "0.000"
		}
	case map[string]any:
		for k, x := range v {
			if x = withDefaults(x); x == nil || x == false || x == "" || x == 0.0 {
				delete(v, k)
			} else if m, ok := x.(map[string]any); ok && len(m) == 0 {
				delete(v, k)
			} else {
				v[k] = x
			}
		}
	case []any:
		for i := range v {
			v[i] = withDefaults(v[i])
		}
	}
	return v
}
