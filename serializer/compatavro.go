package serializer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// compatAvro follows Avro's schema resolution: the new schema reads what the old
// one wrote.
func compatAvro(old, new string) Compatibility {
	var w, r any
	if err := json.Unmarshal([]byte(old), &w); err != nil {
		return Compatibility{Undecided, "", "the old schema cannot be read"}
	}
	if err := json.Unmarshal([]byte(new), &r); err != nil {
		return Compatibility{Undecided, "", "the new schema cannot be read"}
	}
	if reflect.DeepEqual(plainSchema(w), plainSchema(r)) {
		return Compatibility{}
	}
	c := avroComparer{writer: map[string]any{}, reader: map[string]any{}, seen: map[[2]string]bool{}}
	if reason := c.read(avroRef{w, ""}, avroRef{r, ""}, 0); reason != "" {
		return incompatible("%s", reason)
	}
	return Compatibility{AfterMigration, "", "the Avro schema changed"}
}

// plainSchema drops what Avro's comparison of schemas ignores.
func plainSchema(x any) any {
	switch x := x.(type) {
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = plainSchema(x[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			if k != "doc" && k != "aliases" {
				out[k] = plainSchema(v)
			}
		}
		if len(out) == 1 && out["type"] != nil { // {"type":"long"} is "long"
			return out["type"]
		}
		return out
	}
	return x
}

// avroRef is a schema with the namespace around it.
type avroRef struct {
	schema any
	space  string
}

type avroComparer struct {
	writer, reader map[string]any
	seen           map[[2]string]bool // pairs of records being compared
}

// resolve replaces a name by its definition and a wrapped type by itself.
func resolve(r avroRef, named map[string]any) (kind, name string, def map[string]any, union []any, space string) {
	for range maxSnapshotDepth {
		switch x := r.schema.(type) {
		case []any:
			return "union", "", nil, x, r.space
		case string:
			if _, ok := avroPrimitives[x]; ok {
				return x, "", nil, nil, r.space
			}
			full := x
			if !strings.Contains(x, ".") && r.space != "" {
				full = r.space + "." + x
			}
			d, ok := named[full]
			if !ok {
				d, ok = named[x]
			}
			if !ok {
				return "unknown", full, nil, nil, r.space
			}
			r.schema = d
		case map[string]any:
			switch t := x["type"].(type) {
			case string:
				switch t {
				case "record", "error", "enum", "fixed":
					name, space = avroFullName(x, r.space)
					named[name] = x
					if t == "error" {
						t = "record"
					}
					return t, name, x, nil, space
				case "array", "map":
					return t, "", x, nil, r.space
				}
				r.schema = t
			default:
				r.schema = t
			}
		default:
			return "unknown", "", nil, nil, r.space
		}
	}
	return "unknown", "", nil, nil, r.space
}

func avroFullName(x map[string]any, space string) (name, inner string) {
	name, _ = x["name"].(string)
	if ns, ok := x["namespace"].(string); ok {
		space = ns
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name, name[:i]
	}
	if space != "" {
		return space + "." + name, space
	}
	return name, space
}

var avroWidens = map[string][]string{
	"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}, "string": {"bytes"}, "bytes": {"string"},
}

// read tells why the reader's schema cannot read the writer's, or "".
func (c *avroComparer) read(w, r avroRef, depth int) string {
	if depth > maxSnapshotDepth {
		return "the schemas are nested too deep"
	}
	wk, wn, wd, wu, ws := resolve(w, c.writer)
	rk, rn, rd, ru, rs := resolve(r, c.reader)
	if wk == "union" {
		for i, b := range wu {
			if why := c.read(avroRef{b, ws}, r, depth+1); why != "" {
				return fmt.Sprintf("branch %d: %s", i, why)
			}
		}
		return ""
	}
	if rk == "union" {
		for _, b := range ru {
			if c.read(w, avroRef{b, rs}, depth+1) == "" {
				return ""
			}
		}
		return fmt.Sprintf("no branch of the new union takes %s", avroWord(wk, wn))
	}
	if wk != rk {
		if slices.Contains(avroWidens[wk], rk) {
			return ""
		}
		return fmt.Sprintf("%s became %s", avroWord(wk, wn), avroWord(rk, rn))
	}
	switch wk {
	case "array":
		return c.read(avroRef{wd["items"], ws}, avroRef{rd["items"], rs}, depth+1)
	case "map":
		return c.read(avroRef{wd["values"], ws}, avroRef{rd["values"], rs}, depth+1)
	case "record", "enum", "fixed":
		if wn != rn && !slices.Contains(avroAliases(rd, rs), wn) {
			return fmt.Sprintf("%s %s became %s", wk, wn, rn)
		}
	}
	switch wk {
	case "fixed":
		if !reflect.DeepEqual(wd["size"], rd["size"]) {
			return fmt.Sprintf("the size of %s changed", wn)
		}
	case "enum":
		if _, ok := rd["default"]; ok {
			return ""
		}
		have, _ := rd["symbols"].([]any)
		symbols, _ := wd["symbols"].([]any)
		for _, s := range symbols {
			if !slices.Contains(have, s) {
				return fmt.Sprintf("enum %s lost the symbol %v", wn, s)
			}
		}
	case "record":
		if c.seen[[2]string{wn, rn}] {
			return ""
		}
		c.seen[[2]string{wn, rn}] = true
		return c.record(wd, rd, ws, rs, depth)
	}
	return ""
}

func (c *avroComparer) record(wd, rd map[string]any, ws, rs string, depth int) string {
	written := map[string]any{}
	fields, _ := wd["fields"].([]any)
	for _, f := range fields {
		if m, ok := f.(map[string]any); ok {
			name, _ := m["name"].(string)
			written[name] = m["type"]
			resolve(avroRef{m["type"], ws}, c.writer) // learn the names it defines
		}
	}
	fields, _ = rd["fields"].([]any)
	for _, f := range fields {
		m, ok := f.(map[string]any)
		if !ok {
			continue
		}
		name, _ := m["name"].(string)
		w, ok := written[name]
		if aliases, _ := m["aliases"].([]any); !ok {
			for _, a := range aliases {
				if s, _ := a.(string); !ok {
					w, ok = written[s]
				}
			}
		}
		if !ok {
			if _, has := m["default"]; !has {
				return fmt.Sprintf("the new field %s has no default", name)
			}
			continue
		}
		if why := c.read(avroRef{w, ws}, avroRef{m["type"], rs}, depth+1); why != "" {
			return "field " + name + ": " + why
		}
	}
	return ""
}

func avroAliases(def map[string]any, space string) []string {
	list, _ := def["aliases"].([]any)
	var names []string
	for _, a := range list {
		s, _ := a.(string)
		if !strings.Contains(s, ".") && space != "" {
			s = space + "." + s
		}
		names = append(names, s)
	}
	return names
}

func avroWord(kind, name string) string {
	if name != "" {
		return kind + " " + name
	}
	return kind
}
