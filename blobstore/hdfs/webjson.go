package hdfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// WebHDFS answers in JSON: one object whose single member names what it is. The
// structures below have the members that we use. Answers are small but for pages
// of a listing, 1000 entries each.
const (
	maxWebAnswer  = 64 << 10 // bytes
	maxWebListing = 32 << 20
)

type webFileStatus struct {
	PathSuffix       string `json:"pathSuffix"`
	Type             string `json:"type"` // FILE, DIRECTORY, SYMLINK
	Length           int64  `json:"length"`
	ModificationTime int64  `json:"modificationTime"` // ms
	FileID           int64  `json:"fileId"`           // -1 for what is no file, below /.reserved
	ECBit            bool   `json:"ecBit"`
	EncBit           bool   `json:"encBit"`
}

func (f webFileStatus) status() (status, error) {
	s := status{name: f.PathSuffix, size: f.Length, modMillis: f.ModificationTime, fileID: uint64(max(0, f.FileID)), erasureCode: f.ECBit, encrypted: f.EncBit}
	switch f.Type {
	case "DIRECTORY":
		s.dir = true
	case "SYMLINK":
		s.symlink = true
	case "FILE":
	default:
		return s, fmt.Errorf("a file of the type %.40q", f.Type)
	}
	if s.size < 0 {
		return s, errors.New("a file of negative length")
	}
	return s, nil
}

// decodeWeb reads an answer of at most limit bytes into v.
func decodeWeb(r io.Reader, limit int64, v any) error {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return connectionError("%w", err)
	}
	if int64(len(b)) > limit {
		return fmt.Errorf("an answer of more than %d bytes", limit)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("not the JSON that was expected: %w", err)
	}
	return nil
}

// decodeFileStatus reads {"FileStatus":{…}}.
func decodeFileStatus(r io.Reader) (status, error) {
	var a struct{ FileStatus *webFileStatus }
	if err := decodeWeb(r, maxWebAnswer, &a); err != nil {
		return status{}, err
	}
	if a.FileStatus == nil {
		return status{}, errors.New("no FileStatus in the answer")
	}
	return a.FileStatus.status()
}

// decodeListing reads a page,
//
//	{"DirectoryListing":{"partialListing":{"FileStatuses":{"FileStatus":[…]}},"remainingEntries":n}}
//
// or, from a server that cannot page, all: {"FileStatuses":{"FileStatus":[…]}}.
func decodeListing(r io.Reader) (page, error) {
	type statuses struct{ FileStatus []webFileStatus }
	var a struct {
		DirectoryListing *struct {
			PartialListing   struct{ FileStatuses statuses } `json:"partialListing"`
			RemainingEntries int64                           `json:"remainingEntries"`
		}
		FileStatuses *statuses
	}
	if err := decodeWeb(r, maxWebListing, &a); err != nil {
		return page{}, err
	}
	var p page
	var list []webFileStatus
	switch {
	case a.DirectoryListing != nil:
		list, p.more = a.DirectoryListing.PartialListing.FileStatuses.FileStatus, a.DirectoryListing.RemainingEntries > 0
	case a.FileStatuses != nil:
		list = a.FileStatuses.FileStatus
	default:
		return p, errors.New("no listing in the answer")
	}
	p.entries = make([]status, len(list))
	for i, f := range list {
		var err error
		if p.entries[i], err = f.status(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// decodeBoolean reads {"boolean":true}.
func decodeBoolean(r io.Reader) (bool, error) {
	var a struct {
		Boolean *bool `json:"boolean"`
	}
	if err := decodeWeb(r, maxWebAnswer, &a); err != nil {
		return false, err
	}
	if a.Boolean == nil {
		return false, errors.New("no boolean in the answer")
	}
	return *a.Boolean, nil
}

// decodeLocation reads {"Location":"http://datanode:9864/webhdfs/v1/…"}.
func decodeLocation(r io.Reader) (string, error) {
	var a struct{ Location string }
	if err := decodeWeb(r, maxWebAnswer, &a); err != nil {
		return "", err
	}
	if a.Location == "" {
		return "", errors.New("no Location in the answer")
	}
	return a.Location, nil
}

// decodeException reads {"RemoteException":{"exception":…,"javaClassName":…,"message":…}};
// nil if it is something else.
func decodeException(r io.Reader) *remoteError {
	var a struct {
		RemoteException *struct {
			Exception     string `json:"exception"`
			JavaClassName string `json:"javaClassName"`
			Message       string `json:"message"`
		}
	}
	if decodeWeb(r, maxWebAnswer, &a) != nil || a.RemoteException == nil {
		return nil
	}
	class := a.RemoteException.JavaClassName
	if class == "" {
		class = a.RemoteException.Exception
	}
	// A datanode passes on what it heard from the namenode inside an exception of
	// its own: "org.apache.hadoop.ipc.RemoteException(java.class.Name): message".
	message := a.RemoteException.Message
	if inner, ok := strings.CutPrefix(message, "org.apache.hadoop.ipc.RemoteException("); ok {
		if c, m, ok := strings.Cut(inner, "): "); ok {
			class, message = c, m
		}
	}
	return newRemoteError(class, message)
}
