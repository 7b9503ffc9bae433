# Somebody pulls the plug: kubelet, agent, API server, node, broker. What runs goes on, and nothing that should live is
# deleted.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  install
  cluster avahi camera
}

# Two cameras, each with a running broker.
with_brokers() {
  clean
  announce camera cam-1 _rtsp._tcp 554
  announce camera cam-2 _rtsp._tcp 555
  configure cams "kind: _rtsp._tcp" "gracePeriodSeconds: 60, $BROKER"
  within 10 "two Instances" has_instances cams 2
  # When the API server was away, kubelets look for it again within a minute, and once more if it was not ready then
  # (client-go, reflector.go: 30 s and as much jitter).
  within 150 "two brokers run" has_brokers cams 2
  for node in node-1 node-2; do
    for camera in cam-1 cam-2; do within 10 "$node offers $camera" has_entry "$node" "$(instance_of $camera)"; done
  done
  # An agent that restarts later must not find a mirror older than this.
  within 5 "both nodes see both" both_nodes_see_both
  uids >"$SUITE/uids"
  containers >"$SUITE/containers"
}

both_nodes_see_both() {
  is_on "$(instance_of cam-1)" node-1 node-2 && is_on "$(instance_of cam-2)" node-1 node-2
}

nothing_was_lost() {
  equal "Instances" "$(cat "$SUITE/uids")" "$(uids)"
  equal "brokers and their containers" "$(cat "$SUITE/containers")" "$(containers)"
  is_empty refused_pods || fail "Pods were refused: $(refused_pods)"
}

refused_pods() {
  kubectl get pods -o json | jq -r '.items[] | select(.status.reason == "UnexpectedAdmissionError") | .metadata.name'
}

# The slots of both cameras, as brokers hold them: each camera has one broker, on one of the nodes.
slots() {
  kubectl get instances.akri.sh -o json | jq -c '[.items[] | {(.metadata.name): .spec.deviceUsage}] | add'
}

# The node whose broker has the first camera.
holder() {
  kubectl get instances.akri.sh "$(instance_of cam-1)" -o json | jq -r '.spec.deviceUsage[] | sub(".*:"; "")'
}

# Samples of what that node offers, ten a second, until `end_samples`: a line each, SECONDS AMOUNT, of the first camera.
begin_samples() { # NODE
  local resource
  resource="akri.sh/$(instance_of cam-1)"
  rm -f "$SUITE/samples"
  (
    while :; do
      echo "$EPOCHREALTIME $(kubectl get node "$1" -o json 2>/dev/null | jq -r --arg r "$resource" '.status.allocatable[$r] // "0"')"
      sleep 0.1
    done
  ) >"$SUITE/samples" &
  SAMPLER=$!
}

# How long, in seconds, the longest run of samples of 0 lasted.
end_samples() {
  kill "$SAMPLER"
  wait "$SAMPLER" 2>/dev/null || true
  # A line without an amount is of a time when nobody could say.
  awk 'NF < 2 { next } $2 == "0" { if (!since) since = $1; if ($1 - since > worst) worst = $1 - since; next } { since = 0 } END { printf "%.1f\n", worst }' "$SUITE/samples"
}

test_a_kubelet_restart_is_survived() {
  with_brokers
  local before node old began
  before=$(slots)
  node=$(holder)
  old=$(plugin_sockets "$node")
  within 10 "$node offers cam-1" node_holds "$node" allocatable "$(instance_of cam-1)" 1
  began=$EPOCHREALTIME
  cluster kubelet "$node" restart
  for camera in cam-1 cam-2; do
    within 20 "the kubelet has $camera by a new socket" kubelet_has "$node" "$(instance_of $camera)" "$old"
  done
  within 20 "the kubelet has the slot of cam-1" kubelet_has_slots "$node" "$(instance_of cam-1)"
  note "kubelet killed -> it has both devices again: $(since "$began") s"
  for_all_of 15 "brokers run" has_brokers cams 2
  within 15 "$node offers cam-1 again" node_holds "$node" allocatable "$(instance_of cam-1)" 1
  equal "slots" "$before" "$(slots)"
  nothing_was_lost
}

# Registered again: by a new socket, and in books that this kubelet has written.
kubelet_has() { # NODE INSTANCE OLD_SOCKETS
  local folder=$CLUSTER_DIR/$1/var/lib/kubelet/device-plugins socket
  socket=$(plugin_sockets "$1" | grep "^$2-") && ! grep -qx "$socket" <<<"$3" &&
    [ "$folder/kubelet_internal_checkpoint" -nt "$folder/kubelet.sock" ] &&
    jq -e --arg r "akri.sh/$2" '.Data.RegisteredDevices | has($r)' "$folder/kubelet_internal_checkpoint"
}

