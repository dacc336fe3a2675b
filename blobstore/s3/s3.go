// Package s3 is the blobstore driver of Amazon S3 and of servers that speak its
// protocol. Import it for its effect: it registers the scheme s3, to which
// Flink's s3a, s3p and s3n are normalized.
//
// Credentials, region and endpoint come from, in this order: the parameters of
// the URL (never secrets), Options.Config by Flink's and Hadoop's keys, and the
// AWS SDK's own chain (environment, shared files, web identity, container and
// instance roles).
//
//	parameter        key                                       meaning
//	endpoint         s3.endpoint, fs.s3a.endpoint              address of the server
//	region           s3.region, fs.s3a.endpoint.region         else asked of AWS
//	use_path_style   s3.path.style.access, fs.s3a.path.…       bucket in the path, not the host
//	anonymous        fs.s3a.aws.credentials.provider           unsigned requests
//	-                s3.access-key, fs.s3a.access.key
//	-                s3.secret-key, fs.s3a.secret.key
//	-                s3.session-token, fs.s3a.session.token
//	-                fs.s3a.encryption.algorithm and .key      SSE-S3 or SSE-KMS of what is written
//	requester_pays   fs.s3a.requester.pays.enabled
//	checksum         -                                         crc32c (AWS), md5 (others), none
//	if_absent        -                                         false: the server ignores If-None-Match
//	list             -                                         sort: the server lists out of order
//	part_size        -                                         bytes, at least 5 MiB
//	page_size        -                                         names in one answer to a listing
//	timeout          -                                         longest silence of the server, 60s
//
// Not used are names with characters that XML cannot express (most below U+0020).
//
// A key fs.s3a.bucket.NAME.x goes before fs.s3a.x.
//
// The SDK's own retries are off: it stops them early under throttling by a
// process-wide quota, and blobstore's retry decorator has its budget to itself.
// Only the requests of a writer, which cannot be replayed from outside, are
// tried up to five times.
package s3

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

func init() { blobstore.Register(open, "s3") }

const (
	maxParts   = 10_000
	minPart    = 5 << 20
	maxCopy    = 5 << 30 // of one CopyObject
	bulkDelete = 1000    // names in one DeleteObjects
)

type settings struct {
	bucket         string
	endpoint       string
	region         string
	pathStyle      bool
	anonymous      bool
	access, secret string
	session        string
	encryption     types.ServerSideEncryption
	encryptionKey  string
	payer          types.RequestPayer
	checksum       string
	ifAbsent       bool
	sort           bool
	partSize       int64
	pageSize       int32
	timeout        time.Duration
}

type store struct {
	settings
	url    string
	lister objectstore.Lister

	mu     sync.Mutex
	cfg    *aws.Config // nil until the first request
	client *s3.Client
}

// open checks the settings and no more: credentials are looked for, and the
// server is called, by the first operation.
func open(_ context.Context, loc blobstore.Location, opts *blobstore.Options) (blobstore.Store, error) {
	root := loc.Root()
	address := root.String()
	set, err := read(root, opts)
	if err != nil {
		return nil, &blobstore.Error{Op: "open", URL: address, Err: err}
	}
	s := &store{settings: *set, url: address}
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
	// keys gives the spellings of one of Hadoop's settings, the nearest first.
	// Flink passes s3.x and s3a.x on as fs.s3a.x, and has "-" for some dots.
	keys := func(names ...string) (all []string) {
		for _, prefix := range []string{"fs.s3a.bucket." + loc.Authority + ".", "s3.", "s3a.", "fs.s3a."} {
			for _, n := range names {
				all = append(all, prefix+n)
			}
		}
		return all
	}
	set := &settings{bucket: loc.Authority}
	plain := in.Config(keys("connection.ssl.enabled")...) == "false"
	set.endpoint = in.Endpoint(plain, keys("endpoint")...)
	if set.region = in.Param("region"); set.region == "" {
		set.region = in.Config(keys("region", "endpoint.region")...)
	}
	set.pathStyle = in.Bool("use_path_style", singleLabel(set.endpoint), keys("path.style.access", "path-style-access")...)
	provider := in.Config(keys("aws.credentials.provider")...)
	set.anonymous = in.Bool("anonymous", strings.Contains(provider, "Anonymous"))
	set.access = in.Config(keys("access-key", "access.key")...)
	set.secret = in.Config(keys("secret-key", "secret.key")...)
	set.session = in.Config(keys("session-token", "session.token")...)
	if (set.access == "") != (set.secret == "") {
		return nil, fmt.Errorf("only one of s3.access-key and s3.secret-key is set")
	}
	switch alg := in.Config(keys("encryption.algorithm", "server-side-encryption-algorithm")...); alg {
	case "":
	case "AES256":
		set.encryption = types.ServerSideEncryptionAes256
	case "SSE-KMS":
		set.encryption = types.ServerSideEncryptionAwsKms
	case "DSSE-KMS":
		set.encryption = types.ServerSideEncryptionAwsKmsDsse
	default:
		return nil, fmt.Errorf("encryption %q: %w", alg, blobstore.ErrUnsupported)
	}
	if set.encryption != "" && set.encryption != types.ServerSideEncryptionAes256 {
		set.encryptionKey = in.Config(keys("encryption.key", "server-side-encryption.key")...)
	}
	if in.Bool("requester_pays", false, keys("requester.pays.enabled")...) {
		set.payer = types.RequestPayerRequester
	}
	switch set.checksum = in.OneOf("checksum", "auto", "crc32c", "md5", "none"); {
	case set.checksum != "auto":
	case set.endpoint == "":
		set.checksum = "crc32c"
	default:
		set.checksum = "md5" // as old as S3, while servers disagree about the newer ones
	}
	set.ifAbsent = in.Bool("if_absent", true)
	set.sort = in.OneOf("list", "stream", "sort") == "sort"
	set.partSize = in.Size("part_size", 0, minPart)
	set.pageSize = int32(min(in.Size("page_size", 1000, 1), 1000))
	set.timeout = in.Duration("timeout", objectstore.DefaultTimeout)
	return set, in.Err()
}

