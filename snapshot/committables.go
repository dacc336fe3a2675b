package snapshot

import "encoding/binary"

// committables flattens the state of Flink's sink committer to the parts of a
// FormVersioned value, one for each request. What does not have the layout of
// Flink 1.20 or 2.3 is given back as it is.
//
//	element    := int32 length, int32 version, int32 length, list
//	list       := int32 0xb91f252c, int32 version (0 or 1), int32 n, n × ( int32 length checkpoint )
//	checkpoint := int64 id, int32 version 0, int32 n, n × ( int32 length subtask )          version 0
//	            | int64 id, int32, int32, int32 n, n × ( int32 length subtask )             version 1
//	subtask    := [int32 index,] int32 version, int32 n, n × ( int32 length request ), …
//	request    := int32 version, int32 length, bytes, int32 retries, int32 state
//
// Source: Flink, CommittableCollectorSerializer.java; files of 1.20.0 and 2.3.0.
func committables(value []byte) []byte {
	var out []byte
	for b := value; len(b) > 0; {
		element, rest, ok := framed(b)
		if !ok || len(element) < 20 {
			return value
		}
		list := element[8:]
		if be32(list) != 0xb91f252c {
			return value
		}
		version := be32(list[4:])
		if version > 1 {
			return value
		}
		ok = eachFramed(list[8:], func(checkpoint []byte) bool {
			head := 12
			if version == 1 {
				head = 16
			}
			return len(checkpoint) >= head && eachFramed(checkpoint[head:], func(subtask []byte) bool {
				head := 4
				if version == 1 {
					head = 8
				}
				return len(subtask) >= head && eachFramed(subtask[head:], func(request []byte) bool {
					if len(request) < 8 || uint64(be32(request[4:])) > uint64(len(request)-8) {
						return false
					}
					n := 8 + int(be32(request[4:]))
					out = binary.BigEndian.AppendUint32(out, uint32(n))
					out = append(out, request[:n]...)
					return true
				})
			})
		})
		if !ok {
			return value
		}
		b = rest
	}
	return out
}

// framed cuts off int32 length and that many bytes.
func framed(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 4 || uint64(be32(b)) > uint64(len(b)-4) {
		return nil, nil, false
	}
	n := 4 + int(be32(b))
	return b[4:n:n], b[n:], true
}

// eachFramed calls f for each of n framed parts behind int32 n.
func eachFramed(b []byte, f func([]byte) bool) bool {
	if len(b) < 4 {
		return false
	}
	n := be32(b)
	b = b[4:]
	for range n {
		part, rest, ok := framed(b)
		if !ok || !f(part) {
			return false
		}
		b = rest
	}
	return true
}
