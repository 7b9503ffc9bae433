# On whose behalf things are created and deleted: by the chart's objects without Helm, by Helm, by people who may write
# Configurations and little else. And how processes end that are told to.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

NOTHING="nothing is deleted"

set_up() {
  up_with_images
  kubectl create namespace petiole >/dev/null
}

# ---- the chart's objects without Helm ----

# As `helm template` makes them, which is also what GitOps controllers apply.
objects() { # [ARGS…]
  helm template petiole "$CHART" "${CHART_VALUES[@]}" --kube-version 1.37.0 "$@"
}

is_done() { # JOB
  [ "$(kubectl -n petiole get job "$1" -o 'jsonpath={.status.succeeded}')" = 1 ]
}

# The Job of the uninstall hook has run, has said why it did nothing, and everything is there as it was.
nothing_was_deleted() { # WHY
  within 90 "the uninstall Job is done" is_done petiole-uninstall
  kubectl -n petiole logs job/petiole-uninstall >"$SUITE/said"
  grep -qF "$1" "$SUITE/said" || fail "the Job does not say '$1': $(cat "$SUITE/said")"
  grep -qF "$NOTHING" "$SUITE/said" || fail "the Job does not say '$NOTHING': $(cat "$SUITE/said")"
  equal "the Instances" "$KEPT" "$(uids)"
  kubectl get configuration kept -o 'jsonpath={.metadata.deletionTimestamp}' >"$SUITE/deleted"
  [ ! -s "$SUITE/deleted" ] || fail "the Configuration is being deleted"
}

test_objects_that_kubectl_applies_delete_nothing() {
  objects >"$SUITE/objects.yaml"
  kubectl apply --server-side -f "$CHART/crds/" >/dev/null
  kubectl apply -f "$SUITE/objects.yaml" >/dev/null
  agents_are_ready
  echoes kept 2
  within 20 "two Instances" has_instances kept 2
  KEPT=$(uids)
  nothing_was_deleted "Helm has no record of the release petiole in the namespace petiole"
  # Once more, with a Configuration there from the beginning.
  kubectl -n petiole delete job petiole-uninstall --wait >/dev/null
  kubectl apply -f "$SUITE/objects.yaml" >/dev/null
  nothing_was_deleted "Helm has no record"
}

test_objects_of_kustomize_delete_nothing() {
  local folder=$SUITE/kustomize
  mkdir -p "$folder"
  cp "$SUITE/objects.yaml" "$folder/objects.yaml"
  printf '%s\n' "apiVersion: kustomize.config.k8s.io/v1beta1" "kind: Kustomization" "resources: [objects.yaml]" >"$folder/kustomization.yaml"
  KEPT=$(uids)
  kubectl -n petiole delete job petiole-uninstall --wait >/dev/null
  kubectl kustomize "$folder" | kubectl apply -f - >/dev/null
  nothing_was_deleted "Helm has no record"
}

# The same objects put in by Helm, and the hook's by hand.
test_a_job_that_is_run_again_deletes_nothing() {
  KEPT=$(uids)
  kubectl delete -f "$SUITE/objects.yaml" >/dev/null
  install --skip-crds --set cdi.enabled=true
  agents_are_ready
  within 20 "the Instances are taken over" has_instances kept 2
  objects --show-only templates/uninstall.yaml | kubectl apply -f - >/dev/null
  nothing_was_deleted 'says "deployed" (revision 1), not "uninstalling"'
  objects --show-only templates/uninstall.yaml | kubectl delete -f - >/dev/null
}

# ---- people who may write Configurations ----

configuration() { # NAME [FIELDS of spec, as YAML flow]
  cat <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [$1]"}${2:+, $2}}
X
}

# may_not USER MESSAGE ARGS… <STDIN: kubectl ARGS is refused to USER, with MESSAGE.
may_not() {
  local user=$1 message=$2 output
  shift 2
  if output=$(kubectl --as="$user" "$@" 2>&1); then fail "$user may not, but can: $*: $output"; fi
  [[ $output == *"$message"* ]] || fail "$user is refused $* with another reason than '$message': $output"
}

JOB='brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{name: broker, image: "docker.io/library/busybox:stable"}]}}}}'

