package incremental_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
)

// The files of a handle, here from a local folder, are opened as a database; each
// column family is one state.
func ExampleOpen() {
	ctx := context.Background()
	dir := filepath.Join("testdata", "matrix", "frocksdb6", "workload-empty", "db")
	entries, err := os.ReadDir(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	var files []incremental.File
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			fmt.Println(err)
			return
		}
		files = append(files, incremental.File{Name: e.Name(), Source: sst.Bytes(data)})
	}
	db, err := incremental.Open(ctx, files, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range db.Families() {
		fmt.Printf("%s: %d tables\n", f.Name, len(f.Tables))
		it := f.Scan(ctx, nil)
		for it.Next() {
			fmt.Printf("  %x -> %q\n", it.Key(), it.Value())
		}
		if err := it.Err(); err != nil {
			fmt.Println(err)
		}
		it.Close()
	}
	// Output:
	// default: 0 tables
	// state: 1 tables
	//    -> ""
	//   00 -> ""
	//   0000 -> "\x01"
	// list: 2 tables
	//   01 -> ",,a"
	//   02 -> ",b"
}
