package export_test

import (
	"encoding/binary"
	"io"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/export"
	"github.com/tidemark/tidemark/snapshot/table"
)

// TestGoldens writes every state of every golden in each format, reads the files
// back and compares them with the rows' vectors, which the tests of package table
// compare with the rows' JSON.
func TestGoldens(t *testing.T) { goldens(t, testdata.Goldens(t)) }

// TestAllGoldens is the same for the whole set, where it is present.
func TestAllGoldens(t *testing.T) {
	cases, _ := testdata.ManyGoldens(t, 0)
	goldens(t, cases)
}

func goldens(t *testing.T, cases []*testdata.Case) {
	require.NotEmpty(t, cases)
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			t.Run(c.Name+"/"+filepath.Base(sn.Path), func(t *testing.T) {
				t.Parallel()
				s := open(t, c.File(sn.Path))
				want := vectors(t, s)
				for _, f := range []export.Format{export.Parquet, export.Arrow, export.ArrowStream} {
					compare(t, s, f, want)
				}
			})
		}
	}
}

func open(t testing.TB, path string) *snapshot.Snapshot {
	pool := blobstore.NewPool(nil, nil)
	t.Cleanup(func() { pool.Close() })
	loc, err := blobstore.Parse(path)
	require.NoError(t, err)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	return s
}

func scanOptions(t testing.TB) *snapshot.ScanOptions {
	return &snapshot.ScanOptions{OnProblem: func(p *snapshot.ScanProblem) { require.True(t, p.Opaque, "%v", p) }}
}

// vectors are the batches of a snapshot by operator ID and state, and kind.
func vectors(t *testing.T, s *snapshot.Snapshot) map[[3]string]*table.Batch {
	out := map[[3]string]*table.Batch{}
	for r, err := range snapshot.Rows(t.Context(), s, scanOptions(t)) {
		require.NoError(t, err)
		k := [3]string{r.State.Operator.ID, r.State.Name, string(r.State.Kind)}
		if out[k] == nil {
			out[k] = table.NewBatch(table.Of(r.State))
		}
		out[k].Add(r)
	}
	return out
}

func compare(t *testing.T, s *snapshot.Snapshot, format export.Format, want map[[3]string]*table.Batch) {
	dir := filepath.Join(t.TempDir(), "out")
	names, err := export.ToDir(t.Context(), s, dir, &export.Options{Format: format, Scan: scanOptions(t)})
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, len(names), "other files than those that were told")
	found := 0
	for _, name := range names {
		var got *content
		if format == export.Parquet {
			got = readParquet(t, name)
		} else {
			got = readArrow(t, name, format)
		}
		k := [3]string{got.meta["tidemark.operator_id"], got.meta["tidemark.state"], got.meta["tidemark.kind"]}
		b := want[k]
		if b == nil {
			require.Empty(t, got.rows, "%s", name)
			continue
		}
		found++
		require.Len(t, got.rows, b.Rows, "%s", name)
		require.Len(t, got.columns, len(b.Vectors))
		for c, v := range b.Vectors {
			require.Equal(t, b.Schema.Columns[c].Name, got.columns[c])
			for i := range b.Rows {
				var w any
				if v != nil {
					w = v.Value(i)
				} else if x := b.Schema.Const[c]; x != "" {
					w = x
				}
				require.Equal(t, bitwise(w), bitwise(got.rows[i][c]), "%s row %d column %s %s", name, i, got.columns[c], b.Schema.Columns[c])
			}
		}
	}
	require.Equal(t, len(want), found)
}

// bitwise has the bits of a number that is not equal to itself.
func bitwise(v any) any {
	switch v := v.(type) {
	case float64:
		return math.Float64bits(v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = bitwise(x)
		}
		return out
	case [][2]any:
		out := make([][2]any, len(v))
		for i, x := range v {
			out[i] = [2]any{bitwise(x[0]), bitwise(x[1])}
		}
		return out
	}
	return v
}

