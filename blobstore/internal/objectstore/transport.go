package objectstore

import (
	"context"
	"net"
	"net/http"
	"time"
)

// DefaultTimeout is how long a server may be silent: while connecting, before it
// answers, in the middle of a body.
const DefaultTimeout = 60 * time.Second

// Limit makes t's connections give up after a silence of limit in either direction,
// so that a server that hangs ends in an error and not in a hang, however the
// caller's context is. It also makes t speak HTTP/1.1: one stalled HTTP/2
// connection would stall every request on it.
func Limit(t *http.Transport, limit time.Duration) {
	d := &net.Dialer{Timeout: min(limit, 10*time.Second), KeepAlive: 30 * time.Second}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &limitedConn{Conn: c, limit: limit}, nil
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.ForceAttemptHTTP2 = false
	t.TLSHandshakeTimeout = min(limit, 10*time.Second)
	t.ExpectContinueTimeout = time.Second
	t.MaxIdleConns = 256
	t.MaxIdleConnsPerHost = 64
	t.IdleConnTimeout = min(limit, 90*time.Second)
	t.WriteBufferSize = 64 << 10
	t.ReadBufferSize = 64 << 10
}

// NewClient is an HTTP client with limited connections that follows no redirects.
func NewClient(limit time.Duration) *http.Client {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true}
	Limit(t, limit)
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type limitedConn struct {
	net.Conn
	limit time.Duration
}

func (c *limitedConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *limitedConn) Write(p []byte) (int, error) {
	// The kernel may take a large p piecemeal from a slow link: give each piece
	// its own time.
	const piece = 64 << 10
	var n int
	for {
		if err := c.Conn.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return n, err
		}
		k, err := c.Conn.Write(p[n:min(n+piece, len(p))])
		n += k
		if err != nil || n == len(p) {
			return n, err
		}
	}
}
