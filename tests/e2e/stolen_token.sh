# What an agent's token may do and may not, with the chart installed as `petiole` in the namespace `petiole`. To be
# sourced after lib.sh.
#
# The token is bound to leaf-1. It and leaf-2 are Nodes without a kubelet: nobody else writes there.
# shellcheck shell=bash

# may CLAIM ARGS…: kubectl ARGS with the stolen token is accepted.
may() {
  local claim=$1 output
  shift
  output=$(kubectl_with_token "$@" 2>&1) || fail "an agent may $claim, but: $output"
}

# may_not CLAIM MESSAGE ARGS…: it is refused, as Forbidden, with MESSAGE.
may_not() {
  local claim=$1 message=$2 output
  shift 2
  if output=$(kubectl_with_token "$@" 2>&1); then fail "an agent may not $claim, but can: $output"; fi
  case $output in
    *"(Forbidden)"*"$message"* | *forbidden*"$message"*) ;;
    *) fail "an agent may not $claim; refused with another reason than '$message': $output" ;;
  esac
}

kubectl_with_token() {
  if [[ " $* " == *" --subresource status --type "* ]]; then
    patch_status "$@"
    return
  fi
  cluster kubectl --kubeconfig "$TOKEN_CONFIG" "$@"
}

# patch_status patch KIND NAME --subresource status --type TYPE -p PATCH: as kubectl does, but without reading the subresource
# first, which an agent has no right to.
patch_status() {
  local path type=$7 answer server token
  case $2 in
    node) path=/api/v1/nodes/$3/status ;;
    *) path=/apis/akri.sh/v0/namespaces/default/$2s/$3/status ;;
  esac
  case $type in
    json) type=json-patch ;;
    merge) type=merge-patch ;;
    strategic) type=strategic-merge-patch ;;
  esac
  server=$(jq -r '.clusters[0].cluster.server' "$TOKEN_CONFIG")
  token=$(jq -r '.users[0].user.token' "$TOKEN_CONFIG")
  answer=$(cluster on control curl -sSk -X PATCH -H "Authorization: Bearer $token" \
    -H "Content-Type: application/$type+json" -d "$9" "$server$path")
  jq -e '.kind != "Status"' <<<"$answer" >/dev/null || {
    jq -r '"(\(.reason)) \(.message)"' <<<"$answer"
    return 1
  }
}

# kubeconfig_with TOKEN >FILE: the admin's, with TOKEN instead of its user.
kubeconfig_with() {
  cluster kubectl config view --raw --minify -o json |
    jq --arg token "$1" '.users[].user = {token: $token}'
}

# a_node NAME: one that is ready, as far as the API server knows. Without the label of its operating system no Pod of ours
# fits it.
a_node() {
  cluster kubectl apply -f - <<<"{apiVersion: v1, kind: Node, metadata: {name: $1}}"
  cluster kubectl patch node "$1" --subresource status --type merge -p '{"status": {
    "capacity": {"cpu": "2", "memory": "1Gi"}, "allocatable": {"cpu": "2", "memory": "1Gi"},
    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": "'"$(date -u +%FT%TZ)"'"}]}}'
}

# an_instance NAME NODE: JSON of an Instance that NODE sees, owned by the Configuration `stolen`.
an_instance() {
  local uid
  uid=$(cluster kubectl get configuration stolen -o jsonpath='{.metadata.uid}')
  jq -n --arg name "$1" --arg node "$2" --arg uid "$uid" '{
    apiVersion: "akri.sh/v0", kind: "Instance",
    metadata: {
      name: $name, namespace: "default", labels: {("node.akri.sh/" + $node): ""}, annotations: {"akri.sh/device-id": $name},
      ownerReferences: [{apiVersion: "akri.sh/v0", kind: "Configuration", name: "stolen", uid: $uid, controller: true}]
    },
    spec: {configurationName: "stolen", cdiName: "akri.sh/stolen=\($name | sub("^stolen-"; ""))", capacity: 3, shared: true, nodes: [$node]}
  }'
}

