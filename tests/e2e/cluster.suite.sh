# Petiole on a cluster of two nodes, installed by its chart: what users do.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  install
  cluster avahi camera
}

# What docs/cluster.md shows, looked at closely. As it is written there: lifecycle.suite.sh.
test_the_story_of_the_readme() {
  clean
  local n instance node
  for n in 1 2 3 4; do announce camera "page-$n" _http._tcp "808$n" "path=/$n"; done
  kubectl apply -f "$EXAMPLES/zeroconf-http.yaml"
  within 5 "four Instances" has_instances zeroconf-http 4
  note "applied -> four Instances: $TOOK s"
  kubectl get instances | tee "$SUITE/instances"
  head -n 1 "$SUITE/instances" | matches -E '^NAME +CONFIG +SHARED +NODES +AVAILABLE +DEVICE +AGE$' || fail "columns of kubectl get instances"
  for n in 1 2 3 4; do
    instance=$(instance_of "page-$n")
    within 5 "both nodes see page-$n" is_on "$instance" node-1 node-2
  done
  within 30 "four brokers run" has_brokers zeroconf-http 4
  instance=$(instance_of page-1)
  # A device with one slot is offered by the node whose broker has it, and is taken on the other.
  node=$(kubectl get instance "$instance" -o json | jq -r '.spec.deviceUsage[]')
  kubectl describe node "$node" >"$SUITE/node"
  [ "$(grep -cE "^ +akri.sh/$instance: +1\$" "$SUITE/node")" = 2 ] || fail "not in Capacity and Allocatable of kubectl describe node: $(grep akri "$SUITE/node")"
  for n in 1 2 3 4; do
    within 5 "a broker has the variables of page-$n" a_broker_says "AKRI_ZEROCONF_DEVICE_NAME=page-$n" "AKRI_ZEROCONF_DEVICE_PORT=808$n"
  done
  plugin_sockets node-1 | matches -E "^$instance-[0-9]{10}\.sock\$" || fail "no socket <instance>-<ts>.sock: $(plugin_sockets node-1)"
  grpcurl_answers "$instance"
  device_goes page-4
  kubectl delete configuration zeroconf-http
  within 10 "Instances and sockets are gone, and brokers are told to end" is_all_leaving
  note "Configuration deleted -> no Instance or socket, no broker that is not about to end: $TOOK s"
  # The sample's brokers do not heed SIGTERM.
  within 45 "brokers are gone" is_nothing_left
}

a_broker_says() { # TEXT…
  local pod text
  for pod in $(brokers); do
    for text in "$@"; do logs_have "$pod" "$text" || continue 2; done
    return 0
  done
  return 1
}

grpcurl_answers() { # INSTANCE; no proto files
  local socket
  socket=/var/lib/kubelet/device-plugins/$(plugin_sockets node-1 | grep "^$1-")
  cluster on node-1 grpcurl -plaintext -unix "$socket" v1beta1.DevicePlugin/GetDevicePluginOptions | jq -e .preStartRequired >/dev/null ||
    fail "grpcurl gets no GetDevicePluginOptions"
  { cluster on node-1 grpcurl -plaintext -unix -max-time 1 "$socket" v1beta1.DevicePlugin/ListAndWatch 2>/dev/null || true; } |
    jq -e '.devices | length == 1' >/dev/null || fail "grpcurl gets no ListAndWatch"
}

device_goes() { # SERVICE
  local instance node
  instance=$(instance_of "$1")
  node=$(kubectl get instance "$instance" -o json | jq -r '.spec.deviceUsage[]')
  node_holds "$node" allocatable "$instance" 1 || fail "$node does not offer $1"
  goodbye "$1"
  within 3 "allocatable of $node is 0" node_holds "$node" allocatable "$instance" 0
  note "goodbye -> allocatable 0: $TOOK s, of which 1 s is the goodbye's own (RFC 6762 10.1)"
  within 3 "the Instance says it" is_unhealthy_on "$instance" "$node"
  node_holds "$node" capacity "$instance" 1 || fail "capacity went with it"
  has_brokers zeroconf-http 4 || fail "its broker did not outlive the grace period's beginning"
  within 140 "its Instance goes after the grace period of 60 s and the end of its broker, which takes 30 s" has_no_instance "$1"
  note "unhealthy -> Instance gone: $TOOK s"
  within 10 "its broker goes" has_brokers zeroconf-http 3
}

