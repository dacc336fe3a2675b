package manifest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/tidemark/tidemark/internal/damage"
)

// Tags of a version edit. Those with tagSafeIgnore have one length-prefixed
// payload, so that an older program can pass them by.
const (
	tagComparator     = 1
	tagLogNumber      = 2
	tagNextFile       = 3
	tagLastSequence   = 4
	tagCompactCursor  = 5
	tagDeletedFile    = 6
	tagNewFile        = 7
	tagPrevLogNumber  = 9
	tagMinLogToKeep   = 10
	tagNewFile2       = 100
	tagNewFile3       = 102
	tagNewFile4       = 103
	tagColumnFamily   = 200
	tagFamilyAdd      = 201
	tagFamilyDrop     = 202
	tagMaxFamily      = 203
	tagInAtomicGroup  = 300
	tagBlobAddition   = 400
	tagBlobGarbage    = 401
	tagSafeIgnore     = 1 << 13
	tagDBID           = tagSafeIgnore + 1
	tagBlobAdditionV0 = tagSafeIgnore + 2
	tagBlobGarbageV0  = tagSafeIgnore + 3
	tagWalAddition    = tagSafeIgnore + 4
	tagWalDeletion    = tagSafeIgnore + 5
)

// Custom fields of a new file.
const (
	fieldEnd           = 1
	fieldOldestTime    = 5
	fieldCreationTime  = 6
	fieldChecksum      = 7
	fieldChecksumName  = 8
	fieldEpoch         = 13
	fieldTailSize      = 15
	fieldPathID        = 65
	fieldNonSafeIgnore = 1 << 6
)

// edit is one decoded record.
type edit struct {
	family       uint32
	add          *string // name of a new column family
	drop         bool
	comparator   *string
	lastSequence *uint64
	nextFile     *uint64
	logNumber    *uint64
	deleted      []levelFile
	added        []Table
	group        *uint32 // edits that follow in the same atomic group
	dbID         string
	blobs        bool
}

type levelFile struct {
	level  int
	number uint64
}

const (
	maxLevel = 63 // RocksDB's own bound is the configured number of levels
	maxSeq   = 1<<56 - 1
)

// decoder reads one edit with a sticky error.
type decoder struct {
	b   []byte
	n   int // length of the record
	pos int // where the field that was read last begins
	at  int64
	err error
}

func (d *decoder) fail(field, detail string) {
	if d.err == nil {
		d.err = corrupt(d.at, field, fmt.Sprintf("at byte %d of the record %s", d.pos, detail))
	}
}

