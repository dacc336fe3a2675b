package incremental_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
)

const root = "s3://bucket/ckp/job/"

func file(path string) metadata.StreamHandle {
	return &metadata.FileHandle{Path: javaio.NewString(path), Size: 3}
}

// upload is an acknowledged table with an identity.
func upload(incarnation, name, path string) incremental.AckFile {
	return incremental.AckFile{Identity: incremental.Identity{Incarnation: incarnation, Name: name, Size: 3, Checksum: "crc32c:" + name}, Handle: file(path)}
}

// due gives the paths that are handed out for deletion, and says they are gone.
func due(r *incremental.Registry) []string {
	var out []string
	for {
		batch := r.Take(time.Time{}, 100)
		if len(batch) == 0 {
			slices.Sort(out)
			return out
		}
		for _, d := range batch {
			out = append(out, d.Location.Path)
			r.Done(d, nil, time.Time{})
		}
	}
}

// completed takes a checkpoint through.
func completed(t *testing.T, r *incremental.Registry, id int64, files ...incremental.AckFile) {
	t.Helper()
	require.NoError(t, r.Begin(id))
	require.NoError(t, r.Register(id, files))
	require.NoError(t, r.Confirm(id, fmt.Sprintf("%schk-%d/_metadata", root, id)))
}

func TestLateAcknowledgementOfAbortedCheckpoint(t *testing.T) {
	r := incremental.NewRegistry()
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	require.NoError(t, r.Begin(2))
	r.Abort(2)
	err := r.Register(2, []incremental.AckFile{upload("a", "1.sst", root+"shared/1"), upload("a", "2.sst", root+"shared/2")})
	require.ErrorIs(t, err, incremental.ErrNotInProgress)
	require.Equal(t, []string{"ckp/job/shared/2"}, due(r), "what only the late acknowledgement has")
}

func TestUnknownAndRepeatedCalls(t *testing.T) {
	r := incremental.NewRegistry()
	require.ErrorIs(t, r.Confirm(1, ""), incremental.ErrNotInProgress)
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	require.NoError(t, r.Confirm(1, root+"chk-1/_metadata"))
	require.ErrorIs(t, r.Begin(1), incremental.ErrKnownCheckpoint)
	r.Abort(1)
	require.Empty(t, due(r), "a confirmed checkpoint cannot be aborted")
	r.Subsume(1)
	r.Subsume(1)
	require.Equal(t, []string{"ckp/job/chk-1/_metadata", "ckp/job/shared/1"}, due(r))
	require.ErrorIs(t, r.Confirm(1, ""), incremental.ErrNotInProgress)
	r.Subsume(1)
	require.Zero(t, r.Unfinished())
}

func TestMetadataGoesFirst(t *testing.T) {
	r := incremental.NewRegistry()
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	r.Subsume(1)
	for attempt := range 3 {
		batch := r.Take(time.Unix(int64(attempt), 0), 100)
		require.Len(t, batch, 1)
		require.True(t, batch[0].Metadata)
		require.Equal(t, attempt, batch[0].Attempts)
		r.Done(batch[0], os.ErrPermission, time.Unix(int64(attempt)+1, 0))
	}
	why, _, err := r.Why(root + "shared/1")
	require.NoError(t, err)
	require.Equal(t, []incremental.Need{{Checkpoint: 1, Phase: incremental.Discarding}}, why.Needs)
}

func TestSecondUploadIsDropped(t *testing.T) {
	r := incremental.NewRegistry()
	require.NoError(t, r.Begin(1))
	require.NoError(t, r.Begin(2))
	first := []incremental.AckFile{upload("a", "1.sst", root+"shared/first")}
	second := []incremental.AckFile{upload("a", "1.sst", root+"shared/second")}
	other := []incremental.AckFile{upload("b", "1.sst", root+"shared/other")}
	require.NoError(t, r.Register(1, first))
	require.NoError(t, r.Register(2, second))
	require.NoError(t, r.Register(2, other))
	require.Equal(t, first[0].Handle, second[0].Handle, "the first stays")
	require.Equal(t, file(root+"shared/other"), other[0].Handle, "another incarnation's is another file")
	r.Abort(1)
	require.Empty(t, due(r), "2 has it")
	require.NoError(t, r.Confirm(2, ""))
	require.Equal(t, []string{"ckp/job/shared/second"}, due(r))
}

