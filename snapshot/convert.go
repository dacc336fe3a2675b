package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// Compression says whether key groups are written in snappy frames.
type Compression string

// Compressions.
const (
	CompressionKeep   Compression = "keep" // as they are; of RocksDB none
	CompressionNone   Compression = "none"
	CompressionSnappy Compression = "snappy"
)

// ConvertOptions changes a conversion. Nil is the default.
type ConvertOptions struct {
	// Format of keyed state.
	Format stream.KeyedFormat
	// Version of the metadata format; 0 is the original's, at least 3.
	Version     int32
	Compression Compression // "" is CompressionKeep
	// TTL, if not nil, gives the time to live of a state with TTL, by which its values
	// count as expired at Now: they are left out. 0 keeps a state's. A snapshot does
	// not tell it.
	TTL func(*State) time.Duration
	Now time.Time
	// DropInFlight leaves out the data in flight of an unaligned checkpoint, which a
	// savepoint in the canonical format cannot have: its records are lost.
	DropInFlight bool
	// Workers is how many goroutines read, convert and write; 0 is GOMAXPROCS.
	Workers int
	// Classes and Kryo are as in ScanOptions, UID as well.
	Classes serializer.Classes
	Kryo    serializer.KryoVersion
	UID     func(metadata.OperatorID) string
	// TempDir is for what the heap's format needs to have in one piece; "" is that of
	// the system.
	TempDir string
	// MemoryThreshold as in WriterOptions.
	MemoryThreshold int
	// NoVerifyData verifies of the result only that its files are there.
	NoVerifyData bool
	// Checksums as in CopyOptions.
	Checksums bool
	// Progress is told of what was done; one call at a time.
	Progress func(ConvertProgress)
}

// ConvertProgress is how far a conversion is.
type ConvertProgress struct {
	Files, OfFiles int
	Bytes          int64 // written
	OfBytes        int64 // of the original's files, as their handles say
}

// ConvertFile is the state that becomes one file of the result, or lies in its
// _metadata if it is small.
type ConvertFile struct {
	Operator string `json:"operator"` // its uid, name or ID
	Subtask  int32  `json:"subtask"`
	Role     Role   `json:"role"`
	// From is the format of keyed state that is converted: "rocksdb", "heap",
	// "canonical", "changelog over rocksdb"; "" if bytes are copied as they are.
	From  string `json:"from"`
	Bytes int64  `json:"bytes"` // of the original, as its handles say; -1 unknown

	name   string
	op     int // in Checkpoint.Operators
	sub    int // in Subtasks
	keyed  metadata.KeyedHandle
	copied metadata.StreamHandle
	made   metadata.StreamHandle
	// Of keyed state that is converted.
	offsets []int64
	count   convertCount
}

// ConvertPlan says what a conversion will do. Its methods may not be used
// concurrently.
type ConvertPlan struct {
	From    string        `json:"from"`    // the snapshot's folder
	To      string        `json:"to"`      // the new one's
	Format  string        `json:"format"`  // "canonical" or "heap"
	Version int32         `json:"version"` // of the metadata format
	Files   []ConvertFile `json:"files"`
	Bytes   int64         `json:"bytes"` // of the files that are read, as the handles say
	// InFlight is the data in flight that is left out, in bytes.
	InFlight int64 `json:"inFlight,omitempty"`
	// Names: operators lose their names and uids, for which the version has no place.
	Names bool `json:"names,omitempty"`
	// Done: the result is there already.
	Done bool `json:"done"`

	src  *Snapshot
	to   blobstore.Location
	opts ConvertOptions
	sc   *scan
	// shell is the result without managed keyed state, with the original's streams.
	shell  *metadata.Checkpoint
	copies map[copyKey]int // in Files
	w      *Writer
	family [4]byte // the first bytes of the names of the original's conversions
	sizes  convertSizes

	mu       sync.Mutex
	made     Converted
	progress ConvertProgress
}

// convertSizes are in bytes.
type convertSizes struct {
	chunk  int64 // about how much of the original one worker converts at a time
	ahead  int   // how much of a chunk is held until its turn to be written
	block  int   // of one state in one key group, how much is gathered in memory where the heap's format has to count it
	record int64 // a file of this size has a record; smaller ones are made again
}

