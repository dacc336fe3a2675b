//go:build integration && unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	_ "github.com/tidemark/tidemark/blobstore/hdfs"
	_ "github.com/tidemark/tidemark/blobstore/s3"
)

// TestKillOnS3 and TestKillOnHDFS are TestKill with the checkpoints on a server:
// testdata/servers starts one and names it. TIDEMARK_KILLS is how often, 20 by default.
func TestKillOnS3(t *testing.T) { killOnServer(t, "TIDEMARK_TEST_S3_URL") }

func TestKillOnHDFS(t *testing.T) { killOnServer(t, "TIDEMARK_TEST_HDFS_URL") }

func killOnServer(t *testing.T, variable string) {
	url := os.Getenv(variable)
	require.NotEmpty(t, url, "%s names no server", variable)
	killLoop(t, numberOf(t, "TIDEMARK_KILLS", 20), func(t *testing.T) string {
		path, query, has := strings.Cut(url, "?")
		path = strings.TrimSuffix(path, "/") + "/killed-" + uuid.NewString()
		if has {
			path += "?" + query
		}
		return path
	})
}
