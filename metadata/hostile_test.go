package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestTruncationAtEveryByte(t *testing.T) {
	for version, b := range examples(t) {
		for n := range b {
			for _, r := range []io.Reader{bytes.NewReader(b[:n]), io.MultiReader(bytes.NewReader(b[:n]))} {
				_, err := Decode(r, &DecodeOptions{Name: "chk-7/_metadata"})
				require.ErrorIs(t, err, ErrCorrupt, "version %d, %d bytes", version, n)
				requireFormatError(t, err, n)
				require.True(t, strings.HasPrefix(err.Error(), "chk-7/_metadata: byte "), err.Error())
			}
			err := VerifyRoundTrip(bytes.NewReader(b[:n]), nil)
			require.ErrorIs(t, err, ErrCorrupt, "version %d, %d bytes", version, n)
		}
		// The size that was given may be wrong: then the reading tells.
		_, err := Decode(bytes.NewReader(b[:len(b)/2]), &DecodeOptions{Size: int64(len(b))})
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func TestTruncationNamesTheFieldThatIsCut(t *testing.T) {
	b := examples(t)[3]
	for n, want := range map[int]string{
		0:   "byte 0: magic is cut off: the file ends after 0 of 4 bytes: corrupt",
		15:  "byte 8: checkpointID is cut off: the file ends after 7 of 8 bytes: corrupt",
		40:  "byte 24: masterState[0].recordLength is 13, but 12 bytes are left: corrupt",
		91:  "byte 87: operator[0].subtask[0].managedOperator.state[0].name is cut off: its length is 4, but 2 bytes are left: corrupt",
		112: "byte 106: operator[0].subtask[0].managedOperator.state[0].offset[1] is cut off: the file ends after 6 of 8 bytes: corrupt",
		123: "byte 118: operator[0].subtask[0].managedOperator.delegate.data has the length 3, but 1 bytes are left: corrupt",
		160: "byte 159: operator[0].subtask[0].managedKeyed.delegate.size is cut off: the file ends after 1 of 8 bytes: corrupt",
		184: "byte 181: operator[0].subtask[1].index is cut off: the file ends after 3 of 4 bytes: corrupt",
	} {
		_, err := Decode(bytes.NewReader(b[:n]), nil)
		require.EqualError(t, err, want, "%d bytes", n)
	}
}

// put overwrites bytes at an offset; a number is four bytes.
func put(b []byte, at int, with ...any) []byte {
	b = bytes.Clone(b)
	for _, w := range with {
		switch w := w.(type) {
		case int:
			binary.BigEndian.PutUint32(b[at:], uint32(w))
			at += 4
		case int64:
			binary.BigEndian.PutUint64(b[at:], uint64(w))
			at += 8
		case byte:
			b[at] = w
			at++
		}
	}
	return b
}

func TestDamageIsNamed(t *testing.T) {
	ex := examples(t)
	v2, v3, v5, v7 := ex[2], ex[3], ex[5], ex[7]
	merged := v7
	// A second operator like the first, behind it.
	twice := func(b []byte, from, to int) []byte {
		return append(append(append([]byte(nil), b[:to]...), b[from:to]...), b[to:]...)
	}
	// One keyed handle as the only state of one subtask.
	keyed := func(handle string) []byte {
		return unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000000 00000000"+handle)
	}
	const tail = "00 00000000 00000000"
	cases := []struct {
		name string
		in   []byte
		want string
	}{
		{"wrong magic", put(v3, 0, 0x50540304), "byte 0: magic is 50540304, not 4960672d: no checkpoint metadata: corrupt"},
		{"version 0", put(v3, 4, 0), "byte 4: version is 0; known are 2 to 7: unsupported version"},
		{"version 8", put(v3, 4, 8), "byte 4: version is 8; known are 2 to 7: unsupported version"},
		{"version 99", put(v3, 4, 99), "byte 4: version is 99; known are 2 to 7: unsupported version"},
		{"negative version", put(v3, 4, -1), "byte 4: version is -1; known are 2 to 7: unsupported version"},
		{"negative checkpoint ID", put(v3, 8, int64(-2)), "byte 8: checkpointID is -2: corrupt"},
		{"negative master state count", put(v3, 16, -1), "byte 16: masterStateCount is -1: corrupt"},
		{"2^31-1 master states", put(v3, 16, math.MaxInt32), "byte 16: masterStateCount is 2147483647, but 165 bytes are left: corrupt"},
		{"wrong master state magic", put(v3, 20, 0), "byte 20: masterState[0].magic is 00000000, not c96b1696: corrupt"},
		{"master state record of 0 bytes", put(v3, 24, 0), "byte 24: masterState[0].recordLength is 0: corrupt"},
		{"master state record below zero", put(v3, 24, -13), "byte 24: masterState[0].recordLength is -13: corrupt"},
		{"master state record of 2^31-1", put(v3, 24, math.MaxInt32), "byte 24: masterState[0].recordLength is 2147483647, but 157 bytes are left: corrupt"},
		{"master state record too long", put(v3, 24, 14), "byte 41: masterState[0] has 1 bytes left over of its recordLength: corrupt"},
		{"master state record too short", put(v3, 24, 12), "byte 35: masterState[0].payload has the length 2, but 1 bytes are left: corrupt"},
		{"master state record ends in a name", put(v3, 24, 6), "byte 32: masterState[0].name is cut off: its length is 1, but 0 bytes are left: corrupt"},
		{"negative operator count", put(v3, 41, -1), "byte 41: operatorCount is -1: corrupt"},
		{"2^31-1 operators", put(v3, 41, math.MaxInt32), "byte 41: operatorCount is 2147483647, but 140 bytes are left: corrupt"},
		{"negative parallelism", put(v3, 61, -1), "byte 61: operator[0].parallelism is -1: corrupt"},
		{"max parallelism below parallelism", put(v3, 65, 1), "byte 65: operator[0].maxParallelism is 1, below the parallelism 2: corrupt"},
		{"max parallelism over 32768", put(v3, 65, 32769), "byte 65: operator[0].maxParallelism is 32769; Flink allows 32768: corrupt"},
		{"coordinator in a file", put(v3, 69, byte(2)), "byte 69: operator[0].coordinator.tag is 2 (file); coordinator state is inline or absent: corrupt"},
		{"more subtasks than the parallelism", put(v3, 70, 3), "byte 70: operator[0].subtaskCount is 3, but the parallelism is 2: corrupt"},
		{"negative subtask count in version 2", put(v2, 73, -1), "byte 73: operator[0].subtaskCount is -1: corrupt"},
		{"subtask index beyond the parallelism", put(v3, 74, 2), "byte 74: operator[0].subtask[0].index is 2, but the parallelism is 2: corrupt"},
		{"finished subtask beyond the parallelism", put(v3, 181, math.MinInt32), "byte 181: operator[0].subtask[1].index is 2147483647, but the parallelism is 2: corrupt"},
		{"negative subtask index in version 2", put(v2, 77, -1), "byte 77: operator[0].subtask[0].index is -1, but the parallelism is 2: corrupt"},
		{"the same subtask twice", put(v3, 181, -1), "byte 181: operator[0].subtask[1].index is 0, which an entry before it has: corrupt"},
		{"legacy state in version 2", put(v2, 89, 1), "byte 89: operator[0].subtask[0].legacyStateCount is 1: state of Flink 1.1, which has no reader: corrupt"},
		{"operator handle of a keyed tag", put(v3, 82, byte(12)), "byte 82: operator[0].subtask[0].managedOperator.tag is 12 (key groups with ID), which is no handle of operator state: corrupt"},
		{"2^31-1 named states", put(v3, 83, math.MaxInt32), "byte 83: operator[0].subtask[0].managedOperator.stateCount is 2147483647, but 98 bytes are left: corrupt"},
		{"malformed name", put(v3, 89, byte(0xff)), "byte 87: operator[0].subtask[0].managedOperator.state[0].name is malformed modified UTF-8: corrupt"},
		{"mode 3", put(v3, 93, byte(3)), "byte 93: operator[0].subtask[0].managedOperator.state[0].mode is 3: corrupt"},
		{"2^31-1 offsets", put(v3, 94, math.MaxInt32), "byte 94: operator[0].subtask[0].managedOperator.state[0].offsetCount is 2147483647, but 87 bytes are left: corrupt"},
		{"negative offset", put(v3, 106, int64(-1)), "byte 106: operator[0].subtask[0].managedOperator.state[0].offset[1] is -1: corrupt"},
		{"stream of a keyed tag", put(v3, 114, byte(12)), "byte 114: operator[0].subtask[0].managedOperator.delegate.tag is 12 (key groups with ID), which is no handle of a stream: corrupt"},
		{"unknown tag", put(v3, 114, byte(200)), "byte 114: operator[0].subtask[0].managedOperator.delegate.tag is 200, which is no handle of a stream: corrupt"},
		{"inline data below zero", put(v3, 118, -3), "byte 118: operator[0].subtask[0].managedOperator.delegate.data has the length -3: corrupt"},
		{"inline data of 2^31-1", put(v3, 118, math.MaxInt32), "byte 118: operator[0].subtask[0].managedOperator.delegate.data has the length 2147483647, but 63 bytes are left: corrupt"},
		{"keyed handle of an operator tag", put(v3, 129, byte(4)), "byte 129: operator[0].subtask[0].managedKeyed.tag is 4 (operator state), which is no handle of keyed state: corrupt"},
		{"negative key group", put(v3, 130, -1), "byte 130: operator[0].subtask[0].managedKeyed.keyGroupStart is -1: corrupt"},
		{"negative key-group count", put(v3, 134, -3), "byte 134: operator[0].subtask[0].managedKeyed.keyGroupCount is -3: corrupt"},
		{"key groups beyond the max parallelism", put(v3, 130, 127), "byte 134: operator[0].subtask[0].managedKeyed.keyGroupCount is 2: from 127 on that is beyond the max parallelism 128: corrupt"},
		{"key groups overflow", put(v3, 130, math.MaxInt32, math.MaxInt32), "byte 134: operator[0].subtask[0].managedKeyed.keyGroupCount is 2147483647: from 2147483647 on that is beyond the max parallelism 128: corrupt"},
		{"key-group offset below -1", put(v3, 138, int64(-2)), "byte 138: operator[0].subtask[0].managedKeyed.offset[0] is -2: corrupt"},
		{"size below -1", put(v3, 159, int64(-2)), "byte 159: operator[0].subtask[0].managedKeyed.delegate.size is -2: corrupt"},
		{"negative channel count", put(v3, 173, -1), "byte 173: operator[0].subtask[0].inputChannelCount is -1: corrupt"},
		{"2^31-1 channels", put(v3, 177, math.MaxInt32), "byte 177: operator[0].subtask[0].outputChannelCount is 2147483647, but 4 bytes are left: corrupt"},
		{"bytes behind the end", append(bytes.Clone(v3), 0), "byte 185: the checkpoint ends here, but more bytes follow: corrupt"},
		{"input channel with an output tag", put(merged, 162, byte(4)), "byte 162: operator[0].subtask[0].inputChannel[0].tag is 4, not that of an input channel: corrupt"},
		{"channel tag 0", put(merged, 162, byte(0)), "byte 162: operator[0].subtask[0].inputChannel[0].tag is 0, not that of an input channel: corrupt"},
		{"offset block too short for its count", put(merged, 188, 3), "byte 188: operator[0].subtask[0].inputChannel[0].offsetBlockLength is 3: corrupt"},
		{"offset block ends early", put(merged, 188, 31), "byte 216: operator[0].subtask[0].inputChannel[0].channel[0].offset[0] is cut off: its record ends after 7 of 8 bytes: corrupt"},
		{"offset block not used up", put(merged, 188, 33), "byte 224: operator[0].subtask[0].inputChannel[0] has 1 bytes left over of its offsetBlockLength: corrupt"},
		{"offset block of 2^31-1", put(merged, 188, math.MaxInt32), "byte 188: operator[0].subtask[0].inputChannel[0].offsetBlockLength is 2147483647, but 50 bytes are left: corrupt"},
		{"channel size below -1", put(v5, 186, int64(-9)), "byte 186: operator[0].subtask[0].inputChannel[0].size is -9: corrupt"},
		{"properties of another kind", put(v7, 237, 0x504b0304), "byte 237: properties begin with 504b0304, not with the header of a Java object stream: corrupt"},
		{"properties that are no object", put(v7, 241, byte(0x78)), "byte 241: properties.type code is 78, which cannot stand here: corrupt"},
		{"operator ID twice", put(twice(v7, 24, 237), 20, 2), "byte 243: operator[1].id is 00000000000000010000000000000002, which an operator before it has: corrupt"},
		{"finished operator with a coordinator", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 01 0000 00000000 ffffffff"),
			"byte 55: operator[0].subtaskCount is -1 (finished), but the operator has coordinator state: corrupt"},
		{"state name twice", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000001 04 00000002 000161 00 00000000 000161 00 00000000 00"),
			`byte 74: operator[0].subtask[0].managedOperator.state[1].name is "a", which a state before it has: corrupt`},
		{"merged operator state in a file", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000001 11 00000000 000161 000162 01 02"),
			"byte 73: operator[0].subtask[0].managedOperator.delegate.tag is 2 (file); merged operator state lies in a segment: corrupt"},
		{"file without a path", keyed("03 00000000 00000000 02 0000000000000001 0000" + tail), "byte 83: operator[0].subtask[0].managedKeyed.delegate.path is empty: corrupt"},
		{"relative file without a path", keyed("03 00000000 00000000 06 0000 0000000000000001" + tail), "byte 75: operator[0].subtask[0].managedKeyed.delegate.path is empty: corrupt"},
		{"merged operator state without a directory", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000001 11 00000000 0000 000162 01 10"),
			"byte 66: operator[0].subtask[0].managedOperator.taskOwnedDir is empty: corrupt"},
		{"segment before its file", keyed("03 00000000 00000000 0f ffffffffffffffff 0000000000000001 00000000 0000 0000" + tail), "byte 75: operator[0].subtask[0].managedKeyed.delegate.start is -1: corrupt"},
		{"segment of negative length", keyed("03 00000000 00000000 0f 0000000000000000 ffffffffffffffff 00000000 0000 0000" + tail), "byte 83: operator[0].subtask[0].managedKeyed.delegate.length is -1: corrupt"},
		{"segment overflows", keyed("03 00000000 00000000 0f 0000000000000001 7fffffffffffffff 00000000 0000 0000" + tail), "byte 83: operator[0].subtask[0].managedKeyed.delegate.length is 9223372036854775807: corrupt"},
		{"segment of unknown scope", keyed("03 00000000 00000000 0f 0000000000000001 0000000000000001 00000002 0000 0000" + tail), "byte 91: operator[0].subtask[0].managedKeyed.delegate.scope is 2: corrupt"},
		{"shared list of 2^31-1", keyed("0b 0000000000000001 0000 00000000 00000001 ffffffffffffffff 00 7fffffff"), "byte 93: operator[0].subtask[0].managedKeyed.sharedCount is 2147483647, but 0 bytes are left: corrupt"},
		{"shared size", keyed("0b 0000000000000001 0000 00000000 00000001 ffffffffffffffff 00 00000002 000161 00 000162 02 fffffffffffffffe 0000"), "byte 105: operator[0].subtask[0].managedKeyed.shared[1].handle.size is -2: corrupt"},
		{"changelog of no key group", keyed("0e 00000000 00000000"), "byte 70: operator[0].subtask[0].managedKeyed.keyGroupCount is 0, which a changelog handle cannot have: corrupt"},
		{"changes that are no changes", keyed("0e 00000000 00000001 0000000000000000 00000000 00000001 0c"), "byte 90: operator[0].subtask[0].managedKeyed.changes[0].tag is 12 (key groups with ID), which is no handle of changes: corrupt"},
		{"null changes", keyed("0e 00000000 00000001 0000000000000000 00000000 00000001 00"), "byte 90: operator[0].subtask[0].managedKeyed.changes[0].tag is 0 (null), which is no handle of changes: corrupt"},
		{"change of an unknown key group", keyed("09 00000000 00000001 0000000000000000 0000000000000001 00000001 00000080 00000000"), "byte 94: operator[0].subtask[0].managedKeyed.change[0].keyGroup is 128, but the max parallelism is 128: corrupt"},
		{"negative offset into a changelog file", keyed("0d 00000000 00000001 00000001 ffffffffffffffff 00"), "byte 78: operator[0].subtask[0].managedKeyed.files[0].offset is -1: corrupt"},
		{"changelogs nested too deep", keyed(strings.Repeat("0e 00000000 00000001 0000000000000000 00000001", 17)),
			"byte 401: operator[0].subtask[0].managedKeyed" + strings.Repeat(".materialized[0]", 16) + ".tag begins a handle nested more than 16 deep: corrupt"},
		{"streams nested too deep", keyed("0c 00000000 00000000" + strings.Repeat("03 00000000 00000000", 17)),
			"byte 218: operator[0].subtask[0].managedKeyed" + strings.Repeat(".delegate", 17) + ".tag begins a handle nested more than 16 deep: corrupt"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode(bytes.NewReader(c.in), nil)
			require.EqualError(t, err, c.want)
			requireDamageOrRoundTrip(t, c.in)
		})
	}
}

func TestWhatFlinkAcceptsIsKeptUnlessStrict(t *testing.T) {
	ex := examples(t)
	cases := []struct {
		name string
		in   []byte
		want string
	}{
		{"presence flag 7", put(ex[3], 78, 7), "byte 78: operator[0].subtask[0].managedOperatorFlag is 7; Flink writes 0 or 1: corrupt"},
		{"presence flag -1", put(ex[3], 78, -1), "byte 78: operator[0].subtask[0].managedOperatorFlag is -1; Flink writes 0 or 1: corrupt"},
		{"finished count -5", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 fffffffb"),
			"byte 49: operator[0].subtaskCount is -5; for a finished operator Flink writes -1: corrupt"},
		{"empty flag 9", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000001 11 00000000 000161 000162 09 10 00000000 00 00 00000000 00000000"),
			"byte 72: operator[0].subtask[0].managedOperator.empty is 9; Flink writes 0 or 1: corrupt"},
		{"reference marker 4", append(append(bytes.Clone(ex[7][:228]), 4), ex[7][237:]...),
			"byte 228: operator[0].subtask[0].referenceMarker is 4; Flink writes 0 or 1 and reads this as 0: corrupt"},
		{"null materialized handle", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000000 00000000 0e 00000000 00000001 0000000000000000 00000001 00 00000000 0000000000000000 0000000000000000 0000 00 00000000 00000000"),
			"byte 86: operator[0].subtask[0].managedKeyed.materialized[0].tag is null, which Flink drops with a warning: corrupt"},
		{"null handle behind a flag", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000001 00 00000000 00 00 00000000 00000000"),
			"byte 61: operator[0].subtask[0].managedOperator.tag is null, which Flink does not accept here: corrupt"},
		{"null delegate", unhex(t, "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001"+
			"00000000 00000000 00000000 07 00000000 00000000 00 00 00000000 00000000"),
			"byte 74: operator[0].subtask[0].managedKeyed.delegate.tag is null, which Flink does not accept here: corrupt"},
		{"bytes behind the properties", append(bytes.Clone(ex[7]), 1, 2, 3), "byte 242: properties are followed by 3 bytes, which Flink ignores: corrupt"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode(bytes.NewReader(c.in), &DecodeOptions{Strict: true})
			require.EqualError(t, err, c.want)
			var warned []string
			ck, err := Decode(bytes.NewReader(c.in), &DecodeOptions{Warn: func(e *FormatError) { warned = append(warned, e.Error()) }})
			require.NoError(t, err)
			require.Equal(t, []string{c.want}, warned)
			require.Equal(t, c.in, mustEncode(t, ck))
			requireDamageOrRoundTrip(t, c.in)
		})
	}
}

