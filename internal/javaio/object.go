package javaio

import (
	"encoding/binary"
	"iter"
	"math"
)

// Value is what stands in a Java object stream:
//
//	nil         a null reference
//	*Object     an object of any class but those below
//	*Enum       an enum constant
//	*Array      an array
//	*Class      a java.lang.Class object
//	*ClassDesc  a class descriptor written as an object
//	String      a java.lang.String
//	BlockData   primitive data that custom code wrote
//
// and, as a field or an element, the primitives: bool, int8 (byte), uint16
// (char), int16, int32, int64, float32, float64.
//
// The values of one stream may refer to each other in cycles and share parts;
// who walks them keeps track of what was seen, as Format does.
type Value any

// BlockData is primitive data written by writeObject or writeExternal of a
// class. It aliases the input.
type BlockData []byte

// Flags of a class descriptor.
const (
	FlagWriteMethod    = 0x01 // data of the class's own writeObject follows its fields
	FlagSerializable   = 0x02
	FlagExternalizable = 0x04
	FlagBlockData      = 0x08 // externalizable data is in blocks, so its end can be found
	FlagEnum           = 0x10
)

// ClassDesc describes a class as it was when the stream was written.
type ClassDesc struct {
	Name       String // "java.util.ArrayList", "[I"; empty for a proxy class
	UID        int64  // serialVersionUID
	Flags      uint8
	Fields     []Field  // in the order in which values are written
	Interfaces []String // of a proxy class
	Proxy      bool
	Annotation []Value // what annotateClass wrote; almost always empty
	Super      *ClassDesc

	complete bool
	depth    int // number of superclasses
	// Where the values of this class begin in an Object that has it, and how
	// many its superclasses and it have together.
	primBase, primEnd int
	refBase, refEnd   int
	// The nearest of the superclasses that has bytes in the stream: classes
	// without are skipped, so that each step of reading an object consumes input.
	dataSuper *ClassDesc
}

// Field is a field of a class.
type Field struct {
	Type byte   // B C D F I J S Z, L for an object, [ for an array
	Name String // as in the source
	Sig  String // type signature of L and [, "Ljava/lang/String;"; else empty

	pos int // from primBase in bytes, or from refBase in values
}

// Ref says that the field holds a reference, not a primitive.
func (f *Field) Ref() bool { return f.Type == 'L' || f.Type == '[' }

func primWidth(t byte) int {
	switch t {
	case 'B', 'Z':
		return 1
	case 'C', 'S':
		return 2
	case 'I', 'F':
		return 4
	case 'J', 'D':
		return 8
	}
	return 0
}

// hasData says that an object holds at least a byte for this class.
func (d *ClassDesc) hasData() bool {
	if d.Flags&FlagExternalizable != 0 {
		return true
	}
	return d.Flags&FlagSerializable != 0 && (len(d.Fields) > 0 || d.Flags&FlagWriteMethod != 0)
}

// link computes where values lie. The superclass is complete.
func (d *ClassDesc) link() {
	if s := d.Super; s != nil {
		d.depth = s.depth + 1
		d.primBase, d.refBase = s.primEnd, s.refEnd
		d.dataSuper = s.dataSuper
		if s.hasData() {
			d.dataSuper = s
		}
	}
	prim, ref := 0, 0
	for i := range d.Fields {
		f := &d.Fields[i]
		if f.Ref() {
			f.pos = ref
			ref++
		} else {
			f.pos = prim
			prim += primWidth(f.Type)
		}
	}
	if d.Flags&FlagSerializable == 0 { // fields of an externalizable class are described but not written
		prim, ref = 0, 0
	}
	d.primEnd, d.refEnd = d.primBase+prim, d.refBase+ref
	d.complete = true
}

// Object is an object with its fields as they were written.
type Object struct {
	Class *ClassDesc

	prims []byte
	refs  []Value
	notes []note
}

// note is what the custom code of one class wrote.
type note struct {
	class  *ClassDesc
	values []Value
}

// ClassName is the binary name of the object's class.
func (o *Object) ClassName() string { return o.Class.Name.Go() }

// Field returns the value of a field; of several with one name the one of the
// most derived class.
func (o *Object) Field(name string) (Value, bool) {
	for d := o.Class; d != nil; d = d.Super {
		if v, ok := o.fieldOf(d, name); ok {
			return v, true
		}
	}
	return nil, false
}

