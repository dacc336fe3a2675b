#!/bin/bash
# usage: ci-hdfs.sh [flags of go test]    the HDFS drivers against servers of its own, Kerberos included
#   It fails, and does not skip, where the KDC is not there and cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=testdata/servers

if ! PATH=$PATH:/usr/sbin:/sbin command -v krb5kdc kadmin.local kinit >/dev/null; then
  packages="krb5-kdc krb5-admin-server krb5-user"
  root=
  ((EUID == 0)) || root="sudo -n"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  $root apt-get update -q && $root apt-get install -q -y --no-install-recommends $packages || {
    echo "error: the Kerberos tests need $packages, which could not be installed" >&2
    exit 1
  }
fi

# The tests start their clusters (plain, HA, Kerberos, TLS) and stop them. Most of
# their time is waiting, for a server that hangs, dies or starts; so two processes
# take about half of them each, with clusters of their own.
logs=$(mktemp -d)
half='^Test(Conformance|Kerberos|DelegationToken|TLS)'
lanes=()
set -m # each with a process group of its own, to be ended as one
trap '((${#lanes[@]} == 0)) || kill -TERM "${lanes[@]/#/-}" 2>/dev/null; rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM
go vet -tags integration ./blobstore/hdfs # compiles, so that not both do
for which in run skip; do
  go test -tags integration -count=1 -timeout 30m -parallel 8 "$@" "-$which" "$half" ./blobstore/hdfs -rapid.checks=30 >"$logs/$which" 2>&1 &
  lanes+=($!)
done
failed=0
for i in 0 1; do
  wait "${lanes[i]}" || failed=1
done
lanes=()
set +m
cat "$logs/run" "$logs/skip"
((failed == 0)) || exit 1

out=$("$here/start-hdfs.sh")
eval "$out"
unset HADOOP_CONF_DIR # the tests name their servers
trap 'rm -rf "$logs"; $here/stop.sh "$TIDEMARK_TEST_HDFS_PID"' EXIT
HADOOP_USER_NAME=hdfs go test -tags integration -count=1 -run TestKillOnHDFS ./examples/filecopy
TIDEMARK_STORES="hdfs webhdfs" go test -count=1 -run 'TestEveryStoreSaysTheSame|TestSnapshotsTravelOverStores' ./cmd/stateutil
