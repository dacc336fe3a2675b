package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// Apply writes the files of state, then _metadata, then verifies the result. A run
// that is interrupted, or fails, leaves files and no _metadata; the same conversion
// planned and applied again goes on with the files that are not done. With TTL it has to be
// of the same Now. Damage that the verification finds is not an error.
//
// Memory is bounded by the largest entry for each worker, and a few megabytes; a
// whole map is no entry but in memory of the heap that restores it. Only the changes
// of a changelog that are not materialized are held as a whole, a subtask at a time for each worker.
func (p *ConvertPlan) Apply(ctx context.Context) (*Converted, error) {
	defer p.sc.dbs.close()
	if !p.Done {
		if err := p.write(ctx); err != nil {
			return nil, err
		}
	} else if present, err := objectsIn(ctx, p.src.pool, p.to); err != nil {
		return nil, err
	} else {
		p.clean(ctx, present) // for a run that ended between writing _metadata and this
	}
	o := &VerifyOptions{}
	if !p.opts.NoVerifyData {
		o.Data = &DataOptions{Workers: p.opts.Workers, UID: p.opts.UID, Classes: p.opts.Classes, NoOthers: true}
	}
	var err error
	p.made.Verification, err = verifyAndSum(ctx, p.src.pool, p.to, o, p.opts.Checksums)
	return &p.made, err
}

func (p *ConvertPlan) write(ctx context.Context) error {
	var err error
	if p.w, err = NewWriter(ctx, p.src.pool, SavepointIn(p.to), &WriterOptions{MemoryThreshold: p.opts.MemoryThreshold}); err != nil {
		return err
	}
	present, err := objectsIn(ctx, p.src.pool, p.to)
	if err != nil {
		return err
	}
	p.progress = ConvertProgress{OfFiles: len(p.Files), OfBytes: p.Bytes}
	// Workers that are more than files work on parts of a file.
	files := max(1, min(p.opts.Workers, len(p.Files)))
	parts := (p.opts.Workers + files - 1) / files
	if err := parallel(ctx, files, len(p.Files), func(ctx context.Context, i int) error {
		f := &p.Files[i]
		if err := f.at(p.file(ctx, f, present, parts)); err != nil {
			return err
		}
		p.tell(0, 1)
		return nil
	}); err != nil {
		return err
	}
	c, err := p.assemble()
	if err != nil {
		return err
	}
	if err := p.w.Commit(ctx, c); err != nil {
		return err
	}
	p.Done = true
	for i := range p.Files {
		f := &p.Files[i]
		p.made.Entries += f.count.Entries
		p.made.Expired += f.count.Expired
		if h, ok := f.made.(*metadata.RelativeFileHandle); ok {
			p.made.Files++
			p.made.Bytes += h.Size
		}
	}
	size, err := metadata.EncodedSize(c)
	p.made.Bytes += size
	if err == nil {
		p.clean(ctx, present)
	}
	return err
}

func (p *ConvertPlan) tell(bytes int64, files int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress.Bytes += bytes
	p.progress.Files += files
	if p.opts.Progress != nil {
		p.opts.Progress(p.progress)
	}
}

// assemble makes the metadata of what was written.
func (p *ConvertPlan) assemble() (*metadata.Checkpoint, error) {
	c, err := p.shell.MapStreams(func(_ metadata.KeyedHandle, h metadata.StreamHandle) (metadata.StreamHandle, error) {
		if key, ok := p.copyKey(h); ok {
			return p.Files[p.copies[key]].made, nil
		}
		return h, nil
	})
	if err != nil {
		return nil, err
	}
	for i := range p.Files {
		f := &p.Files[i]
		if f.keyed == nil || f.made == nil {
			continue
		}
		h := &metadata.KeyGroupsHandle{Form: metadata.TagSavepointKeyGroups, Range: f.keyed.KeyGroups(), Offsets: f.offsets, Delegate: f.made}
		if p.opts.Format == stream.HeapFormat {
			if h.Form = metadata.TagKeyGroups; p.Version >= 4 {
				h.Form, h.ID = metadata.TagKeyGroupsWithID, javaio.NewString(uuid.NewSHA1(convertNames, []byte(f.name)).String())
			}
		}
		c.Operators[f.op].Subtasks[f.sub].ManagedKeyed = h
	}
	return c, nil
}

// convertRecord is an object beside a large file that is done: what its handle needs.
// It goes when _metadata is written.
type convertRecord struct {
	Size    int64        `json:"size"`
	Offsets []int64      `json:"offsets"`
	Count   convertCount `json:"count"`
}