func TestChangelogLayoutOfFlink114(t *testing.T) {
	head := "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00 00000001 00000000 00000000 00000000"
	in := unhex(t, head+"08 00000000 00000080 00000000 00000002"+
		"09 00000000 00000080 0000000000000001 0000000000000002 00000001 ffffffff 00000001 aa"+
		"0a 00000000 00000080 00000001 0000000000000010 02 0000000000000020 000166 0000000000000010"+
		"00 00000000 00000000")
	_, err := Decode(bytes.NewReader(in), nil)
	require.ErrorIs(t, err, ErrCorrupt, "the layout of today is tried otherwise")
	c, err := Decode(bytes.NewReader(in), &DecodeOptions{Changelog114: true})
	require.NoError(t, err)
	h := c.Operators[0].Subtasks[0].ManagedKeyed.(*ChangelogHandle)
	require.Len(t, h.Changes, 2)
	require.EqualValues(t, 16, h.Changes[1].(*ChangelogFileHandle).FullSize)
	require.Equal(t, in, mustEncode(t, c))
	require.NoError(t, VerifyRoundTrip(bytes.NewReader(in), &DecodeOptions{Changelog114: true}))
	require.NoError(t, EncodeWith(io.Discard, c, &EncodeOptions{SelfCheck: true}))
	h.ID = "x"
	require.ErrorContains(t, Encode(io.Discard, c), "has fields that the layout of Flink 1.14 cannot hold")
}

