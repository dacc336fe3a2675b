package serializer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
)

// Magic numbers and versions of the framing.
const (
	proxyVersion   = 2
	nestedMagic    = 1333245 // 00 14 57 fd
	nestedVersion  = 1
	compositeMagic = 911108 // 00 0d e7 04
	optionalMapID  = 0x000004F2C69A3D70

	simpleVersion    = 3
	compositeVersion = 3

	maxSnapshotDepth = 64
	maxPadding       = 1 << 16
)

// UnknownError says that a snapshot's class is not known and that nothing
// around it tells where its body ends.
type UnknownError struct {
	Class   string // Flink's or the user's snapshot class
	Version int32
	Offset  int64 // of the body, in the bytes given to the reader
	Reason  string
}

func (e *UnknownError) Error() string {
	why := e.Reason
	if why == "" {
		why = "unknown serializer snapshot"
	}
	return fmt.Sprintf("byte %d: %s version %d: %s", e.Offset, e.Class, e.Version, why)
}

// Is makes an UnknownError an unsupported version, which it is for a caller that
// only tells damage from what a newer program may read.
func (e *UnknownError) Is(target error) bool { return target == damage.ErrUnsupportedVersion }

// ReadSnapshot reads one snapshot as it stands in the meta block of a state
// file: i32 proxy version, class name, version, body.
//
// A class that is not known gives an Opaque type. Where a frame surrounds it (a
// POJO field, say) reading goes on after it. Elsewhere the error is an
// *UnknownError, the Type returned with it is what could be read, and r stands
// where the unknown body begins; ReadKeyedBackendMeta finds its way past that.
// Other errors are *damage.Error or wrap r's error, and the Type is nil.
func ReadSnapshot(r *javaio.Reader) (*Type, error) {
	at := r.Offset()
	v := r.I32()
	if r.Err() == nil && v != proxyVersion {
		err := error(damage.ErrCorrupt)
		if v == 1 {
			err = damage.ErrUnsupportedVersion
		}
		return nil, &damage.Error{Offset: int64(at), Field: "serializer proxy version", Detail: fmt.Sprintf("is %d", v), Err: err}
	}
	return ReadVersionedSnapshot(r)
}

// ParseSnapshot is ReadSnapshot of the bytes at the start of b; n is how many they
// are.
func ParseSnapshot(b []byte) (t *Type, n int, err error) {
	r := javaio.NewReader(b)
	t, err = ReadSnapshot(r)
	return t, r.Offset(), err
}

// ReadVersionedSnapshot is ReadSnapshot without the proxy version in front: as
// it stands in the legacy timers of the raw keyed state.
func ReadVersionedSnapshot(r *javaio.Reader) (*Type, error) {
	s := snapReader{Reader: r}
	start := r.Offset()
	t := s.snapshot()
	if s.Err() == nil {
		keepRaw(t, append([]byte(nil), r.Since(start)...), int64(start))
	}
	if s.unknown != nil {
		return t, s.unknown
	}
	if err := r.Err(); err != nil {
		return nil, s.located(err)
	}
	return t, nil
}

// snapReader reads snapshots. Its reader's error is sticky; unknown is set when
// a class without a frame ended the reading.
type snapReader struct {
	*javaio.Reader
	base    int64 // offset of the reader's first byte, inside frames
	depth   int
	unknown *UnknownError
}

func (s *snapReader) located(err error) error {
	var d *damage.Error
	if errors.As(err, &d) {
		return err
	}
	return &damage.Error{Offset: s.base + int64(s.Offset()), Field: "serializer snapshot", Err: fmt.Errorf("%w: %w", damage.ErrCorrupt, err)}
}

// shifted moves the offset of an error that counts from the reader's place.
func (s *snapReader) shifted(err error, field string) error {
	var d *damage.Error
	if errors.As(err, &d) {
		e := *d
		e.Offset += s.base + int64(s.Offset())
		e.Field = field + "." + e.Field
		return &e
	}
	return err
}

