package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/colinmarc/hdfs/v2"

	"github.com/tidemark/tidemark/blobstore"
)

// remoteError is an exception that a namenode or datanode answered with.
type remoteError struct {
	class   string // the exception's class without its package
	message string // without its stack trace, on one line
}

const maxMessage = 400 // bytes of a server's message that are shown

func newRemoteError(class, message string) *remoteError {
	class = class[strings.LastIndexAny(class, ".$")+1:]
	if len(class) > 100 || strings.Trim(class, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		class = "exception without a Java name"
	}
	// The lines of a message up to the stack trace, if it has one.
	var lines []string
	for line := range strings.Lines(message[:min(len(message), 4*maxMessage)]) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "at ") {
			break
		}
		lines = append(lines, line)
	}
	message = strings.TrimSpace(strings.Join(lines, " "))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	// Below a file a namenode has three ways to say so.
	if class == "AccessControlException" && strings.HasSuffix(message, "(is not a directory)") {
		class = "ParentNotDirectoryException"
	}
	return &remoteError{class: class, message: message}
}

func (e *remoteError) Error() string {
	if e.message == "" {
		return e.class
	}
	return e.class + ": " + e.message
}

// exceptions maps Hadoop's exception classes to what a caller may want to decide.
var exceptions = map[string]error{
	"FileNotFoundException":               blobstore.ErrNotExist,
	"NoSuchFileException":                 blobstore.ErrNotExist,
	"AccessControlException":              blobstore.ErrPermission,
	"AuthorizationException":              blobstore.ErrPermission,
	"AuthenticationException":             blobstore.ErrPermission,
	"SecurityException":                   blobstore.ErrPermission,
	"InvalidToken":                        blobstore.ErrPermission,
	"FileAlreadyExistsException":          blobstore.ErrExist,
	"AlreadyBeingCreatedException":        blobstore.ErrExist,
	"PathIsNotEmptyDirectoryException":    blobstore.ErrNotEmpty,
	"PathIsDirectoryException":            blobstore.ErrIsDirectory,
	"InvalidPathException":                blobstore.ErrInvalidName,
	"IllegalArgumentException":            blobstore.ErrInvalidName,
	"HadoopIllegalArgumentException":      blobstore.ErrInvalidName,
	"PathComponentTooLongException":       blobstore.ErrInvalidName,
	"UnsupportedOperationException":       blobstore.ErrUnsupported,
	"ChecksumException":                   blobstore.ErrDataCorrupt,
	"StandbyException":                    blobstore.ErrTemporary,
	"ObserverRetryOnActiveException":      blobstore.ErrTemporary,
	"RetriableException":                  blobstore.ErrTemporary,
	"SafeModeException":                   blobstore.ErrTemporary,
	"RecoveryInProgressException":         blobstore.ErrTemporary,
	"ReplicaNotFoundException":            blobstore.ErrTemporary,
	"BlockMissingException":               blobstore.ErrTemporary,
	"CannotObtainBlockLengthException":    blobstore.ErrTemporary,
	"LeaseExpiredException":               blobstore.ErrTemporary,
	"NotReplicatedYetException":           blobstore.ErrTemporary,
	"ConnectException":                    blobstore.ErrTemporary,
	"SocketTimeoutException":              blobstore.ErrTemporary,
	"NoRouteToHostException":              blobstore.ErrTemporary,
	"ConnectTimeoutException":             blobstore.ErrTemporary,
	"EOFException":                        blobstore.ErrTemporary,
	"InterruptedIOException":              blobstore.ErrTemporary,
	"ClosedChannelException":              blobstore.ErrTemporary,
	"RpcServerException":                  blobstore.ErrTemporary,
	"NoNamenodesAvailableException":       blobstore.ErrTemporary,
	"RouterSafeModeException":             blobstore.ErrTemporary,
	"ServerTooBusyException":              blobstore.ErrTemporary,
	"TooManyRequestsException":            blobstore.ErrTemporary,
	"ParentNotDirectoryException":         errNotDirectory,
	"PathIsNotDirectoryException":         errNotDirectory,
	"NotDirectoryException":               errNotDirectory,
	"UnresolvedLinkException":             errSymlink,
	"UnresolvedPathException":             errSymlink,
	"NSQuotaExceededException":            errQuota,
	"DSQuotaExceededException":            errQuota,
	"QuotaByStorageTypeExceededException": errQuota,
}

