package serializer

import "fmt"

// The types of CEP's shared buffer and NFA state have layouts of their own, in
// which the snapshot's nested serializers appear in fixed places.

func twoPhaseFields(t *Type) {
	txn, context := t.Args[0], t.Args[1]
	t.Fields = []Field{{Name: "pending", Type: txn}, {Name: "pending_since", Type: typeLong}, {Name: "pending_commits", Type: txn}, {Name: "context", Type: context}}
}

func nfaStateFields(t *Type) {
	t.Fields = []Field{{Name: "partial_matches", Type: t.Args[1]}, {Name: "completed_matches", Type: t.Args[1]}}
}

func readEventID(s *snapReader, t *Type) {
	simple(KindRecord, encEventID)(s, t)
	t.Fields = []Field{{Name: "id", Type: typeInt}, {Name: "timestamp", Type: typeLong}}
}

func readDewey(s *snapReader, t *Type) {
	simple(KindList, encDewey)(s, t)
	t.Args = []*Type{typeInt}
}

func readNodeID(s *snapReader, t *Type) {
	args, ok := s.parts(t, "node id serializer snapshot", 1)
	if !ok {
		return
	}
	t.Args = args
	t.Kind, t.enc = KindRecord, encNodeID
	t.Fields = []Field{{Name: "event", Type: t.Args[0]}, {Name: "page", Type: typeString}}
}

func readLockable(s *snapReader, t *Type) {
	args, ok := s.parts(t, "lockable serializer snapshot", 1)
	if !ok {
		return
	}
	t.Kind, t.enc = KindRecord, encTuple
	t.Fields = []Field{{Name: "references", Type: typeInt}, {Name: "element", Type: args[0]}}
}

func readSharedNode(s *snapReader, t *Type) {
	args, ok := s.parts(t, "shared buffer node serializer snapshot", 1)
	if !ok {
		return
	}
	edge := &Type{Kind: KindRecord, enc: encTuple, Fields: []Field{{Name: "references", Type: typeInt}, {Name: "edge", Type: args[0]}}}
	t.Args = []*Type{edge.finish()}
	t.Kind, t.enc = KindList, encList // as the element of a list
}

func readBufferEntry(s *snapReader, t *Type) {
	args, ok := s.parts(t, "buffer entry serializer snapshot", 1)
	if !ok {
		return
	}
	t.Kind, t.enc = KindRecord, encTuple
	t.Fields = []Field{{Name: "joined", Type: typeBool}, {Name: "element", Type: args[0]}}
}

func readUnion(s *snapReader, t *Type) {
	args, ok := s.parts(t, "union serializer snapshot", 2)
	if !ok {
		return
	}
	t.Kind, t.enc = KindRecord, encTagged
	t.Fields = []Field{{Name: "one", Type: args[0]}, {Name: "two", Type: args[1]}}
}

func (d *Decoder) walkDewey(t *Type, b []byte, i int, v Visitor) (int, error) {
	return d.walkElements(t, b, i, v)
}

// walkCEP reads a NodeId (i8 present, event id, page name) or an NFA state (the
// partial and the completed matches, each i32 n and n × match).
func (d *Decoder) walkCEP(t *Type, b []byte, i int, v Visitor) (int, error) {
	if t.enc == encNodeID {
		if i >= len(b) {
			return i, ErrShort
		}
		if b[i] == 0 {
			v.Null(t)
			return i + 1, nil
		}
		v.Begin(t, 2)
		v.Field(0, "event")
		i, err := d.walk(t.Args[0], b, i+1, v)
		if err != nil {
			return i, in(err, "event")
		}
		v.Field(1, "page")
		if i, err = d.walk(typeString, b, i, v); err != nil {
			return i, in(err, "page")
		}
		v.End(t)
		return i, nil
	}
	v.Begin(t, 2)
	var err error
	for k := range t.Fields {
		v.Field(k, t.Fields[k].Name)
		if i, err = d.walkMatches(t, b, i, v); err != nil {
			return i, inField(err, t, k)
		}
	}
	v.End(t)
	return i, nil
}

