package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

const chk5 = "ckp/" + jobA + "/chk-5"

// healthy writes a checkpoint with one of everything that names an object.
func healthy(f *fixture) *metadata.Checkpoint {
	shared := "ckp/" + jobA + "/shared/"
	tasks := "ckp/" + jobA + "/taskowned/"
	dstl := "changes/" + jobA + "/dstl/"
	f.put(chk5+"/own", 10)
	f.put(chk5+"/ops", 40)
	f.put(chk5+"/channels", 30)
	f.put(shared+"s1", 100)
	f.put(shared+"s2", 200)
	f.put(tasks+"m1", 300)
	f.put(dstl+"c1", 51)
	c := newCheckpoint(5, relative("own", 10), absolute(f.url(shared+"s1"), 100), absolute(f.url(shared+"s2"), -1))
	c.Operators[0].Subtasks[0].ManagedOperator = &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator,
		States: []metadata.NamedPartitions{{Name: "offsets", Mode: metadata.ModeSplit, Offsets: []int64{0, 20}}}, Delegate: relative("ops", 40)}
	c.Operators[0].Subtasks[0].ManagedOperatorFlag = 1
	for i := range int32(2) {
		c.Operators[0].Subtasks[0].InputChannels = append(c.Operators[0].Subtasks[0].InputChannels, metadata.ChannelHandle{
			Size: 10, Delegate: relative("channels", 30), Channels: []metadata.ChannelOffsets{{Channel: i, Size: 10, Offsets: []int64{4 + 12*int64(i)}}}})
	}
	merged := metadata.OperatorState{ID: metadata.OperatorIDFromUID("merged"), Parallelism: 2, MaxParallelism: 128}
	for i := range int32(2) {
		merged.Subtasks = append(merged.Subtasks, metadata.SubtaskState{Index: i, ManagedKeyed: &metadata.KeyGroupsHandle{
			Form: metadata.TagKeyGroupsWithID, Range: metadata.KeyGroupRange{Start: 64 * i, Count: 64}, Offsets: ascending(64),
			Delegate: segment(f.url(tasks+"m1"), 100*int64(i), 100), ID: "k"}})
	}
	changelog := metadata.OperatorState{ID: metadata.OperatorIDFromUID("changelog"), Parallelism: 1, MaxParallelism: 128,
		Subtasks: []metadata.SubtaskState{{ManagedKeyed: &metadata.ChangelogHandle{Form: metadata.TagChangelog, Range: metadata.KeyGroupRange{Count: 128}, ID: "c",
			Changes: []metadata.KeyedHandle{&metadata.ChangelogFileHandle{Form: metadata.TagChangelogFile, Range: metadata.KeyGroupRange{Count: 128},
				Files: []metadata.OffsetHandle{{Offset: 0, Handle: absolute(f.url(dstl+"c1"), 50)}}, FullSize: 50, IncrementalSize: 50, ID: "d", StorageID: "filesystem"}}}}}}
	c.Operators = append(c.Operators, merged, changelog)
	return c
}

func ascending(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i) + 1
	}
	return out
}

func incrementalOf(c *metadata.Checkpoint) *metadata.IncrementalHandle {
	return c.Operators[0].Subtasks[0].ManagedKeyed.(*metadata.IncrementalHandle)
}

func keyGroupsOf(c *metadata.Checkpoint, subtask int) *metadata.KeyGroupsHandle {
	return c.Operators[1].Subtasks[subtask].ManagedKeyed.(*metadata.KeyGroupsHandle)
}

func TestHealthy(t *testing.T) {
	for name, newFixture := range map[string]func(testing.TB) *fixture{"mem": memFixture, "local": localFixture} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write(chk5, healthy(f))
			v, err := VerifyAt(context.Background(), f.pool, f.loc(chk5), nil)
			require.NoError(t, err)
			require.True(t, v.OK)
			require.Empty(t, v.Findings)
			require.EqualValues(t, 7, v.Objects)
			require.EqualValues(t, 10+40+30+100+200+300+51, v.Bytes)
			require.True(t, v.Report.Usable)
			require.Empty(t, v.Report.Reason)

			s, err := Open(context.Background(), f.pool, f.loc(chk5), nil)
			require.NoError(t, err)
			requireConsistent(t, s, v.Report)
			in := Inspect(s, nil)
			require.Equal(t, KindIncremental, in.Kind)
			require.True(t, in.Unaligned)
			require.True(t, in.Changelog)
			require.True(t, in.FileMerging)
			require.Equal(t, "1.20", in.WrittenBy)
			require.Equal(t, []string{"heap", "rocksdb or forst", "changelog"}, in.Backends)
			require.False(t, in.Movable.Movable)
			require.EqualValues(t, 1, in.Totals.UnknownSizes)
			require.EqualValues(t, 20, in.Operators[0].InFlightBytes)
			require.EqualValues(t, 7+40+20+200+0, in.Totals.NewBytes)
			require.Equal(t, Amount{Handles: 2, Bytes: 100}, in.Totals.Classes["shared"])
			require.Equal(t, Amount{Handles: 2, Bytes: 200}, in.Totals.Classes["taskowned"])
			require.Equal(t, Amount{Handles: 1, Bytes: 50}, in.Totals.Classes["changelog"])
			require.Equal(t, Amount{Handles: 4, Bytes: 80}, in.Totals.Classes["exclusive"])
		})
	}
}

