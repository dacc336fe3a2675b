package serializer

import (
	"fmt"
	"strings"
)

// Verdict is whether a job with a new serializer can read state that an old one
// wrote.
type Verdict uint8

// Verdicts, the better ones first.
const (
	// AsIs: the bytes mean the same to both, perhaps after the new serializer took
	// over the old one's order of enum constants or subclasses.
	AsIs Verdict = iota
	// AfterMigration: every value has to be read with the old and written with the
	// new serializer. Flink does that for values, never for keys and namespaces.
	AfterMigration
	// Undecided: only the serializer's own class can tell.
	Undecided
	// Incompatible: Flink refuses to restore.
	Incompatible
)

var verdicts = [...]string{"as is", "after migration", "undecided", "incompatible"}

// String is "as is", "after migration", "undecided" or "incompatible".
func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return "?"
}

// Compatibility is a verdict with the reason for it. The reason is that of the
// worst part, or of the first of them; it is empty for AsIs without a remark.
type Compatibility struct {
	Verdict Verdict
	// Path is the part that decided, "value.f1.street"; empty for the whole.
	Path   string
	Reason string
}

// String is one line: "incompatible: field total: long became int".
func (c Compatibility) String() string {
	s := c.Verdict.String()
	if c.Path != "" {
		s += ": " + c.Path
	}
	if c.Reason != "" {
		s += ": " + c.Reason
	}
	return s
}

// worst keeps the worse of two; of equals the first that has a reason.
func (c Compatibility) worst(d Compatibility) Compatibility {
	if d.Verdict > c.Verdict || d.Verdict == c.Verdict && c.Reason == "" {
		return d
	}
	return c
}

func (c Compatibility) at(path string) Compatibility {
	if c.Reason == "" && c.Verdict == AsIs {
		return c
	}
	switch {
	case c.Path == "":
		c.Path = path
	case strings.HasPrefix(c.Path, "["):
		c.Path = path + c.Path
	default:
		c.Path = path + "." + c.Path
	}
	return c
}

func incompatible(format string, args ...any) Compatibility {
	return Compatibility{Incompatible, "", fmt.Sprintf(format, args...)}
}

// CompatOptions changes what is compared. Nil is Flink 1.x.
type CompatOptions struct {
	// TTLMigration: TTL may be switched on or off, as in Flink 2 with RocksDB.
	TTLMigration bool
}

// Compat tells whether state of the type old can be read by a job whose serializer
// has the type new, as the resolveSchemaCompatibility of Flink's serializer
// snapshots would. It compares what snapshots say, so that what depends on the
// job's classes (a POJO that is no POJO any more) stays unseen.
func Compat(old, new *Type, opts *CompatOptions) Compatibility {
	if opts == nil {
		opts = &CompatOptions{}
	}
	return compatible(old, new, opts)
}

// Renumbered tells whether two types are alike but give numbers to enum constants or
// classes in other orders, so that a value's bytes mean something else to the one than to
// the other. A type that goes on where the other ends is not renumbered.
func Renumbered(a, b *Type) bool {
	for _, p := range [][2]*Type{{a, b}, {b, a}} {
		if c := Compat(p[0], p[1], nil); c.Verdict != AsIs || c.Reason == "" {
			return false
		}
	}
	return true
}

// renamed are snapshot classes that read as another one's old name.
var renamed = map[string]string{
	pkgBase + "GenericArraySerializerConfigSnapshot": classGenericArray,
	pkgRuntime + "EitherSerializerSnapshot":          classEither,
}

func (t *Type) family() string {
	class := t.Class
	if t.innerClass != "" {
		class = t.innerClass
	}
	if n, ok := renamed[class]; ok {
		return n
	}
	return class
}

