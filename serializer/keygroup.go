package serializer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/tidemark/tidemark/internal/damage"
)

// AssignKeyGroup is the key group of a key with that Java hash code, from 0 to
// maxParallelism-1, as Flink's KeyGroupRangeAssignment computes it.
func AssignKeyGroup(hashCode int32, maxParallelism int) int {
	return int(murmurOf(hashCode) % int32(maxParallelism))
}

// murmurOf is Flink's MathUtils.murmurHash: MurmurHash3 of the four bytes, seed
// 0, made non-negative.
func murmurOf(code int32) int32 {
	h := finishMurmur(mixMurmur(0, uint32(code)), 4)
	switch {
	case h >= 0:
		return h
	case h != math.MinInt32:
		return -h
	}
	return 0
}

func mixMurmur(h, k uint32) uint32 {
	k *= 0xcc9e2d51
	k = bits.RotateLeft32(k, 15)
	k *= 0x1b873593
	h ^= k
	h = bits.RotateLeft32(h, 13)
	return h*5 + 0xe6546b64
}

func finishMurmur(h, length uint32) int32 {
	h ^= length
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return int32(h)
}

// HashBinary is the hash code of a BinaryRow's image and of other binary data of
// Flink's table runtime: MurmurHash3 with seed 42 over words of four bytes in
// little-endian order; trailing bytes are words each, sign-extended.
func HashBinary(image []byte) int32 {
	h := uint32(42)
	b := image
	for ; len(b) >= 4; b = b[4:] {
		h = mixMurmur(h, binary.LittleEndian.Uint32(b))
	}
	for _, c := range b {
		h = mixMurmur(h, uint32(int32(int8(c))))
	}
	return finishMurmur(h, uint32(len(image)))
}

// HashRule says how a class's hashCode is made of its fields: beginning with
// Start, for each field h = 31*h + the field's hash code, 0 for null.
//
//	Objects.hash(a, b)      HashRule{1, {"a", "b"}}
//	31 * a + b.hashCode()   HashRule{0, {"a", "b"}}
type HashRule struct {
	Start  int32
	Fields []string
}

// HashRules are the rules of classes that define hashCode, by Java class.
type HashRules map[string]HashRule

// HashError says that a type's hash code cannot be computed from its bytes.
type HashError struct {
	Type   *Type
	Reason string
}

func (e *HashError) Error() string {
	return fmt.Sprintf("hash code of %s: %s", e.Type, e.Reason)
}

// Hasher computes Java hash codes of serialized values of one type. Not for
// concurrent use.
type Hasher struct {
	d     *Decoder
	rules HashRules
	leaf  hashLeaf
}

// NewHasher prepares to hash values of t. rules may be nil: then a class with a
// hashCode of its own gives a HashError. Kryo tells which Kryo wrote values of
// Kryo types.
func NewHasher(t *Type, rules HashRules, kryo KryoVersion) *Hasher {
	return &Hasher{d: NewDecoder(t, &DecodeOptions{Kryo: kryo}), rules: rules}
}

// HashCode is Java's hashCode of the object that the value at the start of b is,
// and the value's size. It is a *HashError where only the class knows.
func (h *Hasher) HashCode(b []byte) (code int32, n int, err error) {
	h.d.reset()
	return h.at(h.d.t, b, 0, false)
}

// KeyGroup is the key group of the key at the start of b, and the key's size.
func (h *Hasher) KeyGroup(b []byte, maxParallelism int) (keyGroup, n int, err error) {
	code, n, err := h.HashCode(b)
	if err != nil {
		return 0, n, err
	}
	return AssignKeyGroup(code, maxParallelism), n, nil
}

// KeyGroup is the key group of a serialized key, which fills key.
func KeyGroup(t *Type, key []byte, maxParallelism int) (int, error) {
	kg, n, err := NewHasher(t, nil, KryoAuto).KeyGroup(key, maxParallelism)
	if err == nil && n != len(key) {
		err = bad(n, "key", fmt.Sprintf("leaves %d bytes", len(key)-n))
	}
	if errors.Is(err, ErrShort) {
		err = &damage.Error{Offset: int64(len(key)), Field: "key", Detail: "ends too early", Err: damage.ErrCorrupt}
	}
	return kg, err
}