// walkMatches reads i32 n and n × (name, node id, version, i64 start timestamp,
// [i64 previous timestamp,] i8 has a start event, [event id]).
func (d *Decoder) walkMatches(t *Type, b []byte, i int, v Visitor) (int, error) {
	version, node, event := t.Args[0], t.Args[1], t.Args[2]
	n, i, err := d.count(b, i, 1+1+4+8+1)
	if err != nil {
		return i, err
	}
	v.Begin(typeMatches, n)
	for k := range n {
		v.Begin(typeMatch, -1)
		for f, part := range [...]struct {
			name string
			t    *Type
		}{{"state", typeString}, {"node", node}, {"version", version}, {"start", typeLong}, {"previous", typeLong}, {"start_event", event}} {
			if part.name == "previous" && !t.flag {
				continue
			}
			if part.name == "start_event" {
				has, err := d.flagAt(b, i)
				if err != nil {
					return i, inElement(err, k)
				}
				i++
				if !has {
					continue
				}
			}
			v.Field(f, part.name)
			if i, err = d.walk(part.t, b, i, v); err != nil {
				return i, in(inElement(err, k), part.name)
			}
		}
		v.End(typeMatch)
	}
	v.End(typeMatches)
	return i, nil
}

var (
	typeMatch   = &Type{Kind: KindRecord}
	typeMatches = &Type{Kind: KindList, Args: []*Type{typeMatch}}
)

// walkStreamElement reads a tag and what it says: 0 a record with a timestamp, 1
// one without, 2 a watermark, 3 a latency marker, 4 a status, 5 record
// attributes, 6 an internal watermark.
func (d *Decoder) walkStreamElement(t *Type, b []byte, i int, v Visitor) (int, error) {
	if i >= len(b) {
		return i, ErrShort
	}
	tag := int(b[i])
	if tag >= len(streamElements) {
		return i, bad(i, "stream element tag", fmt.Sprintf("is %d", tag))
	}
	i++
	v.Begin(t, -1)
	var err error
	for k, f := range streamElements[tag] {
		v.Field(k, f.Name)
		part := f.Type
		if part == nil {
			part = t.Args[0]
		}
		if i, err = d.walk(part, b, i, v); err != nil {
			return i, in(err, f.Name)
		}
	}
	v.End(t)
	return i, nil
}

var streamElements = [...][]Field{
	{{Name: "timestamp", Type: typeLong}, {Name: "record"}},
	{{Name: "record"}},
	{{Name: "watermark", Type: typeLong}},
	{{Name: "marked_time", Type: typeLong}, {Name: "operator_id_high", Type: typeLong}, {Name: "operator_id_low", Type: typeLong}, {Name: "subtask", Type: typeInt}},
	{{Name: "status", Type: typeInt}},
	{{Name: "backlog", Type: typeBool}},
	{{Name: "subpartition", Type: typeInt}, {Name: "watermark", Type: typeLong}},
}

// walkTwoPhase reads TwoPhaseCommitSinkFunction's state: [bool pending present,]
// transaction, i64 start; i32 n and n of them; bool has context, [context].
func (d *Decoder) walkTwoPhase(t *Type, b []byte, i int, v Visitor) (int, error) {
	txn, context := t.Args[0], t.Args[1]
	v.Begin(t, 4)
	pending := true
	var err error
	if t.flag {
		if pending, err = d.flagAt(b, i); err != nil {
			return i, err
		}
		i++
	}
	if pending {
		v.Field(0, "pending")
		if i, err = d.walk(txn, b, i, v); err != nil {
			return i, in(err, "pending")
		}
		v.Field(1, "pending_since")
		if i, err = d.walk(typeLong, b, i, v); err != nil {
			return i, in(err, "pending_since")
		}
	}
	v.Field(2, "pending_commits")
	n, i, err := d.count(b, i, satAdd(txn.min, 8))
	if err != nil {
		return i, err
	}
	v.Begin(typeTransactions, n)
	for k := range n {
		v.Begin(typeTransaction, 2)
		v.Field(0, "transaction")
		if i, err = d.walk(txn, b, i, v); err != nil {
			return i, in(inElement(err, k), "pending_commits")
		}
		v.Field(1, "since")
		if i, err = d.walk(typeLong, b, i, v); err != nil {
			return i, in(inElement(err, k), "pending_commits")
		}
		v.End(typeTransaction)
	}
	v.End(typeTransactions)
	v.Field(3, "context")
	if i, err = d.walkUnless(context, b, i, false, v); err != nil {
		return i, in(err, "context")
	}
	v.End(t)
	return i, nil
}

var (
	typeTransaction  = &Type{Kind: KindRecord}
	typeTransactions = &Type{Kind: KindList, Args: []*Type{typeTransaction}}
)

// StreamRecord is, of the type of stream elements, that of the records in them;
// nil of any other type.
func (t *Type) StreamRecord() *Type {
	if t.enc != encStreamElement || len(t.Args) != 1 {
		return nil
	}
	return t.Args[0]
}
