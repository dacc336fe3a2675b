#!/bin/bash
# usage: eval "$(start-hdfs.sh [PORT] [FLAGS of HdfsTestServer...])"
#   HDFS: NameNode and DataNodes in one JVM, e.g.  start-hdfs.sh --ha --datanodes 3 --replication 2
. "$(dirname "$0")/lib.sh"
need java; need mvn
SRC=$(cd "$(dirname "$0")/hdfs" && pwd)
ID=hdfs-$(cat "$SRC/pom.xml" "$SRC/src/main/java/HdfsTestServer.java" | sha256sum | cut -c1-12)
DIR=$CACHE/$ID
build() {
  rm -rf "$DIR"
  mvn -q -B -f "$SRC/pom.xml" "-Dbuild.dir=$DIR" compiler:compile dependency:copy-dependencies
}
install_once "$ID" build
PORT_ARG=
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  PORT_ARG=$1
  shift
fi
ARGS=("$@")
HA=
[[ " $* " != *" --ha "* ]] || HA=1

run() {
  local http ctl more=()
  http=$(free_port)
  ctl=$(free_port)
  [[ -z $HA ]] || more=(--nn2-port "$(free_port)" --http2-port "$(free_port)")
  # HADOOP_USER_NAME: the superuser, whoever runs this. It lives for minutes: no second compiler.
  # shellcheck disable=SC2086
  HADOOP_USER_NAME=hdfs spawn "$1" java -Xmx1g -XX:+UseSerialGC -XX:TieredStopAtLevel=1 ${TIDEMARK_HDFS_JAVA_OPTS:-} \
    -Dorg.slf4j.simpleLogger.defaultLogLevel="${TIDEMARK_HDFS_LOG:-error}" \
    -cp "$DIR/classes:$DIR/lib/*" HdfsTestServer --nn-port "$2" --http-port "$http" --control-port "$ctl" \
    "${more[@]}" --data-dir "$1/data" --config-out "$1/conf" --ready-file "$1/ready" "${ARGS[@]}"
  wait_for 120 "$1" test -s "$1/ready" || failed HdfsTestServer "$1"
}
start_on hdfs "$PORT_ARG" run
R=$(<"$RUN/ready")
nums() { sed -E "s/.*\"$1\":\[([0-9, ]+)\].*/\1/; s/ //g" <<<"$R"; }
URL=hdfs://127.0.0.1:$PORT
[[ -z $HA ]] || URL=hdfs://testns
put_env HADOOP_CONF_DIR "$RUN/conf"
put_env TIDEMARK_TEST_HDFS_URL "$URL"
put_env TIDEMARK_TEST_HDFS_NAMENODES "127.0.0.1:$(nums rpc | sed 's/,/,127.0.0.1:/g')"
put_env TIDEMARK_TEST_WEBHDFS "http://127.0.0.1:$(nums http | sed 's/,/,http:\/\/127.0.0.1:/g')"
if [[ " $* " == *" --https "* ]]; then
  put_env TIDEMARK_TEST_SWEBHDFS "https://127.0.0.1:$(nums https | sed 's/,/,https:\/\/127.0.0.1:/g')"
  put_env TIDEMARK_TEST_HDFS_CA "$RUN/conf/ca.pem"
fi
put_env TIDEMARK_TEST_HDFS_CONTROL "http://127.0.0.1:$(sed -E 's/.*"control":([0-9]+).*/\1/' <<<"$R")/"
put_env TIDEMARK_TEST_HDFS_DATA "$RUN/data"
put_env TIDEMARK_TEST_HDFS_PID "$PID"
