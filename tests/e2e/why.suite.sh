# `petiole devices`, `why` and `doctor` as kubectl's plugin, on a cluster of two nodes: mistakes that users make, rights that
# they lack, and what is said of each, there and in the status.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  install
  ln -s "$PETIOLE" "$SUITE/kubectl-petiole"
}

plugin() {
  cluster on control "$SUITE/kubectl-petiole" "$@"
}

says() { # TEXT ARGS…
  local text=$1 said
  shift
  said=$(plugin "$@" 2>&1) || true
  grep -qF -- "$text" <<<"$said" || { echo "$said" >"$SUITE/said"; return 1; }
}

asks_for() { # POD RESOURCE
  kubectl apply -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: docker.io/library/busybox:stable
      imagePullPolicy: IfNotPresent
      command: [/bin/sh, -c, exec sleep 2147483647]
      resources: {limits: {"$2": "1"}}
X
}

is_running() { # POD
  [ "$(kubectl get pod "$1" -o json | jq -r .status.phase)" = Running ]
}

test_a_new_installation_is_whole_and_says_that_a_selector_leaves_out_every_node() {
  equal "the Configurations" "" "$(kubectl get configurations.akri.sh -A -o name)"
  within 20 "every check is ok" doctor_finds_no_fault
  configure nowhere 'kind: _http._tcp' 'nodeSelector: {site: none}'
  within 10 "the reason" says 'is not ready (NoNodeSelected)' why nowhere
  says 'warn  1 Configuration not ready (NoNodeSelected): petiole why -n default configuration/nowhere' doctor || fail "doctor counts it: $(cat "$SUITE/said")"
  if plugin doctor >/dev/null 2>&1; then fail "the exit code with a Configuration that is not ready"; fi
}

test_why_tells_a_typo_a_taken_device_and_a_cordoned_node_apart() {
  clean
  echoes lamps 1 'capacity: 1'
  within 10 "the Instance" has_instances lamps 1
  local instance node
  instance=$(kubectl get instances.akri.sh -o json | jq -r '.items[0].metadata.name')
  asks_for typo akri.sh/lamp
  within 10 "a typo is told, with the name that was meant" says 'The nearest name is akri.sh/lamps' why typo
  asks_for first akri.sh/lamps
  within 20 "the first Pod runs" is_running first
  asks_for second akri.sh/lamps
  within 10 "the holder of the slot is named" says 'The only slot of akri.sh/lamps is in use, by node-' why pod/second
  says '(Pod default/first)' why second || fail "the Pod of the holder: $(cat "$SUITE/said")"
  within 5 "devices shows the same" says 'default/first on node-' devices
  kubectl delete pod first second --now >/dev/null
  within 60 "the slot is free" says '0/1' devices -o wide
  kubectl cordon node-1 >/dev/null
  kubectl cordon node-2 >/dev/null
  asks_for third akri.sh/lamps
  within 40 "cordoned nodes are told, with the command" says 'kubectl uncordon node-1' why third
  for node in node-1 node-2; do kubectl uncordon "$node" >/dev/null; done
  within 40 "the Pod runs" is_running third
  within 20 "nothing is missing" says 'Nothing is missing.' why third
  within 20 "nothing is missing to the Instance either" says 'Nothing is missing.' why "instance/$instance"
}

test_why_repeats_what_the_condition_and_the_event_say() {
  clean
  configure bad 'knid: _http._tcp'
  within 10 "a bad Configuration" says 'is not ready (BadDiscoveryDetails)' why bad
  configure none 'kind: _nothing._tcp'
  within 20 "a Configuration without a device" says 'finds no device (looked on: node-1, node-2)' why none
  within 5 "an object that is not there" says 'there is no Pod, Instance or Configuration default/nothing' why nothing
}