# The books list the slots that are healthy on the node, and begin with none after a restart.
kubelet_has_slots() { # NODE INSTANCE
  jq -e --arg r "akri.sh/$2" '.Data.RegisteredDevices[$r] // [] | length > 0' \
    "$CLUSTER_DIR/$1/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
}

test_agents_restart_and_nothing_is_felt() {
  with_brokers
  local signal zero before old node
  before=$(slots)
  node=$(holder)
  begin_samples "$node"
  # A container that ends twice is started the second time after a back-off of 10 s: each Pod's ends once.
  for signal in KILL TERM; do
    old=$(agent_pid "$node")
    kill_agent "$node" $signal
    within 40 "another agent runs after SIG$signal" another_agent "$node" "$old"
    within 20 "it is ready" agents_are_ready
    kubectl -n petiole rollout restart daemonset/petiole-agent >/dev/null
    agents_are_ready
  done
  zero=$(end_samples)
  note "allocatable was 0 for $zero s at most, while the agent ended by SIGKILL, SIGTERM and two rolling updates"
  awk "BEGIN { exit !($zero <= 3) }" || fail "allocatable was 0 for $zero s"
  equal "slots" "$before" "$(slots)"
  nothing_was_lost
}

# Pods ask for devices with free slots all the while. A kubelet before 1.37 gives a resource up when the old plugin ends.
test_an_update_of_the_agents_refuses_no_pod() {
  clean
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: lamps}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "{descriptions: [lamp], shared: false}"}, capacity: 200}
X
  local node update old minor all refused
  within 20 "each node has a lamp" has_instances lamps 2
  for node in node-1 node-2; do within 20 "$node offers it" has_entry "$node" lamps; done
  begin_pods
  for update in first second; do
    old="$(agent_of node-1) $(agent_of node-2)"
    kubectl -n petiole rollout restart daemonset/petiole-agent >/dev/null
    within 60 "the $update update is done" are_replaced "$old"
    for_all_of 3 "the new agents run" are_replaced "$old"
  done
  stop pods
  stop proxy
  within 60 "each Pod has run or was refused" no_pod_is_pending
  all=$(kubectl get pods -l test=update -o name | wc -l)
  refused=$(refused_pods | wc -w)
  minor=$(kubectl get node node-1 -o json | jq -r '.status.nodeInfo.kubeletVersion | split(".")[1]')
  note "of $all Pods through two updates of the agents $refused were refused, by kubelets 1.$minor"
  [ "$all" -ge 60 ] || fail "only $all Pods were made"
  [ "$refused" -le "$([ "$minor" -ge 37 ] && echo 0 || echo 2)" ] || fail "$refused of $all Pods were refused: $(kubectl get pods -l test=update -o json | jq -r '.items[] | select(.status.phase == "Failed") | "\(.metadata.name) \(.status.reason): \(.status.message)"')"
  kubectl delete pods -l test=update --now --wait=false >/dev/null
  within 60 "all slots are free again" no_slot_is_held
}

# A Pod every 0.2 s, on both nodes in turn, until `stop pods`: 300 at most, because a kubelet that cannot follow ends no agent either. They need no address, and end at once. A client for each would take
# longer than that. Of the Configuration's resource a node offers one free slot at a time, so they ask for its Instance's.
begin_pods() {
  local node
  begin proxy control kubectl proxy --port 8901
  set --
  for node in node-1 node-2; do
    set -- "$@" "$(kubectl get instances.akri.sh -o json | jq -r --arg n "$node" '.items[] | select(.spec.nodes == [$n]) | .metadata.name')"
  done
  # shellcheck disable=SC2016 # expanded by the inner shell
  begin pods control sh -c 'n=0; while n=$((n + 1)); do
    if [ $((n % 2)) = 1 ]; then node=1 instance=$0; else node=2 instance=$1; fi
    [ "$n" -gt 300 ] || curl -sS -o /dev/null -H "Content-Type: application/json" http://127.0.0.1:8901/api/v1/namespaces/default/pods --data @- <<X
{"metadata": {"name": "update-$n", "labels": {"test": "update"}},
 "spec": {"terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "nodeName": "node-$node", "hostNetwork": true,
  "containers": [{"name": "main", "image": "docker.io/library/busybox:stable", "command": ["/bin/sh", "-c", "exit 0"],
   "resources": {"limits": {"akri.sh/$instance": "1"}}}]}}
X
    sleep 0.2
  done' "$@"
}

