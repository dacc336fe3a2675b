// Package lsm is a backend that keeps keyed state in a log-structured merge tree on
// disk, for state larger than memory.
package lsm
