package sst

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
)

// builder writes tables that no RocksDB of today writes: format versions 0 and
// 1, kinds that Flink never has, and broken ones.
type builder struct {
	version     uint32
	checksum    ChecksumType
	compression Compression
	properties  map[string]string
	rangeDels   [][2]string // internal start key, end
	perBlock    int         // entries in a data block; 0 is 3
	out         []byte
}

type built struct{ key, value string }

func internalKey(user string, seq uint64, kind Kind) string {
	return string(binary.LittleEndian.AppendUint64([]byte(user), seq<<8|uint64(kind)))
}

// plainBlock has restart interval 1 and shares nothing.
func plainBlock(entries []built) []byte {
	var b []byte
	var restarts []uint32
	for _, e := range entries {
		restarts = append(restarts, uint32(len(b)))
		b = append(b, 0)
		b = binary.AppendUvarint(b, uint64(len(e.key)))
		b = binary.AppendUvarint(b, uint64(len(e.value)))
		b = append(b, e.key...)
		b = append(b, e.value...)
	}
	if len(restarts) == 0 {
		restarts = []uint32{0}
	}
	for _, r := range restarts {
		b = binary.LittleEndian.AppendUint32(b, r)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(len(restarts)))
}

func (w *builder) compress(payload []byte) []byte {
	switch w.compression {
	case CompressionSnappy:
		return snappy.Encode(nil, payload)
	case CompressionZlib:
		var b bytes.Buffer
		if w.version >= 2 {
			b.Write(binary.AppendUvarint(nil, uint64(len(payload))))
		}
		z, _ := flate.NewWriter(&b, 6)
		z.Write(payload)
		z.Close()
		return b.Bytes()
	case CompressionLZ4:
		dst := make([]byte, lz4.CompressBlockBound(len(payload)))
		n, err := lz4.CompressBlock(payload, dst, nil)
		if err != nil || n == 0 {
			panic(fmt.Sprint(n, err))
		}
		if w.version >= 2 {
			return append(binary.AppendUvarint(nil, uint64(len(payload))), dst[:n]...)
		}
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(payload))), dst[:n]...)
	}
	return payload
}

func (w *builder) block(payload []byte, c Compression) Handle {
	h := Handle{uint64(len(w.out)), uint64(len(payload))}
	w.out = append(w.out, payload...)
	w.out = append(w.out, byte(c))
	w.out = binary.LittleEndian.AppendUint32(w.out, w.checksum.checksum(w.out[h.Offset:]))
	return h
}

func (h Handle) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, h.Offset), h.Size)
}

func (w *builder) build(entries []built) []byte {
	w.out = nil
	n := w.perBlock
	if n == 0 {
		n = 3
	}
	var index, meta []built
	for i := 0; i < len(entries); i += n {
		part := entries[i:min(i+n, len(entries))]
		h := w.block(w.compress(plainBlock(part)), w.compression)
		index = append(index, built{part[len(part)-1].key, string(h.append(nil))})
	}
	if len(w.rangeDels) > 0 {
		var dels []built
		for _, d := range w.rangeDels {
			dels = append(dels, built{d[0], d[1]})
		}
		meta = append(meta, built{"rocksdb.range_del", string(w.block(plainBlock(dels), CompressionNone).append(nil))})
	}
	var props []built
	for _, name := range []string{"rocksdb.block.based.table.index.type", "rocksdb.comparator", "rocksdb.compression_options", "rocksdb.external_sst_file.global_seqno", "rocksdb.external_sst_file.version", "rocksdb.index.value.is.delta.encoded", "rocksdb.num.entries"} {
		if v, ok := w.properties[name]; ok {
			props = append(props, built{name, v})
		}
	}
	meta = append([]built{}, meta...)
	meta = append(meta, built{"rocksdb.stats", string(w.block(plainBlock(props), CompressionNone).append(nil))})
	indexAt := w.block(plainBlock(index), CompressionNone)
	metaAt := w.block(plainBlock(meta), CompressionNone)
	handles := indexAt.append(metaAt.append(nil))
	handles = append(handles, make([]byte, 40-len(handles))...)
	if w.version == 0 {
		w.out = append(w.out, handles...)
		w.out = binary.LittleEndian.AppendUint64(w.out, magicBlockBasedLegacy)
		return w.out
	}
	w.out = append(w.out, byte(w.checksum))
	w.out = append(w.out, handles...)
	w.out = binary.LittleEndian.AppendUint32(w.out, w.version)
	w.out = binary.LittleEndian.AppendUint64(w.out, magicBlockBased)
	return w.out
}