are_replaced() { # OLD_AGENTS: every node has another agent, which is ready, and no old one is left
  local pods
  pods=$(kubectl -n petiole get pods -o json) || return 1
  jq -e --arg old "$1" '[.items[] | select(.metadata.name | startswith("petiole-agent"))] |
    length == 2 and all(.[]; (.metadata.name | inside($old) | not) and (.status.containerStatuses // [] | length == 1 and all(.[]; .ready)))' <<<"$pods"
}

no_pod_is_pending() {
  kubectl get pods -l test=update -o json | jq -e 'all(.items[]; .status.phase | IN("Succeeded", "Failed"))'
}

no_slot_is_held() {
  kubectl get instances.akri.sh -o json | jq -e 'all(.items[].spec.deviceUsage[]; . == "")'
}

# Of a device that this node alone has: its kubelet alone gives out its slots.
test_a_container_gets_a_device_of_its_node_while_the_api_server_is_away() {
  clean
  local instance
  kubectl apply -f - <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: lamps}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "{descriptions: [lamp], shared: false}"}, capacity: 1}
X
  within 20 "each node has a lamp" has_instances lamps 2
  instance=$(kubectl get instances.akri.sh -o json | jq -r '.items[] | select(.spec.configurationName == "lamps" and .spec.nodes == ["node-1"]) | .metadata.name')
  within 20 "node-1 offers its lamp" has_entry node-1 "$instance"
  within 20 "and any lamp" has_entry node-1 lamps
  cluster apiserver stop
  within 10 "Allocate gives out the slot" allocates node-1 "$instance" "$instance-0"
  note "Allocate without the API server -> answered: $TOOK s"
  ! allocates node-1 lamps lamps-0 || fail "the only slot has two holders"
  # Nobody runs with it, so it is released as ever.
  cluster apiserver start
  within 90 "agents are ready" agents_are_ready
  within 60 "the slot is free again" allocates node-1 lamps lamps-0
}

allocates() { # NODE PLUGIN ID
  local socket
  socket=$(plugin_sockets "$1" | grep -E "^$2-[0-9]{10}\.sock") || return 1
  cluster on "$1" grpcurl -plaintext -unix -max-time 5 -d "{\"containerRequests\": [{\"devicesIds\": [\"$3\"]}]}" \
    "/var/lib/kubelet/device-plugins/$socket" v1beta1.DevicePlugin/Allocate | jq -e '.containerResponses[0].envs.AKRI_SLOT'
}

another_agent() { # NODE OLD
  local now
  now=$(agent_pid "$1") && [ "$now" != "$2" ]
}

test_the_api_server_is_away_for_30_s() {
  with_brokers
  local before zero old node
  before=$(slots)
  node=$(holder)
  begin_samples "$node"
  cluster apiserver stop
  old=$(agent_pid "$node")
  kill_agent "$node" KILL
  within 40 "another agent runs without the API server" another_agent "$node" "$old"
  within 20 "it serves from its mirror" serves "$node" 2
  note "agent killed without the API server -> its successor serves from the mirror: $TOOK s after it ran"
  for_all_of 30 "it goes on" serves "$node" 2
  cluster apiserver start
  within 30 "agents are ready" agents_are_ready
  within 30 "brokers run" has_brokers cams 2
  zero=$(end_samples)
  note "allocatable was 0 for $zero s at most"
  awk "BEGIN { exit !($zero <= 3) }" || fail "allocatable was 0 for $zero s"
  equal "slots" "$before" "$(slots)"
  nothing_was_lost
}

# Sockets of that many devices, that answer.
serves() { # NODE COUNT
  local socket count=0
  for socket in $(plugin_sockets "$1" | grep -v '^cams-[0-9]*\.sock'); do
    cluster on "$1" grpcurl -plaintext -unix -max-time 2 "/var/lib/kubelet/device-plugins/$socket" v1beta1.DevicePlugin/GetDevicePluginOptions >/dev/null && count=$((count + 1))
  done
  [ "$count" = "$2" ]
}

