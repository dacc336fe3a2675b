#!/usr/bin/env bash
# Lets a real Flink, 1.20.0 and 2.3.0, write each example in each kind of snapshot:
# what we read is compared with what it was told to write, our state backends restore
# it, and Flink restores copies of it, which went through an S3 server and HDFS, and
# what convert makes of it. Then Flink restores what we create of the examples and of
# random descriptions, and what our state backends write of them, changes it, and we
# read what it makes of that. Last, a job runs by turns in Flink and in our runtime, each
# from the other's savepoints and checkpoints. Needs Java 17 and Maven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
pids=()
# Only what was started here: the cache may hold servers of others.
trap '((${#pids[@]} == 0)) || testdata/servers/stop.sh "${pids[@]}"' EXIT
trap 'exit 130' INT TERM
start() { # NAME VARIABLE
  local out
  out=$("testdata/servers/start-$1.sh")
  eval "$out"
  pids+=("${!2}")
}
start s3 TIDEMARK_TEST_S3_PID
TIDEMARK_HDFS_JAVA_OPTS=-Xmx256m start hdfs TIDEMARK_TEST_HDFS_PID
unset HADOOP_CONF_DIR # the URL names the server
# One package after the other: each has a Flink.
HADOOP_USER_NAME=hdfs TIDEMARK_STORES="s3 hdfs" go test -p 1 -tags integration -count 1 -timeout 40m -run TestARealFlink -v ./internal/flinkverify ./internal/flinkverify/pipeline | grep -vE '^ *(=== |--- PASS)'
