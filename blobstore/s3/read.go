package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

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
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: &name, RequestPayer: s.payer}
	whole := offset == 0 && length < 0
	switch {
	case whole:
		in.ChecksumMode = types.ChecksumModeEnabled // S3 keeps none for ranges
	case length < 0 || offset+length < 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", offset))
	default:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	}
	out, err := call(ctx, s, (*s3.Client).GetObject, in)
	if err != nil {
		if !whole && pastEnd(err) {
			return s.openEmpty(ctx, name)
		}
		return nil, s.fail(ctx, "open", name, err)
	}
	info := blobstore.Info{Name: name, Size: aws.ToInt64(out.ContentLength), ModTime: utc(out.LastModified), ETag: aws.ToString(out.ETag)}
	if !whole {
		if _, total, ok := strings.Cut(aws.ToString(out.ContentRange), "/"); ok {
			info.Size, err = strconv.ParseInt(total, 10, 64)
		} else {
			err = errors.New("the server ignores ranges")
		}
		if err != nil {
			out.Body.Close()
			return nil, s.fail(ctx, "open", name, err)
		}
	}
	return s.reader(ctx, info, out.Body), nil
}

// pastEnd says whether a range begins at or past the end of the object.
func pastEnd(err error) bool {
	var api smithy.APIError
	var resp *smithyhttp.ResponseError
	return errors.As(err, &api) && api.ErrorCode() == "InvalidRange" ||
		errors.As(err, &resp) && resp.Response != nil && resp.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable
}

func (s *store) openEmpty(ctx context.Context, name string) (blobstore.Reader, error) {
	info, err := s.stat(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	return s.reader(ctx, info, http.NoBody), nil
}

func (s *store) reader(ctx context.Context, info blobstore.Info, body io.ReadCloser) blobstore.Reader {
	return objectstore.NewReader(ctx, info, body, func(err error) error { return s.fail(ctx, "read", info.Name, err) })
}

func (s *store) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	return s.stat(ctx, "stat", name)
}

func (s *store) stat(ctx context.Context, op, name string) (blobstore.Info, error) {
	if err := s.check(op, name); err != nil {
		return blobstore.Info{}, err
	}
	out, err := s.head(ctx, name)
	if err != nil {
		return blobstore.Info{}, s.fail(ctx, op, name, err)
	}
	return blobstore.Info{Name: name, Size: aws.ToInt64(out.ContentLength), ModTime: utc(out.LastModified), ETag: aws.ToString(out.ETag)}, nil
}

func (s *store) head(ctx context.Context, name string) (*s3.HeadObjectOutput, error) {
	return call(ctx, s, (*s3.Client).HeadObject, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &name, RequestPayer: s.payer})
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
