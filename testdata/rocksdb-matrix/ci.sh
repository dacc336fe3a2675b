#!/usr/bin/env bash
# Writes the option matrix with three versions of RocksDB and reads it back. Needs
# Java 17 and Maven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
go test -tags integration -count 1 -timeout 20m -run 'TestMatrix' ./incremental
