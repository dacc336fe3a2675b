package blobstore

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     Location
		text     string // of String; "" is in
	}{
		{"s3", "s3://bucket/ckp/chk-1", Location{"s3", "bucket", "ckp/chk-1", "", "s3"}, ""},
		{"s3a", "s3a://bucket/ckp", Location{"s3", "bucket", "ckp", "", "s3a"}, ""},
		{"s3p", "s3p://bucket/ckp", Location{"s3", "bucket", "ckp", "", "s3p"}, ""},
		{"s3n", "s3n://bucket/ckp", Location{"s3", "bucket", "ckp", "", "s3n"}, ""},
		{"upper-case scheme", "S3A://bucket/x", Location{"s3", "bucket", "x", "", "S3A"}, ""},
		{"bucket only", "s3://bucket", Location{"s3", "bucket", "", "", "s3"}, ""},
		{"bucket and slash", "s3://bucket/", Location{"s3", "bucket", "", "", "s3"}, "s3://bucket"},
		{"trailing slash", "s3://bucket/a/b/", Location{"s3", "bucket", "a/b", "", "s3"}, "s3://bucket/a/b"},
		{"empty parts as Flink drops them", "s3://bucket//a///b", Location{"s3", "bucket", "a/b", "", "s3"}, "s3://bucket/a/b"},
		{"dot parts", "s3://bucket/./a/./b/.", Location{"s3", "bucket", "a/b", "", "s3"}, "s3://bucket/a/b"},
		{"dots that are names", "s3://bucket/..a/.b/...", Location{"s3", "bucket", "..a/.b/...", "", "s3"}, ""},
		{"query", "s3://bucket/a?endpoint=http://h:1&region=x", Location{"s3", "bucket", "a", "endpoint=http://h:1&region=x", "s3"}, "s3://bucket/a"},
		{"query on the bucket", "s3://bucket?region=x", Location{"s3", "bucket", "", "region=x", "s3"}, "s3://bucket"},
		{"percent is not decoded", "s3://bucket/a%20b%2Fc%", Location{"s3", "bucket", "a%20b%2Fc%", "", "s3"}, ""},
		{"odd bytes", "s3://bucket/a b#c&d=e+f;ü", Location{"s3", "bucket", "a b#c&d=e+f;ü", "", "s3"}, ""},
		{"colon in the path", "s3://bucket/a:b", Location{"s3", "bucket", "a:b", "", "s3"}, ""},
		{"gs", "gs://bucket/x", Location{"gs", "bucket", "x", "", "gs"}, ""},
		{"abfs", "abfs://cont@acc.dfs.core.windows.net/p/q", Location{"azblob", "cont@acc", "p/q", "", "abfs"}, ""},
		{"abfss", "abfss://cont@acc.dfs.core.windows.net/p/q", Location{"azblob", "cont@acc", "p/q", "", "abfss"}, ""},
		{"wasb", "wasb://cont@acc.blob.core.windows.net/p", Location{"azblob", "cont@acc", "p", "", "wasb"}, ""},
		{"wasbs", "wasbs://cont@acc.blob.core.windows.net/p", Location{"azblob", "cont@acc", "p", "", "wasbs"}, ""},
		{"abfss in another cloud", "abfss://c@acc.dfs.core.chinacloudapi.cn/p", Location{"azblob", "c@acc.blob.core.chinacloudapi.cn", "p", "", "abfss"}, ""},
		{"wasbs in another cloud", "wasbs://c@acc.blob.core.chinacloudapi.cn/p", Location{"azblob", "c@acc.blob.core.chinacloudapi.cn", "p", "", "wasbs"}, ""},
		{"abfs at an emulator", "abfs://c@127.0.0.1:10000/p", Location{"azblob", "c@127.0.0.1:10000", "p", "", "abfs"}, ""},
		{"azblob", "azblob://cont/p", Location{"azblob", "cont", "p", "", "azblob"}, ""},
		{"azblob with account", "azblob://cont@acc/p", Location{"azblob", "cont@acc", "p", "", "azblob"}, ""},
		{"hdfs", "hdfs://nn1:8020/flink", Location{"hdfs", "nn1:8020", "flink", "", "hdfs"}, ""},
		{"hdfs nameservice", "hdfs://Prod_NS/flink", Location{"hdfs", "Prod_NS", "flink", "", "hdfs"}, ""},
		{"hdfs, two namenodes", "hdfs://a:1,b:2/x", Location{"hdfs", "a:1,b:2", "x", "", "hdfs"}, ""},
		{"hdfs, default file system", "hdfs:///flink", Location{"hdfs", "", "flink", "", "hdfs"}, ""},
		{"hdfs, one slash", "hdfs:/flink", Location{"hdfs", "", "flink", "", "hdfs"}, "hdfs:///flink"},
		{"hdfs, IPv6", "hdfs://[::1]:8020/x", Location{"hdfs", "[::1]:8020", "x", "", "hdfs"}, ""},
		{"webhdfs", "webhdfs://nn:9870/x", Location{"webhdfs", "nn:9870", "x", "", "webhdfs"}, ""},
		{"swebhdfs", "swebhdfs://nn:9871/x", Location{"swebhdfs", "nn:9871", "x", "", "swebhdfs"}, ""},
		{"viewfs", "viewfs://cluster/x", Location{"viewfs", "cluster", "x", "", "viewfs"}, ""},
		{"mem", "mem://test/x", Location{"mem", "test", "x", "", "mem"}, ""},
		{"mem, default", "mem:///x", Location{"mem", "", "x", "", "mem"}, ""},
		{"oss is nobody's", "oss://b/x", Location{"oss", "b", "x", "", "oss"}, ""},
		{"file, one slash, as Flink prints it", "file:/data/x", Location{"file", "", "data/x", "", "file"}, ""},
		{"file, three slashes", "file:///data/x", Location{"file", "", "data/x", "", "file"}, "file:/data/x"},
		{"file on localhost", "file://localhost/data/x", Location{"file", "", "data/x", "", "file"}, "file:/data/x"},
		{"file root", "file:///", Location{"file", "", "", "", "file"}, "file:/"},
		{"file with query", "file:///x?fsync=off", Location{"file", "", "x", "fsync=off", "file"}, "file:/x"},
		{"plain", "/data/x", Location{"file", "", "data/x", "", ""}, ""},
		{"plain root", "/", Location{"file", "", "", "", ""}, ""},
		{"plain with trailing slash", "/data/x/", Location{"file", "", "data/x", "", ""}, "/data/x"},
		{"plain with dots", "/data/y/../x", Location{"file", "", "data/x", "", ""}, "/data/x"},
		{"plain with ? and #", "/data/what?#", Location{"file", "", "data/what?#", "", ""}, ""},
		{"plain with colon", "/data/a:b", Location{"file", "", "data/a:b", "", ""}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && c.want.Spelling == "" {
				t.Skip("has drives")
			}
			got, err := Parse(c.in)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			if c.text == "" {
				c.text = c.in
			}
			require.Equal(t, c.text, got.String())
		})
	}
}

