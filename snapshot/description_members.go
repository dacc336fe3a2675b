package snapshot

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// checkMembers refuses what encoding/json takes without a word, although it may be a
// slip that loses data: a member twice in an object, of which the last would count; a
// member in other capitals than it has; bytes that are no UTF-8. The text is JSON that was
// decoded as root; below a json.RawMessage any members are allowed, each once. The
// offset is where the error is.
func checkMembers(text []byte, root reflect.Type) (offset int, err error) {
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n == 1 {
			return at, fmt.Errorf("byte 0x%02x is not UTF-8", text[at])
		}
		at += n
	}
	var stack []openJSON
	next := root // the type of the value to come; nil is any
	for at := 0; at < len(text); at++ {
		switch c := text[at]; c {
		case '{':
			stack = append(stack, openJSON{of: next, key: true, object: true})
		case '[':
			stack = append(stack, openJSON{of: elementOf(next)})
			next = elementOf(next)
		case '}', ']':
			stack = stack[:len(stack)-1]
		case ',':
			top := &stack[len(stack)-1]
			top.key, next = top.object, top.of
		case '"':
			end := stringEnd(text, at)
			if n := len(stack); n > 0 && stack[n-1].key {
				if next, err = stack[n-1].member(text[at:end]); err != nil {
					return at, err
				}
			}
			at = end - 1
		}
	}
	return 0, nil
}

// openJSON is an object or array that has begun.
type openJSON struct {
	of     reflect.Type // of an object itself, of an array's elements; nil is any
	object bool
	key    bool // a member's name comes next
	seen   []string
	many   map[string]bool // instead of seen, when there are many
}

// member notes a member by its name in quotes, and gives the type of its value.
func (o *openJSON) member(quoted []byte) (reflect.Type, error) {
	o.key = false
	name := string(quoted[1 : len(quoted)-1])
	if strings.IndexByte(name, '\\') >= 0 {
		if err := json.Unmarshal(quoted, &name); err != nil {
			return nil, err
		}
	}
	twice := o.many[name]
	for _, s := range o.seen {
		twice = twice || s == name
	}
	if twice {
		return nil, fmt.Errorf("member %q comes twice", name)
	}
	if o.seen = append(o.seen, name); len(o.seen) > 16 {
		if o.many == nil {
			o.many = map[string]bool{}
		}
		for _, s := range o.seen {
			o.many[s] = true
		}
		o.seen = o.seen[:0]
	}
	if o.of == nil || o.of.Kind() != reflect.Struct {
		return nil, nil
	}
	for i := range o.of.NumField() {
		if f := o.of.Field(i); f.Tag.Get("json") == name {
			return membersOf(f.Type), nil
		}
	}
	return nil, fmt.Errorf("unknown field %q", name)
}

var rawJSON = reflect.TypeFor[json.RawMessage]()

// membersOf is a type that has members to check, or elements with such; else nil.
func membersOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != rawJSON && (t.Kind() == reflect.Struct || t.Kind() == reflect.Slice) {
		return t
	}
	return nil
}

func elementOf(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() != reflect.Slice {
		return nil
	}
	return membersOf(t.Elem())
}

// stringEnd is the offset behind the string that begins at a quote.
func stringEnd(text []byte, at int) int {
	for at++; at < len(text) && text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return min(at+1, len(text))
}
