#!/usr/bin/env bash
# Lets a real Flink, 1.20.0 and 2.3.0, write each example in each kind of snapshot:
# what we read is compared with what it was told to write, our state backends restore
# it, and Flink restores copies of it. Then Flink restores what we create of the
# examples and of random descriptions, and what our state backends write of them,
# changes it, and we read what it makes of that. Needs Java 17 and Maven.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
go test -tags integration -count 1 -timeout 40m -run TestARealFlink -v ./internal/flinkverify | grep -vE '^ *(=== |--- PASS)'
