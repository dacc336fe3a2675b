package serializer

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/tidemark/tidemark/internal/javaio"
)

// moment is v as seconds since the epoch and nanoseconds.
func (t *Type) moment(v any) (secs int64, nanos int32, err error) {
	switch v := v.(type) {
	case time.Time:
		return v.Unix(), int32(v.Nanosecond()), nil
	case string:
		secs, nanos, ok := parseMoment(v, t.Kind == KindInstant || t.Kind == KindTimestampLTZ || t.Kind == KindSQLTimestamp)
		if !ok {
			return 0, 0, &EncodeError{Type: t, Err: fmt.Errorf("%q is not in ISO 8601 form", v)}
		}
		return secs, nanos, nil
	case map[string]any: // SQL timestamp: milliseconds with the nanoseconds of the second
		ms, err := typeLong.integer(v["millis"])
		if err != nil {
			return 0, 0, t.refuse(v)
		}
		n, err := typeInt.integer(v["nanos"])
		if err != nil {
			return 0, 0, t.refuse(v)
		}
		if n < 0 || n > 999_999_999 {
			return 0, 0, &EncodeError{Type: t, Err: fmt.Errorf("%d ns are no part of a second", n)}
		}
		return floorDiv(ms, 1000), int32(n), nil
	}
	return 0, 0, t.refuse(v)
}

func (t *Type) encodeTime(dst []byte, v any) ([]byte, error) {
	switch t.enc {
	case encLocalDate, encDays:
		days, null, err := t.days(v)
		switch {
		case err != nil:
			return nil, err
		case null && t.enc == encDays:
			return nil, t.refuse(v)
		case null:
			return append(javaio.AppendI32(dst, math.MinInt32), 0x80, 0), nil
		case days < minDay || days > maxDay || t.enc == encDays && !t.fits(days):
			return nil, &EncodeError{Type: t, Err: fmt.Errorf("is out of range")}
		case t.enc == encDays:
			return javaio.AppendI32(dst, int32(days)), nil
		}
		return appendLocalDate(dst, days), nil
	case encLocalTime, encTimeMillis:
		nanos, null, err := t.dayTime(v)
		switch {
		case err != nil:
			return nil, err
		case null && t.enc == encTimeMillis:
			return nil, t.refuse(v)
		case null:
			return javaio.AppendI32(append(dst, 0x80, 0x80, 0), math.MinInt32), nil
		case t.enc == encTimeMillis:
			return javaio.AppendI32(dst, int32(nanos/1e6)), nil
		}
		return appendLocalTime(dst, nanos), nil
	}
	if v == nil {
		switch t.enc {
		case encSQLTimestamp:
			return javaio.AppendI32(javaio.AppendI64(dst, math.MinInt64), 0), nil
		case encInstant:
			return javaio.AppendI32(javaio.AppendI64(dst, math.MinInt64), math.MinInt32), nil
		case encLocalDateTime:
			dst = append(javaio.AppendI32(dst, math.MinInt32), 0x80, 0)
			return javaio.AppendI32(append(dst, 0x80, 0x80, 0), math.MinInt32), nil
		}
		return nil, t.refuse(v)
	}
	secs, nanos, err := t.moment(v)
	if err != nil {
		return nil, err
	}
	if err := t.inRange(secs); err != nil {
		return nil, err
	}
	switch t.enc {
	case encSQLTimestamp:
		return javaio.AppendI32(javaio.AppendI64(dst, secs*1000+int64(nanos/1e6)), nanos), nil
	case encInstant:
		return javaio.AppendI32(javaio.AppendI64(dst, secs), nanos), nil
	case encTimestamp:
		dst = javaio.AppendI64(dst, secs*1000+int64(nanos/1e6))
		if t.size == 12 {
			dst = javaio.AppendI32(dst, nanos%1e6)
		}
		return dst, nil
	}
	days := floorDiv(secs, 86400)
	return appendLocalTime(appendLocalDate(dst, days), (secs-days*86400)*1e9+int64(nanos)), nil
}

// inRange refuses a moment that the Java class of t cannot have.
func (t *Type) inRange(secs int64) error {
	least, greatest := int64(minInstant), int64(maxInstant)
	switch t.enc {
	case encSQLTimestamp, encTimestamp: // milliseconds
		least, greatest = math.MinInt64/1000+1, math.MaxInt64/1000-1
	case encLocalDateTime:
		least, greatest = minDay*86400, (maxDay+1)*86400-1
	}
	if secs < least || secs > greatest {
		return &EncodeError{Type: t, Err: fmt.Errorf("is out of range")}
	}
	return nil
}

