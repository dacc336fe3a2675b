package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// Stories are interleavings, told one event a line: when, what happened, and,
// indented below it, what the coordinator has done about it. Files that nobody
// needs any more are named by a "delete" line. Two commands:
//
//	job [interval=10s …]
//	source 2 coordinator      a vertex, its parallelism, and its inputs
//	count 2 < source
//	----
//
//	play
//	0 running all
//	10000 timer trigger
//	----
//
// Answers to "reserve" come by themselves, those to "location" and "commit" too
// unless the job has the option "manual".
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.story")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".story"), func(t *testing.T) {
			s := &story{t: t}
			datadriven.RunTest(t, f, func(t *testing.T, d *datadriven.TestData) string {
				s.out.Reset()
				switch d.Cmd {
				case "job":
					s.job(d)
				case "play":
					for line := range strings.Lines(d.Input) {
						if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
							s.play(line)
						}
					}
				case "history":
					s.history()
				default:
					d.Fatalf(t, "unknown command %s", d.Cmd)
				}
				return s.out.String()
			})
		})
	}
}

const storyDir = "file:/ckp/job/"

type story struct {
	t      *testing.T
	out    strings.Builder
	graph  Graph
	opts   Options
	manual bool
	core   *Core
	reg    *incremental.Registry
	now    int64
	// The store, which outlives a coordinator.
	stored   []Completed
	metas    map[int64]*metadata.Checkpoint
	commit   *Action
	requests map[int64]*Request
	sources  map[metadata.OperatorID]*storySource
}

func (s *story) Update(f func(*incremental.Registry) error) error { return f(s.reg) }

func (s *story) job(d *datadriven.TestData) {
	*s = story{t: s.t, metas: map[int64]*metadata.Checkpoint{}, requests: map[int64]*Request{}, sources: map[metadata.OperatorID]*storySource{}}
	s.opts = Options{IntervalMillis: 10_000, Alignment: event.Aligned}
	millis := func(v string) int64 {
		d, err := time.ParseDuration(v)
		require.NoError(s.t, err)
		return d.Milliseconds()
	}
	for _, a := range d.CmdArgs {
		v := ""
		if len(a.Vals) > 0 {
			v = a.Vals[0]
		}
		number := func() int { n, err := strconv.Atoi(v); require.NoError(s.t, err); return n }
		switch a.Key {
		case "interval":
			s.opts.IntervalMillis = millis(v)
		case "backlog-interval":
			s.opts.BacklogIntervalMillis, s.opts.HasBacklogInterval = millis(v), true
		case "pause":
			s.opts.MinPauseMillis = millis(v)
		case "timeout":
			s.opts.TimeoutMillis = millis(v)
		case "hook-timeout":
			s.opts.HookTimeoutMillis = millis(v)
		case "concurrent":
			s.opts.MaxConcurrent = number()
		case "tolerable":
			s.opts.TolerableFailures = number()
		case "retain":
			s.opts.Retained = number()
		case "hooks":
			s.opts.Hooks = a.Vals
		case "manual":
			s.manual = true
		case "restored": // ID:mode
			id, mode, _ := strings.Cut(v, ":")
			n, err := strconv.ParseInt(id, 10, 64)
			require.NoError(s.t, err)
			c := Completed{ID: n, Path: fmt.Sprintf("file:/old/job/chk-%d/_metadata", n)}
			c.Mode = Ownership(slices.Index(ownerships[:], mode))
			s.stored = []Completed{c}
			s.metas[n] = &metadata.Checkpoint{Version: 4, ID: n}
		default:
			d.Fatalf(s.t, "unknown option %s", a.Key)
		}
	}
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		p, err := strconv.Atoi(f[1])
		require.NoError(s.t, err)
		v := Vertex{ID: metadata.OperatorIDFromUID(f[0]), Name: f[0], Parallelism: int32(p), MaxParallelism: 128}
		op := Operator{ID: v.ID, UID: f[0]}
		inputs := false
		for _, w := range f[2:] {
			switch {
			case w == "coordinator":
				op.Coordinator = true
			case w == "<":
				inputs = true
			case inputs:
				i := slices.IndexFunc(s.graph.Vertices, func(v Vertex) bool { return v.Name == w })
				require.GreaterOrEqual(s.t, i, 0, w)
				v.Inputs = append(v.Inputs, Input{From: i})
			default:
				d.Fatalf(s.t, "unknown word %s", w)
			}
		}
		v.Operators = []Operator{op}
		s.graph.Vertices = append(s.graph.Vertices, v)
	}
	s.newCore()
}