# What tools that wait for a Configuration go by: each status that there was, from before it was created.
test_a_status_is_never_that_of_an_earlier_spec() {
  clean
  configure first 'kind: _http._tcp'
  # What kubectl says on stderr is no JSON.
  begin edits control bash -c 'exec kubectl get configurations.akri.sh --watch -o json 2>/dev/null'
  within 10 "they are watched" grep -qF '"name": "first"' "$SUITE/log/edits"
  configure edited 'kind: _http._tcp'
  within 10 "it is ready" is_ready_as edited "True Working"
  configure edited 'knid: _http._tcp'
  within 10 "it is not, with a misspelt key" is_ready_as edited "False BadDiscoveryDetails"
  configure edited 'kind: _http._tcp'
  within 10 "it is ready again" is_ready_as edited "True Working"
  local version states
  version=$(kubectl get configurations.akri.sh edited -o 'jsonpath={.metadata.resourceVersion}')
  within 5 "the last status is seen" grep -qF "\"resourceVersion\": \"$version\"" "$SUITE/log/edits"
  stop edits
  # Generation, observed generation, and status and observed generation of the condition.
  states=$(jq -r 'select(.metadata.name == "edited") | (.status.conditions // [] | map(select(.type == "Ready"))[0]) as $ready |
    "\(.metadata.generation) \(.status.observedGeneration) \($ready.status // "-") \($ready.observedGeneration // "-")"' "$SUITE/log/edits")
  equal "the first state" "1 -1 - -" "$(head -n 1 <<<"$states")"
  equal "final states, in their order" "1 1 True 1,2 2 False 2,3 3 True 3" "$(grep -E '^([0-9]+) \1 (True|False)' <<<"$states" | uniq | paste -sd,)"
  ! grep -E '^([0-9]+) \1 ' <<<"$states" | grep -vE '^([0-9]+) \1 (True|False|Unknown) \1$' || fail "a condition of an earlier generation: $states"
}

# ---- users with few rights ----

# A ServiceAccount of the namespace default, with a kubeconfig.
user() { # NAME
  local token
  kubectl create serviceaccount "$1" >/dev/null
  token=$(kubectl create token "$1")
  sed "s/admin-token/$token/" "$CLUSTER_DIR/admin.kubeconfig" >"$SUITE/$1.kubeconfig"
}

# may USER RESOURCES: reads these in all namespaces.
may() {
  kubectl create clusterrole "$1" --verb=get,list,watch --resource="$2" >/dev/null
  kubectl create clusterrolebinding "$1" --clusterrole="$1" --serviceaccount="default:$1" >/dev/null
}

# can USER VERB RESOURCE: its right is in force.
can() {
  within 10 "$1 may $2 $3" kubectl --as="system:serviceaccount:default:$1" auth can-i "$2" "$3" --namespace default
}

# tells USER TEXT ARGS…: petiole says TEXT, and nothing in the words of the API server.
tells() {
  local user=$1 text=$2
  shift 2
  says "$text" "$@" --kubeconfig "$SUITE/$user.kubeconfig" || fail "$user asks $*, and does not read '$text': $(cat "$SUITE/said")"
  ! says 'is forbidden' "$@" --kubeconfig "$SUITE/$user.kubeconfig" || fail "$user asks $*, and reads the words of the API server"
}

OURS=configurations.akri.sh,instances.akri.sh
INSTALLED=daemonsets.apps,deployments.apps,customresourcedefinitions.apiextensions.k8s.io,validatingadmissionpolicies.admissionregistration.k8s.io

test_users_read_which_right_they_lack_and_what_is_not_known() {
  clean
  echo 'descriptions: [lamp]' >"$SUITE/details"
  echoes lamps 1 'capacity: 1'
  asks_for first akri.sh/lamps
  within 30 "the Pod runs" is_running first
  user nobody
  user viewer
  kubectl create rolebinding viewer --clusterrole=view --serviceaccount=default:viewer >/dev/null
  user podless
  may podless "$OURS,nodedevices.akri.sh,events,$INSTALLED"
  user reportless
  may reportless "$OURS,pods,nodes,events,$INSTALLED"
  can viewer list pods
  can viewer list instances.akri.sh
  can podless list nodedevices.akri.sh
  can reportless list nodes
  local instance
  instance=$(kubectl get instances.akri.sh -o json | jq -r '.items[0].metadata.name')

  tells nobody 'you may not list configurations.akri.sh in the namespace default' devices
  tells nobody 'you may not list configurations.akri.sh in the namespace default' why lamps
  tells nobody 'nothing could be checked' doctor
  tells nobody 'you may not get CustomResourceDefinition configurations.akri.sh' check -n petiole
  tells nobody 'cannot list nodes: this needs the right to' tidy --dry-run
  tells nobody 'so the agent of node node-1 cannot be found' discover debugEcho --node node-1 --details "$SUITE/details"

  # Another Pod of the node, in a namespace that cannot be read, may have the slot.
  within 5 "the slot is in use" says '(perhaps Pod default/first)' why "instance/$instance" --kubeconfig "$SUITE/viewer.kubeconfig"
  ! says 'default/first' devices --kubeconfig "$SUITE/viewer.kubeconfig" || fail "viewer is told a guess as a fact"
  tells viewer 'no Pod of an agent can be read, so resources are assumed to have the prefix akri.sh' devices
  tells viewer 'you may not list pods in all namespaces, so not all Pods that hold a slot are known' devices
  tells viewer 'you may not list configurations.akri.sh in all namespaces' devices -A
  tells viewer 'Nothing is missing in what you may read.' why lamps
  tells viewer 'you may not list nodes, so which of them are ready, cordoned or tainted is not known' why first
  tells viewer 'nothing in any namespace that you may read' why -A nothing
  tells viewer 'you may list pods in the namespace default only' doctor
  asks_for other akri.sh/lamp
  tells viewer 'no Configuration or Instance that you may read offers that. One of another namespace may' why other

  tells podless 'Configuration default/lamps has 1 device.' why lamps
  tells podless 'you may not list pods in the namespace default' why lamps
  tells podless 'you may not get pods in the namespace default' why pod/first
  tells podless 'is explained by its Pods, which cannot be read' why deploy/shop
  tells podless 'ok    DaemonSet petiole/petiole-agent is ready on 2 of 2 nodes' doctor
  tells podless 'you may not create pods/exec in the namespace petiole' doctor

  tells reportless 'you may not list nodedevices.akri.sh, so which nodes have looked for devices is not known' why lamps
  # Entries of an earlier test may be left.
  says 'ok    no Node has capacity entries without a device' doctor --kubeconfig "$SUITE/reportless.kubeconfig" ||
    tells reportless ' without a device on ' doctor
}

# A Deployment of two Pods that ask for a resource.
deployment() { # NAME RESOURCE
  kubectl apply -f - >/dev/null <<X
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: 2
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: main
          image: docker.io/library/busybox:stable
          imagePullPolicy: IfNotPresent
          command: [/bin/sh, -c, exec sleep 2147483647]
          resources: {limits: {"$2": "1"}}
X
}

test_why_explains_the_pod_of_a_deployment_that_waits() {
  clean
  echoes lamps 1 'capacity: 1'
  within 10 "the Instance" has_instances lamps 1
  deployment shop akri.sh/lamps
  within 30 "one Pod runs, and the other waits" says 'Deployment default/shop has 1 of 2 Pods ready.' why deploy/shop
  # Two Pods that race for the slot may both be scheduled: the kubelet refuses one, and its successor waits.
  within 30 "the holder of the slot, by a name alone" says 'The only slot of akri.sh/lamps is in use, by node-' why shop
  says 'No Pod of StatefulSet default/shop asks for a device.' why sts/shop || fail "another kind: $(cat "$SUITE/said")"
  kubectl delete deployment shop >/dev/null
}

# warning_of FIELDS: what kubectl warns of for a Configuration with these fields of spec. A refusal fails.
warning_of() {
  {
    kubectl apply --dry-run=server -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: warned}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [lamp]"}, $1}
X
  } 2>&1 || fail "refused: $1"
}

