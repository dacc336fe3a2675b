package hdfs

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidemark/tidemark/blobstore"
)

// Keys of our own in blobstore.Options.Config.
const (
	// KeyRetryMillis is how long a call is tried again while no namenode answers
	// or the one that does is not active yet. Default 15000.
	KeyRetryMillis = "tidemark.hdfs.retry.ms"
	// KeyReplayBytes is how much of an object being written is kept, in memory
	// and then in an unnamed local file, so that it can be written again when a
	// datanode dies. Default 256 MiB; 0 keeps nothing.
	KeyReplayBytes = "tidemark.hdfs.replay.max-bytes"
	// KeyDelegationToken is a delegation token for WebHDFS, URL-safe as
	// GETDELEGATIONTOKEN gives it. Secret.
	KeyDelegationToken = "tidemark.webhdfs.delegation-token"
	// KeyCAFile is a PEM file of certificates to trust for swebhdfs, beside the system's.
	KeyCAFile = "tidemark.webhdfs.ca-file"
)

const (
	defaultRPCPort   = "8020"
	defaultHTTPPort  = "9870"
	defaultHTTPSPort = "9871"
)

// settings are what both drivers know once a URL and the configuration have been
// read. They are plain data and never change.
type settings struct {
	loc         blobstore.Location
	user        string
	namenodes   []string // host:port of the native protocol, in the configuration's order
	web         []string // scheme://host:port of WebHDFS, the same
	useHostname bool     // connect to datanodes by name, not by address

	kerberos          bool
	namenodePrincipal string // "nn/_HOST", without realm
	login             loginSettings
	protection        string // dfs.data.transfer.protection, the strongest of a list; "privacy" if encrypted

	connectTimeout time.Duration // of a TCP connection
	rpcTimeout     time.Duration // for each read or write at a namenode
	dataTimeout    time.Duration // for each read or write at a datanode
	retryFor       time.Duration // see KeyRetryMillis

	replication int   // 0: the namenode's default
	blockSize   int64 // 0: the namenode's default
	umask       uint32
	replayBytes int64

	delegationToken string
	caFile          string
	logger          *slog.Logger
	dialer          dialFunc // tests put proxies in between
}

