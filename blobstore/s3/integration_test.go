//go:build integration

package s3

import (
	"os"
	"testing"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
	"github.com/tidemark/tidemark/blobstore/internal/servertest"
	"github.com/tidemark/tidemark/blobstore/storetest"
)

func serverURL(t testing.TB) string {
	return servertest.With(t, servertest.Env(t, "TIDEMARK_TEST_S3_URL"), "part_size", "5242880", "page_size", "400")
}

func TestConformance(t *testing.T) {
	base := serverURL(t)
	storetest.Run(t, func(t *testing.T) blobstore.Store {
		return servertest.Open(t, servertest.Fresh(base), nil)
	}, &storetest.Options{
		PartSize:             minPart,
		Objects:              1300, // more than three pages
		NoObjectBesideFolder: true, // of versitygw over files; S3 has
		Secrets:              []string{os.Getenv("AWS_SECRET_ACCESS_KEY"), "wrong-secret", "testkey"},
		SkipName: func(name string) string {
			if err := objectstore.InXML(name); err != nil {
				return err.Error()
			}
			return ""
		},
		Faults: func(t *testing.T) storetest.FaultEnv {
			direct := servertest.Fresh(base)
			proxy, through := servertest.Proxy(t, direct)
			return storetest.FaultEnv{
				Store: servertest.Open(t, through, nil), Direct: servertest.Open(t, direct, nil), Network: proxy,
				Denied: servertest.Open(t, direct, &blobstore.Options{Config: map[string]string{
					"s3.access-key": "testkey", "s3.secret-key": "wrong-secret",
				}}),
			}
		},
	})
}
