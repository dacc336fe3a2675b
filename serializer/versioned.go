package serializer

import (
	"fmt"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
)

// Versioned is what a SimpleVersionedSerializer wrote: the version is that of the
// user's serializer, which nothing in the bytes names.
type Versioned struct {
	Version int32
	Data    []byte // aliases the input
}

// ReadVersioned reads i32 version, i32 length and the data, as the elements of
// SourceReaderState, writer_raw_states and streaming_committer_raw_states have
// them, and returns the size of it all.
func ReadVersioned(b []byte) (v Versioned, n int, err error) {
	if len(b) < 8 {
		return v, 0, ErrShort
	}
	data, n, err := blob(b, 4)
	if err != nil {
		return v, 0, err
	}
	return Versioned{be32(b), data}, n, nil
}

// ReadVersionedList reads i32 version, i32 count and, for each, i32 length and the
// data.
func ReadVersionedList(b []byte) (list []Versioned, n int, err error) {
	if len(b) < 8 {
		return nil, 0, ErrShort
	}
	var d Decoder
	c, i, err := d.count(b, 4, 4)
	if err != nil {
		return nil, 0, err
	}
	for k := range c {
		data, end, err := blob(b, i)
		if err != nil {
			return nil, 0, inElement(err, k)
		}
		list = append(list, Versioned{be32(b), data})
		i = end
	}
	return list, i, nil
}

// Connector is a kind of versioned data that a connector of Flink's keeps in
// operator or coordinator state.
type Connector string

// Known connectors' data.
const (
	KafkaSplit         Connector = "kafka split"         // KafkaPartitionSplitSerializer
	KafkaEnumerator    Connector = "kafka enumerator"    // KafkaSourceEnumStateSerializer
	KafkaWriter        Connector = "kafka writer"        // KafkaWriterStateSerializer
	KafkaCommittable   Connector = "kafka committable"   // KafkaCommittableSerializer
	FileSplit          Connector = "file split"          // FileSourceSplitSerializer
	FileEnumerator     Connector = "file enumerator"     // PendingSplitsCheckpointSerializer
	SequenceSplit      Connector = "sequence split"      // NumberSequenceSource
	SequenceEnumerator Connector = "sequence enumerator" // NumberSequenceSource, DataGeneratorSource
	HybridSplit        Connector = "hybrid split"        // HybridSourceSplitSerializer
)

// SplitConnectors and EnumeratorConnectors are the kinds to try on a reader's splits
// and on a coordinator's enumerator state.
var (
	SplitConnectors      = []Connector{KafkaSplit, SequenceSplit, HybridSplit, FileSplit}
	EnumeratorConnectors = []Connector{FileEnumerator, KafkaEnumerator, SequenceEnumerator}
)

// Guess is the first of kinds whose layout v fits to its last byte. That is a
// guess: nothing in the bytes names the connector.
func (v Versioned) Guess(kinds ...Connector) (Connector, bool) {
	for _, c := range kinds {
		if c.Visit(v, discard{}) == nil {
			return c, true
		}
	}
	return "", false
}

// AppendJSON appends the data as a JSON object. After an error dst is returned as
// it was.
func (c Connector) AppendJSON(dst []byte, v Versioned) ([]byte, error) {
	var j jsonVisitor
	j.begin(dst)
	if err := c.Visit(v, &j); err != nil {
		return dst, err
	}
	return j.dst, nil
}

// Decode is the data as a Value: an Object.
func (c Connector) Decode(v Versioned) (Value, error) {
	var t treeVisitor
	err := c.Visit(v, &t)
	return t.result, err
}

