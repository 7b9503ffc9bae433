# No cluster: Go's own plugins and clients, and a plugin of another project, against our kubelet; and an agent against Go's
# own device manager.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

HOME_OF_NODE=$SUITE/edge
ROOT=$HOME_OF_NODE/kubelet
MANIFESTS=$ROOT/manifests
RDMA=$SUITE/rdma
GO_BIN=$CLUSTER_BIN

set_up() {
  build_programs
  mkdir -p "$ROOT"
  cluster lan
  # The sample device plugin knows one folder only; on this machine it is the kubelet's root.
  mkdir -p /var/lib/kubelet
  # shellcheck disable=SC2016 # expanded by the inner shell
  cluster device edge sh -c 'mount --bind "$0" /var/lib/kubelet && exec sleep infinity' "$ROOT"
}

build_programs() (
  export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
  build_module kubelet_go
  build_module rdma_plugin
  [ -x "$GO_BIN/sample-device-plugin" ] || go -C "$E2E/kubelet_go" build -p 1 -ldflags="-s -w" \
    -o "$GO_BIN/sample-device-plugin" k8s.io/kubernetes/test/images/sample-device-plugin
)

# A kubelet without a past, and nothing that wants to register.
fresh() {
  stop_all
  find "$ROOT" -mindepth 1 -delete
  rm -f "$SUITE"/log/*
  mkdir -p "$MANIFESTS"
  begin_kubelet
}

begin_kubelet() {
  begin kubelet edge "$PETIOLE" kubelet --root-dir "$ROOT" --node-name edge --restart-backoff 100ms
  within 5 "the kubelet answers" get node
}

begin_stub() { # RESOURCE [probe]: `tell` it what to list
  local name=${1#*/}
  rm -f "$SUITE/$name.fifo"
  mkfifo "$SUITE/$name.fifo"
  # shellcheck disable=SC2016 # expanded by the inner shell
  begin "$name" edge sh -c 'fifo=$1; shift; exec kubelet_go stub "$@" <>"$fifo"' - "$SUITE/$name.fifo" "$ROOT" "$@"
}

tell() { # NAME LIST…
  echo "${*:2}" >"$SUITE/$1.fifo"
}

calls_of() { # NAME METHOD
  grep -c "\"$2\" request" "$SUITE/log/$1" || true
}

