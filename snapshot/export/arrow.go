package export

import (
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	arrowmem "github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tidemark/tidemark/snapshot/table"
)

// arrowFile writes each batch as a record batch. Vectors have Arrow's layout, so
// that nothing but booleans is copied.
type arrowFile struct {
	table  *table.Schema
	schema *arrow.Schema
	w      interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
	constants []arrow.Array // dictionaries of constant columns
}

func newArrow(w io.Writer, s *table.Schema, stream bool) (*arrowFile, error) {
	f := &arrowFile{table: s, constants: make([]arrow.Array, len(s.Columns))}
	fields := make([]arrow.Field, len(s.Columns))
	for i, c := range s.Columns {
		fields[i] = arrowField(c)
		if s.Parts[i] <= table.PartKind {
			fields[i].Type = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
			b := array.NewStringBuilder(arrowmem.DefaultAllocator)
			b.Append(strings.ToValidUTF8(s.Const[i], "\ufffd"))
			f.constants[i] = b.NewArray()
		}
	}
	var keys, values []string
	for _, kv := range metadata(s) {
		keys, values = append(keys, kv[0]), append(values, kv[1])
	}
	meta := arrow.NewMetadata(keys, values)
	f.schema = arrow.NewSchema(fields, &meta)
	if stream {
		f.w = ipc.NewWriter(w, ipc.WithSchema(f.schema))
		return f, nil
	}
	fw, err := ipc.NewFileWriter(w, ipc.WithSchema(f.schema))
	if err != nil {
		return nil, fmt.Errorf("arrow: %w", err)
	}
	f.w = fw
	return f, nil
}

func arrowField(c *table.Column) arrow.Field {
	f := arrow.Field{Name: c.Name, Nullable: c.Nullable}
	switch c.Type {
	case table.Boolean:
		f.Type = arrow.FixedWidthTypes.Boolean
	case table.Int8:
		f.Type = arrow.PrimitiveTypes.Int8
	case table.Int16:
		f.Type = arrow.PrimitiveTypes.Int16
	case table.Int32:
		f.Type = arrow.PrimitiveTypes.Int32
	case table.Int64:
		f.Type = arrow.PrimitiveTypes.Int64
	case table.Float32:
		f.Type = arrow.PrimitiveTypes.Float32
	case table.Float64:
		f.Type = arrow.PrimitiveTypes.Float64
	case table.Text, table.JSON:
		f.Type = arrow.BinaryTypes.String
	case table.Binary:
		f.Type = arrow.BinaryTypes.Binary
	case table.Decimal:
		f.Type = &arrow.Decimal128Type{Precision: c.Precision, Scale: c.Scale}
	case table.Date:
		f.Type = arrow.FixedWidthTypes.Date32
	case table.Time:
		f.Type = arrow.FixedWidthTypes.Time64us
		if c.Precision == 3 {
			f.Type = arrow.FixedWidthTypes.Time32ms
		}
	case table.Timestamp:
		t := &arrow.TimestampType{Unit: arrow.Nanosecond}
		switch c.Precision {
		case 3:
			t.Unit = arrow.Millisecond
		case 6:
			t.Unit = arrow.Microsecond
		}
		if c.UTC {
			t.TimeZone = "UTC"
		}
		f.Type = t
	case table.Struct:
		fields := make([]arrow.Field, len(c.Fields))
		for i, x := range c.Fields {
			fields[i] = arrowField(x)
		}
		f.Type = arrow.StructOf(fields...)
	case table.List:
		f.Type = arrow.ListOfField(arrowField(c.Fields[0]))
	case table.Map:
		k, v := arrowField(c.Fields[0]), arrowField(c.Fields[1])
		f.Type = arrow.MapOfFields(k, v)
	}
	return f
}

func (f *arrowFile) encode(batches []*table.Batch) (commit func() error, err error) {
	return func() error {
		for _, b := range batches {
			if err := f.write(b); err != nil {
				return fmt.Errorf("arrow: %w", err)
			}
		}
		return nil
	}, nil
}

func (f *arrowFile) write(b *table.Batch) error {
	if b.Rows == 0 {
		return nil
	}
	columns := make([]arrow.Array, len(b.Vectors))
	defer func() {
		for _, c := range columns {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i, v := range b.Vectors {
		if v != nil {
			d := arrowData(v, f.schema.Field(i).Type)
			columns[i] = array.MakeFromData(d)
			d.Release()
			continue
		}
		indices := make([]byte, b.Rows) // all of them 0
		var valid *arrowmem.Buffer
		nulls := 0
		if f.table.Const[i] == "" && f.table.Columns[i].Nullable {
			valid, nulls = arrowmem.NewBufferBytes(make([]byte, (b.Rows+7)/8)), b.Rows
		}
		d := array.NewDataWithDictionary(f.schema.Field(i).Type, b.Rows, []*arrowmem.Buffer{valid, arrowmem.NewBufferBytes(indices)}, nulls, 0, f.constants[i].Data().(*array.Data))
		columns[i] = array.MakeFromData(d)
		d.Release()
	}
	record := array.NewRecordBatch(f.schema, columns, int64(b.Rows))
	defer record.Release()
	return f.w.Write(record)
}

// arrowData wraps a vector.
func arrowData(v *table.Vector, t arrow.DataType) *array.Data {
	var valid *arrowmem.Buffer
	if v.Valid != nil {
		valid = arrowmem.NewBufferBytes(v.Valid)
	}
	nulls := v.Nulls
	if v.Valid == nil {
		nulls = 0
	}
	buffers := []*arrowmem.Buffer{valid}
	var children []arrow.ArrayData
	switch v.Column.Type {
	case table.Boolean:
		packed := make([]byte, (v.Len+7)/8)
		for i, x := range v.Data {
			packed[i>>3] |= x << (i & 7)
		}
		buffers = append(buffers, arrowmem.NewBufferBytes(packed))
	case table.Text, table.JSON, table.Binary:
		buffers = append(buffers, arrowmem.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.Offsets)), arrowmem.NewBufferBytes(v.Data))
	case table.Struct:
		for i, c := range v.Fields {
			children = append(children, arrowData(c, t.(*arrow.StructType).Field(i).Type))
		}
	case table.List:
		buffers = append(buffers, arrowmem.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.Offsets)))
		children = append(children, arrowData(v.Fields[0], t.(*arrow.ListType).Elem()))
	case table.Map:
		buffers = append(buffers, arrowmem.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.Offsets)))
		m := t.(*arrow.MapType)
		pairs := []arrow.ArrayData{arrowData(v.Fields[0], m.KeyType()), arrowData(v.Fields[1], m.ItemType())}
		children = append(children, array.NewData(m.Elem(), v.Fields[0].Len, []*arrowmem.Buffer{nil}, pairs, 0, 0))
		pairs[0].Release()
		pairs[1].Release()
	default:
		buffers = append(buffers, arrowmem.NewBufferBytes(v.Data))
	}
	d := array.NewData(t, v.Len, buffers, children, nulls, 0)
	for _, c := range children {
		c.Release()
	}
	return d
}

func (f *arrowFile) close() error { return f.w.Close() }