// newCore is a coordinator that begins with what the store has.
func (s *story) newCore() {
	own, err := blobstore.Parse(storyDir)
	require.NoError(s.t, err)
	s.reg = incremental.NewRegistry(own)
	next := int64(1)
	for _, c := range s.stored {
		_, err := s.reg.Restore(s.metas[c.ID], c.Path, c.Mode.Mode(), nil)
		require.NoError(s.t, err)
		next = max(next, c.ID+1)
	}
	if s.core != nil {
		next = s.core.reserved
	}
	s.core, err = NewCore(s.graph, s, s.opts, Start{NextID: next, Retained: s.stored})
	require.NoError(s.t, err)
	s.commit = nil
}

func (s *story) task(name string) event.Task {
	name, attempt, _ := strings.Cut(name, "#")
	name, sub, ok := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	require.True(s.t, ok, name)
	n, err := strconv.Atoi(sub)
	require.NoError(s.t, err)
	k, _ := strconv.Atoi(attempt)
	return event.Task{Vertex: metadata.OperatorIDFromUID(name), Subtask: int32(n), Attempt: int32(k)}
}

func (s *story) play(line string) {
	f := strings.Fields(line)
	at, err := strconv.ParseInt(f[0], 10, 64)
	require.NoError(s.t, err, line)
	s.now = at
	verb, args := f[1], f[2:]
	fmt.Fprintf(&s.out, "%s\n", line)
	arg := func(i int) string {
		require.Greater(s.t, len(args), i, line)
		return args[i]
	}
	id := func(i int) int64 {
		n, err := strconv.ParseInt(arg(i), 10, 64)
		require.NoError(s.t, err, line)
		return n
	}
	failure := func(i int) error {
		if len(args) > i && args[i] == "error" {
			return errors.New(strings.Join(args[i+1:], " "))
		}
		return nil
	}
	ev := Event{}
	switch verb {
	case "running", "finished", "failed":
		state := map[string]TaskState{"running": TaskRunning, "finished": TaskFinished, "failed": TaskFailed}[verb]
		if arg(0) == "all" {
			attempt := int32(0)
			if len(args) > 1 {
				attempt = int32(id(1))
			}
			for v := range s.graph.Vertices {
				for k := range s.graph.Vertices[v].Parallelism {
					s.feed(&Event{Kind: EvTask, State: state, Task: event.Task{Vertex: s.graph.Vertices[v].ID, Subtask: k, Attempt: attempt}})
				}
			}
			return
		}
		ev = Event{Kind: EvTask, State: state, Task: s.task(arg(0))}
	case "start":
		ev = Event{Kind: EvStart, Delay: id(0)}
	case "stop":
		ev = Event{Kind: EvStop}
	case "trigger":
		r := &Request{Number: id(0)}
		r.Type = map[string]event.SnapshotType{"checkpoint": event.Checkpoint, "savepoint": event.SavepointCanonical, "native": event.SavepointNative}[arg(1)]
		for _, w := range args[2:] {
			switch w {
			case "suspend":
				r.Post = event.Suspend
			case "drain":
				r.Post = event.Terminate
			default:
				r.Target = w
			}
		}
		ev = Event{Kind: EvTrigger, Request: r}
	case "timer":
		ev = Event{Kind: EvTimer, Timer: Timer(slices.Index(timers[:], arg(0)))}
		if len(args) > 1 {
			ev.ID = id(1)
		}
	case "located":
		ev = s.located(id(0))
		ev.Err = failure(1)
	case "coordinator":
		ev = Event{Kind: EvCoordinator, ID: id(0), Operator: metadata.OperatorIDFromUID(arg(1)), Err: failure(2)}
		if ev.Err == nil {
			ev.Data = []byte(arg(2))
		}
	case "hook":
		ev = Event{Kind: EvHook, ID: id(0), Hook: slices.Index(s.opts.Hooks, arg(1)), Err: failure(2)}
		if ev.Err == nil {
			ev.Master = metadata.MasterState{Name: javaio.NewString(arg(1)), Payload: []byte(arg(2))}
		}
	case "ack":
		ev = Event{Kind: EvAck, Ack: s.ack(id(0), arg(1), args[2:])}
	case "decline":
		reason, ok := event.ParseReason(arg(2))
		require.True(s.t, ok, line)
		ev = Event{Kind: EvDecline, Decline: &event.Decline{ID: id(0), Task: s.task(arg(1)), Reason: reason, Err: strings.Join(args[3:], " ")}}
	case "passed":
		ev = Event{Kind: EvPassed, ID: id(0), Operator: metadata.OperatorIDFromUID(arg(1)), Task: s.task(arg(2))}
	case "send":
		ev = Event{Kind: EvSend, Operator: metadata.OperatorIDFromUID(arg(0)), Subtask: int32(id(1)), Data: []byte(arg(2))}
	case "committed":
		o := int(Committed)
		if len(args) > 1 {
			o = slices.Index(outcomes[:], strings.Join(args[1:], " "))
			require.GreaterOrEqual(s.t, o, 0, line)
		}
		ev = s.committed(id(0), Outcome(o))
	case "durable": // the store has it, and the answer gets lost
		s.committed(id(0), Committed)
		return
	case "stored":
		ev = Event{Kind: EvStored, Err: failure(0)}
		if len(args) > 0 && args[0] == "fenced" {
			ev.Err = ErrFenced
		}
	case "backlog":
		ev = Event{Kind: EvBacklog, Operator: metadata.OperatorIDFromUID(arg(0)), On: arg(1) == "on"}
	case "abort":
		ev = Event{Kind: EvAbort, ID: id(0)}
	case "failover":
		ev = Event{Kind: EvFailover, Reason: event.TaskFailure, On: len(args) > 0 && args[0] == "partly"}
	case "shutdown":
		ev = Event{Kind: EvShutdown, Status: JobStatus(slices.Index(jobStatuses[:], arg(0)))}
	case "coordinator-dies":
		s.newCore()
		fmt.Fprintf(&s.out, "    a new one finds the store %s\n", completedList(s.stored))
		return
	case "source":
		s.source(args)
		return
	default:
		s.t.Fatalf("unknown verb in %q", line)
	}
	s.feed(&ev)
}

