package flinkverify_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/flinkverify/job"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// fixture is what tests of backends share: the classes of flink-verify and a place in
// memory for what descriptions are created as.
type fixture struct {
	t       testing.TB
	pool    *blobstore.Pool
	classes serializer.Classes
	hash    serializer.HashRules
	dir     string // for backends on disk
	jobs    int
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{t: t, pool: blobstore.NewPool(nil, nil), dir: t.TempDir()}
	t.Cleanup(func() { f.pool.Close() })
	file, err := os.Open(filepath.Join(flinkverify.Dir(t), "classes.txt"))
	require.NoError(t, err)
	defer file.Close()
	f.classes, f.hash, err = snapshot.ReadClasses(file)
	require.NoError(t, err)
	return f
}

var places atomic.Int64

// memory is a new place in memory.
func (f *fixture) memory() blobstore.Location {
	return f.at(fmt.Sprintf("mem://acceptance-%d/s", places.Add(1)))
}

func (f *fixture) at(url string) blobstore.Location {
	loc, err := blobstore.Parse(url)
	require.NoError(f.t, err)
	return loc
}

// open opens the newest snapshot at or below a place.
func (f *fixture) open(loc blobstore.Location) *snapshot.Snapshot {
	latest, err := snapshot.Latest(context.Background(), f.pool, loc, nil)
	require.NoError(f.t, err)
	return latest.Snapshot
}

// create makes the snapshot of a description, in memory.
func (f *fixture) create(description []byte) *snapshot.Snapshot {
	d, err := snapshot.ReadDescription(bytes.NewReader(description), &snapshot.DescriptionOptions{Classes: f.classes, Hash: f.hash})
	require.NoError(f.t, err)
	loc := f.memory()
	_, err = snapshot.CreateFrom(context.Background(), f.pool, snapshot.SavepointIn(loc), d, &snapshot.CreateOptions{Version: 5})
	require.NoError(f.t, err)
	return f.open(loc)
}

func (f *fixture) options(backend job.Kind, parallelism int) *job.Options {
	f.jobs++
	return &job.Options{Backend: backend, Dir: filepath.Join(f.dir, strconv.Itoa(f.jobs)), Parallelism: parallelism, Classes: f.classes, Hash: f.hash}
}

// write writes a job's snapshot.
func (f *fixture) write(j *job.Job, to blobstore.Location, threshold int, o *job.WriteOptions) {
	w, err := snapshot.NewWriter(context.Background(), f.pool, snapshot.SavepointIn(to), &snapshot.WriterOptions{MemoryThreshold: threshold})
	require.NoError(f.t, err)
	require.NoError(f.t, j.Write(context.Background(), w, o))
}

// describe is the description of a snapshot, in the form that can be compared.
func (f *fixture) describe(t testing.TB, s *snapshot.Snapshot, uids map[metadata.OperatorID]string) map[string]map[string]any {
	var out bytes.Buffer
	require.NoError(t, snapshot.Describe(context.Background(), s, &snapshot.ScanOptions{UID: func(id metadata.OperatorID) string { return uids[id] }}, &out))
	return flinkverify.Compared(t, out.Bytes())
}

// same fails if a snapshot does not hold what is described, but for the parallelism
// of operators and for the sources of flink-verify's own job. The description goes
// through create and describe, so that both are sorted.
func (f *fixture) same(t testing.TB, description []byte, s *snapshot.Snapshot) {
	t.Helper()
	uids := map[metadata.OperatorID]string{}
	for uid := range flinkverify.Compared(t, description) {
		uids[metadata.OperatorIDFromUID(uid)] = uid
	}
	want, got := f.describe(t, f.create(description), uids), f.describe(t, s, uids)
	for uid, w := range want {
		delete(w, "parallelism")
		for member, v := range w {
			if a, b := fmt.Sprint(v), fmt.Sprint(got[uid][member]); a != b {
				i := 0
				for i < min(len(a), len(b)) && a[i] == b[i] {
					i++
				}
				i = max(0, i-100)
				t.Errorf("operator %s, %s: from byte %d of the text on\nwant %.300q\ngot  %.300q", uid, member, i, a[i:], b[min(i, len(b)):])
			}
			delete(got[uid], member)
		}
		delete(got[uid], "parallelism")
		require.Empty(t, got[uid], "operator %s", uid)
		delete(got, uid)
	}
	for uid := range got {
		require.True(t, strings.HasPrefix(uid, "uid_hash"), "operator %s", uid)
	}
}

// restored fails if backends of another parallelism do not restore what is described
// from a snapshot, or if the handles do not give it back.
func (f *fixture) restored(t testing.TB, backend job.Kind, description []byte, from *snapshot.Snapshot, parallelism int) {
	t.Helper()
	ctx := context.Background()
	schema := f.create(description)
	j, err := job.Restore(ctx, schema, from, f.options(backend, parallelism))
	require.NoError(t, err)
	defer j.Close()
	copied, err := j.Copy(ctx, schema, f.options(backend, 1))
	require.NoError(t, err)
	defer copied.Close()
	to := f.memory()
	f.write(copied, to, 0, &job.WriteOptions{Version: 5})
	f.same(t, description, f.open(to))
}

// written are ways in which backends write a job.
var written = []struct {
	name      string
	threshold int
	o         job.WriteOptions
}{
	{"canonical", 0, job.WriteOptions{Version: 3}},
	{"canonical-files", -1, job.WriteOptions{Version: 4, Compress: true}},
	{"native", -1, job.WriteOptions{Kind: snapshot.CreateNative, Version: 4}},
	{"checkpoint", 0, job.WriteOptions{Kind: snapshot.CreateCheckpoint, Version: 3, Compress: true}},
}

// backends are those that are tested.
var backends = []job.Kind{job.Heap, job.LSM}

// TestBackendsHoldDescriptions puts the examples and random descriptions into our
// backends, in each way that snapshots are written, and reads them back: what was
// written describes as the description, and backends of another parallelism restore it.
// It is what TestBackendsAreRestoredByARealFlink does without Flink.
func TestBackendsHoldDescriptions(t *testing.T) {
	f := newFixture(t)
	descriptions := map[string][]byte{}
	for _, e := range flinkverify.Examples(t) {
		b, err := os.ReadFile(e)
		require.NoError(t, err)
		descriptions[strings.TrimSuffix(filepath.Base(e), ".json")] = b
	}
	seeds := uint64(24)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		descriptions[fmt.Sprintf("random-%d", seed)] = flinkverify.RandomDescription(seed)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for name, d := range descriptions {
		for _, backend := range backends {
			parallelism := 1 + r.IntN(4)
			t.Run(fmt.Sprintf("%s-%s-%d", name, backend, parallelism), func(t *testing.T) {
				created := f.create(d)
				j, err := job.Fill(t.Context(), created, f.options(backend, 0))
				require.NoError(t, err)
				defer j.Close()
				for _, w := range written {
					to := f.memory()
					f.write(j, to, w.threshold, &w.o)
					s := f.open(to)
					f.same(t, d, s)
					f.restored(t, backend, d, s, parallelism)
				}
			})
		}
	}
}
