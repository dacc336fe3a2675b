package snapshot

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/serializer"
)

// StateRow is one entry of a state: a value of a key and namespace, one entry of a map
// state, a timer, one subtask's operator list, one entry of a broadcast state.
//
// The serialized parts are slices of a reader's buffer, valid until the next row;
// methods decode them. A StateRow belongs to the goroutine it was given to.
type StateRow struct {
	State   *State
	Subtask int32 // whose handle it was read from; -1 for coordinator and master state
	// KeyGroup is -1 where there is none.
	KeyGroup int32
	// Timestamp is that of a timer, in epoch milliseconds.
	Timestamp int64
	// Key, Namespace and UserKey (of a map or broadcast entry) as serialized; nil
	// where there is none.
	Key, Namespace, UserKey []byte
	// Value as serialized, in the Form it is stored in; nil for a timer.
	Value []byte
	Form  ValueForm
	// Null is a map entry whose value is null; Value is then nil.
	Null bool
	// Version is the serializer version of a versioned payload.
	Version int32
	// File and Offset say where it stands, for messages: the file's name and the
	// offset of the entry, in decoded bytes if File is compressed; Offset is -1
	// where the entry has no place of its own (it was merged from several).
	File   string
	Offset int64

	dec *rowDecoders

	ttlMin, ttlMax int64 // of a list's elements
	ttlSeen        bool

	opaque     string // class of the first part that Check could not read
	opaqueSeen bool
}

func (r *StateRow) sawTTL(least, greatest int64) {
	if !r.ttlSeen || least < r.ttlMin {
		r.ttlMin = least
	}
	if !r.ttlSeen || greatest > r.ttlMax {
		r.ttlMax = greatest
	}
	r.ttlSeen = true
}

// ValueForm is how a row's value is stored.
type ValueForm uint8

// Forms of values.
const (
	FormNone     ValueForm = iota // no value: timers
	FormValue                     // one value of the state's value type
	FormJoined                    // list elements with one byte ',' between them
	FormElements                  // list elements, one after the other
	FormBytes                     // bytes that nothing describes
	// FormVersioned: elements of int32 version, int32 length and bytes, each
	// framed by an int32 length of its own: what SimpleVersionedSerializers wrote.
	FormVersioned
	FormVersionedBytes // bytes behind a version that stands in Version
	FormByteParts      // parts of bytes, each behind an int32 length
)

// rowDecoders are one goroutine's decoders for one state of one handle.
type rowDecoders struct {
	key, namespace, userKey, value *serializer.Decoder
	// elem reads one element of a joined or counted list.
	elem *serializer.Decoder
}

// AppendJSON appends the row as one JSON object without a newline, with the
// members and value forms of expected.jsonl (docs/format/rows.md):
//
//	operator_uid, operator_name, operator_id, state, kind
//	subtask               operator state
//	key, key_group, namespace, map_key, timestamp
//	value, ttl_timestamp_min, ttl_timestamp_max, serializer_version
//
// A part that cannot be decoded is {"@class":…,"base64":…}; undecoded is the class
// of the first such part, "" if there is none.
func (r *StateRow) AppendJSON(dst []byte) (out []byte, undecoded string) {
	s := r.State
	dst = append(dst, s.jsonHead...)
	if !s.Kind.Keyed() && s.Kind != StateBroadcast && s.Kind != StateRawKeyed && r.Subtask >= 0 {
		dst = append(dst, `,"subtask":`...)
		dst = strconv.AppendInt(dst, int64(r.Subtask), 10)
	}
	if s.Kind.Keyed() {
		dst = append(dst, `,"key":`...)
		dst = appendPart(dst, r.dec.key, r.Key, &undecoded)
	}
	if r.KeyGroup >= 0 {
		dst = append(dst, `,"key_group":`...)
		dst = strconv.AppendInt(dst, int64(r.KeyGroup), 10)
	}
	if s.Kind.Keyed() {
		dst = append(dst, `,"namespace":`...)
		if r.Namespace == nil {
			dst = append(dst, "null"...)
		} else {
			dst = appendPart(dst, r.dec.namespace, r.Namespace, &undecoded)
		}
	}
	if r.UserKey != nil {
		dst = append(dst, `,"map_key":`...)
		dst = appendPart(dst, r.dec.userKey, r.UserKey, &undecoded)
	}
	if s.Kind == StateTimer {
		dst = append(dst, `,"timestamp":`...)
		dst = strconv.AppendInt(dst, r.Timestamp, 10)
		return append(dst, '}'), undecoded
	}
	dst = append(dst, `,"value":`...)
	dst, least, greatest, ttl := r.appendValue(dst, &undecoded)
	if ttl {
		dst = append(dst, `,"ttl_timestamp_min":`...)
		dst = strconv.AppendInt(dst, least, 10)
		dst = append(dst, `,"ttl_timestamp_max":`...)
		dst = strconv.AppendInt(dst, greatest, 10)
	}
	if r.Form == FormVersioned || r.Form == FormVersionedBytes {
		dst = append(dst, `,"serializer_version":`...)
		dst = strconv.AppendInt(dst, int64(r.Version), 10)
	}
	return append(dst, '}'), undecoded
}