// newSettings reads the configuration for a root. Nothing is dialled.
func newSettings(loc blobstore.Location, opts *blobstore.Options) (*settings, error) {
	if opts == nil {
		opts = &blobstore.Options{}
	}
	c, err := environmentConf(opts.Config)
	if err != nil {
		return nil, err
	}
	query, err := url.ParseQuery(loc.Query)
	if err != nil {
		return nil, errors.New("bad query")
	}
	for key := range query {
		if key != "user" && key != "webhdfs" {
			return nil, fmt.Errorf("unknown URL parameter %q: this store knows user, webhdfs", key)
		}
	}
	s := &settings{
		loc:             loc.Root(),
		useHostname:     c.get("dfs.client.use.datanode.hostname") == "true",
		kerberos:        strings.EqualFold(c.get("hadoop.security.authentication"), "kerberos"),
		login:           newLoginSettings(c),
		delegationToken: c[KeyDelegationToken],
		caFile:          c.get(KeyCAFile),
		logger:          opts.Logger,
		dialer:          (&net.Dialer{}).DialContext,
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	// Hadoop says nothing of a client's own keytab; one that is configured is meant.
	s.kerberos = s.kerberos || s.login.keytab != ""
	s.namenodePrincipal, _, _ = strings.Cut(c.get("dfs.namenode.kerberos.principal"), "@")
	s.protection = protection(c)
	if s.user, err = userName(query.Get("user")); err != nil {
		return nil, err
	}
	n := numbers{c: c}
	s.connectTimeout = n.millis("ipc.client.connect.timeout", 10*time.Second)
	s.rpcTimeout = n.millis("ipc.client.rpc-timeout.ms", 30*time.Second)
	s.dataTimeout = n.millis("dfs.client.socket-timeout", 60*time.Second)
	s.retryFor = n.millis(KeyRetryMillis, 15*time.Second)
	s.replication = int(n.size("dfs.replication", 0))
	s.blockSize = n.size("dfs.blocksize", 0)
	s.replayBytes = n.size(KeyReplayBytes, 256<<20)
	s.umask = 0o022
	if v := c.get("fs.permissions.umask-mode"); v != "" {
		u, err := strconv.ParseUint(v, 8, 32)
		if err != nil || u > 0o777 {
			return nil, fmt.Errorf("fs.permissions.umask-mode is %q, not an octal mode", v)
		}
		s.umask = uint32(u)
	}
	if n.err != nil {
		return nil, n.err
	}
	if err := s.addresses(c, query["webhdfs"]); err != nil {
		return nil, err
	}
	return s, nil
}

// environmentConf is the configuration of the environment with a program's own
// settings above it. Flink's prefix "flink.hadoop." is understood.
func environmentConf(own map[string]string) (conf, error) {
	dir := os.Getenv("HADOOP_CONF_DIR")
	if dir == "" && os.Getenv("HADOOP_HOME") != "" {
		dir = filepath.Join(os.Getenv("HADOOP_HOME"), "etc", "hadoop")
	}
	for _, key := range []string{"env.hadoop.conf.dir", "fs.hdfs.hadoopconf"} { // Flink's
		if own[key] != "" {
			dir = own[key]
		}
	}
	c := conf{}
	if dir != "" {
		var err error
		if c, err = loadConf(dir); err != nil {
			return nil, err
		}
	}
	for k, v := range own {
		if after, ok := strings.CutPrefix(k, "flink.hadoop."); ok {
			c[after] = v
		}
	}
	for k, v := range own {
		if !strings.HasPrefix(k, "flink.hadoop.") {
			c[k] = v
		}
	}
	return c, nil
}

// protection is the strongest level that the configuration allows; the client
// library takes one level only.
func protection(c conf) string {
	if strings.EqualFold(c.get("dfs.encrypt.data.transfer"), "true") {
		return "privacy"
	}
	best := ""
	for _, p := range c.list("dfs.data.transfer.protection") {
		p = strings.ToLower(p)
		switch p {
		case "authentication", "integrity", "privacy": // in the order of the alphabet, as it happens
			best = max(best, p)
		}
	}
	return best
}

func userName(query string) (string, error) {
	name := cmp.Or(query, os.Getenv("HADOOP_USER_NAME"))
	if name == "" {
		return osUser()
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", fmt.Errorf("the user name %q is none", name)
	}
	return name, nil
}

func osUser() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("no user name: set HADOOP_USER_NAME: %w", err)
	}
	name := u.Username
	return name[strings.LastIndexByte(name, '\\')+1:], nil // DOMAIN\name on Windows
}

// numbers parses numeric settings and keeps the first error.
type numbers struct {
	c   conf
	err error
}

var (
	byteSuffixes = map[byte]float64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30, 't': 1 << 40}
	timeSuffixes = []struct {
		suffix string
		unit   time.Duration
	}{{"ns", 1}, {"us", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}
)

// size is a count of bytes, with Hadoop's suffixes k, m, g and t.
func (n *numbers) size(key string, def int64) int64 {
	v := strings.ToLower(n.c.get(key))
	if v == "" {
		return def
	}
	unit := 1.0
	if u, ok := byteSuffixes[v[len(v)-1]]; ok {
		unit, v = u, v[:len(v)-1]
	}
	f, err := strconv.ParseFloat(v, 64)
	if (err != nil || f < 0 || f*unit >= 1<<62) && n.err == nil {
		n.err = fmt.Errorf("%s is %q, not a size", key, n.c.get(key))
	}
	return int64(f * unit)
}

// millis is a duration in milliseconds, or with one of Hadoop's suffixes.
func (n *numbers) millis(key string, def time.Duration) time.Duration {
	v := strings.ToLower(n.c.get(key))
	if v == "" {
		return def
	}
	unit := time.Millisecond
	for _, s := range timeSuffixes {
		if num, ok := strings.CutSuffix(v, s.suffix); ok {
			v, unit = num, s.unit
			break
		}
	}
	i, err := strconv.ParseInt(v, 10, 64)
	if (err != nil || i <= 0 || i > int64(1<<62)/int64(unit)) && n.err == nil {
		n.err = fmt.Errorf("%s is %q, not a positive time", key, n.c.get(key))
	}
	return time.Duration(i) * unit
}

