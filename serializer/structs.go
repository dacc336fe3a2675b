package serializer

import (
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/tidemark/tidemark/internal/javaio"
)

// Of makes the serializer of a Go type by its structure:
//
//	bool, int8, int16, int32, int64, int   Boolean, Byte, Short, Int, Long, Long
//	float32, float64, string, []byte       Float, Double, String, byte[]
//	uint16                                 Char
//	time.Time                              Instant
//	time.Duration                          LocalTime
//	CivilDate, *big.Int, BigDecimal        LocalDate, BigInteger, BigDecimal
//	Window                                 TimeWindow
//	[]T, map[K]V                           List, Map
//	struct{}                               Void
//	struct                                 Row, or what its tag says
//
// A struct's blank field of type struct{} says what the struct is, a field's tag
// its name and, for a time, which of Java's types:
//
//	type Order struct {
//		_     struct{}  `flink:"pojo=com.example.Order"` // or tuple, or row
//		ID    int64     `flink:"id"`
//		Total *int64    `flink:"total"`            // may be null
//		At    time.Time `flink:"at,sqltimestamp"`  // or localdatetime, date
//		Tags  []string  `flink:"tags,array"`       // String[] instead of List
//		Cache string    `flink:"-"`                // not written
//	}
//
// Without a tag a field is named as in Go with its first letter in lower case.
// Fields of a tuple and of a row come in Go's order, those of a POJO by name. In a
// POJO and a row a pointer is a field that may be null and no pointer one that is
// never written as null; elsewhere only *string may be null. Unexported fields
// without a tag are left out.
func Of[T any]() (Serializer[T], error) {
	var zero T
	c, err := compile(reflect.TypeOf(&zero).Elem(), "", 0)
	if err != nil {
		return nil, err
	}
	return &structSerializer[T]{c}, nil
}

// MustOf is Of for types that are known to be right; it panics otherwise.
func MustOf[T any]() Serializer[T] {
	s, err := Of[T]()
	if err != nil {
		panic(err)
	}
	return s
}

// codec writes and reads a Go value in place.
type codec struct {
	t *Type
	// plain: made of basic types and structs of them alone, so that no pointer to
	// the value outlives a call.
	plain  bool
	append func(dst []byte, p unsafe.Pointer) []byte
	read   func(b []byte, p unsafe.Pointer) (n int, err error)
}

type structSerializer[T any] struct{ c *codec }

func (s *structSerializer[T]) Type() *Type { return s.c.t }

func (s *structSerializer[T]) Append(dst []byte, v T) []byte {
	if s.c.plain {
		return s.c.append(dst, onStack(unsafe.Pointer(&v)))
	}
	return s.appendEscaping(dst, v)
}

func (s *structSerializer[T]) appendEscaping(dst []byte, v T) []byte {
	return s.c.append(dst, unsafe.Pointer(&v))
}

func (s *structSerializer[T]) Read(b []byte) (v T, n int, err error) {
	if s.c.plain {
		n, err = s.c.read(b, onStack(unsafe.Pointer(&v)))
		return v, n, err
	}
	return s.readEscaping(b)
}

func (s *structSerializer[T]) readEscaping(b []byte) (v T, n int, err error) {
	n, err = s.c.read(b, unsafe.Pointer(&v))
	return v, n, err
}

// onStack hides a pointer from escape analysis, which cannot see that a plain
// codec does not keep it: the value then needs no allocation.
//
//go:nosplit
func onStack(p unsafe.Pointer) unsafe.Pointer {
	x := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&x))
}

// codecOf is the codec of a Go type that a Serializer handles.
func codecOf[T any](s Serializer[T]) *codec {
	return &codec{
		t:      s.Type(),
		plain:  true,
		append: func(dst []byte, p unsafe.Pointer) []byte { return s.Append(dst, *(*T)(p)) },
		read: func(b []byte, p unsafe.Pointer) (int, error) {
			v, n, err := s.Read(b)
			*(*T)(p) = v
			return n, err
		},
	}
}

var basicCodecs map[reflect.Type]*codec

func init() {
	basicCodecs = map[reflect.Type]*codec{
		reflect.TypeFor[CivilDate]():     codecOf(LocalDate),
		reflect.TypeFor[time.Duration](): codecOf(LocalTime),
		reflect.TypeFor[*big.Int]():      codecOf(BigInteger),
		reflect.TypeFor[BigDecimal]():    codecOf(Decimals),
		reflect.TypeFor[Window]():        codecOf(TimeWindows),
		reflect.TypeFor[[]byte]():        codecOf(Bytes),
		reflect.TypeFor[struct{}]():      codecOf(Void),
	}
}

