# Three stories that users of Akri have told in its issues: Pods that are created again, a node that reboots, and two
# containers of a Pod that ask for the same resource. docs/migrate-from-akri.md names them by their numbers. And what users of
# other device plugins have waited for: a Pod that follows its device, and a device node of every machine without an object for each.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  install
}

refused_pods() {
  kubectl get pods -o json | jq -r '.items[] | select(.status.reason == "UnexpectedAdmissionError") | .metadata.name'
}

# deploy NAME RESOURCE [NODE|-]: one replica on node-1, or NODE, or any, placed by the scheduler.
deploy() {
  kubectl apply -f - >/dev/null <<X
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: 1
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 0
      $([ "${3:-}" = - ] || echo "nodeSelector: {kubernetes.io/hostname: ${3:-node-1}}")
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"], resources: {limits: {akri.sh/$2: 1}}}]
X
}

# The one Pod of a Deployment, where it is ready and no other is there.
pod_of() { # DEPLOYMENT
  kubectl get pods -l "app=$1" -o json | jq -re '
    [.items[] | select(.status.phase != "Failed")]
    | select(length == 1 and (.[0].status.containerStatuses[0].ready == true) and .[0].metadata.deletionTimestamp == null)
    | .[0].metadata.name'
}

has_another_pod() { # DEPLOYMENT NOT_THIS
  local now
  now=$(pod_of "$1") && [ "$now" != "$2" ]
}

usage_is() { # CONFIGURATION JSON: of all its Instances
  [ "$(kubectl get instances.akri.sh -o json | jq -c --arg c "$1" '[.items[] | select(.spec.configurationName == $c) | .spec.deviceUsage // {} | .[]]')" = "$2" ]
}

test_a_pod_that_is_created_again_and_again_is_never_refused() {
  clean
  echoes again 1 "capacity: 1, gracePeriodSeconds: 600"
  within 10 "node-1 offers the Configuration's resource" node_holds node-1 allocatable again 1
  deploy user again
  within 30 "its Pod runs" pod_of user
  local round pod began=$EPOCHREALTIME
  for round in $(seq 15); do
    pod=$(pod_of user)
    kubectl delete pod "$pod" --now >/dev/null
    within 30 "a new Pod runs in round $round" has_another_pod user "$pod"
  done
  note "15 Pods, one after the other: $(since "$began") s"
  is_empty refused_pods || fail "Pods were refused: $(refused_pods)"
  usage_is again '["C:again-0:node-1"]' || fail "the slot is held as $(kubectl get instances.akri.sh -o json | jq -c '.items[].spec.deviceUsage')"
  kubectl delete deployment user >/dev/null
}

waits() { # DEPLOYMENT: its one Pod has no node, and none was refused
  [ "$(kubectl get pods -l "app=$1" -o json | jq -c '[.items[].spec.nodeName]')" = '[null]' ]
}

the_next_waits() { # DEPLOYMENT RESOURCE HOLDER [NODE|-]: it runs once the Deployment HOLDER is gone
  deploy "$1" "$2" "${4:-node-1}"
  within 10 "the next Pod is there" waits "$1"
  for_all_of 10 "it waits, and is not refused again and again" waits "$1"
  kubectl delete deployment "$3" >/dev/null
  within 40 "it runs once the other has ended" pod_of "$1"
  note "holder deleted -> the next Pod ran: $TOOK s"
  is_empty refused_pods || fail "Pods were refused: $(refused_pods)"
  kubectl delete deployment "$1" >/dev/null
}

test_a_resource_gets_another_name_while_a_pod_has_its_device() {
  clean
  echoes doors 1 "capacity: 1, gracePeriodSeconds: 600"
  within 10 "node-1 offers it" node_holds node-1 allocatable doors 1
  deploy old doors
  within 30 "its Pod runs" pod_of old
  echoes doors 1 "capacity: 1, gracePeriodSeconds: 600, resourceName: akri.sh/gates"
  within 20 "node-1 has the new name" node_holds node-1 capacity gates 1
  the_next_waits new gates old
}

