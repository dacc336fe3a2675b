//go:build integration

package hdfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/faultproxy"
)

// Each test here is a row of the table in docs/design/hdfs.md: something that a
// real HDFS or the client library does, and what the drivers make of it.

// plainClient is the library without our workarounds, as another program has it.
func (c *cluster) plainClient(t testing.TB, user string) *hdfs.Client {
	t.Helper()
	cl, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: strings.Split(c.env["TIDEMARK_TEST_HDFS_NAMENODES"], ","), User: user})
	require.NoError(t, err)
	t.Cleanup(func() { cl.Close() })
	return cl
}

// A bad byte is found, whichever replica has it; one good replica is enough.
func TestCorruptBlock(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		data := pattern(300_000, 1)
		const bad = 200_123
		for name, offset := range map[string]int64{"first": 0, "middle": bad, "last": int64(len(data)) - 1} {
			one := dir + "/one-" + name
			put(t, s, one, data)
			for replica := range 2 {
				f := fmt.Sprintf("%s/%s-%d", dir, name, replica)
				put(t, s, f, data)
				c.replicated(t, f, 2)
				c.do(t, "corrupt /%s 0 %d %d", f, offset, replica)
				for range 4 {
					requireObject(t, s, f, data)
				}
			}
			c.replicated(t, one, 2)
			c.do(t, "corrupt /%s 0 %d", one, offset)
			for _, from := range []int64{0, offset} {
				r, err := s.OpenRange(t.Context(), one, from, -1)
				var got []byte
				if err == nil {
					got, err = io.ReadAll(r)
					r.Close()
				}
				require.Error(t, err, "%s, from %d", name, from)
				require.LessOrEqual(t, from+int64(len(got)), offset, "bytes up to the bad one at most")
				require.True(t, bytes.Equal(data[from:from+int64(len(got))], got), "the bytes before it are right")
				if scheme == "hdfs" {
					require.ErrorIs(t, err, blobstore.ErrDataCorrupt, "from %d", from)
				} else if !errors.Is(err, blobstore.ErrDataCorrupt) {
					require.ErrorIs(t, err, blobstore.ErrTemporary, "from %d", from)
				}
				t.Log(err)
			}
		}
	})
}

// The library itself passes bad bytes on: if this test fails it has been mended,
// and chunkRead can go.
func TestLibraryReturnsCorruptData(t *testing.T) {
	c := mainCluster(t)
	s, dir := c.openRoot(t, "hdfs"), c.newDir(t)
	data := pattern(300_000, 2)
	put(t, s, dir+"/x", data)
	c.replicated(t, dir+"/x", 2)
	c.do(t, "corrupt /%s/x 0 299999", dir)
	got, err := c.plainClient(t, "hdfs").ReadFile("/" + dir + "/x")
	require.NoError(t, err)
	require.NotEqual(t, data, got)
}

// Checksums over 128 bytes each need smaller reads still.
func TestCorruptBlockWithSmallChecksumChunks(t *testing.T) {
	c := haCluster(t)
	web, native, dir := c.openRoot(t, "webhdfs"), c.openRoot(t, "hdfs"), c.newDir(t)
	data := pattern(100_000, 3)
	put(t, web, dir+"/x", data)
	requireObject(t, native, dir+"/x", data)
	c.do(t, "corrupt /%s/x 0 99990", dir)
	_, err := get(t.Context(), native, dir+"/x")
	require.ErrorIs(t, err, blobstore.ErrDataCorrupt)
}

func TestDatanodeDiesMidRead(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		one := c.openRoot(t, scheme, "dfs.replication", "1")
		data := pattern(6<<20, 4)
		put(t, s, dir+"/two", data)
		c.replicated(t, dir+"/two", 2)
		put(t, one, dir+"/one", data)

		// With a second replica nobody notices.
		r, err := s.Open(t.Context(), dir+"/two")
		require.NoError(t, err)
		head := make([]byte, 100_000)
		_, err = io.ReadFull(r, head)
		require.NoError(t, err)
		dn := c.holders(t, dir+"/two")[0]
		c.do(t, "kill-dn %d", dn)
		t.Cleanup(func() { c.restartAll(t) })
		rest, err := io.ReadAll(r)
		r.Close()
		require.NoError(t, err)
		require.Equal(t, data, append(head, rest...))
		requireObject(t, s, dir+"/two", data)
		c.restartAll(t)

		// Without one it is a failure that passes.
		dn = c.holders(t, dir+"/one")[0]
		c.do(t, "kill-dn %d", dn)
		soon(t, 30*time.Second, func() {
			_, err = get(t.Context(), one, dir+"/one")
			require.ErrorIs(t, err, blobstore.ErrTemporary)
			t.Log(err)
		})
		c.restartAll(t)
		require.Eventually(t, func() bool {
			got, err := get(t.Context(), one, dir+"/one")
			return err == nil && string(got) == string(data)
		}, 30*time.Second, 500*time.Millisecond)
	})
}