warns() { # FIELDS
  warning_of "$1" | grep -q '^Warning: .*spec.brokerSpec: no container asks for the device'
}

test_kubectl_warns_of_brokers_that_ask_for_no_device() {
  local image='name: broker, image: "docker.io/library/busybox:stable"' asks='resources: {limits: {"{{PLACEHOLDER}}": "1"}}'
  local said spec
  within 10 "the policy is obeyed" warns "brokerSpec: {brokerPodSpec: {containers: [{$image}]}}"
  for spec in "brokerPodSpec: {containers: [{$image, resources: {limits: {cpu: 1}}}]}" \
    "brokerPodSpec: {containers: [{$image, resources: null}]}" \
    "brokerPodSpec: {initContainers: [{$image}], containers: []}" \
    "brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{$image}]}}}"; do
    warns "brokerSpec: {$spec}" || fail "no warning of $spec"
  done
  for spec in "brokerPodSpec: {containers: [{$image, $asks}]}" "brokerPodSpec: {containers: no list}" \
    "brokerPodSpec: {initContainers: [{$image, $asks}], containers: [{$image}]}" "brokerJobSpec: {}" \
    "brokerPodSpec: {containers: [{$image, resources: {limits: {akri.sh/lamp: 1}}}]}" \
    "brokerJobSpec: {template: {spec: {restartPolicy: Never, containers: [{$image, $asks}]}}}"; do
    said=$(warning_of "brokerSpec: {$spec}")
    equal "the warning of $spec" "" "$said"
  done
  equal "the warning without a broker" "" "$(warning_of 'brokerSpec: null')"
}

test_why_names_brokers_that_ask_for_no_device() {
  clean
  echoes lamps 1 'brokerSpec: {brokerPodSpec: {terminationGracePeriodSeconds: 0, containers: [{name: broker, image: "docker.io/library/busybox:stable", imagePullPolicy: IfNotPresent, command: [/bin/sh, -c, exec sleep 2147483647]}]}}' 2>/dev/null
  within 30 "the Configuration says it" says 'none of its containers asks for the device' why configuration/lamps
  local instance
  instance=$(kubectl get instances.akri.sh -o json | jq -r '.items[0].metadata.name')
  says 'none of its containers asks for the device' why "instance/$instance" || fail "the Instance: $(cat "$SUITE/said")"
}

