// Package faultproxy is a TCP proxy that damages connections on command, for
// tests: resets, stalls, slow links, flipped bits, servers that are gone.
//
// A Go test starts one in its own process:
//
//	p, err := faultproxy.Start("127.0.0.1:0", server)
//	defer p.Close()
//	p.Set(faultproxy.Rule{ResetAfter: 100_000, Direction: "down"})
//
// The command in testdata/servers/faultproxy wraps it for scripts; there a Proxy
// is the handler of the control endpoint.
package faultproxy

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Rule says what happens to bytes. Directions: "up" is client to server, "down"
// is server to client, "" is both. A Rule holds for open connections too, but
// Refuse, Blackhole and Share only for new ones. The zero Rule does no harm.
type Rule struct {
	Direction  string  `json:"direction,omitempty"`
	LatencyMS  int     `json:"latency_ms,omitempty"`  // before each chunk that is passed on
	JitterMS   int     `json:"jitter_ms,omitempty"`   // up to this much more
	BytesPerS  int64   `json:"bytes_per_s,omitempty"` // bandwidth of a connection, each way
	ResetAfter int64   `json:"reset_after,omitempty"` // RST once this many bytes have passed
	CloseAfter int64   `json:"close_after,omitempty"` // orderly FIN instead
	StallAfter int64   `json:"stall_after,omitempty"` // pass nothing more, keep the connection open
	FlipAt     int64   `json:"flip_at,omitempty"`     // invert the bits of byte number FlipAt (1 = the first)
	Refuse     bool    `json:"refuse,omitempty"`      // RST every new connection
	Blackhole  bool    `json:"blackhole,omitempty"`   // accept, never connect to the server, never answer
	Share      float64 `json:"share,omitempty"`       // part of the new connections hit (0 means all)
	Limit      int64   `json:"limit,omitempty"`       // faults of the kinds reset, close, stall, flip, refuse and blackhole in all; then none
	Seed       uint64  `json:"seed,omitempty"`        // for Share and JitterMS
}

// Proxy passes connections on to one server. All methods may be called from many
// goroutines.
type Proxy struct {
	upstream string
	listener net.Listener

	mu    sync.Mutex
	rule  Rule
	rnd   *rand.Rand
	conns map[*pair]struct{}

	left             atomic.Int64 // faults left under Limit
	opened, faults   atomic.Int64
	bytesUp, bytesDn atomic.Int64
}

type pair struct {
	client, server *net.TCPConn
	hit            bool
}

// Start listens on listen ("127.0.0.1:0" for a free port) and passes connections
// on to upstream, until Close.
func Start(listen, upstream string) (*Proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &Proxy{upstream: upstream, listener: l, conns: map[*pair]struct{}{}}
	p.Set(Rule{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c.(*net.TCPConn))
		}
	}()
	return p, nil
}

// Addr is the address for clients, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and resets all connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Cut()
	return err
}

// end closes both sides; with reset the peers see RST, not EOF.
func (c *pair) end(reset bool) {
	for _, t := range []*net.TCPConn{c.client, c.server} {
		if t == nil {
			continue
		}
		if reset {
			t.SetLinger(0)
		}
		t.Close()
	}
}

func (p *Proxy) get() Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rule
}

// Set puts a rule in force.
func (p *Proxy) Set(r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule, p.rnd = r, rand.New(rand.NewPCG(r.Seed, 1))
	p.left.Store(r.Limit)
}

func (p *Proxy) random() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rnd.Float64()
}

// fault reports whether one more fault may happen, and counts it.
func (p *Proxy) fault(r Rule) bool {
	if r.Limit > 0 && p.left.Add(-1) < 0 {
		return false
	}
	p.faults.Add(1)
	return true
}

