package main

import "syscall"

// peakBytes is the peak resident memory; Darwin counts bytes.
func peakBytes(u *syscall.Rusage) int64 { return u.Maxrss }
