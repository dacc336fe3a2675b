package snapshot_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

func openAt(t testing.TB, path string) (*blobstore.Pool, blobstore.Location) {
	t.Helper()
	pool := blobstore.NewPool(nil, nil)
	t.Cleanup(func() { pool.Close() })
	loc, err := blobstore.Parse(path)
	require.NoError(t, err)
	return pool, loc
}

func verifyData(t testing.TB, path string, opts *snapshot.DataOptions) *snapshot.Verification {
	t.Helper()
	pool, loc := openAt(t, path)
	v, err := snapshot.VerifyAt(t.Context(), pool, loc, &snapshot.VerifyOptions{Data: opts})
	require.NoError(t, err, path)
	return v
}

func damageOf(v *snapshot.Verification) (out []snapshot.Finding) {
	for _, f := range v.Findings {
		if f.Severity == snapshot.Damage {
			out = append(out, f)
		}
	}
	return out
}

// copyGolden copies a golden to a folder of the test's own and gives the path of
// its last snapshot there.
func copyGolden(t testing.TB, name string) string {
	t.Helper()
	c := testdata.Golden(t, name)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(c.Dir)))
	return filepath.Join(dir, filepath.FromSlash(c.Snapshot))
}

// stateFiles are the local paths of the files of a snapshot, by what they are.
func stateFiles(t testing.TB, path string) []snapshot.File {
	t.Helper()
	pool, loc := openAt(t, path)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	var files []snapshot.File
	for f := range snapshot.Files(s) {
		files = append(files, f)
	}
	return files
}

func localPath(f snapshot.File) string { return "/" + f.Location.Path }

// TestVerifyDataOfGoldens holds that what a real Flink wrote is sound to its last
// byte, and that what is read of it is counted.
func TestVerifyDataOfGoldens(t *testing.T) {
	for _, c := range testdata.AllGoldens(t) {
		t.Run(c.Name, func(t *testing.T) {
			for _, path := range testdata.MetadataFiles(t, c.Dir) {
				v := verifyData(t, path, &snapshot.DataOptions{})
				require.Empty(t, damageOf(v), path)
				require.NotNil(t, v.Data)
				require.Empty(t, v.Data.SharedBy)
			}
		})
	}
}

// TestSamplesCoverEachUnitOnce: of t samples together each record, block and unit
// is verified exactly once.
func TestSamplesCoverEachUnitOnce(t *testing.T) {
	for object := range 50 {
		for _, parts := range []int{1, 2, 3, 7, 64} {
			for unit := range uint64(200) {
				chosen := 0
				for part := range parts {
					if snapshot.ChooseSample(&snapshot.Sample{Part: part + 1, Parts: parts}, fmt.Sprint("object-", object), unit) {
						chosen++
					}
				}
				require.Equal(t, 1, chosen)
			}
		}
	}
	for _, c := range testdata.Goldens(t) {
		t.Run(c.Name, func(t *testing.T) {
			const parts = 3
			whole := verifyData(t, c.File(c.Snapshot), &snapshot.DataOptions{}).Data
			require.Zero(t, whole.LeftOut)
			var records, blocks, leftOut int64
			for part := range parts {
				d := verifyData(t, c.File(c.Snapshot), &snapshot.DataOptions{Sample: &snapshot.Sample{Part: part + 1, Parts: parts}}).Data
				require.Equal(t, fmt.Sprintf("%d/3", part+1), d.Sample)
				records += d.Records
				blocks += d.Blocks
				leftOut += d.LeftOut
			}
			require.Equal(t, whole.Records, records)
			require.Equal(t, whole.Blocks, blocks)
			require.Zero(t, leftOut%(parts-1), "each unit is left out by all but one")
		})
	}
}

func TestSampleByLot(t *testing.T) {
	s, err := snapshot.ParseSample("5%", 42)
	require.NoError(t, err)
	require.Equal(t, "5%:42", s.String())
	again, err := snapshot.ParseSample(s.String(), 7)
	require.NoError(t, err)
	require.Equal(t, s, again)
	n := 0
	for object := range 100 {
		for unit := range uint64(1000) {
			if snapshot.ChooseSample(s, fmt.Sprint(object), unit) {
				n++
			}
		}
	}
	require.InDelta(t, 5000, n, 500)
	for _, text := range []string{"", "5", "0/3", "4/3", "1/0", "-1/3", "0%", "101%", "5%:x", "x%", "1/3/4", "NaN%"} {
		_, err := snapshot.ParseSample(text, 0)
		require.Error(t, err, text)
	}
}

