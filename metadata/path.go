package metadata

import "strconv"

// fieldPath is where in a file a codec stands, from the outside in:
// operator[3], subtask[0], managedKeyed, shared[12], handle.
type fieldPath struct {
	elems []pathElem
}

type pathElem struct {
	name string
	pos  int32 // -1 if the element is no list entry
}

func (p *fieldPath) push(name string, pos int) {
	p.elems = append(p.elems, pathElem{name, int32(pos)})
}

func (p *fieldPath) enter(name string) { p.elems = append(p.elems, pathElem{name, -1}) }

func (p *fieldPath) pop() { p.elems = p.elems[:len(p.elems)-1] }

// field is the path of a field at the current place.
func (p *fieldPath) field(name string) string {
	b := make([]byte, 0, 96)
	for _, e := range p.elems {
		b = append(b, e.name...)
		if e.pos >= 0 {
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(e.pos), 10)
			b = append(b, ']')
		}
		b = append(b, '.')
	}
	if name == "" {
		return string(b[:max(len(b)-1, 0)])
	}
	return string(append(b, name...))
}