test_who_may_not_create_pods_makes_no_broker() {
  local verb
  kubectl create rolebinding ann --clusterrole=petiole-edit --user=ann >/dev/null
  kubectl create rolebinding bob --clusterrole=petiole-edit --user=bob >/dev/null
  kubectl create rolebinding bob-edit --clusterrole=edit --user=bob >/dev/null
  within 10 "ann may create Configurations" kubectl --as=ann auth can-i create configurations.akri.sh
  configuration plain | kubectl --as=ann apply -f - >/dev/null || fail "ann may not create a Configuration without a broker"
  configuration broker "$BROKER" | may_not ann "spec.brokerSpec.brokerPodSpec: ann may not create pods in the namespace default" create -f -
  configuration job "$JOB" | may_not ann "spec.brokerSpec.brokerJobSpec: ann may not create jobs in the namespace default" create -f -
  configuration service 'instanceServiceSpec: {ports: [{port: 80}]}' |
    may_not ann "spec.instanceServiceSpec: ann may not create services in the namespace default" create -f -
  configuration services 'configurationServiceSpec: {ports: [{port: 80}]}' |
    may_not ann "spec.configurationServiceSpec: ann may not create services in the namespace default" create -f -
  configuration broker "$BROKER, instanceServiceSpec: {ports: [{port: 80}]}" | kubectl --as=bob create -f - >/dev/null ||
    fail "bob, who may create Pods and Services, may not create a Configuration with them"
  # What stays as it is asks for no right.
  kubectl --as=ann label configuration broker of=ann >/dev/null || fail "ann may not label a Configuration with a broker"
  kubectl --as=ann patch configuration broker --type merge -p '{"spec":{"capacity":2}}' >/dev/null || fail "ann may not change its capacity"
  may_not ann "ann may not create pods" patch configuration broker --type json -p \
    '[{"op":"replace","path":"/spec/brokerSpec/brokerPodSpec/containers/0/image","value":"other"}]'
  may_not ann "ann may not create pods" patch configuration plain --type merge -p '{"spec":{"brokerSpec":{"brokerPodSpec":{"containers":[]}}}}'
  kubectl --as=ann patch configuration broker --type merge -p '{"spec":{"brokerSpec":null}}' >/dev/null || fail "ann may not take the broker away"
  # `edit` alone reads, and `view` does.
  kubectl create rolebinding eve --clusterrole=edit --user=eve >/dev/null
  kubectl create rolebinding vic --clusterrole=view --user=vic >/dev/null
  for verb in get list watch; do
    within 10 "vic may $verb Instances" kubectl --as=vic auth can-i "$verb" instances.akri.sh
    within 10 "eve may $verb Configurations" kubectl --as=eve auth can-i "$verb" configurations.akri.sh
  done
  ! kubectl --as=eve auth can-i create configurations.akri.sh >/dev/null || fail "edit is enough to create Configurations"
  ! kubectl --as=ann auth can-i patch instances.akri.sh >/dev/null || fail "petiole-edit is enough to write Instances"
  kubectl delete configurations plain broker >/dev/null
}

# A Configuration whose handler does not exist: that is what is wrong with it as soon as its value was read.
# Of udev, which reads this property and finds nothing here: without udev.enabled its details are refused.
with_secret() { # NAME [DETAILS]
  echo "{apiVersion: akri.sh/v0, kind: Configuration, metadata: {name: $1}, spec: {discoveryHandler: {name: udev, discoveryDetails: '${2:-}',
    discoveryProperties: [{name: devicePluginResourceName, valueFrom: {secretKeyRef: {name: word, key: word}}}]}}}"
}

test_secrets_are_read_where_the_chart_says_for_who_may_read_them() {
  local agent=system:serviceaccount:petiole:petiole-agent rights=()
  kubectl create secret generic word --from-literal=word=hunter2 >/dev/null
  with_secret secret | may_not ann "ann may not get secrets in the namespace default" create -f -
  with_secret secret | kubectl --as=bob create -f - >/dev/null || fail "bob, who may read Secrets, may not refer to one"
  kubectl --as=ann patch configuration secret --type merge -p '{"spec":{"capacity":2}}' >/dev/null || fail "ann may not change its capacity"
  with_secret secret elsewhere | may_not ann "ann may not get secrets" apply -f -
  within 20 "the agents may not read it" is_ready_as secret "False DiscoveryPropertyUnreadable"
  kubectl get configuration secret -o json | jq -e '.status.conditions[] | select(.type == "Ready") | .message | contains("discoveryProperties.namespaces")' >/dev/null ||
    fail "what to do is not said: $(kubectl get configuration secret -o json | jq -c .status.conditions)"
  rights=(--set discoveryProperties.enabled=true --set "discoveryProperties.namespaces={default}" --show-only templates/discovery-properties.yaml)
  objects "${rights[@]}" | kubectl apply -f - >/dev/null
  within 45 "they read it" is_ready_as secret "False BadDiscoveryDetails"
  note "right granted -> the Secret was read: $TOOK s"
  ! kubectl --as=$agent -n kube-system auth can-i list secrets >/dev/null || fail "agents may read Secrets of kube-system"
  kubectl patch secret word --type merge -p '{"data":{"word":"/w=="}}' >/dev/null
  within 5 "a value that is no text is said" is_ready_as secret "False DiscoveryPropertyUnreadable"
  kubectl patch secret word --type merge -p '{"stringData":{"word":"hunter3"}}' >/dev/null
  within 5 "it is text again" is_ready_as secret "False BadDiscoveryDetails"
  ! kubectl -n petiole logs -l app.kubernetes.io/component=agent --tail=-1 | grep -F hunter || fail "the value is in a log"
  ! kubectl get configurations.akri.sh,instances.akri.sh,nodedevices.akri.sh -o yaml | grep -F hunter || fail "the value is in an object"
  objects "${rights[@]}" | kubectl delete -f - >/dev/null
  kubectl delete configuration/secret secret/word >/dev/null
}

