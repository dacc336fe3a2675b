package blobstore

import (
	"context"
	"errors"
	"iter"
	"strings"
)

// Subber is implemented by stores that open a place below themselves better than
// by putting a prefix before each name: the local store then follows no symbolic
// link out of that folder.
type Subber interface {
	// Sub is the store below prefix, a valid name. Closing it closes the parent.
	Sub(prefix string) Store
}

// Sub is the store below prefix (a name; "" gives s itself). Closing it closes s.
// What s implements beside Store (TemporaryLister, DirectoryRemover, …) the result
// does too. A prefix that is no valid name gives a store whose methods all fail.
func Sub(s Store, prefix string) Store {
	if prefix == "" {
		return s
	}
	if sb, ok := s.(Subber); ok {
		return sb.Sub(prefix)
	}
	return withOptional(&subStore{inner: s, prefix: prefix + "/", err: checkName(prefix)}, s)
}

type subStore struct {
	inner  Store
	prefix string // ends in "/"
	err    error  // not nil: prefix is no name
}

func (s *subStore) URL() string {
	return joinURL(s.inner.URL(), strings.TrimSuffix(s.prefix, "/"))
}

func (s *subStore) Capabilities() Capabilities { return s.inner.Capabilities() }

func (s *subStore) Sub(prefix string) Store { return Sub(s.inner, s.prefix+prefix) }

// name is the name in the inner store. A bad name below a prefix would become
// another, good one: "" the folder itself, "../x" its neighbour.
func (s *subStore) name(op, name string) (string, error) {
	err := s.err
	if err == nil {
		err = checkName(name)
	}
	if err != nil {
		return "", &Error{Op: op, URL: joinURL(s.URL(), name), Err: err}
	}
	return s.prefix + name, nil
}

func (s *subStore) info(i Info) Info {
	i.Name = strings.TrimPrefix(i.Name, s.prefix)
	return i
}

func (s *subStore) Open(ctx context.Context, name string) (Reader, error) {
	return s.OpenRange(ctx, name, 0, -1)
}

func (s *subStore) OpenRange(ctx context.Context, name string, offset, length int64) (Reader, error) {
	full, err := s.name("open", name)
	if err != nil {
		return nil, err
	}
	var r Reader
	if offset == 0 && length < 0 {
		r, err = s.inner.Open(ctx, full)
	} else {
		r, err = s.inner.OpenRange(ctx, full, offset, length)
	}
	if err != nil {
		return nil, err
	}
	return subReader{r, s.info(r.Info())}, nil
}

type subReader struct {
	Reader
	info Info
}

func (r subReader) Info() Info { return r.info }

func (s *subStore) Stat(ctx context.Context, name string) (Info, error) {
	full, err := s.name("stat", name)
	if err != nil {
		return Info{}, err
	}
	i, err := s.inner.Stat(ctx, full)
	return s.info(i), err
}

func (s *subStore) List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	var o ListOptions
	if opts != nil {
		o = *opts
	}
	o.Prefix = s.prefix + o.Prefix
	if o.StartAfter != "" {
		o.StartAfter = s.prefix + o.StartAfter
	}
	return s.stripped("list", s.inner.List(ctx, &o))
}

func (s *subStore) stripped(op string, seq iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	if s.err != nil {
		err := &Error{Op: op, URL: s.URL(), Err: s.err}
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	return func(yield func(Info, error) bool) {
		for i, err := range seq {
			if !yield(s.info(i), err) {
				return
			}
		}
	}
}

func (s *subStore) Create(ctx context.Context, name string, opts *WriteOptions) (Writer, error) {
	full, err := s.name("create", name)
	if err != nil {
		return nil, err
	}
	return s.inner.Create(ctx, full, opts)
}

func (s *subStore) Delete(ctx context.Context, name string) error {
	full, err := s.name("delete", name)
	if err != nil {
		return err
	}
	return s.inner.Delete(ctx, full)
}

func (s *subStore) DeleteAll(ctx context.Context, names []string) error {
	full := make([]string, 0, len(names))
	var errs []error
	for _, n := range names {
		if f, err := s.name("delete", n); err != nil {
			errs = append(errs, err)
		} else {
			full = append(full, f)
		}
	}
	return errors.Join(append(errs, s.inner.DeleteAll(ctx, full))...)
}

func (s *subStore) Copy(ctx context.Context, dst, src string, opts *WriteOptions) error {
	d, err := s.name("copy", dst)
	if err != nil {
		return err
	}
	f, err := s.name("copy", src)
	if err != nil {
		return err
	}
	return s.inner.Copy(ctx, d, f, opts)
}

func (s *subStore) Close() error { return s.inner.Close() }

// The optional interfaces; withOptional shows only those that the inner store has.

func (s *subStore) ListTemporary(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return s.stripped("list", s.inner.(TemporaryLister).ListTemporary(ctx, s.prefix+prefix))
}

func (s *subStore) DeleteTemporary(ctx context.Context, name string) error {
	full, err := s.name("delete", name)
	if err != nil {
		return err
	}
	return s.inner.(TemporaryLister).DeleteTemporary(ctx, full)
}

func (s *subStore) RemoveEmptyDir(ctx context.Context, name string) error {
	full, err := s.name("delete", name)
	if err != nil {
		return err
	}
	return s.inner.(DirectoryRemover).RemoveEmptyDir(ctx, full)
}

// joinURL appends a name to the URL of a root.
func joinURL(root, name string) string {
	if name == "" {
		return root
	}
	if strings.HasSuffix(root, "://") { // no authority
		return root + "/" + name
	}
	return strings.TrimSuffix(root, "/") + "/" + name
}
