//go:build integration

package flinkverify_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/flinkverify/job"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/snapshot"
)

// evolved are states whose type changed between a job and the next one. The new job
// finds what after says, in all states a, l and m; or refuses the state.
var evolved = []struct {
	name          string
	before, after [2]string // a type and a value of it
	// The classes of before or of after, where they differ from those that flink-verify
	// has. Then we write before, and Flink does not restore after.
	classes, became string
	refused         bool
	// ours: Flink is not asked. Its heap backend finds a new Avro schema compatible and
	// then hands out generic records of the old one, in which the new fields are not; only
	// a generated class has Avro resolve the schemas.
	ours bool
}{
	{name: "avro-fields", before: [2]string{avro(`{"name":"id","type":"long"},{"name":"name","type":"string"},{"name":"n","type":"int"}`), `{"id": 7, "name": "x", "n": -3}`},
		after: [2]string{avro(`{"name":"note","type":"string","default":"none"},{"name":"n","type":"long"},{"name":"id","type":"long"}`), `{"note": "none", "n": -3, "id": 7}`}, ours: true},
	{name: "avro-nullable", before: [2]string{avro(`{"name":"id","type":"long"}`), `{"id": 7}`},
		after: [2]string{avro(`{"name":"id","type":"long"},{"name":"more","type":["null","string"],"default":null}`), `{"id": 7, "more": null}`}, ours: true},
	{name: "avro-no-default", before: [2]string{avro(`{"name":"id","type":"long"}`), `{"id": 7}`},
		after: [2]string{avro(`{"name":"id","type":"long"},{"name":"more","type":"string"}`), `{"id": 7, "more": ""}`}, refused: true},
	{name: "avro-narrowed", before: [2]string{avro(`{"name":"id","type":"long"}`), `{"id": 7}`},
		after: [2]string{avro(`{"name":"id","type":"int"}`), `{"id": 7}`}, refused: true},
	{name: "pojo-added", classes: "pojo:org.tidemark.verify.Address<street:string,zip:int>; pojo:org.tidemark.verify.Person<name:string,address:pojo:org.tidemark.verify.Address>",
		before: [2]string{"pojo:org.tidemark.verify.Person", `{"name": "n", "address": {"street": "s", "zip": 1}}`},
		after:  [2]string{"pojo:Person", `{"name": "n", "age": 0, "balance": null, "address": {"street": "s", "zip": 1}}`}},
	{name: "pojo-removed", classes: "pojo:org.tidemark.verify.Address<street:string,floor:int,zip:int,door:string>",
		before: [2]string{"pojo:org.tidemark.verify.Address", `{"street": "s", "zip": 1, "floor": 3, "door": "left"}`},
		after:  [2]string{"pojo:Address", `{"street": "s", "zip": 1}`}},
	{name: "pojo-other-type", classes: "pojo:org.tidemark.verify.Address<street:string,zip:long>",
		before: [2]string{"pojo:org.tidemark.verify.Address", `{"street": "s", "zip": 1}`},
		after:  [2]string{"pojo:Address", `{"street": "s", "zip": 1}`}, refused: true},
	{name: "pojo-fewer", became: "pojo:org.tidemark.verify.Person<age:int,nick:string>",
		before: [2]string{"pojo:Person", `{"name": "n", "age": 5, "balance": 6, "address": null}`},
		after:  [2]string{"pojo:org.tidemark.verify.Person", `{"age": 5, "nick": null}`}},
	{name: "row-longer", before: [2]string{"row<a:int,b:string>", `{"a": 1, "b": "x"}`},
		after: [2]string{"row<a:int,b:string,c:long>", `{"a": 1, "b": "x", "c": null}`}, refused: true},
	{name: "row-wider", before: [2]string{"row<a:int,b:string>", `{"a": 1, "b": "x"}`},
		after: [2]string{"row<a:long,b:string>", `{"a": 1, "b": "x"}`}, refused: true},
	{name: "wider", before: [2]string{"int", `1`}, after: [2]string{"long", `1`}, refused: true},
}

