package hdfs

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemark/tidemark/blobstore"
)

// rpcClient calls the active namenode of a cluster over Hadoop's RPC, version 9,
// for everything that is about names. It is for concurrent use: each call has a
// connection of its own while it lasts.
//
// A call that got no answer is sent again with the same client and call ID. The
// namenode keeps the answers to calls that change something (for ten minutes, in
// its edit log too), so that a rename or delete repeated after a lost answer, even
// after a failover, gets the first one's answer.
type rpcClient struct {
	cfg      *settings
	krb      *kerberos // nil: simple authentication
	clientID []byte    // 16 bytes
	callID   atomic.Int32
	active   atomic.Int32 // index in cfg.namenodes

	mu     sync.Mutex
	idle   []*rpcConn
	closed bool
}

const (
	maxIdleRPC    = 4
	maxIdleTime   = 8 * time.Second // Hadoop's server closes idle connections after 10 s
	maxRPCMessage = 32 << 20        // bytes of a response
	clientProto   = "org.apache.hadoop.hdfs.protocol.ClientProtocol"

	callContext = -3  // call ID of the connection's context
	callSASL    = -33 // call ID of the authentication
)

func newRPCClient(cfg *settings, krb *kerberos) *rpcClient {
	id := make([]byte, 16)
	rand.Read(id)
	return &rpcClient{cfg: cfg, krb: krb, clientID: id}
}

// rpcConn is one connection, used by one call at a time.
type rpcConn struct {
	*limitedConn
	addr     string
	br       *bufio.Reader
	sasl     *saslLayer // not nil: messages are signed or encrypted
	dead     bool       // the server has said its last word here
	lastUsed time.Time
}

// call sends a request and decodes the response into the function given, trying
// the other namenodes, and again, as cfg.retryFor allows.
func (c *rpcClient) call(ctx context.Context, method string, req []byte, decode func(resp []byte) error) error {
	id := c.callID.Add(1) & 0x7fffffff
	tries := newAttempts(ctx, c.cfg, len(c.cfg.namenodes), int(c.active.Load()))
	for tries.next() {
		resp, err := c.once(ctx, tries.index, id, int32(tries.count-1), method, req)
		if err == nil {
			c.active.Store(int32(tries.index))
			if decode == nil {
				return nil
			}
			if err := decode(resp); err != nil {
				return fmt.Errorf("%s: response of %s: %w", c.cfg.namenodes[tries.index], method, err)
			}
			return nil
		}
		if !tries.failed(err) {
			return tries.err()
		}
	}
	return tries.err()
}

func (c *rpcClient) once(ctx context.Context, index int, id, retry int32, method string, req []byte) ([]byte, error) {
	addr := c.cfg.namenodes[index]
	for {
		conn, reused, err := c.conn(ctx, addr)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		resp, err := conn.exchange(c.clientID, id, retry, method, req)
		if !stop() {
			return nil, ctx.Err()
		}
		var remote *remoteError
		switch {
		case err == nil || errors.As(err, &remote) && !conn.dead:
			c.put(conn)
			return resp, err
		case reused && !errors.As(err, &remote) && !errors.Is(err, errTimeout):
			conn.Close() // the server had closed it meanwhile: once more with a new one
			continue
		default:
			conn.Close()
			return nil, err
		}
	}
}

// conn takes an idle connection or makes a new one.
func (c *rpcClient) conn(ctx context.Context, addr string) (conn *rpcConn, reused bool, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, false, blobstore.ErrClosed
	}
	now := time.Now()
	keep := c.idle[:0]
	for _, i := range c.idle {
		switch {
		case now.Sub(i.lastUsed) > maxIdleTime:
			i.Close()
		case i.addr == addr && conn == nil:
			conn = i
		default:
			keep = append(keep, i)
		}
	}
	c.idle = keep
	c.mu.Unlock()
	if conn != nil {
		return conn, true, nil
	}
	nc, err := c.cfg.dial(ctx, addr)
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	if err != nil {
		return nil, false, &transportError{err}
	}
	lc := &limitedConn{Conn: nc, limit: c.cfg.rpcTimeout}
	conn = &rpcConn{limitedConn: lc, addr: addr, br: bufio.NewReaderSize(lc, 8<<10)}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err = conn.handshake(ctx, c)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, false, err
	}
	return conn, false, nil
}

func (c *rpcClient) put(conn *rpcConn) {
	conn.lastUsed = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle) >= maxIdleRPC {
		conn.Close()
		return
	}
	c.idle = append(c.idle, conn)
}