# a_token COMPONENT [NODE]: of its account, bound to NODE as that of a Pod there is.
a_token() {
  cluster kubectl create token "petiole-$1" -n petiole ${2:+--bound-object-kind Node --bound-object-name "$2"}
}

# controllers NUMBER: a controller that runs would take back what the tests write.
controllers() {
  cluster kubectl -n petiole scale deployment petiole-controller --replicas="$1"
  [ "$1" != 0 ] || cluster kubectl -n petiole wait pod --for=delete -l app.kubernetes.io/component=controller --timeout=60s
}

stolen_token_is_of_little_use() {
  local dir
  dir=$(mktemp -d "${SUITE:-/tmp}/token.XXXXXX")
  export TOKEN_CONFIG=$dir/kubeconfig
  controllers 0
  a_node leaf-1
  a_node leaf-2
  kubeconfig_with "$(a_token agent leaf-1)" >"$TOKEN_CONFIG"
  kubeconfig_with "$(a_token agent)" >"$dir/unbound"
  cluster kubectl apply -f - <<'END'
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: stolen}
spec: {discoveryHandler: {name: none}, capacity: 3}
END
  its_own_instance
  another_nodes_instance
  a_shared_instance
  the_largest_instance
  reports
  node_status
  reads
  every_field "$dir"
  TOKEN_CONFIG=$dir/unbound
  may_not "patch a Node without a node's claim" "own Node" \
    patch node leaf-1 --subresource status --type merge -p '{"status":{"capacity":{"akri.sh/x":"1"}}}'
  may_not "claim without a node's claim" "not bound to a node" patch instance stolen-shared --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-shared-2":null}}}'
  cluster kubectl delete configuration stolen
  cluster kubectl delete instance stolen-00bb22 stolen-shared stolen-00cc33 --ignore-not-found
  cluster kubectl delete node leaf-1 leaf-2
  controllers 2
  rm -r "$dir"
}

# every_field DIR: every field of every object, with an agent's token and the controller's.
every_field() {
  a_node leaf-3
  jq -n --arg agent "$(a_token agent leaf-1)" --arg new "$(a_token agent leaf-3)" --arg controller "$(a_token controller)" \
    '{agent: $agent, "new agent": $new, controller: $controller}' >"$1/tokens"
  cluster kubectl config view --raw --minify -o json >"$1/admin"
  cluster on control python3 "$E2E/stolen_fields.py" "$1/admin" "$1/tokens" >"$1/fields" || fail "$(cat "$1/fields")"
  note "$(tail -n 1 "$1/fields")"
  cluster kubectl delete node leaf-3
}

# digests DEVICE: those in the two names that the Instance of a shared device may have.
digests() {
  python3 -c 'import hashlib, sys; print(*(hashlib.blake2b(sys.argv[1].encode(), digest_size=n).hexdigest() for n in (3, 5)))' "$1"
}