// Converted says what Apply made.
type Converted struct {
	// Entries of keyed state that were written by converting: each entry of a map, and
	// each timer, counts. Files that had the format already are not counted.
	Entries int64 `json:"entries"`
	// Expired are values, elements of lists and entries of maps that were left out.
	Expired int64 `json:"expired"`
	Files   int   `json:"files"` // besides _metadata
	Bytes   int64 `json:"bytes"` // of all files
	// Resumed files were made by a run before this one.
	Resumed int `json:"resumed,omitempty"`
	// Left are files of such a run, not part of the result, that could not be removed.
	Left int `json:"left,omitempty"`

	Verification *Verification `json:"-"`
}

// copyKey is a stream that several handles may mean.
type copyKey struct {
	location      string
	start, length int64
}

// ErrInFlight says that a snapshot has data in flight, which what is asked for cannot
// hold.
var ErrInFlight = errors.New("there is data in flight")

// PlanConvert plans to write a snapshot of any kind as one with a flat file for the
// keyed state of each subtask, in the folder to of any store: as a savepoint in the
// canonical format, which every state backend restores, or in the heap backend's
// own format. What RocksDB deleted or overwrote and what a changelog changed is not
// in it any more: each key group has its live entries alone. Operator state, raw
// state, the state of coordinators and of master hooks is carried over byte for byte,
// and in the heap's format the data in flight. The result needs no other folder.
// Nothing is written by planning.
//
// Bytes are not decoded where the formats agree, as canonical and RocksDB do, so that
// an unknown serializer stops only what needs it: the error names the state.
// ErrInFlight says that data in flight would be lost; ErrAlreadyThere that another
// snapshot lies there; ErrOccupied that something else does; metadata.ErrNotRepresentable that the version cannot hold it.
func PlanConvert(ctx context.Context, s *Snapshot, to blobstore.Location, opts *ConvertOptions) (*ConvertPlan, error) {
	p := &ConvertPlan{From: s.Dir.String(), To: to.String(), src: s, to: to, Files: []ConvertFile{}, copies: map[copyKey]int{},
		sizes: convertSizes{chunk: unitBytes, ahead: 8 << 20, block: 4 << 20, record: 1 << 20}}
	if opts != nil {
		p.opts = *opts
	}
	p.opts.Compression = cmp.Or(p.opts.Compression, CompressionKeep)
	p.Format, p.Version = p.opts.Format.String(), p.opts.Version
	if p.Version == 0 {
		p.Version = max(s.Checkpoint.Version, 3)
	}
	if err := apartFrom(s, to, "converted"); err != nil {
		return nil, err
	}
	switch {
	case p.Version < metadata.MinVersion || p.Version > metadata.MaxVersion:
		return nil, fmt.Errorf("metadata of version %d cannot be written: %d to %d can", p.Version, metadata.MinVersion, metadata.MaxVersion)
	}
	switch p.opts.Compression {
	case CompressionKeep, CompressionNone, CompressionSnappy:
	default:
		return nil, fmt.Errorf("there is no compression %q", p.opts.Compression)
	}
	if p.opts.Workers <= 0 {
		p.opts.Workers = runtime.GOMAXPROCS(0)
	}
	if p.opts.Now.IsZero() {
		p.opts.Now = time.Now()
	}
	p.sc = newScan(s, &ScanOptions{Classes: p.opts.Classes, Kryo: p.opts.Kryo, UID: p.opts.UID})
	if err := p.outline(); err != nil {
		return nil, err
	}
	p.listFiles()
	if err := p.heads(ctx); err != nil {
		return nil, err
	}
	p.name()
	return p, p.there(ctx)
}

