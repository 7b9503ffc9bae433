# What the suites of Dynamic Resource Allocation share. Sourced after lib_cluster.sh.
# shellcheck shell=bash disable=SC2317 # `within` calls functions

# The end of the command of a container that does not end.
FOREVER="exec sleep 2147483647"

# ---- what the scheduler is offered, and what it gave ----

devices() { # POOL: names, in all slices
  kubectl get resourceslices -o json | jq -r --arg p "$1" '[.items[].spec | select(.pool.name == $p) | .devices[]?.name] | sort | join(" ")'
}

has_devices() { # POOL COUNT
  [ "$(devices "$1" | wc -w)" = "$2" ]
}

taints_of() { # DEVICE
  kubectl get resourceslices -o json | jq -r --arg d "$1" '[.items[].spec.devices[]? | select(.name == $d) | .taints[]? | "\(.key)=\(.effect)"] | join(" ")'
}

has_taints() { # DEVICE TAINTS
  [ "$(taints_of "$1")" = "$2" ]
}

usage_of() { # INSTANCE: the kind of each owner
  kubectl get instances.akri.sh "$1" -o json | jq -r '[.spec.deviceUsage // {} | .[] | select(. != "") | if startswith("claim:") then "claim" else "plugin" end] | sort | join(" ")'
}

has_usage() { # INSTANCE KINDS
  [ "$(usage_of "$1")" = "$2" ]
}

one_of() { # CONFIGURATION
  kubectl get instances.akri.sh -o json | jq -r --arg c "$1" '[.items[] | select(.spec.configurationName == $c) | .metadata.name][0]'
}

usages() { # of all Instances
  kubectl get instances.akri.sh -o json | jq -c '[.items[].spec.deviceUsage]'
}

usages_are() {
  [ "$(usages)" = "$1" ]
}

versions() { # of the slices
  kubectl get resourceslices -o json | jq -c '[.items[].metadata.resourceVersion]'
}

versions_are() {
  [ "$(versions)" = "$1" ]
}

phases() { # PREFIX of names: how many Pods are in each phase
  kubectl get pods -o json | jq -r --arg p "$1" '[.items[] | select(.metadata.name | startswith($p)) | .status.phase] | group_by(.) | map("\(.[0])=\(length)") | join(" ")'
}

has_phases() { # PREFIX PHASES
  [ "$(phases "$1")" = "$2" ]
}

prepared_on() { # NODE: claims that are prepared there
  find "$CLUSTER_DIR/$1/var/lib/kubelet/plugins/akri.sh/claims" -name '*.json' | wc -l
}

cdi_files_on() { # NODE
  find "$CLUSTER_DIR/$1/var/run/cdi" "$CLUSTER_DIR/$1/run/cdi" -name 'akri.sh-claim-*.json' 2>/dev/null | wc -l
}

is_unprepared() { # no node has a prepared claim or a file of one
  local node
  for node in node-1 node-2; do
    [ "$(prepared_on "$node")" = 0 ] && [ "$(cdi_files_on "$node")" = 0 ] || return 1
  done
}

# claiming_pod NAME NODE|- SELECTOR [COUNT [POLICY [COMMAND]]]: a Pod with a claim of its own for devices that the CEL expression selects.
claiming_pod() {
  local node=''
  [ "$2" = - ] || node="nodeSelector: {kubernetes.io/hostname: $2}"
  kubectl create -f - >/dev/null <<X
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: $1}
spec:
  spec:
    devices:
      requests:
        - name: device
          exactly: {deviceClassName: akri.default.cam, count: ${4:-1}, selectors: [{cel: {expression: '$3'}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: ${5:-Never}
  $node
  resourceClaims: [{name: device, resourceClaimTemplateName: $1}]
  containers:
    - name: main
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, "env | sort; ${6:-$FOREVER}"]
      resources: {claims: [{name: device}]}
X
}

# named_claim NAME [SELECTOR]: one that Pods name.
named_claim() {
  kubectl create -f - >/dev/null <<X
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: $1}
spec:
  devices:
    requests:
      - name: device
        exactly: {deviceClassName: akri.default.cam, selectors: [{cel: {expression: '${2:-true}'}}]}
X
}

