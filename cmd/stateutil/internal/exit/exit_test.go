package exit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/snapshot"
)

func TestOf(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("outer: %w", err) }
	for name, c := range map[string]struct {
		err  error
		want Code
	}{
		"nothing":             {nil, Done},
		"any":                 {errors.New("x"), Failed},
		"corrupt":             {wrap(&damage.Error{Err: damage.ErrCorrupt}), Damage},
		"checksum":            {wrap(blobstore.ErrDataCorrupt), Damage},
		"version":             {wrap(damage.ErrUnsupportedVersion), Unsupported},
		"absent":              {wrap(&blobstore.Error{Op: "open", Err: blobstore.ErrNotExist}), NoCheckpoint},
		"absent file":         {wrap(fs.ErrNotExist), NoCheckpoint},
		"no snapshot":         {wrap(snapshot.ErrNoSnapshot), NoCheckpoint},
		"none usable":         {wrap(snapshot.ErrNoneUsable), Damage},
		"denied":              {wrap(blobstore.ErrPermission), AccessDenied},
		"scheme":              {wrap(blobstore.ErrUnknownScheme), Usage},
		"name":                {wrap(blobstore.ErrInvalidName), Usage},
		"settings":            {wrap(fmt.Errorf("%w: %w", blobstore.ErrSettings, fs.ErrNotExist)), Usage},
		"own code wins":       {wrap(With(Usage, fs.ErrNotExist)), Usage},
		"reported":            {wrap(&Silent{Damage}), Damage},
		"cancelled":           {wrap(context.Canceled), Interrupted},
		"deadline is failure": {wrap(context.DeadlineExceeded), Failed},
		"dangling is damage":  {errors.Join(damage.ErrCorrupt, blobstore.ErrNotExist), Damage},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, Of(c.err)) })
	}
	require.NoError(t, With(Usage, nil))
}
