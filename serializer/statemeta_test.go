package serializer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
)

// foreign is a snapshot of a class that is not Flink's, with any body.
func foreign(class string, version int32, body ...byte) *Type {
	w := snapWriter{}
	w.utf(class)
	w.i32(version)
	return &Type{Class: class, Version: version, JavaClass: class, Raw: append(w.b, body...)}
}

func keyedBlock(t *testing.T, key *Type, states ...StateMeta) []byte {
	b, err := (&KeyedBackendMeta{Key: key, States: states}).Append(nil)
	require.NoError(t, err)
	return b
}

func TestKeyedMetaRoundTrip(t *testing.T) {
	void := Basic(KindVoidNamespace)
	long, str := Basic(KindLong), Basic(KindString)
	states := []StateMeta{
		NewKeyedState("a", "VALUE", void, long),
		NewKeyedState("b", "MAP", Basic(KindTimeWindow), NewMap(str, NewTTL(long))),
		NewKeyedState("c", "LIST", void, NewList(str)),
		NewTimerState("_timer_state/event_user-timers", NewTimer(str, void)),
	}
	b := keyedBlock(t, str, states...)
	m, err := ReadKeyedBackendMeta(javaio.NewReader(append(b[:len(b):len(b)], "body"...)))
	require.NoError(t, err)
	require.EqualValues(t, len(b), m.Size)
	require.Empty(t, m.Unknown)
	require.Len(t, m.States, 4)
	require.Equal(t, "map<string, ttl<long>>", m.States[1].Value().String())
	require.True(t, m.States[1].TTL())
	require.False(t, m.States[0].TTL())
	k, v := m.States[1].MapTypes()
	require.Equal(t, "string", k.String())
	require.Equal(t, "ttl<long>", v.String())
	require.Equal(t, "string", m.States[2].Element().String())
	require.Equal(t, PriorityQueue, m.States[3].Kind)
	again, err := m.Append(nil)
	require.NoError(t, err)
	require.Equal(t, b, again)
	for i := range b {
		_, err := ReadKeyedBackendMeta(javaio.NewReader(b[:i]))
		require.Error(t, err, "%d of %d bytes", i, len(b))
	}
}

func TestOperatorMetaRoundTrip(t *testing.T) {
	for _, version := range []int32{5, 6} {
		o := &OperatorBackendMeta{
			Version: version, Compressed: version == 6,
			Lists:      []StateMeta{NewListState("l", false, Basic(KindLong)), NewListState("u", true, Basic(KindString))},
			Broadcasts: []StateMeta{NewBroadcastState("bc", Basic(KindString), Basic(KindLong))},
		}
		b, err := o.Append(nil)
		require.NoError(t, err)
		m, err := ReadOperatorBackendMeta(javaio.NewReader(b))
		require.NoError(t, err)
		require.EqualValues(t, len(b), m.Size)
		require.Equal(t, "UNION", m.Lists[1].Mode())
		require.Equal(t, "long", m.Lists[0].Element().String())
		k, v := m.Broadcasts[0].MapTypes()
		require.Equal(t, "string", k.String())
		require.Equal(t, "long", v.String())
		again, err := m.Append(nil)
		require.NoError(t, err)
		require.Equal(t, b, again)
	}
}

