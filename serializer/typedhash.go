package serializer

import (
	"fmt"
	"sync"
	"time"
)

// Hashable tells whether keys of t have a Java hash code that can be computed from
// their bytes; the error is a *HashError.
func Hashable(t *Type, rules HashRules) error {
	switch t.Kind {
	case KindBoolean, KindByte, KindShort, KindInt, KindLong, KindFloat, KindDouble, KindChar, KindString, KindBigInt, KindBigDec, KindDate,
		KindSQLDate, KindSQLTime, KindSQLTimestamp, KindLocalDate, KindLocalTime, KindLocalDateTime, KindInstant, KindUUID:
		return nil
	case KindTuple:
		if t.JavaClass != "" && !isJavaTuple(t.JavaClass) {
			return &HashError{t, "is a Scala class"}
		}
		return hashableParts(t, rules)
	case KindRow:
		if t.enc == encBinaryRow {
			return nil
		}
		for i := range t.Fields {
			f := t.Fields[i].Type
			if f.Kind == KindArray || f.Kind == KindBytes { // of which a Row hashes the elements
				continue
			}
			if err := Hashable(f, rules); err != nil {
				return err
			}
		}
		return nil
	case KindList, KindSet, KindMap, KindNullable, KindEither:
		if t.enc == encBinaryMap || t.enc == encLinkedList {
			return &HashError{t, "is not a key"}
		}
		return hashableParts(t, rules)
	case KindPOJO:
		rule, ok := rules[t.JavaClass]
		if !ok {
			return &HashError{t, "only its class knows; give a HashRule for it"}
		}
		for _, name := range rule.Fields {
			found := false
			for i := range t.Fields {
				if t.Fields[i].Name == name {
					found = true
					if err := Hashable(t.Fields[i].Type, rules); err != nil {
						return err
					}
				}
			}
			if !found {
				return &HashError{t, fmt.Sprintf("has no field %q, which its HashRule names", name)}
			}
		}
		return nil
	case KindEnum:
		return &HashError{t, "an enum's differs from one JVM to the next"}
	case KindArray, KindBytes:
		return &HashError{t, "an array's differs from one JVM to the next"}
	case KindDynamic:
		switch t.JavaClass { // what Kryo writes of these is known
		case "java.util.UUID", "java.math.BigInteger", "java.math.BigDecimal", "java.util.Date", "java.lang.String":
			return nil
		}
	}
	return &HashError{t, "only its class knows"}
}

func hashableParts(t *Type, rules HashRules) error {
	for _, p := range t.parts() {
		if err := Hashable(p, rules); err != nil {
			return err
		}
	}
	return nil
}

// HashFunc is Java's hashCode of the values of s, by which Flink chooses a key's
// key group: see AssignKeyGroup. Basic types and tuples of them are hashed without
// being written. The function may be called by many goroutines. The error is a
// *HashError for a type of which only the class knows the hash code, unless rules
// has a rule for it, and for those that are no keys in Flink: enums and arrays.
//
// The bytes of a Kryo type do not tell which Kryo wrote them, and some are good for both
// versions. A serializer of such a type says it by a method
//
//	Kryo() KryoVersion
//
// Without it, or if that is KryoAuto, both are tried.
func HashFunc[T any](s Serializer[T], rules HashRules) (func(v T) int32, error) {
	if err := Hashable(s.Type(), rules); err != nil {
		return nil, err
	}
	if f := directHash(s); f != nil {
		return f, nil
	}
	type scratch struct {
		buf []byte
		h   *Hasher
	}
	kryo := KryoAuto
	if k, ok := s.(interface{ Kryo() KryoVersion }); ok {
		kryo = k.Kryo()
	}
	pool := sync.Pool{New: func() any { return &scratch{h: NewHasher(s.Type(), rules, kryo)} }}
	return func(v T) int32 {
		x := pool.Get().(*scratch)
		x.buf = s.Append(x.buf[:0], v)
		code, _, err := x.h.HashCode(x.buf)
		pool.Put(x)
		if err != nil {
			panic("serializer: hash of what was just written: " + err.Error())
		}
		return code
	}, nil
}

// directHash hashes without bytes, or is nil.
func directHash[T any](s Serializer[T]) func(T) int32 {
	if h, ok := s.(interface{ directHash() func(T) int32 }); ok {
		return h.directHash()
	}
	return nil
}

func (boolSerializer) directHash() func(bool) int32   { return hashBool }
func (int8Serializer) directHash() func(int8) int32   { return func(v int8) int32 { return int32(v) } }
func (int16Serializer) directHash() func(int16) int32 { return func(v int16) int32 { return int32(v) } }
func (charSerializer) directHash() func(uint16) int32 {
	return func(v uint16) int32 { return int32(v) }
}
func (int32Serializer) directHash() func(int32) int32     { return func(v int32) int32 { return v } }
func (int64Serializer) directHash() func(int64) int32     { return hashLong }
func (float32Serializer) directHash() func(float32) int32 { return hashFloat }
func (float64Serializer) directHash() func(float64) int32 { return hashDouble }
func (stringSerializer) directHash() func(string) int32   { return HashString }

// HashString is Java's String.hashCode.
func HashString(s string) int32 {
	h := int32(0)
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			h = 0
			forEachUnit([]byte(s), func(u uint16) { h = 31*h + int32(u) })
			return h
		}
		h = 31*h + int32(s[i])
	}
	return h
}

func (s timeSerializer) directHash() func(time.Time) int32 {
	switch Kind(s) {
	case KindInstant:
		return func(v time.Time) int32 { return hashLong(v.Unix()) + 51*int32(v.Nanosecond()) }
	case KindDate, KindSQLTimestamp:
		return func(v time.Time) int32 { return hashLong(v.UnixMilli()) }
	}
	return nil
}

func (s *tuple2Serializer[A, B]) directHash() func(Pair[A, B]) int32 {
	a, b := directHash(s.a), directHash(s.b)
	if a == nil || b == nil {
		return nil
	}
	return func(v Pair[A, B]) int32 { return 31*a(v.F0) + b(v.F1) }
}

func (s *tuple3Serializer[A, B, C]) directHash() func(Triple[A, B, C]) int32 {
	a, b, c := directHash(s.a), directHash(s.b), directHash(s.c)
	if a == nil || b == nil || c == nil {
		return nil
	}
	return func(v Triple[A, B, C]) int32 { return 31*(31*a(v.F0)+b(v.F1)) + c(v.F2) }
}
