package sst

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemark/tidemark/internal/damage"
)

const (
	magicBlockBased       = 0x88e241b785f4cff7
	magicBlockBasedLegacy = 0xdb4775248b80fb57
	magicPlain            = 0x8242229663bf9564
	magicPlainLegacy      = 0x4f3418eb7a8f13b8
	magicCuckoo           = 0x926789d0c5f17873

	footerSize       = 53
	legacyFooterSize = 48
	trailerSize      = 5 // compression type and checksum behind each block

	maxFormatVersion = 7
)

// extendedMagic stands where format versions up to 5 have the metaindex handle.
var extendedMagic = [4]byte{0x3e, 0x00, 0x7a, 0x00}

// Handle locates a block: its payload without the trailer. The zero Handle is null.
type Handle struct {
	Offset, Size uint64 // bytes
}

// Footer is the fixed part at the end of a table.
type Footer struct {
	FormatVersion       uint32
	Checksum            ChecksumType
	BaseContextChecksum uint32 // format version 6 and later, not 0
	Metaindex           Handle
	Index               Handle // null from format version 6 on: the metaindex has it
	Offset              int64  // where the footer begins
	// odd says that the handles do not stand as a writer puts them: varints that
	// are longer than they need be, or bytes behind them that are not zero.
	odd bool
}

// decodeFooter reads the footer at the end of tail, the last bytes of a file of
// size bytes.
func decodeFooter(tail []byte, size int64) (Footer, error) {
	var f Footer
	if len(tail) < legacyFooterSize {
		return f, corrupt(0, "footer", fmt.Sprintf("does not fit in %d bytes", size))
	}
	magicAt := size - 8
	switch magic := binary.LittleEndian.Uint64(tail[len(tail)-8:]); magic {
	case magicBlockBased:
		if len(tail) < footerSize {
			return f, corrupt(0, "footer", fmt.Sprintf("does not fit in %d bytes", size))
		}
		tail = tail[len(tail)-footerSize:]
		f.Offset = size - footerSize
		f.Checksum = ChecksumType(tail[0])
		f.FormatVersion = binary.LittleEndian.Uint32(tail[41:])
		if f.FormatVersion == 0 {
			return f, corrupt(f.Offset+41, "footer.formatVersion", "is 0 beside the magic of version 1 and later")
		}
		if f.FormatVersion > maxFormatVersion {
			return f, unsupported(f.Offset+41, "footer.formatVersion", fmt.Sprintf("is %d", f.FormatVersion))
		}
		if f.Checksum > ChecksumXXH3 {
			return f, unsupported(f.Offset, "footer.checksumType", fmt.Sprintf("is %d", f.Checksum))
		}
		if f.FormatVersion >= 6 {
			return f, f.decodeExtended(tail)
		}
		return f, f.decodeHandles(tail[1:41], f.Offset+1)
	case magicBlockBasedLegacy:
		tail = tail[len(tail)-legacyFooterSize:]
		f.Offset = size - legacyFooterSize
		f.Checksum = ChecksumCRC32C
		return f, f.decodeHandles(tail[:40], f.Offset)
	case magicPlain, magicPlainLegacy:
		return f, unsupported(magicAt, "footer.magic", "is a plain table's")
	case magicCuckoo:
		return f, unsupported(magicAt, "footer.magic", "is a cuckoo table's")
	default:
		return f, corrupt(magicAt, "footer.magic", fmt.Sprintf("is %#016x: not a RocksDB table", magic))
	}
}

func (f *Footer) decodeHandles(b []byte, off int64) error {
	var n, m int
	if f.Metaindex, n = decodeHandle(b); n <= 0 {
		return corrupt(off, "footer.metaindex", "is not a block handle")
	}
	if f.Index, m = decodeHandle(b[n:]); m <= 0 {
		return corrupt(off+int64(n), "footer.index", "is not a block handle")
	}
	want := make([]byte, 0, 40)
	for _, v := range []uint64{f.Metaindex.Offset, f.Metaindex.Size, f.Index.Offset, f.Index.Size} {
		want = binary.AppendUvarint(want, v)
	}
	f.odd = !bytes.Equal(b, want[:len(b)])
	return nil
}

func (f *Footer) decodeExtended(b []byte) error {
	if [4]byte(b[1:5]) != extendedMagic {
		return corrupt(f.Offset+1, "footer.extendedMagic", fmt.Sprintf("is % x", b[1:5]))
	}
	stored := binary.LittleEndian.Uint32(b[5:])
	f.BaseContextChecksum = binary.LittleEndian.Uint32(b[9:])
	metaindexSize := binary.LittleEndian.Uint32(b[13:])
	if f.BaseContextChecksum == 0 {
		return corrupt(f.Offset+9, "footer.baseContextChecksum", "is 0")
	}
	var c [footerSize]byte
	copy(c[:], b)
	clear(c[5:9])
	if f.Checksum != ChecksumNone {
		want := f.Checksum.checksum(c[:]) + contextModifier(f.BaseContextChecksum, f.Offset)
		if want != stored {
			return corrupt(f.Offset+5, "footer.checksum", fmt.Sprintf("is %#08x, computed %#08x", stored, want))
		}
	}
	for i := 33; i < 41; i++ {
		if b[i] != 0 {
			return unsupported(f.Offset+int64(i), "footer", "uses a reserved field")
		}
	}
	off := f.Offset - trailerSize - int64(metaindexSize)
	if off < 0 {
		return corrupt(f.Offset+13, "footer.metaindexSize", fmt.Sprintf("is %d, more than the file holds", metaindexSize))
	}
	f.Metaindex = Handle{uint64(off), uint64(metaindexSize)}
	return nil
}

// decodeHandle reads a handle and says how many bytes it took; 0 or less on failure.
func decodeHandle(b []byte) (Handle, int) {
	off, n := binary.Uvarint(b)
	if n <= 0 {
		return Handle{}, 0
	}
	size, m := binary.Uvarint(b[n:])
	if m <= 0 {
		return Handle{}, 0
	}
	return Handle{off, size}, n + m
}

// end is the offset behind the block's trailer, or -1 if the block does not fit in limit bytes.
func (h Handle) end(limit int64) int64 {
	if h.Offset > uint64(limit) || h.Size > uint64(limit) {
		return -1
	}
	end := int64(h.Offset) + int64(h.Size) + trailerSize
	if end > limit {
		return -1
	}
	return end
}

func corrupt(off int64, field, detail string) error {
	return &damage.Error{Offset: off, Field: field, Detail: detail, Err: damage.ErrCorrupt}
}

func unsupported(off int64, field, detail string) error {
	return &damage.Error{Offset: off, Field: field, Detail: detail, Err: damage.ErrUnsupportedVersion}
}

// isDamage says that err is about the file's bytes, not about reading them.
func isDamage(err error) bool {
	return errors.Is(err, damage.ErrCorrupt) || errors.Is(err, damage.ErrUnsupportedVersion)
}