# What the RDMA plugin reads of a machine, in $RDMA: one NIC, and no database that names vendors.
make_up_a_nic() {
  local nic=$RDMA/sys/bus/pci/devices/0000:0a:00.0 class=$RDMA/sys/class device
  rm -rf "$RDMA"
  mkdir -p "$nic"/{infiniband/mlx5_0,net/eth0} "$class"/infiniband_verbs/uverbs0 "$class"/infiniband_mad/{umad0,issm0} \
    "$RDMA"/{sys/devices/system/node,dev/infiniband,kubelet}
  echo pci:v000015B3d00001017sv000015B3sd00000020bc02sc00i00 >"$nic/modalias"
  ln -s ../../drivers/mlx5_core "$nic/driver"
  for device in "$class"/infiniband_*/*; do echo mlx5_0 >"$device/ibdev"; done
  touch "$RDMA/dev/infiniband/rdma_cm" "$RDMA/pci.ids"
  cat >"$RDMA/config.json" <<'X'
{"periodicUpdateInterval": 1, "configList": [{"resourceName": "hca_shared", "rdmaHcaMax": 3, "selectors":
  {"vendors": ["15b3"], "deviceIDs": ["1017"], "drivers": ["mlx5_core"], "ifNames": ["eth0"], "linkTypes": ["ether"]}}]}
X
}

# It reads /sys, /dev and /var/lib/kubelet: it has its own, the last with those folders alone that a DaemonSet would mount.
begin_rdma() { # FOLDER… of the kubelet's root
  make_up_a_nic
  # shellcheck disable=SC2016 # expanded by the inner shell
  begin rdma edge unshare --mount bash -euc '
    rdma=$1 root=$2
    for folder in "${@:3}"; do
      mkdir "$rdma/kubelet/$folder"
      mount --bind "$root/$folder" "$rdma/kubelet/$folder"
    done
    mount --rbind "$rdma/kubelet" /var/lib/kubelet
    mount --bind "$rdma/sys" /sys
    mount --bind "$rdma/dev" /dev
    PCIDB_PATH=$rdma/pci.ids exec rdma_plugin "$rdma/config.json"' - "$RDMA" "$ROOT" "$@"
}

rdma_says() { # TIMES TEXT
  [ "$(grep -c "$2" "$SUITE/log/rdma")" = "$1" ]
}

get() {
  cluster on edge "$PETIOLE" get "$@" --root-dir "$ROOT" -o json
}

node_holds() { # RESOURCE CAPACITY ALLOCATABLE
  get node | jq -e --arg r "$1" --arg c "$2" --arg a "$3" '.status | .capacity[$r] == $c and .allocatable[$r] == $a'
}

plugin_is() { # NAME STATE [TEXT OF THE REASON]
  get plugins | jq -e --arg n "$1" --arg s "$2" --arg t "${3:-}" \
    'any(.[]; .name == $n and .state == $s and ((.reason // "") | contains($t)))'
}

has_no_plugin() { # NAME
  get plugins | jq -e --arg n "$1" 'all(.[]; .name != $n)'
}

run_pod() { # LIMITS, as YAML. In a manifest $$ is one $.
  cat >"$MANIFESTS/.pod" <<X
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: none
      command: [/bin/sh, -c, "echo began with \$\$GO_DEVICES; exec sleep 2147483647"]
      resources: {limits: {$1}}
X
  mv "$MANIFESTS/.pod" "$MANIFESTS/pod.yaml"
}

pod_has() { # JQ
  get pods | jq -e ".items[0].status | $1"
}

log_has() { # TEXT [TIMES]
  [ "$(grep -c "$1" "$ROOT/logs/default_pod-edge/c.log")" -ge "${2:-1}" ]
}

clients() {
  cluster on edge kubelet_go podresources "$ROOT/pod-resources/kubelet.sock"
}

checkpoint() { # read|write
  cluster on edge kubelet_go checkpoint "$1" "$ROOT/device-plugins"
}

test_the_stub_registers_by_a_bare_path_and_a_pod_gets_its_devices() {
  fresh
  begin_stub example.com/go
  within 5 "its devices are there" node_holds example.com/go 2 2
  note "begun -> allocatable: $TOOK s"
  run_pod "example.com/go: 2"
  within 5 "the container has both" log_has "began with a,b"
  note "manifest -> container: $TOOK s"
  equal "calls of GetPreferredAllocation" 1 "$(calls_of go GetPreferredAllocation)"
  equal "calls of Allocate" 1 "$(calls_of go Allocate)"
  equal "calls of PreStartContainer" 1 "$(calls_of go PreStartContainer)"
}

test_health_is_in_the_node_and_in_the_pod() {
  fresh
  begin_stub example.com/go
  within 5 "its devices are there" node_holds example.com/go 2 2
  run_pod "example.com/go: 2"
  within 5 "the Pod runs" pod_has '.phase == "Running"'
  tell go "a b:Unhealthy"
  within 3 "one is not allocatable" node_holds example.com/go 2 1
  within 3 "the Pod says which" pod_has '.containerStatuses[0].allocatedResourcesStatus ==
    [{name: "example.com/go", resources: [{resourceID: "a", health: "Healthy"}, {resourceID: "b", health: "Unhealthy"}]}]'
  tell go "a b"
  within 3 "it is well again" pod_has '[.containerStatuses[0].allocatedResourcesStatus[0].resources[].health] == ["Healthy", "Healthy"]'
}

test_the_stub_registers_again_after_a_kubelet_restart_and_allocate_is_not_called_again() {
  fresh
  local signal
  begin_stub example.com/go
  within 5 "its devices are there" node_holds example.com/go 2 2
  run_pod "example.com/go: 1"
  within 5 "the container has one" log_has "began with a"
  for signal in TERM KILL; do
    stop kubelet $signal
    : >"$ROOT/logs/default_pod-edge/c.log"
    begin_kubelet
    # The stub looks for a new kubelet.sock every 10 s.
    within 25 "the stub is back" node_holds example.com/go 2 2
    note "kubelet up after SIG$signal -> registered again: $TOOK s"
    within 5 "the container has the same" log_has "began with a"
  done
  equal "calls of Allocate" 1 "$(calls_of go Allocate)"
  equal "calls of PreStartContainer" 3 "$(calls_of go PreStartContainer)"
}

test_the_stub_in_plugins_registry_is_registered_and_gone_with_its_socket() {
  fresh
  begin_stub example.com/probe probe
  within 5 "its devices are there" node_holds example.com/probe 2 2
  note "begun -> allocatable: $TOOK s"
  run_pod "example.com/probe: 1"
  within 5 "the container has one" log_has "began with a"
  rm "$ROOT/plugins_registry/stub-probe.sock"
  within 5 "it is deregistered" plugin_is example.com/probe stopped deregistered
  node_holds example.com/probe 2 0 >/dev/null || fail "its devices can still be allocated"
}

test_a_stub_that_was_there_first_is_found_at_start() {
  fresh
  begin_stub example.com/probe probe
  within 5 "its devices are there" node_holds example.com/probe 2 2
  stop kubelet KILL
  begin_kubelet
  within 5 "it is registered without a call of its own" node_holds example.com/probe 2 2
}

test_the_pod_resources_client_reads_list_get_and_allocatable() {
  fresh
  begin_stub example.com/go
  within 5 "its devices are there" node_holds example.com/go 2 2
  run_pod "example.com/go: 1"
  within 5 "the Pod runs" pod_has '.phase == "Running"'
  local said pod
  said=$(clients)
  pod='{"name":"pod-edge","namespace":"default","containers":[{"name":"c","devices":[{"resource_name":"example.com/go","device_ids":["a"]}]}]}'
  equal List "{\"list\":[$pod]}" "$(sed -n 1p <<<"$said")"
  equal Get "{\"get\":$pod}" "$(sed -n 2p <<<"$said")"
  equal "Get of an unknown Pod" '{"unknown":"rpc error: code = Unknown desc = pod none in namespace default not found"}' \
    "$(sed -n 3p <<<"$said")"
  equal Allocatable '{"allocatable":[{"resource_name":"example.com/go","device_ids":["a"]},{"resource_name":"example.com/go","device_ids":["b"]}]}' \
    "$(sed -n 4p <<<"$said")"
}

test_the_checkpoint_is_read_both_ways() {
  fresh
  local said
  begin_stub example.com/go
  within 5 "its devices are there" node_holds example.com/go 2 2
  run_pod "example.com/go: 1"
  within 5 "the container has one" log_has "began with a"
  stop kubelet
  said=$(checkpoint read)
  equal "what Go reads" '["c","example.com/go",{"-1":["a"]},{"example.com/go":["a","b"]}]' \
    "$(jq -c '[(.entries[0] | .ContainerName, .ResourceName, .DeviceIDs), .registered]' <<<"$said")"
  cp "$ROOT/device-plugins/kubelet_internal_checkpoint" "$SUITE/ours"
  checkpoint write
  cmp "$SUITE/ours" "$ROOT/device-plugins/kubelet_internal_checkpoint" || fail "Go writes the same data in another way"
  begin_kubelet
  within 25 "the stub is back" node_holds example.com/go 2 2
  within 5 "the container has the same" log_has "began with a" 2
  equal "calls of Allocate" 1 "$(calls_of go Allocate)"
  ! grep -q checkpoint "$SUITE/log/kubelet" || fail "$(grep checkpoint "$SUITE/log/kubelet")"
}

test_plugins_of_each_type_are_told_how_it_went() {
  fresh
  begin csi edge kubelet_go csi "$ROOT" csi.example.com 0.3.0 1.0.0 1.5.0
  begin plain edge kubelet_go watcher "$ROOT" CSIPlugin plain.example.com 1.0.0
  begin old edge kubelet_go watcher "$ROOT" CSIPlugin old.example.com 0.3.0
  begin dra edge kubelet_go watcher "$ROOT" DRAPlugin dra.example.com v1.DRAPlugin
  begin odd edge kubelet_go watcher "$ROOT" DevicePlugin example.com/odd v1alpha1
  begin mute edge kubelet_go watcher "$ROOT" DevicePlugin example.com/mute v1beta1
  begin other edge kubelet_go watcher "$ROOT" Another other.example.com 1
  within 5 "a driver is registered" plugin_is csi.example.com registered
  get plugins | jq -e 'any(.[]; .csi == {version: "1.5.0", nodeId: "go-node", maxVolumes: 7})' >/dev/null || fail "$(get plugins)"
  within 5 "one without NodeGetInfo too" plugin_is plain.example.com registered
  within 5 "an old one is refused" plugin_is old.example.com refused "must be v1.x"
  within 5 "DRA is refused" plugin_is dra.example.com refused "dynamic resource allocation is not supported"
  within 5 "another version is refused" plugin_is example.com/odd refused "manager version, v1beta1, is not among"
  within 5 "a plugin that serves nothing is refused" plugin_is example.com/mute refused "failed to get device plugin options"
  within 5 "another type is refused" plugin_is other.example.com refused "no handler registered for plugin type: Another"
  local name
  for name in csi plain; do grep -q '^registered=true error=$' "$SUITE/log/$name" || fail "$name was not told"; done
  for name in old dra odd mute other; do
    grep -q '^registered=false error=RegisterPlugin error -- ' "$SUITE/log/$name" || fail "$name was not told"
  done
  for_all_of 2 "it stays" plugin_is csi.example.com registered
  for name in csi old; do stop $name; done
  within 5 "the driver is gone with its socket" has_no_plugin csi.example.com
  within 5 "so is the refused one" has_no_plugin old.example.com
}

test_the_sample_device_plugin_serves_a_pod() {
  fresh
  begin sample edge sample-device-plugin
  within 15 "its devices are there" node_holds example.com/resource 2 2
  run_pod "example.com/resource: 1"
  within 5 "the Pod runs" pod_has '.phase == "Running"'
  get pods | jq -e '.items[0].metadata.annotations["c.edits.petiole.dev"] | fromjson | .mounts | has("/tmp/Dev-1")' >/dev/null ||
    fail "the Pod lacks the mount: $(get pods)"
  stop sample
  within 5 "its end is seen" node_holds example.com/resource 2 0
}

# A plugin of others, for hardware of others: nothing in it knows that it is tested.
test_the_rdma_plugin_in_plugins_registry_serves_a_pod_and_is_found_after_a_kubelet_restart() {
  fresh
  begin_rdma device-plugins plugins_registry
  within 15 "its devices are there" node_holds rdma/hca_shared 3 3
  note "begun -> allocatable: $TOOK s"
  plugin_is rdma/hca_shared connected >/dev/null || fail "it is not shown as connected: $(get plugins)"
  within 5 "it was told" rdma_says 1 "hca_shared.sock gets registered successfully at Kubelet"
  run_pod "rdma/hca_shared: 1"
  within 5 "the Pod runs" pod_has '.phase == "Running"'
  equal "the device nodes of the container" \
    '["/dev/infiniband/issm0 rwm","/dev/infiniband/rdma_cm rwm","/dev/infiniband/umad0 rwm","/dev/infiniband/uverbs0 rwm"]' \
    "$(get pods | jq -c '.items[0].metadata.annotations["c.edits.petiole.dev"] | fromjson |
      [.devices | to_entries[] | select(.key == .value.hostPath) | "\(.key) \(.value.permissions)"]')"
  equal "what pod resources list" '[{"resource_name":"rdma/hca_shared","device_ids":["0"]}]' \
    "$(clients | sed -n 1p | jq -c '.list[0].containers[0].devices')"
  equal "what Go reads in the checkpoint" '["c","rdma/hca_shared",{"-1":["0"]},{"rdma/hca_shared":["0","1","2"]}]' \
    "$(checkpoint read | jq -c '[(.entries[0] | .ContainerName, .ResourceName, .DeviceIDs), .registered]')"
  stop kubelet
  begin_kubelet
  within 5 "it is registered again" rdma_says 2 "hca_shared.sock gets registered successfully at Kubelet"
  within 5 "its devices are back" node_holds rdma/hca_shared 3 3
  within 5 "the Pod runs again" pod_has '.phase == "Running"'
  rdma_says 1 "allocate request" || fail "Allocate was called again"
  mv "$RDMA/sys/class/infiniband_verbs/uverbs0" "$RDMA/uverbs0"
  within 5 "the NIC without its device node has no devices" node_holds rdma/hca_shared 0 0
  mv "$RDMA/uverbs0" "$RDMA/sys/class/infiniband_verbs/uverbs0"
  within 5 "it has them with it" node_holds rdma/hca_shared 3 3
  stop rdma
  within 5 "its end is seen" node_holds rdma/hca_shared 3 0
}

test_the_rdma_plugin_without_plugins_registry_registers_itself_and_again_after_a_kubelet_restart() {
  fresh
  begin_rdma device-plugins
  within 15 "its devices are there" node_holds rdma/hca_shared 3 3
  run_pod "rdma/hca_shared: 1"
  within 5 "the Pod runs" pod_has '.phase == "Running"'
  stop kubelet
  begin_kubelet
  # It looks for its own socket every 5 s.
  within 15 "it is registered again" node_holds rdma/hca_shared 3 3
  note "kubelet up -> registered again: $TOOK s"
  grep -q "most likely Kubelet restarted" "$SUITE/log/rdma" || fail "it did not see the restart"
  rdma_says 1 "allocate request" || fail "Allocate was called again"
  stop rdma
  within 5 "its end is seen" node_holds rdma/hca_shared 3 0
}

test_the_plugin_of_the_node_tests_is_refused_served_and_stopped_with_its_own_reason() {
  fresh
  local said
  ! said=$(cluster on edge kubelet_go testplugin example.com/bad GetDevicePluginOptions / 2>&1) || fail "it was registered"
  equal "the refusal" "rpc error: code = Unknown desc = failed to get device plugin options: rpc error: code = Unknown desc = as it was told" \
    "$(tail -n 1 <<<"$said")"
  plugin_is example.com/bad refused "as it was told" >/dev/null || fail "it is not shown: $(get plugins)"
  rm -f "$SUITE/fail"
  begin node edge kubelet_go testplugin example.com/node ListAndWatch "$SUITE/fail"
  within 5 "its device is there" node_holds example.com/node 1 1
  run_pod "example.com/node: 1"
  within 5 "the Pod runs" pod_has '.phase == "Running"'
  touch "$SUITE/fail"
  within 5 "its stream has ended" plugin_is example.com/node stopped "as it was told"
  node_holds example.com/node 1 0 >/dev/null || fail "its device can still be allocated"
  for_all_of 1 "the Pod runs on" pod_has '.phase == "Running"'
}

# The plugins that Go's device manager knows, and the resources with devices that it can allocate.
manager_has() { # PLUGINS ALLOCATABLE
  [ "$(grep allocatable "$SUITE/log/manager" | tail -n 1)" = "$1 plugins, $2 allocatable" ]
}

manager_has_seen() { # PLUGINS
  grep -q "^$1 plugins" "$SUITE/log/manager"
}

# From Kubernetes 1.37 on a socket that registers again before it is let go of can never be registered again.
test_a_hundred_plugins_of_an_agent_are_registered_when_a_device_manager_that_was_held_goes_on() {
  local hold
  for hold in answer stream; do
    fresh_manager
    echo "hold $hold" >"$SUITE/manager"
    begin_agent agent
    within 60 "each has tried twice, each time at another socket" manager_has_seen 200
    echo go >"$SUITE/manager"
    within 2 "all are registered" manager_has 100 100
    note "held before its $hold -> all registered: $TOOK s"
    for_all_of 1 "they stay" manager_has 100 100
    ! grep "already connected" "$SUITE/log/manager" || fail "a socket was registered twice"
    equal "the sockets that are left" 101 "$(find "$ROOT/device-plugins" -type s | wc -l)"
  done
}

fresh_manager() { # and 99 devices
  stop_all
  find "$ROOT" -mindepth 1 -delete
  rm -rf "$SUITE"/log/* "$SUITE"/manager "$SUITE"/agent
  mkdir -p "$ROOT"/{device-plugins,pod-resources} "$SUITE"/agent/configurations
  mkfifo "$SUITE/manager"
  # shellcheck disable=SC2016 # expanded by the inner shell
  begin manager edge sh -c 'exec kubelet_go devicemanager <>"$0"' "$SUITE/manager"
  within 5 "the device manager is there" manager_has 0 0
  {
    printf '%s\n' "apiVersion: akri.sh/v0" "kind: Configuration" "metadata: {name: echo}" "spec:" "  discoveryHandler:" \
      "    name: debugEcho" "    discoveryDetails: |" "      descriptions:"
    seq -f "      - device %g" 99
  } >"$SUITE/agent/configurations/echo.yaml"
}

begin_agent() { # NAME [FLAGS…]
  begin "$1" edge "$PETIOLE" agent --standalone --node-name edge --configurations "$SUITE/agent/configurations" \
    --state "$SUITE/agent/state" --kubelet-dir /var/lib/kubelet "${@:2}"
}

# By the device manager, which from Kubernetes 1.37 on gives a resource up when its last plugin has ended.
test_a_hundred_plugins_are_handed_over_from_agent_to_agent_and_none_is_ever_given_up() {
  fresh_manager
  begin_agent first --stand-by
  within 20 "the first one's are registered" manager_has 100 100
  local before next old=first
  for next in second third; do
    before=$(wc -l <"$SUITE/log/manager")
    begin_agent $next --stand-by
    within 5 "the $next one stands by" grep -q "This one stands by" "$SUITE/log/$next"
    stop $old
    note "SIGTERM of the $old one -> it has ended: $TOOK s"
    within 10 "the $next one's are registered alone" manager_has 100 100
    tail -n "+$((before + 1))" "$SUITE/log/manager" >"$SUITE/log/handed-over"
    grep -q "^200 plugins, 100 allocatable" "$SUITE/log/handed-over" || fail "both were never registered"
    ! grep "allocatable$" "$SUITE/log/handed-over" | grep -v ", 100 allocatable" || fail "a resource could not be allocated"
    old=$next
  done
  equal "the sockets that are left" 101 "$(find "$ROOT/device-plugins" -type s | wc -l)"
}

# Every block of the document, one after another, with a plugin started after the first.
test_the_commands_of_the_document_run_as_written() {
  stop_all
  cat >"$SUITE/document.sh" <<'X'
set -euo pipefail
mkdir -p /tmp/kubelet
mount -t tmpfs tmpfs /tmp/kubelet
PATH=$(dirname "$PETIOLE"):$PATH
blocks=0
trap 'kill $(jobs -p); wait' EXIT
until_true() { for _ in $(seq 100); do ! "$@" >/dev/null 2>&1 || return 0; sleep 0.05; done; "$@"; }
is_connected() { petiole get plugins --root-dir /tmp/kubelet -o json | jq -e '.[0].healthy == 2'; }
block_ends() {
  blocks=$((blocks + 1))
  case $blocks in
    1)
      until_true test -S /tmp/kubelet/kubelet-api.sock
      kubelet_go stub /tmp/kubelet example.com/thing </dev/null 2>/tmp/kubelet/stub.log &
      until_true is_connected
      ;;
    3) until_true grep -q GO_DEVICES=a /tmp/kubelet/logs/default_try-box/shell.log ;;
  esac
}
X
  commands_of crates/petiole-kubelet/README.md kubelet_go block_ends >>"$SUITE/document.sh"
  local said
  said=$(cluster on edge bash "$SUITE/document.sh" 2>&1) || fail "$said"
  for line in '^example.com/thing *DevicePlugin *Connected *2 *0 *0' '^box *example.com/thing *2 *2' \
    '^default *try-box *1/1 *Running *0 .* a ' 'health: Healthy' '^GO_DEVICES=a$' '"name":"example.com/thing"'; do
    grep -q "$line" <<<"$said" || fail "the commands did not print $line: $said"
  done
}

show() {
  get plugins | jq -c '.[]'
  get node | jq -c .status
  get pods | jq -c '.items[] | [.metadata.name, .status]'
  find "$ROOT" -type s -o -name '*checkpoint*'
  for log in "$SUITE"/log/* "$ROOT"/logs/*/*; do
    echo "--- $log"
    tail -n 20 "$log"
  done
}