func TestSameNameOtherContent(t *testing.T) {
	r := incremental.NewRegistry()
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	for _, change := range []func(*incremental.Identity){
		func(i *incremental.Identity) { i.Size++ },
		func(i *incremental.Identity) { i.Checksum = "crc32c:other" },
		func(i *incremental.Identity) { i.Checksum = "" },
	} {
		f := upload("a", "1.sst", root+"shared/2")
		change(&f.Identity)
		files := []incremental.AckFile{f}
		if r.Checkpoints(incremental.InProgress) == nil {
			require.NoError(t, r.Begin(2))
		}
		require.NoError(t, r.Register(2, files))
		require.Equal(t, file(root+"shared/2"), files[0].Handle)
	}
}

func TestPlaceholders(t *testing.T) {
	r := incremental.NewRegistry()
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	placeholder := upload("a", "1.sst", "")
	placeholder.Handle = nil
	unknown := upload("a", "9.sst", "")
	unknown.Handle = nil
	require.NoError(t, r.Begin(2))
	files := []incremental.AckFile{placeholder}
	require.NoError(t, r.Register(2, files))
	require.Equal(t, file(root+"shared/1"), files[0].Handle)
	err := r.Register(2, []incremental.AckFile{upload("a", "2.sst", root+"shared/2"), unknown})
	require.ErrorIs(t, err, incremental.ErrUnknownFile)
	require.EqualError(t, err, "acknowledgement of checkpoint 2: placeholder for 9.sst of a: no checkpoint has this file")
	r.Abort(2)
	require.Equal(t, []string{"ckp/job/shared/2"}, due(r), "uploads of the acknowledgement that was refused")
}

// A file with segments lives as long as any of them, and a duplicate segment does
// not cost its neighbours their file.
func TestSegments(t *testing.T) {
	seg := func(name string, start int64) incremental.AckFile {
		f := upload("a", name, "")
		f.Handle = &metadata.SegmentHandle{Path: javaio.NewString(root + "shared/merged"), Start: start, Length: 3, Scope: metadata.ScopeShared}
		return f
	}
	r := incremental.NewRegistry()
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	completed(t, r, 2, seg("1.sst", 0), seg("2.sst", 3), seg("3.sst", 6))
	completed(t, r, 3, seg("3.sst", 6))
	r.Retain(3)
	require.Equal(t, []string{"ckp/job/chk-1/_metadata", "ckp/job/chk-2/_metadata", "ckp/job/shared/1"}, due(r))
	r.Retain()
	require.Equal(t, []string{"ckp/job/chk-3/_metadata", "ckp/job/shared/merged"}, due(r))
}

func TestNameOfDoomedFile(t *testing.T) {
	r := incremental.NewRegistry()
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	completed(t, r, 2)
	r.Subsume(1)
	r.Done(r.Take(time.Time{}, 1)[0], nil, time.Time{}) // the metadata object
	require.NoError(t, r.Begin(3))
	err := r.Register(3, []incremental.AckFile{upload("a", "1.sst", "s3a://bucket/ckp//job/shared/1")})
	require.ErrorIs(t, err, incremental.ErrBeingDeleted, "under another spelling, too")
	why, ok, err := r.Why(root + "shared/1")
	require.NoError(t, err)
	require.True(t, ok && why.Deleting)
}

// snapshotOf is metadata that names files.
func snapshotOf(id int64, handles ...metadata.StreamHandle) *metadata.Checkpoint {
	h := &metadata.IncrementalHandle{Form: metadata.TagIncremental}
	for _, f := range handles {
		h.Shared = append(h.Shared, metadata.NamedHandle{Handle: f})
	}
	return &metadata.Checkpoint{ID: id, Operators: []metadata.OperatorState{{Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}}}}}
}

