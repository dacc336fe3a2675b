package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// storySource is a source coordinator in a story, over splits that are words.
type storySource struct {
	s  *story
	op metadata.OperatorID
	sc *SourceCoordinator[string, []string]
}

type words struct{}

func (words) Version() int32                                { return 1 }
func (words) Serialize(s string) ([]byte, error)            { return []byte(s), nil }
func (words) Deserialize(_ int32, b []byte) (string, error) { return string(b), nil }

type wordLists struct{}

func (wordLists) Version() int32                       { return 1 }
func (wordLists) Serialize(s []string) ([]byte, error) { return []byte(strings.Join(s, " ")), nil }
func (wordLists) Deserialize(_ int32, b []byte) ([]string, error) {
	return strings.Fields(string(b)), nil
}

// wordEnumerator assigns one word for each request.
type wordEnumerator struct {
	ctx  EnumeratorContext[string]
	left []string
}

func (e *wordEnumerator) Start() error { return nil }
func (e *wordEnumerator) HandleSplitRequest(subtask int32, _ string) error {
	if len(e.left) == 0 {
		return e.ctx.NoMoreSplits(subtask)
	}
	s := e.left[0]
	e.left = e.left[1:]
	return e.ctx.Assign(subtask, s)
}
func (e *wordEnumerator) AddSplitsBack(splits []string, _ int32) error {
	e.left = append(slices.Clone(splits), e.left...)
	return nil
}
func (e *wordEnumerator) AddReader(int32) error            { return nil }
func (e *wordEnumerator) Snapshot(int64) ([]string, error) { return slices.Clone(e.left), nil }
func (e *wordEnumerator) Close() error                     { return nil }

func (c *storySource) Operator() metadata.OperatorID { return c.op }
func (c *storySource) Parallelism() int32            { return 2 }
func (c *storySource) Fail(err error)                { fmt.Fprintf(&c.s.out, "    source fails the job: %v\n", err) }
func (c *storySource) Backlog(bool)                  {}
func (c *storySource) Send(subtask int32, data []byte) {
	e, err := event.DecodeSource(data)
	require.NoError(c.s.t, err)
	text := e.Kind.String()
	for _, s := range e.Splits {
		text += " " + string(s)
	}
	c.s.feed(&Event{Kind: EvSend, Operator: c.op, Subtask: subtask, Data: []byte(text)})
}

// source plays a line of a source: "source NAME splits a b c", "register 0",
// "request 0", "reset 0 ID", "left".
func (s *story) source(args []string) {
	op := metadata.OperatorIDFromUID(args[0])
	src := s.sources[op]
	number := func(i int) int64 {
		n, err := strconv.ParseInt(args[i], 10, 64)
		require.NoError(s.t, err)
		return n
	}
	do := func(err error) {
		if err != nil {
			fmt.Fprintf(&s.out, "    error: %v\n", err)
		}
	}
	switch args[1] {
	case "splits":
		src = &storySource{s: s, op: op}
		splits := args[2:]
		src.sc = NewSourceCoordinator(src, SourceOptions[string, []string]{Splits: words{}, States: wordLists{},
			New: func(ctx EnumeratorContext[string], state *[]string) (SplitEnumerator[string, []string], error) {
				left := splits
				if state != nil {
					left = *state
				}
				return &wordEnumerator{ctx, slices.Clone(left)}, nil
			}})
		do(src.sc.Start())
		s.sources[op] = src
	case "register":
		do(src.sc.HandleEvent(int32(number(2)), 0, (&event.SourceEvent{Kind: event.RegisterReader}).Encode()))
	case "request":
		do(src.sc.HandleEvent(int32(number(2)), 0, (&event.SourceEvent{Kind: event.RequestSplit}).Encode()))
	case "failed":
		do(src.sc.SubtaskFailed(int32(number(2)), 0, nil))
	case "reset":
		do(src.sc.SubtaskReset(int32(number(2)), number(3)))
	case "checkpoint": // gives its state to the checkpoint coordinator
		data, err := src.sc.Checkpoint(number(2))
		require.NoError(s.t, err)
		fmt.Fprintf(&s.out, "    its state is %q\n", data[12:])
		s.feed(&Event{Kind: EvCoordinator, ID: number(2), Operator: op, Data: data})
	case "left":
		fmt.Fprintf(&s.out, "    %s\n", strings.Join(src.sc.enum.(*wordEnumerator).left, " "))
	default:
		s.t.Fatalf("unknown %v", args)
	}
}

// toSources tells the source coordinators what the checkpoint coordinator says.
func (s *story) toSources(a *Action) {
	src := s.sources[a.Operator]
	if src == nil {
		return
	}
	switch a.Kind {
	case ActCoordinatorComplete:
		require.NoError(s.t, src.sc.Completed(a.ID))
	case ActCoordinatorAborted:
		require.NoError(s.t, src.sc.Aborted(a.ID))
	}
}
