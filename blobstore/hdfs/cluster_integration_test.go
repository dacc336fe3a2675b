//go:build integration

package hdfs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/faultproxy"
)

// cluster is a real HDFS, started by testdata/servers/start-hdfs.sh and stopped
// when the tests of the package are over.
type cluster struct {
	env map[string]string // what the script exports
}

var (
	clustersMu sync.Mutex
	clusters   = map[string]*cluster{}
)

const serversDir = "../../testdata/servers"

func TestMain(m *testing.M) {
	for _, v := range []string{"HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "KRB5CCNAME", "KRB5_CONFIG"} {
		os.Unsetenv(v)
	}
	code := m.Run()
	stopClusters()
	os.Exit(code)
}

func stopClusters() {
	if keepDir != "" {
		return
	}
	for _, c := range clusters {
		exec.Command(filepath.Join(serversDir, "stop.sh"), c.env["TIDEMARK_TEST_HDFS_PID"]+c.env["TIDEMARK_TEST_KDC_PID"]).Run()
	}
}

// mainCluster serves most tests: three datanodes, each block on two of them,
// erasure coding and encryption zones possible.
func mainCluster(t testing.TB) *cluster {
	return startCluster(t, nil, "--datanodes", "3", "--replication", "2", "--ec", "--keys")
}

// haCluster has two namenodes. Its checksums cover 128 bytes each.
func haCluster(t testing.TB) *cluster {
	return startCluster(t, nil, "--ha", "--datanodes", "1", "-D", "dfs.bytes-per-checksum=128")
}

// startCluster starts a cluster with these flags once.
func startCluster(t testing.TB, env []string, flags ...string) *cluster {
	t.Helper()
	return startServer(t, env, "start-hdfs.sh", flags...)
}

