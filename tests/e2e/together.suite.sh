# Everything at its bound at the same time, on a cluster whose Pods have the chart's limits: four tenants who write the
# largest and the most Configurations that the schema and the policies let in, and four hostile hosts on the LAN, beside
# four honest hosts. Nothing restarts, every honest device is healthy at every look, new ones are found, Pods get devices,
# and the agents answer. All that is hostile ends by itself.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

# How long tenants and hosts go on, in seconds.
LASTS=${TOGETHER_SECONDS:-120}
# The most bytes of an object that etcd takes, less what the API server adds.
OBJECT_MAX=1500000
# About as many bytes as a Configuration may have: 256 Ki characters, and beside each comma the policy counts a space. In SPEC most
# of them are of a list of digits.
LARGE=250000
SPEC=160000
# The slowest hundredth of the agents' answers, in seconds. With processor time of its own an agent needs less than 0.02 and 0.1
# (`just perf` measures that). Here two kubelets, the API server and four floods share the cores: a probe was 0.126 and 0.163.
# Of Allocate it is the bound of a histogram: 0.1 is followed by 0.5 and 1. Node-1 gives out devices that it alone has, from its
# memory; a claim of a shared device on node-2 waits for the API server, which has no time left, and so do Pods.
HEALTHZ_MAX=0.25
ALLOCATE_MAX=([1]=0.1 [2]=1)
RUNS_WITHIN=120
# A look takes two seconds, and up to ten while the API server is slow: at least so many are answered.
LOOKS_MIN=$((LASTS / 10))

set_up() {
  # Floods that every host of the LAN reads, beside a cluster: two cores are not enough for it beside other suites.
  [ -n "${TOGETHER_SECONDS:-}" ] || { echo "it runs alone and for minutes: just e2e-long"; exit 77; }
  up_with_images
  install --set cdi.write=true
  local n address
  for n in 1 2 3 4; do
    address=$(cluster device "honest-$n" | tail -n 1)
    begin_responder "responder-$n" "honest-$n" "$address"
    cluster device "evil-$n"
    # Who writes Configurations, and may create Pods. Nothing else.
    kubectl create namespace "tenant-$n"
    kubectl -n "tenant-$n" create rolebinding devices --clusterrole petiole-edit --user "tenant-$n"
    kubectl -n "tenant-$n" create rolebinding pods --clusterrole edit --user "tenant-$n"
  done
  # The source addresses of a host that has many.
  cluster on evil-2 ip route add local 203.0.112.0/21 dev lo
  # The address of an honest host, in whose name it sends, too.
  cluster on evil-2 ip route add local 198.51.100.101 dev lo
  kubectl get crds -o json >"$SUITE/definitions"
}

respond() { # HOST COMMAND…
  respond_as "responder-$1" "${@:2}"
}

# ---- tenants ----

# write TENANT: creates the objects on standard input, as that tenant. What is refused is no failure here: `has_created` says
# what must not be.
write() {
  cluster kubectl --request-timeout=60s --as "tenant-$1" -n "tenant-$1" create -f - >>"$SUITE/log/tenant-$1" 2>&1 || true
}

# A Configuration with every field at its bound, or at what the bound of the whole leaves of it.
at_bounds() { # TENANT NAME [OPTIONS of at_bounds.py]
  python3 "$E2E/at_bounds.py" Configuration "tenant-$1" "$2" .nodeSelector=null ".resourceName=\"akri.sh/$2\"" .allocation='"DevicePlugin"' \
    ".discoveryHandler.discoveryProperties[].valueFrom=null" .instanceServiceSpec=null .configurationServiceSpec=null \
    .instanceName='"{DEBUG_ECHO_DESCRIPTION}"' .containerDevices.path="\"/dev/$(printf 'x%.0s' {1..250})\"" "${@:3}" <"$SUITE/definitions"
}

# many TENANT NAME COUNT [OPTIONS]: the same, of a handler that finds as many devices.
many() {
  at_bounds "$1" "$2" .discoveryHandler.name='"debugEcho"' \
    ".discoveryHandler.discoveryDetails=\"descriptions: [$(seq -f d%g -s, "$3")]\"" "${@:4}"
}

# The same object with ever fewer bytes: the largest that is let in is among them.
SIZES="$OBJECT_MAX 530000 $LARGE $SPEC 64000 32000"

