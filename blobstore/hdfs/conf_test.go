package hdfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parseConf(t testing.TB, files map[string]string) (conf, error) {
	p := confParser{values: conf{}, final: map[string]bool{}, open: func(name string) (io.ReadCloser, error) {
		s, ok := files[filepath.Base(name)]
		if !ok {
			return nil, os.ErrNotExist
		}
		return io.NopCloser(strings.NewReader(s)), nil
	}}
	err := p.file("main.xml", 0)
	return p.values, err
}

func TestConf(t *testing.T) {
	t.Setenv("TIDEMARK_TEST_HOST", "nn.example")
	os.Unsetenv("TIDEMARK_TEST_UNSET")
	c, err := parseConf(t, map[string]string{
		"main.xml": `<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="configuration.xsl"?>
<!-- a comment -->
<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
  <property><name> plain </name><value> v </value><description>text</description></property>
  <property><name>final</name><value>first</value><final>true</final></property>
  <property><name>final</name><value>second</value></property>
  <property><name>later</name><value>first</value></property>
  <property><name>later</name><value>second</value></property>
  <property name="attribute" value="yes"/>
  <property><name>expanded</name><value>hdfs://${env.TIDEMARK_TEST_HOST}:${port}/</value></property>
  <property><name>port</name><value>80${digits}</value></property>
  <property><name>digits</name><value>20</value></property>
  <property><name>default</name><value>${env.TIDEMARK_TEST_UNSET:-none} ${env.TIDEMARK_TEST_UNSET-also none}</value></property>
  <property><name>unknown</name><value>${no.such.key} ${digits} ${open</value></property>
  <property><name>cycle</name><value>${cycle}</value></property>
  <property><name>growing</name><value>${growing}${growing}</value></property>
  <property><name>list</name><value> a, b ,,c </value></property>
  <property><value>without a name</value></property>
  <other><property><name>hidden</name><value>x</value></property></other>
  <xi:include href="other.xml"/>
</configuration>`,
		"other.xml": `<configuration><configuration><property><name>included</name><value>yes</value></property></configuration></configuration>`,
	})
	require.NoError(t, err)
	for key, want := range map[string]string{
		"plain": "v", "final": "first", "later": "second", "attribute": "yes", "expanded": "hdfs://nn.example:8020/", "default": "none also none",
		"unknown": "${no.such.key} 20 ${open", "included": "yes", "hidden": "", "absent": "",
	} {
		require.Equal(t, want, c.get(key), key)
	}
	require.Equal(t, []string{"a", "b", "c"}, c.list("list"))
	require.Equal(t, "${cycle}", c.get("cycle"))
	require.Less(t, len(c.get("growing")), maxConfValue+1)
}

func TestConfErrors(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"empty":          {"", "no <configuration>"},
		"other root":     {"<html/>", "<html> where <configuration> should be"},
		"cut off":        {"<configuration><property><name>x</na", "XML syntax error"},
		"include itself": {`<configuration><include href="main.xml"/></configuration>`, "included too deeply"},
		"include absent": {`<configuration><include href="nowhere.xml"/></configuration>`, "not exist"},
		"large":          {"<configuration>" + strings.Repeat(" ", maxConfFile) + "</configuration>", "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConf(t, map[string]string{"main.xml": c.file})
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "main.xml", "the file is named")
		})
	}
	dir := t.TempDir()
	c, err := loadConf(dir)
	require.NoError(t, err, "a folder without the files")
	require.Empty(t, c)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hdfs-site.xml"), []byte("<configuration>"), 0o600))
	_, err = loadConf(dir)
	require.ErrorContains(t, err, "hdfs-site.xml")
}

func FuzzConf(f *testing.F) {
	f.Add([]byte(`<configuration><property><name>a</name><value>${b}</value></property><property><name>b</name><value>${a} ${env.HOME}</value></property></configuration>`))
	f.Add([]byte(`<configuration><property name="x" value="y"/><include href="main.xml"/></configuration>`))
	f.Add([]byte(`<!DOCTYPE x [<!ENTITY a "b">]><configuration>&a;</configuration>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		opened := 0
		p := confParser{values: conf{}, final: map[string]bool{}, open: func(string) (io.ReadCloser, error) {
			if opened++; opened > 20 {
				return nil, errors.New("enough")
			}
			return io.NopCloser(strings.NewReader(string(b))), nil
		}}
		if p.file("main.xml", 0) != nil {
			return
		}
		for key := range p.values {
			require.LessOrEqual(t, len(p.values.get(key)), max(maxConfValue, len(b)))
		}
	})
}