func (s *story) ack(id int64, task string, words []string) *event.Ack {
	a := &event.Ack{ID: id, Task: s.task(task), Metrics: event.Metrics{SyncMillis: 1, AsyncMillis: 5, AlignmentMillis: 2, StartDelayMillis: 3}}
	st := &metadata.SubtaskState{}
	for _, w := range words {
		key, v, _ := strings.Cut(w, "=")
		switch key {
		case "finished":
			a.Finished = true
		case "finished-before":
			a.Finished, a.FinishedBefore = true, true
		case "own": // a file of the checkpoint alone
			h := &metadata.RelativeFileHandle{Path: javaio.NewString(v), Size: 10}
			st.ManagedKeyed = &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Count: 1}, Offsets: []int64{1}, Delegate: h}
			a.Metrics.BytesPersisted, a.Metrics.TotalBytes = 10, 10
		case "shared":
			h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, CheckpointID: id, Range: metadata.KeyGroupRange{Count: 1}, Meta: &metadata.ByteStreamHandle{Data: []byte("m")}}
			for n := range strings.SplitSeq(v, ",") {
				path := storyDir + "shared/" + n
				if strings.HasPrefix(n, "file:") { // of another job
					path = n
				}
				h.Shared = append(h.Shared, metadata.NamedHandle{Name: javaio.NewString(n), Handle: &metadata.FileHandle{Path: javaio.NewString(path), Size: 100}})
			}
			st.ManagedKeyed = h
			a.Metrics.BytesPersisted, a.Metrics.TotalBytes = 100, int64(100*len(h.Shared))
		case "union", "list":
			mode := metadata.ModeSplit
			if key == "union" {
				mode = metadata.ModeUnion
			}
			st.ManagedOperator = &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, Delegate: &metadata.ByteStreamHandle{Data: []byte("12")},
				States: []metadata.NamedPartitions{{Name: javaio.NewString(v), Mode: mode, Offsets: []int64{0, 1}}}}
		default:
			s.t.Fatalf("unknown state %s", w)
		}
	}
	a.State = []event.OperatorSubtask{{ID: a.Task.Vertex, State: st}}
	return a
}

