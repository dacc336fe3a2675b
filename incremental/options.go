package incremental

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/internal/damage"
)

// rocksOptions is what an OPTIONS file says that a check of the tables needs.
//
//	# comments
//	[Version]
//	  rocksdb_version=6.20.3
//	[CFOptions "NAME"]
//	  name=value
//	[TableOptions/BlockBasedTable "NAME"]
//	  format_version=5
//
// The file has no checksum: whatever breaks this form is damage, a changed
// letter in a value is not found. Source: RocksDB, options/options_parser.cc.
type rocksOptions struct {
	number         uint64
	formatVersions map[string]uint32 // by column family
}

// parseOptions reads an OPTIONS file. local is its name, OPTIONS-000007.
func parseOptions(local, name string, data []byte) (*rocksOptions, error) {
	o := &rocksOptions{formatVersions: map[string]uint32{}}
	var err error
	if o.number, err = strconv.ParseUint(strings.TrimPrefix(local, "OPTIONS-"), 10, 64); err != nil {
		return nil, &damage.Error{Name: name, Offset: -1, Detail: "has no number in its name", Err: damage.ErrCorrupt}
	}
	corrupt := func(off int, detail string) error {
		return &damage.Error{Name: name, Offset: int64(off), Detail: detail, Err: damage.ErrCorrupt}
	}
	section, family, sections := "", "", 0
	off := 0
	for line := range strings.Lines(string(data)) {
		at := off
		off += len(line)
		if !strings.HasSuffix(line, "\n") {
			return nil, corrupt(at, "ends within a line")
		}
		line = strings.TrimSpace(line)
		for i := range len(line) {
			// Names of column families in section headers may hold anything.
			if (line[i] < ' ' || line[i] == 0x7f) && line[0] != '[' {
				return nil, corrupt(at+i, "has a control character")
			}
		}
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			body, ok := strings.CutSuffix(line[1:], "]")
			if !ok {
				return nil, corrupt(at, fmt.Sprintf("section %q is not closed", line))
			}
			var quoted string
			if section, quoted, ok = strings.Cut(body, " "); ok {
				family = unescapeOption(strings.Trim(quoted, `"`))
			}
			sections++
		default:
			k, v, ok := strings.Cut(line, "=")
			if !ok || section == "" {
				return nil, corrupt(at, fmt.Sprintf("line %q is not name=value in a section", line))
			}
			if section == "TableOptions/BlockBasedTable" && k == "format_version" {
				n, err := strconv.ParseUint(v, 10, 32)
				if err != nil {
					return nil, corrupt(at, fmt.Sprintf("format_version is %q", v))
				}
				o.formatVersions[family] = uint32(n)
			}
		}
	}
	if sections < 2 {
		return nil, corrupt(0, "has no sections")
	}
	return o, nil
}

// unescapeOption undoes RocksDB's escapes of ":", "\" and "#" and of line ends.
func unescapeOption(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
				continue
			case 'r':
				b.WriteByte('\r')
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