func (c *rpcClient) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conn := range c.idle {
		conn.Close()
	}
	c.idle = nil
}

// handshake opens a connection:
//
//	4 "hrpc"  1 version 9  1 service class 0  1 authentication: 0 none, 0xdf SASL
//	then, with SASL, its messages, then the connection's context as a request
func (c *rpcConn) handshake(ctx context.Context, cl *rpcClient) error {
	head := []byte{'h', 'r', 'p', 'c', 9, 0, 0}
	user := cl.cfg.user
	if cl.krb != nil {
		head[6] = 0xdf
		if _, err := c.Write(head); err != nil {
			return connectionError("%w", err)
		}
		var err error
		if user, err = c.authenticate(ctx, cl); err != nil {
			return err
		}
		head = nil
	}
	info := appendString(nil, 1, user) // effective user
	ctxMsg := appendBytes(nil, 2, info)
	ctxMsg = appendString(ctxMsg, 3, clientProto)
	return c.send(head, requestHeader(cl.clientID, callContext, -1), ctxMsg)
}

// requestHeader is an RpcRequestHeaderProto: 1 kind (2 protocol buffers), 2
// operation (0 a whole request), 3 call ID, 4 client ID, 5 retry count.
func requestHeader(clientID []byte, id, retry int32) []byte {
	h := appendVarint(nil, 1, 2)
	h = appendVarint(h, 2, 0)
	h = appendSigned(h, 3, id)
	h = appendBytes(h, 4, clientID)
	return appendSigned(h, 5, retry)
}

// send writes prefix and then a packet: a 4-byte length and messages, each after
// its own length as a varint.
func (c *rpcConn) send(prefix []byte, msgs ...[]byte) error {
	packet := make([]byte, 4, 256)
	for _, m := range msgs {
		packet = appendDelimited(packet, m)
	}
	binary.BigEndian.PutUint32(packet, uint32(len(packet)-4))
	if c.sasl != nil {
		var err error
		if packet, err = c.sasl.wrap(packet); err != nil {
			return err
		}
	}
	if _, err := c.Write(append(prefix, packet...)); err != nil {
		return connectionError("%w", err)
	}
	return nil
}

func (c *rpcConn) exchange(clientID []byte, id, retry int32, method string, req []byte) ([]byte, error) {
	if retry <= 0 {
		retry = -1
	}
	// RequestHeaderProto: 1 method, 2 protocol, 3 its version
	h := appendString(nil, 1, method)
	h = appendString(h, 2, clientProto)
	h = appendVarint(h, 3, 1)
	if err := c.send(nil, requestHeader(clientID, id, retry), h, req); err != nil {
		return nil, err
	}
	return c.response(id)
}

// response reads the answer to a call: a 4-byte length, an RpcResponseHeaderProto
// and, if that says success, the method's own response, both after their lengths.
func (c *rpcConn) response(id int32) ([]byte, error) {
	packet, err := readPacket(c.br)
	if err != nil {
		return nil, connectionError("%w", err)
	}
	if c.sasl != nil {
		if packet, err = c.sasl.unwrap(packet); err != nil {
			c.dead = true
			return nil, err
		}
	}
	r, err := decodeResponse(packet)
	switch {
	case err != nil:
		c.dead = true
		return nil, connectionError("%s does not speak Hadoop RPC: %w", c.addr, err)
	case r.err != nil:
		if r.fatal {
			c.dead = true
		}
		return nil, r.err
	case r.callID != id:
		c.dead = true
		return nil, connectionError("%s answered call %d instead of %d", c.addr, r.callID, id)
	}
	return r.body, nil
}

