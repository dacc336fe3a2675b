package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// CreateKind is a kind of snapshot that CreateFrom makes.
type CreateKind string

// Kinds of snapshots to create.
const (
	// CreateCanonical is a savepoint in the canonical format, for any state backend.
	CreateCanonical CreateKind = "canonical"
	// CreateNative is a savepoint in a state backend's own format.
	CreateNative CreateKind = "native"
	// CreateCheckpoint is a checkpoint in a state backend's own format, retained on
	// cancellation.
	CreateCheckpoint CreateKind = "checkpoint"
)

// CreateBackend is a state backend in whose own format CreateFrom writes keyed state.
type CreateBackend string

// State backends to create for.
const (
	// CreateForHeap is Flink's heap backend (hashmap) and ours.
	CreateForHeap CreateBackend = "heap"
	// CreateForLSM is our backend on disk, keyed/lsm: Pebble databases, which no Flink
	// restores; convert makes of them what it does.
	CreateForLSM CreateBackend = "lsm"
)

// CreateOptions changes what CreateFrom makes. Nil is the default.
type CreateOptions struct {
	Kind    CreateKind    // "" is CreateCanonical
	Backend CreateBackend // "" is CreateForHeap; of no effect on CreateCanonical
	// Version of the metadata format; 0 is metadata.DefaultVersion.
	Version int32
	// CheckpointID; 0 is the number of a folder chk-<n>, else 1.
	CheckpointID int64
	// MaxParallelism and Parallelism of every operator; 0 is what is described.
	MaxParallelism, Parallelism int
	// Compress puts state files into snappy frames. The tables of CreateForLSM are
	// compressed in any case.
	Compress bool
	// MemoryThreshold as in WriterOptions.
	MemoryThreshold int
	// Now is the time of last access of values with TTL that are described
	// without one; nil is time.Now.
	Now func() time.Time
	// TempDir is where the databases of CreateForLSM are made before they are uploaded;
	// "" is that of the system.
	TempDir string
}

// Created says what CreateFrom made.
type Created struct {
	Dir       string `json:"dir"`
	Operators int    `json:"operators"`
	Entries   int64  `json:"entries"` // keyed, one for each key and namespace
	Timers    int64  `json:"timers"`
	Elements  int64  `json:"elements"` // of operator states
	Files     int    `json:"files"`    // besides _metadata
	Bytes     int64  `json:"bytes"`    // of all files
	// OwnFormat: keyed state lies in databases of our backend on disk, which no Flink restores.
	OwnFormat bool `json:"ownFormat,omitempty"`
}

