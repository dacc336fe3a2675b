package incremental

import (
	"github.com/tidemark/tidemark/metadata"
)

// RegisterState is Register for the whole state that a subtask acknowledged. The
// shared files of incremental handles get their Identity from identity, nil for
// none; a null handle among them is a placeholder, and refused without one. Where the checkpoint must name
// another upload, the handle in s is replaced.
func (r *Registry) RegisterState(id int64, s *metadata.SubtaskState, identity func(*metadata.IncrementalHandle, *metadata.NamedHandle) Identity) error {
	// One subtask is walked like a checkpoint of one.
	c := metadata.Checkpoint{Operators: []metadata.OperatorState{{Subtasks: []metadata.SubtaskState{*s}}}}
	var files []AckFile
	var shared []*metadata.NamedHandle
	for _, k := range c.KeyedHandles() {
		h, ok := k.(*metadata.IncrementalHandle)
		if !ok {
			continue
		}
		for i := range h.Shared {
			f := &h.Shared[i]
			file := AckFile{Handle: f.Handle}
			if identity != nil {
				file.Identity = identity(h, f)
			}
			files, shared = append(files, file), append(shared, f)
		}
	}
	for p, h := range c.StreamHandles() {
		if p.Part != metadata.PartShared {
			files = append(files, AckFile{Handle: h})
		}
	}
	if err := r.Register(id, files); err != nil {
		return err
	}
	for i, f := range shared {
		f.Handle = files[i].Handle
	}
	return nil
}
