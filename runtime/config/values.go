package config

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

var durationUnits = map[string]time.Duration{}

func init() {
	for unit, labels := range map[time.Duration]string{
		24 * time.Hour:   "d day days",
		time.Hour:        "h hour hours",
		time.Minute:      "min m minute minutes",
		time.Second:      "s sec secs second seconds",
		time.Millisecond: "ms milli millis millisecond milliseconds",
		time.Microsecond: "µs micro micros microsecond microseconds",
		time.Nanosecond:  "ns nano nanos nanosecond nanoseconds",
	} {
		for label := range strings.FieldsSeq(labels) {
			durationUnits[label] = unit
		}
	}
}

var sizeUnits = map[string]uint{
	"b": 0, "bytes": 0, "k": 10, "kb": 10, "kibibytes": 10, "m": 20, "mb": 20, "mebibytes": 20, "g": 30, "gb": 30, "gibibytes": 30, "t": 40, "tb": 40, "tebibytes": 40,
}

// split cuts "10 min" into its number and its unit.
func split(s string) (number, unit string) {
	s = strings.TrimSpace(s)
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], strings.ToLower(strings.TrimSpace(s[i:]))
}

// ParseDuration reads a duration as Flink writes it: digits and a unit, "ms" if
// there is none. Source: Flink, TimeUtils.java.
func ParseDuration(s string) (time.Duration, error) {
	number, unit := split(s)
	if number == "" {
		return 0, fmt.Errorf("%q is no duration, such as 10 s, 5min or 250 (ms)", s)
	}
	if unit == "" {
		unit = "ms"
	}
	u, ok := durationUnits[unit]
	if !ok {
		return 0, fmt.Errorf("%q is no unit of time: d, h, min, s, ms, µs and ns are", unit)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/int64(u) {
		return 0, fmt.Errorf("%q is longer than 292 years", s)
	}
	return time.Duration(n) * u, nil
}

// ParseSize reads a size as Flink writes it: digits and a unit, bytes if there is
// none; a kilobyte is 1024 bytes. Source: Flink, MemorySize.java.
func ParseSize(s string) (int64, error) {
	number, unit := split(s)
	if number == "" {
		return 0, fmt.Errorf("%q is no size, such as 20kb, 64 mb or 1024 (bytes)", s)
	}
	if unit == "" {
		unit = "b"
	}
	shift, ok := sizeUnits[unit]
	if !ok {
		return 0, fmt.Errorf("%q is no unit of size: b, kb, mb, gb and tb are", unit)
	}
	n, ok := new(big.Int).SetString(number, 10)
	if n = n.Lsh(n, shift); !ok || !n.IsInt64() {
		return 0, fmt.Errorf("%q is larger than a size can be", s)
	}
	return n.Int64(), nil
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func parseInt(s string) (int, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no number from -2147483648 to 2147483647", s)
	}
	return int(n), nil
}

func parseFloat(s string) (float64, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return f, nil
}

// parseList reads a list as Flink writes it: parted by ";" or ",", as folders by ":" too.
func parseList(s string, by string) (list []string) {
	for _, p := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(by, r) }) {
		if p = strings.TrimSpace(p); p != "" {
			list = append(list, p)
		}
	}
	return list
}
