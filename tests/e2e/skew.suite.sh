# Two versions of Petiole side by side: the agents of one with the controller of the other, under the definitions and the chart of the
# newer one, as in the middle of an upgrade; the whole upgrade, the rollback, and the upgrade again. Brokers run all the time: nothing
# is lost, and no broker is replaced but those that only the newer version has made, by the older one.
#
# SKEW_IMAGE    the image of the older version, a docker archive of localhost/petiole:dev (`just old-image`); without it the suite is skipped
# SKEW_COMMIT   its commit, whose chart is taken from the repository
# SKEW_RECORD   a folder for the objects and files of the older version, which tests read: tests/data/VERSION
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

OLD_COMMIT=${SKEW_COMMIT:-cd0d31e9}
OLD_CHART=$SUITE/old/charts/petiole
OLD_TAG=older
DEVICES=(--set cdi.enabled=true --set 'cdi.kinds={pflex.io/block}')

set_up() {
  [ -n "${SKEW_IMAGE:-}" ] || { echo "SKEW_IMAGE names no image of an older version"; exit 77; }
  local node
  mkdir -p "$SUITE/old"
  git -C "$E2E/../.." archive "$OLD_COMMIT" charts/petiole | tar -x -C "$SUITE/old"
  cluster up 2
  load_busybox docker.io/library/busybox:stable
  # Both images have one name: the older one gets another first.
  cluster load "$SKEW_IMAGE"
  for node in node-1 node-2; do
    (cluster on "$node" ctr -n k8s.io images tag --force localhost/petiole:dev localhost/petiole:$OLD_TAG) >/dev/null
  done
  cluster load "$IMAGE"
  cluster avahi camera
  helm install petiole "$OLD_CHART" --create-namespace "${CHART_VALUES[@]}" --set image.tag=$OLD_TAG "${DEVICES[@]}" \
    --wait --timeout 90s >/dev/null
  agents_are_ready
  devices
}

# A shared camera with a broker on each node, two devices of node-1 alone with a broker each, and a Pod of somebody's own.
devices() {
  announce camera cam-1 _rtsp._tcp 554
  configure cams "kind: _rtsp._tcp" "capacity: 2, gracePeriodSeconds: 60, brokerProperties: {SITE: e2e}, $BROKER"
  describe_devices "$CLUSTER_DIR/node-1/etc/cdi" pflex1 pflex2
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: block}
spec: {discoveryHandler: {name: cdi, discoveryDetails: "kind: pflex.io/block"}, capacity: 2, brokerProperties: {SITE: e2e}, $BROKER}
X
  # Services and a Job, so that there is one of each kind.
  echoes served 1 "capacity: 1, instanceServiceSpec: {ports: [{port: 80}]}, configurationServiceSpec: {ports: [{port: 80}]}, $BROKER"
  echoes job 1 'capacity: 1, brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{name: broker, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exit 0"]}]}}}}'
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: seen}
spec: {discoveryHandler: {name: zeroconf, discoveryDetails: "kind: _http._tcp"}, capacity: 2, gracePeriodSeconds: 60}
X
  echoes own 2
  within 30 "the camera has two brokers" has_brokers cams 2
  within 30 "the devices of node-1 have theirs" has_brokers block 2
  within 10 "node-2 offers what the Pod asks for" node_holds node-2 allocatable own 2
  pod user node-2 own
  within 30 "the Pod runs" is_running user
  within 30 "what has Services has its broker" has_brokers served 1
  # Slots are written after the answer.
  within 15 "six slots are in use" has_usage 6
  [ -z "${SKEW_RECORD:-}" ] || record "$SKEW_RECORD"
  remember
}

# What the older version has written: objects, the agent's copy of them, and the kubelet's checkpoint.
record() { # FOLDER
  local node=$CLUSTER_DIR/node-1/var/lib
  mkdir -p "$1/mirror"
  # The copy is written within seconds.
  sleep 5
  kubectl get configurations.akri.sh,instances.akri.sh,nodedevices.akri.sh,pods,services,jobs,nodes -o json |
    jq -S 'del(.items[].metadata.managedFields, .items[].status.images, .items[].status.nodeInfo)' >"$1/objects.json"
  jq -S . "$node/akri/mirror/instances.json" >"$1/mirror/instances.json"
  jq -S . "$node/akri/mirror/configurations.json" >"$1/mirror/configurations.json"
  cp "$node/kubelet/device-plugins/kubelet_internal_checkpoint" "$1/"
}

usage() { # of all Instances, a line each: slot and holder
  kubectl get instances.akri.sh -o json | jq -r '.items[] | .spec.deviceUsage // {} | to_entries[] | select(.value != "") | "\(.key) \(.value)"' | sort
}

has_usage() { # NUMBER
  [ "$(usage | wc -l)" = "$1" ]
}

