package checkpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
)

// LogStore is a durable Store: a log of numbered objects in a folder, each of
// which holds the whole content. The one with the highest number counts.
//
// An object is only ever created under the number that follows the last one, and
// only if it is not there. So of two coordinators that both believe to be the only
// one, exactly one adds the next record, and the other learns that it is fenced.
// Taking over is a record as well: after it, whoever wrote the one before fails,
// whatever it has written in the meantime elsewhere. This needs nothing of a store
// but exclusive creation; there are no leases and no clocks.
//
//	tidemark checkpoints 1
//	epoch 3 takeover K5GJ3…
//	next 48 first 1
//	stopped "s3://bucket/sp/savepoint-7f3c01-00aa"    only if the job was stopped
//	result finished dirty ""                          only if the job has ended
//	checkpoint 41 own - "s3://bucket/ckp/7f3c…/chk-41/_metadata"
//	end 1 9ae0daaf
//
// Behind the epoch stands a random text of whoever wrote the record, so that two
// that take over at the same moment can tell whose record it is. The last line has
// the number of checkpoints and a CRC-32C of all before it. A
// record is deleted once a newer one is there, but those of a takeover stay: a
// fenced coordinator must find the number taken.
//
// For concurrent use; changes are made one after the other.
type LogStore struct {
	store blobstore.Store
	dir   string
	opts  LogOptions
	owner string

	mu    sync.Mutex
	seq   int64 // of our last record; 0 before TakeOver
	epoch int64
	old   []string // records to be deleted
	err   error    // ErrFenced or ErrInDoubt, for good
}

// LogOptions change a LogStore. Nil is the default.
type LogOptions struct {
	// Attempts to find out what became of a write whose answer was an error; 0 is 5.
	Attempts int
	// Backoff before the second attempt; each one after doubles it. 0 is 100 ms.
	Backoff time.Duration
}

// keptTakeovers is how many coordinators may have come after one that still
// believes to be the only one.
const keptTakeovers = 1000

// NewLogStore makes a LogStore in a folder of its own, such as
// "<job>/checkpoints-log" in the store of the checkpoints.
func NewLogStore(store blobstore.Store, dir string, opts *LogOptions) (*LogStore, error) {
	if !store.Capabilities().ExclusiveCreate {
		return nil, fmt.Errorf("completed checkpoint store in %s: the store cannot create an object only if it is not there, so that two coordinators could both complete a checkpoint: %w", dir, errors.ErrUnsupported)
	}
	l := &LogStore{store: store, dir: strings.TrimSuffix(dir, "/"), owner: rand.Text()}
	if opts != nil {
		l.opts = *opts
	}
	setDefault(&l.opts.Attempts, 5)
	if l.opts.Backoff == 0 {
		l.opts.Backoff = 100 * time.Millisecond
	}
	return l, nil
}

// deleteAtOnce is how many old records are deleted by one call.
const deleteAtOnce = 16

type logRecord struct {
	epoch    int64
	takeover bool
	owner    string
	Content
}

const (
	logMagic     = "tidemark checkpoints 1"
	maxLogRecord = 16 << 20
)

func (l *LogStore) name(seq int64) string { return fmt.Sprintf("%s/%019d", l.dir, seq) }

// TakeOver implements Store. Listings must show what was created before. A last record that cannot be read is an error and
// never skipped: an older one may name checkpoints that are deleted.
func (l *LogStore) TakeOver(ctx context.Context) (Content, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for attempt := 0; ; attempt++ {
		c, err := l.takeOver(ctx)
		if err == nil || !errors.Is(err, ErrFenced) || attempt == 100 {
			return c, err
		}
		// Another one was faster: it is the former one now.
	}
}

func (l *LogStore) takeOver(ctx context.Context) (Content, error) {
	// What others have begun to write is removed below. One that is still at it finds
	// out that it is fenced, or begins anew.
	begun, err := l.begun(ctx)
	if err != nil {
		return Content{}, err
	}
	names, last, err := l.list(ctx)
	if err != nil {
		return Content{}, err
	}
	rec := logRecord{epoch: 0}
	if last > 0 {
		data, err := blobstore.ReadAll(ctx, l.store, l.name(last), maxLogRecord)
		if errors.Is(err, blobstore.ErrNotExist) {
			return Content{}, fmt.Errorf("completed checkpoint store: %s went away: %w", l.name(last), ErrFenced)
		}
		if err == nil {
			rec, err = decodeLog(l.name(last), data)
		}
		if err != nil {
			return Content{}, fmt.Errorf("completed checkpoint store: %w", err)
		}
	}
	rec.Content = rec.Content.clone()
	l.seq, l.epoch, l.err = last, rec.epoch+1, nil
	if err := l.append(ctx, logRecord{epoch: l.epoch, takeover: true, owner: l.owner, Content: rec.Content}); err != nil {
		return Content{}, err
	}
	// While we were reading, others may have added records and deleted the one whose
	// number we got. There is a higher one then: the highest is never deleted.
	switch _, now, err := l.list(ctx); {
	case err != nil:
		return Content{}, err
	case now != l.seq:
		return Content{}, fmt.Errorf("completed checkpoint store: %s is not the last record any more: %w", l.name(l.seq), ErrFenced)
	}
	l.clean(ctx, names)
	for _, name := range begun {
		// For tidiness; the next one tries again.
		_ = l.store.(blobstore.TemporaryLister).DeleteTemporary(ctx, name)
	}
	return rec.Content.clone(), nil
}