is_all_leaving() {
  is_empty kubectl get "$AKRI" -A -o name && is_empty brokers && is_empty plugin_sockets node-1 && is_empty plugin_sockets node-2
}

is_nothing_left() {
  is_clean && is_empty plugin_sockets node-1 && is_empty plugin_sockets node-2 && is_empty kubectl get services -l controller=akri.sh -o name
}

test_a_shared_device_is_used_by_one_of_two_nodes() {
  race 1
}

test_two_slots_of_a_shared_device_by_both_resources() {
  race 2
}

# 50 races for a shared device, ten devices at a time: a Pod on each node at once by the Instance's resource and, with a
# second slot, one by the Configuration's too. A race is judged by the slots that running containers say they hold.
race() { # CAPACITY
  local batch n full=0
  clean
  for n in $(seq 10); do announce camera "door-$n" _rtsp._tcp "$((500 + n))"; done
  configure race "kind: _rtsp._tcp" "capacity: $1, gracePeriodSeconds: 5"
  within 10 "ten Instances" has_instances race 10
  for batch in $(seq 5); do
    for node in node-1 node-2; do
      within 45 "$node offers every slot for batch $batch" offers_all "$node" "$1"
    done
    racers "$1" | kubectl create -f - >/dev/null
    within 60 "every Pod of batch $batch runs or is refused" all_are_settled
    within 20 "every container that runs in batch $batch names its slot" slots_are_named
    [ -z "$(sort "$SUITE/slots" | uniq -d)" ] || fail "two containers hold one slot in batch $batch: $(sort "$SUITE/slots" | uniq -d)"
    n=$(sed 's/-[0-9]*$//' "$SUITE/slots" | sort | uniq -c | awk -v c="$1" '$1 == c' | wc -l)
    full=$((full + n))
    kubectl delete pods -l test=yes --now >/dev/null
  done
  note "of 50 races $full ended with every slot in one container"
  [ "$full" -ge 45 ] || fail "only $full of 50 races ended with every slot in one container"
}

offers_all() { # NODE CAPACITY: ten times
  [ "$(kubectl get node "$1" -o json | jq --arg c "$2" '[.status.allocatable | to_entries[] | select((.key | startswith("akri.sh/race-")) and .value == $c)] | length')" = 10 ]
}

racers() { # CAPACITY: Pods, as one list, so that they begin together
  kubectl get instances.akri.sh -o json | jq --argjson capacity "$1" '
    [.items[].metadata.name] as $instances
    | def pod($name; $node; $resource): {
        apiVersion: "v1", kind: "Pod", metadata: {name: $name, labels: {test: "yes"}},
        spec: {
          terminationGracePeriodSeconds: 0, restartPolicy: "Never", nodeName: $node,
          containers: [{
            name: "main", image: "docker.io/library/busybox:stable",
            command: ["/bin/sh", "-c", "env | sort; exec sleep 2147483647"],
            resources: {limits: {("akri.sh/" + $resource): 1}}
          }]
        }
      };
    {apiVersion: "v1", kind: "List", items: [
      $instances[] as $instance | ("node-1", "node-2") as $node
      | pod("\($instance)-\($node)"; $node; $instance),
        (if $capacity > 1 then pod("\($instance)-\($node)-any"; $node; "race") else empty end)
    ]}'
}

all_are_settled() {
  kubectl get pods -l test=yes -o json | jq -e '[.items[].status.phase] | all(. == "Running" or . == "Failed")'
}

slots_are_named() {
  local pod pods
  pods=$(kubectl get pods -l test=yes -o json | jq -r '.items[] | select(.status.phase == "Running") | .metadata.name')
  for pod in $pods; do env_of "$pod" AKRI_SLOT; done >"$SUITE/slots"
  [ "$(wc -l <"$SUITE/slots")" = "$(wc -w <<<"$pods")" ]
}

