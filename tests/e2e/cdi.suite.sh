# The standalone agent, the kubelet of a real Kubernetes and containerd: devices of CDI files become a resource by its own
# name, and containerd puts into a container what the file says.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

NODE=$CLUSTER_DIR/node-1
STATE=$NODE/var/lib/akri
PLUGINS=$NODE/var/lib/kubelet/device-plugins
CONFIGURATIONS=$NODE/var/lib/akri-configurations
CDI=$NODE/etc/cdi

set_up() {
  cluster up 1
  mkdir -p "$CONFIGURATIONS"
  load_busybox localhost/busybox:1
}

# An agent without a past, three devices in a CDI file, no Pod.
fresh() {
  kubectl delete pods --all --now --wait --timeout=60s >/dev/null
  stop_all
  rm -rf "${STATE:?}"/* "${CONFIGURATIONS:?}"/* "${CDI:?}"/*
  describe_devices "$CDI" pflex1 pflex2 pflex3
  configure block pflex.io/block
  begin agent node-1 "$PETIOLE" agent --standalone --node-name node-1 --resource-prefixes akri.sh,pflex.io \
    --configurations "$CONFIGURATIONS" --state /var/lib/akri --kubelet-dir /var/lib/kubelet
}

configure() { # NAME RESOURCE
  cat >"$CONFIGURATIONS/$1.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec:
  discoveryHandler: {name: cdi, discoveryDetails: "kind: pflex.io/block"}
  resourceName: $2
  gracePeriodSeconds: 3
X
}

node_holds() { # capacity|allocatable RESOURCE AMOUNT; nothing counts as 0
  local amount
  amount=$(kubectl get node node-1 -o json | jq -r --arg r "$2" ".status.$1[\$r] // \"0\"")
  [ "$amount" = "$3" ]
}

run_pod() { # NAME RESOURCE
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
    - name: user
      image: localhost/busybox:1
      imagePullPolicy: Never
      command: [/bin/sh, -c, "env | sort; ls /dev; exec sleep 2147483647"]
      resources: {limits: {$2: 1}}
X
}

is_running() {
  [ "$(kubectl get pod "$1" -o 'jsonpath={.status.phase}')" = Running ]
}

value_of() { # POD VARIABLE
  kubectl logs "$1" | sed -n "s/^$2=//p" | grep .
}

# Of the devices of the file, the Pod has this one alone.
has_device_node() { # POD NAME
  [ "$(kubectl logs "$1" | grep '^pflex')" = "$2" ]
}

status_says() { # TEXT
  grep -rqF "$1" "$STATE/configurations"
}

test_devices_of_a_file_are_a_resource_and_containerd_puts_them_in() {
  fresh
  local device
  within 20 "the node has pflex.io/block: 3" node_holds allocatable pflex.io/block 3
  note "agent started -> pflex.io/block: 3 (the kubelet's own tick, at most 10.5 s): $TOOK s"
  node_holds capacity pflex.io/block 3 || fail "capacity is not 3"
  node_holds capacity akri.sh/block 0 || fail "it is offered by its default name too"
  run_pod user pflex.io/block
  within 20 "the Pod runs" is_running user
  note "Pod created -> Running: $TOOK s"
  within 5 "it was told its device by the file" value_of user PFLEX_DEVICE
  device=$(value_of user PFLEX_DEVICE)
  equal "the device it was told by the agent" "pflex.io/block=$device" "$(value_of user CDI_DEVICE)"
  within 5 "a device node of that name is there" has_device_node user "$device"
  equal "the kind of /dev/$device" "character special file" "$(kubectl exec user -- stat -c %F "/dev/$device")"
  kubectl exec user -- sh -c "echo x >/dev/$device" || fail "/dev/$device cannot be written"
  note "in the container: PFLEX_DEVICE=$device, /dev/$device"
}

test_a_device_that_is_described_no_more_is_offered_no_more() {
  fresh
  within 20 "the node has pflex.io/block: 3" node_holds allocatable pflex.io/block 3
  describe_devices "$CDI" pflex1 pflex2
  within 20 "two are left" node_holds allocatable pflex.io/block 2
  note "file changed -> allocatable 2 (the kubelet's tick): $TOOK s"
  printf 'kind: [' >"$CDI/bad.yaml"
  within 5 "a file that cannot be read is named" status_says /etc/cdi/bad.yaml
  node_holds allocatable pflex.io/block 2 || fail "the others went with it"
}

test_a_name_that_another_plugin_has_is_refused() {
  fresh
  within 20 "the node has pflex.io/block: 3" node_holds allocatable pflex.io/block 3
  # Another agent, of other Configurations, is another plugin to this one.
  mkdir -p "$NODE/var/lib/akri/other"
  cp "$CONFIGURATIONS/block.yaml" "$NODE/var/lib/akri/other/rival.yaml"
  sed -i 's/name: block/name: rival/' "$NODE/var/lib/akri/other/rival.yaml"
  begin rival node-1 "$PETIOLE" agent --standalone --node-name node-1 --resource-prefixes akri.sh,pflex.io \
    --configurations /var/lib/akri/other --state /var/lib/akri/rival --kubelet-dir /var/lib/kubelet
  within 10 "it is refused" grep -rq ResourceTaken "$STATE/rival"
  for_all_of 5 "the first goes on" node_holds allocatable pflex.io/block 3
  stop agent
  rm "$CONFIGURATIONS/block.yaml"
  # A plugin that is gone for half a minute does not come back.
  within 60 "the name is free, and the other takes it" is_of rival
  note "plugin gone -> the other has its name: $TOOK s"
}

# ---- containerDevices: disks of this machine, each a file that is attached to a loop device ----

# The loop devices that a test has made, to be detached whatever happens: they are this machine's.
MADE=$SUITE/made

attach() { # leaves the device node in LOOP
  local disk
  disk=$(mktemp -p "$SUITE" disk-XXXXXX)
  truncate -s 1M "$disk"
  LOOP=$(losetup --find --show "$disk")
  echo "$LOOP" >>"$MADE"
}

detach_all() {
  local device
  [ -e "$MADE" ] || return 0
  while read -r device; do losetup --detach "$device" || true; done <"$MADE"
  rm -f "$MADE"
}

# An agent without a past that may write CDI files.
fresh_disks() { # CONTAINER-DEVICES: a YAML value
  kubectl delete pods --all --now --wait --timeout=60s >/dev/null
  stop_all
  detach_all
  rm -rf "${STATE:?}"/* "${CONFIGURATIONS:?}"/* "${CDI:?}"/*
  configure_disks "$1"
  begin agent node-1 "$PETIOLE" agent --standalone --node-name node-1 --cdi-folder /var/run/cdi \
    --configurations "$CONFIGURATIONS" --state /var/lib/akri --kubelet-dir /var/lib/kubelet
}

configure_disks() {
  cat >"$CONFIGURATIONS/disks.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: disks}
spec:
  discoveryHandler:
    name: udev
    discoveryDetails: |
      udevRules: ['SUBSYSTEM=="block", ATTR{loop/backing_file}=="$SUITE/disk-*"']
      permissions: rw
  containerDevices: $1
X
}

# A program that is not root, has no capabilities and cannot write its root. It ends at SIGTERM.
run_program() { # NAME AMOUNT
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Always
  securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000}
  containers:
    - name: user
      image: localhost/busybox:1
      imagePullPolicy: Never
      command: [/bin/sh, -c, 'trap "exit 1" TERM; while :; do sleep 0.2; done']
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {limits: {akri.sh/disks: $2}}
X
}

is_refused_for() { # POD TEXT
  kubectl get pod "$1" -o 'jsonpath={.status.message}' | matches -F "$2"
}

opens() { # POD PATH: read and write
  equal "the rights of $2" "660 1000 1000" "$(kubectl exec "$1" -- stat -c '%a %u %g' "$2")"
  kubectl exec "$1" -- sh -c "exec 3<>$2 && echo petiole >&3" || fail "$2 cannot be opened to read and write"
  equal "what $2 has" petiole "$(kubectl exec "$1" -- busybox head -c 7 "$2")"
}

has_started_again() { # POD
  kubectl get pod "$1" -o json | jq -e '.status.containerStatuses[0] | .restartCount > 0 and .ready'
}

test_a_program_without_root_opens_its_device_by_its_own_name_and_by_the_wished_one() {
  fresh_disks "{path: /dev/disk, mode: '0660'}"
  attach
  within 20 "the node has akri.sh/disks: 1" node_holds allocatable akri.sh/disks 1
  run_program user 1
  within 20 "the Pod runs" is_running user
  note "Pod created -> Running: $TOOK s"
  equal "its capabilities" 0000000000000000 "$(kubectl exec user -- cat /proc/1/status | sed -n 's/^CapEff:[[:space:]]*//p')"
  ! kubectl exec user -- sh -c ': >/file' 2>/dev/null || fail "its root can be written"
  opens user "$LOOP"
  opens user /dev/disk
  # As after a start of the machine: the folder is empty, and the same container starts again.
  (cluster on node-1 sh -c 'rm /run/cdi/petiole-disks-*.json') || fail "there was no CDI file"
  kubectl exec user -- kill 1
  within 30 "the container has started again" has_started_again user
  opens user /dev/disk
  kubectl delete pods --all --now --wait --timeout=60s >/dev/null
  detach_all
}

