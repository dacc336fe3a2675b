# shellcheck shell=bash
# Sourced by the start-*.sh scripts and stop.sh. Needs bash, coreutils, util-linux, awk and find, all of
# which a bare Debian has.
set -euo pipefail

CACHE=${TIDEMARK_SERVERS:-${XDG_CACHE_HOME:-$HOME/.cache}/tidemark-servers}
mkdir -p "$CACHE/bin" "$CACHE/run"
CACHE=$(cd "$CACHE" && pwd)

say() { echo "$*" >&2; }
die() { say "error: $*"; exit 1; }
need() { command -v "$1" >/dev/null || die "$1 is not installed"; }

# Below the kernel's own range for outgoing connections, so no other connection can take it meanwhile.
free_port() {
  local p
  for _ in $(seq 200); do
    p=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then
      echo "$p"
      return
    fi
  done
  die "no free port"
}

# install NAME COMMAND...: runs COMMAND once per cache directory, whoever comes first.
install_once() {
  local name=$1
  shift
  [[ -e $CACHE/.installed-$name ]] && return
  (
    flock 9
    [[ -e $CACHE/.installed-$name ]] && exit 0
    say "installing $name into $CACHE"
    "$@" >"$CACHE/install-$name.log" 2>&1 || { tail -20 "$CACHE/install-$name.log" >&2; die "installing $name failed"; }
    touch "$CACHE/.installed-$name"
  ) 9>"$CACHE/.lock-${name%%-*}"
}

go_install() { # MODULE@VERSION BINARY
  local tmp
  tmp=$(mktemp -d "$CACHE/tmp.XXXXXX")
  (cd "$tmp" && GOFLAGS='' GOWORK=off CGO_ENABLED=0 GOBIN=$tmp go install -trimpath -ldflags=-s "$1") &&
    mv "$tmp/${2%-v*}" "$CACHE/bin/$2"
  rm -rf "$tmp"
}

# When the process began (clock ticks after boot): a pid with another value is not ours any more.
began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# spawn RUNDIR COMMAND...: in a session of its own, output to RUNDIR/log, pid in RUNDIR/pid and $PID, and added to
# the file $TIDEMARK_STARTED, if that is set, for whoever ends all that he has begun.
spawn() {
  local dir=$1
  shift
  setsid "$@" </dev/null >"$dir/log" 2>&1 9>&- &
  PID=$!
  disown "$PID"
  echo "$PID $(began "$PID")" >"$dir/pid"
  [[ -z ${TIDEMARK_STARTED:-} ]] || echo "$PID" >>"$TIDEMARK_STARTED"
}

end() { # RUNDIR
  local pid start
  read -r pid start <"$1/pid" 2>/dev/null || { rm -rf "$1"; return 0; }
  if [[ -n $start && $(began "$pid") == "$start" ]]; then
    kill -TERM "$pid" 2>/dev/null || true
    for i in $(seq 120); do
      [[ $(began "$pid") == "$start" ]] || break
      ((i < 100)) || kill -KILL "$pid" 2>/dev/null || true
      sleep 0.1
    done
  fi
  rm -rf "$1"
}

# wait_for SECONDS RUNDIR COMMAND...: until COMMAND succeeds; fails when the process is gone.
wait_for() {
  local until=$((SECONDS + $1)) dir=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    kill -0 "$PID" 2>/dev/null || return 1
    ((SECONDS < until)) || return 1
    sleep 0.05
  done
  kill -0 "$PID" 2>/dev/null
}

# listening PORT: the server itself ($PID) listens there, not somebody else's.
listening() {
  local hex inode
  hex=$(printf '%04X' "$1")
  # shellcheck disable=SC2013
  for inode in $(awk -v p=":$hex$" '$2 ~ p && $4 == "0A" { print $10 }' /proc/net/tcp /proc/net/tcp6); do
    [[ -z $(find "/proc/$PID/fd" -lname "socket:\\[$inode\\]" 2>/dev/null) ]] || return 0
  done
  return 1
}

# http METHOD PORT PATH [JSON]: prints the status code; fails without an answer within 5 s.
http() {
  local body=${4:-} version code
  exec 4<>"/dev/tcp/127.0.0.1/$2" || return 1
  printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
    "$1" "$3" "$2" "${#body}" "$body" >&4
  read -r -t 5 version code _ <&4 || code=
  exec 4>&-
  [[ $version == HTTP/* && -n $code ]] && echo "$code"
}

up() { listening "$1" && (http GET "$1" /) 2>/dev/null; }

failed() { # NAME RUNDIR
  say "$1 did not start; its log:"
  tail -20 "$2/log" >&2 || true
  end "$2"
  return 1
}

# start_on NAME PORT FUNCTION: calls FUNCTION RUNDIR PORT; without a PORT tries up to 5 free ones.
start_on() {
  local name=$1 port=$2 f=$3 try
  [[ $port =~ ^[0-9]*$ ]] || die "not a port: $port"
  for try in 1 2 3 4 5; do
    local p=${port:-$(free_port)}
    RUN=$CACHE/run/$name-$p
    if ! mkdir "$RUN" 2>/dev/null; then
      [[ -z $port ]] || die "$RUN is there: stop.sh $name-$p first"
      continue
    fi
    if "$f" "$RUN" "$p"; then
      PORT=$p
      return
    fi
    [[ -z $port ]] || exit 1
  done
  die "$name: gave up"
}

put_env() { printf 'export %s=%q\n' "$1" "$2"; }
