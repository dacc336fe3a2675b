package hdfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"

	"github.com/tidemark/tidemark/blobstore"
)

// A session is one client of github.com/colinmarc/hdfs: a connection to a
// namenode, a goroutine that renews leases every second, and the connections to
// datanodes that it opens. The library has no contexts, keeps broken connections,
// leaves some open, and shares fields without locks; so a session serves one
// reader or writer at a time, knows all its connections, and ends whatever goes on
// in it by closing them.
type session struct {
	client    *hdfs.Client
	ctx       context.Context // done once the session is killed
	cancel    context.CancelFunc
	closeOnce sync.Once
	onClose   func()

	mu       sync.Mutex
	namenode map[*limitedConn]struct{} // open connections
	data     map[*limitedConn]struct{}
	spent    []*limitedConn // to datanodes, closed

	lostNamenode atomic.Bool // a connection to a namenode has failed
	shared       dataConns
	idleSince    time.Time
}

// chunkRead is the greatest size of a read from the library. With a buffer of the
// size of a checksum chunk or more (HDFS: 512 bytes unless a writer chose another)
// it returns a chunk with a wrong checksum as if it were good; with a smaller one
// it checks first, and goes to the next replica.
const chunkRead = 511

func newSession(ctx context.Context, cfg *settings, krb *kerberos, first int) (*session, error) {
	s := &session{namenode: map[*limitedConn]struct{}{}, data: map[*limitedConn]struct{}{}}
	s.shared.minChunk.Store(chunkRead + 1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	opts := hdfs.ClientOptionsFromConf(hadoopconf.HadoopConf{
		"dfs.data.transfer.protection": cfg.protection,
	})
	opts.User = cfg.user
	opts.UseDatanodeHostname = cfg.useHostname
	opts.NamenodeDialFunc = func(_ context.Context, _, addr string) (net.Conn, error) {
		return s.dial(cfg, addr, cfg.rpcTimeout, nil, s.namenode, func(*limitedConn) { s.lostNamenode.Store(true) })
	}
	opts.DatanodeDialFunc = func(_ context.Context, _, addr string) (net.Conn, error) {
		return s.dial(cfg, addr, cfg.dataTimeout, &s.shared, s.data, func(c *limitedConn) { s.spent = append(s.spent, c) })
	}
	// The one that answered last comes first.
	for i := range cfg.namenodes {
		opts.Addresses = append(opts.Addresses, cfg.namenodes[(first+i)%len(cfg.namenodes)])
	}
	if krb != nil {
		if cfg.namenodePrincipal == "" {
			return nil, errors.New("dfs.namenode.kerberos.principal is not set")
		}
		opts.KerberosServicePrincipleName = cfg.namenodePrincipal
		// Fetch the ticket here, where it can be cancelled: the library then has it
		// from the cache.
		host, _, _ := net.SplitHostPort(opts.Addresses[0])
		c, _, _, err := krb.ticket(ctx, servicePrincipal(cfg.namenodePrincipal, host))
		if err != nil {
			return nil, err
		}
		opts.KerberosClient = c
	}
	stop := context.AfterFunc(ctx, s.kill)
	client, err := hdfs.NewClient(opts)
	if !stop() && err == nil {
		client.Close()
		err = ctx.Err()
	}
	if err != nil {
		s.kill()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, libraryError(err)
	}
	s.client = client
	return s, nil
}

func (s *session) dial(cfg *settings, addr string, limit time.Duration, data *dataConns, set map[*limitedConn]struct{}, closed func(*limitedConn)) (net.Conn, error) {
	nc, err := cfg.dial(s.ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: nc, limit: limit, data: data}
	c.onClose = func(c *limitedConn) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(set, c)
		closed(c)
	}
	s.mu.Lock()
	set[c] = struct{}{}
	s.mu.Unlock()
	if s.ctx.Err() != nil { // killed meanwhile
		c.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// kill closes every connection. Whatever waits on one returns an error, and no new
// one can be made.
func (s *session) kill() {
	s.cancel()
	for _, c := range s.conns(s.namenode) {
		c.Close()
	}
	for _, c := range s.conns(s.data) {
		c.Close()
	}
}

func (s *session) conns(set map[*limitedConn]struct{}) []*limitedConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*limitedConn, 0, len(set))
	for c := range set {
		out = append(out, c)
	}
	return out
}