func TestRestoreModes(t *testing.T) {
	const old = "s3://bucket/ckp/old/"
	for _, mode := range []incremental.RestoreMode{incremental.Claim, incremental.NoClaim, incremental.Legacy} {
		t.Run(mode.String(), func(t *testing.T) {
			r := incremental.NewRegistry()
			relative := &metadata.RelativeFileHandle{Path: "own"}
			res, err := r.Restore(snapshotOf(7, file(old+"shared/1"), file(old+"shared/2"), relative), old+"chk-7/_metadata", mode, nil)
			require.NoError(t, err)
			require.Equal(t, incremental.Restored{Files: 3}, res)

			require.NoError(t, r.Begin(8))
			err = r.Register(8, []incremental.AckFile{upload("a", "1.sst", old+"shared/1"), upload("a", "2.sst", root+"shared/2")})
			if mode == incremental.NoClaim {
				require.ErrorIs(t, err, incremental.ErrNotClaimed)
				r.Abort(8)
				require.NoError(t, r.Begin(9))
			} else {
				require.NoError(t, err)
			}
			open := r.Checkpoints(incremental.InProgress)[0]
			require.NoError(t, r.Confirm(open, ""))
			due(r)
			r.Retain(open)
			gone := []string{"ckp/old/chk-7/_metadata", "ckp/old/chk-7/own", "ckp/old/shared/2"}
			why, known, err := r.Why(old + "shared/1")
			require.NoError(t, err)
			require.True(t, known)
			if mode == incremental.Claim {
				require.Equal(t, gone, due(r), "but shared/1, which 8 refers to")
				require.False(t, why.Forever)
			} else {
				require.Empty(t, due(r))
				require.True(t, why.Forever)
			}
			r.Retain()
			r.Discard([]incremental.AckFile{upload("z", "2.sst", old+"shared/2")})
			for _, path := range due(r) {
				if mode != incremental.Claim {
					require.NotContains(t, path, "ckp/old")
				}
			}
		})
	}
}

// Metadata that somebody tampered with must not delete what it names.
func TestClaimTrustsOwnFoldersOnly(t *testing.T) {
	r := incremental.NewRegistry()
	res, err := r.Restore(snapshotOf(7, file("s3://bucket/ckp/other/shared/1"), file("s3://bucket/payroll"), file("file:/etc/passwd")),
		root+"chk-7/_metadata", incremental.Claim, nil)
	require.NoError(t, err)
	require.Equal(t, incremental.Restored{Files: 3, Untrusted: 2}, res)
	r.Retain()
	require.Equal(t, []string{"ckp/job/chk-7/_metadata", "ckp/other/shared/1"}, due(r))
	require.Zero(t, r.Unfinished())

	_, err = r.Restore(snapshotOf(8, &metadata.RelativeFileHandle{Path: "../x"}), root+"chk-8/_metadata", incremental.Claim, nil)
	require.ErrorIs(t, err, blobstore.ErrInvalidName)
	require.ErrorContains(t, err, "operator[0].subtask[0].managedKeyed.shared[0].handle")
	_, known, err := r.Why(root + "chk-8/_metadata")
	require.NoError(t, err)
	require.False(t, known, "nothing is left of a restore that failed")
}

// Metadata that names another checkpoint's metadata object keeps it.
func TestHandleOnMetadataObject(t *testing.T) {
	r := incremental.NewRegistry()
	completed(t, r, 1, upload("a", "1.sst", root+"shared/1"))
	_, err := r.Restore(snapshotOf(7, file(root+"chk-1/_metadata")), root+"chk-7/_metadata", incremental.Claim, nil)
	require.NoError(t, err)
	r.Retain(7)
	require.Equal(t, []string{"ckp/job/shared/1"}, due(r))
	r.Retain()
	require.Equal(t, []string{"ckp/job/chk-1/_metadata", "ckp/job/chk-7/_metadata"}, due(r))
}

