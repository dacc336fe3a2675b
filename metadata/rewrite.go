package metadata

// MapStreams gives a copy of the checkpoint in which each stream handle that names
// bytes is what f made of it, in the order of StreamHandles. around is the outermost
// keyed handle that it belongs to, nil outside of keyed state. c is not changed; what
// f gives back may be the handle it got. The first error of f ends it.
func (c *Checkpoint) MapStreams(f func(around KeyedHandle, h StreamHandle) (StreamHandle, error)) (*Checkpoint, error) {
	m := &mapper{f: f}
	out := *c
	out.Operators = make([]OperatorState, len(c.Operators))
	for i := range c.Operators {
		o := c.Operators[i]
		o.Coordinator = m.stream(o.Coordinator)
		o.Subtasks = make([]SubtaskState, len(o.Subtasks))
		for k := range o.Subtasks {
			o.Subtasks[k] = m.subtask(c.Operators[i].Subtasks[k])
		}
		if c.Operators[i].Subtasks == nil {
			o.Subtasks = nil
		}
		out.Operators[i] = o
	}
	return &out, m.err
}

// mapper rebuilds handles from the inside out.
type mapper struct {
	f      func(KeyedHandle, StreamHandle) (StreamHandle, error)
	around KeyedHandle
	err    error
}

func (m *mapper) stream(h StreamHandle) StreamHandle {
	switch h := h.(type) {
	case nil:
		return nil
	case *KeyGroupsHandle: // of the stream grammar: what it wraps stands for it
		c := *h
		c.Delegate = m.stream(h.Delegate)
		return &c
	}
	if m.err != nil {
		return h
	}
	out, err := m.f(m.around, h)
	if err != nil {
		m.err = err
		return h
	}
	return out
}

func (m *mapper) subtask(s SubtaskState) SubtaskState {
	s.ManagedOperator, s.RawOperator = m.operator(s.ManagedOperator), m.operator(s.RawOperator)
	s.ManagedKeyed, s.RawKeyed = m.outer(s.ManagedKeyed), m.outer(s.RawKeyed)
	s.InputChannels, s.OutputChannels = m.channels(s.InputChannels), m.channels(s.OutputChannels)
	return s
}

func (m *mapper) operator(h *OperatorHandle) *OperatorHandle {
	if h == nil {
		return nil
	}
	c := *h
	c.Delegate = m.stream(h.Delegate)
	return &c
}

func (m *mapper) channels(list []ChannelHandle) []ChannelHandle {
	if list == nil {
		return nil
	}
	out := make([]ChannelHandle, len(list))
	for i := range list {
		out[i] = list[i]
		out[i].Delegate = m.stream(list[i].Delegate)
	}
	return out
}

func (m *mapper) named(list []NamedHandle) []NamedHandle {
	if list == nil {
		return nil
	}
	out := make([]NamedHandle, len(list))
	for i := range list {
		out[i] = NamedHandle{list[i].Name, m.stream(list[i].Handle)}
	}
	return out
}

func (m *mapper) outer(h KeyedHandle) KeyedHandle {
	m.around = h
	defer func() { m.around = nil }()
	return m.keyed(h)
}

func (m *mapper) keyed(h KeyedHandle) KeyedHandle {
	switch h := h.(type) {
	case *KeyGroupsHandle:
		c := *h
		c.Delegate = m.stream(h.Delegate)
		return &c
	case *IncrementalHandle:
		c := *h
		c.Meta, c.Shared, c.Private = m.stream(h.Meta), m.named(h.Shared), m.named(h.Private)
		return &c
	case *ChangelogFileHandle:
		c := *h
		c.Files = make([]OffsetHandle, len(h.Files))
		for i := range h.Files {
			c.Files[i] = OffsetHandle{h.Files[i].Offset, m.stream(h.Files[i].Handle)}
		}
		return &c
	case *ChangelogHandle:
		c := *h
		c.Materialized, c.Changes = m.list(h.Materialized), m.list(h.Changes)
		return &c
	}
	return h
}

func (m *mapper) list(list []KeyedHandle) []KeyedHandle {
	if list == nil {
		return nil
	}
	out := make([]KeyedHandle, len(list))
	for i := range list {
		out[i] = m.keyed(list[i])
	}
	return out
}
