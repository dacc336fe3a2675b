package query

import (
	"maps"
	"slices"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// maybeQuote quotes a name that SQL would not read as one.
func maybeQuote(s string) string {
	plain := s != "" && (s[0] < '0' || s[0] > '9')
	for i := range len(s) {
		plain = plain && nameByte(s[i]) && s[i] < 0x80 && s[i] != '$'
	}
	if !plain || keywords[fold(s)] {
		return quote(s)
	}
	return s
}

// keywords are those of SQLite that cannot stand for a name, and some that would
// surprise.
var keywords = func() map[string]bool {
	m := map[string]bool{}
	for _, k := range []string{
		"add", "all", "alter", "and", "as", "autoincrement", "between", "case", "check", "collate", "commit", "constraint", "create",
		"default", "deferrable", "delete", "distinct", "drop", "else", "escape", "except", "exists", "foreign", "from", "group", "having",
		"in", "index", "insert", "intersect", "into", "is", "isnull", "join", "limit", "not", "notnull", "null", "on", "or", "order",
		"primary", "references", "select", "set", "table", "then", "to", "transaction", "union", "unique", "update", "using", "values",
		"when", "where", "returning", "nothing", "window", "over", "filter", "cross", "inner", "left", "natural", "outer", "right", "full",
	} {
		m[k] = true
	}
	return m
}()
