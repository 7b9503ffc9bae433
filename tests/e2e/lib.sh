# What the suites share. Sourced by `run` before each step, with SUITE (the suite's folder), PETIOLE and CLUSTER_DIR set.
# shellcheck shell=bash

mkdir -p "$SUITE/log" "$SUITE/pid"

# Where a step ended that no `fail` explains. In `$(…)` a command may fail and the rest go on: not told.
set -E
trap 'case $- in *e*) echo "FAILED: ${BASH_SOURCE[0]##*/}:$LINENO: $BASH_COMMAND" >&2 ;; esac' ERR

fail() {
  echo "FAILED: $*"
  exit 1
}

# A line of the report of a test that passed: what was measured.
note() {
  echo "note: $*"
}

# within SECONDS CLAIM CMD…: CMD succeeds in time. Leaves in TOOK how long it took.
# Beside what computes on the same processors (QUIET) it has three times as long, and what was late is told: the limits of `speed` are
# judged when that has ended. Most of what a lane computes is tries, so their pauses grow there with what has been waited,
# to as much as is not called late.
within() {
  local limit=$1 claim=$2 began=$EPOCHREALTIME longest=$1 pause=0.03
  shift 2
  [ -z "${QUIET:-}" ] || longest=$(awk "BEGIN { print 3 * $limit }")
  until "$@" >/dev/null 2>&1; do
    TOOK=$(since "$began")
    awk "BEGIN { exit !($TOOK < $longest) }" || fail "not within $longest s: $claim"
    [ -z "${QUIET:-}" ] || pause=$(awk "BEGIN { p = $TOOK / 8; if (p < 0.03) p = 0.03; if (p > 0.5) p = 0.5; print p }")
    sleep "$pause"
  done
  TOOK=$(since "$began")
  if awk "BEGIN { exit !($TOOK > $limit + 0.5) }"; then note "LATE: $TOOK s instead of $limit s: $claim"; fi
}

since() {
  awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $1 }"
}

# for_all_of SECONDS CLAIM CMD…: CMD succeeds the whole time.
for_all_of() {
  local limit=$1 claim=$2 began=$EPOCHREALTIME pause=0.1
  shift 2
  [ -z "${QUIET:-}" ] || pause=0.4
  while awk "BEGIN { exit !($(since "$began") < $limit) }"; do
    "$@" >/dev/null 2>&1 || fail "not true after $(since "$began") s: $claim"
    sleep "$pause"
  done
}

# Whether CMD succeeds and says nothing. `[ -z "$(CMD)" ]` would be true of a CMD that cannot say.
is_empty() { # CMD…
  local said
  said=$("$@") && [ -z "$said" ]
}

# As `grep -q`, but it reads its whole input: a command that writes into a pipe whose reader has ended fails, and with it the pipe.
matches() { # ARGS… of grep
  grep "$@" >/dev/null
}

equal() { # WHAT EXPECTED ACTUAL
  [ "$2" = "$3" ] || fail "$1 is '$3', should be '$2'"
}

# begin NAME MACHINE CMD…: CMD in the background on a machine. `stop NAME` ends it; its output is in log/NAME.
begin() {
  local name=$1
  shift
  setsid cluster on "$@" >>"$SUITE/log/$name" 2>&1 </dev/null &
  local entered=$!
  # `cluster on` has children of its own until it becomes nsenter, whose only child is CMD.
  until grep -q nsenter "/proc/$entered/comm" 2>/dev/null && grep -q . "/proc/$entered/task/$entered/children" 2>/dev/null; do
    [ -d "/proc/$entered" ] || fail "$name ended at once: $(tail -n 5 "$SUITE/log/$name")"
    sleep 0.01
  done
  cut -d' ' -f1 "/proc/$entered/task/$entered/children" >"$SUITE/pid/$name"
}

# begin_responder NAME MACHINE ADDRESS: responder.py, which does what `respond_as NAME COMMAND…` says. It ends with its
# machine: `stop_all`, with which rows begin, leaves it alone.
begin_responder() {
  mkfifo "$SUITE/$1"
  begin "$1" "$2" sh -c "exec python3 -u '$E2E/responder.py' $3 <>'$SUITE/$1'"
  rm "$SUITE/pid/$1"
  within 10 "the responder is there" grep -q ready "$SUITE/log/$1"
}

respond_as() { # NAME COMMAND…
  # A pipe whose reader has ended would be waited for without end.
  # shellcheck disable=SC2016 # expanded by the inner shell
  timeout 10 sh -c 'echo "$2" >"$1"' - "$SUITE/$1" "${*:2}" || fail "$1 has ended: $(tail -n 1 "$SUITE/log/$1")"
}

