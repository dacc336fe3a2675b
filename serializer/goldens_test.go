package serializer_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// TestStateFiles reads the meta block of every keyed and operator state file of
// the goldens and of Flink's own test snapshots to its last byte, and every value
// of those in canonical and heap native form.
func TestStateFiles(t *testing.T) {
	var dirs []string
	goldens := testdata.AllGoldens(t)
	for _, c := range goldens {
		dirs = append(dirs, c.Dir)
	}
	shared := testdata.Corpus(t)
	dirs = append(dirs, filepath.Join(shared, "jobs"), filepath.Join(shared, "sql"))
	r := &stateReader{t: t, opaque: map[string]int{}}
	records, failures := 0, 0
	types := map[string]int{}
	for _, path := range testdata.MetadataFiles(t, dirs...) {
		c := readMetadata(t, path)
		p := place{dir: filepath.Dir(path)}
		r.kryo = serializer.KryoOf(c.Version)
		for _, g := range goldens {
			if rel, err := filepath.Rel(g.Dir, path); err == nil && !filepath.IsAbs(rel) && rel[0] != '.' {
				p.from, p.to = g.WrittenUnder, g.Dir
			}
		}
		fail := func(err error) {
			var o *serializer.OpaqueError
			if errors.As(err, &o) { // the rest of a key group in a heap native file
				r.opaque[o.Class]++
				return
			}
			if failures++; failures < 40 {
				t.Errorf("%s: %v", path, err)
			}
		}
		for i := range c.Operators {
			op := &c.Operators[i]
			for _, s := range op.Subtasks {
				err := r.keyed(p, op, s.ManagedKeyed, func(rec record) {
					records++
					types[rec.state.Value().String()]++
				})
				if err != nil {
					fail(err)
				}
				if s.ManagedOperator != nil && s.ManagedOperator.Delegate != nil {
					if _, empty := s.ManagedOperator.Delegate.(*metadata.EmptySegmentHandle); empty {
						continue
					}
					b, err := p.open(s.ManagedOperator.Delegate)
					if err != nil {
						fail(err)
						continue
					}
					m, err := serializer.ReadOperatorBackendMeta(javaio.NewReader(b))
					if err != nil {
						fail(err)
						continue
					}
					r.blocks++
					r.note(m.Unknown)
				}
			}
		}
	}
	t.Logf("%d meta blocks, %d records of %d types", r.blocks, records, len(types))
	for class, n := range r.opaque {
		t.Logf("unknown: %4d of %s", n, class)
	}
	if testing.Verbose() {
		for s, n := range types {
			t.Logf("%6d %.300s", n, s)
		}
	}
}
