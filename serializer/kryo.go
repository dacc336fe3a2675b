package serializer

// KryoVersion is the major version of the Kryo that wrote a value.
type KryoVersion uint8

// Versions of Kryo.
const (
	KryoAuto KryoVersion = 0
	Kryo2    KryoVersion = 2 // 2.24, in Flink 1.x
	Kryo5    KryoVersion = 5 // 5.6, in Flink 2.x
)

// KryoOf is the Kryo that wrote a checkpoint whose _metadata has a version: from
// version 5 on it was written by Flink 2.x.
func KryoOf(metadataVersion int32) KryoVersion {
	if metadataVersion >= 5 {
		return Kryo5
	}
	return Kryo2
}

// KryoConfig is what a Kryo snapshot registers.
type KryoConfig struct {
	Registrations []KryoRegistration
	// Defaults are the default serializers: class, serializer.
	Defaults []KryoRegistration
}

// KryoRegistration is a class with the serializer registered for it, if any.
type KryoRegistration struct {
	Class string
	// Serializer is the class of the serializer; for one that was registered as an
	// object it is "(instance)" if its class could not be told.
	Serializer string
}

func readKryo(s *snapReader, t *Type) {
	if !s.version(t, 2) {
		return
	}
	t.JavaClass = s.utf()
	k := &KryoConfig{}
	list := func(to *[]KryoRegistration, what string, read func(f *snapReader) string) {
		s.optionalMap(what, func(name string, _, value *snapReader) {
			r := KryoRegistration{Class: name}
			if value != nil {
				r.Serializer = read(value)
				if value.Err() == nil {
					value.Rest()
				}
			}
			*to = append(*to, r)
		})
	}
	list(&k.Registrations, "Kryo registrations", func(f *snapReader) string {
		f.utf()
		switch f.I32() {
		case 1:
			return f.utf()
		case 2:
			return "(instance)"
		}
		return ""
	})
	list(&k.Defaults, "Kryo default serializers", func(*snapReader) string { return "(instance)" })
	list(&k.Defaults, "Kryo default serializer classes", func(f *snapReader) string { return f.utf() })
	t.Kryo = k
	t.Kind, t.enc = KindDynamic, encKryo
}

// opaqueHere gives up on the value at i: in a frame the rest is opaque.
func (d *Decoder) opaqueHere(t *Type, class string, b []byte, i int, v Visitor) (int, error) {
	if !d.framed {
		return i, &OpaqueError{Class: class, Offset: i}
	}
	d.swallowed = true
	v.Opaque(t, class, b[i:])
	return len(b), nil
}
