package manual

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Member is one member of a JSON document.
type Member struct {
	Path     string // "snapshots[].kind"; "[]" are the elements, "{}" the values of an object with free names
	Type     string // string, integer, number, boolean, object, array
	Optional bool   // absent if it has nothing to say
	// Struct and Field are where it comes from, "snapshot.Row" and "SnapshotKind".
	Struct, Field string
}

// String is the line that pins the member.
func (m Member) String() string {
	s := m.Path + " " + m.Type
	if m.Optional {
		s += " optional"
	}
	return s
}

// Schema lists the members of the JSON that v, a struct, is encoded to, in the
// order of its fields. Recursive types are not supported.
func Schema(v any) []Member {
	var out []Member
	members(&out, "", reflect.TypeOf(v))
	return out
}

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	timeType      = reflect.TypeFor[time.Time]()
)

func members(out *[]Member, prefix string, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		if len(f.Index) > 1 || !f.IsExported() && !f.Anonymous { // promoted: met where it is embedded
			continue
		}
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if f.Anonymous && name == "" {
			members(out, prefix, f.Type)
			continue
		}
		if name == "" {
			name = f.Name
		}
		optional := slices.Contains(strings.Split(opts, ","), "omitempty") || slices.Contains(strings.Split(opts, ","), "omitzero")
		value(out, Member{Path: prefix + name, Optional: optional, Struct: t.String(), Field: f.Name}, f.Type)
	}
}

func value(out *[]Member, m Member, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		m.Optional = true
		t = t.Elem()
	}
	add := func(kind string) { m.Type = kind; *out = append(*out, m) }
	element := func(suffix string) {
		e := t.Elem()
		for e.Kind() == reflect.Pointer {
			e = e.Elem()
		}
		if kind := scalar(e); kind != "" {
			*out = append(*out, Member{Path: m.Path + suffix, Type: kind, Struct: m.Struct, Field: m.Field})
			return
		}
		if e.Kind() != reflect.Struct {
			value(out, Member{Path: m.Path + suffix, Struct: m.Struct, Field: m.Field}, e)
			return
		}
		members(out, m.Path+suffix+".", e)
	}
	switch {
	case scalar(t) != "":
		add(scalar(t))
	case t.Kind() == reflect.Struct:
		add("object")
		members(out, m.Path+".", t)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		add("array")
		element("[]")
	case t.Kind() == reflect.Map:
		add("object")
		element("{}")
	default:
		panic(fmt.Sprintf("%s: no schema for %s", m.Path, t))
	}
}

func scalar(t reflect.Type) string {
	switch {
	case t == timeType:
		return "time"
	case t.Implements(jsonMarshaler), reflect.PointerTo(t).Implements(jsonMarshaler):
		return "any"
	case t.Implements(textMarshaler), reflect.PointerTo(t).Implements(textMarshaler):
		return "string"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "base64"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	}
	return ""
}