test_a_device_with_more_users_than_its_capacity_gets_no_further_one() {
  clean
  echoes rooms 1 "capacity: 2, gracePeriodSeconds: 600"
  within 10 "node-1 offers it" node_holds node-1 allocatable rooms 1
  deploy first rooms
  within 30 "its Pod runs" pod_of first
  usage_is rooms '["C:rooms-0:node-1"]'
  # It has the second slot, which the capacity has no more.
  kubectl get instances.akri.sh -o json | jq -e '.items[].spec.deviceUsage | keys[] | endswith("-1")' >/dev/null || fail "it has the first slot"
  echoes rooms 1 "capacity: 1, gracePeriodSeconds: 600"
  within 10 "node-1 offers it no more" node_holds node-1 allocatable rooms 0
  within 5 "nor does node-2" node_holds node-2 allocatable rooms 0
  the_next_waits second rooms first -
}

test_init_and_main_container_ask_for_the_configurations_resource() {
  clean
  echoes both 1 "capacity: 1, gracePeriodSeconds: 600"
  within 10 "node-1 offers the Configuration's resource" node_holds node-1 allocatable both 1
  local round
  for round in 1 2 3; do
    kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: both-$round}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: node-1}
  initContainers: [{name: init, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "echo init \$AKRI_SLOT"], resources: {limits: {akri.sh/both: 1}}}]
  containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "echo main \$AKRI_SLOT; exec sleep 2147483647"], resources: {limits: {akri.sh/both: 1}}}]
X
    within 30 "both containers have the slot in round $round" is_running "both-$round"
    within 10 "it is one slot" have_one_slot "both-$round"
    kubectl delete pod "both-$round" --now >/dev/null
  done
  is_empty refused_pods || fail "Pods were refused: $(refused_pods)"
}

have_one_slot() { # POD
  local init main
  init=$(kubectl logs "$1" -c init) && main=$(kubectl logs "$1" -c main) && [ -n "${init#init }" ] && [ "${init#init }" = "${main#main }" ]
}

are_free() {
  node_holds node-1 allocatable scarce 2 && node_holds node-2 allocatable scarce 2
}

# A node that has lost a race offers the slot for as long as the scheduler does not know it, and each Pod that comes meanwhile is refused.
test_few_pods_are_refused_while_slots_are_scarce() {
  clean
  echoes scarce 2 "capacity: 1, gracePeriodSeconds: 600"
  within 10 "both nodes offer both devices" are_free
  local round refused=0 began writes
  for round in 1 2 3 4 5; do
    began=$(mark)
    at_once user 2 scarce
    within 30 "two Pods run in round $round" has_ready user 2
    for_all_of 2 "both go on in round $round" has_ready user 2
    refused=$((refused + $(refused_pods | wc -l)))
    writes=$(requests_since "$began" | grep -c ' patch nodes status ' || true)
    kubectl delete deployment user >/dev/null
    kubectl delete pods --all --now >/dev/null
    within 30 "both devices are free again" are_free
  done
  note "five times two replicas on two free devices of two nodes: $refused refused Pods; writes of Nodes in the last round: $writes"
  [ "$refused" -le 2 ] || fail "$refused Pods were refused"
  at_once user 1 scarce
  within 30 "one Pod runs" has_ready user 1
  kubectl scale deployment user --replicas 3 >/dev/null
  within 30 "two Pods run" has_ready user 2
  for_all_of 3 "both go on" has_ready user 2
  note "one replica -> three on two devices: $(refused_pods | wc -l) refused Pods"
  [ "$(refused_pods | wc -l)" -le 3 ] || fail "Pods were refused: $(refused_pods)"
  kubectl delete deployment user >/dev/null
}

# followed NAME: a Configuration NAME whose Pods are evicted, of the CDI devices that a node describes, and node-1 has one.
followed() {
  clean
  rm -f "$CLUSTER_DIR"/node-*/etc/cdi/pflex.json
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set cdi.enabled=true --set 'cdi.kinds={pflex.io/block}' \
    --wait --timeout 90s >/dev/null
  agents_are_ready
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec: {discoveryHandler: {name: cdi, discoveryDetails: "kind: pflex.io/block"}, capacity: 1, gracePeriodSeconds: 5, whenGone: Evict}
X
  describe_devices "$CLUSTER_DIR/node-1/etc/cdi" pflex1
  within 10 "node-1 offers it" node_holds node-1 allocatable "$1" 1
}

# The device goes from node-1 and appears on node-2.
move_to_node_2() {
  rm "$CLUSTER_DIR/node-1/etc/cdi/pflex.json"
  describe_devices "$CLUSTER_DIR/node-2/etc/cdi" pflex1
}