// Visit walks the data. It has to fit to its last byte. A version that is not known
// wraps damage.ErrUnsupportedVersion.
func (c Connector) Visit(v Versioned, to Visitor) error {
	w := connectorWalker{Reader: javaio.NewReader(v.Data), v: to}
	read, ok := connectors[c]
	if !ok {
		return fmt.Errorf("unknown connector %q", string(c))
	}
	if !read(&w, v.Version) && w.Err() == nil {
		return fmt.Errorf("%s: version %d: %w", c, v.Version, damage.ErrUnsupportedVersion)
	}
	if err := w.Err(); err != nil {
		return &damage.Error{Offset: int64(w.Offset()), Field: string(c), Err: fmt.Errorf("%w: %w", damage.ErrCorrupt, err)}
	}
	if w.Len() > 0 {
		return bad(w.Offset(), string(c), fmt.Sprintf("leaves %d bytes", w.Len()))
	}
	return nil
}

var connectors map[Connector]func(*connectorWalker, int32) bool

func init() {
	connectors = map[Connector]func(*connectorWalker, int32) bool{
		KafkaSplit: func(w *connectorWalker, version int32) bool {
			return version == 0 && w.kafkaSplit()
		},
		KafkaEnumerator:  (*connectorWalker).kafkaEnumerator,
		KafkaWriter:      (*connectorWalker).kafkaWriter,
		KafkaCommittable: (*connectorWalker).kafkaCommittable,
		FileSplit: func(w *connectorWalker, version int32) bool {
			return version == 1 && w.fileSplit()
		},
		FileEnumerator: (*connectorWalker).fileEnumerator,
		SequenceSplit: func(w *connectorWalker, version int32) bool {
			return version == 1 && w.sequenceSplit()
		},
		SequenceEnumerator: func(w *connectorWalker, version int32) bool {
			if version != 1 {
				return false
			}
			w.object(func() { w.list("splits", 2+16, func() { w.sequenceSplit() }) })
			return true
		},
		HybridSplit: func(w *connectorWalker, version int32) bool {
			if version != 0 && version != 1 {
				return false
			}
			w.object(func() {
				w.i32("source")
				w.utf("split_id")
				w.versioned("split", w.I32(), []Connector{KafkaSplit, SequenceSplit, FileSplit})
			})
			return true
		},
	}
}

type connectorWalker struct {
	*javaio.Reader
	v     Visitor
	field int
}

var typeConnector = &Type{Kind: KindRecord}

func (w *connectorWalker) object(fields func()) {
	outer := w.field
	w.field = 0
	w.v.Begin(typeConnector, -1)
	fields()
	w.v.End(typeConnector)
	w.field = outer
}

func (w *connectorWalker) name(s string) {
	w.v.Field(w.field, s)
	w.field++
}

func (w *connectorWalker) i16(s string) { w.name(s); w.v.Int(typeShort, int64(w.I16())) }
func (w *connectorWalker) i32(s string) { w.name(s); w.v.Int(typeInt, int64(w.I32())) }
func (w *connectorWalker) i64(s string) { w.name(s); w.v.Int(typeLong, w.I64()) }
func (w *connectorWalker) utf(s string) { w.name(s); w.v.Text(typeString, []byte(w.UTF().Go())) }

func (w *connectorWalker) flag(s string) {
	b := w.U8()
	if b > 1 {
		w.Corrupt(s, fmt.Sprintf("is %d", b))
	}
	w.name(s)
	w.v.Bool(typeBool, b == 1)
}

// list reads i32 n and n elements of at least least bytes.
func (w *connectorWalker) list(s string, least int, elem func()) {
	w.name(s)
	n := w.Count(least)
	w.v.Begin(typeConnectorList, n)
	for i := 0; i < n && w.Err() == nil; i++ {
		elem()
	}
	w.v.End(typeConnectorList)
}

var typeConnectorList = &Type{Kind: KindList, Args: []*Type{typeConnector}}

// part reads i32 length and hands that many bytes to f, which must use them up.
func (w *connectorWalker) part(f func(p *connectorWalker)) {
	n := w.I32()
	if w.Err() == nil && (n < 0 || int(n) > w.Len()) {
		w.Corrupt("length", fmt.Sprintf("is %d", n))
	}
	p := connectorWalker{Reader: javaio.NewReader(w.Next(int(max(n, 0)))), v: w.v}
	f(&p)
	if w.Err() == nil {
		if err := p.Err(); err != nil {
			w.Fail(err)
		} else if p.Len() > 0 {
			w.Corrupt("part", fmt.Sprintf("leaves %d bytes", p.Len()))
		}
	}
}

