# Dynamic Resource Allocation: the real scheduler gives out the devices, the agents prepare the claims, containerd gives containers
# what their CDI files say.
# shellcheck shell=bash disable=SC2119,SC2153,SC2317 # SUITE is set by run; `within` calls functions
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"
# shellcheck source=tests/e2e/lib_claims.sh
. "$E2E/lib_claims.sh"
# shellcheck source=tests/e2e/stolen_token.sh
. "$E2E/stolen_token.sh"

set_up() {
  up_with_images
  install --set dra.enabled=true
  cluster avahi camera
}

test_a_pod_that_asks_for_the_resource_gets_a_device_from_the_scheduler() {
  fresh
  echoes cam 2 "capacity: 2, allocation: DRA, brokerProperties: {ROOM: hall}"
  within 10 "two devices are offered" has_devices default/cam 2
  within 10 "there is a class" kubectl get deviceclass akri.default.cam
  pod first - cam
  within 15 "the Pod runs" is_running first
  local slot claim
  slot=$(env_of first AKRI_SLOT)
  [[ $slot == cam-*-* ]] || fail "the slot is $slot"
  equal "its property" hall "$(env_of first ROOM)"
  equal "the holder of the device" claim "$(usage_of "${slot%-*}")"
  claim=$(kubectl get pod first -o 'jsonpath={.status.extendedResourceClaimStatus.resourceClaimName}')
  equal "the claim's device" "${slot%-*}" "$(kubectl get resourceclaim "$claim" -o 'jsonpath={.status.allocation.devices.results[0].device}')"
  local node
  for node in node-1 node-2; do
    node_holds "$node" allocatable cam 0 || fail "$node offers the resource by a device plugin"
  done
  # Three slots are left: two more Pods of two devices, and one of one.
  pod both - cam=2
  pod third - cam
  within 15 "both run" has_phases "" "Running=3"
  pod fourth - cam
  for_all_of 5 "the fourth waits" has_phases fourth Pending=1
  kubectl delete pod both --now >/dev/null
  within 15 "and gets what is freed" is_running fourth
  kubectl delete pods --all --now >/dev/null
  within 20 "all slots are free" has_usage "${slot%-*}" ""
  within 20 "nothing is left on the nodes" is_unprepared
}

test_a_claim_selects_a_device_by_what_is_known_of_it_and_waits_while_another_has_it() {
  fresh
  echoes cam 3 "allocation: DRA"
  within 10 "three devices are offered" has_devices default/cam 3
  local instance
  instance=$(one_of cam)
  claiming_pod first node-1 "device.attributes[\"akri.sh\"].instance == \"$instance\""
  within 15 "the Pod runs" is_running first
  equal "its slot" "$instance-0" "$(env_of first AKRI_SLOT)"
  claiming_pod second node-2 "device.attributes[\"akri.sh\"].instance == \"$instance\""
  claiming_pod others node-2 "device.attributes[\"akri.sh\"].handler == \"debugEcho\"" 2
  within 15 "who asks for any two gets the others" is_running others
  for_all_of 10 "the second waits" has_phases second Pending=1
  kubectl delete pod first --now >/dev/null
  within 20 "and gets the device on the other node" is_running second
  equal "the second's slot" "$instance-0" "$(env_of second AKRI_SLOT)"
}

test_pods_race_for_devices_and_none_fails() {
  fresh
  echoes cam 10 "capacity: 2, allocation: DRA"
  within 10 "ten devices are offered" has_devices default/cam 10
  local round
  for round in 1 2; do
    note "round $round"
    at_once race 30 cam
    # The scheduler of 1.37.2 can miss that a device is free again, and looks at all Pods once in five minutes.
    within 330 "twenty run, and ten wait" has_phases race- "Pending=10 Running=20"
    for_all_of 5 "none fails" has_phases race- "Pending=10 Running=20"
    equal "slots that are held" 20 "$(kubectl get instances.akri.sh -o json | jq '[.items[].spec.deviceUsage[]? | select(. != "")] | length')"
    kubectl delete deployment race --wait >/dev/null
    within 60 "all are gone" has_phases race- ""
    within 30 "all claims are unprepared" is_unprepared
  done
}

