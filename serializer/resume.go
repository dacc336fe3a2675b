package serializer

import (
	"github.com/tidemark/tidemark/internal/javaio"
)

// resume moves the reader to the first place, from here on, where follows holds;
// it reports false and stays if there is none.
func (m *metaReader) resume(follows func() bool) bool {
	whole := m.Reader
	rest := whole.Peek()
	base := m.base
	for k := 0; k <= len(rest); k++ {
		m.Reader, m.base = javaio.NewReader(rest[k:]), base+int64(whole.Offset()+k)
		ok := follows()
		m.Reader, m.base = whole, base
		m.unknown, m.depth = nil, 0
		if ok {
			whole.Next(k)
			return true
		}
	}
	return false
}

// serializerFollows looks at a serializer's key, proxy version and class name.
func (m *metaReader) serializerFollows() bool {
	switch m.utf() {
	case SerializerKey, SerializerNS, SerializerValue, SerializerMapKey:
	default:
		return false
	}
	return m.I32() == proxyVersion && plausibleClass(m.utf()) && m.Err() == nil
}

// stateFollows looks at a state's head: name, kind, options, and the first
// serializer's key.
func (m *metaReader) stateFollows() bool {
	// Cheaply first: most places fail by what would be the kind.
	b := m.Peek()
	if len(b) < 6 {
		return false
	}
	if n := int(b[0])<<8 | int(b[1]); len(b) < n+6 || b[n+2]|b[n+3]|b[n+4] != 0 || b[n+5] > byte(KeyValueV2) {
		return false
	}
	name := m.utf()
	kind := StateKind(m.I32())
	if m.Err() != nil || !plausibleName(name) || kind < KeyValue || kind > KeyValueV2 {
		return false
	}
	n := m.I32()
	if n < 0 || n > 4 {
		return false
	}
	for range n {
		switch m.utf() {
		case OptionStateType, OptionMode:
		default:
			return false
		}
		m.UTF()
	}
	if n = m.I32(); n < 1 || n > 4 {
		return false
	}
	return m.serializerFollows()
}

// statesFollow looks at a count of states and the first one, or at a count of
// zero at the very end.
func (m *metaReader) statesFollow() bool {
	n := m.I16()
	if m.Err() != nil || n < 0 {
		return false
	}
	if n == 0 {
		return m.Len() == 0
	}
	return m.stateFollows()
}

// plausibleName rejects state names with control characters, which are the
// lengths of a misread string.
func plausibleName(name string) bool {
	for i := 0; i < len(name); i++ {
		if name[i] < 0x20 {
			return false
		}
	}
	return name != ""
}
