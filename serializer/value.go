package serializer

import (
	"math/big"
	"time"
)

// Value is a decoded value. By kind:
//
//	Null, VoidNamespace and any null     nil
//	Boolean                              bool
//	Byte, Short, Int, Long               int8, int16, int32, int64
//	Float, Double                        float32, float64
//	Char                                 uint16, a UTF-16 unit
//	String, Enum, GlobalWindow           string; an unpaired surrogate keeps its three bytes
//	Bytes                                []byte
//	BigInt                               *big.Int
//	BigDec, Decimal                      BigDecimal
//	Date, SQLDate, SQLTime               int64, epoch milliseconds
//	LocalDate                            CivilDate
//	LocalTime                            time.Duration since midnight
//	Instant, SQLTimestamp, TimestampLTZ  time.Time in UTC
//	LocalDateTime, Timestamp             time.Time in UTC: what the clock on the wall shows
//	IntervalYM, IntervalDT, CountWindow  int64: months, milliseconds, the window's number
//	UUID                                 [16]byte
//	List, Array, Set, Tuple              []any
//	Map, Multiset                        []Entry, in the order of the bytes
//	Row                                  RowValue
//	POJO, Record, Timer, TimeWindow      Object
//	Either, Try                          EitherValue
//	Opaque                               OpaqueValue
//
// Values own their memory: nothing aliases the bytes that were read.
type Value = any

// BigDecimal is Unscaled × 10^-Scale, as java.math.BigDecimal.
type BigDecimal struct {
	Unscaled *big.Int
	Scale    int32
}

// String is Java's BigDecimal.toString.
func (d BigDecimal) String() string { return string(appendDecimal(nil, twosOf(d.Unscaled), d.Scale)) }

// CivilDate is a date without a time zone, as java.time.LocalDate.
type CivilDate struct {
	Year       int32
	Month, Day int8
}

// String is Java's LocalDate.toString.
func (d CivilDate) String() string { return string(appendDate(nil, d.Days())) }

// Days counts from 1970-01-01.
func (d CivilDate) Days() int64 { return daysOf(int64(d.Year), int(d.Month), int(d.Day)) }

// DateOfDays is the inverse of Days.
func DateOfDays(days int64) CivilDate {
	y, m, d := civil(days)
	return CivilDate{Year: int32(y), Month: int8(m), Day: int8(d)}
}

// Entry is an entry of a map.
type Entry struct{ Key, Value any }

// RowValue is a row; Names is nil if they are not known.
type RowValue struct {
	Kind   RowKind
	Names  []string
	Fields []any
}

// Object is a value with named fields. Class is empty where there is none.
type Object struct {
	Class  string
	Fields []NamedValue
}

// Get is the field of that name; ok is false if there is none.
func (o Object) Get(name string) (v any, ok bool) {
	for _, f := range o.Fields {
		if f.Name == name {
			return f.Value, true
		}
	}
	return nil, false
}

// NamedValue is a field of an Object.
type NamedValue struct {
	Name  string
	Value any
}

// EitherValue is the left or the right of an Either; for a Try the left is the
// success.
type EitherValue struct {
	Right bool
	Value any
}

// OpaqueValue is what could not be read.
type OpaqueValue struct {
	Class string // the value's, or the serializer's snapshot; may be empty
	Bytes []byte
}

// Decode reads the value at the start of b and returns it and its size.
func (d *Decoder) Decode(b []byte) (v Value, n int, err error) {
	t := &d.tree
	t.stack, t.result = t.stack[:0], nil
	n, err = d.Visit(b, t)
	if err != nil {
		return nil, n, err
	}
	v, t.result = t.result, nil
	return v, n, nil
}

// treeVisitor builds Values.
type treeVisitor struct {
	stack  []treeFrame
	result any
}

type treeFrame struct {
	t     *Type
	items []any
	names []string
	kind  RowKind
	field int
}

// preallocate bounds what a count in the bytes lets us allocate at once.
const preallocate = 1024

func (v *treeVisitor) add(x any) {
	if n := len(v.stack); n > 0 {
		f := &v.stack[n-1]
		f.items = append(f.items, x)
		return
	}
	v.result = x
}

