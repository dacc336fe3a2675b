package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tidemark/tidemark/serializer"
)

// Source is where a source was: the splits of its readers and what its enumerator
// had not handed out. All splits of a FLIP-27 source are those of both.
type Source struct {
	Operator *StateOperator
	// Connector is what the source seems to be: "kafka", "file", "sequence", "hybrid",
	// "kafka consumer" for the legacy FlinkKafkaConsumer; "" if nothing fits. It is a
	// guess from the layout: nothing in the bytes names the connector.
	Connector string
	// Enumerator is the enumerator's checkpoint; nil if there is none.
	Enumerator *SourcePart
	// Splits are those of the readers in the order of subtasks, then those in the
	// enumerator's checkpoint.
	Splits []SourceSplit
}

// SourcePart is a payload of a connector's serializer.
type SourcePart struct {
	// Version is that of the connector's serializer.
	Version int32
	// JSON is the payload decoded, an object; nil if its layout is not known.
	JSON json.RawMessage
	// Bytes are the payload as it was written.
	Bytes []byte
}

// SourceSplit is one split.
type SourceSplit struct {
	SourcePart
	// Reader is the subtask that reads it; -1 for a split of the enumerator.
	Reader int32
	// Status is "reading", "unassigned", "assigned" (as the enumerator knows it) or
	// "known" (the enumerator does not say).
	Status string
	// ID is topic-partition, the path of a file, or the split's own ID.
	ID string
	// Topic and Partition are those of a Kafka split, Path is that of a file split.
	Topic     string
	Partition *int32
	Path      string
	// Offset is where reading goes on, End where it stops: Kafka offsets, bytes of a
	// file, numbers of a sequence. Nil is not known, or no end. Start is "earliest",
	// "latest" or "committed" where a Kafka split has no offset yet.
	Offset, End *int64
	Start       string
}

// Classes that a legacy Kafka consumer's state holds, which its snapshot does not
// describe: Kryo writes the fields in the order of their names.
// Source: Flink 1.16, KafkaTopicPartition.java.
const kafkaTopicPartition = "org.apache.flink.streaming.connectors.kafka.internals.KafkaTopicPartition"

// stateKafkaOffsets is the union state of FlinkKafkaConsumerBase.
const stateKafkaOffsets = "topic-partition-offset-states"

// Sources gives the sources of a snapshot, in the order of the metadata.
func Sources(ctx context.Context, s *Snapshot, opts *ScanOptions) ([]*Source, error) {
	var o ScanOptions
	if opts != nil {
		o = *opts
	}
	o.State = func(st *State) bool {
		if opts != nil && opts.State != nil && !opts.State(st) {
			return false
		}
		switch st.Name {
		case stateSourceReader:
			return st.Kind == StateOperatorList
		case stateCoordinator:
			return st.Kind == StateSourceCoordinator || st.Kind == StateCoordinator
		case stateKafkaOffsets:
			return st.Kind == StateUnion
		}
		return false
	}
	o.Classes = maps.Clone(o.Classes)
	if o.Classes == nil {
		o.Classes = serializer.Classes{}
	}
	if o.Classes[kafkaTopicPartition] == nil {
		o.Classes[kafkaTopicPartition] = serializer.NewPOJO(kafkaTopicPartition,
			serializer.Field{Name: "cachedHash", Type: serializer.Basic(serializer.KindInt)},
			serializer.Field{Name: "partition", Type: serializer.Basic(serializer.KindInt)},
			serializer.Field{Name: "topic", Type: serializer.Basic(serializer.KindString)})
	}
	var list []*Source
	byOperator := map[*StateOperator]*Source{}
	coordinators := map[*StateOperator][]byte{}
	of := func(r *StateRow) *Source {
		src := byOperator[r.State.Operator]
		if src == nil {
			src = &Source{Operator: r.State.Operator}
			byOperator[r.State.Operator] = src
			list = append(list, src)
		}
		return src
	}
	for r, err := range Rows(ctx, s, &o) {
		if err != nil {
			return nil, err
		}
		switch r.State.Name {
		case stateCoordinator:
			if r.State.Kind == StateCoordinator {
				// Of a source only if the operator turns out to be one.
				coordinators[r.State.Operator] = bytes.Clone(r.Value)
				continue
			}
			of(r).Enumerator = &SourcePart{Version: r.Version, Bytes: bytes.Clone(r.Value)}
		case stateKafkaOffsets:
			of(r).kafkaOffsets(r)
		default:
			of(r).readerSplits(r)
		}
	}
	for _, src := range list {
		if b, ok := coordinators[src.Operator]; ok && src.Enumerator == nil {
			src.Enumerator = oldCoordinator(b)
		}
		src.enumerate()
		slices.SortStableFunc(src.Splits, func(a, b SourceSplit) int {
			// Readers in order, the enumerator (-1) last.
			return int(uint32(a.Reader)>>1) - int(uint32(b.Reader)>>1)
		})
	}
	slices.SortStableFunc(list, func(a, b *Source) int { return a.Operator.Position - b.Operator.Position })
	return list, nil
}

