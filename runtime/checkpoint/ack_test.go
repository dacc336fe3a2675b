package checkpoint

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// oneTask is a Core of one running task, and what it does about events.
type oneTask struct {
	t    *testing.T
	id   metadata.OperatorID
	core *Core
	reg  *incremental.Registry
}

func (o *oneTask) Update(f func(*incremental.Registry) error) error { return f(o.reg) }

func newOneTask(t *testing.T) *oneTask { return newOneTaskOf(t, Options{TolerableFailures: -1}) }

func newOneTaskOf(t *testing.T, opts Options) *oneTask {
	own, err := blobstore.Parse(storyDir)
	require.NoError(t, err)
	o := &oneTask{t: t, id: metadata.OperatorIDFromUID("count"), reg: incremental.NewRegistry(own)}
	g := Graph{Vertices: []Vertex{{ID: o.id, Name: "count", Parallelism: 1, MaxParallelism: 8, Operators: []Operator{{ID: o.id}}}}}
	o.core, err = NewCore(g, o, opts, Start{})
	require.NoError(t, err)
	o.feed(Event{Kind: EvTask, Task: o.task(0), State: TaskRunning})
	return o
}

func (o *oneTask) task(attempt int32) event.Task { return event.Task{Vertex: o.id, Attempt: attempt} }

// feed gives the Core an event and answers what asks for IDs or a place.
func (o *oneTask) feed(ev Event) (out []Action) {
	queue := []Event{ev}
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		for _, a := range o.core.Handle(0, &e, nil) {
			switch a.Kind {
			case ActReserve:
				queue = append(queue, Event{Kind: EvReserved, ID: a.ID})
			case ActLocation:
				queue = append(queue, Event{Kind: EvLocation, ID: a.ID, Dir: storyDir + "chk"})
			}
			out = append(out, a)
		}
	}
	return out
}

func (o *oneTask) trigger(t event.SnapshotType) int64 {
	o.feed(Event{Kind: EvTrigger, Request: &Request{Number: 1, Type: t, Target: "file:/sp"}})
	require.Len(o.t, o.core.Pending(), 1)
	return o.core.Pending()[0]
}

func ackOf(id int64, t event.Task, h metadata.KeyedHandle) Event {
	return Event{Kind: EvAck, Ack: &event.Ack{ID: id, Task: t, State: []event.OperatorSubtask{{ID: t.Vertex, State: &metadata.SubtaskState{ManagedKeyed: h}}}}}
}

func failureOf(out []Action) error {
	for _, a := range out {
		if a.Kind == ActResult {
			return a.Err
		}
	}
	return nil
}

// A placeholder that nothing can be put in for is refused: the checkpoint would be
// complete without that file.
func TestPlaceholderIsRefused(t *testing.T) {
	for _, typ := range []event.SnapshotType{event.Checkpoint, event.SavepointNative} {
		o := newOneTask(t)
		id := o.trigger(typ)
		h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, CheckpointID: id, Range: metadata.KeyGroupRange{Count: 8},
			Meta: &metadata.ByteStreamHandle{Data: []byte("m")}, Shared: []metadata.NamedHandle{{Name: "000012.sst"}}}
		require.ErrorIs(t, failureOf(o.feed(ackOf(id, o.task(0), h))), incremental.ErrUnknownFile)
		require.Empty(t, o.core.Pending())
	}
}

// The acknowledgement of a task comes twice, the second time after its next attempt has
// begun, while the savepoint is being committed: its files are the savepoint's.
func TestSavepointAcknowledgedTwice(t *testing.T) {
	o := newOneTask(t)
	id := o.trigger(event.SavepointCanonical)
	ack := func() Event {
		return ackOf(id, o.task(0), &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Count: 8}, Offsets: make([]int64, 8),
			Delegate: &metadata.RelativeFileHandle{Path: "state", Size: 9}})
	}
	require.NoError(t, failureOf(o.feed(ack())))
	require.NotNil(t, o.core.committing)
	o.feed(Event{Kind: EvTask, Task: o.task(1), State: TaskRunning})
	o.feed(ack())
	require.Zero(t, o.reg.Unfinished())
	require.NoError(t, failureOf(o.feed(Event{Kind: EvCommitted, ID: id, Outcome: Committed})))
}

// What a task had in flight stands in the metadata of each version that has a place for it.
func TestChannelStateInEachVersion(t *testing.T) {
	channel := func(gate int32) []metadata.ChannelHandle {
		return []metadata.ChannelHandle{{Size: 8, Delegate: &metadata.RelativeFileHandle{Path: "channels", Size: 24},
			Channels: []metadata.ChannelOffsets{{Gate: gate, Channel: 1, Size: 8, Offsets: []int64{4 + 8*int64(gate)}}}}}
	}
	for version := int32(3); version <= metadata.MaxVersion; version++ {
		o := newOneTaskOf(t, Options{TolerableFailures: -1, FormatVersion: version})
		id := o.trigger(event.Checkpoint)
		out := o.feed(Event{Kind: EvAck, Ack: &event.Ack{ID: id, Task: o.task(0), State: []event.OperatorSubtask{
			{ID: o.id, State: &metadata.SubtaskState{InputChannels: channel(0), OutputChannels: channel(1)}}}}})
		require.NoError(t, failureOf(out))
		commit := slices.IndexFunc(out, func(a Action) bool { return a.Kind == ActCommit })
		require.GreaterOrEqual(t, commit, 0)
		var b bytes.Buffer
		require.NoError(t, metadata.Encode(&b, out[commit].Checkpoint), "version %d", version)
		m, err := metadata.Decode(&b, nil)
		require.NoError(t, err)
		require.Equal(t, version, m.Version)
		m, err = metadata.Convert(m, 5, nil)
		require.NoError(t, err)
		require.Equal(t, channel(0), m.Operators[0].Subtasks[0].InputChannels)
		require.Equal(t, channel(1), m.Operators[0].Subtasks[0].OutputChannels)
	}
}
