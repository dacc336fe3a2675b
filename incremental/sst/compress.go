package sst

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is the type byte of a block.
type Compression uint8

// Compression types.
const (
	CompressionNone   Compression = 0
	CompressionSnappy Compression = 1
	CompressionZlib   Compression = 2
	CompressionBZip2  Compression = 3
	CompressionLZ4    Compression = 4
	CompressionLZ4HC  Compression = 5
	CompressionXpress Compression = 6 // Windows only, not supported
	CompressionZSTD   Compression = 7
	// compressionZSTDOld is what RocksDB wrote before zstd's format was final.
	compressionZSTDOld Compression = 0x40
)

func (c Compression) String() string {
	switch c {
	case CompressionNone:
		return "none"
	case CompressionSnappy:
		return "snappy"
	case CompressionZlib:
		return "zlib"
	case CompressionBZip2:
		return "bzip2"
	case CompressionLZ4:
		return "lz4"
	case CompressionLZ4HC:
		return "lz4hc"
	case CompressionXpress:
		return "xpress"
	case CompressionZSTD, compressionZSTDOld:
		return "zstd"
	}
	return fmt.Sprintf("type %d", uint8(c))
}

// errUnsupportedCompression marks a type that this package does not know.
var errUnsupportedCompression = errors.New("compression not supported")

// maxRatio is how much a byte can become at most, where the format bounds it low.
var maxRatio = [256]uint64{CompressionSnappy: 32, CompressionLZ4: 255, CompressionLZ4HC: 255}

// eagerBytes is how much is allocated for a block by its own word alone.
// A longer one has to be plausible for its compression or grows as it is decoded.
const eagerBytes = 1 << 20

// decompressor decodes the blocks of one table. For concurrent use.
type decompressor struct {
	version  uint32 // of the format
	dict     []byte // nil if the table has none
	maxBytes uint64 // of a decoded block

	zstdOnce sync.Once
	zstd     *zstd.Decoder
	zstdErr  error
}

// decode decompresses src, a payload, into dst[:0] if its capacity suffices. The
// result does not alias src.
func (d *decompressor) decode(dst, src []byte, c Compression) ([]byte, error) {
	var n uint64
	switch {
	case c == CompressionSnappy:
		v, err := snappy.DecodedLen(src)
		if err != nil {
			return nil, err
		}
		n = uint64(v)
	case d.version < 2 && (c == CompressionZlib || c == CompressionBZip2):
		return d.decodeUnsized(dst, src, c)
	case d.version < 2 && (c == CompressionLZ4 || c == CompressionLZ4HC):
		// The length was written as a size_t, of which RocksDB reads 32 bits.
		if len(src) < 8 {
			return nil, io.ErrUnexpectedEOF
		}
		n = uint64(binary.LittleEndian.Uint32(src))
		src = src[8:]
	case c == CompressionZlib, c == CompressionBZip2, c == CompressionLZ4, c == CompressionLZ4HC, c == CompressionZSTD, c == compressionZSTDOld:
		v, k := binary.Uvarint(src)
		if k <= 0 {
			return nil, errors.New("no decompressed length")
		}
		n, src = v, src[k:]
	default:
		return nil, errUnsupportedCompression
	}
	if n > d.maxBytes {
		return nil, fmt.Errorf("decompressed length %d is more than the limit of %d", n, d.maxBytes)
	}
	// Three bytes of Snappy, the shortest copy, become at most 64, and one of LZ4
	// at most 255.
	if ratio := maxRatio[c]; ratio > 0 && n > ratio*uint64(len(src))+64 {
		return nil, fmt.Errorf("decompressed length %d is impossible for %d bytes", n, len(src))
	}
	if n > eagerBytes && uint64(cap(dst)) < n && n > 256*uint64(len(src)) {
		return d.decodeGrowing(src, c, int(n))
	}
	if uint64(cap(dst)) < n {
		dst = make([]byte, n)
	}
	dst = dst[:n]
	switch c {
	case CompressionSnappy:
		out, err := snappy.Decode(dst, src)
		if err != nil {
			return nil, err
		}
		return out, nil
	case CompressionLZ4, CompressionLZ4HC:
		if n == 0 {
			if len(src) == 1 && src[0] == 0 {
				return dst, nil
			}
			return nil, errors.New("decompressed length is 0")
		}
		k, err := lz4.UncompressBlockWithDict(src, dst, d.dict)
		if err != nil {
			return nil, err
		}
		if uint64(k) != n {
			return nil, fmt.Errorf("decompressed to %d bytes instead of %d", k, n)
		}
		return dst, nil
	case CompressionZSTD, compressionZSTDOld:
		z, err := d.zstdDecoder()
		if err != nil {
			return nil, err
		}
		out, err := z.DecodeAll(src, dst[:0:n])
		if err != nil {
			return nil, err
		}
		if uint64(len(out)) != n {
			return nil, fmt.Errorf("decompressed to %d bytes instead of %d", len(out), n)
		}
		return out, nil
	case CompressionZlib:
		z := inflaters.Get().(io.Reader)
		defer inflaters.Put(z)
		if err := z.(flate.Resetter).Reset(bytes.NewReader(src), d.dict); err != nil {
			return nil, err
		}
		return dst, readExactly(z, dst)
	default: // CompressionBZip2
		return dst, readExactly(bzip2.NewReader(bytes.NewReader(src)), dst)
	}
}

