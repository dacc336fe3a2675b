package hdfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	krbclient "github.com/jcmturner/gokrb5/v8/client"
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	krbtypes "github.com/jcmturner/gokrb5/v8/types"

	"github.com/tidemark/tidemark/blobstore"
)

// loginSettings say where Kerberos credentials come from: a keytab if one is
// configured (Flink's keys), else the ticket cache.
type loginSettings struct {
	keytab    string
	principal string
	cache     string
	krb5Conf  string
}

func newLoginSettings(c conf) loginSettings {
	l := loginSettings{
		keytab:    c.get("security.kerberos.login.keytab"),
		principal: c.get("security.kerberos.login.principal"),
		cache:     os.Getenv("KRB5CCNAME"),
		krb5Conf:  c.get("security.kerberos.krb5-conf.path"),
	}
	if l.krb5Conf == "" {
		l.krb5Conf, _, _ = strings.Cut(os.Getenv("KRB5_CONFIG"), string(os.PathListSeparator))
	}
	if l.krb5Conf == "" {
		l.krb5Conf = "/etc/krb5.conf"
	}
	if l.cache == "" {
		l.cache = "/tmp/krb5cc_" + strconv.Itoa(os.Getuid())
	}
	return l
}

// kerberos is a Kerberos identity, logged in when it is first needed. For
// concurrent use.
type kerberos struct {
	login loginSettings

	mu     sync.Mutex
	client *krbclient.Client
}

// open gives the client with its credentials loaded. It reads local files only;
// the KDC is asked by ticket.
func (k *kerberos) open() (*krbclient.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		return k.client, nil
	}
	c, err := k.login.client()
	if err != nil {
		return nil, fmt.Errorf("kerberos: %w: %w", err, blobstore.ErrPermission)
	}
	k.client = c
	return c, nil
}

func (l loginSettings) client() (*krbclient.Client, error) {
	cfg, err := krbconfig.Load(l.krb5Conf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.krb5Conf, err)
	}
	if l.keytab != "" {
		kt, err := keytab.Load(l.keytab)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.keytab, err)
		}
		name, realm, _ := strings.Cut(l.principal, "@")
		if name == "" {
			return nil, errors.New("security.kerberos.login.keytab needs security.kerberos.login.principal")
		}
		if realm == "" {
			realm = cfg.LibDefaults.DefaultRealm
		}
		// Active Directory's KDCs know no FAST.
		return krbclient.NewWithKeytab(name, realm, kt, cfg, krbclient.DisablePAFXFAST(true)), nil
	}
	kind, path, ok := strings.Cut(l.cache, ":")
	if !ok {
		kind, path = "FILE", l.cache
	}
	if kind != "FILE" {
		return nil, fmt.Errorf("the ticket cache is of the kind %s: only FILE: can be read, or give security.kerberos.login.keytab", kind)
	}
	cc, err := credentials.LoadCCache(path)
	if err != nil {
		return nil, fmt.Errorf("no ticket in %s (kinit), and no security.kerberos.login.keytab: %w", path, err)
	}
	return krbclient.NewFromCCache(cc, cfg, krbclient.DisablePAFXFAST(true))
}

// ticket gets a service ticket ("nn/host"); afterwards the client has it cached.
// The Kerberos library has time limits of its own but no context: a cancelled
// call goes on in the background for some seconds at most.
func (k *kerberos) ticket(ctx context.Context, spn string) (*krbclient.Client, messages.Ticket, krbtypes.EncryptionKey, error) {
	type result struct {
		ticket messages.Ticket
		key    krbtypes.EncryptionKey
		err    error
	}
	c, err := k.open()
	if err != nil {
		return nil, messages.Ticket{}, krbtypes.EncryptionKey{}, err
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.ticket, r.key, r.err = c.GetServiceTicket(spn)
		done <- r
	}()
	select {
	case <-ctx.Done():
		return nil, messages.Ticket{}, krbtypes.EncryptionKey{}, ctx.Err()
	case r := <-done:
		if r.err != nil {
			return nil, r.ticket, r.key, fmt.Errorf("kerberos: no ticket for %s: %w: %w", spn, r.err, blobstore.ErrPermission)
		}
		return c, r.ticket, r.key, nil
	}
}

func (k *kerberos) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		k.client.Destroy()
		k.client = nil
	}
}

// servicePrincipal puts a host in the place of _HOST.
func servicePrincipal(principal, host string) string {
	return strings.Replace(principal, "/_HOST", "/"+strings.ToLower(host), 1)
}
