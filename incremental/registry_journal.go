package incremental

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
)

// A journal object lists files, for the registry that comes after a restart. It is
// text, a line each:
//
//	tidemark registry 1
//	dir file:/ckp/7f3c…/shared       the folder of the lines that follow
//	file 1c9f…                       a file to be deleted, or to be kept
//	meta _metadata                   a metadata object
//	end 2 9ae0daaf                   entries, and the CRC-32C of all lines before
//
// A folder or name with a character that is not printable, or a quotation mark in
// front, is a Go string literal.
const journalHead = "tidemark registry 1"

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// encodeJournal writes the entries, each with whether it is a metadata object.
func encodeJournal(entries iter.Seq2[blobstore.Location, bool]) []byte {
	var b bytes.Buffer
	b.WriteString(journalHead + "\n")
	var dir blobstore.Location
	n := 0
	for loc, isMeta := range entries {
		if d := loc.Dir(); n == 0 || d != dir {
			dir = d
			fmt.Fprintf(&b, "dir %s\n", journalText(dir.String()))
		}
		word := "file"
		if isMeta {
			word = "meta"
		}
		fmt.Fprintf(&b, "%s %s\n", word, journalText(loc.Base()))
		n++
	}
	sum := crc32.Checksum(b.Bytes(), crcTable)
	fmt.Fprintf(&b, "end %d %08x\n", n, sum)
	return b.Bytes()
}

func journalText(s string) string {
	if s != "" && s[0] != '"' && strings.IndexFunc(s, func(r rune) bool { return r == '\uFFFD' || !strconv.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// decodeJournal reads what encodeJournal wrote. Damage is named and wraps
// damage.ErrCorrupt.
func decodeJournal(name string, data []byte) (metas, files []blobstore.Location, err error) {
	at := 0
	bad := func(field, detail string) error {
		return &damage.Error{Name: name, Offset: int64(at), Field: field, Detail: detail, Err: damage.ErrCorrupt}
	}
	r := bufio.NewReader(bytes.NewReader(data))
	var dir blobstore.Location
	haveDir := false
	for n := 0; ; {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return nil, nil, bad("journal", "ends without its last line")
		}
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		text := rest
		if strings.HasPrefix(rest, `"`) {
			if text, err = strconv.Unquote(rest); err != nil {
				return nil, nil, bad("journal line", "is not a string literal")
			}
		}
		switch {
		case at == 0:
			if line != journalHead+"\n" {
				return nil, nil, bad("journal", "does not begin with "+strconv.Quote(journalHead))
			}
		case word == "dir":
			if dir, err = blobstore.ParsePath(text); err != nil {
				return nil, nil, bad("folder", err.Error())
			}
			haveDir = true
		case word == "file" || word == "meta":
			if err := blobstore.ValidName(text); !haveDir || err != nil || strings.Contains(text, "/") {
				return nil, nil, bad("name", strconv.Quote(text)+" is no name in a folder")
			}
			if n++; word == "meta" {
				metas = append(metas, dir.Join(text))
			} else {
				files = append(files, dir.Join(text))
			}
		case word == "end":
			if want := fmt.Sprintf("%d %08x", n, crc32.Checksum(data[:at], crcTable)); rest != want {
				return nil, nil, bad("last line", "is "+strconv.Quote(rest)+", expected "+want)
			}
			if at += len(line); at != len(data) {
				return nil, nil, bad("journal", "goes on after its last line")
			}
			return metas, files, nil
		default:
			return nil, nil, bad("journal line", "begins with "+strconv.Quote(word))
		}
		at += len(line)
	}
}
