#!/usr/bin/env bash
# Reads exported states with DuckDB, pandas and pyarrow. Needs Python 3 with venv and
# pip; the packages come from the index that pip is set up for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb>=1.1' 'pandas>=2.2' 'pyarrow>=18'
TIDEMARK_PYTHON="$venv/bin/python" go test -tags integration -count 1 -timeout 20m -run 'TestDuckDBAndPandas' ./snapshot/table
