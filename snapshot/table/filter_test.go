package table_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/snapshot/table"
)

func TestFilterSyntax(t *testing.T) {
	for _, c := range []struct{ in, err string }{
		{"a = 1", ""},
		{"a.b.\"c d\" >= -1.5e3 and not (b in ('x', 'it''s') or c is not null)", ""},
		{"a == true AND b <> false Or c NOT IN (x'00ff')", ""},
		{"@row_kind = 'INSERT' and my-field < .5", ""},
		{"", "character 1: the name of a field expected, not the end"},
		{"a", "character 2: =, !=, <, <=, >, >=, in or is expected, not the end"},
		{"a = ", "character 5: a number, 'text', x'hex', true or false expected, not the end"},
		{"a = b", `character 5: a number, 'text', x'hex', true or false expected, not "b"`},
		{"a = null", `character 5: a number, 'text', x'hex', true or false expected (null: is null), not "null"`},
		{"a = 'x", `character 5: a number, 'text', x'hex', true or false expected, not "'x"`},
		{"a = x'0'", `character 5: bytes in hexadecimal digits expected, not "x'0'"`},
		{"é = 1 und b = 2", `character 7: the end, and or or expected, not "und"`},
		{"(a = 1", "character 7: and, or or ) expected, not the end"},
		{"a in ()", `character 7: a number, 'text', x'hex', true or false expected, not ")"`},
		{"a in (1 2)", `character 9: , or ) expected, not "2"`},
		{"a not = 1", `character 7: in expected, not "="`},
		{"a is 1", `character 6: null expected, not "1"`},
		{"a.1 = 1", `character 2: =, !=, <, <=, >, >=, in or is expected, not ".1"`},
		{"a ; b", `character 3: =, !=, <, <=, >, >=, in or is expected, not ";"`},
		{strings.Repeat("(", 200) + "a = 1" + strings.Repeat(")", 200), `character 102: fewer levels expected, not "("`},
	} {
		_, err := table.ParseFilter(c.in)
		if c.err == "" {
			require.NoError(t, err, "%s", c.in)
		} else {
			require.EqualError(t, err, c.err, "%s", c.in)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{"a = 1", "a.b in ('x', x'00') or not c is null and (d < -1e9)", "\"a\".b <> 'c'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if x, err := table.ParseFilter(s); err == nil {
			require.Equal(t, s, x.String())
		} else {
			require.NotEmpty(t, err.Error())
		}
	})
}
