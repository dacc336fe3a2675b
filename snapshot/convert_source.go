package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// keyedInput is the managed keyed state of one subtask, to be written in another
// format: its files, in whatever format, and the changes of a changelog.
type keyedInput struct {
	out     *keyedFile // the states as they are written
	groups  metadata.KeyGroupRange
	sources []*keyedSource
	changes *changeIndex // nil if there are none
	from    string       // the format, in words
}

// keyedSource is one file or database of a keyedInput.
type keyedSource struct {
	f      *keyedFile
	groups metadata.KeyGroupRange // what is read of it
	ids    []int                  // states of the output, by those of the file

	src       sst.Source // nil for a database
	regions   []stream.Region
	canonical bool
	offsets   []int64 // of the handle
	whole     metadata.StreamHandle
	db        stateDB
}

// openInput opens a keyed handle. With metaOnly only the states are read, and
// nothing can be read from it.
func (sc *scan) openInput(ctx context.Context, j handleJob, h metadata.KeyedHandle, metaOnly bool) (*keyedInput, error) {
	in := &keyedInput{groups: h.KeyGroups()}
	if in.groups.Start < 0 || in.groups.Count < 1 || int64(in.groups.Start)+int64(in.groups.Count) > int64(j.operator.MaxParallelism) {
		return nil, fmt.Errorf("key groups %s are not in a max parallelism of %d: %w", rangeText(in.groups.Start, in.groups.End()), j.operator.MaxParallelism, damage.ErrCorrupt)
	}
	var log *changes
	switch h := h.(type) {
	case *metadata.ChangelogHandle:
		for _, m := range h.Materialized {
			if m == nil {
				continue
			}
			if err := in.add(ctx, sc, j, m, metaOnly); err != nil {
				return nil, err
			}
		}
		in.from = "changelog over " + in.from
		if len(in.sources) == 0 {
			in.from = "changelog"
		}
		if len(h.Changes) > 0 {
			var err error
			if log, err = sc.openChanges(ctx, j, h, in); err != nil {
				return nil, err
			}
			if !metaOnly {
				if err := log.load(ctx, &worker{scan: sc, unit: &unit{operator: j.operator, subtask: j.subtask}}); err != nil {
					return nil, err
				}
			}
		}
	default:
		if err := in.add(ctx, sc, j, h, metaOnly); err != nil {
			return nil, err
		}
	}
	if err := in.merge(sc, j, log); err != nil {
		return nil, err
	}
	if log != nil && !metaOnly {
		in.changes = newChangeIndex(log, in)
	}
	return in, nil
}

// openChanges finds the states of a changelog's changes.
func (sc *scan) openChanges(ctx context.Context, j handleJob, h *metadata.ChangelogHandle, in *keyedInput) (*changes, error) {
	c := &changes{sc: sc, j: j, handle: h, states: map[int16]*changedState{}, metas: map[string]*changedState{}, told: map[string]bool{}}
	for _, s := range in.sources {
		c.keyType = s.f.meta.Key
	}
	if err := c.declarations(ctx); err != nil {
		return nil, err
	}
	if c.keyType == nil {
		return nil, errors.New("a changelog without materialized state and timers: the type of its keys stands nowhere")
	}
	return c, nil
}

