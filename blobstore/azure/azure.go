// Package azure is the blobstore driver of Azure Blob Storage and, over the same
// endpoint, Data Lake Storage. Import it for its effect: it registers the scheme
// azblob, to which Flink's abfs, abfss, wasb and wasbs are normalized. Requests go
// by HTTPS whatever the spelling.
//
// Credentials are sought in Options.Config by Hadoop's keys, then in the
// environment, then by Azure's default chain (service principal, workload and
// managed identity, the az tool):
//
//	fs.azure.account.key.ACCOUNT…              AZURE_STORAGE_KEY
//	fs.azure.sas.CONTAINER.ACCOUNT…,
//	fs.azure.sas.fixed.token.ACCOUNT…          AZURE_STORAGE_SAS_TOKEN
//	fs.azure.account.oauth2.client.id, .client.secret, .client.endpoint,
//	.msi.tenant, .token.file (each also with .ACCOUNT…)
//	                                           AZURE_STORAGE_CONNECTION_STRING
//
// where ACCOUNT… is the account's name, or its host in .blob.core.windows.net or
// .dfs.core.windows.net. The key in the environment is for AZURE_STORAGE_ACCOUNT,
// which is also the account of azblob://CONTAINER.
//
//	parameter    meaning
//	endpoint     address of the service, with the account if that is in the path
//	anonymous    unsigned requests
//	list         sort: the server lists out of order (known of hierarchical namespaces)
//	part_size    bytes of a block
//	page_size    names in one answer to a listing
//	timeout      longest silence of the server, 60s
//
// An upload in blocks that ends without Commit leaves blocks without a blob. The
// service has no request to drop them and does so after a week; ListTemporary
// finds them, and Abort and DeleteTemporary have them dropped by making an empty
// blob of the name, which this package hides, and deleting it. They leave that out
// where a blob of the name exists: then the blocks are beside it, unseen.
//
// Not used for new blobs are names with characters that XML cannot express, with
// "\", and with a part that ends in ".": the service changes them.
package azure

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

func init() { blobstore.Register(open, "azblob") }

const (
	maxBlocks    = 50_000
	publicDomain = "blob.core.windows.net"
)

type settings struct {
	container string
	account   string
	endpoint  string // of the service: no container, no "/" at the end
	anonymous bool
	key       string
	sas       string // without "?"
	oauth     oauth
	sort      bool
	partSize  int64
	pageSize  int32
	timeout   time.Duration
}

// oauth are Hadoop's settings for tokens of Microsoft Entra ID.
type oauth struct {
	clientID, secret, tenant, tokenFile string
	managed                             bool
}

type store struct {
	settings
	url    string
	http   *http.Client
	lister objectstore.Lister

	mu         sync.Mutex
	client     *container.Client // nil until the first request
	orderKnown bool              // settings.sort is the server's
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
		Op:   func(err error) error { return &blobstore.Error{Op: "list", URL: s.url, Err: err} },
	}
	if opts != nil {
		s.lister.Logger = opts.Logger
	}
	return s, nil
}

func read(loc blobstore.Location, opts *blobstore.Options) (*settings, error) {
	in := objectstore.NewSettings(loc, opts)
	set := &settings{}
	var host string
	set.container, host, _ = strings.Cut(loc.Authority, "@")
	if set.container == "" {
		return nil, fmt.Errorf("no container in the URL: %w", blobstore.ErrInvalidName)
	}
	env := connection(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"))
	if host == "" {
		if host = os.Getenv("AZURE_STORAGE_ACCOUNT"); host == "" {
			host = env["accountname"]
		}
		if host == "" {
			return nil, fmt.Errorf("no account: write azblob://CONTAINER@ACCOUNT/… or set AZURE_STORAGE_ACCOUNT: %w", blobstore.ErrInvalidName)
		}
	}
	set.account, _, _ = strings.Cut(host, ".")
	names := []string{set.account, set.account + "." + publicDomain, set.account + ".dfs.core.windows.net"}
	if strings.Contains(host, ".") {
		names = append(names, host, strings.Replace(host, ".blob.", ".dfs.", 1))
	} else {
		host = set.account + "." + publicDomain
	}
	// get looks a key up as it is for the account, then as it is for all.
	get := func(key string) string {
		keys := make([]string, 0, len(names)+1)
		for _, n := range names {
			keys = append(keys, key+"."+n)
		}
		return in.Config(append(keys, key)...)
	}
	mine := env["accountname"] == set.account
	if set.endpoint = in.Endpoint(false); set.endpoint == "" && mine {
		set.endpoint = strings.TrimSuffix(env["blobendpoint"], "/")
	}
	if set.endpoint == "" {
		set.endpoint = "https://" + host
	}
	set.anonymous = in.Bool("anonymous", false)
	set.key = get("fs.azure.account.key")
	set.oauth = oauth{
		clientID: get("fs.azure.account.oauth2.client.id"), secret: get("fs.azure.account.oauth2.client.secret"),
		tenant: get("fs.azure.account.oauth2.msi.tenant"), tokenFile: get("fs.azure.account.oauth2.token.file"),
		managed: strings.Contains(get("fs.azure.account.oauth.provider.type"), "Msi"),
	}
	if set.oauth.tenant == "" { // https://login.microsoftonline.com/TENANT/oauth2/token
		if u, err := url.Parse(get("fs.azure.account.oauth2.client.endpoint")); err == nil {
			set.oauth.tenant, _, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		}
	}
	set.sas = get("fs.azure.sas." + set.container)
	if set.sas == "" {
		set.sas = get("fs.azure.sas.fixed.token")
	}
	if set.key == "" && set.sas == "" && set.oauth == (oauth{}) {
		if a := os.Getenv("AZURE_STORAGE_ACCOUNT"); a == "" || a == set.account {
			set.key, set.sas = os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
		}
		if set.key == "" && set.sas == "" && mine {
			set.key, set.sas = env["accountkey"], env["sharedaccesssignature"]
		}
	}
	set.sas = strings.TrimPrefix(set.sas, "?")
	set.sort = in.OneOf("list", "auto", "sort") == "sort"
	set.partSize = in.Size("part_size", 0, 1)
	set.pageSize = int32(min(in.Size("page_size", 5000, 1), 5000))
	set.timeout = in.Duration("timeout", objectstore.DefaultTimeout)
	return set, in.Err()
}

// connection reads "AccountName=x;AccountKey=y;…"; keys are in lower case.
func connection(s string) map[string]string {
	m := map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		m[strings.ToLower(k)] = v
	}
	return m
}