func appendLocalDate(dst []byte, days int64) []byte {
	y, m, d := civil(days)
	return append(javaio.AppendI32(dst, int32(y)), byte(m), byte(d))
}

func appendLocalTime(dst []byte, nanos int64) []byte {
	secs := nanos / 1e9
	dst = append(dst, byte(secs/3600), byte(secs/60%60), byte(secs%60))
	return javaio.AppendI32(dst, int32(nanos%1e9))
}

func (t *Type) days(v any) (days int64, null bool, err error) {
	switch v := v.(type) {
	case nil:
		return 0, true, nil
	case CivilDate:
		return v.Days(), false, nil
	case time.Time:
		return floorDiv(v.Unix(), 86400), false, nil
	case string:
		days, rest, ok := parseDate(v)
		if !ok || rest != "" {
			return 0, false, &EncodeError{Type: t, Err: fmt.Errorf("%q is no date", v)}
		}
		return days, false, nil
	case json.Number, int64, int:
		days, err = typeInt.integer(v)
		return days, false, err
	}
	return 0, false, t.refuse(v)
}

func (t *Type) dayTime(v any) (nanos int64, null bool, err error) {
	switch v := v.(type) {
	case nil:
		return 0, true, nil
	case time.Duration:
		nanos = int64(v)
	case string:
		n, rest, ok := parseTime(v)
		if !ok || rest != "" {
			return 0, false, &EncodeError{Type: t, Err: fmt.Errorf("%q is no time of day", v)}
		}
		nanos = n
	default:
		return 0, false, t.refuse(v)
	}
	if nanos < 0 || nanos >= 86400e9 {
		return 0, false, &EncodeError{Type: t, Err: fmt.Errorf("%d ns are no time of day", nanos)}
	}
	return nanos, false, nil
}

// parseMoment reads a date and a time of day, with a Z behind it if zone is set;
// without one it is read all the same.
func parseMoment(s string, zone bool) (secs int64, nanos int32, ok bool) {
	days, rest, ok := parseDate(s)
	if !ok {
		return 0, 0, false
	}
	day := int64(0)
	if rest != "" {
		if rest[0] != 'T' && rest[0] != ' ' {
			return 0, 0, false
		}
		if day, rest, ok = parseTime(rest[1:]); !ok {
			return 0, 0, false
		}
	}
	if rest != "" && !(zone && rest == "Z") {
		return 0, 0, false
	}
	return days*86400 + day/1e9, int32(day % 1e9), true
}

// digits reads at least least and at most most digits.
func digits(s string, least, most int) (n int64, rest string, ok bool) {
	i := 0
	for i < len(s) && i < most && s[i] >= '0' && s[i] <= '9' {
		n = n*10 + int64(s[i]-'0')
		i++
	}
	return n, s[i:], i >= least
}

// parseDate reads year, month and day as Java's LocalDate.toString writes them.
func parseDate(s string) (days int64, rest string, ok bool) {
	sign := int64(1)
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	year, s, ok := digits(s, 4, 10)
	if !ok || s == "" || s[0] != '-' {
		return 0, s, false
	}
	month, s, ok := digits(s[1:], 2, 2)
	if !ok || s == "" || s[0] != '-' {
		return 0, s, false
	}
	day, s, ok := digits(s[1:], 2, 2)
	year *= sign
	if !ok || year < -1_000_000_000 || year > 1_000_000_000 || month < 1 || month > 12 || day < 1 || int(day) > monthDays(year, int(month)) {
		return 0, s, false
	}
	return daysOf(year, int(month), int(day)), s, true
}

// parseTime reads hours and minutes, seconds if there are, and a fraction.
func parseTime(s string) (nanos int64, rest string, ok bool) {
	h, s, ok := digits(s, 2, 2)
	if !ok || s == "" || s[0] != ':' {
		return 0, s, false
	}
	m, s, ok := digits(s[1:], 2, 2)
	if !ok || h > 23 || m > 59 {
		return 0, s, false
	}
	nanos = (h*3600 + m*60) * 1e9
	if s == "" || s[0] != ':' {
		return nanos, s, true
	}
	sec, s, ok := digits(s[1:], 2, 2)
	if !ok || sec > 59 {
		return 0, s, false
	}
	nanos += sec * 1e9
	if s == "" || s[0] != '.' {
		return nanos, s, true
	}
	before := len(s)
	frac, s, ok := digits(s[1:], 1, 9)
	for n := before - 1 - len(s); n < 9; n++ {
		frac *= 10
	}
	return nanos + frac, s, ok
}
