package metadata

// ConvertOptions says what Convert may leave out. Nil leaves out nothing.
type ConvertOptions struct {
	// DropNames leaves out operator names and uids below version 5. State is
	// matched by operator ID, so nothing but a label is lost.
	DropNames bool
	// DropProperties leaves out the checkpoint properties below version 4. Flink
	// then does not know how files may be shared with other checkpoints.
	DropProperties bool
	// DropReferences leaves out the ID of the older checkpoint that state was
	// reused from, below version 7. Nothing protects that checkpoint any more.
	DropReferences bool
}

// Convert returns a copy of c ready to be encoded in another version. It
// shares handles with c, which is left as it is.
//
// What has another form in the other version is changed without loss: channel
// handles get or lose their tag, below version 6 a merged channel handle becomes
// one for each of its channels, from version 4 on missing properties become
// Java's null, and the unused fields of version 2 appear or go. If the version
// cannot hold something that opts does not allow to drop, the error, a
// *NotRepresentableError, names each such thing.
func Convert(c *Checkpoint, version int32, opts *ConvertOptions) (*Checkpoint, error) {
	if opts == nil {
		opts = &ConvertOptions{}
	}
	to := *c
	to.Version = version
	switch {
	case version >= 4 && c.Version < 4 && len(c.Properties) == 0:
		to.Properties = NullProperties()
	case version < 4 && (opts.DropProperties || string(c.Properties) == string(NullProperties())):
		to.Properties = nil
	}
	to.Operators = make([]OperatorState, len(c.Operators))
	for i := range c.Operators {
		o := c.Operators[i]
		if version < 5 && opts.DropNames {
			o.Name, o.UID = "", ""
		}
		switch {
		case version == 2 && c.Version != 2:
			o.ChainLength = 1
		case version != 2:
			o.ChainLength = 0
		}
		o.Subtasks = make([]SubtaskState, len(o.Subtasks))
		for j := range o.Subtasks {
			o.Subtasks[j] = convertSubtask(c.Operators[i].Subtasks[j], c.Version, version, opts)
		}
		if len(o.Subtasks) == 0 {
			o.Subtasks = nil
		}
		to.Operators[i] = o
	}
	if _, err := dryRun(&to, nil); err != nil {
		return nil, err
	}
	return &to, nil
}

func convertSubtask(s SubtaskState, from, to int32, opts *ConvertOptions) SubtaskState {
	switch {
	case to == 2 && from != 2:
		s.Duration = -1
	case to != 2:
		s.Duration = 0
	}
	if to < 7 && (s.ReferenceMarker != 1 || opts.DropReferences) {
		s.ReferenceMarker, s.ReferenceID = 0, 0
	}
	s.InputChannels = convertChannels(s.InputChannels, to, channelInput)
	s.OutputChannels = convertChannels(s.OutputChannels, to, channelOutput)
	return s
}

func convertChannels(hs []ChannelHandle, to int32, tag uint8) []ChannelHandle {
	var out []ChannelHandle
	for _, h := range hs {
		switch {
		case to >= 6 && h.Tag == 0:
			h.Tag = tag
			out = append(out, h)
		case to < 6 && h.Merged() && len(h.Channels) > 0:
			for _, ch := range h.Channels {
				out = append(out, ChannelHandle{Subtask: h.Subtask, Size: ch.Size, Delegate: h.Delegate, Channels: []ChannelOffsets{ch}})
			}
		case to < 6 && !h.Merged():
			h.Tag = 0
			out = append(out, h)
		default:
			out = append(out, h)
		}
	}
	return out
}
