package channel

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// eachUnaligned opens the snapshots of all goldens with data in flight.
func eachUnaligned(t *testing.T, f func(t *testing.T, c *testdata.Case, sn testdata.Snapshot, pool *blobstore.Pool, s *snapshot.Snapshot)) {
	checked := map[string]bool{}
	for _, c := range append(testdata.Goldens(t), testdata.AllGoldens(t)...) {
		if !strings.Contains(c.Name, "-unaligned") || checked[c.Name] {
			continue
		}
		checked[c.Name] = true
		for _, sn := range c.Snapshots {
			t.Run(c.Name, func(t *testing.T) {
				pool := blobstore.NewPool(nil, nil)
				defer pool.Close()
				loc, err := blobstore.Parse(c.File(sn.Path))
				require.NoError(t, err)
				s, err := snapshot.Open(t.Context(), pool, loc, nil)
				require.NoError(t, err)
				f(t, c, sn, pool, s)
			})
		}
	}
	require.NotEmpty(t, checked)
}

// The goldens' job: source, rebalance, pass-through, keyed exchange by value % 16,
// counter. Each of both exchanges gives its records back, at any parallelism, to the
// subtask that owns them: together exactly those that were in flight.
func TestFlinkInFlightDataIsRestored(t *testing.T) {
	eachUnaligned(t, func(t *testing.T, c *testdata.Case, sn testdata.Snapshot, _ *blobstore.Pool, s *snapshot.Snapshot) {
		var source, pass, slow metadata.OperatorID
		var others []metadata.OperatorID
		for i := range s.Checkpoint.Operators {
			o := &s.Checkpoint.Operators[i]
			var inputs, outputs int
			for k := range o.Subtasks {
				inputs += len(o.Subtasks[k].InputChannels)
				outputs += len(o.Subtasks[k].OutputChannels)
			}
			switch id := uidOf(c, o.ID.String()); {
			case id == "events":
				source = o.ID
			case id == "uid.slow":
				slow = o.ID
			case inputs+outputs > 0:
				pass = o.ID
			default:
				others = append(others, o.ID)
			}
		}
		require.NotZero(t, pass, others)
		want := inFlightRecords(t, c.File(sn.Expected))
		for parallelism := 1; parallelism <= 5; parallelism++ {
			var got []int64
			for _, e := range []Exchange{
				{Up: source, Down: pass, Mapper: RoundRobin, UpParallelism: 2, DownParallelism: parallelism},
				{Up: pass, Down: slow, Mapper: Range, UpParallelism: parallelism, DownParallelism: parallelism, MaxParallelism: c.MaxParallelism},
			} {
				for k := range parallelism {
					r, err := Restore(s, e, k)
					require.NoError(t, err)
					owner := func(b []byte) int {
						key := int64(binary.BigEndian.Uint64(b[9:])) % 16
						kg := serializer.AssignKeyGroup(int32(key), c.MaxParallelism) // of a Long below 2^31
						return serializer.SubtaskOf(kg, parallelism, c.MaxParallelism)
					}
					g := NewGate(0, e.UpParallelism)
					require.NoError(t, g.Recover(t.Context(), r, func(b []byte) (bool, error) { return owner(b) == k, nil }))
					for b := range recovered(t, g) {
						v := int64(binary.BigEndian.Uint64(b[9:]))
						require.EqualValues(t, 1000*v, binary.BigEndian.Uint64(b[1:]))
						if e.Mapper == Range {
							require.Equal(t, k, owner(b), "record %d", v)
						}
						got = append(got, v)
					}
				}
			}
			slices.Sort(got)
			require.Equal(t, want, got, "parallelism %d", parallelism)
		}
	})
}

func recovered(t *testing.T, g *Gate) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for {
			it, ok, err := g.Poll()
			require.NoError(t, err)
			if !ok {
				return
			}
			for e, ok := it.Records.Next(); ok; e, ok = it.Records.Next() {
				require.LessOrEqual(t, e[0], TagRecord)
				if !yield(e) {
					return
				}
			}
		}
	}
}

func inFlightRecords(t *testing.T, file string) []int64 {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		if !strings.Contains(sc.Text(), `"in-flight-records"`) {
			continue
		}
		var m struct{ Value []int64 }
		require.NoError(t, json.Unmarshal(sc.Bytes(), &m))
		slices.Sort(m.Value)
		return m.Value
	}
	t.Fatal("no in-flight records")
	return nil
}

