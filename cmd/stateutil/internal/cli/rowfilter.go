package cli

import (
	"container/heap"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/table"
)

// rowFlags choose rows: the flags that read and timers share.
type rowFlags struct {
	key       string
	namespace string
	where     string
	sample    string
	seed      uint64

	filter *table.Filter
	share  float64 // of keys, if sample is one; else 0
	count  int     // of rows, if sample is one
}

func (f *rowFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.key, "key", "", "only this key, as `JSON` the way rows show it; only its blocks are read")
	flags.StringVar(&f.namespace, "namespace", "", "only this namespace, as `JSON` the way rows show it; null is none")
	flags.StringVar(&f.where, "where", "", "only rows for which the `CONDITION` is true: value.price > 3 and key != 'x'")
	flags.StringVar(&f.sample, "sample", "", "only a `SHARE` of the keys, 0.01 or 1%, with all of their rows; or so many rows, 1000")
	flags.Uint64Var(&f.seed, "seed", 0, "choose another sample, by any `NUMBER`; the same gives the same sample")
}

func (f *rowFlags) complete(cmd *cobra.Command) {
	for _, flag := range []string{"key", "namespace", "where", "sample", "seed"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
}

// mostSampled bounds the hashes that a sample of rows keeps.
const mostSampled = 1_000_000

// parse checks the flags.
func (f *rowFlags) parse() error {
	if f.where != "" {
		var err error
		if f.filter, err = table.ParseFilter(f.where); err != nil {
			return usage("--where: %w", err)
		}
	}
	if f.sample == "" {
		return nil
	}
	s, percent := strings.CutSuffix(f.sample, "%")
	if n, err := strconv.Atoi(s); err == nil && !percent {
		if n < 1 || n > mostSampled {
			return usage("--sample is %s rows: 1 to %d, or a share such as 1%%", f.sample, mostSampled)
		}
		f.count = n
		return nil
	}
	x, err := strconv.ParseFloat(s, 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x > 0 && x <= 1) {
		return usage("--sample is %q: a share such as 0.01 or 1%%, or a number of rows", f.sample)
	}
	f.share = x
	return nil
}

// rowChooser chooses rows by the flags. It is shared; match gives each goroutine
// its own.
type rowChooser struct {
	namespace string
	filter    *table.Filter
	share     uint64 // a key's hash is below; 0 takes all
	most      uint64 // a row's hash is at most; 0 takes all
	seed      uint64
}

// chooser prepares the choice of rows; it checks the condition against the states
// that are to be read, and finds out which rows a sample of so many has.
func (f *rowFlags) chooser(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions) (*rowChooser, error) {
	c := &rowChooser{namespace: compactJSON(f.namespace), filter: f.filter, seed: f.seed}
	if f.key != "" {
		opts.KeyJSON = compactJSON(f.key)
	}
	if f.share > 0 && f.share < 1 {
		c.share = uint64(f.share * math.MaxUint64)
	}
	quiet := *opts
	if quiet.OnProblem != nil {
		quiet.OnProblem = func(*snapshot.ScanProblem) {}
	}
	if f.filter != nil {
		if err := checkFilter(ctx, s, &quiet, f.filter); err != nil {
			return nil, err
		}
	}
	if f.count > 0 {
		most, err := c.leastHashes(ctx, s, &quiet, f.count)
		if err != nil {
			return nil, err
		}
		c.most = most
	}
	return c, nil
}

// checkFilter holds that a condition fits the states: each has its fields with
// types that compare with its literals, or lacks a field, but not all of them.
func checkFilter(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, f *table.Filter) error {
	states, err := snapshot.States(ctx, s, opts)
	if err != nil {
		return err
	}
	var missing error
	found := false
	for _, st := range states {
		if opts.State != nil && !opts.State(st) {
			continue
		}
		switch _, err := f.Bind(table.Of(st)); {
		case err == nil:
			found = true
		case !errors.Is(err, table.ErrNoField):
			return usage("--where: state %s: %w", st.Name, err)
		case missing == nil:
			missing = usage("--where: state %s: %w", st.Name, err)
		}
	}
	if found {
		return nil
	}
	return missing
}

// choosing reports whether match may refuse a row.
func (c *rowChooser) choosing() bool {
	return c.namespace != "" || c.filter != nil || c.share > 0 || c.most > 0
}

// match gives a goroutine its function.
func (c *rowChooser) match() func(*snapshot.StateRow) bool {
	if !c.choosing() {
		return func(*snapshot.StateRow) bool { return true }
	}
	m := &rowMatch{rowChooser: c, hash: xxhash.NewWithSeed(c.seed)}
	if c.filter != nil {
		m.bound = map[*snapshot.State]*table.Bound{}
	}
	return m.row
}

type rowMatch struct {
	*rowChooser
	hash  *xxhash.Digest
	bound map[*snapshot.State]*table.Bound
	buf   []byte
}

func (m *rowMatch) row(r *snapshot.StateRow) bool {
	if m.share > 0 && m.keyHash(r) >= m.share {
		return false
	}
	if m.namespace != "" {
		if !r.State.Kind.Keyed() {
			return false
		}
		if m.buf, _ = r.AppendNamespaceJSON(m.buf[:0]); string(m.buf) != m.namespace {
			return false
		}
	}
	if m.filter != nil {
		b, ok := m.bound[r.State]
		if !ok {
			b, _ = m.filter.Bind(table.Of(r.State)) // nil: a state without the field
			m.bound[r.State] = b
		}
		if b == nil || !b.Match(r) {
			return false
		}
	}
	return m.most == 0 || m.rowHash(r) <= m.most
}

// keyHash is the same for all rows of a key, in whatever state. What has no key is
// told apart by its state, subtask and map key.
func (m *rowMatch) keyHash(r *snapshot.StateRow) uint64 {
	m.hash.ResetWithSeed(m.seed)
	if r.State.Kind.Keyed() {
		m.hash.Write(r.Key)
		return m.hash.Sum64()
	}
	m.place(r)
	return m.hash.Sum64()
}

// rowHash is a row's own.
func (m *rowMatch) rowHash(r *snapshot.StateRow) uint64 {
	m.hash.ResetWithSeed(m.seed)
	m.place(r)
	return m.hash.Sum64()
}

func (m *rowMatch) place(r *snapshot.StateRow) {
	m.hash.WriteString(r.State.Operator.ID)
	m.part([]byte(r.State.Name))
	m.part(r.Key)
	m.part(r.Namespace)
	m.part(r.UserKey)
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], uint64(r.Timestamp))
	if !r.State.Kind.Keyed() {
		binary.LittleEndian.PutUint32(b[8:], uint32(r.Subtask))
	}
	binary.LittleEndian.PutUint32(b[12:], uint32(r.KeyGroup))
	m.hash.Write(b[:])
}

