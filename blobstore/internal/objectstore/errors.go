package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

// Fail wraps err, which came from the store or the way there, as a failed
// operation. It keeps err if it is already one, or the end of a context.
func Fail(ctx context.Context, op, url string, err error) error {
	if err == nil {
		return nil
	}
	var done *blobstore.Error
	if errors.As(err, &done) {
		return err
	}
	if ctx.Err() != nil {
		// Whatever the client made of it, the reason is the caller's.
		err = context.Cause(ctx)
	}
	return &blobstore.Error{Op: op, URL: url, Err: err}
}

// Answer is a store's refusal: a sentinel with the store's own code and message.
func Answer(status int, code, message string) error {
	kind := kindOf(status)
	var b strings.Builder
	if code != "" && code != message {
		b.WriteString(code)
	}
	if message = oneLine(message); message != "" {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(message)
	}
	if b.Len() > 0 {
		b.WriteString(", ")
	}
	fmt.Fprintf(&b, "HTTP %d", status)
	if kind == nil {
		return errors.New(b.String())
	}
	return fmt.Errorf("%w (%s)", kind, b.String())
}

// kindOf gives the sentinel of a status where stores agree on it, else nil.
func kindOf(status int) error {
	switch {
	case status == http.StatusNotFound:
		return blobstore.ErrNotExist
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return blobstore.ErrPermission
	case status == http.StatusPreconditionFailed:
		return blobstore.ErrExist
	case status == http.StatusNotImplemented:
		return blobstore.ErrUnsupported
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return blobstore.ErrTemporary
	}
	return nil
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return strings.TrimSuffix(s, ".")
}

// Network is the error of a request that got no answer, or of a body that broke
// off: temporary where another try may help. Its text has no URL, since that can
// hold a token. Errors of no known kind give nil.
func Network(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &dns):
		kind := blobstore.ErrTemporary
		if dns.IsNotFound {
			return fmt.Errorf("no such host: %s", dns.Name)
		}
		return fmt.Errorf("%w: cannot look up host %s", kind, dns.Name)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w: no answer in time", blobstore.ErrTemporary)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: connection refused", blobstore.ErrTemporary)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return fmt.Errorf("%w: connection reset", blobstore.ErrTemporary)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Errorf("%w: host unreachable", blobstore.ErrTemporary)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: connection closed", blobstore.ErrTemporary)
	}
	// net/http has no sentinel for these.
	if t := err.Error(); strings.Contains(t, "server closed idle connection") || strings.Contains(t, "transport connection broken") ||
		strings.Contains(t, "use of closed network connection") {
		return fmt.Errorf("%w: connection closed", blobstore.ErrTemporary)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Errorf("%w: %s: %s", blobstore.ErrTemporary, op.Op, oneLine(op.Err.Error()))
	}
	if u != nil { // TLS and the like: not cured by another try
		return errors.New(oneLine(u.Err.Error()))
	}
	return nil
}

// RetryAfter adds to err how long the store asks to wait, by its headers, for those
// who look for a method RetryAfter.
func RetryAfter(h http.Header, err error) error {
	if ms, e := strconv.Atoi(h.Get("X-Ms-Retry-After-Ms")); e == nil && ms > 0 {
		return &delayed{err, time.Duration(ms) * time.Millisecond}
	}
	if s, e := strconv.Atoi(h.Get("Retry-After")); e == nil && s > 0 {
		return &delayed{err, time.Duration(s) * time.Second}
	}
	return err
}

type delayed struct {
	error
	after time.Duration
}

func (d *delayed) Unwrap() error             { return d.error }
func (d *delayed) RetryAfter() time.Duration { return d.after }
