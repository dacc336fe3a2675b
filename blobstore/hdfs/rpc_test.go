package hdfs

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemark/tidemark/blobstore"
)

// fakeNamenode answers calls of Hadoop's RPC as answer says.
type fakeNamenode struct {
	addr string

	mu    sync.Mutex
	calls []fakeCall
	conns int
}

type fakeCall struct {
	method   string
	id       int32
	retry    int32
	clientID string
	user     string
	body     []byte
}

// answer gives the packet of a response; nil closes the connection, empty is silence.
func newFakeNamenode(t testing.TB, answer func(c fakeCall, n int) []byte) *fakeNamenode {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeNamenode{addr: l.Addr().String()}
	var wg sync.WaitGroup
	var conns sync.Map
	t.Cleanup(func() {
		l.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(c, nil)
			f.mu.Lock()
			f.conns++
			f.mu.Unlock()
			wg.Go(func() { defer c.Close(); f.serve(c, answer) })
		}
	})
	return f
}

func (f *fakeNamenode) serve(c net.Conn, answer func(fakeCall, int) []byte) {
	r := bufio.NewReader(c)
	head := make([]byte, 7)
	if _, err := io.ReadFull(r, head); err != nil || string(head) != "hrpc\x09\x00\x00" {
		return
	}
	user := ""
	for {
		packet, err := readPacket(r)
		if err != nil {
			return
		}
		var call fakeCall
		header, n := protowire.ConsumeBytes(packet)
		packet = packet[n:]
		eachField(header, func(num protowire.Number, v uint64, data []byte) error {
			switch num {
			case 3:
				call.id = int32(protowire.DecodeZigZag(v))
			case 4:
				call.clientID = string(data)
			case 5:
				call.retry = int32(protowire.DecodeZigZag(v))
			}
			return nil
		})
		msg, n := protowire.ConsumeBytes(packet)
		packet = packet[n:]
		if call.id == callContext {
			eachField(msg, func(num protowire.Number, _ uint64, data []byte) error {
				if num == 2 {
					eachField(data, func(_ protowire.Number, _ uint64, name []byte) error { user = string(name); return nil })
				}
				return nil
			})
			continue
		}
		eachField(msg, func(num protowire.Number, _ uint64, data []byte) error {
			if num == 1 {
				call.method = string(data)
			}
			return nil
		})
		call.user = user
		call.body, _ = protowire.ConsumeBytes(packet)
		f.mu.Lock()
		f.calls = append(f.calls, call)
		k := len(f.calls)
		f.mu.Unlock()
		a := answer(call, k)
		if a == nil {
			return
		}
		if len(a) > 0 {
			c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(a))), a...))
		}
	}
}

func (f *fakeNamenode) seen() []fakeCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]fakeCall(nil), f.calls...)
}

func fileAnswer(c fakeCall) []byte {
	return response(uint32(c.id), 0, "", "", appendBytes(nil, 1, fileStatusProto("x", 2, 77, 5, 0)))
}

func remoteAnswer(c fakeCall, class string) []byte {
	return response(uint32(c.id), 1, "org.apache.hadoop."+class, "as said", nil)
}