// add opens one handle.
func (in *keyedInput) add(ctx context.Context, sc *scan, j handleJob, h metadata.KeyedHandle, metaOnly bool) error {
	s := &keyedSource{groups: intersect(in.groups, h.KeyGroups())}
	switch h := h.(type) {
	case *metadata.KeyGroupsHandle:
		src, name, err := sc.s.OpenStream(ctx, h.Delegate, false)
		if err != nil {
			return readError(name, err)
		}
		if src == nil {
			return nil
		}
		if s.f, s.regions, err = sc.openKeyGroups(ctx, j, h, src, name); err != nil {
			return err
		}
		s.src, s.whole, s.offsets = src, h.Delegate, h.Offsets
		s.canonical = h.Form == metadata.TagSavepointKeyGroups || looksCanonical(ctx, src, s.regions)
		if in.from = "heap"; s.canonical {
			in.from = "canonical"
		}
	case *metadata.IncrementalHandle:
		var err error
		if s.f, err = sc.databaseMeta(ctx, j, h); err != nil {
			return err
		}
		if in.from = engineOf(h); !metaOnly {
			if s.db, err = sc.openDatabase(ctx, j, h, s.f); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("managed keyed state has a handle of tag %s: %w", h.Tag(), damage.ErrCorrupt)
	}
	for _, o := range in.sources {
		if both := intersect(o.groups, s.groups); both.Count > 0 {
			return fmt.Errorf("key groups %s are in two materialized handles: %w", rangeText(both.Start, both.End()), damage.ErrCorrupt)
		}
	}
	in.sources = append(in.sources, s)
	return nil
}

const engineLSM = "lsm"

// engineOf is the word for the database of a handle.
func engineOf(h *metadata.IncrementalHandle) string {
	for _, n := range h.Private {
		if n.Name == pebbledb.SumsName {
			return engineLSM
		}
	}
	return "rocksdb"
}

// close ends reading.
func (in *keyedInput) close(sc *scan) {
	for _, s := range in.sources {
		if s.db != nil {
			sc.dbs.done(s.db)
		}
	}
}

// merge makes the list of states that are written: those of all sources and of the
// changes, each once.
func (in *keyedInput) merge(sc *scan, j handleJob, log *changes) error {
	var metas []serializer.StateMeta
	var key *serializer.Type
	at := map[string]int{}
	add := func(m *serializer.StateMeta) (int, error) {
		c, err := synchronous(m)
		if err != nil {
			return 0, err
		}
		id := c.Kind.String() + "/" + c.Name
		i, ok := at[id]
		if !ok {
			i = len(metas)
			at[id] = i
			metas = append(metas, c)
		} else if words(metas[i].Value()) != words(c.Value()) || words(metas[i].Namespace()) != words(c.Namespace()) || metas[i].StateType() != c.StateType() {
			return 0, fmt.Errorf("state %s has one serializer in its materialized state and another in its changes: let the job take a savepoint", c.Name)
		}
		return i, nil
	}
	for _, s := range in.sources {
		if key == nil {
			key = s.f.meta.Key
		} else if words(key) != words(s.f.meta.Key) {
			return fmt.Errorf("keys are %s and %s in two materialized handles", words(key), words(s.f.meta.Key))
		}
		for i := range s.f.meta.States {
			id, err := add(&s.f.meta.States[i])
			if err != nil {
				return err
			}
			s.ids = append(s.ids, id)
		}
	}
	if log != nil {
		if key == nil {
			key = log.keyType
		}
		for _, name := range sortedKeys(log.metas) {
			id, err := add(log.metas[name].meta)
			if err != nil {
				return err
			}
			log.metas[name].target = id
		}
	}
	in.out = &keyedFile{sc: sc, op: j.operator, subtask: j.subtask, name: sc.s.Location.String(), prefix: incremental.KeyGroupBytes(j.operator.MaxParallelism),
		match: &keyMatch{all: true}, meta: &serializer.KeyedBackendMeta{Version: 6, Key: key, States: metas}}
	in.out.states = make([]keyedState, len(metas))
	for i := range metas {
		in.out.addState(&in.out.states[i], &metas[i])
	}
	return nil
}

// synchronous gives a state of the asynchronous API (KEY_VALUE_V2) the meta info
// that it has in the formats of the other state backends, to which it is the same.
func synchronous(m *serializer.StateMeta) (serializer.StateMeta, error) {
	if m.Kind != serializer.KeyValueV2 {
		return *m, nil
	}
	value := m.Value()
	switch m.StateType() {
	case "LIST":
		if value != nil {
			value = serializer.NewList(value)
		}
	case "MAP":
		k, v := m.MapTypes()
		if k == nil {
			return *m, fmt.Errorf("state %s is a map of the asynchronous API whose snapshot does not tell the type of its keys", m.Name)
		}
		value = serializer.NewMap(k, v)
	}
	return serializer.NewKeyedState(m.Name, m.StateType(), m.Namespace(), value), nil
}

// obstacle is why a state cannot be written in a format, found without looking at
// its entries; nil if it can.
func (in *keyedInput) obstacle(format stream.KeyedFormat) error {
	for _, s := range in.sources {
		if s.f.meta.Open && !in.same(format) {
			return fmt.Errorf("the serializer %s is unknown, and so are the states behind it", s.f.meta.Unknown[len(s.f.meta.Unknown)-1].Class)
		}
	}
	for i := range in.out.states {
		ks := &in.out.states[i]
		for _, s := range in.sources {
			heap := s.src != nil && !s.canonical
			if !slices.Contains(s.ids, i) || heap == (format == stream.HeapFormat) {
				continue
			}
			switch {
			case ks.state.Kind == StateList && (ks.elem == nil || hasOpaque(ks.elem)):
				return fmt.Errorf("state %s: the serializer of its elements is unknown, so that they cannot be told apart", ks.meta.Name)
			case ks.state.Kind == StateMap && heap && (ks.userKey == nil || ks.value == nil || hasOpaque(ks.userKey) || hasOpaque(ks.value)):
				return fmt.Errorf("state %s: a serializer of its entries is unknown, so that they cannot be told apart", ks.meta.Name)
			case !heap && ks.state.Kind != StateTimer && (ks.key == nil || hasOpaque(ks.key)):
				return fmt.Errorf("state %s: the serializer of its keys is unknown, so that key and namespace cannot be told apart", ks.meta.Name)
			}
		}
	}
	return nil
}

// same reports whether the input is one file that has the format already.
func (in *keyedInput) same(format stream.KeyedFormat) bool {
	return len(in.sources) == 1 && in.changes == nil && in.sources[0].src != nil && in.sources[0].canonical == (format == stream.CanonicalFormat) &&
		in.sources[0].groups == in.groups
}

// compressed reports whether a file of the input is.
func (in *keyedInput) compressed() bool {
	return slices.ContainsFunc(in.sources, func(s *keyedSource) bool { return s.f.meta.Compressed })
}

// chunks cuts the key groups into parts of about that many bytes.
func (in *keyedInput) chunks(bytes int64) []metadata.KeyGroupRange {
	weight := make([]int64, in.groups.Count)
	for _, s := range in.sources {
		for _, r := range s.regions {
			if in.groups.Contains(r.KeyGroup) {
				weight[r.KeyGroup-in.groups.Start] += r.To - r.From
			}
		}
		if s.db != nil && s.groups.Count > 0 {
			size := s.db.bytes()
			for kg := s.groups.Start; kg <= s.groups.End(); kg++ {
				weight[kg-in.groups.Start] += size / int64(s.groups.Count)
			}
		}
	}
	var chunks []metadata.KeyGroupRange
	size := int64(0)
	for i, w := range weight {
		if len(chunks) == 0 || size+w > bytes {
			chunks = append(chunks, metadata.KeyGroupRange{Start: in.groups.Start + int32(i)})
			size = 0
		}
		chunks[len(chunks)-1].Count++
		size += w
	}
	return chunks
}

// read gives the entries of some key groups to a sink.
func (in *keyedInput) read(ctx context.Context, groups metadata.KeyGroupRange, sink entrySink) error {
	if in.changes != nil {
		sink = in.changes.over(sink, groups)
	}
	sources := slices.Clone(in.sources)
	slices.SortFunc(sources, func(a, b *keyedSource) int { return int(a.groups.Start) - int(b.groups.Start) })
	for _, s := range sources {
		part := intersect(groups, s.groups)
		if part.Count <= 0 {
			continue
		}
		var err error
		switch {
		case s.db != nil:
			err = s.readDatabase(ctx, part, sink)
		case s.canonical:
			err = s.readCanonical(ctx, part, sink)
		default:
			err = s.readHeap(ctx, part, sink)
		}
		if err != nil {
			return err
		}
	}
	return sink.end()
}

func (s *keyedSource) readCanonical(ctx context.Context, groups metadata.KeyGroupRange, sink entrySink) error {
	c := stream.NewCanonical(ctx, s.src, s.f.name, s.f.meta.Compressed)
	defer c.Close()
	for _, region := range s.regions {
		if !groups.Contains(region.KeyGroup) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sink.group(region.KeyGroup); err != nil {
			return err
		}
		c.Open(region)
		for last := -1; c.Next(); {
			if id := c.State(); id != last {
				if id >= len(s.ids) {
					return s.f.damage(c.Offset(), "state id", fmt.Sprintf("is %d of %d states", id, len(s.ids)))
				}
				last = id
				if err := sink.state(s.ids[id]); err != nil {
					return err
				}
			}
			if err := sink.pair(c.Key(), c.Value()); err != nil {
				return named(s.f.name, err)
			}
		}
		if err := c.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *keyedSource) readHeap(ctx context.Context, groups metadata.KeyGroupRange, sink entrySink) error {
	var lost error
	h := s.f.openHeap(ctx, s.src, s.f.readers(), func(state, count int, offset int64) {
		lost = fmt.Errorf("%s: byte %d: %d values of state %s cannot be told apart: %w", s.f.name, offset, count, s.f.meta.States[state].Name, &serializer.OpaqueError{})
	})
	defer h.Close()
	for _, region := range s.regions {
		if !groups.Contains(region.KeyGroup) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sink.group(region.KeyGroup); err != nil {
			return err
		}
		h.Open(region)
		for last := -1; h.Next(); {
			if lost != nil {
				return lost
			}
			if id := h.State(); id != last {
				last = id
				if err := sink.state(s.ids[id]); err != nil {
					return err
				}
			}
			var err error
			if s.f.states[last].state.Kind == StateTimer {
				err = sink.timer(h.Key())
			} else {
				err = sink.element(h.Namespace(), h.Key(), h.Value())
			}
			if err != nil {
				return named(s.f.name, err)
			}
		}
		if err := errors.Join(lost, h.Err()); err != nil {
			return err
		}
	}
	return nil
}

// readDatabase reads key group by key group and in it state by state, each of which
// is a column family that an iterator of its own walks over once.
func (s *keyedSource) readDatabase(ctx context.Context, groups metadata.KeyGroupRange, sink entrySink) error {
	lower, upper := incremental.KeyGroupBounds(groups, s.f.op.MaxParallelism)
	its := make([]pairIterator, len(s.f.states))
	for i := range s.f.states {
		table := s.db.state(i, s.f.states[i].meta.Name)
		if table == nil {
			continue // registered, and nothing was ever written
		}
		its[i] = table.scan(ctx, lower, upper)
		defer its[i].Close()
		if !its[i].Next() {
			if err := its[i].Err(); err != nil {
				return err
			}
			its[i] = nil
		}
	}
	for kg := groups.Start; kg <= groups.End(); kg++ {
		begun := false
		for i, it := range its {
			if it == nil {
				continue
			}
			for n := 0; ; n++ {
				key := it.Key()
				if len(key) < s.f.prefix {
					return fmt.Errorf("%s: column family %s has a key of %d bytes: %w", s.f.name, s.f.states[i].meta.Name, len(key), damage.ErrCorrupt)
				}
				if keyGroupOf(key, s.f.prefix) != kg {
					break
				}
				if !begun {
					if err := sink.group(kg); err != nil {
						return err
					}
					begun = true
				}
				if n == 0 {
					if err := sink.state(s.ids[i]); err != nil {
						return err
					}
				}
				if n&0xfff == 0 {
					if err := ctx.Err(); err != nil {
						return err
					}
				}
				if err := sink.pair(key, it.Value()); err != nil {
					return named(s.f.name, err)
				}
				if !it.Next() {
					if err := it.Err(); err != nil {
						return err
					}
					its[i] = nil
					break
				}
			}
		}
	}
	return nil
}
