package azure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// writerKey is the metadata by which a writer knows its own blob again.
const writerKey = "tidemarkwriter"

const contentType = "application/octet-stream"

func (s *store) Create(ctx context.Context, name string, opts *blobstore.WriteOptions) (blobstore.Writer, error) {
	if err := s.checkNew(ctx, "create", name); err != nil {
		return nil, err
	}
	u := &upload{s: s, name: name, id: rand.Text()}
	var hint int64
	if opts != nil {
		u.ifAbsent, hint = opts.IfAbsent, opts.SizeHint
	}
	return objectstore.NewWriter(ctx, u, objectstore.Parts{Size: s.partSize, Max: maxBlocks}, hint, func(op string, err error) error {
		return s.fail(ctx, op, name, err)
	}), nil
}

// upload is one blob on its way: in one request, or as blocks.
type upload struct {
	s        *store
	name     string
	id       string // writerKey's value, and the begin of every block's ID
	ifAbsent bool

	mu     sync.Mutex
	blocks int // one more than the greatest index sent
}

func (u *upload) client() (*blockblob.Client, error) {
	c, err := u.s.connect()
	if err != nil {
		return nil, err
	}
	return c.NewBlockBlobClient(u.name), nil
}

func (u *upload) conditions() *blob.AccessConditions {
	if !u.ifAbsent {
		return nil
	}
	return ifNoneExists
}

var (
	anyTag       = azcore.ETagAny
	ifNoneExists = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &anyTag}}
)

func body(b []byte) io.ReadSeekCloser { return streaming.NopCloser(bytes.NewReader(b)) }

func (u *upload) metadata() map[string]*string { return map[string]*string{writerKey: &u.id} }

func (u *upload) Put(ctx context.Context, b []byte) error {
	c, err := u.client()
	if err == nil {
		sum := md5.Sum(b)
		t := contentType
		_, err = c.Upload(ctx, body(b), &blockblob.UploadOptions{
			HTTPHeaders:             &blob.HTTPHeaders{BlobContentMD5: sum[:], BlobContentType: &t},
			TransactionalValidation: blob.TransferValidationTypeMD5(sum[:]),
			Metadata:                u.metadata(),
			AccessConditions:        u.conditions(),
		})
	}
	return u.s.fail(ctx, "commit", u.name, u.stoodIn(ctx, err))
}

// Begin has nothing to do: the first block begins.
func (u *upload) Begin(context.Context) error { return nil }

// blockID is of one length for all blocks of a blob, as the service wants it.
func (u *upload) blockID(index int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%06d", u.id, index))
}

func (u *upload) Part(ctx context.Context, index int, b []byte, _ bool) error {
	c, err := u.client()
	if err == nil {
		sum := md5.Sum(b)
		_, err = c.StageBlock(ctx, u.blockID(index), body(b), &blockblob.StageBlockOptions{
			TransactionalValidation: blob.TransferValidationTypeMD5(sum[:]),
		})
	}
	u.mu.Lock()
	u.blocks = max(u.blocks, index+1)
	u.mu.Unlock()
	return u.s.fail(ctx, "write", u.name, err)
}

func (u *upload) Complete(ctx context.Context) error {
	c, err := u.client()
	if err == nil {
		ids := make([]string, u.blocks)
		for i := range ids {
			ids[i] = u.blockID(i)
		}
		t := contentType
		_, err = c.CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{
			HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: &t},
			Metadata:         u.metadata(),
			AccessConditions: u.conditions(),
		})
	}
	if bloberror.HasCode(err, bloberror.InvalidBlockList) {
		err = u.blocksGone(ctx)
	}
	return u.s.fail(ctx, "commit", u.name, u.stoodIn(ctx, err))
}

// blocksGone: another writer of the name was faster, or the blocks were dropped.
func (u *upload) blocksGone(ctx context.Context) error {
	if u.ifAbsent {
		if _, err := u.s.stat(ctx, "commit", u.name); err == nil {
			return blobstore.ErrExist
		}
	}
	if is, err := u.Ours(ctx); err == nil && is {
		return nil // by an earlier try
	}
	return errors.New("its blocks are gone: another writer has committed the name, or they were dropped as left behind")
}

