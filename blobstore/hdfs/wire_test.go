package hdfs

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

// fileStatusProto is what a namenode says of a file.
func fileStatusProto(name string, kind, size, id, flags uint64) []byte {
	b := appendVarint(nil, 1, kind)
	b = appendString(b, 2, name)
	b = appendVarint(b, 3, size)
	b = appendBytes(b, 4, appendVarint(nil, 1, 0o644))
	b = appendString(b, 5, "alice")
	b = appendVarint(b, 7, 1_700_000_000_123)
	b = appendVarint(b, 13, id)
	return appendVarint(b, 18, flags)
}

func TestDecodeStatus(t *testing.T) {
	s, err := decodeStatus(fileStatusProto("x", 2, 77, 16_400, 4))
	require.NoError(t, err)
	require.Equal(t, status{name: "x", size: 77, modMillis: 1_700_000_000_123, fileID: 16_400, erasureCode: true}, s)
	s, err = decodeStatus(fileStatusProto("d", 1, 0, 5, 2))
	require.NoError(t, err)
	require.True(t, s.dir && s.encrypted && !s.erasureCode)
	_, err = decodeStatus(fileStatusProto("x", 2, 1<<63, 5, 0))
	require.ErrorContains(t, err, "negative length")
	whole := fileStatusProto("x", 2, 77, 16_400, 4)
	for n := range whole {
		decodeStatus(whole[:n]) // an error or less, never a panic
	}
}

func TestDecodePage(t *testing.T) {
	msg := appendBytes(nil, 1, fileStatusProto("a", 2, 1, 1, 0))
	msg = appendBytes(msg, 1, fileStatusProto("b", 1, 0, 2, 0))
	p, err := decodePage(appendVarint(msg, 2, 7))
	require.NoError(t, err)
	require.True(t, p.more)
	require.Equal(t, []string{"a", "b"}, []string{p.entries[0].name, p.entries[1].name})

	many := bytes.Repeat(appendBytes(nil, 1, nil), maxPage+1)
	_, err = decodePage(many)
	require.ErrorContains(t, err, "more than")
}

func response(id uint32, status uint64, class, message string, body []byte) []byte {
	h := appendVarint(nil, 1, uint64(id))
	h = appendVarint(h, 2, status)
	if class != "" {
		h = appendString(h, 4, class)
		h = appendString(h, 5, message)
	}
	b := appendDelimited(nil, h)
	if body != nil {
		b = appendDelimited(b, body)
	}
	return b
}

func TestDecodeResponse(t *testing.T) {
	r, err := decodeResponse(response(7, 0, "", "", []byte{8, 1}))
	require.NoError(t, err)
	require.Equal(t, rpcResponse{callID: 7, body: []byte{8, 1}}, r)
	r, err = decodeResponse(response(0xfffffffd, 2, "org.apache.hadoop.security.AccessControlException", "no\nat x", nil))
	require.NoError(t, err)
	require.True(t, r.fatal)
	require.ErrorIs(t, r.err, blobstore.ErrPermission)
	require.EqualValues(t, callContext, r.callID)
	for name, packet := range map[string][]byte{
		"empty":            {},
		"length too large": {200, 1, 0},
		"rest":             append(response(7, 0, "", "", []byte{8, 1}), 1),
		"no message":       appendDelimited(nil, []byte{7}),
	} {
		_, err := decodeResponse(packet)
		require.ErrorIs(t, err, errWire, name)
	}
}

func TestReadPacket(t *testing.T) {
	packet := func(n uint32, b []byte) *bufio.Reader {
		return bufio.NewReader(bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, n), b...)))
	}
	big := pattern100k()
	b, err := readPacket(packet(uint32(len(big)), big))
	require.NoError(t, err)
	require.Equal(t, big, b)
	_, err = readPacket(packet(1<<31, nil))
	require.ErrorContains(t, err, "2147483648 bytes")
	for _, n := range []uint32{5, maxRPCMessage} { // more than comes: no allocation of that size
		allocated := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				readPacket(packet(n, []byte("abc")))
			}
		}).AllocedBytesPerOp()
		require.Less(t, allocated, int64(100_000), "length %d", n)
		_, err = readPacket(packet(n, []byte("abc")))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

