package query

// nearest is the name that is closest to one that does not exist, "" if none is
// close.
func nearest(name string, names []string) string {
	best, distance := "", 1+len(name)/3
	for _, n := range names {
		if len(n) > 300 || len(name) > 300 {
			continue
		}
		if d := edits(fold(name), fold(n)); d < distance || d == distance && best == "" {
			best, distance = n, d
		}
	}
	return best
}

// edits counts the bytes that must be put in, taken out, changed or swapped with
// their neighbour to make b of a.
func edits(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			cur[j] = min(change, prev[j]+1, cur[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
