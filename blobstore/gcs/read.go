package gcs

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// resource is what we read of the JSON API's object resource. The generation is
// our ETag: it changes with every write, and downloads name it too.
type resource struct {
	Name       string
	Size       string // int64 and uint64 are strings
	Updated    time.Time
	Generation string
	CRC32C     string `json:"crc32c"`
	Metadata   map[string]string
}

const objectFields = "name,size,updated,generation"

func (r *resource) info() (blobstore.Info, error) {
	size, err := strconv.ParseInt(r.Size, 10, 64)
	if err != nil {
		return blobstore.Info{}, errors.New("the answer holds no size")
	}
	return blobstore.Info{Name: r.Name, Size: size, ModTime: r.Updated.UTC(), ETag: r.Generation}, nil
}

func (s *store) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	return s.stat(ctx, "stat", name)
}

func (s *store) stat(ctx context.Context, op, name string) (blobstore.Info, error) {
	if err := s.check(op, name); err != nil {
		return blobstore.Info{}, err
	}
	var r resource
	err := s.call(ctx, request{method: http.MethodGet, path: s.object(name), query: url.Values{"fields": {objectFields}}}, &r)
	if err != nil {
		return blobstore.Info{}, s.fail(ctx, op, name, err)
	}
	in, err := r.info()
	return in, s.fail(ctx, op, name, err)
}

func (s *store) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	return s.lister.List(ctx, opts)
}

func (s *store) page(ctx context.Context, prefix string, delimiter bool, startAfter, token string) (objectstore.Page, error) {
	q := url.Values{"fields": {"prefixes,nextPageToken,items(" + objectFields + ")"}, "maxResults": {strconv.FormatInt(s.pageSize, 10)}}
	set := func(k, v string) {
		if v != "" {
			q.Set(k, v)
		}
	}
	set("prefix", prefix)
	set("pageToken", token)
	set("startOffset", startAfter) // included: the Lister leaves it out
	if delimiter {
		q.Set("delimiter", "/")
	}
	var out struct {
		Items         []resource
		Prefixes      []string
		NextPageToken string
	}
	err := s.call(ctx, request{method: http.MethodGet, path: "/storage/v1/b/" + url.PathEscape(s.bucket) + "/o", query: q}, &out)
	if err != nil {
		return objectstore.Page{}, s.fail(ctx, "list", prefix, err)
	}
	page := objectstore.Page{Entries: make([]blobstore.Info, 0, len(out.Items)+len(out.Prefixes)), Next: out.NextPageToken}
	for i := range out.Items {
		in, err := out.Items[i].info()
		if err != nil {
			return page, s.fail(ctx, "list", prefix, err)
		}
		page.Entries = append(page.Entries, in)
	}
	for _, p := range out.Prefixes {
		page.Entries = append(page.Entries, blobstore.Info{Name: p, IsPrefix: true})
	}
	return page, nil
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
	h := http.Header{"Accept-Encoding": {"gzip"}} // the stored bytes, even where they are gzip
	whole := offset == 0 && length < 0
	switch {
	case whole:
	case length < 0 || offset+length < 0:
		h.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	default:
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	}
	resp, err := s.do(ctx, request{method: http.MethodGet, path: s.object(name), query: url.Values{"alt": {"media"}}, header: h},
		http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable)
	if err != nil {
		return nil, s.fail(ctx, "open", name, err)
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		drain(resp)
		return s.openEmpty(ctx, name)
	}
	info := blobstore.Info{Name: name, Size: resp.ContentLength, ETag: resp.Header.Get("X-Goog-Generation")}
	info.ModTime, _ = http.ParseTime(resp.Header.Get("Last-Modified")) // zero if the server does not say
	body := resp.Body
	switch {
	case whole:
		if info.Size < 0 {
			info.Size, err = strconv.ParseInt(resp.Header.Get("X-Goog-Stored-Content-Length"), 10, 64)
		}
		if want, ok := storedCRC(resp.Header); ok {
			body = &checked{ReadCloser: body, want: want}
		}
	case resp.StatusCode == http.StatusOK:
		err = errors.New("the server ignores ranges")
	default:
		_, total, _ := strings.Cut(resp.Header.Get("Content-Range"), "/")
		info.Size, err = strconv.ParseInt(total, 10, 64)
	}
	if err != nil {
		body.Close()
		return nil, s.fail(ctx, "open", name, err)
	}
	return s.reader(ctx, info, body), nil
}

func (s *store) openEmpty(ctx context.Context, name string) (blobstore.Reader, error) {
	info, err := s.stat(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	return s.reader(ctx, info, http.NoBody), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// storedCRC reads "X-Goog-Hash: crc32c=n03x6A==,md5=…".
func storedCRC(h http.Header) (sum uint32, ok bool) {
	if h.Get("X-Goog-Stored-Content-Encoding") == "gzip" && h.Get("Content-Encoding") != "gzip" {
		return 0, false // unpacked on the way: the checksum is of something else
	}
	for _, line := range h.Values("X-Goog-Hash") {
		for part := range strings.SplitSeq(line, ",") {
			if v, found := strings.CutPrefix(strings.TrimSpace(part), "crc32c="); found {
				return parseCRC(v)
			}
		}
	}
	return 0, false
}

func parseCRC(s string) (uint32, bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

func formatCRC(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// checked compares the checksum of a whole body at its end.
type checked struct {
	io.ReadCloser
	want, sum uint32
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.sum = crc32.Update(c.sum, castagnoli, p[:n])
	if err == io.EOF && c.sum != c.want {
		err = fmt.Errorf("%w: read crc32c %08x, stored %08x", blobstore.ErrDataCorrupt, c.sum, c.want)
	}
	return n, err
}

func (s *store) reader(ctx context.Context, info blobstore.Info, body io.ReadCloser) blobstore.Reader {
	return objectstore.NewReader(ctx, info, body, func(err error) error {
		if e := objectstore.Network(err); e != nil {
			err = e
		}
		return s.fail(ctx, "read", info.Name, err)
	})
}
