package blobstore

import (
	"maps"
	"slices"
)

// Schemes are the normalized schemes that the linked drivers open, sorted.
func Schemes() []string {
	driversMu.RLock()
	defer driversMu.RUnlock()
	return slices.Sorted(maps.Keys(drivers))
}
