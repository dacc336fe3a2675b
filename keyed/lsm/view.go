package lsm

import (
	"fmt"
	"sync"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
)

// openView is a frozen view: of the entries, and of the rows behind them.
type openView[K comparable] struct {
	b      *Backend[K]
	w      *table.View
	rows   *frozenRows
	stored uint32
	states []state
	once   sync.Once
}

var _ keyed.BytesView = (*openView[string])(nil)

// View implements keyed.Backend. It waits for changes that are being written.
func (b *Backend[K]) View() (keyed.View, error) { return b.view() }

func (b *Backend[K]) hold() (engine.BytesView, error) { return b.view() }

func (b *Backend[K]) view() (*openView[K], error) {
	if err := b.failure(); err != nil {
		return nil, err
	}
	if err := b.wait(); err != nil {
		return nil, err
	}
	rows, err := newFrozenRows(b.db)
	if err != nil {
		return nil, fmt.Errorf("keyed: %w", err)
	}
	v := &openView[K]{b: b, w: b.views.Open(true), rows: rows, stored: b.env.Done, states: b.states[:len(b.states):len(b.states)]}
	b.track(v)
	return v, nil
}

// Native implements keyed.NativeView.
func (v *openView[K]) Native() *table.View { return v.w }

// Rows implements keyed.BytesView.
func (v *openView[K]) Rows() engine.Rows { return v.rows }

// Stored implements keyed.BytesView.
func (v *openView[K]) Stored() uint32 { return v.stored }

func (v *openView[K]) release() {
	v.once.Do(func() {
		for _, s := range v.states {
			if s.st != nil {
				s.st.Release(v.w)
			}
		}
		v.w.Close()
		v.rows.close()
	})
}

// Close implements keyed.View.
func (v *openView[K]) Close() {
	v.release()
	v.b.untrack(v)
}
