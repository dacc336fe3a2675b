package snapshot

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// makers are the ways to make a snapshot in a folder, of the one at from.
var makers = map[string]func(t *testing.T, f *fixture, from, to blobstore.Location) error{
	"copy": func(t *testing.T, f *fixture, from, to blobstore.Location) error {
		s, err := Open(t.Context(), f.pool, from, nil)
		require.NoError(t, err)
		p, err := PlanCopy(t.Context(), s, to, nil)
		if err == nil {
			_, err = p.Apply(t.Context())
		}
		return err
	},
	"convert": func(t *testing.T, f *fixture, from, to blobstore.Location) error {
		s, err := Open(t.Context(), f.pool, from, nil)
		require.NoError(t, err)
		p, err := PlanConvert(t.Context(), s, to, &ConvertOptions{Format: stream.HeapFormat})
		if err == nil {
			_, err = p.Apply(t.Context())
		}
		return err
	},
	"create": func(t *testing.T, f *fixture, _, to blobstore.Location) error {
		d, err := ReadDescription(strings.NewReader(smallDescription), nil)
		require.NoError(t, err)
		_, err = CreateFrom(t.Context(), f.pool, SavepointIn(to), d, nil)
		return err
	},
}

const smallDescription = `{"format": 1, "operators": [{"uid": "op", "parallelism": 2, "max_parallelism": 8, "keyed": {"key_type": "string",
	"states": [{"name": "s", "kind": "value", "type": "long", "entries": [{"key": "a", "value": 1}, {"key": "b", "value": 2}, {"key": "c", "value": 3}]}]}}]}`

// makeSmall makes the snapshot of smallDescription, all of its state in files.
func makeSmall(t *testing.T, f *fixture, name string, kind CreateKind) {
	d, err := ReadDescription(strings.NewReader(smallDescription), nil)
	require.NoError(t, err)
	_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc(name)), d, &CreateOptions{Kind: kind, MemoryThreshold: -1})
	require.NoError(t, err)
}

// A new snapshot lies in a folder of its own: not above others, which it would hide,
// not in that of another, and not among strange files, be they of the
// snapshot that is copied. Nothing of what was there is touched.
func TestNewSnapshotNeedsItsFolder(t *testing.T) {
	f := memFixture(t)
	makeSmall(t, f, "job/chk-1", CreateCanonical)
	f.chain("ckp", jobA, 3)
	f.put("notes/readme.txt", 3)
	for name, try := range makers {
		for _, to := range []string{"job", "ckp/" + jobA, "ckp/" + jobA + "/shared", "notes", "job/chk-1/sub", "job/chk-1/_metadata", ""} {
			at := f.root
			if to != "" {
				at = f.loc(to)
			}
			before := f.names()
			err := try(t, f, f.loc("job/chk-1"), at)
			require.ErrorIs(t, err, ErrOccupied, "%s to %q", name, to)
			require.Equal(t, before, f.names(), "%s to %q", name, to)
		}
	}
	s, err := Open(t.Context(), f.pool, f.loc("ckp/"+jobA+"/chk-3"), nil)
	require.NoError(t, err)
	for _, to := range []string{"ckp/" + jobA + "/shared", "ckp/" + jobA + "/chk-3/a/b"} {
		_, err = PlanCopy(t.Context(), s, f.loc(to), nil)
		require.ErrorIs(t, err, ErrOccupied, to)
	}
}

// Files of a copy that was interrupted are not mixed with those of another.
func TestCopyOverAnotherHalf(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 4)
	s, err := Open(t.Context(), f.pool, f.loc("ckp/"+jobA+"/chk-2"), nil)
	require.NoError(t, err)
	p, err := PlanCopy(t.Context(), s, f.loc("to"), nil)
	require.NoError(t, err)
	require.NoError(t, p.copyFiles(t.Context()))
	other, err := Open(t.Context(), f.pool, f.loc("ckp/"+jobA+"/chk-4"), nil)
	require.NoError(t, err)
	_, err = PlanCopy(t.Context(), other, f.loc("to"), nil)
	require.ErrorIs(t, err, ErrOccupied)
	copyAgain, err := PlanCopy(t.Context(), s, f.loc("to"), nil)
	require.NoError(t, err)
	require.Zero(t, copyAgain.Bytes)
	_, err = copyAgain.Apply(t.Context())
	require.NoError(t, err)
}

