package snapshot_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

func quiet() *snapshot.ScanOptions {
	return &snapshot.ScanOptions{OnProblem: func(*snapshot.ScanProblem) {}}
}

// TestSchemaFiles: a schema that was written and read again says the same, with the
// serializers' snapshots and, of types that words can say, without.
func TestSchemaFiles(t *testing.T) {
	states, wordsFit := 0, 0
	for _, c := range testdata.AllGoldens(t) {
		s := openSnapshot(t, c.File(c.Snapshot))
		schema, err := snapshot.ReadSchema(t.Context(), s, quiet())
		require.NoError(t, err)
		self := snapshot.CompareSchemas(schema, schema, nil)
		b, err := json.Marshal(schema)
		require.NoError(t, err)
		again, err := snapshot.ParseSchema(bytes.NewReader(b), nil)
		require.NoError(t, err, c.Name)
		require.Equal(t, self, snapshot.CompareSchemas(schema, again, nil), c.Name)
		for i := range schema.Operators {
			for k := range schema.Operators[i].States {
				states++
				op := schema.Operators[i]
				op.States = op.States[k : k+1 : k+1]
				st := op.States[0]
				st.Snapshots = nil
				op.States = []snapshot.StateSchema{st}
				b, err := json.Marshal(snapshot.Schema{Schema: snapshot.SchemaName, Operators: []snapshot.OperatorSchema{op}})
				require.NoError(t, err)
				words, err := snapshot.ParseSchema(bytes.NewReader(b), nil)
				if err != nil {
					continue // what words cannot say
				}
				old := schema.Operators[i]
				old.States = old.States[k : k+1]
				r := snapshot.CompareSchemas(&snapshot.Schema{Operators: []snapshot.OperatorSchema{old}}, words, nil)
				if r.Worst() == serializer.AsIs {
					wordsFit++
				}
			}
		}
	}
	t.Logf("%d states, %d compatible with their own words", states, wordsFit)
	require.Greater(t, wordsFit, states/2)
}

func TestCompareSchemas(t *testing.T) {
	parse := func(states string) *snapshot.Schema {
		s, err := snapshot.ParseSchema(strings.NewReader(`{"schema":"stateutil.schema/1","operators":[{"operatorUid":"op","maxParallelism":128,"states":[`+states+`]}]}`), nil)
		require.NoError(t, err)
		return s
	}
	for _, c := range []struct{ name, old, new, verdict, reason string }{
		{"same", `{"state":"s","kind":"value","key":"long","value":"string"}`, `{"state":"s","kind":"value","key":"long","value":"string"}`, "as is", ""},
		{"value type", `{"state":"s","kind":"value","key":"long","value":"int"}`, `{"state":"s","kind":"value","key":"long","value":"long"}`, "incompatible", "value: int became long"},
		{"key type", `{"state":"s","kind":"value","key":"int","value":"int"}`, `{"state":"s","kind":"value","key":"long","value":"int"}`, "incompatible", "key: int became long"},
		{"map key type", `{"state":"s","kind":"map","key":"int","mapKey":"int","value":"int"}`, `{"state":"s","kind":"map","key":"int","mapKey":"string","value":"int"}`, "incompatible", "map key: int became string"},
		{"kind", `{"state":"s","kind":"value","key":"int","value":"int"}`, `{"state":"s","kind":"list","key":"int","value":"list<int>"}`, "incompatible", "value state became list state"},
		{"element type", `{"state":"s","kind":"list","key":"int","value":"list<int>"}`, `{"state":"s","kind":"list","key":"int","value":"list<long>"}`, "incompatible", "value.element: int became long"},
		{"field added", `{"state":"s","kind":"value","key":"int","value":"pojo:a.B<x:int>"}`, `{"state":"s","kind":"value","key":"int","value":"pojo:a.B<x:int,y:int>"}`, "after migration", "value: field y was added"},
		{"field of a key added", `{"state":"s","kind":"value","key":"pojo:a.B<x:int>","value":"int"}`, `{"state":"s","kind":"value","key":"pojo:a.B<x:int,y:int>","value":"int"}`, "incompatible", "keys are not migrated"},
		{"state gone", `{"state":"s","kind":"value","key":"int","value":"int"}`, ``, "as is", "not in the new job"},
		{"state new", ``, `{"state":"s","kind":"value","key":"int","value":"int"}`, "as is", "new state"},
		{"type not told", `{"state":"s","kind":"value","key":"int","value":"int"}`, `{"state":"s","kind":"value","key":"int"}`, "undecided", "only one of the two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := snapshot.CompareSchemas(parse(c.old), parse(c.new), nil)
			require.Equal(t, c.verdict, r.Verdict, "%+v", r.States)
			require.Len(t, r.States, 1)
			require.Contains(t, strings.TrimPrefix(r.States[0].Path+": "+r.States[0].Reason, ": "), c.reason)
		})
	}
}

