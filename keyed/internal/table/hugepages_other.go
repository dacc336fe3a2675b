//go:build !linux

package table

import "unsafe"

func hugePages(unsafe.Pointer, uintptr) {}
