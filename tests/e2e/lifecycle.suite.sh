# docs/cluster.md as it is written, installing over Akri, upgrading, and taking all of it away.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  cluster avahi camera
}

# The commands of docs/cluster.md, as they are written, in one shell at the root of the repository. `helm` and
# `kubectl` stand for those on a machine beside the nodes, `avahi-publish` for the camera's.
test_the_page_as_it_is_written() {
  local line n
  commands_of docs/cluster.md lifecycle >"$SUITE/page"
  for line in "helm install" "kubectl get instances" "kill %4" "helm uninstall"; do
    grep -q "^$line" "$SUITE/page" || fail "docs/cluster.md has no $line: $(cat "$SUITE/page")"
  done
  {
    # shellcheck disable=SC2016 # expanded by the reader's shell
    echo '. "$E2E/lib.sh"; . "$E2E/lifecycle.suite.sh"; become_the_reader'
    while IFS= read -r line; do printf 'look_before %q\n%s\n' "$line" "$line"; done <"$SUITE/page"
  } >"$SUITE/reader"
  (cd "$E2E/../.." && bash -euo pipefail "$SUITE/reader") >"$SUITE/said" 2>&1 || fail "$(cat "$SUITE/said")"
  was_said 2 '^NAME +CONFIG +SHARED +NODES +AVAILABLE +DEVICE +AGE$' # of both looks
  was_said 4 '^zeroconf-http-[0-9a-f]{6} +zeroconf-http +true +\["node-[12]","node-[12]"\] +page-[1-4]\._http\._tcp\.local\. +[0-9]+s$'
  for n in 1 2 3 4; do was_said 1 "^\\[pod/[^ ]*\\] AKRI_ZEROCONF_DEVICE_PATH=/$n\$"; done
  # The one slot of each: Capacity of both nodes, and Allocatable of the one that has it.
  was_said 12 '^ +akri.sh/zeroconf-http-[0-9a-f]{6}: +1$'
  grep -Eq ' DeviceGone +instance/zeroconf-http-' "$SUITE/said" || fail "no DeviceGone: $(cat "$SUITE/said")"
  within 60 "no Pod is left" is_empty kubectl get pods -A -o name
  # What comes next finds a cluster without our definitions.
  kubectl delete crd configurations.akri.sh instances.akri.sh >/dev/null
}

was_said() { # TIMES LINE
  equal "the number of lines '$2'" "$1" "$(grep -cE -- "$2" "$SUITE/said" || true)"
}

# shellcheck disable=SC2317 # called by the page's commands
become_the_reader() {
  helm() {
    # shellcheck disable=SC2016 # expanded on the machine
    cluster on control sh -c 'cd "$0" && exec helm "$@"' "$PWD" "$@"
  }
  avahi-publish() { # in the background
    exec cluster on camera avahi-publish "$@" >>"$SUITE/log/pages" 2>&1
  }
  trap end_jobs EXIT
  set -m # as at a terminal
}

# shellcheck disable=SC2317 # called by trap
end_jobs() {
  local job
  for job in $(jobs -p); do kill -- "-$job" || true; done
}

# What a person waits for before the next command makes sense.
look_before() { # COMMAND
  echo "\$ $1"
  case $1 in
    # Agents may have to start first.
    "for n in 1 2 3 4; do avahi-publish "*) within 20 "both agents report before there is a Configuration" has_reports 2 ;;
    "kubectl get instances "*) within 20 "four Instances of two nodes" pages_are_seen ;;
    "kubectl get pods "*) within 30 "four brokers run" has_brokers zeroconf-http 4 ;;
    "kubectl logs "*) within 5 "each says its service" pages_are_told ;;
    "kubectl describe node "*) within 5 "each is offered where it is used" pages_are_offered ;;
    "kubectl get instances,"*) within 5 "one is gone" one_page_is_gone ;;
    "helm uninstall "*) within 45 "all of it is gone" is_clean ;; # its brokers do not heed SIGTERM: 30 s
  esac
}

has_reports() { # COUNT
  [ "$(kubectl get nodedevices.akri.sh -o name | wc -l)" = "$1" ]
}

pages_are_seen() {
  kubectl get instances.akri.sh -o json | jq -e '[.items[].spec.nodes | length] == [2, 2, 2, 2]'
}

pages_are_told() {
  [ "$(kubectl logs -l akri.sh/configuration=zeroconf-http | grep -c DEVICE_NAME=page-)" = 4 ]
}

pages_are_offered() {
  kubectl get nodes -o json | jq -e '[.items[].status.allocatable | to_entries[] | select((.key | startswith("akri.sh/zeroconf-http-")) and .value == "1")] | length == 4'
}

one_page_is_gone() {
  kubectl get instances.akri.sh -o json | jq -e '[.items[] | select(any(.status.nodes[]?; .health == "Unhealthy"))] | length == 1' &&
    kubectl get events -o json | jq -e 'any(.items[]; .reason == "DeviceGone")'
}

