package s3

import (
	"context"
	"iter"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

func (s *store) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	return s.lister.List(ctx, opts)
}

func (s *store) page(ctx context.Context, prefix string, delimiter bool, startAfter, token string) (objectstore.Page, error) {
	in := &s3.ListObjectsV2Input{
		Bucket:       &s.bucket,
		Prefix:       &prefix,
		RequestPayer: s.payer,
		MaxKeys:      &s.pageSize,
		EncodingType: types.EncodingTypeUrl, // XML has no place for some characters
	}
	if delimiter {
		in.Delimiter = aws.String("/")
	}
	if startAfter != "" {
		in.StartAfter = &startAfter
	}
	if token != "" {
		in.ContinuationToken = &token
	}
	out, err := call(ctx, s, (*s3.Client).ListObjectsV2, in)
	if err != nil {
		return objectstore.Page{}, s.fail(ctx, "list", prefix, err)
	}
	page := objectstore.Page{Entries: make([]blobstore.Info, 0, len(out.Contents)+len(out.CommonPrefixes))}
	for _, o := range out.Contents {
		name, err := decode(out.EncodingType, o.Key)
		if err != nil {
			return page, s.fail(ctx, "list", prefix, err)
		}
		page.Entries = append(page.Entries, blobstore.Info{
			Name: name, Size: aws.ToInt64(o.Size), ModTime: utc(o.LastModified), ETag: aws.ToString(o.ETag),
		})
	}
	for _, p := range out.CommonPrefixes {
		name, err := decode(out.EncodingType, p.Prefix)
		if err != nil {
			return page, s.fail(ctx, "list", prefix, err)
		}
		page.Entries = append(page.Entries, blobstore.Info{Name: name, IsPrefix: true})
	}
	if aws.ToBool(out.IsTruncated) {
		page.Next = aws.ToString(out.NextContinuationToken)
	}
	return page, nil
}

// decode undoes the encoding of names that was asked for, unless the server has
// ignored that.
func decode(encoding types.EncodingType, name *string) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return aws.ToString(name), nil
	}
	return url.QueryUnescape(aws.ToString(name))
}