func (p *Proxy) serve(client *net.TCPConn) {
	r := p.get()
	c := &pair{client: client, hit: r.Share <= 0 || p.random() < r.Share}
	p.opened.Add(1)
	p.mu.Lock()
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	defer func() {
		c.end(false)
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
	}()
	if c.hit && r.Refuse && p.fault(r) {
		c.end(true)
		return
	}
	if c.hit && r.Blackhole && p.fault(r) {
		io.Copy(io.Discard, client)
		return
	}
	s, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
	if err != nil {
		c.end(true)
		return
	}
	p.mu.Lock()
	c.server = s.(*net.TCPConn)
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Add(2)
	go func() { defer wg.Done(); p.pump(c, "up", c.server, client, &p.bytesUp) }()
	go func() { defer wg.Done(); p.pump(c, "down", client, c.server, &p.bytesDn) }()
	wg.Wait()
}

func (p *Proxy) pump(c *pair, dir string, dst, src *net.TCPConn, count *atomic.Int64) {
	buf := make([]byte, 16<<10)
	var n int64 // bytes passed on so far
	stalled := false
	for {
		k, err := src.Read(buf)
		r := p.get()
		if !c.hit || (r.Direction != "" && r.Direction != dir) {
			r = Rule{}
		}
		b := buf[:k]
		if k > 0 && !stalled {
			if d := r.LatencyMS; d > 0 || r.JitterMS > 0 {
				time.Sleep(time.Duration((float64(d) + p.random()*float64(r.JitterMS)) * float64(time.Millisecond)))
			}
			if r.BytesPerS > 0 {
				time.Sleep(time.Duration(int64(k) * int64(time.Second) / r.BytesPerS))
			}
			if at := r.FlipAt - 1; r.FlipAt > 0 && at >= n && at < n+int64(k) && p.fault(r) {
				b[at-n] ^= 0xff
			}
			after, act := int64(0), ""
			for _, x := range []struct {
				v int64
				a string
			}{{r.ResetAfter, "reset"}, {r.CloseAfter, "close"}, {r.StallAfter, "stall"}} {
				if x.v > 0 && n+int64(k) >= x.v && (act == "" || x.v < after) {
					after, act = x.v, x.a
				}
			}
			if act != "" && !p.fault(r) {
				act = ""
			}
			if act != "" {
				b = b[:max(0, after-n)]
			}
			m, werr := dst.Write(b)
			n += int64(m)
			count.Add(int64(m))
			switch {
			case act == "reset" || act == "close":
				c.end(act == "reset")
				return
			case act == "stall":
				stalled = true // go on reading, so that the sender notices nothing
			case werr != nil:
				c.end(true)
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && !stalled {
				dst.CloseWrite()
			} else if !errors.Is(err, io.EOF) {
				c.end(true)
			}
			return
		}
	}
}

// Cut resets every open connection and says how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.end(true)
	}
	return len(p.conns)
}

// Stats counts what has happened since Start.
type Stats struct {
	Rule      Rule  `json:"rule"`
	Open      int   `json:"open"`   // connections now
	Opened    int64 `json:"opened"` // connections in all
	Faults    int64 `json:"faults"`
	BytesUp   int64 `json:"bytes_up"`
	BytesDown int64 `json:"bytes_down"`
}

// Stats returns the counters and the rule in force.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{p.rule, len(p.conns), p.opened.Load(), p.faults.Load(), p.bytesUp.Load(), p.bytesDn.Load()}
}

// ServeHTTP is the control endpoint: GET /stats, POST and DELETE /rule, POST /cut.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch {
	case q.URL.Path == "/cut" && q.Method == http.MethodPost:
		p.Cut()
	case q.URL.Path == "/rule" && q.Method == http.MethodDelete:
		p.Set(Rule{})
	case q.URL.Path == "/rule" && (q.Method == http.MethodPost || q.Method == http.MethodPut):
		var r Rule
		d := json.NewDecoder(q.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.Set(r)
	case q.Method != http.MethodGet:
		http.Error(w, "unknown request", http.StatusNotFound)
		return
	}
	json.NewEncoder(w).Encode(p.Stats())
}
