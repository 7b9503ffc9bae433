# What users do with claims: each file of examples/dra as it is, and Pods that ask in ways of Kubernetes' own tests
# (crates/petiole-dra/UPSTREAM.md).
# shellcheck shell=bash disable=SC2119,SC2153,SC2317 # SUITE is set by run; `within` and the loop over stories call functions
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"
# shellcheck source=tests/e2e/lib_claims.sh
. "$E2E/lib_claims.sh"

STORIES=$EXAMPLES/dra

set_up() {
  up_with_images
  install --set dra.enabled=true
}

# ---- the files of examples/dra ----

# The files that a story has applied.
APPLIED=()

apply() { # NAME…: applies these files
  local name
  for name in "$@"; do
    APPLIED+=("$name")
    kubectl apply -f "$STORIES/$name.yaml" >/dev/null
  done
}

remove() { # NAME
  kubectl delete -f "$STORIES/$1.yaml" --ignore-not-found --wait=false >/dev/null
}

end_story() {
  local name
  for name in "${APPLIED[@]}"; do remove "$name"; done
  APPLIED=()
  within 60 "nothing of the story is left" is_over
}

is_over() {
  local left
  left=$(kubectl get deployments,replicasets,pods,resourceclaims --all-namespaces -o name) || return 1
  ! grep -Eqv '^(.*/petiole-.*)?$' <<<"$left" && is_unprepared
}

values() { # STORY VARIABLE [NAMESPACE]: its values for each device, in all containers of the story
  kubectl -n "${3:-default}" logs --selector "app=$1" --all-containers --tail=-1 --ignore-errors | sed -n "s/^$2_[0-9A-F]*=//p" | sort
}

# has_devices_in STORY ROOMS SLOTS [NAMESPACE]: the rooms of the devices of all its containers, and how many different slots these are.
has_devices_in() {
  [ "$(values "$1" ROOM "${4:-default}" | xargs)" = "$2" ] && [ "$(values "$1" AKRI_SLOT "${4:-default}" | sort -u | wc -l)" = "$3" ]
}

