package hdfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

func noEnvironment(t *testing.T) {
	for _, v := range []string{"HADOOP_CONF_DIR", "HADOOP_HOME", "KRB5CCNAME", "KRB5_CONFIG"} {
		t.Setenv(v, "")
	}
	t.Setenv("HADOOP_USER_NAME", "env-user")
}

func TestAddresses(t *testing.T) {
	noEnvironment(t)
	ha := map[string]string{
		"dfs.nameservices": "prod", "dfs.ha.namenodes.prod": "a, b",
		"dfs.namenode.rpc-address.prod.a": "a.example:9000", "dfs.namenode.rpc-address.prod.b": "b.example",
		"dfs.namenode.http-address.prod.a": "a.example:50070", "dfs.namenode.http-address.prod.b": "b.example:50070",
		"dfs.namenode.https-address.prod.a": "a.example:50470", "dfs.namenode.https-address.prod.b": "b.example:50470",
		"fs.defaultFS": "hdfs://prod",
	}
	with := func(m map[string]string, kv ...string) map[string]string {
		out := map[string]string{}
		for k, v := range m {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	for name, c := range map[string]struct {
		url    string
		config map[string]string
		native []string
		web    []string
	}{
		"host":                  {"hdfs://nn/x", nil, []string{"nn:8020"}, nil},
		"host and port":         {"hdfs://nn:9000", nil, []string{"nn:9000"}, nil},
		"IPv6":                  {"hdfs://[::1]:9000", nil, []string{"[::1]:9000"}, nil},
		"IPv6 without port":     {"hdfs://[::1]", nil, []string{"[::1]:8020"}, nil},
		"two hosts":             {"hdfs://a,b:9000", nil, []string{"a:8020", "b:9000"}, nil},
		"nameservice":           {"hdfs://prod/x", ha, []string{"a.example:9000", "b.example:8020"}, []string{"http://a.example:50070", "http://b.example:50070"}},
		"default":               {"hdfs:///x", ha, []string{"a.example:9000", "b.example:8020"}, []string{"http://a.example:50070", "http://b.example:50070"}},
		"nameservice, TLS only": {"hdfs://prod", with(ha, "dfs.http.policy", "HTTPS_ONLY"), []string{"a.example:9000", "b.example:8020"}, []string{"https://a.example:50470", "https://b.example:50470"}},
		"host of a nameservice": {"hdfs://a.example:9000", ha, []string{"a.example:9000"}, []string{"http://a.example:50070"}},
		"one namenode":          {"hdfs://one", map[string]string{"dfs.namenode.rpc-address.one": "h:1", "dfs.namenode.http-address.one": "h:2"}, []string{"h:1"}, []string{"http://h:2"}},
		"no nameservice":        {"hdfs://h:1", map[string]string{"dfs.namenode.rpc-address": "h:1", "dfs.namenode.http-address": "h:2"}, []string{"h:1"}, []string{"http://h:2"}},
		"WebHDFS beside":        {"hdfs://nn?webhdfs=https://w:1,https://w:2", nil, []string{"nn:8020"}, []string{"https://w:1", "https://w:2"}},
		"webhdfs":               {"webhdfs://nn", nil, nil, []string{"http://nn:9870"}},
		"webhdfs nameservice":   {"webhdfs://prod", ha, nil, []string{"http://a.example:50070", "http://b.example:50070"}},
		"swebhdfs":              {"swebhdfs://nn", nil, nil, []string{"https://nn:9871"}},
		"swebhdfs nameservice":  {"swebhdfs://prod", ha, nil, []string{"https://a.example:50470", "https://b.example:50470"}},
		"Flink's prefix":        {"hdfs://f", map[string]string{"flink.hadoop.dfs.ha.namenodes.f": "x", "flink.hadoop.dfs.namenode.rpc-address.f.x": "h:3"}, []string{"h:3"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			loc, err := blobstore.Parse(c.url)
			require.NoError(t, err)
			s, err := newSettings(loc, &blobstore.Options{Config: c.config})
			require.NoError(t, err)
			require.Equal(t, c.native, s.namenodes)
			require.Equal(t, c.web, s.web)
		})
	}
}

func TestSettings(t *testing.T) {
	noEnvironment(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "core-site.xml"), []byte(`<configuration>
<property><name>hadoop.security.authentication</name><value>kerberos</value></property>
<property><name>ipc.client.connect.timeout</name><value>5s</value></property></configuration>`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hdfs-site.xml"), []byte(`<configuration>
<property><name>dfs.blocksize</name><value>64m</value></property>
<property><name>dfs.namenode.kerberos.principal</name><value>nn/_HOST@REALM</value></property></configuration>`), 0o600))
	t.Setenv("HADOOP_CONF_DIR", dir)
	loc := blobstore.Location{Scheme: "hdfs", Authority: "nn"}
	s, err := newSettings(loc, &blobstore.Options{Config: map[string]string{"dfs.replication": "2", "fs.permissions.umask-mode": "077", KeyReplayBytes: "1k"}})
	require.NoError(t, err)
	require.Equal(t, "env-user", s.user)
	require.True(t, s.kerberos)
	require.Equal(t, "nn/_HOST", s.namenodePrincipal)
	require.Equal(t, "nn/h.example", servicePrincipal(s.namenodePrincipal, "H.example"))
	require.Equal(t, 5*time.Second, s.connectTimeout)
	require.Equal(t, 30*time.Second, s.rpcTimeout)
	require.EqualValues(t, 64<<20, s.blockSize)
	require.Equal(t, 2, s.replication)
	require.EqualValues(t, 0o077, s.umask)
	require.EqualValues(t, 1024, s.replayBytes)
	require.Equal(t, "/etc/krb5.conf", s.login.krb5Conf)

	s, err = newSettings(loc, &blobstore.Options{Config: map[string]string{"hadoop.security.authentication": "simple"}})
	require.NoError(t, err)
	require.False(t, s.kerberos, "options are above the files")
	loc.Query = "user=someone"
	s, err = newSettings(loc, nil)
	require.NoError(t, err)
	require.Equal(t, "someone", s.user)
}

func TestSettingsErrors(t *testing.T) {
	noEnvironment(t)
	for name, c := range map[string]struct {
		loc    blobstore.Location
		config map[string]string
		want   string
	}{
		"no namenode":       {blobstore.Location{Scheme: "hdfs"}, nil, "fs.defaultFS"},
		"default is local":  {blobstore.Location{Scheme: "hdfs"}, map[string]string{"fs.defaultFS": "file:///"}, "fs.defaultFS"},
		"user information":  {blobstore.Location{Scheme: "hdfs", Authority: "a@nn"}, nil, "?user=NAME"},
		"bad port":          {blobstore.Location{Scheme: "hdfs", Authority: "nn:http"}, nil, "host:port"},
		"port out of range": {blobstore.Location{Scheme: "hdfs", Authority: "nn:70000"}, nil, "host:port"},
		"unknown parameter": {blobstore.Location{Scheme: "hdfs", Authority: "nn", Query: "usr=x"}, nil, `"usr"`},
		"bad user":          {blobstore.Location{Scheme: "hdfs", Authority: "nn", Query: "user=%FF"}, nil, "user name"},
		"NUL in user":       {blobstore.Location{Scheme: "webhdfs", Authority: "nn", Query: "user=a%00b"}, nil, "user name"},
		"bad size":          {blobstore.Location{Scheme: "hdfs", Authority: "nn"}, map[string]string{"dfs.blocksize": "much"}, "dfs.blocksize"},
		"bad time":          {blobstore.Location{Scheme: "hdfs", Authority: "nn"}, map[string]string{"ipc.client.rpc-timeout.ms": "-5"}, "ipc.client.rpc-timeout.ms"},
		"bad umask":         {blobstore.Location{Scheme: "hdfs", Authority: "nn"}, map[string]string{"fs.permissions.umask-mode": "u=rwx"}, "octal"},
		"bad WebHDFS":       {blobstore.Location{Scheme: "hdfs", Authority: "nn", Query: "webhdfs=nn:9870"}, nil, "http://HOST:PORT"},
		"CA file missing":   {blobstore.Location{Scheme: "swebhdfs", Authority: "nn"}, map[string]string{KeyCAFile: "/nowhere.pem"}, "/nowhere.pem"},
		"conf dir":          {blobstore.Location{Scheme: "hdfs", Authority: "nn"}, map[string]string{"env.hadoop.conf.dir": "testdata/bad-conf"}, "core-site.xml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openStore(c.loc, &blobstore.Options{Config: c.config})
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, blobstore.ErrSettings)
		})
	}
}