# What a controller makes of what a token has written. leaf-1 says that it sees a device of each Configuration.
what_a_stolen_token_has_written_is_taken_back() {
  local dir digest device='{"id": "camera", "properties": {}}'
  dir=$(mktemp -d "${SUITE:-/tmp}/token.XXXXXX")
  export TOKEN_CONFIG=$dir/kubeconfig
  controllers 0
  a_node leaf-1
  a_node leaf-2
  cluster kubectl label node leaf-2 zone=cameras
  kubeconfig_with "$(a_token agent leaf-1)" >"$TOKEN_CONFIG"
  cluster kubectl apply -f - <<END
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: stolen}
spec: {discoveryHandler: {name: none}, capacity: 3, gracePeriodSeconds: 5, nodeSelector: {zone: cameras}, $BROKER}
END
  # Both names of the camera, and a report about a device of the other node.
  for digest in $(digests camera); do
    an_instance "stolen-$digest" leaf-1 | jq '.spec.shared = false' | may_not "create an Instance" "cannot create" create -f -
  done
  for node in leaf-1 leaf-2; do
    node_devices $node | jq --argjson device "$device" '.spec.configurations[0] |= (.problems = [] | .complete = true | .devices = [$device])' |
      cluster kubectl create -f -
  done
  an_instance stolen-filled leaf-2 | jq '.metadata.annotations["told.akri.sh/77777"] = "x"
    | .spec.deviceUsage = ([range(65) | {key: "g\(.)", value: ""}] | from_entries) + {"stolen-filled-0": "leaf-2"}' | cluster kubectl create -f -
  # Nobody writes that these nodes are ready.
  a_node leaf-1
  a_node leaf-2
  controllers 2
  within 60 "the camera has an Instance on leaf-2 alone" has_camera
  within 20 "entries that are no slots are gone" is_tidied
  cluster kubectl get pods -o json | jq -e --arg n leaf-1 'all(.items[]; [.spec.affinity.nodeAffinity | .. | .values? // empty | .[]] | index($n) | not)' ||
    fail "a broker may run on the node that nodeSelector leaves out"
  cluster kubectl delete configuration stolen
  cluster kubectl delete nodedevices leaf-1 leaf-2 --ignore-not-found
  cluster kubectl delete node leaf-1 leaf-2
  rm -r "$dir"
}

has_camera() {
  cluster kubectl get instances.akri.sh -o json | jq -e '[.items[] | select(.metadata.annotations["akri.sh/device-id"] == "camera")
    | .spec | [.shared, .nodes]] == [[true, ["leaf-2"]]]'
}

is_tidied() {
  cluster kubectl get instances.akri.sh stolen-filled -o json | jq -e '.spec.deviceUsage == {"stolen-filled-0": "leaf-2"}
    and (.metadata.annotations | has("told.akri.sh/77777") | not)'
}

its_own_instance() {
  an_instance stolen-00aa11 leaf-1 | jq '.spec.shared = false' | may_not "create an Instance of its own node" "cannot create" create -f -
  an_instance stolen-00aa11 leaf-1 | jq '.spec.shared = false' | cluster kubectl create -f -
  may "claim a slot" patch instance stolen-00aa11 --type json \
    -p '[{"op":"test","path":"/spec/deviceUsage/stolen-00aa11-0","value":null},{"op":"add","path":"/spec/deviceUsage/stolen-00aa11-0","value":"leaf-1"},{"op":"add","path":"/metadata/annotations/told.akri.sh~10","value":"abc"}]'
  may "claim a slot by the Configuration" patch instance stolen-00aa11 --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-00aa11-1":"C:stolen-0:leaf-1"}}}'
  may "release a slot" patch instance stolen-00aa11 --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-00aa11-0":null}},"metadata":{"annotations":{"told.akri.sh/0":null}}}'
  may_not "describe its device" "own slots" patch instance stolen-00aa11 --type merge -p '{"spec":{"capacity":5,"brokerProperties":{"A":"b"}}}'
  may_not "say how it sees its device" "cannot patch" patch instance stolen-00aa11 --subresource status --type merge \
    -p '{"status":{"nodes":[{"name":"leaf-1","health":"Unhealthy","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'
  may_not "leave" "own slots" patch instance stolen-00aa11 --type merge -p '{"spec":{"nodes":[]}}'
  may_not "change what an Instance is" "own slots" patch instance stolen-00aa11 --type merge -p '{"spec":{"configurationName":"other"}}'
  may_not "share what is its own" "own slots" patch instance stolen-00aa11 --type merge -p '{"spec":{"shared":true}}'
  may_not "remove the owner" "own slots" patch instance stolen-00aa11 --type merge -p '{"metadata":{"ownerReferences":null}}'
  may_not "add a finalizer" "own slots" patch instance stolen-00aa11 --type merge -p '{"metadata":{"finalizers":["a.b/c"]}}'
  may_not "change the device's id" "annotations" patch instance stolen-00aa11 --type merge \
    -p '{"metadata":{"annotations":{"akri.sh/device-id":"other"}}}'
  may_not "change other labels" "own slots" patch instance stolen-00aa11 --type merge -p '{"metadata":{"labels":{"a":"b"}}}'
  may_not "delete its own Instance" "cannot delete" delete instance stolen-00aa11
  cluster kubectl delete instance stolen-00aa11
}

