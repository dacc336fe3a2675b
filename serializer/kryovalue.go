package serializer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Kryo value is one call of writeClassAndObject with references on:
//
//	varint class   0 null; 1 a class by name: varint name index, the name at its first
//	               mention; k ≥ 2 the registered class k-2
//	varint marker  for all classes but boxed primitives and, in Kryo 5, enums: 0 null,
//	               1 a new object, r ≥ 2 the object that was new as number r-2
//	payload        as the class's serializer wrote it
//
// Varints are unsigned LEB128. What is read here are the classes whose serializers
// are Kryo's or Flink's own; the fields of any other class stand in the bytes
// without names or types. Source: Kryo 2.24 and 5.6, DefaultClassResolver.java,
// MapReferenceResolver.java, DefaultSerializers.java, CollectionSerializer.java,
// MapSerializer.java, DefaultArraySerializers.java; Flink,
// FlinkChillPackageRegistrar.java; checked on files of Flink 1.20 and 2.3.

type kryoState struct {
	version KryoVersion // asked for
	current KryoVersion // of the value being read
	settled KryoVersion // what the last value that only one version fits had
	root    *Type       // whose registrations hold
	names   []string    // of classes, in the order of their first mention
	nameAt  []int       // where that was
	refs    []kryoRef   // objects, likewise
	// generics are the classes of the parts of the collection about to be read, where
	// its field's declaration tells them.
	generics [2]*Type
	generic  [2]kryoClass
	replay   bool // a reference is being followed: nothing new is recorded
	left     int  // steps of following references still allowed
}

type kryoRef struct {
	class kryoClass
	at    int // of the payload
}

// kryoClass is a class as a value mentions it.
type kryoClass struct {
	name string
	read func(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error)
	t    *Type // what Visitor calls name
	// boxed: no reference marker.
	boxed bool
}

// maxReplay bounds the work of following references in one value.
const maxReplay = 10000

func (d *Decoder) walkKryo(t *Type, b []byte, i int, v Visitor) (int, error) {
	k := &d.kryo
	if k.current != 0 { // a Kryo value inside one, through framedPart
		return d.kryoValue(t, b, i, v)
	}
	k.left = maxReplay
	defer func() { k.current = 0 }()
	if k.current = k.version; k.current == KryoAuto {
		k.current = d.tellKryo(t, b, i)
	}
	return d.kryoValue(t, b, i, v)
}

// tellKryo tries both versions on the value at i.
func (d *Decoder) tellKryo(t *Type, b []byte, i int) KryoVersion {
	k := &d.kryo
	fits := func(version KryoVersion) bool {
		k.current = version
		swallowed, depth := d.swallowed, d.depth
		end, err := d.kryoValue(t, b, i, discard{})
		ok := err == nil && !(d.swallowed && !swallowed) && (!d.framed || end == len(b) || t != d.t)
		d.swallowed, d.depth = swallowed, depth
		return ok
	}
	two, five := fits(Kryo2), fits(Kryo5)
	switch {
	case two && !five:
		k.settled = Kryo2
	case five && !two:
		k.settled = Kryo5
	}
	if k.settled == 0 {
		return Kryo2
	}
	return k.settled
}

// kryoValue reads one writeClassAndObject.
func (d *Decoder) kryoValue(t *Type, b []byte, i int, v Visitor) (int, error) {
	k := &d.kryo
	k.names, k.nameAt, k.refs, k.replay, k.root = k.names[:0], k.nameAt[:0], k.refs[:0], false, t
	return d.kryoObject(t, b, i, v)
}

// kryoObject reads class, marker and payload.
func (d *Decoder) kryoObject(t *Type, b []byte, i int, v Visitor) (int, error) {
	if d.depth++; d.depth > maxDepth {
		return i, bad(i, "Kryo object", "is nested too deep")
	}
	c, end, null, err := d.kryoClass(t, b, i)
	if err != nil {
		return i, err
	}
	if null {
		v.Null(t)
	} else if end, err = d.kryoPayload(&c, b, end, v); err != nil {
		return i, err
	}
	d.depth--
	return end, nil
}

// kryoPayload reads marker and payload of an object whose class is known, as
// writeObject and writeObjectOrNull write them; for a boxed class that may be null
// the marker is read by kryoOrNull.
func (d *Decoder) kryoPayload(c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	k := &d.kryo
	if !c.boxed {
		marker, next, err := kryoVarint(b, i)
		if err != nil {
			return i, err
		}
		i = next
		switch {
		case marker == 0:
			v.Null(c.t)
			return i, nil
		case marker == 1:
			if !k.replay {
				k.refs = append(k.refs, kryoRef{*c, i})
			}
		default:
			return i, d.kryoFollow(int(marker)-2, b, i, v)
		}
	}
	if c.read == nil {
		return d.opaqueHere(c.t, c.name, b, i, v)
	}
	return c.read(d, c, b, i, v)
}

