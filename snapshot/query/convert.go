package query

import (
	"bytes"
	"database/sql/driver"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark/tidemark/snapshot/table"
)

// sqlValue is value i of a vector as SQLite has it.
func sqlValue(v *table.Vector, i int) driver.Value {
	if v.Null(i) {
		return nil
	}
	switch v.Column.Type {
	case table.Boolean:
		return int64(v.Data[i])
	case table.Int8, table.Int16, table.Int32, table.Int64:
		return v.Int(i)
	case table.Float32, table.Float64:
		return v.Float(i)
	case table.Text:
		return string(v.Bytes(i))
	case table.JSON:
		return scalar(v.Bytes(i))
	case table.Binary:
		b := v.Bytes(i)
		return append(make([]byte, 0, len(b)), b...)
	case table.Decimal:
		return v.DecimalText(i)
	case table.Date, table.Time, table.Timestamp:
		return string(appendTime(nil, v, i))
	}
	return string(appendJSON(nil, v, i))
}

// scalar takes a number, text or boolean out of JSON: a value whose type only its
// bytes tell, such as one of Kryo, is then as one of a column with that type.
func scalar(b []byte) driver.Value {
	if len(b) == 0 || b[0] == '{' || b[0] == '[' {
		return string(b)
	}
	var x any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&x) != nil {
		return string(b)
	}
	switch x := x.(type) {
	case nil:
		return nil
	case bool:
		if x {
			return int64(1)
		}
		return int64(0)
	case string:
		return x
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		if f, err := x.Float64(); err == nil && strings.ContainsAny(x.String(), ".eE") {
			return f
		}
	}
	return string(b) // a whole number too large for SQLite: its digits
}

// appendTime appends a date as 2026-11-29, a time of day as 21:35:03.250, and a
// timestamp as 2026-11-29 21:35:03.250, with Z behind it if it is an instant: forms
// that SQLite's date functions read and that sort by time, as long as the year has
// four digits.
func appendTime(dst []byte, v *table.Vector, i int) []byte {
	x, precision := v.Int(i), int(v.Column.Precision)
	switch v.Column.Type {
	case table.Date:
		return time.Unix(x*86400, 0).UTC().AppendFormat(dst, "2006-01-02")
	case table.Time:
		if precision == 3 {
			x *= int64(time.Millisecond)
		}
		return time.Unix(0, x).UTC().AppendFormat(dst, "15:04:05"+fractions[precision])
	}
	var t time.Time
	switch precision {
	case 3:
		t = time.UnixMilli(x)
	case 6:
		t = time.UnixMicro(x)
	default:
		t = time.Unix(0, x)
	}
	dst = t.UTC().AppendFormat(dst, "2006-01-02 15:04:05"+fractions[precision])
	if v.Column.UTC {
		dst = append(dst, 'Z')
	}
	return dst
}

var fractions = map[int]string{3: ".000", 6: ".000000", 9: ".000000000"}

// appendJSON appends value i as JSON: a struct is an object, a list an array, a map
// whose keys are texts or whole numbers an object, any other an array of [key,
// value]. Decimals, dates and times are strings in the form of sqlValue, bytes
// {"base64":…}, NaN and the infinities strings.
func appendJSON(dst []byte, v *table.Vector, i int) []byte {
	if v.Null(i) {
		return append(dst, "null"...)
	}
	switch v.Column.Type {
	case table.Boolean:
		return strconv.AppendBool(dst, v.Data[i] != 0)
	case table.Int8, table.Int16, table.Int32, table.Int64:
		return strconv.AppendInt(dst, v.Int(i), 10)
	case table.Float32, table.Float64:
		return appendFloat(dst, v.Float(i), v.Column.Type == table.Float32)
	case table.Text:
		return appendString(dst, v.Bytes(i))
	case table.JSON:
		return append(dst, v.Bytes(i)...)
	case table.Binary:
		dst = append(dst, `{"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, v.Bytes(i))
		return append(dst, `"}`...)
	case table.Decimal:
		return append(append(append(dst, '"'), v.DecimalText(i)...), '"')
	case table.Date, table.Time, table.Timestamp:
		return append(appendTime(append(dst, '"'), v, i), '"')
	case table.Struct:
		dst = append(dst, '{')
		for k, f := range v.Fields {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendString(dst, []byte(f.Column.Name)), ':')
			dst = appendJSON(dst, f, i)
		}
		return append(dst, '}')
	case table.List:
		dst = append(dst, '[')
		for k := v.Offsets[i]; k < v.Offsets[i+1]; k++ {
			if k > v.Offsets[i] {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, v.Fields[0], int(k))
		}
		return append(dst, ']')
	case table.Map:
		return appendMap(dst, v, i)
	}
	return append(dst, "null"...)
}

func appendMap(dst []byte, v *table.Vector, i int) []byte {
	keys, values := v.Fields[0], v.Fields[1]
	object, text := false, false
	switch keys.Column.Type {
	case table.Int8, table.Int16, table.Int32, table.Int64:
		object = true
	case table.Text:
		object, text = true, true
	}
	opening, closing := byte('['), byte(']')
	if object {
		opening, closing = '{', '}'
	}
	dst = append(dst, opening)
	for k := int(v.Offsets[i]); k < int(v.Offsets[i+1]); k++ {
		if k > int(v.Offsets[i]) {
			dst = append(dst, ',')
		}
		switch {
		case text:
			dst = append(appendString(dst, keys.Bytes(k)), ':')
		case object:
			dst = append(strconv.AppendInt(append(dst, '"'), keys.Int(k), 10), '"', ':')
		default:
			dst = append(appendJSON(append(dst, '['), keys, k), ',')
		}
		dst = appendJSON(dst, values, k)
		if !object {
			dst = append(dst, ']')
		}
	}
	return append(dst, closing)
}

func appendFloat(dst []byte, x float64, single bool) []byte {
	bits := 64
	if single {
		bits = 32
	}
	switch {
	case math.IsNaN(x):
		return append(dst, `"NaN"`...)
	case math.IsInf(x, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, x, 'g', -1, bits)
}

// appendString appends a JSON string.
func appendString(dst, s []byte) []byte {
	plain := true
	for _, c := range s {
		if c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return append(append(append(dst, '"'), s...), '"')
	}
	b, err := json.Marshal(string(s))
	if err != nil {
		return append(dst, `""`...)
	}
	return append(dst, b...)
}