// begun are the records that a writer has begun, or whose writer died.
func (l *LogStore) begun(ctx context.Context) (names []string, err error) {
	t, ok := l.store.(blobstore.TemporaryLister)
	if !ok {
		return nil, nil
	}
	for info, err := range t.ListTemporary(ctx, l.dir+"/") {
		if err != nil {
			return nil, fmt.Errorf("completed checkpoint store: %w", err)
		}
		names = append(names, info.Name)
	}
	return names, nil
}

// list gives the names of all records and the highest number.
func (l *LogStore) list(ctx context.Context) (names []string, last int64, err error) {
	for info, err := range l.store.List(ctx, &blobstore.ListOptions{Prefix: l.dir + "/"}) {
		if err != nil {
			return nil, 0, fmt.Errorf("completed checkpoint store: %w", err)
		}
		base := strings.TrimPrefix(info.Name, l.dir+"/")
		n, err := strconv.ParseInt(base, 10, 64)
		if err != nil || n <= 0 || len(base) != 19 {
			continue
		}
		names = append(names, info.Name)
		last = max(last, n)
	}
	return names, last, nil
}

// clean deletes the records before ours but for those of takeovers.
func (l *LogStore) clean(ctx context.Context, names []string) {
	slices.Sort(names)
	takeovers := 0
	for _, name := range slices.Backward(names) {
		if takeovers < keptTakeovers {
			data, err := blobstore.ReadAll(ctx, l.store, name, maxLogRecord)
			if err != nil {
				continue
			}
			if rec, err := decodeLog(name, data); err != nil || rec.takeover {
				takeovers++
				continue
			}
		}
		l.old = append(l.old, name)
	}
	l.deleteOld(ctx)
}

// deleteOld is for tidiness: what cannot be deleted now is deleted another time.
func (l *LogStore) deleteOld(ctx context.Context) {
	if len(l.old) > 0 && l.store.DeleteAll(ctx, l.old) == nil {
		l.old = nil
	}
}

// Put implements Store.
func (l *LogStore) Put(ctx context.Context, c Content) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seq == 0 {
		return errors.New("completed checkpoint store: not taken over")
	}
	if l.err != nil {
		return l.err
	}
	err := l.append(ctx, logRecord{epoch: l.epoch, owner: l.owner, Content: c})
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrInDoubt) {
		l.err = err
	}
	if err == nil {
		if len(l.old) >= deleteAtOnce {
			l.deleteOld(ctx)
		}
		l.old = append(l.old, l.name(l.seq)) // once there is a newer one
	}
	return err
}

// append creates the next record and finds out whether it is there.
func (l *LogStore) append(ctx context.Context, rec logRecord) error {
	name, data := l.name(l.seq+1), encodeLog(&rec)
	wait := l.opts.Backoff
	var failed error
	begun := false
	for attempt := range l.opts.Attempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return l.doubt(begun, name, ctx.Err())
			case <-time.After(wait):
				wait *= 2
			}
		}
		var tried bool
		tried, failed = l.create(ctx, name, data)
		begun = begun || tried
		if failed == nil {
			l.seq++
			return nil
		}
		// Whatever the error is: if there is a record, it tells whose it is.
		there, err := blobstore.ReadAll(ctx, l.store, name, maxLogRecord)
		switch {
		case err == nil && bytes.Equal(there, data):
			l.seq++
			return nil
		case err == nil:
			return fmt.Errorf("completed checkpoint store: %s: %w", name, ErrFenced)
		case errors.Is(err, blobstore.ErrNotExist) && !begun:
			return fmt.Errorf("completed checkpoint store: %w", failed)
		}
	}
	return l.doubt(begun, name, failed)
}

func (l *LogStore) doubt(begun bool, name string, err error) error {
	if !begun {
		return fmt.Errorf("completed checkpoint store: %w", err)
	}
	return fmt.Errorf("completed checkpoint store: %s: %w: %w", name, ErrInDoubt, err)
}

// create tries to create an object. tried says that it may be there, or come to be
// there, although there was an error.
func (l *LogStore) create(ctx context.Context, name string, data []byte) (tried bool, err error) {
	w, err := l.store.Create(ctx, name, &blobstore.WriteOptions{IfAbsent: true, SizeHint: int64(len(data))})
	if err != nil {
		return false, err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return false, err
	}
	return true, w.Commit()
}

