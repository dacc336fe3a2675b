//go:build !unix

package blobstore

func cpuSeconds() float64 { return 0 }