var (
	errNotDirectory = errors.New("a part of the path is not a directory")
	errSymlink      = errors.New("symbolic links are not followed")
	errQuota        = errors.New("quota is used up")
)

func (e *remoteError) Unwrap() error {
	// "could only be written to 0 of the 1 minReplication nodes": datanodes are
	// dead or full, which may pass.
	if e.class == "IOException" && strings.Contains(e.message, "minReplication nodes") {
		return blobstore.ErrTemporary
	}
	return exceptions[e.class]
}

// isClass says whether err is an exception of one of the classes.
func isClass(err error, classes ...string) bool {
	var e *remoteError
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range classes {
		if e.class == c {
			return true
		}
	}
	return false
}

// tryOther says whether another namenode, or the same a little later, may answer
// better: it is standby, just starting, or did not answer at all.
func tryOther(err error) bool {
	var e *remoteError
	if errors.As(err, &e) {
		switch e.class {
		case "StandbyException", "ObserverRetryOnActiveException", "RetriableException", "NoNamenodesAvailableException",
			"ServerTooBusyException", "RouterSafeModeException":
			return true
		case "SafeModeException": // at start it ends by itself
			return !strings.Contains(e.message, "turned on manually")
		case "IOException": // a namenode that became active and has not heard of its datanodes
			return strings.HasPrefix(e.message, "Failed to find datanode")
		}
		return false
	}
	return isTransport(err)
}

// transportError is a connection that failed: refused, reset, timed out, closed
// by the other side, or that said what nobody understands.
type transportError struct{ err error }

func (e *transportError) Error() string   { return e.err.Error() }
func (e *transportError) Unwrap() []error { return []error{e.err, blobstore.ErrTemporary} }

// dataError is a failure of datanodes, which another namenode would not cure.
type dataError struct{ err error }

func (e *dataError) Error() string { return e.err.Error() }
func (e *dataError) Unwrap() error { return e.err }

func isTransport(err error) bool {
	var t *transportError
	return errors.As(err, &t)
}

// connectionError marks what a connection failed with. Cancellation is no failure.
func connectionError(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &transportError{err}
}

// libraryError makes ours of an error of the client library, which maps some
// exceptions to those of package os, wraps them or not, and has plain texts for
// the rest.
func libraryError(err error) error {
	if err == nil {
		return nil
	}
	var pe *os.PathError
	inner := err
	if errors.As(err, &pe) {
		inner = pe.Err
	}
	var remote hdfs.Error
	if errors.As(inner, &remote) && remote.Exception() != "" {
		return newRemoteError(remote.Exception(), remote.Message())
	}
	switch {
	case errors.Is(inner, fs.ErrNotExist):
		return blobstore.ErrNotExist
	case errors.Is(inner, fs.ErrExist):
		return blobstore.ErrExist
	case errors.Is(inner, fs.ErrPermission):
		return blobstore.ErrPermission
	case errors.Is(inner, fs.ErrInvalid):
		return blobstore.ErrInvalidName
	case errors.Is(inner, syscall.ENOTEMPTY):
		return blobstore.ErrNotEmpty
	case errors.Is(inner, hdfs.ErrReplicating):
		return fmt.Errorf("%w: %w", inner, blobstore.ErrTemporary)
	}
	text := inner.Error()
	switch {
	case text == "invalid checksum":
		return fmt.Errorf("no replica of the block has a right checksum: %w", blobstore.ErrDataCorrupt)
	case strings.Contains(text, "ERROR_ACCESS_TOKEN"):
		return fmt.Errorf("the datanode refused the block access token: %w", &transportError{inner})
	}
	var ne net.Error
	if errors.As(inner, &ne) || errors.Is(inner, io.EOF) || errors.Is(inner, io.ErrUnexpectedEOF) || errors.Is(inner, net.ErrClosed) {
		return &transportError{inner}
	}
	// The rest are texts: "no available namenodes: …", "no available datanodes",
	// "read failed: ERROR …", "Ack error from datanode: …", "unexpected sequence
	// number". All are about this connection or this datanode.
	return &transportError{inner}
}
