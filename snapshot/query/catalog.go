package query

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/table"
)

// Table is a state as a table.
type Table struct {
	// Operator is the uid of the state's operator, else its name, else its ID; State
	// is the state's name, with "#" and its kind behind it if the operator has
	// another one of that name. Together they are the table's name: operator.state.
	Operator, State string
	Columns         []Column

	state  *snapshot.State
	schema *table.Schema
	id     int
}

// Name is operator.state; each part is quoted where SQL needs it.
func (t *Table) Name() string { return maybeQuote(t.Operator) + "." + maybeQuote(t.State) }

// Kind is the kind of the state.
func (t *Table) Kind() snapshot.StateKind { return t.state.Kind }

// OperatorID is the ID of the state's operator in hex.
func (t *Table) OperatorID() string { return t.state.Operator.ID }

// Column is a column of a Table.
type Column struct {
	Name string
	// Type is what the column holds in words: int64, decimal(10,2), list<text>.
	Type string
	// SQL is how SQLite holds it: INTEGER, REAL, TEXT, BLOB, or JSON TEXT.
	SQL string

	part    int   // in the schema's Columns
	path    []int // of struct fields below it
	decimal bool
}

const (
	sqlInteger = "INTEGER"
	sqlReal    = "REAL"
	sqlText    = "TEXT"
	sqlBlob    = "BLOB"
	sqlJSON    = "JSON TEXT"
)

// maxColumns is the most that a table has; SQLite's own limit is 2000. Fields beyond
// are in the JSON of the part that they belong to.
const maxColumns = 1000

// tableOf makes the table of a state.
func tableOf(s *snapshot.State) *Table {
	t := &Table{Operator: operatorName(s.Operator), State: s.Name, state: s, schema: table.Of(s)}
	seen := map[string]bool{}
	add := func(c Column) {
		name := c.Name
		for n := 2; seen[fold(c.Name)]; n++ {
			c.Name = name + "#" + strconv.Itoa(n)
		}
		seen[fold(c.Name)] = true
		t.Columns = append(t.Columns, c)
	}
	var fields func(part int, name string, c *table.Column, path []int)
	fields = func(part int, name string, c *table.Column, path []int) {
		if len(t.Columns) >= maxColumns {
			return
		}
		col := Column{Name: name, Type: c.String(), SQL: sqlType(c), part: part, path: slices.Clone(path), decimal: c.Type == table.Decimal}
		add(col)
		if c.Type != table.Struct {
			return
		}
		for i, f := range c.Fields {
			fields(part, name+"."+f.Name, f, append(path, i))
		}
	}
	for i, c := range t.schema.Columns {
		if t.schema.Parts[i] <= table.PartKind {
			continue // the same for all rows: the table's name tells
		}
		if t.schema.Parts[i] == table.PartNamespace && s.Variants == 0 && s.Namespace != nil && s.Namespace.Kind == serializer.KindVoidNamespace {
			continue
		}
		fields(i, c.Name, c, nil)
	}
	return t
}

func sqlType(c *table.Column) string {
	switch c.Type {
	case table.Boolean, table.Int8, table.Int16, table.Int32, table.Int64:
		return sqlInteger
	case table.Float32, table.Float64:
		return sqlReal
	case table.Binary:
		return sqlBlob
	case table.JSON, table.Struct, table.List, table.Map:
		return sqlJSON
	}
	return sqlText
}

// operatorName is what an operator's tables are called by.
func operatorName(op *snapshot.StateOperator) string {
	switch {
	case op.UID != "":
		return op.UID
	case op.Name != "":
		return op.Name
	case op.ID != "":
		return op.ID
	}
	return "master"
}

// catalog is the tables of a snapshot and the names they go by.
type catalog struct {
	tables []*Table
	// schemas are the operators' tables by each folded name that means one operator.
	schemas map[string][]*Table
	// alone are the tables by the folded name of their state, where only one has it.
	alone map[string]*Table
}

func newCatalog(states []*snapshot.State) *catalog {
	c := &catalog{schemas: map[string][]*Table{}, alone: map[string]*Table{}}
	byOperator := map[*snapshot.StateOperator][]*Table{}
	var operators []*snapshot.StateOperator
	for _, s := range states {
		t := tableOf(s)
		t.id = len(c.tables)
		c.tables = append(c.tables, t)
		if byOperator[s.Operator] == nil {
			operators = append(operators, s.Operator)
		}
		byOperator[s.Operator] = append(byOperator[s.Operator], t)
	}
	for _, tables := range byOperator {
		rename(tables)
	}
	// An ID means its operator whatever else is called so; a uid goes before a name. A
	// name that two operators have means neither.
	owner := map[string]*snapshot.StateOperator{}
	for _, name := range []func(*snapshot.StateOperator) string{
		func(op *snapshot.StateOperator) string { return op.ID },
		func(op *snapshot.StateOperator) string { return op.UID },
		func(op *snapshot.StateOperator) string { return op.Name },
		func(op *snapshot.StateOperator) string {
			if op.ID == "" {
				return "master"
			}
			return ""
		},
	} {
		here := map[string][]*snapshot.StateOperator{}
		for _, op := range operators {
			if n := fold(name(op)); n != "" && owner[n] == nil {
				here[n] = append(here[n], op)
			}
		}
		for n, ops := range here {
			if len(ops) == 1 {
				owner[n] = ops[0]
			}
		}
	}
	for n, op := range owner {
		if n != "main" && n != "temp" { // SQLite's own
			c.schemas[n] = byOperator[op]
		}
	}
	// Tables are shown under a name that means their operator.
	for _, op := range operators {
		for _, t := range byOperator[op] {
			if owner[fold(t.Operator)] != op || fold(t.Operator) == "main" || fold(t.Operator) == "temp" {
				t.Operator = op.ID
			}
		}
	}
	twice := map[string]bool{}
	for _, t := range c.tables {
		n := fold(t.State)
		if c.alone[n] != nil {
			twice[n] = true
		}
		c.alone[n] = t
	}
	for n := range twice {
		delete(c.alone, n)
	}
	return c
}

// rename tells apart states of one operator whose names SQL does not.
func rename(tables []*Table) {
	seen := map[string]bool{}
	for _, t := range tables {
		if strings.HasPrefix(fold(t.State), "sqlite_") { // SQLite keeps such names to itself
			t.State = "_" + t.State
		}
		name := t.State
		if seen[fold(name)] {
			name += "#" + string(t.state.Kind)
		}
		for n := 2; seen[fold(name)]; n++ {
			name = t.State + "#" + strconv.Itoa(n)
		}
		t.State = name
		seen[fold(name)] = true
	}
}

// named are the tables that a statement may mean, each with the schema and name it
// would have there: by operator and state, by both as one name, or by its state
// alone.
type named struct {
	schema, name string // schema "" is main
	table        *Table
}

func (c *catalog) named(mentioned map[string]bool) []named {
	var out []named
	main := map[string]bool{}
	add := func(name string, t *Table) {
		if !main[fold(name)] {
			main[fold(name)] = true
			out = append(out, named{"", name, t})
		}
	}
	for _, schema := range sortedKeys(c.schemas) {
		for _, t := range c.schemas[schema] {
			if mentioned[schema] && mentioned[fold(t.State)] {
				out = append(out, named{schema, t.State, t})
			}
			if whole := schema + "." + fold(t.State); mentioned[whole] {
				add(schema+"."+t.State, t)
			}
		}
	}
	for _, n := range sortedKeys(c.alone) {
		if mentioned[n] {
			add(c.alone[n].State, c.alone[n])
		}
	}
	return out
}