// A wound is one thing wrong with a healthy checkpoint, and the one finding it must
// give. Usable is by presence and size alone; what the structure says is not part
// of it.
func TestWounds(t *testing.T) {
	shared, tasks, dstl := "ckp/"+jobA+"/shared/", "ckp/"+jobA+"/taskowned/", "changes/"+jobA+"/dstl/"
	for _, w := range []struct {
		name   string
		code   string
		reason string // of Check; "" if usable
		wound  func(f *fixture, c *metadata.Checkpoint)
	}{
		{"shared-file-missing", "shared-file-missing", "1 file missing", func(f *fixture, c *metadata.Checkpoint) { f.remove(shared + "s2") }},
		{"exclusive-file-missing", "exclusive-file-missing", "1 file missing", func(f *fixture, c *metadata.Checkpoint) { f.remove(chk5 + "/own") }},
		{"channel-file-missing", "exclusive-file-missing", "1 file missing", func(f *fixture, c *metadata.Checkpoint) { f.remove(chk5 + "/channels") }},
		{"merged-file-missing", "taskowned-file-missing", "1 file missing", func(f *fixture, c *metadata.Checkpoint) { f.remove(tasks + "m1") }},
		{"changelog-file-missing", "changelog-file-missing", "1 file missing", func(f *fixture, c *metadata.Checkpoint) { f.remove(dstl + "c1") }},
		{"short-file", "short-file", "1 file too short", func(f *fixture, c *metadata.Checkpoint) { f.put(shared+"s1", 99) }},
		{"empty-file", "short-file", "1 file too short", func(f *fixture, c *metadata.Checkpoint) { f.put(shared+"s1", 0) }},
		{"long-file", "long-file", "1 file too long", func(f *fixture, c *metadata.Checkpoint) { f.put(shared+"s1", 101) }},
		{"merged-file-cut", "short-file", "1 file too short", func(f *fixture, c *metadata.Checkpoint) { f.put(tasks+"m1", 199) }},
		{"changelog-file-cut", "short-file", "1 file too short", func(f *fixture, c *metadata.Checkpoint) { f.put(dstl+"c1", 50) }},
		{"changelog-file-empty", "short-file", "1 file too short", func(f *fixture, c *metadata.Checkpoint) { f.put(dstl+"c1", 0) }},
		{"changelog-file-long", "long-file", "1 file too long", func(f *fixture, c *metadata.Checkpoint) { f.put(dstl+"c1", 52) }},
		{"directory-as-file", "directory-as-file", "1 directory where a file should be", func(f *fixture, c *metadata.Checkpoint) {
			f.remove(shared + "s1")
			f.put(shared+"s1/x", 100)
		}},
		{"climbs-out", "climbs-out", `1 handle refused (climbs out of its directory by "..")`, func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Meta = relative("../../../secret", 10)
		}},
		{"climbs-out-absolute", "climbs-out", `1 handle refused (climbs out of its directory by "..")`, func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Shared[0].Handle = absolute(f.url(shared+"../../../secret"), 100)
		}},
		{"climbs-out-last", "climbs-out", `1 handle refused (climbs out of its directory by "..")`, func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Shared[0].Handle = absolute(f.url(shared+".."), 100)
		}},
		{"absolute-in-relative", "bad-path", "1 handle refused (absolute path in a relative handle)", func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Meta = relative("/etc/passwd", 10)
		}},
		{"scheme-in-relative", "bad-path", "1 handle refused (relative path with a scheme)", func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Meta = relative("file:/etc/passwd", 10)
		}},
		{"relative-in-absolute", "bad-path", "1 handle refused (not an absolute path)", func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Shared[0].Handle = absolute("shared/s1", 100)
		}},
		{"control-character", "bad-path", "1 handle refused (control character in the path)", func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Meta = relative("own\x1b[2J", 10)
		}},
		{"other-host", "other-store", "", func(f *fixture, c *metadata.Checkpoint) {
			incrementalOf(c).Shared[0].Handle = absolute("hdfs://elsewhere:8020/ckp/"+jobB+"/shared/x", 100)
		}},
		{"key-groups-overlap", "key-groups-overlap", "", func(f *fixture, c *metadata.Checkpoint) {
			keyGroupsOf(c, 1).Range.Start = 63
		}},
		{"key-groups-twice", "key-groups-overlap", "", func(f *fixture, c *metadata.Checkpoint) {
			keyGroupsOf(c, 1).Range.Start = 0
		}},
		{"offsets-unordered", "offsets-unordered", "", func(f *fixture, c *metadata.Checkpoint) {
			keyGroupsOf(c, 0).Offsets[10] = 5
		}},
		{"offset-outside", "offset-outside", "", func(f *fixture, c *metadata.Checkpoint) {
			keyGroupsOf(c, 0).Offsets[63] = 100
		}},
		{"partition-outside", "offset-outside", "", func(f *fixture, c *metadata.Checkpoint) {
			c.Operators[0].Subtasks[0].ManagedOperator.States[0].Offsets[1] = 41
		}},
		{"channel-outside", "offset-outside", "", func(f *fixture, c *metadata.Checkpoint) {
			c.Operators[0].Subtasks[0].InputChannels[1].Channels[0].Offsets[0] = 30
		}},
		{"segments-overlap", "segments-overlap", "", func(f *fixture, c *metadata.Checkpoint) {
			keyGroupsOf(c, 1).Delegate.(*metadata.SegmentHandle).Start = 99
		}},
		{"meta-null", "no-stream", "", func(f *fixture, c *metadata.Checkpoint) { incrementalOf(c).Meta = nil }},
	} {
		for store, newFixture := range map[string]func(testing.TB) *fixture{"mem": memFixture, "local": localFixture} {
			t.Run(w.name+"/"+store, func(t *testing.T) {
				f := newFixture(t)
				c := healthy(f)
				w.wound(f, c)
				f.write(chk5, c)
				v, err := VerifyAt(context.Background(), f.pool, f.loc(chk5), nil)
				require.NoError(t, err)
				code, reason := w.code, w.reason
				if store == "mem" && code == "directory-as-file" { // there are none
					code, reason = "shared-file-missing", "1 file missing"
				}
				require.Equal(t, code, codes(v))
				require.False(t, v.OK)
				for _, finding := range v.Findings {
					require.NotEmpty(t, finding.File)
					require.NotEmpty(t, finding.Detail)
					require.NotEmpty(t, finding.Field)
					if finding.File == f.url(chk5+"/"+MetadataName) {
						require.Positive(t, finding.Offset, finding.Field)
					} else {
						require.Positive(t, finding.HandleOffset, finding.Field)
					}
				}
				switch {
				case w.code == "other-store":
					require.False(t, v.Report.Usable)
					require.Contains(t, v.Report.Reason, "1 handle refused (on hdfs://elsewhere:8020, named by ")
				default:
					require.Equal(t, reason, v.Report.Reason)
					require.Equal(t, reason == "", v.Report.Usable)
				}
			})
		}
	}
}

