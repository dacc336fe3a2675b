// Package scale makes checkpoints of a chosen size for benchmarks and memory
// tests: the metadata a large job leaves, without its files.
package scale

import (
	"encoding/hex"
	"fmt"

	"github.com/tidemark/tidemark/metadata"
)

// Shape is how large a checkpoint is.
type Shape struct {
	Version        int32  // format version; default 4
	Operators      int    // default 10
	Subtasks       int    // of each operator; default 1,000
	SharedFiles    int    // of each subtask's incremental handle; default 50
	PrivateFiles   int    // of each subtask's incremental handle; default 0
	Root           string // folder above the job's; default hdfs://prod/flink/checkpoints
	MaxParallelism int32  // default 32,768
	FileSize       int64  // of each shared file; default 64 MiB
}

// Large is the 500,000-handle checkpoint of the benchmarks: 10 operators with
// 1,000 subtasks of 50 shared files each.
var Large = Shape{}

// Medium has 50,000 shared files: one operator with 1,000 subtasks of 50 shared
// and 5 private files and a metadata file each, on S3.
var Medium = Shape{Operators: 1, SharedFiles: 50, PrivateFiles: 5, Root: "s3://prod-flink/checkpoints"}

func (s Shape) withDefaults() Shape {
	def := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&s.Operators, 10)
	def(&s.Subtasks, 1000)
	def(&s.SharedFiles, 50)
	if s.Version == 0 {
		s.Version = metadata.DefaultVersion
	}
	if s.Root == "" {
		s.Root = "hdfs://prod/flink/checkpoints"
	}
	if s.MaxParallelism == 0 {
		s.MaxParallelism = 32768
	}
	if s.FileSize == 0 {
		s.FileSize = 64 << 20
	}
	return s
}

// Checkpoint makes an incremental checkpoint of that shape. It is the same on
// every call: file names are UUIDs out of a fixed sequence.
func Checkpoint(s Shape) *metadata.Checkpoint {
	s = s.withDefaults()
	g := &generator{Shape: s, state: 1}
	c := &metadata.Checkpoint{Version: s.Version, ID: 42}
	if s.Version >= 4 {
		c.Properties = metadata.NullProperties()
	}
	for i := range s.Operators {
		c.Operators = append(c.Operators, g.operator(i))
	}
	return c
}

type generator struct {
	Shape
	state uint64
}

// next is SplitMix64.
func (g *generator) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	z := g.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uuid is a random (version 4) UUID.
func (g *generator) uuid() string {
	var u [16]byte
	for i := range 8 {
		u[i], u[8+i] = byte(g.next()), byte(g.next())
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// JobID is the job whose folder the files lie in.
const JobID = "7f3c9f0e5a8d4b6c9a1e2d3c4b5a6978"

func (g *generator) operator(i int) metadata.OperatorState {
	o := metadata.OperatorState{
		ID:             metadata.OperatorIDFromUID(fmt.Sprintf("operator-%d", i)),
		Parallelism:    int32(g.Subtasks),
		MaxParallelism: g.MaxParallelism,
	}
	if g.Version >= 5 {
		o.UID = metadata.String(fmt.Sprintf("operator-%d", i))
		o.Name = metadata.String(fmt.Sprintf("Operator %d", i))
	}
	o.Subtasks = make([]metadata.SubtaskState, g.Subtasks)
	for j := range o.Subtasks {
		o.Subtasks[j] = metadata.SubtaskState{Index: int32(j), ManagedKeyed: g.incremental(j)}
	}
	return o
}

func (g *generator) incremental(subtask int) *metadata.IncrementalHandle {
	p, m := g.Subtasks, int(g.MaxParallelism)
	// Flink's KeyGroupRangeAssignment.
	first := (subtask*m + p - 1) / p
	last := ((subtask+1)*m - 1) / p
	h := &metadata.IncrementalHandle{
		Form:             metadata.TagIncremental,
		CheckpointID:     42,
		BackendID:        metadata.String(g.uuid()),
		Range:            metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)},
		CheckpointedSize: int64(g.PrivateFiles) * 512,
		Meta:             &metadata.RelativeFileHandle{Path: metadata.String(g.uuid()), Size: 3000},
		ID:               metadata.String(g.uuid()),
	}
	for k := range g.SharedFiles {
		h.Shared = append(h.Shared, metadata.NamedHandle{
			Name:   metadata.String(fmt.Sprintf("%06d.sst", 12+k)),
			Handle: &metadata.FileHandle{Path: metadata.String(g.Root + "/" + JobID + "/shared/" + g.uuid()), Size: g.FileSize},
		})
	}
	for k := range g.PrivateFiles {
		h.Private = append(h.Private, metadata.NamedHandle{
			Name:   metadata.String(privateName(k)),
			Handle: &metadata.RelativeFileHandle{Path: metadata.String(g.uuid()), Size: 512},
		})
	}
	return h
}

func privateName(k int) string {
	switch k {
	case 0:
		return "MANIFEST-000004"
	case 1:
		return "CURRENT"
	}
	return fmt.Sprintf("OPTIONS-%06d", 5+k)
}
