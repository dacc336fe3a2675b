package serializer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// avroReader turns values of an older Avro schema into those of a newer one by Avro's
// schema resolution: fields are found by their names or aliases, those that are new
// have their default, numbers become wider. That the schemas fit was compared before.
// Source: Avro's specification, Schema Resolution.
type avroReader struct {
	root  any
	named map[string]any // definitions by full name
}

func newAvroReader(schema string) (*avroReader, error) {
	dec := json.NewDecoder(strings.NewReader(schema))
	dec.UseNumber()
	r := &avroReader{named: map[string]any{}}
	if err := dec.Decode(&r.root); err != nil {
		return nil, fmt.Errorf("avro schema: %w", err)
	}
	r.learn(r.root, "", 0)
	return r, nil
}

// learn finds the definitions of names, which may be mentioned where no value is.
func (a *avroReader) learn(x any, space string, depth int) {
	if depth > maxSnapshotDepth {
		return
	}
	switch x := x.(type) {
	case []any:
		for _, b := range x {
			a.learn(b, space, depth+1)
		}
	case map[string]any:
		switch x["type"] {
		case "record", "error", "enum", "fixed":
			var name string
			name, space = avroFullName(x, space)
			a.named[name] = x
			fields, _ := x["fields"].([]any)
			for _, f := range fields {
				if m, ok := f.(map[string]any); ok {
					a.learn(m["type"], space, depth+1)
				}
			}
		case "array":
			a.learn(x["items"], space, depth+1)
		case "map":
			a.learn(x["values"], space, depth+1)
		default:
			a.learn(x["type"], space, depth+1)
		}
	}
}

// value is what the newer schema makes of a value; it may change v.
func (a *avroReader) value(v Value, r avroRef) (Value, error) {
	kind, _, def, union, space := resolve(r, a.named)
	if kind == "union" {
		i := slices.IndexFunc(union, func(b any) bool { return a.takes(v, avroRef{b, space}, true) })
		if i < 0 {
			i = slices.IndexFunc(union, func(b any) bool { return a.takes(v, avroRef{b, space}, false) })
		}
		if i < 0 {
			return nil, fmt.Errorf("no branch of the new union takes a %T", v)
		}
		return a.value(v, avroRef{union[i], space})
	}
	switch kind {
	case "record":
		return a.record(v, def, space)
	case "array":
		list, _ := v.([]any)
		for i := range list {
			var err error
			if list[i], err = a.value(list[i], avroRef{def["items"], space}); err != nil {
				return nil, err
			}
		}
		return list, nil
	case "map":
		entries, _ := v.([]Entry)
		for i := range entries {
			var err error
			if entries[i].Value, err = a.value(entries[i].Value, avroRef{def["values"], space}); err != nil {
				return nil, err
			}
		}
		return entries, nil
	case "enum":
		symbols, _ := def["symbols"].([]any)
		if !slices.Contains(symbols, any(v)) {
			if d, ok := def["default"].(string); ok {
				return d, nil
			}
			return nil, fmt.Errorf("the enum has no %v any more", v)
		}
		return v, nil
	}
	return widened(v, kind), nil
}

// widened is a number or text as a wider type.
func widened(v Value, kind string) Value {
	switch x := v.(type) {
	case int32:
		switch kind {
		case "long":
			return int64(x)
		case "float":
			return float32(x)
		case "double":
			return float64(x)
		}
	case int64:
		switch kind {
		case "float":
			return float32(x)
		case "double":
			return float64(x)
		}
	case float32:
		if kind == "double" {
			return float64(x)
		}
	case string:
		if kind == "bytes" {
			return []byte(x)
		}
	case []byte:
		if kind == "string" {
			return string(x)
		}
	}
	return v
}

