package hdfs

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// limitedConn is a connection of which each Read and each Write must make
// progress within limit. SetDeadline and its sisters do nothing: the client
// library takes limits off while it connects. On any error it closes itself,
// since a connection with half an answer in it must not be used again.
type limitedConn struct {
	net.Conn
	limit   time.Duration
	onClose func(*limitedConn) // called once
	// data is not nil for a connection to a datanode.
	data *dataConns

	closeOnce sync.Once
	failed    atomic.Bool
	block     *blockStream // not nil once a block is being read
}

// dataConns is what the connections of a session to datanodes share.
type dataConns struct {
	// minChunk is the smallest checksum chunk that a block may have that is read;
	// see chunkRead.
	minChunk atomic.Int32

	mu       sync.Mutex
	writeErr error // the first error of a connection that writes a block
}

func (d *dataConns) noteWrite(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writeErr == nil {
		d.writeErr = err
	}
}

func (d *dataConns) writeError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writeErr
}

func (c *limitedConn) SetDeadline(time.Time) error      { return nil }
func (c *limitedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *limitedConn) SetWriteDeadline(time.Time) error { return nil }

func (c *limitedConn) Close() error {
	var err error
	c.closeOnce.Do(func() {
		err = c.Conn.Close()
		if c.onClose != nil {
			c.onClose(c)
		}
	})
	return err
}

func (c *limitedConn) Read(p []byte) (int, error) {
	if c.block != nil {
		n, err := c.block.read(p)
		if err != nil {
			c.Close()
		}
		return n, err
	}
	n, err := c.rawRead(p)
	if err != nil && c.data != nil {
		c.data.noteWrite(err)
	}
	return n, err
}

func (c *limitedConn) rawRead(p []byte) (int, error) {
	c.Conn.SetReadDeadline(time.Now().Add(c.limit))
	n, err := c.Conn.Read(p)
	if err != nil {
		err = c.fail("read", err)
	}
	return n, err
}

// Write writes to a namenode or datanode. The client library leaves a goroutine
// behind when writing a block fails: it waits for a channel that is closed only
// when the last packet has been written. So to a datanode every Write succeeds;
// that it did not is kept in data, and the next Read, of an acknowledgement,
// fails.
func (c *limitedConn) Write(p []byte) (int, error) {
	if c.data != nil && c.failed.Load() {
		return len(p), nil
	}
	if c.data != nil && c.block == nil && len(p) >= len(readBlockOp) && string(p[:len(readBlockOp)]) == readBlockOp {
		c.block = &blockStream{r: blockBuffers.Get().(*bufio.Reader), minChunk: int(c.data.minChunk.Load())}
		c.block.r.Reset(rawReader{c})
	}
	c.Conn.SetWriteDeadline(time.Now().Add(c.limit))
	n, err := c.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	err = c.fail("write", err)
	if c.data != nil {
		c.data.noteWrite(err)
		return len(p), nil
	}
	return n, err
}

func (c *limitedConn) fail(what string, err error) error {
	c.failed.Store(true)
	c.Close()
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return fmt.Errorf("%s %s: no progress for %v: %w", what, c.Conn.RemoteAddr(), c.limit, errTimeout)
	}
	return err
}

var errTimeout net.Error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string   { return "timed out" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

type rawReader struct{ c *limitedConn }

func (r rawReader) Read(p []byte) (int, error) { return r.c.rawRead(p) }

// readBlockOp begins the message that asks a datanode for a block: version 28 as
// an int16, operation 0x51. Packets of written blocks begin with their length,
// at most some 66,000.
const readBlockOp = "\x00\x1c\x51"

// blockStream buffers what a datanode sends of a block, so that the library's
// many small reads cost no system calls, and looks at the datanode's answer
// before the library does.
type blockStream struct {
	r        *bufio.Reader
	checked  bool
	minChunk int // as in dataConns
}

const blockBufferSize = 128 << 10

var blockBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, blockBufferSize) }}

func (b *blockStream) read(p []byte) (int, error) {
	if !b.checked {
		chunk, err := peekChunk(b.r)
		if err != nil {
			return 0, err
		}
		b.checked = true
		if chunk > 0 && chunk < b.minChunk {
			return 0, &smallChunkError{chunk}
		}
	}
	return b.r.Read(p)
}

// smallChunkError says that a block's checksums cover so few bytes each that reads
// of the current size would not notice wrong ones; see chunkRead.
type smallChunkError struct{ chunk int }

func (e *smallChunkError) Error() string {
	return fmt.Sprintf("the file has a checksum for every %d bytes", e.chunk)
}

// peekChunk reads, without consuming it, the answer to a request for a block and
// gives the bytes per checksum in it, 0 if it has none. The answer is a varint
// length and a BlockOpResponseProto:
//
//	field 4  ReadOpChecksumInfoProto
//	         field 1  ChecksumProto: field 1 type (0 none), field 2 bytes per checksum
func peekChunk(r *bufio.Reader) (int, error) {
	var head []byte
	n, used := uint64(0), 0
	for i := 1; used <= 0; i++ {
		var err error
		if head, err = r.Peek(i); err != nil {
			return 0, noEOF(err)
		}
		if n, used = binary.Uvarint(head); used < 0 || i > binary.MaxVarintLen32 {
			return 0, errors.New("the datanode's answer has no length")
		}
	}
	if n > blockBufferSize/2 {
		return 0, fmt.Errorf("the datanode's answer is %d bytes long", n)
	}
	msg, err := r.Peek(used + int(n))
	if err != nil {
		return 0, noEOF(err)
	}
	kind, chunk := uint64(0), uint64(0)
	err = eachField(msg[used:], func(num protowire.Number, _ uint64, info []byte) error {
		if num != 4 {
			return nil
		}
		return eachField(info, func(num protowire.Number, _ uint64, sum []byte) error {
			if num != 1 {
				return nil
			}
			return eachField(sum, func(num protowire.Number, v uint64, _ []byte) error {
				switch num {
				case 1:
					kind = v
				case 2:
					chunk = v
				}
				return nil
			})
		})
	})
	if err != nil {
		return 0, fmt.Errorf("the datanode's answer: %w", err)
	}
	if kind == 0 || chunk > 1<<30 {
		return 0, nil
	}
	return int(chunk), nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// dialFunc makes a TCP connection.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dial connects within the time limit for it.
func (s *settings) dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connectTimeout)
	defer cancel()
	return s.dialer(ctx, "tcp", addr)
}