// oneHandle puts one subtask's incremental handle of a golden, with its files, into
// a store in memory.
func oneHandle(t testing.TB, name, store string) (*blobstore.Pool, blobstore.Location, []snapshot.File) {
	t.Helper()
	c := testdata.Golden(t, name)
	pool, loc := openAt(t, c.File(c.Snapshot))
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	var files []snapshot.File
	whole := *s.Checkpoint
	for i := range whole.Operators {
		o := whole.Operators[i]
		for k := range o.Subtasks {
			h, ok := o.Subtasks[k].ManagedKeyed.(*metadata.IncrementalHandle)
			if !ok {
				continue
			}
			copied := *h
			put := func(n *metadata.StreamHandle) {
				target := s.Resolve(*n)
				if target.Kind != snapshot.TargetObject {
					return
				}
				base := filepath.Base(target.Location.Path)
				data, err := os.ReadFile("/" + target.Location.Path)
				require.NoError(t, err)
				putObject(t, pool, store+"/chk-1/"+base, data)
				*n = &metadata.RelativeFileHandle{Path: metadata.String(base), Size: int64(len(data))}
			}
			put(&copied.Meta)
			for _, list := range []*[]metadata.NamedHandle{&copied.Shared, &copied.Private} {
				*list = append([]metadata.NamedHandle(nil), *list...)
				for x := range *list {
					put(&(*list)[x].Handle)
				}
			}
			o.Subtasks = []metadata.SubtaskState{{Index: o.Subtasks[k].Index, ManagedKeyed: &copied}}
			o.Coordinator = nil
			one := &metadata.Checkpoint{Version: whole.Version, ID: 1, Properties: metadata.NullProperties(), Operators: []metadata.OperatorState{o}}
			var b bytes.Buffer
			require.NoError(t, metadata.Encode(&b, one))
			putObject(t, pool, store+"/chk-1/_metadata", b.Bytes())
			at, err := blobstore.Parse(store + "/chk-1")
			require.NoError(t, err)
			s, err = snapshot.Open(t.Context(), pool, at, nil)
			require.NoError(t, err)
			for f := range snapshot.Files(s) {
				files = append(files, f)
			}
			return pool, at, files
		}
	}
	t.Fatal("the golden has no incremental handle")
	return nil, blobstore.Location{}, nil
}

func putObject(t testing.TB, pool *blobstore.Pool, url string, data []byte) {
	t.Helper()
	loc, err := blobstore.Parse(url)
	require.NoError(t, err)
	s, name, err := pool.Resolve(context.Background(), loc)
	require.NoError(t, err)
	w, err := s.Create(context.Background(), name, nil)
	require.NoError(t, err)
	defer w.Abort()
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Commit())
}

// TestVerifyDataFindsEveryFlippedBit flips one bit in each byte of the files of a
// real database, each time another position, and expects damage that names the file.
// OPTIONS has a test of its own: not all of its bytes are protected.
func TestVerifyDataFindsEveryFlippedBit(t *testing.T) {
	for _, name := range []string{"f120-rocksdb-chain", "f230-rocksdb-native"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, at, files := oneHandle(t, name, "mem://flip-"+name)
			verify := func() *snapshot.Verification {
				v, err := snapshot.VerifyAt(t.Context(), pool, at, &snapshot.VerifyOptions{Data: &snapshot.DataOptions{NoOthers: true}})
				require.NoError(t, err)
				return v
			}
			require.Empty(t, damageOf(verify()))
			tables := 0
			for _, f := range files {
				switch {
				case strings.HasSuffix(f.LocalName, ".sst"):
					if tables++; tables > 1 && testing.Short() || tables > 2 {
						continue
					}
				case f.LocalName == "CURRENT", strings.HasPrefix(f.LocalName, "MANIFEST"):
				default:
					continue
				}
				store, path, err := pool.Resolve(t.Context(), f.Location)
				require.NoError(t, err)
				r, err := store.Open(t.Context(), path)
				require.NoError(t, err)
				var good bytes.Buffer
				_, err = good.ReadFrom(r)
				require.NoError(t, err)
				r.Close()
				for i := range good.Len() {
					bad := bytes.Clone(good.Bytes())
					bad[i] ^= 1 << (i * 5 % 8)
					putObject(t, pool, f.URL, bad)
					d := damageOf(verify())
					if len(d) == 0 {
						t.Errorf("%s: bit %d of byte %d is not found", f.LocalName, i*5%8, i)
						continue
					}
					require.Contains(t, fileNames(d), f.URL, "byte %d of %s: %+v", i, f.LocalName, d)
				}
				putObject(t, pool, f.URL, good.Bytes())
			}
			require.Empty(t, damageOf(verify()))
		})
	}
}