var inflaters = sync.Pool{New: func() any { return flate.NewReader(bytes.NewReader(nil)) }}

// readExactly fills dst from r and checks that r then ends.
func readExactly(r io.Reader, dst []byte) error {
	if n, err := io.ReadFull(r, dst); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return fmt.Errorf("decompressed to %d bytes instead of %d", n, len(dst))
		}
		return err
	}
	var b [1]byte
	for {
		n, err := r.Read(b[:])
		switch {
		case n > 0:
			return fmt.Errorf("decompressed to more than %d bytes", len(dst))
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// stream decodes src as a stream, for blocks whose length is not to be trusted
// with an allocation.
func (d *decompressor) stream(src []byte, c Compression) (io.Reader, func(), error) {
	switch c {
	case CompressionZlib:
		return flate.NewReaderDict(bytes.NewReader(src), d.dict), func() {}, nil
	case CompressionBZip2:
		return bzip2.NewReader(bytes.NewReader(src)), func() {}, nil
	default:
		z, err := d.newZstd(bytes.NewReader(src))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
}

func (d *decompressor) decodeGrowing(src []byte, c Compression, n int) ([]byte, error) {
	r, done, err := d.stream(src, c)
	if err != nil {
		return nil, err
	}
	defer done()
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, io.LimitReader(r, int64(n)+1)); err != nil {
		return nil, err
	}
	if buf.Len() != n {
		return nil, fmt.Errorf("decompressed to %d bytes instead of %d", buf.Len(), n)
	}
	return buf.Bytes(), nil
}

// decodeUnsized decodes zlib and bzip2 of format versions 0 and 1, which do not
// tell the length.
func (d *decompressor) decodeUnsized(dst, src []byte, c Compression) ([]byte, error) {
	r, done, err := d.stream(src, c)
	if err != nil {
		return nil, err
	}
	defer done()
	buf := bytes.NewBuffer(dst[:0])
	if _, err := io.Copy(buf, io.LimitReader(r, int64(d.maxBytes)+1)); err != nil {
		return nil, err
	}
	if uint64(buf.Len()) > d.maxBytes {
		return nil, fmt.Errorf("decompressed to more than the limit of %d bytes", d.maxBytes)
	}
	return buf.Bytes(), nil
}

// plainZstd decodes the blocks of all tables without dictionary.
var plainZstd = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
})

func (d *decompressor) zstdDecoder() (*zstd.Decoder, error) {
	if len(d.dict) == 0 {
		return plainZstd()
	}
	d.zstdOnce.Do(func() { d.zstd, d.zstdErr = d.newZstd(nil) })
	return d.zstd, d.zstdErr
}

func (d *decompressor) newZstd(r io.Reader) (*zstd.Decoder, error) {
	opts := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(d.maxBytes)}
	if r == nil {
		opts = append(opts, zstd.WithDecodeAllCapLimit(true))
	}
	if len(d.dict) > 0 {
		if bytes.HasPrefix(d.dict, []byte{0x37, 0xa4, 0x30, 0xec}) {
			opts = append(opts, zstd.WithDecoderDicts(d.dict))
		} else {
			opts = append(opts, zstd.WithDecoderDictRaw(0, d.dict))
		}
	}
	return zstd.NewReader(r, opts...)
}
