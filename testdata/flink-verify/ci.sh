#!/usr/bin/env bash
# Lets a real Flink, 1.20.0 and 2.3.0, write each example in each kind of snapshot,
# and compares what we read with what it was told to write. Needs Java 17 and Maven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
go test -tags integration -count 1 -timeout 40m -run 'TestDescriptionsOfARealFlink' ./snapshot