var timeOptions = map[string]Serializer[time.Time]{"": Instant, "instant": Instant, "sqltimestamp": SQLTimestamp, "localdatetime": LocalDateTime, "date": Date}

const maxGoDepth = 50

func compile(t reflect.Type, option string, depth int) (*codec, error) {
	if depth > maxGoDepth {
		return nil, fmt.Errorf("%s contains itself", t)
	}
	if t == reflect.TypeFor[time.Time]() {
		s, ok := timeOptions[option]
		if !ok {
			return nil, fmt.Errorf("a time has no option %q", option)
		}
		return codecOf(s), nil
	}
	if c := basicCodecs[t]; c != nil {
		return c, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return codecOf(Bool), nil
	case reflect.Int8:
		return codecOf(Int8), nil
	case reflect.Int16:
		return codecOf(Int16), nil
	case reflect.Uint16:
		return codecOf(Char), nil
	case reflect.Int32:
		return codecOf(Int32), nil
	case reflect.Int64:
		return codecOf(Int64), nil
	case reflect.Int:
		if t.Size() == 8 {
			return codecOf(Int64), nil
		}
	case reflect.Float32:
		return codecOf(Float32), nil
	case reflect.Float64:
		return codecOf(Float64), nil
	case reflect.String:
		return codecOf(String), nil
	case reflect.Pointer:
		return compilePointer(t, option, depth)
	case reflect.Slice:
		return compileSlice(t, option, depth)
	case reflect.Map:
		return compileMap(t, option, depth)
	case reflect.Struct:
		return compileStruct(t, depth)
	}
	return nil, fmt.Errorf("%s has no serializer", t)
}

// compilePointer makes the codec of what t points at; nil is a null only for
// serializers that know one.
func compilePointer(t reflect.Type, option string, depth int) (*codec, error) {
	elem := t.Elem()
	c, err := compile(elem, option, depth+1)
	if err != nil {
		return nil, err
	}
	isString := elem.Kind() == reflect.String
	isPOJO := c.t.Kind == KindPOJO
	if !isString && !isPOJO {
		return nil, fmt.Errorf("%s: only a field of a POJO or row, a string and a POJO may be null; see Nullable", t)
	}
	return &codec{
		t: c.t,
		append: func(dst []byte, p unsafe.Pointer) []byte {
			x := *(*unsafe.Pointer)(p)
			switch {
			case x != nil:
				return c.append(dst, x)
			case isPOJO:
				return append(dst, pojoNull)
			}
			return append(dst, 0)
		},
		read: func(b []byte, p unsafe.Pointer) (int, error) {
			null := byte(0)
			if isPOJO {
				null = pojoNull
			}
			if len(b) > 0 && b[0] == null {
				*(*unsafe.Pointer)(p) = nil
				return 1, nil
			}
			x := reflect.New(elem)
			n, err := c.read(b, x.UnsafePointer())
			*(*unsafe.Pointer)(p) = x.UnsafePointer()
			return n, err
		},
	}, nil
}

func compileSlice(t reflect.Type, option string, depth int) (*codec, error) {
	elem, err := compile(t.Elem(), "", depth+1)
	if err != nil {
		return nil, err
	}
	typ := NewList(elem.t)
	if option == "array" {
		if typ = NewArray(elem.t.Kind); typ == nil || typ.Kind != KindArray {
			return nil, fmt.Errorf("%s: no array of %s", t, elem.t)
		}
	} else if option != "" {
		return nil, fmt.Errorf("a slice has no option %q", option)
	}
	size := t.Elem().Size()
	return &codec{
		t: typ,
		append: func(dst []byte, p unsafe.Pointer) []byte {
			v := (*sliceHeader)(p)
			dst = javaio.AppendI32(dst, int32(v.n))
			for k := range v.n {
				dst = elem.append(dst, unsafe.Add(v.data, uintptr(k)*size))
			}
			return dst
		},
		read: func(b []byte, p unsafe.Pointer) (int, error) {
			n, i, err := readCount(b, elem.t.min)
			if err != nil {
				return 0, err
			}
			list := reflect.NewAt(t, p).Elem()
			list.Set(reflect.MakeSlice(t, 0, min(n, preallocate)))
			for k := range n {
				if list.Len() == list.Cap() {
					list.Grow(1)
				}
				list.SetLen(k + 1)
				m, err := elem.read(b[i:], list.Index(k).Addr().UnsafePointer())
				if err != nil {
					return 0, inElement(moved(err, i), k)
				}
				i += m
			}
			return i, nil
		},
	}, nil
}