# A story is a function with the name of its file.
test_every_story_of_the_examples_runs() {
  fresh
  kubectl delete resourceclaims --all --wait=false >/dev/null
  kubectl apply -f "$STORIES/devices.yaml" >/dev/null
  within 15 "the hall's devices are offered" has_devices default/hall 2
  within 15 "the yard's device is offered" has_devices default/yard 1
  within 15 "the gate's device is offered" has_devices default/gate 1
  local file name
  for file in "$STORIES"/*.yaml; do
    name=$(basename "$file" .yaml)
    [ "$name" != devices ] || continue
    echo "the story $name"
    "story_${name//-/_}"
    end_story
  done
  remove devices
  within 30 "nothing is offered any more" is_empty kubectl get resourceslices,deviceclasses -o name
}

story_template() {
  apply template
  within 30 "two Pods run" has_phases template- Running=2
  within 5 "each has a device of its own" has_devices_in template "hall hall" 2
  kubectl scale deployment template --replicas 3 >/dev/null
  within 10 "a third waits" has_phases template- "Pending=1 Running=2"
  for_all_of 5 "it goes on waiting" has_phases template- "Pending=1 Running=2"
}

story_two_requests() {
  apply two-requests
  within 30 "the Pod runs" is_running two-requests
  within 5 "one container has both devices, the other one has one" has_devices_in two-requests "hall yard yard" 2
  local of=/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/cameras
  equal "the files about requests in the one" "hall yard" "$(kubectl exec two-requests -c both -- ls "$of" | xargs)"
  equal "the files about requests in the other" yard "$(kubectl exec two-requests -c yard -- ls "$of" | xargs)"
}

story_shared_by_containers() {
  apply shared-by-containers
  within 30 "the Pod runs" is_running shared-by-containers
  within 5 "both containers have one slot" has_devices_in shared-by-containers "hall hall" 1
}

story_shared_by_pods() {
  apply shared-by-pods
  within 30 "both Pods run" has_phases shared-by-pods- Running=2
  within 5 "they have one slot" has_devices_in shared-by-pods "hall hall" 1
  equal "the rooms in the file about the device" hall "$(described deployment/shared-by-pods resourceclaims/shared-by-pods/camera)"
}

story_init_container() {
  apply init-container
  within 30 "the Pod runs" is_running init-container
  within 5 "both containers had one slot" has_devices_in init-container "hall hall" 1
}

story_selector() {
  apply selector
  within 30 "the Pod runs" is_running selector
  within 5 "it has the yard's device" has_devices_in selector yard 1
}

story_same_room() {
  apply same-room
  within 30 "the Pod runs" is_running same-room
  within 5 "it has the hall's devices" has_devices_in same-room "hall hall" 2
}

story_first_available() {
  apply first-available
  within 30 "the Pod runs" is_running first-available
  within 5 "it has the yard's device" has_devices_in first-available yard 1
}

story_admin_access() {
  apply template
  within 30 "Pods have all devices of the hall" has_phases template- Running=2
  apply admin-access
  within 30 "who only looks runs" looks_on
  within 5 "it sees both devices and has no slot" has_devices_in admin-access "hall hall" 0 admin-access
  equal "the others" Running=2 "$(phases template-)"
}

looks_on() {
  [ "$(kubectl -n admin-access get pod admin-access -o 'jsonpath={.status.phase}')" = Running ]
}

story_extended_resource() {
  apply extended-resource
  within 30 "the Pod runs" is_running extended-resource
  within 5 "it has a device by each name" has_devices_in extended-resource "hall yard" 2
}

story_shares() {
  apply shares
  within 30 "two Pods run and one waits" has_phases shares- "Pending=1 Running=2"
  within 5 "each of the two has a slot" has_devices_in shares "gate gate" 2
  equal "the holders of the device" "claim claim" "$(usage_of "$(one_of gate)")"
  for_all_of 5 "the third goes on waiting" has_phases shares- "Pending=1 Running=2"
  # The only slot that is left is given to one of the next Pods, though nobody has it for a moment.
  kubectl patch configuration gate --type merge --patch '{"spec": {"capacity": 1}}' >/dev/null
  kubectl delete pods --selector app=shares --now >/dev/null
  within 45 "one Pod runs" has_phases shares- "Pending=2 Running=1"
  for_all_of 5 "no other Pod has a node" is_one_bound shares
  kubectl apply -f "$STORIES/devices.yaml" >/dev/null
}

is_one_bound() { # STORY
  [ "$(kubectl get pods --selector "app=$1" -o 'jsonpath={.items[*].spec.nodeName}' | wc -w)" = 1 ]
}

story_taint_no_schedule() {
  apply template
  within 30 "two Pods run" has_phases template- Running=2
  apply taint-no-schedule
  for_all_of 5 "who has a device keeps it" has_phases template- Running=2
  kubectl delete pods --selector app=template --now >/dev/null
  within 30 "those that replace them wait" has_phases template- Pending=2
  for_all_of 5 "they go on waiting" has_phases template- Pending=2
  remove taint-no-schedule
  within 60 "they run without the rule" has_phases template- Running=2
}

story_taint_no_execute() {
  apply template
  within 30 "two Pods run" has_phases template- Running=2
  apply taint-no-execute
  within 40 "they are evicted, and new ones wait" has_phases template- Pending=2
  for_all_of 5 "they go on waiting" has_phases template- Pending=2
  remove taint-no-execute
  within 60 "they run without the rule" has_phases template- Running=2
}

story_toleration() {
  apply taint-no-execute toleration
  within 30 "a Pod that tolerates the taint runs" is_running toleration
  for_all_of 10 "it runs on" is_running toleration
}

story_toleration_seconds() {
  apply toleration-seconds
  within 30 "the Pod runs" is_running toleration-seconds
  apply taint-no-execute
  for_all_of 8 "it runs on for a while" is_running toleration-seconds
  within 30 "then it is evicted" is_empty kubectl get pods -o name
}

# ---- what other Pods ask for ----

offer() { # NAME DETAILS: devices that are nothing but their names, for claims
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "$2"}, capacity: 1, allocation: DRA}
X
}

is_prepared_on() { # NODE CLAIMS
  [ "$(prepared_on "$1")" = "$2" ]
}

test_claims_that_another_pod_has_that_are_new_and_that_no_container_uses_are_prepared() {
  fresh_with 3
  local claim
  for claim in first second unused; do named_claim $claim; done
  pod_with one node-1 first "$FOREVER"
  within 30 "a Pod has one claim" is_running one
  pod_with two node-1 "first second" "$FOREVER"
  within 30 "another has the same and a new one" is_running two
  within 5 "it has two slots" has_two_slots two
  [[ " $(slots_of two) " == *" $(slots_of one) "* ]] || fail "the slot of the one, $(slots_of one), is none of the other's: $(slots_of two)"
  equal "claims on node-1" 2 "$(prepared_on node-1)"
  kubectl create -f - >/dev/null <<'X'
apiVersion: v1
kind: Pod
metadata: {name: idle}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: node-2}
  resourceClaims: [{name: unused, resourceClaimName: unused}]
  containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"]}]
X
  within 30 "a Pod runs whose container uses no claim" is_running idle
  equal "claims on node-2" 1 "$(prepared_on node-2)"
  equal "slots that claims have" 3 "$(usages | grep -o '"claim:' | wc -l)"
  kubectl delete pod idle --now >/dev/null
  within 20 "its claim is unprepared" is_prepared_on node-2 0
}

nodes_of_pods() {
  kubectl get pods -o json | jq -r '[.items[].spec.nodeName | select(.)] | sort | join(" ")'
}

test_pods_follow_devices_that_only_one_node_sees() {
  fresh
  offer cam "{descriptions: [own], shared: false}"
  within 15 "each node has a device" has_devices default/cam 2
  claiming_pod one - true
  claiming_pod two - true
  within 30 "two Pods run" has_phases "" Running=2
  equal "their nodes" "node-1 node-2" "$(nodes_of_pods)"
  claiming_pod three - true
  for_all_of 5 "a third waits" has_phases three Pending=1
  local slot
  slot=$(env_of two AKRI_SLOT)
  kubectl delete pod two --now >/dev/null
  within 30 "it gets what is freed" is_running three
  equal "its slot" "$slot" "$(env_of three AKRI_SLOT)"
  equal "the nodes" "node-1 node-2" "$(nodes_of_pods)"
}

# asking_thrice NAME COMMAND: a Pod of three containers that each ask for a device of the one Configuration and one of the other.
asking_thrice() {
  local containers='' n
  for n in 1 2 3; do
    containers+="{name: main-$n, image: 'docker.io/library/busybox:stable', command: [/bin/sh, -c, 'env | sort; $2'], resources: {limits: {akri.sh/cam: 1, akri.sh/tv: 1}}}, "
  done
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}}
spec: {terminationGracePeriodSeconds: 0, restartPolicy: Never, containers: [$containers]}
X
}

has_six_slots() { # POD
  [ "$(values "$1" AKRI_SLOT | sort -u | wc -l)" = 6 ]
}

test_claims_that_were_made_for_pods_go_when_the_pods_end() {
  fresh
  offer cam "descriptions: [cam-1, cam-2, cam-3]"
  offer tv "descriptions: [tv-1, tv-2, tv-3]"
  within 15 "the one's devices are offered" has_devices default/cam 3
  within 15 "the other's devices are offered" has_devices default/tv 3
  asking_thrice runs "$FOREVER"
  within 30 "a Pod of three containers runs" is_running runs
  within 5 "they have six slots" has_six_slots runs
  local n
  for n in 1 2 3; do
    equal "slots of container $n" 2 "$(kubectl logs runs -c "main-$n" | grep -c '^AKRI_SLOT_')"
  done
  kubectl delete pod runs --now >/dev/null
  within 30 "its claim goes" has_no_generated_claim
  asking_thrice completes "sleep 2"
  within 60 "a Pod completes" has_phases completes Succeeded=1
  within 30 "its claim goes" has_no_generated_claim
  asking_thrice fails "exit 3"
  within 60 "a Pod fails" has_phases fails Failed=1
  within 30 "its claim goes" has_no_generated_claim
  claiming_pod made - true 1 Never "sleep 2"
  within 60 "a Pod with a claim by a template completes" has_phases made Succeeded=1
  within 30 "its claim goes" has_no_generated_claim
  within 20 "nothing is left on the nodes" is_unprepared
}

have_health() { # HEALTH
  has_health one "$1" && has_health two "$1" && has_health three "$1"
}

change_agents() { # merge|json PATCH
  kubectl -n petiole patch daemonset petiole-agent --type "$1" -p "$2" >/dev/null
}

test_the_health_of_devices_is_unknown_without_an_agent_and_told_again_by_the_next_one() {
  fresh
  cluster avahi camera
  local n before
  for n in 1 2 3; do announce camera "cam-$n" _rtsp._tcp "55$n"; done
  configure cam "kind: _rtsp._tcp" "gracePeriodSeconds: 600, allocation: DRA"
  within 15 "three devices are offered" has_devices default/cam 3
  for n in one two three; do claiming_pod $n node-1 true; done
  within 30 "three Pods run" has_phases "" Running=3
  within 30 "their devices are healthy" have_health Healthy
  before=$(usages)
  change_agents merge '{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"node-2"}}}}}'
  within 60 "node-1 has no agent" is_empty agent_of node-1
  # The kubelet forgets what it was told when the stream ends, and writes the status of a Pod at its next look, at most 90 s later.
  within 180 "the health of their devices is unknown" have_health Unknown
  equal "the Pods" Running=3 "$(phases "")"
  change_agents json '[{"op":"remove","path":"/spec/template/spec/nodeSelector"}]'
  agents_are_ready
  within 60 "the next agent says that they are healthy" have_health Healthy
  for n in 1 2 3; do goodbye "cam-$n"; done
  within 60 "and that they are gone" have_health Unhealthy
  equal "the slots that they have" "$before" "$(usages)"
}
