package channel

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// State is the channel state that a subtask wrote.
type State struct {
	// Inputs by gate and channel, Outputs by partition and subpartition. A channel
	// that had nothing in flight has no handle. The handles are those of metadata
	// versions 3 to 5; metadata.Convert makes those of later ones.
	Inputs, Outputs []metadata.ChannelHandle
	// Bytes is what was captured (Flink's persisted in-flight data).
	Bytes int64
}

// DefaultSubtasksPerFile is Flink's
// execution.checkpointing.unaligned.max-subtasks-per-channel-state-file.
const DefaultSubtasksPerFile = 5

// ErrSharedFile says that another subtask that writes into the same file failed
// (Flink's CHANNEL_STATE_SHARED_STREAM_EXCEPTION).
var ErrSharedFile = errors.New("another subtask that writes into the same channel state file failed")

// Write writes what is captured into a file of the checkpoint and waits until
// InputsDone and OutputsDone were called and no barrier of the outputs may time out
// any more. Without any data it writes nothing. The error is that of Abort, of ctx
// or of the store; the capture is aborted then, and nothing is left of the file.
func (c *Capture) Write(ctx context.Context, to *snapshot.Writer, subtask int32) (*State, error) {
	return NewStateFile(ctx, to, 1).Write(ctx, c, subtask)
}

// StateFile is a file of channel state that several subtasks of one checkpoint
// write into at the same time (Flink's ChannelStateCheckpointWriter):
//
//	file  := int32 0  chunk*
//	chunk := int32 length  bytes          one network buffer
//
// It is written when the last of them is done; if one fails all do.
type StateFile struct {
	to  *snapshot.Writer
	ctx context.Context

	mu     sync.Mutex
	out    *snapshot.FileWriter
	left   int // subtasks that are not done
	failed error
	closed chan struct{} // closed when left is 0 or it failed
	handle metadata.StreamHandle
}

// NewStateFile begins a file for that many subtasks, each of which calls Write
// once. ctx holds until the last is done.
func NewStateFile(ctx context.Context, to *snapshot.Writer, subtasks int) *StateFile {
	return &StateFile{to: to, ctx: ctx, left: subtasks, closed: make(chan struct{})}
}

// place names a channel of a subtask.
type place struct {
	output        bool
	gate, channel int32
}

func (a place) compare(b place) int {
	out := func(p place) int {
		if p.output {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(out(a), out(b)), cmp.Compare(a.gate, b.gate), cmp.Compare(a.channel, b.channel))
}

// channelBytes is what the file has of a channel.
type channelBytes struct {
	place
	offsets []int64
	size    int64 // the lengths included
}

// Write is Capture.Write into the shared file. It returns when all subtasks are
// done; its error is ErrSharedFile if another one failed.
func (f *StateFile) Write(ctx context.Context, c *Capture, subtask int32) (*State, error) {
	channels := map[place]*channelBytes{}
	for {
		chunks, done, err := c.take()
		for i := range chunks {
			if err == nil {
				err = f.write(&chunks[i], channels)
			}
			chunks[i].drop()
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the store says only that it ended
		}
		if err != nil {
			return nil, f.fail(c, err)
		}
		if done {
			break
		}
		select {
		case <-c.changed:
		case <-f.closed: // before this subtask is done: another failed
			return nil, f.fail(c, ErrSharedFile)
		case <-ctx.Done():
			return nil, f.fail(c, context.Cause(ctx))
		}
	}
	if err := f.done(); err != nil {
		return nil, f.fail(c, err)
	}
	select {
	case <-f.closed:
	case <-ctx.Done():
		return nil, f.fail(c, context.Cause(ctx))
	}
	f.mu.Lock()
	handle, err := f.handle, f.failed
	f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSharedFile, err)
	}
	return f.state(c, channels, handle, subtask)
}

// take gives what was captured since; done says that nothing more comes.
func (c *Capture) take() (chunks []chunk, done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	chunks, c.chunks = c.chunks, nil
	return chunks, c.inputs && c.emitted && c.awaited == 0, c.aborted
}

func (f *StateFile) write(k *chunk, channels map[place]*channelBytes) error {
	if len(k.data) == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return fmt.Errorf("%w: %w", ErrSharedFile, f.failed)
	}
	var head [4]byte
	if f.out == nil {
		f.out = f.to.File(f.ctx, snapshot.ScopeExclusive)
		if _, err := f.out.Write(head[:]); err != nil {
			return err
		}
	}
	at := f.out.Size()
	binary.BigEndian.PutUint32(head[:], uint32(len(k.data)))
	if _, err := f.out.Write(head[:]); err != nil {
		return err
	}
	if _, err := f.out.Write(k.data); err != nil {
		return err
	}
	p := place{k.output, k.gate, k.channel}
	w := channels[p]
	if w == nil {
		w = &channelBytes{place: p}
		channels[p] = w
	}
	w.offsets = append(w.offsets, at)
	w.size += f.out.Size() - at
	return nil
}

// done counts a subtask; the last closes the file.
func (f *StateFile) done() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed != nil {
		return fmt.Errorf("%w: %w", ErrSharedFile, f.failed)
	}
	f.left--
	if f.left > 0 {
		return nil
	}
	if f.out != nil {
		handle, err := f.out.Close()
		if err != nil {
			return err
		}
		f.handle = handle
	}
	close(f.closed)
	return nil
}

// fail aborts the capture, and the file for all.
func (f *StateFile) fail(c *Capture, err error) error {
	c.Abort(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil && f.left > 0 {
		f.failed = err
		if f.out != nil {
			err = errors.Join(err, f.out.Abort())
		}
		close(f.closed)
	}
	return err
}

// state makes the handles of a subtask.
func (f *StateFile) state(c *Capture, channels map[place]*channelBytes, handle metadata.StreamHandle, subtask int32) (*State, error) {
	out := &State{}
	list := make([]*channelBytes, 0, len(channels))
	for _, w := range channels {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *channelBytes) int { return a.compare(b.place) })
	for _, w := range list {
		h := metadata.ChannelHandle{Subtask: subtask, Size: w.size, Delegate: handle}
		offsets := w.offsets
		if inline, ok := handle.(*metadata.ByteStreamHandle); ok {
			// Flink gives each channel its own bytes then, in one chunk.
			h.Delegate = ownBytes(inline.Data, offsets, w.size)
			offsets = []int64{4}
			h.Size = w.size - 4*int64(len(w.offsets)) + 8
		}
		h.Channels = []metadata.ChannelOffsets{{Gate: w.gate, Channel: w.channel, Size: h.Size, Offsets: offsets}}
		if w.output {
			out.Outputs = append(out.Outputs, h)
		} else {
			out.Inputs = append(out.Inputs, h)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out.Bytes = c.bytes
	return out, nil
}

// ownBytes copies the chunks at offsets out of a file, into one chunk of a file of
// its own.
func ownBytes(file []byte, offsets []int64, size int64) *metadata.ByteStreamHandle {
	total := size - 4*int64(len(offsets))
	data := make([]byte, 4, 8+total)
	data = binary.BigEndian.AppendUint32(data, uint32(total))
	for _, o := range offsets {
		n := int64(binary.BigEndian.Uint32(file[o:]))
		data = append(data, file[o+4:o+4+n]...)
	}
	return &metadata.ByteStreamHandle{Name: javaio.NewString(uuid.NewString()), Data: data}
}