func TestCompareOperators(t *testing.T) {
	parse := func(operators string) *snapshot.Schema {
		s, err := snapshot.ParseSchema(strings.NewReader(`{"schema":"stateutil.schema/1","operators":[`+operators+`]}`), nil)
		require.NoError(t, err)
		return s
	}
	const states = `"states":[{"state":"s","kind":"value","key":"int","value":"int"}]`
	old := parse(`{"operatorUid":"a","maxParallelism":128,"parallelism":4,` + states + `}`)

	r := snapshot.CompareSchemas(old, parse(`{"operatorUid":"b",`+states+`}`), nil)
	require.Equal(t, "incompatible", r.Verdict)
	require.Contains(t, r.States[0].Reason, "was the uid changed?")
	r = snapshot.CompareSchemas(old, parse(`{"operatorUid":"b",`+states+`}`), &snapshot.CompatOptions{AllowNonRestored: true})
	require.Equal(t, "as is", r.Verdict)

	r = snapshot.CompareSchemas(old, parse(`{"operatorUid":"a","maxParallelism":256,`+states+`}`), nil)
	require.Equal(t, "incompatible", r.Verdict)
	require.Contains(t, r.States[0].Reason, "128 became 256")
	r = snapshot.CompareSchemas(old, parse(`{"operatorUid":"a","parallelism":200,`+states+`}`), nil)
	require.Equal(t, "incompatible", r.Verdict)
	require.Contains(t, r.States[0].Reason, "is 200, over the max parallelism 128")
	r = snapshot.CompareSchemas(old, parse(`{"operatorUid":"a","parallelism":100,`+states+`}`), nil)
	require.Equal(t, "as is", r.Verdict)
}

func TestSchemaFilesThatAreNone(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", `{"schema":"stateutil.ls/1"}`,
		`{"schema":"stateutil.schema/1","operators":[{}]}`,
		`{"schema":"stateutil.schema/1","operators":[{"operatorId":"xyz"}]}`,
		`{"schema":"stateutil.schema/1","operators":[{"operatorUid":"a"},{"operatorUid":"a"}]}`,
		`{"schema":"stateutil.schema/1","operators":[{"operatorUid":"a","states":[{}]}]}`,
		`{"schema":"stateutil.schema/1","operators":[{"operatorUid":"a","states":[{"state":"s","kind":"value","value":"no such type"}]}]}`,
		`{"schema":"stateutil.schema/1","operators":[{"operatorUid":"a","states":[{"state":"s","kind":"value","snapshots":{"value":"AAAA"}}]}]}`,
		`{"schema":"stateutil.schema/1","operators":[{"operatorUid":"a","states":[{"state":"s","kind":"value","snapshots":{"what":""}}]}]}`,
	} {
		_, err := snapshot.ParseSchema(strings.NewReader(text), nil)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "\n")
	}
}