// restartAll starts the datanodes again that are down.
func (c *cluster) restartAll(t testing.TB) {
	t.Helper()
	for line := range strings.Lines(c.do(t, "status")) {
		var n, port int
		if _, err := fmt.Sscanf(line, "dn %d xfer %d down", &n, &port); err == nil && strings.Contains(line, "down") {
			c.do(t, "restart-dn %d", n)
		}
	}
}

// replicated waits until the namenode knows n replicas of each block of a file: a
// file is closed when it has heard of one.
func (c *cluster) replicated(t testing.TB, name string, n int) {
	t.Helper()
	var blocks string
	for range 300 {
		blocks = c.do(t, "blocks /%s", name)
		all := true
		for line := range strings.Lines(blocks) {
			if _, at, is := strings.Cut(line, " at "); is {
				at, _, _ = strings.Cut(at, " files ")
				all = all && len(strings.Fields(at)) >= n
			}
		}
		if all && strings.Contains(blocks, " at ") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.FailNow(t, "not replicated", "%s: %s", name, blocks)
}

// holders are the numbers of the datanodes that have the first block of a file.
func (c *cluster) holders(t testing.TB, name string) []int {
	t.Helper()
	line, _, _ := strings.Cut(c.do(t, "blocks /%s", name), "\n")
	_, at, ok := strings.Cut(line, " at ")
	require.True(t, ok, line)
	var out []int
	for _, f := range strings.Fields(at) {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil {
			break
		}
		out = append(out, n)
	}
	require.NotEmpty(t, out, line)
	return out
}

// The library cannot mend the chain of datanodes: the object is written again.
func TestDatanodeDiesMidWrite(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		dir := c.newDir(t)
		data := pattern(10<<20, 5)
		for name, config := range map[string][]string{
			"kept":     nil,
			"not kept": {KeyReplayBytes, "100000"},
		} {
			t.Run(name, func(t *testing.T) {
				s := c.openRoot(t, scheme, config...)
				// Which datanode a file will go to is seen when it has blocks only, so
				// try until one of its datanodes was hit.
				w, err := s.Create(t.Context(), dir+"/x", nil)
				require.NoError(t, err)
				defer w.Abort()
				_, err = w.Write(data[:9<<20]) // more than a block
				require.NoError(t, err)
				dn := c.holders(t, strings.TrimPrefix(w.(*writer).temp, "/"))[0]
				c.do(t, "kill-dn %d", dn)
				defer c.restartAll(t)
				_, err = w.Write(data[9<<20:])
				if err == nil {
					err = w.Commit()
				}
				if name == "kept" {
					require.NoError(t, err)
					requireObject(t, s, dir+"/x", data)
				} else if err != nil {
					require.ErrorIs(t, err, blobstore.ErrTemporary)
					require.ErrorContains(t, err, "more than is kept")
				}
				require.Empty(t, temporaries(t, s, dir))
			})
		}
	})
}

// Nothing waits for ever for a datanode that accepts a connection and then is silent.
func TestDatanodeHangs(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		dir := c.newDir(t)
		data := pattern(4<<20, 6)
		direct := c.openRoot(t, scheme)
		put(t, direct, dir+"/x", data)
		net := newFaultNet(t)
		namenodes := c.env["TIDEMARK_TEST_HDFS_NAMENODES"] + c.env["TIDEMARK_TEST_WEBHDFS"]
		net.only = func(addr string) bool { return !strings.Contains(namenodes, addr) }
		s := net.through(c.openRoot(t, scheme, "dfs.client.socket-timeout", "500", KeyRetryMillis, "1000"))
		for name, rule := range map[string]faultproxy.Rule{
			"silent from the start": {Blackhole: true},
			"silent in the middle":  {StallAfter: 700},
		} {
			net.Set(rule)
			net.Cut()
			took := soon(t, 20*time.Second, func() {
				_, err := get(t.Context(), s, dir+"/x")
				require.ErrorIs(t, err, blobstore.ErrTemporary, name)
			})
			t.Logf("%s: read gives up after %s", name, took)
			took = soon(t, 25*time.Second, func() {
				require.ErrorIs(t, tryPut(t.Context(), s, dir+"/y", data, nil), blobstore.ErrTemporary, name)
			})
			t.Logf("%s: write gives up after %s", name, took)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			soon(t, 10*time.Second, func() {
				_, err := get(ctx, s, dir+"/x")
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
			})
			cancel()
		}
		net.Set(faultproxy.Rule{})
		net.Cut()
		requireObject(t, s, dir+"/x", data)
		put(t, s, dir+"/y", data)
		require.Empty(t, temporaries(t, direct, dir))
	})
}

