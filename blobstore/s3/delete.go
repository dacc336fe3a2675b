package s3

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithy "github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

func (s *store) Delete(ctx context.Context, name string) error {
	if err := s.check("delete", name); err != nil {
		return err
	}
	_, err := call(ctx, s, (*s3.Client).DeleteObject, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &name, RequestPayer: s.payer})
	if err = s.fail(ctx, "delete", name, err); missing(err) {
		return nil
	}
	return err
}

// missing says that an object, but not the bucket, is absent.
func missing(err error) bool {
	return errors.Is(err, blobstore.ErrNotExist) && !strings.Contains(err.Error(), "bucket does not exist")
}

func (s *store) DeleteAll(ctx context.Context, names []string) error {
	var mu sync.Mutex
	var errs []error
	report := func(err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	}
	var bulk, single []string
	for _, name := range names {
		if err := s.check("delete", name); err != nil {
			report(err)
		} else if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0xfffe || r == 0xffff }) {
			single = append(single, name) // XML has no place for it
		} else {
			bulk = append(bulk, name)
		}
	}
	var g errgroup.Group
	g.SetLimit(4)
	for chunk := range slices.Chunk(bulk, bulkDelete) {
		g.Go(func() error { report(s.deleteBulk(ctx, chunk)); return nil })
	}
	g.Wait()
	report(objectstore.DeleteEach(ctx, single, 16, s.Delete))
	return errors.Join(errs...)
}

func (s *store) deleteBulk(ctx context.Context, names []string) error {
	ids := make([]types.ObjectIdentifier, len(names))
	for i := range names {
		ids[i].Key = &names[i]
	}
	out, err := call(ctx, s, (*s3.Client).DeleteObjects, &s3.DeleteObjectsInput{
		Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)}, RequestPayer: s.payer,
	})
	if err != nil {
		// Servers without the request, and older ones that want an MD5 for it.
		var api smithy.APIError
		if errors.As(err, &api) {
			switch api.ErrorCode() {
			case "NotImplemented", "MissingContentMD5", "InvalidRequest", "MethodNotAllowed":
				return objectstore.DeleteEach(ctx, names, 16, s.Delete)
			}
		}
		failed := s.fail(ctx, "delete", "", err)
		var cause *blobstore.Error
		if !errors.As(failed, &cause) || ctx.Err() != nil {
			return failed
		}
		errs := make([]error, len(names))
		for i, name := range names {
			errs[i] = &blobstore.Error{Op: "delete", URL: s.url + "/" + name, Err: cause.Err}
		}
		return errors.Join(errs...)
	}
	var errs []error
	for _, e := range out.Errors {
		code := aws.ToString(e.Code)
		kind := kinds[code]
		if code == "AccessDenied" {
			kind = blobstore.ErrPermission
		}
		switch {
		case kind == blobstore.ErrNotExist:
			continue
		case kind != nil:
			err = fmt.Errorf("%w (%s)", kind, join(code, aws.ToString(e.Message)))
		default:
			err = errors.New(join(code, aws.ToString(e.Message)))
		}
		errs = append(errs, &blobstore.Error{Op: "delete", URL: s.url + "/" + aws.ToString(e.Key), Err: err})
	}
	return errors.Join(errs...)
}

// uploadMark stands between the name of an unfinished upload's object and the
// upload's ID, so that both make one temporary name.
const uploadMark = "?uploadId="

// ListTemporary yields the multipart uploads that are neither completed nor
// aborted, of living writers too: their age tells. They cost storage and are in
// no listing of objects.
func (s *store) ListTemporary(ctx context.Context, prefix string) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		in := &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: &prefix, EncodingType: types.EncodingTypeUrl, RequestPayer: s.payer}
		for {
			out, err := call(ctx, s, (*s3.Client).ListMultipartUploads, in)
			if err != nil {
				yield(blobstore.Info{}, s.fail(ctx, "list", prefix, err))
				return
			}
			for _, up := range out.Uploads {
				name, err := decode(out.EncodingType, up.Key)
				if err != nil {
					yield(blobstore.Info{}, s.fail(ctx, "list", prefix, err))
					return
				}
				if !strings.HasPrefix(name, prefix) {
					continue
				}
				size, err := s.partsSize(ctx, name, up.UploadId)
				if err != nil {
					if err = s.fail(ctx, "list", name, err); errors.Is(err, blobstore.ErrNotExist) {
						continue // ended meanwhile
					}
					yield(blobstore.Info{}, err)
					return
				}
				if !yield(blobstore.Info{Name: name + uploadMark + aws.ToString(up.UploadId), Size: size, ModTime: utc(up.Initiated)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			marker, err := decode(out.EncodingType, out.NextKeyMarker)
			if err != nil {
				yield(blobstore.Info{}, s.fail(ctx, "list", prefix, err))
				return
			}
			in.KeyMarker, in.UploadIdMarker = &marker, out.NextUploadIdMarker
		}
	}
}

func (s *store) partsSize(ctx context.Context, name string, uploadID *string) (int64, error) {
	var size int64
	in := &s3.ListPartsInput{Bucket: &s.bucket, Key: &name, UploadId: uploadID, RequestPayer: s.payer}
	for {
		out, err := call(ctx, s, (*s3.Client).ListParts, in)
		if err != nil {
			return 0, err
		}
		for _, p := range out.Parts {
			size += aws.ToInt64(p.Size)
		}
		if !aws.ToBool(out.IsTruncated) {
			return size, nil
		}
		in.PartNumberMarker = out.NextPartNumberMarker
	}
}

// DeleteTemporary aborts an upload that ListTemporary has named; absent is success.
func (s *store) DeleteTemporary(ctx context.Context, name string) error {
	i := strings.LastIndex(name, uploadMark)
	if i <= 0 {
		return &blobstore.Error{Op: "delete", URL: s.url + "/" + name, Err: blobstore.ErrInvalidName}
	}
	return s.abort(ctx, name[:i], name[i+len(uploadMark):])
}
