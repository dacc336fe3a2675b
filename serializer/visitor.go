package serializer

// Visitor takes the parts of a value one after another, without boxing. Which
// calls a kind makes stands with the Kind constants; any value may be Null
// instead. Slices are valid only during the call.
//
// A composite value is Begin, its parts, End. The parts of a struct (Tuple, Row,
// POJO, Record, Either, Try, TimeWindow, Timer) each come after a call of Field; a
// field for which there is no call is absent. The Type that a call names is that
// of the part, so that a visitor of columns can walk the type tree beside it; for
// a POJO it may be the Type of a subclass, and below KindDynamic and KindUnion it
// is whatever stands in the bytes.
type Visitor interface {
	Null(t *Type)
	Bool(t *Type, v bool)
	Int(t *Type, v int64)
	// Float has a float32 exactly as it was written if t is a KindFloat.
	Float(t *Type, v float64)
	// Text is UTF-8, in which an unpaired surrogate keeps its three-byte form.
	Text(t *Type, utf8 []byte)
	Bytes(t *Type, b []byte)
	// Decimal is unscaled × 10^-scale; unscaled is big-endian two's complement.
	Decimal(t *Type, unscaled []byte, scale int32)
	// Time counts from 1970-01-01T00:00:00Z; nanos are 0 to 999 999 999.
	Time(t *Type, seconds int64, nanos int32)
	// Begin opens a value of n parts: elements, entries or fields; -1 if that is
	// not known beforehand.
	Begin(t *Type, n int)
	// RowKind comes after Begin of a KindRow that has one.
	RowKind(kind RowKind)
	// Field comes before each field: its index and, if known, its name.
	Field(i int, name string)
	End(t *Type)
	// Opaque is a value that could not be read, of a class if that is known.
	Opaque(t *Type, class string, b []byte)
}

// RowKind is a row's kind in a changelog.
type RowKind uint8

// Row kinds, by Flink's byte.
const (
	Insert RowKind = iota
	UpdateBefore
	UpdateAfter
	Delete
)

var rowKinds = [...]string{"INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"}

// String is Flink's name: INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE.
func (k RowKind) String() string {
	if int(k) < len(rowKinds) {
		return rowKinds[k]
	}
	return "?"
}

// discard is the visitor of a Decoder that only checks.
type discard struct{}

func (discard) Null(*Type)                   {}
func (discard) Bool(*Type, bool)             {}
func (discard) Int(*Type, int64)             {}
func (discard) Float(*Type, float64)         {}
func (discard) Text(*Type, []byte)           {}
func (discard) Bytes(*Type, []byte)          {}
func (discard) Decimal(*Type, []byte, int32) {}
func (discard) Time(*Type, int64, int32)     {}
func (discard) Begin(*Type, int)             {}
func (discard) RowKind(RowKind)              {}
func (discard) Field(int, string)            {}
func (discard) End(*Type)                    {}
func (discard) Opaque(*Type, string, []byte) {}

// checkVisitor notes what Skip could not read.
type checkVisitor struct {
	discard
	opaque bool
	class  string // of the first such part
}

func (v *checkVisitor) Opaque(_ *Type, class string, _ []byte) {
	if !v.opaque {
		v.opaque, v.class = true, class
	}
}
