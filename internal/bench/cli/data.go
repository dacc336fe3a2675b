//go:build unix

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// noProperties is the Java object stream of null, as Flink writes it for absent
// checkpoint properties.
var noProperties = metadata.RawProperties{0xac, 0xed, 0x00, 0x05, 0x70}

// makeMetadata writes dir/_metadata of operators × subtasks incremental handles
// with files shared files each, on S3.
func makeMetadata(dir string, operators, subtasks, files int) error {
	r := rand.New(rand.NewPCG(5, 5))
	job := hex(r) + hex(r)
	maxParallelism := 128
	for maxParallelism < subtasks+subtasks/2 {
		maxParallelism *= 2
	}
	c := &metadata.Checkpoint{Version: metadata.DefaultVersion, ID: 42, Properties: noProperties}
	file := func(folder string) metadata.StreamHandle {
		return &metadata.FileHandle{
			Path: javaio.String("s3://bucket/checkpoints/" + job + "/" + folder + "/" + uuid(r)),
			Size: 1 + r.Int64N(64<<20),
		}
	}
	for range operators {
		op := metadata.OperatorState{Parallelism: int32(subtasks), MaxParallelism: int32(maxParallelism)}
		for i := range op.ID {
			op.ID[i] = byte(r.Uint32())
		}
		for i := range subtasks {
			start := (i*maxParallelism + subtasks - 1) / subtasks
			end := ((i+1)*maxParallelism - 1) / subtasks
			h := &metadata.IncrementalHandle{
				Form: metadata.TagIncremental, CheckpointID: 42, BackendID: javaio.String(uuid(r)),
				Range:            metadata.KeyGroupRange{Start: int32(start), Count: int32(end - start + 1)},
				CheckpointedSize: 1 << 20, Meta: file("chk-42"), ID: javaio.String(uuid(r)),
			}
			for k := range files {
				h.Shared = append(h.Shared, metadata.NamedHandle{Name: javaio.String(fmt.Sprintf("%06d.sst", 100+k)), Handle: file("shared")})
			}
			for _, name := range []string{"MANIFEST-000010", "OPTIONS-000012", "CURRENT", "000013.log", "IDENTITY"} {
				h.Private = append(h.Private, metadata.NamedHandle{Name: javaio.String(name), Handle: file("chk-42")})
			}
			op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(i), ManagedKeyed: h})
		}
		c.Operators = append(c.Operators, op)
	}
	return writeMetadata(dir, c)
}

func writeMetadata(dir string, c *metadata.Checkpoint) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "_metadata"))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := metadata.Encode(w, c); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// Shape of the large tree: each job has files in shared, two checkpoints that
// use some of them, partly the same, and the rest are used by none.
const (
	treeJobs       = 10
	treeShared     = 100_000
	treeUsed       = 45_000
	treeFirstOfTwo = 0
	treeFirstOfOne = 5_000
)

// makeTree makes 1,000,000 empty files below treeJobs job folders.
func makeTree(dir string) error {
	r := rand.New(rand.NewPCG(7, 7))
	for range treeJobs {
		job := filepath.Join(dir, hex(r)+hex(r))
		shared := filepath.Join(job, "shared")
		if err := os.MkdirAll(shared, 0o777); err != nil {
			return err
		}
		names := make([]string, treeShared)
		for i := range names {
			names[i] = filepath.Join(shared, uuid(r))
			f, err := os.Create(names[i])
			if err != nil {
				return err
			}
			f.Close()
		}
		for n, first := range []int{treeFirstOfOne, treeFirstOfTwo} {
			id := 42 + n
			if err := writeTreeCheckpoint(filepath.Join(job, fmt.Sprintf("chk-%d", id)), int64(id), names[first:first+treeUsed]); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeTreeCheckpoint(dir string, id int64, shared []string) error {
	const perSubtask = 50
	c := &metadata.Checkpoint{Version: metadata.DefaultVersion, ID: id, Properties: noProperties}
	op := metadata.OperatorState{Parallelism: int32(len(shared) / perSubtask), MaxParallelism: 1024}
	n := int(op.Parallelism)
	for i := range n {
		start := (i*1024 + n - 1) / n
		end := ((i+1)*1024 - 1) / n
		h := &metadata.IncrementalHandle{
			Form: metadata.TagIncremental, CheckpointID: id, BackendID: "0",
			Range: metadata.KeyGroupRange{Start: int32(start), Count: int32(end - start + 1)},
			Meta:  &metadata.ByteStreamHandle{Name: "meta", Data: []byte{0}}, ID: "0",
		}
		for k := range perSubtask {
			h.Shared = append(h.Shared, metadata.NamedHandle{
				Name:   javaio.String(fmt.Sprintf("%06d.sst", k)),
				Handle: &metadata.FileHandle{Path: javaio.String("file:" + shared[i*perSubtask+k])},
			})
		}
		op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(i), ManagedKeyed: h})
	}
	c.Operators = append(c.Operators, op)
	return writeMetadata(dir, c)
}

// makeSmall writes a checkpoint with everything inlined.
func makeSmall(dir string) error {
	c := &metadata.Checkpoint{Version: metadata.DefaultVersion, ID: 7, Properties: noProperties}
	for i := range 3 {
		op := metadata.OperatorState{ID: metadata.OperatorID{byte(i + 1)}, Parallelism: 2, MaxParallelism: 128}
		for s := range 2 {
			op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(s), ManagedKeyed: &metadata.KeyGroupsHandle{
				Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Start: int32(64 * s), Count: 64},
				Offsets: make([]int64, 64), Delegate: &metadata.ByteStreamHandle{Name: "x", Data: make([]byte, 100)},
			}})
		}
		c.Operators = append(c.Operators, op)
	}
	return writeMetadata(dir, c)
}

func hex(r *rand.Rand) string { return fmt.Sprintf("%016x", r.Uint64()) }

func uuid(r *rand.Rand) string {
	a, b := hex(r), hex(r)
	return a[:8] + "-" + a[8:12] + "-" + a[12:] + "-" + b[:4] + "-" + b[4:]
}
