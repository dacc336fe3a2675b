package export

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"sync"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/tidemark/tidemark/snapshot/table"
)

// parquetFile writes batches as row groups. Row groups are encoded concurrently
// and committed one after the other.
type parquetFile struct {
	schema *table.Schema
	w      *parquet.GenericWriter[any]
	leaves []leaf

	mu   sync.Mutex
	free []*parquet.ConcurrentRowGroupWriter
}

// leaf is a column of Parquet.
type leaf struct {
	column   int   // of the table
	path     []int // from there through the fields
	constant parquet.Value
	isConst  bool
}

func newParquet(w io.Writer, s *table.Schema, codec compress.Codec) (f *parquetFile, err error) {
	defer func() {
		// The library panics at what it takes for a programmer's mistake; a schema
		// comes from a file.
		if r := recover(); r != nil {
			f, err = nil, fmt.Errorf("parquet schema of %s: %v", s.State.Name, r)
		}
	}()
	f = &parquetFile{schema: s}
	root := &group{}
	var unbounded []parquet.WriterOption
	for i, c := range s.Columns {
		isConst := s.Parts[i] <= table.PartKind
		root.add(c.Name, node(c, isConst))
		f.addLeaves(c, i, nil, []string{c.Name}, &unbounded)
	}
	options := append([]parquet.WriterOption{
		parquet.NewSchema("state", root),
		parquet.Compression(codec),
		parquet.PageBufferSize(1 << 20),
		parquet.ColumnPageBuffers(parquet.NewChunkBufferPool(min(max(4<<20/len(f.leaves), 4<<10), 256<<10))),
		parquet.WriteBufferSize(0),
		parquet.CreatedBy("tidemark", "", ""),
	}, unbounded...)
	for _, kv := range metadata(s) {
		options = append(options, parquet.KeyValueMetadata(kv[0], kv[1]))
	}
	f.w = parquet.NewGenericWriter[any](w, options...)
	return f, nil
}

// addLeaves lists the leaves below a column, in the order of the schema.
func (f *parquetFile) addLeaves(c *table.Column, column int, path []int, names []string, options *[]parquet.WriterOption) {
	switch c.Type {
	case table.Struct, table.List, table.Map:
		for i, field := range c.Fields {
			below := append(append([]string(nil), names...), field.Name)
			switch c.Type {
			case table.List:
				below = append(append([]string(nil), names...), "list", "element")
			case table.Map:
				below = append(append([]string(nil), names...), "key_value", field.Name)
			}
			f.addLeaves(field, column, append(append([]int(nil), path...), i), below, options)
		}
		return
	case table.Binary, table.JSON:
		// Their least and greatest say nothing, and may be large.
		*options = append(*options, parquet.SkipPageBounds(names...), parquet.SkipPageStatistics(names...))
	}
	l := leaf{column: column, path: path}
	if f.schema.Parts[column] <= table.PartKind {
		l.isConst = true
		index := len(f.leaves)
		switch v := f.schema.Const[column]; {
		case v != "":
			l.constant = parquet.ByteArrayValue([]byte(strings.ToValidUTF8(v, "\ufffd"))).Level(0, 0, index)
		case c.Nullable:
			l.constant = parquet.Value{}.Level(0, 0, index)
		default:
			l.constant = parquet.ByteArrayValue(nil).Level(0, 0, index)
		}
	}
	f.leaves = append(f.leaves, l)
}

// group is a Parquet group whose fields keep their order, which a parquet.Group
// sorts by name.
type group struct {
	parquet.Group // empty; for the methods that do not depend on the fields
	fields        []parquet.Field
}

func (g *group) add(name string, n parquet.Node) {
	g.fields = append(g.fields, &field{n, name})
}

func (g *group) Fields() []parquet.Field { return g.fields }
func (g *group) String() string          { return "group" }

type field struct {
	parquet.Node
	name string
}

func (f *field) Name() string { return f.name }

