package table

import (
	"strconv"

	"github.com/tidemark/tidemark/snapshot"
)

// Batch holds rows of one state as vectors. Columns whose value is the same in all
// rows (those with a Const, operator_uid to kind) have none.
type Batch struct {
	Schema  *Schema
	Rows    int
	Vectors []*Vector // by column; nil for a constant

	asm   assembler
	other []byte
}

// NewBatch makes an empty batch. It belongs to one goroutine at a time.
func NewBatch(s *Schema) *Batch {
	b := &Batch{Schema: s, Vectors: make([]*Vector, len(s.Columns))}
	for i, c := range s.Columns {
		if s.Parts[i] > PartKind {
			b.Vectors[i] = NewVector(c)
		}
	}
	return b
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Rows = 0
	for _, v := range b.Vectors {
		if v != nil {
			v.Reset()
		}
	}
}

// Truncate keeps the first n rows.
func (b *Batch) Truncate(n int) {
	if n >= b.Rows {
		return
	}
	b.Rows = n
	for _, v := range b.Vectors {
		if v != nil {
			v.truncate(n)
		}
	}
}

// Size is about how much memory the rows take.
func (b *Batch) Size() int {
	n := 0
	for _, v := range b.Vectors {
		if v != nil {
			n += v.Size()
		}
	}
	return n
}

// Add appends a row of the schema's state. undecoded is the class of the first
// part that could not be read, "" if there is none.
func (b *Batch) Add(r *snapshot.StateRow) (undecoded string) {
	a := &b.asm
	a.opaque, a.class = false, ""
	b.other = append(b.other[:0], '{')
	damaged := false
	for i, v := range b.Vectors {
		if v == nil {
			continue
		}
		var err error
		var visit bool
		switch part := b.Schema.Parts[i]; part {
		case PartSubtask:
			optional(v, int64(r.Subtask), r.Subtask >= 0)
		case PartKeyGroup:
			optional(v, int64(r.KeyGroup), r.KeyGroup >= 0)
		case PartTimestamp:
			v.int(r.Timestamp)
		case PartVersion:
			optional(v, int64(r.Version), r.Form == snapshot.FormVersioned || r.Form == snapshot.FormVersionedBytes)
		case PartTTLMin, PartTTLMax:
			least, greatest, ok := r.TTL()
			if part == PartTTLMax {
				least = greatest
			}
			if !ok {
				v.null()
				break
			}
			a.begin(v)
			a.millis(v, least)
			if a.misfit {
				b.member(v.Column.Name)
				b.other = strconv.AppendInt(b.other, least, 10)
			}
		case PartKey:
			a.begin(v)
			err, visit = r.VisitKey(a), true
		case PartNamespace:
			a.begin(v)
			err, visit = r.VisitNamespace(a), true
		case PartMapKey:
			a.begin(v)
			err, visit = r.VisitMapKey(a), true
		case PartValue:
			a.begin(v)
			err, visit = r.VisitValue(a), true
		case PartOther:
			if len(b.other) == 1 {
				v.null()
			} else {
				v.bytes(append(b.other, '}'))
			}
		}
		if !visit {
			continue
		}
		if err != nil || v.Len != b.Rows+1 {
			v.truncate(b.Rows)
			v.null()
			a.misfit, damaged = true, true
		}
		if a.misfit {
			b.member(v.Column.Name)
			var class string
			switch b.Schema.Parts[i] {
			case PartKey:
				b.other, class = r.AppendKeyJSON(b.other)
			case PartNamespace:
				b.other, class = r.AppendNamespaceJSON(b.other)
			case PartMapKey:
				b.other, class = r.AppendMapKeyJSON(b.other)
			case PartValue:
				b.other, class = r.AppendValueJSON(b.other)
			}
			if class != "" && !a.opaque {
				a.opaque, a.class = true, class
			}
		}
	}
	b.Rows++
	if (a.opaque || damaged) && a.class == "" {
		return "unknown"
	}
	return a.class
}

// member begins a member of other_json.
func (b *Batch) member(name string) {
	if len(b.other) > 1 {
		b.other = append(b.other, ',')
	}
	b.other = strconv.AppendQuote(b.other, name)
	b.other = append(b.other, ':')
}

func optional(v *Vector, x int64, ok bool) {
	if ok {
		v.int(x)
	} else {
		v.null()
	}
}

func fieldName(i int) string { return "f" + strconv.Itoa(i) }