func TestNamenodeHangs(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		dir := c.newDir(t)
		net := newFaultNet(t)
		s := net.through(c.openRoot(t, scheme, "ipc.client.rpc-timeout.ms", "500", "dfs.client.socket-timeout", "500", KeyRetryMillis, "1000"))
		put(t, s, dir+"/x", []byte("x"))
		r, err := s.Open(t.Context(), dir+"/x")
		require.NoError(t, err)
		defer r.Close()
		w, err := s.Create(t.Context(), dir+"/w", nil)
		require.NoError(t, err)
		_, err = w.Write([]byte("w"))
		require.NoError(t, err)
		net.Set(faultproxy.Rule{Direction: "down", StallAfter: 1})
		for name, op := range map[string]func() error{
			"stat":   func() error { _, err := s.Stat(t.Context(), dir+"/x"); return err },
			"open":   func() error { _, err := s.Open(t.Context(), dir+"/x"); return err },
			"delete": func() error { return s.Delete(t.Context(), dir+"/x") },
			"create": func() error { _, err := s.Create(t.Context(), dir+"/y", nil); return err },
		} {
			took := soon(t, 8*time.Second, func() { require.ErrorIs(t, op(), blobstore.ErrTemporary, name) })
			t.Logf("%s gives up after %s", name, took)
		}
		net.Set(faultproxy.Rule{})
		net.Cut()
		soon(t, 5*time.Second, func() { requireObject(t, s, dir+"/x", []byte("x")) }) // well again at once
		require.NoError(t, w.Commit())
		requireObject(t, s, dir+"/w", []byte("w"))
	})
}

func TestFailover(t *testing.T) {
	c := haCluster(t)
	steps := []struct {
		name     string
		commands []string
		after    []string // to have two namenodes again
	}{
		{"orderly", []string{"failover 1"}, nil},
		{"twice within five seconds", []string{"failover 0", "failover 1"}, nil},
		{"crash", []string{"crash-failover 0"}, []string{"restart-nn 1"}},
		{"back", []string{"failover 1"}, nil},
	}
	both(t, func(t *testing.T, scheme string) {
		c.do(t, "failover 0")
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		for _, step := range steps {
			t.Run(step.name, func(t *testing.T) {
				var stop atomic.Bool
				var wg sync.WaitGroup
				var done, slowest atomic.Int64
				// A writer from before the failover ends after it.
				w, err := s.Create(t.Context(), dir+"/long-"+step.name, nil)
				require.NoError(t, err)
				_, err = w.Write([]byte("before "))
				require.NoError(t, err)
				errs := make([]error, 4)
				for i := range errs {
					wg.Go(func() {
						for n := 0; !stop.Load(); n++ {
							start := time.Now()
							name := fmt.Sprintf("%s/%s-%d-%d", dir, step.name, i, n)
							err := tryPut(context.Background(), s, name, []byte(name), &blobstore.WriteOptions{IfAbsent: true})
							if err == nil {
								var got []byte
								if got, err = get(context.Background(), s, name); err == nil && string(got) != name {
									err = errors.New("other bytes")
								}
							}
							if err != nil {
								errs[i] = fmt.Errorf("after %s: %w", time.Since(start), err)
								return
							}
							done.Add(1)
							slowest.Store(max(slowest.Load(), int64(time.Since(start))))
						}
					})
				}
				time.Sleep(500 * time.Millisecond)
				for _, cmd := range step.commands {
					start := time.Now()
					c.do(t, "%s", cmd)
					t.Logf("%s took %s", cmd, time.Since(start).Round(time.Millisecond))
					time.Sleep(time.Second)
				}
				_, err = w.Write([]byte("after"))
				require.NoError(t, err)
				require.NoError(t, w.Commit())
				requireObject(t, s, dir+"/long-"+step.name, []byte("before after"))
				stop.Store(true)
				wg.Wait()
				for _, cmd := range step.after {
					c.do(t, "%s", cmd)
				}
				require.NoError(t, errors.Join(errs...))
				t.Logf("%d puts and gets, the slowest took %s", done.Load(), time.Duration(slowest.Load()).Round(time.Millisecond))
				left := temporaries(t, s, dir)
				if scheme == "webhdfs" {
					// A datanode that does not hear from the namenode may make its file
					// long after the upload was given up and the file removed.
					t.Logf("left behind, for gc to find: %q", left)
					require.NoError(t, s.DeleteAll(t.Context(), left))
				} else {
					require.Empty(t, left)
				}
			})
		}
	})
}

