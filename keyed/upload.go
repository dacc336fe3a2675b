package keyed

import (
	"bytes"
	"context"
	"fmt"
	"path"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// creator is all that uploading needs of a store.
type creator interface {
	Create(ctx context.Context, name string, opts *blobstore.WriteOptions) (blobstore.Writer, error)
}

// UploadOptions changes an upload. Nil is the default.
type UploadOptions struct {
	WriteOptions
	// Inline is the size in bytes up to which the state goes into the handle instead
	// of an object; 0 is 20 KiB as in Flink, negative never.
	Inline int
	// ID is the handle's identity; it is only in checkpoints, and "" will do.
	ID string
}

// Upload writes a snapshot as an object of a store and gives the handle that goes
// into a metadata.SubtaskState, with a path relative to the folder of the
// name: "chk-42/7e1f" is for the metadata object chk-42/_metadata. It is nil for a
// backend without states. After an error nothing is left in the store.
func Upload(ctx context.Context, s Snapshot, store creator, name string, opts *UploadOptions) (*metadata.KeyGroupsHandle, error) {
	var o UploadOptions
	if opts != nil {
		o = *opts
	}
	if o.Inline == 0 {
		o.Inline = 20 << 10
	}
	u := &uploader{ctx: ctx, store: store, name: name, inline: o.Inline}
	w, err := s.Write(ctx, u, &o.WriteOptions)
	if err != nil {
		u.abort()
		return nil, err
	}
	if len(w.States) == 0 {
		u.abort()
		return nil, nil
	}
	var file metadata.StreamHandle
	if u.w == nil {
		file = &metadata.ByteStreamHandle{Name: javaio.NewString(path.Base(name)), Data: u.small.Bytes()}
	} else {
		if err := u.w.Commit(); err != nil {
			return nil, fmt.Errorf("keyed: %w", err)
		}
		file = &metadata.RelativeFileHandle{Path: javaio.NewString(path.Base(name)), Size: w.Bytes}
	}
	h := &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroupsWithID, Range: w.KeyGroups, Offsets: w.Offsets, Delegate: file, ID: javaio.NewString(o.ID)}
	if w.Format == FormatCanonical {
		h.Form, h.ID = metadata.TagSavepointKeyGroups, ""
	}
	return h, nil
}

// uploader begins an object when there is more than fits inline.
type uploader struct {
	ctx    context.Context
	store  creator
	name   string
	inline int
	small  bytes.Buffer
	w      blobstore.Writer
}

func (u *uploader) Write(p []byte) (int, error) {
	if u.w == nil {
		if u.small.Len()+len(p) <= u.inline {
			return u.small.Write(p)
		}
		w, err := u.store.Create(u.ctx, u.name, nil)
		if err != nil {
			return 0, err
		}
		u.w = w
		if _, err := w.Write(u.small.Bytes()); err != nil {
			return 0, err
		}
		u.small = bytes.Buffer{}
	}
	return u.w.Write(p)
}

func (u *uploader) abort() {
	if u.w != nil {
		_ = u.w.Abort()
	}
}
