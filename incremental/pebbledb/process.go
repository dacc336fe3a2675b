package pebbledb

import (
	"context"
	"log/slog"
	"runtime"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/semaphore"
)

// ProcessOptions are the limits of all databases of a process together. Nil or
// zero is the default.
type ProcessOptions struct {
	// MemoryBytes is the memory budget: blocks, memtables and what Reserve took
	// share it. 0 is 256 MiB.
	MemoryBytes int64
	// OpenFiles is how many tables are open at a time; 0 is 1000.
	OpenFiles int
	// Compactions is how many run at a time; 0 is half of GOMAXPROCS, at least 1.
	Compactions int
	// Transfers is how many files are being uploaded at a time, and how many parts of
	// files downloaded; 0 is 16.
	Transfers int
	// TransferBytes is how many bytes of downloads are in memory at a time; 0 is 64 MiB.
	// Uploads take 64 KiB each beside what the store's writer holds.
	TransferBytes int64
	Logger        *slog.Logger // nil: no log
}

// Process is what the databases of an operating system process share. For
// concurrent use.
type Process struct {
	cache *pebble.Cache
	files *pebble.FileCache
	limit *compactionLimit
	// Uploads may read what has to be downloaded, so they have places of their own.
	uploads, transfers *semaphore.Weighted
	// background is what background downloads may have of transfers, so that a
	// reader that waits always finds a place.
	background   *semaphore.Weighted
	inFlight     *semaphore.Weighted
	chunks       *chunkCache
	maxBytes     int64
	maxTransfers int
	log          *slog.Logger

	mu     sync.Mutex
	open   int
	closed bool
}

// NewProcess makes a Process. It is closed after its databases.
func NewProcess(opts *ProcessOptions) *Process {
	var o ProcessOptions
	if opts != nil {
		o = *opts
	}
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = 256 << 20
	}
	if o.OpenFiles <= 0 {
		o.OpenFiles = 1000
	}
	if o.Compactions <= 0 {
		o.Compactions = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if o.Transfers <= 0 {
		o.Transfers = 16
	}
	if o.TransferBytes <= 0 {
		o.TransferBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Process{
		cache:        pebble.NewCache(o.MemoryBytes),
		limit:        newCompactionLimit(o.Compactions),
		uploads:      semaphore.NewWeighted(int64(o.Transfers)),
		transfers:    semaphore.NewWeighted(int64(o.Transfers)),
		background:   semaphore.NewWeighted(int64(max(1, o.Transfers-1))),
		inFlight:     semaphore.NewWeighted(max(o.TransferBytes, maxFetch)),
		maxTransfers: o.Transfers,
		maxBytes:     max(o.TransferBytes, maxFetch),
		chunks:       newChunkCache(max(o.MemoryBytes/4, 2*maxFetch)),
		log:          o.Logger,
	}
	p.files = pebble.NewFileCache(max(1, min(runtime.GOMAXPROCS(0), 16)), o.OpenFiles)
	return p
}

// MemoryBytes is the memory budget.
func (p *Process) MemoryBytes() int64 { return p.cache.MaxSize() }

// Reserve takes n bytes of the memory budget for something else, such as a cache
// of entries; the cache of blocks has so much less until release is called.
func (p *Process) Reserve(n int) (release func()) {
	return p.cache.Reserve(n)
}

// Close frees the caches. Databases still open keep them until they are closed.
func (p *Process) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.limit.close()
	p.files.Unref()
	p.cache.Unref()
}

// attach counts a database in; false after Close.
func (p *Process) attach() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open++
	return true
}

func (p *Process) detach() {
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
}

// transfer takes a place among the downloads and n bytes of memory.
func (p *Process) transfer(ctx context.Context, n int64) (release func(), err error) {
	if err := p.transfers.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	n = min(n, p.maxBytes)
	if err := p.inFlight.Acquire(ctx, n); err != nil {
		p.transfers.Release(1)
		return nil, err
	}
	return func() {
		p.inFlight.Release(n)
		p.transfers.Release(1)
	}, nil
}
