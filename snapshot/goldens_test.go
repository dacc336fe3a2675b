package snapshot

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
)

func testPool(t testing.TB) *blobstore.Pool {
	t.Helper()
	pool := blobstore.NewPool(nil, nil)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

func parse(t testing.TB, s string) blobstore.Location {
	t.Helper()
	loc, err := blobstore.Parse(s)
	require.NoError(t, err)
	return loc
}

// goneAfterClaim are snapshots of goldens whose files were deleted by the job that
// claimed them. The goldens as published have none.
var goneAfterClaim = map[string]bool{}

// slots are the names case.json has for roles.
var slots = map[string]string{
	"coordinator": "coordinator", "managed_operator": "managedOperator", "raw_operator": "rawOperator",
	"managed_keyed": "managedKeyed", "raw_keyed": "rawKeyed", "input_channel": "inputChannel", "output_channel": "outputChannel",
	"result_subpartition": "outputChannel",
}

func TestGoldens(t *testing.T) {
	pool := testPool(t)
	ctx := context.Background()
	for _, c := range testdata.AllGoldens(t) {
		t.Run(c.Name, func(t *testing.T) {
			described := map[string]*testdata.Snapshot{}
			for i := range c.Snapshots {
				described[c.File(c.Snapshots[i].Path)] = &c.Snapshots[i]
			}
			for _, path := range testdata.MetadataFiles(t, c.Dir) {
				s, err := Open(ctx, pool, parse(t, path), nil)
				require.NoError(t, err, path)
				rel, err := filepath.Rel(filepath.Dir(c.Dir), path)
				require.NoError(t, err)
				if s.Relocation != nil {
					require.Equal(t, "file:"+c.WrittenUnder+"/checkpoint", s.Relocation.From, path)
					require.Equal(t, filepath.ToSlash(c.File("checkpoint")), s.Relocation.To, path)
				}
				v, err := Verify(ctx, s, nil)
				require.NoError(t, err, path)
				for _, f := range v.Findings {
					if f.Severity == Damage && !goneAfterClaim[filepath.ToSlash(rel)] {
						t.Errorf("%s: %s %s %s: %s", rel, f.Code, f.File, f.Field, f.Detail)
					}
				}
				require.Equal(t, !goneAfterClaim[filepath.ToSlash(rel)], v.Report.Usable, "%s: %s", path, v.Report.Reason)
				requireConsistent(t, s, v.Report)
				if d := described[filepath.Dir(path)]; d != nil {
					requireDescribed(t, d, s)
				}
			}
		})
	}
}

// requireConsistent compares what two ways of counting say.
func requireConsistent(t *testing.T, s *Snapshot, report *Report) {
	t.Helper()
	in := Inspect(s, &InspectOptions{Subtasks: true, MaxChannels: -1})
	require.Zero(t, in.Totals.Refused)
	require.Equal(t, report.Objects, in.Totals.Files)
	var files, referenced int64
	for f := range Files(s) {
		require.Empty(t, f.Refused)
		files++
		referenced += f.ReferencedBytes
	}
	require.Equal(t, in.Totals.Files, files)
	require.Equal(t, in.Totals.PhysicalBytes, referenced)
	var bucketFiles, classBytes, ownerBytes, roleBytes, opBytes, channels int64
	for _, b := range in.Totals.FileSizes {
		bucketFiles += b.Files
	}
	for _, a := range in.Totals.Classes {
		classBytes += a.Bytes
	}
	for _, o := range in.Totals.Owners {
		ownerBytes += o.Bytes
	}
	for _, a := range in.Totals.Roles {
		roleBytes += a.Bytes
	}
	for _, op := range in.Operators {
		opBytes += op.Bytes
		var subtasks int64
		for _, st := range op.Subtasks {
			subtasks += st.Bytes
		}
		require.Equal(t, op.Bytes-op.Roles["coordinator"].Bytes, subtasks)
		require.Len(t, op.Channels, int(op.ChannelCount))
		channels += op.InFlightBytes
	}
	require.Equal(t, in.Totals.Files, bucketFiles+in.Totals.UnknownSizes)
	require.Equal(t, in.Totals.PhysicalBytes+in.Totals.InlinedBytes, classBytes)
	require.Equal(t, in.Totals.PhysicalBytes, ownerBytes)
	require.Equal(t, in.Totals.LogicalBytes, roleBytes)
	require.Equal(t, in.Totals.LogicalBytes, opBytes)
	require.Equal(t, in.Totals.Roles["inputChannel"].Bytes+in.Totals.Roles["outputChannel"].Bytes, channels)
	require.Equal(t, channels > 0, in.Unaligned)
}

// requireDescribed compares an inspection with what Flink's own loader saw.
func requireDescribed(t *testing.T, want *testdata.Snapshot, s *Snapshot) {
	t.Helper()
	in := Inspect(s, nil)
	require.Equal(t, want.CheckpointID, in.CheckpointID)
	require.Equal(t, want.MetadataVersion, in.FormatVersion)
	kind := string(in.Kind)
	switch want.Kind {
	case "canonical savepoint":
		require.Equal(t, KindCanonicalSavepoint, in.Kind)
	case "native savepoint":
		require.Equal(t, KindNativeSavepoint, in.Kind)
	case "unaligned checkpoint":
		require.True(t, in.Unaligned)
		require.Contains(t, []string{"full", "incremental"}, kind)
	case "checkpoint":
		require.Contains(t, []string{"full", "incremental"}, kind)
	default:
		t.Errorf("unknown kind %q", want.Kind)
	}
	require.Len(t, in.Operators, len(want.Operators))
	byID := map[string]*Operator{}
	for i := range in.Operators {
		byID[in.Operators[i].ID] = &in.Operators[i]
	}
	for _, w := range want.Operators {
		op := byID[w.ID]
		require.NotNil(t, op, w.ID)
		require.Equal(t, w.Parallelism, op.Parallelism)
		require.Equal(t, w.MaxParallelism, op.MaxParallelism)
		require.Equal(t, w.FullyFinished, op.FullyFinished)
		if !w.FullyFinished {
			require.EqualValues(t, w.FinishedSubtasks, op.FinishedSubtasks)
		}
		handles := map[string]int64{}
		for name, n := range w.Handles {
			slot, class, _ := strings.Cut(name, ":")
			require.Contains(t, slots, slot, name)
			handles[slots[slot]+":"+class] = int64(n)
		}
		if len(handles) == 0 {
			require.Empty(t, op.Handles)
		} else {
			require.Equal(t, handles, op.Handles)
		}
	}
}

func TestCorpus(t *testing.T) {
	pool := testPool(t)
	ctx := context.Background()
	corpus := testdata.Corpus(t)
	n := 0
	for _, path := range testdata.MetadataFiles(t, corpus) {
		s, err := Open(ctx, pool, parse(t, filepath.Dir(path)), nil)
		require.NoError(t, err, path)
		require.Nil(t, s.Relocation, path)
		v, err := Verify(ctx, s, nil)
		require.NoError(t, err, path)
		for _, f := range v.Findings {
			if f.Severity == Damage {
				t.Errorf("%s: %s %s %s: %s", path, f.Code, f.File, f.Field, f.Detail)
			}
		}
		requireConsistent(t, s, v.Report)
		require.True(t, Inspect(s, nil).Movable.Movable, path)
		n++
	}
	found := 0
	for ref, err := range Find(ctx, pool, parse(t, corpus), nil) {
		require.NoError(t, err)
		require.False(t, ref.Incomplete)
		found++
	}
	require.Equal(t, n, found)
	require.Positive(t, n)
}