// kryoOrNull is writeObjectOrNull: a boxed class has a marker too, 0 or 1.
func (d *Decoder) kryoOrNull(c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	if c.boxed {
		if i >= len(b) {
			return i, ErrShort
		}
		switch b[i] {
		case 0:
			v.Null(c.t)
			return i + 1, nil
		case 1:
			i++
		default:
			return i, bad(i, "Kryo marker", fmt.Sprintf("is %d", b[i]))
		}
	}
	return d.kryoPayload(c, b, i, v)
}

// kryoFollow visits an object once more.
func (d *Decoder) kryoFollow(n int, b []byte, i int, v Visitor) error {
	k := &d.kryo
	if n < 0 || n >= len(k.refs) {
		return bad(i, "Kryo reference", fmt.Sprintf("is to object %d of %d", n, len(k.refs)))
	}
	if k.left--; k.left < 0 || d.depth >= maxDepth {
		return bad(i, "Kryo reference", "is one of too many")
	}
	ref := k.refs[n]
	if ref.class.read == nil {
		return &OpaqueError{Class: ref.class.name, Offset: ref.at}
	}
	replay := k.replay
	k.replay = true
	d.depth++
	_, err := ref.class.read(d, &ref.class, b, ref.at, v)
	d.depth--
	k.replay = replay
	return err
}

// kryoClass reads a class.
func (d *Decoder) kryoClass(t *Type, b []byte, i int) (c kryoClass, next int, null bool, err error) {
	k := &d.kryo
	tag, next, err := kryoVarint(b, i)
	switch {
	case err != nil:
		return c, i, false, err
	case tag == 0:
		return c, next, true, nil
	case tag >= 2:
		name := t.kryoRegistered(int(tag) - 2)
		if name == "" {
			name = t.kryoUnknown(int(tag) - 2)
		}
		return d.kryoNamed(name), next, false, nil
	}
	n, next, err := kryoVarint(b, next)
	if err != nil {
		return c, i, false, err
	}
	// Following a reference meets names again that were first mentioned in it:
	// those stand in the bytes, and in the table.
	if int(n) > len(k.names) {
		return c, i, false, bad(i, "Kryo class", fmt.Sprintf("has name %d of %d", n, len(k.names)))
	}
	if int(n) == len(k.names) || k.replay && d.kryoFirst(int(n), i) {
		name, end, ok, err := d.kryoString(b, next)
		if err != nil {
			return c, i, false, err
		}
		if !ok || !plausibleKryoClass(name) {
			return c, i, false, bad(next, "Kryo class name", fmt.Sprintf("is %.60q", name))
		}
		if int(n) == len(k.names) {
			k.names = append(k.names, string(name))
			k.nameAt = append(k.nameAt[:n], i)
		}
		return d.kryoNamed(k.names[n]), end, false, nil
	}
	return d.kryoNamed(k.names[n]), next, false, nil
}

// kryoFirst reports whether the mention of name n at i is its first.
func (d *Decoder) kryoFirst(n, i int) bool { return d.kryo.nameAt[n] == i }

