package metadata

import (
	"bytes"

	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// random makes checkpoints with everything that a version can hold.
type random struct {
	*rand.Rand
	version int32
	max     int32 // max parallelism
	// flink leaves out what Flink does not accept: 100 of these in each of the
	// versions 3 to 6 were read by Flink 2.3.0, and of 3 and 4 by Flink 1.20.0.
	flink bool
}

func (r *random) path() String {
	return String([]string{"a", "000012.sst", "7f3c", "é漢", "b/c"}[r.IntN(5)])
}

func (r *random) text() String {
	return String([]string{"", "a", "000012.sst", "hdfs://nn/ckp/shared/7f3c", "é漢", "\xc0\x80", "\xed\xa0\x80", "\xed\xa0\xbd\xed\xb8\x80"}[r.IntN(8)])
}

func (r *random) some() int { return r.IntN(4) }

func (r *random) data() []byte {
	b := make([]byte, r.IntN(20))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if len(b) == 0 {
		return nil
	}
	return b
}

func (r *random) size() int64 { return r.Int64N(1<<40) - 1 }

func (r *random) offsets(n int, lowest int64) []int64 {
	if n == 0 {
		return nil
	}
	vs := make([]int64, n)
	for i := range vs {
		vs[i] = r.Int64N(1<<40) + lowest
	}
	return vs
}

func (r *random) stream(depth int) StreamHandle {
	switch n := r.IntN(8); {
	case n == 0 && !r.flink:
		return nil
	case n == 1:
		return &ByteStreamHandle{Name: r.text(), Data: r.data()}
	case n == 2:
		return r.segment()
	case n == 3:
		return &EmptySegmentHandle{}
	case n == 4 && depth < 4:
		return r.keyGroups(TagKeyGroups, depth+1)
	case n%2 == 0:
		return &FileHandle{Path: "hdfs://nn/" + r.path(), Size: r.size()}
	}
	return &RelativeFileHandle{Path: r.path(), Size: r.size()}
}

func (r *random) segment() *SegmentHandle {
	return &SegmentHandle{Path: "/" + r.path(), LogicalID: r.text(), Start: r.Int64N(1 << 40), Length: r.Int64N(1 << 40), Scope: Scope(r.IntN(2))}
}

func (r *random) keyRange(atLeast int) KeyGroupRange {
	count := atLeast + r.IntN(5)
	return KeyGroupRange{Start: int32(r.IntN(int(r.max) - count)), Count: int32(count)}
}

func (r *random) keyGroups(form Tag, depth int) *KeyGroupsHandle {
	h := &KeyGroupsHandle{Form: form, Range: r.keyRange(0), Delegate: r.stream(depth)}
	h.Offsets = r.offsets(int(h.Range.Count), -1)
	if form == TagKeyGroupsWithID {
		h.ID = r.text()
	}
	return h
}

func (r *random) named() []NamedHandle {
	var hs []NamedHandle
	for range r.some() {
		hs = append(hs, NamedHandle{r.text(), r.stream(0)})
	}
	return hs
}

func (r *random) keyed(depth int) KeyedHandle {
	switch r.IntN(10) {
	case 0:
		return nil
	case 1:
		return r.keyGroups(TagKeyGroups, 0)
	case 2:
		return r.keyGroups(TagSavepointKeyGroups, 0)
	case 3:
		return r.keyGroups(TagKeyGroupsWithID, 0)
	case 4:
		return &IncrementalHandle{Form: TagIncrementalOld, CheckpointID: r.Int64(), BackendID: r.text(), Range: r.keyRange(0),
			Meta: r.stream(0), Shared: r.named(), Private: r.named()}
	case 5, 6:
		if depth < 3 {
			return r.changelog(depth)
		}
	case 7:
		return r.changes()
	}
	return &IncrementalHandle{Form: TagIncremental, CheckpointID: r.Int64(), BackendID: r.text(), Range: r.keyRange(0),
		CheckpointedSize: r.size(), Meta: r.stream(0), Shared: r.named(), Private: r.named(), ID: r.text()}
}

func (r *random) changelog(depth int) KeyedHandle {
	h := &ChangelogHandle{Form: TagChangelogOld, Range: r.keyRange(1), CheckpointedSize: r.size(), MaterializationID: r.Int64(), ID: r.text()}
	if r.IntN(2) == 0 {
		h.Form, h.CheckpointID = TagChangelog, r.Int64()
	}
	for range r.some() {
		h.Materialized = append(h.Materialized, r.keyed(depth+1))
	}
	for range r.some() {
		h.Changes = append(h.Changes, r.changes())
	}
	return h
}

func (r *random) changes() KeyedHandle {
	if r.IntN(2) == 0 {
		h := &ChangelogBytesHandle{Range: r.keyRange(0), From: r.Int64(), To: r.Int64(), ID: r.text()}
		for range r.some() {
			h.Changes = append(h.Changes, ChangelogChange{KeyGroup: int32(r.IntN(int(r.max))) - 1, Data: r.data()})
		}
		return h
	}
	h := &ChangelogFileHandle{Form: TagChangelogFileOld, Range: r.keyRange(0), FullSize: r.size(), IncrementalSize: r.size(), ID: r.text()}
	if r.IntN(2) == 0 {
		h.Form, h.StorageID = TagChangelogFile, r.text()
	}
	for range r.some() {
		h.Files = append(h.Files, OffsetHandle{r.Int64N(1 << 40), r.stream(0)})
	}
	return h
}

func (r *random) operatorHandle() (int32, *OperatorHandle) {
	switch r.IntN(4) {
	case 0:
		return 0, nil
	case 1:
		if !r.flink {
			return int32(r.IntN(3)), nil
		}
	}
	h := &OperatorHandle{Form: TagPartitionableOperator, Delegate: r.stream(0)}
	if r.IntN(2) == 0 {
		h = &OperatorHandle{Form: TagMergedOperator, Delegate: r.segment(), TaskOwnedDir: "file:/" + r.path(), SharedDir: "/" + r.path(), Empty: r.IntN(2) == 0}
	}
	for i := range r.some() {
		h.States = append(h.States, NamedPartitions{Name: r.text() + String(strconv.Itoa(i)), Mode: DistributionMode(r.IntN(3)), Offsets: r.offsets(r.some(), 0)})
	}
	return int32(1 + r.IntN(2)), h
}

func (r *random) channels(tag uint8) []ChannelHandle {
	var hs []ChannelHandle
	for range r.some() {
		h := ChannelHandle{Subtask: r.Int32(), Size: r.size(), Delegate: r.stream(0)}
		n := 1
		if r.version >= 6 {
			h.Tag = tag
			if r.IntN(2) == 0 {
				h.Tag, n = tag+2, r.some()
			}
		}
		for range n {
			h.Channels = append(h.Channels, ChannelOffsets{Gate: r.Int32(), Channel: r.Int32(), Size: r.size(), Offsets: r.offsets(r.some(), 0)})
		}
		if !h.Merged() {
			h.Channels[0].Size = h.Size
		}
		hs = append(hs, h)
	}
	return hs
}

func (r *random) subtask(index int32) SubtaskState {
	s := SubtaskState{Index: index}
	if r.version >= 3 && r.IntN(5) == 0 {
		s.Finished = true
		return s
	}
	s.ManagedOperatorFlag, s.ManagedOperator = r.operatorHandle()
	s.RawOperatorFlag, s.RawOperator = r.operatorHandle()
	s.ManagedKeyed = r.keyed(0)
	s.RawKeyed = r.keyed(0)
	if r.version == 2 {
		s.Duration = r.Int64()
	} else {
		s.InputChannels = r.channels(channelInput)
		s.OutputChannels = r.channels(channelOutput)
	}
	if r.version >= 7 {
		s.ReferenceMarker = uint8(r.IntN(3))
		if s.ReferenceMarker == 1 {
			s.ReferenceID = r.Int64()
		}
	}
	return s
}

func (r *random) checkpoint() *Checkpoint {
	c := &Checkpoint{Version: r.version, ID: r.Int64()}
	for range r.some() {
		c.MasterStates = append(c.MasterStates, MasterState{Version: r.Int32(), Name: r.text(), Payload: r.data()})
	}
	for i := range r.some() {
		r.max = int32(6 + r.IntN(maxKeyGroups-5))
		o := OperatorState{ID: OperatorID{byte(i), byte(r.Uint32())}, Parallelism: int32(r.IntN(6)), MaxParallelism: r.max}
		switch {
		case r.version == 2:
			o.ChainLength = r.Int32()
		case r.IntN(3) == 0:
			o.Coordinator = &ByteStreamHandle{Name: r.text(), Data: r.data()}
		case r.IntN(4) == 0:
			o.FinishedCount = -1 - int32(r.IntN(3))
		}
		if r.version >= 5 {
			o.Name, o.UID = r.text(), r.text()
		}
		if o.FinishedCount == 0 {
			for _, index := range r.Perm(int(o.Parallelism))[:r.IntN(int(o.Parallelism)+1)] {
				o.Subtasks = append(o.Subtasks, r.subtask(int32(index)))
			}
		}
		c.Operators = append(c.Operators, o)
	}
	if r.version >= 4 {
		c.Properties = NullProperties()
		if r.IntN(2) == 0 {
			c.Properties, _ = NewProperties(CheckpointProperties(RetainOnFailure))
		}
	}
	return c
}

func randomCheckpoint(seed uint64, version int32) *Checkpoint {
	r := &random{Rand: rand.New(rand.NewPCG(seed, uint64(version))), version: version}
	return r.checkpoint()
}

func TestRandomCheckpointsRoundTrip(t *testing.T) {
	for version := int32(MinVersion); version <= MaxVersion; version++ {
		for seed := range uint64(80) {
			c := randomCheckpoint(seed, version)
			b := mustEncode(t, c)
			got, err := Decode(bytes.NewReader(b), nil)
			require.NoError(t, err, "seed %d, version %d", seed, version)
			require.Equal(t, c, got, "seed %d, version %d", seed, version)
			require.NoError(t, EncodeWith(io.Discard, c, &EncodeOptions{SelfCheck: true}), "seed %d, version %d", seed, version)
			require.NoError(t, Dump(io.Discard, bytes.NewReader(b), nil))
			n := 0
			for p, h := range c.StreamHandles() {
				require.NotEmpty(t, c.Field(p))
				require.NotEqual(t, TagKeyGroups, h.Tag())
				n++
			}
			for range c.KeyedHandles() {
				n++
			}
			for to := int32(MinVersion); to <= MaxVersion; to++ {
				conv, err := Convert(c, to, nil)
				if err != nil {
					require.ErrorIs(t, err, ErrNotRepresentable)
					continue
				}
				require.NoError(t, VerifyRoundTrip(bytes.NewReader(mustEncode(t, conv)), nil))
			}
		}
	}
}

// Every decoder error path, as far as cutting and flipping reaches.
func TestRandomDamageIsReported(t *testing.T) {
	for version := int32(MinVersion); version <= MaxVersion; version++ {
		for seed := range uint64(20) {
			b := mustEncode(t, randomCheckpoint(seed, version))
			r := rand.New(rand.NewPCG(seed, 99))
			for range 40 {
				d := bytes.Clone(b)
				for range 1 + r.IntN(2) {
					d[8+r.IntN(len(d)-8)] = byte(r.IntN(4) * 85)
				}
				requireDamageOrRoundTrip(t, d)
			}
		}
	}
}

// requireDamageOrRoundTrip checks what holds for any bytes.
func requireDamageOrRoundTrip(t *testing.T, b []byte) {
	t.Helper()
	c, err := Decode(bytes.NewReader(b), nil)
	var unsized *Checkpoint
	unsized, err2 := Decode(io.MultiReader(bytes.NewReader(b)), nil)
	if err != nil {
		requireFormatError(t, err, len(b))
		requireFormatError(t, err2, len(b))
		require.Error(t, Dump(io.Discard, bytes.NewReader(b), nil))
		return
	}
	require.NoError(t, err2)
	require.Equal(t, c, unsized)
	require.Equal(t, b, mustEncode(t, c))
	require.NoError(t, VerifyRoundTrip(bytes.NewReader(b), nil))
	require.NoError(t, Dump(io.Discard, bytes.NewReader(b), nil))
}

func requireFormatError(t *testing.T, err error, size int) {
	t.Helper()
	var e *FormatError
	require.ErrorAs(t, err, &e)
	if e.Err != ErrCorrupt && e.Err != ErrUnsupportedVersion {
		t.Fatalf("no known sentinel: %v", err)
	}
	require.GreaterOrEqual(t, e.Offset, int64(0))
	require.LessOrEqual(t, e.Offset, int64(size))
	require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl), "%q", err.Error())
}
