package incremental

import (
	"errors"
	"iter"
	"testing"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
)

func FuzzJournal(f *testing.F) {
	list := func(metas, files []blobstore.Location) iter.Seq2[blobstore.Location, bool] {
		return func(yield func(blobstore.Location, bool) bool) {
			for _, l := range metas {
				if !yield(l, true) {
					return
				}
			}
			for _, l := range files {
				if !yield(l, false) {
					return
				}
			}
		}
	}
	var seeds []blobstore.Location
	for _, s := range []string{"s3a://b/ckp/job/shared/1", "/tmp/a b/\"x", "hdfs://nn/x/\x01\n", "abfss://c@a.dfs.core.windows.net/?/z"} {
		loc, err := blobstore.ParsePath(s)
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, loc)
	}
	f.Add(encodeJournal(list(seeds[:1], seeds)))
	f.Add(encodeJournal(list(nil, nil)))
	f.Fuzz(func(t *testing.T, data []byte) {
		metas, files, err := decodeJournal("j", data)
		if err != nil {
			if !errors.Is(err, damage.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, more, err := decodeJournal("j", encodeJournal(list(metas, files)))
		if err != nil || len(again) != len(metas) || len(more) != len(files) {
			t.Fatalf("%v %v: %v", again, more, err)
		}
		for i := range files {
			if files[i].Key() != more[i].Key() {
				t.Fatalf("%v became %v", files[i], more[i])
			}
		}
	})
}
