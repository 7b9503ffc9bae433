# How fast and how frugal devices are that the scheduler gives out, beside device plugins: numbers against their limits. It takes
# minutes, and runs alone: just e2e-long.
# shellcheck shell=bash disable=SC2119,SC2153,SC2317 # SUITE is set by run; `within` calls functions
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"
# shellcheck source=tests/e2e/lib_claims.sh
. "$E2E/lib_claims.sh"

set_up() {
  [ -n "${RACE_ROUNDS:-}" ] || { echo "it runs alone and for minutes: just e2e-long"; exit 77; }
  up_with_images
  install --set dra.enabled=true
}

# limited WHAT LIMIT UNIT VALUE: fails beyond the limit.
limited() {
  note "$1: $4 $3 (limit $2)"
  awk "BEGIN { exit !($4 <= $2) }" || fail "$1: $4 $3, limit $2"
}

# The most holders of a device; more than its capacity is a fault whenever it is seen.
most_holders() {
  kubectl get instances.akri.sh -o json | jq '[.items[].spec.deviceUsage // {} | [.[] | select(. != "")] | length] | max'
}

failed_pods() {
  kubectl get pods -o json | jq '[.items[] | select(.status.phase == "Failed")] | length'
}

running_pods() {
  kubectl get pods -o json | jq '[.items[] | select(.status.phase == "Running")] | length'
}

forty_run() {
  local most
  most=$(most_holders)
  [ "$most" -le 2 ] || fail "a device of capacity 2 has $most holders"
  [ "$(running_pods)" = 40 ]
}

# race ALLOCATION ROUNDS: 200 Pods want 40 slots, again and again. Sets FAILED.
race() {
  local round began longest=0 took
  fresh
  echoes cam 20 "capacity: 2, allocation: $1"
  FAILED=0
  for round in $(seq "$2"); do
    within 60 "all slots are offered in round $round" has_all "$1"
    began=$EPOCHREALTIME
    at_once race 200 cam
    within 60 "forty Pods run in round $round" forty_run
    took=$(since "$began")
    longest=$(awk "BEGIN { print ($took > $longest) ? $took : $longest }")
    for_all_of 5 "they run on" forty_run
    FAILED=$((FAILED + $(failed_pods)))
    end_race
    within 120 "no Pod is left" has_phases race- ""
  done
  note "$1: $2 rounds of 200 Pods for 40 slots: $FAILED failed Pods; 40 run after $longest s at most"
}

# Those that wait go first. Where a Pod gets a slot and is deleted before it is bound, the scheduler of 1.37.2 holds the slot for two
# minutes more (extendeddynamicresources.go: waitForExtendedClaimInAssumeCache), and tells nobody when it lets go of it.
end_race() {
  kubectl delete deployment race --cascade=orphan --wait >/dev/null
  kubectl delete replicasets --all --cascade=orphan --wait >/dev/null
  kubectl delete pods --field-selector spec.nodeName= --now >/dev/null
  kubectl delete pods --all --now >/dev/null
}

has_all() { # ALLOCATION
  local held
  held=$(kubectl get instances.akri.sh -o json | jq '[.items[].spec.deviceUsage[]? | select(. != "")] | length')
  [ "$held" = 0 ] || return 1
  case $1 in
    DRA) has_devices default/cam 20 && is_unprepared && is_empty kubectl get resourceclaims -o name ;;
    *) node_holds node-1 allocatable cam 20 && node_holds node-2 allocatable cam 20 ;;
  esac
}

# The kubelets' calls of Prepare so far: how many took at most each bound of their histogram, in seconds.
prepares() {
  local node
  for node in node-1 node-2; do
    kubectl get --raw "/api/v1/nodes/$node/proxy/metrics" |
      sed -nE 's/^dra_grpc_operations_duration_seconds_bucket\{.*NodePrepareResources.*le="([^"]+)"\} ([0-9]+)$/\1 \2/p'
  done | awk '{ below[$1] += $2 } END { for (bound in below) print bound, below[bound] }'
}