another_nodes_instance() {
  an_instance stolen-00bb22 leaf-2 | cluster kubectl create -f -
  may_not "delete another's Instance" "cannot delete" delete instance stolen-00bb22
  may_not "put environment into another's brokers" "own slots" patch instance stolen-00bb22 --type merge \
    -p '{"spec":{"brokerProperties":{"LD_PRELOAD":"x"}}}'
  may_not "claim a slot of a device it does not see" "that have its node" patch instance stolen-00bb22 --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-00bb22-0":"leaf-1"}}}'
  # As the controller leaves it when the node is not ready.
  an_instance stolen-00cc33 leaf-2 | jq '.spec.shared = false | .spec.nodes = []' | cluster kubectl create -f -
  may_not "take the Instance of a node that is not ready" "own slots" patch instance stolen-00cc33 --type merge \
    -p '{"spec":{"nodes":["leaf-1"]},"metadata":{"labels":{"node.akri.sh/leaf-1":""}}}'
  may_not "claim a slot of a node that is not ready" "that have its node" patch instance stolen-00cc33 --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-00cc33-0":"leaf-1"}}}'
}

a_shared_instance() {
  an_instance stolen-shared leaf-2 | jq '.spec.deviceUsage = {"stolen-shared-0": "leaf-2", "stolen-shared-1": "C:stolen-0:leaf-2"}
    | .metadata.annotations["told.akri.sh/0"] = "abc"' | cluster kubectl create -f -
  may_not "fill a device it does not see with keys" "that have its node" patch instance stolen-shared --type merge \
    -p "$(jq -n '{spec: {deviceUsage: ([range(65)] | map({key: "g\(.)", value: ""}) | from_entries)}}')"
  may_not "fill a device it does not see with free slots" "that have its node" patch instance stolen-shared --type merge \
    -p "$(jq -n '{spec: {deviceUsage: ([range(65)] | map({key: "stolen-shared-\(. + 10)", value: ""}) | from_entries)}}')"
  may_not "fill the annotations of a device it does not see" "annotations" patch instance stolen-shared --type merge \
    -p "$(jq -n '{metadata: {annotations: {"told.akri.sh/77777": ("x" * 100000)}}}')"
  may_not "annotate a device it does not see" "annotations" patch instance stolen-shared --type merge \
    -p '{"metadata":{"annotations":{"told.akri.sh/2":"abc"}}}'
  may_not "join" "own slots" patch instance stolen-shared --type json \
    -p '[{"op":"add","path":"/spec/nodes/-","value":"leaf-1"},{"op":"add","path":"/metadata/labels/node.akri.sh~1leaf-1","value":""}]'
  # The controller does.
  cluster kubectl patch instance stolen-shared --type merge \
    -p '{"spec":{"nodes":["leaf-2","leaf-1"]},"metadata":{"labels":{"node.akri.sh/leaf-1":""}}}'
  may "claim a free slot" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":{"stolen-shared-2":"leaf-1"}}}'
  may_not "annotate a slot that is free" "annotations" patch instance stolen-shared --type merge \
    -p '{"metadata":{"annotations":{"told.akri.sh/1234":"abc"}}}'
  may_not "note much about its own slot" "annotations" patch instance stolen-shared --type merge \
    -p "$(jq -n '{metadata: {annotations: {"told.akri.sh/2": ("x" * 65)}}}')"
  may_not "claim what is no slot" "that have its node" patch instance stolen-shared --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-shared-02":"leaf-1"}}}'
  may_not "claim as an owner that nobody can read" "slots" patch instance stolen-shared --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-shared-3":"C:stolen:0:leaf-1"}}}'
  # Entries that were written before there was a rule against them.
  cluster kubectl patch instance stolen-shared --type merge \
    -p "$(jq -n '{spec: {deviceUsage: ([range(80)] | map({key: "g\(.)", value: ""}) | from_entries)}}')"
  may "claim a slot whatever others have left there" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":{"stolen-shared-3":"leaf-1"}}}'
  may "release it" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":{"stolen-shared-3":null}}}'
  may_not "claim a slot of another Instance's name" "that have its node" patch instance stolen-shared --type merge \
    -p '{"spec":{"deviceUsage":{"other-0":"leaf-1"}}}'
  may_not "claim slots without end" "that have its node" patch instance stolen-shared --type merge \
    -p "$(jq -n '{spec: {deviceUsage: ([range(100)] | map({key: "stolen-shared-\(. + 10)", value: "leaf-1"}) | from_entries)}}')"
  may_not "delete what is shared" "cannot delete" delete instance stolen-shared
  may_not "make a shared device useless" "own slots" patch instance stolen-shared --type merge -p '{"spec":{"capacity":0}}'
  may_not "put environment into all brokers of a shared device" "own slots" patch instance stolen-shared --type merge \
    -p '{"spec":{"brokerProperties":{"LD_PRELOAD":"x"}}}'
  may_not "become the first" "own slots" patch instance stolen-shared --type merge -p '{"spec":{"nodes":["leaf-1","leaf-2"]}}'
  may_not "take another's slot" "slots" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":{"stolen-shared-0":"leaf-1"}}}'
  may_not "release another's slot" "slots" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":{"stolen-shared-0":null}}}'
  may_not "blank another's slot" "slots" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":{"stolen-shared-1":""}}}'
  may_not "drop all slots" "slots" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":null}}'
  may_not "claim for another" "slots" patch instance stolen-shared --type merge -p '{"spec":{"deviceUsage":{"stolen-shared-2":"leaf-2"}}}'
  may_not "claim for another by the Configuration" "slots" patch instance stolen-shared --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-shared-2":"C:stolen-1:leaf-2"}}}'
  may_not "throw another out" "own slots" patch instance stolen-shared --type merge -p '{"spec":{"nodes":["leaf-1"]}}'
  may_not "leave by itself" "own slots" patch instance stolen-shared --type merge -p '{"spec":{"nodes":["leaf-2"]}}'
  may_not "hide it from another's agent" "own slots" patch instance stolen-shared --type merge \
    -p '{"metadata":{"labels":{"node.akri.sh/leaf-2":null}}}'
  may_not "show it to another's agent" "own slots" patch instance stolen-shared --type merge \
    -p '{"metadata":{"labels":{"node.akri.sh/leaf-12":""}}}'
  may_not "forget what another's container was told" "annotations" patch instance stolen-shared --type merge \
    -p '{"metadata":{"annotations":{"told.akri.sh/0":null}}}'
  may_not "say how a shared device is seen" "cannot patch" patch instance stolen-shared --subresource status --type merge \
    -p '{"status":{"nodes":[{"name":"leaf-1","health":"Unhealthy","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'
  # A node that no longer sees a device keeps its label while a container of its own has a slot.
  cluster kubectl patch instance stolen-shared --type merge -p '{"spec":{"nodes":["leaf-2"]}}'
  may "release its last slot" patch instance stolen-shared --type json \
    -p '[{"op":"test","path":"/spec/deviceUsage/stolen-shared-2","value":"leaf-1"},{"op":"remove","path":"/spec/deviceUsage/stolen-shared-2"}]'
  may "claim it again for a container that uses it" patch instance stolen-shared --type merge \
    -p '{"spec":{"deviceUsage":{"stolen-shared-2":"leaf-1"}}}'
}

