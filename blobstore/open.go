package blobstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// Options are what drivers and decorators take. Nil or zero is the default.
type Options struct {
	// Config holds settings by Flink's or Hadoop's own key ("s3.access-key",
	// "s3.endpoint", "fs.azure.account.key.X", "dfs.nameservices", …); environment
	// variables of the SDKs work without it. Values may be secret.
	Config map[string]string
	// Mounts maps "viewfs://cluster/path" prefixes to other URLs.
	Mounts map[string]string
	Logger *slog.Logger // nil: no log
}

// Driver opens the store at loc.Root() (the authority, not the path).
type Driver func(ctx context.Context, loc Location, opts *Options) (Store, error)

var (
	driversMu sync.RWMutex
	drivers   = map[string]Driver{}
)

// Register makes a driver known for schemes; from an init function. Doubled
// schemes panic.
func Register(d Driver, schemes ...string) {
	driversMu.Lock()
	defer driversMu.Unlock()
	for _, s := range schemes {
		if _, ok := drivers[s]; ok {
			panic("blobstore: scheme registered twice: " + s)
		}
		drivers[s] = d
	}
}

// ErrUnknownScheme says that no linked driver knows a URL's scheme.
var ErrUnknownScheme = errors.New("unknown scheme")

// Open opens the store rooted at the URL's path. A plain path is a local folder.
func Open(ctx context.Context, url string, opts *Options) (Store, error) {
	loc, err := Parse(url)
	if err != nil {
		return nil, err
	}
	s, err := openRoot(ctx, loc, opts)
	if err != nil {
		return nil, err
	}
	return Sub(s, loc.Path), nil
}

func openRoot(ctx context.Context, loc Location, opts *Options) (Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	driversMu.RLock()
	d := drivers[loc.Scheme]
	driversMu.RUnlock()
	if d == nil {
		return nil, fmt.Errorf("%s: %w %q", loc, ErrUnknownScheme, loc.Scheme)
	}
	return d(ctx, loc, opts)
}

// Pool opens each root once and resolves URLs to a store and a name in it. It
// owns the stores; Close closes them. For concurrent use.
type Pool struct {
	opts *Options
	wrap func(Store) Store

	mu     sync.Mutex
	stores map[string]Store
}

// NewPool makes a pool whose stores are opened with opts and, if wrap is not
// nil, decorated by it (retries, counters).
func NewPool(opts *Options, wrap func(Store) Store) *Pool {
	return &Pool{opts: opts, wrap: wrap, stores: map[string]Store{}}
}

// Resolve gives the store of loc's root, opened if need be, and the name of loc
// in it ("" for the root itself).
func (p *Pool) Resolve(ctx context.Context, loc Location) (Store, string, error) {
	key := loc.rootKey()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.stores[key]; ok {
		return s, loc.Path, nil
	}
	s, err := openRoot(ctx, loc, p.opts)
	if err != nil {
		return nil, "", err
	}
	if p.wrap != nil {
		s = p.wrap(s)
	}
	p.stores[key] = s
	return s, loc.Path, nil
}

// Close closes every store of the pool.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for k, s := range p.stores {
		errs = append(errs, s.Close())
		delete(p.stores, k)
	}
	return errors.Join(errs...)
}
