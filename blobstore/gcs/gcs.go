// Package gcs is the blobstore driver of Google Cloud Storage. Import it for its
// effect: it registers the scheme gs.
//
// It speaks the JSON API over net/http. Google's own client library links gRPC
// and xDS: 24 MB more in the binary and, in every process that links it, 17 MB
// more memory and 5 ms before main.
//
// Credentials are Google's application default ones (GOOGLE_APPLICATION_CREDENTIALS,
// gcloud's, workload identity, the metadata server), or a key file given by Flink's
// key, or none.
//
//	parameter      key                                                meaning
//	endpoint       gs.storage.root.url, fs.gs.…; STORAGE_EMULATOR_HOST  address of the server
//	anonymous      gs.auth.type = UNAUTHENTICATED, fs.gs.…            unsigned requests
//	-              gs.auth.service.account.json.keyfile, fs.gs.…      key file
//	user_project   fs.gs.requester.pays.project.id                    who pays
//	list           -                                                  sort: the server lists out of order
//	part_size      -                                                  bytes of a chunk, a multiple of 256 KiB
//	page_size      -                                                  names in one answer to a listing
//	timeout        -                                                  longest silence of the server, 60s
//
// There is no ListTemporary: an unfinished resumable upload cannot be listed,
// costs nothing and is dropped by the store after a week. Abort drops it at once.
package gcs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

func init() { blobstore.Register(open, "gs") }

const (
	defaultEndpoint = "https://storage.googleapis.com"
	scope           = "https://www.googleapis.com/auth/devstorage.read_write"
	chunkUnit       = 256 << 10 // every chunk but the last is a multiple
)

type settings struct {
	bucket      string
	endpoint    string
	anonymous   bool
	keyFile     string
	userProject string
	sort        bool
	partSize    int64
	pageSize    int64
	timeout     time.Duration
}

type store struct {
	settings
	url    string
	http   *http.Client
	lister objectstore.Lister

	mu     sync.Mutex
	tokens oauth2.TokenSource // nil until the first request, and if anonymous
}

func open(_ context.Context, loc blobstore.Location, opts *blobstore.Options) (blobstore.Store, error) {
	root := loc.Root()
	address := root.String()
	set, err := read(root, opts)
	if err != nil {
		return nil, &blobstore.Error{Op: "open", URL: address, Err: err}
	}
	s := &store{settings: *set, url: address, http: objectstore.NewClient(set.timeout)}
	s.lister = objectstore.Lister{
		Page: s.page,
		Sort: s.sort,
		Op:   func(err error) error { return &blobstore.Error{Op: "list", URL: s.url, Err: err} },
	}
	if opts != nil {
		s.lister.Logger = opts.Logger
	}
	return s, nil
}

func read(loc blobstore.Location, opts *blobstore.Options) (*settings, error) {
	in := objectstore.NewSettings(loc, opts)
	if loc.Authority == "" {
		return nil, fmt.Errorf("no bucket in the URL: %w", blobstore.ErrInvalidName)
	}
	keys := func(name string) []string { return []string{"gs." + name, "fs.gs." + name} }
	set := &settings{bucket: loc.Authority}
	set.endpoint = in.Endpoint(false, keys("storage.root.url")...)
	emulator := false
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); host != "" && set.endpoint == "" {
		if !strings.Contains(host, "://") {
			host = "http://" + host
		}
		set.endpoint, emulator = strings.TrimSuffix(host, "/"), true
	}
	if set.endpoint == "" {
		set.endpoint = defaultEndpoint
	}
	set.anonymous = in.Bool("anonymous", emulator || strings.EqualFold(in.Config(keys("auth.type")...), "UNAUTHENTICATED"))
	set.keyFile = in.Config(append(keys("auth.service.account.json.keyfile"), "google.cloud.auth.service.account.json.keyfile")...)
	if set.userProject = in.Param("user_project"); set.userProject == "" {
		set.userProject = in.Config(keys("requester.pays.project.id")...)
	}
	set.sort = in.OneOf("list", "stream", "sort") == "sort"
	set.partSize = in.Size("part_size", 16<<20, chunkUnit)
	set.pageSize = min(in.Size("page_size", 1000, 1), 1000)
	set.partSize -= set.partSize % chunkUnit
	set.timeout = in.Duration("timeout", objectstore.DefaultTimeout)
	return set, in.Err()
}