// stop reports whether reading cannot go on.
func (s *snapReader) stop() bool { return s.unknown != nil || s.Err() != nil }

func (s *snapReader) utf() string { return s.UTF().Go() }

func (s *snapReader) corrupt(field, format string, args ...any) {
	s.Fail(&damage.Error{Offset: s.base + int64(s.Offset()), Field: field, Detail: fmt.Sprintf(format, args...), Err: damage.ErrCorrupt})
}

// giveUp turns t into an Opaque type whose body ends nobody knows where.
func (s *snapReader) giveUp(t *Type, reason string) {
	if s.stop() {
		return
	}
	s.unknown = &UnknownError{Class: t.Class, Version: t.Version, Offset: s.base + int64(s.Offset()), Reason: reason}
	*t = Type{Class: t.Class, Version: t.Version, JavaClass: t.Class}
}

// snapshot reads one SNAP. It never returns nil; after an error what it returns
// is of no use, after an unknown class it is Opaque or has an Opaque part.
func (s *snapReader) snapshot() *Type {
	t := &Type{}
	start := s.Offset()
	t.Class = s.utf()
	t.Version = s.I32()
	if s.Err() != nil {
		return t
	}
	if s.depth++; s.depth > maxSnapshotDepth {
		s.corrupt("serializer snapshot", "is nested more than %d deep", maxSnapshotDepth)
		return t
	}
	if !plausibleClass(t.Class) {
		s.corrupt("serializer snapshot class", "is %.80q", t.Class)
		return t
	}
	if body, ok := bodies[t.Class]; ok {
		body(s, t)
	} else {
		s.guess(t)
	}
	s.depth--
	if s.Err() != nil {
		return t
	}
	t.rawFrom, t.rawTo = s.base+int64(start), s.base+int64(s.Offset())
	return t.finish()
}

// keepRaw gives t and all in it their bytes, of which there is one copy: raw holds
// those from offset from on.
func keepRaw(t *Type, raw []byte, from int64) {
	t.Walk(func(n *Type) bool {
		if a, z := n.rawFrom-from, n.rawTo-from; n.Class != "" && n.Raw == nil && a >= 0 && z <= int64(len(raw)) && a < z {
			n.Raw = raw[a:z:z]
		}
		return true
	})
}

// plausibleClass rejects what cannot be the name of a Java class, so that a
// reader that lost its way says so at once.
func plausibleClass(name string) bool {
	if name == "" {
		return false
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; c <= ' ' || c == ';' || c == '/' || c == '[' || c == 0x7f {
			return false
		}
	}
	return true
}

// guess reads the body of a class that is not known. Most serializers outside
// Flink use its base classes, whose layout is that of Flink's own: a composite
// without content of its own is recognized by its two magic numbers.
func (s *snapReader) guess(t *Type) {
	if legacyName(t.Class) {
		s.giveUp(t, "a snapshot with a Java-serialized serializer, which Flink dropped in 1.17")
		return
	}
	b := s.Peek()
	if t.Version == compositeVersion && len(b) >= 20 && be32(b) == compositeMagic && be32(b[8:]) == nestedMagic && be32(b[12:]) == nestedVersion {
		s.I32()
		t.OuterVersion = s.I32()
		t.Args = s.nested(-1)
		t.JavaClass = t.Class
		return
	}
	s.giveUp(t, "")
}

func legacyName(class string) bool {
	return strings.HasSuffix(class, "ConfigSnapshot") || strings.HasSuffix(class, "BackwardsCompatibleSerializerSnapshot")
}

func be32(b []byte) int32 { return int32(b[0])<<24 | int32(b[1])<<16 | int32(b[2])<<8 | int32(b[3]) }

