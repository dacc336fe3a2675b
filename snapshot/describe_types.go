package snapshot

import (
	"bytes"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/tidemark/tidemark/serializer"
)

// What words do not tell of a type is told by its serializer snapshot in hex:
// versions and flags of an older Flink, subclasses, columns of SQL rows.

// parseClasses makes types of the classes' words, as a reader of the description
// will. A class whose words have no type is left out.
func (d *description) parseClasses() {
	list := &Description{classes: serializer.Classes{}}
	list.addClasses(slices.Sorted(maps.Values(d.classes)))
	d.parsed = list.classes
}

// notInWords is the serializer snapshot of t in hex; empty if a type made of words
// has the same, or if there is none that can be read again.
func (d *description) notInWords(words string, wrap func(*serializer.Type) *serializer.Type, t *serializer.Type) string {
	if t == nil || t.Raw == nil {
		return ""
	}
	if _, opaque := t.IsOpaque(); opaque {
		return ""
	}
	want, err := t.AppendSnapshot(nil)
	if err != nil {
		return ""
	}
	if made, err := serializer.ParseType(words, d.parsed); err == nil {
		if wrap != nil {
			made = wrap(made)
		}
		if got, err := made.AppendSnapshot(nil); err == nil && bytes.Equal(got, want) {
			return ""
		}
	}
	return hex.EncodeToString(want)
}

// withTTL makes of the type that words give the one that is stored.
func withTTL(kind StateKind, ttl bool) func(*serializer.Type) *serializer.Type {
	if !ttl {
		return nil
	}
	return func(t *serializer.Type) *serializer.Type {
		switch {
		case kind == StateList && t.Elem() != nil:
			return serializer.NewList(serializer.NewTTL(t.Elem()))
		case kind == StateMap && t.Value() != nil:
			return serializer.NewMap(t.Key(), serializer.NewTTL(t.Value()))
		}
		return serializer.NewTTL(t)
	}
}
