package hdfs

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

// What a datanode says of an upload when it loses the namenode or the other
// datanodes, as Hadoop 3.5 words it.
var lostUploads = map[string]struct{ class, message string }{
	"end of file":      {"java.io.EOFException", `End of File Exception between local host is: "vm/127.0.0.1"; destination host is: "localhost":20539; : java.io.EOFException`},
	"refused":          {"java.net.ConnectException", "Call From vm/127.0.0.1 to localhost:20539 failed on connection exception: java.net.ConnectException: Connection refused"},
	"no route":         {"java.net.NoRouteToHostException", "No Route to Host from  vm/127.0.0.1 to nn:8020 failed on socket timeout exception"},
	"time-out":         {"java.net.SocketTimeoutException", "Call From vm/127.0.0.1 to localhost:20539 failed on socket timeout exception"},
	"closed channel":   {"java.nio.channels.ClosedChannelException", ""},
	"reset":            {"java.io.IOException", `DestHost:destPort localhost:20539 , LocalHost:localPort vm/127.0.0.1:0. Failed on local exception: java.io.IOException: Connection reset by peer`},
	"wrapped":          {"java.io.IOException", `org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.ipc.RetriableException): NameNode still not started`},
	"standby":          {"org.apache.hadoop.ipc.StandbyException", "Operation category WRITE is not supported in state standby"},
	"starting":         {"org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot create file/d/.x. Name node is in safe mode. The reported blocks 0 needs additional 3 blocks"},
	"bad datanodes":    {"java.io.IOException", "All datanodes [DatanodeInfoWithStorage[127.0.0.1:1,DS-1,DISK]] are bad. Aborting..."},
	"going down":       {"java.lang.NullPointerException", `Cannot invoke "org.apache.hadoop.util.GSet.get(Object)" because "this.blocks" is null`},
	"no datanodes":     {"java.io.IOException", "File /d/.x could only be written to 0 of the 1 minReplication nodes. There are 1 datanode(s) running and 1 node(s) are excluded in this operation."},
	"lease taken away": {"org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", "/d/.x (inode 17) Holder DFSClient_1 does not have any open files."},
}

// An upload that ends so, with its file in whatever state, is sent again to a new
// file as long as its bytes are at hand, else it fails for the time being.
// Nothing is visible before, and nothing is left.
func TestWebUploadLosesTheNamenode(t *testing.T) {
	const content = "some content"
	t.Setenv("HADOOP_CONF_DIR", "")
	states := map[string]string{"never made": "", "cut off": "some", "whole": content, "made later": "later"}
	for name, lost := range lostUploads {
		for state, left := range states {
			switch {
			case state == "never made" && (name == "bad datanodes" || name == "no datanodes" || name == "lease taken away"):
				continue // these are said of a file that is, or was, there
			case state == "made later" && !newRemoteError(lost.class, lost.message).lostBehind():
				continue // these come from the namenode, which has refused
			}
			failures := 1
			if name == "end of file" {
				failures = 2
			}
			for _, kept := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, kept %t", name, state, kept), func(t *testing.T) {
					t.Parallel()
					f := newFakeWeb(t)
					var temps []string
					removals := map[string]int{} // of files that come later: after the first
					visible := false
					f.before = func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool {
						f.mu.Lock()
						defer f.mu.Unlock()
						_, there := f.files["/d/x"]
						visible = visible || there && op != "GETFILESTATUS"
						temp := strings.TrimPrefix(r.URL.Path, "/webhdfs/v1")
						appear := func() { f.files[temp] = fakeFile{int64(50 + len(temps)), []byte(left)} }
						if n, later := removals[temp]; later && op == "DELETE" {
							if removals[temp]++; n == 1 {
								appear()
							}
						}
						if toNamenode || op != "CREATE" {
							return false
						}
						temps = append(temps, temp)
						if len(temps) > failures {
							return false
						}
						f.mu.Unlock()
						io.Copy(io.Discard, r.Body)
						f.mu.Lock()
						switch left {
						case "":
						case "later":
							removals[temp] = 0
						default:
							appear()
						}
						exception(w, http.StatusForbidden, lost.class, lost.message)
						return true
					}
					config := []string{KeyRetryMillis, "2000"}
					if !kept {
						config = append(config, KeyReplayBytes, "3")
					}
					err := putWeb(t.Context(), f.openHere(t, config...), "d/x", content, false)
					f.mu.Lock()
					defer f.mu.Unlock()
					require.Equal(t, state == "made later", len(removals) > 0)
					for temp, n := range removals {
						require.Greater(t, n, 1, "%s was made and removed", temp)
					}
					require.False(t, visible, "it was seen before it was complete")
					if !kept {
						require.ErrorIs(t, err, blobstore.ErrTemporary)
						require.ErrorContains(t, err, "more than is kept")
						require.Empty(t, f.files, "nothing is left")
						return
					}
					require.NoError(t, err)
					require.Len(t, temps, failures+1, "tried until it went well")
					slices.Sort(temps)
					require.Len(t, slices.Compact(temps), failures+1, "each time another file")
					require.Len(t, f.files, 1, "nothing else is left")
					require.Equal(t, content, string(f.files["/d/x"].data))
				})
			}
		}
	}
}

