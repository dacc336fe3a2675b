package sst

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

// ChecksumType is the footer's code of the algorithm that covers each block.
type ChecksumType uint8

// Checksum types.
const (
	ChecksumNone     ChecksumType = 0
	ChecksumCRC32C   ChecksumType = 1
	ChecksumXXHash32 ChecksumType = 2
	ChecksumXXHash64 ChecksumType = 3
	ChecksumXXH3     ChecksumType = 4
)

func (t ChecksumType) String() string {
	switch t {
	case ChecksumNone:
		return "none"
	case ChecksumCRC32C:
		return "CRC32C"
	case ChecksumXXHash32:
		return "xxHash32"
	case ChecksumXXHash64:
		return "xxHash64"
	case ChecksumXXH3:
		return "XXH3"
	}
	return "unknown"
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum computes the value stored behind a block. b is the payload with the
// compression type as its last byte. No checksum is stored as 0.
func (t ChecksumType) checksum(b []byte) uint32 {
	switch t {
	case ChecksumCRC32C:
		return maskCRC(crc32.Checksum(b, castagnoli))
	case ChecksumXXHash32:
		return xxHash32(b)
	case ChecksumXXHash64:
		return uint32(xxhash.Sum64(b))
	case ChecksumXXH3:
		// The last byte is folded in afterwards, so that RocksDB can hash the
		// payload before it has the type.
		n := len(b) - 1
		if n < 0 {
			return 0
		}
		return uint32(xxh3.Hash(b[:n])) ^ uint32(b[n])*0x6b9083d9
	}
	return 0
}

// maskCRC is RocksDB's and LevelDB's masking of a CRC that is itself stored.
func maskCRC(crc uint32) uint32 { return bits.RotateLeft32(crc, -15) + 0xa282ead8 }

// contextModifier is what format version 6 adds to the checksum of the block at
// offset, so that a block written to the wrong place is noticed.
func contextModifier(base uint32, offset int64) uint32 {
	if base == 0 {
		return 0
	}
	return base ^ (uint32(offset) + uint32(uint64(offset)>>32))
}

// xxHash32 is the 32-bit xxHash with seed 0.
func xxHash32(b []byte) uint32 {
	const (
		p1 uint32 = 2654435761
		p2 uint32 = 2246822519
		p3 uint32 = 3266489917
		p4 uint32 = 668265263
		p5 uint32 = 374761393
	)
	n := uint32(len(b))
	var h uint32
	if len(b) >= 16 {
		v1, v2, v3, v4 := p1, p2, uint32(0), uint32(0)
		v1 += p2 // sums wrap, which constants may not
		v4 -= p1
		for len(b) >= 16 {
			v1 = bits.RotateLeft32(v1+binary.LittleEndian.Uint32(b)*p2, 13) * p1
			v2 = bits.RotateLeft32(v2+binary.LittleEndian.Uint32(b[4:])*p2, 13) * p1
			v3 = bits.RotateLeft32(v3+binary.LittleEndian.Uint32(b[8:])*p2, 13) * p1
			v4 = bits.RotateLeft32(v4+binary.LittleEndian.Uint32(b[12:])*p2, 13) * p1
			b = b[16:]
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	} else {
		h = p5
	}
	h += n
	for len(b) >= 4 {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h ^= h >> 15
	h *= p2
	h ^= h >> 13
	h *= p3
	return h ^ h>>16
}