# One Configuration of as many properties and devices as it may have, and very many devices beside it.
tenant_1() {
  local bytes n
  for bytes in $SIZES; do
    many 1 "wide-$bytes" 1000 bytes="$bytes" .brokerSpec=null | write 1
  done
  for n in $(seq 40); do
    many 1 "echo-$n" 1000 bytes=16000 .brokerSpec=null .brokerProperties=null .maxInstances=1 | write 1
  done
}

# Pods' specs of very many values.
tenant_2() {
  local bytes n
  for bytes in $SIZES; do
    for n in $(seq 12); do
      many 2 "spec-$bytes-$n" 1 bytes="$bytes" free=$((bytes * 4 / 10)) .brokerSpec.brokerJobSpec=null \
        .discoveryHandler.discoveryProperties=null .brokerProperties=null | write 2
    done
  done
}

# Very many Configurations, of which most are refused by the agents, and many large texts.
tenant_3() {
  local bytes n
  for n in $(seq 1600); do
    printf '{"apiVersion":"akri.sh/v0","kind":"Configuration","metadata":{"name":"refused-%s"},"spec":{"discoveryHandler":{"name":"none-%s"}}}\n' "$n" "$n"
  done | write 3
  for bytes in $SIZES; do
    for n in $(seq 16); do
      at_bounds 3 "text-$bytes-$n" bytes="$bytes" .brokerSpec=null .discoveryHandler.name='"zeroconf"' | write 3
    done
  done
}

# Expressions that are slow to match, all Instances of a node, and Pods whose environment is as large as it may be.
tenant_4() {
  local n bytes
  for bytes in $SIZES; do
    many 4 "environment-$bytes" 1 bytes="$bytes" .brokerSpec=null .containerDevices=null | write 4
    for n in 1 2 3; do
      jq -nc --arg name "environment-$bytes-$n" --arg resource "akri.sh/environment-$bytes" '{apiVersion: "v1", kind: "Pod", metadata: {name: $name}, spec: {
        terminationGracePeriodSeconds: 0, nodeSelector: {"kubernetes.io/hostname": "node-2"}, containers: [{name: "main", image: "docker.io/library/busybox:stable",
        command: ["/bin/sh", "-c", "exec sleep 2147483647"], resources: {limits: {($resource): "1"}}}]}}'
    done | write 4
  done
  # As benches/node/hostile.rs has it: two expressions of 390 states that are all active at each byte, and that match the values
  # of evil-3. They take nearly all steps that a Configuration may.
  for n in $(seq 100); do
    jq -nc --arg n "$n" --arg slow '{regex: "(?:.?){100}.*"}' '{apiVersion: "akri.sh/v0", kind: "Configuration", metadata: {name: "slow-\($n)"},
      spec: {discoveryHandler: {name: "zeroconf", discoveryDetails: "kind: _rtsp._tcp\ntxt:\n  a: \($slow)\n  b: \($slow)\n"}}}'
  done | write 4
  many 4 all 1000 bytes=64000 .brokerSpec=null .brokerProperties=null | write 4
}

# ---- hosts ----

evil() { # HOST ARGS… of hostile.py
  cluster on "evil-$1" python3 "$E2E/hostile.py" "${@:2}" >>"$SUITE/log/evil-$1" 2>&1
}

host_1() {
  evil 1 questions _rtsp._tcp cam-1 40 $((LASTS / 3))
  evil 1 chains 40 $((LASTS / 3))
  evil 1 addresses cam-1.local 40 $((LASTS / 3))
}

host_2() {
  evil 2 sources 203.0.112.0/21 224.0.0.251 10000 $((LASTS / 2))
  evil 2 sources 198.51.100.101/32 224.0.0.251 2500 $((LASTS / 2))
}

host_3() {
  evil 3 filling _rtsp._tcp "$LASTS"
}

host_4() {
  local node pids=()
  for node in 1 2; do
    evil 4 confirm cam-2 _rtsp._tcp "198.51.100.1$node" 5 "$LASTS" &
    pids+=($!)
  done
  evil 4 goodbyes cam-3 _rtsp._tcp 2.5 "$LASTS"
  all_ended_well "${pids[@]}"
}

# all_ended_well PID…: of children of this shell. `wait` alone has the code of the last one.
all_ended_well() {
  local pid code=0
  for pid in "$@"; do wait "$pid" || code=$?; done
  return "$code"
}

# elsewhere COMMAND…: tenants and hosts have machines of their own, so that here they get the processor time that is left.
elsewhere() {
  renice -n 19 "$BASHPID" >/dev/null
  "$@"
}

# ---- looks ----