# What a cluster has whose Akri 0.13 was taken away without its objects: CRDs, a Configuration, Instances with a
# finalizer for each node, slots written out, `C:n:node`.
test_what_akri_left_is_adopted() {
  kubectl apply -f "$E2E/akri_0_13/crds.yaml" >/dev/null
  within 10 "Akri's CRDs serve" kubectl get instances.akri.sh
  kubectl apply -f "$E2E/akri_0_13/configuration.yaml" >/dev/null
  local configuration uid
  configuration=$(kubectl get configuration akri-debug-echo -o 'jsonpath={.metadata.uid}')
  sed "s/UID-OF-CONFIGURATION/$configuration/" "$E2E/akri_0_13/instances.yaml" | kubectl create -f - >/dev/null
  uid=$(uids)
  # As docs/migrate-from-akri.md says: the CRDs first, because Helm leaves those that are there alone.
  kubectl apply --server-side --force-conflicts -f "$CHART/crds/" >/dev/null
  install --skip-crds
  within 15 "the Configuration works" is_ready_as akri-debug-echo "True Working"
  equal "the Instances" "$uid" "$(uids)"
  # One slot is noted as held, `C:0:node-1`, and no container has it.
  within 40 "node-1 offers both, and no third by a slot that nobody holds" node_holds node-1 allocatable akri-debug-echo 2
  within 10 "Akri's finalizers are gone" no_finalizer
  kubectl delete configuration akri-debug-echo --timeout=20s >/dev/null
  within 10 "all of it is gone" is_clean
}

no_finalizer() {
  is_empty finalizers
}

finalizers() {
  kubectl get "$AKRI" -A -o json | jq -r '.items[].metadata.finalizers[]?'
}

test_an_upgrade_is_not_felt() {
  announce camera cam-1 _rtsp._tcp 554
  configure cams "kind: _rtsp._tcp" "gracePeriodSeconds: 60, $BROKER"
  within 10 "an Instance" has_instances cams 1
  within 30 "its broker runs" has_brokers cams 1
  local before
  before=$(containers)
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set agent.maxInstances=4000 --wait --timeout 90s >/dev/null
  agents_are_ready
  equal "brokers and their containers" "$before" "$(containers)"
  helm test petiole --timeout 60s >/dev/null || fail "helm test: $(helm test petiole --logs 2>&1 | tail -n 5)"
}

