package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// catOutput is the JSON document of cat.
type catOutput struct {
	Schema string `json:"schema"`
	catHead
	// Data are the bytes from Offset on.
	Data []byte `json:"data"`
}

type catHead struct {
	URL    string    `json:"url"`
	Size   int64     `json:"size"` // of the whole file, in bytes
	Time   time.Time `json:"time,omitzero"`
	Offset int64     `json:"offset"` // of the first byte of data
}

type catOptions struct {
	offset int64
	length int64
}

func newCat(g *global) *cobra.Command {
	o := &catOptions{}
	cmd := &cobra.Command{
		Use:     "cat [URL]",
		GroupID: groupLook,
		Short:   "Write the bytes of a file in any store to standard output",
		Long: `Write the bytes of a file, or a range of them, to standard output: for other
programs, and to fetch a single file that files or verify names. The URL of a
snapshot's folder means its _metadata.`,
		Example: `  stateutil cat s3://bucket/checkpoints/7f3c…a1/shared/1c9f… > 000012.sst
  stateutil cat --offset 128 --length 64 /data/savepoints/savepoint-5f6b2a-02c1f9a4bb1d | xxd`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			if o.offset < 0 {
				return usage("--offset is %d: 0 or more", o.offset)
			}
			return g.cat(cmd.Context(), url, o)
		},
	}
	cmd.Flags().Int64Var(&o.offset, "offset", 0, "begin at byte `N`")
	cmd.Flags().Int64Var(&o.length, "length", -1, "write at most `N` bytes; negative is to the end")
	return cmd
}

func (g *global) cat(ctx context.Context, url string, o *catOptions) error {
	loc, err := g.location(url)
	if err != nil {
		return err
	}
	r, loc, err := g.openObject(ctx, loc, o.offset, o.length)
	if err != nil {
		return err
	}
	defer r.Close()
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaCat)
		info := r.Info()
		doc.Members(catHead{URL: loc.String(), Size: info.Size, Time: info.ModTime, Offset: o.offset})
		doc.Base64("data", r)
		return doc.Close()
	}
	_, err = io.Copy(g.env.Out, r)
	return err
}

// openObject opens the object at loc or, if a folder lies there, its metadata.
func (g *global) openObject(ctx context.Context, loc blobstore.Location, offset, length int64) (blobstore.Reader, blobstore.Location, error) {
	r, err := g.openRange(ctx, loc, offset, length)
	if errors.Is(err, blobstore.ErrIsDirectory) || errors.Is(err, blobstore.ErrNotExist) {
		inside := loc.Join(snapshot.MetadataName)
		if r, inner := g.openRange(ctx, inside, offset, length); inner == nil {
			return r, inside, nil
		}
	}
	return r, loc, err
}

func (g *global) openRange(ctx context.Context, loc blobstore.Location, offset, length int64) (blobstore.Reader, error) {
	store, name, err := g.stores().Resolve(ctx, loc)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, &blobstore.Error{Op: "open", URL: loc.String(), Err: blobstore.ErrIsDirectory}
	}
	if offset == 0 && length < 0 {
		return store.Open(ctx, name)
	}
	return store.OpenRange(ctx, name, offset, length)
}
