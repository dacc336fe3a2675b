package operatorstate

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// Opener opens the streams of handles; a *snapshot.Snapshot is one.
type Opener interface {
	OpenStream(ctx context.Context, h metadata.StreamHandle, physical bool) (src sst.Source, name string, err error)
}

// Open makes the Backend of a subtask from the parts that Redistribute gave it. It
// reads all of them; what they are is known when the states are registered. Errors
// are damage with the file's name, or of the store.
func Open(ctx context.Context, src Opener, parts []Part) (*Backend, error) {
	b := New()
	for i := range parts {
		if err := b.read(ctx, src, &parts[i]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// restored is the content of a state, as bytes.
type restored struct {
	meta   serializer.StateMeta
	data   []byte
	ends   []int    // of each partition in data
	counts []int    // of a broadcast partition's entries
	places []string // of the partitions of one file: its name
	files  []int    // the first partition of each
}

func (r *restored) part(i int) []byte {
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.data[from:r.ends[i]:r.ends[i]]
}

// file is the name of the file that partition i came from.
func (r *restored) file(i int) string {
	k := len(r.files) - 1
	for k > 0 && r.files[k] > i {
		k--
	}
	return r.places[k]
}

func (r *restored) failed(i int, err error) error {
	return fmt.Errorf("%s: state %s: partition %d: %w", r.file(i), r.meta.Name, i, err)
}

// compare refuses a registration as another kind of state.
func (r *restored) compare(m *serializer.StateMeta) error {
	if r.meta.Kind == m.Kind && r.meta.Mode() == m.Mode() {
		return nil
	}
	return fmt.Errorf("state %s: restored as %s, registered as %s: %w", m.Name, describe(&r.meta), describe(m), ErrIncompatible)
}

func (r *restored) refuse(c serializer.Compatibility) error {
	return fmt.Errorf("state %s: %s: %w", r.meta.Name, c, ErrIncompatible)
}

// refused says that a comparison of serializers leaves no way to read the old one's values.
func refused(convert serializer.Convert, c serializer.Compatibility) bool {
	return convert == nil && c.Verdict != serializer.AsIs
}

// parts, write and release make restored state that nobody registered part of a
// snapshot. It does not change, so it needs no freezing.
func (r *restored) parts() int {
	if r.meta.Kind != serializer.Broadcast {
		return len(r.ends)
	}
	if len(r.counts) == 0 {
		return 0
	}
	return r.counts[0] // of several copies one is written
}

func (r *restored) release() {}

func (r *restored) write(ctx context.Context, w *stream.OperatorWriter) error {
	if r.meta.Kind != serializer.Broadcast {
		for i := range r.ends {
			if err := w.Element(r.part(i)); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	for k := range r.parts() { // the entries are not taken apart: the first has all bytes
		var all []byte
		if k == 0 {
			all = r.part(0)
		}
		if err := w.Pair(all, nil); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// read adds what a part has.
func (b *Backend) read(ctx context.Context, opener Opener, p *Part) error {
	if p.Handle.Empty || len(p.States) == 0 {
		return nil
	}
	src, name, err := opener.OpenStream(ctx, p.Handle.Delegate, false)
	if err != nil || src == nil || src.Size() == 0 {
		return err
	}
	all, limit := []int64(nil), src.Size()
	for i := range p.Handle.States {
		for _, o := range p.Handle.States[i].Offsets {
			all = append(all, o)
			if o > 0 {
				limit = min(limit, o)
			}
		}
	}
	head, err := readRange(ctx, src, 0, limit)
	if err != nil {
		return named(name, err)
	}
	meta, err := serializer.ReadOperatorBackendMeta(javaio.NewReader(head))
	if err != nil {
		return named(name, err)
	}
	metas := map[string]*serializer.StateMeta{}
	for _, list := range [][]serializer.StateMeta{meta.Lists, meta.Broadcasts} {
		for i := range list {
			metas[list[i].Name] = &list[i]
		}
	}
	f, err := load(ctx, src, name, meta.Compressed, all, p.States)
	if err != nil {
		return err
	}
	for i := range p.States {
		st := &p.States[i]
		m := metas[st.Name.Go()]
		switch {
		case m == nil && len(meta.Unknown) > 0:
			return named(name, fmt.Errorf("state %s: %w", st.Name, &meta.Unknown[0]))
		case m == nil:
			return &damage.Error{Name: name, Field: "state " + st.Name.Go(), Detail: "is not in the meta block", Offset: -1, Err: damage.ErrCorrupt}
		}
		if want := modeName(st.Mode); m.Value() == nil || m.Mode() != want || (m.Kind == serializer.Broadcast) != (st.Mode == metadata.ModeBroadcast) ||
			m.Kind == serializer.Broadcast && m.Key() == nil || m.Kind != serializer.Broadcast && m.Kind != serializer.OperatorList {
			return &damage.Error{Name: name, Field: "state " + m.Name, Detail: "is a " + m.Kind.String() + " of mode " + strconv.Quote(m.Mode()) + ", the handle says " + want, Offset: -1, Err: damage.ErrCorrupt}
		}
		r, err := b.restoredState(name, m)
		if err != nil {
			return err
		}
		r.files, r.places = append(r.files, len(r.ends)), append(r.places, name)
		for _, o := range st.Offsets {
			if err := r.add(f, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// modeName is a mode as meta blocks have it.
func modeName(m metadata.DistributionMode) string {
	switch m {
	case metadata.ModeSplit:
		return "SPLIT_DISTRIBUTE"
	case metadata.ModeUnion:
		return "UNION"
	case metadata.ModeBroadcast:
		return "BROADCAST"
	}
	return "mode " + strconv.Itoa(int(m))
}

// add takes the partition at an offset.
func (r *restored) add(f *file, offset int64) error {
	b, err := f.partition(offset)
	if err != nil {
		return err
	}
	if r.meta.Kind == serializer.Broadcast {
		bad := func(detail string) error {
			return &damage.Error{Name: f.name, Offset: offset, Field: "state " + r.meta.Name, Detail: detail, Err: damage.ErrCorrupt}
		}
		if len(b) < 4 {
			return bad("ends inside the number of its entries")
		}
		n := int32(binary.BigEndian.Uint32(b))
		b = b[4:]
		// An entry of a state without bytes has none, but there is one such key only.
		if n < 0 || int64(n) > int64(len(b)) && n > 1 {
			return bad("has " + strconv.Itoa(int(n)) + " entries in " + strconv.Itoa(len(b)) + " bytes")
		}
		r.counts = append(r.counts, int(n))
	}
	r.data = append(r.data, b...)
	r.ends = append(r.ends, len(r.data))
	return nil
}

// restoredState is the state of that name, a new one if it is the first part of it.
func (b *Backend) restoredState(file string, m *serializer.StateMeta) (*restored, error) {
	for _, r := range b.restored {
		if r.meta.Name != m.Name {
			continue
		}
		if !sameTypes(&r.meta, m) {
			return nil, fmt.Errorf("%s: state %s is %s, and %s in %s: %w", file, m.Name, describe(m), describe(&r.meta), r.places[0], ErrIncompatible)
		}
		return r, nil
	}
	r := &restored{meta: *m}
	b.restored = append(b.restored, r)
	return r, nil
}

// named puts the file's name into damage.
func named(file string, err error) error {
	if e, ok := err.(*damage.Error); ok && e.Name == "" {
		e.Name = file
		return e
	}
	return fmt.Errorf("%s: %w", file, err)
}