// singleLabel says whether the endpoint's host cannot have the bucket as a
// subdomain. (The SDK itself sees to addresses.)
func singleLabel(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Hostname() != "" && !strings.Contains(u.Hostname(), ".")
}

// connect makes the client at its first use.
func (s *store) connect(ctx context.Context) (*s3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	if s.cfg == nil {
		cfg, err := s.load(ctx)
		if err != nil {
			return nil, err
		}
		s.cfg = &cfg
	}
	if s.cfg.Region == "" {
		region, err := s.findRegion(ctx)
		if err != nil {
			return nil, err
		}
		s.cfg.Region = region
	}
	s.client = s.newClient()
	return s.client, nil
}

func (s *store) load(ctx context.Context) (aws.Config, error) {
	hc := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		objectstore.Limit(t, s.timeout)
	})
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(hc),
		config.WithLogger(logging.Nop{}),
		config.WithLogConfigurationWarnings(false),
	}
	if s.region != "" {
		load = append(load, config.WithRegion(s.region))
	}
	if s.anonymous {
		load = append(load, config.WithCredentialsProvider(aws.AnonymousCredentials{}))
	} else if s.access != "" {
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(s.access, s.secret, s.session)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return cfg, fmt.Errorf("AWS configuration: %s", oneLine(err))
	}
	return cfg, nil
}

// newClient needs s.mu.
func (s *store) newClient() *s3.Client {
	return s3.NewFromConfig(*s.cfg, func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.UsePathStyle = s.pathStyle
		if s.endpoint != "" {
			o.BaseEndpoint = &s.endpoint
		}
		// Checksums are ours to choose: the SDK's default sends chunked bodies with
		// trailers, which many servers do not read, and complains on stderr.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
		o.Logger = logging.Nop{}
		o.ClientLogMode = 0
	})
}

// regionProbe answers an unsigned HEAD of any bucket with its region.
var regionProbe = "https://s3.us-east-1.amazonaws.com"

// findRegion is for a bucket whose region nobody has told us.
func (s *store) findRegion(ctx context.Context) (string, error) {
	const anywhere = "us-east-1"
	if s.endpoint != "" || s.cfg.BaseEndpoint != nil {
		return anywhere, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, regionProbe+"/"+url.PathEscape(s.bucket), nil)
	if err != nil {
		return "", err
	}
	resp, err := s.cfg.HTTPClient.Do(req)
	if err != nil {
		if e := objectstore.Network(err); e != nil {
			err = e
		}
		return "", fmt.Errorf("asking for the bucket's region (set region=… to avoid it): %w", err)
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	resp.Body.Close()
	if r := resp.Header.Get("X-Amz-Bucket-Region"); r != "" {
		return r, nil
	}
	if resp.StatusCode == http.StatusNotFound {
		return "", fmt.Errorf("bucket %w", blobstore.ErrNotExist)
	}
	return anywhere, nil
}

// moveTo changes the region to the one the bucket is in, once.
func (s *store) moveTo(region string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg == nil || s.cfg.Region == region {
		return false
	}
	s.cfg.Region = region
	s.client = s.newClient()
	return true
}

// call does one request. A bucket in another region than expected is followed.
func call[In, Out any](ctx context.Context, s *store, f func(*s3.Client, context.Context, *In, ...func(*s3.Options)) (*Out, error), in *In) (*Out, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	out, err := f(c, ctx, in)
	if err == nil {
		return out, nil
	}
	if region := movedTo(err); region != "" && s.moveTo(region) {
		if err := rewind(in); err != nil {
			return nil, err
		}
		s.mu.Lock()
		c = s.client
		s.mu.Unlock()
		out, err = f(c, ctx, in)
	}
	return out, err
}

func rewind(in any) error {
	var body io.Reader
	switch in := in.(type) {
	case *s3.PutObjectInput:
		body = in.Body
	case *s3.UploadPartInput:
		body = in.Body
	}
	if seeker, ok := body.(io.Seeker); ok {
		_, err := seeker.Seek(0, io.SeekStart)
		return err
	}
	return nil
}

func (s *store) URL() string { return s.url }

func (s *store) Capabilities() blobstore.Capabilities {
	return blobstore.Capabilities{ExclusiveCreate: s.ifAbsent, ServerCopy: true}
}

// Close drops idle connections.
func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg != nil {
		if c, ok := s.cfg.HTTPClient.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
	return nil
}
