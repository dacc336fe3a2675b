package snapshot

import (
	"strconv"

	"github.com/tidemark/tidemark/metadata"
)

// tagSet is what the tags of a snapshot's handles say.
type tagSet struct {
	bits     uint32
	managed  uint32 // of managed keyed state, outermost and materialized
	shared   bool   // an incremental handle with a non-empty shared list
	channels bool
	lsm      bool // a database of our own state backend
	rocks    bool // one of RocksDB or ForSt
}

func (t *tagSet) add(tag metadata.Tag) {
	if tag < 32 {
		t.bits |= 1 << tag
	}
}

func (t *tagSet) hasAny(tags ...metadata.Tag) bool {
	for _, tag := range tags {
		if t.bits&(1<<tag) != 0 {
			return true
		}
	}
	return false
}

func (t *tagSet) hasManaged(tags ...metadata.Tag) bool {
	for _, tag := range tags {
		if t.managed&(1<<tag) != 0 {
			return true
		}
	}
	return false
}

func (t *tagSet) managedKeyed(h metadata.KeyedHandle) {
	if tag := h.Tag(); tag < 32 {
		t.managed |= 1 << tag
	}
	switch h := h.(type) {
	case *metadata.ChangelogHandle:
		for _, m := range h.Materialized {
			if m != nil {
				t.managedKeyed(m)
			}
		}
	case *metadata.IncrementalHandle:
		own := engineOf(h) == engineLSM
		t.lsm, t.rocks = t.lsm || own, t.rocks || !own
	}
}

// kindOf tells what a snapshot is. The tag of keyed state decides between
// canonical and native, whatever the properties claim: the native RocksDB
// savepoints of Flink 1.15 hold canonical handles.
func kindOf(c *metadata.Checkpoint, p *Properties, t tagSet) Kind {
	canonical := t.hasManaged(metadata.TagSavepointKeyGroups)
	switch {
	case canonical:
		return KindCanonicalSavepoint
	case p.savepoint && t.managed != 0:
		return KindNativeSavepoint
	case p.savepoint && p.Format == "canonical":
		return KindCanonicalSavepoint
	case p.savepoint && p.Format == "native":
		return KindNativeSavepoint
	case p.savepoint:
		return KindSavepoint
	case t.shared:
		return KindIncremental
	}
	return KindFull
}

func (t *tagSet) backends() []string {
	var out []string
	if t.hasManaged(metadata.TagKeyGroups, metadata.TagKeyGroupsWithID) {
		out = append(out, "heap")
	}
	if t.rocks {
		out = append(out, "rocksdb or forst")
	}
	if t.lsm {
		out = append(out, engineLSM)
	}
	if t.hasManaged(metadata.TagChangelog, metadata.TagChangelogOld) {
		out = append(out, "changelog")
	}
	return out
}

// A Flink release as one number: 1.20 is 120, 2.1 is 201.
type release int

func (r release) String() string {
	major, minor := int(r)/100, int(r)%100
	return strconv.Itoa(major) + "." + strconv.Itoa(minor)
}

// writtenBy narrows down the release that wrote a file by its version and by the
// releases that brought each tag, or dropped it. Versions: 2 is 1.3 to 1.10, 3 is
// 1.11 to 1.15, 4 is 1.16 to 1.20, 5 is 2.0, 6 is 2.1 and later, 7 is not yet
// released (regional checkpoints). Programs that are not Flink write them too.
func writtenBy(version int32, t tagSet) string {
	var from, to release // to 0: no end known
	switch version {
	case 2:
		from, to = 103, 110
	case 3:
		from, to = 111, 115
	case 4:
		from, to = 116, 120
	case 5:
		from, to = 200, 200
	case 6:
		from = 201
	case 7:
		return "a development version after 2.3"
	default:
		return "unknown"
	}
	since := func(r release, tags ...metadata.Tag) {
		if t.hasAny(tags...) && r > from && (to == 0 || r <= to) {
			from = r
		}
	}
	until := func(r release, has bool) {
		if has && r >= from && (to == 0 || r < to) {
			to = r
		}
	}
	since(113, metadata.TagSavepointKeyGroups)
	since(114, metadata.TagChangelogOld, metadata.TagChangelogBytes, metadata.TagChangelogFileOld)
	since(115, metadata.TagIncremental, metadata.TagKeyGroupsWithID)
	since(116, metadata.TagChangelog, metadata.TagChangelogFile)
	since(120, metadata.TagSegment, metadata.TagEmptySegment, metadata.TagMergedOperator)
	until(114, t.hasManaged(metadata.TagKeyGroups, metadata.TagIncrementalOld))
	until(115, t.hasAny(metadata.TagChangelogOld, metadata.TagChangelogFileOld))
	switch {
	case to == 0:
		return from.String() + " or later"
	case from == to:
		return from.String()
	}
	return from.String() + " .. " + to.String()
}
