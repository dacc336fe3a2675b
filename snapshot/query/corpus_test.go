package query_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/query"
)

// TestCorpusDecodes reads every row of the jobs and SQL savepoints that Flink's own
// tests keep: to its last byte, or it counts as opaque with its class named. The
// keyed states of SQL jobs have typed columns.
func TestCorpusDecodes(t *testing.T) {
	corpus := testdata.Corpus(t)
	type count struct{ snapshots, states, rows, undecoded, problems int }
	counts := map[string]*count{"jobs": {}, "sql": {}}
	opaque := map[string]int{}
	problems := map[string]int{}
	typed, columns := 0, 0
	for _, kind := range []string{"jobs", "sql"} {
		c := counts[kind]
		for _, file := range testdata.MetadataFiles(t, filepath.Join(corpus, kind)) {
			s := open(t, filepath.Dir(file))
			c.snapshots++
			scan := &snapshot.ScanOptions{OnProblem: func(p *snapshot.ScanProblem) {
				c.problems++
				problems[p.Err.Error()]++
				require.True(t, p.Opaque, "%s: %v", file, p)
			}}
			for r, err := range snapshot.Rows(t.Context(), s, scan) {
				require.NoError(t, err, file)
				require.NoError(t, r.Check(), "%s: state %s", file, r.State.Name)
				c.rows++
				if _, class := r.AppendJSON(nil); class != "" {
					c.undecoded++
					opaque[class]++
				}
			}
			tables, err := query.Tables(t.Context(), s, &query.Options{Scan: scan})
			require.NoError(t, err)
			c.states += len(tables)
			if kind != "sql" {
				continue
			}
			// A row without columns, the key of what is not partitioned, is JSON.
			empty := map[string]bool{}
			states, err := snapshot.States(t.Context(), s, scan)
			require.NoError(t, err)
			for _, st := range states {
				for column, typ := range map[string]*serializer.Type{"key": st.Key, "value": st.Value} {
					if typ != nil && typ.Kind == serializer.KindRow && len(typ.Fields) == 0 {
						empty[st.Operator.ID+"."+st.Name+"."+column] = true
					}
				}
			}
			for _, tab := range tables {
				if !tab.Kind().Keyed() || tab.Kind() == snapshot.StateTimer {
					continue
				}
				for _, col := range tab.Columns {
					if col.Name != "key" && col.Name != "value" && !strings.HasPrefix(col.Name, "key.") && !strings.HasPrefix(col.Name, "value.") {
						continue
					}
					columns++
					if col.Type != "binary" && col.Type != "json" {
						typed++
					} else {
						require.True(t, empty[tab.OperatorID()+"."+tab.State+"."+col.Name], "%s: %s.%s is %s", file, tab.Name(), col.Name, col.Type)
					}
				}
			}
		}
	}
	t.Logf("jobs %+v, sql %+v, %d of %d columns typed", *counts["jobs"], *counts["sql"], typed, columns)
	require.Empty(t, opaque)
	require.Empty(t, problems)
	require.Equal(t, count{snapshots: 66, states: 621, rows: 2073}, *counts["jobs"])
	require.Equal(t, count{snapshots: 96, states: 849, rows: 1092}, *counts["sql"])
	require.Equal(t, []int{1181, 1231}, []int{typed, columns})
}
