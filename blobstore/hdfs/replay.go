package hdfs

import (
	"bytes"
	"io"
	"os"
)

// replay keeps what has been written of an object, for another try. Hadoop's own
// client repairs the chain of datanodes when one of them dies; the Go library and
// a broken WebHDFS upload can only begin again.
type replay struct {
	max  int64 // bytes; what is larger is not kept at all
	size int64
	lost bool // more than max was written, or the local disk failed
	mem  []byte
	file *os.File // nil while mem holds all
}

// replayMemory is how much is kept in memory before a local file is made.
const replayMemory = 1 << 20

func (r *replay) add(p []byte) {
	if r.lost {
		return
	}
	r.size += int64(len(p))
	if r.size > r.max {
		r.drop()
		return
	}
	if r.file == nil && r.size <= replayMemory {
		r.mem = append(r.mem, p...)
		return
	}
	if r.file == nil && !r.spill() {
		r.drop()
		return
	}
	if _, err := r.file.Write(p); err != nil {
		r.drop()
	}
}

func (r *replay) spill() bool {
	f, err := os.CreateTemp("", "tidemark-replay-*") // mode 0600
	if err != nil {
		return false
	}
	r.file = f
	os.Remove(f.Name()) // gone with the process; fails on Windows, where close does it
	if _, err := f.Write(r.mem); err != nil {
		return false
	}
	r.mem = nil
	return true
}

// reader reads all that was added.
func (r *replay) reader() io.Reader {
	if r.file == nil {
		return bytes.NewReader(r.mem)
	}
	return io.NewSectionReader(r.file, 0, r.size)
}

func (r *replay) drop() {
	r.lost = true
	r.close()
}

func (r *replay) close() {
	r.mem = nil
	if r.file != nil {
		r.file.Close()
		os.Remove(r.file.Name())
		r.file = nil
	}
}
