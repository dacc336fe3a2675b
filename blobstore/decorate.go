package blobstore

import (
	"context"
	"iter"
)

// A decorator implements every optional interface, each by a type assertion on the
// store inside it, and goes through withOptional, which leaves of them only those
// that the inner store has. So a caller's own assertion tells the truth through
// any number of decorators.

// decorator is what each decorator's own type implements.
type decorator interface {
	core
	TemporaryLister
	DirectoryRemover
}

// core is a decorator without its optional interfaces.
type core interface {
	Store
	Subber
}

func withOptional(d decorator, inner Store) Store {
	_, temp := inner.(TemporaryLister)
	_, dirs := inner.(DirectoryRemover)
	switch {
	case temp && dirs:
		return d
	case temp:
		return struct {
			core
			TemporaryLister
		}{d, d}
	case dirs:
		return struct {
			core
			DirectoryRemover
		}{d, d}
	default:
		return struct{ core }{d}
	}
}

// call is one call of a Store's method, as a layer sees it.
type call struct {
	op             string // as in Error.Op
	inner          Store
	name           string   // destination of a copy, prefix of a listing
	names          []string // of DeleteAll
	offset, length int64    // of an open
	write          *WriteOptions
}

// layer is what makes a decorator: it stands around every call.
type layer interface {
	// do runs f, which gives what the method gives: an Info, a Reader, a Writer or
	// nil. It may put its own Reader or Writer around that.
	do(ctx context.Context, c call, f func(context.Context) (any, error)) (any, error)
	// list gives the sequence of run; run begins after the name given to it (""
	// from the start). Where resumable is false it can only be run from the start.
	list(ctx context.Context, c call, resumable bool, run func(ctx context.Context, after string) iter.Seq2[Info, error]) iter.Seq2[Info, error]
}

// layered is a store behind a layer.
type layered struct {
	inner Store
	layer layer
}

func decorate(s Store, l layer) Store { return withOptional(&layered{s, l}, s) }

func do[T any](ctx context.Context, s *layered, c call, f func(context.Context) (T, error)) (T, error) {
	c.inner = s.inner
	v, err := s.layer.do(ctx, c, func(ctx context.Context) (any, error) {
		v, err := f(ctx)
		if err != nil {
			return nil, err
		}
		return v, nil
	})
	if err != nil {
		var zero T
		return zero, err
	}
	return v.(T), nil
}

func doErr(ctx context.Context, s *layered, c call, f func(context.Context) error) error {
	c.inner = s.inner
	_, err := s.layer.do(ctx, c, func(ctx context.Context) (any, error) { return nil, f(ctx) })
	return err
}

func (s *layered) URL() string                { return s.inner.URL() }
func (s *layered) Capabilities() Capabilities { return s.inner.Capabilities() }
func (s *layered) Close() error               { return s.inner.Close() }
func (s *layered) Sub(prefix string) Store    { return decorate(Sub(s.inner, prefix), s.layer) }

func (s *layered) Open(ctx context.Context, name string) (Reader, error) {
	return do(ctx, s, call{op: "open", name: name, length: -1}, func(ctx context.Context) (Reader, error) {
		return s.inner.Open(ctx, name)
	})
}

func (s *layered) OpenRange(ctx context.Context, name string, offset, length int64) (Reader, error) {
	return do(ctx, s, call{op: "open", name: name, offset: offset, length: length}, func(ctx context.Context) (Reader, error) {
		return s.inner.OpenRange(ctx, name, offset, length)
	})
}

func (s *layered) Stat(ctx context.Context, name string) (Info, error) {
	return do(ctx, s, call{op: "stat", name: name}, func(ctx context.Context) (Info, error) {
		return s.inner.Stat(ctx, name)
	})
}

func (s *layered) List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	var o ListOptions
	if opts != nil {
		o = *opts
	}
	return s.layer.list(ctx, call{op: "list", inner: s.inner, name: o.Prefix}, true, func(ctx context.Context, after string) iter.Seq2[Info, error] {
		o := o
		o.StartAfter = max(o.StartAfter, after)
		return s.inner.List(ctx, &o)
	})
}

func (s *layered) Create(ctx context.Context, name string, opts *WriteOptions) (Writer, error) {
	return do(ctx, s, call{op: "create", name: name, write: opts}, func(ctx context.Context) (Writer, error) {
		return s.inner.Create(ctx, name, opts)
	})
}

func (s *layered) Delete(ctx context.Context, name string) error {
	return doErr(ctx, s, call{op: "delete", name: name}, func(ctx context.Context) error {
		return s.inner.Delete(ctx, name)
	})
}

func (s *layered) DeleteAll(ctx context.Context, names []string) error {
	return doErr(ctx, s, call{op: "delete", names: names}, func(ctx context.Context) error {
		return s.inner.DeleteAll(ctx, names)
	})
}

func (s *layered) Copy(ctx context.Context, dst, src string, opts *WriteOptions) error {
	return doErr(ctx, s, call{op: "copy", name: dst, write: opts}, func(ctx context.Context) error {
		return s.inner.Copy(ctx, dst, src, opts)
	})
}

func (s *layered) ListTemporary(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	tl := s.inner.(TemporaryLister)
	return s.layer.list(ctx, call{op: "list", inner: s.inner, name: prefix}, false, func(ctx context.Context, _ string) iter.Seq2[Info, error] {
		return tl.ListTemporary(ctx, prefix)
	})
}

func (s *layered) DeleteTemporary(ctx context.Context, name string) error {
	return doErr(ctx, s, call{op: "delete", name: name}, func(ctx context.Context) error {
		return s.inner.(TemporaryLister).DeleteTemporary(ctx, name)
	})
}

func (s *layered) RemoveEmptyDir(ctx context.Context, name string) error {
	return doErr(ctx, s, call{op: "delete", name: name}, func(ctx context.Context) error {
		return s.inner.(DirectoryRemover).RemoveEmptyDir(ctx, name)
	})
}