# Before Kubernetes 1.36 a Pod counts as the holder if it started 10 s before the device could have gone.
is_known_holder() {
  for_all_of 12 "its Pod goes on" runs_on node-1 user
}

runs_on() { # NODE DEPLOYMENT
  local pod
  pod=$(pod_of "$2") && [ "$(kubectl get pod "$pod" -o 'jsonpath={.spec.nodeName}')" = "$1" ]
}

test_a_deployment_follows_its_device_to_another_node() {
  followed follow
  local first instance object
  deploy user follow -
  within 30 "its Pod runs on node-1" runs_on node-1 user
  first=$(pod_of user)
  instance=$(kubectl get instances.akri.sh -o 'jsonpath={.items[0].metadata.name}')
  is_known_holder
  move_to_node_2
  within 8 "the next Pod runs on node-2, the grace period of 5 s and 3 s later" runs_on node-2 user
  note "device moved to another node -> Running there: $TOOK s, of which 5 s are the grace period"
  within 5 "the Pod's Event says why" has_event "$first" "PodEvicted: evicted, because node node-1 does not see the device"
  within 5 "so does the Instance's" has_event "$instance" "Pod default/$first is evicted"
  for object in "pod/$first" deployment/user "instance/$instance"; do
    cluster on control "$PETIOLE" why "$object" | matches -F "Pod default/$first was evicted" || fail "why $object does not say it"
  done
  is_empty refused_pods || fail "Pods were refused: $(refused_pods)"
  kubectl delete deployment user >/dev/null
}

test_a_disruption_budget_keeps_the_pod_of_a_device_that_is_gone() {
  followed budget
  local first
  kubectl create poddisruptionbudget user --selector app=user --min-available 1 >/dev/null
  deploy user budget -
  within 30 "its Pod runs on node-1" runs_on node-1 user
  first=$(pod_of user)
  is_known_holder
  # Before the budget knows its Pod it refuses, too.
  move_to_node_2
  within 10 "an Event says that the budget refuses" has_event "$first" EvictionRefused
  for_all_of 3 "the Pod stays" runs_on node-1 user
  kubectl delete poddisruptionbudget user >/dev/null
  within 35 "without the budget it is evicted, and the next one runs on node-2" runs_on node-2 user
  kubectl delete deployment user >/dev/null
}

test_a_device_that_is_back_within_the_grace_period_keeps_its_pod() {
  followed back
  local first
  deploy user back -
  within 30 "its Pod runs on node-1" runs_on node-1 user
  first=$(pod_of user)
  rm "$CLUSTER_DIR/node-1/etc/cdi/pflex.json"
  within 5 "the node has lost it" node_holds node-1 allocatable back 0
  describe_devices "$CLUSTER_DIR/node-1/etc/cdi" pflex1
  for_all_of 8 "the Pod stays" same_pod user "$first"
  kubectl delete deployment user >/dev/null
}

same_pod() { # DEPLOYMENT POD
  [ "$(pod_of "$1")" = "$2" ]
}

# The Pods of a DaemonSet run on these nodes and nowhere else.
daemons_are_on() { # DAEMONSET NODES…
  local daemon=$1 nodes
  shift
  nodes=$(kubectl get pods -l "app=$daemon" -o json | jq -r '[.items[] | select(.status.phase == "Running" and .metadata.deletionTimestamp == null) | .spec.nodeName] | sort | join(" ")')
  [ "$nodes" = "$*" ]
}

has_labels() { # of both nodes: JSON
  [ "$(kubectl get nodes -o json | jq -cS '[.items[].metadata.labels | with_entries(select(.key | startswith("akri.sh/")))] | add')" = "$1" ]
}