# prepared_within FILE: the bound within which 99 of 100 calls are since `prepares` was written to FILE.
prepared_within() {
  prepares | awk 'FILENAME != "-" { before[$1] = $2; next } { n[$1] = $2 - before[$1] }
    END { for (bound in n) if (bound != "+Inf" && n[bound] >= 0.99 * n["+Inf"]) printf "%.3f\n", bound }' "$1" - | sort -g | head -1
}

test_two_hundred_pods_race_and_none_fails() {
  prepares >"$SUITE/prepares"
  race DRA "$RACE_ROUNDS"
  limited "Pods that failed" 0 Pods "$FAILED"
  note "p99 of Prepare, as the kubelets measure it, forty at once on two cores: within $(prepared_within "$SUITE/prepares") s"
  race DevicePlugin 3
}

slice_writes() { # MARK
  requests_since "$1" | awk '$3 ~ /resourceslices|deviceclasses/ && $2 ~ /create|update|patch|delete/' | wc -l
}

test_a_thousand_devices_are_few_writes() {
  fresh
  local began from node
  from=$(mark)
  began=$EPOCHREALTIME
  echoes cam 1000 "allocation: DRA"
  within 30 "all are offered" has_devices default/cam 1000
  note "apply -> 1,000 devices in slices, two nodes and all Instances: $(since "$began") s"
  sleep 5
  limited "writes of slices and classes" 20 requests "$(slice_writes "$from")"
  pod first - cam
  within 15 "a Pod gets one" is_running first
  limited "agent memory with 1,000 devices (wanted: 20)" 35 MB "$(cluster on node-1 cat "/proc/$(agent_pid node-1)/status" | awk '/^VmRSS:/ { printf "%.1f", $2 * 1024 / 1e6 }')"
  for node in node-1 node-2; do
    note "controller on $node: $(cluster on "$node" sh -c 'cat /proc/[0-9]*/status' 2>/dev/null | awk '/^Name:/ { n = $2 } /^VmRSS:/ && n ~ /petiole/ { printf "%.1f ", $2 * 1024 / 1e6 }') MB of all its programs"
  done
}

# starts NAME: five Pods, one after the other; how long each takes to run is in $SUITE/NAME.
starts() {
  local n began
  : >"$SUITE/$1"
  for n in 1 2 3 4 5; do
    began=$EPOCHREALTIME
    pod "$1-$n" - cam
    within 20 "a Pod runs" is_running "$1-$n"
    { since "$began"; echo; } >>"$SUITE/$1"
  done
}

median() { # NAME
  sort -n "$SUITE/$1" | sed -n 3p
}

test_a_flap_is_two_writes_and_a_pod_starts_as_soon() {
  fresh
  cluster avahi camera
  announce camera door _rtsp._tcp 554
  configure cam "kind: _rtsp._tcp" "gracePeriodSeconds: 600, allocation: DRA"
  within 15 "it is offered" has_devices default/cam 1
  sleep 12
  local from instance
  instance=$(instance_of door)
  from=$(mark)
  goodbye door
  within 20 "it is tainted" has_taints "$instance" akri.sh/gone=NoSchedule
  announce camera door _rtsp._tcp 554
  within 20 "it is back" has_taints "$instance" ""
  sleep 5
  limited "writes of slices in a flap that two nodes see" 2 requests "$(slice_writes "$from")"
  fresh
  echoes cam 5 "capacity: 10"
  within 15 "device plugins offer it" node_holds node-1 allocatable cam 5
  starts plugin
  kubectl patch configurations.akri.sh cam --type merge -p '{"spec": {"allocation": "DRA"}}' >/dev/null
  within 15 "the scheduler gives them out" has_devices default/cam 5
  within 15 "no device plugin does" node_holds node-1 allocatable cam 0
  within 15 "there is a class" kubectl get deviceclass akri.default.cam
  pod before - cam
  within 20 "the scheduler gives one out" is_running before
  prepares >"$SUITE/prepares"
  starts claim
  limited "Prepare, as the kubelets measure it, of each of these Pods" 0.1 s "$(prepared_within "$SUITE/prepares")"
  note "create -> Running, device plugin: $(xargs <"$SUITE/plugin") s; DRA: $(xargs <"$SUITE/claim") s"
  limited "median of DRA less that of the device plugin" 0.3 s "$(awk "BEGIN { printf \"%.2f\", $(median claim) - $(median plugin) }")"
}
