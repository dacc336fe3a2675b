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

// Decorators change nothing that the suite sees, and keep the optional interfaces,
// whose cases would be skipped otherwise.
func TestDecoratorConformance(t *testing.T) {
	for name, decorate := range map[string]func(blobstore.Store) blobstore.Store{
		"Retry": func(s blobstore.Store) blobstore.Store { return blobstore.Retry(s, nil) },
		"all": func(s blobstore.Store) blobstore.Store {
			return blobstore.Count(blobstore.Retry(blobstore.RateLimit(blobstore.NewFaults().Wrap(s), 1e6, 1), nil), new(blobstore.Counter))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := localLimits()
			o.PartSize, o.Objects = 100_000, 1100
			storetest.Run(t, func(t *testing.T) blobstore.Store {
				s := decorate(openStore(t, "file://"+t.TempDir()+"?fsync=off"))
				require.Implements(t, (*blobstore.TemporaryLister)(nil), s)
				require.Implements(t, (*blobstore.DirectoryRemover)(nil), s)
				m := decorate(blobstore.NewMem())
				require.NotImplements(t, (*blobstore.TemporaryLister)(nil), m)
				require.NotImplements(t, (*blobstore.DirectoryRemover)(nil), blobstore.Sub(m, "x"))
				return s
			}, o)
		})
	}
}