func openFake(t testing.TB, authority string, config ...string) *store {
	t.Setenv("HADOOP_CONF_DIR", "")
	opts := &blobstore.Options{Config: map[string]string{KeyRetryMillis: "1000", "ipc.client.rpc-timeout.ms": "60000"}}
	for i := 0; i < len(config); i += 2 {
		opts.Config[config[i]] = config[i+1]
	}
	s, err := openStore(blobstore.Location{Scheme: "hdfs", Authority: authority, Query: "user=alice"}, opts)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRPC(t *testing.T) {
	f := newFakeNamenode(t, func(c fakeCall, _ int) []byte { return fileAnswer(c) })
	s := openFake(t, f.addr)
	for range 3 {
		info, err := s.Stat(t.Context(), "d/x")
		require.NoError(t, err)
		require.EqualValues(t, 77, info.Size)
	}
	calls := f.seen()
	require.Len(t, calls, 3)
	require.Equal(t, 1, f.conns, "the connection is used again")
	require.Equal(t, "getFileInfo", calls[0].method)
	require.Equal(t, "alice", calls[0].user)
	require.Equal(t, appendString(nil, 1, "/d/x"), calls[0].body)
	require.Len(t, calls[0].clientID, 16, "a namenode remembers answers for IDs of 16 bytes only")
	require.NotEqual(t, calls[0].id, calls[1].id)
}

// A call whose answer is lost is repeated under the same ID, at the other namenode
// too, so that it gets the first one's answer.
func TestRPCLostAnswer(t *testing.T) {
	var a, b *fakeNamenode
	a = newFakeNamenode(t, func(c fakeCall, n int) []byte { return nil })
	b = newFakeNamenode(t, func(c fakeCall, n int) []byte {
		if n == 1 {
			return remoteAnswer(c, "ipc.StandbyException")
		}
		return response(uint32(c.id), 0, "", "", nil)
	})
	s := openFake(t, a.addr+","+b.addr)
	require.NoError(t, s.b.rename(t.Context(), "/t", "/x", false))
	all := append(a.seen(), b.seen()...)
	require.GreaterOrEqual(t, len(all), 3)
	for _, c := range all {
		require.Equal(t, all[0].id, c.id)
		require.Equal(t, all[0].clientID, c.clientID)
		require.Equal(t, "rename2", c.method)
		require.Equal(t, appendVarint(appendString(appendString(nil, 1, "/t"), 2, "/x"), 3, 0), c.body)
	}
	require.EqualValues(t, -1, all[0].retry)
	require.Positive(t, b.seen()[1].retry)
	n := len(a.seen())
	require.NoError(t, s.b.rename(t.Context(), "/t", "/x", true))
	require.Len(t, a.seen(), n, "the active one is known now")
}

// A server closes connections that are idle; a call notices that only when it writes or reads.
func TestRPCIdleConnectionClosed(t *testing.T) {
	f := newFakeNamenode(t, func(c fakeCall, n int) []byte {
		if n == 2 {
			return nil
		}
		return fileAnswer(c)
	})
	defer func(d time.Duration) { firstPause = d }(firstPause)
	firstPause = time.Hour // more than is left for another try
	s := openFake(t, f.addr)
	for range 2 {
		_, err := s.Stat(t.Context(), "x")
		require.NoError(t, err, "without a pause")
	}
}

func TestRPCFailures(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(fakeCall) []byte
		want   string
		is     error
		once   bool
	}{
		"silent":               {func(fakeCall) []byte { return []byte{} }, "no progress for 100ms", blobstore.ErrTemporary, false},
		"closes":               {func(fakeCall) []byte { return nil }, "EOF", blobstore.ErrTemporary, false},
		"standby":              {func(c fakeCall) []byte { return remoteAnswer(c, "ipc.StandbyException") }, "StandbyException", blobstore.ErrTemporary, false},
		"starting":             {func(c fakeCall) []byte { return remoteAnswer(c, "ipc.RetriableException") }, "RetriableException", blobstore.ErrTemporary, false},
		"permission":           {func(c fakeCall) []byte { return remoteAnswer(c, "security.AccessControlException") }, "as said", blobstore.ErrPermission, true},
		"answers another call": {func(c fakeCall) []byte { c.id++; return fileAnswer(c) }, "instead of", blobstore.ErrTemporary, false},
		"garbage":              {func(fakeCall) []byte { return []byte("HTTP/1.1 400 Bad Request") }, "does not speak Hadoop RPC", blobstore.ErrTemporary, false},
		"bad message":          {func(c fakeCall) []byte { return response(uint32(c.id), 0, "", "", []byte{10, 99}) }, "not a protocol buffer", nil, true},
		"nothing there":        {func(c fakeCall) []byte { return response(uint32(c.id), 0, "", "", nil) }, "does not exist", blobstore.ErrNotExist, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNamenode(t, func(call fakeCall, _ int) []byte { return c.answer(call) })
			var config []string
			if name == "silent" {
				config = []string{"ipc.client.rpc-timeout.ms", "100"}
			}
			s := openFake(t, f.addr, config...)
			start := time.Now()
			_, err := s.Stat(t.Context(), "x")
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			require.Less(t, time.Since(start), time.Minute)
			if c.once {
				require.Len(t, f.seen(), 1)
			} else {
				require.Greater(t, len(f.seen()), 1, "tried again")
			}
		})
	}
}

func TestRPCCancel(t *testing.T) {
	f := newFakeNamenode(t, func(fakeCall, int) []byte { return []byte{} })
	s := openFake(t, f.addr, "ipc.client.rpc-timeout.ms", "600000")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	_, err := s.Stat(ctx, "x")
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(start), time.Minute)
	_, err = s.Stat(ctx, "x")
	require.ErrorIs(t, err, context.Canceled)
}

// A writer of a manually set safe mode does not wait, one of a starting namenode does.
func TestRPCSafeMode(t *testing.T) {
	for text, again := range map[string]bool{"Name node is in safe mode.\nIt was turned on manually.": false, "Name node is in safe mode.\nThe reported blocks 0 needs additional 5": true} {
		f := newFakeNamenode(t, func(c fakeCall, _ int) []byte {
			return response(uint32(c.id), 1, "org.apache.hadoop.hdfs.server.namenode.SafeModeException", text, nil)
		})
		_, err := openFake(t, f.addr).b.remove(t.Context(), "/x")
		require.ErrorIs(t, err, blobstore.ErrTemporary)
		require.ErrorContains(t, err, "safe mode")
		require.Equal(t, again, len(f.seen()) > 1, text)
	}
}

// The namenode's defaults say that blocks are encrypted: nothing is read or written.
func TestRefusesProtectedBlocks(t *testing.T) {
	f := newFakeNamenode(t, func(c fakeCall, _ int) []byte {
		if c.method == "getServerDefaults" {
			d := appendVarint(nil, 1, 1<<27)
			d = appendVarint(d, 4, 3)
			return response(uint32(c.id), 0, "", "", appendBytes(nil, 1, appendVarint(d, 6, 1)))
		}
		return response(uint32(c.id), 0, "", "", appendBytes(nil, 1, fileStatusProto("d", 1, 0, 5, 0)))
	})
	s := openFake(t, f.addr)
	_, err := s.Open(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrUnsupported)
	require.ErrorContains(t, err, "webhdfs://")
	_, err = s.Create(t.Context(), "x", nil)
	require.ErrorIs(t, err, blobstore.ErrUnsupported)
	for _, p := range []string{"integrity", "privacy", "authentication,privacy"} {
		_, err := openStore(blobstore.Location{Scheme: "hdfs", Authority: "nn"}, &blobstore.Options{Config: map[string]string{"dfs.data.transfer.protection": p}})
		require.ErrorIs(t, err, blobstore.ErrUnsupported)
		require.True(t, strings.Contains(err.Error(), "webhdfs"), err)
	}
}