func hashLong(v int64) int32 { return int32(v ^ int64(uint64(v)>>32)) }

func hashFloat(v float32) int32 {
	if v != v {
		return 0x7fc00000
	}
	return int32(math.Float32bits(v))
}

func hashDouble(v float64) int32 {
	if v != v {
		return hashLong(0x7ff8000000000000)
	}
	return hashLong(int64(math.Float64bits(v)))
}

func hashBool(v bool) int32 {
	if v {
		return 1231
	}
	return 1237
}

// at hashes the value of t at i. deep is the hash of Flink's Row of its fields:
// of lists and maps another than Java's.
func (h *Hasher) at(t *Type, b []byte, i int, deep bool) (code int32, next int, err error) {
	if t.size > 0 && len(b)-i < int(t.size) {
		return 0, i, ErrShort
	}
	switch t.enc {
	case encI32:
		return h.obj(be32(b[i:]), deep), i + 4, nil
	case encI64:
		return h.obj(hashLong(be64(b[i:])), deep), i + 8, nil
	case encString, encStringValue:
		n, i, ok, err := units(b, i, t.enc == encString)
		if err != nil || !ok {
			return 0, i, err
		}
		var code int32
		for ; n > 0; n-- {
			var u uint16
			if u, i, err = unit(b, i); err != nil {
				return 0, i, err
			}
			code = 31*code + int32(u)
		}
		return h.obj(code, deep), i, nil
	case encTuple, encTuple0:
		if t.Kind != KindTuple || t.JavaClass != "" && !isJavaTuple(t.JavaClass) {
			return 0, i, &HashError{t, "is a Scala class"}
		}
		var code int32
		for k := range t.Fields {
			var c int32
			if c, i, err = h.at(t.Fields[k].Type, b, i, false); err != nil {
				return 0, i, err
			}
			code = 31*code + c
		}
		if t.enc == encTuple0 {
			i++
		}
		return h.obj(code, deep), i, nil
	case encRow:
		mask, i, bit, err := h.d.rowMask(t, b, i)
		if err != nil {
			return 0, i, err
		}
		kind := int32(0)
		if t.flag {
			kind = int32(mask[0]>>7) | int32(mask[0]>>6&1)<<1
		}
		fields := int32(1)
		for k := range t.Fields {
			var c int32
			if !maskBit(mask, bit+k) {
				if c, i, err = h.at(t.Fields[k].Type, b, i, true); err != nil {
					return 0, i, err
				}
			}
			fields = 31*fields + c
		}
		return h.obj(31*kind+fields, deep), i, nil
	case encNullable, encOption:
		null, err := h.d.flagAt(b, i)
		if err != nil {
			return 0, i, err
		}
		if t.enc == encOption {
			return 0, i, &HashError{t, "is a Scala class"}
		}
		if null {
			if len(b)-i-1 < int(t.pad) {
				return 0, i, ErrShort
			}
			return 0, i + 1 + int(t.pad), nil
		}
		return h.at(t.Args[0], b, i+1, deep)
	case encEither:
		left, err := h.d.flagAt(b, i)
		if err != nil {
			return 0, i, err
		}
		if t.Kind != KindEither || t.Class != classEither {
			return 0, i, &HashError{t, "is a Scala class"}
		}
		arg := t.Args[1]
		if left {
			arg = t.Args[0]
		}
		code, i, err := h.at(arg, b, i+1, false)
		return h.obj(code, deep), i, err
	case encList, encLinkedList, encSet, encMap, encObjectArray, encPrimArray, encStringArray, encBytes:
		return h.collection(t, b, i, deep)
	case encPOJO:
		return h.pojo(t, b, i, deep)
	case encBinaryRow:
		image, end, err := blob(b, i)
		if err != nil {
			return 0, i, err
		}
		return h.obj(HashBinary(image), deep), end, nil
	case encUTF8:
		text, end, err := blob(b, i)
		if err != nil {
			return 0, i, err
		}
		return h.obj(HashBinary(text), deep), end, nil
	case encEnum, encScalaEnum:
		return 0, i, &HashError{t, "an enum's differs from one JVM to the next"}
	case encTimeWindow, encCountWindow, encGlobalWindow, encVoidNamespace:
		return 0, i, &HashError{t, "is a namespace"}
	}
	h.leaf = hashLeaf{}
	end, err := h.d.walk(t, b, i, &h.leaf)
	if err != nil {
		return 0, i, err
	}
	if h.leaf.unknown || h.leaf.calls != 1 {
		return 0, i, &HashError{t, "only its class knows"}
	}
	if h.leaf.null {
		return 0, end, nil
	}
	return h.obj(h.leaf.code, deep), end, nil
}

