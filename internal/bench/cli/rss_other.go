//go:build unix && !darwin

package main

import "syscall"

// peakBytes is the peak resident memory; the others count KiB.
func peakBytes(u *syscall.Rusage) int64 { return int64(u.Maxrss) << 10 }