func TestParseRelative(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	dir, err := os.Getwd()
	require.NoError(t, err)
	dir = filepath.ToSlash(dir)
	for in, want := range map[string]string{
		"x/y": dir + "/x/y", ".": dir, "./x": dir + "/x", "../x": filepath.ToSlash(filepath.Dir(dir)) + "/x", "a b": dir + "/a b",
		"./a:b": dir + "/a:b", "a/b:c": dir + "/a/b:c", "x?y": dir + "/x?y",
	} {
		got, err := Parse(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got.String(), in)
		require.Equal(t, "file", got.Scheme)
	}
	_, err = ParsePath("x/y")
	require.ErrorIs(t, err, ErrInvalidName)
}

// Nothing of a secret is repeated, also where a "/" in it breaks the URL apart.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, says string }{
		{"empty", "", "empty"},
		{"NUL", "/a\x00b", "NUL"},
		{"credentials", "s3://AKIA:SECRET@bucket/x", "user information"},
		{"credentials with a slash", "s3://AKIA:SEC/SECRET@bucket/x", `":"`},
		{"user", "s3://SECRET@bucket/x", "user information"},
		{"user in hdfs", "hdfs://SECRET@nn/x", "user information"},
		{"password in hdfs with a slash", "hdfs://u:SECRET/SECRET@nn/x", "port"},
		{"password in abfs", "abfss://c:SECRET@acc.dfs.core.windows.net/x", "user information"},
		{"two users in abfs", "abfss://c@SECRET@acc.dfs.core.windows.net/x", "user information"},
		{"user in gs", "gs://SECRET@b/x", "user information"},
		{"user in a scheme nobody knows", "oss://SECRET:SECRET@b/x", "user information"},
		{"user in https", "https://u:SECRET@host/x", "user information"},
		{"bad query", "s3://bucket/x?a=%zzSECRET", "query"},
		{"semicolon in the query", "s3://bucket/x?a=1;SECRET", "query"},
		{"parent", "s3://bucket/a/../b", `".."`},
		{"parent at the end", "hdfs://nn/a/..", `".."`},
		{"parent in a file URL", "file:///a/../../etc", `".."`},
		{"file with a host", "file://data/x", "file:///"},
		{"no bucket", "s3:///x", "bucket"},
		{"no bucket, one slash", "s3:/x", "bucket"},
		{"nothing behind", "s3://", "bucket"},
		{"no container", "azblob:///x", "container"},
		{"no container in abfs", "abfss://acc.dfs.core.windows.net/x", "CONTAINER@ACCOUNT"},
		{"no account", "abfss://c@/x", "account"},
		{"opaque", "s3:bucket/x", "s3://"},
		{"colon before a slash", "chk:1/x", "./chk"},
		{"space in the host", "hdfs://n n/x", "character"},
		{"line break in the host", "s3://b\nc/x", "character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.in)
			require.ErrorIs(t, err, ErrInvalidName)
			require.Contains(t, err.Error(), c.says)
			require.NotContains(t, err.Error(), "SECRET")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestParsePath(t *testing.T) {
	l, err := ParsePath("s3a://b/what?x=1")
	require.NoError(t, err)
	require.Equal(t, Location{"s3", "b", "what?x=1", "", "s3a"}, l)
	l, err = ParsePath("file:/a/b?c")
	require.NoError(t, err)
	require.Equal(t, "a/b?c", l.Path)
	_, err = ParsePath("../etc/passwd")
	require.ErrorIs(t, err, ErrInvalidName)
	_, err = ParsePath("/x/../etc/passwd")
	require.ErrorIs(t, err, ErrInvalidName)
}

func mustParse(t testing.TB, s string) Location {
	t.Helper()
	l, err := Parse(s)
	require.NoError(t, err)
	return l
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"s3://b/x", "s3a://b/x", true},
		{"s3p://b/x?region=1", "s3://b/x", true},
		{"s3://b/x", "s3://c/x", false},
		{"s3://b/x", "gs://b/x", false},
		{"s3://b/x", "s3://b/y", false},
		{"abfss://c@a.dfs.core.windows.net/x", "wasb://c@a.blob.core.windows.net/x", true},
		{"abfss://c@a.dfs.core.windows.net/x", "azblob://c@a/x", true},
		{"abfss://c@A.dfs.core.windows.net/x", "azblob://c@a/x", true},
		{"abfss://c@a.dfs.core.windows.net/x", "abfss://d@a.dfs.core.windows.net/x", false},
		{"abfss://c@a.dfs.core.chinacloudapi.cn/x", "wasbs://c@a.blob.core.chinacloudapi.cn/x", true},
		{"abfss://c@a.dfs.core.chinacloudapi.cn/x", "abfss://c@a.dfs.core.windows.net/x", false},
		{"file:/data/x", "/data/x", true},
		{"file:///data/x", "file:/data/x", true},
		{"hdfs://nn/x", "hdfs://nn:8020/x", true},
		{"hdfs://nn/x", "hdfs://nn:9000/x", false},
		{"hdfs://nn/x", "webhdfs://nn/x", false},
	} {
		a, b := mustParse(t, c.a), mustParse(t, c.b)
		require.Equal(t, c.same, a.Same(b), "%s and %s", c.a, c.b)
		require.Equal(t, c.same, a.Key() == b.Key(), "keys of %s and %s", c.a, c.b)
	}
}

