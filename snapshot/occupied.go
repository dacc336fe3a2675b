package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
)

// ErrOccupied says that a folder cannot become that of a new snapshot: it holds
// something else, or it lies in the folder of another snapshot. A _metadata above
// other snapshots hides them from Flink's tools and from List, and a folder with
// strange files in it is not deleted by Flink, which removes it only when empty.
var ErrOccupied = errors.New("a new snapshot needs a folder of its own")

// folderFor looks at the folder of a new snapshot before anything is written. It
// gives the sizes of the objects in it by name, and whether _metadata is among them;
// then nothing else is asked. ErrOccupied is the error if there is a folder, or an
// object that is not own's.
func folderFor(ctx context.Context, pool *blobstore.Pool, dir blobstore.Location, own func(name string) bool) (map[string]int64, bool, error) {
	store, prefix, err := pool.Resolve(ctx, dir)
	if err != nil {
		return nil, false, err
	}
	switch _, err = store.Stat(ctx, joinPath(prefix, MetadataName)); {
	case err == nil:
		sizes, err := objectsIn(ctx, pool, dir)
		return sizes, true, err
	case !errors.Is(err, blobstore.ErrNotExist):
		return nil, false, err
	}
	if prefix != "" {
		switch _, err := store.Stat(ctx, joinPath(parentPath(prefix), MetadataName)); {
		case err == nil:
			return nil, false, fmt.Errorf("%s: %w: it lies in that of a snapshot", dir, ErrOccupied)
		case !errors.Is(err, blobstore.ErrNotExist) && !errors.Is(err, blobstore.ErrPermission):
			return nil, false, err
		}
		prefix += "/"
	}
	sizes := map[string]int64{}
	for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: prefix, Delimiter: true}) {
		if err != nil {
			return nil, false, err
		}
		name := info.Name[len(prefix):]
		if info.IsPrefix {
			return nil, false, fmt.Errorf("%s: %w: there is a folder %s", dir, ErrOccupied, shown(strings.TrimSuffix(name, "/")))
		}
		if !own(name) {
			return nil, false, fmt.Errorf("%s: %w: there is %s", dir, ErrOccupied, shown(name))
		}
		sizes[name] = info.Size
	}
	return sizes, false, nil
}

// apartFrom refuses a folder in that of the snapshot of which a new one is made.
func apartFrom(s *Snapshot, to blobstore.Location, made string) error {
	switch {
	case to.Same(s.Dir):
		return fmt.Errorf("%s: a snapshot cannot be %s onto itself", to, made)
	case to.HasPrefix(s.Dir):
		return fmt.Errorf("%s: %w: it lies in that of the snapshot which is %s", to, ErrOccupied, made)
	}
	return nil
}
