package blobstore

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// renameNoReplace gives temp its name unless that exists; both lie in dir.
func renameNoReplace(root files, dir *os.File, temp, name string) error {
	err := unix.Renameat2(int(dir.Fd()), path.Base(temp), int(dir.Fd()), path.Base(name), unix.RENAME_NOREPLACE)
	switch err {
	case unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP: // a file system, or kernel, without it
		return linkNoReplace(root, temp, name)
	}
	return err
}

// linuxDir reads a directory by getdents64(2) and fstatat(2).
type linuxDir struct {
	f   *os.File
	buf []byte
}

// portableDirs makes the walk use the portable reader, for its tests.
var portableDirs bool

func newDirReader(root files, f *os.File, name string) dirReader {
	if portableDirs {
		return &portableDir{root, f, name}
	}
	return &linuxDir{f: f}
}

// A struct linux_dirent64:
//
//	offset  bytes  field
//	0       8      inode
//	8       8      cursor
//	16      2      length of the record
//	18      1      type
//	19      …      name, NUL-terminated
const (
	direntLen  = 16
	direntType = 18
	direntName = 19
)

func (d *linuxDir) each(f func(name []byte, kind entryKind) error) error {
	fd := int(d.f.Fd())
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return err
	}
	if d.buf == nil {
		d.buf = make([]byte, 32<<10)
	}
	defer func() { d.buf = nil }()
	for {
		n, err := unix.ReadDirent(fd, d.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err
		}
		for b := d.buf[:n]; len(b) > direntName; {
			size := int(binary.NativeEndian.Uint16(b[direntLen:]))
			if size <= direntName || size > len(b) {
				return errors.New("the system returned a malformed directory entry")
			}
			name := b[direntName:size]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			typ := b[direntType]
			b = b[size:]
			if string(name) == "." || string(name) == ".." || len(name) == 0 {
				continue
			}
			kind := kindSkip
			switch typ {
			case unix.DT_REG:
				kind = kindFile
			case unix.DT_DIR:
				kind = kindDir
			case unix.DT_LNK:
				kind = kindLink
			case unix.DT_UNKNOWN: // a file system that does not say
				var st unix.Stat_t
				if err := fstatat(fd, string(name), &st); err != nil {
					if err == unix.ENOENT {
						continue
					}
					return err
				}
				kind = kindOfMode(st.Mode)
			}
			if err := f(name, kind); err != nil {
				return err
			}
		}
	}
}

func kindOfMode(mode uint32) entryKind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return kindFile
	case unix.S_IFDIR:
		return kindDir
	case unix.S_IFLNK:
		return kindLink
	}
	return kindSkip
}

func fstatat(fd int, name string, st *unix.Stat_t) error {
	for {
		if err := unix.Fstatat(fd, name, st, unix.AT_SYMLINK_NOFOLLOW); err != unix.EINTR {
			return err
		}
	}
}

func (d *linuxDir) stat(name string) (size int64, mtime time.Time, ino uint64, ok bool, err error) {
	var st unix.Stat_t
	if err := fstatat(int(d.f.Fd()), name, &st); err != nil {
		return 0, time.Time{}, 0, false, noneIfAbsent(err)
	}
	return st.Size, time.Unix(st.Mtim.Unix()), st.Ino, st.Mode&unix.S_IFMT == unix.S_IFREG, nil
}

func (d *linuxDir) child(name string) (dirReader, error) {
	for {
		fd, err := unix.Openat(int(d.f.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch err {
		case nil:
			return &linuxDir{f: os.NewFile(uintptr(fd), name)}, nil
		case unix.EINTR:
		case unix.ELOOP: // a link by now
			return nil, unix.ENOTDIR
		default:
			return nil, err
		}
	}
}

func (d *linuxDir) close() { d.f.Close() }

func inode(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
