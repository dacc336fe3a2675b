package serializer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a type cannot hold is refused in words of JSON, and nothing is written that its
// own reader would call damage.
func TestRefusedValues(t *testing.T) {
	words := func(s string) *Type {
		t.Helper()
		parsed, err := ParseType(s, nil)
		require.NoError(t, err)
		return parsed
	}
	const (
		far  = `"+1000000000-01-01`
		sqls = `"+999999999-01-01T00:00:00Z"`
	)
	decimal := decimalColumn(10, 2)
	for _, c := range []struct {
		t          *Type
		json, want string
	}{
		{words("long"), `[]`, "value of long: cannot be an array"},
		{words("long"), `{}`, "value of long: cannot be an object"},
		{words("long"), `true`, "value of long: cannot be a boolean"},
		{words("string"), `1`, "value of string: cannot be a number"},
		{words("boolean"), `"yes"`, "value of boolean: cannot be a string"},
		{words("list<int>"), `{"a":1}`, "value of list<int>: cannot be an object"},
		{words("tuple<int,list<string>>"), `[1,["a",2]]`, "f1[1] of string: cannot be a number"},
		{words("either<int,int>"), `{"left":1,"right":2}`, "value of either<int, int>: cannot be an object"},
		{words("tuple<>"), `"anything"`, "value of tuple<>: cannot be a string"},
		{words("tuple<>"), `[1]`, "value of tuple<>: has 1 fields, not 0"},
		{words("tuple<>"), `null`, "value of tuple<>: must not be null"},
		{words("globalwindow"), `1`, "value of globalwindow: cannot be a number"},
		{words("globalwindow"), `"other"`, "value of globalwindow: cannot be a string"},
		{words("map<string,int>"), `[["a",1],["b",2],["a",3]]`, "[2].key of map<string, int>: is in the map already"},
		{words("set<long>"), `[1,2,1]`, "[2] of set<long>: is in the set already"},
		{words("set<string>"), `[null,null]`, "[1] of set<string>: is in the set already"},
		{words("pojo:a.B<x:long,y:set<int>>"), `1`, "value of pojo:a.B: cannot be a number"},
		{words("enum:a.B<X,Y>"), `"Z"`, `value of enum:a.B: has no constant "Z"`},
		{words("row<a:int>"), `{"a":1,"b":2}`, `value of row<a int>: has a field "b" that the type lacks`},
		{words("localdate"), far + `"`, "value of localdate: is out of range"},
		{words("localdatetime"), far + `T00:00"`, "value of localdatetime: is out of range"},
		{words("instant"), `"-1000000000-01-01T00:00:00Z"`, ""},
		{words("instant"), `"+1000000000-12-31T23:59:59.999999999Z"`, ""},
		{words("sqltimestamp"), sqls, "value of sqltimestamp: is out of range"},
		{words("sqltimestamp"), `{"millis":1,"nanos":1000000000}`, "value of sqltimestamp: 1000000000 ns are no part of a second"},
		{decimal, `"1E+2000"`, "value of decimal(10,2): 1E+2000 has more than 10 digits"},
		{decimal, `"0E-2000000000"`, ""},
		{decimal, `"99999999.99"`, ""},
		{decimal, `"100000000.00"`, "value of decimal(10,2): 100000000.00 has more than 10 digits"},
	} {
		b, err := c.t.AppendFromJSON(nil, []byte(c.json))
		if c.want != "" {
			require.EqualError(t, err, c.want, c.json)
			continue
		}
		require.NoError(t, err, c.json)
		_, n, err := NewDecoder(c.t, nil).AppendJSON(nil, b)
		require.NoError(t, err, c.json)
		require.Equal(t, len(b), n)
	}
	// A name that no snapshot has room for.
	for _, w := range []string{"pojo:" + strings.Repeat("水", 30_000) + "<a:int>", "pojo:A<" + strings.Repeat("a", 70_000) + ":int>", "enum:A<B," + strings.Repeat("\x00", 40_000) + ">"} {
		_, err := ParseType(w, nil)
		require.ErrorContains(t, err, "is longer than 65000")
		require.Less(t, len(err.Error()), 1200)
	}
}