test_a_device_that_flaps() {
  clean
  local instance uid node
  announce camera lamp _rtsp._tcp 554
  configure flaps "kind: _rtsp._tcp" "gracePeriodSeconds: 8, $BROKER"
  within 5 "an Instance" has_instances flaps 1
  instance=$(instance_of lamp)
  within 20 "its broker runs" has_brokers flaps 1
  # Its one slot is the broker's: on the other node it is taken.
  node=$(kubectl get instances.akri.sh "$instance" -o json | jq -r '.spec.deviceUsage[]')
  uid=$(uids)
  goodbye lamp
  within 5 "it is unhealthy" is_unhealthy_on "$instance" "$node"
  announce camera lamp _rtsp._tcp 554
  within 5 "it is back" is_healthy_on "$instance" "$node"
  within 5 "the node offers it again" node_holds "$node" allocatable "$instance" 1
  equal "the Instance inside the grace period" "$uid" "$(uids)"
  has_brokers flaps 1 || fail "the broker did not outlive the flap"
  goodbye lamp
  within 45 "outside the grace period the Instance goes, once its broker has ended" has_no_instance lamp
  within 10 "and its broker" has_brokers flaps 0
  announce camera lamp _rtsp._tcp 554
  within 5 "it comes back" has_instances flaps 1
  [ "$uid" != "$(uids)" ] || fail "the Instance is the old one"
  within 20 "its broker runs again" has_brokers flaps 1
}

is_healthy_on() {
  [ "$(health_on "$1" "$2")" = Healthy ]
}

test_a_configuration_is_edited() {
  clean
  local uid old
  announce camera one _rtsp._tcp 554
  announce camera two _ipp._tcp 631
  # Without a broker: a slot that is in use stays on the list when the capacity gets less.
  configure edit "kind: _rtsp._tcp" "capacity: 1, gracePeriodSeconds: 5"
  within 5 "an Instance of one" instance_of one
  uid=$(uids)
  configure edit "kind: _rtsp._tcp" "capacity: 3, gracePeriodSeconds: 5"
  within 20 "capacity 3 is offered" node_holds node-1 capacity "$(instance_of one)" 3
  note "capacity 1 -> 3: $TOOK s"
  configure edit "kind: _rtsp._tcp" "capacity: 2, gracePeriodSeconds: 5"
  within 3 "capacity 2 is offered" node_holds node-1 capacity "$(instance_of one)" 2
  equal "the Instance after changes of capacity" "$uid" "$(uids)"
  configure edit "kind: _rtsp._tcp" "capacity: 2, gracePeriodSeconds: 5, brokerProperties: {MODE: slow}, $BROKER"
  within 20 "a broker is told the first properties" a_broker_says MODE=slow
  configure edit "kind: _rtsp._tcp" "capacity: 2, gracePeriodSeconds: 5, brokerProperties: {MODE: fast}, $BROKER"
  within 30 "a broker is told the new properties" a_broker_says MODE=fast
  old=$(instance_of one)
  configure edit "kind: _ipp._tcp" "capacity: 1, gracePeriodSeconds: 5, $BROKER"
  within 5 "an Instance of two" instance_of two
  within 45 "the Instance of one goes after the grace period, once its broker has ended" has_no_instance one
  within 20 "a broker of two runs" a_broker_says AKRI_ZEROCONF_DEVICE_NAME=two
  [ "$old" != "$(instance_of two)" ] || fail "two devices have one Instance"
}

test_two_devices_in_one_container_and_one_in_init_and_main() {
  clean
  local a b
  announce camera left _rtsp._tcp 554
  announce camera right _rtsp._tcp 555
  configure pair "kind: _rtsp._tcp"
  within 5 "two Instances" has_instances pair 2
  a=$(instance_of left) b=$(instance_of right)
  within 5 "node-1 offers two" node_holds node-1 allocatable pair 2
  pod both node-1 pair=2
  within 20 "it runs" is_running both
  within 5 "it was told left" logs_have both "AKRI_ZEROCONF_DEVICE_NAME_$(suffix "$a")=left"
  within 5 "it was told right" logs_have both "AKRI_ZEROCONF_DEVICE_NAME_$(suffix "$b")=right"
  kubectl delete pod both --now >/dev/null
  # It was claimed by the Configuration's resource: free for the Instance's when two looks have missed it.
  within 40 "node-1 offers left again" node_holds node-1 allocatable "$a" 1
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: init-and-main}
spec:
  terminationGracePeriodSeconds: 0
  nodeName: node-1
  restartPolicy: Never
  initContainers: [{name: init, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "env | sort"], resources: {limits: {akri.sh/$a: 1}}}]
  containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "env | sort; exec sleep 2147483647"], resources: {limits: {akri.sh/$a: 1}}}]