// zeros gives zeros without an end that anybody knows.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestHugeInputsTakeLittleMemory(t *testing.T) {
	hundredMB := func(head string) io.Reader {
		return io.LimitReader(io.MultiReader(bytes.NewReader(unhex(t, head)), zeros{}), 100<<20)
	}
	op := "4960672d 00000003 0000000000000007 00000000 00000001 00000000000000010000000000000002 00000002 00000080 00"
	cases := []struct {
		name string
		in   io.Reader
		want string
		most uint64
	}{
		{"100 MB of zeros", hundredMB(""), "byte 0: magic is 00000000, not 4960672d: no checkpoint metadata: corrupt", 64 << 10},
		{"a header and zeros", hundredMB("4960672d 00000003"), "byte 24: the checkpoint ends here, but more bytes follow: corrupt", 64 << 10},
		{"2^31-1 operators and zeros", hundredMB("4960672d 00000005 0000000000000007 00000000 7fffffff"), "byte 61: operator[1].id is 00000000000000000000000000000000, which an operator before it has: corrupt", 1 << 20},
		{"2^31-1 master states", hundredMB("4960672d 00000005 0000000000000007 7fffffff"), "byte 20: masterState[0].magic is 00000000, not c96b1696: corrupt", 256 << 10},
		{"a name of 65535 bytes", hundredMB("4960672d 00000005 0000000000000007 00000000 00000001 ffff ff"), "byte 24: operator[0].name is malformed modified UTF-8: corrupt", 512 << 10},
		{"2^31-1 bytes inline, none there", bytes.NewReader(unhex(t, op[:len(op)-2]+"01 0000 7fffffff")), "byte 51: operator[0].coordinator.data has the length 2147483647, but 0 bytes are left: corrupt", 64 << 10},
		{"2^31-1 bytes inline, size not known", io.MultiReader(bytes.NewReader(unhex(t, op[:len(op)-2]+"01 0000 7fffffff 0102"))), "byte 51: operator[0].coordinator.data is cut off: its length is 2147483647, but 2 bytes are left: corrupt", 256 << 10},
		{"2^31-1 offsets, size not known", io.MultiReader(bytes.NewReader(unhex(t, op+"00000001 00000000 00000001 04 00000001 0000 00 7fffffff 01"))), "byte 73: operator[0].subtask[0].managedOperator.state[0].offset[0] is cut off: the file ends after 1 of 8 bytes: corrupt", 512 << 10},
		{"2^31-1 channels, size not known", io.MultiReader(bytes.NewReader(unhex(t, op+"00000001 00000000 00000000 00000000 00 00 7fffffff"))), "byte 71: operator[0].subtask[0].inputChannel[0].subtask is cut off: the file ends after 0 of 4 bytes: corrupt", 256 << 10},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(c.in, nil)
			runtime.ReadMemStats(&after)
			require.EqualError(t, err, c.want)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, c.most)
		})
	}
}