func plausibleKryoClass(name []byte) bool {
	if len(name) == 0 || len(name) > 1024 {
		return false
	}
	for _, c := range name {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// kryoRegistered is the class of a registered id, or "".
func (t *Type) kryoRegistered(id int) string {
	if name, ok := kryoIDs[id]; ok {
		return name
	}
	if t.Kryo == nil || id < kryoFirstID {
		return ""
	}
	next := kryoFirstID
	for _, r := range t.Kryo.Registrations {
		if _, known := kryoIDOf[r.Class]; known {
			continue // keeps its id
		}
		if next == id {
			return r.Class
		}
		next++
	}
	return ""
}

// kryoUnknown names an id that nothing names for sure. Without Flink's own
// registrations, as in its unit tests, a job's classes begin at 10; with Scala on the
// class path that is one of Scala's.
func (t *Type) kryoUnknown(id int) string {
	name := fmt.Sprintf("kryo id %d", id)
	if t.Kryo != nil && id >= 10 && id-10 < len(t.Kryo.Registrations) {
		name += ", perhaps " + t.Kryo.Registrations[id-10].Class
	}
	return name
}

// kryoFirstID is the id of the first class that a job or Flink's type system
// registers, behind those that are always there.
const kryoFirstID = 85

var kryoIDs = map[int]string{
	0: "int", 1: "java.lang.String", 2: "float", 3: "boolean", 4: "byte", 5: "char", 6: "short", 7: "long", 8: "double", 9: "void",
	73: "java.util.Arrays$ArrayList", 74: "java.util.BitSet", 75: "java.util.PriorityQueue", 76: "java.util.regex.Pattern",
	77: "java.sql.Date", 78: "java.sql.Time", 79: "java.sql.Timestamp", 80: "java.net.URI", 81: "java.net.InetSocketAddress",
	82: "java.util.UUID", 83: "java.util.Locale", 84: "java.text.SimpleDateFormat",
}

var kryoIDOf = func() map[string]int {
	m := map[string]int{
		"java.lang.Integer": 0, "java.lang.Float": 2, "java.lang.Boolean": 3, "java.lang.Byte": 4, "java.lang.Character": 5,
		"java.lang.Short": 6, "java.lang.Long": 7, "java.lang.Double": 8,
	}
	for id, name := range kryoIDs {
		m[name] = id
	}
	return m
}()

// kryoNamed is a class by its name.
func (d *Decoder) kryoNamed(name string) kryoClass {
	if c, ok := kryoClasses[name]; ok {
		return c
	}
	if t := d.classes[name]; t != nil && t.Kind == KindPOJO {
		return kryoClass{name: name, t: t, read: kryoFields}
	}
	if t := d.classes[name]; t != nil && t.Kind == KindEnum {
		return kryoClass{name: name, t: t, read: kryoEnum, boxed: d.kryo.current == Kryo5}
	}
	return kryoClass{name: name, t: &Type{JavaClass: name}}
}

// Types that Visitor calls of Kryo values name.
var (
	typeKryoDate   = plain(KindDate, encMillis)
	typeKryoSQL    = [...]*Type{plain(KindSQLDate, encMillis), plain(KindSQLTime, encMillis)}
	typeKryoSQLTS  = plain(KindSQLTimestamp, encSQLTimestamp)
	typeKryoUUID   = &Type{Kind: KindUUID}
	typeKryoBigInt = plain(KindBigInt, encBigInt)
	typeKryoBigDec = plain(KindBigDec, encBigDec)
	typeAny        = &Type{Kind: KindDynamic}
	typeAnyList    = &Type{Kind: KindList, Args: []*Type{typeAny}}
	typeAnySet     = &Type{Kind: KindSet, Args: []*Type{typeAny}}
	typeAnyArray   = &Type{Kind: KindArray, Args: []*Type{typeAny}}
	typeAnyMap     = &Type{Kind: KindMap, Args: []*Type{typeAny, typeAny}}
)

var kryoClasses map[string]kryoClass

func init() {
	m := map[string]kryoClass{}
	add := func(t *Type, read func(*Decoder, *kryoClass, []byte, int, Visitor) (int, error), boxed bool, names ...string) {
		for _, n := range names {
			m[n] = kryoClass{name: n, t: t, read: read, boxed: boxed}
		}
	}
	add(typeInt, kryoNumber, true, "int", "java.lang.Integer")
	add(typeLong, kryoNumber, true, "long", "java.lang.Long")
	add(typeShort, kryoFixed, true, "short", "java.lang.Short")
	add(typeByte, kryoFixed, true, "byte", "java.lang.Byte")
	add(typeChar, kryoFixed, true, "char", "java.lang.Character")
	add(typeBool, kryoFixed, true, "boolean", "java.lang.Boolean")
	add(typeFloat, kryoFixed, true, "float", "java.lang.Float")
	add(typeDouble, kryoFixed, true, "double", "java.lang.Double")
	add(typeString, kryoText, false, "java.lang.String")
	add(typeKryoUUID, kryoUUID, false, "java.util.UUID")
	add(typeKryoDate, kryoMillis, false, "java.util.Date")
	add(typeKryoSQL[0], kryoMillis, false, "java.sql.Date")
	add(typeKryoSQL[1], kryoMillis, false, "java.sql.Time")
	add(typeKryoSQLTS, kryoTimestamp, false, "java.sql.Timestamp")
	add(typeKryoBigInt, kryoBigInt, false, "java.math.BigInteger")
	add(typeKryoBigDec, kryoBigDec, false, "java.math.BigDecimal")
	add(typeBytes, kryoBytes, false, "[B")
	for name, elem := range map[string]*Type{"[Z": typeBool, "[S": typeShort, "[I": typeInt, "[J": typeLong, "[F": typeFloat, "[D": typeDouble, "[C": typeChar} {
		add((&Type{Kind: KindArray, enc: encPrimArray, Args: []*Type{elem}}).finish(), kryoPrimitives, false, name)
	}
	add((&Type{Kind: KindArray, enc: encStringArray, Args: []*Type{typeString}}).finish(), kryoArray, false, "[Ljava.lang.String;")
	add(typeAnyArray, kryoArray, false, "[Ljava.lang.Object;")
	add(typeAnyList, kryoCollection, false, "java.util.ArrayList", "java.util.LinkedList", "java.util.Vector", "java.util.Stack",
		"java.util.ArrayDeque", "java.util.concurrent.CopyOnWriteArrayList", "java.util.concurrent.ConcurrentLinkedQueue",
		"java.util.concurrent.ConcurrentLinkedDeque", "java.util.concurrent.LinkedBlockingQueue")
	add(typeAnySet, kryoCollection, false, "java.util.HashSet", "java.util.LinkedHashSet", "java.util.concurrent.CopyOnWriteArraySet")
	add(typeAnySet, kryoSorted, false, "java.util.TreeSet", "java.util.concurrent.ConcurrentSkipListSet")
	add(typeAnyMap, kryoMap, false, "java.util.HashMap", "java.util.LinkedHashMap", "java.util.Hashtable", "java.util.IdentityHashMap",
		"java.util.WeakHashMap", "java.util.concurrent.ConcurrentHashMap")
	add(typeAnyMap, kryoSorted, false, "java.util.TreeMap", "java.util.concurrent.ConcurrentSkipListMap")
	add(typeAnyList, kryoEmpty, false, "java.util.Collections$EmptyList")
	add(typeAnySet, kryoEmpty, false, "java.util.Collections$EmptySet")
	add(typeAnyMap, kryoEmpty, false, "java.util.Collections$EmptyMap")
	add(typeAnyList, kryoSingleton, false, "java.util.Collections$SingletonList")
	add(typeAnySet, kryoSingleton, false, "java.util.Collections$SingletonSet")
	add(typeAnyMap, kryoSingleton, false, "java.util.Collections$SingletonMap")
	add(typeAnyList, kryoAsList, false, "java.util.Arrays$ArrayList")
	add(typeAnyList, kryoImmutable, false, "java.util.ImmutableCollections$ListN", "java.util.ImmutableCollections$List12", "java.util.ImmutableCollections$SubList")
	add(typeAnySet, kryoImmutable, false, "java.util.ImmutableCollections$SetN", "java.util.ImmutableCollections$Set12")
	add(typeAnyMap, kryoImmutable, false, "java.util.ImmutableCollections$MapN", "java.util.ImmutableCollections$Map1")
	kryoClasses = m
}

// kryoVarint reads an unsigned LEB128 number of up to 32 bits.
func kryoVarint(b []byte, i int) (v uint32, next int, err error) {
	for shift := uint(0); shift < 35; shift += 7 {
		if i >= len(b) {
			return 0, i, ErrShort
		}
		c := b[i]
		i++
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			if shift == 28 && c > 15 {
				break
			}
			return v, i, nil
		}
	}
	return 0, i, bad(i-1, "Kryo varint", "exceeds 32 bits")
}

// kryoVarlong reads Kryo's variable-length long: eight groups of seven bits, then
// eight bits.
func kryoVarlong(b []byte, i int) (v uint64, next int, err error) {
	for shift := uint(0); shift < 56; shift += 7 {
		if i >= len(b) {
			return 0, i, ErrShort
		}
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i, nil
		}
	}
	if i >= len(b) {
		return 0, i, ErrShort
	}
	return v | uint64(b[i])<<56, i + 1, nil
}

