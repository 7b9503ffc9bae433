# The promises, by the everyday sequences that could break them: a slot is never held twice, one object of one user does
# not stop the others, a device that moves all the time does not fill the cluster with Pods, and a process that is told to
# end ends well.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  install
  cluster avahi camera
  command -v python3 >/dev/null || apt-get install -y -qq --no-install-recommends python3 >/dev/null
  begin_responder responder mover "$(cluster device mover | tail -n 1)"
}

respond() { # COMMAND…
  respond_as responder "$@"
}

usage_of() { # INSTANCE
  kubectl get instances.akri.sh "$1" -o json | jq -c .spec.deviceUsage
}

usage_is() { # INSTANCE JSON
  [ "$(usage_of "$1")" = "$2" ]
}

# init_pod NAME NODE RESOURCE SECONDS: its init container alone asks for the resource, and runs so long.
init_pod() {
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  nodeName: $2
  restartPolicy: Never
  initContainers: [{name: init, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "sleep $4"], resources: {limits: {akri.sh/$3: 1}}}]
  containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"]}]
X
}

# waiting_pod NAME NODE RESOURCE: by the scheduler, on that node alone.
waiting_pod() {
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: $2}
  restartPolicy: Never
  containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"], resources: {limits: {akri.sh/$3: 1}}}]
X
}

is_not_running() {
  local phase
  phase=$(phase_of "$1") && [ "$phase" != Running ]
}

test_an_init_container_that_runs_long_keeps_its_slot() {
  clean
  announce camera firmware _rtsp._tcp 554
  configure flash "kind: _rtsp._tcp"
  within 10 "an Instance of both nodes" is_on_both firmware
  local instance held
  instance=$(instance_of firmware)
  within 10 "node-1 offers it" node_holds node-1 allocatable "$instance" 1
  within 10 "node-2 offers it" node_holds node-2 allocatable "$instance" 1
  init_pod flasher node-1 "$instance" 60
  held="{\"$instance-0\":\"node-1\"}"
  within 15 "the slot is claimed" usage_is "$instance" "$held"
  waiting_pod second node-2 "$instance"
  for_all_of 55 "the slot stays held while the init container runs" usage_is "$instance" "$held"
  within 30 "the main container runs" is_running flasher
  # The kubelet counts what an init container was given until its Pod ends, and so do we.
  for_all_of 25 "the slot is the Pod's, as it is for the kubelet" usage_is "$instance" "$held"
  is_not_running second || fail "the second Pod runs"
  kubectl delete pod flasher --now >/dev/null
  within 45 "the second Pod has the slot" is_running second
  note "first Pod deleted -> second runs: $TOOK s"
}

is_on_both() { # SERVICE
  local instance
  instance=$(instance_of "$1") && is_on "$instance" node-1 node-2
}

test_a_device_that_returns_finds_its_slot_as_it_is_used() {
  clean
  announce camera door _rtsp._tcp 554
  configure doors "kind: _rtsp._tcp" "gracePeriodSeconds: 5"
  within 10 "an Instance of both nodes" is_on_both door
  local instance uid
  instance=$(instance_of door)
  uid=$(uids)
  within 10 "node-1 offers it" node_holds node-1 allocatable "$instance" 1
  pod first node-1 "$instance"
  within 20 "a Pod on node-1 has it" is_running first
  goodbye door
  within 5 "it is gone" is_unhealthy_on "$instance" node-1
  for_all_of 25 "the Instance outlives its grace period while a container holds it" kubectl get instances.akri.sh "$instance"
  kubectl get instances.akri.sh "$instance" -o json | jq -e '.status.conditions[] | select(.type == "Available" and .status == "False") | .message | contains("node-1")' >/dev/null ||
    fail "its condition does not name the holder: $(kubectl get instances.akri.sh "$instance" -o json | jq -c .status.conditions)"
  announce camera door _rtsp._tcp 554
  within 15 "both nodes see it again" is_on_both door
  equal "the Instance" "$uid" "$(uids)"
  waiting_pod second node-2 "$instance"
  pod refused node-2 "$instance"
  for_all_of 30 "the second Pod waits" is_not_running second
  is_not_running refused || fail "a Pod on node-2 runs with the slot of node-1's"
  is_running first || fail "the first Pod does not run any more"
  kubectl delete pod first --now >/dev/null
  within 45 "the second has it then" is_running second
}

