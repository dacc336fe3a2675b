package azure

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

const key = "aHVzaC1odXNoLWh1c2g=" // base64 of nothing real

// lonely hides the credentials of the machine.
func lonely(t *testing.T) {
	for _, k := range []string{
		"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING",
		"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE",
	} {
		t.Setenv(k, "")
	}
}

func openTest(t *testing.T, h http.HandlerFunc, params string, config map[string]string) *store {
	lonely(t)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	loc, err := blobstore.Parse("azblob://c@acct/?endpoint=" + s.URL + "/acct" + params)
	require.NoError(t, err)
	st, err := open(t.Context(), loc, &blobstore.Options{Config: config})
	require.NoError(t, err)
	t.Cleanup(func() { st.Close() })
	return st.(*store)
}

func TestSettings(t *testing.T) {
	const public = "https://acct.blob.core.windows.net"
	for name, c := range map[string]struct {
		url    string
		env    map[string]string
		config map[string]string
		want   settings
	}{
		"no credentials":        {"azblob://c@acct/", nil, nil, settings{endpoint: public}},
		"abfss, key by dfs":     {"abfss://c@acct.dfs.core.windows.net/x", nil, map[string]string{"fs.azure.account.key.acct.dfs.core.windows.net": key}, settings{endpoint: public, key: key}},
		"wasb, key by blob":     {"wasb://c@acct.blob.core.windows.net/x", nil, map[string]string{"fs.azure.account.key.acct.blob.core.windows.net": key}, settings{endpoint: public, key: key}},
		"key by name":           {"azblob://c@acct/", nil, map[string]string{"fs.azure.account.key.acct": key}, settings{endpoint: public, key: key}},
		"another's key":         {"azblob://c@acct/", nil, map[string]string{"fs.azure.account.key.other": key}, settings{endpoint: public}},
		"sovereign cloud":       {"abfss://c@acct.dfs.core.chinacloudapi.cn/", nil, map[string]string{"fs.azure.account.key.acct.dfs.core.chinacloudapi.cn": key}, settings{endpoint: "https://acct.blob.core.chinacloudapi.cn", key: key}},
		"environment":           {"azblob://c/", map[string]string{"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_KEY": key}, nil, settings{endpoint: public, key: key}},
		"another's environment": {"azblob://c@acct/", map[string]string{"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": key}, nil, settings{endpoint: public}},
		"SAS":                   {"azblob://c@acct/", map[string]string{"AZURE_STORAGE_SAS_TOKEN": "?sig=x"}, nil, settings{endpoint: public, sas: "sig=x"}},
		"SAS of a container":    {"abfss://c@acct.dfs.core.windows.net/", nil, map[string]string{"fs.azure.sas.c.acct.dfs.core.windows.net": "sig=x"}, settings{endpoint: public, sas: "sig=x"}},
		"connection string": {"azblob://c/", map[string]string{
			"AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=" + key + ";BlobEndpoint=http://127.0.0.1:1/acct;",
		}, nil, settings{endpoint: "http://127.0.0.1:1/acct", key: key}},
		"service principal": {"azblob://c@acct/", nil, map[string]string{
			"fs.azure.account.oauth2.client.id": "id", "fs.azure.account.oauth2.client.secret": "s",
			"fs.azure.account.oauth2.client.endpoint.acct.dfs.core.windows.net": "https://login.microsoftonline.com/tenant/oauth2/token",
		}, settings{endpoint: public, oauth: oauth{clientID: "id", secret: "s", tenant: "tenant"}}},
		"parameters": {"azblob://c@acct/?endpoint=http://h:1/acct&anonymous=true&list=sort&part_size=9&page_size=8&timeout=2s", nil, nil, settings{
			endpoint: "http://h:1/acct", anonymous: true, sort: true, partSize: 9, pageSize: 8, timeout: 2 * time.Second,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			lonely(t)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			loc, err := blobstore.Parse(c.url)
			require.NoError(t, err)
			got, err := read(loc.Root(), &blobstore.Options{Config: c.config})
			require.NoError(t, err)
			c.want.container, c.want.account = "c", "acct"
			if c.want.timeout == 0 {
				c.want.timeout, c.want.pageSize = time.Minute, 5000
			}
			require.Equal(t, c.want, *got)
		})
	}
	lonely(t)
	_, err := read(blobstore.Location{Scheme: "azblob", Authority: "c"}, nil)
	require.ErrorContains(t, err, "AZURE_STORAGE_ACCOUNT")
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		code   string
		is     error
		text   string
	}{
		"absent":       {404, "BlobNotFound", blobstore.ErrNotExist, "open azblob://c@acct/x: does not exist"},
		"no container": {404, "ContainerNotFound", blobstore.ErrNotExist, "container does not exist"},
		"wrong key":    {403, "AuthenticationFailed", blobstore.ErrPermission, "access denied (AuthenticationFailed, HTTP 403)"},
		"not public":   {409, "PublicAccessNotPermitted", blobstore.ErrPermission, "HTTP 409"},
		"busy":         {503, "ServerBusy", blobstore.ErrTemporary, "temporary failure (ServerBusy, HTTP 503)"},
		"late":         {500, "OperationTimedOut", blobstore.ErrTemporary, "OperationTimedOut"},
		"archived":     {409, "BlobArchived", blobstore.ErrUnsupported, "BlobArchived"},
		"leased":       {412, "LeaseIdMissing", blobstore.ErrPermission, "LeaseIdMissing"},
		"other 412":    {412, "SomethingElse", nil, "SomethingElse, HTTP 412"},
		"a page":       {502, "", blobstore.ErrTemporary, "HTTP 502"},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			s := openTest(t, func(w http.ResponseWriter, _ *http.Request) {
				n++
				if c.code != "" {
					w.Header().Set("X-Ms-Error-Code", c.code)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, "<html>")
			}, "", map[string]string{"fs.azure.account.key.acct": key})
			_, err := s.Open(t.Context(), "x")
			require.Equal(t, 1, n, "retries are the decorator's")
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "\n")
			for _, kind := range []error{blobstore.ErrNotExist, blobstore.ErrPermission, blobstore.ErrTemporary, blobstore.ErrExist, blobstore.ErrUnsupported} {
				require.Equal(t, kind == c.is, errors.Is(err, kind), "%v is %v", err, kind)
			}
		})
	}
}

