#!/usr/bin/env bash
# What run.sh --also calls: makes of SNAPSHOT a copy by way of an S3 server and HDFS, and
# a canonical and a heap snapshot.
#
#   also.sh SNAPSHOT DIR
#   also.sh diff SNAPSHOT OTHER [FLAGS of stateutil diff]   fails if an entry differs
#
# STATEUTIL names the program. TIDEMARK_TEST_S3_URL and TIDEMARK_TEST_HDFS_URL are what
# testdata/servers/start-s3.sh and start-hdfs.sh print. A canonical savepoint has no
# place for records in flight: they are left out.
set -euo pipefail
stateutil=${STATEUTIL:-stateutil}
# A class of which snapshots of the heap say nothing, as it is not registered.
classes=$(dirname "${BASH_SOURCE[0]}")/names/public.classes
if [[ $1 == diff ]]; then
  # States without entries may be there or not: a job registers some when it is restored.
  shift
  differ=$("$stateutil" diff --quiet --no-progress --classes "$classes" --jsonl "$@") || (($? == 5))
  [[ -z $differ ]] || { head -n 10 <<<"$differ" >&2; exit 1; }
  exit
fi
from=$1 dir=$2
name=also/$(basename "$(dirname "$dir")")/$(basename "$dir")/$(basename "$from")-$$
s3=${TIDEMARK_TEST_S3_URL/\?/$name?} hdfs=$TIDEMARK_TEST_HDFS_URL/$name
unset HADOOP_CONF_DIR # the URL names the server
export HADOOP_USER_NAME=hdfs
run() { "$stateutil" --quiet --no-progress "$@" >"$dir/out" 2>&1 || { cat "$dir/out" >&2; return 1; }; }

run copy --apply "$from" "$s3"
run copy --apply "$s3" "$hdfs"
run copy --apply "$hdfs" "$dir/copy"
run convert --to canonical --classes "$classes" --drop-in-flight --apply "$from" "$dir/canonical"
run convert --to heap --classes "$classes" --apply "$from" "$dir/heap"
rm "$dir/out"