// What Flink captured, captured by us in the same order, is the same file byte for
// byte, with the same offsets and sizes in the handles.
func TestChannelStateIsFlinks(t *testing.T) {
	eachUnaligned(t, func(t *testing.T, _ *testdata.Case, _ testdata.Snapshot, pool *blobstore.Pool, s *snapshot.Snapshot) {
		// The chunks of each file, in its order.
		type golden struct {
			handle metadata.StreamHandle
			chunks []goldenChunk
		}
		files := map[string]*golden{}
		for i := range s.Checkpoint.Operators {
			o := &s.Checkpoint.Operators[i]
			for k := range o.Subtasks {
				st := &o.Subtasks[k]
				for side, handles := range [][]metadata.ChannelHandle{st.InputChannels, st.OutputChannels} {
					for n := range handles {
						h := &handles[n]
						name := fmt.Sprintf("%v", s.Resolve(h.Delegate))
						if _, ok := h.Delegate.(*metadata.ByteStreamHandle); ok {
							// Inlined, each channel has a file of its own; the subtask had one.
							name = fmt.Sprintf("inline %d %d", i, h.Subtask)
						}
						f := files[name]
						if f == nil {
							f = &golden{handle: h.Delegate}
							files[name] = f
						}
						for _, c := range h.Channels {
							for _, o := range c.Offsets {
								f.chunks = append(f.chunks, goldenChunk{operator: i, subtask: h.Subtask, place: place{side == 1, c.Gate, c.Channel}, offset: o, size: c.Size, all: c.Offsets, delegate: h.Delegate})
							}
						}
					}
				}
			}
		}
		require.NotEmpty(t, files)
		for name, f := range files {
			inline := strings.HasPrefix(name, "inline")
			if !inline {
				slices.SortFunc(f.chunks, func(a, b goldenChunk) int { return cmp.Compare(a.offset, b.offset) })
			}
			loc, err := blobstore.Parse("mem://" + snapshot.NewJobID() + "/chk")
			require.NoError(t, err)
			opts := &snapshot.WriterOptions{MemoryThreshold: -1}
			if inline {
				opts.MemoryThreshold = 1 << 20
			}
			to, err := snapshot.NewWriter(t.Context(), pool, snapshot.SavepointIn(loc), opts)
			require.NoError(t, err)
			// One capture for each subtask that wrote into the file.
			type key struct {
				operator int
				subtask  int32
			}
			captures := map[key]*Capture{}
			var keys []key
			for _, c := range f.chunks {
				k := key{c.operator, c.subtask}
				if captures[k] == nil {
					captures[k] = NewCapture(1)
					keys = append(keys, k)
				}
			}
			out := NewStateFile(t.Context(), to, len(captures))
			written := map[key]map[place]*writtenAt{}
			for _, c := range f.chunks {
				src, _, err := s.OpenStream(t.Context(), c.delegate, false)
				require.NoError(t, err)
				var head [4]byte
				_, err = src.ReadAt(t.Context(), head[:], c.offset)
				require.NoError(t, err)
				b := make([]byte, binary.BigEndian.Uint32(head[:]))
				_, err = src.ReadAt(t.Context(), b, c.offset+4)
				if err != io.EOF {
					require.NoError(t, err)
				}
				k := key{c.operator, c.subtask}
				if written[k] == nil {
					written[k] = map[place]*writtenAt{}
				}
				ch := chunk{output: c.output, gate: c.gate, channel: c.channel, data: b}
				captures[k].add(ch)
				// In the file's order, which is that of the captures' threads.
				chunks, _, err := captures[k].take()
				require.NoError(t, err)
				m := map[place]*channelBytes{}
				require.NoError(t, out.write(&chunks[0], m))
				w := written[k][c.place]
				if w == nil {
					w = &writtenAt{}
					written[k][c.place] = w
				}
				w.offsets = append(w.offsets, m[c.place].offsets...)
				w.size += m[c.place].size
			}
			results := map[key]*State{}
			for range keys {
				require.NoError(t, out.done())
			}
			for _, k := range keys {
				m := map[place]*channelBytes{}
				for p, w := range written[k] {
					m[p] = &channelBytes{place: p, offsets: w.offsets, size: w.size}
				}
				st, err := out.state(captures[k], m, out.handle, k.subtask)
				require.NoError(t, err)
				results[k] = st
			}
			got := map[string]metadata.ChannelOffsets{}
			for k, st := range results {
				for side, handles := range [][]metadata.ChannelHandle{st.Inputs, st.Outputs} {
					for _, h := range handles {
						require.Len(t, h.Channels, 1)
						require.Equal(t, h.Size, h.Channels[0].Size)
						require.Equal(t, k.subtask, h.Subtask)
						c := h.Channels[0]
						got[fmt.Sprint(k.operator, k.subtask, side == 1, c.Gate, c.Channel)] = c
						if inline {
							for _, g := range f.chunks {
								if g.operator == k.operator && g.subtask == k.subtask && g.place == (place{side == 1, c.Gate, c.Channel}) {
									require.Equal(t, g.delegate.(*metadata.ByteStreamHandle).Data, h.Delegate.(*metadata.ByteStreamHandle).Data)
								}
							}
						}
					}
				}
			}
			for _, c := range f.chunks {
				g := got[fmt.Sprint(c.operator, c.subtask, c.output, c.gate, c.channel)]
				require.Equal(t, c.all, g.Offsets)
				require.Equal(t, c.size, g.Size)
			}
			if inline {
				continue
			}
			want, _, err := s.OpenStream(t.Context(), f.handle, false)
			require.NoError(t, err)
			wantBytes := make([]byte, want.Size())
			_, err = want.ReadAt(t.Context(), wantBytes, 0)
			if err != io.EOF {
				require.NoError(t, err)
			}
			name := out.handle.(*metadata.RelativeFileHandle).Path
			store, at, err := pool.Resolve(t.Context(), loc.Join(name.String()))
			require.NoError(t, err)
			r, err := store.Open(t.Context(), at)
			require.NoError(t, err)
			gotBytes, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			require.Equal(t, wantBytes, gotBytes)
		}
	})
}

type goldenChunk struct {
	operator int
	subtask  int32
	place
	offset   int64
	size     int64
	all      []int64
	delegate metadata.StreamHandle
}

type writtenAt struct {
	offsets []int64
	size    int64
}

func uidOf(c *testdata.Case, id string) string {
	for _, o := range c.Operators {
		if o.ID == id {
			return o.UID
		}
	}
	return ""
}