// versioned reads i32 length and data of a connector that is to be guessed.
func (w *connectorWalker) versioned(s string, version int32, kinds []Connector) {
	w.name(s)
	n := w.I32()
	if w.Err() == nil && (n < 0 || int(n) > w.Len()) {
		w.Corrupt(s, fmt.Sprintf("has %d bytes", n))
	}
	v := Versioned{version, w.Next(int(max(n, 0)))}
	if c, ok := v.Guess(kinds...); ok && w.Err() == nil {
		if err := c.Visit(v, w.v); err != nil {
			w.Fail(err)
		}
		return
	}
	w.v.Bytes(typeBytes, v.Data)
}

// kafkaSplit reads utf topic, i32 partition, i64 starting and stopping offset; -1
// is latest, -2 earliest, -3 committed, the least number no stop.
func (w *connectorWalker) kafkaSplit() bool {
	w.object(func() {
		w.utf("topic")
		w.i32("partition")
		w.i64("starting_offset")
		w.name("stopping_offset")
		if x := w.I64(); x == -1<<63 {
			w.v.Null(typeLong)
		} else {
			w.v.Int(typeLong, x)
		}
	})
	return true
}

func (w *connectorWalker) kafkaEnumerator(version int32) bool {
	partition := func(status bool) func() {
		return func() {
			w.object(func() {
				w.utf("topic")
				w.i32("partition")
				if status {
					w.status()
				}
			})
		}
	}
	switch version {
	case 0:
		w.object(func() {
			w.name("assignments")
			n := w.Count(8)
			split := w.I32()
			w.v.Begin(typeConnectorList, n)
			for i := 0; i < n && w.Err() == nil; i++ {
				w.object(func() {
					w.i32("subtask")
					w.list("splits", 4, func() { w.kafkaPart(split) })
				})
			}
			w.v.End(typeConnectorList)
		})
	case 1:
		w.object(func() { w.list("assigned", 6, partition(false)) })
	case 2:
		w.object(func() {
			w.list("partitions", 10, partition(true))
			w.flag("discovered")
		})
	case 3:
		w.object(func() {
			n := w.Count(8)
			split := w.I32()
			w.name("splits")
			w.v.Begin(typeConnectorList, n)
			for i := 0; i < n && w.Err() == nil; i++ {
				w.object(func() {
					w.name("split")
					w.kafkaPart(split)
					w.status()
				})
			}
			w.v.End(typeConnectorList)
			w.flag("discovered")
		})
	default:
		return false
	}
	return true
}

func (w *connectorWalker) kafkaPart(version int32) {
	if version != 0 {
		w.Corrupt("split version", fmt.Sprintf("is %d", version))
	}
	w.part(func(p *connectorWalker) { p.kafkaSplit() })
}

func (w *connectorWalker) status() {
	w.name("status")
	switch x := w.I32(); x {
	case 0:
		w.v.Text(typeString, []byte("assigned"))
	case 1:
		w.v.Text(typeString, []byte("unassigned"))
	default:
		w.Corrupt("status", fmt.Sprintf("is %d", x))
	}
}

func (w *connectorWalker) kafkaWriter(version int32) bool {
	if version != 1 && version != 2 {
		return false
	}
	w.object(func() {
		w.utf("transactional_id_prefix")
		if version == 1 {
			return
		}
		w.i32("owned_subtask")
		w.i32("total_owned")
		w.i32("ownership")
		w.list("transactions", 10, func() {
			w.object(func() {
				w.utf("transactional_id")
				w.i64("checkpoint")
			})
		})
	})
	return true
}

func (w *connectorWalker) kafkaCommittable(version int32) bool {
	if version != 1 {
		return false
	}
	w.object(func() {
		w.i16("epoch")
		w.i64("producer")
		w.utf("transactional_id")
	})
	return true
}

