package sst_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tidemark/tidemark/incremental/sst"
)

func ExampleOpen() {
	ctx := context.Background()
	file, err := os.Open("../testdata/matrix/frocksdb8/tiny-format-6/db/000009.sst")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := sst.Open(ctx, sst.ReaderAt(file, info.Size()), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := r.Properties()
	fmt.Println(p.ColumnFamilyName, p.NumEntries, p.Compression, r.Footer().Checksum, p.IndexType)
	it := r.NewIter(ctx, nil)
	for ok := it.SeekGE([]byte{0x5b}); ok; ok = it.Next() {
		fmt.Printf("%q sequence %d kind %d: %d bytes\n", it.Key(), it.Seq(), it.Kind(), len(it.Value()))
	}
	fmt.Println(it.Err())
	// Output:
	// list 10 Snappy XXH3 two-level
	// "[key-000003\x00" sequence 48 kind 2: 31 bytes
	// "[key-000003\x00" sequence 47 kind 2: 29 bytes
	// "ykey-000001\x00" sequence 44 kind 2: 49 bytes
	// "ykey-000001\x00" sequence 43 kind 2: 38 bytes
	// <nil>
}
