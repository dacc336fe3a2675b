package serializer

import (
	"math"
	"math/big"
	"strconv"
)

func appendInt(dst []byte, v int64) []byte { return strconv.AppendInt(dst, v, 10) }

// appendPadded writes v, which is not negative, with at least width digits.
func appendPadded(dst []byte, v int64, width int) []byte {
	var digits [20]byte
	i := len(digits)
	for v > 0 || width > 0 {
		i--
		digits[i] = byte('0' + v%10)
		v /= 10
		width--
	}
	return append(dst, digits[i:]...)
}

// appendFloat writes a float as Java's Double.toString or Float.toString (JDK 19
// and newer, the shortest digits) does: 1.0, 1.0E10, 4.9E-324, NaN, -Infinity.
func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...)
	case v == 0:
		if math.Signbit(v) {
			dst = append(dst, '-')
		}
		return append(dst, "0.0"...)
	}
	// Shortest digits d.ddde±xx, at least two of them.
	var buf [32]byte
	e := strconv.AppendFloat(buf[:0], v, 'e', -1, bits)
	if e[0] == '-' {
		dst = append(dst, '-')
		e = e[1:]
	}
	if e[1] != '.' { // one digit: of the two-digit decimals Java takes the nearest
		e = strconv.AppendFloat(buf[:0], math.Abs(v), 'e', 1, bits)
	}
	k := len(e) - 1
	exp := 0
	for mul := 1; e[k] != '-' && e[k] != '+'; k-- {
		exp += int(e[k]-'0') * mul
		mul *= 10
	}
	if e[k] == '-' {
		exp = -exp
	}
	k--                                 // at the 'e'
	digits := e[:1+copy(e[1:], e[2:k])] // without the point
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	switch {
	case exp >= 0 && exp < 7:
		for i := 0; i <= exp; i++ {
			if i < len(digits) {
				dst = append(dst, digits[i])
			} else {
				dst = append(dst, '0')
			}
		}
		dst = append(dst, '.')
		if len(digits) > exp+1 {
			return append(dst, digits[exp+1:]...)
		}
		return append(dst, '0')
	case exp < 0 && exp >= -3:
		dst = append(dst, "0."...)
		for i := -1; i > exp; i-- {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	dst = append(dst, digits[0], '.')
	if len(digits) > 1 {
		dst = append(dst, digits[1:]...)
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, 'E')
	return appendInt(dst, int64(exp))
}

// maxBigBytes bounds a big integer: more is no number that a job counts with, and
// writing it in decimal takes longer than reading it.
const maxBigBytes = 1 << 20

// bigOf is the number in big-endian two's complement bytes.
func bigOf(b []byte) *big.Int {
	x := new(big.Int).SetBytes(b)
	if len(b) > 0 && b[0]&0x80 != 0 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return x
}

// appendBigInt writes two's complement bytes in decimal, without allocating for
// up to eight of them.
func appendBigInt(dst, b []byte) []byte {
	if len(b) > 8 {
		return bigOf(b).Append(dst, 10)
	}
	return appendInt(dst, smallOf(b))
}

// smallOf is the number in at most eight bytes of two's complement.
func smallOf(b []byte) int64 {
	var v int64
	if len(b) > 0 && b[0]&0x80 != 0 {
		v = -1
	}
	for _, c := range b {
		v = v<<8 | int64(c)
	}
	return v
}

// appendDecimal writes unscaled × 10^-scale as Java's BigDecimal.toString does.
func appendDecimal(dst, unscaled []byte, scale int32) []byte {
	var buf [48]byte
	digits := appendBigInt(buf[:0], unscaled)
	if scale == 0 {
		return append(dst, digits...)
	}
	if digits[0] == '-' {
		dst = append(dst, '-')
		digits = digits[1:]
	}
	exp := int64(len(digits)-1) - int64(scale)
	if scale > 0 && exp >= -6 {
		point := int64(len(digits)) - int64(scale)
		if point > 0 {
			dst = append(dst, digits[:point]...)
			dst = append(dst, '.')
			return append(dst, digits[point:]...)
		}
		dst = append(dst, "0."...)
		for ; point < 0; point++ {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	if exp != 0 {
		dst = append(dst, 'E')
		if exp > 0 {
			dst = append(dst, '+')
		}
		dst = appendInt(dst, exp)
	}
	return dst
}
