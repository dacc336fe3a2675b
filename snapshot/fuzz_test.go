package snapshot

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
)

// FuzzPaths resolves handles with any path: what is not refused stays in the
// metadata's store, a relative one below its folder, and has a name that a store
// accepts.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"", "/", "a", "../a", "a/../b", "file:/etc/passwd", "file:///x", "s3://b/k", "hdfs://nn:8020/ckp/x", "HDFS://nn/a//b",
		"s3a://k:s@b/x", "mem://fuzz/ckp/" + jobA + "/shared/x", "//x", "/a/./b", "a:b", ":", "x:/", "hdfs:/", "hdfs://", "/a\x00b", "\xc0\x80", "\xed\xa0\x80", "C:/x", "file:/C:/x"} {
		f.Add(s)
	}
	pool := blobstore.NewPool(nil, nil)
	dir := blobstore.Location{Scheme: "hdfs", Spelling: "hdfs", Authority: "nn:8020", Path: "ckp/" + jobA + "/chk-5"}
	f.Fuzz(func(t *testing.T, path string) {
		if len(path) > 1000 {
			return
		}
		file := &metadata.FileHandle{Path: metadata.String(path), Size: 1}
		rel := &metadata.RelativeFileHandle{Path: metadata.String(path), Size: 1}
		seg := &metadata.SegmentHandle{Path: metadata.String(path), Start: 1, Length: 2}
		for _, remembered := range []bool{true, false} {
			s := &Snapshot{Ref: newDirRef(dir), Checkpoint: &metadata.Checkpoint{}, pool: pool}
			if remembered {
				s.Checkpoint = newCheckpoint(5, rel, file, seg)
			}
			s.opts.NoRelocate = true
			require.NoError(t, s.resolve(context.Background()))
			for _, h := range []metadata.StreamHandle{file, rel, seg} {
				target := s.Resolve(h)
				if target.Refused != nil {
					require.ErrorIs(t, target.Refused, ErrRefused)
					require.Zero(t, target.Location)
					continue
				}
				require.True(t, target.Location.SameStore(dir))
				require.NoError(t, blobstore.ValidName(target.Location.Path))
				require.Empty(t, target.Location.Query)
				if h == metadata.StreamHandle(rel) {
					require.True(t, strings.HasPrefix(target.Location.Path, dir.Path+"/"))
				}
			}
			in := Inspect(s, nil)
			require.False(t, strings.ContainsAny(strings.Join(examples(in), ""), "\x00\x1b\n\r"))
			for range Files(s) {
			}
		}
		text := shown(path)
		require.LessOrEqual(t, len(text), 4*1100)
	})
}

func examples(in *Inspection) []string {
	var out []string
	for _, b := range in.Movable.Blockers {
		out = append(out, append(b.Examples, b.Dir)...)
	}
	return out
}

// FuzzSnapshot opens and judges any metadata in a store that has nothing else.
func FuzzSnapshot(f *testing.F) {
	for _, c := range testdata.Goldens(f) {
		for _, path := range testdata.MetadataFiles(f, c.Dir) {
			f.Add(readFile(f, path))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fx := memFixture(t)
		fx.putBytes(chk5+"/"+MetadataName, data)
		s, err := Open(context.Background(), fx.pool, fx.loc(chk5), nil)
		if err != nil {
			return
		}
		report, err := Check(context.Background(), s, nil)
		require.NoError(t, err)
		in := Inspect(s, &InspectOptions{Subtasks: true})
		require.Equal(t, report.Usable, in.Totals.Files == 0)
		v, err := Verify(context.Background(), s, nil)
		require.NoError(t, err)
		require.Equal(t, v.OK, v.Damaged == 0)
		u, err := DiskUsage(context.Background(), fx.pool, fx.root, nil)
		require.NoError(t, err)
		require.EqualValues(t, 1, u.Total.Objects)
	})
}
