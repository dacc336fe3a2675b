package gcs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// writerKey is the metadata by which a writer knows its own object again.
const writerKey = "tidemark-writer"

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
	// The chunks of an upload follow each other: there is one on its way while the
	// next is filled.
	p := objectstore.Parts{Size: s.partSize, Concurrency: 1}
	return objectstore.NewWriter(ctx, u, p, hint, func(op string, err error) error {
		return s.fail(ctx, op, name, err)
	}), nil
}

// upload is one object on its way: in one request, or as a resumable upload.
// Source: Cloud Storage, "Resumable uploads".
type upload struct {
	s        *store
	name     string
	id       string // writerKey's value
	ifAbsent bool

	session string // address of the resumable upload; a secret: whoever has it can write
	sent    int64  // bytes of the chunks that are done
	sum     uint32 // their checksum
	done    bool
}

func (u *upload) query(kind string) url.Values {
	q := url.Values{"uploadType": {kind}, "name": {u.name}, "fields": {objectFields + ",crc32c"}}
	if u.ifAbsent {
		q.Set("ifGenerationMatch", "0")
	}
	return q
}

func (u *upload) resource(sum *uint32) []byte {
	r := map[string]any{"name": u.name, "contentType": contentType, "metadata": map[string]string{writerKey: u.id}}
	if sum != nil {
		r["crc32c"] = formatCRC(*sum) // the server compares
	}
	b, _ := json.Marshal(r)
	return b
}

func (u *upload) path() string { return "/upload/storage/v1/b/" + url.PathEscape(u.s.bucket) + "/o" }

// Put is one multipart/related request: the resource, then the bytes.
func (u *upload) Put(ctx context.Context, body []byte) error {
	sum := crc32.Checksum(body, castagnoli)
	boundary := rand.Text()
	var b bytes.Buffer
	b.Grow(len(body) + 1024)
	fmt.Fprintf(&b, "--%s\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n%s\r\n--%s\r\nContent-Type: %s\r\n\r\n", boundary, u.resource(&sum), boundary, contentType)
	b.Write(body)
	fmt.Fprintf(&b, "\r\n--%s--\r\n", boundary)
	var r resource
	err := u.s.call(ctx, request{
		method: http.MethodPost, path: u.path(), query: u.query("multipart"), body: b.Bytes(),
		header: http.Header{"Content-Type": {"multipart/related; boundary=" + boundary}},
	}, &r)
	if err == nil {
		err = u.finish(ctx, &r, sum)
	}
	return u.s.fail(ctx, "commit", u.name, err)
}

func (u *upload) Begin(ctx context.Context) error {
	resp, err := u.s.do(ctx, request{
		method: http.MethodPost, path: u.path(), query: u.query("resumable"), body: u.resource(nil),
		header: http.Header{"Content-Type": {"application/json; charset=UTF-8"}, "X-Upload-Content-Type": {contentType}},
	}, http.StatusOK, http.StatusCreated)
	if err != nil {
		return u.s.fail(ctx, "write", u.name, err)
	}
	defer drain(resp)
	if u.session = resp.Header.Get("Location"); u.session == "" {
		return u.s.fail(ctx, "write", u.name, errors.New("the server began no upload"))
	}
	return nil
}

// Part sends one chunk. After a lost answer the whole chunk is sent again: the
// store ignores bytes at an offset that it has already.
func (u *upload) Part(ctx context.Context, _ int, body []byte, last bool) error {
	op := "write"
	if last {
		op = "commit"
	}
	return u.s.fail(ctx, op, u.name, u.part(ctx, body, last))
}

func (u *upload) part(ctx context.Context, body []byte, last bool) error {
	total := "*"
	if last {
		total = strconv.FormatInt(u.sent+int64(len(body)), 10)
	}
	sum := crc32.Update(u.sum, castagnoli, body)
	for kept := 0; ; { // bytes of body that the server has: it may keep less than it was sent
		h := http.Header{
			"Content-Type":  {contentType},
			"Content-Range": {fmt.Sprintf("bytes %d-%d/%s", u.sent+int64(kept), u.sent+int64(len(body))-1, total)},
		}
		if last {
			h.Set("X-Goog-Hash", "crc32c="+formatCRC(sum))
		}
		have, done, err := u.put(ctx, request{method: http.MethodPut, path: u.session, header: h, body: body[kept:]})
		if err != nil {
			return err
		}
		if done != nil {
			if !last {
				return errors.New("the server ended the upload early")
			}
			u.done = true
			return u.finish(ctx, done, sum)
		}
		now := have - u.sent
		if now == int64(len(body)) && !last {
			u.sent, u.sum = have, sum
			return nil
		}
		if now <= int64(kept) || now >= int64(len(body)) {
			return fmt.Errorf("%w: the server has %d bytes of the upload, %d were sent", blobstore.ErrTemporary, have, u.sent+int64(len(body)))
		}
		kept = int(now)
	}
}