# pod_with NAME NODE CLAIMS COMMAND [POLICY] [LIMITS]: a Pod with the claims of these names, which its init container and both of its
# containers have. COMMAND is that of the first one.
pod_with() {
  local claims='' uses='' claim
  for claim in $3; do
    claims+="{name: $claim, resourceClaimName: $claim}, "
    uses+="{name: $claim}, "
  done
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: ${5:-Never}
  nodeSelector: {kubernetes.io/hostname: $2}
  resourceClaims: [$claims]
  initContainers:
    - name: init
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, "[ -n \"\$AKRI_SLOT\" ]"]
      resources: {claims: [$uses]}
  containers:
    - name: main
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, "env | sort; $4"]
      resources: {claims: [$uses], limits: {${6:-}}}
    - name: second
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, "env | sort; $4"]
      resources: {claims: [$uses]}
X
}

slots_of() { # POD [NAMESPACE]: those that its variables with a digest name
  kubectl -n "${2:-default}" logs "$1" | sed -n 's/^AKRI_SLOT_[0-9A-F]*=//p' | sort | xargs
}

has_two_slots() { # POD
  [ "$(slots_of "$1" | wc -w)" = 2 ]
}

# described POD CLAIM/REQUEST [NAMESPACE]: the rooms in the file about the devices of a request. CLAIM is resourceclaims/NAME, or
# resourceclaimtemplates/NAME, where NAME is that in the Pod.
described() {
  kubectl -n "${3:-default}" exec "$1" -- cat "/var/run/kubernetes.io/dra-device-attributes/$2/akri.sh-metadata.json" |
    jq -r 'select(.apiVersion == "metadata.resource.k8s.io/v1beta1") | [.requests[].devices[].attributes.ROOM.string] | sort | join(" ")'
}

claims_of_pods() { # those that were made for Pods
  kubectl get resourceclaims -o json | jq '[.items[] | select(.metadata.ownerReferences)] | length'
}

has_no_generated_claim() {
  [ "$(claims_of_pods)" = 0 ]
}

healths_of() { # POD: of its devices, once each
  kubectl get pod "$1" -o json | jq -r '[.status.containerStatuses[].allocatedResourcesStatus[]?.resources[]?.health] | unique | join(" ")'
}

has_health() { # POD HEALTHS
  [ "$(healths_of "$1")" = "$2" ]
}

fresh() {
  kubectl delete resourceclaimtemplates --all --wait=false >/dev/null
  clean
  within 30 "all claims are unprepared" is_unprepared
}

fresh_with() { # DEVICES SPEC
  fresh
  kubectl delete resourceclaims --all --wait=false >/dev/null
  echoes cam "$1" "allocation: DRA${2:+, $2}"
  within 15 "the devices are offered" has_devices default/cam "$1"
}

eval "$(declare -f show | sed '1s/show/show_cluster/')"

show() { # what `lib_cluster.sh` shows, and who has which device
  kubectl get resourceclaims -A -o json | jq -c '[.items[] | {name: .metadata.name, deleted: .metadata.deletionTimestamp, device: .status.allocation.devices.results[0].device, reserved: [.status.reservedFor[]?.name]}] | group_by(.device) | map({device: .[0].device, claims: length, not_reserved: [.[] | select(.reserved == [])]}) | .[]'
  kubectl get resourceslices -o json | jq -c '.items[].spec | {pool, devices: [.devices[]? | {name, slots: .capacity.slots.value, taints}]}'
  grep -aE "^[EW][0-9]{4} " "$CLUSTER_DIR/log/"*scheduler* | tail -n 20 || true
  show_cluster
}