// outline makes the shell.
func (p *ConvertPlan) outline() error {
	c := *p.src.Checkpoint
	c.Operators = slices.Clone(c.Operators)
	inFlight := false
	for i := range c.Operators {
		o := &c.Operators[i]
		p.Names = p.Names || p.Version < 5 && (o.Name != "" || o.UID != "")
		o.Subtasks = slices.Clone(o.Subtasks)
		for k := range o.Subtasks {
			t := &o.Subtasks[k]
			t.ManagedKeyed, t.ReferenceMarker, t.ReferenceID = nil, 0, 0
			if g, ok := t.RawKeyed.(*metadata.KeyGroupsHandle); ok && p.Version < 4 {
				plain := *g
				plain.Form, plain.ID = metadata.TagKeyGroups, ""
				t.RawKeyed = &plain
			} else if !ok && t.RawKeyed != nil {
				return fmt.Errorf("raw keyed state has a handle of tag %s: %w", t.RawKeyed.Tag(), damage.ErrCorrupt)
			}
			t.ManagedOperator, t.ManagedOperatorFlag = flatOperator(t.ManagedOperator, t.ManagedOperatorFlag)
			t.RawOperator, t.RawOperatorFlag = flatOperator(t.RawOperator, t.RawOperatorFlag)
			if p.opts.Format == stream.CanonicalFormat || p.opts.DropInFlight {
				for _, list := range [][]metadata.ChannelHandle{t.InputChannels, t.OutputChannels} {
					for n := range list {
						p.InFlight += max(list[n].Size, 0)
					}
				}
				t.InputChannels, t.OutputChannels = nil, nil
			}
			inFlight = inFlight || len(t.InputChannels)+len(t.OutputChannels) > 0
		}
	}
	if p.InFlight > 0 && !p.opts.DropInFlight {
		return fmt.Errorf("%s: %w, %d bytes, for which a savepoint in the canonical format has no place", p.src.Location, ErrInFlight, p.InFlight)
	}
	shell, err := metadata.Convert(&c, p.Version, &metadata.ConvertOptions{DropNames: true, DropProperties: true})
	if err != nil {
		return err
	}
	if p.Version >= 4 {
		props := metadata.SavepointProperties(metadata.FormatCanonical)
		switch {
		case inFlight: // which a savepoint never has
			props = metadata.CheckpointProperties(metadata.RetainOnCancellation)
		case p.opts.Format == stream.HeapFormat:
			props = metadata.SavepointProperties(metadata.FormatNative)
		}
		if shell.Properties, err = metadata.NewProperties(props); err != nil {
			return err
		}
	}
	p.shell = shell
	return nil
}

// flatOperator gives an operator state handle without what merging files needs.
func flatOperator(h *metadata.OperatorHandle, flag int32) (*metadata.OperatorHandle, int32) {
	if h == nil || h.Form != metadata.TagMergedOperator {
		return h, flag
	}
	if h.Empty {
		return nil, 0
	}
	return &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, States: h.States, Delegate: h.Delegate}, flag
}

// listFiles lists what is converted and what is copied.
func (p *ConvertPlan) listFiles() {
	type subtask struct{ op, index int }
	sizes := map[subtask]int64{}
	positions := map[subtask]int{}
	c := p.src.Checkpoint
	for at, h := range c.StreamHandles() {
		if at.Slot == metadata.SlotManagedKeyed && at.Subtask != nil {
			sizes[subtask{at.OperatorPos, int(at.Subtask.Index)}] += max(metadata.StateSize(h), 0)
		}
	}
	label := func(op int) string {
		o := &p.sc.cat.operators[op]
		return cmp.Or(o.UID, o.Name, o.ID)
	}
	for i := range c.Operators {
		for k := range c.Operators[i].Subtasks {
			t := &c.Operators[i].Subtasks[k]
			positions[subtask{i, int(t.Index)}] = k
			if t.ManagedKeyed != nil {
				p.Files = append(p.Files, ConvertFile{Operator: label(i), Subtask: t.Index, Role: RoleManagedKeyed, Bytes: sizes[subtask{i, int(t.Index)}], op: i, sub: k, keyed: t.ManagedKeyed})
			}
		}
	}
	for at, h := range p.shell.StreamHandles() {
		key, ok := p.copyKey(h)
		if !ok {
			continue
		}
		if _, known := p.copies[key]; known {
			continue
		}
		f := ConvertFile{Operator: label(at.OperatorPos), Subtask: -1, Role: Role(at.Slot), Bytes: metadata.StateSize(h), op: at.OperatorPos, copied: h}
		if at.Subtask != nil {
			f.Subtask = at.Subtask.Index
			f.sub = positions[subtask{at.OperatorPos, int(at.Subtask.Index)}]
		}
		p.copies[key] = len(p.Files)
		p.Files = append(p.Files, f)
	}
	for i := range p.Files {
		p.Bytes += max(p.Files[i].Bytes, 0)
	}
}

// copyKey tells streams apart; false for what lies in the metadata.
func (p *ConvertPlan) copyKey(h metadata.StreamHandle) (copyKey, bool) {
	t := p.src.Resolve(h)
	switch t.Kind {
	case TargetInline, TargetEmpty:
		return copyKey{}, false
	case TargetRefused:
		return copyKey{location: t.Written}, true // opening it tells why
	}
	return copyKey{t.Location.Key(), t.Start, t.Length}, true
}

// heads reads the heads of all keyed handles, a few at a time, to find what stands in
// the way before anything is written.
func (p *ConvertPlan) heads(ctx context.Context) error {
	n := slices.IndexFunc(p.Files, func(f ConvertFile) bool { return f.keyed == nil })
	if n < 0 {
		n = len(p.Files)
	}
	return parallel(ctx, prepareAhead, n, func(ctx context.Context, i int) error {
		f := &p.Files[i]
		in, err := p.sc.openInput(ctx, p.job(f), f.keyed, true)
		if err == nil {
			f.From = in.from
			err = in.obstacle(p.opts.Format)
		}
		return f.at(err)
	})
}

