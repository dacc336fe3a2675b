#!/usr/bin/env bash
# Renews the small part of the matrix that is committed, incremental/testdata/matrix:
# one database for each writer, compression and format version, of a few kilobytes.
# OPTIONS files (17 KB each) are kept for one database of each writer.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dst=$here/../../incremental/testdata/matrix
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
rm -rf "$dst"
take() { # WRITER CASE...
  local writer=$1
  shift
  "$here/run.sh" "$writer" "$tmp/$writer" "$@"
  local c
  for c in "$@"; do
    mkdir -p "$dst/$writer"
    cp -r "$tmp/$writer/$c" "$dst/$writer/$c"
    [ "$c" = tiny-snappy ] || rm -f "$dst/$writer/$c"/db/OPTIONS-*
  done
}
take frocksdb6 tiny-no tiny-snappy tiny-zlib tiny-bzlib2 tiny-lz4 tiny-lz4hc tiny-zstd tiny-format-2 tiny-format-3 tiny-format-4 tiny-format-5 workload-empty
take frocksdb8 tiny-no tiny-snappy tiny-zlib tiny-lz4 tiny-zstd tiny-format-5 tiny-format-6 workload-merges
take rocksdb10 tiny-snappy tiny-zstd tiny-format-2 tiny-format-6 tiny-format-7 workload-empty
du -sh "$dst"