// content is a file read back, in the forms of Vector.Value.
type content struct {
	meta    map[string]string
	columns []string
	rows    [][]any
}

func readParquet(t *testing.T, name string) *content {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	p, err := parquet.OpenFile(f, st.Size())
	require.NoError(t, err)
	c := &content{meta: map[string]string{}}
	for _, kv := range p.Metadata().KeyValueMetadata {
		c.meta[kv.Key] = kv.Value
	}
	root := p.Root()
	for _, col := range root.Columns() {
		c.columns = append(c.columns, col.Name())
	}
	for _, rg := range p.RowGroups() {
		rows := rg.Rows()
		buf := make([]parquet.Row, 16)
		for {
			n, err := rows.ReadRows(buf)
			for _, row := range buf[:n] {
				values := make(map[int][]parquet.Value)
				for _, v := range row {
					values[v.Column()] = append(values[v.Column()], v.Clone())
				}
				var out []any
				for _, col := range root.Columns() {
					out = append(out, assemble(col, values, 0, 0))
				}
				c.rows = append(c.rows, out)
			}
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
		}
		require.NoError(t, rows.Close())
	}
	return c
}

// assemble makes a value of a column from the values of its leaves, by their
// levels: def is the definition level of what is above, rep how many repeated
// nodes are above.
func assemble(col *parquet.Column, values map[int][]parquet.Value, def, rep int) any {
	first := firstLeaf(col)
	if col.Optional() {
		if values[first][0].DefinitionLevel() <= def {
			return nil
		}
		def++
	}
	if col.Leaf() {
		return goValue(col, values[first][0])
	}
	logical := ""
	if lt := col.Type().LogicalType(); lt != nil {
		logical = lt.String()
	}
	if logical == "LIST" || logical == "MAP" {
		repeated := col.Columns()[0]
		parts := split(repeated, values, def, rep)
		if logical == "LIST" {
			out := []any{}
			for _, part := range parts {
				out = append(out, assemble(repeated.Columns()[0], part, def+1, rep+1))
			}
			return out
		}
		out := [][2]any{}
		for _, part := range parts {
			out = append(out, [2]any{assemble(repeated.Columns()[0], part, def+1, rep+1), assemble(repeated.Columns()[1], part, def+1, rep+1)})
		}
		return out
	}
	var out []any
	for _, f := range col.Columns() {
		out = append(out, assemble(f, values, def, rep))
	}
	return out
}

// split cuts the values below a repeated node into its occurrences.
func split(col *parquet.Column, values map[int][]parquet.Value, def, rep int) []map[int][]parquet.Value {
	var out []map[int][]parquet.Value
	for _, leaf := range leavesOf(col) {
		k := -1
		for _, v := range values[leaf] {
			if k < 0 && v.DefinitionLevel() <= def {
				return nil // empty
			}
			if k < 0 || v.RepetitionLevel() <= rep+1 {
				k++
			}
			if k == len(out) {
				out = append(out, map[int][]parquet.Value{})
			}
			out[k][leaf] = append(out[k][leaf], v)
		}
	}
	return out
}

func leavesOf(col *parquet.Column) []int {
	if col.Leaf() {
		return []int{col.Index()}
	}
	var out []int
	for _, f := range col.Columns() {
		out = append(out, leavesOf(f)...)
	}
	return out
}

func firstLeaf(col *parquet.Column) int { return leavesOf(col)[0] }

func goValue(col *parquet.Column, v parquet.Value) any {
	lt := col.Type().LogicalType()
	logical := ""
	if lt != nil {
		logical = lt.String()
	}
	if strings.HasPrefix(logical, "DECIMAL") {
		x := new(big.Int)
		switch v.Kind() {
		case parquet.Int32:
			x.SetInt64(int64(v.Int32()))
		case parquet.Int64:
			x.SetInt64(v.Int64())
		default:
			b := v.ByteArray()
			x.SetBytes(b)
			if b[0] >= 0x80 {
				x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
			}
		}
		return decimalText(x, int(schemaScale(logical)))
	}
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean()
	case parquet.Int32:
		return int64(v.Int32())
	case parquet.Int64:
		return v.Int64()
	case parquet.Float:
		return float64(v.Float())
	case parquet.Double:
		return v.Double()
	}
	if logical == "STRING" || logical == "JSON" {
		return string(v.ByteArray())
	}
	return append([]byte{}, v.ByteArray()...)
}