func fileNames(findings []snapshot.Finding) (out []string) {
	for _, f := range findings {
		out = append(out, f.File)
	}
	return out
}

// TestDamageIsLocated: a wounded block is told with its file, offset, operator,
// state and key groups, with the other snapshots that name the file, and with the
// newest sound one.
func TestDamageIsLocated(t *testing.T) {
	path := copyGolden(t, "f120-rocksdb-chain")
	dir := filepath.Dir(path)
	older := map[string]bool{}
	for _, f := range stateFiles(t, filepath.Join(dir, "chk-4")) {
		older[f.URL] = true
	}
	var hit snapshot.File
	for _, f := range stateFiles(t, filepath.Join(dir, "chk-6")) {
		// A table that chk-5 has, too, and chk-4 has not.
		if strings.HasSuffix(f.LocalName, ".sst") && !older[f.URL] && contains(stateFiles(t, filepath.Join(dir, "chk-5")), f.URL) {
			hit = f
		}
	}
	require.NotEmpty(t, hit.URL)
	b, err := os.ReadFile(localPath(hit))
	require.NoError(t, err)
	b[20] ^= 4
	require.NoError(t, os.WriteFile(localPath(hit), b, 0o666))

	v := verifyData(t, path, &snapshot.DataOptions{})
	d := damageOf(v)
	require.Len(t, d, 1)
	require.Equal(t, "block-corrupt", d[0].Code)
	require.Equal(t, hit.URL, d[0].File)
	require.Zero(t, d[0].Offset)
	require.Equal(t, "893f647bbeb32875b470d937d8c762bf", d[0].Operator)
	require.Contains(t, d[0].State, "state.")
	require.NotNil(t, d[0].Subtask)
	require.NotNil(t, d[0].KeyGroups)
	require.LessOrEqual(t, d[0].KeyGroups.First, d[0].KeyGroups.Last)
	require.Len(t, v.Data.SharedBy, 1)
	require.Equal(t, hit.URL, v.Data.SharedBy[0].File)
	require.Len(t, v.Data.SharedBy[0].Snapshots, 1)
	require.True(t, strings.HasSuffix(v.Data.SharedBy[0].Snapshots[0], "/chk-5"))
	require.True(t, strings.HasSuffix(v.Data.NewestClean, "/chk-4"))

	// The cache gives the same for the next snapshot without reading the table again.
	cache := &snapshot.DataCache{}
	verifyData(t, path, &snapshot.DataOptions{Cache: cache, NoOthers: true})
	again := verifyData(t, filepath.Join(dir, "chk-5"), &snapshot.DataOptions{Cache: cache, NoOthers: true})
	require.Len(t, damageOf(again), 1)
	require.Positive(t, again.Data.Recalled)
}

func contains(files []snapshot.File, url string) bool {
	for _, f := range files {
		if f.URL == url {
			return true
		}
	}
	return false
}

// rewriteMetadata changes the metadata of a snapshot.
func rewriteMetadata(t testing.TB, path string, change func(c *metadata.Checkpoint)) {
	t.Helper()
	pool, loc := openAt(t, path)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	change(s.Checkpoint)
	var b bytes.Buffer
	require.NoError(t, metadata.Encode(&b, s.Checkpoint))
	require.NoError(t, os.WriteFile(filepath.Join(path, "_metadata"), b.Bytes(), 0o666))
}

func keyedOperator(c *metadata.Checkpoint) *metadata.OperatorState {
	for i := range c.Operators {
		for k := range c.Operators[i].Subtasks {
			if c.Operators[i].Subtasks[k].ManagedKeyed != nil {
				return &c.Operators[i]
			}
		}
	}
	return nil
}

// firstFile is the local path of the first file of a role and part.
func firstFile(t testing.TB, path string, role snapshot.Role, part snapshot.Part, suffix string) string {
	t.Helper()
	for _, f := range stateFiles(t, path) {
		if f.Role == role && f.Part == part && strings.HasSuffix(f.LocalName, suffix) {
			return localPath(f)
		}
	}
	t.Fatalf("no file of role %s, part %s", role, part)
	return ""
}

func patchFile(t testing.TB, path string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, change(b), 0o666))
}

