// Package testdata finds the test data: the goldens committed under
// testdata/goldens, and, where present, the larger shared sets beside the
// checkout (every golden, and the corpus of files from Flink's own tests).
package testdata

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"testing"
)

// SharedEnv names the environment variable with the shared folder's path.
const SharedEnv = "TIDEMARK_SHARED"

// Shared returns the folder with the shared data sets: the value of
// TIDEMARK_SHARED, else the first folder "shared" with "goldens" in it that
// lies beside a parent of the working directory. Without one it skips the test; but
// where TIDEMARK_SHARED names one, it has to be there.
func Shared(t testing.TB) string {
	t.Helper()
	dir, ok := findShared()
	if !ok {
		absent(t, "no shared test data: set "+SharedEnv)
	}
	return dir
}

// absent ends a test that lacks data: it fails where the environment says that the data
// is there, so that a wrong name does not pass as a test.
func absent(t testing.TB, what string) {
	t.Helper()
	if dir := os.Getenv(SharedEnv); dir != "" {
		t.Fatalf("%s is %s: %s", SharedEnv, dir, what)
	}
	t.Skip(what)
}

func findShared() (string, bool) {
	if dir := os.Getenv(SharedEnv); dir != "" {
		return dir, isDir(filepath.Join(dir, "goldens"))
	}
	return ascend(func(dir string) (string, bool) {
		shared := filepath.Join(dir, "shared")
		return shared, isDir(filepath.Join(shared, "goldens"))
	})
}

// Repo returns the root of the checkout.
func Repo(t testing.TB) string {
	t.Helper()
	dir, ok := ascend(func(dir string) (string, bool) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		return dir, err == nil
	})
	if !ok {
		t.Fatal("no go.mod above the working directory")
	}
	return dir
}

func ascend(try func(dir string) (string, bool)) (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if found, ok := try(dir); ok {
			return found, true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", false
		}
		dir = up
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// Corpus returns the shared folder of files from Flink's own tests, or skips.
func Corpus(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Shared(t), "corpus", "flink")
	if !isDir(dir) {
		absent(t, "no corpus in the shared test data")
	}
	return dir
}

// Case is a golden: a folder that a real Flink wrote, with what its case.json
// says about it.
type Case struct {
	Dir string // the folder with case.json, checkpoint and the expected entries

	Name           string            `json:"case"`
	About          string            `json:"about"`
	FlinkVersion   string            `json:"flink_version"`
	StateBackend   string            `json:"state_backend"`
	Parallelism    int               `json:"parallelism"`
	MaxParallelism int               `json:"max_parallelism"`
	Compression    bool              `json:"snapshot_compression"`
	WrittenUnder   string            `json:"written_under"` // prefix of absolute paths; stands for Dir
	Snapshot       string            `json:"snapshot"`      // the last one's folder, below Dir
	Operators      []Operator        `json:"operators"`
	Serializers    map[string]string `json:"serializers"`
	Snapshots      []Snapshot        `json:"snapshots"`
}

// Operator is an operator of the job that wrote a golden.
type Operator struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
	ID   string `json:"operator_id"`
}

// Snapshot is one snapshot of a golden. Paths are slash-separated and below
// the case's folder.
type Snapshot struct {
	Path            string             `json:"path"`
	Kind            string             `json:"kind"`
	Expected        string             `json:"expected"`
	ExpectedEntries int                `json:"expected_entries"`
	Parallelism     int                `json:"parallelism"`
	MetadataVersion int32              `json:"metadata_version"`
	CheckpointID    int64              `json:"checkpoint_id"`
	Operators       []SnapshotOperator `json:"operators"`
}

// SnapshotOperator is what Flink's own loader saw of an operator: how many
// handles of each class lie in which slot, for example
// "managed_keyed:KeyGroupsStateHandle(RelativeFileStateHandle)": 2.
type SnapshotOperator struct {
	ID               string         `json:"operator_id"`
	Parallelism      int32          `json:"parallelism"`
	MaxParallelism   int32          `json:"max_parallelism"`
	Handles          map[string]int `json:"handles"`
	FinishedSubtasks int            `json:"finished_subtasks"`
	FullyFinished    bool           `json:"fully_finished"`
}

// File returns the path of a slash-separated name below the case's folder.
func (c *Case) File(name string) string { return filepath.Join(c.Dir, filepath.FromSlash(name)) }

// Goldens returns the committed goldens, in order of their names.
func Goldens(t testing.TB) []*Case {
	t.Helper()
	cases := casesBelow(t, filepath.Join(Repo(t), "testdata", "goldens"))
	if len(cases) == 0 {
		t.Fatal("no goldens in testdata/goldens")
	}
	return cases
}

// Golden returns one committed golden.
func Golden(t testing.TB, name string) *Case {
	t.Helper()
	return readCase(t, filepath.Join(Repo(t), "testdata", "goldens", name))
}

// AllGoldens returns every golden of the shared data, or skips.
func AllGoldens(t testing.TB) []*Case {
	t.Helper()
	return casesBelow(t, filepath.Join(Shared(t), "goldens", "data"))
}

// ManyGoldens is AllGoldens, of which -short takes each eighth, for tests that do much
// with each. The second result is as much of least, a number that a test has to reach.
func ManyGoldens(t testing.TB, least int) ([]*Case, int) {
	t.Helper()
	all := AllGoldens(t)
	if !testing.Short() {
		return all, least
	}
	var some []*Case
	for i := 0; i < len(all); i += 8 {
		some = append(some, all[i])
	}
	return some, least / 8
}

func casesBelow(t testing.TB, dir string) []*Case {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var cases []*Case
	for _, e := range entries {
		if e.IsDir() {
			cases = append(cases, readCase(t, filepath.Join(dir, e.Name())))
		}
	}
	return cases
}

func readCase(t testing.TB, dir string) *Case {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Case{Dir: dir}
	if err := json.Unmarshal(b, c); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return c
}

// MetadataFiles returns every file named _metadata below the folders, sorted.
func MetadataFiles(t testing.TB, dirs ...string) []string {
	t.Helper()
	var files []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && e.Name() == "_metadata" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sort.Strings(files)
	return files
}

// GoldenMetadata returns every _metadata of the committed goldens.
func GoldenMetadata(t testing.TB) []string {
	t.Helper()
	return MetadataFiles(t, filepath.Join(Repo(t), "testdata", "goldens"))
}