X
  within 45 "it runs" is_running init-and-main
  for container in init main; do
    within 5 "$container was told left" logs_have init-and-main AKRI_ZEROCONF_DEVICE_NAME=left -c $container
  done
}

suffix() { # INSTANCE
  local digest=${1##*-}
  echo "${digest^^}"
}

test_jobs_run_once_for_each_device_and_generation() {
  clean
  local job='containers: [{name: job, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "env | sort"], resources: {limits: {"{{PLACEHOLDER}}": "1"}}}]'
  echoes jobs 2 "brokerSpec: {brokerJobSpec: {ttlSecondsAfterFinished: 2, template: {spec: {restartPolicy: Never, $job}}}}"
  within 30 "two Jobs are done" have_been_done jobs 2
  within 30 "both are collected" has_no_job
  for_all_of 8 "none is made again" has_no_job
  equal "generations that Instances remember" "1 1" "$(kubectl get instances.akri.sh -o json | jq -r '[.items[].status.brokerGeneration] | join(" ")')"
  kubectl patch configuration jobs --type=merge -p '{"spec":{"brokerProperties":{"MODE":"again"}}}' >/dev/null
  within 30 "the next generation's two are done" have_been_done jobs 4
  within 30 "those are collected too" has_no_job
}

test_a_job_goes_on_while_the_new_spec_is_refused() {
  clean
  local job='containers: [{name: job, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"], resources: {limits: {"{{PLACEHOLDER}}": "1"}}}], terminationGracePeriodSeconds: 0'
  echoes jobs 1 "brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Never, $job}}}}"
  within 30 "its Job runs" job_runs 1
  echoes jobs 1 "brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: Sometimes, $job}}}}"
  within 10 "the refusal is in the status" is_ready_as jobs "False BrokerSpecInvalid"
  within 5 "an Event names the field" has_event jobs "spec.template.spec.restartPolicy"
  job_runs 1 || fail "the Jobs are $(kubectl get jobs -o name)"
  echoes jobs 1 "brokerSpec: {brokerJobSpec: {template: {spec: {restartPolicy: OnFailure, $job}}}}"
  within 60 "the corrected Job runs" job_runs 3
}

job_runs() { # GENERATION: the Job of this generation is the only one, and runs
  kubectl get jobs -o json | jq -e --arg g "-$1-job" '.items | length == 1 and (.[0] | (.metadata.name | endswith($g)) and .status.active == 1)' >/dev/null
}

# Events outlive the Jobs.
have_been_done() { # CONFIGURATION COUNT
  [ "$(kubectl get events --field-selector reason=Completed,involvedObject.kind=Job -o json | jq --arg c "$1-" '[.items[].involvedObject.name | select(startswith($c))] | unique | length')" = "$2" ]
}

has_no_job() {
  is_empty kubectl get jobs -o name
}

test_services_lead_to_brokers() {
  clean
  local instance
  announce camera web _http._tcp 8080
  configure served "kind: _http._tcp" "gracePeriodSeconds: 5, $BROKER, instanceServiceSpec: {ports: [{port: 80, targetPort: 8080}]}, configurationServiceSpec: {ports: [{port: 80, targetPort: 8080}]}"
  within 10 "an Instance" has_instances served 1
  within 30 "its broker runs" has_brokers served 1
  instance=$(instance_of web)
  within 15 "the Instance's Service leads to it" leads_to_a_pod "$instance-svc"
  within 15 "the Configuration's Service leads to it" leads_to_a_pod served-svc
  kubectl delete configuration served >/dev/null
  within 20 "the Services are gone" is_nothing_left
}

leads_to_a_pod() { # SERVICE
  kubectl get endpointslices -l "kubernetes.io/service-name=$1" -o json | jq -e '[.items[].endpoints[]? | select(.conditions.ready)] | length == 1'
}

test_two_configurations_of_one_name() {
  clean
  kubectl create namespace later >/dev/null 2>&1 || true
  announce camera shared _rtsp._tcp 554
  configure twice "kind: _rtsp._tcp"
  within 5 "the older has an Instance" has_instances twice 1
  within 10 "the older is ready" is_ready_as twice "True Working"
  kubectl get configuration twice -o json | jq '.metadata |= {name: .name, namespace: "later"} | del(.status)' | kubectl apply -f - >/dev/null
  within 10 "the later says why not" is_ready_as twice "False ConfigurationNameTaken" later
  within 5 "an Event says it too" has_event_in later twice ConfigurationNameTaken
  is_empty kubectl -n later get instances.akri.sh -o name || fail "the later has Instances"
  is_ready_as twice "True Working" || fail "the older does not work any more"
  kubectl delete namespace later --wait=false >/dev/null
}

has_event_in() { # NAMESPACE NAME TEXT
  kubectl -n "$1" get events --field-selector "involvedObject.name=$2" -o json | jq -r '.items[].reason' | matches -x "$3"
}

test_a_hundred_devices() {
  clean
  echoes hundred 100
  within 30 "a hundred Instances" has_instances hundred 100
  within 30 "node-2 offers a hundred" node_holds node-2 allocatable hundred 100
  note "applied -> 100 Instances, allocatable on both nodes: $TOOK s after the last Instance"
  kubectl delete configuration hundred >/dev/null
  within 20 "all are gone" is_nothing_left
}

test_no_write_at_rest_though_nodes_resolve_different_addresses() {
  clean
  local instance began
  # The machine is in a network of node-2's alone, too, and that node hears it only there: another address.
  cluster cable camera node-2
  block node-2 A
  trap 'block node-2 D; cluster cut camera' EXIT
  configure rest "kind: _rtsp._tcp" # without any, an agent listens nowhere
  within 60 "avahi is on the cable" hears_mdns camera
  within 60 "the agent of node-2 is on the cable" hears_mdns node-2
  announce camera multi _rtsp._tcp 554
  within 5 "an Instance" has_instances rest 1
  instance=$(instance_of multi)
  within 5 "both nodes see it" is_on "$instance" node-1 node-2
  within 20 "the Configuration is ready" is_ready_as rest "True Working"
  within 60 "the nodes reach it differently" are_reached_differently "$instance"
  note "digests of how each node reaches it: $(connections "$instance" | paste -sd' ')"
  sleep 12 # the kubelets' own late reports may be answered once
  began=$(mark)
  for_all_of 60 "the Instance is there, and the nodes reach it differently" are_reached_differently "$instance"
  requests_since "$began" >"$SUITE/requests"
  [ ! -s "$SUITE/requests" ] || fail "asked at rest: $(sort "$SUITE/requests" | uniq -c)"
}

hears_mdns() { # MACHINE: on its eth1; an interface's groups follow its line, in hex as the machine stores them
  # shellcheck disable=SC2016 # awk's own
  cluster on "$1" awk '/eth1/ { own = 1; next } /^[0-9]/ { own = 0 } own && $1 == "FB0000E0" { found = 1 } END { exit !found }' /proc/net/igmp
}

connections() { # INSTANCE: as each node says it of its device
  local id
  id=$(kubectl get instances.akri.sh "$1" -o json | jq -r '.metadata.annotations["akri.sh/device-id"]')
  kubectl get nodedevices -o json | jq -r --arg id "$id" '.items[].spec.configurations[].devices[]? | select(.id == $id) | .connection // empty'
}

are_reached_differently() { # INSTANCE
  [ "$(connections "$1" | wc -l)" = 2 ] && [ "$(connections "$1" | sort -u | wc -l)" = 2 ]
}

# The node's firewall lets through nothing of the camera: the API server and kubelet are as before.
test_a_node_that_cannot_see_a_shared_device_any_more_hands_it_over() {
  clean
  local instance node other
  announce camera drive _rtsp._tcp 554
  configure handed "kind: _rtsp._tcp" "gracePeriodSeconds: 5, $BROKER"
  within 5 "an Instance" has_instances handed 1
  instance=$(instance_of drive)
  within 5 "both nodes see it" is_on "$instance" node-1 node-2
  within 30 "its broker runs" has_brokers handed 1
  node=$(node_of_broker handed)
  other=$([ "$node" = node-1 ] && echo node-2 || echo node-1)
  block "$node" A
  # shellcheck disable=SC2064 # this node
  trap "block $node D" EXIT
  within 45 "$node does not see it" is_unhealthy_on "$instance" "$node"
  note "cut off from the camera -> unhealthy: $TOOK s"
  within 15 "$node leaves it" is_on "$instance" "$other"
  within 60 "a broker runs on $other" has_broker_on handed "$other"
  note "left -> a broker on $other: $TOOK s"
  within 10 "its slot is $other's" has_slot_of "$instance" "$other"
  within 10 "and there is no other broker" has_brokers handed 1
  within 10 "$node is not in its labels" has_labels_of "$instance" "$other"
  block "$node" D
  trap - EXIT
  within 70 "$node sees it again" is_on "$instance" node-1 node-2
  has_broker_on handed "$other" || fail "the broker did not stay on $other"
}

node_of_broker() { # CONFIGURATION
  kubectl get pods -l "akri.sh/configuration=$1" -o json |
    jq -re '.items[] | select(.status.phase == "Running" and .metadata.deletionTimestamp == null) | .spec.nodeName'
}

has_broker_on() { # CONFIGURATION NODE
  [ "$(node_of_broker "$1")" = "$2" ]
}

has_slot_of() { # INSTANCE NODE: one, and no other's
  kubectl get instances.akri.sh "$1" -o json | jq -e --arg n "$2" '[.spec.deviceUsage[] | select(. != "") | sub(".*:"; "")] == [$n]'
}

has_labels_of() { # INSTANCE NODE: its, and no other node's
  kubectl get instances.akri.sh "$1" -o json | jq -e --arg n "node.akri.sh/$2" '[.metadata.labels | keys[] | select(startswith("node.akri.sh/"))] == [$n]'
}

test_with_a_stolen_token_only_its_own_node_can_be_touched() {
  clean
  # shellcheck source=tests/e2e/stolen_token.sh
  . "$E2E/stolen_token.sh"
  stolen_token_is_of_little_use
}

test_what_a_stolen_token_has_written_is_taken_back() {
  clean
  # shellcheck source=tests/e2e/stolen_token.sh
  . "$E2E/stolen_token.sh"
  what_a_stolen_token_has_written_is_taken_back
}

test_akris_own_samples_apply_unchanged() {
  clean
  # Of the samples' brokers. A kubelet that tries to pull it takes minutes to let go of them.
  cluster image docker.io/library/nginx:stable-alpine "$SUITE/image" /bin/sleep 2147483647 >"$SUITE/nginx.tar"
  cluster load "$SUITE/nginx.tar"
  kubectl apply -f "$E2E/../akri/" --validate=strict
  within 10 "debugEcho works" is_ready_as akri-debug-echo "True Working"
  # Nothing answers at the address of the sample, and that is said.
  within 20 "the server of opcua is said to be unreachable" is_ready_as akri-opcua-monitoring "False DiscoveryIncomplete"
  # The chart is installed without discoveryProperties.enabled, and the sample's credentials are of a Secret.
  within 10 "the credentials of onvif cannot be read" is_ready_as akri-onvif "False DiscoveryPropertyUnreadable"
  # The chart is installed without udev.enabled.
  within 10 "no device of udev is allowed" is_ready_as akri-udev "False BadDiscoveryDetails"
}

# The kubelet keeps an entry for 5 min, and the agent gives it 30 s more to write its 0. All tests' entries wait at once.
test_zz_capacity_entries_are_tidied() {
  clean
  local entry stopped
  announce camera last _rtsp._tcp 554
  configure tidied "kind: _rtsp._tcp"
  within 5 "an Instance" has_instances tidied 1
  entry=$(instance_of last)
  within 15 "node-1 offers it" node_holds node-1 allocatable "$entry" 1
  kubectl delete configuration tidied >/dev/null
  within 10 "its plugins have stopped" has_no_socket
  stopped=$EPOCHREALTIME
  for_all_of 329 "its entry stays for 5.5 min" has_entry node-1 "$entry"
  within "$(awk "BEGIN { print 390 - $(since "$stopped") }")" "its entry is gone after 6.5 min" lacks_entry node-1 "$entry"
  note "plugin stopped -> entry gone: $(since "$stopped") s"
  within 60 "no entry of ours is left on any node" has_no_entry
}

has_no_socket() {
  is_empty plugin_sockets node-1
}

lacks_entry() { # NODE RESOURCE
  kubectl get node "$1" -o json | jq -e --arg r "akri.sh/$2" '.status.capacity | has($r) | not'
}

has_no_entry() {
  is_empty entries
}