// Every golden: exactly the files its handles name are registered, and all of them
// are due once it is subsumed.
func TestRestoreGoldens(t *testing.T) {
	for _, name := range testdata.MetadataFiles(t, filepath.Join(testdata.Repo(t), "testdata", "goldens")) {
		f, err := os.Open(name)
		require.NoError(t, err)
		c, err := metadata.Decode(f, nil)
		f.Close()
		require.NoError(t, err)
		folder, err := blobstore.Parse(filepath.Dir(name))
		require.NoError(t, err)
		want := map[string]bool{}
		for _, h := range c.StreamHandles() {
			switch h := h.(type) {
			case *metadata.FileHandle:
				loc, err := blobstore.ParsePath(h.Path.Go())
				require.NoError(t, err)
				want[loc.Path] = true
			case *metadata.SegmentHandle:
				loc, err := blobstore.ParsePath(h.Path.Go())
				require.NoError(t, err)
				want[loc.Path] = true
			case *metadata.RelativeFileHandle:
				want[folder.Join(h.Path.Go()).Path] = true
			}
		}
		r := incremental.NewRegistry()
		res, err := r.Restore(c, name, incremental.Claim, &incremental.RestoreOptions{Trust: []blobstore.Location{{Scheme: "file"}}})
		require.NoError(t, err, name)
		require.Equal(t, len(want), res.Files, name)
		r.Subsume(c.ID)
		metadataObject := folder.Join("_metadata").Path
		want[metadataObject] = true
		for _, path := range due(r) {
			require.True(t, want[path], path)
			delete(want, path)
		}
		require.Empty(t, want, name)
	}
}

// RegisterState finds all files of a subtask and puts in the handles to name.
func TestRegisterState(t *testing.T) {
	handle := func(shared ...metadata.NamedHandle) *metadata.SubtaskState {
		return &metadata.SubtaskState{
			ManagedKeyed: &metadata.ChangelogHandle{Form: metadata.TagChangelog,
				Materialized: []metadata.KeyedHandle{&metadata.IncrementalHandle{Form: metadata.TagIncremental, BackendID: "b", Meta: file(root + "chk-1/meta"), Shared: shared}},
				Changes:      []metadata.KeyedHandle{&metadata.ChangelogFileHandle{Form: metadata.TagChangelogFile, Files: []metadata.OffsetHandle{{Handle: file(root + "dstl/1")}}}}},
			ManagedOperator: &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, Delegate: &metadata.ByteStreamHandle{Data: []byte("x")}},
			InputChannels:   []metadata.ChannelHandle{{Delegate: file(root + "chk-1/channel")}},
		}
	}
	identity := func(h *metadata.IncrementalHandle, f *metadata.NamedHandle) incremental.Identity {
		return incremental.Identity{Incarnation: h.BackendID.Go(), Name: f.Name.Go(), Size: 3, Checksum: "x"}
	}
	r := incremental.NewRegistry()
	require.NoError(t, r.Begin(1))
	require.NoError(t, r.RegisterState(1, handle(metadata.NamedHandle{Name: "1.sst", Handle: file(root + "shared/1")}), identity))
	require.NoError(t, r.Confirm(1, ""))
	require.NoError(t, r.Begin(2))
	s := handle(metadata.NamedHandle{Name: "1.sst"}, metadata.NamedHandle{Name: "2.sst", Handle: file(root + "shared/2")})
	require.NoError(t, r.RegisterState(2, s, identity))
	shared := s.ManagedKeyed.(*metadata.ChangelogHandle).Materialized[0].(*metadata.IncrementalHandle).Shared
	require.Equal(t, file(root+"shared/1"), shared[0].Handle)
	require.NoError(t, r.Confirm(2, ""))
	require.NoError(t, r.Begin(3))
	require.ErrorIs(t, r.RegisterState(3, handle(metadata.NamedHandle{Name: "1.sst"}), nil), incremental.ErrUnknownFile, "nothing tells what the placeholder stands for")
	r.Abort(3)
	r.Retain()
	require.Equal(t, []string{"ckp/job/chk-1/channel", "ckp/job/chk-1/meta", "ckp/job/dstl/1", "ckp/job/shared/1", "ckp/job/shared/2"}, due(r))
}

// The registry says who needs a file, and until when.
func ExampleRegistry_Why() {
	r := incremental.NewRegistry()
	table := incremental.AckFile{
		Identity: incremental.Identity{Incarnation: "7f3c", Name: "000012.sst", Size: 3, Checksum: "crc32c:9ae0daaf"},
		Handle:   &metadata.FileHandle{Path: "s3://bucket/ckp/job/shared/1c9f", Size: 3},
	}
	for id := int64(1); id <= 3; id++ {
		r.Begin(id)
		r.Register(id, []incremental.AckFile{table})
		table.Handle = nil // a confirmed checkpoint has it: a placeholder does from now on
		if id < 3 {
			r.Confirm(id, fmt.Sprintf("s3://bucket/ckp/job/chk-%d/_metadata", id))
		}
	}
	r.Retain(2)
	why, _, _ := r.Why("s3a://bucket/ckp/job/shared/1c9f")
	fmt.Println(why)
	// Output:
	// s3a://bucket/ckp/job/shared/1c9f: needed since checkpoint 1, until checkpoint 3 is subsumed
	//   checkpoint 1, being discarded
	//   checkpoint 2, completed
	//   checkpoint 3, in progress
}

