#!/bin/bash
# usage: eval "$(start-gcs.sh [PORT])"    Google Cloud Storage: fake-gcs-server, in memory
. "$(dirname "$0")/lib.sh"
need go
V=v1.56.1
BIN=fake-gcs-server-$V
[[ -x $CACHE/bin/$BIN ]] || install_once "$BIN" go_install "github.com/fsouza/fake-gcs-server@$V" "$BIN"

run() {
  # -public-host and -external-url: without them every get fails with NotFound
  spawn "$1" "$CACHE/bin/$BIN" -scheme http -host 127.0.0.1 -port "$2" -backend memory \
    -public-host "127.0.0.1:$2" -external-url "http://127.0.0.1:$2" -log-level error
  wait_for 20 "$1" up "$2" || failed fake-gcs-server "$1"
}
start_on gcs "${1:-}" run
[[ $(http POST "$PORT" '/storage/v1/b?project=test' '{"name":"tidemark"}') == 200 ]] || { end "$RUN"; die "no bucket made"; }
put_env TIDEMARK_TEST_GCS_URL "gs://tidemark/?endpoint=http://127.0.0.1:$PORT&anonymous=true"
put_env TIDEMARK_TEST_GCS_PID "$PID"