// The only namenode goes away and comes back, while writers are in all states:
// whatever became of their files, what can be written again ends well, and what
// cannot either does or fails for the time being. Nothing is left of any.
func TestNamenodeRestart(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme, KeyRetryMillis, "40000"), c.newDir(t)
		unkept := c.openRoot(t, scheme, KeyRetryMillis, "40000", KeyReplayBytes, "1000")
		small, large := pattern(100_000, 7), pattern(3<<20, 8)
		put(t, s, dir+"/x", small)
		type upload struct {
			name string
			data []byte
			w    blobstore.Writer
			err  error
		}
		var all []*upload
		begin := func(s *store, state string, data []byte, written int) *upload {
			u := &upload{name: fmt.Sprintf("%s/%s-%d", dir, state, len(all)), data: data}
			var err error
			u.w, err = s.Create(t.Context(), u.name, nil)
			require.NoError(t, err)
			_, err = u.w.Write(data[:written])
			require.NoError(t, err)
			all = append(all, u)
			return u
		}
		begin(s, "small", small, len(small))
		begin(s, "half", small, 50_000)
		begin(s, "large", large, 2<<20)
		begin(unkept, "large-unkept", large, 2<<20)
		begin(unkept, "small-unkept", small, 50_000)
		require.Eventually(t, func() bool { return len(temporaries(t, s, dir)) == len(all) }, time.Minute, 20*time.Millisecond, "their files are there")
		for range 4 { // of these nobody knows how far they have come
			begin(s, "empty", small, 0)
			begin(s, "racing", small, len(small))
		}
		var wg sync.WaitGroup
		end := func(u *upload, written int) {
			wg.Go(func() {
				if _, u.err = u.w.Write(u.data[written:]); u.err == nil {
					u.err = u.w.Commit()
				}
			})
		}
		for range 4 {
			u := begin(s, "committing", small, len(small))
			all = all[:len(all)-1]
			end(u, len(u.data))
			all = append(all, u)
		}
		c.do(t, "kill-nn 0")
		wg.Go(func() {
			time.Sleep(time.Second)
			c.do(t, "restart-nn 0")
		})
		took := soon(t, 40*time.Second, func() { requireObject(t, s, dir+"/x", small) })
		t.Logf("read through a restart in %s", took)
		for _, u := range all {
			switch state := strings.TrimPrefix(u.name, dir+"/"); {
			case strings.HasPrefix(state, "committing"):
			case strings.HasPrefix(state, "large"):
				end(u, 2<<20)
			case strings.HasPrefix(state, "half"), strings.HasPrefix(state, "small-unkept"):
				end(u, 50_000)
			case strings.HasPrefix(state, "empty"):
				end(u, 0)
			default:
				end(u, len(u.data))
			}
		}
		wg.Wait()
		for _, u := range all {
			if strings.Contains(u.name, "unkept") && u.err != nil {
				t.Log(u.err)
				require.ErrorIs(t, u.err, blobstore.ErrTemporary)
				require.ErrorContains(t, u.err, "more than is kept")
				_, err := s.Stat(t.Context(), u.name)
				require.ErrorIs(t, err, blobstore.ErrNotExist)
				continue
			}
			require.NoError(t, u.err)
			requireObject(t, s, u.name, u.data)
		}
		require.Eventually(t, func() bool { return len(temporaries(t, s, dir)) == 0 }, time.Minute, 100*time.Millisecond, "nothing is left")
	})
}

func TestSafeMode(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		put(t, s, dir+"/x", []byte("x"))
		c.do(t, "safemode on")
		defer c.do(t, "safemode off")
		requireObject(t, s, dir+"/x", []byte("x"))
		for name, op := range map[string]func() error{
			"create": func() error { return tryPut(t.Context(), s, dir+"/y", nil, nil) },
			"delete": func() error { return s.Delete(t.Context(), dir+"/x") },
		} {
			soon(t, 30*time.Second, func() {
				err := op()
				require.ErrorIs(t, err, blobstore.ErrTemporary, name)
				require.ErrorContains(t, err, "safe mode", name)
				t.Log(err)
			})
		}
	})
}