func tenEntries() []built {
	var out []built
	for i := range 10 {
		out = append(out, built{internalKey(fmt.Sprintf("key-%d", i), uint64(20-i), KindValue), strings.Repeat("value ", i)})
	}
	return out
}

func readAll(t *testing.T, data []byte) ([]built, error) {
	t.Helper()
	r, err := Open(context.Background(), Bytes(data), &Options{Name: "000012.sst"})
	if err != nil {
		return nil, err
	}
	it := r.NewIter(context.Background(), nil)
	var out []built
	for ok := it.First(); ok; ok = it.Next() {
		out = append(out, built{internalKey(string(it.Key()), it.Seq(), it.Kind()), string(it.Value())})
	}
	return out, it.Err()
}

func findings(t *testing.T, data []byte) []string {
	t.Helper()
	var out []string
	_, err := Verify(context.Background(), Bytes(data), &VerifyOptions{Options: Options{Name: "000012.sst"}, OnDamage: func(err error) { out = append(out, err.Error()) }})
	require.NoError(t, err)
	return out
}

// TestOldFormats reads format versions 0 and 1, whose compressed blocks are
// framed in other ways; RocksDB itself no longer reads or writes them.
func TestOldFormats(t *testing.T) {
	for _, version := range []uint32{0, 1, 2, 3} {
		for _, c := range []Compression{CompressionNone, CompressionSnappy, CompressionZlib, CompressionLZ4} {
			t.Run(fmt.Sprintf("%d-%s", version, c), func(t *testing.T) {
				w := &builder{version: version, checksum: ChecksumCRC32C, compression: c, perBlock: 5}
				// LZ4 needs something to compress.
				entries := tenEntries()
				for i := range entries {
					entries[i].value += strings.Repeat("x", 200)
				}
				data := w.build(entries)
				got, err := readAll(t, data)
				require.NoError(t, err)
				require.Equal(t, entries, got)
				require.Empty(t, findings(t, data))
				data[3] ^= 1
				require.Len(t, findings(t, data), 1)
			})
		}
	}
}

func TestChecksums(t *testing.T) {
	// The reference implementation's own vectors.
	for text, want := range map[string]uint32{
		"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		require.Equal(t, want, xxHash32([]byte(text)), text)
	}
	require.Equal(t, uint32(0), contextModifier(0, 1<<40))
	require.Equal(t, uint32(0x1234^(5+1)), contextModifier(0x1234, 1<<32+5))
	for _, c := range []ChecksumType{ChecksumNone, ChecksumCRC32C, ChecksumXXHash32, ChecksumXXHash64, ChecksumXXH3} {
		data := (&builder{version: 5, checksum: c}).build(tenEntries())
		got, err := readAll(t, data)
		require.NoError(t, err, c)
		require.Equal(t, tenEntries(), got)
	}
}

