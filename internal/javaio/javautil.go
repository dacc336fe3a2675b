package javaio

import "encoding/binary"

// The collections of java.util as they stand in object streams. Source: the
// serialized forms documented for each class in the JDK's API documentation.

// List returns the elements of a java.util list or set, of a view of one
// (Collections.unmodifiable…, synchronized…, singleton…, empty…), of
// Arrays.asList, of List.of and Set.of; false for anything else.
func List(v Value) ([]Value, bool) {
	for range 8 { // views of views
		o, ok := v.(*Object)
		if !ok {
			return nil, false
		}
		switch o.ClassName() {
		case "java.util.ArrayList", "java.util.LinkedList", "java.util.ArrayDeque", "java.util.PriorityQueue":
			return counted(o.Annotation(""), size(o))
		case "java.util.HashSet", "java.util.LinkedHashSet":
			return counted(o.Annotation("java.util.HashSet"), -1)
		case "java.util.TreeSet": // the comparator comes first
			ann := o.Annotation("")
			if len(ann) == 0 {
				return nil, false
			}
			return counted(ann[1:], -1)
		case "java.util.Arrays$ArrayList":
			a, ok := Get[*Array](o, "a")
			if !ok {
				return nil, false
			}
			return a.Elements(), true
		case "java.util.CollSer":
			if tag, _ := Get[int32](o, "tag"); tag&0xff != 1 && tag&0xff != 2 {
				return nil, false
			}
			return counted(o.Annotation(""), -1)
		case "java.util.Collections$EmptyList", "java.util.Collections$EmptySet":
			return nil, true
		case "java.util.Collections$SingletonList", "java.util.Collections$SingletonSet":
			e, ok := o.Field("element")
			return []Value{e}, ok
		}
		inner, ok := o.Field("c") // Collections$Unmodifiable… and Synchronized…
		if list, isList := o.Field("list"); isList {
			inner, ok = list, true
		}
		if !ok {
			return nil, false
		}
		v = inner
	}
	return nil, false
}

func size(o *Object) int64 {
	if n, ok := Get[int32](o, "size"); ok {
		return int64(n)
	}
	return -1
}

// counted takes the block data in front of the elements away. Its last int is
// the number of elements unless n gives it.
func counted(ann []Value, n int64) ([]Value, bool) {
	if len(ann) == 0 {
		return nil, n == 0
	}
	b, ok := ann[0].(BlockData)
	if !ok || len(b) < 4 {
		return nil, false
	}
	if n < 0 {
		n = int64(int32(binary.BigEndian.Uint32(b[len(b)-4:])))
	}
	return ann[1:], n == int64(len(ann)-1)
}

// MapEntries returns keys and values, in turn, of a java.util map: HashMap,
// LinkedHashMap, TreeMap, Map.of, an unmodifiable view; false for anything else.
func MapEntries(v Value) ([]Value, bool) {
	for range 8 {
		o, ok := v.(*Object)
		if !ok {
			return nil, false
		}
		switch o.ClassName() {
		case "java.util.HashMap", "java.util.LinkedHashMap":
			return pairs(o.Annotation("java.util.HashMap"))
		case "java.util.TreeMap":
			return pairs(o.Annotation(""))
		case "java.util.CollSer":
			if tag, _ := Get[int32](o, "tag"); tag&0xff != 3 {
				return nil, false
			}
			return counted(o.Annotation(""), -1) // counts keys and values
		case "java.util.Collections$EmptyMap":
			return nil, true
		}
		inner, ok := o.Field("m")
		if !ok {
			return nil, false
		}
		v = inner
	}
	return nil, false
}

func pairs(ann []Value) ([]Value, bool) {
	if len(ann) == 0 {
		return nil, false
	}
	b, ok := ann[0].(BlockData)
	if !ok || len(b) < 4 {
		return nil, false
	}
	n := int64(int32(binary.BigEndian.Uint32(b[len(b)-4:])))
	return ann[1:], 2*n == int64(len(ann)-1)
}

// Unbox returns the primitive in a java.lang.Integer, Long, Boolean and so on,
// and any other value as it is.
func Unbox(v Value) Value {
	o, ok := v.(*Object)
	if !ok {
		return v
	}
	switch o.ClassName() {
	case "java.lang.Boolean", "java.lang.Byte", "java.lang.Character", "java.lang.Short",
		"java.lang.Integer", "java.lang.Long", "java.lang.Float", "java.lang.Double":
		if p, ok := o.Field("value"); ok {
			return p
		}
	}
	return v
}