// Value is for rows of Go values, which are not written here.
func (f *field) Value(reflect.Value) reflect.Value { return reflect.Value{} }

func node(c *table.Column, isConst bool) parquet.Node {
	var n parquet.Node
	switch c.Type {
	case table.Boolean:
		n = parquet.Leaf(parquet.BooleanType)
	case table.Int8:
		n = parquet.Int(8)
	case table.Int16:
		n = parquet.Int(16)
	case table.Int32:
		n = parquet.Int(32)
	case table.Int64:
		n = parquet.Int(64)
	case table.Float32:
		n = parquet.Leaf(parquet.FloatType)
	case table.Float64:
		n = parquet.Leaf(parquet.DoubleType)
	case table.Text:
		n = parquet.String()
	case table.JSON:
		n = parquet.JSON()
	case table.Binary:
		n = parquet.Leaf(parquet.ByteArrayType)
	case table.Decimal:
		typ := parquet.FixedLenByteArrayType(16)
		switch {
		case c.Precision <= 9:
			typ = parquet.Int32Type
		case c.Precision <= 18:
			typ = parquet.Int64Type
		}
		n = parquet.Decimal(int(c.Scale), int(c.Precision), typ)
	case table.Date:
		n = parquet.Date()
	case table.Time:
		n = parquet.TimeAdjusted(unit(c.Precision), false)
	case table.Timestamp:
		n = parquet.TimestampAdjusted(unit(c.Precision), c.UTC)
	case table.Struct:
		g := &group{}
		for _, f := range c.Fields {
			g.add(f.Name, node(f, f.Name == "@row_kind" || f.Name == "@class"))
		}
		n = g
	case table.List:
		n = parquet.List(node(c.Fields[0], false))
	case table.Map:
		n = parquet.Map(node(c.Fields[0], false), node(c.Fields[1], false))
	}
	if n.Leaf() && isConst {
		n = parquet.Encoded(n, &parquet.RLEDictionary)
	} else if n.Leaf() && c.Type != table.Boolean {
		n = parquet.Encoded(n, &parquet.Plain)
	}
	if c.Nullable {
		n = parquet.Optional(n)
	}
	return n
}

func unit(precision int32) parquet.TimeUnit {
	switch precision {
	case 3:
		return parquet.Millisecond
	case 6:
		return parquet.Microsecond
	}
	return parquet.Nanosecond
}

// encode makes a row group of batches. commit writes it.
func (f *parquetFile) encode(batches []*table.Batch) (commit func() error, err error) {
	f.mu.Lock()
	var rg *parquet.ConcurrentRowGroupWriter
	if n := len(f.free); n > 0 {
		rg = f.free[n-1]
		f.free = f.free[:n-1]
	} else {
		rg = f.w.BeginRowGroup()
	}
	f.mu.Unlock()
	var values []parquet.Value
	for i, w := range rg.ColumnWriters() {
		e := leafEncoder{leaf: &f.leaves[i], index: i, values: values[:0], w: w}
		for _, b := range batches {
			if err := e.batch(b); err != nil {
				return nil, err
			}
		}
		if err := w.Flush(); err != nil {
			return nil, err
		}
		values = e.values
	}
	return func() error {
		if _, err := rg.Commit(); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.free = append(f.free, rg)
		return nil
	}, nil
}

func (f *parquetFile) close() error { return f.w.Close() }

// leafEncoder turns vectors into the values of one leaf with their levels.
type leafEncoder struct {
	*leaf
	index  int
	values []parquet.Value
	w      *parquet.ColumnWriter
	// fixed is memory for decimals, until the values are written.
	fixed []byte
	bytes int
}

// Values go to the library so many, or with so many bytes of text, at a time: it
// ends a page between two calls.
const (
	valuesAtOnce = 1024
	bytesAtOnce  = 256 << 10
)

