#!/bin/bash
# usage: ci-cloud.sh [flags of go test]    the S3, GCS and Azure drivers against servers of its own
set -euo pipefail
cd "$(dirname "$0")/../.."
here=testdata/servers
pids=()
# Only what was started here: the cache may hold servers of others.
trap '((${#pids[@]} == 0)) || $here/stop.sh "${pids[@]}"' EXIT
trap 'exit 130' INT TERM

start() { # NAME VARIABLE
  local out
  out=$("$here/start-$1.sh")
  eval "$out"
  pids+=("${!2}")
}
start s3 TIDEMARK_TEST_S3_PID
start gcs TIDEMARK_TEST_GCS_PID
start azure TIDEMARK_TEST_AZURE_PID
go test -tags integration -count=1 -timeout 20m "$@" ./blobstore/s3 ./blobstore/gcs ./blobstore/azure
# Without the race detector there is no need for cgo, whose net would have all behind it compiled again.
export CGO_ENABLED=0
go test -tags integration -count=1 -run TestKillOnS3 ./examples/filecopy
TIDEMARK_STORES="s3 gs azblob" go test -count=1 -run 'TestEveryStoreSaysTheSame|TestSnapshotsTravelOverStores' ./cmd/stateutil
