package blobstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
)

// Options are what drivers and decorators take. Nil or zero is the default.
type Options struct {
	// Config holds settings by Flink's or Hadoop's own key ("s3.access-key",
	// "s3.endpoint", "fs.azure.account.key.X", "dfs.nameservices", …); environment
	// variables of the SDKs work without it. Values may be secret.
	Config map[string]string
	// Mounts maps "viewfs://cluster/path" prefixes to other URLs. Hadoop's
	// own keys in Config ("fs.viewfs.mounttable.CLUSTER.link./path") do the same.
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

// Open opens the store rooted at the URL's path. A plain path is a local folder,
// to which the store is confined. Nothing need exist there.
func Open(ctx context.Context, url string, opts *Options) (Store, error) {
	loc, err := Parse(url)
	if err != nil {
		return nil, err
	}
	if loc, err = opts.mount(loc); err != nil {
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
		return nil, &Error{Op: "open", URL: loc.String(), Err: fmt.Errorf("%w %q (linked: %s)",
			ErrUnknownScheme, loc.Scheme, strings.Join(Schemes(), ", "))}
	}
	return d(ctx, loc.Root(), opts)
}

// viewFSLink begins Hadoop's keys for mounts: fs.viewfs.mounttable.CLUSTER.link./path
const viewFSLink = "fs.viewfs.mounttable."

// mount replaces a viewfs location by what is mounted there, also through several
// mounts. The longest mount that matches wins.
func (o *Options) mount(loc Location) (Location, error) {
	asked := loc
	for range 16 {
		if loc.Scheme != "viewfs" {
			return loc, nil
		}
		var best, to Location
		found := false
		try := func(from, target string) error {
			f, err := Parse(from)
			if err != nil {
				return err
			}
			if !loc.HasPrefix(f) || found && len(f.Path) <= len(best.Path) {
				return nil
			}
			t, err := Parse(target)
			if err != nil {
				return err
			}
			best, to, found = f, t, true
			return nil
		}
		if o != nil {
			for from, target := range o.Mounts {
				if err := try(from, target); err != nil {
					return loc, err
				}
			}
			for key, target := range o.Config {
				cluster, dir, ok := strings.Cut(strings.TrimPrefix(key, viewFSLink), ".link.")
				if !ok || !strings.HasPrefix(key, viewFSLink) {
					continue
				}
				if cluster == "default" && loc.Authority == "" {
					cluster = ""
				}
				if err := try("viewfs://"+cluster+dir, target); err != nil {
					return loc, err
				}
			}
		}
		if !found {
			return loc, &Error{Op: "open", URL: asked.String(), Err: fmt.Errorf("no mount is configured for it: %w", ErrUnknownScheme)}
		}
		name, _ := loc.Rel(best)
		loc = to.Join(name)
	}
	return loc, &Error{Op: "open", URL: asked.String(), Err: errors.New("mounts lead in a circle")}
}

// Pool opens each root once and resolves URLs to a store and a name in it. It
// owns the stores; Close closes them. For concurrent use.
//
// A location without query finds the store that was opened first for the same
// bucket or cluster, whatever its query: the paths in metadata carry no
// parameters, and belong to the store in which the metadata was found.
type Pool struct {
	opts *Options
	wrap func(Store) Store

	mu     sync.Mutex
	stores map[string]*pooled
	closed bool
}

type pooled struct {
	ready chan struct{} // closed when store and err are set
	store Store
	err   error
}

// NewPool makes a pool whose stores are opened with opts and, if wrap is not
// nil, decorated by it (retries, counters).
func NewPool(opts *Options, wrap func(Store) Store) *Pool {
	return &Pool{opts: opts, wrap: wrap, stores: map[string]*pooled{}}
}

// Resolve gives the store of loc's root, opened if need be, and the name of loc
// in it ("" for the root itself). A failure is not kept: the next call tries again.
func (p *Pool) Resolve(ctx context.Context, loc Location) (Store, string, error) {
	loc, err := p.opts.mount(loc)
	if err != nil {
		return nil, "", err
	}
	key, mine := loc.rootKey(), false
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, "", &Error{Op: "open", URL: loc.String(), Err: ErrClosed}
	}
	e := p.stores[key]
	if e == nil && loc.Query == "" {
		e = p.stores[loc.storeKey()] // of the first one with a query
	}
	if e == nil {
		e, mine = &pooled{ready: make(chan struct{})}, true
		p.stores[key] = e
		if _, ok := p.stores[loc.storeKey()]; !ok {
			p.stores[loc.storeKey()] = e
		}
	}
	p.mu.Unlock()

	if !mine {
		select {
		case <-e.ready:
			return e.store, loc.Path, e.err
		case <-ctx.Done():
			return nil, "", &Error{Op: "open", URL: loc.String(), Err: ctx.Err()}
		}
	}
	e.store, e.err = openRoot(ctx, loc, p.opts)
	if e.err == nil && p.wrap != nil {
		e.store = p.wrap(e.store)
	}
	p.mu.Lock()
	closed := p.closed
	if e.err != nil {
		maps.DeleteFunc(p.stores, func(_ string, o *pooled) bool { return o == e })
	}
	close(e.ready) // under the lock: Close sees the store, or we see that it closed
	p.mu.Unlock()
	if closed && e.err == nil { // Close did not wait for us
		e.store.Close()
		return nil, "", &Error{Op: "open", URL: loc.String(), Err: ErrClosed}
	}
	return e.store, loc.Path, e.err
}

// Close closes every store of the pool, which is of no use afterwards.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	done := map[*pooled]bool{}
	for _, e := range p.stores {
		select {
		case <-e.ready:
			if !done[e] && e.err == nil {
				errs = append(errs, e.store.Close())
			}
			done[e] = true
		default: // still being opened: closed by its opener
		}
	}
	clear(p.stores)
	return errors.Join(errs...)
}
