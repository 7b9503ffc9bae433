# How fast it is, on a real node. Each number is a note against its limit; `just perf` writes them to
# docs/performance-cluster.md.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  install
  cluster avahi camera
}

# measure WHAT LIMIT UNIT VALUE: a number of the report; beyond its limit the test fails, once all was measured.
measure() {
  note "$1: $4 $3 (limit $2)"
  echo "$1|$2|$3|$4" >>"$MEASUREMENTS"
  awk "BEGIN { exit !($4 <= $2) }" || echo "$1: $4 $3, limit $2" >>"$SUITE/slow"
}

# The machines of CI are noisy: over a limit is a note there, and a failure where it is measured on purpose.
is_fast() {
  local slow
  [ -s "$SUITE/slow" ] || return 0
  slow=$(paste -sd';' "$SUITE/slow")
  rm "$SUITE/slow"
  [ -z "${MEASURED_ON_PURPOSE:-}" ] || fail "over the limit: $slow"
  note "OVER THE LIMIT: $slow"
}

# Reads a watch: to ask again and again would take the processor time that is measured.
allocatable_within() { # SECONDS CONFIGURATION COUNT: on node-1
  local prefix=akri.sh/$2- watch pid offers template
  # shellcheck disable=SC2016 # expanded by kubectl
  template='{{range $k, $v := .status.allocatable}}{{if and (eq (printf "%.'${#prefix}'s" $k) "'$prefix'") (eq $v "1")}}x{{end}}{{end}}{{"\n"}}'
  exec {watch}< <(exec timeout "$1" "$E2E/cluster/cluster" kubectl get node node-1 --watch -o go-template="$template")
  pid=$!
  while read -r -u "$watch" offers; do
    [ "${#offers}" = "$3" ] || continue
    exec {watch}<&-
    kill "$pid"
    return
  done
  fail "not within $1 s: $3 devices are allocatable"
}

# Before the many devices: their deletion goes on for some time.
test_a_broker_runs_soon_after_the_first_announcement() {
  clean
  local began
  configure soon "kind: _rtsp._tcp" "gracePeriodSeconds: 5, $BROKER"
  sleep 6 # the browse is an old one: what is measured is a device that appears
  began=$EPOCHREALTIME
  begin service-door camera avahi-publish -s door _rtsp._tcp 554
  within 30 "its broker runs" has_brokers soon 1
  # avahi probes for 0.75 s before it announces (RFC 6762 8.1).
  measure "avahi-publish started -> broker Running (0.75 s of it probing)" 2.25 s "$(since "$began")"
  is_fast
}

test_devices_are_allocatable() {
  devices_are_allocatable 1 0.5 10
  devices_are_allocatable 100 1.5 220
  kubelet_restart_with_100
  memory 100 18
  devices_are_allocatable 300 3 650
  if [ -n "${MEASURED_ON_PURPOSE:-}" ]; then
    devices_are_allocatable 1000 10 2150
    memory 1000 70
    answers_of_allocate 25 0.002
  fi
  is_fast
}

devices_are_allocatable() { # COUNT SECONDS WRITES: the limits
  local began before
  clean
  before=$(mark)
  began=$EPOCHREALTIME
  echoes "speed-$1" "$1"
  allocatable_within 60 "speed-$1" "$1"
  measure "apply -> allocatable, $1 devices" "$2" s "$(since "$began")"
  within 60 "node-2 offers them, too" offers_of "speed-$1" "$1" node-2
  within 10 "the Configuration says so" is_ready_as "speed-$1" "True Working"
  measure "writes for $1 devices on two nodes, all processes" "$3" requests \
    "$(requests_since "$before" | awk '$2 ~ /create|update|patch|delete/' | wc -l)"
}

# Of a device that one node has: the agent answers from its memory.
answers_of_allocate() { # PODS LIMIT
  local n
  clean
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: local}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "{shared: false, descriptions: [$(seq -f "stick-%g" -s, "$1")]}"}, capacity: 1}
X
  within 60 "node-1 offers its devices" offers local "$1"
  # A call for a shared device waits for the API server.
  allocate_counts node-1 >"$SUITE/allocate-before"
  for n in $(seq "$1"); do pod "local-$n" node-1 local; done
  for n in $(seq "$1"); do within 60 "Pod local-$n runs" is_running "local-$n"; done
  measure "p99 of Allocate, $1 Pods in a row, as the agent measures it" "$2" s "$(allocate_p99 node-1 "$SUITE/allocate-before" | cut -d' ' -f1)"
  kubectl delete pods -l test=yes >/dev/null
}

