// Package sst reads block-based table files as RocksDB and its forks FRocksDB and
// ForSt write them, format versions 0 to 7, in pure Go.
//
//	data blocks | filters | index blocks | dictionary | range deletions | properties | metaindex | footer
//
//	block     payload, 1 byte compression type, 4 bytes checksum (little-endian)
//	payload   entries, restart offsets (fixed32 each), optional hash index, footer word
//	entry     varint shared, varint unshared, varint value length, key suffix, value
//	key       user key, fixed64 sequence<<8|kind; a newer version sorts first
//
//	footer (53 bytes; version 0 has 48: no first byte, no version)
//	0       1      checksum type: 0 none, 1 CRC32C, 2 xxHash32, 3 xxHash64, 4 XXH3
//	1       40     up to version 5: metaindex handle, index handle (varints), zeros;
//	               from 6: 3e 00 7a 00, footer checksum, base context checksum,
//	               metaindex size (fixed32 each), 16 reserved bytes, 8 zero bytes
//	41      4      format version
//	45      8      magic 0x88e241b785f4cff7
//
// Source: RocksDB, table/format.cc, table/block_based/{block,block_based_table_builder,
// index_builder}.cc and table/meta_blocks.cc; docs/format/rocksdb-sst.md draws the rest.
//
// The checksum of every block that is read is verified: data, index, filter,
// properties, metaindex and the rest. Verify reads a whole file and accounts for each of its bytes.
package sst