// AppendValueJSON appends the value alone.
func (r *StateRow) AppendValueJSON(dst []byte) (out []byte, undecoded string) {
	dst, _, _, _ = r.appendValue(dst, &undecoded)
	return dst, undecoded
}

// AppendKeyJSON appends the key alone; "null" if the row has none.
func (r *StateRow) AppendKeyJSON(dst []byte) (out []byte, undecoded string) {
	if r.Key == nil {
		return append(dst, "null"...), ""
	}
	dst = appendPart(dst, r.dec.key, r.Key, &undecoded)
	return dst, undecoded
}

func (r *StateRow) appendValue(dst []byte, undecoded *string) (out []byte, least, greatest int64, ttl bool) {
	if r.Null {
		return append(dst, "null"...), 0, 0, false
	}
	switch r.Form {
	case FormValue:
		if r.dec.value == nil {
			return appendOpaque(dst, "", r.Value, undecoded), 0, 0, false
		}
		dst = appendPart(dst, r.dec.value, r.Value, undecoded)
		least, greatest, ttl = r.dec.value.TTL()
		return dst, least, greatest, ttl
	case FormJoined, FormElements:
		return r.appendElements(dst, undecoded)
	case FormVersioned, FormByteParts:
		return r.appendParts(dst), 0, 0, false
	case FormBytes, FormVersionedBytes:
		return appendBase64(dst, r.Value), 0, 0, false
	}
	return append(dst, "null"...), 0, 0, false
}

// appendElements appends a list of elements that stand one after the other.
func (r *StateRow) appendElements(dst []byte, undecoded *string) (out []byte, least, greatest int64, ttl bool) {
	start := len(dst)
	r.ttlSeen = false
	dst = append(dst, '[')
	for b, first := r.Value, true; len(b) > 0; first = false {
		if !first {
			dst = append(dst, ',')
		}
		var n int
		var err error
		if r.dec.elem != nil {
			dst, n, err = r.dec.elem.AppendJSON(dst, b)
		}
		if r.dec.elem == nil || err != nil {
			// Nothing tells where the next element begins: the whole list is bytes.
			return appendOpaque(dst[:start], classOf(r.dec.elem, err), r.Value, undecoded), 0, 0, false
		}
		noteOpaque(r.dec.elem, undecoded)
		if lo, hi, ok := r.dec.elem.TTL(); ok {
			r.sawTTL(lo, hi)
		}
		b = b[n:]
		if r.Form == FormJoined && len(b) > 0 {
			b = b[1:]
		}
		if n == 0 {
			break // elements without bytes: one stands for all
		}
	}
	return append(dst, ']'), r.ttlMin, r.ttlMax, r.ttlSeen
}

func (r *StateRow) appendParts(dst []byte) []byte {
	dst = append(dst, '[')
	first := true
	r.parts(func(_ int32, p []byte) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendBase64(dst, p)
	})
	return append(dst, ']')
}

// parts calls f for each part of a FormByteParts or FormVersioned value.
func (r *StateRow) parts(f func(version int32, p []byte)) {
	for b := r.Value; len(b) >= 4; {
		n := int(be32(b))
		if n < 0 || n > len(b)-4 {
			return
		}
		p := b[4 : 4+n]
		b = b[4+n:]
		if r.Form == FormVersioned && len(p) >= 8 {
			f(int32(be32(p)), p[8:])
			continue
		}
		f(0, p)
	}
}

// frames calls f for each part as it stands behind its length.
func (r *StateRow) frames(f func(p []byte)) {
	for b := r.Value; len(b) > 0; {
		part, rest, ok := framed(b)
		if !ok {
			return
		}
		f(part)
		b = rest
	}
}

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// appendPart appends a part that is exactly one value.
func appendPart(dst []byte, d *serializer.Decoder, b []byte, undecoded *string) []byte {
	if d == nil {
		return appendOpaque(dst, "", b, undecoded)
	}
	start := len(dst)
	out, n, err := d.AppendJSON(dst, b)
	if err != nil || n != len(b) {
		return appendOpaque(out[:start], classOf(d, err), b, undecoded)
	}
	noteOpaque(d, undecoded)
	return out
}

// noteOpaque keeps the class of the first part that was written as bytes.
func noteOpaque(d *serializer.Decoder, undecoded *string) {
	if class, ok := d.Undecoded(); ok && *undecoded == "" {
		if *undecoded = class; class == "" {
			*undecoded = "unknown"
		}
	}
}

