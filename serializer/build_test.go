package serializer

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/internal/testdata"
)

// rebuild makes t anew with the constructors; nil if none makes such a type.
func rebuild(t *Type) *Type {
	var args []*Type
	for _, p := range t.parts() {
		if p.Raw == nil {
			continue
		}
		a := rebuild(p)
		if a == nil {
			return nil
		}
		args = append(args, a)
	}
	switch t.Class {
	case classList:
		return NewList(args[0])
	case classSet:
		return NewSet(args[0])
	case classMap:
		return NewMap(args[0], args[1])
	case classEither:
		return NewEither(args[0], args[1])
	case classTuple:
		return NewTuple(args...)
	case classTuple0:
		return NewTuple()
	case classGenericArray:
		return NewObjectArray(args[0], t.JavaClass)
	case classNullable:
		if t.pad > 0 {
			return NewPaddedNullable(args[0])
		}
		return NewNullable(args[0])
	case classTTL:
		return NewTTL(args[1])
	case classTimer:
		return NewTimer(args[0], args[1])
	case classEnum:
		return NewEnum(t.JavaClass, t.Symbols...)
	case classAvro:
		if t.Version != 3 {
			return nil
		}
		a, err := NewAvro(t.JavaClass, t.Schema)
		if err != nil {
			return nil
		}
		return a
	case classRow:
		if t.OuterVersion != 4 || !t.flag {
			return nil
		}
		var fields []Field
		for _, a := range args {
			fields = append(fields, Field{Type: a})
		}
		return NewRow(fields...)
	case classPOJO:
		var fields []Field
		for k, a := range args {
			if t.Fields[k].Missing {
				return nil
			}
			fields = append(fields, Field{Name: t.Fields[k].Name, DeclaringClass: t.Fields[k].DeclaringClass, Type: a})
		}
		var lists [2][]*Type
		for k, list := range [][]Subclass{t.Registered, t.Unregistered} {
			for _, s := range list {
				sub := rebuild(s.Type)
				if sub == nil {
					return nil
				}
				lists[k] = append(lists[k], sub)
			}
		}
		return NewPOJO(t.JavaClass, fields...).WithSubclasses(lists[0], lists[1])
	}
	if b := Basic(t.Kind); b != nil && b.Class == t.Class && t.Version == simpleVersion {
		return b
	}
	if t.Kind == KindArray && t.Version == simpleVersion {
		return NewArray(t.Args[0].Kind)
	}
	return nil
}

// TestSnapshotsAreFlinks builds the types of Flink's own snapshots and compares
// the bytes.
func TestSnapshotsAreFlinks(t *testing.T) {
	dir := filepath.Join(testdata.Corpus(t), "serializers")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	same := map[string]bool{}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name(), "serializer-snapshot"))
		require.NoError(t, err)
		typ, err := ReadSnapshot(javaio.NewReader(raw))
		require.NoError(t, err)
		built := rebuild(typ)
		if built == nil {
			continue
		}
		got, err := built.AppendSnapshot(nil)
		require.NoError(t, err)
		if string(got) != string(raw) {
			t.Errorf("%s: %s\n got %x\nwant %x", e.Name(), typ, got, raw)
		}
		same[strings.TrimRight(e.Name(), "-.0123456789")] = true
	}
	require.Greater(t, len(same), 45)
	t.Logf("snapshots of %d serializers equal", len(same))
}

// TestSnapshotDigests pins size and digest of common snapshots, whose bytes were
// found equal to those of Flink's classes, so that the check holds where the
// corpus is not at hand.
func TestSnapshotDigests(t *testing.T) {
	long, str := Basic(KindLong), Basic(KindString)
	for _, c := range []struct {
		t      *Type
		size   int
		digest string // first bytes of SHA-256
	}{
		{long, 86, "2c6ee836"},
		{Basic(KindInt), 84, "d62c3be9"},
		{str, 90, "32cf5c0c"},
		{Basic(KindBytes), 120, "758cd420"},
		{Basic(KindBoolean), 92, "b8ee64e3"},
		{Basic(KindDouble), 90, "12a628eb"},
		{NewList(long), 177, "3d28e2e7"},
		{NewMap(str, long), 266, "ce89ff75"},
		{NewTuple(str, long), 309, "afdb54b5"},
		{Basic(KindVoidNamespace), 92, "cbde9bfa"},
		{Basic(KindTimeWindow), 105, "d6cd1994"},
		{NewTTL(long), 270, "f5f6a2fa"},
	} {
		t.Run(c.t.String(), func(t *testing.T) {
			require.Len(t, c.t.Raw, c.size)
			sum := sha256.Sum256(c.t.Raw)
			require.Equal(t, c.digest, hex.EncodeToString(sum[:4]))
		})
	}
}