func (w *connectorWalker) sequenceSplit() bool {
	w.object(func() {
		w.utf("split_id")
		w.i64("from")
		w.i64("to")
	})
	return true
}

func (w *connectorWalker) fileSplit() bool {
	w.object(func() {
		w.utf("split_id")
		w.name("path")
		w.path()
		w.i64("offset")
		w.i64("length")
		w.i64("modification_time")
		w.i64("file_size")
		w.list("hosts", 2, func() { w.v.Text(typeString, []byte(w.UTF().Go())) })
		if w.name("position"); !w.Bool() {
			w.v.Null(typeConnector)
			return
		}
		w.object(func() {
			w.i64("offset")
			w.i64("records_after")
		})
	})
	return true
}

// nullable reads a flag and, if it is set, a string of StringSerializer.
func (w *connectorWalker) nullable() (s string, ok bool) {
	if !w.Bool() {
		return "", false
	}
	var d Decoder
	text, n, ok, err := d.string16(w.Peek(), 0, true)
	if err != nil {
		w.Fail(err)
		return "", false
	}
	w.Next(n)
	return string(text), ok
}

// path reads a java.net.URI in parts and gives it as one text.
func (w *connectorWalker) path() {
	if !w.Bool() {
		w.v.Null(typeString)
		return
	}
	scheme, hasScheme := w.nullable()
	user, hasUser := w.nullable()
	host, hasHost := w.nullable()
	port := w.I32()
	path, _ := w.nullable()
	query, hasQuery := w.nullable()
	fragment, hasFragment := w.nullable()
	uri := ""
	if hasScheme {
		uri = scheme + ":"
	}
	if hasHost {
		uri += "//"
		if hasUser {
			uri += user + "@"
		}
		if uri += host; port >= 0 {
			uri = fmt.Sprintf("%s:%d", uri, port)
		}
	}
	uri += path
	if hasQuery {
		uri += "?" + query
	}
	if hasFragment {
		uri += "#" + fragment
	}
	w.v.Text(typeString, []byte(uri))
}

// fileEnumerator reads PendingSplitsCheckpointSerializer's version 1, which is
// little-endian: magic 0xDEADBEEF, split version, number of splits, number of
// paths; each split and each path with its length.
func (w *connectorWalker) fileEnumerator(version int32) bool {
	if version != 1 {
		return false
	}
	le := func() int32 {
		b := w.Next(4)
		if b == nil {
			return 0
		}
		return int32(b[3])<<24 | int32(b[2])<<16 | int32(b[1])<<8 | int32(b[0])
	}
	if magic := uint32(le()); w.Err() == nil && magic != 0xDEADBEEF {
		w.Corrupt("magic", fmt.Sprintf("is %#08x", magic))
	}
	split, splits, paths := le(), le(), le()
	w.object(func() {
		each := func(name string, n int32, f func(b []byte)) {
			w.name(name)
			if w.Err() == nil && (n < 0 || int(n) > w.Len()/4) {
				w.Corrupt(name, fmt.Sprintf("are %d", n))
			}
			w.v.Begin(typeConnectorList, int(n))
			for i := int32(0); i < n && w.Err() == nil; i++ {
				size := le()
				if w.Err() == nil && (size < 0 || int(size) > w.Len()) {
					w.Corrupt(name, fmt.Sprintf("have one of %d bytes", size))
				}
				f(w.Next(int(max(size, 0))))
			}
			w.v.End(typeConnectorList)
		}
		each("splits", splits, func(b []byte) {
			v := Versioned{split, b}
			if _, ok := v.Guess(FileSplit); !ok {
				w.v.Bytes(typeBytes, b)
			} else if err := FileSplit.Visit(v, w.v); err != nil {
				w.Fail(err)
			}
		})
		each("processed_paths", paths, func(b []byte) { w.v.Text(typeString, b) })
	})
	return true
}
