//go:build integration

package hdfs

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/storetest"
)

func TestConformance(t *testing.T) {
	both(t, func(t *testing.T, scheme string) {
		c := mainCluster(t)
		storetest.Run(t, func(t *testing.T) blobstore.Store {
			return blobstore.Sub(c.openRoot(t, scheme), c.newDir(t))
		}, &storetest.Options{
			PartSize: 4 << 20, // two and a half blocks of 8 MiB are too many for so many tests
			Objects:  1200,    // the namenode's pages have 1000
			SkipName: skipName,
			Faults: func(t *testing.T) storetest.FaultEnv {
				net, dir := newFaultNet(t), c.newDir(t)
				direct := c.openRoot(t, scheme)
				put(t, direct, dir+"/.keep", nil)
				if err := direct.Delete(t.Context(), dir+"/.keep"); err != nil {
					t.Fatal(err)
				}
				closed := c.newDir(t)
				c.do(t, "chown /%s somebody 700", closed)
				return storetest.FaultEnv{
					Network:  net,
					Store:    blobstore.Sub(net.through(c.openRoot(t, scheme, KeyRetryMillis, "2000")), dir),
					Direct:   blobstore.Sub(direct, dir),
					Denied:   blobstore.Sub(c.openURL(t, c.url(scheme)+"/?user=nobody"), closed),
					Patience: 45 * time.Second,
				}
			},
		})
	})
}

func skipName(name string) string {
	if strings.ContainsRune(name, ':') {
		return "HDFS takes no colon in names"
	}
	return ""
}