// CreateFrom makes a snapshot of a description. Nothing is left of it after an
// error. An error of the description is a *DescriptionError, which names the operator,
// the state and the entry;
// ErrAlreadyThere says that layout.Dir has a snapshot, ErrOccupied that it has something else.
func CreateFrom(ctx context.Context, pool *blobstore.Pool, layout Layout, d *Description, opts *CreateOptions) (_ *Created, err error) {
	c := &creation{d: d, now: time.Now}
	if opts != nil {
		c.opts = *opts
	}
	if c.opts.Now != nil {
		c.now = c.opts.Now
	}
	c.access = c.now().UnixMilli()
	switch c.opts.Kind {
	case "":
		c.opts.Kind = CreateCanonical
	case CreateCanonical, CreateNative, CreateCheckpoint:
	default:
		return nil, fmt.Errorf("no snapshot %q can be created", c.opts.Kind)
	}
	switch c.opts.Backend {
	case "", CreateForHeap, CreateForLSM:
	default:
		return nil, fmt.Errorf("there is no state backend %q", c.opts.Backend)
	}
	if c.opts.Version == 0 {
		c.opts.Version = metadata.DefaultVersion
	}
	if c.opts.CheckpointID == 0 {
		c.opts.CheckpointID = 1
		if n := checkpointNumber(baseName(layout.Dir.Path)); n >= 0 {
			c.opts.CheckpointID = n
		}
	}
	cp := &metadata.Checkpoint{Version: c.opts.Version, ID: c.opts.CheckpointID}
	if cp.Version >= 4 {
		p := metadata.SavepointProperties(metadata.FormatCanonical)
		switch c.opts.Kind {
		case CreateNative:
			p = metadata.SavepointProperties(metadata.FormatNative)
		case CreateCheckpoint:
			p = metadata.CheckpointProperties(metadata.RetainOnCancellation)
		}
		if cp.Properties, err = metadata.NewProperties(p); err != nil {
			return nil, err
		}
	}
	// The whole description is read before anything is written.
	plans := make([]*operatorPlan, len(d.operators))
	for i := range d.operators {
		o := &d.operators[i]
		if plans[i], err = c.plan(o); err != nil {
			return nil, d.failed(placed(fmt.Errorf("%s: %w", o.label(), err), "operators", i))
		}
	}
	// Files that a process left which was killed have random names, like those to come.
	_, there, err := folderFor(ctx, pool, layout.Dir, func(name string) bool { return uuid.Validate(name) == nil })
	if err == nil && there {
		err = fmt.Errorf("%s: %w", layout.Dir, ErrAlreadyThere)
	}
	if err != nil {
		return nil, err
	}
	if c.w, err = NewWriter(ctx, pool, layout, &WriterOptions{MemoryThreshold: c.opts.MemoryThreshold}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			if aborted := c.w.Abort(ctx); aborted != nil {
				err = errors.Join(err, aborted)
			}
		}
	}()
	if c.opts.Backend == CreateForLSM && c.opts.Kind != CreateCanonical {
		if c.lsm, err = newLSMCreation(c.opts.TempDir); err != nil {
			return nil, err
		}
		defer c.lsm.close()
	}
	for i, p := range plans {
		state, err := c.operator(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.operators[i].label(), err)
		}
		if cp.Version >= 5 {
			state.UID, state.Name = javaio.NewString(d.operators[i].UID), javaio.NewString(d.operators[i].Name)
		}
		cp.Operators = append(cp.Operators, *state)
	}
	size, err := metadata.EncodedSize(cp)
	if err != nil {
		return nil, err
	}
	if err := c.w.Commit(ctx, cp); err != nil {
		return nil, err
	}
	c.made.Dir, c.made.Operators, c.made.Bytes = layout.Dir.String(), len(plans), c.made.Bytes+size
	return &c.made, nil
}

type creation struct {
	d      *Description
	opts   CreateOptions
	now    func() time.Time
	access int64 // the last access of values that are described without
	w      *Writer
	lsm    *lsmCreation // nil unless databases are made
	made   Created
}

// operatorPlan is an operator with all of its values serialized.
type operatorPlan struct {
	id             metadata.OperatorID
	parallelism    int
	maxParallelism int

	key    *serializer.Type
	states []plannedState // keyed, timers behind the others

	lists, broadcasts []plannedOperatorState
	raw               []plannedOperatorState
	rawKeyed          map[int][]byte
	coordinator       metadata.StreamHandle
}

type plannedState struct {
	meta    serializer.StateMeta
	kind    StateKind
	entries []plannedEntry // in order of key group, key and namespace
}

// plannedEntry is an entry of keyed state in serialized parts.
type plannedEntry struct {
	keyGroup  int
	key, ns   []byte
	value     []byte // unless it has parts
	parts     []plannedPart
	timestamp int64 // of a timer
	at        int   // in the description
}

// plannedPart is an element of a list or an entry of a map.
type plannedPart struct {
	key, value []byte
	null       bool
}

type plannedOperatorState struct {
	meta  serializer.StateMeta
	parts []plannedPart
}

