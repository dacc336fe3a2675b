package azure

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// discardedType marks the empty blob that stands in for blocks being dropped.
const discardedType = "application/x-tidemark-discarded"

// hidden says that what has these properties is not an object, or not yet: the
// stand-in for dropped blocks, the mark of a folder, the target of a copy that goes
// on or has failed.
func hidden(contentType *string, metadata map[string]*string, copying *blob.CopyStatusType) bool {
	if contentType != nil && *contentType == discardedType {
		return true
	}
	if copying != nil && *copying != blob.CopyStatusTypeSuccess {
		return true
	}
	return strings.EqualFold(meta(metadata, "hdi_isfolder"), "true")
}

// meta looks up metadata, whose keys lose their case on the way.
func meta(m map[string]*string, key string) string {
	for k, v := range m {
		if v != nil && strings.EqualFold(k, key) {
			return *v
		}
	}
	return ""
}

func info(name string, size *int64, modified *time.Time, etag *azcore.ETag) blobstore.Info {
	in := blobstore.Info{Name: name}
	if size != nil {
		in.Size = *size
	}
	if modified != nil {
		in.ModTime = modified.UTC()
	}
	if etag != nil {
		in.ETag = strings.Trim(string(*etag), `"`) // quoted in headers, not in listings
	}
	return in
}

func (s *store) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	return s.stat(ctx, "stat", name)
}

func (s *store) stat(ctx context.Context, op, name string) (blobstore.Info, error) {
	if err := s.check(op, name); err != nil {
		return blobstore.Info{}, err
	}
	p, err := s.properties(ctx, name)
	if err == nil && hidden(p.ContentType, p.Metadata, p.CopyStatus) {
		err = blobstore.ErrNotExist
	}
	if err != nil {
		return blobstore.Info{}, s.fail(ctx, op, name, err)
	}
	return info(name, p.ContentLength, p.LastModified, p.ETag), nil
}

func (s *store) properties(ctx context.Context, name string) (blob.GetPropertiesResponse, error) {
	c, err := s.connect()
	if err != nil {
		return blob.GetPropertiesResponse{}, err
	}
	return c.NewBlobClient(name).GetProperties(ctx, nil)
}

func (s *store) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	return s.OpenRange(ctx, name, 0, -1)
}

func (s *store) OpenRange(ctx context.Context, name string, offset, length int64) (blobstore.Reader, error) {
	if err := s.check("open", name); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, s.fail(ctx, "open", name, fmt.Errorf("negative offset %d", offset))
	}
	if length == 0 {
		return s.openEmpty(ctx, name)
	}
	c, err := s.connect()
	if err != nil {
		return nil, s.fail(ctx, "open", name, err)
	}
	opts := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset}}
	whole := offset == 0 && length < 0
	if length > 0 && offset+length > 0 {
		opts.Range.Count = length
	}
	resp, err := c.NewBlobClient(name).DownloadStream(ctx, opts)
	var answer *azcore.ResponseError
	if errors.As(err, &answer) && answer.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return s.openEmpty(ctx, name)
	}
	if err != nil {
		return nil, s.fail(ctx, "open", name, err)
	}
	if hidden(resp.ContentType, resp.Metadata, resp.CopyStatus) {
		resp.Body.Close()
		return nil, s.fail(ctx, "open", name, blobstore.ErrNotExist)
	}
	in := info(name, resp.ContentLength, resp.LastModified, resp.ETag)
	body := resp.Body
	switch {
	case whole:
		if len(resp.ContentMD5) == md5.Size {
			body = &checked{ReadCloser: body, sum: md5.New(), want: resp.ContentMD5}
		}
	case resp.ContentRange == nil: // azurite, of an empty blob
		if in.Size > 0 {
			body.Close()
			return nil, s.fail(ctx, "open", name, errors.New("the server ignores ranges"))
		}
	default:
		_, total, _ := strings.Cut(*resp.ContentRange, "/")
		if in.Size, err = strconv.ParseInt(total, 10, 64); err != nil {
			body.Close()
			return nil, s.fail(ctx, "open", name, err)
		}
	}
	return s.reader(ctx, in, body), nil
}