// TestLocalFromBucket: metadata on a store must not make us look at local files,
// however it spells them.
func TestLocalFromBucket(t *testing.T) {
	for _, path := range []string{"file:/etc/passwd", "file:///etc/passwd", "FILE:/etc/passwd", "file://localhost/etc/passwd"} {
		f := memFixture(t)
		c := healthy(f)
		incrementalOf(c).Shared[0].Handle = absolute(path, 100)
		f.write(chk5, c)
		v, err := VerifyAt(context.Background(), f.pool, f.loc(chk5), nil)
		require.NoError(t, err)
		require.Equal(t, "local-from-remote", codes(v), path)
		require.Equal(t, path, v.Findings[0].File)
	}
	// Without a scheme it is a path on the metadata's own store.
	f := memFixture(t)
	c := healthy(f)
	f.put("etc/passwd", 100)
	incrementalOf(c).Shared[0].Handle = absolute("/etc/passwd", 100)
	f.write(chk5, c)
	s, err := Open(context.Background(), f.pool, f.loc(chk5), nil)
	require.NoError(t, err)
	target := s.Resolve(incrementalOf(c).Shared[0].Handle)
	require.Equal(t, f.url("etc/passwd"), target.Location.String())
}

// TestHandlesConfigureNothing: a "?" in a handle is part of a name, and user
// information is refused and not repeated.
func TestHandlesConfigureNothing(t *testing.T) {
	f := memFixture(t)
	c := healthy(f)
	name := "ckp/" + jobA + "/shared/x?endpoint=http://evil/"
	incrementalOf(c).Shared[0].Handle = absolute(f.url(name), 100)
	incrementalOf(c).Shared[1].Handle = absolute("s3://KEY:SECRET@bucket/x", 100)
	f.write(chk5, c)
	s, err := Open(context.Background(), f.pool, f.loc(chk5), nil)
	require.NoError(t, err)
	target := s.Resolve(incrementalOf(c).Shared[0].Handle)
	if target.Refused == nil {
		require.Empty(t, target.Location.Query)
		require.True(t, target.Location.SameStore(f.root))
	}
	target = s.Resolve(incrementalOf(c).Shared[1].Handle)
	require.ErrorIs(t, target.Refused, ErrRefused)
	report, err := Check(context.Background(), s, nil)
	require.NoError(t, err)
	for _, p := range report.Problems {
		require.NotContains(t, p.Object+p.Detail, "SECRET")
	}
	for file := range Files(s) {
		require.NotContains(t, file.URL+file.Refused, "SECRET")
	}
	in := Inspect(s, nil)
	for _, b := range in.Movable.Blockers {
		require.NotContains(t, b.Dir, "SECRET")
		for _, e := range b.Examples {
			require.NotContains(t, e, "SECRET")
		}
	}
}

