package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Model is what a job writes in the end, without the lines "seen N", whose numbers
// add up to that of the records; flat is Options.Flat.
func Model(n int64, flat bool) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	type at struct{ key, time int64 }
	type parity struct {
		key int64
		of  string
	}
	counts, parities := map[int64]int64{}, map[parity]int64{}
	buckets, tumbling, seconds := map[at]int64{}, map[at]int64{}, map[at]int64{}
	sliding := map[at]pair{}
	type open struct{ first, last, count, sum int64 }
	sessions := map[int64]open{}
	closed := func(k int64, s open) { add("session %d %d %d %d %d", k, s.first, s.last+gap, s.count, s.sum) }
	for v := range n {
		k := keyOf(v)
		counts[k]++
		add("count %d %d", k, counts[k])
		add("total %d %d", k, counts[k])
		add("raw %d %d", k, counts[k])
		if isMarked(v) {
			add("mark %d", v)
		}
		p := parity{k, parityOf(v)}
		parities[p]++
		add("parity %d %s %d", k, p.of, parities[p])
		buckets[at{k, bucketEnd(v)}]++
		if hasAlarm(v, n) {
			add("alarm %d %d", k, v)
		}
		if isNoted(v) {
			add("pair %d %d of %d", k, v, k)
		}
		if !flat {
			add("match %d %d", v, 1000+v%rules)
		}
		add("pass %d", v)
		tumbling[at{k, v - v%tumble}] += v
		if seconds[at{k, v - v%second}]++; seconds[at{k, v - v%second}]%10 == 0 {
			add("tens %d %d 10", k, v-v%second)
		}
		for s := v - v%slide; s > v-size; s -= slide {
			sliding[at{k, s}] = sumAndCount{}.Add(sliding[at{k, s}], v)
		}
		k = sessionKey(v)
		s, ok := sessions[k]
		if ok && v > s.last+gap {
			closed(k, s)
			ok = false
		}
		if !ok {
			s = open{first: v}
		}
		sessions[k] = open{s.first, v, s.count + 1, s.sum + v}
	}
	for k, s := range sessions {
		closed(k, s)
	}
	for w, c := range buckets {
		add("bucket %d %d %d", w.key, w.time, c)
	}
	for w, c := range tumbling {
		add("tumbling %d %d %d", w.key, w.time, c)
	}
	for w, c := range sliding {
		add("sliding %d %d %d %d", w.key, w.time, c.F0, c.F1)
	}
	return all
}

// Results are the lines in a folder of results, those of Model, and the sum of the
// numbers that are left out there.
func Results(dir string) (lines []string, seen int64, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if err != nil {
		return nil, 0, err
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			return nil, 0, err
		}
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSuffix(line, "\n")
			var n int64
			if _, err := fmt.Sscanf(line, "seen %d", &n); err == nil {
				seen += n
				continue
			}
			lines = append(lines, line)
		}
	}
	return lines, seen, nil
}