func TestReadErrorsKeepTheirCause(t *testing.T) {
	b := examples(t)[3]
	cause := errors.New("connection reset")
	for n := range b {
		_, err := Decode(io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(cause)), &DecodeOptions{Name: "s3://b/_metadata"})
		require.ErrorIs(t, err, cause, "after %d bytes", n)
		require.NotErrorIs(t, err, ErrCorrupt)
		require.Contains(t, err.Error(), "cannot be read: connection reset")
	}
	_, err := Decode(iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(b))), nil)
	require.ErrorIs(t, err, iotest.ErrTimeout)
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	defer dir.Close()
	_, err = Decode(dir, nil)
	require.ErrorContains(t, err, "is a directory")
	require.NotContains(t, err.Error(), "\n")
	_, err = Decode(idle{}, nil)
	require.ErrorIs(t, err, io.ErrNoProgress)
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestDecodeEachStopsWhenTold(t *testing.T) {
	b := examples(t)[3]
	stop := errors.New("enough")
	_, err := DecodeEach(bytes.NewReader(b), nil, func(c *Checkpoint, o *OperatorState) error {
		require.EqualValues(t, 7, c.ID)
		require.Len(t, o.Subtasks, 2)
		return stop
	})
	require.Equal(t, stop, err)
	n := 0
	c, err := DecodeEach(bytes.NewReader(b), nil, func(*Checkpoint, *OperatorState) error { n++; return nil })
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Empty(t, c.Operators)
	require.Len(t, c.MasterStates, 1)
}