test_no_slot_is_released_while_the_kubelet_knows_nothing() {
  with_brokers
  local before old node
  before=$(slots)
  cluster apiserver stop
  for node in node-1 node-2; do
    old=$(plugin_sockets "$node")
    cluster kubelet "$node" restart
    within 30 "the kubelet of $node has the plugins by new sockets" has_only_new_sockets "$node" "$old"
  done
  # Without the API server the kubelet lists no Pods, while they run.
  within 10 "the kubelet has registered them" serves node-1 2
  for_all_of 115 "the agents serve" serves node-1 2
  cluster apiserver start
  within 30 "the API server shows the brokers" has_brokers cams 2
  equal "slots after 2 min" "$before" "$(slots)"
  for_all_of 25 "they stay" slots_are "$before"
  equal "Instances" "$(cat "$SUITE/uids")" "$(uids)"
}

has_only_new_sockets() { # NODE OLD
  local now
  now=$(plugin_sockets "$1") && [ "$(grep -c . <<<"$now")" = "$(grep -c . <<<"$2")" ] &&
    [ -z "$(sort <(echo "$now") <(echo "$2") | uniq -d)" ]
}

slots_are() {
  [ "$(slots)" = "$1" ]
}

test_a_broker_that_crashed_while_the_agent_was_away_runs_again() {
  with_brokers
  local broker node container restarts
  broker=$(brokers cams | sed -n 1p)
  node=$(kubectl get pod "$broker" -o 'jsonpath={.spec.nodeName}')
  container=$(kubectl get pod "$broker" -o 'jsonpath={.status.containerStatuses[0].containerID}')
  restarts=$(restarts_of "$broker")
  # The agent cannot come back before it is let.
  trap 'let_agents_run_on null' EXIT
  let_agents_run_on '"nobody"'
  # The controllers of the cluster may have a minute of back-off left from the absence of the API server.
  within 90 "no agent runs on $node" no_agent "$node"
  # From the node: its own PID namespace shields a container's first process from itself.
  cluster on "$node" ctr -n k8s.io task kill -s SIGKILL "${container#*://}"
  within 10 "the broker has ended" has_brokers_ready cams 1
  # Without its plugin a container cannot start: the kubelet tries at once, and again after 10 s, 20 s, 40 s …
  for_all_of 3 "it does not run without an agent" has_brokers_ready cams 1
  let_agents_run_on null
  within 60 "the agent is back" agent_pid "$node"
  note "let -> agent's process: $TOOK s"
  within 15 "the broker runs again" has_restarted "$broker" "$restarts"
  note "agent's process -> crashed broker runs: $TOOK s"
  agents_are_ready
  for_all_of 10 "it goes on" has_restarted "$broker" "$restarts"
}

let_agents_run_on() { # null: all nodes; a JSON text: nodes with this value of the label `agents`
  kubectl -n petiole patch daemonset petiole-agent --type=merge -p "{\"spec\":{\"template\":{\"spec\":{\"nodeSelector\":{\"agents\":$1}}}}}" >/dev/null
}

restarts_of() { # POD
  kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].restartCount}'
}

# Once, and it runs.
has_restarted() { # POD RESTARTS_BEFORE
  kubectl get pod "$1" -o json | jq -e --argjson n "$(($2 + 1))" '.status.containerStatuses[0] | .restartCount == $n and .state.running != null'
}

has_brokers_ready() { # CONFIGURATION COUNT: whose container runs, whatever the Pod's phase
  kubectl get pods -l "akri.sh/configuration=$1" -o json |
    jq -e --argjson n "$2" '[.items[] | select(.status.containerStatuses[0].state.running != null)] | length == $n'
}

no_agent() {
  is_empty agent_of "$1" && is_empty processes "$1" agent
}

test_a_node_that_is_marked_as_shut_down_gives_its_devices_away() {
  with_brokers
  local lost other
  lost=$(holder)
  other=$(other_node "$lost")
  cluster pull "$lost"
  within 180 "$lost leaves the Instances" are_on "$other"
  within 10 "an Event says why nobody else has the camera" has_event "$(instance_of cam-1)" "SlotsHeldByLostNode: node $lost holds"
  note "$(events_of "$(instance_of cam-1)" | grep SlotsHeldByLostNode)"
  for_all_of 10 "no broker is made that cannot run" no_broker_waits
  [[ $(slots) == *"$lost"* ]] || fail "the slots of $lost are free before anybody said that it is off"
  kubectl taint nodes "$lost" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute >/dev/null
  within 10 "its slots are free" no_slot_of "$lost"
  note "marked as shut down -> its slots were free: $TOOK s"
  within 60 "brokers run on $other" has_brokers_on "$other"
  note "slots free -> brokers run on $other: $TOOK s"
  within 5 "an Event says that the slot was released" has_event "$(instance_of cam-1)" "SlotsReleased"
  # It was only cut off. Its Pods were deleted meanwhile.
  cluster plug "$lost"
  kubectl taint nodes "$lost" node.kubernetes.io/out-of-service- >/dev/null
  within 120 "both nodes see both again" both_nodes_see_both
  within 30 "each camera has one broker" has_brokers cams 2
}

