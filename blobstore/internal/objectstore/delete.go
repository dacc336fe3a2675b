package objectstore

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// DeleteEach calls del for each name, at most bound at a time, and joins the
// errors. The end of ctx stops it; del is then called for one more name, whose
// error stands for all that are left.
func DeleteEach(ctx context.Context, names []string, bound int, del func(ctx context.Context, name string) error) error {
	var mu sync.Mutex
	var errs []error
	var g errgroup.Group
	g.SetLimit(bound)
	for _, name := range names {
		ended := ctx.Err() != nil
		g.Go(func() error {
			if err := del(ctx, name); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
			return nil
		})
		if ended {
			break
		}
	}
	g.Wait()
	return errors.Join(errs...)
}
