package table

import (
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// TableOf is a table with a column for each type, for tests of what cannot be had
// from a golden: each row is a function for each column that visits its value.
func TableOf(names []string, types []*serializer.Type, rows ...[]func(serializer.Visitor)) *Batch {
	s := &Schema{State: &snapshot.State{Operator: &snapshot.StateOperator{ID: "0123456789abcdef0123456789abcdef"}, Name: "all", Kind: snapshot.StateValue}}
	for i, t := range types {
		c := columnOf(t)
		c.Name = names[i]
		if t.Kind == serializer.KindLocalTime && t.Precision == 3 {
			c.Precision = 3 // TIME of SQL, which only a snapshot can describe
		}
		s.Columns, s.Parts, s.Const = append(s.Columns, c), append(s.Parts, PartValue), append(s.Const, "")
	}
	b := NewBatch(s)
	for _, row := range rows {
		for i, visit := range row {
			b.asm.begin(b.Vectors[i])
			visit(&b.asm)
			if b.asm.misfit {
				panic(names[i] + " does not fit")
			}
		}
		b.Rows++
	}
	return b
}
