package query

import (
	"fmt"
	"strconv"
	"strings"
)

// step is a line of EXPLAIN QUERY PLAN.
type step struct {
	id, parent int
	detail     string
}

// plan asks SQLite how it would walk over the tables, and copies those that it would
// walk over more than once, until none is left.
func (r *run) plan(statement string, names []named) error {
	copied := map[int]bool{} // by position in names
	for {
		clear(r.reads)
		steps, err := r.explainPlan(statement)
		if err != nil {
			return err
		}
		if !r.noKey && looksUpSubquery(steps) {
			r.noKey = true // the keys are the rows of a subquery: nobody knows how many
			continue
		}
		again := repeated(steps)
		more := false
		for i, n := range names {
			read := r.reads[[2]string{orMain(n.schema), fold(n.name)}]
			if read == nil || copied[i] || !again[n.table.id] {
				continue
			}
			if err := r.copyTable(n, read); err != nil {
				return err
			}
			copied[i], more = true, true
		}
		if !more {
			return nil
		}
	}
}

func orMain(schema string) string {
	if schema == "" {
		return "main"
	}
	return schema
}

func (r *run) explainPlan(statement string) ([]step, error) {
	rows, err := r.conn.QueryContext(r.ctx, "EXPLAIN QUERY PLAN "+statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var steps []step
	for rows.Next() {
		var s step
		var unused int
		if err := rows.Scan(&s.id, &s.parent, &unused, &s.detail); err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, rows.Err()
}

// virtualTable is the id of the table that a step walks over, as BestIndex wrote it.
func virtualTable(detail string) (id int, plan int, ok bool) {
	_, rest, found := strings.Cut(detail, "VIRTUAL TABLE INDEX ")
	if !found {
		return 0, 0, false
	}
	number, rest, found := strings.Cut(rest, ":t")
	if !found {
		return 0, 0, false
	}
	word, _, _ := strings.Cut(rest, " ")
	id, err := strconv.Atoi(word)
	if err != nil {
		return 0, 0, false
	}
	plan, err = strconv.Atoi(number)
	return id, plan, err == nil
}

// looksUpSubquery reports whether keys that a subquery gives would be looked up one
// by one.
func looksUpSubquery(steps []step) bool {
	list, keyed := false, false
	for _, s := range steps {
		list = list || strings.Contains(s.detail, "LIST SUBQUERY")
		if _, plan, ok := virtualTable(s.detail); ok && plan == planKey {
			keyed = true
		}
	}
	return list && keyed
}

// repeated are the tables that the plan walks over again and again: on the inner
// side of a loop, or inside a subquery that is run for each row.
func repeated(steps []step) map[int]bool {
	again := map[int]bool{} // steps, by their ID
	outer := map[int]bool{} // parents that have a loop already
	tables := map[int]bool{}
	for _, s := range steps {
		d := s.detail
		loop := strings.HasPrefix(d, "SCAN ") || strings.HasPrefix(d, "SEARCH ") || strings.HasPrefix(d, "MULTI-INDEX OR") || strings.HasPrefix(d, "RIGHT-JOIN ")
		again[s.id] = again[s.parent] || strings.HasPrefix(d, "CORRELATED ") || strings.HasPrefix(d, "RECURSIVE STEP")
		if loop {
			if outer[s.parent] {
				again[s.id] = true
			}
			outer[s.parent] = true
		}
		if id, _, ok := virtualTable(d); ok && again[s.id] {
			tables[id] = true
		}
	}
	return tables
}

// copyTable replaces a virtual table by a table with the columns that are read.
func (r *run) copyTable(n named, read map[string]bool) error {
	columns := n.table.usedColumns(read)
	var list []string
	for _, i := range columns {
		list = append(list, quote(n.table.Columns[i].Name))
	}
	const source = "main.\"\ntidemark copies\""
	if err := r.own(fmt.Sprintf("DROP TABLE %s", n.sql())); err != nil {
		return err
	}
	if err := r.own(fmt.Sprintf("CREATE TABLE %s (%s)", n.sql(), n.table.declare(columns))); err != nil {
		return err
	}
	if err := r.own(fmt.Sprintf("CREATE VIRTUAL TABLE %s USING %s(%d)", source, moduleName, n.table.id)); err != nil {
		return err
	}
	r.copying = true
	err := r.own(fmt.Sprintf("INSERT INTO %s SELECT %s FROM %s", n.sql(), strings.Join(list, ", "), source))
	r.copying = false
	if err != nil {
		return err
	}
	return r.own("DROP TABLE " + source)
}