// stoodIn looks whether a blob that is in the way is only the stand-in for dropped
// blocks; then another try will do.
func (u *upload) stoodIn(ctx context.Context, err error) error {
	if !bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet) {
		return err
	}
	p, perr := u.s.properties(ctx, u.name)
	if perr == nil && value(p.ContentType) == discardedType {
		if derr := u.s.remove(ctx, u.name, p.ETag); derr == nil {
			return fmt.Errorf("%w: an upload of the name was just dropped", blobstore.ErrTemporary)
		}
	}
	return err
}

func (u *upload) Ours(ctx context.Context) (bool, error) {
	p, err := u.s.properties(ctx, u.name)
	if err = u.s.fail(ctx, "commit", u.name, err); errors.Is(err, blobstore.ErrNotExist) {
		return false, nil
	}
	return err == nil && meta(p.Metadata, writerKey) == u.id, err
}

// Abort drops the blocks, if no other writer has any for the name.
func (u *upload) Abort(ctx context.Context) error {
	if u.blocks == 0 {
		return nil
	}
	return u.s.fail(ctx, "abort", u.name, u.s.dropBlocks(ctx, u.name, u.id))
}

// dropBlocks makes the service drop the blocks of a blob that was never committed:
// all of them, or only if they all belong to the writer given.
func (s *store) dropBlocks(ctx context.Context, name, writer string) error {
	_, mine, err := s.uncommitted(ctx, name, writer)
	if err != nil || !mine {
		return err
	}
	c, err := s.connect()
	if err != nil {
		return err
	}
	t := discardedType
	// Committing none of them drops them all.
	r, err := c.NewBlockBlobClient(name).CommitBlockList(ctx, nil, &blockblob.CommitBlockListOptions{
		HTTPHeaders: &blob.HTTPHeaders{BlobContentType: &t}, AccessConditions: ifNoneExists,
	})
	if bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.remove(ctx, name, r.ETag)
}

// remove deletes the blob if it is still the one with the ETag.
func (s *store) remove(ctx context.Context, name string, etag *azcore.ETag) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	_, err = c.NewBlobClient(name).Delete(ctx, &blob.DeleteOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: etag}},
	})
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ConditionNotMet) {
		return nil
	}
	return err
}

// uncommitted gives the bytes in blocks of a name that has no blob, and whether
// there are any, all of them of the writer given ("" for any writer).
func (s *store) uncommitted(ctx context.Context, name, writer string) (size int64, mine bool, err error) {
	c, err := s.connect()
	if err != nil {
		return 0, false, err
	}
	r, err := c.NewBlockBlobClient(name).GetBlockList(ctx, blockblob.BlockListTypeAll, nil)
	if bloberror.HasCode(err, bloberror.BlobNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	mine = len(r.UncommittedBlocks) > 0
	for _, b := range r.UncommittedBlocks {
		id, err := base64.StdEncoding.DecodeString(value(b.Name))
		if writer != "" && (err != nil || !strings.HasPrefix(string(id), writer+"-")) {
			mine = false
		}
		if b.Size != nil {
			size += *b.Size
		}
	}
	return size, mine, nil
}

// uncommittedMark ends the temporary name of blocks without a blob.
const uncommittedMark = "?uncommitted"

// ListTemporary yields the names that have blocks but no blob, of living writers
// too: their age tells, if the service does. Blocks beside a blob are not seen.
func (s *store) ListTemporary(ctx context.Context, prefix string) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		token := ""
		for {
			seg, err := s.segment(ctx, prefix, false, token, container.ListBlobsInclude{UncommittedBlobs: true})
			if err != nil {
				yield(blobstore.Info{}, s.fail(ctx, "list", prefix, err))
				return
			}
			for _, b := range seg.blobs {
				p := b.Properties
				if b.Name == nil || p == nil || p.ContentLength != nil && *p.ContentLength > 0 {
					continue
				}
				in := info(*b.Name+uncommittedMark, nil, p.LastModified, nil)
				if value(p.ContentType) != discardedType {
					// Nothing else in a listing tells blocks without a blob from an empty blob.
					if _, err := s.properties(ctx, *b.Name); err == nil {
						continue
					} else if err = s.fail(ctx, "list", *b.Name, err); !errors.Is(err, blobstore.ErrNotExist) {
						yield(blobstore.Info{}, err)
						return
					}
					if in.Size, _, err = s.uncommitted(ctx, *b.Name, ""); err != nil {
						yield(blobstore.Info{}, s.fail(ctx, "list", *b.Name, err))
						return
					}
				}
				if !yield(in, nil) {
					return
				}
			}
			if token = seg.next; token == "" {
				return
			}
		}
	}
}