func (c *creation) plan(o *describedJSON) (*operatorPlan, error) {
	id, err := o.id()
	if err != nil {
		return nil, err
	}
	p := &operatorPlan{id: id, parallelism: cmp.Or(c.opts.Parallelism, o.Parallelism, 1), maxParallelism: cmp.Or(c.opts.MaxParallelism, o.MaxParallelism)}
	if p.maxParallelism == 0 {
		p.maxParallelism = serializer.DefaultMaxParallelism(p.parallelism)
	}
	if p.maxParallelism < 1 || p.maxParallelism > 1<<15 {
		return nil, fmt.Errorf("max parallelism %d is not from 1 to 32768", p.maxParallelism)
	}
	if p.parallelism < 1 || p.parallelism > p.maxParallelism {
		return nil, fmt.Errorf("parallelism %d is not from 1 to the max parallelism %d", p.parallelism, p.maxParallelism)
	}
	if c.opts.Version >= 5 { // which has a place for them
		if err := cmp.Or(nameFits("uid", o.UID), nameFits("name", o.Name)); err != nil {
			return nil, err
		}
	}
	if o.Keyed != nil {
		if err := c.planKeyed(p, o.Keyed); err != nil {
			return nil, placed(err, "keyed")
		}
	}
	for i := range o.OperatorStates {
		s := &o.OperatorStates[i]
		if err := c.planOperatorState(p, s); err != nil {
			return nil, placed(fmt.Errorf("operator state %s: %w", shortName(s.Name), err), "operator_states", i)
		}
	}
	for i, r := range o.RawKeyed {
		b, err := hex.DecodeString(r.Bytes)
		switch {
		case err != nil:
			err = fmt.Errorf("raw keyed state of key group %d: %w", r.KeyGroup, err)
		case r.KeyGroup < 0 || r.KeyGroup >= p.maxParallelism:
			err = fmt.Errorf("raw keyed state: key group %d is not below the max parallelism %d", r.KeyGroup, p.maxParallelism)
		case p.rawKeyed[r.KeyGroup] != nil:
			err = fmt.Errorf("raw keyed state of key group %d comes twice", r.KeyGroup)
		}
		switch {
		case err != nil:
			return nil, placed(err, "raw_keyed", i)
		case p.rawKeyed == nil:
			p.rawKeyed = map[int][]byte{}
		}
		p.rawKeyed[r.KeyGroup] = append([]byte{}, b...)
	}
	if o.Coordinator == nil && o.CoordinatorVersion != nil {
		return nil, fmt.Errorf("has a coordinator_version and no coordinator")
	}
	if o.Coordinator != nil {
		b, err := hex.DecodeString(*o.Coordinator)
		if err != nil {
			return nil, fmt.Errorf("coordinator: %w", err)
		}
		if v := o.CoordinatorVersion; v != nil {
			head := javaio.AppendI32(javaio.AppendI32(javaio.AppendI32(nil, 1), *v), int32(len(b)))
			b = append(head, b...)
		}
		p.coordinator = &metadata.ByteStreamHandle{Name: javaio.NewString(uuid.NewString()), Data: b}
	}
	return p, nil
}

// operator writes the state of all subtasks of an operator.
func (c *creation) operator(ctx context.Context, p *operatorPlan) (*metadata.OperatorState, error) {
	o := &metadata.OperatorState{ID: p.id, Parallelism: int32(p.parallelism), MaxParallelism: int32(p.maxParallelism), Coordinator: p.coordinator}
	if c.opts.Version == 2 {
		o.ChainLength = 1
	}
	for i := range p.parallelism {
		first, last := serializer.KeyGroupRange(i, p.parallelism, p.maxParallelism)
		groups := metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)}
		s := metadata.SubtaskState{Index: int32(i)}
		if c.opts.Version == 2 {
			s.Duration = -1
		}
		var err error
		if len(p.states) > 0 {
			if c.lsm != nil {
				s.ManagedKeyed, err = c.database(ctx, p, groups)
			} else {
				s.ManagedKeyed, err = c.keyed(ctx, p, groups)
			}
			if err != nil {
				return nil, err
			}
		}
		if len(p.rawKeyed) > 0 {
			if s.RawKeyed, err = c.rawKeyed(ctx, p, groups); err != nil {
				return nil, err
			}
		}
		if len(p.lists)+len(p.broadcasts) > 0 {
			if s.ManagedOperator, err = c.operatorState(ctx, p, i); err != nil {
				return nil, err
			}
			s.ManagedOperatorFlag = 1
		}
		if len(p.raw) > 0 {
			if s.RawOperator, err = c.rawOperator(ctx, p, i); err != nil {
				return nil, err
			}
			if s.RawOperator != nil {
				s.RawOperatorFlag = 1
			}
		}
		if s.ManagedKeyed != nil || s.RawKeyed != nil || s.ManagedOperator != nil || s.RawOperator != nil {
			o.Subtasks = append(o.Subtasks, s)
		}
	}
	return o, nil
}