func (a *avroReader) record(v Value, def map[string]any, space string) (Value, error) {
	old, ok := v.(Object)
	if !ok {
		return nil, fmt.Errorf("a %T is no record", v)
	}
	out := Object{Class: old.Class}
	fields, _ := def["fields"].([]any)
	for _, f := range fields {
		m, _ := f.(map[string]any)
		name, _ := m["name"].(string)
		was, found := old.Get(name)
		aliases, _ := m["aliases"].([]any)
		for i := 0; i < len(aliases) && !found; i++ {
			alias, _ := aliases[i].(string)
			was, found = old.Get(alias)
		}
		var err error
		if found {
			was, err = a.value(was, avroRef{m["type"], space})
		} else if d, ok := m["default"]; ok {
			was, err = a.initial(d, avroRef{m["type"], space}, 0)
		} else {
			err = fmt.Errorf("is new and has no default")
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
		out.Fields = append(out.Fields, NamedValue{name, was})
	}
	return out, nil
}

// takes tells whether a branch of a union can be a value, exactly or as a wider type.
func (a *avroReader) takes(v Value, r avroRef, exactly bool) bool {
	kind, _, def, _, _ := resolve(r, a.named)
	switch x := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case int32:
		return kind == "int" || !exactly && slices.Contains(avroWidens["int"], kind)
	case int64:
		return kind == "long" || !exactly && slices.Contains(avroWidens["long"], kind)
	case float32:
		return kind == "float" || !exactly && kind == "double"
	case float64:
		return kind == "double"
	case string:
		symbols, _ := def["symbols"].([]any)
		return kind == "string" || kind == "enum" && (slices.Contains(symbols, any(x)) || !exactly) || !exactly && kind == "bytes"
	case []byte:
		return kind == "bytes" || kind == "fixed" || !exactly && kind == "string"
	case []any:
		return kind == "array"
	case []Entry:
		return kind == "map"
	case Object:
		return kind == "record"
	}
	return false
}

// initial is a default of a schema's field. That of a union is of its first branch.
func (a *avroReader) initial(d any, r avroRef, depth int) (Value, error) {
	kind, _, def, union, space := resolve(r, a.named)
	wrong := func() (Value, error) { return nil, fmt.Errorf("the default %v is no %s", d, kind) }
	if depth > maxSnapshotDepth {
		return nil, fmt.Errorf("the default is nested too deep")
	}
	switch kind {
	case "union":
		if len(union) == 0 {
			return wrong()
		}
		return a.initial(d, avroRef{union[0], space}, depth+1)
	case "null":
		if d != nil {
			return wrong()
		}
		return nil, nil
	case "boolean":
		if b, ok := d.(bool); ok {
			return b, nil
		}
	case "int", "long":
		n, ok := d.(json.Number)
		i, err := n.Int64()
		switch {
		case !ok || err != nil:
		case kind == "long":
			return i, nil
		case i >= math.MinInt32 && i <= math.MaxInt32:
			return int32(i), nil
		}
	case "float", "double":
		n, ok := d.(json.Number)
		f, err := n.Float64()
		switch {
		case !ok || err != nil:
		case kind == "float":
			return float32(f), nil
		default:
			return f, nil
		}
	case "string", "enum":
		if s, ok := d.(string); ok {
			return s, nil
		}
	case "bytes", "fixed": // a character stands for a byte
		if s, ok := d.(string); ok {
			b := []byte{}
			for _, c := range s {
				if c > 0xff {
					return wrong()
				}
				b = append(b, byte(c))
			}
			return b, nil
		}
	case "array":
		if list, ok := d.([]any); ok {
			out := make([]any, len(list))
			for i := range list {
				var err error
				if out[i], err = a.initial(list[i], avroRef{def["items"], space}, depth+1); err != nil {
					return nil, err
				}
			}
			return out, nil
		}
	case "map":
		if m, ok := d.(map[string]any); ok {
			var out []Entry
			for _, k := range slices.Sorted(maps.Keys(m)) {
				v, err := a.initial(m[k], avroRef{def["values"], space}, depth+1)
				if err != nil {
					return nil, err
				}
				out = append(out, Entry{k, v})
			}
			return out, nil
		}
	case "record":
		if m, ok := d.(map[string]any); ok {
			out := Object{}
			fields, _ := def["fields"].([]any)
			for _, f := range fields {
				field, _ := f.(map[string]any)
				name, _ := field["name"].(string)
				given, ok := m[name]
				if !ok {
					given, ok = field["default"]
				}
				if !ok {
					return nil, fmt.Errorf("the default lacks the field %s", name)
				}
				v, err := a.initial(given, avroRef{field["type"], space}, depth+1)
				if err != nil {
					return nil, err
				}
				out.Fields = append(out.Fields, NamedValue{name, v})
			}
			return out, nil
		}
	}
	return wrong()
}