// kryoString reads a string: ASCII with the high bit set on its last byte, or a
// flagged length plus one and that many UTF-16 units of one to three bytes. ok is
// false for null.
func (d *Decoder) kryoString(b []byte, i int) (text []byte, next int, ok bool, err error) {
	if i >= len(b) {
		return nil, i, false, ErrShort
	}
	out := d.text[:0]
	if b[i]&0x80 == 0 {
		for ; ; i++ {
			if i >= len(b) {
				return nil, i, false, ErrShort
			}
			out = append(out, b[i]&0x7f)
			if b[i]&0x80 != 0 {
				d.text = out
				return out, i + 1, true, nil
			}
		}
	}
	n := uint64(b[i] & 0x3f)
	more := b[i]&0x40 != 0
	i++
	for shift := uint(6); more; shift += 7 {
		if i >= len(b) {
			return nil, i, false, ErrShort
		}
		if shift > 27 {
			return nil, i, false, bad(i, "Kryo string length", "exceeds 32 bits")
		}
		n |= uint64(b[i]&0x7f) << shift
		more = b[i]&0x80 != 0
		i++
	}
	if n == 0 {
		return nil, i, false, nil
	}
	if n--; n > uint64(len(b)-i) {
		return nil, i, false, ErrShort
	}
	for ; n > 0; n-- {
		if i >= len(b) {
			return nil, i, false, ErrShort
		}
		c := b[i]
		size, u := 1, uint16(c)
		switch c >> 4 {
		case 0, 1, 2, 3, 4, 5, 6, 7:
		case 12, 13:
			size = 2
		case 14:
			size = 3
		default:
			return nil, i, false, bad(i, "Kryo string", fmt.Sprintf("has a byte %#02x", c))
		}
		if len(b)-i < size {
			return nil, i, false, ErrShort
		}
		switch size {
		case 2:
			u = uint16(c&0x1f)<<6 | uint16(b[i+1]&0x3f)
		case 3:
			u = uint16(c&0x0f)<<12 | uint16(b[i+1]&0x3f)<<6 | uint16(b[i+2]&0x3f)
		}
		out = appendUnit(out, u)
		i += size
	}
	d.text = out
	return out, i, true, nil
}

func zigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// kryoNumber reads an Integer or a Long.
func kryoNumber(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	if c.t == typeInt {
		x, i, err := kryoVarint(b, i)
		if err == nil {
			v.Int(c.t, int64(int32(x>>1)^-int32(x&1)))
		}
		return i, err
	}
	x, i, err := kryoVarlong(b, i)
	if err == nil {
		v.Int(c.t, zigzag(x))
	}
	return i, err
}

// order is the byte order of fixed-size numbers: Kryo 5 turned it round.
func (d *Decoder) kryoOrder() binary.ByteOrder {
	if d.kryo.current == Kryo5 {
		return binary.LittleEndian
	}
	return binary.BigEndian
}

// kryoFixed reads a boxed primitive of fixed size.
func kryoFixed(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	n := int(c.t.size)
	if len(b)-i < n {
		return i, ErrShort
	}
	return i + n, d.kryoFixedAt(c.t, b[i:i+n], v)
}

func (d *Decoder) kryoFixedAt(t *Type, b []byte, v Visitor) error {
	switch order := d.kryoOrder(); t.Kind {
	case KindBoolean:
		if b[0] > 1 {
			return bad(0, "Kryo boolean", fmt.Sprintf("is %d", b[0]))
		}
		v.Bool(t, b[0] == 1)
	case KindByte:
		v.Int(t, int64(int8(b[0])))
	case KindShort:
		v.Int(t, int64(int16(order.Uint16(b))))
	case KindChar:
		d.text = appendUnit(d.text[:0], order.Uint16(b))
		v.Text(t, d.text)
	case KindFloat:
		v.Float(t, float64(math.Float32frombits(order.Uint32(b))))
	case KindDouble:
		v.Float(t, math.Float64frombits(order.Uint64(b)))
	}
	return nil
}

func kryoText(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	s, i, ok, err := d.kryoString(b, i)
	switch {
	case err != nil:
		return i, err
	case !ok:
		v.Null(c.t)
	default:
		v.Text(c.t, s)
	}
	return i, nil
}

// kryoUUID reads two longs, of variable length in Kryo 2 and of fixed in Kryo 5.
func kryoUUID(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	var id [16]byte
	for k := 0; k < 16; k += 8 {
		if d.kryo.current == Kryo5 {
			if len(b)-i < 8 {
				return i, ErrShort
			}
			binary.BigEndian.PutUint64(id[k:], binary.LittleEndian.Uint64(b[i:]))
			i += 8
			continue
		}
		x, next, err := kryoVarlong(b, i)
		if err != nil {
			return i, err
		}
		binary.BigEndian.PutUint64(id[k:], uint64(zigzag(x)))
		i = next
	}
	d.num = id
	v.Bytes(c.t, d.num[:])
	return i, nil
}

// kryoMillis reads a date: an unsigned variable-length long.
func kryoMillis(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	x, i, err := kryoVarlong(b, i)
	if err == nil {
		v.Int(c.t, int64(x))
	}
	return i, err
}

// kryoTimestamp reads milliseconds and nanoseconds.
func kryoTimestamp(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	ms, i, err := kryoVarlong(b, i)
	if err != nil {
		return i, err
	}
	nanos, i, err := kryoVarint(b, i)
	if err != nil {
		return i, err
	}
	if nanos > 999_999_999 {
		return i, bad(i, "Kryo timestamp", fmt.Sprintf("has %d ns", nanos))
	}
	v.Time(c.t, floorDiv(int64(ms), 1000), int32(nanos))
	return i, nil
}

// kryoBlob reads a varint length plus one and the bytes; ok is false for null.
func kryoBlob(b []byte, i int) (p []byte, next int, ok bool, err error) {
	n, i, err := kryoVarint(b, i)
	if err != nil || n == 0 {
		return nil, i, false, err
	}
	if uint64(n-1) > uint64(len(b)-i) {
		return nil, i, false, ErrShort
	}
	return b[i : i+int(n-1)], i + int(n-1), true, nil
}