func TestPermission(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		dir := c.newDir(t)
		owner := c.openURL(t, c.url(scheme)+"/?user=alice")
		other := c.openURL(t, c.url(scheme)+"/?user=bob")
		put(t, owner, dir+"/closed/x", []byte("x"))
		put(t, owner, dir+"/unreadable", []byte("x"))
		alice := c.plainClient(t, "alice")
		require.NoError(t, alice.Chmod("/"+dir+"/closed", 0o700))
		require.NoError(t, alice.Chmod("/"+dir+"/unreadable", 0))
		list := func(prefix string) error {
			for _, err := range other.List(t.Context(), &blobstore.ListOptions{Prefix: prefix}) {
				if err != nil {
					return err
				}
			}
			return nil
		}
		for name, op := range map[string]func() error{
			"stat below a closed directory":   func() error { _, err := other.Stat(t.Context(), dir+"/closed/x"); return err },
			"delete below a closed directory": func() error { return other.Delete(t.Context(), dir+"/closed/x") },
			"delete absent below it":          func() error { return other.Delete(t.Context(), dir+"/closed/none") },
			"delete in a read-only directory": func() error { return other.Delete(t.Context(), dir+"/unreadable") },
			"create in a read-only directory": func() error { return tryPut(t.Context(), other, dir+"/y", []byte("y"), nil) },
			"create in a closed directory":    func() error { return tryPut(t.Context(), other, dir+"/closed/y", []byte("y"), nil) },
			"make a directory":                func() error { return tryPut(t.Context(), other, dir+"/sub/y", []byte("y"), nil) },
			"read a file of mode 000":         func() error { _, err := get(t.Context(), other, dir+"/unreadable"); return err },
			"list a closed directory":         func() error { return list(dir + "/closed/") },
			"list what holds one":             func() error { return list(dir + "/") },
		} {
			err := op()
			require.ErrorIs(t, err, blobstore.ErrPermission, name)
			t.Log(name+":", err)
		}
		require.NoError(t, alice.Chmod("/"+dir+"/unreadable", 0o600))
		requireObject(t, owner, dir+"/unreadable", []byte("x"))
	})
}

func TestNames(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		long := strings.Repeat("n", 255)
		put(t, s, dir+"/"+long, []byte("x"))
		requireObject(t, s, dir+"/"+long, []byte("x"))
		for name, want := range map[string]string{
			dir + "/a:b":           `takes no ":"`,
			dir + "//x":            "empty part",
			dir + "/../x":          `".."`,
			dir + "/" + long + "n": "256 bytes",
			dir + "/" + strings.Repeat(long+"/", 32) + "x": "8",
		} {
			err := tryPut(t.Context(), s, name, nil, nil)
			require.ErrorIs(t, err, blobstore.ErrInvalidName)
			require.ErrorContains(t, err, want)
			_, err = s.Stat(t.Context(), name)
			require.ErrorIs(t, err, blobstore.ErrInvalidName)
		}
		// The namenode's own: nothing is made there, and nothing is there.
		for _, name := range []string{".reserved/x", ".reserved", ".snapshot/x", dir + "/.snapshot", dir + "/.snapshot/x"} {
			err := tryPut(t.Context(), s, name, nil, nil)
			require.ErrorIs(t, err, blobstore.ErrInvalidName, name)
			require.ErrorContains(t, err, "for itself")
			if _, err = s.Stat(t.Context(), name); !errors.Is(err, blobstore.ErrIsDirectory) {
				require.ErrorIs(t, err, blobstore.ErrNotExist, name)
			}
			for _, delimiter := range []bool{false, true} {
				require.Empty(t, names(t, s, &blobstore.ListOptions{Prefix: name, Delimiter: delimiter}), name)
			}
		}
	})
}

// An object that is overwritten all the time is always read whole.
func TestOverwriteIsAtomic(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		versions := make([][]byte, 8)
		for i := range versions {
			versions[i] = pattern(1000*(i+1), byte(i))
		}
		put(t, s, dir+"/x", versions[0])
		var stop atomic.Bool
		var wg sync.WaitGroup
		var werr error
		writes, reads := 0, 0
		wg.Go(func() {
			for ; !stop.Load() && werr == nil; writes++ {
				werr = tryPut(context.Background(), s, dir+"/x", versions[writes%len(versions)], nil)
			}
		})
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); reads++ {
			got, err := get(t.Context(), s, dir+"/x")
			require.NoError(t, err)
			require.NotEmpty(t, got)
			require.Equal(t, versions[len(got)/1000-1], got)
		}
		stop.Store(true)
		wg.Wait()
		require.NoError(t, werr)
		t.Logf("%d reads during %d overwrites", reads, writes)
	})
}