// addresses finds the namenodes of the URL's authority: a nameservice of the
// configuration, hosts with or without port, or nothing for fs.defaultFS.
func (s *settings) addresses(c conf, web []string) error {
	authority := s.loc.Authority
	if authority == "" {
		def, err := blobstore.Parse(c.get("fs.defaultFS"))
		if err != nil || def.Scheme != "hdfs" || def.Authority == "" {
			return errors.New("the URL names no namenode and fs.defaultFS is no hdfs:// address: set HADOOP_CONF_DIR")
		}
		authority = def.Authority
	}
	if strings.ContainsRune(authority, '@') {
		return errors.New("user information in the URL: say ?user=NAME")
	}
	var err error
	switch s.loc.Scheme {
	case "hdfs":
		if s.namenodes = c.ofService(authority, "dfs.namenode.rpc-address"); s.namenodes == nil {
			s.namenodes = strings.Split(authority, ",")
		}
		if s.namenodes, err = withPort(s.namenodes, defaultRPCPort); err != nil {
			return err
		}
		if len(web) > 0 {
			s.web = strings.Split(web[0], ",")
			break
		}
		scheme, key := "http://", "dfs.namenode.http-address"
		if strings.EqualFold(c.get("dfs.http.policy"), "HTTPS_ONLY") {
			scheme, key = "https://", "dfs.namenode.https-address"
		}
		for _, a := range c.besideRPC(authority, s.namenodes, key) {
			s.web = append(s.web, scheme+a)
		}
	case "webhdfs", "swebhdfs":
		scheme, key, port := "http://", "dfs.namenode.http-address", defaultHTTPPort
		if s.loc.Scheme == "swebhdfs" {
			scheme, key, port = "https://", "dfs.namenode.https-address", defaultHTTPSPort
		}
		hosts := c.ofService(authority, key)
		if hosts == nil {
			hosts = strings.Split(authority, ",")
		}
		if hosts, err = withPort(hosts, port); err != nil {
			return err
		}
		for _, a := range hosts {
			s.web = append(s.web, scheme+a)
		}
	}
	for _, w := range s.web {
		u, err := url.Parse(w)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return errors.New("the address of WebHDFS must be http://HOST:PORT or https://HOST:PORT")
		}
	}
	return nil
}

// ofService lists key.NAMESERVICE.NAMENODE for the namenodes of a nameservice, or
// key.NAMESERVICE where it has only one; nil if the name is no nameservice.
func (c conf) ofService(service, key string) []string {
	var out []string
	for _, nn := range c.list("dfs.ha.namenodes." + service) {
		if a := c.get(key + "." + service + "." + nn); a != "" {
			out = append(out, a)
		}
	}
	if out == nil && c.get(key+"."+service) != "" {
		out = []string{c.get(key + "." + service)}
	}
	return out
}

// besideRPC lists another address of the namenodes that have these RPC addresses.
func (c conf) besideRPC(authority string, rpc []string, key string) []string {
	if out := c.ofService(authority, key); out != nil {
		return out
	}
	const rpcKey = "dfs.namenode.rpc-address"
	var out []string
	for _, addr := range rpc {
		for k := range c {
			rest, ok := strings.CutPrefix(k, rpcKey)
			if ok && c.get(k) == addr && c.get(key+rest) != "" {
				out = append(out, c.get(key+rest))
				break
			}
		}
	}
	return out
}

func withPort(hosts []string, port string) ([]string, error) {
	out := make([]string, 0, len(hosts))
	for _, h := range hosts {
		h = strings.TrimSpace(h)
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		host, p, err := net.SplitHostPort(h)
		if _, perr := strconv.ParseUint(p, 10, 16); err != nil || perr != nil || host == "" {
			return nil, fmt.Errorf("namenode %q is no host or host:port", h)
		}
		out = append(out, h)
	}
	return out, nil
}
