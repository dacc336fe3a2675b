package snapshot

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
)

func rowsOf(t *testing.T, f *fixture, at string, opts *ListOptions) []Row {
	t.Helper()
	loc := f.root
	if at != "" {
		loc = f.loc(at)
	}
	var rows []Row
	for row, err := range List(context.Background(), f.pool, loc, opts) {
		require.NoError(t, err)
		rows = append(rows, row)
	}
	return rows
}

func TestList(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 11)
	f.chain("ckp", jobB, 2)
	f.remove("ckp/" + jobA + "/chk-3/own")
	f.put("ckp/"+jobA+"/chk-5/_metadata", 30)
	f.put("ckp/"+jobA+"/chk-12/part", 1)
	rows := rowsOf(t, f, "ckp", nil)
	require.Len(t, rows, 14)
	for i, row := range rows[:11] {
		require.EqualValues(t, i+1, row.ID)
		require.Equal(t, jobA, row.Job)
		if row.ID == 5 {
			require.False(t, row.Usable)
			require.ErrorIs(t, row.Err, metadata.ErrCorrupt)
			require.Contains(t, row.Reason, "byte 0: magic")
			require.NotContains(t, row.Reason, "mem://")
			require.EqualValues(t, -1, row.SincePrev)
			continue
		}
		require.Equal(t, row.ID != 3, row.Usable)
		require.EqualValues(t, row.ID, row.CheckpointID)
		require.Equal(t, KindIncremental, row.SnapshotKind)
		require.EqualValues(t, 4, row.FormatVersion)
		require.Equal(t, 1, row.Operators)
		require.EqualValues(t, 10+100*min(3, row.ID), row.FullBytes)
		require.EqualValues(t, 7, row.NewBytes)
		switch row.ID {
		case 1:
			require.EqualValues(t, -1, row.SincePrev)
		case 6: // after the unreadable one: f4 is f4, f5 and f6 are new
			require.EqualValues(t, 210, row.SincePrev)
		default:
			require.EqualValues(t, 110, row.SincePrev)
		}
	}
	require.Equal(t, "1 file missing", rows[2].Reason)
	require.True(t, rows[11].Incomplete)
	require.False(t, rows[11].Usable)
	require.Contains(t, rows[11].Reason, "in progress, failed or half deleted")
	require.Equal(t, jobB, rows[12].Job)
	require.EqualValues(t, -1, rows[12].SincePrev, "another job")

	rows = rowsOf(t, f, "ckp/"+jobA, &ListOptions{NoCheck: true, Snapshots: 1})
	require.True(t, rows[2].Usable, "presence was not asked for")
	for range List(context.Background(), f.pool, f.root, nil) {
		break
	}
}

func TestLatest(t *testing.T) {
	ctx := context.Background()
	f := localFixture(t)
	f.chain("ckp", jobA, 11)
	f.remove("ckp/" + jobA + "/chk-11/own")
	f.put("ckp/"+jobA+"/chk-10/_metadata", 30)
	f.put("ckp/"+jobA+"/chk-12/part", 1)
	// A copy of the folder: times say nothing.
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes("/"+f.loc("ckp/"+jobA+"/chk-9/_metadata").Path, old, old))
	r, err := Latest(ctx, f.pool, f.root, nil)
	require.NoError(t, err)
	require.Equal(t, f.url("ckp/"+jobA+"/chk-9"), r.Dir)
	require.EqualValues(t, 9, r.Snapshot.Checkpoint.ID)
	var names, reasons []string
	for _, c := range r.Candidates {
		names = append(names, c.Name)
		reasons = append(reasons, c.Reason)
		require.Equal(t, c.Name == "chk-9", c.Usable)
	}
	require.Equal(t, []string{"chk-12", "chk-11", "chk-10", "chk-9"}, names)
	require.Contains(t, reasons[0], "in progress")
	require.Equal(t, "1 file missing", reasons[1])
	require.Contains(t, reasons[2], "corrupt")
	require.Empty(t, reasons[3])

	// A newer savepoint, and an older one.
	f.put("sp/savepoint-aaaaaa-0123456789ab/own", 10)
	f.write("sp/savepoint-aaaaaa-0123456789ab", newCheckpoint(8, relative("own", 10)))
	r, err = Latest(ctx, f.pool, f.root, nil)
	require.NoError(t, err)
	require.Equal(t, f.url("sp/savepoint-aaaaaa-0123456789ab"), r.Dir)
	old = old.Add(-time.Hour)
	require.NoError(t, os.Chtimes("/"+f.loc("sp/savepoint-aaaaaa-0123456789ab/_metadata").Path, old, old))
	r, err = Latest(ctx, f.pool, f.root, nil)
	require.NoError(t, err)
	require.Equal(t, f.url("ckp/"+jobA+"/chk-9"), r.Dir)

	g := memFixture(t)
	g.chain("ckp", jobA, 2)
	g.remove("ckp/" + jobA + "/chk-1/own")
	g.remove("ckp/" + jobA + "/chk-2/own")
	r, err = Latest(ctx, g.pool, g.root, nil)
	require.ErrorIs(t, err, ErrNoneUsable)
	require.Len(t, r.Candidates, 2)
	require.Nil(t, r.Snapshot)
	g = memFixture(t)
	g.put("ckp/"+jobA+"/chk-1/part", 1)
	_, err = Latest(ctx, g.pool, g.root, nil)
	require.ErrorIs(t, err, ErrNoSnapshot)
	_, err = Latest(ctx, g.pool, g.loc("nothing"), nil)
	require.ErrorIs(t, err, ErrNoSnapshot)
}