const recordSuffix = ".done"

// file makes one file, or takes the one that is there.
func (p *ConvertPlan) file(ctx context.Context, f *ConvertFile, present map[string]int64, parts int) error {
	size, there := present[f.name]
	if there && f.keyed == nil && f.Bytes >= 0 && size == f.Bytes {
		return p.resume(f, size)
	}
	if _, recorded := present[f.name+recordSuffix]; there && recorded && f.keyed != nil {
		r, err := p.readRecord(ctx, f)
		if err != nil {
			return err
		}
		if r != nil && r.Size == size && len(r.Offsets) == int(f.keyed.KeyGroups().Count) {
			f.offsets, f.count = r.Offsets, r.Count
			return p.resume(f, size)
		}
	}
	out := p.w.named(ctx, ScopeExclusive, f.name)
	defer out.Abort()
	if f.Role == RoleInputChannel || f.Role == RoleOutputChannel {
		out.inline = 0 // their sizes are counted in another way when inlined
	}
	told := &counted{w: out, tell: func(n int64) { p.tell(n, 0) }}
	var err error
	if f.keyed == nil {
		err = p.copyStream(ctx, told, f.copied)
	} else {
		err = p.keyedState(ctx, told, f, parts)
	}
	if err != nil {
		return err
	}
	if f.made, err = out.Close(); err != nil {
		return err
	}
	if _, file := f.made.(*metadata.RelativeFileHandle); file && f.keyed != nil && out.Size() >= p.sizes.record {
		return p.writeRecord(ctx, f, out.Size())
	}
	return nil
}

func (p *ConvertPlan) resume(f *ConvertFile, size int64) error {
	f.made = &metadata.RelativeFileHandle{Path: javaio.NewString(f.name), Size: size}
	p.mu.Lock()
	p.made.Resumed++
	p.mu.Unlock()
	p.tell(size, 0)
	return nil
}

func (p *ConvertPlan) writeRecord(ctx context.Context, f *ConvertFile, size int64) error {
	b, err := json.Marshal(convertRecord{size, f.offsets, f.count})
	if err != nil {
		return err
	}
	store, name, err := p.src.pool.Resolve(ctx, p.to.Join(f.name+recordSuffix))
	if err != nil {
		return err
	}
	w, err := store.Create(ctx, name, nil)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Commit()
}

// readRecord reads the record of a file; nil if it is of no use.
func (p *ConvertPlan) readRecord(ctx context.Context, f *ConvertFile) (*convertRecord, error) {
	store, name, err := p.src.pool.Resolve(ctx, p.to.Join(f.name+recordSuffix))
	if err != nil {
		return nil, err
	}
	r, err := store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 4<<20))
	if err != nil {
		return nil, err
	}
	var rec convertRecord
	if json.Unmarshal(b, &rec) != nil {
		return nil, nil
	}
	return &rec, nil
}