func TestEncoderRefusesWhatNoFileMayHold(t *testing.T) {
	long := String(strings.Repeat("x", 65536))
	file := &FileHandle{Path: "p", Size: 1}
	kg := func(h KeyGroupsHandle) func(*Checkpoint) {
		return func(c *Checkpoint) { c.Operators[0].Subtasks[0].ManagedKeyed = &h }
	}
	sub := func(f func(*SubtaskState)) func(*Checkpoint) {
		return func(c *Checkpoint) { f(&c.Operators[0].Subtasks[0]) }
	}
	cases := []struct {
		name    string
		version int32
		edit    func(*Checkpoint)
		want    string
	}{
		{"negative checkpoint ID", 3, func(c *Checkpoint) { c.ID = -1 }, "checkpointID: is -1"},
		{"string too long", 3, func(c *Checkpoint) { c.MasterStates[0].Name = long }, "masterState[0].name: is a string of 65536 encoded bytes; 65535 fit"},
		{"malformed string", 3, func(c *Checkpoint) { c.MasterStates[0].Name = "\xff" }, "masterState[0].name: is not modified UTF-8"},
		{"coordinator in a file", 3, func(c *Checkpoint) { c.Operators[0].Coordinator = file }, "operator[0].coordinator: is a handle with tag 2 (file); coordinator state is inline or absent"},
		{"parallelism over max", 3, func(c *Checkpoint) { c.Operators[0].MaxParallelism = 1 }, "operator[0].maxParallelism: is 1 with the parallelism 2; Flink allows up to 32768"},
		{"index over parallelism", 3, sub(func(s *SubtaskState) { s.Index = 2 }), "operator[0].subtask[0].index: is 2 with the parallelism 2"},
		{"index twice", 3, sub(func(s *SubtaskState) { s.Index = 1 }), "operator[0].subtask[1].index: is 1, which an entry before it has"},
		{"operator twice", 3, func(c *Checkpoint) { c.Operators = append(c.Operators, c.Operators[0]) }, "operator[1].id: is 00000000000000010000000000000002, which an operator before it has"},
		{"finished with state", 3, sub(func(s *SubtaskState) { s.Finished = true }), "operator[0].subtask[0]: is finished but has state"},
		{"finished operator with subtasks", 3, func(c *Checkpoint) { c.Operators[0].FinishedCount = -1 }, "operator[0]: is fully finished but has 2 subtask states"},
		{"positive finished count", 3, func(c *Checkpoint) { c.Operators[0].FinishedCount = 1 }, "operator[0]: has the finished count 1; finished operators have a negative one"},
		{"state name twice", 3, sub(func(s *SubtaskState) {
			h := *s.ManagedOperator
			h.States = append(h.States, h.States[0])
			s.ManagedOperator = &h
		}), `operator[0].subtask[0].managedOperator.state[1].name: is "offs", which a state before it has`},
		{"no path", 3, kg(KeyGroupsHandle{Form: TagKeyGroups, Delegate: &FileHandle{}}), "operator[0].subtask[0].managedKeyed.delegate.path: is empty"},
		{"unknown mode", 3, sub(func(s *SubtaskState) {
			s.ManagedOperator = &OperatorHandle{Form: TagPartitionableOperator, States: []NamedPartitions{{Mode: 3}}}
		}), "operator[0].subtask[0].managedOperator.state[0].mode: is 3"},
		{"operator handle of another form", 3, sub(func(s *SubtaskState) { s.ManagedOperator = &OperatorHandle{Form: TagKeyGroups} }), "operator[0].subtask[0].managedOperator.tag: is 3 (key groups), which is no handle of operator state"},
		{"merged operator state in a file", 3, sub(func(s *SubtaskState) { s.ManagedOperator = &OperatorHandle{Form: TagMergedOperator, Delegate: file} }), "operator[0].subtask[0].managedOperator.delegate: is a handle with tag 2 (file); merged operator state lies in a segment"},
		{"directories without merging", 3, sub(func(s *SubtaskState) {
			s.ManagedOperator = &OperatorHandle{Form: TagPartitionableOperator, Empty: true}
		}), "operator[0].subtask[0].managedOperator: has directories of merged files, which tag 4 (operator state) cannot hold"},
		{"ID in a savepoint handle", 3, kg(KeyGroupsHandle{Form: TagSavepointKeyGroups, ID: "i"}), `operator[0].subtask[0].managedKeyed.stateHandleID: ("i") needs tag 12 (key groups with ID), not 7 (savepoint key groups)`},
		{"key groups of another form", 3, kg(KeyGroupsHandle{Form: TagFile}), "operator[0].subtask[0].managedKeyed.tag: is 2 (file), which is no handle of key groups"},
		{"offsets missing", 3, kg(KeyGroupsHandle{Form: TagKeyGroups, Range: KeyGroupRange{0, 2}}), "operator[0].subtask[0].managedKeyed.offset: has 0 entries for 2 key groups"},
		{"key groups beyond the max parallelism", 3, kg(KeyGroupsHandle{Form: TagKeyGroups, Range: KeyGroupRange{128, 1}, Offsets: []int64{0}}), "operator[0].subtask[0].managedKeyed.keyGroupStart: is 128 with a count of 1 and the max parallelism 128"},
		{"stream of another form", 3, kg(KeyGroupsHandle{Form: TagKeyGroups, Delegate: &KeyGroupsHandle{Form: TagKeyGroupsWithID}}), `operator[0].subtask[0].managedKeyed.delegate.tag: is 12 (key groups with ID) with the ID "": as a stream only tag 3 (key groups) without an ID can stand`},
		{"segment overflows", 3, kg(KeyGroupsHandle{Form: TagKeyGroups, Delegate: &SegmentHandle{Start: 1, Length: math.MaxInt64}}), "operator[0].subtask[0].managedKeyed.delegate.start: is 1 with a length of 9223372036854775807"},
		{"old incremental handle with an ID", 3, sub(func(s *SubtaskState) { s.ManagedKeyed = &IncrementalHandle{Form: TagIncrementalOld, ID: "i"} }), "operator[0].subtask[0].managedKeyed: has a state handle ID or a checkpointed size, which tag 5 (incremental, old form) cannot hold"},
		{"incremental handle of another form", 3, sub(func(s *SubtaskState) { s.ManagedKeyed = &IncrementalHandle{} }), "operator[0].subtask[0].managedKeyed.tag: is 0 (null), which is no incremental handle"},
		{"size below -1", 3, sub(func(s *SubtaskState) {
			s.ManagedKeyed = &IncrementalHandle{Form: TagIncremental, Private: []NamedHandle{{Handle: &FileHandle{Size: -2}}}}
		}), "operator[0].subtask[0].managedKeyed.private[0].handle.size: is -2"},
		{"changes that are none", 3, sub(func(s *SubtaskState) {
			s.ManagedKeyed = &ChangelogHandle{Form: TagChangelog, Range: KeyGroupRange{0, 1}, Changes: []KeyedHandle{&KeyGroupsHandle{}}}
		}), "operator[0].subtask[0].managedKeyed.changes[0]: is a *metadata.KeyGroupsHandle, which holds no changes"},
		{"channel with a tag", 5, sub(func(s *SubtaskState) { s.InputChannels[0].Tag = 1 }), "operator[0].subtask[0].inputChannel[0].tag: is 1, which needs version 6"},
		{"channel without a tag", 7, sub(func(s *SubtaskState) { s.InputChannels[0].Tag = 0 }), "operator[0].subtask[0].inputChannel[0].tag: is 0, which cannot stand here"},
		{"channel of the other direction", 7, sub(func(s *SubtaskState) { s.InputChannels[0].Tag = 4 }), "operator[0].subtask[0].inputChannel[0].tag: is 4, which cannot stand here"},
		{"unmerged channel of two", 5, sub(func(s *SubtaskState) { s.InputChannels[0].Channels = make([]ChannelOffsets, 2) }), "operator[0].subtask[0].inputChannel[0]: has 2 channels; without merging it has one"},
		{"unmerged channel of two sizes", 5, sub(func(s *SubtaskState) { s.InputChannels[0].Size = 1 }), "operator[0].subtask[0].inputChannel[0].size: is 1, but that of its one channel is 9"},
		{"no properties", 4, func(c *Checkpoint) { c.Properties = nil }, "properties: are missing; version 4 ends with a Java object stream, at least that of null"},
		{"other properties", 4, func(c *Checkpoint) { c.Properties = RawProperties("hello") }, "properties: begin with 68656c6c, not with the header of a Java object stream"},
		{"chain length", 3, func(c *Checkpoint) { c.Operators[0].ChainLength = 1 }, "operator[0].chainLength: only version 2 has it"},
		{"duration", 3, sub(func(s *SubtaskState) { s.Duration = -1 }), "operator[0].subtask[0].duration: only version 2 has it"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ck := mustDecode(t, examples(t)[c.version])
			c.edit(ck)
			var out bytes.Buffer
			err := Encode(&out, ck)
			var e *NotRepresentableError
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Problems, c.want)
			require.Zero(t, out.Len())
		})
	}
}