func kryoBytes(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	p, i, ok, err := kryoBlob(b, i)
	switch {
	case err != nil:
		return i, err
	case !ok:
		v.Null(c.t)
	default:
		v.Bytes(c.t, p)
	}
	return i, nil
}

func kryoBigInt(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	p, i, ok, err := kryoBlob(b, i)
	switch {
	case err != nil:
		return i, err
	case !ok:
		v.Null(c.t)
	case len(p) == 0 || len(p) > maxBigBytes:
		return i, bad(i, "Kryo big integer", fmt.Sprintf("has %d bytes", len(p)))
	default:
		v.Decimal(c.t, p, 0)
	}
	return i, nil
}

func kryoBigDec(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	p, i, ok, err := kryoBlob(b, i)
	if err != nil {
		return i, err
	}
	if !ok {
		v.Null(c.t)
		return i, nil
	}
	if len(p) == 0 || len(p) > maxBigBytes {
		return i, bad(i, "Kryo big decimal", fmt.Sprintf("has %d bytes", len(p)))
	}
	scale, i, err := kryoVarint(b, i)
	if err != nil {
		return i, err
	}
	v.Decimal(c.t, p, int32(scale>>1)^-int32(scale&1))
	return i, nil
}

// kryoLength reads a length plus one; ok is false for null. least is the fewest
// bytes of an element.
func kryoLength(b []byte, i int, least int) (n, next int, ok bool, err error) {
	c, i, err := kryoVarint(b, i)
	if err != nil || c == 0 {
		return 0, i, false, err
	}
	if n = int(c - 1); n*least > len(b)-i {
		return 0, i, false, ErrShort
	}
	return n, i, true, nil
}

// kryoPrimitives reads an array of primitives: length plus one, the elements.
func kryoPrimitives(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	elem := c.t.Args[0]
	least := int(elem.size)
	if elem == typeInt || elem == typeLong {
		least = 1
	}
	n, i, ok, err := kryoLength(b, i, least)
	if err != nil {
		return i, err
	}
	if !ok {
		v.Null(c.t)
		return i, nil
	}
	v.Begin(c.t, n)
	boxed := kryoClass{t: elem}
	for range n {
		if elem == typeInt || elem == typeLong {
			if i, err = kryoNumber(d, &boxed, b, i, v); err != nil {
				return i, err
			}
			continue
		}
		if err := d.kryoFixedAt(elem, b[i:i+least], v); err != nil {
			return i, err
		}
		i += least
	}
	v.End(c.t)
	return i, nil
}

// kryoArray reads an array of objects: length plus one, the elements; those of a
// String[] without their class.
func kryoArray(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	n, i, ok, err := kryoLength(b, i, 1)
	if err != nil {
		return i, err
	}
	if !ok {
		v.Null(c.t)
		return i, nil
	}
	v.Begin(c.t, n)
	text := kryoClasses["java.lang.String"]
	for k := range n {
		if c.t.enc == encStringArray {
			i, err = d.kryoOrNull(&text, b, i, v)
		} else {
			i, err = d.kryoObject(d.kryoRoot(), b, i, v)
		}
		if err != nil {
			return i, inElement(err, k)
		}
	}
	v.End(c.t)
	return i, nil
}

// kryoRoot is the type whose registrations hold.
func (d *Decoder) kryoRoot() *Type { return d.kryo.root }

// kryoCollection reads a collection. Kryo 2: length, elements with their class.
// Kryo 5: a length plus one with a flag that all elements have one class; then
// that class, whether there are nulls, and elements without class, or elements
// with their class.
func kryoCollection(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	return d.kryoElements(c, b, i, false, v)
}

// kryoSorted is a TreeSet or TreeMap: a comparator comes with it.
func kryoSorted(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	if c.t.Kind == KindMap {
		return d.kryoEntries(c, b, i, true, v)
	}
	return d.kryoElements(c, b, i, true, v)
}

// kryoComparator reads the comparator in front of sorted collections.
func (d *Decoder) kryoComparator(b []byte, i int) (int, error) {
	if i < len(b) && b[i] == 0 { // natural order, by far the most common
		return i + 1, nil
	}
	return d.kryoObject(d.kryoRoot(), b, i, discard{})
}