// file writes a state file.
func (c *creation) file(ctx context.Context, write func(w io.Writer) error) (metadata.StreamHandle, error) {
	f := c.w.File(ctx, ScopeExclusive)
	defer f.Abort()
	if err := write(f); err != nil {
		return nil, err
	}
	h, err := f.Close()
	if err != nil {
		return nil, err
	}
	c.count(h, f.Size())
	return h, nil
}

// count counts a file, unless it lies in _metadata.
func (c *creation) count(h metadata.StreamHandle, size int64) {
	if h != nil && h.Tag() != metadata.TagByteStream {
		c.made.Files++
		c.made.Bytes += size
	}
}

// left gives what each state of p has from the first key group of a range on.
func (p *operatorPlan) left(groups metadata.KeyGroupRange) [][]plannedEntry {
	left := make([][]plannedEntry, len(p.states))
	for i := range p.states {
		all := p.states[i].entries // in the order of key groups
		from, _ := slices.BinarySearchFunc(all, int(groups.Start), func(e plannedEntry, kg int) int { return cmp.Compare(e.keyGroup, kg) })
		left[i] = all[from:]
	}
	return left
}

// keyed writes the keyed state of a range of key groups.
func (c *creation) keyed(ctx context.Context, p *operatorPlan, groups metadata.KeyGroupRange) (metadata.KeyedHandle, error) {
	h := &metadata.KeyGroupsHandle{Form: metadata.TagSavepointKeyGroups, Range: groups}
	o := stream.KeyedWriterOptions{Format: stream.CanonicalFormat, Key: p.key, KeyGroups: groups, MaxParallelism: p.maxParallelism, Compress: c.opts.Compress}
	if c.opts.Kind != CreateCanonical {
		o.Format, h.Form = stream.HeapFormat, metadata.TagKeyGroups
		if c.opts.Version >= 4 {
			h.Form, h.ID = metadata.TagKeyGroupsWithID, javaio.NewString(uuid.NewString())
		}
	}
	for i := range p.states {
		o.States = append(o.States, p.states[i].meta)
	}
	left := p.left(groups)
	var err error
	h.Delegate, err = c.file(ctx, func(out io.Writer) error {
		w, err := stream.NewKeyedWriter(out, o)
		if err != nil {
			return err
		}
		for kg := groups.Start; kg <= groups.End(); kg++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			w.KeyGroup(kg)
			for i := range left {
				n := 0
				for n < len(left[i]) && left[i][n].keyGroup == int(kg) {
					n++
				}
				if n > 0 {
					w.State(i, n)
					for k := range left[i][:n] {
						c.entry(w, p.states[i].kind, &left[i][k])
					}
					left[i] = left[i][n:]
				}
			}
		}
		h.Offsets, err = w.Finish()
		return err
	})
	return h, err
}

// entry writes an entry; errors show at Finish.
func (c *creation) entry(w *stream.KeyedWriter, kind StateKind, e *plannedEntry) {
	c.countEntry(kind)
	switch kind {
	case StateTimer:
		w.Timer(e.timestamp, e.key, e.ns)
	case StateList:
		w.List(e.key, e.ns, len(e.parts))
		for i := range e.parts {
			w.Element(e.parts[i].value)
		}
	case StateMap:
		w.Map(e.key, e.ns, len(e.parts))
		for i := range e.parts {
			if p := &e.parts[i]; p.null {
				w.NullPair(p.key, p.value)
			} else {
				w.Pair(p.key, p.value)
			}
		}
	default:
		w.Value(e.key, e.ns, e.value)
	}
}

func (c *creation) countEntry(kind StateKind) {
	if kind == StateTimer {
		c.made.Timers++
	} else {
		c.made.Entries++
	}
}

// share is the part of n things that one of several subtasks gets.
func share(n, subtask, parallelism int) (from, to int) {
	return n * subtask / parallelism, n * (subtask + 1) / parallelism
}