// sliceHeader is a slice of any element type.
type sliceHeader struct {
	data unsafe.Pointer
	n, c int
}

func compileMap(t reflect.Type, option string, depth int) (*codec, error) {
	if option != "" {
		return nil, fmt.Errorf("a map has no option %q", option)
	}
	key, err := compile(t.Key(), "", depth+1)
	if err != nil {
		return nil, err
	}
	value, err := compile(t.Elem(), "", depth+1)
	if err != nil {
		return nil, err
	}
	return &codec{
		t: NewMap(key.t, value.t),
		append: func(dst []byte, p unsafe.Pointer) []byte {
			m := reflect.NewAt(t, p).Elem()
			dst = javaio.AppendI32(dst, int32(m.Len()))
			k, v := reflect.New(t.Key()), reflect.New(t.Elem())
			for it := m.MapRange(); it.Next(); {
				k.Elem().SetIterKey(it)
				v.Elem().SetIterValue(it)
				dst = append(key.append(dst, k.UnsafePointer()), 0)
				dst = value.append(dst, v.UnsafePointer())
			}
			return dst
		},
		read: func(b []byte, p unsafe.Pointer) (int, error) {
			n, i, err := readCount(b, key.t.min+1)
			if err != nil {
				return 0, err
			}
			m := reflect.MakeMapWithSize(t, min(n, preallocate))
			for k := range n {
				x, v := reflect.New(t.Key()), reflect.New(t.Elem())
				size, err := key.read(b[i:], x.UnsafePointer())
				if err != nil {
					return 0, in(inElement(moved(err, i), k), "key")
				}
				if i += size; i >= len(b) {
					return 0, ErrShort
				}
				null := b[i] != 0
				i++
				if !null {
					if size, err = value.read(b[i:], v.UnsafePointer()); err != nil {
						return 0, inElement(moved(err, i), k)
					}
					i += size
				}
				m.SetMapIndex(x.Elem(), v.Elem())
			}
			reflect.NewAt(t, p).Elem().Set(m)
			return i, nil
		},
	}, nil
}

// fieldCodec is a field of a struct.
type fieldCodec struct {
	name   string
	offset uintptr
	c      *codec
	elem   reflect.Type // of a pointer: the field may be null
}

func (f *fieldCodec) null(p unsafe.Pointer) bool {
	return f.elem != nil && *(*unsafe.Pointer)(unsafe.Add(p, f.offset)) == nil
}

func (f *fieldCodec) append(dst []byte, p unsafe.Pointer) []byte {
	p = unsafe.Add(p, f.offset)
	if f.elem != nil {
		p = *(*unsafe.Pointer)(p)
	}
	return f.c.append(dst, p)
}

func (f *fieldCodec) read(b []byte, p unsafe.Pointer) (int, error) {
	p = unsafe.Add(p, f.offset)
	if f.elem == nil {
		return f.c.read(b, p)
	}
	x := reflect.New(f.elem)
	n, err := f.c.read(b, x.UnsafePointer())
	*(*unsafe.Pointer)(p) = x.UnsafePointer()
	return n, err
}