// FieldIn returns the value of a field that the named class declares.
func (o *Object) FieldIn(class, name string) (Value, bool) {
	for d := o.Class; d != nil; d = d.Super {
		if string(d.Name) == class {
			return o.fieldOf(d, name)
		}
	}
	return nil, false
}

func (o *Object) fieldOf(d *ClassDesc, name string) (Value, bool) {
	if d.Flags&FlagSerializable == 0 {
		return nil, false
	}
	for i := range d.Fields {
		if string(d.Fields[i].Name) == name {
			return o.value(d, &d.Fields[i])
		}
	}
	return nil, false
}

// value is false while the object is still being read.
func (o *Object) value(d *ClassDesc, f *Field) (Value, bool) {
	if f.Ref() {
		i := d.refBase + f.pos
		if i >= len(o.refs) {
			return nil, false
		}
		return o.refs[i], true
	}
	i := d.primBase + f.pos
	if i+primWidth(f.Type) > len(o.prims) {
		return nil, false
	}
	return primValue(f.Type, o.prims[i:]), true
}

func primValue(t byte, b []byte) Value {
	switch t {
	case 'B':
		return int8(b[0])
	case 'Z':
		return b[0] != 0
	case 'C':
		return binary.BigEndian.Uint16(b)
	case 'S':
		return int16(binary.BigEndian.Uint16(b))
	case 'I':
		return int32(binary.BigEndian.Uint32(b))
	case 'F':
		return math.Float32frombits(binary.BigEndian.Uint32(b))
	case 'J':
		return int64(binary.BigEndian.Uint64(b))
	case 'D':
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	}
	return nil
}

// FieldValue is one field of an object with the class that declares it.
type FieldValue struct {
	Class *ClassDesc
	Field *Field
	Value Value
}

// Fields visits all fields, those of the topmost superclass first, each class
// in the order of the stream.
func (o *Object) Fields() iter.Seq[FieldValue] {
	return func(yield func(FieldValue) bool) { o.fields(o.Class, yield) }
}

func (o *Object) fields(d *ClassDesc, yield func(FieldValue) bool) bool {
	if d == nil {
		return true
	}
	if !o.fields(d.dataSuper, yield) {
		return false
	}
	if d.Flags&FlagSerializable == 0 {
		return true
	}
	for i := range d.Fields {
		v, ok := o.value(d, &d.Fields[i])
		if ok && !yield(FieldValue{d, &d.Fields[i], v}) {
			return false
		}
	}
	return true
}

// Annotation returns what the writeObject or writeExternal method of the named
// class wrote after the fields: BlockData and objects, in order. An empty name
// means the most derived class that wrote anything.
func (o *Object) Annotation(class string) []Value {
	for i := len(o.notes) - 1; i >= 0; i-- {
		if n := &o.notes[i]; class == "" || string(n.class.Name) == class {
			return n.values
		}
	}
	return nil
}

// Get returns a field as a T; false if there is none of that name and type.
//
//	length, ok := javaio.Get[int32](obj, "length")
func Get[T any](o *Object, field string) (T, bool) {
	var zero T
	if o == nil {
		return zero, false
	}
	v, _ := o.Field(field)
	t, ok := v.(T)
	return t, ok
}

// EnumName returns the constant's name of an enum field; false if it is none.
func EnumName(o *Object, field string) (string, bool) {
	e, ok := Get[*Enum](o, field)
	if !ok {
		return "", false
	}
	return e.Name.Go(), true
}

// Enum is a constant of an enum class.
type Enum struct {
	Class *ClassDesc
	Name  String
}

// Class is a java.lang.Class object.
type Class struct{ Desc *ClassDesc }

// Array is a Java array. Elements of a primitive type stay as they are in the
// stream, big-endian, and alias the input.
type Array struct {
	Class *ClassDesc // its name gives the type: "[B", "[Ljava.lang.String;"

	elem  byte
	raw   []byte
	elems []Value
}

// Len is the number of elements.
func (a *Array) Len() int {
	if w := primWidth(a.elem); w > 0 {
		return len(a.raw) / w
	}
	return len(a.elems)
}

// At returns element i.
func (a *Array) At(i int) Value {
	if w := primWidth(a.elem); w > 0 {
		return primValue(a.elem, a.raw[i*w:])
	}
	return a.elems[i]
}

// Bytes returns the elements of a primitive array as they stand in the stream;
// for a byte[] these are its bytes.
func (a *Array) Bytes() []byte { return a.raw }

// Elements returns the elements of an array of references; nil for primitives.
func (a *Array) Elements() []Value { return a.elems }