// oldCoordinator is the frame of version 0, of Flink 1.11 and 1.12: registered
// readers and assignments follow, which the readers' own state has too.
func oldCoordinator(b []byte) *SourcePart {
	if len(b) < 12 || be32(b) != 0 || uint64(be32(b[8:])) > uint64(len(b)-12) {
		return nil
	}
	return &SourcePart{Version: int32(be32(b[4:])), Bytes: b[12 : 12+be32(b[8:])]}
}

func (src *Source) readerSplits(r *StateRow) {
	r.parts(func(version int32, p []byte) {
		split := SourceSplit{SourcePart: SourcePart{Version: version, Bytes: bytes.Clone(p)}, Reader: r.Subtask, Status: "reading"}
		v := serializer.Versioned{Version: version, Data: split.Bytes}
		if c, ok := v.Guess(serializer.SplitConnectors...); ok && r.Form == FormVersioned {
			src.name(c)
			split.decode(c, v)
		}
		src.Splits = append(src.Splits, split)
	})
}

// name keeps what the source seems to be.
func (src *Source) name(c serializer.Connector) {
	if src.Connector == "" {
		src.Connector = map[serializer.Connector]string{
			serializer.KafkaSplit: "kafka", serializer.KafkaEnumerator: "kafka",
			serializer.FileSplit: "file", serializer.FileEnumerator: "file",
			serializer.SequenceSplit: "sequence", serializer.SequenceEnumerator: "sequence",
			serializer.HybridSplit: "hybrid",
		}[c]
	}
}

// decode fills in what is known of a split that fits c.
func (sp *SourceSplit) decode(c serializer.Connector, v serializer.Versioned) {
	b, err := c.AppendJSON(nil, v)
	if err != nil {
		return
	}
	sp.JSON = b
	if x, err := c.Decode(v); err == nil {
		sp.describe(x)
	}
}

// describe takes the members that the connectors' splits have.
func (sp *SourceSplit) describe(v serializer.Value) {
	o, ok := v.(serializer.Object)
	if !ok {
		return
	}
	if inner, ok := o.Get("split"); ok { // hybrid: what is inside tells more
		sp.describe(inner)
		if id, _ := o.Get("split_id"); sp.ID == "" {
			sp.ID, _ = id.(string)
		}
		return
	}
	number := func(name string) *int64 {
		if x, _ := o.Get(name); x != nil {
			if n, ok := x.(int64); ok {
				return &n
			}
		}
		return nil
	}
	if id, ok := o.Get("split_id"); ok {
		sp.ID, _ = id.(string)
	}
	if topic, ok := o.Get("topic"); ok {
		sp.Topic, _ = topic.(string)
		if p, _ := o.Get("partition"); p != nil {
			if n, ok := p.(int32); ok {
				sp.Partition = &n
				sp.ID = sp.Topic + "-" + strconv.Itoa(int(n))
			}
		}
		sp.Offset, sp.End = number("starting_offset"), number("stopping_offset")
		if sp.Offset != nil {
			if sp.Start = kafkaStart(*sp.Offset); sp.Start != "" {
				sp.Offset = nil
			}
		}
		return
	}
	if path, ok := o.Get("path"); ok {
		sp.Path, _ = path.(string)
		sp.Offset = number("offset")
		if length := number("length"); sp.Offset != nil && length != nil && *length <= math.MaxInt64-max(*sp.Offset, 0) {
			end := *sp.Offset + *length
			sp.End = &end
		}
		if p, _ := o.Get("position"); p != nil {
			if position, ok := p.(serializer.Object); ok {
				if at, ok := position.Get("offset"); ok {
					if n, ok := at.(int64); ok && n >= 0 { // -1: only records are counted
						sp.Offset = &n
					}
				}
			}
		}
		return
	}
	sp.Offset, sp.End = number("from"), number("to")
}