test_two_devices_at_one_path_are_refused_and_a_folder_has_both() {
  local first second device
  fresh_disks "{path: /dev/disk}"
  attach && first=$LOOP
  attach && second=$LOOP
  within 20 "the node has akri.sh/disks: 2" node_holds allocatable akri.sh/disks 2
  run_program both 2
  within 20 "it is refused, with the path" is_refused_for both "the container would have two devices at /dev/disk"
  for device in "$first" "$second"; do
    is_refused_for both "$device of Instance disks-" || fail "$device is not named: $(kubectl get pod both -o json | jq .status)"
  done
  # Were a slot held, it would not be free within this time.
  configure_disks "{path: /dev/disks/, uid: 1000, gid: 1000}"
  within 10 "the agent goes by it" folder_is_given
  kubectl exec folder -- ls /dev/disks >"$SUITE/listed"
  equal "what is in the folder" "$(basename -a "$first" "$second" | sort)" "$(sort "$SUITE/listed")"
  for device in "$first" "$second"; do
    opens folder "$device"
    opens folder "/dev/disks/$(basename "$device")"
  done
  kubectl delete pods --all --now --wait --timeout=60s >/dev/null
  detach_all
}

# A Pod that came before the agent had read the Configuration was refused for good.
folder_is_given() {
  ! is_running folder || return 0
  kubectl delete pod folder --now --wait --timeout=20s --ignore-not-found
  run_program folder 2
  kubectl wait pod folder --for=condition=Ready --timeout=5s
}

is_of() { # CONFIGURATION: whose slots pflex.io/block has
  jq -e --arg c "$1-" '.Data.RegisteredDevices["pflex.io/block"] | length == 3 and all(startswith($c))' \
    "$PLUGINS/kubelet_internal_checkpoint"
}

show() {
  detach_all
  kubectl get nodes,pods -o wide
  kubectl get node node-1 -o json | jq -c '.status.capacity, .status.allocatable'
  kubectl describe pods | tail -n 30
  ls -l "$PLUGINS" "$CONFIGURATIONS" "$CDI"
  tail -n +1 "$STATE"/configurations/* "$STATE"/*.error 2>/dev/null
  echo "--- agent"
  tail -n 40 "$SUITE/log/agent"
  echo "--- rival"
  tail -n 40 "$SUITE/log/rival"
  echo "--- kubelet"
  grep -iE 'plugin|device|pflex|cdi' "$CLUSTER_DIR/log/node-1-kubelet.log" | tail -n 30
}