func TestRefusals(t *testing.T) {
	entries := func(kind Kind) []built { return []built{{internalKey("a", 7, kind), "v"}} }
	for name, c := range map[string]struct {
		data []byte
		want string
		err  error
	}{
		"blobs":           {(&builder{version: 5, checksum: ChecksumXXH3}).build(entries(0x11)), "data block holds blob values", damage.ErrUnsupportedVersion},
		"wide columns":    {(&builder{version: 5, checksum: ChecksumXXH3}).build(entries(0x16)), "data block holds wide columns", damage.ErrUnsupportedVersion},
		"timestamps":      {(&builder{version: 5, checksum: ChecksumXXH3}).build(entries(0x14)), "data block holds user-defined timestamps", damage.ErrUnsupportedVersion},
		"preferred":       {(&builder{version: 5, checksum: ChecksumXXH3}).build(entries(0x18)), "data block holds values with a preferred sequence number", damage.ErrUnsupportedVersion},
		"impossible kind": {(&builder{version: 5, checksum: ChecksumXXH3}).build(entries(0x0f)), "has kind 0x0f", damage.ErrCorrupt},
		"short key":       {(&builder{version: 5, checksum: ChecksumXXH3}).build([]built{{"short", "v"}}), "has a key without sequence number", damage.ErrCorrupt},
		"comparator":      {(&builder{version: 5, checksum: ChecksumXXH3, properties: map[string]string{"rocksdb.comparator": "rocksdb.ReverseBytewiseComparator"}}).build(tenEntries()), `comparator is "rocksdb.ReverseBytewiseComparator"`, damage.ErrUnsupportedVersion},
		"index type":      {(&builder{version: 5, checksum: ChecksumXXH3, properties: map[string]string{"rocksdb.block.based.table.index.type": "\x09\x00\x00\x00"}}).build(tenEntries()), "index type is 9", damage.ErrUnsupportedVersion},
		"delta too early": {(&builder{version: 3, checksum: ChecksumXXH3, properties: map[string]string{"rocksdb.index.value.is.delta.encoded": "\x01"}}).build(tenEntries()), "too old for the delta-encoded index", damage.ErrCorrupt},
		"version":         {(&builder{version: 8, checksum: ChecksumXXH3}).build(tenEntries()), "footer.formatVersion is 8", damage.ErrUnsupportedVersion},
		"version 6 shape": {(&builder{version: 6, checksum: ChecksumXXH3}).build(tenEntries()), "footer.extendedMagic is", damage.ErrCorrupt},
		"xpress":          {(&builder{version: 5, checksum: ChecksumXXH3, compression: CompressionXpress}).build(tenEntries()), "data block has compression xpress", damage.ErrUnsupportedVersion},
		"no table":        {bytes.Repeat([]byte("text "), 30), "not a RocksDB table", damage.ErrCorrupt},
		"empty":           {nil, "footer does not fit in 0 bytes", damage.ErrCorrupt},
		"plain table":     {append(make([]byte, 60), 0x64, 0x95, 0xbf, 0x63, 0x96, 0x22, 0x42, 0x82), "footer.magic is a plain table's", damage.ErrUnsupportedVersion},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readAll(t, c.data)
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, c.want)
			var d *damage.Error
			require.ErrorAs(t, err, &d)
			require.Equal(t, "000012.sst", d.Name)
		})
	}
}

func TestVerifyFindsDisorder(t *testing.T) {
	e := tenEntries()
	swapped := append([]built{}, e...)
	swapped[4], swapped[5] = swapped[5], swapped[4]
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"in a block":      {(&builder{version: 5, checksum: ChecksumXXH3}).build(swapped), "is out of order"},
		"between blocks":  {(&builder{version: 5, checksum: ChecksumXXH3, perBlock: 5}).build(swapped), "is out of order"},
		"twice":           {(&builder{version: 5, checksum: ChecksumXXH3}).build(append(e[:1:1], e...)), "is out of order"},
		"count":           {(&builder{version: 5, checksum: ChecksumXXH3, properties: map[string]string{"rocksdb.num.entries": "\x0b"}}).build(e), "property rocksdb.num.entries is 11, found 10"},
		"range del":       {(&builder{version: 5, checksum: ChecksumXXH3, rangeDels: [][2]string{{internalKey("z", 5, KindRangeDeletion), "a"}}}).build(e), "range deletion ends at 61, before its start at 7a"},
		"odd footer":      {flipFooterPadding((&builder{version: 5, checksum: ChecksumXXH3}).build(e)), "footer has handles that no writer encodes so"},
		"bytes in front":  {prefixed((&builder{version: 5, checksum: ChecksumXXH3}), e), "belong to no block"},
		"no entry at all": {(&builder{version: 5, checksum: ChecksumXXH3, properties: map[string]string{"rocksdb.num.entries": "\x01"}}).build(nil), "property rocksdb.num.entries is 1, found 0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := findings(t, c.data)
			require.NotEmpty(t, got)
			require.Contains(t, got[0], c.want)
		})
	}
}

func flipFooterPadding(data []byte) []byte {
	data[len(data)-13] = 1
	return data
}

// prefixed puts 8 bytes in front of everything, which no block covers.
func prefixed(w *builder, e []built) []byte {
	data := w.build(e[:3])
	// Rebuild with the offsets moved, by hand: the data block is read from offset
	// 8 once the builder's output begins there.
	w.out = nil
	_ = data
	out := []byte("8 bytes.")
	w.out = out
	h := w.block(plainBlock(e[:3]), CompressionNone)
	props := w.block(plainBlock(nil), CompressionNone)
	index := w.block(plainBlock([]built{{e[2].key, string(h.append(nil))}}), CompressionNone)
	meta := w.block(plainBlock([]built{{"rocksdb.properties", string(props.append(nil))}}), CompressionNone)
	handles := index.append(meta.append(nil))
	handles = append(handles, make([]byte, 40-len(handles))...)
	w.out = append(append(w.out, byte(w.checksum)), handles...)
	w.out = binary.LittleEndian.AppendUint32(w.out, w.version)
	return binary.LittleEndian.AppendUint64(w.out, magicBlockBased)
}

