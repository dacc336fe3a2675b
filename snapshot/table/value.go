package table

import (
	"encoding/binary"
	"math/big"
	"strings"
)

// Value is value i as a Go value: nil, bool, int64 (integers, Date, Time and
// Timestamp as they are counted), float64, string (Text, JSON, and a Decimal's
// digits with its point), []byte in new memory, []any for a Struct's fields and a
// List's elements, [][2]any for a Map.
func (v *Vector) Value(i int) any {
	if v.Null(i) {
		return nil
	}
	switch v.Column.Type {
	case Boolean:
		return v.Data[i] != 0
	case Float32, Float64:
		return v.Float(i)
	case Text, JSON:
		return string(v.Bytes(i))
	case Binary:
		return append([]byte{}, v.Bytes(i)...)
	case Decimal:
		return v.DecimalText(i)
	case Struct:
		out := make([]any, len(v.Fields))
		for k, f := range v.Fields {
			out[k] = f.Value(i)
		}
		return out
	case List:
		out := []any{}
		for k := v.Offsets[i]; k < v.Offsets[i+1]; k++ {
			out = append(out, v.Fields[0].Value(int(k)))
		}
		return out
	case Map:
		out := [][2]any{}
		for k := v.Offsets[i]; k < v.Offsets[i+1]; k++ {
			out = append(out, [2]any{v.Fields[0].Value(int(k)), v.Fields[1].Value(int(k))})
		}
		return out
	}
	return v.Int(i)
}

// DecimalInt is the unscaled value i of a Decimal.
func (v *Vector) DecimalInt(i int) *big.Int {
	lo, hi := binary.LittleEndian.Uint64(v.Data[16*i:]), int64(binary.LittleEndian.Uint64(v.Data[16*i+8:]))
	x := new(big.Int).Lsh(big.NewInt(hi), 64)
	return x.Or(x, new(big.Int).SetUint64(lo))
}

// DecimalText is value i of a Decimal in digits: -12.30.
func (v *Vector) DecimalText(i int) string {
	x := v.DecimalInt(i)
	s := new(big.Int).Abs(x).String()
	if n := int(v.Column.Scale); n > 0 {
		if len(s) <= n {
			s = strings.Repeat("0", n+1-len(s)) + s
		}
		s = s[:len(s)-n] + "." + s[len(s)-n:]
	}
	if x.Sign() < 0 {
		s = "-" + s
	}
	return s
}