test_an_instance_whose_holder_ends_goes() {
  clean
  announce camera gate _rtsp._tcp 554
  configure gates "kind: _rtsp._tcp" "gracePeriodSeconds: 5"
  within 10 "an Instance of both nodes" is_on_both gate
  local instance
  instance=$(instance_of gate)
  within 10 "node-2 offers it" node_holds node-2 allocatable "$instance" 1
  pod only node-2 "$instance"
  within 20 "a Pod has it" is_running only
  goodbye gate
  for_all_of 20 "the Instance stays" kubectl get instances.akri.sh "$instance"
  kubectl delete pod only --now >/dev/null
  within 45 "the Instance goes with its holder" has_instances gates 0
  note "holder deleted -> Instance deleted: $TOOK s"
}

test_a_slot_that_the_node_uses_is_claimed_again() {
  clean
  announce camera barn _rtsp._tcp 554
  configure barns "kind: _rtsp._tcp" "gracePeriodSeconds: 60"
  within 10 "an Instance of both nodes" is_on_both barn
  local instance
  instance=$(instance_of barn)
  within 10 "node-1 offers it" node_holds node-1 allocatable "$instance" 1
  pod holder node-1 "$instance"
  within 20 "a Pod has it" is_running holder
  # Somebody deletes the Configuration and applies it again, and its Pod runs on.
  kubectl delete configuration barns >/dev/null
  within 20 "the Instance is gone" has_instances barns 0
  configure barns "kind: _rtsp._tcp" "gracePeriodSeconds: 60"
  within 20 "it is there again, and its slot is held" usage_is "$instance" "{\"$instance-0\":\"node-1\"}"
  note "Configuration applied again -> the slot is claimed: $TOOK s"
  # Somebody writes another owner over it.
  kubectl patch instance "$instance" --type=merge -p "{\"spec\":{\"deviceUsage\":{\"$instance-0\":\"node-2\"}}}" >/dev/null
  within 30 "an Event says that it is held twice" has_event "$instance" SlotHeldTwice
  # node-2 has no container for it, and releases it; node-1 claims it again.
  within 60 "the slot is node-1's again" usage_is "$instance" "{\"$instance-0\":\"node-1\"}"
  is_running holder || fail "the Pod does not run any more"
}

test_one_absurd_number_stops_nobody() {
  clean
  local said pids
  pids="$(agent_pid node-1) $(agent_pid node-2)"
  echoes good 2
  if said=$(echoes huge 1 "capacity: 2147483647" 2>&1); then fail "a capacity of 2147483647 is accepted"; fi
  case $said in *capacity*) ;; *) fail "the refusal does not name the field: $said" ;; esac
  # An object of a time when the definition had no maximum.
  kubectl get crd configurations.akri.sh -o json >"$SUITE/crd"
  jq 'del(.. | .maximum?)' "$SUITE/crd" | kubectl replace -f - >/dev/null
  within 20 "it is accepted by a definition without a maximum" echoes huge 1 "capacity: 2147483647"
  kubectl replace -f "$CHART/crds/configurations.akri.sh.yaml" >/dev/null 2>&1 || kubectl apply --server-side --force-conflicts -f "$CHART/crds/" >/dev/null
  within 15 "its Configuration says why it does not work" is_ready_as huge "False BadSpec"
  for_all_of 15 "the others work" is_ready_as good "True Working"
  equal "the agents' processes" "$pids" "$(agent_pid node-1) $(agent_pid node-2)"
}

# as_large_as CHARACTERS: a Configuration whose fields are all within their own bounds.
as_large_as() {
  jq -nc --argjson size "$1" '{apiVersion: "akri.sh/v0", kind: "Configuration", metadata: {name: "large"}, spec: {
    discoveryHandler: {name: "debugEcho", discoveryDetails: "descriptions: [a]"},
    brokerSpec: {brokerPodSpec: {containers: [{name: "main", image: "localhost/busybox", args: [range($size / 1000 | floor) | "x" * 997]}]}}}}'
}

