package hdfs

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Hadoop's messages are protocol buffers of version 2. We use a handful of fields
// of a handful of messages, so they are written and read by field number; the
// numbers are those of Hadoop's .proto files, which are frozen.

var errWire = errors.New("not a protocol buffer message")

// eachField calls f for every field of a message: integers come in v, strings,
// bytes and messages in data, which is a part of msg. Groups and unknown fields
// are for f to ignore.
func eachField(msg []byte, f func(num protowire.Number, v uint64, data []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return errWire
		}
		msg = msg[n:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(msg)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(msg)
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return errWire
		}
		msg = msg[n:]
		if err := f(num, v, data); err != nil {
			return err
		}
	}
	return nil
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendBytes(b []byte, num protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

func appendVarint(b []byte, num protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

// appendSigned writes an sint32.
func appendSigned(b []byte, num protowire.Number, v int32) []byte {
	return appendVarint(b, num, protowire.EncodeZigZag(int64(v)))
}

// appendDelimited writes a message after its length.
func appendDelimited(b, msg []byte) []byte { return protowire.AppendBytes(b, msg) }

// status is what a namenode knows of a file or directory.
type status struct {
	name        string // the last part of the path, where it comes from a listing
	dir         bool
	symlink     bool
	size        int64
	modMillis   int64
	fileID      uint64 // unique in the file system's life; 0 if the server does not say
	erasureCode bool
	encrypted   bool
}

// decodeStatus reads an HdfsFileStatusProto:
//
//	1 type (1 directory, 2 file, 3 symlink)  2 local name  3 length
//	7 modification time, ms  13 file id  18 flags (2 encrypted, 4 erasure coded)
func decodeStatus(msg []byte) (status, error) {
	var s status
	err := eachField(msg, func(num protowire.Number, v uint64, data []byte) error {
		switch num {
		case 1:
			s.dir, s.symlink = v == 1, v == 3
		case 2:
			s.name = string(data)
		case 3:
			s.size = int64(v)
		case 7:
			s.modMillis = int64(v)
		case 13:
			s.fileID = v
		case 18:
			s.setFlags(uint32(v))
		}
		return nil
	})
	if err == nil && s.size < 0 {
		err = errors.New("a file of negative length")
	}
	return s, err
}

func (s *status) setFlags(flags uint32) {
	s.encrypted = flags&2 != 0
	s.erasureCode = flags&4 != 0
}

// page is a part of a directory: entries after the cursor in the server's order,
// and whether more follow.
type page struct {
	entries []status
	more    bool
}

// maxPage is far above what a server sends: dfs.ls.limit is 1000.
const maxPage = 100_000

// decodePage reads a DirectoryListingProto: 1 HdfsFileStatusProto, repeated; 2
// number of entries that are left.
func decodePage(msg []byte) (page, error) {
	var p page
	err := eachField(msg, func(num protowire.Number, v uint64, data []byte) error {
		switch num {
		case 1:
			s, err := decodeStatus(data)
			if err != nil {
				return err
			}
			if len(p.entries) == maxPage {
				return fmt.Errorf("a listing page of more than %d entries", maxPage)
			}
			p.entries = append(p.entries, s)
		case 2:
			p.more = v > 0
		}
		return nil
	})
	return p, err
}