// token gives the Authorization header, "" if requests are anonymous.
func (s *store) token() (string, error) {
	if s.anonymous {
		return "", nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil {
		// The source outlives the request: its context is not the caller's. Its
		// connections are limited like ours.
		ctx := context.WithValue(context.Background(), oauth2.HTTPClient, objectstore.NewClient(s.timeout))
		creds, err := s.credentials(ctx)
		if err != nil {
			return "", err
		}
		s.tokens = oauth2.ReuseTokenSource(nil, creds.TokenSource)
		if s.userProject == "" {
			var file struct {
				QuotaProject string `json:"quota_project_id"`
			}
			if json.Unmarshal(creds.JSON, &file) == nil {
				s.userProject = file.QuotaProject
			}
		}
	}
	t, err := s.tokens.Token()
	if err != nil {
		if e := objectstore.Network(err); e != nil {
			return "", fmt.Errorf("getting a token: %w", e)
		}
		var refused *oauth2.RetrieveError
		if errors.As(err, &refused) && refused.Response != nil {
			return "", fmt.Errorf("getting a token: %w", objectstore.Answer(refused.Response.StatusCode, refused.ErrorCode, refused.ErrorDescription))
		}
		return "", fmt.Errorf("%w: no token from Google's credentials", blobstore.ErrPermission)
	}
	return t.Type() + " " + t.AccessToken, nil
}

func (s *store) credentials(ctx context.Context) (*google.Credentials, error) {
	if s.keyFile == "" {
		creds, err := google.FindDefaultCredentials(ctx, scope)
		if err != nil {
			return nil, fmt.Errorf("%w: no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS or gs.auth.service.account.json.keyfile, run gcloud auth application-default login, or add anonymous=true to the URL", blobstore.ErrPermission)
		}
		return creds, nil
	}
	data, err := os.ReadFile(s.keyFile)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	creds, err := google.CredentialsFromJSONWithType(ctx, data, google.ServiceAccount, scope)
	if err != nil {
		return nil, fmt.Errorf("key file %s is not the key of a service account", s.keyFile)
	}
	return creds, nil
}

// request is one call of the JSON API.
type request struct {
	method string
	path   string // below the endpoint, escaped; or a whole URL, of an upload's session
	query  url.Values
	header http.Header
	body   []byte
}

func (s *store) object(name string) string {
	return "/storage/v1/b/" + url.PathEscape(s.bucket) + "/o/" + url.PathEscape(name)
}

// do sends r and returns an answer with one of the wanted status codes; any other
// is an error. The caller closes the body.
func (s *store) do(ctx context.Context, r request, wanted ...int) (*http.Response, error) {
	auth, err := s.token()
	if err != nil {
		return nil, err
	}
	address := r.path
	if strings.HasPrefix(address, "/") {
		address = s.endpoint + address
	}
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(r.body))
	if err != nil {
		return nil, errors.New("the server's address is not a URL")
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if s.userProject != "" {
		req.Header.Set("X-Goog-User-Project", s.userProject)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if e := objectstore.Network(err); e != nil {
			return nil, e
		}
		return nil, errors.New("the request could not be sent")
	}
	for _, w := range wanted {
		if resp.StatusCode == w {
			return resp, nil
		}
	}
	defer drain(resp)
	return nil, refusal(resp)
}

// call is do for an answer that is JSON, or of no interest (out nil).
func (s *store) call(ctx context.Context, r request, out any) error {
	resp, err := s.do(ctx, r, http.StatusOK, http.StatusNoContent)
	if err != nil {
		return err
	}
	defer drain(resp)
	if out == nil {
		return nil
	}
	return decode(resp.Body, out)
}

func decode(body io.Reader, out any) error {
	if err := json.NewDecoder(io.LimitReader(body, 64<<20)).Decode(out); err != nil {
		if e := objectstore.Network(err); e != nil {
			return e
		}
		return fmt.Errorf("%w: the answer is not JSON", blobstore.ErrTemporary)
	}
	return nil
}

func drain(resp *http.Response) {
	io.Copy(io.Discard, io.LimitReader(resp.Body, 256<<10)) // so that the connection is used again
	resp.Body.Close()
}

// refusal reads {"error":{"code":…,"message":…,"errors":[{"reason":…}]}}.
// Source: Cloud Storage, "HTTP status and error codes for JSON".
func refusal(resp *http.Response) error {
	var e struct {
		Error struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(body, &e) != nil {
		e.Error.Message = "" // XML or HTML of a proxy
	}
	var reason string
	if len(e.Error.Errors) > 0 {
		reason = e.Error.Errors[0].Reason
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		if strings.Contains(e.Error.Message, "bucket does not exist") {
			return errNoBucket
		}
		return blobstore.ErrNotExist
	case resp.StatusCode == http.StatusPreconditionFailed:
		return blobstore.ErrExist
	case resp.StatusCode == http.StatusForbidden && (reason == "rateLimitExceeded" || reason == "userRateLimitExceeded"):
		return objectstore.RetryAfter(resp.Header, fmt.Errorf("%w (%s)", blobstore.ErrTemporary, reason))
	case resp.StatusCode == http.StatusGone: // an upload's session has been ended
		return fmt.Errorf("%w (upload session ended, HTTP 410)", blobstore.ErrNotExist)
	}
	return objectstore.RetryAfter(resp.Header, objectstore.Answer(resp.StatusCode, reason, e.Error.Message))
}

var errNoBucket = fmt.Errorf("bucket %w", blobstore.ErrNotExist)

func (s *store) fail(ctx context.Context, op, name string, err error) error {
	address := s.url
	if name != "" {
		address += "/" + name
	}
	return objectstore.Fail(ctx, op, address, err)
}

// check refuses names that no store has.
func (s *store) check(op, name string) error {
	if err := objectstore.CheckName(name); err != nil {
		return &blobstore.Error{Op: op, URL: s.url + "/" + name, Err: err}
	}
	return nil
}

// checkNew refuses names that a new object cannot have.
func (s *store) checkNew(ctx context.Context, op, name string) error {
	err := blobstore.ValidNewName(name)
	if err == nil && strings.ContainsAny(name, "\r\n") {
		err = fmt.Errorf("%w: Google Cloud Storage has no line breaks in names", blobstore.ErrInvalidName)
	}
	return s.fail(ctx, op, name, cmp.Or(err, ctx.Err()))
}

func (s *store) URL() string { return s.url }

func (s *store) Capabilities() blobstore.Capabilities {
	return blobstore.Capabilities{ExclusiveCreate: true, ServerCopy: true}
}

// Close drops idle connections.
func (s *store) Close() error {
	s.http.CloseIdleConnections()
	return nil
}
