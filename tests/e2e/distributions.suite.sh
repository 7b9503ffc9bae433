# Nodes that are not as kubeadm makes them, as far as a namespace can stand for them: node-1 has a root of which only /var and /run can be
# written, and CDI files in /var/cdi, as Talos; node-2 has containerd's socket where k3s has it; node-3 the kubelet's root folder of MicroK8s.
# Each test installs the agent on its node alone, with the values that the chart's page names for it.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  export CLUSTER_KINDS="read-only k3s microk8s"
  up_with_images 3
  install --set 'agent.nodeSelector.kubernetes\.io/hostname=node-1'
}

agent_on() { # NODE [ARGS… of helm upgrade]
  local node=$1
  shift
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set "agent.nodeSelector.kubernetes\.io/hostname=$node" "$@" \
    --wait --timeout 90s >/dev/null
  agents_are_ready
}

cdi_block() { # NAME: a Configuration of the devices that CDI files describe
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec: {discoveryHandler: {name: cdi, discoveryDetails: "kind: pflex.io/block"}, capacity: 1, gracePeriodSeconds: 5}
X
}

has_device_node() { # POD PATH
  kubectl exec "$1" -- stat "$2"
}

slots_are_free() { # CONFIGURATION
  kubectl get instances.akri.sh -o json | jq -e --arg c "$1" '[.items[] | select(.spec.configurationName == $c) | .spec.deviceUsage // {} | .[] | select(. != "")] == []'
}

test_a_node_whose_root_cannot_be_written_offers_devices_of_udev_and_of_cdi_files() {
  clean
  (cluster on node-1 sh -c '! mkdir /etc/cdi && ! touch /usr/here && ! mkdir /opt/here') 2>/dev/null || fail "the root can be written"
  # What udev has noted of a device that comes a moment later.
  (cluster on node-1 sh -c 'mkdir -p /run/udev/data && echo E:ID_MODEL=leaf >/run/udev/data/n4242')
  agent_on node-1 --set cdi.enabled=true --set 'cdi.kinds={pflex.io/block}' --set cdi.write=true \
    --set cdi.staticDir=/var/cdi/static --set cdi.dynamicDir=/var/cdi/dynamic \
    --set udev.enabled=true --set 'udev.subsystems={net}' --set 'paths.allow={/dev/fuse,/dev/net/tun}'
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: leaf}
spec: {discoveryHandler: {name: udev, discoveryDetails: "udevRules: ['ENV{ID_MODEL}==\"leaf\"']"}, capacity: 1, gracePeriodSeconds: 5}
X
  (cluster on node-1 ip link add leaf0 index 4242 type veth peer name other0)
  within 10 "udev's device is allocatable" node_holds node-1 allocatable leaf 1
  describe_devices "$CLUSTER_DIR/node-1/var/cdi/static" pflex1
  cdi_block block
  within 10 "the device of the CDI file is allocatable" node_holds node-1 allocatable block 1
  pod user node-1 leaf block
  within 30 "a Pod with both runs" is_running user
  has_device_node user /dev/pflex1 >/dev/null || fail "containerd has not read the CDI file in /var/cdi/static"
  (cluster on node-1 ip link del leaf0)
  within 5 "without the interface nothing is allocatable" node_holds node-1 allocatable leaf 0
  has_a_node_with_a_mode
}

# The agent writes a CDI file, and containerd reads it.
has_a_node_with_a_mode() {
  local path
  for path in /dev/fuse /dev/net/tun; do [ ! -e $path ] || break; done
  if [ ! -e $path ]; then
    note "this machine has neither /dev/fuse nor /dev/net/tun"
    return
  fi
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: mode}
spec: {discoveryHandler: {name: paths, discoveryDetails: "groups: [$path]"}, capacity: 1, containerDevices: {path: /dev/leaf, mode: "0666"}}
X
  within 10 "the device node is allocatable" node_holds node-1 allocatable mode 1
  pod writer node-1 mode
  within 30 "its Pod runs" is_running writer
  equal "the mode" 666 "$(kubectl exec writer -- stat -c %a /dev/leaf)"
  ls "$CLUSTER_DIR"/node-1/var/cdi/dynamic/petiole-*.json >/dev/null || fail "there is no CDI file in /var/cdi/dynamic"
}

test_a_node_with_containerd_of_k3s_offers_devices_of_cdi_files() {
  clean
  (cluster on node-2 test ! -e /run/containerd/containerd.sock) || fail "containerd's socket is where kubeadm has it"
  agent_on node-2 --set kubelet.distribution=k3s --set cdi.enabled=true --set 'cdi.kinds={pflex.io/block}'
  describe_devices "$CLUSTER_DIR/node-2/etc/cdi" pflex2
  cdi_block block
  within 10 "the device is allocatable" node_holds node-2 allocatable block 1
  pod user node-2 block
  within 30 "a Pod runs" is_running user
  has_device_node user /dev/pflex2 >/dev/null || fail "the container has no /dev/pflex2"
}

# Slots are free again: the agent reads the kubelet's pod resources, which are in its root folder.
test_a_node_with_the_kubelets_folders_of_microk8s_gives_slots_out_and_back() {
  clean
  agent_on node-3 --set kubelet.distribution=microk8s
  echoes snap 1
  within 10 "the device is allocatable" node_holds node-3 allocatable snap 1
  pod user node-3 snap
  within 30 "a Pod runs" is_running user
  kubectl delete pod user --now >/dev/null
  within 30 "its slot is free again" slots_are_free snap
  pod next node-3 snap
  within 30 "the next one runs" is_running next
}
