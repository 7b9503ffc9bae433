# No cluster: avahi devices on a LAN, and one machine with our agent and our kubelet.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

HOME_OF_NODE=$SUITE/edge
ROOT=$HOME_OF_NODE/kubelet
PLUGINS=$ROOT/device-plugins
STATE=$HOME_OF_NODE/state
CONFIGURATIONS=$HOME_OF_NODE/configurations
MANIFESTS=$HOME_OF_NODE/manifests
TOLD=$HOME_OF_NODE/told # what each broker was told: a file named as its service

set_up() {
  cluster lan
  cluster device edge
  cluster avahi camera
}

# A node without a past that runs a broker for each camera. In a manifest $$ is one $, as the kubelet has it.
fresh() {
  stop_all
  rm -rf "$HOME_OF_NODE"
  mkdir -p "$ROOT" "$STATE" "$CONFIGURATIONS" "$MANIFESTS" "$TOLD"
  cat >"$CONFIGURATIONS/cameras.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: cameras}
spec:
  discoveryHandler: {name: zeroconf, discoveryDetails: "kind: _rtsp._tcp"}
  gracePeriodSeconds: 300
  brokerSpec:
    brokerPodSpec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: broker
          image: localhost/none:1
          command: [/bin/sh, -c, "env | sort; echo \$\$\$\$ >\"$TOLD/\$AKRI_ZEROCONF_DEVICE_NAME\"; exec sleep 2147483647"]
          resources: {limits: {"{{PLACEHOLDER}}": "1"}}
X
  begin_kubelet
  begin_agent
}

begin_kubelet() {
  begin kubelet edge "$PETIOLE" kubelet --root-dir "$ROOT" --manifests "$MANIFESTS" --node-name edge
}

begin_agent() { # [FLAGS]
  begin agent edge "$PETIOLE" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" \
    --state "$STATE" --kubelet-dir "$ROOT" --render-brokers "$MANIFESTS" "$@"
}

get() {
  cluster on edge "$PETIOLE" get "$@" --root-dir "$ROOT" --state "$STATE" -o json
}

# The kubelet's word, not the agent's.
node_holds() { # capacity|allocatable RESOURCE AMOUNT
  get node | jq -e --arg r "akri.sh/$2" --arg n "$3" ".status.$1[\$r] == \$n"
}

# The broker of a service, by its PID there.
broker_of() {
  cat "$TOLD/$1" 2>/dev/null
}

has_broker() {
  broker_of "$1" && cluster on edge test -d "/proc/$(broker_of "$1")"
}

has_another_broker_than() { # PID SERVICE
  has_broker "$2" && [ "$(broker_of "$2")" != "$1" ]
}

broker_logged() { # TEXT
  grep -rqF "$1" "$ROOT/logs"
}

given_a_camera_with_a_broker() {
  announce camera cam-1 _rtsp._tcp 554 path=/live model=A1
  within 10 "cam-1 has a broker" has_broker cam-1
}