// TestEverythingElseIsShown wounds snapshots and holds that all other rows are
// still read, that the wound is named, and that nothing panics.
func TestEverythingElseIsShown(t *testing.T) {
	unknown := func(b []byte) []byte {
		// One letter of a serializer's class: nothing knows it any more.
		return bytes.ReplaceAll(b, []byte("StringSerializerSnapshot"), []byte("StrinqSerializerSnapshot"))
	}
	for _, c := range []struct {
		name, golden string
		code         string // of a finding of verify; "" if a note is enough
		expect       effect
		wound        func(t *testing.T, path string)
	}{
		{"unknown serializer, heap", "f120-hashmap-canonical", "", toldAndFewer, func(t *testing.T, path string) {
			patchFile(t, firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartData, ""), unknown)
		}},
		{"unknown serializer, RocksDB", "f230-rocksdb-native", "", toldAndFewer, func(t *testing.T, path string) {
			patchFile(t, firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartMeta, ""), unknown)
		}},
		{"missing file, heap", "f120-hashmap-canonical", "exclusive-file-missing", toldAndFewer, func(t *testing.T, path string) {
			require.NoError(t, os.Remove(firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartData, "")))
		}},
		{"missing table", "f120-rocksdb-chain", "shared-file-missing", told, func(t *testing.T, path string) {
			require.NoError(t, os.Remove(firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartShared, ".sst")))
		}},
		{"missing meta", "f120-rocksdb-chain", "exclusive-file-missing", toldAndFewer, func(t *testing.T, path string) {
			require.NoError(t, os.Remove(firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartMeta, "")))
		}},
		{"truncated heap file", "f120-hashmap-canonical", "stream-corrupt", toldAndFewer, func(t *testing.T, path string) {
			patchFile(t, firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartData, ""), func(b []byte) []byte { return b[:len(b)*2/3] })
		}},
		{"truncated table", "f120-rocksdb-chain", "database-corrupt", told, func(t *testing.T, path string) {
			patchFile(t, firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartShared, ".sst"), func(b []byte) []byte { return b[:len(b)/2] })
		}},
		{"truncated copy of a broadcast state", "f120-operator-p3", "stream-corrupt", unseen, func(t *testing.T, path string) {
			patchFile(t, firstFile(t, path, snapshot.RoleManagedOperator, snapshot.PartData, ""), func(b []byte) []byte { return b[:len(b)-2] })
		}},
		{"truncated channel state", "f120-unaligned", "stream-corrupt", unseen, func(t *testing.T, path string) {
			patchFile(t, firstFile(t, path, snapshot.RoleInputChannel, snapshot.PartData, ""), func(b []byte) []byte { return b[:len(b)/2] })
		}},
		{"wrong key-group range, heap", "f120-hashmap-canonical", "key-groups-overlap", toldAndFewer, func(t *testing.T, path string) {
			rewriteMetadata(t, path, func(c *metadata.Checkpoint) {
				keyedOperator(c).Subtasks[0].ManagedKeyed.(*metadata.KeyGroupsHandle).Range.Start++
			})
		}},
		{"narrow key-group range, RocksDB", "f120-rocksdb-chain", "key-groups-lost", fewer, func(t *testing.T, path string) {
			rewriteMetadata(t, path, func(c *metadata.Checkpoint) {
				keyedOperator(c).Subtasks[0].ManagedKeyed.(*metadata.IncrementalHandle).Range.Count -= 10
			})
		}},
		{"overlapping ranges", "f120-rocksdb-chain", "key-groups-overlap", told, func(t *testing.T, path string) {
			rewriteMetadata(t, path, func(c *metadata.Checkpoint) {
				keyedOperator(c).Subtasks[1].ManagedKeyed.(*metadata.IncrementalHandle).Range.Start -= 5
				keyedOperator(c).Subtasks[1].ManagedKeyed.(*metadata.IncrementalHandle).Range.Count += 5
			})
		}},
		{"changelog segment gone", "f120-changelog-hashmap-materialized", "changelog-file-missing", told, func(t *testing.T, path string) {
			require.NoError(t, os.Remove(firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartChangelog, "")))
		}},
		{"changelog segment cut", "f120-changelog-hashmap-materialized", "stream-corrupt", told, func(t *testing.T, path string) {
			patchFile(t, firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartChangelog, ""), func(b []byte) []byte { return b[:len(b)-7] })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := copyGolden(t, c.golden)
			count := func() (rows, undecoded, problems int64) {
				pool, loc := openAt(t, path)
				s, err := snapshot.Open(t.Context(), pool, loc, nil)
				require.NoError(t, err)
				var told atomic.Int64
				opts := &snapshot.ScanOptions{OnProblem: func(p *snapshot.ScanProblem) {
					told.Add(1)
					require.NotContains(t, p.Error(), "\n")
					require.NotNil(t, p.Operator)
				}}
				for r, err := range snapshot.Rows(t.Context(), s, opts) {
					require.NoError(t, err)
					if _, class := r.AppendJSON(nil); class != "" {
						undecoded++
					} else {
						rows++
					}
				}
				problems = told.Load()
				st, err := snapshot.CollectStats(t.Context(), s, &snapshot.StatsOptions{Scan: opts})
				require.NoError(t, err)
				require.Equal(t, rows, st.Rows-st.Undecoded)
				_, err = snapshot.States(t.Context(), s, opts)
				require.NoError(t, err)
				return rows, undecoded, problems
			}
			all, _, problems := count()
			require.Zero(t, problems)
			c.wound(t, path)
			left, undecoded, problems := count()
			t.Logf("%d rows, %d left, %d in part, %d problems", all, left, undecoded, problems)
			require.Positive(t, left, "the rest is shown")
			switch c.expect {
			case unseen:
				require.Equal(t, all, left)
			case fewer:
				require.Less(t, left, all)
			case told:
				require.Positive(t, problems+undecoded)
			case toldAndFewer:
				require.Less(t, left, all)
				require.Positive(t, problems+undecoded)
			}
			v := verifyData(t, path, &snapshot.DataOptions{NoOthers: true})
			require.Positive(t, v.Data.Records, "the rest is verified")
			var codes []string
			for _, f := range v.Findings {
				codes = append(codes, f.Code)
			}
			if c.code == "" {
				require.True(t, v.OK, "%+v", damageOf(v))
				require.Contains(t, codes, "opaque-state")
				return
			}
			require.False(t, v.OK)
			require.Contains(t, codes, c.code)
		})
	}
}

