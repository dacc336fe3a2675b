package query

import (
	"cmp"
	"strings"
)

// compareDecimals orders digits with a point by their value: the collation of
// decimal columns, so that comparisons, ORDER BY, min, max and GROUP BY are exact.
// What is no number comes after all numbers, in the order of its bytes.
func compareDecimals(a, b string) int {
	x, okX := parseDecimal(a)
	y, okY := parseDecimal(b)
	switch {
	case !okX && !okY:
		return strings.Compare(a, b)
	case !okX:
		return 1
	case !okY:
		return -1
	}
	if x.sign != y.sign {
		return cmp.Compare(x.sign, y.sign)
	}
	return x.sign * x.magnitude(y)
}

// decimal is 0.DIGITS × 10^exponent; digits have no zeros at either end.
type decimal struct {
	sign     int
	digits   string
	exponent int
}

func (x decimal) magnitude(y decimal) int {
	if c := cmp.Compare(x.exponent, y.exponent); c != 0 {
		return c
	}
	return strings.Compare(x.digits, y.digits)
}

// parseDecimal reads digits with a sign, a point and an exponent.
func parseDecimal(s string) (d decimal, ok bool) {
	s = strings.TrimSpace(s)
	d.sign = 1
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			d.sign = -1
		}
		s = s[1:]
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exp := s[i+1:]
		sign := 1
		if exp != "" && (exp[0] == '-' || exp[0] == '+') {
			if exp[0] == '-' {
				sign = -1
			}
			exp = exp[1:]
		}
		if exp == "" || len(exp) > 9 || !allDigits(exp) {
			return d, false
		}
		n := 0
		for _, c := range exp {
			n = 10*n + int(c-'0')
		}
		d.exponent = sign * n
		s = s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" && fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return d, false
	}
	whole = strings.TrimLeft(whole, "0")
	d.exponent += len(whole)
	digits := fraction
	if whole != "" {
		digits = whole + fraction
	} else {
		trimmed := strings.TrimLeft(digits, "0")
		d.exponent -= len(digits) - len(trimmed)
		digits = trimmed
	}
	if d.digits = strings.TrimRight(digits, "0"); d.digits == "" {
		d.sign, d.exponent = 0, 0
	}
	return d, true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
