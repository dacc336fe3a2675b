// Package query answers SQL over the states of a snapshot: each state is a table of
// an embedded SQLite. Nothing but the states that a statement names is read, of
// them only the parts whose columns it uses, and of those only the key or the key
// groups it asks for.
//
// A state that a statement walks over once is a virtual table: rows are decoded by
// all workers and flow through the statement without being kept. A state that it
// would walk over again and again, on the inner side of a join, is first copied
// into a table of a temporary database, which lives in memory up to a budget and in
// an unnamed file beyond it. docs/design/query.md tells why.
//
// Statements are untrusted: only SELECT (with WITH, VALUES and EXPLAIN) is run, and
// nothing but the tables is reachable: no ATTACH, no PRAGMA, no extension, no file.
//
// Tables, columns and types are described in docs/format/sql.md.
package query