func TestRel(t *testing.T) {
	for _, c := range []struct {
		l, dir, want string
		ok           bool
	}{
		{"s3://b/ckp/chk-1/x", "s3a://b/ckp", "chk-1/x", true},
		{"s3://b/ckp", "s3a://b/ckp/", "", true},
		{"s3://b/ckp-old/x", "s3a://b/ckp", "", false},
		{"s3://b/ck", "s3://b/ckp", "", false},
		{"s3://b/x", "s3://b", "x", true},
		{"s3://c/x", "s3://b", "", false},
		{"/data/x", "/", "data/x", true},
		{"file:/data/x/y", "/data/x", "y", true},
	} {
		got, ok := mustParse(t, c.l).Rel(mustParse(t, c.dir))
		require.Equal(t, c.ok, ok, "%s below %s", c.l, c.dir)
		require.Equal(t, c.want, got)
	}
	l := mustParse(t, "s3://b/a/c")
	require.Equal(t, "c", l.Base())
	require.Equal(t, "s3://b/a", l.Dir().String())
	require.Equal(t, "s3://b", l.Dir().Dir().Dir().String())
	require.Equal(t, "s3://b/a/c/d/e", l.Join("d/e").String())
	require.Equal(t, l, l.Dir().Join(l.Base()))
	require.Equal(t, "s3://b/x", l.Root().Join("x").String())
}