func avro(fields string) string {
	return strings.ReplaceAll(`avro<{"type":"record","name":"Item","namespace":"org.example","fields":[`+fields+`]}>`, `"`, `\"`)
}

// evolvedDescription is a value, a list and a map of one type.
func evolvedDescription(typ, value, classes string) []byte {
	if classes != "" {
		classes = `"classes": ["` + strings.ReplaceAll(classes, "; ", `", "`) + `"], `
	}
	return fmt.Appendf(nil, `{"format": 1, %[3]s"operators": [{"uid": "u", "max_parallelism": 128, "parallelism": 2, "keyed": {"key_type": "string", "states": [
		{"name": "a", "kind": "value", "type": "%[1]s", "entries": [{"key": "k", "value": %[2]s}, {"key": "l", "value": %[2]s}]},
		{"name": "l", "kind": "list", "type": "list<%[1]s>", "entries": [{"key": "k", "value": [%[2]s, %[2]s]}]},
		{"name": "m", "kind": "map", "type": "map<string,%[1]s>", "entries": [{"key": "k", "value": [["x", %[2]s]]}]}]}}]}`, typ, value, classes)
}

// testEvolved changes the types of states between two jobs, as far as Flink allows it.
// Flink and our backends find the same values in each other's state, or both refuse it.
func testEvolved(t *testing.T, f *fixture, flink *flinkverify.Flink) {
	out := t.TempDir()
	for _, c := range evolved {
		t.Run(c.name, func(t *testing.T) {
			before, after := evolvedDescription(c.before[0], c.before[1], c.classes), evolvedDescription(c.after[0], c.after[1], c.became)
			var from []*snapshot.Snapshot
			if c.classes == "" { // Flink has the classes of before
				for _, kind := range []string{"--backend hashmap --snapshot checkpoint", "--backend rocksdb --snapshot checkpoint --incremental"} {
					file, dir := filepath.Join(out, c.name+".json"), filepath.Join(out, fmt.Sprint(c.name, "-", len(from)))
					require.NoError(t, os.WriteFile(file, before, 0o666))
					flink.Pass(t, "write %s --out %s %s", file, dir, kind)
					from = append(from, f.open(f.at(dir)))
				}
			} else {
				j, err := job.Fill(t.Context(), f.create(before), f.options(job.Heap, 0))
				require.NoError(t, err)
				defer j.Close()
				for i, k := range []snapshot.CreateKind{snapshot.CreateCanonical, snapshot.CreateCheckpoint} {
					dir := f.at(filepath.Join(out, fmt.Sprint(c.name, "-", i)))
					f.write(j, dir, 0, &job.WriteOptions{Kind: k})
					from = append(from, f.open(dir))
				}
			}
			for i, s := range from {
				for _, backend := range backends {
					if !c.refused {
						f.restored(t, backend, after, s, 1+i)
						continue
					}
					j, err := job.Restore(context.Background(), f.create(after), s, f.options(backend, 1))
					if err == nil {
						j.Close()
					}
					require.ErrorIs(t, err, keyed.ErrIncompatible)
				}
				if c.became != "" || c.ours { // Flink has not the classes of after
					continue
				}
				file, backend := filepath.Join(out, c.name+"-after.json"), "hashmap"
				require.NoError(t, os.WriteFile(file, after, 0o666))
				if c.classes == "" && i == 1 {
					backend = "rocksdb"
				}
				failed := flink.Run("restore %s %s --out %s --backend %s", filepath.Join(out, fmt.Sprint(c.name, "-", i)), file, filepath.Join(out, fmt.Sprint(c.name, "-", i, "-again")), backend)
				if !c.refused {
					require.Empty(t, failed)
					continue
				}
				// By a StateMigrationException where it is checked; the heap's restore of a POJO
				// finds out when it sets the field.
				require.NotEmpty(t, failed)
				require.Contains(t, failed[0], `"check":"restored"`)
				require.Regexp(t, "StateMigrationException|Can not set int field", failed[0])
			}
		})
	}
}