# Brokers, the Pod and their containers; Instances; slots; what the nodes offer.
all_that_stays() {
  containers
  kubectl get pod user -o json | jq -r '"\(.metadata.uid) \(.status.containerStatuses[0].containerID) \(.status.containerStatuses[0].restartCount)"'
  uids
  usage
  kubectl get nodes -o json | jq -r '.items[] | .metadata.name as $n | .status.allocatable | to_entries[]
    | select((.key | startswith("akri.sh/")) and .value != "0") | "\($n) \(.key) \(.value)"' | sort
}

remember() {
  all_that_stays >"$SUITE/stays"
}

# What is new is nobody's loss.
lost() {
  grep -vxFf "$SUITE/now" "$SUITE/stays"
}

is_whole() {
  all_that_stays >"$SUITE/now" && ! lost >/dev/null
}

# Until all is there again, and then for long enough that what is to be released or replaced would be.
stays_whole() { # CLAIM
  local until=$((SECONDS + 30))
  until is_whole; do
    [ $SECONDS -lt $until ] || fail "not within 30 s is all there $1: $(lost) is not there, but $(cat "$SUITE/now")"
    sleep 0.2
  done
  until=$((SECONDS + 20))
  while [ $SECONDS -lt $until ]; do
    is_whole || fail "all is not as it was $1: $(lost) is not there, but $(cat "$SUITE/now")"
    sleep 1
  done
  is_empty refused || fail "Pods were refused $1: $(refused)"
}

refused() {
  kubectl get pods -o json | jq -r '.items[] | select(.status.phase == "Failed") | .metadata.name'
}

# upgrade AGENTS CONTROLLERS: the newer chart, with the images of these tags. Older agents are those of the older chart, as they are until
# their DaemonSet is replaced: the newer chart starts an agent in ways that the older one does not know.
upgrade() {
  local agents=$SUITE/agents.yaml
  : >"$agents"
  [ "$1" != "$OLD_TAG" ] || helm template petiole "$OLD_CHART" "${CHART_VALUES[@]}" --set image.tag=$OLD_TAG "${DEVICES[@]}" |
    awk -v RS='---\n' '/\nkind: DaemonSet\n/ { printf "---\n%s", $0 }' >"$agents"
  cat >"$SUITE/images" <<X
#!/bin/sh
awk -v RS='---\n' -v agents=$1 -v controllers=$2 '
  /\nkind: DaemonSet\n/ { if (agents == "$OLD_TAG") next }
  { gsub("localhost/petiole:dev", "localhost/petiole:" (/\nkind: DaemonSet\n/ ? agents : controllers)); printf "---\n%s", \$0 }'
cat "$agents"
X
  chmod +x "$SUITE/images"
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" "${DEVICES[@]}" --post-renderer "$SUITE/images" --wait --timeout 120s >/dev/null
  agents_are_ready
  equal "the images of the agents" "localhost/petiole:$1" "$(kubectl -n petiole get daemonset petiole-agent -o 'jsonpath={.spec.template.spec.containers[0].image}')"
  equal "those of the controllers" "localhost/petiole:$2" "$(kubectl -n petiole get deployment petiole-controller -o 'jsonpath={.spec.template.spec.containers[0].image}')"
}

# A service that is announced now has an Instance of both nodes, which belongs to what stays.
a_service_comes() { # SERVICE PORT
  announce camera "$1" _http._tcp "$2"
  within 30 "$1 has an Instance" instance_of "$1"
  within 10 "both nodes see it" is_on "$(instance_of "$1")" node-1 node-2
  within 10 "it is allocatable" node_holds node-2 allocatable "$(instance_of "$1")" 2
  remember
}

test_definitions_of_the_newer_version_change_nothing_for_the_older_one() {
  kubectl apply --server-side --force-conflicts -f "$CHART/crds/" >/dev/null
  stays_whole "under newer definitions"
}

test_agents_of_the_older_version_work_with_the_newer_controller() {
  upgrade $OLD_TAG dev
  stays_whole "with older agents and a newer controller"
  a_service_comes web-1 80
}

test_agents_of_the_newer_version_work_with_the_older_controller() {
  upgrade dev $OLD_TAG
  stays_whole "with newer agents and an older controller"
  a_service_comes web-2 81
}

test_an_upgrade_loses_nothing() {
  upgrade dev dev
  stays_whole "after the upgrade"
  announce camera cam-2 _rtsp._tcp 555
  within 30 "a new camera has its brokers" has_brokers cams 4
}

# The older controller knows brokers by their names, and replaces those of cam-2, once.
test_a_rollback_loses_nothing() {
  helm rollback petiole 1 --wait --timeout 120s >/dev/null
  agents_are_ready
  equal "the image of the agents" localhost/petiole:$OLD_TAG "$(kubectl -n petiole get daemonset petiole-agent -o 'jsonpath={.spec.template.spec.containers[0].image}')"
  stays_whole "after the rollback"
  within 60 "the new camera has brokers" has_brokers cams 4
}

test_the_upgrade_again_loses_nothing_and_finds_what_is_new() {
  remember
  upgrade dev dev
  stays_whole "after the second upgrade"
  describe_devices "$CLUSTER_DIR/node-1/etc/cdi" pflex1 pflex2 pflex3
  within 30 "a new device of node-1 has its broker" has_brokers block 3
}
