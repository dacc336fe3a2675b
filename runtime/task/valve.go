package task

// valve finds the watermark and the idleness of an input that comes over many
// channels: Flink's StatusWatermarkValve. A channel that was idle counts again once
// its watermark has caught up with what was given out.
type valve struct {
	channels []valveChannel
	out      int64
	idle     bool
	taken    int // channels that gates were given
}

type valveChannel struct {
	at      int64
	idle    bool
	aligned bool // counts for the minimum
}

func newValve(channels int) *valve {
	v := &valve{channels: make([]valveChannel, channels), out: NoTimestamp}
	for i := range v.channels {
		v.channels[i] = valveChannel{at: NoTimestamp, aligned: true}
	}
	return v
}

// watermark takes that of a channel; ok says that the input's rises to at.
func (v *valve) watermark(channel int, at int64) (to int64, ok bool) {
	c := &v.channels[channel]
	if v.idle || c.idle || at <= c.at {
		return 0, false
	}
	c.at = at
	if !c.aligned && at >= v.out {
		c.aligned = true
	}
	return v.lowest()
}

func (v *valve) lowest() (to int64, ok bool) {
	to = MaxWatermark
	for i := range v.channels {
		if c := &v.channels[i]; c.aligned {
			to, ok = min(to, c.at), true
		}
	}
	if !ok || to <= v.out {
		return 0, false
	}
	v.out = to
	return to, true
}

// setIdle takes the status of a channel. changed says that the input's changes; ok
// that its watermark rises to to, before an input becomes idle and after it became
// active.
func (v *valve) setIdle(channel int, idle bool) (changed bool, to int64, ok bool) {
	c := &v.channels[channel]
	if c.idle == idle {
		return false, 0, false
	}
	c.idle = idle
	if !idle {
		c.aligned = c.at >= v.out
		changed, v.idle = v.idle, false
		return changed, 0, false
	}
	c.aligned = false
	for i := range v.channels {
		if !v.channels[i].idle {
			to, ok = v.lowest()
			return false, to, ok
		}
	}
	// All are idle: what the last of them knew holds for all.
	to = NoTimestamp
	for i := range v.channels {
		to = max(to, v.channels[i].at)
	}
	if ok = to > v.out && c.at == v.out; ok {
		v.out = to
	}
	v.idle = true
	return true, to, ok
}