// effect is what a reader of rows sees of a wound.
type effect int

const (
	unseen effect = iota // nothing: no row is lost
	fewer                // fewer rows, and nothing tells why
	told                 // a problem; older rows may come up again
	toldAndFewer
)

// A file that may not be read, and one that is none, keep nobody from looking at
// the others.
func TestVerifyGoesOnBehindWhatCannotBeRead(t *testing.T) {
	path := copyGolden(t, "f120-rocksdb-chain")
	denied := firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartShared, ".sst")
	meta := firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartMeta, "")
	patchFile(t, meta, func(b []byte) []byte { return b[:len(b)-1] })
	verify := func(op string) *snapshot.Verification {
		pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
			return blobstore.NewFaults(blobstore.Fault{Op: op, Err: blobstore.ErrPermission, Name: func(name string) bool { return strings.HasSuffix(denied, name) }}).Wrap(s)
		})
		defer pool.Close()
		loc, err := blobstore.Parse(path)
		require.NoError(t, err)
		v, err := snapshot.VerifyAt(t.Context(), pool, loc, &snapshot.VerifyOptions{Data: &snapshot.DataOptions{}})
		require.NoError(t, err)
		return v
	}
	for _, op := range []string{"stat", "open"} {
		v := verify(op)
		require.ErrorIs(t, v.Err(), blobstore.ErrPermission, op)
		require.ErrorContains(t, v.Err(), filepath.Base(denied), op)
		require.False(t, v.OK)
		require.Positive(t, v.Unread, op)
		require.Positive(t, v.Damaged, op)
		require.Positive(t, v.Data.Records, op)
		var unread []snapshot.Finding
		for _, f := range v.Findings {
			if f.Severity == snapshot.Unread {
				unread = append(unread, f)
			}
		}
		require.Len(t, unread, v.Unread)
		require.Equal(t, "no-access", unread[0].Code)
		require.Contains(t, unread[0].File, filepath.Base(denied))
	}

	require.NoError(t, os.Remove(denied))
	require.NoError(t, os.Symlink(filepath.Base(denied), denied))
	v := verifyData(t, path, &snapshot.DataOptions{})
	require.NoError(t, v.Err())
	require.Condition(t, func() bool {
		return slices.ContainsFunc(v.Findings, func(f snapshot.Finding) bool {
			return f.Severity == snapshot.Damage && f.Code == "directory-as-file" && f.Detail == "is no regular file"
		})
	}, "%+v", v.Findings)
	require.Positive(t, v.Data.Records)
}
