package job

import (
	"context"
	"fmt"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// stateOperator is the operator state of an operator's subtasks.
type stateOperator struct {
	o        *operator
	subtasks []*operatorstate.Backend
	lists    []map[string]*operatorstate.ListState[anything]
	maps     []map[string]*operatorstate.BroadcastState[anything, anything]
	texts    []map[string]*operatorstate.BroadcastState[string, anything]
}

func openState(o *operator) (*stateOperator, error) {
	s := &stateOperator{o: o}
	for range o.parallelism {
		if err := s.add(operatorstate.New()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add registers all states in the backend of the next subtask.
func (s *stateOperator) add(b *operatorstate.Backend) error {
	lists := map[string]*operatorstate.ListState[anything]{}
	maps := map[string]*operatorstate.BroadcastState[anything, anything]{}
	texts := map[string]*operatorstate.BroadcastState[string, anything]{}
	for _, st := range s.o.states {
		var err error
		switch st.Kind {
		case snapshot.StateOperatorList:
			lists[st.Name], err = operatorstate.List(b, st.Name, serializer.Dynamic(st.Element))
		case snapshot.StateUnion:
			lists[st.Name], err = operatorstate.Union(b, st.Name, serializer.Dynamic(st.Element))
		case snapshot.StateBroadcast:
			if st.UserKey.Kind == serializer.KindString {
				texts[st.Name], err = operatorstate.Broadcast(b, st.Name, serializer.String, serializer.Dynamic(st.Value))
			} else {
				maps[st.Name], err = operatorstate.Broadcast(b, st.Name, serializer.Dynamic(st.UserKey), serializer.Dynamic(st.Value))
			}
		default:
			if !st.Kind.Keyed() {
				err = fmt.Errorf("no state of kind %s", st.Kind)
			}
		}
		if err != nil {
			return fmt.Errorf("state %s: %w", st.Name, err)
		}
	}
	s.subtasks, s.lists, s.maps, s.texts = append(s.subtasks, b), append(s.lists, lists), append(s.maps, maps), append(s.texts, texts)
	return nil
}

// put adds what a row has. Lists are those of a subtask, and dealt out if this job
// has another parallelism; each subtask gets all of a broadcast state.
func (s *stateOperator) put(r *snapshot.StateRow) error {
	name := r.State.Name
	if r.State.Kind == snapshot.StateBroadcast {
		for i := range s.subtasks {
			v, err := whole(serializer.Dynamic(r.State.Value), r.Value)
			if err != nil {
				return err
			}
			if texts := s.texts[i][name]; texts != nil {
				k, err := whole(serializer.String, r.UserKey)
				if err != nil {
					return err
				}
				texts.Put(k, v)
				continue
			}
			k, err := whole(serializer.Dynamic(r.State.UserKey), r.UserKey)
			if err != nil {
				return err
			}
			s.maps[i][name].Put(k, v)
		}
		return nil
	}
	to := s.lists[int(r.Subtask)%len(s.subtasks)][name]
	for b := r.Value; len(b) > 0; {
		v, n, err := serializer.Dynamic(r.State.Element).Read(b)
		if err != nil {
			return err
		}
		to.Append(v)
		b = b[n:]
	}
	return nil
}

func (s *stateOperator) restore(ctx context.Context, from *snapshot.Snapshot) error {
	var old *metadata.OperatorState
	for i := range from.Checkpoint.Operators {
		if from.Checkpoint.Operators[i].ID == s.o.id {
			old = &from.Checkpoint.Operators[i]
		}
	}
	if old == nil {
		return fmt.Errorf("is not in %s", from.Dir)
	}
	handles, err := operatorstate.Handles(old)
	if err != nil {
		return err
	}
	dealt, err := operatorstate.Redistribute(handles, len(s.subtasks))
	if err != nil {
		return err
	}
	n := len(s.subtasks)
	s.subtasks, s.lists, s.maps, s.texts = nil, nil, nil, nil
	for i := range n {
		b, err := operatorstate.Open(ctx, from, dealt.Parts(i))
		if err != nil {
			return fmt.Errorf("subtask %d: %w", i, err)
		}
		if err := s.add(b); err != nil {
			return fmt.Errorf("subtask %d: %w", i, err)
		}
	}
	return nil
}

// copyTo gives the elements of lists to the other's subtasks in turn. Every subtask of
// an operator that was restored has all of a union, so the first one's is taken.
func (s *stateOperator) copyTo(other *stateOperator) {
	next := 0
	for i := range s.subtasks {
		for _, st := range s.o.states {
			switch st.Kind {
			case snapshot.StateUnion:
				if i > 0 {
					continue
				}
				fallthrough
			case snapshot.StateOperatorList:
				for _, v := range s.lists[i][st.Name].All() {
					other.lists[next%len(other.subtasks)][st.Name].Append(v)
					next++
				}
			case snapshot.StateBroadcast:
				if i > 0 {
					continue
				}
				for t := range other.subtasks {
					if texts := s.texts[i][st.Name]; texts != nil {
						for k, v := range texts.All() {
							other.texts[t][st.Name].Put(k, v)
						}
						continue
					}
					for k, v := range s.maps[i][st.Name].All() {
						other.maps[t][st.Name].Put(k, v)
					}
				}
			}
		}
	}
}

func (s *stateOperator) write(ctx context.Context, to *snapshot.Writer, subtask int, compress bool) (*metadata.OperatorHandle, error) {
	snap := s.subtasks[subtask].Snapshot()
	defer snap.Release()
	return snap.Write(ctx, to, &operatorstate.WriteOptions{Compress: compress})
}
