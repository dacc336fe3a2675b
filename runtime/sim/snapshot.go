package sim

import (
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// write writes the files of a snapshot and gives the state with their handles.
func (k *task) write(s *snap) (st *metadata.SubtaskState, written []string, err error) {
	w := k.p.w
	unique := fmt.Sprintf("%d-%d-%d-%d-%d", k.p.number, k.t.Attempt, k.at.vertex, k.at.subtask, s.id)
	folder := k.p.dir(s.id, false)
	if s.savepoint != "" {
		folder = s.savepoint
	}
	own := folder + "/" + unique
	file := fileHandle(own)
	st = &metadata.SubtaskState{}
	content := s.state
	if content.inFlight != nil {
		st.InputChannels = []metadata.ChannelHandle{{Subtask: k.at.subtask, Delegate: file, Channels: []metadata.ChannelOffsets{{Offsets: []int64{0}}}}}
	}
	switch k.at.vertex {
	case theSource:
		st.ManagedOperator = partitions("splits", file, len(content.splits))
	case theSink:
		st.ManagedOperator = partitions("transactions", file, len(content.pending))
	case theCounter:
		if k.backend != nil {
			if st.ManagedKeyed, written, err = k.writeKeyed(s, folder); err != nil || content.inFlight == nil {
				return st, written, err
			}
			break
		}
		if st.ManagedKeyed = k.writeCounts(s, &content, folder, unique); st.ManagedKeyed == nil {
			st.ManagedKeyed = &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: k.keyGroups(), Offsets: make([]int64, k.keyGroups().Count), Delegate: file}
			break
		}
		written = append(written, pathOf(s.files[len(s.files)-1].Handle))
		if content.inFlight == nil {
			return st, written, nil // all of it is shared
		}
	}
	w.store.write(own, &content)
	return st, append(written, own), nil
}

func fileHandle(name string) metadata.StreamHandle {
	return &metadata.FileHandle{Path: javaio.NewString(name), Size: 1}
}

// partitions is operator state that is dealt out piece by piece when a job is rescaled.
func partitions(name string, file metadata.StreamHandle, n int) *metadata.OperatorHandle {
	h := &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, Delegate: file,
		States: []metadata.NamedPartitions{{Name: javaio.NewString(name), Mode: metadata.ModeSplit, Offsets: make([]int64, n)}}}
	for i := range n {
		h.States[0].Offsets[i] = int64(i)
	}
	return h
}

func (k *task) keyGroups() metadata.KeyGroupRange {
	first, last := keyGroupRange(k.at.subtask, k.p.degrees[k.at.vertex])
	return metadata.KeyGroupRange{Start: first, Count: last - first + 1}
}

// writeCounts writes what has changed of a counter as a shared file; nil if it is to
// write all of it into its own.
func (k *task) writeCounts(s *snap, content *state, folder, unique string) metadata.KeyedHandle {
	w := k.p.w
	if !w.cfg.Incremental || s.options.Type == event.SavepointCanonical {
		return nil
	}
	shared := "file:/ckp/shared/" + unique
	if s.savepoint != "" {
		shared = folder + "/shared-" + unique
	}
	base, changed := s.base, s.changed
	if len(base) == 0 || len(base) >= 3 { // nothing to build on, or a compaction
		base, changed = nil, 1<<keyCount-1
	}
	h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, CheckpointID: s.id, BackendID: javaio.NewString(unique), Range: k.keyGroups(), Meta: &metadata.ByteStreamHandle{}}
	h.Shared = append(slices.Clone(base), metadata.NamedHandle{Name: javaio.NewString(unique), Handle: fileHandle(shared)})
	s.files = h.Shared
	delta := *content
	delta.inFlight, delta.changed = nil, changed
	w.store.write(shared, &delta)
	return h
}
