package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

var memStores atomic.Int64

// fixture is a store of its own with a pool that reaches it.
type fixture struct {
	t    testing.TB
	pool *blobstore.Pool
	root blobstore.Location
}

func memFixture(t testing.TB) *fixture {
	return &fixture{t, testPool(t), parse(t, fmt.Sprintf("mem://fixture-%d", memStores.Add(1)))}
}

func localFixture(t testing.TB) *fixture {
	return &fixture{t, testPool(t), parse(t, "file://"+t.TempDir())}
}

// url is the address of a name as metadata would write it.
func (f *fixture) url(name string) string { return f.root.Join(name).String() }

func (f *fixture) loc(name string) blobstore.Location { return f.root.Join(name) }

func (f *fixture) store(name string) (blobstore.Store, string) {
	f.t.Helper()
	loc := f.root
	if name != "" {
		loc = loc.Join(name)
	}
	s, path, err := f.pool.Resolve(context.Background(), loc)
	require.NoError(f.t, err)
	return s, path
}

func (f *fixture) putBytes(name string, data []byte) {
	f.t.Helper()
	s, path := f.store(name)
	w, err := s.Create(context.Background(), path, nil)
	require.NoError(f.t, err)
	defer w.Abort()
	_, err = w.Write(data)
	require.NoError(f.t, err)
	require.NoError(f.t, w.Commit())
}

func (f *fixture) put(name string, size int) { f.putBytes(name, make([]byte, size)) }

func (f *fixture) remove(name string) {
	f.t.Helper()
	s, path := f.store(name)
	require.NoError(f.t, s.Delete(context.Background(), path))
}

func encode(t testing.TB, c *metadata.Checkpoint) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, metadata.Encode(&b, c))
	return b.Bytes()
}

// write puts c at dir/_metadata.
func (f *fixture) write(dir string, c *metadata.Checkpoint) {
	f.t.Helper()
	f.putBytes(dir+"/"+MetadataName, encode(f.t, c))
}

const (
	jobA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	jobB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func absolute(path string, size int64) *metadata.FileHandle {
	return &metadata.FileHandle{Path: javaio.NewString(path), Size: size}
}

func relative(path string, size int64) *metadata.RelativeFileHandle {
	return &metadata.RelativeFileHandle{Path: javaio.NewString(path), Size: size}
}

func segment(path string, start, length int64) *metadata.SegmentHandle {
	return &metadata.SegmentHandle{Path: javaio.NewString(path), LogicalID: "id", Start: start, Length: length, Scope: metadata.ScopeShared}
}

// newCheckpoint makes one operator whose only subtask has an incremental handle
// with the meta handle and shared files given.
func newCheckpoint(id int64, meta metadata.StreamHandle, shared ...metadata.StreamHandle) *metadata.Checkpoint {
	h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, CheckpointID: id, BackendID: "b0000000-0000-4000-8000-000000000000",
		Range: metadata.KeyGroupRange{Start: 0, Count: 128}, CheckpointedSize: 7, Meta: meta, ID: "h"}
	for i, s := range shared {
		h.Shared = append(h.Shared, metadata.NamedHandle{Name: metadata.String(fmt.Sprintf("%06d.sst", i)), Handle: s})
	}
	return &metadata.Checkpoint{Version: 4, ID: id, Properties: metadata.NullProperties(), Operators: []metadata.OperatorState{{
		ID: metadata.OperatorIDFromUID("op"), Parallelism: 1, MaxParallelism: 128,
		Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}},
	}}}
}

// chain writes checkpoints 1 to n of a job: each has a file of its own, adds one
// shared file of 100 bytes and drops the one of three before.
func (f *fixture) chain(base, job string, n int) {
	f.t.Helper()
	for i := 1; i <= n; i++ {
		dir := fmt.Sprintf("%s/%s/chk-%d", base, job, i)
		f.put(dir+"/own", 10)
		var shared []metadata.StreamHandle
		for k := max(1, i-2); k <= i; k++ {
			name := fmt.Sprintf("%s/%s/shared/f%d", base, job, k)
			if k == i {
				f.put(name, 100)
			}
			shared = append(shared, absolute(f.url(name), 100))
		}
		f.write(dir, newCheckpoint(int64(i), relative("own", 10), shared...))
	}
}

func codes(v *Verification) string {
	var out []string
	for _, f := range v.Findings {
		if f.Severity == Damage {
			out = append(out, f.Code)
		}
	}
	return strings.Join(out, " ")
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}