func (d *Decoder) kryoElements(c *kryoClass, b []byte, i int, sorted bool, v Visitor) (int, error) {
	var err error
	n, same := 0, false
	generic := d.takeGenerics()
	if d.kryo.current == Kryo5 {
		if i >= len(b) {
			return i, ErrShort
		}
		if b[i] == 0 {
			v.Null(c.t)
			return i + 1, nil
		}
		if n, same, i, err = kryoFlagged(b, i); err != nil {
			return i, err
		}
		if n--; n < 0 {
			v.Null(c.t)
			return i, nil
		}
		if sorted {
			if i, err = d.kryoComparator(b, i); err != nil {
				return i, err
			}
		}
	} else {
		if sorted {
			if i, err = d.kryoComparator(b, i); err != nil {
				return i, err
			}
		}
		var c uint32
		if c, i, err = kryoVarint(b, i); err != nil {
			return i, err
		}
		n = int(c)
	}
	if !same && n > len(b)-i {
		return i, ErrShort
	}
	v.Begin(c.t, n)
	if generic[0] != nil && d.kryo.current == Kryo5 { // the flag says that there are nulls
		for k := range n {
			if same {
				i, err = d.kryoOrNull(generic[0], b, i, v)
			} else {
				i, err = d.kryoPayload(generic[0], b, i, v)
			}
			if err != nil {
				return i, inElement(err, k)
			}
		}
		v.End(c.t)
		return i, nil
	}
	if same {
		elem, next, null, err := d.kryoClass(d.kryoRoot(), b, i)
		if err != nil {
			return i, err
		}
		i = next
		hasNull := false
		if null { // all elements are null
			if n > maxZeroSized {
				return i, bad(i, "Kryo collection", fmt.Sprintf("has %d nulls", n))
			}
			for range n {
				v.Null(typeAny)
			}
			v.End(c.t)
			return i, nil
		}
		if hasNull, err = d.flagAt(b, i); err != nil {
			return i, err
		}
		if i++; n > len(b)-i {
			return i, ErrShort
		}
		for k := range n {
			if hasNull {
				i, err = d.kryoOrNull(&elem, b, i, v)
			} else {
				i, err = d.kryoPayload(&elem, b, i, v)
			}
			if err != nil {
				return i, inElement(err, k)
			}
		}
		v.End(c.t)
		return i, nil
	}
	for k := range n {
		if i, err = d.kryoPart(generic[0], b, i, v); err != nil {
			return i, inElement(err, k)
		}
	}
	v.End(c.t)
	return i, nil
}

// takeGenerics gives the classes that a field's generics tell, once.
func (d *Decoder) takeGenerics() (g [2]*kryoClass) {
	for k, t := range d.kryo.generics {
		if t != nil {
			c := d.kryo.generic[k]
			g[k] = &c
		}
	}
	d.kryo.generics = [2]*Type{}
	return g
}

// kryoPart reads an element, key or value: without its class if that is known.
func (d *Decoder) kryoPart(c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	if c != nil {
		return d.kryoOrNull(c, b, i, v)
	}
	return d.kryoObject(d.kryoRoot(), b, i, v)
}

// kryoFlagged reads a number whose first byte has a flag in its high bit.
func kryoFlagged(b []byte, i int) (n int, flag bool, next int, err error) {
	flag = b[i]&0x80 != 0
	x := uint64(b[i] & 0x3f)
	more := b[i]&0x40 != 0
	i++
	for shift := uint(6); more; shift += 7 {
		if i >= len(b) {
			return 0, false, i, ErrShort
		}
		if shift > 27 {
			return 0, false, i, bad(i, "Kryo length", "exceeds 32 bits")
		}
		x |= uint64(b[i]&0x7f) << shift
		more = b[i]&0x80 != 0
		i++
	}
	if x > math.MaxInt32 {
		return 0, false, i, bad(i, "Kryo length", fmt.Sprintf("is %d", x))
	}
	return int(x), flag, i, nil
}

func kryoMap(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	return d.kryoEntries(c, b, i, false, v)
}

// kryoEntries reads a map: its size (Kryo 5: plus one), then keys and values with
// their class.
func (d *Decoder) kryoEntries(c *kryoClass, b []byte, i int, sorted bool, v Visitor) (int, error) {
	var err error
	generic := d.takeGenerics()
	five := d.kryo.current == Kryo5
	if sorted && !five {
		if i, err = d.kryoComparator(b, i); err != nil {
			return i, err
		}
	}
	x, i, err := kryoVarint(b, i)
	if err != nil {
		return i, err
	}
	n := int(x)
	if five {
		if n--; n < 0 {
			v.Null(c.t)
			return i, nil
		}
		if sorted {
			if i, err = d.kryoComparator(b, i); err != nil {
				return i, err
			}
		}
	}
	if n > (len(b)-i)/2 {
		return i, ErrShort
	}
	return d.kryoPairs(c, n, generic, b, i, v)
}

func (d *Decoder) kryoPairs(c *kryoClass, n int, generic [2]*kryoClass, b []byte, i int, v Visitor) (int, error) {
	v.Begin(c.t, n)
	var err error
	for k := range n {
		if i, err = d.kryoPart(generic[0], b, i, v); err != nil {
			return i, in(inElement(err, k), "key")
		}
		if i, err = d.kryoPart(generic[1], b, i, v); err != nil {
			return i, inElement(err, k)
		}
	}
	v.End(c.t)
	return i, nil
}