func compileStruct(t reflect.Type, depth int) (*codec, error) {
	kind, class, plain := "row", "", true
	var fields []fieldCodec
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("flink")
		if f.Name == "_" {
			if tagged {
				kind, class, _ = strings.Cut(tag, "=")
			}
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if name == "-" || !f.IsExported() && !tagged {
			continue
		}
		if name == "" {
			name = strings.ToLower(f.Name[:1]) + f.Name[1:]
		}
		c := fieldCodec{name: name, offset: f.Offset}
		ft := f.Type
		if ft.Kind() == reflect.Pointer && ft != reflect.TypeFor[*big.Int]() && kind != "tuple" {
			c.elem, ft = ft.Elem(), ft.Elem()
		}
		var err error
		if c.c, err = compile(ft, option, depth+1); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		plain = plain && c.c.plain && c.elem == nil
		fields = append(fields, c)
	}
	typed := make([]Field, len(fields))
	for i, f := range fields {
		typed[i] = Field{Name: f.name, Type: f.c.t}
	}
	switch kind {
	case "row":
		return compileRow(fields, NewRow(typed...), plain), nil
	case "tuple":
		if len(fields) > 25 {
			return nil, fmt.Errorf("%s: a tuple has at most 25 fields", t)
		}
		types := make([]*Type, len(fields))
		for i, f := range fields {
			types[i] = f.c.t
		}
		return compileTuple(fields, NewTuple(types...), plain), nil
	case "pojo":
		if class == "" {
			return nil, fmt.Errorf("%s: the tag of a POJO names its class: pojo=com.example.Order", t)
		}
		typ := NewPOJO(class, typed...)
		sorted := make([]fieldCodec, len(fields))
		for i := range typ.Fields {
			if i > 0 && typ.Fields[i].Name == typ.Fields[i-1].Name {
				return nil, fmt.Errorf("%s: two fields are named %s", t, typ.Fields[i].Name)
			}
			for _, f := range fields {
				if f.name == typ.Fields[i].Name {
					sorted[i] = f
				}
			}
		}
		return compilePOJO(sorted, typ, plain), nil
	}
	return nil, fmt.Errorf("%s: a struct is no %q", t, kind)
}

func compileTuple(fields []fieldCodec, t *Type, plain bool) *codec {
	return &codec{
		t: t, plain: plain,
		append: func(dst []byte, p unsafe.Pointer) []byte {
			if len(fields) == 0 {
				return append(dst, 0x2a)
			}
			for i := range fields {
				dst = fields[i].append(dst, p)
			}
			return dst
		},
		read: func(b []byte, p unsafe.Pointer) (int, error) {
			if len(fields) == 0 {
				if len(b) == 0 {
					return 0, ErrShort
				}
				return 1, nil
			}
			n := 0
			for i := range fields {
				m, err := fields[i].read(b[n:], p)
				if err != nil {
					return 0, inField(moved(err, n), t, i)
				}
				n += m
			}
			return n, nil
		},
	}
}

func compileRow(fields []fieldCodec, t *Type, plain bool) *codec {
	size := (len(fields) + 2 + 7) / 8
	return &codec{
		t: t, plain: plain,
		append: func(dst []byte, p unsafe.Pointer) []byte {
			at := len(dst)
			for range size {
				dst = append(dst, 0)
			}
			for i := range fields {
				if fields[i].null(p) {
					dst[at+(i+2)>>3] |= 0x80 >> ((i + 2) & 7)
				} else {
					dst = fields[i].append(dst, p)
				}
			}
			return dst
		},
		read: func(b []byte, p unsafe.Pointer) (int, error) {
			if len(b) < size {
				return 0, ErrShort
			}
			n := size
			for i := range fields {
				if maskBit(b, i+2) {
					continue
				}
				m, err := fields[i].read(b[n:], p)
				if err != nil {
					return 0, inField(moved(err, n), t, i)
				}
				n += m
			}
			return n, nil
		},
	}
}

func compilePOJO(fields []fieldCodec, t *Type, plain bool) *codec {
	return &codec{
		t: t, plain: plain,
		append: func(dst []byte, p unsafe.Pointer) []byte {
			dst = append(dst, pojoNoSubclass)
			for i := range fields {
				if fields[i].null(p) {
					dst = append(dst, 1)
				} else {
					dst = fields[i].append(append(dst, 0), p)
				}
			}
			return dst
		},
		read: func(b []byte, p unsafe.Pointer) (int, error) {
			if len(b) == 0 {
				return 0, ErrShort
			}
			switch b[0] {
			case pojoNull:
				return 1, nil
			case pojoNoSubclass:
			default:
				return 0, bad(0, "POJO flags", fmt.Sprintf("are %#02x: a subclass of %s", b[0], t.JavaClass))
			}
			n := 1
			for i := range fields {
				if n >= len(b) {
					return 0, ErrShort
				}
				null := b[n] != 0
				n++
				if null {
					continue
				}
				m, err := fields[i].read(b[n:], p)
				if err != nil {
					return 0, inField(moved(err, n), t, i)
				}
				n += m
			}
			return n, nil
		},
	}
}
