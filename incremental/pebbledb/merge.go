package pebbledb

import (
	"fmt"
	"maps"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// merging writes small tables as segments of larger files; nil does not.
type merging incremental.FileMerging

// merging is how an upload merges: a savepoint has no files outside of its folder, and
// what moves with its folder cannot be named by a segment.
func (o *UploadOptions) merging() *merging {
	if o.Merge == nil || o.Full && !o.Forward {
		return nil
	}
	m := merging(o.Merge.OrDefault())
	return &m
}

// dense gives the base without the segments of those physical files of which the
// checkpoint would name too little. They are written anew.
func (m *merging) dense(list *listing, base map[string]stored) map[string]stored {
	type use struct{ live, size int64 }
	files := map[metadata.String]use{}
	for _, file := range list.shared {
		if s, ok := base[file.name]; ok {
			if h, ok := s.handle.(*metadata.SegmentHandle); ok {
				u := files[h.Path]
				// Whoever copied the checkpoint may have put the segment into another file.
				u.live, u.size = u.live+h.Length, max(u.size, s.entry.Physical, h.Start+h.Length)
				files[h.Path] = u
			}
		}
	}
	maps.DeleteFunc(files, func(_ metadata.String, u use) bool {
		return float64(u.size) <= m.MaxSpaceAmplification*float64(u.live)
	})
	if len(files) == 0 {
		return base
	}
	base = maps.Clone(base) // others read it
	maps.DeleteFunc(base, func(_ string, s stored) bool {
		h, ok := s.handle.(*metadata.SegmentHandle)
		if ok {
			_, ok = files[h.Path]
		}
		return ok
	})
	return base
}

// pack deals out files, given by their number in list.shared, to physical files: small
// ones together in their order, which is that in which they were written, since such
// files also go together; the others alone.
func (m *merging) pack(list *listing, files []int) (groups [][]int) {
	var open []int
	var bytes int64
	for _, i := range files {
		size := list.shared[i].size
		if m == nil || size > m.MaxFileBytes/2 {
			groups = append(groups, []int{i})
			continue
		}
		if len(open) > 0 && bytes+size > m.MaxFileBytes {
			groups, open, bytes = append(groups, open), nil, 0
		}
		open, bytes = append(open, i), bytes+size
	}
	if len(open) > 0 {
		groups = append(groups, open)
	}
	return groups
}

// segments gives the handles of files that were written one behind the other, of which h
// is the whole; the entries learn how large it is.
func segments(h metadata.StreamHandle, entries []sumEntry) ([]metadata.StreamHandle, error) {
	if len(entries) == 1 {
		return []metadata.StreamHandle{h}, nil
	}
	var total int64
	for i := range entries {
		total += entries[i].Size
	}
	handles := make([]metadata.StreamHandle, len(entries))
	var off int64
	for i := range entries {
		size := entries[i].Size
		switch h := h.(type) {
		case *metadata.FileHandle:
			handles[i] = &metadata.SegmentHandle{Path: h.Path, LogicalID: javaio.NewString(uuid.NewString()), Start: off, Length: size, Scope: metadata.ScopeShared}
			entries[i].Physical = total
		case *metadata.ByteStreamHandle:
			if int64(len(h.Data)) != total {
				return nil, fmt.Errorf("%d bytes were written, the handle has %d", total, len(h.Data))
			}
			handles[i] = &metadata.ByteStreamHandle{Name: javaio.NewString(uuid.NewString()), Data: h.Data[off : off+size : off+size]}
		default:
			return nil, fmt.Errorf("a %T cannot hold segments: the path of a merged file is absolute", h)
		}
		off += size
	}
	return handles, nil
}