func TestCommitOntoDirectory(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		put(t, s, dir+"/full/x", []byte("x"))
		put(t, s, dir+"/empty/x", []byte("x"))
		require.NoError(t, s.Delete(t.Context(), dir+"/empty/x"))
		for _, name := range []string{"/full", "/empty"} {
			for _, ifAbsent := range []bool{false, true} {
				err := tryPut(t.Context(), s, dir+name, []byte("y"), &blobstore.WriteOptions{IfAbsent: ifAbsent})
				require.ErrorIs(t, err, blobstore.ErrIsDirectory)
			}
			require.ErrorIs(t, s.Delete(t.Context(), dir+name), blobstore.ErrIsDirectory)
		}
		require.Equal(t, []string{dir + "/full/x"}, names(t, s, &blobstore.ListOptions{Prefix: dir}))
		require.Empty(t, temporaries(t, s, dir))
	})
}

// A commit replaces a file that another program is still writing.
func TestCommitOverFileBeingWritten(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		put(t, s, dir+"/other", nil)
		f, err := c.plainClient(t, "hdfs").Create("/" + dir + "/x")
		require.NoError(t, err)
		_, err = f.Write(pattern(200_000, 8))
		require.NoError(t, err)
		require.ErrorIs(t, tryPut(t.Context(), s, dir+"/x", []byte("once"), &blobstore.WriteOptions{IfAbsent: true}), blobstore.ErrExist)
		put(t, s, dir+"/x", []byte("ours"))
		require.Error(t, f.Close())
		requireObject(t, s, dir+"/x", []byte("ours"))
	})
}

func TestDirectoryVanishesDuringWrite(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		w, err := s.Create(t.Context(), dir+"/sub/x", nil)
		require.NoError(t, err)
		_, err = w.Write([]byte("x"))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(temporaries(t, s, dir)) == 1 }, time.Minute, 20*time.Millisecond)
		require.NoError(t, c.plainClient(t, "hdfs").RemoveAll("/"+dir+"/sub"))
		err = w.Commit()
		require.Error(t, err)
		t.Log(err)
		require.NoError(t, w.Abort())
		require.Empty(t, names(t, s, &blobstore.ListOptions{Prefix: dir}))
		require.Empty(t, temporaries(t, s, dir))
	})
}

// Somebody takes the lease away from a living writer.
func TestLeaseIsTaken(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		w, err := s.Create(t.Context(), dir+"/x", nil)
		require.NoError(t, err)
		data := pattern(500_000, 9)
		_, err = w.Write(data[:200_000])
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(temporaries(t, s, dir)) == 1 }, time.Minute, 20*time.Millisecond)
		c.do(t, "recover-lease %s", w.(*writer).temp)
		time.Sleep(300 * time.Millisecond)
		_, err = w.Write(data[200_000:])
		require.NoError(t, err)
		require.NoError(t, w.Commit())
		requireObject(t, s, dir+"/x", data)
		require.Empty(t, temporaries(t, s, dir))
	})
}

// A writer that pauses for longer than the hard limit of leases keeps its own.
func TestSlowWriterKeepsItsLease(t *testing.T) {
	c := mainCluster(t)
	c.do(t, "lease 1500 3000")
	defer c.do(t, "lease 60000 1200000")
	both(t, func(t *testing.T, scheme string) {
		config := []string{KeyReplayBytes, "0"}
		if scheme == "webhdfs" {
			config = nil // the client in the datanode renews every 30 s, whatever the limit: written again
		}
		s, dir := c.openRoot(t, scheme, config...), c.newDir(t)
		w, err := s.Create(t.Context(), dir+"/x", nil)
		require.NoError(t, err)
		_, err = w.Write([]byte("one "))
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		_, err = w.Write([]byte("two"))
		require.NoError(t, err)
		require.NoError(t, w.Commit())
		requireObject(t, s, dir+"/x", []byte("one two"))
	})
}

// A process that dies leaves a temporary file, which can be found and removed at
// once and is in nobody's way.
func TestCrashedWriter(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		cmd := child(t, "write-and-hang", c.url(scheme), dir+"/x")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1)) // it has written
		require.NoError(t, err)
		// WebHDFS: the datanode makes the file a moment later.
		require.Eventually(t, func() bool { return len(temporaries(t, s, dir)) == 1 }, time.Minute, 20*time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		cmd.Wait()
		left := temporaries(t, s, dir)
		require.Len(t, left, 1)
		require.Empty(t, names(t, s, &blobstore.ListOptions{Prefix: dir}))
		require.NoError(t, tryPut(t.Context(), s, dir+"/x", []byte("x"), &blobstore.WriteOptions{IfAbsent: true}))
		require.NoError(t, s.DeleteTemporary(t.Context(), left[0]))
		require.Empty(t, temporaries(t, s, dir))
		requireObject(t, s, dir+"/x", []byte("x"))
	})
}