func startServer(t testing.TB, env []string, script string, flags ...string) *cluster {
	t.Helper()
	clustersMu.Lock()
	defer clustersMu.Unlock()
	key := strings.Join(append([]string{script}, flags...), " ")
	if c, ok := clusters[key]; ok {
		return c
	}
	exports, kept := keptCluster(key)
	if !kept {
		cmd := exec.Command(filepath.Join(serversDir, script), flags...)
		cmd.Env = append(os.Environ(), env...)
		var out, log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &log
		start := time.Now()
		require.NoError(t, cmd.Run(), "%s: %s", key, &log)
		t.Logf("%q started in %s", key, time.Since(start).Round(time.Millisecond))
		exports = out.String()
		keepCluster(key, exports)
	}
	c := &cluster{env: map[string]string{}}
	for line := range strings.Lines(exports) {
		k, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		require.True(t, ok, line)
		c.env[k] = strings.ReplaceAll(v, `\`, "")
	}
	clusters[key] = c
	return c
}

// With TIDEMARK_TEST_HDFS_KEEP=DIR clusters go on running and are found again there.
var keepDir = os.Getenv("TIDEMARK_TEST_HDFS_KEEP")

func keptFile(key string) string {
	return filepath.Join(keepDir, fmt.Sprintf("%x", sha256.Sum256([]byte(key)))[:16])
}

func keptCluster(key string) (exports string, ok bool) {
	if keepDir == "" {
		return "", false
	}
	b, err := os.ReadFile(keptFile(key))
	return string(b), err == nil
}

func keepCluster(key, exports string) {
	if keepDir != "" {
		os.WriteFile(keptFile(key), []byte(exports), 0o600)
	}
}

// do gives the cluster a command; see HdfsTestServer.
func (c *cluster) do(t testing.TB, format string, args ...any) string {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	resp, err := http.Post(c.env["TIDEMARK_TEST_HDFS_CONTROL"], "text/plain", strings.NewReader(line))
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", line, b)
	return string(b)
}

func (c *cluster) url(scheme string) string {
	web := strings.ReplaceAll(c.env["TIDEMARK_TEST_WEBHDFS"], "http://", "")
	switch scheme {
	case "hdfs":
		return "hdfs://" + c.env["TIDEMARK_TEST_HDFS_NAMENODES"]
	case "webhdfs":
		return "webhdfs://" + web
	}
	panic(scheme)
}

// both runs a test for the native protocol and for WebHDFS.
func both(t *testing.T, f func(t *testing.T, scheme string)) {
	for _, scheme := range []string{"hdfs", "webhdfs"} {
		t.Run(scheme, func(t *testing.T) { f(t, scheme) })
	}
}

// openRoot opens the root of a cluster as a *store. config is pairs of keys and values.
func (c *cluster) openRoot(t testing.TB, scheme string, config ...string) *store {
	t.Helper()
	return c.openURL(t, c.url(scheme), config...)
}

func (c *cluster) openURL(t testing.TB, url string, config ...string) *store {
	t.Helper()
	opts := &blobstore.Options{Config: map[string]string{}}
	if testing.Verbose() {
		opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for i := 0; i < len(config); i += 2 {
		opts.Config[config[i]] = config[i+1]
	}
	loc, err := blobstore.Parse(url)
	require.NoError(t, err)
	s, err := openStore(loc, opts)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// newDir is a directory of its own for a test, as a name below the root.
func (c *cluster) newDir(t testing.TB) string {
	dir := "tmp/" + strings.NewReplacer("/", "-", "=", "-", " ", "-").Replace(t.Name()) + fmt.Sprintf("-%d", time.Now().UnixNano())
	return dir
}

func put(t testing.TB, s blobstore.Store, name string, data []byte) {
	t.Helper()
	require.NoError(t, tryPut(context.Background(), s, name, data, nil))
}

func tryPut(ctx context.Context, s blobstore.Store, name string, data []byte, opts *blobstore.WriteOptions) error {
	w, err := s.Create(ctx, name, opts)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Commit()
}

func get(ctx context.Context, s blobstore.Store, name string) ([]byte, error) {
	r, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func requireObject(t testing.TB, s blobstore.Store, name string, want []byte) {
	t.Helper()
	got, err := get(context.Background(), s, name)
	require.NoError(t, err)
	require.Equal(t, len(want), len(got))
	require.True(t, bytes.Equal(want, got), "other bytes than were written")
}

func names(t testing.TB, s blobstore.Store, opts *blobstore.ListOptions) []string {
	t.Helper()
	out := []string{}
	for i, err := range s.List(context.Background(), opts) {
		require.NoError(t, err)
		out = append(out, i.Name)
	}
	return out
}

func temporaries(t testing.TB, s blobstore.Store, prefix string) []string {
	t.Helper()
	out := []string{}
	for i, err := range s.(blobstore.TemporaryLister).ListTemporary(context.Background(), prefix) {
		require.NoError(t, err)
		out = append(out, i.Name)
	}
	return out
}

// pattern is n bytes that differ everywhere and from those of another seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// faultNet puts a proxy before every address that is dialled through it.
type faultNet struct {
	mu      sync.Mutex
	rule    faultproxy.Rule
	proxies map[string]*faultproxy.Proxy
	only    func(addr string) bool // nil: all addresses
}

func newFaultNet(t testing.TB) *faultNet {
	n := &faultNet{proxies: map[string]*faultproxy.Proxy{}}
	t.Cleanup(func() {
		for _, p := range n.proxies {
			p.Close()
		}
	})
	return n
}

func (n *faultNet) Set(r faultproxy.Rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rule = r
	for _, p := range n.proxies {
		p.Set(r)
	}
}

func (n *faultNet) Cut() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	cut := 0
	for _, p := range n.proxies {
		cut += p.Cut()
	}
	return cut
}

func (n *faultNet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	if n.only != nil && !n.only(addr) {
		n.mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	p, ok := n.proxies[addr]
	if !ok {
		var err error
		if p, err = faultproxy.Start("127.0.0.1:0", addr); err != nil {
			n.mu.Unlock()
			return nil, err
		}
		p.Set(n.rule)
		n.proxies[addr] = p
	}
	n.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, p.Addr())
}

// through makes a store dial by way of the proxies.
func (n *faultNet) through(s *store) *store {
	s.cfg.dialer = n.dial
	return s
}

// soon fails the test if f takes longer than the limit.
func soon(t testing.TB, limit time.Duration, f func()) time.Duration {
	t.Helper()
	start := time.Now()
	f()
	took := time.Since(start)
	require.Less(t, took, limit)
	return took
}
