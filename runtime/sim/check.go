package sim

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidemark/tidemark/runtime/event"
)

// expected are the results of a sequential program: each once.
func (c *Config) expected() map[line]int {
	want := map[line]int{}
	var total [keyCount]int32
	for _, s := range c.allSplits() {
		for pos := s.pos; pos < s.end; pos++ {
			if c.Shape == Pipelines {
				want[line{s.id, pos}] = 1
				continue
			}
			key := recordKey(s.id, pos)
			total[key]++
			want[line{key, total[key]}] = 1
		}
	}
	return want
}

// finish checks the results of a run that has come to its end.
func (w *world) finish() {
	got := map[line]int{}
	for _, l := range w.sink.lines {
		got[l]++
	}
	want := w.cfg.expected()
	exact := w.cfg.Alignment != event.AtLeastOnce
	order := func(m map[line]int) []line { // a failure reads the same each time
		return slices.SortedFunc(maps.Keys(m), func(a, b line) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.count, b.count)) })
	}
	for _, l := range order(want) {
		if got[l] == 0 {
			w.fail("the result %d of key or split %d is missing", l.count, l.key)
		}
	}
	for _, l := range order(got) {
		if n := got[l]; exact && n > 1 {
			w.fail("the result %d of key or split %d is there %d times", l.count, l.key, n)
		}
		if exact && want[l] == 0 {
			w.fail("the result %d of key or split %d is not one", l.count, l.key)
		}
	}
	w.leaks()
}

// leaks checks that no file is left that the coordinator was told of and nobody needs.
func (w *world) leaks() {
	leaked, left := w.store.leaks(w.proc.number)
	if len(leaked) > 0 {
		w.fail("files are left that the coordinator knew of and nobody needs: %v", leaked)
	}
	w.res.LeftToGC = left
}