// A checkpoint of the job may name files of a snapshot that belongs to somebody else.
// They stay, whatever becomes of the checkpoint and whoever names them again.
func TestFilesOfOthers(t *testing.T) {
	job, err := blobstore.Parse(root)
	require.NoError(t, err)
	const others = "s3://bucket/ckp/theirs/shared/1" // below what Restore trusts by default
	names := []incremental.AckFile{{Handle: file(others)}, {Handle: file(root + "shared/own")}}
	begin := func(t *testing.T) *incremental.Registry {
		r := incremental.NewRegistry(job)
		res, err := r.Restore(snapshotOf(7, file(others), file(root+"shared/own")), root+"chk-7/_metadata", incremental.Claim, nil)
		require.NoError(t, err)
		require.Equal(t, incremental.Restored{Files: 2, Untrusted: 1}, res)
		return r
	}
	t.Run("subsumed", func(t *testing.T) {
		r := begin(t)
		why, _, err := r.Why(others)
		require.NoError(t, err)
		require.True(t, why.Forever)
		require.NoError(t, r.Begin(8))
		require.NoError(t, r.Register(8, names))
		require.NoError(t, r.Confirm(8, root+"chk-8/_metadata"))
		r.Retain()
		require.Equal(t, []string{"ckp/job/chk-7/_metadata", "ckp/job/chk-8/_metadata", "ckp/job/shared/own"}, due(r))
		for loc := range r.Pending() {
			t.Errorf("%s is still to be deleted", loc)
		}
		// The registry does not know them any more.
		r.Discard(names)
		require.ErrorIs(t, r.Register(8, names), incremental.ErrNotInProgress)
		require.Equal(t, []string{"ckp/job/shared/own"}, due(r))
	})
	t.Run("aborted", func(t *testing.T) {
		r := incremental.NewRegistry(job)
		require.NoError(t, r.Begin(8))
		require.NoError(t, r.Register(8, names))
		require.NoError(t, r.Begin(9))
		require.ErrorIs(t, r.Register(9, append(slices.Clone(names), incremental.AckFile{Identity: incremental.Identity{Checksum: "x"}})), incremental.ErrUnknownFile)
		r.Abort(8)
		r.Abort(9)
		require.Equal(t, []string{"ckp/job/shared/own"}, due(r))
	})
	t.Run("savepoint", func(t *testing.T) {
		r := incremental.NewRegistry(job)
		savepoint, err := blobstore.Parse("s3://bucket/sp/savepoint-1")
		require.NoError(t, err)
		r.Discard(append(slices.Clone(names), incremental.AckFile{Handle: file("s3://bucket/sp/savepoint-1/own")}), savepoint)
		require.Equal(t, []string{"ckp/job/shared/own", "sp/savepoint-1/own"}, due(r))
	})
	t.Run("claimed", func(t *testing.T) {
		r := begin(t)
		// The snapshot that 7 has them from is the job's after all.
		_, err := r.Restore(snapshotOf(6, file(others)), "s3://bucket/ckp/theirs/chk-6/_metadata", incremental.Claim, nil)
		require.NoError(t, err)
		r.Retain()
		require.Equal(t, []string{"ckp/job/chk-7/_metadata", "ckp/job/shared/own", "ckp/theirs/chk-6/_metadata", "ckp/theirs/shared/1"}, due(r))
	})
	t.Run("claimed before a restart", func(t *testing.T) {
		r := begin(t)
		loc, err := blobstore.Parse(others)
		require.NoError(t, err)
		r.Recover(nil, []blobstore.Location{loc}) // as the journal of claimed files has it
		require.Empty(t, due(r), "checkpoint 7 has it")
		r.Retain()
		require.Equal(t, []string{"ckp/job/chk-7/_metadata", "ckp/job/shared/own", "ckp/theirs/shared/1"}, due(r))
	})
}
