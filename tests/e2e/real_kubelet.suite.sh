# The standalone agent beside the kubelet of a real Kubernetes: they share no author, so no mistake of ours either.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

NODE=$CLUSTER_DIR/node-1
STATE=$NODE/var/lib/akri
PLUGINS=$NODE/var/lib/kubelet/device-plugins
CONFIGURATIONS=$NODE/var/lib/akri-configurations

set_up() {
  cluster up 1
  cluster avahi camera
  mkdir -p "$CONFIGURATIONS"
  load_busybox localhost/busybox:1
}

# An agent without a past, one camera on the LAN, no Pod.
fresh() {
  kubectl delete pods --all --now --wait --timeout=60s >/dev/null
  stop_all
  rm -rf "${STATE:?}"/* "${CONFIGURATIONS:?}"/*
  cat >"$CONFIGURATIONS/cameras.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: cameras}
spec:
  discoveryHandler: {name: zeroconf, discoveryDetails: "kind: _rtsp._tcp"}
  gracePeriodSeconds: 5
  brokerProperties: {SITE: e2e}
X
  begin_agent
}

begin_agent() {
  begin agent node-1 "$PETIOLE" agent --standalone --node-name node-1 \
    --configurations "$CONFIGURATIONS" --state /var/lib/akri --kubelet-dir /var/lib/kubelet
}

node_holds() { # capacity|allocatable RESOURCE AMOUNT; nothing counts as 0
  local amount
  amount=$(kubectl get node node-1 -o json | jq -r --arg r "akri.sh/$2" ".status.$1[\$r] // \"0\"")
  [ "$amount" = "$3" ]
}

has_entry() { # RESOURCE
  kubectl get node node-1 -o json | jq -e --arg r "akri.sh/$1" '.status.capacity | has($r)'
}

run_pod() { # NAME RESOURCE [RESOURCE…]
  local name=$1 limits=
  shift
  limits=$(printf '"akri.sh/%s": 1, ' "$@")
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $name}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
    - name: broker
      image: localhost/busybox:1
      imagePullPolicy: Never
      command: [/bin/sh, -c, "env | sort; exec sleep 2147483647"]
      resources: {limits: {${limits%, }}}
X
}

is_running() {
  [ "$(kubectl get pod "$1" -o 'jsonpath={.status.phase}')" = Running ]
}

container_of() {
  kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}'
}

ask() { # SERVICE ARGS… of grpcurl: the plugin's socket is asked with no proto files
  local socket
  socket=/var/lib/kubelet/device-plugins/$(basename "$(socket_of "$1")")
  shift
  cluster on node-1 grpcurl -plaintext -unix "$@" "$socket" "v1beta1.DevicePlugin/$METHOD"
}

test_a_service_becomes_the_environment_of_a_pod() {
  fresh
  local resource
  announce camera cam-1 _rtsp._tcp 554 path=/live model=A1
  within 5 "cam-1 is an Instance" is_healthy cam-1
  note "announced -> Instance: $TOOK s"
  resource=$(instance_name_of cam-1)
  within 5 "it has a socket" socket_of cam-1
  within 20 "the node offers it" node_holds allocatable "$resource" 1
  note "Instance -> allocatable (the kubelet's own tick, at most 10.5 s): $TOOK s"
  node_holds capacity "$resource" 1 || fail "capacity is not 1"
  run_pod broker "$resource"
  within 20 "the Pod runs" is_running broker
  note "Pod created -> Running: $TOOK s"
  local suffix=${resource##*-} expected
  for expected in AKRI_ZEROCONF=zeroconf AKRI_ZEROCONF_DEVICE_KIND=_rtsp._tcp AKRI_ZEROCONF_DEVICE_NAME=cam-1 \
    AKRI_ZEROCONF_DEVICE_HOST=camera.local AKRI_ZEROCONF_DEVICE_ADDR=198.51.100.101 AKRI_ZEROCONF_DEVICE_PORT=554 \
    AKRI_ZEROCONF_DEVICE_PATH=/live AKRI_ZEROCONF_DEVICE_MODEL=A1 SITE=e2e \
    "AKRI_ZEROCONF_DEVICE_ADDR_${suffix^^}=198.51.100.101"; do
    within 5 "the Pod's environment has $expected" logs_have broker "$expected"
  done
  grep -qE "^ *['\"]?$resource-0['\"]?: *node-1" "$STATE/instances/$(instance_of cam-1).yaml" || fail "the slot is not noted as this node's"
}

test_grpcurl_needs_no_proto_files() {
  fresh
  local slots
  announce camera cam-1 _rtsp._tcp 554
  within 5 "cam-1 has a socket" socket_of cam-1
  METHOD=GetDevicePluginOptions ask cam-1 | tee "$SUITE/options" | jq -e '.preStartRequired' >/dev/null ||
    fail "preStartRequired is not true: $(cat "$SUITE/options")"
  slots=$(METHOD=ListAndWatch ask cam-1 -max-time 1 2>/dev/null | jq -c '[.devices[] | [.ID, .health]]') || true
  equal "the list of slots" "[[\"$(instance_name_of cam-1)-0\",\"Healthy\"]]" "$slots"
}

test_the_resource_of_the_configuration_gives_a_device_too() {
  fresh
  announce camera cam-1 _rtsp._tcp 554
  announce camera cam-2 _rtsp._tcp 555
  within 25 "the node offers two cameras" node_holds allocatable cameras 2
  run_pod any cameras
  within 20 "the Pod runs" is_running any
  within 5 "it was told a camera" logs_have any AKRI_ZEROCONF_DEVICE_NAME=cam-
}

test_a_kubelet_restart_loses_neither_resource_nor_pod() {
  fresh
  local resource container
  announce camera cam-1 _rtsp._tcp 554
  within 5 "cam-1 is an Instance" is_healthy cam-1
  resource=$(instance_name_of cam-1)
  within 20 "the node offers it" node_holds allocatable "$resource" 1
  run_pod broker "$resource"
  within 20 "the Pod runs" is_running broker
  container=$(container_of broker)
  # What the API server has of the node is old for a while: first see the restarted kubelet report 0, or wait for its ready mark.
  local sockets
  sockets=$(socket_of cam-1)
  cluster kubelet node-1 restart
  within 20 "the plugin has a new socket" has_new_socket cam-1 "$sockets"
  note "kubelet killed -> plugin's new socket: $TOOK s"
  within 20 "the kubelet's checkpoint lists its slot" checkpoint_has "$resource"
  note "then -> slot in the kubelet's own books: $TOOK s"
  within 25 "the node offers it again" node_holds allocatable "$resource" 1
  for_all_of 13 "the node goes on offering it" node_holds allocatable "$resource" 1
  equal "the Pod's container and its restarts" "$container" "$(container_of broker)"
  is_running broker || fail "the Pod is not Running"
}

has_new_socket() { # SERVICE OLD
  local socket
  socket=$(socket_of "$1") && [ "$socket" != "$2" ]
}

checkpoint_has() {
  jq -e --arg r "akri.sh/$1" '.Data.RegisteredDevices[$r] | length == 1' "$PLUGINS/kubelet_internal_checkpoint"
}

test_an_agent_restart_is_not_felt() {
  fresh
  local resource container identity signal
  announce camera cam-1 _rtsp._tcp 554
  within 5 "cam-1 is an Instance" is_healthy cam-1
  resource=$(instance_name_of cam-1)
  within 20 "the node offers it" node_holds allocatable "$resource" 1
  run_pod broker "$resource"
  within 20 "the Pod runs" is_running broker
  container=$(container_of broker)
  identity=$(identity_of cam-1)
  for signal in TERM KILL; do
    stop agent $signal
    begin_agent
    within 5 "cam-1 has one socket" has_one_socket cam-1
    for_all_of 12 "the node goes on offering it" node_holds capacity "$resource" 1
    within 12 "allocatable is 1" node_holds allocatable "$resource" 1
    equal "the Instance after SIG$signal" "$identity" "$(identity_of cam-1)"
    equal "the Pod's container after SIG$signal" "$container" "$(container_of broker)"
  done
}

has_one_socket() {
  [ "$(socket_of "$1" | wc -l)" = 1 ]
}

test_a_service_that_goes_is_offered_no_more() {
  fresh
  local resource
  announce camera cam-1 _rtsp._tcp 554
  within 5 "cam-1 is an Instance" is_healthy cam-1
  resource=$(instance_name_of cam-1)
  within 20 "the node offers it" node_holds allocatable "$resource" 1
  goodbye cam-1
  within 5 "cam-1 is unhealthy" is_unhealthy cam-1
  note "goodbye -> unhealthy: $TOOK s"
  within 20 "allocatable is 0" node_holds allocatable "$resource" 0
  note "then -> allocatable 0 (the kubelet's tick): $TOOK s"
  within 60 "the Instance goes after its grace period, once no container holds it" has_no_instance cam-1
  within 5 "its socket goes" is_empty find "$PLUGINS" -name "$resource-*.sock"
}

test_a_configuration_that_goes_takes_all_with_it_at_once() {
  fresh
  announce camera cam-1 _rtsp._tcp 554
  within 5 "cam-1 has a socket" socket_of cam-1
  rm "$CONFIGURATIONS/cameras.yaml"
  within 3 "its Instance is gone" has_no_instance cam-1
  note "Configuration removed -> Instance gone: $TOOK s"
  within 3 "all our sockets are gone" has_no_socket
}

has_no_socket() {
  ! find "$PLUGINS" -name 'cameras*' | matches .
}

show() {
  kubectl get nodes,pods -o wide
  kubectl get node node-1 -o json | jq -c '.status.capacity, .status.allocatable'
  kubectl describe pods | tail -n 30
  ls -l "$PLUGINS" "$CONFIGURATIONS"
  tail -n +1 "$STATE"/instances/* "$STATE"/configurations/* "$STATE"/*.error 2>/dev/null
  echo "--- agent"
  tail -n 40 "$SUITE/log/agent"
  echo "--- kubelet"
  grep -iE 'plugin|device|akri' "$CLUSTER_DIR/log/node-1-kubelet.log" | tail -n 30
}
