#!/usr/bin/env bash
# Lets a real Flink, 1.20.0 and 2.3.0, write each example in each kind of snapshot,
# and compares what we read with what it was told to write; then lets it restore what
# we create of the examples and of random descriptions, and reads what it makes of
# that; and the same with what our state backends write, which restore what Flink
# makes of it. Needs Java 17 and Maven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
go test -tags integration -count 1 -timeout 40m -run 'TestDescriptionsOfARealFlink|TestCreatedIsRestoredByARealFlink|TestCopiesAreRestoredByARealFlink' ./snapshot
go test -tags integration -count 1 -timeout 40m -run 'ARealFlink' -v ./internal/flinkverify