// clean removes what runs of conversions have left in the folder, before and, if it
// wrote, this one. No other can complete there any more.
func (p *ConvertPlan) clean(ctx context.Context, before map[string]int64) {
	keep := map[string]bool{}
	var gone []blobstore.Location
	for i := range p.Files {
		f := &p.Files[i]
		if _, ok := f.made.(*metadata.RelativeFileHandle); ok {
			keep[f.name] = true
		}
		if h, ok := f.made.(*metadata.RelativeFileHandle); ok && p.w != nil && f.keyed != nil && h.Size >= p.sizes.record {
			gone = append(gone, p.to.Join(f.name+recordSuffix))
			keep[f.name+recordSuffix] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if p.ours(name) && !keep[name] {
			gone = append(gone, p.to.Join(name))
		}
	}
	if err := deleteFiles(ctx, p.src.pool, gone); err != nil {
		p.made.Left = len(gone)
	}
}

// copyStream copies the bytes of a handle.
func (p *ConvertPlan) copyStream(ctx context.Context, w io.Writer, h metadata.StreamHandle) error {
	t := p.src.Resolve(h)
	switch t.Kind {
	case TargetRefused:
		return fmt.Errorf("%s: %w", t.Written, t.Refused)
	case TargetInline:
		_, err := w.Write(t.Data)
		return err
	case TargetEmpty:
		return nil
	}
	store, name, err := p.src.pool.Resolve(ctx, t.Location)
	if err != nil {
		return err
	}
	var r blobstore.Reader
	if t.Kind == TargetSegment {
		r, err = store.OpenRange(ctx, name, t.Start, t.Length)
	} else {
		r, err = store.Open(ctx, name)
	}
	if err != nil {
		return missing(t.Location, err)
	}
	defer r.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	if err == nil && t.Length >= 0 && n != t.Length {
		err = &damage.Error{Name: t.Location.String(), Offset: -1, Field: "file", Detail: fmt.Sprintf("has %d of its %d bytes", n, t.Length), Err: damage.ErrCorrupt}
	}
	return err
}

// keyedState converts the keyed state of a subtask, or copies it if it has the format.
func (p *ConvertPlan) keyedState(ctx context.Context, w io.Writer, f *ConvertFile, workers int) error {
	in, err := p.sc.openInput(ctx, p.job(f), f.keyed, false)
	if err != nil {
		return err
	}
	defer in.close(p.sc)
	if in.out.meta.Key == nil {
		return nil // nothing at all
	}
	compress := p.opts.Compression == CompressionSnappy || p.opts.Compression == CompressionKeep && in.compressed()
	limits, expire := p.limits(in)
	if in.same(p.opts.Format) && compress == in.compressed() && !expire {
		f.offsets = in.sources[0].offsets
		return p.copyStream(ctx, w, in.sources[0].whole)
	}
	if err := in.obstacle(p.opts.Format); err != nil {
		return err
	}
	o := stream.KeyedWriterOptions{Format: p.opts.Format, Key: in.out.meta.Key, States: in.out.meta.States, MaxParallelism: int(in.out.op.MaxParallelism), Compress: compress}
	meta := serializer.KeyedBackendMeta{Compressed: compress, Key: o.Key, States: o.States}
	head, err := meta.Append(nil)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	f.offsets = make([]int64, in.groups.Count)
	chunks := in.chunks(p.sizes.chunk)
	turns := newTurns(w, int64(len(head)), len(chunks), p.sizes.ahead)
	return parallel(ctx, workers, len(chunks), func(ctx context.Context, i int) error {
		part := turns.writer(ctx, i)
		count, offsets, err := p.chunk(ctx, part, in, chunks[i], o, limits, expire)
		if err == nil {
			err = part.end()
		}
		if err != nil {
			return err
		}
		for k, at := range offsets {
			if at != 0 {
				f.offsets[chunks[i].Start-in.groups.Start+int32(k)] = at - 1 + part.from
			}
		}
		p.mu.Lock()
		f.count.add(count)
		p.mu.Unlock()
		return nil
	})
}

// limits are the times of last access, by state, at or before which a value is
// expired; false if nothing expires.
func (p *ConvertPlan) limits(in *keyedInput) ([]int64, bool) {
	limits, some := make([]int64, len(in.out.states)), false
	for i := range limits {
		limits[i] = math.MinInt64
		if ks := &in.out.states[i]; p.opts.TTL != nil && ks.meta.TTL() {
			if ttl := p.opts.TTL(ks.state); ttl > 0 {
				if now := p.opts.Now.UnixMilli(); now >= math.MinInt64+ttl.Milliseconds() {
					limits[i] = now - ttl.Milliseconds()
				}
				some = true
			}
		}
	}
	return limits, some
}

// chunk converts some key groups. Offsets count from 1.
func (p *ConvertPlan) chunk(ctx context.Context, w io.Writer, in *keyedInput, groups metadata.KeyGroupRange, o stream.KeyedWriterOptions, limits []int64, expire bool) (count convertCount, offsets []int64, err error) {
	o.KeyGroups, o.At = groups, 1
	kw, err := stream.NewKeyedWriter(w, o)
	if err != nil {
		return count, nil, err
	}
	base := stateSink{f: in.out, rs: in.out.readers(), kg: -1}
	var sink entrySink
	var entries func() int64
	if o.Format == stream.HeapFormat {
		h := &heapSink{stateSink: base, w: kw, block: entryBlock{dir: p.opts.TempDir, limit: p.sizes.block}}
		defer func() { err = errors.Join(err, h.block.close()) }()
		sink, entries = h, func() int64 { return h.entries }
	} else {
		c := &canonicalSink{stateSink: base, w: kw}
		sink, entries = c, func() int64 { return c.entries }
	}
	var ttl *ttlSink
	if expire {
		ttl = &ttlSink{sink: sink, stateSink: stateSink{f: in.out, rs: in.out.readers(), kg: -1}, limits: limits}
		sink = ttl
	}
	if err := in.read(ctx, groups, sink); err != nil {
		return count, nil, err
	}
	if offsets, err = kw.Finish(); err != nil {
		return count, nil, err
	}
	if count.Entries = entries(); ttl != nil {
		count.Expired = ttl.expired
	}
	return count, offsets, nil
}