test_a_daemon_set_runs_on_the_nodes_with_a_device() {
  followed daemon
  kubectl label node node-2 akri.sh/has-theirs=mine >/dev/null
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set cdi.enabled=true --set 'cdi.kinds={pflex.io/block}' \
    --set agent.nodeLabels=true --wait --timeout 90s >/dev/null
  agents_are_ready
  kubectl apply -f - >/dev/null <<X
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {akri.sh/has-daemon: "true"}
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"]}]
X
  within 30 "it runs on node-1" daemons_are_on daemon node-1
  move_to_node_2
  within 20 "it runs on node-2, too" daemons_are_on daemon node-1 node-2
  within 60 "it has left node-1, the grace period of 5 s and 30 s later" daemons_are_on daemon node-2
  note "device gone -> label gone and Pod ended: $TOOK s more"
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set cdi.enabled=true --set 'cdi.kinds={pflex.io/block}' \
    --wait --timeout 90s >/dev/null
  agents_are_ready
  within 60 "agents without the value remove the label, and leave that of somebody else" has_labels '{"akri.sh/has-theirs":"mine"}'
  kubectl label node node-2 akri.sh/has-theirs- >/dev/null
  kubectl delete daemonset daemon >/dev/null
}

# by_path NAME PATH CAPACITY: a Configuration without Instances of a device node that each node has.
by_path() {
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec: {discoveryHandler: {name: paths, discoveryDetails: "groups: [$2]"}, instances: false, capacity: $3}
X
}

allow_paths() {
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set 'paths.allow={/dev/fuse,/dev/net/tun}' --wait --timeout 90s >/dev/null
  agents_are_ready
}

test_a_pod_of_each_node_opens_a_device_node_that_every_machine_has() {
  clean
  allow_paths
  local name path node
  for name in fuse tun; do
    path=/dev/$name
    [ $name = fuse ] || path=/dev/net/$name
    if ! [ -e "$path" ]; then
      note "this machine has no $path"
      continue
    fi
    by_path $name "$path" 5
    for node in node-1 node-2; do
      within 10 "$node offers $path five times" node_holds $node allocatable $name 5
      kubectl apply -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $name-$node}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: $node}
  containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, 'exec 3<>"\$DEVICE_PATH" && echo opened "\$DEVICE_PATH"; exec sleep 2147483647'], resources: {limits: {akri.sh/$name: 1}}}]
X
      within 30 "a Pod of $node opens it" has_opened "$name-$node" "$path"
    done
  done
  is_empty kubectl get instances.akri.sh -o name || fail "there are Instances"
  local refused
  refused=$(by_path bad /dev/fuse "1, whenGone: Evict" 2>&1) && fail "Instances are needed and there are none"
  matches "instances is false" <<<"$refused" || fail "it is refused with: $refused"
  # A path that nobody has allowed.
  by_path kmsg /dev/kmsg 1
  within 10 "the status says that it is not allowed" says_ready kmsg "not allowed on this node"
  kubectl delete pods --all --now >/dev/null
}

has_opened() { # POD PATH
  [ "$(kubectl logs "$1")" = "opened $2" ]
}

says_ready() { # CONFIGURATION TEXT
  kubectl get configuration "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].message}' | grep -Fq "$2"
}

# many NAME [RESOURCE]: forty Pods on both nodes, whose network has 62 addresses.
many() {
  kubectl apply -f - >/dev/null <<X
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: 40
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations: [{operator: Exists}]
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: $1}}}]
      containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"], resources: {limits: {${2:+akri.sh/$2: 1}}}}]
X
}

has_ready() { # DEPLOYMENT COUNT
  [ "$(kubectl get deployment "$1" -o 'jsonpath={.status.readyReplicas}')" = "$2" ]
}

test_forty_pods_with_a_device_cost_no_write() {
  clean
  allow_paths
  local node began
  began=$(mark)
  by_path tun /dev/net/tun 500
  for node in node-1 node-2; do
    within 10 "$node offers it" node_holds $node allocatable tun 500
  done
  within 5 "what was written for that is in the log" has_written "$began"
  kubectl -n petiole scale deployment petiole-controller --replicas 0 >/dev/null
  many without
  within 120 "forty Pods without a device run" has_ready without 40
  note "40 Pods without a device: $TOOK s"
  kubectl delete deployment without >/dev/null
  kubectl delete pods --all --now >/dev/null
  began=$(mark)
  many with tun
  within 120 "forty Pods with a device run, with no controller" has_ready with 40
  note "40 Pods with a device: $TOOK s"
  ! has_written "$began" || fail "something was written"
  kubectl delete deployment with >/dev/null
  kubectl -n petiole scale deployment petiole-controller --replicas 2 >/dev/null
}

has_written() { # MARK
  requests_since "$1" | awk '$2 ~ /create|update|patch|delete/' | grep .
}

