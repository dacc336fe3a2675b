package metadata

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/twmb/murmur3"
)

// OperatorIDFromUID is the ID that Flink gives an operator with that uid: the
// 128-bit murmur3 hash, seed 0, of its UTF-8 bytes, each 64-bit half
// little-endian. Source: Flink, StreamGraphHasherV2 with Guava's murmur3_128.
func OperatorIDFromUID(uid string) (id OperatorID) {
	h1, h2 := murmur3.StringSum128(uid)
	binary.LittleEndian.PutUint64(id[:8], h1)
	binary.LittleEndian.PutUint64(id[8:], h2)
	return id
}

// ParseOperatorID reads the printed form: 32 hex digits.
func ParseOperatorID(s string) (id OperatorID, err error) {
	if len(s) != 32 {
		return id, fmt.Errorf("operator ID %q: 32 hex digits are needed, there are %d characters", s, len(s))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return OperatorID{}, fmt.Errorf("operator ID %q: 32 hex digits are needed", s)
	}
	return id, nil
}

// UIDNames gives operator IDs names again: an ID is a hash, from which the uid
// cannot be found, but a list of uids can be hashed and looked up.
type UIDNames map[OperatorID]string

// NewUIDNames hashes uids. A line may also be "name=ID" with the 32 hex digits
// of an ID, for an operator whose hash the job sets itself (setUidHash) or that
// has no uid: then the name is only a name. Blank lines and those that begin
// with # are skipped, so that the lines of a file may be passed.
func NewUIDNames(lines []string) (UIDNames, error) {
	names := make(UIDNames, len(lines))
	for _, line := range lines {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if i := strings.LastIndexByte(line, '='); i > 0 && len(line)-i-1 == 32 {
			if id, err := ParseOperatorID(line[i+1:]); err == nil {
				if err := names.add(id, line[:i]); err != nil {
					return nil, err
				}
				continue
			}
		}
		if err := names.add(OperatorIDFromUID(line), line); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (n UIDNames) add(id OperatorID, name string) error {
	if was, ok := n[id]; ok && was != name {
		return fmt.Errorf("operator ID %s is given two names, %q and %q", id, was, name)
	}
	n[id] = name
	return nil
}

// Label is how an operator is best called: its uid, the name the list has for
// its ID, its name, or its ID.
func (n UIDNames) Label(o *OperatorState) string {
	if o.UID != "" {
		return o.UID.Go()
	}
	if s, ok := n[o.ID]; ok {
		return s
	}
	if o.Name != "" {
		return o.Name.Go()
	}
	return o.ID.String()
}

// Find returns the operators that s can mean: those with s as uid, as name, as
// ID (32 hex digits, or at least 6 of its first), as the hash of s, or as the
// name the list has for them. The first kind of match that finds any wins.
func (n UIDNames) Find(c *Checkpoint, s string) []*OperatorState {
	hash, lower := OperatorIDFromUID(s), strings.ToLower(s)
	for _, matches := range []func(*OperatorState) bool{
		func(o *OperatorState) bool { return o.UID != "" && o.UID.Go() == s },
		func(o *OperatorState) bool { return o.ID == hash },
		func(o *OperatorState) bool { return o.ID.String() == lower },
		func(o *OperatorState) bool { name, ok := n[o.ID]; return ok && name == s },
		func(o *OperatorState) bool { return o.Name != "" && o.Name.Go() == s },
		func(o *OperatorState) bool { return len(s) >= 6 && strings.HasPrefix(o.ID.String(), lower) },
	} {
		var found []*OperatorState
		for i := range c.Operators {
			if matches(&c.Operators[i]) {
				found = append(found, &c.Operators[i])
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}
