package keyed

import (
	"context"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// UploadOptions changes an upload. Nil is the default.
type UploadOptions struct {
	WriteOptions
	// ID is the handle's identity; it is only in checkpoints, and "" will do.
	ID string
	// Full: the state refers to no file of an earlier checkpoint, as savepoints and the
	// first checkpoint after a restore in NO_CLAIM mode have to be.
	Full bool
	// Forward: later checkpoints may refer to the files of a Full one, which are shared
	// ones then (Flink's SharingFilesStrategy FORWARD). It has to be set for a full
	// checkpoint that subsumes others: those that follow it would refer to files of
	// checkpoints that are gone. Savepoints must not have it: they own their files.
	Forward bool
	// LocalCopy is a folder of the local disk in which a copy of the state is kept for
	// snapshot.LocalCopies, if the state is one file; "" keeps none. Databases keep theirs
	// as their options say.
	LocalCopy string
	// LocalCopyFailed is told why there is no copy in LocalCopy of what was uploaded: a
	// restart will read from the store then. Nil is nobody.
	LocalCopyFailed func(error)
}

// UploadFile writes a snapshot as one exclusive file of to, or into the handle if it is
// small: what Snapshot.Upload does for formats of one file. Only backends call it.
func UploadFile(ctx context.Context, s Snapshot, to *snapshot.Writer, opts *UploadOptions) (metadata.KeyedHandle, error) {
	var o UploadOptions
	if opts != nil {
		o = *opts
	}
	f := to.File(ctx, snapshot.ScopeExclusive)
	defer f.Abort()
	if o.LocalCopy != "" {
		f.KeepCopy(o.LocalCopy)
	}
	w, err := s.Write(ctx, f, &o.WriteOptions)
	if err != nil || len(w.States) == 0 {
		return nil, err
	}
	file, err := f.Close()
	if err != nil {
		return nil, err
	}
	if err := f.CopyError(); err != nil && o.LocalCopyFailed != nil {
		o.LocalCopyFailed(err)
	}
	h := &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroupsWithID, Range: w.KeyGroups, Offsets: w.Offsets, Delegate: file, ID: javaio.NewString(o.ID)}
	if w.Format == FormatCanonical {
		h.Form, h.ID = metadata.TagSavepointKeyGroups, ""
	}
	return h, nil
}
