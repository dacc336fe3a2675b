#!/bin/bash
# usage: eval "$(start-s3.sh [PORT])"    S3: versitygw over plain files
. "$(dirname "$0")/lib.sh"
need go
V=v1.8.0
BIN=versitygw-$V
[[ -x $CACHE/bin/$BIN ]] || install_once "$BIN" go_install "github.com/versity/versitygw/cmd/versitygw@$V" "$BIN"

run() {
  mkdir -p "$1/data/tidemark" # a directory is a bucket
  spawn "$1" env ROOT_ACCESS_KEY=testkey ROOT_SECRET_KEY=testsecret "$CACHE/bin/$BIN" --quiet \
    --port "127.0.0.1:$2" --region us-east-1 posix "$1/data"
  wait_for 20 "$1" up "$2" || failed versitygw "$1"
}
start_on s3 "${1:-}" run
put_env AWS_ACCESS_KEY_ID testkey
put_env AWS_SECRET_ACCESS_KEY testsecret
put_env AWS_REGION us-east-1
put_env AWS_EC2_METADATA_DISABLED true
put_env TIDEMARK_TEST_S3_ENDPOINT "http://127.0.0.1:$PORT"
put_env TIDEMARK_TEST_S3_URL "s3://tidemark/?endpoint=http://127.0.0.1:$PORT&region=us-east-1&use_path_style=true"
put_env TIDEMARK_TEST_S3_DATA "$RUN/data"
put_env TIDEMARK_TEST_S3_PID "$PID"