func TestMappings(t *testing.T) {
	for _, c := range []struct{ name, in, old, to string }{
		{"URLs", "hdfs://nn/a=s3://b/c", "hdfs://nn/a", "s3://b/c"},
		{"path", "/a=/b", "/a", "/b"},
		{"equals sign in the old one", "hdfs://nn/dt=1/a=s3://b/c", "hdfs://nn/dt=1/a", "s3://b/c"},
		{"equals sign in the new one", "hdfs://nn/a=s3://b/dt=1", "hdfs://nn/a", "s3://b/dt=1"},
		{"query in the new one", "s3://old/a=s3://b/c?region=x", "s3://old/a", "s3://b/c"},
	} {
		m, err := ParseMapping(c.in)
		require.NoError(t, err, c.name)
		require.Equal(t, c.old, m.Old.String(), c.name)
		require.Equal(t, c.to, m.New.String(), c.name)
	}
	for _, bad := range []string{"", "=", "/a", "/a=", "=/b", "/a=/b=/c", "x=y", "s3://u:p@b/x=/y", "/a/../b=/c"} {
		_, err := ParseMapping(bad)
		require.ErrorIs(t, err, ErrInvalidName, bad)
	}
	ms := Mappings{
		{mustParse(t, "hdfs://nn/flink"), mustParse(t, "s3://b/f")},
		{mustParse(t, "hdfs://nn/flink/job/shared"), mustParse(t, "/mnt/shared")},
	}
	for in, want := range map[string]string{
		"hdfs://nn/flink/x":                 "s3://b/f/x",
		"hdfs://nn/flink":                   "s3://b/f",
		"hdfs://nn:8020/flink/job/shared/y": "/mnt/shared/y",
		"hdfs://nn/flink-2/x":               "",
		"s3://b/f/x":                        "",
	} {
		got, ok := ms.Map(mustParse(t, in))
		require.Equal(t, want != "", ok, in)
		if ok {
			require.Equal(t, want, got.String())
		} else {
			require.Equal(t, in, got.String())
		}
	}
	trust := Prefixes{mustParse(t, "/data"), mustParse(t, "s3a://b/x")}
	require.True(t, trust.Contain(mustParse(t, "file:/data/y")))
	require.True(t, trust.Contain(mustParse(t, "s3://b/x")))
	require.False(t, trust.Contain(mustParse(t, "s3://b/xy")))
	require.False(t, trust.Contain(mustParse(t, "/data2")))
}