# node_devices NAME: JSON of what a node sees.
node_devices() {
  jq -n --arg name "$1" '{apiVersion: "akri.sh/v0", kind: "NodeDevices", metadata: {name: $name}, spec: {
    configurations: [{namespace: "default", name: "stolen", problems: [{reason: "Test", message: "x"}]}]}}'
}

# event NODE CONTROLLER: JSON of an Event.
event() {
  jq -n --arg node "$1" --arg controller "$2" --arg now "$(date -u +%FT%T.%6NZ)" '{
    apiVersion: "events.k8s.io/v1", kind: "Event", metadata: {name: "stolen-\($node)-\($now | gsub("[^0-9]"; ""))", namespace: "default"},
    eventTime: $now, reportingController: $controller, reportingInstance: $node, action: "Test", reason: "Test",
    type: "Normal", regarding: {apiVersion: "akri.sh/v0", kind: "Configuration", name: "stolen", namespace: "default"}}'
}

reports() {
  node_devices leaf-1 | may "say what its node sees" create -f -
  may "change it" patch nodedevices leaf-1 --type merge -p '{"spec":{"configurations":[]}}'
  node_devices leaf-2 | may_not "say what another node sees" "own node" create -f -
  node_devices leaf-2 | cluster kubectl create -f -
  may_not "change what another node says" "own node" patch nodedevices leaf-2 --type merge -p '{"spec":{"configurations":[]}}'
  may_not "delete what its node says" "cannot delete" delete nodedevices leaf-1
  may_not "write a Configuration's status" "cannot patch" patch configuration stolen --subresource status --type merge \
    -p '{"status":{"instances":7}}'
  event leaf-1 petiole-agent | may "write an Event" create -f -
  event leaf-2 petiole-agent | may_not "write an Event in another node's name" "own node" create -f -
  jq -n '{spec: {configurations: [{namespace: "default", name: "stolen",
    devices: [{id: "x", properties: ([range(4) | {key: "P\(.)", value: ("x" * 65000)}] | from_entries)}]}]}}' |
    may_not "report a device that no Instance can hold" "229376" patch nodedevices leaf-1 --type merge --patch-file /dev/stdin
  event leaf-1 kubelet | may_not "write an Event in the kubelet's name" "own node" create -f -
  cluster kubectl delete nodedevices leaf-1 leaf-2 --ignore-not-found
}