// TestUnknownSerializers puts serializers nobody knows into every place of a meta
// block: everything else is still read.
func TestUnknownSerializers(t *testing.T) {
	void, long, str := Basic(KindVoidNamespace), Basic(KindLong), Basic(KindString)
	bodies := map[string][]byte{
		"no body":               nil,
		"some bytes":            {1, 2, 3, 4, 5},
		"zeros":                 make([]byte, 9),
		"a string":              append([]byte{0, 5}, "hello"...),
		"a long string":         append([]byte{0, 50}, make([]byte, 50)...),
		"a nested snapshot":     long.Raw,
		"a key it must not see": append([]byte{0, 15}, "VALUE_SERIALIZE"...),
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			u := foreign("com.example.MySerializerSnapshot", 3, body...)
			states := func(v1, ns2, v3 *Type) []StateMeta {
				return []StateMeta{NewKeyedState("first", "VALUE", void, v1), NewKeyedState("second", "VALUE", ns2, long), NewKeyedState("third", "VALUE", void, v3), NewTimerState("t", NewTimer(str, void))}
			}
			check := func(b []byte, unknown int) *KeyedBackendMeta {
				t.Helper()
				m, err := ReadKeyedBackendMeta(javaio.NewReader(b))
				require.NoError(t, err)
				require.Len(t, m.Unknown, unknown)
				require.Equal(t, "com.example.MySerializerSnapshot", m.Unknown[0].Class)
				require.Len(t, m.States, 4)
				require.False(t, m.Open)
				require.EqualValues(t, len(b), m.Size)
				again, err := m.Append(nil)
				require.NoError(t, err)
				require.Equal(t, b, again, "the unknown bytes are kept")
				return m
			}
			m := check(keyedBlock(t, str, states(u, void, long)...), 1)
			class, ok := m.States[0].Opaque()
			require.True(t, ok)
			require.Equal(t, "com.example.MySerializerSnapshot", class)
			check(keyedBlock(t, str, states(long, u, long)...), 1)
			check(keyedBlock(t, u, states(long, void, long)...), 1)
			check(keyedBlock(t, u, states(u, u, u)...), 4)
			m = check(keyedBlock(t, str, states(NewList(u), void, long)...), 1)
			require.Equal(t, "opaque:com.example.MySerializerSnapshot", m.States[0].Value().String())

			// Behind the last one nothing tells where it ends.
			b := keyedBlock(t, str, NewKeyedState("x", "VALUE", void, long), NewTimerState("t", u))
			m, err := ReadKeyedBackendMeta(javaio.NewReader(b))
			require.NoError(t, err)
			require.True(t, m.Open)
			require.EqualValues(t, -1, m.Size)
			require.Len(t, m.States, 2)
		})
	}

	// A composite of Flink's base class tells its parts.
	w := snapWriter{}
	w.composite(7)
	w.nested(long, str)
	u := foreign("com.example.PairSnapshot", 3, w.b...)
	m, err := ReadKeyedBackendMeta(javaio.NewReader(keyedBlock(t, str, NewKeyedState("x", "VALUE", void, u))))
	require.NoError(t, err)
	require.Empty(t, m.Unknown)
	require.Equal(t, "opaque:com.example.PairSnapshot<long, string>", m.States[0].Value().String())
	require.Len(t, m.States[0].Value().Args, 2)

	// In a POJO a frame surrounds it.
	p := NewPOJO("P", Field{Name: "a", Type: foreign("com.example.S", 1, 9, 9)}, Field{Name: "b", Type: long})
	typ, err := ReadVersionedSnapshot(javaio.NewReader(p.Raw))
	require.NoError(t, err)
	require.Equal(t, "pojo:P<a opaque:com.example.S, b long>", typ.String())
}

func TestMetaVersions(t *testing.T) {
	for v, want := range map[int32]error{1: damage.ErrUnsupportedVersion, 5: damage.ErrUnsupportedVersion, 7: damage.ErrUnsupportedVersion, -1: damage.ErrCorrupt, 1 << 20: damage.ErrCorrupt} {
		_, err := ReadKeyedBackendMeta(javaio.NewReader(javaio.AppendI32(nil, v)))
		require.ErrorIs(t, err, want, "%d", v)
	}
	_, err := ReadSnapshot(javaio.NewReader(javaio.AppendI32(nil, 1)))
	require.ErrorIs(t, err, damage.ErrUnsupportedVersion)
	_, err = ReadSnapshot(javaio.NewReader([]byte{0, 0, 0, 2, 0, 3, 'a', ' ', 'b', 0, 0, 0, 1}))
	require.ErrorIs(t, err, damage.ErrCorrupt)
	var u *UnknownError
	_, err = ReadSnapshot(javaio.NewReader(append(javaio.AppendI32(nil, 2), foreign("com.x.OldConfigSnapshot", 1).Raw...)))
	require.ErrorAs(t, err, &u)
	require.ErrorIs(t, err, damage.ErrUnsupportedVersion)
	require.Contains(t, err.Error(), "dropped in 1.17")
}