func (e *leafEncoder) flush() error {
	_, err := e.w.WriteRowValues(e.values)
	e.values, e.fixed, e.bytes = e.values[:0], e.fixed[:0], 0
	return err
}

func (e *leafEncoder) batch(b *table.Batch) error {
	if e.isConst {
		for n := b.Rows; n > 0; {
			k := min(n, valuesAtOnce)
			n -= k
			for range k {
				e.values = append(e.values, e.constant)
			}
			if err := e.flush(); err != nil {
				return err
			}
		}
		return nil
	}
	path := make([]*table.Vector, 0, 8)
	v := b.Vectors[e.column]
	path = append(path, v)
	for _, k := range e.path {
		v = v.Fields[k]
		path = append(path, v)
	}
	for i := range b.Rows {
		if len(path) == 1 {
			if v.Null(i) {
				e.null(0, 0)
			} else if v.Column.Nullable {
				e.value(v, i, 0, 1)
			} else {
				e.value(v, i, 0, 0)
			}
		} else {
			e.walk(path, i, 0, 0, 0)
		}
		if len(e.values) >= valuesAtOnce || e.bytes >= bytesAtOnce {
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
	return e.flush()
}

// walk appends what stands below value i of path[0]: rep and def are the levels
// so far, depth how many lists and maps are above.
func (e *leafEncoder) walk(path []*table.Vector, i, rep, def, depth int) {
	v := path[0]
	if v.Null(i) {
		e.null(rep, def)
		return
	}
	if v.Column.Nullable {
		def++
	}
	switch v.Column.Type {
	case table.Struct:
		e.walk(path[1:], i, rep, def, depth)
	case table.List, table.Map:
		from, to := v.Offsets[i], v.Offsets[i+1]
		if from == to {
			e.null(rep, def)
			return
		}
		depth++
		for k := from; k < to; k++ {
			e.walk(path[1:], int(k), rep, def+1, depth)
			rep = depth
		}
	default:
		e.value(v, i, rep, def)
	}
}

func (e *leafEncoder) null(rep, def int) {
	e.values = append(e.values, parquet.Value{}.Level(rep, def, e.index))
}

func (e *leafEncoder) value(v *table.Vector, i, rep, def int) {
	var x parquet.Value
	switch v.Column.Type {
	case table.Boolean:
		x = parquet.BooleanValue(v.Data[i] != 0)
	case table.Int8, table.Int16, table.Int32, table.Date:
		x = parquet.Int32Value(int32(v.Int(i)))
	case table.Int64, table.Timestamp:
		x = parquet.Int64Value(v.Int(i))
	case table.Time:
		if v.Width() == 4 {
			x = parquet.Int32Value(int32(v.Int(i)))
		} else {
			x = parquet.Int64Value(v.Int(i))
		}
	case table.Float32:
		x = parquet.FloatValue(math.Float32frombits(binary.LittleEndian.Uint32(v.Data[4*i:])))
	case table.Float64:
		x = parquet.DoubleValue(v.Float(i))
	case table.Text, table.JSON, table.Binary:
		b := v.Bytes(i)
		e.bytes += len(b)
		x = parquet.ByteArrayValue(b)
	case table.Decimal:
		switch d := v.Data[16*i : 16*i+16]; {
		case v.Column.Precision <= 9:
			x = parquet.Int32Value(int32(binary.LittleEndian.Uint32(d)))
		case v.Column.Precision <= 18:
			x = parquet.Int64Value(int64(binary.LittleEndian.Uint64(d)))
		default:
			n := len(e.fixed)
			if cap(e.fixed)-n < 16 { // values already appended keep the old memory
				e.fixed, n = make([]byte, 0, 16*valuesAtOnce), 0
			}
			for k := range d {
				e.fixed = append(e.fixed, d[15-k])
			}
			x = parquet.FixedLenByteArrayValue(e.fixed[n : n+16 : n+16])
		}
	}
	e.values = append(e.values, x.Level(rep, def, e.index))
}