func readPacket(r *bufio.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, noEOF(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxRPCMessage {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	if n <= 64<<10 {
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, noEOF(err)
	}
	// More than usual: believe the length only as the bytes come.
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(b) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

type rpcResponse struct {
	callID int32
	body   []byte
	err    *remoteError
	fatal  bool // the server closes the connection
}

// decodeResponse reads a packet. RpcResponseHeaderProto: 1 call ID, 2 status (0
// success, 1 error, 2 fatal), 4 exception class, 5 message, 6 error code.
func decodeResponse(packet []byte) (rpcResponse, error) {
	var r rpcResponse
	head, n := protowire.ConsumeBytes(packet)
	if n < 0 {
		return r, errWire
	}
	packet = packet[n:]
	status, class, message := uint64(0), "", ""
	err := eachField(head, func(num protowire.Number, v uint64, data []byte) error {
		switch num {
		case 1:
			r.callID = int32(uint32(v))
		case 2:
			status = v
		case 4:
			class = string(data)
		case 5:
			message = string(data)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	if status != 0 {
		r.err, r.fatal = newRemoteError(class, message), status == 2
		return r, nil
	}
	if len(packet) > 0 { // an empty response may have no length either
		if r.body, n = protowire.ConsumeBytes(packet); n != len(packet) {
			return r, errWire
		}
	}
	return r, nil
}

// getFileInfo is the status of a path; ErrNotExist if there is nothing.
func (c *rpcClient) getFileInfo(ctx context.Context, path string) (status, error) {
	var s status
	found := false
	err := c.call(ctx, "getFileInfo", appendString(nil, 1, path), func(resp []byte) error {
		return eachField(resp, func(num protowire.Number, _ uint64, data []byte) (err error) {
			if num == 1 {
				found = true
				s, err = decodeStatus(data)
			}
			return err
		})
	})
	if err == nil && !found {
		err = blobstore.ErrNotExist
	}
	return s, err
}

// getListing is a page of a directory after the entry named after.
func (c *rpcClient) getListing(ctx context.Context, dir, after string) (page, error) {
	req := appendString(nil, 1, dir)
	req = appendString(req, 2, after)
	req = appendVarint(req, 3, 0) // no block locations
	var p page
	found := false
	err := c.call(ctx, "getListing", req, func(resp []byte) error {
		return eachField(resp, func(num protowire.Number, _ uint64, data []byte) (err error) {
			if num == 1 {
				found = true
				p, err = decodePage(data)
			}
			return err
		})
	})
	if err == nil && !found {
		err = blobstore.ErrNotExist
	}
	return p, err
}

// delete removes a file or an empty directory and says whether there was one.
func (c *rpcClient) delete(ctx context.Context, path string) (bool, error) {
	req := appendString(nil, 1, path)
	req = appendVarint(req, 2, 0) // not recursive
	return c.boolCall(ctx, "delete", req)
}

// mkdirs makes a directory and its parents; one that is there is success.
func (c *rpcClient) mkdirs(ctx context.Context, path string) error {
	req := appendString(nil, 1, path)
	req = appendBytes(req, 2, appendVarint(nil, 1, uint64(0o777&^c.cfg.umask)))
	req = appendVarint(req, 3, 1) // parents too
	ok, err := c.boolCall(ctx, "mkdirs", req)
	if err == nil && !ok {
		err = errors.New("the namenode did not make the directory")
	}
	return err
}

func (c *rpcClient) boolCall(ctx context.Context, method string, req []byte) (bool, error) {
	result := false
	err := c.call(ctx, method, req, func(resp []byte) error {
		return eachField(resp, func(num protowire.Number, v uint64, _ []byte) error {
			result = result || num == 1 && v != 0
			return nil
		})
	})
	return result, err
}

// rename moves a file. With overwrite it replaces a file of that name, else it
// fails with ErrExist; both atomically. (rename2 with the options OVERWRITE and
// NONE of org.apache.hadoop.fs.Options.Rename.)
func (c *rpcClient) rename(ctx context.Context, from, to string, overwrite bool) error {
	req := appendString(nil, 1, from)
	req = appendString(req, 2, to)
	req = appendVarint(req, 3, protowire.EncodeBool(overwrite))
	return c.call(ctx, "rename2", req, nil)
}

// serverDefaults are the namenode's settings for new files.
type serverDefaults struct {
	blockSize   int64
	replication int
	encrypt     bool // dfs.encrypt.data.transfer
}

func (c *rpcClient) getServerDefaults(ctx context.Context) (serverDefaults, error) {
	var d serverDefaults
	err := c.call(ctx, "getServerDefaults", nil, func(resp []byte) error {
		return eachField(resp, func(num protowire.Number, _ uint64, data []byte) error {
			if num != 1 {
				return nil
			}
			return eachField(data, func(num protowire.Number, v uint64, _ []byte) error {
				switch num {
				case 1:
					d.blockSize = int64(v)
				case 4:
					d.replication = int(v & 0x7fff)
				case 6:
					d.encrypt = v != 0
				}
				return nil
			})
		})
	})
	if err == nil && (d.blockSize <= 0 || d.replication <= 0) {
		err = errors.New("the namenode's defaults have no block size or replication")
	}
	return d, err
}