test_a_configuration_has_a_bound_of_its_whole_size() {
  clean
  local said
  as_large_as 250000 | kubectl create -f - >/dev/null
  # Of an object that is there the bound counts only where the spec changes.
  kubectl label configuration.akri.sh large checked=yes >/dev/null
  # The controller writes its status meanwhile: `kubectl replace` sends the version that it has read a moment before.
  for _ in $(seq 20); do
    if said=$(as_large_as 270000 | kubectl replace -f - 2>&1); then fail "a Configuration of 270 kB is accepted"; fi
    [[ $said == *"has been modified"* ]] || break
  done
  case $said in *"262144 characters"*) ;; *) fail "the refusal does not name the bound: $said" ;; esac
  kubectl delete configuration.akri.sh large >/dev/null
  if said=$(as_large_as 1400000 | kubectl create -f - 2>&1); then fail "a Configuration of 1.4 MB is accepted"; fi
}

test_nothing_listens_on_the_lan_unasked() {
  local address
  address=$(kubectl get node node-1 -o json | jq -r '.status.addresses[] | select(.type == "InternalIP") | .address')
  ! cluster on camera curl -s -m 3 "http://$address:9170/metrics" >/dev/null || fail "an agent's metrics answer on the LAN"
  ! cluster on camera curl -s -m 3 "http://$address:9170/healthz" >/dev/null || fail "an agent's health answers on the LAN"
}

# watch_pods FILE SELECTOR [NAMESPACE]: each state of these Pods, as JSON, until `end_watch`.
watch_pods() {
  # Not by `kubectl`, which ends after 10 s.
  cluster kubectl -n "${3:-default}" get pods -l "$2" -w -o json >"$SUITE/$1" 2>/dev/null &
  WATCH=$!
}

end_watch() {
  kill "$WATCH"
  wait "$WATCH" 2>/dev/null || true
}

test_a_service_that_moves_all_the_time_is_followed_slowly() {
  clean
  respond set mover _rtsp._tcp 5000
  configure movers "kind: _rtsp._tcp" "gracePeriodSeconds: 60, $BROKER"
  within 10 "an Instance" has_instances movers 1
  within 30 "its broker runs" has_brokers movers 1
  local port began starts
  watch_pods movers akri.sh/configuration=movers
  began=$EPOCHREALTIME
  for port in $(seq 5001 5022); do
    respond set mover _rtsp._tcp "$port"
    sleep 4 # the case: a port every 4 s
  done
  end_watch
  starts=$(jq -r .metadata.uid "$SUITE/movers" | sort -u | wc -l)
  note "$starts broker Pods in $(since "$began") s of a port that changes every 4 s"
  [ "$starts" -le 6 ] || fail "$starts broker Pods were started"
  within 10 "the last port is the Instance's" port_is 5022
  note "last change -> it is the Instance's: $TOOK s"
  within 75 "a broker is told the last port" a_mover_says AKRI_ZEROCONF_DEVICE_PORT=5022
  respond gone mover
}

port_is() {
  kubectl get instances.akri.sh -o json | jq -e --arg p "$1" '.items[] | select(.spec.configurationName == "movers") | .spec.brokerProperties.AKRI_ZEROCONF_DEVICE_PORT == $p'
}

a_mover_says() { # LINE
  local broker
  broker=$(brokers movers) && [ -n "$broker" ] && kubectl logs "$broker" | matches -x "$1"
}

test_a_controller_that_is_replaced_ends_with_0() {
  clean
  watch_pods controllers app.kubernetes.io/component=controller petiole
  for _ in 1 2 3; do
    kubectl -n petiole rollout restart deployment/petiole-controller >/dev/null
    agents_are_ready
  done
  within 60 "six of them have ended" has_ends 6
  end_watch
  equal "their exit codes" 0 "$(ends | cut -d' ' -f2 | sort -u | paste -sd' ')"
}

# POD EXITCODE, a line each.
ends() {
  jq -r '. as $p | .status.containerStatuses[]? | .state.terminated // empty | "\($p.metadata.name) \(.exitCode)"' "$SUITE/controllers" | sort -u
}