// connect makes the client at its first use.
func (s *store) connect() (*container.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	base := azcore.ClientOptions{
		Transport: s.http,
		Retry:     policy.RetryOptions{MaxRetries: -1}, // blobstore's retry decorator has the budget
	}
	opts := &container.ClientOptions{ClientOptions: base}
	address := s.endpoint + "/" + url.PathEscape(s.container)
	var err error
	switch {
	case s.anonymous:
		s.client, err = container.NewClientWithNoCredential(address, opts)
	case s.key != "":
		var cred *container.SharedKeyCredential
		if cred, err = container.NewSharedKeyCredential(s.account, s.key); err != nil {
			return nil, fmt.Errorf("%w: the account key is not base64", blobstore.ErrPermission)
		}
		s.client, err = container.NewClientWithSharedKeyCredential(address, cred, opts)
	case s.sas != "":
		s.client, err = container.NewClientWithNoCredential(address+"?"+s.sas, opts)
	default:
		var cred azcore.TokenCredential
		if cred, err = s.oauth.credential(base); err != nil {
			return nil, fmt.Errorf("%w: %s", blobstore.ErrPermission, noCredential)
		}
		s.client, err = container.NewClient(address, cred, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("the endpoint is not a URL")
	}
	return s.client, nil
}

const noCredential = "no Azure credentials: set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN or fs.azure.account.key.ACCOUNT, run az login, or add anonymous=true to the URL"

func (o oauth) credential(base azcore.ClientOptions) (azcore.TokenCredential, error) {
	base.Retry = policy.RetryOptions{MaxRetries: 2, MaxRetryDelay: 2 * time.Second}
	switch {
	case o.managed:
		opts := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: base}
		if o.clientID != "" {
			opts.ID = azidentity.ClientID(o.clientID)
		}
		return azidentity.NewManagedIdentityCredential(opts)
	case o.secret != "":
		return azidentity.NewClientSecretCredential(o.tenant, o.clientID, o.secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: base})
	case o.tokenFile != "":
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: base, ClientID: o.clientID, TenantID: o.tenant, TokenFilePath: o.tokenFile,
		})
	}
	return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: base})
}

// check refuses names that no store has, and those that no blob can have: names
// are Unicode, and the service has nothing better to say of others than status 400.
func (s *store) check(op, name string) error {
	err := objectstore.CheckName(name)
	if err == nil && !utf8.ValidString(name) {
		err = fmt.Errorf("%w: not UTF-8", blobstore.ErrInvalidName)
	}
	if err != nil {
		return &blobstore.Error{Op: op, URL: s.url + "/" + name, Err: err}
	}
	return nil
}

// checkNew refuses names that a new blob cannot have.
func (s *store) checkNew(ctx context.Context, op, name string) error {
	err := blobstore.ValidNewName(name)
	if err == nil {
		err = objectstore.InXML(name)
	}
	if err == nil && (strings.Contains(name, `\`) || strings.Contains(name+"/", "./")) {
		err = fmt.Errorf("%w: Azure changes names with %q and with parts that end in %q", blobstore.ErrInvalidName, `\`, ".")
	}
	if err == nil {
		err = ctx.Err()
	}
	return s.fail(ctx, op, name, err)
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