// close ends the session for good.
func (s *session) close() {
	s.closeOnce.Do(func() {
		s.kill()
		s.client.Close()
		s.onClose()
	})
}

// releaseData closes the connections to datanodes and gives their buffers back.
// Nothing may be reading any more.
func (s *session) releaseData() {
	for _, c := range s.conns(s.data) {
		c.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.spent {
		if c.block != nil {
			c.block.r.Reset(nil)
			blockBuffers.Put(c.block.r)
		}
	}
	s.spent = nil
}

// dataFailure marks an error of the library that is not the namenode's.
func (s *session) dataFailure(err error) error {
	if isTransport(err) && !s.lostNamenode.Load() {
		return &dataError{err}
	}
	return err
}

// usable says whether the session can serve another reader or writer.
func (s *session) usable() bool { return s.ctx.Err() == nil && !s.lostNamenode.Load() }

// sessionPool keeps idle sessions for a while. A session costs three round trips
// to make; idle, it renews its lease every second.
type sessionPool struct {
	cfg *settings
	krb *kerberos
	rpc *rpcClient // knows the active namenode

	mu     sync.Mutex
	all    map[*session]struct{} // in use or idle
	idle   []*session            // the longest idle first
	timer  *time.Timer
	closed bool
}

const (
	maxIdleSessions = 8
	sessionIdleTime = 20 * time.Second
)

// get takes a session. The caller gives it back by put, or closes it.
func (p *sessionPool) get(ctx context.Context) (*session, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, blobstore.ErrClosed
	}
	for len(p.idle) > 0 {
		s := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if s.usable() {
			p.mu.Unlock()
			return s, nil
		}
		go s.close()
	}
	p.mu.Unlock()
	s, err := newSession(ctx, p.cfg, p.krb, int(p.rpc.active.Load()))
	if err != nil {
		return nil, err
	}
	s.onClose = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.all, s)
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.all[s] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		s.close()
		return nil, blobstore.ErrClosed
	}
	return s, nil
}

// put gives a session back after an orderly end.
func (p *sessionPool) put(s *session) {
	s.releaseData()
	s.shared.minChunk.Store(chunkRead + 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !s.usable() || len(p.idle) >= maxIdleSessions {
		go s.close()
		return
	}
	s.idleSince = time.Now()
	p.idle = append(p.idle, s)
	if p.timer == nil {
		p.timer = time.AfterFunc(sessionIdleTime, p.expire)
	}
}

func (p *sessionPool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	for len(p.idle) > 0 && time.Since(p.idle[0].idleSince) >= sessionIdleTime {
		go p.idle[0].close()
		p.idle = p.idle[1:]
	}
	if len(p.idle) > 0 {
		p.timer = time.AfterFunc(sessionIdleTime-time.Since(p.idle[0].idleSince), p.expire)
	}
}

// close ends all sessions, also those of readers and writers that nobody has ended:
// their leases would be renewed for ever.
func (p *sessionPool) close() {
	p.mu.Lock()
	p.closed, p.idle = true, nil
	if p.timer != nil {
		p.timer.Stop()
	}
	all := slices.Collect(maps.Keys(p.all))
	p.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}

// checkProtection refuses what the client library cannot read: under integrity,
// privacy or encryption it takes the first answer for a damaged message.
func checkProtection(cfg *settings, encrypt bool) error {
	p := cfg.protection
	if encrypt {
		p = "privacy"
	}
	if p == "integrity" || p == "privacy" {
		return fmt.Errorf("block data is protected by %q, which the native client cannot read: use %s: %w", p, cfg.webAdvice(), blobstore.ErrUnsupported)
	}
	return nil
}

// webAdvice names the WebHDFS URL to use instead of the native one.
func (s *settings) webAdvice() string {
	if len(s.web) == 0 {
		return "webhdfs://NAMENODE:" + defaultHTTPPort + " (or give its address: dfs.namenode.http-address, or ?webhdfs=http://HOST:PORT)"
	}
	scheme, hosts := "webhdfs://", make([]string, len(s.web))
	for i, w := range s.web {
		if h, ok := strings.CutPrefix(w, "https://"); ok {
			scheme, hosts[i] = "swebhdfs://", h
		} else {
			hosts[i] = strings.TrimPrefix(w, "http://")
		}
	}
	return scheme + strings.Join(hosts, ",")
}