// version fails unless t's version is one of want.
func (s *snapReader) version(t *Type, want ...int32) bool {
	for _, v := range want {
		if t.Version == v {
			return true
		}
	}
	s.giveUp(t, "unsupported version of a known serializer snapshot")
	return false
}

// nested reads a NESTED list of n snapshots; -1 is any number.
func (s *snapReader) nested(n int) []*Type {
	if m := s.I32(); s.Err() == nil && m != nestedMagic {
		s.corrupt("nested serializers", "begin with %#08x instead of %#08x", uint32(m), nestedMagic)
	}
	if v := s.I32(); s.Err() == nil && v != nestedVersion {
		s.corrupt("nested serializers", "have version %d", v)
	}
	c := s.Count(6)
	if s.Err() != nil {
		return nil
	}
	if n >= 0 && c != n {
		s.corrupt("nested serializers", "are %d, not %d", c, n)
		return nil
	}
	ts := make([]*Type, 0, min(c, 64))
	for range c {
		ts = append(ts, s.snapshot())
		if s.stop() {
			break
		}
	}
	return ts
}

// outer reads the header of a composite and returns the outer version.
func (s *snapReader) outer(t *Type, field string) int32 {
	if t.Version < compositeVersion {
		t.OuterVersion = t.Version // written by Flink 1.7 and older
		return t.Version
	}
	if !s.version(t, compositeVersion) {
		return 0
	}
	if m := s.I32(); s.Err() == nil && m != compositeMagic {
		s.corrupt(field, "begins with %#08x instead of %#08x", uint32(m), compositeMagic)
	}
	t.OuterVersion = s.I32()
	return t.OuterVersion
}

// parts reads a composite's outer snapshot and its n nested serializers (any
// number if n is negative). Of one that cannot be read whole it leaves in t what
// could, and reports false.
func (s *snapReader) parts(t *Type, field string, n int) ([]*Type, bool) {
	s.outer(t, field)
	if s.stop() {
		return nil, false
	}
	args := s.nested(n)
	if s.incomplete(t) {
		t.Args = args
		return nil, false
	}
	return args, true
}

// flagSince reads a flag that outer snapshots have from the version after v on;
// it was always set in v, and never before.
func (s *snapReader) flagSince(t *Type, v int32) {
	t.flag = t.OuterVersion == v || t.OuterVersion > v && s.Bool()
}

// composite reads a composite without content of its own.
func composite(kind Kind, enc encoding, n int) func(*snapReader, *Type) {
	return func(s *snapReader, t *Type) {
		args, ok := s.parts(t, "composite serializer snapshot", n)
		if !ok {
			return
		}
		t.Args = args
		t.Kind, t.enc = kind, enc
	}
}

// incomplete reports whether t's nested snapshots could not all be read, and
// makes t opaque then, keeping those that could.
func (s *snapReader) incomplete(t *Type) bool {
	if s.unknown != nil {
		t.Kind, t.enc, t.JavaClass = KindOpaque, encOpaque, s.unknown.Class
	}
	return s.stop()
}

// simple reads the snapshot of a serializer without parameters.
func simple(kind Kind, enc encoding) func(*snapReader, *Type) {
	return func(s *snapReader, t *Type) {
		if t.Version == 2 {
			s.utf()
		} else if !s.version(t, simpleVersion) {
			return
		}
		t.Kind, t.enc = kind, enc
		t.asText = strings.HasSuffix(t.Class, "ValueSerializerSnapshot") && strings.HasPrefix(t.Class, pkgBase)
	}
}

// optionalMap reads an OPTMAP: each key and value in a frame, either of which
// may be absent. visit gets readers of the frames, nil for an absent one.
func (s *snapReader) optionalMap(what string, visit func(name string, key, value *snapReader)) {
	if id := s.I64(); s.Err() == nil && id != optionalMapID {
		s.corrupt(what, "begin with %#x instead of %#x", uint64(id), uint64(optionalMapID))
	}
	n := s.Count(4)
	for i := 0; i < n && !s.stop(); i++ {
		name := s.utf()
		key := s.frame(what)
		value := s.frame(what)
		if s.Err() != nil {
			return
		}
		visit(name, key, value)
		for _, f := range []*snapReader{key, value} {
			if f != nil && f.Err() != nil {
				s.Fail(f.located(f.Err()))
			}
		}
	}
}