func TestEncoderListsManyProblemsInShort(t *testing.T) {
	c := &Checkpoint{Version: 3}
	for i := range 30 {
		c.Operators = append(c.Operators, OperatorState{ID: OperatorID{byte(i)}, UID: "u"})
	}
	err := Encode(io.Discard, c)
	require.ErrorContains(t, err, `operator[19].uid: operator uids ("u") need version 5; and 10 more: not representable in this format version`)
}

func TestEncodeForARelease(t *testing.T) {
	incremental := &Checkpoint{Version: 3, Operators: []OperatorState{{Parallelism: 1, MaxParallelism: 128,
		Subtasks: []SubtaskState{{ManagedKeyed: &IncrementalHandle{Form: TagIncremental, Meta: &RelativeFileHandle{Path: "m"}}}}}}}
	cases := []struct {
		name, release string
		version       int32
		want          string
	}{
		{"old enough", "1.15", 3, ""},
		{"patch release", "1.20.0", 3, ""},
		{"too old for the tag", "1.14", 3, "operator[0].subtask[0].managedKeyed.tag: 11 (incremental) needs Flink 1.15, not 1.14"},
		{"too old for the version", "1.15.4", 4, "version: needs Flink 1.16, not 1.15"},
		{"too old for both", "1.10", 3, "version: needs Flink 1.11, not 1.10; operator[0].subtask[0].managedKeyed.tag: 11 (incremental) needs Flink 1.15, not 1.10; operator[0].subtask[0].managedKeyed.meta.tag: 6 (relative file) needs Flink 1.11, not 1.10"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ck := *incremental
			ck.Version = c.version
			if c.version >= 4 {
				ck.Properties = NullProperties()
			}
			err := EncodeWith(io.Discard, &ck, &EncodeOptions{Release: c.release})
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
	require.Error(t, EncodeWith(io.Discard, incremental, &EncodeOptions{Release: "new"}))
	require.ErrorContains(t, EncodeWith(io.Discard, mustDecode(t, examples(t)[7]), &EncodeOptions{Release: "2.9"}), "version: is read by no released Flink that is known")
	finished := mustDecode(t, examples(t)[3])
	require.ErrorContains(t, EncodeWith(io.Discard, finished, &EncodeOptions{Release: "1.13"}), "operator[0].subtask[1]: finished operators and subtasks need Flink 1.14, not 1.13")
}

func TestVersionForRelease(t *testing.T) {
	for release, want := range map[string]int32{"1.3": 2, "1.10.1": 2, "1.11": 3, "1.15": 3, "1.16": 4, "1.20.0": 4, "2.0": 5, "2.1": 6, "2.3.0": 6, "3.0": 6} {
		v, err := VersionFor(release)
		require.NoError(t, err)
		require.Equal(t, want, v, release)
	}
	for _, release := range []string{"1.2", "", "x", "0.9"} {
		_, err := VersionFor(release)
		require.Error(t, err, release)
	}
}

func TestWritersErrorComesBack(t *testing.T) {
	require.ErrorIs(t, Encode(failingWriter{}, mustDecode(t, examples(t)[3])), io.ErrClosedPipe)
}

// Objects take many times the bytes that describe them: very long properties are
// carried through, but not looked into.
func TestHugePropertiesAreNotLookedInto(t *testing.T) {
	const n = 8 << 20
	b := unhex(t, "4960672d 00000004 0000000000000007 00000000 00000000 aced0005 75 72 0013")
	b = append(b, "[Ljava.lang.Object;"...)
	b = append(b, unhex(t, "90ce589f1073296c 02 0000 78 70")...)
	b = binary.BigEndian.AppendUint32(b, n)
	b = append(b, bytes.Repeat([]byte{0x70}, n)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := Decode(bytes.NewReader(b), nil)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8*n))
	require.Equal(t, "they have 8388652 bytes, of which at most 1048576 are looked into", c.Properties.Decode().Opaque)
	require.True(t, bytes.Equal(b, mustEncode(t, c)))
	var out bytes.Buffer
	require.NoError(t, Dump(&out, bytes.NewReader(b), nil))
	require.Less(t, out.Len(), 2000)
}

// What the self-check finds that a plain Encode does not look at.
func TestSelfCheckReadsBack(t *testing.T) {
	c := mustDecode(t, examples(t)[3])
	c.Operators[0].Subtasks[0].ManagedKeyed.(*KeyGroupsHandle).Offsets[0] = -7
	require.NoError(t, Encode(io.Discard, c))
	var out bytes.Buffer
	err := EncodeWith(&out, c, &EncodeOptions{SelfCheck: true})
	require.EqualError(t, err, "self-check failed: byte 138: operator[0].subtask[0].managedKeyed.offset[0] is -7: corrupt")
	require.Zero(t, out.Len())
}

func FuzzDecode(f *testing.F) {
	for _, b := range examples(f) {
		f.Add(b)
	}
	for version := int32(MinVersion); version <= MaxVersion; version++ {
		for seed := range uint64(8) {
			f.Add(mustEncode(f, randomCheckpoint(seed, version)))
		}
	}
	addGoldens(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(bytes.NewReader(b), nil)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(100*len(b))+1<<20 {
			t.Fatalf("%d bytes allocated for %d of input: %v", used, len(b), err)
		}
		requireDamageOrRoundTrip(t, b)
	})
}

func FuzzDump(f *testing.F) {
	for _, b := range examples(f) {
		f.Add(b)
	}
	addGoldens(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		err := Dump(&out, bytes.NewReader(b), &DumpOptions{MaxBytes: -1})
		if err != nil {
			requireFormatError(t, err, len(b))
		}
		for i, c := range out.Bytes() {
			if c < ' ' && c != '\n' || c == 0x7f {
				t.Fatalf("control character %02x at byte %d: %s", c, i, fmt.Sprintf("%q", out.Bytes()[max(0, i-40):i+1]))
			}
		}
	})
}
