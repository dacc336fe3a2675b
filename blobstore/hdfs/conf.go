package hdfs

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// conf is a Hadoop configuration: property names and values, variables not yet
// expanded. get expands them.
type conf map[string]string

const (
	maxConfFile   = 16 << 20 // bytes of one XML file
	maxConfValue  = 64 << 10 // bytes of a value after expansion
	maxConfNested = 8        // files that include each other
	maxConfSteps  = 20       // variables expanded in one value, as in Hadoop
)

// loadConf reads core-site.xml and hdfs-site.xml from a folder; files that are
// not there are passed over.
func loadConf(dir string) (conf, error) {
	p := confParser{values: conf{}, final: map[string]bool{}, open: func(name string) (io.ReadCloser, error) { return os.Open(name) }}
	for _, name := range []string{"core-site.xml", "hdfs-site.xml"} {
		err := p.file(filepath.Join(dir, name), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return p.values, nil
}

// confParser reads Hadoop's XML: <configuration> of <property> with <name>,
// <value> and <final>; later values win unless an earlier one is final. An
// <include> of the XInclude namespace pulls in another file.
type confParser struct {
	values conf
	final  map[string]bool
	open   func(name string) (io.ReadCloser, error)
}

func (p *confParser) file(name string, depth int) error {
	if depth > maxConfNested {
		return fmt.Errorf("%s: included too deeply", name)
	}
	f, err := p.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.read(f, filepath.Dir(name), depth); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

type confProperty struct {
	Name  string `xml:"name"`
	Value string `xml:"value"`
	Final string `xml:"final"`
	// Hadoop also takes <property name="…" value="…"/>.
	NameAttr  string `xml:"name,attr"`
	ValueAttr string `xml:"value,attr"`
}

func (p *confParser) read(r io.Reader, dir string, depth int) error {
	limited := &io.LimitedReader{R: r, N: maxConfFile + 1}
	d := xml.NewDecoder(limited)
	root := false
	for {
		tok, err := d.Token()
		if limited.N <= 0 {
			return fmt.Errorf("larger than %d bytes", maxConfFile)
		}
		if err == io.EOF {
			if !root {
				return errors.New("no <configuration>")
			}
			return nil
		}
		if err != nil {
			return err
		}
		start, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		switch {
		case !root:
			if start.Name.Local != "configuration" {
				return fmt.Errorf("<%s> where <configuration> should be", start.Name.Local)
			}
			root = true
		case start.Name.Local == "include":
			href := ""
			for _, a := range start.Attr {
				if a.Name.Local == "href" {
					href = strings.TrimPrefix(a.Value, "file://")
				}
			}
			if !filepath.IsAbs(href) {
				href = filepath.Join(dir, href)
			}
			if err := p.file(href, depth+1); err != nil {
				return err
			}
			if err := d.Skip(); err != nil {
				return err
			}
		case start.Name.Local == "property":
			var v confProperty
			if err := d.DecodeElement(&v, &start); err != nil {
				return err
			}
			if v.NameAttr != "" {
				v.Name, v.Value = v.NameAttr, v.ValueAttr
			}
			name := strings.TrimSpace(v.Name)
			if name == "" || p.final[name] {
				continue
			}
			p.values[name] = strings.TrimSpace(v.Value)
			p.final[name] = strings.TrimSpace(v.Final) == "true"
		default: // <configuration> may be nested
			if start.Name.Local != "configuration" {
				if err := d.Skip(); err != nil {
					return err
				}
			}
		}
	}
}

// get is the value of a key with its variables expanded: ${other.key},
// ${env.NAME}, ${env.NAME:-default} and ${user.name}. What is not known stays
// as it is, as in Hadoop.
func (c conf) get(key string) string {
	v := c[key]
	from := 0
	for range maxConfSteps {
		i := strings.Index(v[from:], "${")
		if i < 0 {
			return v
		}
		i += from
		j := strings.IndexByte(v[i:], '}')
		if j < 0 {
			return v
		}
		j += i
		val, ok := c.variable(v[i+2 : j])
		if !ok {
			from = j
			continue
		}
		if len(v)+len(val) > maxConfValue {
			return v
		}
		v = v[:i] + val + v[j+1:]
	}
	return v
}

func (c conf) variable(name string) (string, bool) {
	if env, ok := strings.CutPrefix(name, "env."); ok {
		env, def, hasDef := strings.Cut(env, "-")
		env, orEmpty := strings.CutSuffix(env, ":")
		val, set := os.LookupEnv(env)
		if hasDef && (!set || orEmpty && val == "") {
			return def, true
		}
		return val, set
	}
	if val, ok := c[name]; ok {
		return val, true
	}
	if name == "user.name" {
		u, err := osUser()
		return u, err == nil
	}
	return "", false
}

// list splits a comma-separated value.
func (c conf) list(key string) []string {
	var out []string
	for s := range strings.SplitSeq(c.get(key), ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