test_a_service_becomes_the_environment_of_a_process() {
  fresh
  announce camera cam-1 _rtsp._tcp 554 path=/live model=A1
  within 5 "cam-1 has an Instance" is_healthy cam-1
  note "announced -> Instance: $TOOK s"
  within 5 "the kubelet offers it" node_holds allocatable "$(instance_name_of cam-1)" 1
  note "then -> allocatable: $TOOK s"
  within 5 "its broker runs" has_broker cam-1
  note "then -> broker runs: $TOOK s"
  local line suffix
  suffix=$(instance_name_of cam-1)
  suffix=${suffix##*-}
  for line in AKRI_ZEROCONF=zeroconf AKRI_ZEROCONF_DEVICE_KIND=_rtsp._tcp AKRI_ZEROCONF_DEVICE_NAME=cam-1 \
    AKRI_ZEROCONF_DEVICE_HOST=camera.local AKRI_ZEROCONF_DEVICE_ADDR=198.51.100.102 AKRI_ZEROCONF_DEVICE_PORT=554 \
    AKRI_ZEROCONF_DEVICE_PATH=/live AKRI_ZEROCONF_DEVICE_MODEL=A1 "AKRI_ZEROCONF_DEVICE_PATH_${suffix^^}=/live"; do
    within 5 "the broker's log has $line" broker_logged "$line"
  done
}

test_two_services_of_one_host_are_two_devices() {
  fresh
  announce camera cam-1 _rtsp._tcp 554
  announce camera cam-2 _rtsp._tcp 555
  within 10 "cam-1 has a broker" has_broker cam-1
  within 10 "cam-2 has a broker" has_broker cam-2
  [ "$(broker_of cam-1)" != "$(broker_of cam-2)" ] || fail "they share a broker"
}

test_a_name_with_dots_spaces_and_umlauts_is_kept() {
  fresh
  announce camera "Tür 2.5 süd" _rtsp._tcp 554
  within 10 "it has a broker" has_broker "Tür 2.5 süd"
}

test_a_goodbye_is_seen_at_once() {
  fresh
  given_a_camera_with_a_broker
  local began=$EPOCHREALTIME resource
  resource=$(instance_name_of cam-1)
  goodbye cam-1
  within 4 "cam-1 is unhealthy" is_unhealthy cam-1
  note "goodbye -> unhealthy: $(since "$began") s (budget 1.5)"
  within 2 "the kubelet offers it no more" node_holds allocatable "$resource" 0
  note "goodbye -> allocatable 0: $(since "$began") s"
  node_holds capacity "$resource" 1 >/dev/null || fail "its capacity went at once, without grace"
}

test_a_service_that_returns_within_grace_keeps_its_instance_and_broker() {
  fresh
  given_a_camera_with_a_broker
  local identity broker
  identity=$(identity_of cam-1)
  broker=$(broker_of cam-1)
  goodbye cam-1
  within 4 "cam-1 is unhealthy" is_unhealthy cam-1
  announce camera cam-1 _rtsp._tcp 554 path=/live model=A1
  within 5 "cam-1 is healthy" is_healthy cam-1
  equal "the Instance" "$identity" "$(identity_of cam-1)"
  equal "the broker" "$broker" "$(broker_of cam-1)"
  has_broker cam-1 || fail "the broker ended"
}

test_a_power_cut_is_noticed_by_asking() {
  fresh
  cluster avahi doomed
  announce doomed cam-9 _rtsp._tcp 554
  within 10 "cam-9 is an Instance" is_healthy cam-9
  cluster kill doomed
  within 35 "cam-9 is unhealthy" is_unhealthy cam-9
  note "power cut -> unhealthy: $TOOK s (budget 30)"
}

test_devices_behind_a_pulled_cable_go_and_come_back() {
  fresh
  given_a_camera_with_a_broker
  local identity
  identity=$(identity_of cam-1)
  cluster pull edge
  within 35 "cam-1 is unhealthy" is_unhealthy cam-1
  note "cable pulled -> unhealthy: $TOOK s"
  cluster plug edge
  within 35 "cam-1 is healthy" is_healthy cam-1
  note "cable back -> healthy: $TOOK s"
  equal "the Instance" "$identity" "$(identity_of cam-1)"
}

test_devices_behind_an_interface_that_is_down_go_and_come_back() {
  fresh
  given_a_camera_with_a_broker
  local identity
  identity=$(identity_of cam-1)
  cluster on edge ip link set eth0 down
  within 35 "cam-1 is unhealthy" is_unhealthy cam-1
  note "interface down -> unhealthy: $TOOK s"
  cluster on edge sh -c "ip link set eth0 up && ip route add default via 198.51.100.1"
  within 35 "cam-1 is healthy" is_healthy cam-1
  note "interface up -> healthy: $TOOK s"
  equal "the Instance" "$identity" "$(identity_of cam-1)"
}

test_an_agent_restart_keeps_instances_and_brokers() {
  fresh
  given_a_camera_with_a_broker
  local identity broker signal resource
  resource=$(instance_name_of cam-1)
  identity=$(identity_of cam-1)
  broker=$(broker_of cam-1)
  for signal in TERM KILL; do
    stop agent $signal
    equal "the Instance while the agent is away" "$identity" "$(identity_of cam-1)"
    begin_agent
    within 5 "the kubelet offers it again" node_holds allocatable "$resource" 1
    note "agent up after SIG$signal -> allocatable: $TOOK s"
    for_all_of 8 "cam-1 stays healthy" is_healthy cam-1
    equal "the Instance" "$identity" "$(identity_of cam-1)"
    equal "the broker" "$broker" "$(broker_of cam-1)"
    has_broker cam-1 || fail "the broker ended"
  done
}

test_after_a_kubelet_restart_all_is_registered_and_runs_again() {
  fresh
  given_a_camera_with_a_broker
  local broker signal resource
  resource=$(instance_name_of cam-1)
  for signal in TERM KILL; do
    broker=$(broker_of cam-1)
    stop kubelet $signal
    begin_kubelet
    within 5 "the kubelet offers it again" node_holds allocatable "$resource" 1
    note "kubelet up after SIG$signal -> allocatable: $TOOK s"
    within 10 "its broker runs" has_another_broker_than "$broker" cam-1
    note "then -> broker: $TOOK s"
    equal "the number of brokers" 1 "$(processes_for cam-1)"
    is_healthy cam-1 || fail "cam-1 is not healthy"
  done
}

processes_for() {
  # shellcheck disable=SC2016 # expanded by the inner shell
  cluster on edge sh -c 'grep -l "AKRI_ZEROCONF_DEVICE_NAME=$0" /proc/[0-9]*/environ 2>/dev/null | wc -l' "$1"
}

test_a_configuration_that_goes_takes_all_with_it_at_once() {
  fresh
  given_a_camera_with_a_broker
  local broker
  broker=$(broker_of cam-1)
  rm "$CONFIGURATIONS/cameras.yaml"
  within 3 "its Instance is gone" has_no_instance cam-1
  within 3 "its sockets are gone" has_no_socket
  within 10 "its broker has ended" has_ended "$broker"
}

has_no_socket() {
  ! find "$PLUGINS" -name 'cameras*' | matches .
}

has_ended() {
  cluster on edge test ! -d "/proc/$1"
}

test_a_bad_configuration_is_reported_and_the_others_go_on() {
  fresh
  printf 'apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: bad}\nspec: {discoveryHandler: {name: zeroconf, discoveryDetails: "{kind: _x._tcp, knd: x}"}}\n' \
    >"$CONFIGURATIONS/bad.yaml"
  within 3 "bad.yaml.error says why" grep -q knd "$STATE/bad.yaml.error"
  given_a_camera_with_a_broker
  rm "$CONFIGURATIONS/bad.yaml"
  within 3 "bad.yaml.error is gone" test ! -e "$STATE/bad.yaml.error"
}

# ---- zeroconf as a process without rights ----

# The folder of the process is of a group that the agent's user is not in, and they reach it.
begin_isolated_agent() {
  ISOLATED=$SUITE/isolated
  mkdir -p "$ISOLATED/zeroconf"
  chmod o+x "$WORK" "$SUITE" "$ISOLATED"
  chgrp 65534 "$ISOLATED/zeroconf"
  chmod 0770 "$ISOLATED/zeroconf"
  [ -e "$SUITE/petiole" ] || install -m 0755 "$PETIOLE" "$SUITE/petiole"
  begin_agent --isolate-handlers zeroconf --isolated-dir "$ISOLATED"
}

begin_zeroconf() {
  begin zeroconf edge setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
    "$SUITE/petiole" handler zeroconf --handlers-dir "$ISOLATED/zeroconf"
}

memory_of() { # NAME: in kB
  sed -n 's/^Rss: *//p' "/proc/$(cat "$SUITE/pid/$1")/smaps_rollup" | cut -d' ' -f1
}

listens_to_the_lan() { # NAME: whether it has a socket on the port of mDNS, 5353
  local pid sockets
  pid=$(cat "$SUITE/pid/$1")
  sockets=$(awk '$2 ~ /:14E9$/ { print "socket:\\[" $10 "\\]" }' "/proc/$pid/net/udp" "/proc/$pid/net/udp6")
  [ -n "$sockets" ] && find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\n' | matches "$sockets"
}

test_zeroconf_without_rights_takes_over_and_nothing_changes() {
  fresh
  given_a_camera_with_a_broker
  local identity broker
  identity=$(identity_of cam-1)
  broker=$(broker_of cam-1)
  note "the agent alone: $(memory_of agent) kB"
  stop agent
  begin_isolated_agent
  begin_zeroconf
  announce camera cam-2 _rtsp._tcp 555 path=/live
  within 10 "a new camera has a broker" has_broker cam-2
  note "announced -> broker: $TOOK s"
  within 5 "cam-1 is healthy" is_healthy cam-1
  note "agent and handler: $(memory_of agent) kB and $(memory_of zeroconf) kB"
  equal "the Instance" "$identity" "$(identity_of cam-1)"
  equal "the broker" "$broker" "$(broker_of cam-1)"
  listens_to_the_lan agent && fail "the agent reads packets of the LAN"
  listens_to_the_lan zeroconf >/dev/null || fail "the process does not"
  goodbye cam-2
  within 4 "what says goodbye is unhealthy" is_unhealthy cam-2
  note "goodbye -> unhealthy: $TOOK s"
  # The process is killed, and then the agent.
  stop zeroconf KILL
  for_all_of 3 "cam-1 stays" node_holds allocatable "$(instance_name_of cam-1)" 1
  begin_zeroconf
  announce camera cam-3 _rtsp._tcp 556
  within 10 "the next process finds cam-3" has_broker cam-3
  for_all_of 6 "cam-1 stays healthy while it looks" is_healthy cam-1
  stop agent KILL
  begin_isolated_agent
  announce camera cam-4 _rtsp._tcp 557
  within 10 "the next agent is told of cam-4" has_broker cam-4
  within 5 "cam-1 is healthy" is_healthy cam-1
  equal "the Instance" "$identity" "$(identity_of cam-1)"
  equal "the broker" "$broker" "$(broker_of cam-1)"
  # Back to the agent's own.
  stop agent
  stop zeroconf
  begin_agent
  announce camera cam-5 _rtsp._tcp 558
  within 10 "the agent finds cam-5 itself" has_broker cam-5
  equal "the Instance" "$identity" "$(identity_of cam-1)"
  equal "the broker" "$broker" "$(broker_of cam-1)"
}

test_a_user_of_another_group_cannot_serve_in_the_folder() {
  fresh
  begin_isolated_agent
  begin thief edge setpriv --reuid 65533 --regid 65533 --clear-groups "$SUITE/petiole" handler zeroconf --handlers-dir "$ISOLATED/zeroconf"
  within 5 "it is refused" grep -qi "no agent can reach this handler.*permission denied" "$SUITE/log/thief"
}

show() {
  get node | jq -c '.status | {capacity, allocatable}'
  get pods | jq -c '.items[] | [.metadata.name, .status]'
  get plugins
  ls -l "$PLUGINS" "$CONFIGURATIONS" "$MANIFESTS" "$TOLD"
  tail -n +1 "$STATE"/instances/* "$STATE"/configurations/* "$STATE"/*.error 2>/dev/null
  cluster on edge ip addr
  for log in "$SUITE"/log/* "$CLUSTER_DIR"/log/camera.log; do
    echo "--- $log"
    tail -n 40 "$log"
  done
}