# Of each process, and of the sandbox of its Pod: what is resident, and its share of the pages that processes have in common.
memory_of_petiole() { # NODE
  local command process
  for command in agent handler; do
    process=$(processes "$1" "$command")
    [ -n "$process" ] || continue
    # shellcheck disable=SC2016 # expanded on the node
    cluster on "$1" sh -c 'shim=$(sed -n "s/^PPid:[^0-9]*//p" /proc/$1/status)
      rest=$(cat /proc/$shim/task/*/children | tr " " "\n" | grep . | grep -vx "$1" | sed "s,.*,/proc/&/smaps_rollup,")
      cat /proc/$1/smaps_rollup | awk -v c=$0 "/^(Rss|Pss):/ { printf \"%s %s %.1f MB \", c, \$1, \$2 * 1024 / 1e6 }"
      cat /proc/$shim/smaps_rollup $rest | awk "/^Pss:/ { n += \$2 } END { printf \"its sandbox %.1f MB \", n * 1024 / 1e6 }"' "$command" "$process"
  done
}

# The agents leave the nodes' network, and what reads the LAN's packets has no rights. Brokers do not notice, there and back.
test_discovery_is_isolated_and_brokers_do_not_notice() {
  local before network
  announce camera cam-1 _rtsp._tcp 554
  configure cams "kind: _rtsp._tcp" "gracePeriodSeconds: 60, $BROKER"
  within 30 "its broker runs" has_brokers cams 1
  before=$(containers)
  note "memory on node-1, built in: $(memory_of_petiole node-1)"
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set isolateDiscovery=true --wait --timeout 90s >/dev/null
  agents_are_ready
  kubectl -n petiole rollout status daemonset/petiole-discovery --timeout=60s >/dev/null
  network=$(kubectl -n petiole get pods -o json | jq -c '[.items[] | select(.spec.hostNetwork)
    | .metadata.labels["app.kubernetes.io/component"]] | unique')
  equal "the Pods on the nodes' network" '["discovery"]' "$network"
  announce camera cam-2 _rtsp._tcp 555
  within 30 "a new camera has a broker" has_brokers cams 2
  note "announced -> broker runs: $TOOK s"
  goodbye cam-2
  within 10 "it is unhealthy" is_unhealthy_on "$(instance_of cam-2)" node-1
  note "memory on node-1, isolated: $(memory_of_petiole node-1)"
  kubectl -n petiole delete pods -l app.kubernetes.io/component=discovery --now >/dev/null
  kubectl -n petiole rollout status daemonset/petiole-discovery --timeout=60s >/dev/null
  announce camera cam-3 _rtsp._tcp 556
  within 30 "the next process finds cam-3" instance_of cam-3
  helm test petiole --timeout 60s >/dev/null || fail "helm test: $(helm test petiole --logs 2>&1 | tail -n 5)"
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --wait --timeout 90s >/dev/null
  agents_are_ready
  announce camera cam-4 _rtsp._tcp 557
  within 30 "the agents find cam-4" instance_of cam-4
  containers | matches -xF "$before" || fail "the broker of cam-1 is another: $(containers), was $before"
}

# The example, and what it asks of the chart: folders that agents see, and a prefix that their policy lets them publish.
test_devices_of_cdi_files_are_a_resource_by_its_own_name() {
  local device
  describe_devices "$CLUSTER_DIR/node-1/etc/cdi" pflex1 pflex2 pflex3
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set cdi.enabled=true --set 'cdi.kinds={pflex.io/block}' \
    --set 'resourcePrefixes={akri.sh,pflex.io}' \
    --wait --timeout 90s >/dev/null
  agents_are_ready
  # Without its brokers, which take the devices by their Instances' names at once.
  sed '/^  brokerSpec:/,$d' "$EXAMPLES/cdi-block.yaml" | kubectl apply -f - >/dev/null
  within 10 "node-1 has pflex.io/block: 3" has_blocks node-1 3
  note "applied -> pflex.io/block: 3: $TOOK s"
  has_blocks node-2 3 && fail "node-2 has them too"
  kubectl apply -f "$EXAMPLES/cdi-block.yaml" >/dev/null
  within 30 "each has its broker" has_brokers cdi-block 3
  tidy --dry-run --resource-prefixes pflex.io >"$SUITE/dry"
  ! grep pflex.io/block "$SUITE/dry" || fail "tidy takes what is in use"
  for device in pflex1 pflex2 pflex3; do
    within 5 "a broker has /dev/$device" a_broker_has "$device"
  done
  kubectl delete configuration cdi-block >/dev/null
  # They do not heed SIGTERM.
  within 60 "its brokers are gone" is_empty kubectl get pods -l akri.sh/configuration=cdi-block -o name
}

has_blocks() { # NODE AMOUNT
  kubectl get node "$1" -o json | jq -e --arg n "$2" '.status.capacity["pflex.io/block"] == $n'
}

a_broker_has() { # DEVICE: it was told so, and the node is in /dev
  local pod
  for pod in $(brokers cdi-block); do
    logs_have "$pod" "I have pflex.io/block=$1" && kubectl exec "$pod" -- stat "/dev/$1" && return
  done
  return 1
}

test_uninstalling_leaves_nothing() {
  # After the upgrade's: a Configuration, an Instance and a broker are there.
  local began=$EPOCHREALTIME
  helm uninstall petiole --wait --timeout 90s >/dev/null
  note "helm uninstall: $(since "$began") s"
  within 10 "no Configuration, Instance or broker" is_clean
  no_finalizer || fail "a finalizer is left"
  equal "sockets" "" "$(plugin_sockets node-1)$(plugin_sockets node-2)"
  # Their entries stand for 5 min more, with nobody to offer them; without agents they are tidied by hand.
  kubectl get nodes -o json | jq -e '[.items[].status.allocatable | to_entries[] | select(.key | startswith("akri.sh/")) | .value] | all(. == "0")' >/dev/null ||
    fail "a node still offers: $(kubectl get nodes -o json | jq -c '.items[].status.allocatable')"
  by_hand
}

by_hand() {
  local resource
  entries >"$SUITE/entries"
  [ -s "$SUITE/entries" ] || fail "nothing to tidy"
  tidy --dry-run >"$SUITE/dry"
  equal "entries after a dry run" "$(cat "$SUITE/entries")" "$(entries)"
  tidy --node node-1 >"$SUITE/tidied"
  sed -n 's/^node-1 //p' "$SUITE/entries" >"$SUITE/there"
  while read -r resource; do
    grep -Eq "^node-1 +$resource +[0-9]+ +would be removed" "$SUITE/dry" || fail "not in the dry run: $resource: $(cat "$SUITE/dry")"
    grep -Eq "^node-1 +$resource +[0-9]+ +removed" "$SUITE/tidied" || fail "not tidied: $resource: $(cat "$SUITE/tidied")"
  done <"$SUITE/there"
  ! grep -q ^node-2 "$SUITE/tidied" || fail "another node was tidied: $(cat "$SUITE/tidied")"
}

tidy() {
  cluster on control "$PETIOLE" tidy "$@"
}

test_waiting_for_tidy_leaves_no_entry_either() {
  # A kubelet keeps the entry of a plugin that has stopped for five minutes.
  [ -n "${TIDY_WAITS:-}" ] || { echo "it waits for six minutes: just e2e-long"; exit 77; }
  install --set uninstall.waitForTidy=true --set agent.nodeLabels=true
  echoes tidy 2
  within 10 "two Instances" has_instances tidy 2
  within 10 "node-1 offers them" node_holds node-1 allocatable tidy 2
  within 5 "it has a label" has_label node-1
  local began=$EPOCHREALTIME
  helm uninstall petiole --wait --timeout 10m >/dev/null
  note "helm uninstall that waits for tidying: $(since "$began") s"
  is_empty entries || fail "entries are left: $(entries)"
  ! has_label node-1 || fail "a label is left"
}

has_label() { # NODE
  kubectl get node "$1" -o json | jq -e '.metadata.labels | has("akri.sh/has-tidy")'
}
