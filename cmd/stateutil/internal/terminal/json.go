package terminal

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
)

// Document writes one JSON object member by member, with arrays that stream one
// element a line, so that memory does not grow with the output and what is
// printed is a whole document even if the work ends early:
//
//	{
//	  "schema": "stateutil.ls/1",
//	  "snapshots": [
//	    {…},
//	    {…}
//	  ]
//	}
//
// The first error sticks and is what Close returns. Not for concurrent use.
type Document struct {
	w       *bufio.Writer
	err     error
	members int
	// elements is how many the open array has; -1 if none is open.
	elements int
	buf      bytes.Buffer
	enc      *json.Encoder
}

// NewDocument begins a document of a schema, "stateutil.ls/1".
func NewDocument(w io.Writer, schema string) *Document {
	d := &Document{w: bufio.NewWriterSize(w, 32<<10), elements: -1}
	d.enc = json.NewEncoder(&d.buf)
	d.enc.SetEscapeHTML(false)
	d.text("{")
	d.Member("schema", schema)
	return d
}

func (d *Document) text(s string) {
	if d.err == nil {
		_, d.err = d.w.WriteString(s)
	}
}

func (d *Document) value(v any) {
	if d.err != nil {
		return
	}
	d.buf.Reset()
	if d.err = d.enc.Encode(v); d.err == nil {
		_, d.err = d.w.Write(bytes.TrimRight(d.buf.Bytes(), "\n"))
	}
}

func (d *Document) name(name string) {
	d.EndArray()
	if d.members > 0 {
		d.text(",")
	}
	d.members++
	d.text("\n  ")
	d.value(name)
	d.text(": ")
}

// Member writes one member with its value on one line.
func (d *Document) Member(name string, v any) {
	d.name(name)
	d.value(v)
}

// Members writes the members of a struct or map: an array of objects with an
// element a line, all else as Member.
func (d *Document) Members(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		d.fail(err)
		return
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if _, err := dec.Token(); err != nil {
		d.fail(err)
		return
	}
	for dec.More() {
		key, err := dec.Token()
		var raw json.RawMessage
		if err == nil {
			err = dec.Decode(&raw)
		}
		if err != nil {
			d.fail(err)
			return
		}
		if !bytes.HasPrefix(raw, []byte("[{")) {
			d.Member(key.(string), raw)
			continue
		}
		var elements []json.RawMessage
		d.fail(json.Unmarshal(raw, &elements))
		d.Array(key.(string))
		for _, e := range elements {
			d.Element(e)
		}
	}
}

// Base64 writes a member whose value is what r gives, in base64.
func (d *Document) Base64(name string, r io.Reader) {
	d.name(name)
	d.text("\"")
	if d.err == nil {
		e := base64.NewEncoder(base64.StdEncoding, d.w)
		_, err := io.Copy(e, r)
		d.fail(err)
		d.fail(e.Close())
	}
	d.text("\"")
}

func (d *Document) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Array begins a member whose value is an array of what Element adds.
func (d *Document) Array(name string) {
	d.name(name)
	d.text("[")
	d.elements = 0
}

// Element adds to the open array.
func (d *Document) Element(v any) error {
	if d.elements > 0 {
		d.text(",")
	}
	d.elements++
	d.text("\n    ")
	d.value(v)
	return d.err
}

// EndArray ends the open array, if one is.
func (d *Document) EndArray() {
	if d.elements > 0 {
		d.text("\n  ")
	}
	if d.elements >= 0 {
		d.text("]")
		d.elements = -1
	}
}

// Close ends the document and flushes it.
func (d *Document) Close() error {
	d.EndArray()
	d.text("\n}\n")
	if d.err == nil {
		d.err = d.w.Flush()
	}
	return d.err
}