func compatible(old, new *Type, o *CompatOptions) Compatibility {
	if (old.Kind == KindTTL) != (new.Kind == KindTTL) {
		if !o.TTLMigration {
			if new.Kind == KindTTL {
				return incompatible("TTL was switched on")
			}
			return incompatible("TTL was switched off")
		}
		c := Compatibility{AfterMigration, "", "TTL was switched on"}
		if old.Kind == KindTTL {
			c.Reason = "TTL was switched off"
			return c.worst(compatible(old.Args[1], new, o))
		}
		return c.worst(compatible(old, new.Args[1], o))
	}
	if old.family() != new.family() {
		if (old.Kind == KindPOJO) != (new.Kind == KindPOJO) || old.Kind == KindDynamic || new.Kind == KindDynamic {
			return incompatible("the serializer changed from %s to %s", simpleName(old.Class), simpleName(new.Class))
		}
		return incompatible("%s became %s", old, new)
	}
	if old.Kind == KindOpaque || new.Kind == KindOpaque {
		switch {
		case old.JavaClass != new.JavaClass:
			return incompatible("class %s became %s", old.JavaClass, new.JavaClass)
		case string(old.Raw) == string(new.Raw) && (old.Class == classKryo || strings.HasPrefix(old.Class, pkgRuntime)):
			return Compatibility{}
		}
		return Compatibility{Undecided, "", "only " + old.JavaClass + " knows"}
	}
	switch old.Kind {
	case KindPOJO:
		return compatPOJO(old, new, o)
	case KindEnum:
		return compatEnum(old, new)
	case KindDynamic:
		return compatKryo(old, new)
	}
	if old.Schema != "" || new.Schema != "" {
		return compatAvro(old.Schema, new.Schema)
	}
	switch old.enc {
	case encBinaryRow, encBinaryArray, encBinaryMap, encDecimal, encTimestamp:
		return compatLogical(old, new)
	}
	if old.JavaClass != new.JavaClass {
		return incompatible("class %s became %s", old.JavaClass, new.JavaClass)
	}
	var c Compatibility
	if old.flag != new.flag {
		switch old.enc {
		case encRow:
			c = Compatibility{AfterMigration, "", "row kinds were switched " + onOff(new.flag)}
		case encTwoPhase:
			c = Compatibility{AfterMigration, "", "null transactions were switched " + onOff(new.flag)}
		case encLinkedList:
			c = Compatibility{AfterMigration, "", "the null mask was switched " + onOff(new.flag)}
		}
	}
	if old.pad != new.pad {
		return incompatible("null padding of %d bytes became %d", old.pad, new.pad)
	}
	a, b := old.parts(), new.parts()
	if len(a) != len(b) {
		return incompatible("%d fields became %d", len(a), len(b))
	}
	for i := range a {
		c = c.worst(compatible(a[i], b[i], o).at(partName(old, new, i)))
	}
	return c
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func partName(old, new *Type, i int) string {
	switch old.Kind {
	case KindList, KindSet, KindArray:
		return "element"
	case KindMap:
		return [...]string{"key", "value"}[i]
	case KindEither:
		return [...]string{"left", "right"}[i]
	case KindTTL:
		return [...]string{"timestamp", "value"}[i]
	case KindTimer:
		return new.Fields[i].Name
	}
	if old.Fields != nil {
		if new.Fields[i].Name != "" {
			return "field " + new.Fields[i].Name
		}
		return "field " + old.fieldName(i)
	}
	return fmt.Sprintf("part %d", i)
}

func simpleName(class string) string { return class[strings.LastIndexByte(class, '.')+1:] }

func compatPOJO(old, new *Type, o *CompatOptions) Compatibility {
	if old.JavaClass != new.JavaClass {
		return incompatible("class %s became %s", old.JavaClass, new.JavaClass)
	}
	var c Compatibility
	byName := map[[2]string]*Type{}
	for i := range new.Fields {
		f := &new.Fields[i]
		byName[[2]string{f.DeclaringClass, f.Name}] = f.Type
	}
	kept := 0
	for i := range old.Fields {
		f := &old.Fields[i]
		n := byName[[2]string{f.DeclaringClass, f.Name}]
		if n == nil || f.Missing {
			c = c.worst(Compatibility{AfterMigration, "", "field " + old.fieldName(i) + " was removed"})
			continue
		}
		kept++
		c = c.worst(compatible(f.Type, n, o).at("field " + f.Name))
		delete(byName, [2]string{f.DeclaringClass, f.Name})
	}
	if kept < len(new.Fields) {
		for i := range new.Fields { // the first in the order of the class
			f := &new.Fields[i]
			if byName[[2]string{f.DeclaringClass, f.Name}] != nil {
				c = c.worst(Compatibility{AfterMigration, "", "field " + f.Name + " was added"})
				break
			}
		}
	}
	// Subclasses that both register; what only one has is taken over.
	registered := map[string]*Type{}
	for _, s := range new.Registered {
		registered[s.Class] = s.Type
	}
	for i, s := range old.Registered {
		if s.Type == nil {
			return incompatible("subclass %s has no serializer in the snapshot", s.Class)
		}
		if n := registered[s.Class]; n != nil {
			c = c.worst(compatible(s.Type, n, o).at("subclass " + s.Class))
		}
		if i >= len(new.Registered) || new.Registered[i].Class != s.Class {
			c = c.worst(Compatibility{AsIs, "", "the order of registered subclasses changed and is taken over"})
		}
	}
	for _, s := range old.Unregistered {
		if s.Type == nil {
			return incompatible("subclass %s has no serializer in the snapshot", s.Class)
		}
	}
	return c
}

func compatEnum(old, new *Type) Compatibility {
	if old.JavaClass != new.JavaClass {
		return incompatible("enum %s became %s", old.JavaClass, new.JavaClass)
	}
	index := map[string]int{}
	for i, s := range new.Symbols {
		index[s] = i
	}
	c := Compatibility{}
	for i, s := range old.Symbols {
		at, ok := index[s]
		if !ok {
			return incompatible("constant %s was removed", s)
		}
		if old.enc == encScalaEnum {
			if old.symbolIDs[i] != new.symbolIDs[at] {
				return incompatible("constant %s has another number", s)
			}
			continue
		}
		if at != i {
			c.Reason = "the constants' order changed; the old order is kept, new ones are appended"
		}
	}
	return c
}

func compatKryo(old, new *Type) Compatibility {
	if old.JavaClass != new.JavaClass {
		return incompatible("class %s became %s", old.JavaClass, new.JavaClass)
	}
	if old.Kryo == nil || new.Kryo == nil {
		return Compatibility{}
	}
	for i, r := range old.Kryo.Registrations {
		if i >= len(new.Kryo.Registrations) || new.Kryo.Registrations[i].Class != r.Class {
			return Compatibility{AsIs, "", "the order of Kryo registrations changed and is taken over"}
		}
	}
	return Compatibility{}
}

// compatLogical compares SQL types, which must be equal.
func compatLogical(old, new *Type) Compatibility {
	if reason := logicalDiff(old, new, true); reason != "" {
		return incompatible("%s", reason)
	}
	return Compatibility{}
}

func logicalDiff(a, b *Type, root bool) string {
	if a.Kind != b.Kind || a.enc != b.enc || a.slot != b.slot || a.Length != b.Length || a.Precision != b.Precision || a.Scale != b.Scale ||
		a.JavaClass != b.JavaClass || a.flag != b.flag || a.NotNull != b.NotNull {
		return fmt.Sprintf("%s became %s", a, b)
	}
	if len(a.Fields) != len(b.Fields) {
		return fmt.Sprintf("%d columns became %d", len(a.Fields), len(b.Fields))
	}
	for i := range a.Fields {
		// The columns of a nested row have names, which count.
		if !root && a.Fields[i].Name != b.Fields[i].Name {
			return fmt.Sprintf("column %s became %s", a.fieldName(i), b.fieldName(i))
		}
		if d := logicalDiff(a.Fields[i].Type, b.Fields[i].Type, false); d != "" {
			return "column " + a.fieldName(i) + ": " + d
		}
	}
	for i := range a.Args {
		if i >= len(b.Args) {
			break
		}
		if d := logicalDiff(a.Args[i], b.Args[i], false); d != "" {
			return d
		}
	}
	return ""
}

// CompatState compares two versions of a state: its kind, namespace and values.
// Namespaces are never migrated.
func CompatState(old, new *StateMeta, opts *CompatOptions) Compatibility {
	if old.Kind != new.Kind {
		return incompatible("%s became %s", old.Kind, new.Kind)
	}
	if a, b := old.StateType(), new.StateType(); a != b && a != "UNKNOWN" && b != "UNKNOWN" {
		return incompatible("%s state became %s state", strings.ToLower(a), strings.ToLower(b))
	}
	if a, b := old.Mode(), new.Mode(); a != b {
		return incompatible("%s became %s", a, b)
	}
	var c Compatibility
	for _, s := range old.Serializers {
		n := new.Serializer(s.Key)
		if n == nil {
			c = c.worst(incompatible("%s is gone", s.Key))
			continue
		}
		r := Compat(s.Type, n, opts)
		name := map[string]string{SerializerKey: "key", SerializerNS: "namespace", SerializerValue: "value", SerializerMapKey: "map key"}[s.Key]
		switch {
		case s.Key == SerializerValue && old.Kind != PriorityQueue:
			if old.Kind == KeyValue && old.StateType() == "MAP" && s.Type.Kind == KindMap && n.Kind == KindMap {
				r = r.worst(CompatKey(s.Type.Args[0], n.Args[0]).at("key"))
			}
		case old.Kind == Broadcast: // held as objects: its keys are migrated like values
		default:
			r = CompatKey(s.Type, n)
		}
		c = c.worst(r.at(name))
	}
	return c
}

// CompatKey compares the types of keys, namespaces, timers and the user keys of map
// state, none of which Flink migrates.
func CompatKey(old, new *Type) Compatibility {
	c := Compat(old, new, nil)
	if c.Verdict == AfterMigration {
		c.Verdict = Incompatible
		c.Reason += ", and keys are not migrated"
	}
	return c
}
