# From other device plugins to Petiole with Pods running, on a cluster of two nodes: docs/migrate-from-device-plugins.md. Go's own stub
# of a plugin stands for the one before, with the same resource and device node. GENERIC_DEVICE_PLUGIN and SMARTER_DEVICE_MANAGER
# name those programs themselves, where somebody has built them.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  [ -e /dev/net/tun ] || { echo "this machine has no /dev/net/tun" && exit 77; }
  CGO_ENABLED=0 GOFLAGS=-buildvcs=false build_module kubelet_go
  up_with_images
  install
}

# The DaemonSet of a plugin on node-1.
plugin_manifest() { # NAME MORE, as YAML flow of its one container
  cat <<X
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: $1, namespace: kube-system}
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/hostname: node-1}
      volumes: [{name: config, configMap: {name: $1}}]
      containers: [{name: plugin, image: "example.com/$1", $2}]
X
}

holds() { # NODE RESOURCE AMOUNT
  [ "$(kubectl get node "$1" -o json | jq -r --arg r "$2" '.status.allocatable[$r] // "0"')" = "$3" ]
}

# The spec is the same before and after.
user() { # NAME RESOURCE
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, 'exec 3<>/dev/net/tun && echo "opened, \${AKRI_SLOT:-another plugin}"; exec sleep 2147483647']
      resources: {limits: {$2: 1}}
X
}

has_container() { # POD ID
  [ "$(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].containerID}')" = "$2" ] && is_running "$1"
}

has_problem() { # CONFIGURATION REASON
  kubectl get configuration "$1" -o json | matches -F "$2"
}

# moves RESOURCE CONFIGURATION: the plugin `before` offers two on node-1, and $SUITE/plugin.yaml is what it was installed with.
moves() {
  local container began
  local -a values
  within 20 "the plugin before offers $1" holds node-1 "$1" 2
  user before "$1"
  within 30 "its Pod runs" logs_have before "opened, another plugin"
  container=$(kubectl get pod before -o 'jsonpath={.status.containerStatuses[0].containerID}')
  "$PETIOLE" convert -f "$SUITE/plugin.yaml" >"$SUITE/converted.yaml" 2>"$SUITE/said" || fail "$(cat "$SUITE/said")"
  mapfile -t values < <(sed -n "s/^  --set '\(.*\)'$/--set\n\1/p" "$SUITE/said")
  [ ${#values[@]} -ge 4 ] || fail "it says no values: $(cat "$SUITE/said")"
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" "${values[@]}" --wait --timeout 90s >/dev/null
  agents_are_ready
  kubectl apply -f "$SUITE/converted.yaml" >/dev/null
  within 10 "Petiole waits for the plugin to end" has_problem "$2" ResourceTaken
  for_all_of 3 "the plugin has its resource" holds node-1 "$1" 2
  began=$EPOCHREALTIME
  stop before
  within 25 "the kubelet has noticed" holds node-1 "$1" 0
  within 60 "Petiole offers $1" holds node-1 "$1" 2
  note "the plugin has ended -> Petiole offers $1: $(since "$began") s"
  has_container before "$container" || fail "the Pod from before does not run on"
  user after "$1"
  within 30 "a new Pod has it from Petiole" logs_have after "opened, $2-"
  holds node-2 "$1" 0 || fail "node-2, where the plugin did not run, offers it"
  # The device of a Pod from before is unknown to Petiole.
  cluster on node-1 ctr -n k8s.io tasks kill --signal SIGKILL "${container#containerd://}"
  within 30 "its container is not started again" has_event "$2" StartRefused
  kubectl delete pods before after --now >/dev/null
}

test_a_generic_device_plugin_is_replaced_under_its_pods() {
  clean
  local device='{"name": "tun", "groups": [{"count": 2, "paths": [{"path": "/dev/net/tun"}]}]}'
  plugin_manifest generic-device-plugin "args: [--device, '$device']" >"$SUITE/plugin.yaml"
  if [ -n "${GENERIC_DEVICE_PLUGIN:-}" ]; then
    begin before node-1 "$GENERIC_DEVICE_PLUGIN" --listen 127.0.0.1:18080 --device "$device"
  else
    begin before node-1 kubelet_go stub /var/lib/kubelet squat.ai/tun /dev/net/tun
  fi
  moves squat.ai/tun tun
}

test_a_smarter_device_manager_is_replaced_under_its_pods() {
  clean
  printf '%s\n' '- devicematch: ^net/tun$' '  nummaxdevices: 2' >"$SUITE/conf.yaml"
  {
    plugin_manifest smarter-device-manager "args: []"
    echo ---
    kubectl create configmap smarter-device-manager --from-file "$SUITE/conf.yaml" --dry-run=client -o yaml
  } >"$SUITE/plugin.yaml"
  if [ -n "${SMARTER_DEVICE_MANAGER:-}" ]; then
    begin before node-1 "$SMARTER_DEVICE_MANAGER" -logtostderr -config "$SUITE/conf.yaml"
  else
    begin before node-1 kubelet_go stub /var/lib/kubelet smarter-devices/net_tun /dev/net/tun
  fi
  moves smarter-devices/net_tun net-tun
}

test_what_has_no_counterpart_is_said_and_is_an_error() {
  local a='{"name": "a", "groups": [{"paths": [{"path": "/dev/a"}]}]}' b='{"name": "b", "groups": [{"paths": [{"path": "/b", "type": "Mount"}]}]}'
  if "$PETIOLE" convert -- --device "$a" --device="$b" --domain x.io >"$SUITE/converted.yaml" 2>"$SUITE/said"; then
    fail "it ends with 0"
  fi
  matches '^not converted: the arguments: device "b": path /b: its type is Mount' "$SUITE/said" || fail "$(cat "$SUITE/said")"
  equal "what is converted" "  resourceName: x.io/a" "$(grep resourceName "$SUITE/converted.yaml")"
}