// frame reads a presence flag and, if it is set, a length and that many bytes.
func (s *snapReader) frame(what string) *snapReader {
	if !s.Bool() {
		return nil
	}
	n := s.I32()
	if s.Err() == nil && (n < 0 || int(n) > s.Len()) {
		s.corrupt(what, "have a frame of %d bytes with %d left", n, s.Len())
	}
	base := s.base + int64(s.Offset())
	b := s.Next(int(n))
	if s.Err() != nil {
		return nil
	}
	return &snapReader{Reader: javaio.NewReader(b), base: base, depth: s.depth}
}

// framed reads a snapshot that fills a frame; an unknown one is Opaque and ends
// with the frame.
func (f *snapReader) framed() *Type {
	t := f.snapshot()
	if f.unknown != nil {
		f.unknown = nil
		f.Rest()
		t.rawTo = f.base + int64(f.Offset())
	} else if f.Err() == nil && f.Len() > 0 {
		f.corrupt("serializer snapshot", "leaves %d bytes of its frame", f.Len())
	}
	return t
}

func readEnum(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	t.JavaClass = s.utf()
	n := s.Count(2)
	t.Symbols = make([]string, 0, min(n, 256))
	for i := 0; i < n && s.Err() == nil; i++ {
		t.Symbols = append(t.Symbols, s.utf())
	}
	t.Kind, t.enc = KindEnum, encEnum
}

func readScalaEnum(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	t.JavaClass = s.utf()
	n := s.Count(6)
	for i := 0; i < n && s.Err() == nil; i++ {
		t.Symbols = append(t.Symbols, s.utf())
		t.symbolIDs = append(t.symbolIDs, s.I32())
	}
	t.Kind, t.enc = KindEnum, encScalaEnum
}

// classOnly reads the snapshot of a serializer that calls the value's own class:
// what the values look like only that class knows, except for Flink's own.
func classOnly(s *snapReader, t *Type) {
	if !s.version(t, 2, 3) {
		return
	}
	t.JavaClass = s.utf()
	if v, ok := valueClasses[t.JavaClass]; ok {
		t.Kind, t.enc = v.kind, v.enc
		t.asText = strings.HasPrefix(t.JavaClass, pkgTypes)
	}
}

func readGenericArray(s *snapReader, t *Type) {
	if strings.HasSuffix(t.Class, "ConfigSnapshot") {
		if !s.version(t, 2) {
			return
		}
	} else {
		s.outer(t, "array serializer snapshot")
		if s.stop() {
			return
		}
	}
	t.JavaClass = s.utf()
	t.Args = s.nested(1)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindArray, encObjectArray
}

func readOldEither(s *snapReader, t *Type) {
	if !s.version(t, 2) {
		return
	}
	t.Args = s.nested(2)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindEither, encEither
}

// fieldsOf makes fields without names of the nested types.
func (t *Type) fieldsOf() {
	t.Fields = make([]Field, len(t.Args))
	for i, a := range t.Args {
		t.Fields[i].Type = a
	}
	t.Args = nil
}

func readTuple(s *snapReader, t *Type) {
	s.outer(t, "tuple serializer snapshot")
	if s.stop() {
		return
	}
	t.JavaClass = s.utf()
	t.Args = s.nested(-1)
	t.fieldsOf()
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindTuple, encTuple
}

func readRow(s *snapReader, t *Type) {
	s.outer(t, "row serializer snapshot")
	if s.stop() {
		return
	}
	s.flagSince(t, 3)
	t.Args = s.nested(-1)
	t.fieldsOf()
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindRow, encRow
}