// kafkaStart names the offsets of a FLIP-27 split that stand for a place.
// Source: Flink, KafkaPartitionSplit.java.
func kafkaStart(offset int64) string {
	switch offset {
	case -1:
		return "latest"
	case -2:
		return "earliest"
	case -3:
		return "committed"
	}
	return ""
}

// legacyStart names those of the legacy consumer.
// Source: Flink 1.16, KafkaTopicPartitionStateSentinel.java.
func legacyStart(offset int64) string {
	switch offset {
	case -915623761775:
		return "earliest"
	case -915623761774:
		return "latest"
	case -915623761773:
		return "committed"
	}
	return ""
}

// kafkaOffsets are the Tuple2<KafkaTopicPartition, Long> of a FlinkKafkaConsumer.
func (src *Source) kafkaOffsets(r *StateRow) {
	for b := r.Value; len(b) > 0; {
		if r.dec == nil || r.dec.elem == nil {
			return
		}
		v, n, err := r.dec.elem.Decode(b)
		if err != nil || n == 0 {
			src.Splits = append(src.Splits, SourceSplit{SourcePart: SourcePart{Bytes: bytes.Clone(b)}, Reader: r.Subtask, Status: "reading"})
			return
		}
		split := SourceSplit{SourcePart: SourcePart{Bytes: bytes.Clone(b[:n])}, Reader: r.Subtask, Status: "reading"}
		if pair, ok := v.([]any); ok && len(pair) == 2 {
			if p, ok := pair[0].(serializer.Object); ok {
				src.Connector = "kafka consumer"
				split.describe(p)
				if offset, ok := pair[1].(int64); ok {
					if split.Start = legacyStart(offset); split.Start == "" {
						next := offset + 1 // the state has the last record read
						split.Offset = &next
					}
				}
				split.JSON, _, _ = r.dec.elem.AppendJSON(nil, b)
			}
		}
		src.Splits = append(src.Splits, split)
		b = b[n:]
	}
}

// enumerate decodes the enumerator's checkpoint and adds its splits.
func (src *Source) enumerate() {
	e := src.Enumerator
	if e == nil {
		return
	}
	v := serializer.Versioned{Version: e.Version, Data: e.Bytes}
	kinds := serializer.EnumeratorConnectors
	switch src.Connector { // the readers' splits tell more than the enumerator's
	case "kafka":
		kinds = []serializer.Connector{serializer.KafkaEnumerator}
	case "file":
		kinds = []serializer.Connector{serializer.FileEnumerator}
	case "sequence":
		kinds = []serializer.Connector{serializer.SequenceEnumerator}
	case "":
		if len(src.Splits) > 0 {
			return // readers of an unknown connector
		}
	default:
		return
	}
	c, ok := v.Guess(kinds...)
	if !ok {
		return
	}
	b, err := c.AppendJSON(nil, v)
	if err != nil {
		return
	}
	// An empty list of splits fits any connector: it names none.
	x, err := c.Decode(v)
	if err != nil {
		return
	}
	e.JSON = b
	o, _ := x.(serializer.Object)
	before := len(src.Splits)
	add := func(x any, status string) {
		split := SourceSplit{Reader: -1, Status: status, SourcePart: SourcePart{Version: e.Version}}
		if o, ok := x.(serializer.Object); ok {
			if s, ok := o.Get("status"); ok {
				split.Status, _ = s.(string)
			}
		}
		split.describe(x)
		src.Splits = append(src.Splits, split)
	}
	for _, member := range []struct{ name, status string }{{"splits", "unassigned"}, {"partitions", "known"}, {"assigned", "assigned"}} {
		if l, ok := o.Get(member.name); ok {
			items, _ := l.([]any)
			for _, x := range items {
				add(x, member.status)
			}
		}
	}
	if l, ok := o.Get("assignments"); ok { // version 0: by reader
		items, _ := l.([]any)
		for _, x := range items {
			reader, _ := x.(serializer.Object)
			splits, _ := reader.Get("splits")
			list, _ := splits.([]any)
			for _, x := range list {
				add(x, "assigned")
			}
		}
	}
	if len(src.Splits) > before || c != serializer.SequenceEnumerator {
		src.name(c)
	}
}
