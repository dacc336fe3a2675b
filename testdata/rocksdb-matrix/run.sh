#!/usr/bin/env bash
# Writes the databases of the matrix with one writer:
#
#   run.sh frocksdb6|frocksdb8|rocksdb10 OUT [CASE...]
#   run.sh WRITER OUT bench ENTRIES VALUE_BYTES     one database for benchmarks
#
# Needs a JDK 17 and Maven. Classes and the library are kept in target/ beside
# this script, so that a second run starts at once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
writer=${1:?writer} out=${2:?output folder}
shift 2
target=$here/target/$writer
if [ ! -f "$target/classpath" ] || [ -n "$(find "$here/src" "$here/pom.xml" -newer "$target/classpath")" ]; then
  mkdir -p "$target"
  (cd "$here" && mvn -q -B -P "$writer" dependency:build-classpath "-Dmdep.outputFile=$target/classpath.new")
  javac -d "$target/classes" -cp "$(cat "$target/classpath.new")" "$here"/src/main/java/matrix/*.java
  mv "$target/classpath.new" "$target/classpath"
fi
exec java -Xmx512m -XX:+UseSerialGC -cp "$target/classes:$(cat "$target/classpath")" matrix.Main "$writer" "$out" "$@"
