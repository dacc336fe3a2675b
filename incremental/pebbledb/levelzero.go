package pebbledb

// A compaction of level 0 rewrites the level below wherever keys were changed, which is
// all of it if they are spread: the next checkpoint uploads that again. RocksDB does so
// for every fourth flush, that is for every fourth checkpoint, whatever it wrote. So
// once there are checkpoints, sorted runs of level 0 wait until they are worth it, as
// long as reads can bear them.
const (
	// minRuns is from how many sorted runs on Pebble would compact level 0.
	minRuns = 4
	// maxRuns is how many there are at most before level 0 is compacted in any case:
	// a read asks the filter of each.
	maxRuns = 16
	// stopRuns is how many there are before Pebble lets writers wait.
	stopRuns = 40
	// worthRatio is how many times the bytes of the level below level 0 has when a
	// compaction is worth it.
	worthRatio = 2
)

// levelZero is what decides whether level 0 is to be compacted.
type levelZero struct {
	uploaded    bool // a checkpoint has tables of the database
	runs        int
	bytes, base int64 // of level 0, and of the first level below that has tables
}

func (z levelZero) due() bool {
	if !z.uploaded || z.runs < minRuns || z.runs >= maxRuns {
		return true // it is about another level if there are few
	}
	return z.bytes >= worthRatio*z.base
}

// compactionDue tells whether a compaction that Pebble wants may run now.
func (d *DB) compactionDue() bool {
	z := levelZero{uploaded: d.up.any()}
	if !z.uploaded {
		return true
	}
	levels := d.db.Metrics().Levels
	z.runs, z.bytes = int(levels[0].Sublevels), levels[0].TablesSize
	for _, l := range levels[1:] {
		if l.TablesCount > 0 {
			z.base = l.TablesSize
			break
		}
	}
	return z.due()
}
