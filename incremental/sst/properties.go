package sst

import (
	"encoding/binary"
	"fmt"
	"math"
)

// IndexType says how the index blocks are arranged.
type IndexType uint32

// Index types. IndexHash has the same blocks as IndexBinarySearch and two extra
// ones, which are not needed.
const (
	IndexBinarySearch   IndexType = 0
	IndexHash           IndexType = 1
	IndexTwoLevel       IndexType = 2
	IndexWithFirstKey   IndexType = 3
	unknownFamilyID               = math.MaxInt32
	bytewiseComparator            = "leveldb.BytewiseComparator"
	propertyPrefix                = "rocksdb."
	externalVersionName           = "rocksdb.external_sst_file.version"
	globalSeqnoName               = "rocksdb.external_sst_file.global_seqno"
)

func (t IndexType) String() string {
	switch t {
	case IndexBinarySearch:
		return "binary search"
	case IndexHash:
		return "hash search"
	case IndexTwoLevel:
		return "two-level"
	case IndexWithFirstKey:
		return "binary search with first key"
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Properties is what a table says of itself. Numbers that are absent are 0.
type Properties struct {
	ColumnFamilyID   uint32 // math.MaxInt32 if unknown
	ColumnFamilyName string // a state's name; empty if unknown
	Comparator       string
	MergeOperator    string // "nullptr" or empty for none
	FilterPolicy     string
	PrefixExtractor  string
	Compression      string // as set; the type of each block decides
	CompressionOpts  string
	CreatingDB       string
	CreatingSession  string
	CreatingHost     string

	NumEntries      uint64 // point entries and range deletions
	NumDeletions    uint64 // point deletions; includes range deletions
	NumMergeOps     uint64
	NumRangeDels    uint64
	NumDataBlocks   uint64
	RawKeySize      uint64 // bytes of internal keys, range deletions' starts included
	RawValueSize    uint64
	DataSize        uint64 // bytes of data blocks with trailers
	IndexSize       uint64
	IndexPartitions uint64
	FilterSize      uint64
	TailOffset      uint64 // where the data blocks end; newer RocksDB only

	CreationTime     uint64 // seconds since 1970
	OldestKeyTime    uint64
	FileCreationTime uint64
	FileNumber       uint64 // at creation; 0 if absent

	IndexType         IndexType
	IndexKeyIsUserKey bool
	IndexValueIsDelta bool
	ExternalVersion   uint32
	GlobalSeq         uint64
	globalSeqOffset   int // of the fixed64 in the properties payload, -1 if absent

	// All holds every property by its name without "rocksdb.", raw; also those
	// above. User-defined properties keep their whole name.
	All map[string][]byte
}

// FamilyKnown says that the file tells its column family; one made outside of a
// database does not.
func (p *Properties) FamilyKnown() bool {
	return p.ColumnFamilyID != unknownFamilyID || p.ColumnFamilyName != ""
}

// Ingested says that the file was made outside of its database: all its entries
// have one sequence number, that the MANIFEST or GlobalSeq tells.
func (p *Properties) Ingested() bool { return p.ExternalVersion >= 2 }

// decodeProperties reads a properties block. at is the block's offset in the file.
func decodeProperties(payload []byte, at int64) (*Properties, error) {
	p := &Properties{All: make(map[string][]byte), globalSeqOffset: -1, ColumnFamilyID: unknownFamilyID}
	nums := map[string]*uint64{
		"num.entries": &p.NumEntries, "deleted.keys": &p.NumDeletions, "merge.operands": &p.NumMergeOps,
		"num.range-deletions": &p.NumRangeDels, "num.data.blocks": &p.NumDataBlocks,
		"raw.key.size": &p.RawKeySize, "raw.value.size": &p.RawValueSize,
		"data.size": &p.DataSize, "index.size": &p.IndexSize, "index.partitions": &p.IndexPartitions,
		"filter.size": &p.FilterSize, "tail.start.offset": &p.TailOffset,
		"creation.time": &p.CreationTime, "oldest.key.time": &p.OldestKeyTime,
		"file.creation.time": &p.FileCreationTime, "original.file.number": &p.FileNumber,
	}
	texts := map[string]*string{
		"column.family.name": &p.ColumnFamilyName, "comparator": &p.Comparator, "merge.operator": &p.MergeOperator,
		"filter.policy": &p.FilterPolicy, "prefix.extractor.name": &p.PrefixExtractor,
		"compression": &p.Compression, "compression_options": &p.CompressionOpts,
		"creating.db.identity": &p.CreatingDB, "creating.session.identity": &p.CreatingSession,
		"creating.host.identity": &p.CreatingHost,
	}
	var it blockIter
	if err := it.init(payload, at, "properties"); err != nil {
		return nil, err
	}
	for it.next() {
		name := string(it.key)
		bad := func(detail string) error { return corrupt(at, "property "+name, detail) }
		short := name
		if len(name) > len(propertyPrefix) && name[:len(propertyPrefix)] == propertyPrefix {
			short = name[len(propertyPrefix):]
		}
		if _, ok := p.All[short]; ok {
			return nil, bad("stands twice")
		}
		v := append([]byte(nil), it.value...)
		p.All[short] = v
		number := func() (uint64, error) {
			n, k := binary.Uvarint(v)
			if k <= 0 || k != len(v) {
				return 0, bad("is not a varint")
			}
			return n, nil
		}
		if dst, ok := nums[short]; ok {
			n, err := number()
			if err != nil {
				return nil, err
			}
			*dst = n
			continue
		}
		if dst, ok := texts[short]; ok {
			*dst = string(v)
			continue
		}
		switch short {
		case "column.family.id":
			n, err := number()
			if err != nil {
				return nil, err
			}
			if n > math.MaxUint32 {
				return nil, bad(fmt.Sprintf("is %d", n))
			}
			p.ColumnFamilyID = uint32(n)
		case "index.key.is.user.key", "index.value.is.delta.encoded":
			n, err := number()
			if err != nil {
				return nil, err
			}
			if n > 1 {
				return nil, bad(fmt.Sprintf("is %d", n))
			}
			if short == "index.key.is.user.key" {
				p.IndexKeyIsUserKey = n == 1
			} else {
				p.IndexValueIsDelta = n == 1
			}
		case "block.based.table.index.type":
			if len(v) != 4 {
				return nil, bad("is not a fixed32")
			}
			p.IndexType = IndexType(binary.LittleEndian.Uint32(v))
		case "external_sst_file.version":
			if len(v) != 4 {
				return nil, bad("is not a fixed32")
			}
			p.ExternalVersion = binary.LittleEndian.Uint32(v)
		case "external_sst_file.global_seqno":
			if len(v) != 8 {
				return nil, bad("is not a fixed64")
			}
			p.GlobalSeq = binary.LittleEndian.Uint64(v)
			p.globalSeqOffset = it.valueOffset()
		}
	}
	return p, it.err
}
