package stream

import (
	"fmt"
	"slices"
	"time"

	"github.com/tidemark/tidemark/serializer"
)

// Window is an interval of time: Flink's TimeWindow.
type Window = serializer.Window

// Assigner says which windows a record belongs to. The windows of Flink's assigners
// of the same name are these.
type Assigner struct {
	name                string
	size, slide, offset int64 // milliseconds
	session             bool
	processing          bool
}

// Tumbling windows follow each other without gap or overlap.
func Tumbling(size time.Duration) Assigner {
	return Assigner{name: "Tumbling", size: size.Milliseconds(), slide: size.Milliseconds()}
}

// Sliding windows of a size begin every slide.
func Sliding(size, slide time.Duration) Assigner {
	return Assigner{name: "Sliding", size: size.Milliseconds(), slide: slide.Milliseconds()}
}

// Sessions are windows of records that are less than a gap apart.
func Sessions(gap time.Duration) Assigner {
	return Assigner{name: "Session", size: gap.Milliseconds(), session: true}
}

// Offset moves the beginning of tumbling and sliding windows, as for a time zone.
func (a Assigner) Offset(d time.Duration) Assigner {
	a.offset = d.Milliseconds()
	return a
}

// Processing makes windows of processing time instead of event time.
func (a Assigner) Processing() Assigner {
	a.processing = true
	return a
}

func (a Assigner) check() error {
	switch {
	case a.size <= 0 || !a.session && a.slide <= 0:
		return fmt.Errorf("%s windows: sizes are whole milliseconds, at least one", a.name)
	case !a.session && max(a.offset, -a.offset) >= a.slide:
		return fmt.Errorf("%s windows: an offset of %d ms is not below %d ms", a.name, a.offset, a.slide)
	}
	return nil
}

// assign appends the windows of a time.
func (a *Assigner) assign(dst []Window, at int64) []Window {
	if a.session {
		return append(dst, Window{Start: at, End: at + a.size})
	}
	rest := (at - a.offset) % a.slide
	if rest < 0 {
		rest += a.slide
	}
	for start := at - rest; start > at-a.size; start -= a.slide {
		dst = append(dst, Window{Start: start, End: start + a.size})
	}
	return dst
}

func maxTimestamp(w Window) int64 { return w.End - 1 }

// mergeSet is Flink's MergingWindowSet of one key: for each window in flight the
// window whose namespace its state lies in.
type mergeSet struct {
	pairs   []serializer.Pair[Window, Window]
	changed bool
}

func (m *mergeSet) find(w Window) int {
	return slices.IndexFunc(m.pairs, func(p serializer.Pair[Window, Window]) bool { return p.F0 == w })
}

// state is the window whose namespace the state of w lies in.
func (m *mergeSet) state(w Window) (Window, bool) {
	if i := m.find(w); i >= 0 {
		return m.pairs[i].F1, true
	}
	return Window{}, false
}

func (m *mergeSet) retire(w Window) {
	if i := m.find(w); i >= 0 {
		m.pairs = slices.Delete(slices.Clone(m.pairs), i, i+1)
		m.changed = true
	}
}

// add puts a window in. If it joins others, merged is called with the window that
// they become, those that it was made of, the window whose state it takes over and
// those whose state has to be merged into that.
func (m *mergeSet) add(w Window, merged func(result Window, from []Window, state Window, others []Window) error) (Window, error) {
	// All windows that w touches become one; those in the set touch none of each other.
	result := w
	var from []Window
	for grown := true; grown; {
		grown = false
		for _, p := range m.pairs {
			if p.F0.Start <= result.End && p.F0.End >= result.Start && !slices.Contains(from, p.F0) {
				from = append(from, p.F0)
				result = Window{Start: min(result.Start, p.F0.Start), End: max(result.End, p.F0.End)}
				grown = true
			}
		}
	}
	if len(from) == 0 {
		m.pairs = append(slices.Clip(m.pairs), serializer.Pair[Window, Window]{F0: w, F1: w})
		m.changed = true
		return w, nil
	}
	if len(from) == 1 && from[0] == result {
		return result, nil // nothing new
	}
	slices.SortFunc(from, func(a, b Window) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	})
	state, _ := m.state(from[0])
	var others []Window
	kept := make([]serializer.Pair[Window, Window], 0, len(m.pairs))
	for _, p := range m.pairs {
		switch {
		case !slices.Contains(from, p.F0):
			kept = append(kept, p)
		case p.F1 != state:
			others = append(others, p.F1)
		}
	}
	m.pairs = append(kept, serializer.Pair[Window, Window]{F0: result, F1: state})
	m.changed = true
	return result, merged(result, slices.DeleteFunc(from, func(x Window) bool { return x == result }), state, others)
}
