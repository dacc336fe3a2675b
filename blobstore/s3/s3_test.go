package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

const secret = "hush-hush-hush"

// lonely hides the credentials and settings of the machine.
func lonely(t *testing.T) {
	for _, k := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CA_BUNDLE",
	} {
		t.Setenv(k, "")
	}
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func openTest(t *testing.T, url string, config map[string]string) *store {
	loc, err := blobstore.Parse(url)
	require.NoError(t, err)
	s, err := open(t.Context(), loc, &blobstore.Options{Config: config})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s.(*store)
}

var keys = map[string]string{"s3.access-key": "AKTEST", "s3.secret-key": secret}

func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		config map[string]string
		want   settings
	}{
		"defaults": {"", nil, settings{checksum: "crc32c", ifAbsent: true}},
		"parameters": {
			"endpoint=http://h:1/&region=r&use_path_style=true&anonymous=true&checksum=none&if_absent=false&part_size=6000000&timeout=2s&list=sort&page_size=7", nil,
			settings{
				endpoint: "http://h:1", region: "r", pathStyle: true, anonymous: true, checksum: "none", sort: true,
				partSize: 6000000, timeout: 2 * time.Second, pageSize: 7,
			},
		},
		"Flink": {"", map[string]string{
			"s3.access-key": "a", "s3.secret-key": "s", "s3.endpoint": "http://minio.local:9000", "s3.path.style.access": "true", "s3.region": "eu",
		}, settings{access: "a", secret: "s", endpoint: "http://minio.local:9000", pathStyle: true, region: "eu", checksum: "md5", ifAbsent: true}},
		"Hadoop": {"", map[string]string{
			"fs.s3a.access.key": "a", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t", "fs.s3a.endpoint": "oss.local",
			"fs.s3a.endpoint.region": "eu", "fs.s3a.connection.ssl.enabled": "false", "fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "k",
			"fs.s3a.requester.pays.enabled": "true",
		}, settings{
			access: "a", secret: "s", session: "t", endpoint: "http://oss.local", region: "eu", checksum: "md5", ifAbsent: true,
			encryption: "aws:kms", encryptionKey: "k", payer: "requester",
		}},
		"of one bucket":       {"", map[string]string{"fs.s3a.bucket.b.endpoint": "https://x.y", "fs.s3a.endpoint": "https://z.z"}, settings{endpoint: "https://x.y", checksum: "md5", ifAbsent: true}},
		"host without domain": {"endpoint=http://minio:9000", nil, settings{endpoint: "http://minio:9000", pathStyle: true, checksum: "md5", ifAbsent: true}},
		"anonymous by Hadoop": {"", map[string]string{"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}, settings{anonymous: true, checksum: "crc32c", ifAbsent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.bucket = "b"
			if c.want.timeout == 0 {
				c.want.timeout, c.want.pageSize = time.Minute, 1000
			}
			got, err := read(blobstore.Location{Scheme: "s3", Authority: "b", Query: c.query}, &blobstore.Options{Config: c.config})
			require.NoError(t, err)
			require.Equal(t, c.want, *got)
		})
	}
	for name, c := range map[string]struct {
		query  string
		config map[string]string
		want   string
	}{
		"half a key":         {"", map[string]string{"s3.access-key": secret}, "only one of"},
		"a secret parameter": {"secret_key=" + secret, nil, "unknown URL parameter"},
		"small parts":        {"part_size=1000", nil, "at least 5242880"},
		"customer keys":      {"", map[string]string{"fs.s3a.encryption.algorithm": "SSE-C"}, "not supported"},
		"password":           {"endpoint=http://u:" + secret + "@h", nil, "not an address"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(blobstore.Location{Scheme: "s3", Authority: "b", Query: c.query}, &blobstore.Options{Config: c.config})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestErrors(t *testing.T) {
	lonely(t)
	for name, c := range map[string]struct {
		status        int
		code, message string
		is            error
		text          string
	}{
		"no key":        {404, "NoSuchKey", "The specified key does not exist.", blobstore.ErrNotExist, "does not exist"},
		"no bucket":     {404, "NoSuchBucket", "The specified bucket does not exist", blobstore.ErrNotExist, "bucket does not exist"},
		"denied":        {403, "AccessDenied", "Access Denied", blobstore.ErrPermission, "access denied (AccessDenied: Access Denied, HTTP 403)"},
		"wrong secret":  {403, "SignatureDoesNotMatch", "The request signature…", blobstore.ErrPermission, "access denied"},
		"expired":       {400, "ExpiredToken", "The provided token has expired.", blobstore.ErrPermission, "ExpiredToken"},
		"slow down":     {503, "SlowDown", "Please reduce your request rate.", blobstore.ErrTemporary, "temporary failure (SlowDown: Please reduce your request rate, HTTP 503)"},
		"too many":      {429, "TooManyRequests", "", blobstore.ErrTemporary, "HTTP 429"},
		"conflict":      {409, "ConditionalRequestConflict", "", blobstore.ErrTemporary, "ConditionalRequestConflict"},
		"internal":      {500, "InternalError", "We encountered an internal error.", blobstore.ErrTemporary, "InternalError"},
		"slow body":     {400, "RequestTimeout", "", blobstore.ErrTemporary, "RequestTimeout"},
		"clock":         {403, "RequestTimeTooSkewed", "", blobstore.ErrTemporary, "RequestTimeTooSkewed"},
		"archived":      {403, "InvalidObjectState", "", blobstore.ErrUnsupported, "InvalidObjectState"},
		"not there":     {501, "NotImplemented", "", blobstore.ErrUnsupported, "NotImplemented"},
		"proxy's page":  {502, "", "", blobstore.ErrTemporary, "HTTP 502"},
		"something new": {418, "Teapot", "several\nlines", nil, "Teapot: several lines, HTTP 418"},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(c.status)
				if c.code == "" {
					io.WriteString(w, "<html>Bad gateway</html>")
					return
				}
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message><AWSAccessKeyId>AKTEST</AWSAccessKeyId></Error>", c.code, c.message)
			})
			st := openTest(t, "s3://b/?use_path_style=true&endpoint="+s.URL, keys)
			_, err := st.Open(t.Context(), "x")
			var be *blobstore.Error
			require.ErrorAs(t, err, &be)
			require.Equal(t, "s3://b/x", be.URL)
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "AKTEST")
			for _, kind := range []error{blobstore.ErrNotExist, blobstore.ErrPermission, blobstore.ErrTemporary, blobstore.ErrUnsupported, blobstore.ErrExist} {
				require.Equal(t, kind == c.is, errors.Is(err, kind), "%v is %v", err, kind)
			}
			if c.status == 429 || c.status == 503 {
				var after interface{ RetryAfter() time.Duration }
				require.ErrorAs(t, err, &after)
				require.Equal(t, 3*time.Second, after.RetryAfter())
			}
		})
	}
}