func TestEntropy(t *testing.T) {
	e := Entropy{Marker: "_entropy_"}
	conf := mustParse(t, "s3://b/_entropy_/ckp/_entropy_")
	require.True(t, e.In(conf))
	require.Equal(t, "s3://b/ckp/_entropy_", e.Remove(conf).String())
	require.Equal(t, "s3://b/aX3f/ckp/_entropy_", e.Resolve(conf, "aX3f").String())
	require.Equal(t, "s3://b", e.Parent(conf).String())

	conf = mustParse(t, "s3://b/flink/p-_entropy_-q/ckp")
	require.Equal(t, "s3://b/flink/p--q/ckp", e.Remove(conf).String())
	require.Equal(t, "s3://b/flink", e.Parent(conf).String())
	for in, want := range map[string]string{
		"s3a://b/flink/p-aX3f-q/ckp/job/chk-1/u": "aX3f job/chk-1/u",
		"s3://b/flink/p-0000-q/ckp":              "0000 ",
		"s3://b/flink/p-aX3-q/ckp/x":             "",
		"s3://b/flink/p-aX3f-q/ckp2":             "",
		"s3://b/flink/p-a/3f-q/ckp/x":            "",
		"s3://c/flink/p-aX3f-q/ckp/x":            "",
		"s3://b/flink/p--q/ckp/x":                "",
	} {
		random, name, ok := e.Match(conf, mustParse(t, in))
		require.Equal(t, want != "", ok, in)
		if ok {
			require.Equal(t, want, random+" "+name)
		}
	}
	plain := mustParse(t, "s3://b/x")
	require.Equal(t, plain, e.Remove(plain))
	require.Equal(t, plain, Entropy{}.Remove(plain))
	_, _, ok := e.Match(plain, plain)
	require.False(t, ok)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"s3a://bucket/a%20b/c?region=x&endpoint=http://h:1", "abfss://c@a.dfs.core.windows.net/x", "wasb://c@a.blob.core.usgovcloudapi.net/x",
		"hdfs://a:8020,b:8020/x", "file:/x", "file:///x?fsync=off", "/x/../y", "x", "C:/x", `C:\x`, "s3://u:p@b/x", "azblob://c", "mem://",
		"viewfs:///x", "s3://b/./a//b/..", "s3:x", "\x00", "s3://b/\xff", "abfs://c@127.0.0.1:10000/devstore/x", "gs://b/🦦", "oss://b?x",
		"azblob://@/x", "hdfs://[::1]:8020/", "swebhdfs://nn:9871/x", "webhdfs://nn/x?user.name=u",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := Parse(s)
		if err != nil {
			if l != (Location{}) {
				t.Fatalf("%q: a location beside the error: %+v", s, l)
			}
			return
		}
		if l.Path != "" {
			if err := checkName(l.Path); err != nil {
				t.Fatalf("%q: path %q: %v", s, l.Path, err)
			}
		}
		if strings.ContainsAny(l.Authority, "/?") || l.Scheme == "" || l.Scheme != strings.ToLower(l.Scheme) {
			t.Fatalf("%q: %+v", s, l)
		}
		if l.Scheme != "azblob" && strings.Contains(l.Authority, "@") {
			t.Fatalf("%q: user information came through: %+v", s, l)
		}
		// What it prints is the same place, both for users and in metadata.
		want := l
		want.Query = ""
		back, err := ParsePath(l.String())
		if err != nil || back != want {
			t.Fatalf("%q: printed %q: parsed %+v, %v, want %+v", s, l.String(), back, err, want)
		}
		if !strings.Contains(l.Path, "?") || l.Spelling == "" {
			if back, err = Parse(l.String()); err != nil || back != want {
				t.Fatalf("%q: printed %q: parsed %+v, %v, want %+v", s, l.String(), back, err, want)
			}
		}
		if !l.Same(back) || !l.HasPrefix(l.Root()) || !l.HasPrefix(l) || l.Join("x").Dir() != l {
			t.Fatalf("%q: %+v is not below itself", s, l)
		}
		if rel, ok := l.Join("a/b").Rel(l); !ok || rel != "a/b" {
			t.Fatalf("%q: rel %q %v", s, rel, ok)
		}
	})
}