func (m *rowMatch) part(p []byte) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(len(p)))
	m.hash.Write(b[:])
	m.hash.Write(p)
}

// leastHashes is the n-th least hash of all rows that are chosen, by a scan of its
// own.
func (c *rowChooser) leastHashes(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, n int) (uint64, error) {
	var mu sync.Mutex
	var heaps []*hashHeap
	err := snapshot.Scan(ctx, s, opts, func(int) func(*snapshot.StateRow) error {
		m := &rowMatch{rowChooser: c, hash: xxhash.New(), bound: map[*snapshot.State]*table.Bound{}}
		h := &hashHeap{}
		mu.Lock()
		heaps = append(heaps, h)
		mu.Unlock()
		return func(r *snapshot.StateRow) error {
			if !m.row(r) {
				return nil
			}
			x := m.rowHash(r)
			if len(*h) < n {
				heap.Push(h, x)
			} else if x < (*h)[0] {
				(*h)[0] = x
				heap.Fix(h, 0)
			}
			return nil
		}
	})
	if err != nil {
		return 0, err
	}
	var all []uint64
	for _, h := range heaps {
		all = append(all, *h...)
	}
	slices.Sort(all)
	if len(all) <= n {
		return math.MaxUint64, nil
	}
	return max(all[n-1], 1), nil
}

// hashHeap has the greatest first.
type hashHeap []uint64

func (h hashHeap) Len() int           { return len(h) }
func (h hashHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h hashHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *hashHeap) Push(x any)        { *h = append(*h, x.(uint64)) }
func (h *hashHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// compactJSON brings a key to the form in which rows have it; what is no JSON is
// taken as a string.
func compactJSON(s string) string {
	if s == "" {
		return ""
	}
	if b, ok := compact(s); ok {
		return b
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	must(e.Encode(s)) // a string always can
	return strings.TrimSuffix(b.String(), "\n")
}
