# What users do with claims: each file of examples/dra as it is.
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
