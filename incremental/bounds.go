package incremental

import "github.com/tidemark/tidemark/metadata"

// KeyGroupBytes is the length of the key group in front of each key: 1 byte up
// to a max parallelism of 128, else 2. Source: Flink,
// CompositeKeySerializationUtils.computeRequiredBytesInKeyGroupPrefix.
func KeyGroupBytes(maxParallelism int32) int {
	if maxParallelism > 128 {
		return 2
	}
	return 1
}

// KeyGroupBounds gives the bounds of all keys in a range of key groups, for
// ScanOptions: lower is inclusive, upper exclusive and nil if the range reaches to
// the last key group that the prefix can hold. An empty range gives equal bounds.
func KeyGroupBounds(r metadata.KeyGroupRange, maxParallelism int32) (lower, upper []byte) {
	n := KeyGroupBytes(maxParallelism)
	lower = appendKeyGroup(nil, r.Start, n)
	end := r.Start + max(r.Count, 0)
	if int64(end) >= int64(1)<<(8*n) {
		return lower, nil
	}
	return lower, appendKeyGroup(nil, end, n)
}

func appendKeyGroup(b []byte, keyGroup int32, n int) []byte {
	if n == 1 {
		return append(b, byte(keyGroup))
	}
	return append(b, byte(keyGroup>>8), byte(keyGroup))
}
