//go:build linux

package main

import (
	"os"
	"sync"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/serializer"
)

// backend is the one that is measured.
type backend = keyed.Backend[int64]

var process = sync.OnceValue(func() *lsm.Process { return lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: *budget << 20}) })

// open opens an empty backend of the kind that -backend says.
func open() backend {
	c := keyed.Config[int64]{Key: serializer.Int64}
	if *kind == "heap" {
		b, err := heap.Open(c)
		must(err)
		return b
	}
	dir, err := os.MkdirTemp("", "backend")
	must(err)
	return openIn(dir, c)
}

// openIn opens an LSM backend that removes its folder.
func openIn(dir string, c keyed.Config[int64]) backend {
	b, err := lsm.Open(dir, c, &lsm.Options{Process: process()})
	must(err)
	return &inDir{b, dir}
}

// inDir is a backend that removes its folder.
type inDir struct {
	backend
	dir string
}

func (b *inDir) Close() error {
	must(b.backend.Close())
	return os.RemoveAll(b.dir)
}
