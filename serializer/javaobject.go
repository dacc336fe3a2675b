package serializer

import (
	"encoding/binary"
	"errors"
	"io"
	"math/big"

	"github.com/tidemark/tidemark/internal/javaio"
)

// walkJava reads a Java object stream of one object. Collections, strings, boxed
// numbers and a few value classes of the JDK are what they mean; any other object
// is a Record of its class with its serialized fields.
func (d *Decoder) walkJava(t *Type, b []byte, i int, v Visitor) (int, error) {
	x, n, err := javaio.ReadObjectStream(b[i:])
	if err != nil {
		if !d.framed && errors.Is(err, io.ErrUnexpectedEOF) {
			return i, ErrShort
		}
		return i, in(moved(err, i), "object")
	}
	j := javaWalker{v: v, left: 1000 + 16*n, open: map[*javaio.Object]bool{}}
	j.value(x, 0)
	return i + n, nil
}

type javaWalker struct {
	v    Visitor
	left int // values still visited: shared parts multiply
	open map[*javaio.Object]bool
}

var (
	typeJavaText = plain(KindString, encString)
	typeJavaAny  = &Type{Kind: KindDynamic}
)

// value visits x. What is part of itself, or too much, is opaque.
func (j *javaWalker) value(x javaio.Value, depth int) {
	if j.left--; j.left < 0 || depth > maxDepth {
		j.v.Opaque(typeJavaAny, "", nil)
		return
	}
	switch x := javaio.Unbox(x).(type) {
	case nil:
		j.v.Null(typeJavaAny)
	case bool:
		j.v.Bool(typeBool, x)
	case int8:
		j.v.Int(typeByte, int64(x))
	case int16:
		j.v.Int(typeShort, int64(x))
	case int32:
		j.v.Int(typeInt, int64(x))
	case int64:
		j.v.Int(typeLong, x)
	case uint16:
		j.v.Text(typeChar, appendUnit(nil, x))
	case float32:
		j.v.Float(typeFloat, float64(x))
	case float64:
		j.v.Float(typeDouble, x)
	case javaio.String:
		j.v.Text(typeJavaText, []byte(x.Go()))
	case javaio.BlockData:
		j.v.Bytes(typeBytes, x)
	case *javaio.Enum:
		j.v.Text(&Type{Kind: KindEnum, JavaClass: x.Class.Name.Go()}, []byte(x.Name.Go()))
	case *javaio.Class:
		j.v.Text(typeJavaText, []byte(x.Desc.Name.Go()))
	case *javaio.ClassDesc:
		j.v.Text(typeJavaText, []byte(x.Name.Go()))
	case *javaio.Array:
		j.array(x, depth)
	case *javaio.Object:
		if j.open[x] {
			j.v.Opaque(typeJavaAny, x.ClassName(), nil)
			return
		}
		j.open[x] = true
		j.object(x, depth)
		delete(j.open, x)
	default:
		j.v.Opaque(typeJavaAny, "", nil)
	}
}

func (j *javaWalker) array(a *javaio.Array, depth int) {
	if a.Class.Name == "[B" {
		j.v.Bytes(typeBytes, a.Bytes())
		return
	}
	j.v.Begin(typeAnyArray, a.Len())
	for k := range a.Len() {
		j.value(a.At(k), depth+1)
	}
	j.v.End(typeAnyArray)
}

func (j *javaWalker) object(o *javaio.Object, depth int) {
	class := o.ClassName()
	switch class {
	case "java.util.UUID":
		hi, ok1 := javaio.Get[int64](o, "mostSigBits")
		lo, ok2 := javaio.Get[int64](o, "leastSigBits")
		if ok1 && ok2 {
			var id [16]byte
			binary.BigEndian.PutUint64(id[:], uint64(hi))
			binary.BigEndian.PutUint64(id[8:], uint64(lo))
			j.v.Bytes(typeKryoUUID, id[:])
			return
		}
	case "java.util.Date":
		if a := o.Annotation(""); len(a) > 0 {
			if b, ok := a[0].(javaio.BlockData); ok && len(b) == 8 {
				j.v.Int(typeKryoDate, be64(b))
				return
			}
		}
	case "java.math.BigInteger":
		if x := javaBig(o); x != nil {
			j.v.Decimal(typeKryoBigInt, twosOf(x), 0)
			return
		}
	case "java.math.BigDecimal":
		scale, ok := javaio.Get[int32](o, "scale")
		if u, isObject := javaio.Get[*javaio.Object](o, "intVal"); ok && isObject {
			if x := javaBig(u); x != nil {
				j.v.Decimal(typeKryoBigDec, twosOf(x), scale)
				return
			}
		}
	}
	if list, ok := javaio.List(o); ok {
		j.v.Begin(typeAnyList, len(list))
		for _, e := range list {
			j.value(e, depth+1)
		}
		j.v.End(typeAnyList)
		return
	}
	if pairs, ok := javaio.MapEntries(o); ok && len(pairs)%2 == 0 {
		j.v.Begin(typeAnyMap, len(pairs)/2)
		for _, e := range pairs {
			j.value(e, depth+1)
		}
		j.v.End(typeAnyMap)
		return
	}
	t := &Type{Kind: KindRecord, JavaClass: class}
	j.v.Begin(t, -1)
	n := 0
	for f := range o.Fields() {
		j.v.Field(n, f.Field.Name.Go())
		j.value(f.Value, depth+1)
		n++
	}
	for k, note := range o.Annotation("") {
		name := "written"
		if k > 0 {
			name = string(appendInt([]byte("written"), int64(k)))
		}
		j.v.Field(n, name)
		j.value(note, depth+1)
		n++
	}
	j.v.End(t)
}

// javaBig is a java.math.BigInteger: signum and big-endian magnitude.
func javaBig(o *javaio.Object) *big.Int {
	sign, ok1 := javaio.Get[int32](o, "signum")
	mag, ok2 := javaio.Get[*javaio.Array](o, "magnitude")
	if !ok1 || !ok2 || len(mag.Bytes()) > maxBigBytes {
		return nil
	}
	x := new(big.Int).SetBytes(mag.Bytes())
	if sign < 0 {
		x.Neg(x)
	}
	return x
}
