package snapshot

import (
	"context"
	"sync"
	"sync/atomic"
)

// parallel calls do for 0 to n-1, up to limit at a time. The first failure stops
// the rest; of several the one with the lowest number is returned.
func parallel(ctx context.Context, limit, n int, do func(ctx context.Context, i int) error) error {
	limit = min(limit, n)
	if limit <= 1 {
		for i := range n {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := do(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg     sync.WaitGroup
		next   atomic.Int64
		mu     sync.Mutex
		first  error
		firstI = n
	)
	for range limit {
		wg.Go(func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= n || inner.Err() != nil {
					return
				}
				if err := do(inner, i); err != nil {
					mu.Lock()
					// A failure after the first is mostly its cancellation.
					if first == nil || i < firstI && ctx.Err() == nil && inner.Err() == nil {
						first, firstI = err, i
					}
					mu.Unlock()
					cancel()
					return
				}
			}
		})
	}
	wg.Wait()
	if first == nil {
		return context.Cause(ctx)
	}
	return first
}