test_a_configuration_moves_to_the_scheduler_and_back_while_pods_have_its_devices() {
  fresh
  echoes cam 1 "capacity: 3"
  within 10 "an Instance" has_instances cam 1
  local instance
  instance=$(one_of cam)
  within 15 "node-1 offers it" node_holds node-1 allocatable cam 1
  pod plugin node-1 cam
  within 15 "a Pod has it by the device plugin" is_running plugin
  kubectl patch configurations.akri.sh cam --type merge -p '{"spec": {"allocation": "DRA"}}' >/dev/null
  within 15 "the scheduler is offered two of three slots" has_slots "$instance" 2
  within 15 "no device plugin gives one" node_holds node-1 allocatable cam 0
  claiming_pod claim-1 node-1 true
  # By the resource, on a node whose kubelet knows it by the device plugin.
  pod claim-2 - cam
  claiming_pod claim-3 node-1 true
  within 20 "two claims get the others" has_phases claim- "Pending=1 Running=2"
  for_all_of 5 "the third waits" has_phases claim- "Pending=1 Running=2"
  equal "the holders" "claim claim plugin" "$(usage_of "$instance")"
  kubectl delete pod plugin --now >/dev/null
  within 40 "the third claim gets what the plugin's Pod had" is_running claim-3
  equal "the holders" "claim claim claim" "$(usage_of "$instance")"
  kubectl patch configurations.akri.sh cam --type merge -p '{"spec": {"allocation": "DevicePlugin"}}' >/dev/null
  within 15 "the scheduler is offered nothing" has_devices default/cam 0
  pod back - cam
  for_all_of 8 "who asks for the resource waits while claims have all slots" has_phases back Pending=1
  kubectl delete pod claim-1 --now >/dev/null
  within 30 "and gets the slot that a claim frees" is_running back
  equal "the holders" "claim claim plugin" "$(usage_of "$instance")"
}

has_slots() { # DEVICE COUNT
  [ "$(kubectl get resourceslices -o json | jq -r --arg d "$1" '.items[].spec.devices[]? | select(.name == $d) | .capacity.slots.value')" = "$2" ]
}

test_agents_and_kubelets_that_end_lose_no_claim() {
  fresh
  echoes cam 2 "allocation: DRA"
  within 10 "two devices are offered" has_devices default/cam 2
  claiming_pod one node-1 true
  claiming_pod two node-2 true
  within 20 "two Pods run" has_phases "" "Running=2"
  local before instance
  before=$(usages)
  kill_agent node-1 KILL
  cluster kubelet node-2 restart
  agents_are_ready
  for_all_of 30 "the claims keep their slots" usages_are "$before"
  claiming_pod three node-1 true
  for_all_of 5 "a third waits" has_phases three Pending=1
  # While the agent is away, the kubelet cannot have the claim unprepared, and tries again.
  instance=$(env_of one AKRI_SLOT)
  kubectl delete pod one --now --wait=false >/dev/null
  kill_agent node-1 KILL
  within 60 "the third gets the first's device" is_running three
  equal "its slot" "$instance" "$(env_of three AKRI_SLOT)"
}

test_slices_that_somebody_deleted_are_there_again_and_another_leader_writes_none() {
  fresh
  echoes cam 3 "allocation: DRA"
  within 10 "three devices are offered" has_devices default/cam 3
  kubectl delete resourceslices --all >/dev/null
  within 15 "they are offered again" has_devices default/cam 3
  local versions
  versions=$(versions)
  kubectl -n petiole delete pods -l app.kubernetes.io/component=controller --now >/dev/null
  within 30 "a controller acts" is_led
  for_all_of 15 "nothing is written" versions_are "$versions"
  kubectl delete configurations.akri.sh cam >/dev/null
  within 30 "what no Configuration has goes" has_no_offer
}

is_led() {
  local holder
  holder=$(kubectl -n petiole get lease petiole-controller -o 'jsonpath={.spec.holderIdentity}') || return 1
  [ -n "$holder" ] && kubectl -n petiole get pod "$holder" >/dev/null 2>&1
}

has_no_offer() {
  [ -z "$(kubectl get resourceslices,deviceclasses -o name)" ]
}

test_pods_follow_a_device_that_is_gone() {
  fresh
  announce camera door _rtsp._tcp 554
  configure cam "kind: _rtsp._tcp" "gracePeriodSeconds: 5, allocation: DRA, whenGone: Evict"
  within 15 "it is offered" has_devices default/cam 1
  local instance
  instance=$(instance_of door)
  claiming_pod viewer - true
  within 15 "a Pod has it" is_running viewer
  goodbye door
  within 20 "no other Pod gets it" has_taints "$instance" akri.sh/gone=NoSchedule
  within 40 "its Pod is evicted" is_empty kubectl get pods -o name
  within 40 "nothing is offered any more" has_devices default/cam 0
}

test_a_pod_of_two_devices_follows_them() {
  fresh
  announce camera door _rtsp._tcp 554
  announce camera gate _rtsp._tcp 555
  configure cam "kind: _rtsp._tcp" "gracePeriodSeconds: 5, allocation: DRA, whenGone: Evict"
  within 15 "they are offered" has_devices default/cam 2
  # Its claim has both, and its status names none of them.
  pod both - cam=2
  within 15 "a Pod has them" is_running both
  goodbye door
  goodbye gate
  # It must have begun before the loss, so at first it is too young, and the looks at it come after up to 30 s.
  within 100 "it is evicted" is_empty kubectl get pods -o name
}