// schemaScale reads DECIMAL(precision,scale).
func schemaScale(s string) int64 {
	_, s, _ = strings.Cut(s, ",")
	x, _ := new(big.Int).SetString(strings.TrimRight(s, ")"), 10)
	return x.Int64()
}

func decimalText(x *big.Int, scale int) string {
	lo := make([]byte, 16)
	y := new(big.Int).And(x, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)))
	b := y.FillBytes(make([]byte, 16))
	for i := range b {
		lo[i] = b[15-i]
	}
	return (&table.Vector{Column: &table.Column{Type: table.Decimal, Scale: int32(scale)}, Data: lo}).DecimalText(0)
}

func readArrow(t *testing.T, name string, format export.Format) *content {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	c := &content{meta: map[string]string{}}
	head := func(s *arrow.Schema) {
		for i, k := range s.Metadata().Keys() {
			c.meta[k] = s.Metadata().Values()[i]
		}
		for _, f := range s.Fields() {
			c.columns = append(c.columns, f.Name)
		}
	}
	record := func(r arrow.RecordBatch) {
		for i := range int(r.NumRows()) {
			var row []any
			for k := range int(r.NumCols()) {
				row = append(row, arrowValue(t, r.Column(k), i))
			}
			c.rows = append(c.rows, row)
		}
	}
	if format == export.ArrowStream {
		r, err := ipc.NewReader(f)
		require.NoError(t, err)
		defer r.Release()
		head(r.Schema())
		for r.Next() {
			record(r.RecordBatch())
		}
		require.NoError(t, r.Err())
		return c
	}
	r, err := ipc.NewFileReader(f)
	require.NoError(t, err)
	defer r.Close()
	head(r.Schema())
	for i := range r.NumRecords() {
		b, err := r.RecordBatch(i)
		require.NoError(t, err)
		record(b)
	}
	return c
}

func arrowValue(t *testing.T, a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return a.Dictionary().(*array.String).Value(a.GetValueIndex(i))
	case *array.Boolean:
		return a.Value(i)
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float64:
		return a.Value(i)
	case *array.String:
		return strings.Clone(a.Value(i))
	case *array.Binary:
		return append([]byte{}, a.Value(i)...)
	case *array.Date32:
		return int64(a.Value(i))
	case *array.Time32:
		return int64(a.Value(i))
	case *array.Time64:
		return int64(a.Value(i))
	case *array.Timestamp:
		return int64(a.Value(i))
	case *array.Decimal128:
		b := make([]byte, 16)
		binary.BigEndian.PutUint64(b, uint64(a.Value(i).HighBits()))
		binary.BigEndian.PutUint64(b[8:], a.Value(i).LowBits())
		x := new(big.Int).SetBytes(b)
		if b[0] >= 0x80 {
			x.Sub(x, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		return decimalText(x, int(a.DataType().(*arrow.Decimal128Type).Scale))
	case *array.Struct:
		var out []any
		for k := range a.NumField() {
			out = append(out, arrowValue(t, a.Field(k), i))
		}
		return out
	case *array.List:
		out := []any{}
		from, to := a.ValueOffsets(i)
		for k := from; k < to; k++ {
			out = append(out, arrowValue(t, a.ListValues(), int(k)))
		}
		return out
	case *array.Map:
		out := [][2]any{}
		from, to := a.ValueOffsets(i)
		for k := from; k < to; k++ {
			out = append(out, [2]any{arrowValue(t, a.Keys(), int(k)), arrowValue(t, a.Items(), int(k))})
		}
		return out
	}
	t.Fatalf("%T", a)
	return nil
}