# The API server would say it in four sentences, with a regular expression in each.
test_a_misspelt_placeholder_is_named_in_one_sentence() {
  clean
  local image='name: broker, image: "docker.io/library/busybox:stable"' said
  echoes lamps 1 "brokerSpec: {brokerPodSpec: {containers: [{$image, resources: {limits: {\"{{PLACEHOLDR}}\": 1}}}]}}" 2>/dev/null
  within 10 "the broker spec is refused" is_ready_as lamps "False BrokerSpecInvalid"
  said=$(kubectl get configurations.akri.sh lamps -o json | jq -r '.status.conditions[] | select(.type == "Ready") | .message')
  equal "the condition" 'spec.brokerSpec.brokerPodSpec.containers[0].resources.limits["{{PLACEHOLDR}}"] is no resource: it must be "{{PLACEHOLDER}}", which stands for the device' "$said"
  within 5 "why repeats it" says 'limits["{{PLACEHOLDR}}"] is no resource' why lamps
  # Of what only the API server refuses, its first error; versions differ in its quotes and in the number of the others.
  echoes lamps 1 "brokerSpec: {brokerPodSpec: {containers: [{$image, resources: {limits: {PLACEHOLDER: 1}}}]}}" 2>/dev/null
  within 10 "the first error alone" refusal_is
}

refusal_is() {
  local said
  said=$(kubectl get configurations.akri.sh lamps -o json | jq -r '.status.conditions[] | select(.type == "Ready") | .message')
  [[ $said == *'limits[PLACEHOLDER]: Invalid value: '*': must be a standard resource type or fully qualified (the first of '[2-9]' errors)' ]]
}

# broker_of IMAGE: a Configuration with one device, whose broker runs this image.
broker_of() {
  echoes lamps 1 "brokerSpec: {brokerPodSpec: {containers: [{name: broker, image: \"$1\", command: [/bin/sh, -c, exec sleep 2147483647], resources: {limits: {\"{{PLACEHOLDER}}\": \"1\"}}}]}}"
}

# The kubelet ends no Pod before the pull of its image, and a registry that takes connections and says nothing holds it up for minutes.
test_a_corrected_image_is_tried_at_once() {
  clean
  local node corrected
  for node in node-1 node-2; do
    begin "silence-$node" "$node" python3 -c 'import socket, time; s = socket.create_server(("127.0.0.1", 5999)); time.sleep(600)'
  done
  broker_of 127.0.0.1:5999/nothing:1
  within 20 "the image is pulled" pulls lamps
  corrected=$EPOCHREALTIME
  broker_of docker.io/library/busybox:stable
  within 5 "the corrected image runs" has_brokers lamps 1
  note "correction -> runs: $(since "$corrected") s"
  for_all_of 20 "and stays" has_brokers lamps 1
  stop silence-node-1
  stop silence-node-2
}

pulls() { # CONFIGURATION
  kubectl get pods -l "akri.sh/configuration=$1" -o json | jq -e '.items[0].status.containerStatuses[0].state.waiting' >/dev/null
}

test_discover_runs_a_handler_on_a_node() {
  clean
  echo 'descriptions: [lamp]' >"$SUITE/details"
  plugin discover debugEcho --node node-1 --details "$SUITE/details" --for 2s -o json >"$SUITE/found"
  equal "the devices that node-1 finds" lamp "$(jq -r '.[].id' "$SUITE/found")"
  ! plugin discover debugEcho --node none --details "$SUITE/details" >"$SUITE/said" 2>&1 || fail "there is no node none"
  grep -q 'no agent runs on node none' "$SUITE/said" || fail "$(cat "$SUITE/said")"
  begin finder control "$SUITE/kubectl-petiole" discover debugEcho --node node-1 --details "$SUITE/details"
  within 15 "each change is a line" grep -q lamp "$SUITE/log/finder"
  stop finder KILL
  within 15 "what ran in the Pod has ended" is_empty processes node-1 discover
}

test_doctor_is_content_with_an_installation_and_names_a_node_without_an_agent() {
  clean
  within 60 "every check is ok, or a capacity entry of an earlier test" doctor_finds_no_fault
  kubectl -n petiole patch daemonset petiole-agent --type merge -p '{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"node-1"}}}}}' >/dev/null
  within 60 "the node without an agent" says 'warn  node node-2: no agent' doctor
  kubectl -n petiole patch daemonset petiole-agent --type json -p '[{"op":"remove","path":"/spec/template/spec/nodeSelector"}]' >/dev/null
  agents_are_ready
  kubectl -n petiole delete deployment petiole-controller >/dev/null
  within 20 "the missing controller fails" says 'FAIL  there is no Deployment of controllers' doctor
  if plugin doctor >/dev/null 2>&1; then fail "the exit code of a failed check"; fi
}

doctor_finds_no_fault() {
  local said
  said=$(plugin doctor) || return 1
  ! grep -v '^ok  ' <<<"$said" | grep .
}
