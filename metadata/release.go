package metadata

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// release is a Flink release, major and minor.
type release struct{ major, minor int }

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

func (r release) before(major, minor int) bool {
	return r.major < major || r.major == major && r.minor < minor
}

// parseRelease reads "1.20", "1.20.0", "2.3-SNAPSHOT".
func parseRelease(s string) (release, error) {
	parts := strings.SplitN(s, ".", 3)
	if len(parts) >= 2 {
		minor, _, _ := strings.Cut(parts[1], "-")
		maj, err1 := strconv.Atoi(parts[0])
		mnr, err2 := strconv.Atoi(minor)
		if err1 == nil && err2 == nil && maj >= 1 && mnr >= 0 {
			return release{maj, mnr}, nil
		}
	}
	return release{}, fmt.Errorf("%q is no Flink release, such as 1.20", s)
}

// unreleased is later than any release: version 7 stands in no Flink that was
// released when this was written.
var unreleased = release{math.MaxInt, 0}

// The first release that reads a format version.
var versionSince = [MaxVersion + 1]release{
	2: {1, 3},
	3: {1, 11},
	4: {1, 16},
	5: {2, 0},
	6: {2, 1},
	7: unreleased,
}

// The first release that reads a handle tag. Changelog handles (8 to 10) came
// with 1.14, but in another layout; theirs is the release of today's.
var tagSince = [...]release{
	TagNull: {1, 3}, TagByteStream: {1, 3}, TagFile: {1, 3}, TagKeyGroups: {1, 3}, TagPartitionableOperator: {1, 3}, TagIncrementalOld: {1, 3},
	TagRelativeFile:       {1, 11},
	TagSavepointKeyGroups: {1, 13},
	TagChangelogOld:       {1, 15}, TagChangelogBytes: {1, 15}, TagChangelogFileOld: {1, 15},
	TagIncremental: {1, 15}, TagKeyGroupsWithID: {1, 15},
	TagChangelogFile: {1, 16}, TagChangelog: {1, 16},
	TagSegment: {1, 20}, TagEmptySegment: {1, 20}, TagMergedOperator: {1, 20},
}

func (e *encoder) checkVersion(v int32) {
	if s := versionSince[v]; s == unreleased {
		e.problem("version", "is read by no released Flink that is known")
	} else if e.release.before(s.major, s.minor) {
		e.problem("version", "needs Flink %s, not %s", s, e.release)
	}
}

func (e *encoder) checkTag(t Tag) {
	if int(t) < len(tagSince) {
		if s := tagSince[t]; e.release.before(s.major, s.minor) {
			e.problem("tag", "%s needs Flink %s, not %s", t, s, e.release)
		}
	}
}

// VersionFor returns the newest format version that a Flink release reads:
// VersionFor("1.17") is 4.
func VersionFor(flinkRelease string) (int32, error) {
	r, err := parseRelease(flinkRelease)
	if err != nil {
		return 0, err
	}
	for v := int32(MaxVersion); v >= MinVersion; v-- {
		if s := versionSince[v]; !r.before(s.major, s.minor) {
			return v, nil
		}
	}
	return 0, fmt.Errorf("release %s of Flink reads no known format version: %w", r, ErrUnsupportedVersion)
}

// WrittenBy says which Flink releases write a format version: "1.16 to 1.20".
func WrittenBy(version int32) string {
	switch version {
	case 1:
		return "1.1, 1.2"
	case 2:
		return "1.3 to 1.10"
	case 3:
		return "1.11 to 1.15"
	case 4:
		return "1.16 to 1.20"
	case 5:
		return "2.0"
	case 6:
		return "2.1 and later"
	case 7:
		return "unreleased"
	}
	return "unknown"
}
