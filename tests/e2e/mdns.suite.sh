# No cluster: mDNS libraries that are not ours on one LAN, and a standalone agent that finds their services.
# `cluster lan` and this machine's Python, Node.js and Go are enough; a library that is not here is not tried.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

HOME_OF_NODE=$SUITE/edge
STATE=$HOME_OF_NODE/state
CONFIGURATIONS=$HOME_OF_NODE/configurations
# How long all libraries together are watched.
WATCHED=${MDNS_QUIET:-120}
# MDNS_RECORD=FOLDER: what the libraries say in their lives is recorded as inputs for `just fuzz`.
LIBRARIES=(avahi zeroconf ciao bonjour multicast matter grandcat brutella hashicorp libmdns resolved)

set_up() {
  cluster lan
  cluster device edge
  cluster avahi camera
  "$E2E/publishers/build" >"$SUITE/publishers"
}

publishers() {
  tail -n 1 "$SUITE/publishers"
}

# A node without a past, with a Configuration for cameras and accessories. An Instance outlives its device by five minutes.
fresh() {
  stop_all
  rm -rf "$HOME_OF_NODE"
  mkdir -p "$HOME_OF_NODE/kubelet/device-plugins" "$STATE" "$CONFIGURATIONS"
  configure cameras _rtsp._tcp "$@"
}

configure() { # NAME TYPE [DETAIL…]
  local name=$1 kind=$2
  shift 2
  {
    printf 'apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: %s}\nspec:\n  gracePeriodSeconds: 300\n' "$name"
    printf '  discoveryHandler:\n    name: zeroconf\n    discoveryDetails: |\n      kind: %s\n' "$kind"
    [ $# = 0 ] || printf '      %s\n' "$@"
  } >"$CONFIGURATIONS/$name.yaml"
}

begin_agent() {
  begin agent edge "$PETIOLE" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" --state "$STATE" \
    --kubelet-dir "$HOME_OF_NODE/kubelet"
}

# A machine for each library: two of them on one machine would share UDP port 5353.
machine() { # LIBRARY
  [ "$1" = avahi ] || [ -e "$CLUSTER_DIR/run/$1.pid" ] || cluster device "$1" >/dev/null
}

# publish LIBRARY NAME TYPE PORT [TXT…], on the machine of the library, until `stop LIBRARY`.
publish() {
  local library=$1 folder
  folder=$(publishers)
  shift
  case $library in
    avahi) begin avahi camera avahi-publish -s "$@" ;;
    zeroconf | hap) machine "$library" && begin "$library" "$library" "$folder/python/bin/python" "$E2E/publishers/python.py" "$library" "$@" ;;
    resolved) machine resolved && begin resolved resolved "$E2E/publishers/resolved" "$folder/resolved" "$@" ;;
    ciao | bonjour | multicast | matter)
      machine "$library" && begin "$library" "$library" env NODE_PATH="$folder/javascript/node_modules" \
        node "$E2E/publishers/javascript.js" "$library" "$@"
      ;;
    *) machine "$library" && begin "$library" "$library" "$folder/bin/$library" "$@" ;;
  esac
}

is_here() { # LIBRARY
  local folder
  folder=$(publishers)
  case $1 in
    avahi) true ;;
    zeroconf | hap) [ -e "$folder/python/ready" ] ;;
    resolved) [ -e "$folder/resolved/ready" ] ;;
    ciao | bonjour | multicast | matter) [ -e "$folder/javascript/ready" ] ;;
    *) [ -x "$folder/bin/$1" ] ;;
  esac
}

has_property() { # SERVICE KEY=VALUE
  local instance
  instance=$(instance_of "$1") && grep -qE "^ *AKRI_ZEROCONF_DEVICE_${2%%=*}: *[\"']?${2#*=}[\"']?\$" "$STATE/instances/$instance.yaml"
}

changes() { # how often the health of any device has changed so far
  grep -cE 'device .*health=(gone|seen)' "$SUITE/log/agent" || true
}

losses() {
  grep -c 'device .*health=gone' "$SUITE/log/agent" || true
}

