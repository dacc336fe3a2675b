package s3

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// writerKey is the metadata by which a writer knows its own object again.
const writerKey = "tidemark-writer"

// check refuses names that no store has.
func (s *store) check(op, name string) error {
	if err := objectstore.CheckName(name); err != nil {
		return &blobstore.Error{Op: op, URL: s.url + "/" + name, Err: err}
	}
	return nil
}

// checkNew refuses names that a new object cannot have.
func (s *store) checkNew(ctx context.Context, op, name string) error {
	err := cmp.Or(blobstore.ValidNewName(name), objectstore.InXML(name), ctx.Err())
	return s.fail(ctx, op, name, err)
}

func (s *store) Create(ctx context.Context, name string, opts *blobstore.WriteOptions) (blobstore.Writer, error) {
	if err := s.checkNew(ctx, "create", name); err != nil {
		return nil, err
	}
	u, hint, err := s.upload("create", name, opts)
	if err != nil {
		return nil, err
	}
	return objectstore.NewWriter(ctx, u, objectstore.Parts{Size: s.partSize, Max: maxParts}, hint, func(op string, err error) error {
		return s.fail(ctx, op, name, err)
	}), nil
}

func (s *store) upload(op, name string, opts *blobstore.WriteOptions) (*upload, int64, error) {
	u := &upload{s: s, name: name, id: rand.Text()}
	if opts == nil {
		return u, 0, nil
	}
	if opts.IfAbsent {
		if !s.ifAbsent {
			return nil, 0, &blobstore.Error{Op: op, URL: s.url + "/" + name, Err: fmt.Errorf("create if absent: %w", blobstore.ErrUnsupported)}
		}
		u.ifNoneMatch = aws.String("*")
	}
	return u, opts.SizeHint, nil
}

// upload is one object on its way. It uses multipart uploads of its own, since
// the SDK's managers abort theirs with the context that was cancelled, and so
// leave them behind.
type upload struct {
	s           *store
	name        string
	id          string // writerKey's value
	ifNoneMatch *string

	uploadID *string
	mu       sync.Mutex
	parts    []types.CompletedPart
}

func (u *upload) metadata() map[string]string { return map[string]string{writerKey: u.id} }

func (u *upload) Put(ctx context.Context, body []byte) error {
	in := &s3.PutObjectInput{
		Bucket: &u.s.bucket, Key: &u.name, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		IfNoneMatch: u.ifNoneMatch, RequestPayer: u.s.payer,
		ServerSideEncryption: u.s.encryption, SSEKMSKeyId: optional(u.s.encryptionKey),
	}
	if u.ifNoneMatch != nil {
		in.Metadata = u.metadata()
	}
	in.ContentMD5, in.ChecksumCRC32C = u.s.checksums(body)
	_, err := call(ctx, u.s, (*s3.Client).PutObject, in)
	return u.s.fail(ctx, "commit", u.name, err)
}

func (u *upload) Begin(ctx context.Context) error {
	in := &s3.CreateMultipartUploadInput{
		Bucket: &u.s.bucket, Key: &u.name, Metadata: u.metadata(), RequestPayer: u.s.payer,
		ServerSideEncryption: u.s.encryption, SSEKMSKeyId: optional(u.s.encryptionKey),
	}
	if u.s.checksum == "crc32c" {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	out, err := call(ctx, u.s, (*s3.Client).CreateMultipartUpload, in)
	if err != nil {
		return u.s.fail(ctx, "write", u.name, err)
	}
	u.uploadID = out.UploadId
	return nil
}

func (u *upload) Part(ctx context.Context, index int, body []byte, _ bool) error {
	in := &s3.UploadPartInput{
		Bucket: &u.s.bucket, Key: &u.name, UploadId: u.uploadID, PartNumber: aws.Int32(int32(index + 1)),
		Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))), RequestPayer: u.s.payer,
	}
	in.ContentMD5, in.ChecksumCRC32C = u.s.checksums(body)
	out, err := call(ctx, u.s, (*s3.Client).UploadPart, in)
	if err != nil {
		return u.s.fail(ctx, "write", u.name, err)
	}
	u.add(types.CompletedPart{PartNumber: in.PartNumber, ETag: out.ETag, ChecksumCRC32C: in.ChecksumCRC32C})
	return nil
}

func (u *upload) add(p types.CompletedPart) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.parts = append(u.parts, p)
}

func (u *upload) Complete(ctx context.Context) error {
	slices.SortFunc(u.parts, func(a, b types.CompletedPart) int { return cmp.Compare(*a.PartNumber, *b.PartNumber) })
	_, err := call(ctx, u.s, (*s3.Client).CompleteMultipartUpload, &s3.CompleteMultipartUploadInput{
		Bucket: &u.s.bucket, Key: &u.name, UploadId: u.uploadID, IfNoneMatch: u.ifNoneMatch, RequestPayer: u.s.payer,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})
	return u.s.fail(ctx, "commit", u.name, err)
}

// Abort also looks whether parts are left: one that the server was still taking
// in comes back to life after the first abort.
func (u *upload) Abort(ctx context.Context) error {
	if u.uploadID == nil {
		return nil
	}
	return u.s.abort(ctx, u.name, *u.uploadID)
}