// obj is the hash of an object as an element of Arrays.deepHashCode, if deep.
func (h *Hasher) obj(code int32, deep bool) int32 {
	if deep {
		return 31 + code
	}
	return code
}

func isJavaTuple(class string) bool {
	return len(class) > len(javaTuple) && class[:len(javaTuple)] == javaTuple
}

// collection hashes lists, sets, maps and arrays. An array is a key of nothing:
// its hash code is its identity. As a field of a Row its elements count.
func (h *Hasher) collection(t *Type, b []byte, i int, deep bool) (int32, int, error) {
	array := t.Kind == KindArray || t.Kind == KindBytes
	if array && !deep {
		return 0, i, &HashError{t, "an array's differs from one JVM to the next"}
	}
	elements := deep && t.enc != encPrimArray && t.enc != encBytes // of which the deep hash counts
	n, i, err := h.d.count(b, i, 0)
	if err != nil {
		return 0, i, err
	}
	if t.enc == encLinkedList && t.flag {
		return 0, i, &HashError{t, "is not a key"}
	}
	code := int32(1)
	if !deep && (t.Kind == KindMap || t.Kind == KindSet) {
		code = 0
	}
	for range n {
		var c int32
		switch t.enc {
		case encBytes:
			if i >= len(b) {
				return 0, i, ErrShort
			}
			c = int32(int8(b[i]))
			i++
		case encMap:
			if c, i, err = h.at(t.Args[0], b, i, deep); err != nil {
				return 0, i, err
			}
			null, err := h.d.flagAt(b, i)
			if err != nil {
				return 0, i, err
			}
			i++
			if !null {
				var v int32
				if v, i, err = h.at(t.Args[1], b, i, deep); err != nil {
					return 0, i, err
				}
				c ^= v
			}
			code += c
			continue
		case encSet, encObjectArray:
			flag, err := h.d.flagAt(b, i)
			if err != nil {
				return 0, i, err
			}
			i++
			if flag == (t.enc == encObjectArray) {
				if c, i, err = h.at(t.Args[0], b, i, elements); err != nil {
					return 0, i, err
				}
			}
			if t.enc == encSet {
				code += c
				continue
			}
		default:
			if c, i, err = h.at(t.Args[0], b, i, elements); err != nil {
				return 0, i, err
			}
		}
		code = 31*code + c
	}
	if deep && (t.enc == encPrimArray || t.enc == encBytes || t.enc == encSet) {
		code += 31
	}
	return code, i, nil
}

func (h *Hasher) pojo(t *Type, b []byte, i int, deep bool) (int32, int, error) {
	sub, flags, i, err := h.d.pojoHead(t, b, i)
	if err != nil {
		return 0, i, err
	}
	if flags&pojoNull != 0 {
		return 0, i, nil
	}
	if sub != nil {
		return h.at(sub, b, i, deep)
	}
	rule, ok := h.rules[t.JavaClass]
	if !ok {
		return 0, i, &HashError{t, "only its class knows; give a HashRule for it"}
	}
	codes := map[string]int32{}
	for k := range t.Fields {
		f := &t.Fields[k]
		null, err := h.d.flagAt(b, i)
		if err != nil {
			return 0, i, err
		}
		i++
		if null {
			codes[f.Name] = 0
			continue
		}
		var c int32
		needed := false
		for _, name := range rule.Fields {
			needed = needed || name == f.Name
		}
		if needed {
			c, i, err = h.at(f.Type, b, i, false)
		} else {
			i, err = h.d.skip(f.Type, b, i)
		}
		if err != nil {
			return 0, i, err
		}
		codes[f.Name] = c
	}
	code := rule.Start
	for _, name := range rule.Fields {
		c, ok := codes[name]
		if !ok {
			return 0, i, &HashError{t, fmt.Sprintf("has no field %q, which its HashRule names", name)}
		}
		code = 31*code + c
	}
	return h.obj(code, deep), i, nil
}