// Of processes that create one name, one wins.
func TestExclusiveCreateBetweenProcesses(t *testing.T) {
	c := mainCluster(t)
	s, dir := c.openRoot(t, "hdfs"), c.newDir(t)
	const racers, rounds = 6, 30
	var cmds []*exec.Cmd
	for i := range racers {
		scheme := []string{"hdfs", "webhdfs"}[i%2]
		cmd := child(t, "race", c.url(scheme), dir, fmt.Sprint(i), fmt.Sprint(rounds), fmt.Sprint(time.Now().Add(4*time.Second).UnixMilli()))
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		require.NoError(t, cmd.Wait())
	}
	won := map[string]int{}
	for _, n := range names(t, s, &blobstore.ListOptions{Prefix: dir + "/won-"}) {
		_, round, _ := strings.Cut(n, "/won-")
		round, _, _ = strings.Cut(round, "-")
		won[round]++
		who := n[strings.LastIndexByte(n, '-')+1:]
		requireObject(t, s, dir+"/round-"+round, []byte(who))
	}
	require.Len(t, won, rounds)
	for round, n := range won {
		require.Equal(t, 1, n, "winners of round %s", round)
	}
	require.Empty(t, temporaries(t, s, dir))
}

// child runs this test binary as another process, in TestChild.
func child(t testing.TB, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "TIDEMARK_TEST_CHILD="+strings.Join(args, "\x1f"))
	return cmd
}

func TestChild(t *testing.T) {
	args := strings.Split(os.Getenv("TIDEMARK_TEST_CHILD"), "\x1f")
	if len(args) < 2 {
		t.Skip("runs in processes that other tests start")
	}
	ctx := context.Background()
	s, err := blobstore.Open(ctx, args[1], nil)
	require.NoError(t, err)
	switch args[0] {
	case "write-and-hang":
		w, err := s.Create(ctx, args[2], nil)
		require.NoError(t, err)
		_, err = w.Write(pattern(200_000, 1))
		require.NoError(t, err)
		fmt.Println("written")
		select {}
	case "race":
		dir, who := args[2], args[3]
		var rounds int
		var start int64
		fmt.Sscan(args[4], &rounds)
		fmt.Sscan(args[5], &start)
		for i := range rounds {
			time.Sleep(time.Until(time.UnixMilli(start + int64(i)*60)))
			err := tryPut(ctx, s, fmt.Sprintf("%s/round-%d", dir, i), []byte(who), &blobstore.WriteOptions{IfAbsent: true})
			if errors.Is(err, blobstore.ErrExist) {
				continue
			}
			require.NoError(t, err)
			put(t, s, fmt.Sprintf("%s/won-%d-%s", dir, i, who), nil)
		}
		require.NoError(t, s.Close())
	}
}

// A store that is closed lets go of everything, also of writers that nobody ended.
func TestCloseEndsWriters(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		leaks := goleak.IgnoreCurrent()
		w, err := s.Create(t.Context(), dir+"/x", nil)
		require.NoError(t, err)
		_, err = w.Write(pattern(100_000, 1))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		_, err = s.Stat(t.Context(), dir+"/x")
		require.ErrorIs(t, err, blobstore.ErrClosed)
		require.Error(t, w.Commit())
		w.Abort()
		goleak.VerifyNone(t, leaks)
	})
}