// Of two different copies that begin in one empty folder at the same time one is made,
// whole and with nothing of the other, which says that it was not.
func TestTwoCopiesAtOnce(t *testing.T) {
	for range 20 {
		f := memFixture(t)
		f.chain("ckp", jobA, 6)
		makeSmall(t, f, "small", CreateCanonical)
		var plans []*CopyPlan
		for _, from := range []string{"ckp/" + jobA + "/chk-3", "ckp/" + jobA + "/chk-6", "small"} {
			s, err := Open(t.Context(), f.pool, f.loc(from), nil)
			require.NoError(t, err)
			p, err := PlanCopy(t.Context(), s, f.loc("to"), nil)
			require.NoError(t, err)
			plans = append(plans, p)
		}
		errs := make([]error, len(plans))
		var wg sync.WaitGroup
		for i, p := range plans {
			wg.Go(func() { _, errs[i] = p.Apply(t.Context()) })
		}
		wg.Wait()
		made := 0
		for i, p := range plans {
			if errs[i] != nil {
				require.ErrorIs(t, errs[i], ErrAlreadyThere)
				continue
			}
			made++
			v, err := VerifyAt(t.Context(), f.pool, f.loc("to"), nil)
			require.NoError(t, err)
			require.Empty(t, codes(v))
			sizes, err := objectsIn(t.Context(), f.pool, f.loc("to"))
			require.NoError(t, err)
			require.Len(t, sizes, len(p.Files)+1)
		}
		require.Equal(t, 1, made)
	}
}

// What another conversion of the same snapshot left is taken away; what one of
// another snapshot left is in the way.
func TestConvertOverAnotherHalf(t *testing.T) {
	f := memFixture(t)
	makeSmall(t, f, "a", CreateCanonical)
	makeSmall(t, f, "b", CreateNative)
	half := func(from string, format stream.KeyedFormat) {
		s, err := Open(t.Context(), f.pool, f.loc(from), nil)
		require.NoError(t, err)
		p, err := PlanConvert(t.Context(), s, f.loc("to"), &ConvertOptions{Format: format, Compression: CompressionSnappy, MemoryThreshold: -1})
		require.NoError(t, err)
		_, err = p.Apply(t.Context())
		require.NoError(t, err)
		f.remove("to/" + MetadataName)
	}
	half("a", stream.CanonicalFormat)
	require.ErrorIs(t, makers["convert"](t, f, f.loc("b"), f.loc("to")), ErrOccupied)
	require.NoError(t, makers["convert"](t, f, f.loc("a"), f.loc("to")))
	names, err := objectsIn(t.Context(), f.pool, f.loc("to"))
	require.NoError(t, err)
	require.Len(t, names, 1, "small state lies in _metadata, and nothing else is left")
}

// A conversion is there already only if the very same was made, and not another
// version of it, or any snapshot where the conversion has no files of its own.
func TestConvertIsThereAlready(t *testing.T) {
	f := memFixture(t)
	makeSmall(t, f, "a", CreateCanonical)
	f.write("none", &metadata.Checkpoint{Version: 4, ID: 5, Properties: metadata.NullProperties(), Operators: []metadata.OperatorState{{
		ID: metadata.OperatorIDFromUID("other"), Parallelism: 1, MaxParallelism: 128,
		Coordinator: &metadata.ByteStreamHandle{Name: "x", Data: []byte("state")},
	}}})
	plan := func(from, to string, o ConvertOptions) (*ConvertPlan, error) {
		s, err := Open(t.Context(), f.pool, f.loc(from), nil)
		require.NoError(t, err)
		return PlanConvert(t.Context(), s, f.loc(to), &o)
	}
	for _, from := range []string{"a", "none"} {
		p, err := plan(from, "to-"+from, ConvertOptions{})
		require.NoError(t, err)
		_, err = p.Apply(t.Context())
		require.NoError(t, err)
		p, err = plan(from, "to-"+from, ConvertOptions{})
		require.NoError(t, err)
		require.True(t, p.Done)
		_, err = plan(from, "to-"+from, ConvertOptions{Version: 6})
		require.ErrorIs(t, err, ErrAlreadyThere)
	}
	_, err := plan("none", "to-a", ConvertOptions{})
	require.ErrorIs(t, err, ErrAlreadyThere)
	_, err = plan("a", "to-none", ConvertOptions{})
	require.ErrorIs(t, err, ErrAlreadyThere)
}

// A path that no handle can hold is refused before anything is written.
func TestCopyToUnspeakablePath(t *testing.T) {
	f := localFixture(t)
	f.chain("ckp", jobA, 2)
	for _, name := range []string{"new\nline", "del\x7f"} {
		require.ErrorIs(t, makers["copy"](t, f, f.loc("ckp/"+jobA+"/chk-2"), f.loc(name)), blobstore.ErrInvalidName)
		_, err := Open(context.Background(), f.pool, f.loc(name), nil)
		require.ErrorIs(t, err, ErrNoSnapshot)
	}
}

// Flink looks for file systems by their scheme in lower case.
func TestCopyWritesSchemesInLowerCase(t *testing.T) {
	f := localFixture(t)
	f.chain("ckp", jobA, 2)
	to := parse(t, "FILE:/"+f.loc("to").Path)
	require.NoError(t, makers["copy"](t, f, f.loc("ckp/"+jobA+"/chk-2"), to))
	s, err := Open(t.Context(), f.pool, to, nil)
	require.NoError(t, err)
	for _, h := range s.Checkpoint.StreamHandles() {
		if h, ok := h.(*metadata.FileHandle); ok {
			require.True(t, strings.HasPrefix(h.Path.Go(), "file:/"), h.Path.Go())
		}
	}
}