func TestOneTryPerCall(t *testing.T) {
	lonely(t)
	var n atomic.Int64
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { n.Add(1); w.WriteHeader(503) })
	_, err := openTest(t, "s3://b/?use_path_style=true&endpoint="+s.URL, keys).Stat(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	require.EqualValues(t, 1, n.Load(), "retries are the decorator's")
}

func TestRegion(t *testing.T) {
	lonely(t)
	var regions []string
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=AKTEST/")
		if scope == "" { // the question for the region is not signed
			w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
			w.WriteHeader(403)
			return
		}
		region := strings.Split(scope, "/")[1]
		regions = append(regions, region)
		if region != "eu-west-1" {
			w.Header().Set("X-Amz-Bucket-Region", "eu-west-1")
			w.WriteHeader(400)
			return
		}
		w.Header().Set("Content-Length", "3")
	})
	t.Run("followed", func(t *testing.T) {
		regions = nil
		st := openTest(t, "s3://b/?use_path_style=true&region=us-east-1&endpoint="+s.URL, keys)
		for range 2 {
			in, err := st.Stat(t.Context(), "x")
			require.NoError(t, err)
			require.EqualValues(t, 3, in.Size)
		}
		require.Equal(t, []string{"us-east-1", "eu-west-1", "eu-west-1"}, regions)
	})
	t.Run("asked for", func(t *testing.T) {
		old := regionProbe
		regionProbe = s.URL
		defer func() { regionProbe = old }()
		st := openTest(t, "s3://b/", keys)
		_, err := st.connect(t.Context())
		require.NoError(t, err)
		require.Equal(t, "eu-west-1", st.cfg.Region)
	})
}

func TestNoCredentials(t *testing.T) {
	lonely(t)
	s := server(t, func(w http.ResponseWriter, _ *http.Request) { t.Error("nothing to ask for without credentials") })
	_, err := openTest(t, "s3://b/?use_path_style=true&endpoint="+s.URL, nil).Stat(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrPermission)
	require.ErrorContains(t, err, "AWS_ACCESS_KEY_ID")
	require.NotContains(t, err.Error(), "\n")
}