func (s *store) openEmpty(ctx context.Context, name string) (blobstore.Reader, error) {
	in, err := s.stat(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	return s.reader(ctx, in, http.NoBody), nil
}

func (s *store) reader(ctx context.Context, in blobstore.Info, body io.ReadCloser) blobstore.Reader {
	return objectstore.NewReader(ctx, in, body, func(err error) error { return s.fail(ctx, "read", in.Name, err) })
}

// checked compares the MD5 of a whole body at its end. Only what was written with
// one has it.
type checked struct {
	io.ReadCloser
	sum  hash.Hash
	want []byte
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.sum.Write(p[:n])
	if err == io.EOF {
		if got := c.sum.Sum(nil); !bytes.Equal(got, c.want) {
			err = fmt.Errorf("%w: read MD5 %x, stored %x", blobstore.ErrDataCorrupt, got, c.want)
		}
	}
	return n, err
}

func (s *store) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		if opts != nil && ctx.Err() == nil && objectstore.InXML(opts.Prefix) != nil {
			return // no name that can be listed begins so, and azurite has status 500 for it
		}
		l := s.lister
		l.Sort = s.sorts(ctx)
		l.List(ctx, opts)(yield)
	}
}

// sorts says whether listings have to be sorted: that of a hierarchical namespace
// has a folder's content right after its name, "a", "a/x", "a-b". Who may not ask
// learns it from the order of the names.
func (s *store) sorts(ctx context.Context) bool {
	s.mu.Lock()
	known, sort := s.orderKnown, s.sort
	s.mu.Unlock()
	if known || sort {
		return sort
	}
	c, err := s.connect()
	if err != nil {
		return false // the listing has the same error
	}
	r, err := c.GetAccountInfo(ctx, nil)
	sort = err == nil && r.IsHierarchicalNamespaceEnabled != nil && *r.IsHierarchicalNamespaceEnabled
	if err == nil || !errors.Is(plain(err), blobstore.ErrTemporary) && ctx.Err() == nil {
		s.mu.Lock()
		s.orderKnown, s.sort = true, sort
		s.mu.Unlock()
	}
	return sort
}

func (s *store) page(ctx context.Context, prefix string, delimiter bool, _, token string) (objectstore.Page, error) {
	segment, err := s.segment(ctx, prefix, delimiter, token, container.ListBlobsInclude{Metadata: true, Copy: true})
	if err != nil {
		return objectstore.Page{}, s.fail(ctx, "list", prefix, err)
	}
	page := objectstore.Page{Entries: make([]blobstore.Info, 0, len(segment.blobs)+len(segment.prefixes)), Next: segment.next}
	for _, b := range segment.blobs {
		p := b.Properties
		if b.Name == nil || p == nil || hidden(p.ContentType, b.Metadata, p.CopyStatus) ||
			p.ResourceType != nil && *p.ResourceType == "directory" {
			continue
		}
		page.Entries = append(page.Entries, info(*b.Name, p.ContentLength, p.LastModified, p.ETag))
	}
	for _, p := range segment.prefixes {
		if p.Name != nil {
			page.Entries = append(page.Entries, blobstore.Info{Name: *p.Name, IsPrefix: true})
		}
	}
	return page, nil
}

// segment is one answer of the service to a listing.
type segment struct {
	blobs    []*container.BlobItem
	prefixes []*container.BlobPrefix
	next     string
}

func (s *store) segment(ctx context.Context, prefix string, delimiter bool, token string, include container.ListBlobsInclude) (segment, error) {
	c, err := s.connect()
	if err != nil {
		return segment{}, err
	}
	var marker *string
	if token != "" {
		marker = &token
	}
	if delimiter {
		r, err := next(ctx, c.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &prefix, Marker: marker, MaxResults: &s.pageSize, Include: include}))
		if err != nil || r.Segment == nil {
			return segment{}, err
		}
		return segment{r.Segment.BlobItems, r.Segment.BlobPrefixes, value(r.NextMarker)}, nil
	}
	r, err := next(ctx, c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix, Marker: marker, MaxResults: &s.pageSize, Include: include}))
	if err != nil || r.Segment == nil {
		return segment{}, err
	}
	return segment{blobs: r.Segment.BlobItems, next: value(r.NextMarker)}, nil
}

func next[T any](ctx context.Context, p *runtime.Pager[T]) (T, error) { return p.NextPage(ctx) }

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