// A SAS is in the URL of every request, and so in the client's own errors.
func TestTokenIsNotShown(t *testing.T) {
	s := openTest(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sig") != "hush" {
			t.Error("the token is not sent")
		}
		if r.URL.Query().Get("restype") == "" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(403)
	}, "", map[string]string{"fs.azure.sas.fixed.token.acct": "sv=1&sig=hush"})
	_, err := s.Open(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrTemporary)
	for _, listErr := range s.List(t.Context(), nil) {
		require.ErrorIs(t, listErr, blobstore.ErrPermission)
		err = errors.Join(err, listErr)
	}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), "hush")
	require.NotContains(t, s.URL(), "hush")
}

// A hierarchical namespace lists "a/x" before "a-b", and its folders as blobs.
func TestHierarchicalNamespace(t *testing.T) {
	for _, hns := range []string{"true", "false"} {
		t.Run(hns, func(t *testing.T) {
			s := openTest(t, func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				switch {
				case q.Get("restype") == "account":
					w.Header().Set("X-Ms-Is-Hns-Enabled", hns)
				case q.Get("delimiter") == "/" && q.Get("prefix") == "":
					io.WriteString(w, `<?xml version="1.0"?><EnumerationResults><Blobs><BlobPrefix><Name>a/</Name></BlobPrefix>`+
						blobXML("a-b", "5", "")+blobXML("mark", "0", `<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>`)+`</Blobs><NextMarker/></EnumerationResults>`)
				case q.Get("delimiter") == "/":
					io.WriteString(w, `<?xml version="1.0"?><EnumerationResults><Blobs>`+blobXML("a/x", "3", "")+`</Blobs><NextMarker/></EnumerationResults>`)
				default:
					io.WriteString(w, `<?xml version="1.0"?><EnumerationResults><Blobs>`+
						`<Blob><Name>a</Name><Properties><ResourceType>directory</ResourceType><Content-Length>0</Content-Length></Properties></Blob>`+
						blobXML("a/x", "3", "")+blobXML("a-b", "5", "")+`</Blobs><NextMarker/></EnumerationResults>`)
				}
			}, "", map[string]string{"fs.azure.account.key.acct": key})
			var got []string
			for in, err := range s.List(t.Context(), nil) {
				require.NoError(t, err)
				got = append(got, fmt.Sprint(in.Name, " ", in.Size))
			}
			require.Equal(t, []string{"a-b 5", "a/x 3"}, got)
		})
	}
}

func blobXML(name, size, more string) string {
	return "<Blob><Name>" + name + "</Name><Properties><Content-Length>" + size + "</Content-Length></Properties>" + more + "</Blob>"
}

// A copy that goes on, or has failed, is not an object yet.
func TestUnfinishedCopyIsHidden(t *testing.T) {
	for status, there := range map[string]bool{"pending": false, "failed": false, "success": true, "": true} {
		s := openTest(t, func(w http.ResponseWriter, _ *http.Request) {
			if status != "" {
				w.Header().Set("X-Ms-Copy-Status", status)
			}
			w.Header().Set("Content-Length", "0")
		}, "", map[string]string{"fs.azure.account.key.acct": key})
		_, err := s.Stat(t.Context(), "x")
		_, openErr := s.Open(t.Context(), "x")
		if there {
			require.NoError(t, errors.Join(err, openErr), status)
		} else {
			require.ErrorIs(t, err, blobstore.ErrNotExist, status)
			require.ErrorIs(t, openErr, blobstore.ErrNotExist, status)
		}
	}
}

func TestWrongChecksum(t *testing.T) {
	s := openTest(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-MD5", "XUFAKrxLKna5cZ2REBfFkg==") // of "hello"
		io.WriteString(w, "not what was stored")
	}, "", map[string]string{"fs.azure.account.key.acct": key})
	r, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer r.Close()
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, blobstore.ErrDataCorrupt)
}

func TestNoCredentials(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no az
	// No managed identity either: the address that gives one may belong to somebody on the
	// machine that runs the test, and answer, or never answer.
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "dev")
	s := openTest(t, func(http.ResponseWriter, *http.Request) { t.Error("nothing to ask for without credentials") }, "", nil)
	s.endpoint = "https://" + s.endpoint[len("http://"):] // tokens go by TLS only
	_, err := s.Stat(t.Context(), "x")
	require.ErrorIs(t, err, blobstore.ErrPermission)
	require.ErrorContains(t, err, "AZURE_STORAGE_KEY")
	require.NotContains(t, err.Error(), "\n")
}