# stop NAME [SIGNAL]: only what `begin` began; nothing if it has ended.
stop() {
  local pid
  pid=$(cat "$SUITE/pid/$1" 2>/dev/null) || return 0
  rm "$SUITE/pid/$1"
  kill "-${2:-TERM}" "$pid" 2>/dev/null || return 0
  within 10 "$1 ends after SIG${2:-TERM}" test ! -e "/proc/$pid"
}

stop_all() {
  local file
  for file in "$SUITE"/pid/*; do
    [ ! -e "$file" ] || stop "$(basename "$file")" "${1:-TERM}"
  done
}

# Prints the commands of the blocks that a page marks with `<!-- run: SUITE -->`, and after each block END, if it is given.
# tests/it/pages checks that each mark has its call.
commands_of() { # PAGE SUITE [END]
  awk -v mark="<!-- run: $2 -->" -v end="${3:-}" '
    !on && before == mark && /^```/ { on = 1; next }
    on && /^```$/ { on = 0; if (end != "") print end }
    on
    { before = $0 }
  ' "$E2E/../../$1"
}

# ---- machines ----

kubectl() {
  cluster kubectl --request-timeout=10s "$@"
}

logs_have() { # POD TEXT [ARGS… of kubectl logs]
  local text=$2
  set -- "$1" "${@:3}"
  kubectl logs "$@" | matches -F "$text"
}

# An image for Pods, of this machine's busybox: nothing is pulled.
load_busybox() { # IMAGE
  local root=$SUITE/image command
  mkdir -p "$root/bin"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for command in sh env sort sleep cat kill ls stat; do ln -s busybox "$root/bin/$command"; done
  cluster image "$1" "$root" /bin/sh >"$SUITE/busybox.tar"
  cluster load "$SUITE/busybox.tar"
}

# ---- devices ----

# announce MACHINE SERVICE TYPE PORT [TXT…]: as long as `goodbye SERVICE` is not called.
announce() {
  local machine=$1 service=$2
  shift
  begin "service-$service" "$machine" avahi-publish -s "$@"
  within 5 "avahi announces $service" grep -q Established "$SUITE/log/service-$service"
  : >"$SUITE/log/service-$service"
}

goodbye() {
  stop "service-$1"
}

# A CDI file of the kind pflex.io/block. The devices are /dev/null by other names: the machine needs none of its own.
describe_devices() { # FOLDER NAME…
  local folder=$1 devices
  shift
  mkdir -p "$folder"
  devices=$(printf '%s\n' "$@" | jq -R '{name: ., containerEdits: {
    deviceNodes: [{path: ("/dev/" + .), hostPath: "/dev/null", type: "c", permissions: "rw"}],
    env: ["PFLEX_DEVICE=" + .]}}' | jq -s .)
  jq -n --argjson devices "$devices" '{cdiVersion: "0.5.0", kind: "pflex.io/block", devices: $devices}' >"$folder/.pflex.json.tmp"
  mv "$folder/.pflex.json.tmp" "$folder/pflex.json"
}

# ---- what the agent knows: manifests in its state folder, $STATE ----

# The Instance, NAMESPACE_NAME, of a service: its file without `.yaml`.
instance_of() {
  local file
  file=$(grep -lE "^ *AKRI_ZEROCONF_DEVICE_NAME: *[\"']?$1[\"']?\$" "$STATE"/instances/*.yaml 2>/dev/null | sed -n 1p)
  [ -n "$file" ] && basename "$file" .yaml
}

has_no_instance() {
  ! instance_of "$1"
}

instance_name_of() {
  local instance
  instance=$(instance_of "$1") && echo "${instance#*_}"
}

health_of() { # SERVICE: as this node has it; the status names a node only where something is wrong
  local instance health
  instance=$(instance_of "$1") || return
  health=$(sed -n 's/^ *health: *//p' "$STATE/instances/$instance.yaml")
  echo "${health:-Healthy}"
}

is_healthy() {
  [ "$(health_of "$1")" = Healthy ]
}

is_unhealthy() {
  [ "$(health_of "$1")" = Unhealthy ]
}

# What makes an Instance the same one: its uid and when it was created.
identity_of() {
  local instance
  instance=$(instance_of "$1") && grep -E '^ *(uid|creationTimestamp):' "$STATE/instances/$instance.yaml"
}

socket_of() { # SERVICE, in the folder of plugins $PLUGINS
  find "$PLUGINS" -name "$(instance_name_of "$1")-*.sock" -type s | grep .
}

build_module() { # NAME: of its folder and of its program, which may be there and as new as its source
  [ ! -x "$CLUSTER_BIN/$1" ] || [ -n "$(find "$E2E/$1" -newer "$CLUSTER_BIN/$1" -type f)" ] || return 0
  go -C "$E2E/$1" build -p 1 -ldflags="-s -w" -o "$CLUSTER_BIN/$1" .
}

show() { # what helps when a test fails; a suite with a cluster shows more
  :
}
