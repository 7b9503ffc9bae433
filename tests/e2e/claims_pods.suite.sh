# What Pods with ResourceClaims live through: claims that several Pods share, Pods that end in every way, nodes and servers that are
# away meanwhile.
# shellcheck shell=bash disable=SC2119,SC2153,SC2317 # SUITE is set by run; `within` calls functions
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"
# shellcheck source=tests/e2e/lib_claims.sh
. "$E2E/lib_claims.sh"

set_up() {
  up_with_images
  install --set dra.enabled=true
  cluster avahi camera
}

slot_in() { # POD [CONTAINER]
  kubectl logs "$1" -c "${2:-main}" | sed -n 's/^AKRI_SLOT=//p' | tail -n 1
}

reserved_for() { # CLAIM: names of Pods
  kubectl get resourceclaim "$1" -o json | jq -r '[.status.reservedFor[]?.name] | sort | join(" ")'
}

is_reserved_for() { # CLAIM PODS
  [ "$(reserved_for "$1")" = "$2" ]
}

test_containers_and_pods_of_two_nodes_share_one_claim() {
  fresh_with 1
  local instance
  instance=$(one_of cam)
  named_claim shared
  pod_with one node-1 shared "$FOREVER"
  pod_with two node-2 shared "$FOREVER"
  within 30 "both Pods run" has_phases "" "Running=2"
  local at
  for at in one/main one/second two/main two/second; do
    equal "the slot of $at" "$instance-0" "$(slot_in "${at%/*}" "${at#*/}")"
  done
  equal "slots that are held" claim "$(usage_of "$instance")"
  claiming_pod other - true
  kubectl delete pod one --now >/dev/null
  within 15 "the claim is the other Pod's alone" is_reserved_for shared two
  for_all_of 15 "nobody else gets the device" has_phases other Pending=1
  within 20 "its slot is held again" has_usage "$instance" claim
  kubectl delete pod two --now >/dev/null
  within 20 "then another gets it" is_running other
}

test_what_pods_had_is_given_back_however_they_end() {
  fresh_with 2
  local instance
  named_claim named
  pod_with completes node-1 named "sleep 2"
  within 30 "a Pod completes" has_phases completes Succeeded=1
  within 20 "its claim is nobody's" is_reserved_for named ""
  pod_with fails node-2 named "exit 3"
  within 30 "a Pod fails" has_phases fails Failed=1
  within 20 "its claim is nobody's" is_reserved_for named ""
  within 20 "no node has it" is_unprepared
  claiming_pod generated node-1 true
  within 20 "a Pod has a claim of its own" is_running generated
  kubectl delete pod generated --force --grace-period=0 >/dev/null 2>&1
  within 30 "a Pod that is deleted by force leaves no claim" has_no_generated_claim
  within 30 "and no slot" is_unprepared
  claiming_pod later node-1 true
  within 20 "another Pod runs" is_running later
  instance=$(env_of later AKRI_SLOT)
  cluster kubelet node-1 stop
  kubectl delete pod later --force --grace-period=0 >/dev/null 2>&1
  claiming_pod waits node-1 "device.attributes[\"akri.sh\"].instance == \"${instance%-*}\""
  for_all_of 5 "a Pod waits for a kubelet that is away" has_phases waits Pending=1
  cluster kubelet node-1 start
  # The kubelet looks for claims without Pods once a minute.
  within 120 "it has the device that the former one had" is_running waits
}

restarts_of() { # POD
  kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].restartCount}'
}

has_restarted() { # POD TIMES
  [ "$(restarts_of "$1")" -ge "$2" ]
}

test_a_claim_stays_while_its_pod_restarts_and_beside_a_device_plugin() {
  fresh
  kubectl delete resourceclaims --all --wait=false >/dev/null
  named_claim camera
  # Before there is a class or a device.
  pod_with both node-1 camera "sleep 1; exit 1" Always "akri.sh/tv: 1"
  for_all_of 5 "a Pod waits for its first device" has_phases both Pending=1
  echoes tv 1
  echoes cam 1 "allocation: DRA"
  within 60 "it restarts" has_restarted both 2
  local instance
  instance=$(one_of cam)
  equal "the claim's slot" claim "$(usage_of "$instance")"
  equal "the plugin's slot" plugin "$(usage_of "$(one_of tv)")"
  kubectl logs both -c main | grep -q "^AKRI_SLOT_.*=$instance-0$" || fail "it has no slot of $instance"
  equal "claims on the node" 1 "$(prepared_on node-1)"
}

test_a_pod_says_that_its_device_is_gone_and_back() {
  fresh
  announce camera door _rtsp._tcp 554
  configure cam "kind: _rtsp._tcp" "gracePeriodSeconds: 600, allocation: DRA, capacity: 2"
  within 15 "it is offered" has_devices default/cam 1
  claiming_pod one node-1 true
  claiming_pod two node-2 true
  within 20 "two Pods share it" has_phases "" "Running=2"
  within 20 "it is healthy" has_health one Healthy
  goodbye door
  within 30 "the one Pod says that it is gone" has_health one Unhealthy
  within 30 "the other, too" has_health two Unhealthy
  announce camera door _rtsp._tcp 554
  within 30 "it is back" has_health one Healthy
  for_all_of 10 "both run on" has_phases "" "Running=2"
}

has_container_state() { # POD STATE REASON
  [ "$(kubectl get pod "$1" -o json | jq -r ".status.containerStatuses[0].state.$2.reason")" = "$3" ]
}

test_a_container_whose_device_is_reached_in_another_way_is_started_again_when_it_is_as_before() {
  fresh
  announce camera door _rtsp._tcp 554
  configure cam "kind: _rtsp._tcp" "gracePeriodSeconds: 600, allocation: DRA"
  within 15 "it is offered" has_devices default/cam 1
  claiming_pod one node-1 true 1 Always "while [ ! -e /end ]; do sleep 0.2; done"
  within 20 "a Pod has it" has_health one Healthy
  goodbye door
  announce camera door _rtsp._tcp 555
  within 40 "the Pod says that it has moved" has_health one Unhealthy
  for_all_of 5 "it runs on" is_running one
  kubectl exec one -- /bin/sh -c ': >/end'
  within 40 "the runtime finds no file of its claim" has_container_state one waiting CreateContainerError
  has_event "$(one_of cam)" StartRefused || fail "there is no Event"
  goodbye door
  announce camera door _rtsp._tcp 554
  within 40 "the Pod says that it is back" has_health one Healthy
  within 120 "its container is started again" has_restarted one 1
  within 20 "and runs" is_running one
}

test_an_api_server_and_a_node_that_are_away_lose_no_claim() {
  fresh_with 4
  local before pod
  claiming_pod one node-1 true 1 Always
  claiming_pod two node-2 true
  within 20 "two Pods run" has_phases "" "Running=2"
  before=$(usages)
  for pod in three four; do claiming_pod $pod node-1 true; done
  # Their claims may be allocated, and not prepared.
  cluster apiserver stop
  sleep 8
  cluster apiserver start
  within 60 "they run as soon as it is back" has_phases "" "Running=4"
  kubectl delete pods three four --now >/dev/null
  within 30 "their slots are free" usages_are "$before"
  cluster reboot node-1
  within 120 "the Pod of the node that had no power runs again" is_running_again one
  within 60 "each has what it had" usages_are "$before"
  equal "claims on node-1" 1 "$(prepared_on node-1)"
}

is_running_again() { # POD of node-1, whose containers a power cut ended
  [ "$(kubectl get pod "$1" -o 'jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}')" = "Running 1" ]
}