// TestLyingLengths: what a block claims to decode to is not believed.
func TestLyingLengths(t *testing.T) {
	claim := func(n uint64, rest ...byte) []byte { return append(binary.AppendUvarint(nil, n), rest...) }
	for name, c := range map[string]struct {
		payload []byte
		kind    Compression
	}{
		"snappy":        {claim(1<<31, 1, 2, 3), CompressionSnappy},
		"snappy small":  {claim(200<<20, 1, 2, 3), CompressionSnappy},
		"lz4":           {claim(200<<20, 0x10, 'a'), CompressionLZ4},
		"lz4 too short": {claim(5, 0x10, 'a'), CompressionLZ4},
		"zlib":          {claim(200<<20, 0x03, 0x00), CompressionZlib},
		"bzip2":         {claim(200<<20, 'B', 'Z', 'h', '1'), CompressionBZip2},
		"zstd":          {claim(200<<20, 0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00), CompressionZSTD},
		"over limit":    {claim(1<<40, 1, 2, 3), CompressionZSTD},
		"no length":     {[]byte{0xff, 0xff}, CompressionLZ4},
		"empty":         {nil, CompressionZSTD},
	} {
		t.Run(name, func(t *testing.T) {
			d := decompressor{version: 5, maxBytes: defaultMaxBlockBytes}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := d.decode(nil, c.payload, c.kind)
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		})
	}
}

func TestGlobalSequence(t *testing.T) {
	zero := func() []built {
		e := tenEntries()
		for i := range e {
			e[i].key = internalKey(fmt.Sprintf("key-%d", i), 0, KindValue)
		}
		return e
	}
	props := func(seq uint64) map[string]string {
		return map[string]string{
			"rocksdb.external_sst_file.version":      "\x02\x00\x00\x00",
			"rocksdb.external_sst_file.global_seqno": string(binary.LittleEndian.AppendUint64(nil, seq)),
		}
	}
	open := func(seq uint64, opts *Options) (*Reader, error) {
		w := &builder{version: 5, checksum: ChecksumXXH3, properties: props(seq)}
		return Open(context.Background(), Bytes(w.build(zero())), opts)
	}
	for _, c := range []struct {
		name         string
		stored, told uint64
		want         uint64
	}{{"stored", 9, 0, 9}, {"told", 0, 8, 8}, {"both", 8, 8, 8}, {"neither", 0, 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			r, err := open(c.stored, &Options{LargestSeq: c.told, HasLargestSeq: c.told != 0})
			require.NoError(t, err)
			it := r.NewIter(context.Background(), nil)
			require.True(t, it.First())
			require.Equal(t, c.want, it.Seq())
			require.Equal(t, KindValue, it.Kind())
		})
	}
	_, err := open(9, &Options{LargestSeq: 8, HasLargestSeq: true})
	require.ErrorContains(t, err, "is 9, but 8 in the MANIFEST")
	w := &builder{version: 5, checksum: ChecksumXXH3, properties: props(9)}
	_, err = readAll(t, w.build(tenEntries()))
	require.ErrorContains(t, err, "of an ingested file has a sequence number")
}

// claiming is a Source that says it is longer than it is: the end is there, and
// nothing before it.
type claiming struct {
	end  []byte
	size int64
}

func (c claiming) Size() int64 { return c.size }

func (c claiming) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	if at := c.size - int64(len(c.end)); off >= at {
		return copy(p, c.end[off-at:]), nil
	}
	return 0, io.EOF
}

// TestLyingFooters: handles to blocks that a long file would hold allocate little
// before anything of them was read.
func TestLyingFooters(t *testing.T) {
	for _, size := range []uint64{100 << 20, 900 << 20, 1 << 39} {
		handles := Handle{5, size}.append(Handle{1 << 39, 100}.append(nil))
		end := make([]byte, 1<<20)
		at := len(end) - footerSize
		end[at] = byte(ChecksumXXH3)
		copy(end[at+1:], handles)
		binary.LittleEndian.PutUint32(end[at+41:], 5)
		binary.LittleEndian.PutUint64(end[at+45:], magicBlockBased)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Open(context.Background(), claiming{end, 1 << 40}, nil)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, damage.ErrCorrupt)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(20<<20))
	}
}