func (s *story) located(id int64) Event {
	dir := fmt.Sprintf("%schk-%d", storyDir, id)
	if r := s.requests[id]; r != nil && r.Type.IsSavepoint() {
		dir = fmt.Sprintf("%s/savepoint-%d", r.Target, id)
	}
	return Event{Kind: EvLocation, ID: id, Dir: dir}
}

func (s *story) committed(id int64, o Outcome) Event {
	a := s.commit
	s.commit = nil
	if a != nil {
		require.NoError(s.t, metadata.Encode(io.Discard, a.Checkpoint))
	}
	ev := Event{Kind: EvCommitted, ID: id, Outcome: o}
	if a == nil || a.ID != id {
		return ev
	}
	if o != Committed {
		ev.Err = errors.New("the store failed")
		return ev
	}
	ev.Dir = s.core.committing.dir + "/_metadata"
	s.metas[id] = a.Checkpoint
	if a.Retained != nil {
		s.stored = a.Retained
	}
	return ev
}

// feed gives the Core an event, prints what it does, and answers what answers itself.
func (s *story) feed(ev *Event) {
	queue := []Event{*ev}
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		for _, a := range s.core.Handle(s.now, &e, nil) {
			switch a.Kind {
			case ActReserve:
				queue = append(queue, Event{Kind: EvReserved, ID: a.ID})
				continue
			case ActCompleted:
				continue // its other actions tell
			}
			fmt.Fprintf(&s.out, "    %s\n", s.core.Describe(&a))
			switch a.Kind {
			case ActLocation:
				s.requests[a.ID] = s.core.find(a.ID).req
				if !s.manual {
					queue = append(queue, s.located(a.ID))
				}
			case ActCommit:
				s.commit = &a
				if !s.manual {
					queue = append(queue, s.committed(a.ID, Committed))
				}
			case ActStore:
				s.stored = a.Retained
				if !s.manual {
					queue = append(queue, Event{Kind: EvStored})
				}
			}
			s.toSources(&a)
		}
		s.delete()
	}
}

func (s *story) delete() {
	for {
		batch := s.reg.Take(time.UnixMilli(s.now), 100)
		if len(batch) == 0 {
			return
		}
		slices.SortStableFunc(batch, func(a, b incremental.Deletion) int { return strings.Compare(a.Location.String(), b.Location.String()) })
		for _, d := range batch {
			fmt.Fprintf(&s.out, "    delete %s\n", strings.TrimPrefix("file:/"+strings.TrimLeft(strings.TrimPrefix(d.Location.String(), "file:"), "/"), storyDir))
			s.reg.Done(d, nil, time.Time{})
		}
	}
}

func (s *story) history() {
	h := s.core.History()
	fmt.Fprintf(&s.out, "%+v\n", h.Counts)
	for _, c := range h.Checkpoints {
		fmt.Fprintf(&s.out, "%d %s %s: %d of %d acknowledged, end to end %d ms, %d bytes new of %d", c.ID, c.Type, c.Status, c.Acknowledged, c.Tasks, c.EndToEndMillis(), c.CheckpointedSize, c.FullSize)
		if c.Status == StatusFailed {
			fmt.Fprintf(&s.out, ", %s: %s", c.Reason, c.Failure)
			if c.FailedTask != "" {
				fmt.Fprintf(&s.out, " (by %s)", c.FailedTask)
			}
		}
		if c.Discarded {
			s.out.WriteString(", discarded")
		}
		s.out.WriteString("\n")
		for i := range c.Vertices {
			v := &c.Vertices[i]
			sp := v.Spreads(c.Triggered)
			fmt.Fprintf(&s.out, "    %s %d of %d, end to end %d/%d/%d ms, sync %d, async %d, alignment %d, start delay %d\n", v.Name, v.Acknowledged, len(v.Subtasks),
				sp.EndToEnd.Min, sp.EndToEnd.Avg, sp.EndToEnd.Max, sp.Sync.Avg, sp.Async.Avg, sp.Alignment.Avg, sp.StartDelay.Avg)
		}
	}
}