node_status() {
  local own="patch node leaf-1 --subresource status" other="patch node leaf-2 --subresource status"
  # shellcheck disable=SC2086
  {
    may "publish its capacity" $own --type json \
      -p '[{"op":"add","path":"/status/capacity/akri.sh~1stolen-1","value":"2"},{"op":"add","path":"/status/allocatable/akri.sh~1stolen-1","value":"2"}]'
    may "change its capacity" $own --type json \
      -p '[{"op":"test","path":"/status/capacity/akri.sh~1stolen-1","value":"2"},{"op":"replace","path":"/status/capacity/akri.sh~1stolen-1","value":"10000"}]'
    may "tidy its capacity" $own --type json \
      -p '[{"op":"test","path":"/status/capacity/akri.sh~1stolen-1","value":"10k"},{"op":"remove","path":"/status/capacity/akri.sh~1stolen-1"},{"op":"remove","path":"/status/allocatable/akri.sh~1stolen-1"}]'
    may_not "publish for another node" "own Node" $other --type json \
      -p '[{"op":"add","path":"/status/capacity/akri.sh~1stolen-1","value":"2"}]'
    may_not "change cpu" "resourcePrefixes" $own --type merge -p '{"status":{"capacity":{"cpu":"1000"}}}'
    may_not "remove memory" "resourcePrefixes" $own --type json -p '[{"op":"remove","path":"/status/allocatable/memory"}]'
    may_not "publish a resource of others" "resourcePrefixes" $own --type merge -p '{"status":{"capacity":{"nvidia.com/gpu":"8"}}}'
    may_not "publish a resource whose name only begins alike" "resourcePrefixes" $own --type merge \
      -p '{"status":{"allocatable":{"akri.sh.example.org/x":"8"}}}'
    may_not "change conditions" "capacity and allocatable" $own --type strategic \
      -p '{"status":{"conditions":[{"type":"Ready","status":"False"}]}}'
    may_not "change addresses" "capacity and allocatable" $own --type strategic \
      -p '{"status":{"addresses":[{"type":"InternalIP","address":"1.2.3.4"}]}}'
    may_not "label its Node" "only the status" $own --type merge -p '{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}'
    may_not "say by a label what it has, where the chart does not say so" "only the status" $own --type merge -p '{"metadata":{"labels":{"akri.sh/has-cam":"true"}}}'
    cluster kubectl label node leaf-1 akri.sh/has-cam=true akri.sh/has-usb=mine
    may_not "remove a label of somebody else" "only the status" $own --type merge -p '{"metadata":{"labels":{"akri.sh/has-usb":null}}}'
    may_not "change a label of ours" "only the status" $own --type merge -p '{"metadata":{"labels":{"akri.sh/has-cam":"no"}}}'
    may "remove a label of ours" $own --type merge -p '{"metadata":{"labels":{"akri.sh/has-cam":null}}}'
    may_not "annotate its Node" "only the status" $own --type merge -p '{"metadata":{"annotations":{"a":"b"}}}'
  }
}

