package metadata

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
)

// SnapshotKind is what kind of snapshot the properties say it is.
type SnapshotKind uint8

// Kinds of snapshot.
const (
	KindUnknown SnapshotKind = iota // no properties, or none that can be read
	KindCheckpoint
	KindFullCheckpoint // asked for by hand
	KindSavepoint
	KindSuspendSavepoint   // stop with savepoint
	KindTerminateSavepoint // stop with savepoint and drain
)

var kindNames = [...]string{"unknown", "checkpoint", "full checkpoint", "savepoint", "suspend savepoint", "terminate savepoint"}

func (k SnapshotKind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Savepoint says that it is a savepoint of any kind.
func (k SnapshotKind) Savepoint() bool { return k >= KindSavepoint && k <= KindTerminateSavepoint }

// Names that Flink's enums have in properties.
const (
	FormatCanonical = "CANONICAL"
	FormatNative    = "NATIVE"

	SharingForwardBackward = "FORWARD_BACKWARD"
	SharingForward         = "FORWARD"
	SharingNone            = "NO_SHARING"

	ActionNone      = "NONE"
	ActionSuspend   = "SUSPEND"
	ActionTerminate = "TERMINATE"
)

// Properties is what Flink's CheckpointProperties say of a snapshot.
type Properties struct {
	// Null says that null stands in place of properties, as in what the State
	// Processor API writes. Everything else is zero then.
	Null bool
	// Opaque says why the properties could not be read; empty if they could.
	// Everything else is zero then.
	Opaque string

	Kind    SnapshotKind
	Name    string // as stored: "Checkpoint", "Suspend Savepoint"
	Format  string // of a savepoint: CANONICAL or NATIVE
	Sharing string // which files other snapshots may share: FORWARD_BACKWARD, FORWARD, NO_SHARING
	Action  string // of a savepoint, what the job does after it: NONE, SUSPEND, TERMINATE
	// Forced is set for most savepoints, unless unaligned checkpoints are on.
	Forced bool
	// Unclaimed marks a snapshot restored in NO_CLAIM mode.
	Unclaimed bool
	// Whether Flink deletes the snapshot when it is subsumed by a newer one, and
	// when the job finishes, is cancelled, fails or is suspended.
	DiscardSubsumed  bool
	DiscardFinished  bool
	DiscardCancelled bool
	DiscardFailed    bool
	DiscardSuspended bool
	// TypeUID is the serialVersionUID of the class of the type. It decides
	// whether a Flink can read the properties at all. 0 means that of Flink 1.16
	// to 2.3 when properties are made.
	TypeUID int64
}

const (
	runtimeCheckpoint = "org.apache.flink.runtime.checkpoint."
	classProperties   = runtimeCheckpoint + "CheckpointProperties"
	classCheckpoint   = runtimeCheckpoint + "CheckpointType"
	classSavepoint    = runtimeCheckpoint + "SavepointType"
	classSharing      = runtimeCheckpoint + "SnapshotType$SharingFilesStrategy"
	classAction       = runtimeCheckpoint + "SavepointType$PostCheckpointAction"
	classFormat       = "org.apache.flink.core.execution.SavepointFormatType"

	// Computed defaults of Java for the classes as they are in Flink 1.16 to 2.3.
	uidCheckpoint = -0x2921b0fcfa51e2c6 // d6de4f0305ae1d3a
	uidSavepoint  = -0x5f782cf75ba7eb48 // a087d308a45814b8
)

// NullProperties is what Java writes for properties that are not there.
func NullProperties() RawProperties { return RawProperties{0xac, 0xed, 0x00, 0x05, 0x70} }

// Decode reads the properties for display. It never fails: what it cannot make
// sense of is Opaque. Any serialVersionUID is accepted.
func (raw RawProperties) Decode() Properties {
	if len(raw) == 0 {
		return Properties{Opaque: "there are none before format version 4"}
	}
	if len(raw) > maxProperties {
		return Properties{Opaque: fmt.Sprintf("they have %d bytes, of which at most %d are looked into", len(raw), maxProperties)}
	}
	v, n, err := javaio.ReadObjectStream(raw)
	if err != nil {
		var e *FormatError
		if errors.As(err, &e) {
			c := *e
			c.Offset = -1 // of the blob, not of the file
			err = &c
		}
		return Properties{Opaque: err.Error()}
	}
	if n < len(raw) {
		return Properties{Opaque: fmt.Sprintf("%d bytes follow the object", len(raw)-n)}
	}
	if v == nil {
		return Properties{Null: true}
	}
	o, ok := v.(*javaio.Object)
	if !ok || o.ClassName() != classProperties {
		return Properties{Opaque: "they are " + describeValue(v)}
	}
	var p Properties
	for _, f := range []struct {
		name string
		to   *bool
	}{
		{"discardCancelled", &p.DiscardCancelled}, {"discardFailed", &p.DiscardFailed}, {"discardFinished", &p.DiscardFinished},
		{"discardSubsumed", &p.DiscardSubsumed}, {"discardSuspended", &p.DiscardSuspended}, {"forced", &p.Forced}, {"unclaimed", &p.Unclaimed},
	} {
		if *f.to, ok = javaio.Get[bool](o, f.name); !ok {
			return Properties{Opaque: "they have no field " + f.name}
		}
	}
	t, ok := javaio.Get[*javaio.Object](o, "checkpointType")
	if !ok {
		return Properties{Opaque: "they have no checkpoint type"}
	}
	name, ok := javaio.Get[String](t, "name")
	if !ok {
		return Properties{Opaque: "their checkpoint type has no name"}
	}
	p.Name, p.TypeUID = name.Go(), t.Class.UID
	switch t.ClassName() {
	case classCheckpoint:
		p.Kind = KindCheckpoint
		if p.Name == "Full Checkpoint" {
			p.Kind = KindFullCheckpoint
		}
		if p.Sharing, ok = javaio.EnumName(t, "sharingFilesStrategy"); !ok {
			return Properties{Opaque: "their checkpoint type has no sharing strategy"}
		}
	case classSavepoint:
		p.Sharing = SharingNone
		if p.Format, ok = javaio.EnumName(t, "formatType"); !ok {
			return Properties{Opaque: "their savepoint type has no format"}
		}
		if p.Action, ok = javaio.EnumName(t, "postCheckpointAction"); !ok {
			return Properties{Opaque: "their savepoint type has no action"}
		}
		switch p.Action {
		case ActionNone:
			p.Kind = KindSavepoint
		case ActionSuspend:
			p.Kind = KindSuspendSavepoint
		case ActionTerminate:
			p.Kind = KindTerminateSavepoint
		default:
			return Properties{Opaque: "their savepoint type has the action " + printable(p.Action)}
		}
	default:
		return Properties{Opaque: "their checkpoint type is " + describeValue(t)}
	}
	return p
}

func describeValue(v javaio.Value) string {
	switch v := v.(type) {
	case *javaio.Object:
		return "an object of " + printable(v.ClassName())
	case *javaio.Enum:
		return "the enum constant " + printable(v.Name.Go())
	case String:
		return "a string"
	case *javaio.Array:
		return "an array"
	}
	return fmt.Sprintf("a %T", v)
}

// Retention says in words what becomes of the snapshot when its job ends.
func (p *Properties) Retention() string {
	switch {
	case p.Null || p.Opaque != "":
		return "unknown"
	case p.Kind.Savepoint() && p.discards() == "":
		return "owned by the user, never deleted by Flink"
	}
	switch [4]bool{p.DiscardFinished, p.DiscardCancelled, p.DiscardFailed, p.DiscardSuspended} {
	case [4]bool{true, true, true, true}:
		return "never retained"
	case [4]bool{true, true, false, true}:
		return "retained on failure"
	case [4]bool{true, false, false, false}:
		return "retained on cancellation"
	case [4]bool{}:
		return "always retained"
	}
	return "deleted when the job is " + p.discards()
}

// discards lists the ends of a job with which the snapshot is deleted.
func (p *Properties) discards() string {
	var when []string
	for _, f := range []struct {
		set  bool
		word string
	}{{p.DiscardFinished, "finished"}, {p.DiscardCancelled, "cancelled"}, {p.DiscardFailed, "failed"}, {p.DiscardSuspended, "suspended"}} {
		if f.set {
			when = append(when, f.word)
		}
	}
	return strings.Join(when, " or ")
}

// Retention policies of checkpoints, for CheckpointProperties.
const (
	NeverRetained        = "never"
	RetainOnFailure      = "failure"
	RetainOnCancellation = "cancellation"
)

// CheckpointProperties are those of a checkpoint with a retention policy:
// NeverRetained, RetainOnFailure or RetainOnCancellation.
func CheckpointProperties(policy string) Properties {
	p := Properties{Kind: KindCheckpoint, Sharing: SharingForwardBackward, DiscardSubsumed: true, DiscardFinished: true}
	p.DiscardCancelled = policy != RetainOnCancellation
	p.DiscardFailed = policy == NeverRetained
	p.DiscardSuspended = policy != RetainOnCancellation
	return p
}

// SavepointProperties are those of a savepoint in a format, FormatCanonical or
// FormatNative, after which the job goes on.
func SavepointProperties(format string) Properties {
	return Properties{Kind: KindSavepoint, Format: format, Forced: true}
}

// NewProperties writes p as Flink's Java serialization does. Null gives
// NullProperties; what is empty of Name, Sharing and Action follows from Kind.
func NewProperties(p Properties) (RawProperties, error) {
	if p.Null {
		return NullProperties(), nil
	}
	if p.Opaque != "" {
		return nil, fmt.Errorf("properties that could not be read cannot be written: %s", p.Opaque)
	}
	defaults := [...]Properties{
		KindCheckpoint:         {Name: "Checkpoint", Sharing: SharingForwardBackward},
		KindFullCheckpoint:     {Name: "Full Checkpoint", Sharing: SharingForward},
		KindSavepoint:          {Name: "Savepoint", Action: ActionNone},
		KindSuspendSavepoint:   {Name: "Suspend Savepoint", Action: ActionSuspend},
		KindTerminateSavepoint: {Name: "Terminate Savepoint", Action: ActionTerminate},
	}
	if p.Kind == KindUnknown || int(p.Kind) >= len(defaults) {
		return nil, fmt.Errorf("properties of snapshot kind %d cannot be written", p.Kind)
	}
	def := defaults[p.Kind]
	for _, f := range []struct {
		to  *string
		def string
	}{{&p.Name, def.Name}, {&p.Sharing, def.Sharing}, {&p.Action, def.Action}} {
		if *f.to == "" {
			*f.to = f.def
		}
	}
	name := javaio.NewString(p.Name)
	if len(name) > javaio.MaxStringBytes {
		return nil, fmt.Errorf("the name of the snapshot type has %d encoded bytes", len(name))
	}
	w := objectWriter{b: []byte{0xac, 0xed, 0x00, 0x05}}
	const bools, refs = "discardCancelled discardFailed discardFinished discardSubsumed discardSuspended forced unclaimed", "checkpointType"
	w.b = append(w.b, 0x73)
	w.class(classProperties, 2, 0x02, strings.Fields(bools), [][2]string{{refs, "L" + runtimeCheckpoint + "SnapshotType;"}})
	w.b = append(w.b, 0x70)
	for _, v := range []bool{p.DiscardCancelled, p.DiscardFailed, p.DiscardFinished, p.DiscardSubsumed, p.DiscardSuspended, p.Forced, p.Unclaimed} {
		w.b = javaio.AppendBool(w.b, v)
	}
	w.b = append(w.b, 0x73)
	if !p.Kind.Savepoint() {
		w.class(classCheckpoint, orUID(p.TypeUID, uidCheckpoint), 0x02, nil, [][2]string{
			{"name", "Ljava/lang/String;"}, {"sharingFilesStrategy", "L" + classSharing + ";"}})
		w.b = append(w.b, 0x70)
		w.string(string(name))
		w.enum(classSharing, p.Sharing)
		return w.b, nil
	}
	if p.Format != FormatCanonical && p.Format != FormatNative {
		return nil, fmt.Errorf("savepoint format is %q, not %s or %s", p.Format, FormatCanonical, FormatNative)
	}
	w.class(classSavepoint, orUID(p.TypeUID, uidSavepoint), 0x02, nil, [][2]string{
		{"formatType", "L" + classFormat + ";"}, {"name", "Ljava/lang/String;"}, {"postCheckpointAction", "L" + classAction + ";"}})
	w.b = append(w.b, 0x70)
	w.enum(classFormat, p.Format)
	w.string(string(name))
	w.enum(classAction, p.Action)
	return w.b, nil
}

func orUID(uid, otherwise int64) int64 {
	if uid != 0 {
		return uid
	}
	return otherwise
}

// objectWriter writes the few kinds of content that properties consist of. It
// numbers what takes a handle, so that a class described before is referred to.
type objectWriter struct {
	b       []byte
	handles int32
	enum0   int32 // handle of java.lang.Enum's descriptor, 0 if not yet written
}

func (w *objectWriter) utf(s string) { w.b, _ = javaio.AppendUTF(w.b, String(s)) }

func (w *objectWriter) string(s string) {
	w.b = append(w.b, 0x74)
	w.utf(s)
	w.handles++
}

// class writes a descriptor up to the end of its annotation; its superclass
// comes next. The object that it describes takes a handle after it.
func (w *objectWriter) class(name string, uid int64, flags byte, bools []string, refs [][2]string) {
	w.b = append(w.b, 0x72)
	w.utf(name)
	w.b = javaio.AppendI64(w.b, uid)
	w.handles++
	w.b = append(w.b, flags)
	w.b = javaio.AppendI16(w.b, int16(len(bools)+len(refs)))
	for _, f := range bools {
		w.b = append(w.b, 'Z')
		w.utf(f)
	}
	for _, f := range refs {
		w.b = append(w.b, 'L')
		w.utf(f[0])
		w.string(strings.ReplaceAll(f[1], ".", "/"))
	}
	w.b = append(w.b, 0x78)
	if flags == 0x02 {
		w.handles++ // the object
	}
}

func (w *objectWriter) enum(class, constant string) {
	w.b = append(w.b, 0x7e)
	w.class(class, 0, 0x12, nil, nil)
	if w.enum0 != 0 {
		w.b = append(w.b, 0x71)
		w.b = javaio.AppendI32(w.b, 0x7e0000+w.enum0)
	} else {
		w.enum0 = w.handles
		w.class("java.lang.Enum", 0, 0x12, nil, nil)
		w.b = append(w.b, 0x70)
	}
	w.handles++ // the constant
	w.string(constant)
}