func (v *treeVisitor) Null(*Type) { v.add(nil) }

func (v *treeVisitor) Bool(_ *Type, x bool) { v.add(x) }

func (v *treeVisitor) Int(t *Type, x int64) {
	switch t.Kind {
	case KindByte:
		v.add(int8(x))
	case KindShort:
		v.add(int16(x))
	case KindInt:
		v.add(int32(x))
	case KindLocalDate:
		v.add(DateOfDays(x))
	case KindLocalTime:
		v.add(time.Duration(x))
	default:
		v.add(x)
	}
}

func (v *treeVisitor) Float(t *Type, x float64) {
	if t.Kind == KindFloat {
		v.add(float32(x))
	} else {
		v.add(x)
	}
}

func (v *treeVisitor) Text(t *Type, s []byte) {
	if t.Kind == KindChar {
		var u uint16
		forEachUnit(s, func(x uint16) { u = x })
		v.add(u)
		return
	}
	v.add(string(s))
}

func (v *treeVisitor) Bytes(t *Type, b []byte) {
	if t.Kind == KindUUID && len(b) == 16 {
		v.add([16]byte(b))
		return
	}
	v.add(append([]byte{}, b...))
}

func (v *treeVisitor) Decimal(t *Type, unscaled []byte, scale int32) {
	if t.Kind == KindBigInt {
		v.add(bigOf(unscaled))
		return
	}
	v.add(BigDecimal{Unscaled: bigOf(unscaled), Scale: scale})
}

func (v *treeVisitor) Time(_ *Type, secs int64, nanos int32) {
	v.add(time.Unix(secs, int64(nanos)).UTC())
}

func (v *treeVisitor) Begin(t *Type, n int) {
	f := treeFrame{t: t, items: make([]any, 0, min(max(n, 0), preallocate))}
	v.stack = append(v.stack, f)
}

func (v *treeVisitor) RowKind(kind RowKind) { v.stack[len(v.stack)-1].kind = kind }

func (v *treeVisitor) Field(i int, name string) {
	f := &v.stack[len(v.stack)-1]
	f.field = i
	switch f.t.Kind {
	case KindPOJO, KindRecord, KindTimer, KindTimeWindow:
		f.names = append(f.names, name)
	case KindRow:
		if name != "" {
			f.names = append(f.names, name)
		}
	}
}

func (v *treeVisitor) End(t *Type) {
	f := v.stack[len(v.stack)-1]
	v.stack = v.stack[:len(v.stack)-1]
	switch t.Kind {
	case KindMap, KindMultiset:
		m := make([]Entry, len(f.items)/2)
		for i := range m {
			m[i] = Entry{f.items[2*i], f.items[2*i+1]}
		}
		v.add(m)
	case KindRow:
		r := RowValue{Kind: f.kind, Fields: f.items}
		if len(f.names) == len(f.items) {
			r.Names = f.names
		}
		v.add(r)
	case KindPOJO, KindRecord, KindTimer, KindTimeWindow:
		o := Object{Class: t.JavaClass, Fields: make([]NamedValue, len(f.items))}
		for i, x := range f.items {
			o.Fields[i] = NamedValue{f.names[i], x}
		}
		v.add(o)
	case KindEither, KindTry:
		v.add(EitherValue{Right: f.field == 1, Value: f.items[0]})
	default:
		v.add(f.items)
	}
}

func (v *treeVisitor) Opaque(_ *Type, class string, b []byte) {
	v.add(OpaqueValue{Class: class, Bytes: append([]byte(nil), b...)})
}

// twosOf is x in big-endian two's complement of the least length, as Java's
// BigInteger.toByteArray.
func twosOf(x *big.Int) []byte {
	if x == nil {
		return []byte{0}
	}
	n := x.BitLen()/8 + 1
	if x.Sign() >= 0 {
		return x.FillBytes(make([]byte, n))
	}
	// -2^k needs no more bits than 2^k-1.
	y := new(big.Int).Not(x) // -x-1
	n = y.BitLen()/8 + 1
	b := y.FillBytes(make([]byte, n))
	for i := range b {
		b[i] = ^b[i]
	}
	return b
}
