// Package table gives states the shape of tables: a schema of typed columns for
// each state, rows turned into vectors of those columns, and filters over them.
//
// What does not fit its column never fails and is never lost: the column has null
// (or, for text that is no UTF-8, U+FFFD in place of what is none), and the column
// other_json has the whole part as docs/format/rows.md writes it. Such are values
// of a class that cannot be read, a subclass that the snapshot does not know, a
// timestamp or decimal outside the column's range, an unpaired surrogate.
//
// The forms of all types are described in docs/format/columns.md.
package table
