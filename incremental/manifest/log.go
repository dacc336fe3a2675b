// Package manifest reads RocksDB's CURRENT and MANIFEST files: which tables are
// live, in which column family and level.
//
// A MANIFEST is a log of records, each one version edit, cut into fragments:
//
//	block      32768 bytes of fragments; less than 7 bytes left are zeros
//	fragment   fixed32 masked CRC32C of type and payload, fixed16 length, 1 byte type, payload
//	type       1 whole record, 2 first, 3 middle, 4 last fragment of a record
//	edit       (varint32 tag, payload) until the record ends
//
// Integers are little-endian. Source: RocksDB, db/log_format.h, db/log_reader.cc,
// db/version_edit.cc and db/version_edit_handler.cc; docs/format/rocksdb-manifest.md
// draws the edits.
package manifest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/tidemark/tidemark/internal/damage"
)

const (
	logBlockSize  = 32 << 10
	logHeaderSize = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logReader splits a log into records.
type logReader struct {
	data []byte
	off  int64
	buf  []byte
}

func corrupt(off int64, field, detail string) error {
	return &damage.Error{Offset: off, Field: field, Detail: detail, Err: damage.ErrCorrupt}
}

func unsupported(off int64, field, detail string) error {
	return &damage.Error{Offset: off, Field: field, Detail: detail, Err: damage.ErrUnsupportedVersion}
}

// next gives the next record, which is valid until the next call, and the offset
// of its first fragment; ok is false at the end.
//
// RocksDB forgives a torn record at the end of a log, since a crash may leave one.
// A checkpoint's copy ends behind a whole record, so here it is damage.
func (l *logReader) next() (record []byte, at int64, ok bool, err error) {
	inside := false
	for {
		left := logBlockSize - l.off%logBlockSize
		if left < logHeaderSize {
			for i := range min(left, int64(len(l.data))-l.off) {
				if l.data[l.off+i] != 0 {
					return nil, 0, false, corrupt(l.off+i, "block padding", "is not zero")
				}
			}
			l.off = min(l.off+left, int64(len(l.data)))
			continue
		}
		rest := int64(len(l.data)) - l.off
		if rest <= 0 {
			if inside {
				return nil, 0, false, corrupt(at, "record", "is cut off by the end of the file")
			}
			return nil, 0, false, nil
		}
		if rest < logHeaderSize {
			return nil, 0, false, corrupt(l.off, "fragment", fmt.Sprintf("header is cut off after %d bytes", rest))
		}
		h := l.data[l.off:]
		length := int64(binary.LittleEndian.Uint16(h[4:]))
		kind := h[6]
		if kind == 0 && length == 0 {
			// Preallocated and never written: nothing but zeros follows.
			for i, c := range l.data[l.off:] {
				if c != 0 {
					return nil, 0, false, corrupt(l.off+int64(i), "preallocated area", "is not zero")
				}
			}
			if inside {
				return nil, 0, false, corrupt(at, "record", "is cut off by the end of the log")
			}
			l.off = int64(len(l.data))
			return nil, 0, false, nil
		}
		if length > left-logHeaderSize || length > rest-logHeaderSize {
			return nil, 0, false, corrupt(l.off+4, "fragment length", fmt.Sprintf("is %d, more than is left", length))
		}
		payload := h[logHeaderSize : logHeaderSize+length]
		stored := binary.LittleEndian.Uint32(h)
		crc := crc32.Checksum(h[6:logHeaderSize+length], castagnoli)
		if want := bits.RotateLeft32(crc, -15) + 0xa282ead8; stored != want {
			return nil, 0, false, corrupt(l.off, "fragment", fmt.Sprintf("has checksum %#08x, computed %#08x", stored, want))
		}
		start := l.off
		l.off += logHeaderSize + length
		switch kind {
		case 1, 2:
			if inside {
				return nil, 0, false, corrupt(start, "fragment", "begins a record inside another")
			}
			at = start
			if kind == 1 {
				return payload, at, true, nil
			}
			inside, l.buf = true, append(l.buf[:0], payload...)
		case 3, 4:
			if !inside {
				return nil, 0, false, corrupt(start, "fragment", "continues no record")
			}
			l.buf = append(l.buf, payload...)
			if kind == 4 {
				return l.buf, at, true, nil
			}
		case 5, 6, 7, 8, 9, 10, 11, 130, 131:
			return nil, 0, false, unsupported(start+6, "fragment type", fmt.Sprintf("is %d, which only write-ahead logs have", kind))
		default:
			return nil, 0, false, corrupt(start+6, "fragment type", fmt.Sprintf("is %d", kind))
		}
	}
}