# A kubelet that starts with a machine refuses the Pods that it finds there, until device plugins have registered.
test_zz_after_a_reboot_a_pod_has_the_slot_and_nothing_goes_round() {
  clean
  echoes rebooted 1 "capacity: 1, gracePeriodSeconds: 600"
  within 10 "node-1 offers the Configuration's resource" node_holds node-1 allocatable rebooted 1
  deploy user rebooted
  within 30 "its Pod runs" pod_of user
  cluster reboot node-1
  within 150 "its Pod, or another, runs after the reboot" runs_again user
  note "node rebooted -> a Pod has the device: $TOOK s, refused: $(refused_pods | wc -l)"
  local refused
  refused=$(refused_pods | wc -l)
  [ "$refused" -le 2 ] || fail "$refused Pods were refused"
  for_all_of 30 "the Pod runs, and no further one was refused" runs_and_refused user "$refused"
  within 30 "the slot is node-1's" usage_is rebooted '["C:rebooted-0:node-1"]'
  kubectl delete deployment user >/dev/null
}

# How many Pods of a Deployment there are in this phase.
pods_in() { # DEPLOYMENT PHASE
  kubectl get pods -l "app=$1" -o json | jq --arg p "$2" '[.items[] | select(.status.phase == $p)] | length'
}

are_as_before() { # DEPLOYMENT COUNT: ready, after a reboot also as the node has it
  local id ids running
  has_ready "$1" "$2" || return 1
  running=$(cluster on node-1 ctr -n k8s.io tasks list | awk '$3 == "RUNNING" { print $1 }')
  ids=$(kubectl get pods -l "app=$1" -o json | jq -r '.items[] | select(.status.phase == "Running") | .status.containerStatuses[0].containerID')
  for id in $ids; do grep -qF "${id#containerd://}" <<<"$running" || return 1; done
}

has_no_refused() {
  is_empty refused_pods
}

test_zz_refused_pods_of_a_reboot_are_deleted_where_the_chart_says_so() {
  clean
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set controller.deleteRefusedPods=true --wait --timeout 90s >/dev/null
  agents_are_ready
  echoes many 6 "capacity: 1, gracePeriodSeconds: 600"
  within 10 "node-1 offers six devices" node_holds node-1 allocatable many 6
  deploy user many
  kubectl scale deployment user --replicas 6 >/dev/null
  within 60 "six Pods run" has_ready user 6
  # Pods that no scheduler holds back: while no slot is free, the kubelet refuses each, and their owner makes the next at once.
  deploy over many -
  kubectl patch deployment over --type merge -p '{"spec":{"template":{"spec":{"nodeName":"node-1"}}}}' >/dev/null
  within 20 "Pods are refused" has_refused 3
  local refused owner
  owner=$(kubectl get pods -o json | jq -r '[.items[] | select(.status.reason == "UnexpectedAdmissionError") | .metadata.ownerReferences[0].name][0]')
  kubectl scale deployment over --replicas 0 >/dev/null
  cluster reboot node-1
  within 150 "six Pods run after the reboot" are_as_before user 6
  refused=$(refused_pods | wc -l)
  note "node rebooted -> six Pods have their devices: $TOOK s, refused: $refused"
  within 120 "no refused Pod is there" has_no_refused
  note "then -> the $refused refused Pods are deleted: $TOOK s"
  equal "what is there" "6 0" "$(pods_in user Running) $(kubectl get pods -o json | jq '[.items[] | select(.status.phase != "Running")] | length')"
  within 5 "an Event says so on the owner" has_event "$owner" "is deleted, because the kubelet refused it"
  kubectl delete deployment user over >/dev/null
}

has_refused() { # COUNT: so many, or more
  [ "$(refused_pods | wc -l)" -ge "$1" ]
}

# The API server shows the Pods as they were until the node's kubelet has told otherwise.
runs_again() { # DEPLOYMENT
  local pod id
  pod=$(pod_of "$1") || return 1
  id=$(kubectl get pod "$pod" -o 'jsonpath={.status.containerStatuses[0].containerID}')
  cluster on node-1 ctr -n k8s.io tasks list | grep -F "${id#containerd://}" | matches RUNNING
}

runs_and_refused() { # DEPLOYMENT COUNT
  pod_of "$1" >/dev/null && [ "$(refused_pods | wc -l)" = "$2" ]
}