test_a_class_of_somebody_else_stays_and_the_configuration_says_so() {
  fresh
  kubectl create -f - >/dev/null <<X
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: akri.default.cam}
spec: {}
X
  echoes cam 1 "allocation: DRA"
  within 20 "the Configuration says so" is_ready_as cam "False SlicesRefused"
  equal "the class of somebody else" '{}' "$(kubectl get deviceclass akri.default.cam -o 'jsonpath={.spec}')"
  kubectl delete deviceclass akri.default.cam >/dev/null
  within 70 "the name is taken when it is free" is_ready_as cam "True Working"
  pod first - cam
  within 15 "a Pod gets the device" is_running first
  # What was made by the controller is mended, though it has lost its label, and the chart's policy lets it.
  kubectl label deviceclass akri.default.cam app.kubernetes.io/managed-by- >/dev/null
  echoes usb 1 "allocation: DRA"
  within 20 "its own has its label again" is_labelled
  equal "ready" "True Working" "$(ready_of cam)"
}

is_labelled() {
  [ "$(kubectl get deviceclass akri.default.cam -o 'jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}')" = petiole ]
}

runs_on() { # DEPLOYMENT NODE: its only Pod
  [ "$(kubectl get pods -l "app=$1" -o json | jq -r '[.items[] | select(.metadata.deletionTimestamp == null) | "\(.status.phase) \(.spec.nodeName)"] | join(", ")')" = "Running $2" ]
}

test_a_pod_leaves_the_node_that_sees_its_device_no_more() {
  fresh
  announce camera door _rtsp._tcp 554
  configure cam "kind: _rtsp._tcp" "gracePeriodSeconds: 5, allocation: DRA, whenGone: Evict"
  within 15 "it is offered" has_devices default/cam 1
  at_once viewer 1 cam
  within 20 "a Pod has it" has_phases viewer- Running=1
  local node other
  node=$(kubectl get pods -l app=viewer -o 'jsonpath={.items[0].spec.nodeName}')
  other=$([ "$node" = node-1 ] && echo node-2 || echo node-1)
  block "$node" A
  # shellcheck disable=SC2064 # this node
  trap "block $node D" EXIT
  within 90 "the next Pod has it on $other" runs_on viewer "$other"
  note "cut off from the camera -> a Pod on $other: $TOOK s"
  for_all_of 10 "it stays" runs_on viewer "$other"
  block "$node" D
  trap - EXIT
  kubectl delete deployment viewer >/dev/null
}

test_brokers_have_claims_of_their_own() {
  fresh
  echoes cam 2 "capacity: 2, allocation: DRA, $BROKER"
  within 30 "two brokers of each device run" has_brokers cam 4
  local instance broker
  instance=$(one_of cam)
  broker=$(brokers cam | head -n 1)
  equal "the template's owner" "$instance" "$(kubectl get resourceclaimtemplate "$instance-broker" -o 'jsonpath={.metadata.ownerReferences[0].name}')"
  [[ $(env_of "$broker" AKRI_SLOT) == cam-* ]] || fail "a broker has no slot"
  within 10 "claims have all slots" has_usage "$instance" "claim claim"
  kubectl patch configurations.akri.sh cam --type merge -p '{"spec": {"allocation": "DevicePlugin"}}' >/dev/null
  within 90 "the brokers have their devices by device plugins then" has_usage "$instance" "plugin plugin"
  within 30 "all run" has_brokers cam 4
}

test_a_template_of_somebody_else_stays_and_the_broker_waits_for_its_name() {
  local instance spec='capacity: 1, allocation: DRA'
  fresh
  echoes cam 1 "$spec"
  within 15 "the device is offered" has_devices default/cam 1
  instance=$(one_of cam)
  kubectl create -f - >/dev/null <<X
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: $instance-broker}
spec: {spec: {devices: {requests: [{name: mine, exactly: {deviceClassName: mine}}]}}}
X
  echoes cam 1 "$spec, $BROKER"
  within 20 "an Event says whose it is not" has_event "$instance" "the ResourceClaimTemplate $instance-broker is there already and is not of this Instance"
  equal "its owners" '' "$(kubectl get resourceclaimtemplate "$instance-broker" -o 'jsonpath={.metadata.ownerReferences}')"
  equal "its request" mine "$(kubectl get resourceclaimtemplate "$instance-broker" -o 'jsonpath={.spec.spec.devices.requests[0].name}')"
  kubectl delete resourceclaimtemplate "$instance-broker" >/dev/null
  within 60 "the broker has a template of its own then" has_brokers cam 1
}