# A line for each look, while the file `looking` exists: what is not as it should be, or `ok`.
look() {
  local said
  while [ -e "$SUITE/looking" ]; do
    if said=$(honest_devices); then
      [ "$said" = "$HONEST" ] && echo ok || echo "$(date -u +%T) healthy are only: $said"
    else
      echo "$(date -u +%T) unanswered"
    fi
    sleep 1
  done >"$SUITE/looks"
}

HONEST="cam-1 cam-2 cam-3 cam-4"

honest_devices() { # those that are healthy on both nodes
  kubectl get instances.akri.sh -o json | jq -r '[.items[]
    | select((.spec.nodes | length) == 2 and all(.status.nodes[]?; .health == "Healthy"))
    | .spec.brokerProperties.AKRI_ZEROCONF_DEVICE_NAME // empty | select(startswith("cam-"))] | sort | join(" ")'
}

all_are_healthy() {
  [ "$(honest_devices)" = "$HONEST" ]
}

# How long each answer of an agent's /healthz took, in seconds, a line each. One that does not come counts as 10.
ask_health() { # NODE
  while [ -e "$SUITE/looking" ]; do
    cluster on "$1" curl -sf -o /dev/null -m 10 -w '%{time_total}\n' http://127.0.0.1:9170/healthz || echo 10
    sleep 0.5
  done >"$SUITE/health-$1"
}

p99() { # FILE
  sort -n "$1" | awk '{ all[NR] = $1 } END { print all[int(NR * 0.99 + 0.5)] }'
}

# NAME RESTARTS, of each Pod of ours.
restarts() {
  kubectl -n petiole get pods -o json | jq -r '.items[] | "\(.metadata.name) \(.status.containerStatuses[0].restartCount)"' | sort
}

# The most memory that the cgroup of each Pod of ours had, in MB.
memory_peaks() {
  local name uid
  kubectl -n petiole get pods -o json | jq -r '.items[] | "\(.metadata.name) \(.metadata.uid)"' | while read -r name uid; do
    echo "$name $(find /sys/fs/cgroup -path "*pod$uid*" \( -name memory.max_usage_in_bytes -o -name memory.peak \) -exec cat {} + 2>/dev/null |
      sort -n | tail -n 1 | awk '{ printf "%.0f", $1 / 1e6 }') MB"
  done
}

is_on_both() { # SERVICE
  local instance
  instance=$(instance_of "$1") && is_on "$instance" node-1 node-2
}

test_tenants_and_hosts_at_all_bounds_at_once_stop_nobody() {
  local n began pids=() before pod
  configure honest "kind: _rtsp._tcp" "capacity: 10, gracePeriodSeconds: 60"
  echo 'apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: own, namespace: default}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "{descriptions: [lamp], shared: false}"}, capacity: 10}' | kubectl create -f -
  for n in 1 2 3 4; do respond "$n" set "cam-$n" _rtsp._tcp 554 "number=$n"; done
  within 20 "the honest devices are healthy on both nodes" all_are_healthy
  before=$(restarts)
  memory_peaks | sed 's/^/note: memory before: /'
  : >"$SUITE/looking"
  look &
  pids+=($!)
  for n in 1 2; do ask_health "node-$n" & pids+=($!); done
  began=$EPOCHREALTIME
  for n in 1 2 3 4; do
    elsewhere "tenant_$n" &
    pids+=($!)
    elsewhere "host_$n" &
    pids+=($!)
  done
  n=0
  while awk "BEGIN { exit !($(since "$began") < $LASTS) }"; do
    n=$((n + 1))
    respond $((n % 4 + 1)) set "new-$n" _rtsp._tcp $((600 + n))
    finds_within 10 "new-$n"
    pod "ask-$n" "node-$((n % 2 + 1))" "$([ $((n % 2)) = 1 ] && echo honest || echo own)"
    runs_within "$RUNS_WITHIN" "ask-$n"
    sleep 10
  done
  rm "$SUITE/looking"
  all_ended_well "${pids[@]}" || echo "a tenant, a host or a probe has failed: $(tail -qn 2 "$SUITE"/log/tenant-? "$SUITE"/log/evil-?)" >>"$SUITE/late"
  figures
  all_attacked
  equal "the restarts of Petiole's Pods" "$before" "$(restarts)"
  within 10 "the honest devices are healthy at the end" all_are_healthy
  [ "$(grep -cx ok "$SUITE/looks")" -ge "$LOOKS_MIN" ] || fail "only $(grep -cx ok "$SUITE/looks") looks were answered, at least $LOOKS_MIN should be"
  [ ! -s "$SUITE/late" ] || fail "$(cat "$SUITE/late")"
  if grep healthy "$SUITE/looks"; then fail "a honest device was not healthy at a look"; fi
}

