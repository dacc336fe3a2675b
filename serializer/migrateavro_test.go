package serializer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMigrateAvro reads values of one schema as those of another, by Avro's schema
// resolution. That a real Flink does the same is tested with flink-verify.
func TestMigrateAvro(t *testing.T) {
	item := func(fields string) string {
		return `{"type":"record","name":"Item","namespace":"org.example","fields":[` + fields + `]}`
	}
	for name, c := range map[string]struct{ old, value, new, want string }{
		"added, removed, reordered, wider": {
			item(`{"name":"id","type":"long"},{"name":"name","type":"string"},{"name":"n","type":"int"}`), `{"id":7,"name":"x","n":-3}`,
			item(`{"name":"note","type":"string","default":"none"},{"name":"n","type":"long"},{"name":"id","type":"double"}`), `{"note":"none","n":-3,"id":7.0}`},
		"nullable": {
			item(`{"name":"id","type":"long"}`), `{"id":7}`,
			item(`{"name":"id","type":["null","long"]},{"name":"more","type":["null","string"],"default":null}`), `{"id":7,"more":null}`},
		"nullable and wider": {
			item(`{"name":"id","type":["null","int"]}`), `{"id":7}`,
			item(`{"name":"id","type":["null","long"]}`), `{"id":7}`},
		"renamed by alias": {
			item(`{"name":"id","type":"long"}`), `{"id":7}`,
			item(`{"name":"key","aliases":["number","id"],"type":"long"}`), `{"key":7}`},
		"defaults of every type": {
			item(`{"name":"id","type":"long"}`), `{"id":7}`,
			item(`{"name":"a","type":{"type":"array","items":"int"},"default":[1,2]},{"name":"b","type":"bytes","default":"\u00ff\u0001"},
				{"name":"d","type":"double","default":1},{"name":"e","type":{"type":"enum","name":"E","symbols":["X","Y"]},"default":"Y"},
				{"name":"f","type":"float","default":0.5},{"name":"k","type":"boolean","default":true},{"name":"l","type":"long","default":9007199254740993},
				{"name":"m","type":{"type":"map","values":"string"},"default":{"x":"y"}},
				{"name":"r","type":{"type":"record","name":"R","fields":[{"name":"p","type":"int"},{"name":"q","type":"E","default":"X"}]},"default":{"p":5}}`),
			`{"a":[1,2],"b":{"base64":"/wE="},"d":1.0,"e":"Y","f":0.5,"k":true,"l":9007199254740993,"m":[["x","y"]],"r":{"p":5,"q":"X"}}`},
		"nested": {
			item(`{"name":"list","type":{"type":"array","items":{"type":"record","name":"In","fields":[{"name":"v","type":"int"}]}}},{"name":"by","type":{"type":"map","values":"In"}}`),
			`{"list":[{"v":1},{"v":2}],"by":[["k",{"v":3}]]}`,
			item(`{"name":"list","type":{"type":"array","items":{"type":"record","name":"In","fields":[{"name":"v","type":"long"},{"name":"w","type":"int","default":4}]}}},{"name":"by","type":{"type":"map","values":"In"}}`),
			`{"list":[{"v":1,"w":4},{"v":2,"w":4}],"by":[["k",{"v":3,"w":4}]]}`},
		"a symbol that is gone": {
			item(`{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}}`), `{"e":"B"}`,
			item(`{"name":"e","type":{"type":"enum","name":"E","symbols":["A","Z"],"default":"Z"}}`), `{"e":"Z"}`},
	} {
		t.Run(name, func(t *testing.T) {
			old, err := NewAvro(GenericRecord, c.old)
			require.NoError(t, err)
			next, err := NewAvro(GenericRecord, c.new)
			require.NoError(t, err)
			for _, in := range []func(*Type) *Type{func(t *Type) *Type { return t }, NewList} {
				from, to, value, want := in(old), in(next), c.value, c.want
				if from.Kind == KindList {
					value, want = "["+value+","+value+"]", "["+want+","+want+"]"
				}
				b, err := from.AppendFromJSON(nil, []byte(value))
				require.NoError(t, err)
				convert, compat := Migrate(from, to, nil)
				require.Equal(t, AfterMigration, compat.Verdict, "%s", compat)
				got, err := convert(nil, b)
				require.NoError(t, err)
				text, n, err := NewDecoder(to, nil).AppendJSON(nil, got)
				require.NoError(t, err)
				require.Equal(t, len(got), n)
				require.JSONEq(t, want, string(text))
			}
		})
	}
}

// TestMigrateAvroDefaults refuses a default that is not of its field's type.
func TestMigrateAvroDefaults(t *testing.T) {
	old, err := NewAvro(GenericRecord, `{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}`)
	require.NoError(t, err)
	b, err := old.AppendFromJSON(nil, []byte(`{"id":1}`))
	require.NoError(t, err)
	for _, d := range []string{`{"name":"x","type":"int","default":"a"}`, `{"name":"x","type":"int","default":4294967296}`, `{"name":"x","type":"string","default":null}`,
		`{"name":"x","type":{"type":"array","items":"int"},"default":{}}`, `{"name":"x","type":"bytes","default":"\u0100"}`} {
		next, err := NewAvro(GenericRecord, `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},`+d+`]}`)
		require.NoError(t, err)
		convert, _ := Migrate(old, next, nil)
		require.NotNil(t, convert)
		_, err = convert(nil, b)
		require.ErrorContains(t, err, "field x: the default", "%s", d)
	}
}
