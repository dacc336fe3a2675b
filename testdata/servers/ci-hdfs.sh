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

# The tests start their clusters (plain, HA, Kerberos, TLS) and stop them.
go test -tags integration -count=1 -timeout 30m "$@" ./blobstore/hdfs/... -rapid.checks=30

out=$("$here/start-hdfs.sh")
eval "$out"
unset HADOOP_CONF_DIR # the tests name their servers
trap '$here/stop.sh "$TIDEMARK_TEST_HDFS_PID"' EXIT
trap 'exit 130' INT TERM
TIDEMARK_STORES="hdfs webhdfs" go test -count=1 -run TestEveryStoreSaysTheSame ./cmd/stateutil