// hashLeaf takes a value of one part and hashes it as its Java object does.
type hashLeaf struct {
	discard
	code    int32
	calls   int
	null    bool
	unknown bool
}

func (l *hashLeaf) set(code int32) { l.code, l.calls = code, l.calls+1 }

func (l *hashLeaf) Null(*Type)                   { l.null, l.calls = true, l.calls+1 }
func (l *hashLeaf) Bool(_ *Type, v bool)         { l.set(hashBool(v)) }
func (l *hashLeaf) Begin(*Type, int)             { l.unknown = true }
func (l *hashLeaf) Opaque(*Type, string, []byte) { l.unknown = true }

func (l *hashLeaf) Int(t *Type, v int64) {
	switch t.Kind {
	case KindByte, KindShort, KindInt, KindIntervalYM:
		l.set(int32(v))
	case KindLong, KindDate, KindSQLDate, KindSQLTime, KindLocalTime, KindIntervalDT:
		l.set(hashLong(v))
	case KindLocalDate:
		y, m, d := civil(v)
		year := int32(y)
		l.set(year&^0x7ff ^ (year<<11 + int32(m)<<6 + int32(d)))
	default:
		l.unknown = true
	}
}

func (l *hashLeaf) Float(t *Type, v float64) {
	if t.Kind == KindFloat {
		l.set(hashFloat(float32(v)))
	} else {
		l.set(hashDouble(v))
	}
}

func (l *hashLeaf) Text(t *Type, s []byte) {
	if t.Kind != KindChar && t.Kind != KindString {
		l.unknown = true
		return
	}
	code := int32(0)
	forEachUnit(s, func(u uint16) { code = 31*code + int32(u) })
	l.set(code)
}

func (l *hashLeaf) Bytes(t *Type, b []byte) {
	if t.Kind != KindUUID {
		l.unknown = true
		return
	}
	x := be64(b) ^ be64(b[8:])
	l.set(int32(x>>32) ^ int32(x))
}

func (l *hashLeaf) Decimal(t *Type, unscaled []byte, scale int32) {
	code := hashBig(unscaled)
	switch t.Kind {
	case KindBigInt:
		l.set(code)
	case KindBigDec:
		l.set(31*code + scale)
	default:
		l.unknown = true
	}
}

// hashBig is BigInteger.hashCode: the magnitude's 32-bit words folded, times the
// sign.
func hashBig(twos []byte) int32 {
	x := bigOf(twos)
	mag := x.Bytes()
	var code int32
	for len(mag)%4 != 0 {
		mag = append([]byte{0}, mag...)
	}
	for ; len(mag) > 0; mag = mag[4:] {
		code = 31*code + be32(mag)
	}
	return code * int32(x.Sign())
}

func (l *hashLeaf) Time(t *Type, secs int64, nanos int32) {
	switch t.Kind {
	case KindInstant:
		l.set(hashLong(secs) + 51*nanos)
	case KindSQLTimestamp:
		l.set(hashLong(secs*1000 + int64(nanos/1e6)))
	case KindLocalDateTime:
		days := floorDiv(secs, 86400)
		y, m, d := civil(days)
		year := int32(y)
		date := year&^0x7ff ^ (year<<11 + int32(m)<<6 + int32(d))
		l.set(date ^ hashLong((secs-days*86400)*1e9+int64(nanos)))
	default:
		l.unknown = true
	}
}

// KeyGroupRange is the range of key groups of a subtask, both ends included.
func KeyGroupRange(subtask, parallelism, maxParallelism int) (first, last int) {
	return (subtask*maxParallelism + parallelism - 1) / parallelism, ((subtask+1)*maxParallelism - 1) / parallelism
}

// SubtaskOf is the subtask that owns a key group.
func SubtaskOf(keyGroup, parallelism, maxParallelism int) int {
	return keyGroup * parallelism / maxParallelism
}

// DefaultMaxParallelism is what Flink chooses for an operator that sets none.
func DefaultMaxParallelism(parallelism int) int {
	n := parallelism + parallelism/2
	p := 1
	for p < n {
		p <<= 1
	}
	return min(max(p, 128), 1<<15)
}