func kryoEmpty(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	v.Begin(c.t, 0)
	v.End(c.t)
	return i, nil
}

func kryoSingleton(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	if c.t.Kind == KindMap {
		return d.kryoPairs(c, 1, [2]*kryoClass{}, b, i, v)
	}
	v.Begin(c.t, 1)
	i, err := d.kryoObject(d.kryoRoot(), b, i, v)
	if err == nil {
		v.End(c.t)
	}
	return i, err
}

// kryoImmutable reads what List.of, Set.of and Map.of make: a length and elements
// with their class. Kryo 2 has no serializer for them.
func kryoImmutable(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	if d.kryo.current != Kryo5 {
		return d.opaqueHere(c.t, c.name, b, i, v)
	}
	n, i, err := kryoVarint(b, i)
	if err != nil {
		return i, err
	}
	if int(n) > len(b)-i {
		return i, ErrShort
	}
	if c.t.Kind == KindMap {
		return d.kryoPairs(c, int(n), [2]*kryoClass{}, b, i, v)
	}
	v.Begin(c.t, int(n))
	for k := range n {
		if i, err = d.kryoObject(d.kryoRoot(), b, i, v); err != nil {
			return i, inElement(err, int(k))
		}
	}
	v.End(c.t)
	return i, nil
}

// kryoAsList reads an Arrays.asList: in Kryo 5 a collection, in Kryo 2 the array
// behind it, as chill writes it.
func kryoAsList(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	if d.kryo.current == Kryo5 {
		return d.kryoElements(c, b, i, false, v)
	}
	return d.opaqueHere(c.t, c.name, b, i, v)
}

// kryoEnum reads an enum: its ordinal plus one.
func kryoEnum(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	n, next, err := kryoVarint(b, i)
	switch {
	case err != nil:
		return i, err
	case n == 0:
		v.Null(c.t)
	case int(n) > len(c.t.Symbols):
		return i, bad(i, "Kryo enum", fmt.Sprintf("is constant %d of %d", n-1, len(c.t.Symbols)))
	default:
		v.Text(c.t, d.scratch(c.t.Symbols[n-1]))
	}
	return next, nil
}

// kryoFields reads an object of a class whose fields are known, as FieldSerializer
// writes it: the fields by name, without names. A primitive stands alone; a field of
// a final class has a marker, of any other class the class too.
func kryoFields(d *Decoder, c *kryoClass, b []byte, i int, v Visitor) (int, error) {
	v.Begin(c.t, len(c.t.Fields))
	var err error
	for k := range c.t.Fields {
		f := &c.t.Fields[k]
		v.Field(k, f.Name)
		if i, err = d.kryoField(f.Type, b, i, v); err != nil {
			return i, inField(err, c.t, k)
		}
	}
	v.End(c.t)
	return i, nil
}

func (d *Decoder) kryoField(t *Type, b []byte, i int, v Visitor) (int, error) {
	switch t.Kind {
	case KindBoolean, KindByte, KindShort, KindInt, KindLong, KindFloat, KindDouble, KindChar:
		c := kryoClass{t: t}
		switch t.Kind {
		case KindInt:
			c.t = typeInt
			return kryoNumber(d, &c, b, i, v)
		case KindLong:
			return kryoNumber(d, &c, b, i, v)
		}
		return kryoFixed(d, &c, b, i, v)
	case KindNullable: // a boxed primitive
		if c, ok := kryoClasses[t.Args[0].javaName()]; ok {
			return d.kryoOrNull(&c, b, i, v)
		}
		return d.kryoField(t.Args[0], b, i, v)
	case KindString, KindBytes, KindArray:
		if c, ok := kryoClasses[t.javaName()]; ok {
			return d.kryoOrNull(&c, b, i, v)
		}
	case KindEnum:
		c := kryoClass{name: t.JavaClass, t: t, read: kryoEnum, boxed: d.kryo.current == Kryo5}
		return d.kryoOrNull(&c, b, i, v)
	case KindList, KindSet, KindMap:
		// The field's generics tell the serializers of final classes' values.
		d.kryo.generics = [2]*Type{}
		for k, a := range t.Args {
			if c, ok := kryoClasses[a.javaName()]; ok && a.Kind != KindList && a.Kind != KindMap && a.Kind != KindSet && a.Kind != KindDate {
				d.kryo.generics[k] = c.t
				d.kryo.generic[k] = c
			}
		}
		end, err := d.kryoObject(d.kryoRoot(), b, i, v)
		d.kryo.generics = [2]*Type{}
		return end, err
	}
	return d.kryoObject(d.kryoRoot(), b, i, v)
}