func appendOpaque(dst []byte, class string, b []byte, undecoded *string) []byte {
	if *undecoded == "" {
		if *undecoded = class; class == "" {
			*undecoded = "unknown"
		}
	}
	dst = append(dst, `{"@class":`...)
	dst = appendJSONString(dst, class)
	dst = append(dst, `,"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, `"}`...)
}

func appendBase64(dst, b []byte) []byte {
	dst = append(dst, `{"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, `"}`...)
}

func classOf(d *serializer.Decoder, _ error) string {
	if d == nil {
		return ""
	}
	if class, ok := d.Type().IsOpaque(); ok {
		return class
	}
	return d.Type().Class
}

func appendJSONString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return append(dst, `""`...)
	}
	return append(dst, b...)
}

func appendRowHead(dst []byte, s *State) []byte {
	dst = append(dst, `{"operator_uid":`...)
	dst = appendStringOrNull(dst, s.Operator.UID)
	dst = append(dst, `,"operator_name":`...)
	dst = appendStringOrNull(dst, s.Operator.Name)
	dst = append(dst, `,"operator_id":`...)
	dst = appendStringOrNull(dst, s.Operator.ID)
	dst = append(dst, `,"state":`...)
	dst = appendJSONString(dst, s.Name)
	dst = append(dst, `,"kind":`...)
	return appendJSONString(dst, string(s.Kind))
}

func appendStringOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendJSONString(dst, s)
}

// Check decodes every part of the row and throws it away: an error is damage that
// the framing does not show. A part that is opaque passes, see Undecoded.
func (r *StateRow) Check() error {
	r.opaque, r.opaqueSeen = "", false
	if r.dec == nil {
		return nil
	}
	for _, p := range [...]struct {
		d *serializer.Decoder
		b []byte
	}{{r.dec.key, r.Key}, {r.dec.namespace, r.Namespace}, {r.dec.userKey, r.UserKey}} {
		if p.b == nil {
			continue
		}
		if p.d == nil {
			r.sawOpaque("", true)
			continue
		}
		if _, err := p.d.Skip(p.b); err != nil {
			return err
		}
		r.sawOpaque(p.d.SkippedOpaque())
	}
	switch r.Form {
	case FormValue:
		switch {
		case r.Null:
		case r.dec.value == nil:
			r.sawOpaque("", true)
		default:
			if _, err := r.dec.value.Skip(r.Value); err != nil {
				return err
			}
			r.sawOpaque(r.dec.value.SkippedOpaque())
		}
	case FormJoined, FormElements:
		return r.checkElements()
	}
	return nil
}

func (r *StateRow) checkElements() error {
	if r.dec.elem == nil {
		r.sawOpaque("", true)
		return nil
	}
	r.ttlSeen = false
	for b := r.Value; len(b) > 0; {
		n, err := r.dec.elem.Skip(b)
		if err != nil {
			var opaque *serializer.OpaqueError
			if errors.As(err, &opaque) {
				r.sawOpaque(opaque.Class, true)
				return nil
			}
			return err
		}
		r.sawOpaque(r.dec.elem.SkippedOpaque())
		if lo, hi, ok := r.dec.elem.TTL(); ok {
			r.sawTTL(lo, hi)
		}
		if b = b[n:]; r.Form == FormJoined && len(b) > 0 {
			if b[0] != ',' {
				return &damage.Error{Offset: int64(len(r.Value) - len(b)), Field: "list", Detail: fmt.Sprintf("has %#02x between elements", b[0]), Err: damage.ErrCorrupt}
			}
			b = b[1:]
		}
		if n == 0 {
			break
		}
	}
	return nil
}

func (r *StateRow) sawOpaque(class string, ok bool) {
	if ok && !r.opaqueSeen {
		r.opaque, r.opaqueSeen = class, true
	}
}

// Undecoded reports whether the last call of Check met a part that nothing here can
// decode, and its class, "" if not even that is known.
func (r *StateRow) Undecoded() (class string, ok bool) { return r.opaque, r.opaqueSeen }

// TTL gives the least and the greatest time of last access inside the value, in
// epoch milliseconds, as the last call of Check or AppendJSON saw it.
func (r *StateRow) TTL() (least, greatest int64, ok bool) {
	if r.dec == nil || r.Null {
		return 0, 0, false
	}
	switch r.Form {
	case FormValue:
		if r.dec.value != nil {
			return r.dec.value.TTL()
		}
	case FormJoined, FormElements:
		return r.ttlMin, r.ttlMax, r.ttlSeen
	}
	return 0, 0, false
}

// AppendNamespaceJSON appends the namespace alone; "null" if the row has none.
func (r *StateRow) AppendNamespaceJSON(dst []byte) (out []byte, undecoded string) {
	if r.Namespace == nil {
		return append(dst, "null"...), ""
	}
	dst = appendPart(dst, r.dec.namespace, r.Namespace, &undecoded)
	return dst, undecoded
}

// AppendMapKeyJSON appends the key of a map or broadcast entry alone; "null" if the
// row has none.
func (r *StateRow) AppendMapKeyJSON(dst []byte) (out []byte, undecoded string) {
	if r.UserKey == nil {
		return append(dst, "null"...), ""
	}
	dst = appendPart(dst, r.dec.userKey, r.UserKey, &undecoded)
	return dst, undecoded
}