other_node() { # NODE
  [ "$1" = node-1 ] && echo node-2 || echo node-1
}

are_on() { # NODE, and no other
  is_on "$(instance_of cam-1)" "$1" && is_on "$(instance_of cam-2)" "$1"
}

offers_both() { # NODE
  local camera
  for camera in cam-1 cam-2; do has_entry "$1" "$(instance_of $camera)" || return 1; done
}

no_slot_of() { # NODE
  local slots
  slots=$(slots) || return 1
  [[ $slots == *'"'* && $slots != *"$1"* ]]
}

no_broker_waits() {
  local brokers
  brokers=$(kubectl get pods -l akri.sh/configuration=cams -o json) || return 1
  jq -e 'all(.items[]; .status.phase != "Pending")' <<<"$brokers" >/dev/null
}

has_brokers_on() { # NODE
  [ "$(kubectl get pods -l akri.sh/configuration=cams -o json | jq --arg n "$1" '[.items[] | select(.spec.nodeName == $n and .status.phase == "Running")] | length')" = 2 ]
}

# ---- where brokers run ----

# A broker that asks for so much CPU. Its device has one slot.
broker_of() { # CPU
  echo "gracePeriodSeconds: 60, capacity: 1, ${BROKER/limits: \{/requests: \{cpu: $1\}, limits: \{}"
}

on_node() { # CONFIGURATION NODE: how many brokers are there that run and are not on the way out
  kubectl get pods -l "akri.sh/configuration=$1" -o json |
    jq --arg n "$2" '[.items[] | select(.spec.nodeName == $n and .status.phase == "Running" and .metadata.deletionTimestamp == null)] | length'
}

has_on_node() { # CONFIGURATION NODE COUNT
  [ "$(on_node "$1" "$2")" = "$3" ]
}

waiting() { # CONFIGURATION COUNT: brokers that the scheduler puts on no node
  [ "$(kubectl get pods -l "akri.sh/configuration=$1" -o json | jq '[.items[] | select(.spec.nodeName == null and .metadata.deletionTimestamp == null)] | length')" = "$2" ]
}

brokers_ready_of() { # CONFIGURATION
  kubectl get configurations.akri.sh "$1" -o json | jq -r '.status.conditions[] | select(.type == "BrokersReady") | "\(.status) \(.reason)"'
}

brokers_are() { # CONFIGURATION "STATUS REASON"
  [ "$(brokers_ready_of "$1")" = "$2" ]
}

instance_says() { # SERVICE [REASON]: the reason of the Instance's condition; without one it has no condition
  [ "$(kubectl get instances.akri.sh "$(instance_of "$1")" -o json | jq -r '.status.conditions[]? | select(.type == "BrokersReady") | .reason')" = "${2:-}" ]
}

column() { # CONFIGURATION HEAD: as kubectl prints it
  kubectl get configurations.akri.sh "$1" -o wide | awk -v head="$2" 'NR == 1 { for (n = 1; n <= NF; n++) if ($n == head) at = n } NR == 2 { print $at }'
}

column_is() { # CONFIGURATION HEAD VALUE
  [ "$(column "$1" "$2")" = "$3" ]
}

cores() { # of a node, in thousandths, that no Pod has asked for
  local all asked
  all=$(kubectl get node "$1" -o json | jq '.status.allocatable.cpu | if endswith("m") then rtrimstr("m") | tonumber else tonumber * 1000 end')
  asked=$(kubectl get pods -A --field-selector "spec.nodeName=$1" -o json |
    jq '[.items[].spec.containers[].resources.requests.cpu // "0" | if endswith("m") then rtrimstr("m") | tonumber else tonumber * 1000 end] | add // 0')
  echo $((all - asked))
}

# A test that failed may have left them closed, and a kubelet that was stopped takes a moment to be ready.
open_nodes() {
  kubectl uncordon node-1 node-2 >/dev/null
  kubectl taint node node-2 hall- >/dev/null 2>&1 || true
  kubectl wait node --all --for=condition=Ready --timeout=90s >/dev/null
}