func TestAnonymous(t *testing.T) {
	lonely(t)
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.WriteHeader(403)
		}
	})
	_, err := openTest(t, "s3://b/?use_path_style=true&anonymous=true&endpoint="+s.URL, keys).Stat(t.Context(), "x")
	require.NoError(t, err)
}

// A server that hangs ends the call, also if the caller has set no limit.
func TestSilenceEnds(t *testing.T) {
	lonely(t)
	stop := make(chan struct{})
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", "10")
			w.Write([]byte("half "))
			w.(http.Flusher).Flush()
		}
		<-stop
	})
	defer close(stop)
	st := openTest(t, "s3://b/?use_path_style=true&timeout=200ms&endpoint="+s.URL, keys)
	start := time.Now()
	_, err := st.Stat(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	r, err := st.Open(t.Context(), "x")
	require.NoError(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	require.Equal(t, "half ", string(b))
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	require.ErrorContains(t, err, "read s3://b/x: temporary failure: no answer in time")
	require.Less(t, time.Since(start), 10*time.Second)
}

func TestWrongChecksum(t *testing.T) {
	lonely(t)
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
		io.WriteString(w, "not what was stored")
	})
	r, err := openTest(t, "s3://b/?use_path_style=true&endpoint="+s.URL, keys).Open(t.Context(), "x")
	require.NoError(t, err)
	defer r.Close()
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, blobstore.ErrDataCorrupt)
}

func TestDeleteAll(t *testing.T) {
	lonely(t)
	names := make([]string, 2345)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	t.Run("in bulk", func(t *testing.T) {
		var posts atomic.Int64
		s := server(t, func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, http.MethodPost, r.Method)
			posts.Add(1)
			body, _ := io.ReadAll(r.Body)
			io.WriteString(w, "<DeleteResult>")
			for _, e := range [][3]string{{"n7", "AccessDenied", "no"}, {"n1007", "SlowDown", "slow"}, {"n8", "NoSuchKey", "gone"}} {
				if strings.Contains(string(body), "<Key>"+e[0]+"</Key>") {
					fmt.Fprintf(w, "<Error><Key>%s</Key><Code>%s</Code><Message>%s</Message></Error>", e[0], e[1], e[2])
				}
			}
			io.WriteString(w, "</DeleteResult>")
		})
		err := openTest(t, "s3://b/?use_path_style=true&endpoint="+s.URL, keys).DeleteAll(t.Context(), names)
		require.EqualValues(t, 3, posts.Load())
		require.ErrorIs(t, err, blobstore.ErrPermission)
		require.ErrorIs(t, err, blobstore.ErrTemporary)
		require.NotErrorIs(t, err, blobstore.ErrNotExist)
		require.ErrorContains(t, err, "s3://b/n1007: temporary failure (SlowDown: slow)")
		require.Equal(t, 2, strings.Count(err.Error(), "delete s3://b/n"))
	})
	t.Run("one by one where the server has no bulk", func(t *testing.T) {
		var single atomic.Int64
		s := server(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(501)
				io.WriteString(w, "<Error><Code>NotImplemented</Code></Error>")
				return
			}
			single.Add(1)
			w.WriteHeader(204)
		})
		require.NoError(t, openTest(t, "s3://b/?use_path_style=true&endpoint="+s.URL, keys).DeleteAll(t.Context(), names[:50]))
		require.EqualValues(t, 50, single.Load())
	})
}

func TestWriteSendsChecksum(t *testing.T) {
	lonely(t)
	for checksum, header := range map[string]string{"md5": "Content-Md5", "crc32c": "X-Amz-Checksum-Crc32c", "none": ""} {
		s := server(t, func(w http.ResponseWriter, r *http.Request) {
			for _, h := range []string{"Content-Md5", "X-Amz-Checksum-Crc32c"} {
				require.Equal(t, h == header, r.Header.Get(h) != "", h)
			}
			require.Empty(t, r.Header.Get("Content-Encoding"), "no chunked body with a trailer")
		})
		w, err := openTest(t, "s3://b/?use_path_style=true&checksum="+checksum+"&endpoint="+s.URL, keys).Create(context.Background(), "x", nil)
		require.NoError(t, err)
		io.WriteString(w, "hello")
		require.NoError(t, w.Commit())
	}
}