func (d *decoder) v64(field string) uint64 {
	if d.err != nil {
		return 0
	}
	d.pos = d.n - len(d.b)
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(field, "is no varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) v32(field string) uint32 {
	v := d.v64(field)
	if v > 1<<32-1 {
		d.fail(field, fmt.Sprintf("is %d", v))
		return 0
	}
	return uint32(v)
}

func (d *decoder) slice(field string) []byte {
	n := d.v32(field)
	if d.err != nil {
		return nil
	}
	if uint64(n) > uint64(len(d.b)) {
		d.fail(field, fmt.Sprintf("of %d bytes reaches beyond the record", n))
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	return s
}

func (d *decoder) level() int {
	l := d.v32("level")
	if l > maxLevel {
		d.fail("level", fmt.Sprintf("is %d", l))
		return 0
	}
	return int(l)
}

// bound reads a file's smallest or largest key.
func (d *decoder) bound(field string) Bound {
	k := d.slice(field)
	if d.err != nil {
		return Bound{}
	}
	if len(k) < 8 {
		d.fail(field, "is no internal key")
		return Bound{}
	}
	n := len(k) - 8
	return Bound{Key: bytes.Clone(k[:n:n]), Trailer: binary.LittleEndian.Uint64(k[n:])}
}

func decodeEdit(record []byte, at int64) (*edit, error) {
	d := &decoder{b: record, n: len(record), at: at}
	e := new(edit)
	for len(d.b) > 0 && d.err == nil {
		d.tag(e, d.v32("tag"))
	}
	return e, d.err
}

func (d *decoder) tag(e *edit, tag uint32) {
	if d.err != nil {
		return
	}
	v64 := func(field string) *uint64 { v := d.v64(field); return &v }
	switch tag {
	case tagComparator:
		s := string(d.slice("comparator"))
		e.comparator = &s
	case tagLogNumber:
		e.logNumber = v64("log number")
	case tagNextFile:
		e.nextFile = v64("next file number")
	case tagLastSequence:
		e.lastSequence = v64("last sequence")
	case tagPrevLogNumber, tagMinLogToKeep:
		d.v64("log number")
	case tagCompactCursor:
		d.level()
		d.slice("compact cursor")
	case tagDeletedFile:
		e.deleted = append(e.deleted, levelFile{d.level(), d.v64("deleted file number")})
	case tagNewFile, tagNewFile2, tagNewFile3, tagNewFile4:
		e.added = append(e.added, d.newFile(tag))
	case tagColumnFamily:
		e.family = d.v32("column family")
	case tagFamilyAdd:
		s := string(d.slice("column family name"))
		e.add = &s
	case tagFamilyDrop:
		e.drop = true
	case tagMaxFamily:
		d.v32("largest column family")
	case tagInAtomicGroup:
		v := d.v32("atomic group")
		e.group = &v
	case tagBlobAddition, tagBlobAdditionV0:
		d.v64("blob file number")
		d.v64("blob count")
		d.v64("blob bytes")
		d.slice("blob checksum method")
		d.slice("blob checksum")
		d.blobFields()
		e.blobs = true
	case tagBlobGarbage, tagBlobGarbageV0:
		d.v64("blob file number")
		d.v64("blob count")
		d.v64("blob bytes")
		d.blobFields()
	case tagDBID:
		e.dbID = string(d.slice("database id"))
	case tagWalAddition:
		d.v64("log number")
		for d.err == nil {
			if t := d.v32("log field"); t == 1 {
				break
			} else if t != 2 {
				d.fail("log field", fmt.Sprintf("is %d", t))
			}
			d.v64("log size")
		}
	case tagWalDeletion:
		d.v64("log number")
	default:
		if tag&tagSafeIgnore == 0 {
			if d.err == nil {
				d.err = &damage.Error{Offset: d.at, Field: "tag", Detail: fmt.Sprintf("at byte %d of the record is %d", d.pos, tag), Err: damage.ErrUnsupportedVersion}
			}
			return
		}
		d.slice(fmt.Sprintf("tag %d", tag))
	}
}

func (d *decoder) blobFields() {
	for d.err == nil {
		if d.v32("blob field") == 0 {
			return
		}
		d.slice("blob field")
	}
}

func (d *decoder) newFile(tag uint32) Table {
	var t Table
	t.Level = d.level()
	t.Number = d.v64("file number")
	if tag == tagNewFile3 {
		t.PathID = d.v32("path id")
	}
	size := d.v64("file size")
	if size > 1<<62 {
		d.fail("file size", fmt.Sprintf("is %d", size))
	}
	t.Size = int64(size)
	t.Smallest = d.bound("smallest key")
	t.Largest = d.bound("largest key")
	if tag == tagNewFile {
		// Older than sequence numbers in the MANIFEST: anything is possible.
		t.LargestSeq = maxSeq
		return t
	}
	t.SmallestSeq = d.v64("smallest sequence")
	t.LargestSeq = d.v64("largest sequence")
	t.HasSeqs = true
	if tag != tagNewFile4 {
		return t
	}
	for d.err == nil {
		f := d.v32("file field")
		pos := d.pos
		if f == fieldEnd {
			break
		}
		v := d.slice(fmt.Sprintf("file field %d", f))
		if d.err != nil {
			break
		}
		number := func() uint64 {
			n, k := binary.Uvarint(v)
			if k <= 0 || k != len(v) {
				d.fail(fmt.Sprintf("file field %d", f), "is no varint")
			}
			return n
		}
		switch f {
		case fieldOldestTime:
			t.OldestAncestorTime = number()
		case fieldCreationTime:
			t.CreationTime = number()
		case fieldChecksum:
			t.Checksum = bytes.Clone(v)
		case fieldChecksumName:
			t.ChecksumName = string(v)
		case fieldEpoch:
			t.Epoch = number()
		case fieldTailSize:
			t.TailSize = number()
		case fieldPathID:
			if len(v) != 1 {
				d.fail("path id", "is not one byte")
				break
			}
			t.PathID = uint32(v[0])
		default:
			if f&fieldNonSafeIgnore != 0 {
				d.err = unsupported(d.at, "file field", fmt.Sprintf("at byte %d of the record is %d", pos, f))
			}
		}
	}
	return t
}
