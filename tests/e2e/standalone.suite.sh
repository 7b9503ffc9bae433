# A kubelet without a cluster, containerd, and the standalone agent beside it: avahi announces, the agent renders static Pods,
# and what is judged is the kubelet's own word (`/pods`, pod resources) and what containerd runs.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

EDGE=$CLUSTER_DIR/edge
STATE=$EDGE/var/lib/akri
PLUGINS=$EDGE/var/lib/kubelet/device-plugins
MANIFESTS=$EDGE/etc/kubernetes/manifests
CONFIGURATIONS=$EDGE/var/lib/akri-configurations

set_up() {
  cluster standalone
  cluster avahi camera
  mkdir -p "$SUITE/image/bin" "$CONFIGURATIONS"
  cp "$(command -v busybox)" "$SUITE/image/bin/busybox"
  for command in sh env sort sleep; do ln -s busybox "$SUITE/image/bin/$command"; done
  cluster image localhost/busybox:1 "$SUITE/image" /bin/sh >"$SUITE/busybox.tar"
  cluster load "$SUITE/busybox.tar"
}

# An agent without a past, no service on the LAN, no Pod.
fresh() {
  stop_all
  rm -rf "${STATE:?}"/* "${CONFIGURATIONS:?}"/* "${MANIFESTS:?}"/*
  within 60 "no Pod of a test before is left" has_no_pods
  cat >"$CONFIGURATIONS/cameras.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: cameras}
spec:
  discoveryHandler: {name: zeroconf, discoveryDetails: "kind: _rtsp._tcp"}
  gracePeriodSeconds: 8
  brokerProperties: {SITE: e2e}
  brokerSpec:
    brokerPodSpec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: broker
          image: localhost/busybox:1
          imagePullPolicy: Never
          command: [/bin/sh, -c, "env | sort; exec sleep 2147483647"]
          resources: {limits: {"{{PLACEHOLDER}}": 1}}
X
  begin_agent
}

begin_agent() {
  begin agent edge "$PETIOLE" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" \
    --render-brokers /etc/kubernetes/manifests
}

# ---- what the kubelet says ----

pods() {
  (cluster on edge curl -fsk --max-time 5 https://127.0.0.1:10250/pods)
}

has_no_pods() {
  pods | jq -e '.items | length == 0' && is_empty cluster on edge ctr -n k8s.io tasks list -q
}

pod_of() { # SERVICE: the Pod that its Instance was rendered as
  local instance
  instance=$(instance_name_of "$1") && pods | jq -ce --arg i "$instance" '.items[] | select(.metadata.labels["akri.sh/instance"] == $i)'
}

status_is() { # SERVICE JQ-EXPRESSION of its Pod's status
  pod_of "$1" | jq -e ".status | $2"
}

is_running() {
  status_is "$1" '.phase == "Running" and .containerStatuses[0].state.running != null'
}

health_in_status() { # SERVICE
  status_is "$1" -r 2>/dev/null || true
}

status_has_health() { # SERVICE HEALTH of the device in its container's status
  status_is "$1" "[.containerStatuses[0].allocatedResourcesStatus[].resources[].health] == [\"$2\"]"
}

container_of() { # SERVICE: which container, and how often one was started
  pod_of "$1" | jq -r '.status.containerStatuses[0] | "\(.containerID) \(.restartCount)"'
}

printed() { # SERVICE TEXT: a whole line of what its broker printed
  local log
  for log in "$EDGE/var/log/pods/"*"$(instance_name_of "$1")"*/broker/*.log; do
    sed 's/^[^ ]* [^ ]* [^ ]* //' "$log" | grep -qxF "$2" && return
  done
  return 1
}

# ask_kubelet METHOD: what the pod resources API answers. grpcurl has no word of it but the file of the project.
ask_kubelet() {
  (cluster on edge grpcurl -plaintext -unix -import-path "$E2E/../../proto" -proto "$PROTO" \
    /var/lib/kubelet/pod-resources/kubelet.sock "v1.PodResourcesLister/$1")
}

is_allocatable() { # SERVICE: and no other device of ours
  local resource
  resource=akri.sh/$(instance_name_of "$1") &&
    ask_kubelet GetAllocatableResources | jq -e --arg r "$resource" '[.devices[] | select(.resourceName == $r) | .deviceIds[]] == [($r | ltrimstr("akri.sh/")) + "-0"]'
}

holds_its_device() { # SERVICE: by the kubelet's books its container has the slot
  local resource
  resource=akri.sh/$(instance_name_of "$1") &&
    ask_kubelet List | jq -e --arg r "$resource" '[.podResources[].containers[].devices[]? | select(.resourceName == $r)] | length == 1'
}