// put sends a piece of a chunk. It gives the finished object, or else how many
// bytes the server has in all.
func (u *upload) put(ctx context.Context, r request) (have int64, done *resource, err error) {
	resp, err := u.s.do(ctx, r, http.StatusOK, http.StatusCreated, http.StatusPermanentRedirect)
	if err != nil {
		return 0, nil, err
	}
	defer drain(resp)
	if resp.StatusCode != http.StatusPermanentRedirect {
		done = &resource{}
		return 0, done, decode(resp.Body, done)
	}
	rng := resp.Header.Get("Range") // "bytes=0-524287", absent if there are none
	if rng == "" {
		return 0, nil, nil
	}
	_, end, ok := strings.Cut(rng, "-")
	n, err := strconv.ParseInt(end, 10, 64)
	if !ok || err != nil {
		return 0, nil, errors.New("the answer holds no range")
	}
	return n + 1, nil, nil
}

// finish compares the checksum of what the server has stored with ours.
func (u *upload) finish(ctx context.Context, r *resource, sum uint32) error {
	stored, ok := parseCRC(r.CRC32C)
	if !ok || stored == sum {
		return nil
	}
	// Damaged on the way: it must not be taken for what was committed.
	q := url.Values{"ifGenerationMatch": {r.Generation}}
	err := u.s.call(ctx, request{method: http.MethodDelete, path: u.s.object(u.name), query: q}, nil)
	text := "removed"
	if err != nil {
		text = "removing it failed"
	}
	return fmt.Errorf("%w: sent crc32c %08x, stored %08x, %s", blobstore.ErrDataCorrupt, sum, stored, text)
}

// Complete has nothing to do: the last chunk made the object visible.
func (u *upload) Complete(context.Context) error { return nil }

func (u *upload) Abort(ctx context.Context) error {
	if u.session == "" || u.done {
		return nil
	}
	const clientClosedRequest = 499 // the answer to a cancelled upload
	resp, err := u.s.do(ctx, request{method: http.MethodDelete, path: u.session},
		http.StatusOK, http.StatusNoContent, clientClosedRequest, http.StatusNotFound, http.StatusGone)
	if err != nil {
		return u.s.fail(ctx, "abort", u.name, err)
	}
	drain(resp)
	return nil
}

func (u *upload) Ours(ctx context.Context) (bool, error) {
	var r resource
	err := u.s.call(ctx, request{method: http.MethodGet, path: u.s.object(u.name), query: url.Values{"fields": {objectFields + ",metadata"}}}, &r)
	if errors.Is(err, blobstore.ErrNotExist) {
		return false, nil
	}
	return r.Metadata[writerKey] == u.id, u.s.fail(ctx, "commit", u.name, err)
}

// Copy copies inside the bucket. The server may take several requests for a large
// object; it is visible after the last.
func (s *store) Copy(ctx context.Context, dst, src string, opts *blobstore.WriteOptions) error {
	if err := cmp.Or(s.check("copy", src), s.checkNew(ctx, "copy", dst)); err != nil {
		return err
	}
	q := url.Values{"fields": {"done,rewriteToken"}}
	if opts != nil && opts.IfAbsent {
		// Asked before, so that a large copy is not made in vain; the condition decides.
		if _, err := s.stat(ctx, "copy", dst); err == nil {
			return s.fail(ctx, "copy", dst, blobstore.ErrExist)
		} else if !errors.Is(err, blobstore.ErrNotExist) {
			return err
		}
		q.Set("ifGenerationMatch", "0")
	}
	path := s.object(src) + "/rewriteTo/b/" + url.PathEscape(s.bucket) + "/o/" + url.PathEscape(dst)
	for {
		var out struct {
			Done         bool
			RewriteToken string
		}
		err := s.call(ctx, request{method: http.MethodPost, path: path, query: q}, &out)
		if errors.Is(err, blobstore.ErrNotExist) {
			return s.fail(ctx, "copy", src, err)
		}
		if err != nil {
			return s.fail(ctx, "copy", dst, err)
		}
		if out.Done {
			return nil
		}
		if out.RewriteToken == "" {
			return s.fail(ctx, "copy", dst, fmt.Errorf("%w: the server does not go on", blobstore.ErrTemporary))
		}
		q.Set("rewriteToken", out.RewriteToken)
	}
}

func (s *store) Delete(ctx context.Context, name string) error {
	if err := s.check("delete", name); err != nil {
		return err
	}
	err := s.call(ctx, request{method: http.MethodDelete, path: s.object(name)}, nil)
	if errors.Is(err, blobstore.ErrNotExist) && !errors.Is(err, errNoBucket) {
		return nil
	}
	return s.fail(ctx, "delete", name, err)
}

// DeleteAll sends a request for each name: the store's batches save round trips
// but count, and are served, as single ones.
func (s *store) DeleteAll(ctx context.Context, names []string) error {
	return objectstore.DeleteEach(ctx, names, 32, s.Delete)
}
