package incremental_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/testdata"
)

// flipped calls f with each bit of data flipped that choose tells, and undoes it.
func flipped(data []byte, choose func(bit int) bool, f func(changed []byte, bit int)) {
	changed := bytes.Clone(data)
	for bit := range 8 * len(data) {
		if choose(bit) {
			changed[bit/8] ^= 1 << (bit % 8)
			f(changed, bit)
			changed[bit/8] = data[bit/8]
		}
	}
}

// oneOfEach chooses one bit of each byte, and all of the last bytes, where
// tables have their footer.
func oneOfEach(data []byte) func(bit int) bool {
	return func(bit int) bool { return bit%8 == bit/8*5%8 || bit/8 >= len(data)-60 }
}

func content(t *testing.T, src sst.Source) []byte {
	t.Helper()
	data := make([]byte, src.Size())
	_, err := src.ReadAt(context.Background(), data, 0)
	require.NoError(t, err)
	return data
}

// databaseFlips verifies a whole database once for each flipped bit of a file in it.
func databaseFlips(t *testing.T, files []incremental.File, i int, choose func(bit int) bool) {
	ctx := context.Background()
	with := append([]incremental.File{}, files...)
	var undetected []string
	flipped(content(t, files[i].Source), choose, func(changed []byte, bit int) {
		with[i].Source = sst.Bytes(changed)
		found := 0
		db, err := incremental.Open(ctx, with, &incremental.Options{OnDamage: func(err error) {
			requireDamage(t, err)
			found++
		}})
		require.NoError(t, err)
		summary, err := db.Verify(ctx, &incremental.VerifyOptions{OnDamage: func(x incremental.Finding) {
			requireDamage(t, x.Err)
			require.NotEmpty(t, x.File)
			found++
		}})
		require.NoError(t, err)
		require.LessOrEqual(t, summary.Findings, found)
		if found == 0 {
			undetected = append(undetected, fmt.Sprintf("%s: bit %d of byte %d", files[i].Name, bit%8, bit/8))
		}
	})
	require.Empty(t, undetected)
}

func requireDamage(t *testing.T, err error) {
	t.Helper()
	var d *damage.Error
	require.ErrorAs(t, err, &d)
	require.NotEmpty(t, d.Name)
	require.NotContains(t, err.Error(), "\n")
}

func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

// TestEveryFlippedBit flips each bit of the tables of small databases, one for
// each compression, checksum and footer, and expects Verify to see it.
func TestEveryFlippedBit(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "matrix", "*", "tiny-*"))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			c := readMatrixCase(t, dir)
			format, err := strconv.Atoi(c.options["format"])
			require.NoError(t, err)
			for _, f := range c.files {
				if !isTable(f.Name) {
					continue
				}
				data := content(t, f.Source)
				choose := func(int) bool { return true }
				if testing.Short() || c.options["compression"] == "BZLIB2_COMPRESSION" { // slow
					choose = oneOfEach(data)
				}
				var undetected []string
				flipped(data, choose, func(changed []byte, bit int) {
					found := 0
					_, err := sst.Verify(context.Background(), sst.Bytes(changed), &sst.VerifyOptions{
						Options: sst.Options{Name: f.Name}, FormatVersion: uint32(format),
						OnDamage: func(err error) { requireDamage(t, err); found++ },
					})
					require.NoError(t, err)
					if found == 0 {
						undetected = append(undetected, fmt.Sprintf("%s: bit %d of byte %d", f.Name, bit%8, bit/8))
					}
				})
				require.Empty(t, undetected)
			}
		})
	}
}

// TestEveryFlippedByteOfDatabase does the same for whole databases, with the
// MANIFEST, CURRENT and, for the format version, OPTIONS or the other tables as witnesses.
func TestEveryFlippedByteOfDatabase(t *testing.T) {
	for _, dir := range []string{"frocksdb6/tiny-snappy", "frocksdb8/tiny-snappy", "rocksdb10/tiny-snappy", "frocksdb6/tiny-format-2"} {
		t.Run(dir, func(t *testing.T) {
			c := readMatrixCase(t, filepath.Join("testdata", "matrix", filepath.FromSlash(dir)))
			for i, f := range c.files {
				if !strings.HasPrefix(f.Name, "OPTIONS") {
					databaseFlips(t, c.files, i, oneOfEach(content(t, f.Source)))
				}
			}
		})
	}
}

// TestEveryFlippedByteOfFlink does the same with one table of databases of Flink.
func TestEveryFlippedByteOfFlink(t *testing.T) {
	for _, name := range []string{"f120-rocksdb-chain", "f230-rocksdb-native"} {
		c := testdata.Golden(t, name)
		for _, h := range handles(t, c, c.Snapshot) {
			t.Run(fmt.Sprintf("%s/%d", name, h.subtask), func(t *testing.T) {
				i := slices.IndexFunc(h.files, func(f incremental.File) bool { return isTable(f.Name) })
				databaseFlips(t, h.files, i, oneOfEach(content(t, h.files[i].Source)))
			})
		}
	}
}
