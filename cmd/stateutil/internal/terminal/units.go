package terminal

import (
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes prints a size in binary units, "118 MiB"; negative is unknown, "?".
func Bytes(n int64) string {
	if n < 0 {
		return "?"
	}
	return humanize.IBytes(uint64(n))
}

// Count prints an integer with thousands separators, "41,020,113".
func Count(n int64) string { return humanize.Comma(n) }

// Age prints how long ago t was, in the one unit that says most: "2m", "41d".
// A zero t is "-", the future is "0s": clocks differ.
func Age(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := max(now.Sub(t), 0)
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 2*day:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	case d < 2*365*day:
		return strconv.Itoa(int(d/day)) + "d"
	}
	return strconv.Itoa(int(d/(365*day))) + "y"
}

// Plural prints "1 file", "221 files".
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Joined is "a, b and 3 more": at most limit items are named.
func Joined(items []string, limit int) string {
	if len(items) <= limit {
		return strings.Join(items, ", ")
	}
	return strings.Join(items[:limit], ", ") + " and " + strconv.Itoa(len(items)-limit) + " more"
}