// DeleteTemporary drops what ListTemporary has named; absent is success.
func (s *store) DeleteTemporary(ctx context.Context, name string) error {
	blobName, ok := strings.CutSuffix(name, uncommittedMark)
	if !ok || blobName == "" {
		return &blobstore.Error{Op: "delete", URL: s.url + "/" + name, Err: blobstore.ErrInvalidName}
	}
	p, err := s.properties(ctx, blobName)
	switch {
	case err == nil && value(p.ContentType) == discardedType:
		err = s.remove(ctx, blobName, p.ETag)
	case err == nil:
		return nil // committed meanwhile
	case errors.Is(plain(err), blobstore.ErrNotExist):
		err = s.dropBlocks(ctx, blobName, "")
	}
	return s.fail(ctx, "delete", blobName, err)
}

func (s *store) Delete(ctx context.Context, name string) error {
	if err := s.check("delete", name); err != nil {
		return err
	}
	c, err := s.connect()
	if err == nil {
		_, err = c.NewBlobClient(name).Delete(ctx, nil)
	}
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ResourceNotFound) {
		return nil
	}
	return s.fail(ctx, "delete", name, err)
}

// DeleteAll sends a request for each name. The service's batches are not used: they
// need rights that a SAS or a role for one container does not give.
func (s *store) DeleteAll(ctx context.Context, names []string) error {
	return objectstore.DeleteEach(ctx, names, 32, s.Delete)
}

// Copy has the service copy inside the container. It is as a rule done when the
// service answers; a target that is not done is hidden until it is.
func (s *store) Copy(ctx context.Context, dst, src string, opts *blobstore.WriteOptions) error {
	if err := cmp.Or(s.check("copy", src), s.checkNew(ctx, "copy", dst)); err != nil {
		return err
	}
	if _, err := s.stat(ctx, "copy", src); err != nil { // also hidden ones
		return err
	}
	c, err := s.connect()
	if err != nil {
		return s.fail(ctx, "copy", dst, err)
	}
	target := c.NewBlobClient(dst)
	o := &blob.StartCopyFromURLOptions{}
	if opts != nil && opts.IfAbsent {
		o.AccessConditions = ifNoneExists
	}
	r, err := target.StartCopyFromURL(ctx, c.NewBlobClient(src).URL(), o)
	if err != nil {
		return s.fail(ctx, "copy", dst, err)
	}
	wait := 50 * time.Millisecond
	for status := r.CopyStatus; ; wait = min(2*wait, 5*time.Second) {
		switch {
		case status == nil || *status == blob.CopyStatusTypeSuccess:
			return nil
		case *status != blob.CopyStatusTypePending:
			return s.fail(ctx, "copy", dst, errors.Join(fmt.Errorf("the service ended the copy: %s", *status), s.remove(ctx, dst, r.ETag)))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			s.endCopy(ctx, dst, r)
			return s.fail(ctx, "copy", dst, ctx.Err())
		}
		p, err := target.GetProperties(ctx, nil)
		if err != nil {
			return s.fail(ctx, "copy", dst, err)
		}
		status = p.CopyStatus
	}
}

// endCopy stops a copy whose caller has gone, and removes its target.
func (s *store) endCopy(ctx context.Context, dst string, r blob.StartCopyFromURLResponse) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	c, err := s.connect()
	if err != nil || r.CopyID == nil {
		return
	}
	b := c.NewBlobClient(dst)
	if _, err := b.AbortCopyFromURL(ctx, *r.CopyID, nil); err != nil {
		return // it has just succeeded
	}
	if p, err := b.GetProperties(ctx, nil); err == nil && value(p.CopyID) == *r.CopyID {
		s.remove(ctx, dst, p.ETag)
	}
}