# Whether all that is hostile has been: nobody is stopped by a tenant whose objects are refused or by a host that sends nothing.
all_attacked() {
  local n
  has_created 1 "wide-$LARGE" 1
  has_created 2 "spec-$SPEC-" 12
  has_created 3 "text-$LARGE-" 16
  has_created 3 refused- 1600
  has_created 4 slow- 100
  has_created 4 "configuration.akri.sh/environment-$LARGE" 1
  has_created 4 "pod/environment-$LARGE-" 3
  [ -n "$(kubectl -n tenant-1 get instances.akri.sh -o name)" ] || fail "no device of tenant-1 has an Instance: $(kubectl -n tenant-1 get configurations.akri.sh)"
  # Expressions that are refused cost nothing.
  [ "$(kubectl -n tenant-4 get configurations.akri.sh -o json | jq '[.items[] | select(.metadata.name | startswith("slow-")) | .status.conditions[]? | select(.reason == "BadDiscoveryDetails")] | length')" = 0 ] || fail "slow expressions of tenant-4 are refused"
  [ -n "$(kubectl -n tenant-4 get pods --field-selector status.phase=Running -o name)" ] || fail "no Pod of tenant-4 has its environment"
  for n in 1:3 2:2 3:1 4:3; do
    [ "$(grep -c '^[1-9][0-9]* packets in' "$SUITE/log/evil-${n%:*}")" = "${n#*:}" ] || fail "evil-${n%:*} has not sent all: $(cat "$SUITE/log/evil-${n%:*}")"
  done
}

has_created() { # TENANT TEXT COUNT
  local count
  count=$(grep -F "$2" "$SUITE/log/tenant-$1" | grep -c ' created$' || true)
  [ "$count" -ge "$3" ] || fail "tenant-$1 has $count objects $2, should have $3: $(grep -i error "$SUITE/log/tenant-$1" | sort | uniq -c | sort -rn | head -n 3 | cut -c -300)"
}

# What is late is noted, and the rest goes on: all figures are of one run. A look by kubectl takes seconds itself: when the
# Instance was made says what the agents and the controller took, to the second.
finds_within() { # SECONDS SERVICE
  local began=$EPOCHSECONDS
  (within "$1" "$2 is found" is_on_both "$2" && note "$2 found: $TOOK s, its Instance made after $(($(made_at "$2") - began)) s") ||
    echo "$2 was not found within $1 s" >>"$SUITE/late"
}

made_at() { # SERVICE
  date -d "$(kubectl get instance.akri.sh "$(instance_of "$1")" -o 'jsonpath={.metadata.creationTimestamp}')" +%s
}

runs_within() { # SECONDS POD
  (within "$1" "$2 runs" is_running "$2" && note "$2 runs: $TOOK s") || echo "$2 does not run after $1 s" >>"$SUITE/late"
}

is_at_most() { # WHAT LIMIT VALUE
  # Of no answer there is no value.
  [ -n "$3" ] && awk "BEGIN { exit !($3 + 0 <= $2) }" || echo "$1: p99 is '$3' s, limit $2 s" >>"$SUITE/late"
}

figures() {
  local n slowest
  note "looks: $(grep -cx ok "$SUITE/looks") all healthy, $(grep -c healthy "$SUITE/looks") not, $(grep -c unanswered "$SUITE/looks") unanswered"
  for n in 1 2; do
    slowest=$(p99 "$SUITE/health-node-$n")
    note "/healthz of node-$n: p99 $slowest s, longest $(sort -n "$SUITE/health-node-$n" | tail -n 1) s, $(wc -l <"$SUITE/health-node-$n") answers"
    is_at_most "/healthz of node-$n" "$HEALTHZ_MAX" "$slowest"
    slowest=$(allocate_p99 "node-$n")
    note "Allocate of node-$n: p99 at most $slowest s"
    is_at_most "Allocate of node-$n" "${ALLOCATE_MAX[n]}" "${slowest%% *}"
  done
  memory_peaks | sed 's/^/note: memory peak: /'
  restarts | sed 's/^/note: restarts: /'
  for n in 1 2 3 4; do
    note "tenant-$n: $(grep -c created "$SUITE/log/tenant-$n") objects created, $(grep -ci error "$SUITE/log/tenant-$n") refused"
    note "evil-$n: $(paste -sd';' "$SUITE/log/evil-$n")"
  done
}
