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
  cluster avahi camera
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

# asking NAME DEVICES CONTAINERS [NAMESPACE]: a Pod with one claim. DEVICES is `spec.devices` of it, CONTAINERS what uses it in the Pod's only container.
asking() {
  kubectl -n "${4:-default}" create -f - >/dev/null <<X
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: $1}
spec: {spec: {devices: $2}}
---
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  resourceClaims: [{name: devices, resourceClaimTemplateName: $1}]
  containers:
    - name: main
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, "env | sort; $FOREVER"]
      resources: {claims: [$3]}
X
}

rooms_of() { # POD
  kubectl logs "$1" | sed -n 's/^ROOM_[0-9A-F]*=//p' | sort | xargs
}

has_rooms() { # POD ROOMS
  [ "$(rooms_of "$1")" = "$2" ]
}

any_with() { # ROOM: the fields of a request
  echo "deviceClassName: cameras, selectors: [{cel: {expression: 'device.attributes[\"akri.sh\"].ROOM == \"$1\"'}}]"
}

test_claims_of_every_kind_get_what_they_ask_for() {
  fresh
  echoes hall 2 "allocation: DRA, brokerProperties: {ROOM: hall}"
  echoes yard 1 "allocation: DRA, brokerProperties: {ROOM: yard}"
  within 15 "the hall's devices are offered" has_devices default/hall 2
  within 15 "the yard's device is offered" has_devices default/yard 1
  kubectl create -f - >/dev/null <<<'{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "cameras"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == \"akri.sh\""}}]}}'
  local use='{name: devices}'
  asking room '{requests: [{name: two, exactly: {deviceClassName: cameras, count: 2}}], constraints: [{matchAttribute: akri.sh/ROOM}]}' "$use"
  within 20 "a Pod has two cameras of one room" is_running room
  within 5 "the rooms are one" has_rooms room "hall hall"
  equal "the rooms in the file about its devices" "hall hall" "$(described room resourceclaimtemplates/devices/two)"
  kubectl delete pod room --now >/dev/null
  asking first "{requests: [{name: one, firstAvailable: [{name: best, $(any_with roof)}, {name: next, $(any_with yard)}]}]}" "$use"
  within 20 "a Pod has the first that there is" is_running first
  within 5 "it is the yard" has_rooms first yard
  asking requests "{requests: [{name: a, exactly: {$(any_with hall)}}, {name: b, exactly: {$(any_with hall)}}]}" '{name: devices, request: a}, {name: devices, request: b}'
  within 20 "a container has two requests" is_running requests
  within 5 "it has the devices of both" has_two_slots requests
  asking waits "{requests: [{name: one, exactly: {deviceClassName: cameras}}]}" "$use"
  for_all_of 5 "what all have nobody else gets" has_phases waits Pending=1
  kubectl create namespace watchers >/dev/null
  kubectl label namespace watchers resource.kubernetes.io/admin-access=true >/dev/null
  asking looks "{requests: [{name: all, exactly: {deviceClassName: cameras, allocationMode: All, adminAccess: true}}]}" "$use" watchers
  within 20 "who only looks waits for nobody" looks_on
  # A device of the hall has the id of the yard's, and so the name of its variable.
  equal "the devices that it looks at" "hall hall yard" "$(described looks resourceclaimtemplates/devices/all watchers)"
  is_empty slots_of looks watchers || fail "who only looks has slots"
  kubectl delete pod requests --now >/dev/null
  within 20 "what was freed is had" is_running waits
  kubectl delete namespace watchers --wait=false >/dev/null
  kubectl delete deviceclass cameras >/dev/null
}

looks_on() {
  [ "$(kubectl -n watchers get pod looks -o 'jsonpath={.status.phase}')" = Running ]
}