test_brokers_are_spread_over_the_nodes_that_see_the_devices() {
  clean
  open_nodes
  local n
  for n in 1 2 3 4 5 6 7 8; do announce camera "cam-$n" _rtsp._tcp "55$n"; done
  # Of a node that does not offer a device yet the scheduler knows nothing: both offer them before there is a broker.
  configure cams "kind: _rtsp._tcp" "capacity: 1"
  within 20 "both nodes offer eight devices" both_offer 8
  configure cams "kind: _rtsp._tcp" "capacity: 1, $BROKER"
  within 20 "eight brokers run" has_brokers cams 8
  note "applied -> eight brokers ran: $TOOK s"
  equal "brokers on node-1" 4 "$(on_node cams node-1)"
  within 5 "the column says it" column_is cams BROKERS 8/8
  brokers_are cams "True BrokersRun" || fail "BrokersReady is $(brokers_ready_of cams)"
}

# Entries of the devices of earlier tests may stand beside them, with amount 0.
both_offer() { # COUNT of devices
  offers_of cams "$1" node-1 && offers_of cams "$1" node-2
}

brokers_have_run_for() { # SECONDS
  kubectl get pods -l akri.sh/configuration=cams -o json |
    jq -e --argjson least "$1" '[.items[].status.startTime | fromdate < now - $least] | all' >/dev/null
}

test_a_drained_node_gives_its_broker_to_another_that_sees_the_device() {
  with_brokers
  local from to
  from=$(holder)
  to=$(other_node "$from")
  within 40 "they have run for half a minute" brokers_have_run_for 31
  # The other camera's broker may be there, too.
  kubectl drain "$from" --ignore-daemonsets --pod-selector=akri.sh/configuration=cams --timeout=60s >/dev/null
  # A slot that is older than half a minute is released when two looks, 3 s apart, have not found its container.
  within 10 "both run on $to" has_on_node cams "$to" 2
  note "drained -> brokers ran on the other node: $TOOK s"
  within 5 "the condition says so" brokers_are cams "True BrokersRun"
  kubectl uncordon "$from" >/dev/null
  for_all_of 5 "none moves back" has_on_node cams "$to" 2
}

test_brokers_without_a_node_say_so_and_go_where_the_first_can() {
  clean
  open_nodes
  kubectl cordon node-1 >/dev/null
  kubectl taint node node-2 hall=closed:NoSchedule >/dev/null
  announce camera cam-1 _rtsp._tcp 554
  configure cams "kind: _rtsp._tcp" "capacity: 1, $BROKER"
  within 15 "the condition names the trouble" brokers_are cams "False BrokerUnschedulable"
  column_is cams BROKERS 0/1 || fail "BROKERS is $(column cams BROKERS)"
  column_is cams REASON BrokerUnschedulable || fail "REASON is $(column cams REASON)"
  within 5 "an Event says it" has_event cams "puts it on none of the nodes that see the device"
  local uid
  uid=$(kubectl get pods -l akri.sh/configuration=cams -o jsonpath='{.items[*].metadata.uid}')
  for_all_of 5 "it waits" waiting cams 1
  kubectl taint node node-2 hall- >/dev/null
  within 10 "it runs on node-2" has_on_node cams node-2 1
  note "taint removed -> the broker ran: $TOOK s"
  equal "the same Pod" "$uid" "$(kubectl get pods -l akri.sh/configuration=cams -o jsonpath='{.items[*].metadata.uid}')"
  kubectl uncordon node-1 >/dev/null
}

# A Pod that takes a node's CPU, all of it but so many thousandths of a core.
filler() { # NODE LEFT
  local asks
  asks=$(($(cores "$1") - $2))
  kubectl run filler --image=docker.io/library/busybox:stable --restart=Never \
    --overrides="{\"spec\": {\"nodeName\": \"$1\", \"terminationGracePeriodSeconds\": 0, \"containers\": [{\"name\": \"filler\", \"image\": \"docker.io/library/busybox:stable\", \"command\": [\"/bin/sleep\", \"2147483647\"], \"resources\": {\"requests\": {\"cpu\": \"${asks}m\"}}}]}}" >/dev/null
  within 20 "$1 is full" is_running filler
}

test_a_broker_that_does_not_fit_on_one_node_runs_on_the_other() {
  clean
  open_nodes
  filler node-1 50
  kubectl cordon node-2 >/dev/null
  announce camera cam-1 _rtsp._tcp 554
  configure cams "kind: _rtsp._tcp" "$(broker_of 200m)"
  within 10 "it waits" waiting cams 1
  within 15 "the condition has the scheduler's words" brokers_are cams "False BrokerUnschedulable"
  kubectl uncordon node-2 >/dev/null
  within 10 "it runs on node-2" has_on_node cams node-2 1
  note "another node was open -> the broker ran there: $TOOK s"
}

