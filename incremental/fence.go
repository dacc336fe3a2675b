package incremental

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/blobstore"
)

// ErrFenced says that another coordinator took over: this one must not commit,
// confirm, subsume or delete anything any more.
var ErrFenced = errors.New("another coordinator has taken over")

// FenceOptions change a Fence. Nil is the default.
type FenceOptions struct {
	// Holder names the coordinator in what others see: a host and process.
	Holder string
	// IDs is how many checkpoint IDs are reserved at a time; 0 is 1000.
	IDs int64
	// Now is the clock, for the time that others see; nil is time.Now.
	Now func() time.Time
}

// Fence keeps two coordinators of one job from both committing checkpoints. It is a
// row of objects in a folder of any store that creates exclusively; each is created
// once and never changed:
//
//	epoch-<20 digits>          a coordinator took over: JSON with holder, ID and time
//	ids-<epoch>-<20 digits>    it may use checkpoint IDs up to that one
//
// The coordinator with the highest epoch holds the fence. What a coordinator does:
//
//	f, err := incremental.TakeFence(ctx, store, "job/fence", nil)
//	// then look which checkpoints there are, and begin behind the newest and at f.FirstID()
//	err = f.Reserve(ctx, id)           // before checkpoint id is triggered
//	err = f.Commit(ctx, writeMetadata) // only if it is nil: confirm, notify, subsume
//	cleaner := incremental.NewCleaner(registry, pool, &incremental.CleanerOptions{Allowed: f.Check})
//
// Why that is enough, without clocks and leases: an old coordinator may be paused at
// any point and go on. If its commit passed, the next epoch was taken later, so that
// the new coordinator finds that checkpoint when it looks; what the old one still
// deletes was subsumed by it, and the new one does not start from that. If its commit
// is written later, it learns so before it confirms or subsumes anything: what is
// left is a whole checkpoint that nobody was told of, with an ID below all of the new
// coordinator's.
//
// For concurrent use.
type Fence struct {
	store blobstore.Store
	dir   string
	opts  FenceOptions
	epoch int64
	id    string
	first int64

	mu       sync.Mutex
	reserved int64
	lost     bool
}

// epochObject is the content of an epoch's object.
type epochObject struct {
	Epoch  int64     `json:"epoch"`
	Holder string    `json:"holder,omitempty"`
	ID     string    `json:"id"` // random, so that a lost answer can be told from another's
	Time   time.Time `json:"time"`
}

const (
	epochPrefix = "epoch-"
	idsPrefix   = "ids-"
	maxTakes    = 100
)

// TakeFence takes over: whoever held the fence before is fenced from when it returns.
// dir is a folder of store that belongs to the job alone. The error wraps
// blobstore.ErrUnsupported if the store cannot create exclusively between processes.
func TakeFence(ctx context.Context, store blobstore.Store, dir string, opts *FenceOptions) (*Fence, error) {
	f := &Fence{store: store, dir: dir, id: uuid.NewString()}
	if opts != nil {
		f.opts = *opts
	}
	if f.opts.IDs <= 0 {
		f.opts.IDs = 1000
	}
	if f.opts.Now == nil {
		f.opts.Now = time.Now
	}
	if !store.Capabilities().ExclusiveCreate {
		return nil, fmt.Errorf("fence %s: the store does not create exclusively: %w", f.at(""), blobstore.ErrUnsupported)
	}
	for range maxTakes {
		newest, _, err := f.list(ctx)
		if err != nil {
			return nil, err
		}
		f.epoch = newest + 1
		text, err := json.Marshal(epochObject{f.epoch, f.opts.Holder, f.id, f.opts.Now().UTC()})
		if err != nil {
			return nil, err
		}
		switch mine, err := f.create(ctx, f.epochName(f.epoch), text); {
		case err != nil:
			return nil, err
		case !mine:
			continue // somebody else was faster
		}
		// Whoever reserves IDs from here on learns that it is fenced before it uses them.
		_, ids, err := f.list(ctx)
		if err != nil {
			return nil, err
		}
		f.first, f.reserved = ids+1, ids
		return f, nil
	}
	return nil, fmt.Errorf("fence %s: %d others took it meanwhile: %w", f.at(""), maxTakes, ErrFenced)
}

func (f *Fence) at(name string) string { return path.Join(f.dir, name) }

func (f *Fence) epochName(epoch int64) string {
	return f.at(fmt.Sprintf("%s%020d", epochPrefix, epoch))
}

