package table

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// hugePages asks for huge pages for some memory, and for what shares the first and
// the last of them with it: slabs often lie side by side. It is a hint; where the
// system has none to give nothing changes.
func hugePages(p unsafe.Pointer, bytes uintptr) {
	from := uintptr(p) &^ (hugePage - 1)
	to := (uintptr(p) + bytes + hugePage - 1) &^ (hugePage - 1)
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_HUGEPAGE)
}
