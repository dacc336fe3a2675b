package manifest_test

import (
	"fmt"
	"os"

	"github.com/tidemark/tidemark/incremental/manifest"
)

func ExampleDecode() {
	data, err := os.ReadFile("../testdata/matrix/frocksdb6/tiny-snappy/db/MANIFEST-000004")
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := manifest.Decode(data, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range v.Families {
		fmt.Printf("%d %s\n", f.ID, f.Name)
		for _, t := range f.Tables {
			fmt.Printf("  level %d: %s, %d bytes\n", t.Level, manifest.TableName(t.Number), t.Size)
		}
	}
	// Output:
	// 0 default
	// 1 state
	//   level 0: 000012.sst, 2547 bytes
	// 2 list
	//   level 0: 000013.sst, 1267 bytes
}