// A temporary file that somebody removed is not written again, and what another
// try cannot cure is not tried again.
func TestWebUploadFailsForGood(t *testing.T) {
	for name, c := range map[string]struct {
		class, message string
		want           error
	}{
		"removed":      {"java.io.FileNotFoundException", "File does not exist: /d/.x (inode 17) Holder DFSClient_1 does not have any open files.", blobstore.ErrNotExist},
		"lease gone":   {"org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", "No lease on /d/.x", blobstore.ErrTemporary},
		"denied":       {"org.apache.hadoop.security.AccessControlException", "Permission denied: user=alice", blobstore.ErrPermission},
		"quota":        {"org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "The DiskSpace quota is exceeded", errQuota},
		"administered": {"org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Name node is in safe mode. It was turned on manually.", blobstore.ErrTemporary},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeWeb(t)
			tries := 0
			f.before = func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool {
				if toNamenode || op != "CREATE" {
					return false
				}
				tries++
				io.Copy(io.Discard, r.Body)
				exception(w, http.StatusForbidden, c.class, c.message)
				return true
			}
			require.ErrorIs(t, putWeb(t.Context(), f.open(t), "d/x", "content", false), c.want)
			require.Equal(t, 1, tries)
			require.Empty(t, f.files)
		})
	}
}

// HttpFS answers for a namenode that it has lost; a read is begun again as well.
func TestWebServerLosesTheNamenode(t *testing.T) {
	t.Setenv("HADOOP_CONF_DIR", "")
	for name, lost := range lostUploads {
		if name == "bad datanodes" || name == "no datanodes" || name == "lease taken away" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeWeb(t)
			f.files["/d/x"] = fakeFile{1, []byte("content")}
			failed := map[string]int{}
			f.before = func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				what := fmt.Sprint(op, toNamenode)
				if failed[what]++; failed[what] > 1 {
					return false
				}
				exception(w, http.StatusForbidden, lost.class, lost.message)
				return true
			}
			s := f.openHere(t, KeyRetryMillis, "3000")
			got, err := s.Open(t.Context(), "d/x")
			require.NoError(t, err)
			b, err := io.ReadAll(got)
			require.NoError(t, err)
			require.Equal(t, "content", string(b))
			require.NoError(t, s.Delete(t.Context(), "d/x"))
			require.Greater(t, failed["OPENfalse"], 1)
			require.Greater(t, failed["DELETEtrue"], 1)
		})
	}
}

// With datanodes excluded, "none found" means that none is left: the next question
// is asked at once, and without the exclusion.
func TestWebExclusionIsDroppedAtOnce(t *testing.T) {
	f := newFakeWeb(t)
	f.files["/d/x"] = fakeFile{1, []byte("content")}
	f.before = func(w http.ResponseWriter, r *http.Request, op string, toNamenode bool) bool {
		excluded := r.URL.Query().Get("excludedatanodes")
		if !toNamenode || excluded == "" {
			return false
		}
		exception(w, http.StatusForbidden, "java.io.IOException", "Failed to find datanode, suggest to check cluster health. excludeDatanodes="+excluded)
		return true
	}
	s := f.open(t, KeyRetryMillis, "600000")
	s.b.(*web).dead["127.0.0.1"] = time.Now()
	start := time.Now()
	r, err := s.Open(t.Context(), "d/x")
	require.NoError(t, err)
	r.Close()
	require.NoError(t, putWeb(t.Context(), s, "d/y", "content", true))
	require.Less(t, time.Since(start), time.Minute)
	require.Equal(t, 2, strings.Count(f.seen(), "excludedatanodes=127"), "asked once for each")
}

// Each part of a path is escaped for itself; ";" would begin parameters, and a
// server takes ".;" for ".".
func TestWebPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b": "/a/b", "/..;/x": "/..%3B/x", "/%2e%2e/x": "/%252e%252e/x", "/a b+c?d#e&f=g": "/a%20b+c%3Fd%23e&f=g",
		"/é": "/%C3%A9", "/a,b\\c|d": "/a%2Cb%5Cc%7Cd", "/\t\x7f": "/%09%7F",
	} {
		require.Equal(t, want, escapePath(path))
	}
}