// create creates an object exclusively; false if there is another one.
func (f *Fence) create(ctx context.Context, name string, text []byte) (mine bool, err error) {
	err = blobstore.WriteAll(ctx, f.store, name, text, &blobstore.WriteOptions{IfAbsent: true})
	if err == nil {
		return true, nil
	}
	// The answer may have been lost, and the name be ours nevertheless.
	got, readErr := blobstore.ReadAll(ctx, f.store, name, 1<<16)
	switch {
	case readErr == nil && string(got) == string(text):
		return true, nil
	case readErr == nil && errors.Is(err, blobstore.ErrExist):
		return false, nil
	case readErr != nil && errors.Is(err, blobstore.ErrExist):
		return false, readErr
	}
	return false, err
}

// list gives the highest epoch and the highest reserved checkpoint ID.
func (f *Fence) list(ctx context.Context) (epoch, ids int64, err error) {
	prefix := f.at("")
	if prefix != "" && prefix != "." {
		prefix += "/"
	} else {
		prefix = ""
	}
	for info, err := range f.store.List(ctx, &blobstore.ListOptions{Prefix: prefix, Delimiter: true}) {
		if err != nil {
			return 0, 0, err
		}
		name := strings.TrimPrefix(info.Name, prefix)
		if digits, ok := strings.CutPrefix(name, epochPrefix); ok {
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
				epoch = max(epoch, n)
			}
		} else if rest, ok := strings.CutPrefix(name, idsPrefix); ok {
			_, digits, _ := strings.Cut(rest, "-")
			if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
				ids = max(ids, n)
			}
		}
	}
	return epoch, ids, nil
}

// Epoch counts the coordinators, from 1.
func (f *Fence) Epoch() int64 { return f.epoch }

// FirstID is the first checkpoint ID that no coordinator before may use.
func (f *Fence) FirstID() int64 { return f.first }

// Check is nil if nobody has taken over, as of a moment after the call began. Its
// error wraps ErrFenced if somebody has; any other is that of the store, and tells
// nothing. It costs one call.
func (f *Fence) Check(ctx context.Context) error {
	f.mu.Lock()
	lost := f.lost
	f.mu.Unlock()
	if !lost {
		// Epochs have no gaps and are never deleted.
		_, err := f.store.Stat(ctx, f.epochName(f.epoch+1))
		if errors.Is(err, blobstore.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fence: %w", err)
		}
		f.mu.Lock()
		f.lost = true
		f.mu.Unlock()
	}
	return fmt.Errorf("epoch %d: %w", f.epoch, ErrFenced)
}

// Reserve makes sure that a checkpoint ID may be used. Only one call in many asks the
// store.
func (f *Fence) Reserve(ctx context.Context, id int64) error {
	f.mu.Lock()
	reserved, lost := f.reserved, f.lost
	f.mu.Unlock()
	switch {
	case lost:
		return fmt.Errorf("epoch %d: %w", f.epoch, ErrFenced)
	case id < f.first:
		return fmt.Errorf("checkpoint ID %d may be used by a coordinator before: the first is %d", id, f.first)
	case id <= reserved:
		return nil
	}
	last := id
	if id <= math.MaxInt64-f.opts.IDs {
		last = id + f.opts.IDs
	}
	if err := blobstore.WriteAll(ctx, f.store, f.at(fmt.Sprintf("%s%020d-%020d", idsPrefix, f.epoch, last)), []byte(f.id), nil); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	// Whoever took over before the object was there did not see it.
	if err := f.Check(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	f.reserved = max(f.reserved, last)
	f.mu.Unlock()
	return nil
}

// Commit runs commit, which makes a checkpoint's _metadata, unless the fence is lost.
// If it returns nil the checkpoint counts. If the error wraps ErrFenced, _metadata may
// be there or not: nothing may be confirmed, subsumed or deleted because of it. Any
// other error is that of commit or of the store: Commit may be called again with a
// commit that takes what is there for done, or the checkpoint be aborted.
func (f *Fence) Commit(ctx context.Context, commit func(context.Context) error) error {
	if err := f.Check(ctx); err != nil {
		return err
	}
	if err := commit(ctx); err != nil {
		return err
	}
	return f.Check(ctx)
}

// Holders are the coordinators that took the fence, oldest first, as lines for people.
func Holders(ctx context.Context, store blobstore.Store, dir string) ([]string, error) {
	f := &Fence{store: store, dir: dir}
	newest, _, err := f.list(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for n := newest; n > 0 && len(lines) < 100; n-- {
		b, err := blobstore.ReadAll(ctx, store, f.epochName(n), 1<<16)
		if errors.Is(err, blobstore.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var e epochObject
		if json.Unmarshal(b, &e) != nil {
			lines = append(lines, fmt.Sprintf("epoch %d: unreadable", n))
			continue
		}
		lines = append(lines, fmt.Sprintf("epoch %d: %s, since %s", e.Epoch, e.Holder, e.Time.Format(time.RFC3339)))
	}
	slices.Reverse(lines)
	return lines, nil
}
