# Installing over Akri, upgrading, and taking all of it away.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  cluster avahi camera
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
}

test_waiting_for_tidy_leaves_no_entry_either() {
  install --set uninstall.waitForTidy=true
  echoes tidy 2
  within 10 "two Instances" has_instances tidy 2
  within 10 "node-1 offers them" node_holds node-1 allocatable tidy 2
  local began=$EPOCHREALTIME
  helm uninstall petiole --wait --timeout 10m >/dev/null
  note "helm uninstall that waits for tidying: $(since "$began") s"
  is_empty entries || fail "entries are left: $(entries)"
}