// Small files: the namenode says "not yet" to most of their first closes.
func TestManySmallFiles(t *testing.T) {
	c := mainCluster(t)
	both(t, func(t *testing.T, scheme string) {
		s, dir := c.openRoot(t, scheme), c.newDir(t)
		const workers, each = 16, 20
		var wg sync.WaitGroup
		errs := make([]error, workers)
		start := time.Now()
		for i := range workers {
			wg.Go(func() {
				for n := 0; n < each && errs[i] == nil; n++ {
					errs[i] = tryPut(context.Background(), s, fmt.Sprintf("%s/%d/%d", dir, i, n), pattern(1024, byte(n)), nil)
				}
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		t.Logf("%.0f files of 1 KiB each second with %d writers", workers*each/time.Since(start).Seconds(), workers)
		require.Len(t, names(t, s, &blobstore.ListOptions{Prefix: dir}), workers*each)
	})
}

// A page's last entry is deleted before the next page is fetched.
func TestListingSurvivesDeletionOfItsCursor(t *testing.T) {
	c := mainCluster(t)
	s, dir := c.openRoot(t, "hdfs"), c.newDir(t)
	put(t, s, dir+"/0", nil)
	cl := c.plainClient(t, "hdfs")
	for i := range 1100 {
		require.NoError(t, cl.Mkdir(fmt.Sprintf("/%s/%04d", dir, i), 0o777))
	}
	both(t, func(t *testing.T, scheme string) {
		s := c.openRoot(t, scheme)
		seen := 0
		for i, err := range s.List(t.Context(), &blobstore.ListOptions{Prefix: dir + "/", Delimiter: true}) {
			require.NoError(t, err)
			if seen++; seen == 990 {
				require.NoError(t, cl.RemoveAll(fmt.Sprintf("/%s/%04d", dir, 998))) // the 1000th entry
				require.NoError(t, cl.RemoveAll(fmt.Sprintf("/%s/%04d", dir, 999)))
			}
			_ = i
		}
		require.GreaterOrEqual(t, seen, 1099)
		require.NoError(t, cl.Mkdir(fmt.Sprintf("/%s/%04d", dir, 998), 0o777))
		require.NoError(t, cl.Mkdir(fmt.Sprintf("/%s/%04d", dir, 999), 0o777))
	})
}

// Erasure-coded files and encryption zones go by WebHDFS, if its address is known.
func TestErasureCodingAndEncryptionZones(t *testing.T) {
	c := mainCluster(t)
	for name, command := range map[string]string{"erasure coded": "ec /%s XOR-2-1-1024k", "encryption zone": "ez /%s"} {
		t.Run(name, func(t *testing.T) {
			dir := c.newDir(t)
			c.do(t, command, dir)
			web := c.openRoot(t, "webhdfs")
			native := c.openRoot(t, "hdfs")
			mixed := c.openURL(t, c.url("hdfs")+"/?webhdfs="+c.env["TIDEMARK_TEST_WEBHDFS"])
			data := pattern(3<<20, 10)
			put(t, web, dir+"/sub/x", data)
			requireObject(t, web, dir+"/sub/x", data)
			requireObject(t, mixed, dir+"/sub/x", data)
			put(t, mixed, dir+"/sub/y", data)
			requireObject(t, mixed, dir+"/sub/y", data)
			r, err := mixed.OpenRange(t.Context(), dir+"/sub/y", 1<<20-5, 100)
			require.NoError(t, err)
			b, err := io.ReadAll(r)
			r.Close()
			require.NoError(t, err)
			require.Equal(t, data[1<<20-5:1<<20+95], b)

			_, err = native.Open(t.Context(), dir+"/sub/x")
			require.ErrorIs(t, err, blobstore.ErrUnsupported)
			require.ErrorContains(t, err, "webhdfs")
			t.Log(err)
			_, err = native.Create(t.Context(), dir+"/sub/z", nil)
			require.ErrorIs(t, err, blobstore.ErrUnsupported)
			info, err := native.Stat(t.Context(), dir+"/sub/x")
			require.NoError(t, err)
			require.EqualValues(t, len(data), info.Size)
			require.Equal(t, []string{dir + "/sub/x", dir + "/sub/y"}, names(t, native, &blobstore.ListOptions{Prefix: dir}))
			require.NoError(t, native.Delete(t.Context(), dir+"/sub/x"))
		})
	}
}

// A nameservice by the Hadoop configuration, and by options alone.
func TestNameservice(t *testing.T) {
	c := haCluster(t)
	dir := c.newDir(t)
	nns := strings.Split(c.env["TIDEMARK_TEST_HDFS_NAMENODES"], ",")
	webs := strings.Split(strings.ReplaceAll(c.env["TIDEMARK_TEST_WEBHDFS"], "http://", ""), ",")
	options := []string{
		"dfs.nameservices", "mine", "flink.hadoop.dfs.ha.namenodes.mine", "a,b",
		"dfs.namenode.rpc-address.mine.a", nns[0], "dfs.namenode.rpc-address.mine.b", nns[1],
		"dfs.namenode.http-address.mine.a", webs[0], "dfs.namenode.http-address.mine.b", webs[1],
	}
	for _, active := range []int{1, 0} {
		c.do(t, "failover %d", active)
		for _, url := range []string{"hdfs://mine", "webhdfs://mine", "hdfs://" + strings.Join(nns, ","), "webhdfs://" + strings.Join(webs, ",")} {
			s := c.openURL(t, url, options...)
			put(t, s, dir+"/x", []byte(url))
			requireObject(t, s, dir+"/x", []byte(url))
			s.Close()
		}
	}
	t.Setenv("HADOOP_CONF_DIR", c.env["HADOOP_CONF_DIR"])
	for _, url := range []string{"hdfs://testns", "hdfs:///", "webhdfs://testns"} {
		s := c.openURL(t, url)
		put(t, s, dir+"/x", []byte(url))
		requireObject(t, s, dir+"/x", []byte(url))
	}
}
