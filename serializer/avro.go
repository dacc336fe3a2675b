package serializer

type avroNode struct{}

// readAvro reads the runtime class and the writer's schema: version 3 as strings
// of Flink's StringSerializer, version 2 as utf, version 1 the schema alone.
func readAvro(s *snapReader, t *Type) {
	if !s.version(t, 1, 2, 3) {
		return
	}
	text := s.utf
	if t.Version == 3 {
		text = s.string16
	}
	if t.Version >= 2 {
		t.JavaClass = text()
	}
	t.Schema = text()
}

// string16 reads a string of Flink's StringSerializer.
func (s *snapReader) string16() string {
	var d Decoder
	b, n, _, err := d.string16(s.Peek(), 0, true)
	if err != nil {
		s.Fail(err)
		return ""
	}
	text := string(b)
	s.Next(n)
	return text
}

func (d *Decoder) walkAvro(t *Type, b []byte, i int, v Visitor) (int, error) {
	return d.opaqueHere(t, t.JavaClass, b, i, v)
}