// operatorState writes the managed operator state of a subtask: its share of lists
// and unions, and a whole copy of broadcast states.
func (c *creation) operatorState(ctx context.Context, p *operatorPlan, subtask int) (*metadata.OperatorHandle, error) {
	h := &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator}
	o := stream.OperatorWriterOptions{Compress: c.opts.Compress}
	if !o.Compress {
		o.Version = 5 // which Flink 1.16 and 1.17 read, too
	}
	for i := range p.lists {
		o.Lists = append(o.Lists, p.lists[i].meta)
	}
	for i := range p.broadcasts {
		o.Broadcasts = append(o.Broadcasts, p.broadcasts[i].meta)
	}
	var err error
	h.Delegate, err = c.file(ctx, func(out io.Writer) error {
		w, err := stream.NewOperatorWriter(out, o)
		if err != nil {
			return err
		}
		for i := range p.lists {
			from, to := share(len(p.lists[i].parts), subtask, p.parallelism)
			w.State(i, to-from)
			for _, e := range p.lists[i].parts[from:to] {
				w.Element(e.value)
				c.made.Elements++
			}
		}
		for i := range p.broadcasts {
			w.State(len(p.lists)+i, len(p.broadcasts[i].parts))
			for _, e := range p.broadcasts[i].parts {
				w.Pair(e.key, e.value)
			}
			if subtask == 0 {
				c.made.Elements += int64(len(p.broadcasts[i].parts))
			}
		}
		h.States, err = w.Finish()
		return err
	})
	return h, err
}

// rawOperator writes a subtask's share of raw operator state; nil if it has none.
func (c *creation) rawOperator(ctx context.Context, p *operatorPlan, subtask int) (*metadata.OperatorHandle, error) {
	h := &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator}
	var err error
	h.Delegate, err = c.file(ctx, func(out io.Writer) error {
		at := int64(0)
		for i := range p.raw {
			from, to := share(len(p.raw[i].parts), subtask, p.parallelism)
			parts := metadata.NamedPartitions{Name: javaio.NewString(p.raw[i].meta.Name), Mode: metadata.ModeSplit}
			for _, e := range p.raw[i].parts[from:to] {
				parts.Offsets = append(parts.Offsets, at)
				at += int64(len(e.value))
				if _, err := out.Write(e.value); err != nil {
					return err
				}
				c.made.Elements++
			}
			h.States = append(h.States, parts)
		}
		return nil
	})
	if h.Delegate == nil {
		h = nil
	}
	return h, err
}

// rawKeyed writes the raw keyed state of a range of key groups.
func (c *creation) rawKeyed(ctx context.Context, p *operatorPlan, groups metadata.KeyGroupRange) (metadata.KeyedHandle, error) {
	h := &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: groups}
	if c.opts.Version >= 4 {
		h.Form, h.ID = metadata.TagKeyGroupsWithID, javaio.NewString(uuid.NewString())
	}
	var err error
	h.Delegate, err = c.file(ctx, func(out io.Writer) error {
		at := int64(0)
		for kg := groups.Start; kg <= groups.End(); kg++ {
			b, ok := p.rawKeyed[int(kg)]
			if !ok {
				h.Offsets = append(h.Offsets, -1)
				continue
			}
			h.Offsets = append(h.Offsets, at)
			at += int64(len(b))
			if _, err := out.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || h.Delegate == nil {
		return nil, err
	}
	return h, nil
}

// sortEntries brings entries into the order in which they are written, and finds
// two of one key and namespace.
func sortEntries(entries []plannedEntry) (twice *plannedEntry) {
	order := func(a, b *plannedEntry) int {
		return cmp.Or(cmp.Compare(a.keyGroup, b.keyGroup), bytes.Compare(a.key, b.key), bytes.Compare(a.ns, b.ns), cmp.Compare(a.timestamp, b.timestamp))
	}
	slices.SortStableFunc(entries, func(a, b plannedEntry) int { return order(&a, &b) })
	for i := 1; i < len(entries); i++ {
		if order(&entries[i-1], &entries[i]) == 0 {
			return &entries[i]
		}
	}
	return nil
}

// nameFits refuses a name that is too long for where snapshots have it.
func nameFits(what, name string) error {
	if n := len(javaio.NewString(name)); n > javaio.MaxStringBytes {
		return fmt.Errorf("its %s has %d bytes, more than %d", what, n, javaio.MaxStringBytes)
	}
	return nil
}

// shortName is the beginning of a name, for an error message.
func shortName(name string) string {
	if len(name) > 200 {
		return strings.ToValidUTF8(name[:200], "") + "…" // not half a character
	}
	return name
}

// shortJSON is a value for an error message.
func shortJSON(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		b.Reset()
		b.Write(text)
	}
	if b.Len() > 60 {
		return b.String()[:60] + "…"
	}
	return b.String()
}