# Prints the seconds from the first packet in which a library says TEXT to the last change of the Instance: without the time
# that the library takes to start, to probe and to announce.
reaction() { # LIBRARY TEXT SERVICE BUDGET
  local machine=$1 address said changed
  [ "$machine" != avahi ] || machine=camera
  address=$(cluster on "$machine" ip -4 -o addr show scope global | awk 'NR == 1 { sub("/.*", "", $4); print $4 }')
  said=$(awk -v address="$address" -v text="$2" '$2 == address && $3 == text { print $1 }' "$SUITE/log/listener")
  changed=$(stat -c %.3Y "$STATE/instances/$(instance_of "$3").yaml")
  [ -n "$said" ] || { echo "? (no packet to the group says $2)"; return 0; }
  awk "BEGIN { printf \"%.2f s (budget $4)\", $changed - $said }"
}

# The life of a service, by default with a dot in its name: found, another TXT record, goodbye, return, a sudden end, and a
# start on another port with another TXT record.
life_of() { # LIBRARY [CHANGES=SIGNAL] [GOODBYE=no] [ANNOUNCES=no] [TYPE=_hap._tcp] [NAME=NAME [SHOWN=NAME]]
  local library=$1 began CHANGES='' GOODBYE=yes ANNOUNCES=yes TYPE=_rtsp._tcp NAME="$1 v1.2" SHOWN=''
  shift
  [ $# = 0 ] || local "$@"
  SHOWN=${SHOWN:-$NAME}
  is_here "$library" || { note "$library is not here: not tried"; return 0; }
  publish "$library" "$NAME" "$TYPE" 8001 version=1
  # multicast-dns announces nothing: it is found by the next question, up to 16 s after the agent's start.
  within 20 "$library is found" is_healthy "$SHOWN"
  note "$library: process started -> found: $TOOK s"
  if [ -n "$CHANGES" ]; then
    sleep 2
    kill "-$CHANGES" "$(cat "$SUITE/pid/$library")"
    within 3 "the TXT record of $library changes" has_property "$SHOWN" VERSION=2
    note "$library: told to change its TXT record -> Instance: $TOOK s; said -> Instance: $(reaction "$library" version=2 "$SHOWN" 0.3)"
  fi
  if [ "$GOODBYE" = yes ]; then
    local pid
    began=$EPOCHREALTIME
    pid=$(cat "$SUITE/pid/$library")
    kill -TERM "$pid"
    within 5 "the goodbye of $library is believed" is_unhealthy "$SHOWN"
    note "$library: goodbye -> unhealthy: $(since "$began") s (budget 1.1)"
    stop "$library"
    publish "$library" "$NAME" "$TYPE" 8001 version=1
    # It is searched for, also if it announces nothing.
    within 8 "$library is back" is_healthy "$SHOWN"
    note "$library: started again -> healthy: $TOOK s"
  fi
  sleep 3
  stop "$library" KILL
  within 25 "the end of $library is noticed" is_unhealthy "$SHOWN"
  note "$library: SIGKILL -> unhealthy: $TOOK s (budget 20)"
  publish "$library" "$NAME" "$TYPE" 8002 version=3
  began=$EPOCHREALTIME
  within 20 "$library is on its new port" has_property "$SHOWN" PORT=8002
  within 20 "$library is healthy there" is_healthy "$SHOWN"
  note "$library: started on another port -> healthy: $(since "$began") s"
  [ "$ANNOUNCES" = no ] || within 3 "$library has its new TXT record" has_property "$SHOWN" VERSION=3
  note "$library: says its new port and TXT record -> Instance: $(reaction "$library" version=3 "$SHOWN" 1.5)"
}

# The lives of libraries, each with its options as one argument; all at once, because most of it is waiting.
lives() { # "LIBRARY [OPTION…]"…
  local life pids=() pid failed=0
  fresh
  configure accessories _hap._tcp
  begin_agent
  begin listener control python3 "$E2E/first_said.py" lan version=2 version=3
  [ -z "${MDNS_RECORD:-}" ] || begin recorder control python3 "$E2E/../../fuzz/record.py" lan "$MDNS_RECORD"
  # One after the other, because machines are numbered.
  for life; do machine "${life%% *}"; done
  for life; do
    eval "life_of $life" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  stop recorder
  stop listener
  [ "$failed" = 0 ] || fail "not all of these lives were seen"
}

test_the_lives_of_services_of_python_and_javascript() {
  # HAP-python writes the end of its MAC behind its name, and has no TXT record of ours; bonjour-service writes a - for a dot,
  # matter.js splits a name there. multicast-dns announces nothing: a new TXT record is seen when the known one expires.
  lives "zeroconf CHANGES=USR1" \
    'hap GOODBYE=no ANNOUNCES=no TYPE=_hap._tcp NAME="Front Door v1.2" SHOWN="Front Door v1 2 32D6FB"' \
    "ciao CHANGES=USR2" "bonjour NAME=bonjour" "multicast CHANGES=USR2 ANNOUNCES=no" "matter CHANGES=USR2 NAME=matter"
}

test_the_lives_of_services_of_go_rust_and_c() {
  # hashicorp and systemd-resolved say no goodbye, and a signal ends libmdns.
  lives "avahi" "grandcat CHANGES=USR1" "brutella CHANGES=USR1" "hashicorp GOODBYE=no" \
    "libmdns GOODBYE=no" "resolved GOODBYE=no"
}

test_all_libraries_on_one_lan_stay_healthy() {
  fresh
  configure accessories _hap._tcp
  local kind
  for kind in a b c d; do configure "$kind" "_$kind._tcp"; done
  begin_agent
  local library count=0
  for library in "${LIBRARIES[@]}" hap; do
    is_here "$library" || continue
    publish "$library" "Service of $library" _rtsp._tcp 8000 version=1
    count=$((count + 1))
  done
  for library in "${LIBRARIES[@]}"; do
    # multicast-dns announces nothing: the question 31 s after the start may be the first that it hears.
    ! is_here "$library" || within 40 "$library is found" is_healthy "Service of $library"
  done
  sleep 10
  local before
  before=$(changes)
  sleep "$WATCHED"
  equal "the number of changes" "$before" "$(changes)"
  note "$count libraries for $WATCHED s: no change"
}

test_names_are_kept_byte_by_byte() {
  fresh
  begin_agent
  local name n=0
  local -a names=("v1.2 (2)" "ends with dot." "tür süd" "カメラ" "_http._tcp inside" "local"
    "123456789.123456789.123456789.123456789.123456789.123456789.123" 'a\b' "Upper and LOWER")
  for name in "${names[@]}"; do
    n=$((n + 1))
    begin "name-$n" camera avahi-publish -s "$name" _rtsp._tcp $((8000 + n))
  done
  for name in "${names[@]}"; do
    within 10 "$name is found" is_named "$name"
  done
  local before
  before=$(changes)
  sleep 40
  equal "the number of changes" "$before" "$(changes)"
}

is_named() {
  local file
  for file in "$STATE"/instances/*.yaml; do
    [ "$(sed -n "s/^ *AKRI_ZEROCONF_DEVICE_NAME: *//p" "$file" | sed "s/^[\"']//; s/[\"']\$//; s/\\\\\\\\/\\\\/g")" != "$1" ] || return 0
  done
  return 1
}

test_the_case_of_a_type_means_nothing() {
  fresh
  configure upper _UPPER._tcp
  configure lower _lower._tcp
  begin_agent
  begin one camera avahi-publish -s "one" _upper._tcp 1
  begin two camera avahi-publish -s "two" _LOWER._tcp 2
  within 10 "one is found" is_healthy one
  within 10 "two is found" is_healthy two
}

given_a_service_on_the_machine_camera() {
  fresh
  begin_agent
  publish avahi "Front Door v1.2" _rtsp._tcp 8001
  within 10 "it is found" is_healthy "Front Door v1.2"
  sleep 5
}

test_a_link_that_is_away_for_5_seconds_goes_unnoticed() {
  given_a_service_on_the_machine_camera
  local before n
  before=$(changes)
  for n in 1 2 3; do
    cluster pull camera
    sleep 5
    cluster plug camera
    sleep $((10 + n * 3))
  done
  equal "the number of changes" "$before" "$(changes)"
}

test_a_service_behind_a_link_that_was_away_for_60_seconds_is_back_within_2() {
  given_a_service_on_the_machine_camera
  local identity
  identity=$(identity_of "Front Door v1.2")
  cluster pull camera
  within 25 "it is unhealthy" is_unhealthy "Front Door v1.2"
  note "link away -> unhealthy: $TOOK s"
  sleep 40
  cluster plug camera
  within 4 "it is back" is_healthy "Front Door v1.2"
  note "link back -> healthy: $TOOK s (budget 2)"
  equal "the Instance" "$identity" "$(identity_of "Front Door v1.2")"
}

test_a_service_that_one_of_two_links_still_reaches_stays_healthy() {
  fresh
  cluster cable edge camera
  sleep 1
  begin_agent
  publish avahi "Front Door v1.2" _rtsp._tcp 8001
  within 10 "it is found" is_healthy "Front Door v1.2"
  sleep 5
  local before
  before=$(losses)
  cluster on edge ip link set eth1 down
  sleep 15
  equal "the number of losses" "$before" "$(losses)" # its address may change
  is_healthy "Front Door v1.2" || fail "it is not healthy"
  cluster cut edge
}

test_a_host_with_ipv6_alone_is_found() {
  fresh
  cluster on edge ip addr add 2001:db8::1/64 dev eth0 nodad 2>/dev/null || true
  cluster avahi six >/dev/null 2>&1 || true
  cluster on six sh -c "ip -4 addr flush dev eth0; ip addr add 2001:db8::6/64 dev eth0 nodad"
  begin_agent
  begin six six avahi-publish -s "six" _rtsp._tcp 6
  within 20 "it is found" is_healthy six
  within 5 "its address is known" has_property six "ADDR=2001:db8::6"
}

test_an_agent_beside_avahi_on_its_node_finds_all() {
  fresh
  cluster on edge sh -c 'mkdir -p /run/dbus && dbus-daemon --system --fork; exec avahi-daemon -D --no-rlimits --no-drop-root --no-chroot' || true
  begin_agent
  publish avahi "Front Door v1.2" _rtsp._tcp 8001
  within 10 "it is found" is_healthy "Front Door v1.2"
  begin beside edge avahi-publish -s "On this node" _rtsp._tcp 9
  within 10 "the node's own is found" is_healthy "On this node"
  cluster on edge avahi-daemon -k || true # on a busy machine it does not wait for the end
}

test_the_conversation_is_shown() {
  fresh
  publish avahi "Front Door v1.2" _rtsp._tcp 8001
  echo 'kind: _rtsp._tcp' >"$SUITE/details"
  begin shown edge "$PETIOLE" discover zeroconf --details "$SUITE/details" -v
  within 5 "a question is shown" grep -q 'asked on eth0: PTR _rtsp._tcp.local' "$SUITE/log/shown"
  within 5 "an answer is shown" grep -qF 'Front Door v1\.2._rtsp._tcp.local' "$SUITE/log/shown"
}

test_another_host_that_takes_a_pinned_name_is_a_condition() {
  is_here zeroconf || { note "python-zeroconf is not here: not tried"; return 0; }
  fresh "pin: true"
  begin_agent
  publish avahi "Front Door v1.2" _rtsp._tcp 8001
  within 10 "it is found" is_healthy "Front Door v1.2"
  stop avahi
  within 5 "it is gone" is_unhealthy "Front Door v1.2"
  publish zeroconf "Front Door v1.2" _rtsp._tcp 8001
  within 15 "the other host is noticed" grep -q IdentityChanged "$STATE"/instances/*.yaml
  is_unhealthy "Front Door v1.2" || fail "it is healthy"
  has_property "Front Door v1.2" HOST=camera.local || fail "the Instance has moved"
}

show() {
  tail -n +1 "$STATE"/instances/* "$STATE"/configurations/* "$STATE"/*.error 2>/dev/null || true
  cluster on edge ip addr
  for log in "$SUITE"/log/*; do
    echo "--- $log"
    tail -n 30 "$log"
  done
}