// TestListGoldens: every snapshot of all goldens in one listing, usable, and the
// incremental chains add less than they hold.
func TestListGoldens(t *testing.T) {
	shared := testdata.Shared(t)
	root := parse(t, filepath.Join(shared, "goldens", "data"))
	pool := testPool(t)
	n, smaller := 0, 0
	for row, err := range List(context.Background(), pool, root, nil) {
		require.NoError(t, err)
		if row.Incomplete { // there are some in the goldens
			continue
		}
		require.True(t, row.Usable, "%s: %s", row.URL, row.Reason)
		n++
		if row.SincePrev >= 0 && row.SincePrev < row.FullBytes {
			smaller++
		}
		_, err := json.Marshal(row)
		require.NoError(t, err)
	}
	require.Len(t, testdata.MetadataFiles(t, filepath.Join(shared, "goldens", "data")), n)
	require.Greater(t, smaller, 20)
}

// TestJSON pins the names that programs read.
func TestJSON(t *testing.T) {
	f := memFixture(t)
	f.write(chk5, healthy(f))
	s, err := Open(context.Background(), f.pool, f.loc(chk5), nil)
	require.NoError(t, err)
	b, err := json.Marshal(Inspect(s, &InspectOptions{UIDs: []string{"op"}}))
	require.NoError(t, err)
	var in map[string]any
	require.NoError(t, json.Unmarshal(b, &in))
	for _, key := range []string{"url", "name", "job", "checkpointId", "formatVersion", "metadataBytes", "kind", "unaligned", "changelog", "fileMerging",
		"entropy", "backends", "writtenBy", "properties", "movable", "maxParallelism", "operators", "totals"} {
		require.Contains(t, in, key)
	}
	op := in["operators"].([]any)[0].(map[string]any)
	require.Equal(t, "op", op["uid"])
	require.Equal(t, "list", op["uidFrom"])
	require.EqualValues(t, 2, op["roles"].(map[string]any)["inputChannel"].(map[string]any)["handles"])
	var back Inspection
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, ClassTaskOwned, back.Movable.Blockers[1].Class)
	for file := range Files(s) {
		b, err := json.Marshal(file)
		require.NoError(t, err)
		var back File
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, file.Role, back.Role)
		require.Equal(t, file.Part, back.Part)
		require.Equal(t, file.Class, back.Class)
	}
}

func TestWrittenBy(t *testing.T) {
	tags := func(all ...metadata.Tag) (t tagSet) {
		for _, tag := range all {
			t.add(tag)
			t.managed |= 1 << tag
		}
		return t
	}
	for _, c := range []struct {
		version int32
		tags    tagSet
		want    string
	}{
		{2, tags(), "1.3 .. 1.10"},
		{3, tags(metadata.TagRelativeFile), "1.11 .. 1.15"},
		{3, tags(metadata.TagSavepointKeyGroups), "1.13 .. 1.15"},
		{3, tags(metadata.TagKeyGroupsWithID), "1.15"},
		{3, tags(metadata.TagKeyGroups), "1.11 .. 1.14"},
		{3, tags(metadata.TagIncrementalOld), "1.11 .. 1.14"},
		{4, tags(metadata.TagIncremental), "1.16 .. 1.20"},
		{4, tags(metadata.TagSegment), "1.20"},
		{5, tags(), "2.0"},
		{6, tags(metadata.TagSegment), "2.1 or later"},
		{7, tags(), "a development version after 2.3"},
		{9, tags(), "unknown"},
	} {
		require.Equal(t, c.want, writtenBy(c.version, c.tags))
	}
}