// TestTrustedStoreDoesNotAnswer: a snapshot is opened all the same, since its
// metadata is at hand. Its files are not, which is an error and no damage.
func TestTrustedStoreDoesNotAnswer(t *testing.T) {
	f, other := memFixture(t), memFixture(t)
	c := healthy(f)
	incrementalOf(c).Shared[0].Handle = absolute(other.url("ckp/"+jobB+"/shared/x"), 100)
	f.write(chk5, c)
	gone := errors.New("no route to host")
	f.pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
		if s.URL() != other.root.String() {
			return s
		}
		return blobstore.NewFaults(blobstore.Fault{Err: gone}).Wrap(s)
	})
	t.Cleanup(func() { f.pool.Close() })
	opts := &Options{Trust: []string{other.root.String()}}
	s, err := Open(context.Background(), f.pool, f.loc(chk5), opts)
	require.NoError(t, err)
	require.Nil(t, s.Relocation)
	require.Equal(t, other.url("ckp/"+jobB+"/shared/x"), s.Resolve(incrementalOf(c).Shared[0].Handle).Location.String())
	_, err = Check(context.Background(), s, nil)
	require.ErrorIs(t, err, gone)

	// A store that cannot be named is the caller's mistake, and an end of the context
	// is not for guessing.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Open(ctx, f.pool, f.loc(chk5), opts)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTrust(t *testing.T) {
	f, other := memFixture(t), memFixture(t)
	c := healthy(f)
	incrementalOf(c).Shared[0].Handle = absolute(other.url("ckp/"+jobB+"/shared/x"), 100)
	f.write(chk5, c)
	other.put("ckp/"+jobB+"/shared/x", 100)
	check := func(opts *Options) *Report {
		s, err := Open(context.Background(), f.pool, f.loc(chk5), opts)
		require.NoError(t, err)
		r, err := Check(context.Background(), s, nil)
		require.NoError(t, err)
		return r
	}
	require.False(t, check(nil).Usable)
	require.True(t, check(&Options{Trust: []string{other.url("ckp")}}).Usable)
	require.True(t, check(&Options{Trust: []string{other.root.String()}}).Usable)
	require.False(t, check(&Options{Trust: []string{other.url("ck")}}).Usable, "whole parts only")
	require.False(t, check(&Options{Trust: []string{other.url("elsewhere")}}).Usable)

	// By hand to a third place.
	f.put("copy/x", 100)
	require.True(t, check(&Options{Map: []Mapping{{Old: other.url("ckp/" + jobB + "/shared"), New: f.url("copy")}}}).Usable)
	r := check(&Options{Map: []Mapping{{Old: other.url("ckp/" + jobB), New: f.url("copy")}}})
	require.Equal(t, "1 file missing", r.Reason)
	require.True(t, check(&Options{Map: []Mapping{
		{Old: other.url("ckp"), New: f.url("nowhere")},
		{Old: other.url("ckp/" + jobB + "/shared"), New: f.url("copy")},
	}}).Usable, "the longest wins")
}