func pattern100k() []byte { return bytes.Repeat([]byte("0123456789"), 10_000) }

func TestRemoteError(t *testing.T) {
	for name, c := range map[string]struct {
		class, message, text string
		is                   error
	}{
		"stack trace": {"java.io.FileNotFoundException", "File does not exist: /x\n\tat org.apache.X.y(X.java:1)\n", "FileNotFoundException: File does not exist: /x", blobstore.ErrNotExist},
		"two lines":   {"org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot.\nIt was turned on manually.\n\tat x", "SafeModeException: Cannot. It was turned on manually.", blobstore.ErrTemporary},
		"inner class": {"org.apache.hadoop.security.token.SecretManager$InvalidToken", "expired", "InvalidToken: expired", blobstore.ErrPermission},
		"below file":  {"org.apache.hadoop.security.AccessControlException", "/a (is not a directory)", "ParentNotDirectoryException: /a (is not a directory)", errNotDirectory},
		"no datanode": {"java.io.IOException", "File /x could only be written to 0 of the 1 minReplication nodes.", "IOException: File /x could only be written to 0 of the 1 minReplication nodes.", blobstore.ErrTemporary},
		"nothing":     {"java.io.IOException", "", "IOException", nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := newRemoteError(c.class, c.message)
			require.Equal(t, c.text, err.Error())
			require.Equal(t, c.is, errors.Unwrap(err))
		})
	}
	require.Less(t, len(newRemoteError("X", strings.Repeat("é", 10_000)).Error()), maxMessage+20)
}

// blockResponse is a datanode's answer to a request for a block.
func blockResponse(kind, chunk uint64) []byte {
	sum := appendVarint(nil, 1, kind)
	sum = appendVarint(sum, 2, chunk)
	info := appendBytes(nil, 1, sum)
	info = appendVarint(info, 2, 0)
	msg := appendVarint(nil, 1, 0)
	return appendDelimited(nil, appendBytes(msg, 4, info))
}

func TestPeekChunk(t *testing.T) {
	peek := func(b []byte) (int, error) {
		return peekChunk(bufio.NewReaderSize(bytes.NewReader(b), blockBufferSize))
	}
	n, err := peek(append(blockResponse(2, 512), "data"...))
	require.NoError(t, err)
	require.Equal(t, 512, n)
	n, err = peek(blockResponse(0, 512))
	require.NoError(t, err)
	require.Zero(t, n, "no checksums")
	for name, b := range map[string][]byte{
		"nothing": nil, "cut": blockResponse(2, 512)[:5], "no length": bytes.Repeat([]byte{0xff}, 20), "long": {0xff, 0xff, 0x7f, 0},
		"garbage": {3, 0xff, 0xff, 0xff},
	} {
		_, err := peek(b)
		require.Error(t, err, name)
	}
}

func FuzzNamenode(f *testing.F) {
	page := appendBytes(nil, 1, fileStatusProto("a", 2, 1, 1, 0))
	f.Add(response(7, 0, "", "", appendBytes(nil, 1, fileStatusProto("x", 2, 77, 16_400, 4))))
	f.Add(response(7, 0, "", "", appendBytes(nil, 1, appendVarint(page, 2, 7))))
	f.Add(response(7, 1, "java.io.IOException", "no", nil))
	f.Add(response(0xffffffdf, 0, "", "", appendBytes(appendVarint(nil, 2, saslNegotiate), 4, appendString(nil, 1, "KERBEROS"))))
	f.Add(blockResponse(2, 512))
	f.Fuzz(func(t *testing.T, b []byte) {
		peekChunk(bufio.NewReaderSize(bytes.NewReader(b), blockBufferSize))
		layer := saslLayer{sealing: sealSign}
		layer.unwrap(b)
		r, err := decodeResponse(b)
		if err != nil || r.err != nil {
			return
		}
		decodeStatus(r.body)
		if m, err := decodeSASL(r.body); err == nil {
			for _, a := range m.auths {
				offeredPrincipal(a)
			}
		}
		p, err := decodePage(r.body)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(p.entries), len(b))
		for _, e := range p.entries {
			require.GreaterOrEqual(t, e.size, int64(0))
		}
	})
}