# The API server ends the evaluation of a policy that costs too much, and refuses the request then.
the_largest_instance() {
  an_instance stolen-largest leaf-1 | jq '.spec.capacity = 10000
    | .spec.deviceUsage = ([range(9999) | {key: "stolen-largest-\(.)", value: (if . % 2 == 0 then "leaf-2" else "C:stolen-\(.):leaf-2" end)}] | from_entries)
    | .spec.nodes += [range(3999) | "node-\(.)"]
    | .metadata.labels += ([range(3999) | {key: "node.akri.sh/node-\(.)", value: ""}] | from_entries)
    | .metadata.annotations += ([range(5000) | {key: "told.akri.sh/\(.)", value: "0123456789abcdef"}] | from_entries)' |
    cluster kubectl create -f -
  may "claim a slot of the largest Instance" patch instance stolen-largest --type json \
    -p '[{"op":"test","path":"/spec/deviceUsage/stolen-largest-9999","value":null},{"op":"add","path":"/spec/deviceUsage/stolen-largest-9999","value":"leaf-1"},{"op":"add","path":"/metadata/annotations/told.akri.sh~19999","value":"abc"}]'
  may "release it" patch instance stolen-largest --type json \
    -p '[{"op":"test","path":"/spec/deviceUsage/stolen-largest-9999","value":"leaf-1"},{"op":"remove","path":"/spec/deviceUsage/stolen-largest-9999"},{"op":"remove","path":"/metadata/annotations/told.akri.sh~19999"}]'
  may_not "take one of its slots" "slots" patch instance stolen-largest --type json \
    -p '[{"op":"replace","path":"/spec/deviceUsage/stolen-largest-9998","value":"leaf-1"}]'
  # Its own node has all of them.
  cluster kubectl get instance stolen-largest -o json |
    jq '.spec.deviceUsage |= map_values(if . == "leaf-2" then "leaf-1" else sub("leaf-2"; "leaf-1") end)' |
    cluster kubectl replace -f -
  may "claim the last slot" patch instance stolen-largest --type merge -p '{"spec":{"deviceUsage":{"stolen-largest-9999":"leaf-1"}}}'
  may "release all slots at once" patch instance stolen-largest --type merge -p '{"spec":{"deviceUsage":null}}'
  cluster kubectl delete instance stolen-largest
}

# What it has no right to at all.
reads() {
  local what
  for what in pods secrets configmaps; do
    may_not "list $what" "cannot list" get "$what" --all-namespaces
  done
  may_not "change a Node" "cannot patch" patch node leaf-1 --type merge -p '{"metadata":{"labels":{"a":"b"}}}'
  may_not "change a Configuration" "cannot patch" patch configuration stolen --type merge -p '{"spec":{"capacity":9}}'
  may_not "delete a Configuration" "cannot delete" delete configuration stolen
  may_not "delete all Instances" "cannot deletecollection" delete --raw /apis/akri.sh/v0/namespaces/default/instances
  may "read Configurations and Nodes" get configurations,nodes --all-namespaces
  may_not "read definitions" "cannot get" get crd configurations.akri.sh
}
