package blobstore_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/storetest"
)

func openStore(t *testing.T, url string) blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(context.Background(), url, nil)
	require.NoError(t, err)
	return s
}

func localLimits() *storetest.Options {
	return &storetest.Options{PartSize: 1 << 20, SkipName: func(name string) string {
		switch {
		case runtime.GOOS == "windows" && strings.ContainsAny(name, "\\:*?\"<>|\t\n\r\x01\x1b"):
			return "not allowed by Windows"
		}
		return ""
	}}
}

func TestLocalConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) blobstore.Store { return openStore(t, t.TempDir()) }, localLimits())
}

func TestLocalConformanceByURLWithoutSync(t *testing.T) {
	storetest.Run(t, func(t *testing.T) blobstore.Store {
		return openStore(t, "file://"+t.TempDir()+"/made/when/needed?fsync=off")
	}, localLimits())
}

// A Pool's local store is the whole system, and a folder a prefix in it.
func TestLocalConformanceThroughPool(t *testing.T) {
	storetest.Run(t, func(t *testing.T) blobstore.Store {
		pool := blobstore.NewPool(nil, nil)
		loc, err := blobstore.Parse(t.TempDir())
		require.NoError(t, err)
		root, name, err := pool.Resolve(context.Background(), loc)
		require.NoError(t, err)
		return blobstore.Sub(root, name)
	}, localLimits())
}

func TestMemConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) blobstore.Store { return blobstore.NewMem() }, &storetest.Options{PartSize: 1 << 20})
}

func TestMemConformanceBelowPrefix(t *testing.T) {
	storetest.Run(t, func(t *testing.T) blobstore.Store {
		return blobstore.Sub(openStore(t, "mem://"+t.Name()), "some/where")
	}, &storetest.Options{PartSize: 1 << 20})
}
