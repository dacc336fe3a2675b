//go:build integration

package hdfs

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

// startKDC starts a KDC once and gives what start-kdc.sh exports.
func startKDC(t testing.TB) map[string]string {
	return startServer(t, nil, "start-kdc.sh").env
}

// kerberosCluster is an HDFS that takes nobody without Kerberos.
func kerberosCluster(t testing.TB, flags ...string) (*cluster, map[string]string) {
	kdc := startKDC(t)
	c := startCluster(t, []string{"TIDEMARK_HDFS_JAVA_OPTS=-Djava.security.krb5.conf=" + kdc["KRB5_CONFIG"]}, append([]string{
		"--keytab", kdc["TIDEMARK_TEST_KRB5_SERVER_KEYTAB"], "--principal", "nn/localhost@" + kdc["TIDEMARK_TEST_KRB5_REALM"],
		"-D", "dfs.data.transfer.protection=authentication"}, flags...)...)
	return c, kdc
}

// kerberosConfig is what a client of that cluster needs to know.
func kerberosConfig(kdc map[string]string) []string {
	return []string{
		"hadoop.security.authentication", "kerberos",
		"dfs.namenode.kerberos.principal", "nn/localhost@" + kdc["TIDEMARK_TEST_KRB5_REALM"],
		"dfs.data.transfer.protection", "authentication",
		"security.kerberos.krb5-conf.path", kdc["KRB5_CONFIG"],
	}
}

func withKeytab(kdc map[string]string) []string {
	return append(kerberosConfig(kdc),
		"security.kerberos.login.keytab", kdc["TIDEMARK_TEST_KRB5_ALICE_KEYTAB"],
		"security.kerberos.login.principal", "alice@"+kdc["TIDEMARK_TEST_KRB5_REALM"])
}

// kerberosURL has the name that the principals have.
func (c *cluster) kerberosURL(scheme string) string {
	return strings.ReplaceAll(c.url(scheme), "127.0.0.1", "localhost")
}

func useStore(t *testing.T, s *store, dir string) {
	t.Helper()
	data := pattern(9<<20, 11) // more than a block
	put(t, s, dir+"/x", data)
	requireObject(t, s, dir+"/x", data)
	require.ErrorIs(t, tryPut(t.Context(), s, dir+"/x", nil, &blobstore.WriteOptions{IfAbsent: true}), blobstore.ErrExist)
	require.Equal(t, []string{dir + "/x"}, names(t, s, &blobstore.ListOptions{Prefix: dir}))
	require.NoError(t, s.Delete(t.Context(), dir+"/x"))
	require.Empty(t, temporaries(t, s, dir))
}

func TestKerberos(t *testing.T) {
	c, kdc := kerberosCluster(t)
	both(t, func(t *testing.T, scheme string) {
		t.Run("keytab", func(t *testing.T) {
			useStore(t, c.openURL(t, c.kerberosURL(scheme), withKeytab(kdc)...), c.newDir(t))
		})
		t.Run("ticket cache", func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cc")
			t.Setenv("KRB5CCNAME", "FILE:"+cache)
			kinit := exec.Command("kinit", "-k", "-t", kdc["TIDEMARK_TEST_KRB5_ALICE_KEYTAB"], "alice")
			kinit.Env = append(os.Environ(), "KRB5_CONFIG="+kdc["KRB5_CONFIG"])
			out, err := kinit.CombinedOutput()
			require.NoError(t, err, "%s", out)
			useStore(t, c.openURL(t, c.kerberosURL(scheme), kerberosConfig(kdc)...), c.newDir(t))
		})
		for name, config := range map[string][]string{
			"simple":            nil,
			"no ticket":         kerberosConfig(kdc),
			"other key":         append(withKeytab(kdc), "security.kerberos.login.principal", "nobody"),
			"keytab is missing": append(withKeytab(kdc), "security.kerberos.login.keytab", "/nowhere"),
			"no krb5.conf":      append(withKeytab(kdc), "security.kerberos.krb5-conf.path", "/nowhere"),
		} {
			t.Run(name, func(t *testing.T) {
				t.Setenv("KRB5CCNAME", filepath.Join(t.TempDir(), "none"))
				s := c.openURL(t, c.kerberosURL(scheme), config...)
				soon(t, 10*time.Second, func() {
					_, err := s.Stat(t.Context(), "tmp/x")
					require.ErrorIs(t, err, blobstore.ErrPermission)
					t.Log(err)
					err = tryPut(t.Context(), s, "tmp/x", []byte("x"), nil)
					require.ErrorIs(t, err, blobstore.ErrPermission)
				})
			})
		}
	})
}

// Names over a protected RPC; the library signs and encrypts nothing it sends, and
// the namenode takes it all the same.
func TestKerberosProtectedRPC(t *testing.T) {
	for _, protection := range []string{"integrity", "privacy"} {
		t.Run(protection, func(t *testing.T) {
			c, kdc := kerberosCluster(t, "-D", "hadoop.rpc.protection="+protection)
			useStore(t, c.openURL(t, c.kerberosURL("hdfs"), withKeytab(kdc)...), c.newDir(t))
		})
	}
}

func TestDelegationToken(t *testing.T) {
	c, kdc := kerberosCluster(t)
	owner := c.openURL(t, c.kerberosURL("webhdfs"), withKeytab(kdc)...)
	token := ""
	err := owner.b.(*web).namenode(t.Context(), http.MethodGet, "/", "GETDELEGATIONTOKEN", nil, func(resp *http.Response) error {
		var a struct {
			Token struct {
				URLString string `json:"urlString"`
			}
		}
		err := decodeWeb(resp.Body, maxWebAnswer, &a)
		token = a.Token.URLString
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, token)
	s := c.openURL(t, c.kerberosURL("webhdfs"), KeyDelegationToken, token)
	useStore(t, s, c.newDir(t))

	bad := token[:len(token)/2] + "AAAAAA" + token[len(token)/2+6:] // in the password
	s = c.openURL(t, c.kerberosURL("webhdfs"), KeyDelegationToken, bad)
	_, err = s.Stat(t.Context(), "tmp/x")
	require.ErrorIs(t, err, blobstore.ErrPermission)
	require.NotContains(t, err.Error(), bad)
	t.Log(err)
}

func TestTLS(t *testing.T) {
	c := startCluster(t, nil, "--https")
	url := "s" + c.url("webhdfs")[:len("webhdfs://")] + strings.TrimPrefix(c.env["TIDEMARK_TEST_SWEBHDFS"], "https://")
	useStore(t, c.openURL(t, url, KeyCAFile, c.env["TIDEMARK_TEST_HDFS_CA"]), c.newDir(t))

	s := c.openURL(t, url)
	soon(t, 5*time.Second, func() {
		_, err := s.Stat(t.Context(), "tmp/x")
		require.ErrorContains(t, err, "certificate")
		require.NotErrorIs(t, err, blobstore.ErrTemporary)
		t.Log(err)
	})
}