# slice DRIVER POOL REACH, class NAME RESOURCE, template NAME OWNER CLASS: JSON for `kubectl create -f -`.
slice() {
  jq -n --arg driver "$1" --arg pool "$2" --argjson reach "$3" '{
    apiVersion: "resource.k8s.io/v1", kind: "ResourceSlice", metadata: {generateName: "stolen-"},
    spec: ({driver: $driver, pool: {name: $pool, generation: 1, resourceSliceCount: 1}, devices: [{name: "forged"}]} + $reach)}'
}

class() {
  jq -n --arg name "$1" --arg resource "$2" '{
    apiVersion: "resource.k8s.io/v1", kind: "DeviceClass",
    metadata: {name: $name, labels: {"app.kubernetes.io/managed-by": "petiole"}}, spec: {extendedResourceName: $resource}}'
}

template() {
  jq -n --arg name "$1" --arg of "$2" --arg uid "$3" --arg class "$4" '{
    apiVersion: "resource.k8s.io/v1", kind: "ResourceClaimTemplate",
    metadata: {name: $name, ownerReferences: [{apiVersion: "akri.sh/v0", kind: "Instance", name: $of, uid: $uid, controller: true}]},
    spec: {spec: {devices: {requests: [{name: "one", exactly: {deviceClassName: $class}}]}}}}'
}

# create JSON [ARGS]: what `may` and `may_not` run.
create() {
  local file
  file=$(mktemp "$SUITE/create.XXXXXX")
  echo "$1" >"$file"
  echo "create -o name --dry-run=server -f $file"
}

test_with_a_stolen_token_no_other_drivers_devices_and_no_others_claims_can_be_touched() {
  fresh
  echoes cam 1 "allocation: DRA"
  within 10 "a device is offered" has_devices default/cam 1
  claiming_pod user node-1 true
  within 15 "a Pod has it" is_running user
  local instance uid claim
  instance=$(one_of cam)
  uid=$(kubectl get instances.akri.sh "$instance" -o 'jsonpath={.metadata.uid}')
  claim=$(kubectl get resourceclaims -o 'jsonpath={.items[0].metadata.name}')
  kubectl create -f - >/dev/null <<<'{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.org"}, "spec": {}}'
  export TOKEN_CONFIG=$SUITE/stolen
  kubeconfig_with "$(a_token agent node-1)" >"$TOKEN_CONFIG"
  may "read a claim that its kubelet names" get resourceclaims "$claim"
  may_not "list claims" "cannot list resource" get resourceclaims -A
  may_not "change a claim" "cannot patch resource" patch resourceclaims "$claim" --type merge -p '{"metadata": {"labels": {"a": "b"}}}'
  may_not "read slices" "cannot list resource" get resourceslices
  # shellcheck disable=SC2046 # several arguments
  may_not "write slices" "cannot create resource" $(create "$(slice akri.sh default/cam '{"nodeName": "node-1"}')")
  kubeconfig_with "$(a_token controller)" >"$TOKEN_CONFIG"
  # shellcheck disable=SC2046
  controllers_writes "$instance" "$uid"
  may_not "read claims" "cannot list resource" get resourceclaims
  may_not "delete another's class" "only DeviceClasses akri." delete deviceclasses gpu.example.org
  kubectl delete deviceclasses gpu.example.org >/dev/null
  is_running user || fail "the Pod does not run any more"
}

# shellcheck disable=SC2046 # several arguments
controllers_writes() { # INSTANCE UID
  local all='{"allNodes": true}'
  may "write slices of its driver" $(create "$(slice akri.sh default/cam "$all")")
  may_not "write slices of another driver" "only ResourceSlices of the driver akri.sh" $(create "$(slice gpu.example.org default/cam "$all")")
  may_not "write slices of a node" "of no single node" $(create "$(slice akri.sh default/cam '{"nodeName": "node-1"}')")
  may "write a class of a Configuration" $(create "$(class akri.default.door akri.sh/door)")
  may_not "write another class" "only DeviceClasses akri." $(create "$(class gpu.example.com akri.sh/door)")
  may_not "give its class another's resource" "with the prefixes of resourcePrefixes" $(create "$(class akri.default.door nvidia.com/gpu)")
  may "write the template of a broker" $(create "$(template "$1-broker" "$1" "$2" akri.default.cam)")
  may_not "write a template of another name" "only ResourceClaimTemplates" $(create "$(template another "$1" "$2" akri.default.cam)")
  may_not "claim another driver's devices" "only for devices of Configurations" $(create "$(template "$1-broker" "$1" "$2" gpu.example.org)")
  may_not "write templates elsewhere" "in the namespaces of admissionPolicies.closedNamespaces" $(create "$(template "$1-broker" "$1" "$2" akri.default.cam)") -n kube-system
}
