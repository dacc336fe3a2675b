package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// kinds maps the service's codes where the HTTP status does not say enough.
// Source: Azure Storage, "Blob service error codes".
var kinds = map[bloberror.Code]error{
	bloberror.BlobNotFound:                     blobstore.ErrNotExist,
	bloberror.ResourceNotFound:                 blobstore.ErrNotExist,
	bloberror.ContainerNotFound:                blobstore.ErrNotExist,
	bloberror.ContainerBeingDeleted:            blobstore.ErrNotExist,
	bloberror.BlobAlreadyExists:                blobstore.ErrExist,
	bloberror.ConditionNotMet:                  blobstore.ErrExist,
	bloberror.TargetConditionNotMet:            blobstore.ErrExist,
	bloberror.BlobArchived:                     blobstore.ErrUnsupported,
	bloberror.BlobBeingRehydrated:              blobstore.ErrUnsupported,
	bloberror.BlobImmutableDueToPolicy:         blobstore.ErrPermission,
	bloberror.LeaseIDMissing:                   blobstore.ErrPermission,
	bloberror.NoAuthenticationInformation:      blobstore.ErrPermission,
	bloberror.InvalidAuthenticationInfo:        blobstore.ErrPermission,
	bloberror.Code("PublicAccessNotPermitted"): blobstore.ErrPermission, // 409
	bloberror.MD5Mismatch:                      blobstore.ErrDataCorrupt,
	bloberror.PendingCopyOperation:             blobstore.ErrTemporary, // 409
	bloberror.ServerBusy:                       blobstore.ErrTemporary,
	bloberror.OperationTimedOut:                blobstore.ErrTemporary,
	bloberror.InternalError:                    blobstore.ErrTemporary,
}

func (s *store) fail(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	address := s.url
	if name != "" {
		address += "/" + name
	}
	return objectstore.Fail(ctx, op, address, plain(err))
}

// plain says in one line, without URLs, what the SDK reports in many.
func plain(err error) error {
	var answer *azcore.ResponseError
	var auth *azidentity.AuthenticationFailedError
	var done *blobstore.Error
	switch {
	case errors.As(err, &done):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case strings.HasPrefix(err.Error(), "DefaultAzureCredential"):
		return fmt.Errorf("%w: %s", blobstore.ErrPermission, noCredential)
	case errors.As(err, &auth):
		return fmt.Errorf("%w: Microsoft Entra ID gives no token for these credentials", blobstore.ErrPermission)
	case errors.As(err, &answer):
		switch code := bloberror.Code(answer.ErrorCode); {
		case code == bloberror.ContainerNotFound:
			return fmt.Errorf("container %w", blobstore.ErrNotExist)
		case kinds[code] == blobstore.ErrNotExist || kinds[code] == blobstore.ErrExist:
			return kinds[code]
		case kinds[code] != nil:
			return fmt.Errorf("%w (%s, HTTP %d)", kinds[code], code, answer.StatusCode)
		case answer.StatusCode == http.StatusNotFound && code == "": // a proxy's, or of a HEAD
			return blobstore.ErrNotExist
		case answer.StatusCode == http.StatusPreconditionFailed:
			return fmt.Errorf("%s, HTTP %d", code, answer.StatusCode)
		default:
			return retryAfter(answer.RawResponse, objectstore.Answer(answer.StatusCode, string(code), ""))
		}
	}
	for _, sentinel := range []error{
		blobstore.ErrNotExist, blobstore.ErrExist, blobstore.ErrPermission, blobstore.ErrUnsupported,
		blobstore.ErrTemporary, blobstore.ErrDataCorrupt, blobstore.ErrClosed, blobstore.ErrInvalidName,
	} {
		if errors.Is(err, sentinel) {
			return err
		}
	}
	if strings.Contains(err.Error(), "Credential: ") {
		return fmt.Errorf("%w: %s", blobstore.ErrPermission, noCredential)
	}
	if e := objectstore.Network(err); e != nil {
		return e
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}

func retryAfter(resp *http.Response, err error) error {
	if resp == nil {
		return err
	}
	return objectstore.RetryAfter(resp.Header, err)
}
