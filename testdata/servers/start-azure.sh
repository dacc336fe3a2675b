#!/bin/bash
# usage: eval "$(start-azure.sh [PORT])"    Azure Blob Storage: azurite
. "$(dirname "$0")/lib.sh"
need node; need npm
V=3.35.0 # 3.36 and later want Node 22
DIR=$CACHE/azurite-$V
npm_install() { mkdir -p "$DIR" && cd "$DIR" && npm install --no-audit --no-fund --ignore-scripts --prefix "$DIR" "azurite@$V"; }
[[ -e $DIR/node_modules/azurite/package.json && -e $CACHE/.installed-azurite-$V ]] || install_once "azurite-$V" npm_install
KEY=$(printf 'any-local-test-key' | base64)

run() {
  # In memory: on disk it writes the list of all blobs again every few seconds. Kept alive longer than clients
  # keep their connections: after the 5 s that are its default it resets a request that comes at that moment.
  # --skipApiVersionCheck: today's SDK asks for a newer API version than azurite knows
  AZURITE_ACCOUNTS="tidemark:$KEY" spawn "$1" node "$DIR/node_modules/azurite/dist/src/blob/main.js" --silent \
    --blobHost 127.0.0.1 --blobPort "$2" --inMemoryPersistence --blobKeepAliveTimeout 120 --skipApiVersionCheck --disableTelemetry
  wait_for 30 "$1" up "$2" || failed azurite "$1"
}
start_on azure "${1:-}" run
# make the container: one request signed with the account's key
node -e '
const [port, key] = process.argv.slice(1), crypto = require("crypto"), http = require("http");
const date = new Date().toUTCString(), v = "2021-08-06";
const s = "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:" + date + "\nx-ms-version:" + v + "\n/tidemark/tidemark/tidemark\nrestype:container";
const sig = crypto.createHmac("sha256", Buffer.from(key, "base64")).update(s).digest("base64");
http.request({ host: "127.0.0.1", port, method: "PUT", path: "/tidemark/tidemark?restype=container",
  headers: { "x-ms-date": date, "x-ms-version": v, "content-length": 0, authorization: "SharedKey tidemark:" + sig } },
  r => { r.resume(); r.on("end", () => { if (r.statusCode !== 201) { console.error("HTTP " + r.statusCode); process.exit(1); } }); }).end();
' "$PORT" "$KEY" || { end "$RUN"; die "no container made"; }
put_env AZURE_STORAGE_ACCOUNT tidemark
put_env AZURE_STORAGE_KEY "$KEY"
put_env TIDEMARK_TEST_AZURE_URL "azblob://tidemark@tidemark/?endpoint=http://127.0.0.1:$PORT/tidemark"
put_env TIDEMARK_TEST_AZURE_PID "$PID"
