package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// kinds maps S3's error codes where the HTTP status does not say enough.
// Source: Amazon S3 API Reference, "Error responses".
var kinds = map[string]error{
	"NoSuchKey":                   blobstore.ErrNotExist,
	"NoSuchBucket":                blobstore.ErrNotExist,
	"NoSuchUpload":                blobstore.ErrNotExist,
	"NotFound":                    blobstore.ErrNotExist,
	"InvalidObjectState":          blobstore.ErrUnsupported, // archived
	"PreconditionFailed":          blobstore.ErrExist,
	"ConditionalRequestConflict":  blobstore.ErrTemporary, // 409: another write of the name is going on
	"OperationAborted":            blobstore.ErrTemporary, // 409, the same of a bucket
	"SlowDown":                    blobstore.ErrTemporary,
	"SlowDownRead":                blobstore.ErrTemporary,
	"SlowDownWrite":               blobstore.ErrTemporary,
	"Throttling":                  blobstore.ErrTemporary,
	"ThrottlingException":         blobstore.ErrTemporary,
	"RequestLimitExceeded":        blobstore.ErrTemporary,
	"TooManyRequests":             blobstore.ErrTemporary,
	"TooManyRequestsException":    blobstore.ErrTemporary,
	"ServiceUnavailable":          blobstore.ErrTemporary,
	"InternalError":               blobstore.ErrTemporary,
	"RequestTimeout":              blobstore.ErrTemporary, // 400: the body came too slowly
	"RequestTimeTooSkewed":        blobstore.ErrTemporary, // 403: the SDK corrects its clock by the answer
	"BadDigest":                   blobstore.ErrDataCorrupt,
	"XAmzContentChecksumMismatch": blobstore.ErrDataCorrupt,
	"XAmzContentSHA256Mismatch":   blobstore.ErrDataCorrupt,
	"NotImplemented":              blobstore.ErrUnsupported,
	"InvalidAccessKeyId":          blobstore.ErrPermission,
	"SignatureDoesNotMatch":       blobstore.ErrPermission,
	"InvalidToken":                blobstore.ErrPermission, // 400
	"ExpiredToken":                blobstore.ErrPermission, // 400
	"KMS.DisabledException":       blobstore.ErrPermission,
	"KMS.NotFoundException":       blobstore.ErrPermission,
	"KeyTooLongError":             blobstore.ErrInvalidName,
}

func (s *store) fail(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	address := s.url
	if name != "" {
		address += "/" + name
	}
	return objectstore.Fail(ctx, op, address, s.plain(err))
}

// plain says in one line, without request IDs and headers, what the SDK reports
// by a chain of wrappers.
func (s *store) plain(err error) error {
	var done *blobstore.Error
	var resp *smithyhttp.ResponseError
	var api smithy.APIError
	status := 0
	if errors.As(err, &resp) && resp.Response != nil {
		status = resp.HTTPStatusCode()
	}
	switch {
	case errors.As(err, &done):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &api):
		code, message := api.ErrorCode(), api.ErrorMessage()
		if message == code || code == "NotFound" || code == "Forbidden" { // of a HEAD, which has no body
			message = ""
		}
		if status == http.StatusMovedPermanently {
			return errors.New("the bucket has another endpoint or region: set endpoint=… or region=…")
		}
		if kind := kinds[code]; kind != nil {
			switch code {
			case "NoSuchKey", "NotFound", "PreconditionFailed":
				return kind
			case "NoSuchBucket":
				return fmt.Errorf("bucket %w", kind)
			}
			return delayed(resp, fmt.Errorf("%w (%s, HTTP %d)", kind, join(code, message), status))
		}
		if code == "UnknownError" {
			code = ""
		}
		return delayed(resp, objectstore.Answer(status, code, message))
	}
	for _, sentinel := range []error{
		blobstore.ErrNotExist, blobstore.ErrExist, blobstore.ErrPermission, blobstore.ErrUnsupported,
		blobstore.ErrTemporary, blobstore.ErrDataCorrupt, blobstore.ErrClosed, blobstore.ErrInvalidName,
	} {
		if errors.Is(err, sentinel) {
			return err
		}
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "failed to refresh cached credentials"), strings.Contains(text, "failed to retrieve credentials"),
		strings.Contains(text, "get credentials:"):
		if e := objectstore.Network(err); e != nil && !strings.Contains(text, "IMDS") {
			return fmt.Errorf("getting credentials: %w", e)
		}
		return fmt.Errorf("%w: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or s3.access-key and s3.secret-key, or add anonymous=true to the URL", blobstore.ErrPermission)
	case strings.Contains(text, "checksum did not match"):
		return fmt.Errorf("%w: %s", blobstore.ErrDataCorrupt, "the data read do not have the checksum stored with them")
	}
	if e := objectstore.Network(err); e != nil {
		return e
	}
	if status != 0 {
		return objectstore.Answer(status, "", "an answer that is not S3's")
	}
	return errors.New(oneLine(err))
}

// delayed adds the time that a throttling server asks to wait.
func delayed(resp *smithyhttp.ResponseError, err error) error {
	if resp == nil || resp.Response == nil {
		return err
	}
	return objectstore.RetryAfter(resp.Response.Header, err)
}

func join(code, message string) string {
	message = strings.TrimSuffix(strings.Join(strings.Fields(message), " "), ".")
	if message == "" {
		return code
	}
	return code + ": " + message
}

// oneLine is the innermost message of the SDK's chain.
func oneLine(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.Join(strings.Fields(err.Error()), " ")
		}
		err = inner
	}
}

// movedTo gives the region the bucket is in, when the answer says that it is
// another than the request was signed for.
func movedTo(err error) string {
	var resp *smithyhttp.ResponseError
	if !errors.As(err, &resp) || resp.Response == nil {
		return ""
	}
	switch resp.HTTPStatusCode() {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusBadRequest:
		return resp.Response.Header.Get("X-Amz-Bucket-Region")
	}
	return ""
}
