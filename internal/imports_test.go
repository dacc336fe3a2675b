// Package internal_test keeps the import directions of the project: a package
// may import only packages above it in the table of docs/design/packages.md, so
// that each can be used, read and replaced without what stands on it.
package internal_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/tidemark/tidemark/"

// allowed lists, for each package tree, the trees it may import. A tree always
// may import itself and internal/damage.
var allowed = map[string][]string{
	"internal/damage":          {},
	"internal/javaio":          {},
	"internal/killtest":        {},
	"internal/plaintype":       {},
	"internal/bench":           {"*"},
	"internal/flinkverify":     {"*"},
	"serializer":               {"internal/javaio"},
	"metadata":                 {"internal/javaio"},
	"blobstore":                {"internal/faultproxy"}, // storetest
	"incremental":              {"serializer", "metadata", "blobstore", "internal/javaio"},
	"snapshot":                 {"incremental", "serializer", "metadata", "blobstore", "internal/javaio"},
	"keyed":                    {"snapshot", "incremental", "serializer", "metadata", "blobstore", "internal/javaio", "internal/plaintype"},
	"keyed/internal/keyedtest": {"keyed", "snapshot", "incremental", "serializer", "metadata", "blobstore", "internal/testdata"},
	"operatorstate":            {"snapshot", "incremental", "serializer", "metadata", "blobstore", "internal/javaio", "internal/plaintype"},
	"runtime":                  {"keyed", "operatorstate", "snapshot", "incremental", "serializer", "metadata", "blobstore", "internal/javaio"},
	"cmd":                      {"runtime", "keyed", "operatorstate", "snapshot", "incremental", "serializer", "metadata", "blobstore", "internal/javaio"},
	"internal/testdata":        {},
	"internal/scale":           {"metadata"},
	"internal/faultproxy":      {},
	"testdata":                 {"*"},
	"examples":                 {"*"},
	"docs":                     {"*"},
}

// cloud SDKs, engines and heavy clients, each with the only trees that may link it.
var drivers = map[string]string{
	"gocloud.dev":                   "blobstore/",
	"github.com/aws/":               "blobstore/s3",
	"github.com/Azure/":             "blobstore/azure",
	"cloud.google.com/":             "blobstore/gcs",
	"golang.org/x/oauth2":           "blobstore/gcs",
	"github.com/colinmarc/":         "blobstore/hdfs",
	"github.com/jcmturner/":         "blobstore/hdfs",
	"github.com/spf13/cobra":        "cmd/",
	"github.com/jedib0t/":           "cmd/",
	"github.com/vbauerster/":        "cmd/",
	"github.com/knadh/":             "cmd/",
	"modernc.org/sqlite":            "snapshot/query",
	"github.com/parquet-go/":        "snapshot/export",
	"github.com/apache/arrow-":      "snapshot/export",
	"github.com/cockroachdb/pebble": "incremental/pebbledb keyed/lsm",
}

// clouds are the drivers, which register themselves.
var clouds = []string{"blobstore/s3", "blobstore/gcs", "blobstore/azure", "blobstore/hdfs"}

func TestImportDirections(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}", module+"...").Output()
	require.NoError(t, err)
	checked := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		pkg := strings.TrimPrefix(fields[0], module)
		if pkg == "internal" { // this test
			continue
		}
		tree := treeOf(pkg)
		if tree == "" {
			t.Errorf("%s is in no tree of the table: add it to allowed with its directions", pkg)
			continue
		}
		for _, imp := range fields[1:] {
			checked++
			for prefix, home := range drivers {
				if strings.HasPrefix(imp, prefix) && !slices.ContainsFunc(strings.Fields(home), func(h string) bool { return strings.HasPrefix(pkg+"/", h) }) {
					t.Errorf("%s imports %s, which only %s may link: a library user would pay for it", pkg, imp, home)
				}
			}
			in, ours := strings.CutPrefix(imp, module)
			if tree != "cmd" && slices.ContainsFunc(clouds, func(d string) bool {
				return (in == d || strings.HasPrefix(in, d+"/")) && pkg != d && !strings.HasPrefix(pkg, d+"/")
			}) {
				t.Errorf("%s imports %s: drivers are linked by a command alone, so that a library user pays for none", pkg, in)
			}
			if ours && !mayImport(tree, treeOf(in)) {
				t.Errorf("%s imports %s: imports point up the table only", pkg, in)
			}
		}
	}
	require.Greater(t, checked, 10, "go list saw no imports")
}

// treeOf is the deepest tree that a package is in.
func treeOf(pkg string) (in string) {
	for tree := range allowed {
		if (pkg == tree || strings.HasPrefix(pkg, tree+"/")) && len(tree) > len(in) {
			in = tree
		}
	}
	return in
}

func mayImport(tree, imp string) bool {
	if tree == imp || imp == "internal/damage" {
		return true
	}
	for _, a := range allowed[tree] {
		if a == "*" || a == imp {
			return true
		}
	}
	return false
}