test_a_broker_that_a_pod_of_a_higher_priority_ends_runs_on_the_other_node() {
  clean
  open_nodes
  kubectl cordon node-2 >/dev/null
  announce camera cam-1 _rtsp._tcp 554
  configure cams "kind: _rtsp._tcp" "$(broker_of 200m)"
  within 20 "it runs on node-1" has_on_node cams node-1 1
  within 40 "it has run for half a minute" brokers_have_run_for 31
  kubectl uncordon node-2 >/dev/null
  kubectl apply -f - >/dev/null <<END
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: first}
value: 1000
END
  local asks
  asks=$(($(cores node-1) + 100))
  kubectl run filler --image=docker.io/library/busybox:stable --restart=Never \
    --overrides="{\"spec\": {\"priorityClassName\": \"first\", \"nodeSelector\": {\"kubernetes.io/hostname\": \"node-1\"}, \"terminationGracePeriodSeconds\": 0, \"containers\": [{\"name\": \"filler\", \"image\": \"docker.io/library/busybox:stable\", \"command\": [\"/bin/sleep\", \"2147483647\"], \"resources\": {\"requests\": {\"cpu\": \"${asks}m\"}}}]}}" >/dev/null
  within 20 "the other Pod runs on node-1" is_running filler
  within 10 "the broker runs on node-2" has_on_node cams node-2 1
  note "preempted -> the broker ran on the other node: $TOOK s"
  kubectl delete pod filler --now >/dev/null
  kubectl delete priorityclass first >/dev/null
}

test_a_device_that_only_the_other_node_sees_takes_its_broker_along() {
  clean
  open_nodes
  kubectl label node node-1 node-2 looks=yes --overwrite >/dev/null
  announce camera cam-1 _rtsp._tcp 554
  configure cams "kind: _rtsp._tcp" "nodeSelector: {looks: 'yes'}, capacity: 2, $BROKER"
  within 20 "a broker runs on each node" has_on_node cams node-1 1
  within 20 "a broker runs on each node" has_on_node cams node-2 1
  configure cams "kind: _rtsp._tcp" "nodeSelector: {looks: 'yes'}, capacity: 1, $BROKER"
  within 40 "one is left" has_brokers cams 1
  local from to
  from=$(kubectl get pods -l akri.sh/configuration=cams -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null) | .spec.nodeName')
  to=$(other_node "$from")
  within 40 "it has run for half a minute" brokers_have_run_for 31
  kubectl label node "$from" looks- >/dev/null
  within 3 "a Pod for $to is there" names_only cams "$to"
  note "only $to sees the device -> the next broker was created: $TOOK s"
  within 20 "it runs on $to" has_on_node cams "$to" 1
  kubectl label node node-1 node-2 looks- >/dev/null
}