test_variables_that_programs_obey_reach_no_container() {
  echoes obeyed 1 'brokerProperties: {LD_PRELOAD: /evil.so, "PATH=/evil": x, MODE: night}'
  within 20 "its condition says so" is_ready_as obeyed "False VariableRefused"
  within 20 "an Instance" has_instances obeyed 1
  pod obeys - obeyed
  within 30 "a Pod runs" is_running obeys
  within 5 "it has the variable that may be set" logs_have obeys MODE=night
  equal "LD_PRELOAD" "" "$(env_of obeys LD_PRELOAD)"
  ! kubectl logs obeys | grep -F evil || fail "a refused variable reached the container"
  kubectl delete pod obeys --now >/dev/null
  kubectl delete configuration obeyed >/dev/null
}

test_a_kind_of_cdi_device_that_is_not_allowed_is_not_offered() {
  describe_devices "$CLUSTER_DIR/node-1/etc/cdi" pflex1
  sed -e '/^  brokerSpec:/,$d' -e '/^  resourceName:/d' "$EXAMPLES/cdi-block.yaml" | kubectl apply -f - >/dev/null
  within 20 "its condition says so" is_ready_as cdi-block "False BadDiscoveryDetails"
  kubectl get configuration cdi-block -o json | jq -r '.status.nodes[].problems[].message' >"$SUITE/said"
  grep -qF -- "the chart's cdi.kinds" "$SUITE/said" || fail "the value is not named: $(cat "$SUITE/said")"
  has_instances cdi-block 0 || fail "it has Instances"
  kubectl delete configuration cdi-block >/dev/null
}

# ---- how processes end ----

# Its exit code is to be seen only while the kubelet has not removed the Pod.
test_an_agent_that_is_replaced_ends_with_0() {
  begin pods control kubectl -n petiole get pods --selector app.kubernetes.io/component=agent --watch -o json
  kubectl -n petiole rollout restart daemonset/petiole-agent >/dev/null
  agents_are_ready
  within 60 "both have ended" have_ended 2
  stop pods
  equal "exit codes" "0" "$(exit_codes | cut -d' ' -f2 | sort -u)"
}

# A line for each container that has ended: its id and its exit code.
exit_codes() {
  # The last object may be on its way.
  jq -r '.status.containerStatuses[]? | .state.terminated // empty | "\(.containerID) \(.exitCode)"' "$SUITE/log/pods" 2>/dev/null | sort -u || true
}

have_ended() { # NUMBER
  [ "$(exit_codes | wc -l)" -ge "$1" ]
}

# ---- Helm ----

# The hooks of a revision that was rolled back to are of the older revision.
test_helm_deletes_what_is_there_also_after_a_rollback() {
  helm upgrade petiole "$CHART" "${CHART_VALUES[@]}" --set agent.maxInstances=4000 --wait --timeout 90s >/dev/null
  helm rollback petiole 1 --wait --timeout 90s >/dev/null
  agents_are_ready
  within 20 "the Instances are there" has_instances kept 2
  helm uninstall petiole --wait --timeout 90s >/dev/null
  within 10 "no Configuration, Instance or broker" is_clean
  is_empty the_accounts_rights || fail "the hook's account is left: $(the_accounts_rights)"
}

the_accounts_rights() {
  kubectl get clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts -n petiole -o name | grep tidy || true
}