offers() { # RESOURCE COUNT
  [ "$(kubectl get node node-1 -o json | jq -r ".status.allocatable[\"akri.sh/$1\"]")" = "$2" ]
}

kubelet_restart_with_100() {
  local socket=$CLUSTER_DIR/node-1/var/lib/kubelet/device-plugins/kubelet.sock old began
  old=$(stat -c %i%Y "$socket")
  cluster kubelet node-1 restart
  within 30 "kubelet.sock is back" is_another_socket "$socket" "$old"
  began=$EPOCHREALTIME
  within 30 "100 devices are in the kubelet's books" kubelet_has_all 100
  measure "kubelet.sock back -> 100 devices registered" 1.5 s "$(since "$began")"
}

is_another_socket() {
  [ -S "$1" ] && [ "$(stat -c %i%Y "$1")" != "$2" ]
}

# The kubelet begins with the books of the last one, and writes them anew when a plugin has sent its list.
kubelet_has_all() {
  local folder=$CLUSTER_DIR/node-1/var/lib/kubelet/device-plugins
  [ "$folder/kubelet_internal_checkpoint" -nt "$folder/kubelet.sock" ] && [ "$(jq '[.Data.RegisteredDevices | to_entries[] | select((.key | startswith("akri.sh/speed-100-")) and (.value | length) == 1)] | length' \
    "$folder/kubelet_internal_checkpoint")" = "$1" ]
}

memory() { # INSTANCES LIMIT
  measure "agent memory, $1 Instances" "$2" MB "$(resident node-1 "$(agent_pid node-1)")"
}

resident() { # NODE PID: MB of 10^6 bytes
  cluster on "$1" cat "/proc/$2/status" | awk '/^VmRSS:/ { printf "%.1f", $2 * 1024 / 1e6 }'
}

test_requests_of_a_devices_life_and_at_rest() {
  clean
  local began
  configure life "kind: _rtsp._tcp" "gracePeriodSeconds: 2"
  within 20 "the Configuration is ready" is_ready_as life "True Working"
  sleep 12
  began=$(mark)
  announce camera bulb _rtsp._tcp 554
  within 5 "an Instance" has_instances life 1
  within 5 "both nodes see it" is_on "$(instance_of bulb)" node-1 node-2
  sleep 3
  goodbye bulb
  within 15 "it is gone" has_instances life 0
  sleep 12
  requests_since "$began" >"$SUITE/life"
  measure "requests of a device's life, of two agents and the controller" 30 requests "$(wc -l <"$SUITE/life")"
  sort "$SUITE/life" | awk '{ print $1, $2, $3, $4 }' | uniq -c | sed 's/^ */note:   /'
  began=$(mark)
  for_all_of 120 "the agents are there" agent_pid node-1
  requests_since "$began" >"$SUITE/rest"
  measure "requests at rest in 2 min, but for the Lease" 0 requests "$(wc -l <"$SUITE/rest")"
  [ ! -s "$SUITE/rest" ] || fail "asked at rest: $(sort "$SUITE/rest" | uniq -c)"
  [ ! -s "$SUITE/rest" ] || sort "$SUITE/rest" | uniq -c
  is_fast
}

# Without agents, which would have discovered them. Last, because nobody waits until 5000 objects are deleted.
test_zz_the_controllers_memory_is_bounded() {
  clean
  local pod node uid
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set agent.nodeSelector.agents=none --wait --timeout 90s >/dev/null
  within 60 "no agent is left" is_empty agent_of node-1
  pod=$(kubectl -n petiole get lease petiole-controller -o 'jsonpath={.spec.holderIdentity}')
  node=$(kubectl -n petiole get pod "$pod" -o 'jsonpath={.spec.nodeName}')
  note "the controller that leads, 0 Instances: $(resident "$node" "$(processes "$node" controller)") MB"
  echoes many 0
  uid=$(kubectl get configuration many -o 'jsonpath={.metadata.uid}')
  seq 5000 | jq -c --arg uid "$uid" '{apiVersion: "akri.sh/v0", kind: "Instance", metadata: {name: "many-\(. + 1048576)",
    ownerReferences: [{apiVersion: "akri.sh/v0", kind: "Configuration", name: "many", uid: $uid, controller: true}]},
    spec: {configurationName: "many", cdiName: "akri.sh/many=\(.)", capacity: 1, shared: true, nodes: ["node-1"],
      brokerProperties: {AKRI_ZEROCONF_DEVICE_ADDR: "198.51.100.1", AKRI_ZEROCONF_DEVICE_PORT: "554"}}}' >"$SUITE/many"
  create_all "$SUITE/many"
  within 300 "the controller has labelled all of them" have_labels 5000
  measure "memory of the controller that leads, 5000 Instances" 64 MB "$(resident "$node" "$(processes "$node" controller)")"
  equal "the leader" "$pod" "$(kubectl -n petiole get lease petiole-controller -o 'jsonpath={.spec.holderIdentity}')"
  is_fast
}

# kubectl asks 50 times a second at most: several of it.
create_all() { # FILE, an object a line
  local part
  split -n l/4 "$1" "$1."
  for part in "$1".a?; do kubectl create -f "$part" >/dev/null & done
  wait
}

have_labels() { # COUNT
  [ "$(kubectl get instances.akri.sh -l node.akri.sh/node-1 -o name | wc -l)" = "$1" ]
}
