package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
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
	"SnapshotAccessControlException":      blobstore.ErrPermission,
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
	"RpcServerException":                  blobstore.ErrTemporary,
	"NoNamenodesAvailableException":       blobstore.ErrTemporary,
	"RouterSafeModeException":             blobstore.ErrTemporary,
	"ServerTooBusyException":              blobstore.ErrTemporary,
	"LastBlockNotCompleteException":       blobstore.ErrTemporary,
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
	switch {
	case e.lostBehind() || e.noDatanode():
		return blobstore.ErrTemporary
	case e.class == "SnapshotException" && strings.Contains(e.message, "not a snapshottable directory"):
		return blobstore.ErrNotExist // of "dir/.snapshot"
	}
	return exceptions[e.class]
}

// lostBehind says whether the server that answered lost the one behind it, or
// itself: a datanode that writes or reads for a WebHDFS client its namenode or the
// next datanode, HttpFS and routers both; a namenode that is taken down answers
// from what is left of it. What was asked for may have been done, or will be yet,
// or not at all.
func (e *remoteError) lostBehind() bool {
	switch e.class {
	case "NullPointerException", "IllegalStateException", "RejectedExecutionException", "InterruptedException", "CancellationException",
		"ConcurrentModificationException", "NoClassDefFoundError", "AssertionError":
		return true // no answer to a question: of a server that stops or starts
	case "EOFException", "SocketException", "ConnectException", "ConnectTimeoutException", "SocketTimeoutException", "NoRouteToHostException",
		"PortUnreachableException", "InterruptedIOException", "ClosedChannelException", "AsynchronousCloseException",
		"ClosedByInterruptException", "ReadTimeoutException", "WriteTimeoutException":
		return true
	case "IOException", "RemoteException":
		return containsAny(e.message, lostTexts)
	}
	return false
}

// noDatanode says whether datanodes are what is missing. They may be dead or full,
// or the namenode has not heard of them yet.
func (e *remoteError) noDatanode() bool {
	return e.class == "IOException" && (containsAny(e.message, noDatanodeTexts) || e.deafNamenode())
}

// deafNamenode says whether a namenode that has just become active knows no
// datanode to send to. If datanodes were excluded it may be that none is left.
func (e *remoteError) deafNamenode() bool {
	if e.class != "IOException" || !strings.HasPrefix(e.message, "Failed to find datanode") {
		return false
	}
	_, excluded, _ := strings.Cut(e.message, "excludeDatanodes=")
	return excluded == "" || excluded == "null"
}

// Texts of a plain IOException, from Hadoop's NetUtils and ipc.Client, and the
// kernel's for a connection that broke.
var lostTexts = []string{
	"Failed on local exception", "Couldn't set up IO streams", "Connection reset", "Broken pipe", "Premature EOF",
	"The client is stopped", "connection is closed", "Connection is closed", "Filesystem closed",
	"EOFException", "ConnectException", "ClosedChannelException", "SocketTimeoutException", "NoRouteToHostException",
}

// Those of BlockManager, DataStreamer, DFSOutputStream and DFSInputStream.
var noDatanodeTexts = []string{
	"minReplication nodes", "Unable to create new block", "Could not get block locations", "All datanodes ", "Failed to replace a bad datanode",
	"Tried pipeline recovery", "Got error, status", "does not have enough number of replicas", "Could not obtain block", "Failed to find datanode",
}

func containsAny(s string, texts []string) bool {
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(s, t) })
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
// better: it is standby, just starting, did not answer at all, or stands before
// one that did not. All that is asked of namenodes may be asked twice: store.go
// and writer.go know what a rename or a removal that was done already looks like.
func tryOther(err error) bool {
	var e *remoteError
	if errors.As(err, &e) {
		switch e.class {
		case "StandbyException", "ObserverRetryOnActiveException", "RetriableException", "NoNamenodesAvailableException",
			"ServerTooBusyException", "RouterSafeModeException":
			return true
		case "SafeModeException": // at start it ends by itself
			return !strings.Contains(e.message, "turned on manually")
		}
		return e.lostBehind() || e.deafNamenode()
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