// TestFlink39964: the first incremental checkpoint after a CLAIM restore from a
// native savepoint names the savepoint's files as if they were its own.
func TestFlink39964(t *testing.T) {
	f := memFixture(t)
	sp := "sp/savepoint-aaaaaa-0123456789ab/"
	f.put(sp+"f-1", 100)
	f.put(sp+"f-2", 100)
	f.put(chk5+"/own", 10)
	f.write(chk5, newCheckpoint(5, relative("own", 10), relative("f-1", 100), absolute(f.url(sp+"f-2"), 100)))
	v, err := VerifyAt(context.Background(), f.pool, f.loc(chk5), nil)
	require.NoError(t, err)
	require.Equal(t, "exclusive-file-missing", codes(v))
	require.Len(t, v.Findings, 2)
	require.Equal(t, "claimed-files", v.Findings[0].Code)
	require.Contains(t, v.Findings[1].Hint, f.url(sp+"f-1"))
	require.Contains(t, v.Findings[1].Hint, "FLINK-39964")
}

func TestDamagedMetadata(t *testing.T) {
	ctx := context.Background()
	f := memFixture(t)
	good := encode(t, healthy(f))
	wrongMagic := bytes.Clone(good)
	wrongMagic[0] = 0
	version99 := bytes.Clone(good)
	binary.BigEndian.PutUint32(version99[4:], 99)
	hugeCount := bytes.Clone(good)
	binary.BigEndian.PutUint32(hugeCount[20:], 1<<31-1)
	negative := bytes.Clone(good)
	binary.BigEndian.PutUint32(negative[20:], 0xffffffff)
	for name, data := range map[string][]byte{"empty": {}, "magic": wrongMagic, "count": hugeCount, "negative": negative,
		"zeros": make([]byte, 1<<20)} {
		t.Run(name, func(t *testing.T) {
			f.putBytes(chk5+"/"+MetadataName, data)
			_, err := Open(ctx, f.pool, f.loc(chk5), nil)
			require.ErrorIs(t, err, metadata.ErrCorrupt)
			v, err := VerifyAt(ctx, f.pool, f.loc(chk5), nil)
			require.NoError(t, err)
			require.Equal(t, "metadata-corrupt", codes(v))
			require.Equal(t, f.url(chk5+"/"+MetadataName), v.Findings[0].File)
			require.GreaterOrEqual(t, v.Findings[0].Offset, int64(0))
		})
	}
	f.putBytes(chk5+"/"+MetadataName, append(bytes.Clone(good), 1, 2, 3))
	v, err := VerifyAt(ctx, f.pool, f.loc(chk5), nil)
	require.NoError(t, err)
	require.Equal(t, "unusual-encoding", v.Findings[0].Code)
	require.Equal(t, "properties", v.Findings[0].Field)
	for n := range len(good) {
		f.putBytes(chk5+"/"+MetadataName, good[:n])
		v, err := VerifyAt(ctx, f.pool, f.loc(chk5), nil)
		require.NoError(t, err, n)
		require.Equal(t, 1, v.Damaged, n)
	}
	f.putBytes(chk5+"/"+MetadataName, version99)
	_, err = VerifyAt(ctx, f.pool, f.loc(chk5), nil)
	require.ErrorIs(t, err, metadata.ErrUnsupportedVersion)
	f.putBytes(chk5+"/"+MetadataName, good)
	_, err = Open(ctx, f.pool, f.loc(chk5), &Options{MaxMetadataBytes: 100})
	require.ErrorIs(t, err, metadata.ErrCorrupt)
	require.ErrorContains(t, err, "over the limit of 100")
}

func TestNoSnapshotThere(t *testing.T) {
	for name, newFixture := range map[string]func(testing.TB) *fixture{"mem": memFixture, "local": localFixture} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.chain("ckp", jobA, 2)
			f.put("ckp/"+jobA+"/chk-3/part", 1)
			f.put("plain/file", 1)
			for at, want := range map[string]string{
				"no/such":                "it does not exist",
				"ckp/" + jobA:            "it holds snapshots, such as chk-",
				"ckp/" + jobA + "/chk-3": "in progress, failed or half deleted",
				"plain":                  "a folder without _metadata",
			} {
				_, err := Open(context.Background(), f.pool, f.loc(at), nil)
				require.ErrorIs(t, err, ErrNoSnapshot, at)
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err := Open(context.Background(), testPool(t), blobstore.Location{Scheme: "nosuch", Authority: "x", Path: "y"}, nil)
	require.ErrorIs(t, err, blobstore.ErrUnknownScheme)
}
