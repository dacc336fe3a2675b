package serializer

import (
	"fmt"
	"math"
)

// Seconds of java.time.Instant.MIN and MAX.
const (
	minInstant = -31557014167219200
	maxInstant = 31556889864403199
)

const maxYear = 999_999_999 // of java.time.Year

// Days of java.time.LocalDate.MIN and MAX.
var minDay, maxDay = daysOf(-maxYear, 1, 1), daysOf(maxYear, 12, 31)

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// daysOf counts days from 1970-01-01 in the proleptic Gregorian calendar.
func daysOf(year int64, month, day int) int64 {
	if month <= 2 {
		year--
	}
	era := floorDiv(year, 400)
	yoe := year - era*400
	m := int64((month + 9) % 12)
	doy := (153*m+2)/5 + int64(day) - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

// civil is the inverse of daysOf.
func civil(days int64) (year int64, month, day int) {
	days += 719468
	era := floorDiv(days, 146097)
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	year = yoe + era*400
	day = int(doy-(153*mp+2)/5) + 1
	month = int(mp) + 3
	if month > 12 {
		month -= 12
		year++
	}
	return year, month, day
}

func leap(y int64) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

func monthDays(year int64, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if leap(year) {
			return 29
		}
		return 28
	}
	return 31
}

// localDate reads i32 year, i8 month, i8 day; 80000000 8000 is null.
func localDate(b []byte, i int) (days int64, null bool, err error) {
	year, month, day := be32(b[i:]), int8(b[i+4]), int8(b[i+5])
	if year == math.MinInt32 && month == math.MinInt8 {
		return 0, true, nil
	}
	if year < -maxYear || year > maxYear || month < 1 || month > 12 || day < 1 || int(day) > monthDays(int64(year), int(month)) {
		return 0, false, bad(i, "date", fmt.Sprintf("is %d-%d-%d", year, month, day))
	}
	return daysOf(int64(year), int(month), int(day)), false, nil
}

// localTime reads i8 hour, i8 minute, i8 second, i32 nano; 80 8000 80000000 is
// null.
func localTime(b []byte, i int) (nanos int64, null bool, err error) {
	h, m, s, n := int8(b[i]), int8(b[i+1]), int8(b[i+2]), be32(b[i+3:])
	if h == math.MinInt8 {
		return 0, true, nil
	}
	if h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 59 || n < 0 || n > 999_999_999 {
		return 0, false, bad(i, "time", fmt.Sprintf("is %d:%d:%d and %d ns", h, m, s, n))
	}
	return (int64(h)*3600+int64(m)*60+int64(s))*1e9 + int64(n), false, nil
}

// localDateTime reads both; the seconds are those of the clock.
func localDateTime(b []byte, i int) (secs int64, nanos int32, null bool, err error) {
	days, null, err := localDate(b, i)
	if err != nil {
		return 0, 0, false, err
	}
	day, nullTime, err := localTime(b, i+6)
	if err != nil {
		return 0, 0, false, err
	}
	if null != nullTime {
		return 0, 0, false, bad(i, "date and time", "are null by halves")
	}
	return days*86400 + day/1e9, int32(day % 1e9), null, nil
}

// sqlTimestamp reads i64 milliseconds and i32 nanoseconds of the second; the least
// number of milliseconds is null.
func sqlTimestamp(b []byte, i int) (secs int64, nanos int32, null bool, err error) {
	ms, nanos := be64(b[i:]), be32(b[i+8:])
	if ms == math.MinInt64 {
		return 0, 0, true, nil
	}
	if nanos < 0 || nanos > 999_999_999 {
		return 0, 0, false, bad(i+8, "nanos", fmt.Sprintf("are %d", nanos))
	}
	return floorDiv(ms, 1000), nanos, false, nil
}

// instant reads i64 seconds and i32 nanoseconds; the least number of seconds is
// null.
func instant(b []byte, i int) (secs int64, nanos int32, null bool, err error) {
	secs, nanos = be64(b[i:]), be32(b[i+8:])
	if secs == math.MinInt64 {
		return 0, 0, true, nil
	}
	if nanos < 0 || nanos > 999_999_999 || secs < minInstant || secs > maxInstant {
		return 0, 0, false, bad(i, "instant", fmt.Sprintf("is %d s and %d ns", secs, nanos))
	}
	return secs, nanos, false, nil
}

// appendDate writes a day as Java's LocalDate.toString does.
func appendDate(dst []byte, days int64) []byte {
	year, month, day := civil(days)
	switch {
	case year > 9999:
		dst = appendInt(append(dst, '+'), year)
	case year >= 0:
		dst = appendPadded(dst, year, 4)
	case year > -10000:
		dst = appendPadded(append(dst, '-'), -year, 4)
	default:
		dst = appendInt(dst, year)
	}
	dst = appendPadded(append(dst, '-'), int64(month), 2)
	return appendPadded(append(dst, '-'), int64(day), 2)
}

// appendTime writes a time of day as Java's LocalTime.toString does: without
// seconds if they and the fraction are zero, and with 3, 6 or 9 digits of
// fraction. An Instant always has seconds.
func appendTime(dst []byte, secs int64, nanos int32, always bool) []byte {
	dst = appendPadded(dst, secs/3600, 2)
	dst = appendPadded(append(dst, ':'), secs/60%60, 2)
	if secs%60 == 0 && nanos == 0 && !always {
		return dst
	}
	dst = appendPadded(append(dst, ':'), secs%60, 2)
	switch {
	case nanos == 0:
	case nanos%1_000_000 == 0:
		dst = appendPadded(append(dst, '.'), int64(nanos/1_000_000), 3)
	case nanos%1000 == 0:
		dst = appendPadded(append(dst, '.'), int64(nanos/1000), 6)
	default:
		dst = appendPadded(append(dst, '.'), int64(nanos), 9)
	}
	return dst
}

// appendDateTime writes seconds since the epoch as LocalDateTime.toString does or,
// with zone, as Instant.toString does.
func appendDateTime(dst []byte, secs int64, nanos int32, zone bool) []byte {
	days := floorDiv(secs, 86400)
	dst = appendDate(dst, days)
	dst = appendTime(append(dst, 'T'), secs-days*86400, nanos, zone)
	if zone {
		dst = append(dst, 'Z')
	}
	return dst
}