has_ends() { # COUNT
  [ "$(ends | wc -l)" -ge "$1" ]
}

# Two Pods at once want the one slot of a device that both nodes see. Where one node offers it, the scheduler decides.
test_with_one_node_a_device_no_pod_is_refused() {
  clean
  echoes single 1 "capacity: 1, maxNodes: 1, gracePeriodSeconds: 600"
  within 10 "an Instance of one node" has_instances_of_one_node single
  local instance node round
  instance=$(kubectl get instances.akri.sh -o json | jq -r '.items[].metadata.name')
  node=$(nodes_of "$instance")
  for round in $(seq 15); do
    within 20 "$node offers the slot in round $round" node_holds "$node" allocatable "$instance" 1
    pod "one-$round" - "$instance" &
    pod "two-$round" - "$instance"
    wait $!
    within 30 "one Pod of round $round runs, and the other waits" one_runs_and_one_waits "$round"
    kubectl delete pod "one-$round" "two-$round" --now >/dev/null
  done
  node_holds "$([ "$node" = node-1 ] && echo node-2 || echo node-1)" capacity "$instance" 0 || fail "the other node offers it"
}

has_instances_of_one_node() { # CONFIGURATION
  kubectl get instances.akri.sh -o json | jq -e --arg c "$1" '[.items[] | select(.spec.configurationName == $c)] | length == 1 and (.[0].spec.nodes | length) == 1'
}

# The scheduler says of a Pod that waits that no node has the resource.
one_runs_and_one_waits() { # ROUND
  kubectl get pods -l test=yes -o json | jq -e --arg r "$1" '
    [.items[] | select(.metadata.name | IN("one-" + $r, "two-" + $r))] as $pods
    | ($pods | any(.status.phase == "Failed") | not)
      and ([$pods[] | select(.status.phase == "Running")] | length) == 1
      and ([$pods[] | select(.status.phase == "Pending") | .status.conditions[]? | select(.type == "PodScheduled" and .reason == "Unschedulable")] | length) == 1'
}

test_the_nodes_that_look_and_the_node_that_offers_are_chosen() {
  clean
  kubectl label node node-1 node-2 hall=3 --overwrite >/dev/null
  echoes chosen 1 "capacity: 1, maxNodes: 1, nodeSelector: {hall: '3'}, gracePeriodSeconds: 600"
  within 10 "an Instance of one node" has_instances_of_one_node chosen
  local instance node other uid
  instance=$(kubectl get instances.akri.sh -o json | jq -r '.items[].metadata.name')
  uid=$(uids)
  node=$(nodes_of "$instance")
  other=$([ "$node" = node-1 ] && echo node-2 || echo node-1)
  within 10 "$node offers it" node_holds "$node" allocatable "$instance" 1
  kubectl label node "$node" hall- >/dev/null
  within 2 "$other steps in" node_holds "$other" allocatable "$instance" 1
  note "$node does not look any more -> $other offers the device: $TOOK s (limit 2)"
  within 5 "$node does not offer it any more" node_holds "$node" allocatable "$instance" 0
  within 5 "the Instance names $other alone" is_on "$instance" "$other"
  equal "the Instance" "$uid" "$(uids)"
  pod user "$other" "$instance"
  within 20 "a Pod has it" is_running user
  kubectl label node "$other" hall- >/dev/null
  within 10 "the Configuration says that no node looks" is_ready_as chosen "False NoNodeSelected"
  for_all_of 10 "the Pod runs on" is_running user
  within 5 "its slot is still its own" usage_is "$instance" "{\"$instance-0\":\"$other\"}"
  kubectl label node "$node" hall=3 >/dev/null
  within 10 "$node looks again" is_ready_as chosen "True Working"
  kubectl delete pod user --now >/dev/null
  within 45 "$node offers the device, and $other has gone" offers_alone "$instance" "$node" "$other"
  note "the last container of a node that does not look ended -> the other offers the device: $TOOK s"
  kubectl label node node-1 node-2 hall- >/dev/null
}

offers_alone() { # INSTANCE NODE OTHER
  is_on "$1" "$2" && node_holds "$2" allocatable "$1" 1 && node_holds "$3" allocatable "$1" 0
}
