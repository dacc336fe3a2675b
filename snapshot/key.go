package snapshot

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// keyMatch is what ScanOptions.Key or KeyJSON comes to for one type of key.
type keyMatch struct {
	all   bool   // no key is asked for
	none  bool   // the key that is asked for is no value of the type
	bytes []byte // the key as serialized; nil if only its text is known
	text  string // its JSON, to be compared with that of each row
	buf   []byte
}

// narrowed reports whether only one key is wanted.
func (sc *scan) narrowed() bool { return sc.opts.Key != nil || sc.opts.KeyJSON != "" }

// keyMatch prepares to choose the rows of one handle. t is nil if the key's type
// is not known.
func (sc *scan) keyMatch(t *serializer.Type) *keyMatch {
	switch {
	case sc.opts.Key != nil:
		return &keyMatch{bytes: sc.opts.Key}
	case sc.opts.KeyJSON == "":
		return &keyMatch{all: true}
	case t == nil:
		return &keyMatch{text: sc.opts.KeyJSON}
	}
	if !oneEncoding(t) || strings.Contains(sc.opts.KeyJSON, `"NaN"`) { // which has many bit patterns
		return &keyMatch{text: sc.opts.KeyJSON}
	}
	b, err := t.AppendFromJSON([]byte{}, []byte(sc.opts.KeyJSON))
	if err != nil || !sameText(t, b, sc.opts.KeyJSON) {
		return &keyMatch{none: true}
	}
	return &keyMatch{bytes: b}
}

// sameText reports whether a serialized value is shown as the text is written, but
// for the order of members: 1 is no string, and "1" no number.
func sameText(t *serializer.Type, b []byte, text string) bool {
	shown, _, err := serializer.NewDecoder(t, nil).AppendJSON(nil, b)
	if err != nil || len(shown) == 0 {
		return false
	}
	kind := func(c byte) byte {
		if c >= '0' && c <= '9' {
			return '-'
		}
		return c
	}
	return kind(shown[0]) == kind(text[0]) || shown[0] == '{' || text[0] == '{' || text[0] == '['
}

// oneEncoding reports whether equal values of a type always have the same bytes,
// so that a key can be found by its bytes. BigInteger has two forms for some
// numbers, a map's entries have no order, and what Kryo writes nobody else writes.
func oneEncoding(t *serializer.Type) bool {
	ok := true
	t.Walk(func(n *serializer.Type) bool {
		switch n.Kind {
		case serializer.KindOpaque, serializer.KindDynamic, serializer.KindBigInt, serializer.KindBigDec, serializer.KindMap, serializer.KindMultiset,
			serializer.KindSet, serializer.KindRaw, serializer.KindUnion, serializer.KindNull:
			ok = false
		case serializer.KindPOJO:
			ok = ok && len(n.Registered)+len(n.Unregistered) == 0
		}
		return ok
	})
	return ok
}

// row reports whether a row has the key.
func (m *keyMatch) row(r *StateRow) bool {
	switch {
	case m.all:
		return true
	case m.none:
		return false
	case m.bytes != nil:
		return string(r.Key) == string(m.bytes)
	}
	m.buf, _ = r.AppendKeyJSON(m.buf[:0])
	return string(m.buf) == m.text
}

// compactKey brings the JSON of a key to the form in which rows have it.
func compactKey(text string) (string, error) {
	var v json.RawMessage
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "", err
	}
	b, err := json.Marshal(v) // which compacts
	return string(b), err
}

// keyPlace is the key group that the one wanted key has in an operator.
type keyPlace struct {
	opening  sync.Mutex // while a handle of the operator is opened
	known    bool       // this and keyGroup are under scan.mu
	keyGroup int32
}

// elsewhere reports whether a handle of a range cannot have the key.
func (sc *scan) elsewhere(p *keyPlace, r metadata.KeyGroupRange) bool {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return p.known && !r.Contains(p.keyGroup)
}

func (sc *scan) placeOf(op *StateOperator) *keyPlace {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.places == nil {
		sc.places = map[int]*keyPlace{}
	}
	p := sc.places[op.Position]
	if p == nil {
		p = &keyPlace{}
		sc.places[op.Position] = p
	}
	return p
}

// learnPlace keeps the key group of the wanted key, if the handle tells it.
func (sc *scan) learnPlace(f *keyedFile) {
	p := sc.placeOf(f.op)
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if f.match.none {
		p.known, p.keyGroup = true, -1 // in no handle
		return
	}
	if r := sc.keyGroupRange(f); r != nil && f.match.bytes != nil && f.meta.Key != nil && r.Count == 1 {
		p.known, p.keyGroup = true, r.Start
	}
}

// rangeOf is the key groups of a handle; nil if it does not tell.
func rangeOf(h metadata.KeyedHandle) *metadata.KeyGroupRange {
	switch h := h.(type) {
	case *metadata.KeyGroupsHandle:
		return &h.Range
	case *metadata.IncrementalHandle:
		return &h.Range
	}
	return nil
}
