package metadata

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

// The properties of every real file can be read, and made again from what was
// read.
func TestPropertiesOfRealFiles(t *testing.T) {
	files := testdata.GoldenMetadata(t)
	kinds := map[string]int{}
	check := func(files []string) {
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			c, err := Decode(bytes.NewReader(b), nil)
			require.NoError(t, err)
			if c.Version < 4 {
				require.NotEmpty(t, c.Properties.Decode().Opaque)
				continue
			}
			p := c.Properties.Decode()
			require.Empty(t, p.Opaque, file)
			again, err := NewProperties(p)
			require.NoError(t, err, file)
			require.Equal(t, c.Properties, again, file)
			p.TypeUID = 0
			again, err = NewProperties(p)
			require.NoError(t, err)
			require.Equal(t, c.Properties, again, "%s: not the default UID", file)
			kind := p.Kind.String() + " " + p.Format + " " + p.Retention()
			if p.Null {
				kind = "null"
			}
			kinds[kind]++
		}
	}
	check(files)
	t.Log(kinds)
	require.NotZero(t, kinds["savepoint CANONICAL owned by the user, never deleted by Flink"])
	require.NotZero(t, kinds["savepoint NATIVE owned by the user, never deleted by Flink"])
	require.NotZero(t, kinds["checkpoint  retained on cancellation"])
	t.Run("shared", func(t *testing.T) {
		check(testdata.MetadataFiles(t, filepath.Join(testdata.Shared(t), "goldens", "data"), testdata.Corpus(t)))
		t.Log(kinds)
	})
}

func TestKindsOfTheGoldens(t *testing.T) {
	for _, c := range testdata.Goldens(t) {
		for _, s := range c.Snapshots {
			p := requireRoundTrip(t, c.File(s.Path+"/_metadata")).Properties.Decode()
			switch s.Kind {
			case "canonical savepoint":
				require.Equal(t, FormatCanonical, p.Format)
				require.True(t, p.Kind.Savepoint())
			case "native savepoint":
				require.Equal(t, FormatNative, p.Format)
			default:
				require.Equal(t, KindCheckpoint, p.Kind, "%s: %s", c.Name, s.Kind)
				require.Equal(t, SharingForwardBackward, p.Sharing)
			}
		}
	}
}

func TestRetentionInWords(t *testing.T) {
	cases := []struct {
		name string
		p    Properties
		want string
	}{
		{"never", CheckpointProperties(NeverRetained), "never retained"},
		{"failure", CheckpointProperties(RetainOnFailure), "retained on failure"},
		{"cancellation", CheckpointProperties(RetainOnCancellation), "retained on cancellation"},
		{"savepoint", SavepointProperties(FormatNative), "owned by the user, never deleted by Flink"},
		{"odd", Properties{Kind: KindCheckpoint, DiscardFailed: true, DiscardSuspended: true}, "deleted when the job is failed or suspended"},
		{"null", Properties{Null: true}, "unknown"},
		{"checkpoint that is never deleted", Properties{Kind: KindCheckpoint}, "always retained"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.p.Retention()) })
	}
}

func TestPropertiesAreDecodedWhatTheyHold(t *testing.T) {
	for kind := KindCheckpoint; kind <= KindTerminateSavepoint; kind++ {
		want := Properties{Kind: kind, Forced: true, DiscardFailed: true, Unclaimed: true, TypeUID: 0x516DD572914A7152}
		if kind.Savepoint() {
			want.Format = FormatNative
		}
		raw, err := NewProperties(want)
		require.NoError(t, err)
		got := raw.Decode()
		require.Empty(t, got.Opaque)
		require.NotEmpty(t, got.Name)
		got.Name, got.Sharing, got.Action = "", "", ""
		require.Equal(t, want, got)
	}
	_, err := NewProperties(Properties{})
	require.EqualError(t, err, "properties of snapshot kind 0 cannot be written")
	_, err = NewProperties(Properties{Kind: KindSavepoint, Format: "UNIFIED"})
	require.EqualError(t, err, `savepoint format is "UNIFIED", not CANONICAL or NATIVE`)
}

func TestUnknownPropertiesAreOpaque(t *testing.T) {
	canonical, err := NewProperties(SavepointProperties(FormatCanonical))
	require.NoError(t, err)
	edit := func(from, to string) RawProperties {
		b := bytes.Replace(canonical, []byte(from), []byte(to), 1)
		require.NotEqual(t, canonical, RawProperties(b))
		return b
	}
	unhex := func(s string) RawProperties {
		b, err := hex.DecodeString(s)
		require.NoError(t, err)
		return b
	}
	cases := []struct {
		name string
		raw  RawProperties
		want string
	}{
		{"none", nil, "there are none before format version 4"},
		{"another class", edit("CheckpointProperties", "CheckpointPropertoes"), "they are an object of org.apache.flink.runtime.checkpoint.CheckpointPropertoes"},
		{"a string", unhex("aced0005740001" + "61"), "they are a string"},
		{"a field renamed", edit("unclaimed", "unclaimEd"), "they have no field unclaimed"},
		{"another type", edit("SavepointType\xa0", "SavepointTypo\xa0"), "their checkpoint type is an object of org.apache.flink.runtime.checkpoint.SavepointTypo"},
		{"another action", edit("NONE", "SOON"), "their savepoint type has the action SOON"},
		{"bytes behind", append(bytes.Clone(canonical), 0), "1 bytes follow the object"},
		{"cut off", canonical[:700], "checkpointType.postCheckpointAction.class name is cut off: the stream ends after 700 bytes: corrupt"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := c.raw.Decode()
			require.Contains(t, p.Opaque, c.want)
			require.Equal(t, Properties{Opaque: p.Opaque}, p)
		})
	}
	t.Run("null", func(t *testing.T) { require.Equal(t, Properties{Null: true}, NullProperties().Decode()) })
}

func FuzzProperties(f *testing.F) {
	for _, p := range []Properties{CheckpointProperties(NeverRetained), SavepointProperties(FormatCanonical), {Kind: KindSuspendSavepoint, Format: FormatNative}, {Null: true}} {
		raw, err := NewProperties(p)
		require.NoError(f, err)
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := RawProperties(b).Decode()
		p.Retention()
		if p.Opaque != "" || p.Name == "" || p.Sharing == "" { // empty means the default when properties are made
			return
		}
		again, err := NewProperties(p)
		if err != nil { // a savepoint format that Flink does not have
			return
		}
		require.Equal(t, p, again.Decode())
	})
}