names_only() { # CONFIGURATION NODE: the node affinity of every broker that is not on the way out
  kubectl get pods -l "akri.sh/configuration=$1" -o json | jq -e --arg n "$2" '
    [.items[] | select(.metadata.deletionTimestamp == null)] | length > 0 and all(.[];
      [.spec.affinity.nodeAffinity | .. | .values? // empty | .[]] == [$n])' >/dev/null
}

test_what_is_wrong_with_brokers_is_in_the_status() {
  clean
  open_nodes
  announce camera cam-1 _rtsp._tcp 554
  # The cluster has no registry, and a pull ends after a minute only.
  local absent=${BROKER/busybox:stable/none:1}
  configure cams "kind: _rtsp._tcp" "${absent/name: broker,/name: broker, imagePullPolicy: Never,}"
  within 20 "an image that is not there" brokers_are cams "False BrokerImage"
  within 5 "its Instance says it, too" instance_says cam-1 BrokerImage
  is_ready_as cams "True Working" || fail "Ready is $(ready_of cams)"
  configure cams "kind: _rtsp._tcp" "${BROKER/exec sleep 2147483647/exit 3}"
  within 30 "a program that ends" brokers_are cams "False BrokerCrashes"
  configure cams "kind: _rtsp._tcp" "${BROKER/command:/comand:}"
  within 30 "a field that does not exist" is_ready_as cams "False BrokerSpecInvalid"
  kubectl get configurations.akri.sh cams -o json | jq -e '.status.conditions | all(.message | contains("comand"))' >/dev/null ||
    fail "the field is not named: $(kubectl get configurations.akri.sh cams -o json | jq -c .status.conditions)"
  configure cams "kind: _rtsp._tcp" "$BROKER"
  within 30 "the corrected broker runs" brokers_are cams "True BrokersRun"
  within 5 "its Instance says nothing" instance_says cam-1
  is_ready_as cams "True Working" || fail "Ready is $(ready_of cams)"
}

# The DaemonSet is that of docs/write-a-handler.md, and the program that of examples/handler-go.
test_a_handler_in_a_pod_of_its_own_loses_nothing_when_agent_and_kubelet_restart() {
  local programs root=$SUITE/reachable address before old
  programs=$("$E2E/handlers/build")
  [ -x "$programs/reachable-go" ] || { note "not run: examples/handler-go cannot be built here" && return; }
  clean
  mkdir -p "$root"
  cp "$programs/reachable-go" "$root/handler"
  cluster image registry.example/reachable-go:1 "$root" /handler >"$SUITE/reachable.tar"
  cluster load "$SUITE/reachable.tar"
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set handlers.enabled=true --wait --timeout 90s >/dev/null
  begin page camera python3 -m http.server 8551
  address=$(cluster on camera ip -4 -o addr show eth0 | sed -E 's,.* inet ([0-9.]+)/.*,\1,'):8551
  trap 'kubectl -n petiole delete daemonset reachable-go --cascade=foreground --timeout=30s >/dev/null' EXIT
  daemonset_of_the_page | kubectl apply -f - >/dev/null
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: pages}
spec:
  gracePeriodSeconds: 60
  discoveryHandler: {name: reachable-go, discoveryDetails: '{"addresses": ["$address"]}'}
X
  within 40 "both nodes offer it" both_offer_a_page 1
  note "DaemonSet applied -> allocatable on both nodes: $TOOK s"
  before=$(uids)
  old=$(agent_pid node-1)
  kubectl -n petiole delete pod "$(agent_of node-1)" --wait=false >/dev/null
  within 40 "another agent runs on node-1" another_agent node-1 "$old"
  within 20 "both nodes offer it" both_offer_a_page 1
  for_all_of 5 "they go on" both_offer_a_page 1
  old=$(plugin_sockets node-1)
  cluster kubelet node-1 restart
  within 20 "the kubelet has it by a new socket" kubelet_has node-1 "$(page)" "$old"
  within 20 "both nodes offer it" both_offer_a_page 1
  equal "the Instance" "$before" "$(uids)"
  # Its handler registers when it starts, and never again.
  equal "restarts of the handlers" "0 0" "$(kubectl -n petiole get pods -l app=reachable-go -o 'jsonpath={.items[*].status.containerStatuses[*].restartCount}')"
  stop page
  within 20 "the handlers are followed" both_offer_a_page 0
}

daemonset_of_the_page() {
  # shellcheck disable=SC2016 # the end of a block in Markdown
  sed -n '/^kind: DaemonSet$/,/^```$/ { /^```$/d; p; }' "$E2E/../../docs/write-a-handler.md" |
    sed '1i apiVersion: apps/v1' | sed 's/reachable-python/reachable-go/g'
}

page() { # the Instance
  kubectl get instances.akri.sh -o json | jq -re '.items[] | select(.spec.configurationName == "pages") | .metadata.name'
}

both_offer_a_page() { # AMOUNT
  node_holds node-1 allocatable "$(page)" "$1" && node_holds node-2 allocatable "$(page)" "$1"
}

test_zz_a_node_is_killed() {
  with_brokers
  local lost other
  lost=$(holder)
  other=$(other_node "$lost")
  cluster kill "$lost"
  within 180 "$lost leaves the Instances" are_on "$other"
  note "node killed -> it left the Instances: $TOOK s"
  within 60 "$other offers both" offers_both "$other"
  for_all_of 5 "no broker is made that cannot run" no_broker_waits
  kubectl delete node "$lost" >/dev/null
  # Kubernetes deletes the Pods of a Node that has gone within 40 to 80 s, later where the machine is loaded; until then a
  # kubelet might run them. The controller looks for them every 15 s by then.
  within 180 "its slots are free" no_slot_of "$lost"
  note "Node deleted -> its slots were free: $TOOK s"
  within 60 "brokers run on $other" has_brokers_on "$other"
  kubectl delete configuration cams >/dev/null
  within 20 "Instances go without the node" has_instances cams 0
}