func readNullable(s *snapReader, t *Type) {
	s.outer(t, "nullable serializer snapshot")
	if s.stop() {
		return
	}
	t.pad = s.I32()
	if s.Err() == nil && (t.pad < 0 || t.pad > maxPadding) {
		s.corrupt("null padding", "is %d", t.pad)
		return
	}
	t.Args = s.nested(1)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindNullable, encNullable
}

func readTTLAware(s *snapReader, t *Type) {
	if !s.version(t, 1) {
		return
	}
	s.Bool() // whether TTL is on; the inner snapshot says it too
	inner := s.snapshot()
	if s.stop() {
		t.Args = []*Type{inner}
		s.incomplete(t)
		return
	}
	class, version := t.Class, t.Version
	*t = *inner
	t.innerClass, t.Class, t.Version = inner.Class, class, version
}

func readTimer(s *snapReader, t *Type) {
	args, ok := s.parts(t, "timer serializer snapshot", 2)
	if !ok {
		return
	}
	t.Kind, t.enc = KindTimer, encTimer
	t.Fields = []Field{{Name: "timestamp", Type: typeLong}, {Name: "key", Type: args[0]}, {Name: "namespace", Type: args[1]}}
}

// record reads a composite whose nested types are fields with names that only
// the source code knows.
func record(kind Kind, enc encoding, names ...string) func(*snapReader, *Type) {
	return func(s *snapReader, t *Type) {
		args, ok := s.parts(t, "composite serializer snapshot", len(names))
		if !ok {
			return
		}
		t.Args = args
		t.fieldsOf()
		for i := range t.Fields {
			t.Fields[i].Name = names[i]
		}
		t.Kind, t.enc = kind, enc
	}
}

func readTwoPhase(s *snapReader, t *Type) {
	s.outer(t, "sink state serializer snapshot")
	if s.stop() {
		return
	}
	s.flagSince(t, 3)
	t.Args = s.nested(2)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindRecord, encTwoPhase
	twoPhaseFields(t)
}

func readLinkedList(s *snapReader, t *Type) {
	s.outer(t, "linked list serializer snapshot")
	if s.stop() {
		return
	}
	s.flagSince(t, 2)
	t.Args = s.nested(1)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindList, encLinkedList
}

func readTraversable(s *snapReader, t *Type) {
	s.outer(t, "traversable serializer snapshot")
	if s.stop() {
		return
	}
	t.JavaClass = s.utf() // Scala source code that makes the builder
	t.Args = s.nested(1)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindList, encObjectArray
}

func readPOJO(s *snapReader, t *Type) {
	if !s.version(t, 2) {
		return
	}
	t.JavaClass = s.utf()
	s.optionalMap("POJO fields", func(name string, key, value *snapReader) {
		f := Field{Name: name}
		if key != nil {
			f.DeclaringClass = key.utf()
			f.Name = key.utf()
		} else {
			f.Missing = true
		}
		if value == nil {
			s.corrupt("POJO field "+name, "has no serializer")
			return
		}
		f.Type = value.framed()
		t.Fields = append(t.Fields, f)
	})
	subclasses := func(what string) (list []Subclass) {
		s.optionalMap(what, func(name string, _, value *snapReader) {
			c := Subclass{Class: name}
			if value != nil {
				c.Type = value.framed()
			}
			list = append(list, c)
		})
		return list
	}
	t.Registered = subclasses("registered POJO subclasses")
	t.Unregistered = subclasses("POJO subclasses")
	t.Kind, t.enc = KindPOJO, encPOJO
}

func readNFAState(s *snapReader, t *Type) {
	v := s.outer(t, "NFA state serializer snapshot")
	if s.stop() {
		return
	}
	if v >= 2 {
		t.flag = s.Bool()
	}
	t.Args = s.nested(3)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindRecord, encNFAState
	nfaStateFields(t)
}