func encodeLog(r *logRecord) []byte {
	var b bytes.Buffer
	kind := "content"
	if r.takeover {
		kind = "takeover"
	}
	fmt.Fprintf(&b, "%s\nepoch %d %s %s\nnext %d first %d\n", logMagic, r.epoch, kind, r.owner, r.NextID, r.FirstID)
	if r.Stopped != "" {
		fmt.Fprintf(&b, "stopped %q\n", r.Stopped)
	}
	if r.Result.Ended() {
		clean := "dirty"
		if r.Result.Clean {
			clean = "clean"
		}
		fmt.Fprintf(&b, "result %s %s %q\n", r.Result.Status, clean, r.Result.Error)
	}
	for i := range r.Retained {
		c := &r.Retained[i]
		what := "-"
		if c.Savepoint {
			what = "savepoint"
		}
		fmt.Fprintf(&b, "checkpoint %d %s %s %q\n", c.ID, c.Mode, what, c.Path)
	}
	fmt.Fprintf(&b, "end %d %08x\n", len(r.Retained), crc32.Checksum(b.Bytes(), crc32.MakeTable(crc32.Castagnoli)))
	return b.Bytes()
}

func decodeLog(name string, data []byte) (rec logRecord, err error) {
	offset := 0
	bad := func(field, format string, args ...any) (logRecord, error) {
		return logRecord{}, &damage.Error{Name: name, Offset: int64(offset), Field: field, Detail: fmt.Sprintf(format, args...), Err: damage.ErrCorrupt}
	}
	i := bytes.LastIndex(data, []byte("\nend "))
	if i < 0 || data[len(data)-1] != '\n' {
		return bad("end", "the record is cut off")
	}
	offset = i + 1
	var n int
	var sum uint32
	if k, err := fmt.Sscanf(string(data[offset:]), "end %d %x\n", &n, &sum); err != nil || k != 2 {
		return bad("end", "the last line is damaged")
	}
	if got := crc32.Checksum(data[:offset], crc32.MakeTable(crc32.Castagnoli)); got != sum {
		return bad("end", "checksum is %08x, the record has %08x", sum, got)
	}
	body := string(data[:offset])
	offset = 0
	next := func() []string {
		line, rest, _ := strings.Cut(body, "\n")
		offset += len(line) + 1
		body = rest
		return strings.SplitN(line, " ", 5)
	}
	if line := strings.Join(next(), " "); line != logMagic {
		return bad("magic", "%.60q is not %q", line, logMagic)
	}
	f := next()
	if len(f) != 4 || f[0] != "epoch" {
		return bad("epoch", "the line is damaged")
	}
	if rec.epoch, err = strconv.ParseInt(f[1], 10, 64); err != nil || rec.epoch < 0 {
		return bad("epoch", "%.30q is no epoch", f[1])
	}
	rec.takeover, rec.owner = f[2] == "takeover", f[3]
	f = next()
	if len(f) != 4 || f[0] != "next" || f[2] != "first" {
		return bad("next", "the line is damaged")
	}
	if rec.FirstID, err = strconv.ParseInt(f[3], 10, 64); err != nil || rec.FirstID < 0 {
		return bad("first", "%.30q is no checkpoint ID", f[3])
	}
	if rec.NextID, err = strconv.ParseInt(f[1], 10, 64); err != nil || rec.NextID < 0 {
		return bad("next", "%.30q is no checkpoint ID", f[1])
	}
	if strings.HasPrefix(body, "stopped ") {
		if rec.Stopped, err = strconv.Unquote(strings.Join(next()[1:], " ")); err != nil || rec.Stopped == "" {
			return bad("stopped", "the path is damaged")
		}
	}
	if strings.HasPrefix(body, "result ") {
		f = strings.SplitN(strings.Join(next(), " "), " ", 4)
		if len(f) != 4 || f[2] != "clean" && f[2] != "dirty" {
			return bad("result", "the line is damaged")
		}
		status := slices.Index(jobStatuses[:], f[1])
		if status <= int(JobSuspended) {
			return bad("result", "%.30q is no end of a job", f[1])
		}
		rec.Result = JobResult{Status: JobStatus(status), Clean: f[2] == "clean"}
		if rec.Result.Error, err = strconv.Unquote(f[3]); err != nil {
			return bad("result", "the error is damaged")
		}
	}
	for body != "" {
		f = next()
		field := fmt.Sprintf("checkpoint[%d]", len(rec.Retained))
		if len(f) != 5 || f[0] != "checkpoint" {
			return bad(field, "the line is damaged")
		}
		c := Completed{Savepoint: f[3] == "savepoint"}
		if c.ID, err = strconv.ParseInt(f[1], 10, 64); err != nil || c.ID < 0 {
			return bad(field, "%.30q is no checkpoint ID", f[1])
		}
		mode := slices.Index(ownerships[:], f[2])
		if mode < 0 {
			return bad(field, "%.30q is no ownership", f[2])
		}
		c.Mode = Ownership(mode)
		if c.Path, err = strconv.Unquote(f[4]); err != nil {
			return bad(field, "the path is damaged")
		}
		if k := len(rec.Retained); k > 0 && rec.Retained[k-1].ID >= c.ID {
			return bad(field, "checkpoint %d after %d", c.ID, rec.Retained[k-1].ID)
		}
		rec.Retained = append(rec.Retained, c)
	}
	if n != len(rec.Retained) {
		return bad("end", "%d checkpoints are announced, %d are there", n, len(rec.Retained))
	}
	return rec, nil
}