func (s *store) abort(ctx context.Context, name, uploadID string) error {
	for range 3 {
		_, err := call(ctx, s, (*s3.Client).AbortMultipartUpload, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: &name, UploadId: &uploadID, RequestPayer: s.payer})
		if err := s.fail(ctx, "abort", name, err); err != nil && !errors.Is(err, blobstore.ErrNotExist) {
			return err
		}
		out, err := call(ctx, s, (*s3.Client).ListParts, &s3.ListPartsInput{Bucket: &s.bucket, Key: &name, UploadId: &uploadID, RequestPayer: s.payer})
		if err != nil || len(out.Parts) == 0 { // as a rule: no such upload
			return nil
		}
	}
	return s.fail(ctx, "abort", name, fmt.Errorf("%w: parts keep coming", blobstore.ErrTemporary))
}

func (u *upload) Ours(ctx context.Context) (bool, error) {
	out, err := u.s.head(ctx, u.name)
	if err != nil {
		err = u.s.fail(ctx, "commit", u.name, err)
		if errors.Is(err, blobstore.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	return out.Metadata[writerKey] == u.id, nil
}

// checksums gives what the server is to compare the body with.
func (s *store) checksums(body []byte) (contentMD5, crc32C *string) {
	switch s.checksum {
	case "md5":
		sum := md5.Sum(body)
		return aws.String(base64.StdEncoding.EncodeToString(sum[:])), nil
	case "crc32c":
		sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli))
		return nil, aws.String(base64.StdEncoding.EncodeToString(sum))
	}
	return nil, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// copySource is BUCKET/KEY as its header wants it.
func (s *store) copySource(name string) *string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return aws.String(url.PathEscape(s.bucket) + "/" + strings.ReplaceAll(strings.Join(parts, "/"), "+", "%2B"))
}

// Copy copies inside the bucket, in parts where the object is larger than one
// request may copy, or where it must not replace another: the completion of an
// upload is the request for which servers keep that condition.
func (s *store) Copy(ctx context.Context, dst, src string, opts *blobstore.WriteOptions) error {
	if err := cmp.Or(s.check("copy", src), s.checkNew(ctx, "copy", dst)); err != nil {
		return err
	}
	u, _, err := s.upload("copy", dst, opts)
	if err != nil {
		return err
	}
	head, err := s.head(ctx, src)
	if err != nil {
		return s.fail(ctx, "copy", src, err)
	}
	size := aws.ToInt64(head.ContentLength)
	switch {
	case size == 0: // no part may be empty
		return u.Put(ctx, nil)
	case size <= copyLimit && u.ifNoneMatch == nil:
		_, err := call(ctx, s, (*s3.Client).CopyObject, &s3.CopyObjectInput{
			Bucket: &s.bucket, Key: &dst, CopySource: s.copySource(src), CopySourceIfMatch: head.ETag, RequestPayer: s.payer,
			ServerSideEncryption: s.encryption, SSEKMSKeyId: optional(s.encryptionKey),
		})
		return s.copyFailed(ctx, dst, src, err)
	}
	return s.copyParts(ctx, u, src, size, head.ETag)
}

// copyLimit and copySize are variables for tests.
var (
	copyLimit int64 = maxCopy
	copySize  int64 = 512 << 20
)

func (s *store) copyParts(ctx context.Context, u *upload, src string, size int64, etag *string) error {
	err := u.Begin(ctx)
	if err != nil {
		return err
	}
	part := max(copySize, size/(maxParts-1))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8) // S3 itself moves the bytes: what counts is the number of requests
	for i, off := 0, int64(0); off < size; i, off = i+1, off+part {
		g.Go(func() error { return s.copyPart(gctx, u, src, etag, i, off, min(off+part, size)-1) })
	}
	if err = g.Wait(); err == nil {
		err = u.Complete(ctx)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if left := u.Abort(ctx); left != nil {
			err = fmt.Errorf("%w; an unfinished upload is left: %v", err, left)
		}
	}
	return err
}

// copyPart copies the bytes from first to last, both included, as part index.
func (s *store) copyPart(ctx context.Context, u *upload, src string, etag *string, index int, first, last int64) error {
	number := aws.Int32(int32(index + 1))
	out, err := call(ctx, s, (*s3.Client).UploadPartCopy, &s3.UploadPartCopyInput{
		Bucket: &s.bucket, Key: &u.name, UploadId: u.uploadID, PartNumber: number,
		CopySource: s.copySource(src), CopySourceIfMatch: etag, CopySourceRange: aws.String(fmt.Sprintf("bytes=%d-%d", first, last)),
		RequestPayer: s.payer,
	})
	if err != nil {
		return s.copyFailed(ctx, u.name, src, err)
	}
	u.add(types.CompletedPart{PartNumber: number, ETag: out.CopyPartResult.ETag, ChecksumCRC32C: out.CopyPartResult.ChecksumCRC32C})
	return nil
}

// copyFailed tells a source that was replaced meanwhile from a name that exists.
func (s *store) copyFailed(ctx context.Context, dst, src string, err error) error {
	err = s.fail(ctx, "copy", dst, err)
	if errors.Is(err, blobstore.ErrExist) {
		return s.fail(ctx, "copy", src, fmt.Errorf("%w: replaced while it was copied", blobstore.ErrTemporary))
	}
	return err
}