// at puts the place in front of an error.
func (f *ConvertFile) at(err error) error {
	if inner := (*ScanProblem)(nil); err == nil || ctxErr(err) || errors.As(err, &inner) {
		return err
	}
	return fmt.Errorf("operator %s, subtask %d: %w", f.Operator, f.Subtask, err)
}

func (p *ConvertPlan) job(f *ConvertFile) handleJob {
	return handleJob{operator: &p.sc.cat.operators[f.op], subtask: f.Subtask, keyed: true}
}

// convertNames is the space of names of files that conversions make: they are UUIDs of
// version 5, which follow from what a file is made of and how, so that another run
// of the same conversion makes the same files. They begin with the family of the
// original, by which other conversions of it know what they may clean up.
var convertNames = uuid.MustParse("6f5b61c9-5f0d-5c86-a84c-2f0cbb3a4d11")

// name names the files.
func (p *ConvertPlan) name() {
	h := sha256.New()
	metadata.Encode(h, p.src.Checkpoint)
	fmt.Fprintln(h, p.src.Dir.Key())
	copy(p.family[:], h.Sum(nil))
	fmt.Fprintln(h, p.Format, p.opts.Compression)
	if p.opts.TTL != nil {
		fmt.Fprintln(h, p.opts.Now.UnixMilli())
		for _, st := range p.sc.cat.list() {
			fmt.Fprintln(h, st.Operator.ID, st.Name, p.opts.TTL(st))
		}
	}
	sum := h.Sum(nil)
	for i := range p.Files {
		f := &p.Files[i]
		id := uuid.NewSHA1(convertNames, fmt.Appendf(sum[:len(sum):len(sum)], "%d/%d/%d/%v", f.op, f.sub, i, f.keyed != nil))
		copy(id[:], p.family[:])
		f.name = id.String()
	}
}

// ours reports whether a conversion of the same snapshot, this or another, made an
// object of that name.
func (p *ConvertPlan) ours(name string) bool {
	name = strings.TrimSuffix(name, recordSuffix)
	id, err := uuid.Parse(name)
	return err == nil && id.String() == name && id.Version() == 5 && bytes.HasPrefix(id[:], p.family[:])
}

// there looks whether there is a snapshot already, and whether it is the result.
func (p *ConvertPlan) there(ctx context.Context) error {
	_, there, err := folderFor(ctx, p.src.pool, p.to, func(name string) bool { return p.ours(name) || name == ChecksumsName })
	if err != nil || !there {
		return err
	}
	s, err := Open(ctx, p.src.pool, p.to.Join(MetadataName), nil)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", p.to, ErrAlreadyThere, err)
	}
	if p.Done, err = p.madeOf(s.Checkpoint); err != nil {
		return err
	}
	if !p.Done {
		return fmt.Errorf("%s: %w", p.to, ErrAlreadyThere)
	}
	return nil
}

// madeOf reports whether this conversion made c: whether its files, put together
// again, give the same metadata byte for byte. Then the files are set as made.
func (p *ConvertPlan) madeOf(c *metadata.Checkpoint) (bool, error) {
	made := map[string]metadata.StreamHandle{}
	for _, h := range c.StreamHandles() {
		switch h := h.(type) {
		case *metadata.ByteStreamHandle:
			made[h.Name.Go()] = h
		case *metadata.RelativeFileHandle:
			made[h.Path.Go()] = h
		}
	}
	for i := range p.Files {
		f := &p.Files[i]
		if f.made = made[f.name]; f.made == nil {
			if f.Bytes != 0 {
				return false, nil
			}
			continue
		}
		if f.keyed == nil {
			continue
		}
		if f.op >= len(c.Operators) || f.sub >= len(c.Operators[f.op].Subtasks) {
			return false, nil
		}
		h, ok := c.Operators[f.op].Subtasks[f.sub].ManagedKeyed.(*metadata.KeyGroupsHandle)
		if !ok {
			return false, nil
		}
		f.offsets = h.Offsets
	}
	want, err := p.assemble()
	if err != nil {
		return false, err
	}
	var a, b bytes.Buffer
	if err := errors.Join(metadata.Encode(&a, want), metadata.Encode(&b, c)); err != nil {
		return false, err
	}
	return bytes.Equal(a.Bytes(), b.Bytes()), nil
}
