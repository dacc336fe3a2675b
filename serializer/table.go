package serializer

func viewOf(kind Kind, enc encoding) func(*snapReader, *Type) {
	return func(s *snapReader, t *Type) {
		s.outer(t, "data view serializer snapshot")
		if s.stop() {
			return
		}
		args := s.nested(1)
		if s.stop() {
			t.Args = args
			s.incomplete(t)
			return
		}
		if args[0].Kind != kind {
			s.corrupt("data view serializer snapshot", "has a %s inside", args[0].Kind)
			return
		}
		t.Kind, t.enc, t.Args = kind, args[0].enc, args[0].Args
	}
}

func readRowData(s *snapReader, t *Type)   { s.giveUp(t, "not yet") }
func readBinaryRow(s *snapReader, t *Type) { s.giveUp(t, "not yet") }
func readArrayData(s *snapReader, t *Type) { s.giveUp(t, "not yet") }
func readMapData(s *snapReader, t *Type)   { s.giveUp(t, "not yet") }

func readDecimalData(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	t.Precision, t.Scale = s.I32(), s.I32()
	t.Kind, t.enc = KindDecimal, encDecimal
}

func readTimestampData(s *snapReader, t *Type) {
	if !s.version(t, 1) {
		return
	}
	t.Precision = s.I32()
	t.Kind, t.enc = KindTimestamp, encTimestamp
}

func readWindowKey(s *snapReader, t *Type) {
	s.outer(t, "window key serializer snapshot")
	if s.stop() {
		return
	}
	args := s.nested(1)
	if s.incomplete(t) {
		t.Args = args
		return
	}
	t.Kind, t.enc = KindRecord, encTuple
	t.Fields = []Field{{Name: "window", Type: typeLong}, {Name: "key", Type: args[0]}}
}

func readExternal(s *snapReader, t *Type)  { s.giveUp(t, "not yet") }
func readSortedMap(s *snapReader, t *Type) { s.giveUp(t, "not yet") }

func (d *Decoder) walkBinary(t *Type, b []byte, i int, v Visitor) (int, error) {
	return d.opaqueHere(t, t.JavaClass, b, i, v)
}
