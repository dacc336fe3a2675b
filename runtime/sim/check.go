package sim

import "github.com/tidemark/tidemark/runtime/event"

// expected are the results of a sequential program: each once.
func (c *Config) expected() map[line]bool {
	want := map[line]bool{}
	var total [keyCount]int32
	for _, s := range c.allSplits() {
		for pos := s.pos; pos < s.end; pos++ {
			if c.Shape == Pipelines {
				want[line{s.id, pos}] = true
				continue
			}
			key := recordKey(s.id, pos)
			total[key]++
			want[line{key, total[key]}] = true
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
	for l := range want {
		if got[l] == 0 {
			w.fail("the result %d of key or split %d is missing", l.count, l.key)
		}
	}
	for l, n := range got {
		if exact && n > 1 {
			w.fail("the result %d of key or split %d is there %d times", l.count, l.key, n)
		}
		if exact && !want[l] {
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
