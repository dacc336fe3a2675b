package javaio

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Format writes a value as indented text, each object once: where it appears
// again, only its number stands, so that cycles end and shared parts do not
// multiply.
//
//	java.util.ArrayList #1 uid 7881d21d99c7619d
//	  size: int 2
//	  java.util.ArrayList wrote:
//	    block 00000002
//	    "a"
//	    #1
func Format(w io.Writer, v Value) error {
	f := formatter{w: bufio.NewWriter(w), seen: map[any]int{}}
	f.value(v, 0)
	f.w.WriteByte('\n')
	return f.w.Flush()
}

type formatter struct {
	w    *bufio.Writer
	seen map[any]int
}

func (f *formatter) line(indent int) {
	f.w.WriteByte('\n')
	f.w.WriteString(strings.Repeat("  ", min(indent, 40)))
}

// first reports whether v is new, and writes its number if not.
func (f *formatter) first(v any) bool {
	if n, ok := f.seen[v]; ok {
		fmt.Fprintf(f.w, "#%d", n)
		return false
	}
	f.seen[v] = len(f.seen) + 1
	return true
}

func (f *formatter) value(v Value, indent int) {
	switch v := v.(type) {
	case nil:
		f.w.WriteString("null")
	case String:
		f.text(v)
	case BlockData:
		f.w.WriteString("block ")
		f.bytes(v)
	case bool:
		fmt.Fprintf(f.w, "%t", v)
	case int8:
		fmt.Fprintf(f.w, "byte %d", v)
	case uint16:
		fmt.Fprintf(f.w, "char %04x", v)
	case int16:
		fmt.Fprintf(f.w, "short %d", v)
	case int32:
		fmt.Fprintf(f.w, "int %d", v)
	case int64:
		fmt.Fprintf(f.w, "long %d", v)
	case float32:
		fmt.Fprintf(f.w, "float %v", v)
	case float64:
		fmt.Fprintf(f.w, "double %v", v)
	case *Enum:
		fmt.Fprintf(f.w, "enum %s.%s", v.Class.label(), v.Name.Go())
	case *Class:
		fmt.Fprintf(f.w, "class %s", v.Desc.label())
	case *ClassDesc:
		f.class(v, indent)
	case *Array:
		f.array(v, indent)
	case *Object:
		f.object(v, indent)
	default:
		fmt.Fprintf(f.w, "%T", v)
	}
}

func (f *formatter) text(s String) {
	const most = 256
	if len(s) <= most {
		f.w.WriteString(strconv.Quote(s.Go()))
		return
	}
	fmt.Fprintf(f.w, "%s… (%d bytes)", strconv.Quote(s[:most].Go()), len(s))
}

func (f *formatter) bytes(b []byte) {
	const most = 64
	if len(b) <= most {
		f.w.WriteString(hex.EncodeToString(b))
		return
	}
	fmt.Fprintf(f.w, "%s… (%d bytes)", hex.EncodeToString(b[:most]), len(b))
}

// label names a class for a reader.
func (d *ClassDesc) label() string {
	if d == nil {
		return "null"
	}
	if !d.Proxy {
		return d.Name.Go()
	}
	names := make([]string, len(d.Interfaces))
	for i, s := range d.Interfaces {
		names[i] = s.Go()
	}
	return "proxy of " + strings.Join(names, ", ")
}

func (f *formatter) class(d *ClassDesc, indent int) {
	if !f.first(d) {
		return
	}
	fmt.Fprintf(f.w, "class descriptor #%d %s uid %016x flags %02x", f.seen[d], d.label(), uint64(d.UID), d.Flags)
	for i := range d.Fields {
		f.line(indent + 1)
		fmt.Fprintf(f.w, "%c %s %s", d.Fields[i].Type, d.Fields[i].Name.Go(), d.Fields[i].Sig.Go())
	}
	if d.Super != nil {
		f.line(indent + 1)
		f.w.WriteString("extends ")
		f.class(d.Super, indent+1)
	}
}

func (f *formatter) array(a *Array, indent int) {
	if !f.first(a) {
		return
	}
	fmt.Fprintf(f.w, "array %s #%d of %d", a.Class.label(), f.seen[a], a.Len())
	if a.elems == nil {
		f.w.WriteByte(' ')
		f.bytes(a.raw)
		return
	}
	for _, e := range a.elems {
		f.line(indent + 1)
		f.value(e, indent+1)
	}
}

func (f *formatter) object(o *Object, indent int) {
	if !f.first(o) {
		return
	}
	fmt.Fprintf(f.w, "%s #%d uid %016x", o.Class.label(), f.seen[o], uint64(o.Class.UID))
	for fv := range o.Fields() {
		f.line(indent + 1)
		fmt.Fprintf(f.w, "%s: ", fv.Field.Name.Go())
		f.value(fv.Value, indent+1)
	}
	for _, n := range o.notes {
		f.line(indent + 1)
		fmt.Fprintf(f.w, "%s wrote:", n.class.label())
		for _, v := range n.values {
			f.line(indent + 2)
			f.value(v, indent+2)
		}
	}
}
