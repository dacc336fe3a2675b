package query

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJoinFields(t *testing.T) {
	columns := map[string]bool{"value.price": true, "value.item.name": true, "key.id": true, "value": true}
	for in, want := range map[string]string{
		`select value.price from t`:                       `select "value.price" from t`,
		`select o.value.price, Value.Item.Name from t o`:  `select o."value.price", "Value.Item.Name" from t o`,
		`select "value"."price" from t`:                   `select "value.price" from t`,
		`select value . price from t`:                     `select "value.price" from t`,
		`select value.cost from t`:                        `select value.cost from t`,
		`select 'value.price', x.price from value x`:      `select 'value.price', x.price from value x`,
		`select value.price.x from t`:                     `select value.price.x from t`,
		"select /* value.price */ key.id -- key.id":       "select /* value.price */ \"key.id\" -- key.id",
		`select db.t.value.price`:                         `select db.t."value.price"`,
		`select [value].[price], x'76', value ->> '$.a'`:  `select "value.price", x'76', value ->> '$.a'`,
		`select "value.price" from t where key.id='key.'`: `select "value.price" from t where "key.id"='key.'`,
	} {
		require.Equal(t, want, joinFields(in, lex(in), columns), in)
	}
}

func TestOnlyReadingStatementsAreAllowed(t *testing.T) {
	for _, s := range []string{"select 1", "WITH a AS (select 1) select * from a;", "-- note\nvalues (1)", "explain query plan select 1", "select ';' -- ;"} {
		require.NoError(t, allowed(lex(s)), s)
	}
	for _, s := range []string{"", "  ", "-- nothing", "attach 'x' as y", "PRAGMA table_info(x)", "select 1; select 2", "vacuum into '/tmp/x'", "insert into t values (1)",
		"select 1; ;drop table t", "'select' 1", "(select 1)", "begin", "create table t(x)"} {
		err := allowed(lex(s))
		require.ErrorIs(t, err, ErrStatement, s)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestNearest(t *testing.T) {
	require.Equal(t, "value.price", nearest("value.prise", []string{"key", "value", "value.price"}))
	require.Equal(t, "lastOrder", nearest("lastorder", []string{"lastOrder", "other"}))
	require.Equal(t, "orders", nearest("ordesr", []string{"order_items", "orders"}))
	require.Equal(t, "", nearest("xyz", []string{"key", "value"}))
}

func TestCompareDecimals(t *testing.T) {
	order := []string{"-1e3", "-99.5", "-9.50", "-0.001", "0", "0.0009", "1", "9.5", "10", "99999999999999999999999999999999999999", "1e40", "", "abc", "b"}
	for i, a := range order {
		for j, b := range order {
			c := compareDecimals(a, b)
			switch {
			case i < j:
				require.Negative(t, c, "%s %s", a, b)
			case i > j:
				require.Positive(t, c, "%s %s", a, b)
			default:
				require.Zero(t, c)
			}
		}
	}
	for _, same := range [][2]string{{"9.5", "9.50"}, {"0", "-0.00"}, {"1e2", "100"}, {"+7", "007"}, {".5", "0.50"}, {"0.05e1", "5e-1"}} {
		require.Zero(t, compareDecimals(same[0], same[1]), same)
	}
}

// FuzzStatement takes any text for a statement: nothing panics, tokens lie in order,
// and a statement without fields is left as it is.
func FuzzStatement(f *testing.F) {
	for _, s := range []string{"select value.price from a.b where key='x''y'", "/*", "--", `"`, "[a", "x'0", "select \"a\"\"b\".c", "'", "1.2.3.value.x", "\x00", "value.value.value"} {
		f.Add(s)
	}
	columns := map[string]bool{"value.price": true, "value.value": true}
	f.Fuzz(func(t *testing.T, s string) {
		tokens := lex(s)
		at := 0
		for _, tok := range tokens {
			require.LessOrEqual(t, at, tok.from)
			require.Less(t, tok.from, tok.to)
			require.LessOrEqual(t, tok.to, len(s))
			at = tok.to
		}
		require.Equal(t, s, joinFields(s, tokens, nil))
		joined := joinFields(s, tokens, columns)
		require.LessOrEqual(t, len(joined), len(s)+2*strings.Count(s, ".")+2*len(tokens))
		require.Equal(t, joined, joinFields(joined, lex(joined), columns), "a second time changes nothing")
		_ = allowed(tokens)
		mentions(tokens)
	})
}

// FuzzDecimals holds that the order of decimals is one.
func FuzzDecimals(f *testing.F) {
	f.Add("1", "2.0", "-3e1")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ab, ba := compareDecimals(a, b), compareDecimals(b, a)
		require.Equal(t, sign(ab), -sign(ba))
		if ab <= 0 && compareDecimals(b, c) <= 0 {
			require.LessOrEqual(t, compareDecimals(a, c), 0)
		}
	})
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
