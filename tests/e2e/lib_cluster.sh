# What the suites of a whole cluster share: nodes node-1 and node-2, avahi devices on their LAN, Petiole by its chart in
# the namespace petiole. Sourced by those suites.
# shellcheck shell=bash disable=SC2034,SC2119,SC2120,SC2153 # SUITE is set by run, and suites use what is set here

CHART=$E2E/../../charts/petiole
EXAMPLES=$E2E/../../examples
IMAGE=${PETIOLE_IMAGE:-$E2E/../../target/image/petiole.tar}
AKRI=configurations.akri.sh,instances.akri.sh

helm() {
  cluster on control helm --namespace petiole "$@"
}

CHART_VALUES=(--set image.repository=localhost/petiole --set image.tag=dev --set image.pullPolicy=Never)

install() { # [ARGS… of helm install]
  helm install petiole "$CHART" --create-namespace "${CHART_VALUES[@]}" --wait --timeout 90s "$@" >/dev/null
}

# A cluster whose nodes have the images of Petiole and of brokers.
up_with_images() { # [NODES]
  [ -e "$IMAGE" ] || { echo "no image at $IMAGE: just image"; return 1; }
  cluster up "${1:-2}"
  # The name of the broker's image in examples/.
  load_busybox docker.io/library/busybox:stable
  cluster load "$IMAGE"
}

# ---- tidy beginnings ----

# No Configuration, Instance or Pod of an earlier test, and no service on the LAN. Capacity entries may stand for a while.
clean() {
  stop_all
  # A test that failed may have left it stopped.
  kubectl get --raw /readyz >/dev/null 2>&1 || cluster apiserver start
  kubectl delete "$AKRI" --all --all-namespaces --wait=false >/dev/null 2>&1 || true
  # A test that failed leaves its owners of Pods.
  kubectl delete deployments,daemonsets,pods,jobs --all --now --wait=false >/dev/null
  within 120 "the objects of the last test are gone" is_clean
  agents_are_ready
}

is_clean() {
  local left
  left=$(kubectl get "$AKRI,pods,jobs" --all-namespaces -o name) || return 1
  # An answer without a line is one empty line here.
  ! grep -Eqv '^(pod/petiole-.*)?$' <<<"$left"
}

agents_are_ready() {
  kubectl -n petiole rollout status daemonset/petiole-agent --timeout=60s >/dev/null
  kubectl -n petiole rollout status deployment/petiole-controller --timeout=60s >/dev/null
  # An agent that hands over to another one ends a moment later.
  local n
  for ((n = 0; n < 100; n++)); do
    ! no_agent_is_ending || return 0
    sleep 0.5
  done
  return 1
}

no_agent_is_ending() {
  local pods
  pods=$(kubectl -n petiole get pods -o json) || return 1
  jq -e 'all(.items[].metadata; (.name | startswith("petiole-agent") | not) or .deletionTimestamp == null)' <<<"$pods" >/dev/null
}

# ---- Configurations ----

# configure NAME DETAILS [FIELDS of spec, as YAML flow]: a zeroconf Configuration.
configure() {
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec: {discoveryHandler: {name: zeroconf, discoveryDetails: "$2"}, ${3:-gracePeriodSeconds: 5}}
X
}

# echoes NAME COUNT [FIELDS]: a debugEcho Configuration of devices that are nothing but their names.
echoes() {
  local names
  names=$(seq -f "device-%g" -s, "$2")
  kubectl apply -f - >/dev/null <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: "descriptions: [$names]"}, ${3:-capacity: 1}}
X
}

BROKER='brokerSpec: {brokerPodSpec: {terminationGracePeriodSeconds: 0, containers: [{name: broker, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "env | sort; exec sleep 2147483647"], resources: {limits: {"{{PLACEHOLDER}}": "1"}}}]}}'

# ---- what stands on the API server ----

instance_of() { # SERVICE
  kubectl get instances.akri.sh -o json | jq -re --arg s "$1" '.items[] | select(.spec.brokerProperties.AKRI_ZEROCONF_DEVICE_NAME == $s) | .metadata.name'
}

has_no_instance() { # SERVICE
  local instances
  instances=$(kubectl get instances.akri.sh -o json) || return 1
  jq -e --arg s "$1" 'all(.items[]; .spec.brokerProperties.AKRI_ZEROCONF_DEVICE_NAME != $s)' <<<"$instances"
}

instances() { # CONFIGURATION: how many it has
  kubectl get instances.akri.sh -o json | jq --arg c "$1" '[.items[] | select(.spec.configurationName == $c)] | length'
}

has_instances() { # CONFIGURATION COUNT
  [ "$(instances "$1")" = "$2" ]
}

nodes_of() { # INSTANCE
  kubectl get instances.akri.sh "$1" -o json | jq -r '.spec.nodes | sort | join(" ")'
}

is_on() { # INSTANCE NODES…
  local instance=$1
  shift
  [ "$(nodes_of "$instance")" = "$*" ]
}

health_on() { # INSTANCE NODE: a node that the Instance names is healthy unless the status says otherwise
  kubectl get instances.akri.sh "$1" -o json | jq -re --arg n "$2" 'select(.spec.nodes | index($n))
    | [.status.nodes[]? | select(.name == $n) | .health][0] // "Healthy"'
}

is_unhealthy_on() {
  [ "$(health_on "$1" "$2")" = Unhealthy ]
}

ready_of() { # CONFIGURATION [NAMESPACE]: status and reason of its condition
  kubectl -n "${2:-default}" get configurations.akri.sh "$1" -o json | jq -r '.status.conditions[] | select(.type == "Ready") | "\(.status) \(.reason)"'
}

is_ready_as() { # CONFIGURATION "STATUS REASON" [NAMESPACE]
  [ "$(ready_of "$1" "${3:-default}")" = "$2" ]
}

# node_holds NODE capacity|allocatable RESOURCE AMOUNT; nothing counts as 0
node_holds() {
  local amount
  amount=$(kubectl get node "$1" -o json | jq -r --arg r "akri.sh/$3" ".status.$2[\$r] // \"0\"")
  [ "$amount" = "$4" ]
}

has_entry() { # NODE RESOURCE
  kubectl get node "$1" -o json | jq -e --arg r "akri.sh/$2" '.status.capacity | has($r)'
}

entries() { # all of ours, of all nodes, with their node
  kubectl get nodes -o json | jq -r '.items[] | .metadata.name as $n | .status.capacity | keys[] | select(startswith("akri.sh/")) | "\($n) \(.)"'
}

offers_of() { # CONFIGURATION COUNT NODE: devices with one slot each that the node offers
  [ "$(kubectl get node "$3" -o json | jq --arg c "akri.sh/$1-" '[.status.allocatable | to_entries[] | select((.key | startswith($c)) and .value == "1")] | length')" = "$2" ]
}

events_of() { # NAME: reasons and notes
  kubectl get events --field-selector "involvedObject.name=$1" -o json | jq -r '.items[] | "\(.reason): \(.message)"'
}

has_event() { # NAME TEXT
  events_of "$1" | matches -F "$2"
}

# ---- Pods ----

# pod NAME NODE|- RESOURCE[=AMOUNT]…: one container that says its environment and sleeps.
pod() {
  local name=$1 node=$2 limits='' resource
  shift 2
  for resource in "$@"; do limits+="\"akri.sh/${resource%%=*}\": $([[ $resource == *=* ]] && echo "${resource##*=}" || echo 1), "; done
  kubectl create -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: $name, labels: {test: "yes"}}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  $([ "$node" = - ] || echo "nodeName: $node")
  containers:
    - name: main
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, "env | sort; exec sleep 2147483647"]
      resources: {limits: {${limits%, }}}
X
}

# at_once NAME REPLICAS CONFIGURATION: a Deployment whose Pods, all made at once, ask for one device each, on any node.
at_once() {
  kubectl apply -f - >/dev/null <<X
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: $2
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: "docker.io/library/busybox:stable", command: [/bin/sh, -c, "exec sleep 2147483647"], resources: {limits: {akri.sh/$3: 1}}}]
X
}

# A node's firewall lets through nothing of the machine camera, or what it did again.
block() { # NODE A|D: as iptables has it
  local family address
  for family in 4 6; do # avahi speaks both
    for address in $(cluster on camera ip "-$family" -o addr show dev eth0 | awk '{ sub("/.*", "", $4); print $4 }'); do
      cluster on "$1" "ip${family#4}tables" "-$2" INPUT -s "$address" -j DROP
    done
  done
}

phase_of() {
  kubectl get pod "$1" -o 'jsonpath={.status.phase}'
}

is_running() {
  [ "$(phase_of "$1")" = Running ]
}

is_settled() { # Running, or refused
  [[ $(phase_of "$1") =~ ^(Running|Failed)$ ]]
}

env_of() { # POD VARIABLE
  kubectl logs "$1" | sed -n "s/^$2=//p" | sed -n 1p
}

brokers() { # [CONFIGURATION]: names of broker Pods that run
  kubectl get pods -l "akri.sh/configuration${1:+=$1}" -o json | jq -r '.items[] | select(.status.phase == "Running" and .metadata.deletionTimestamp == null) | .metadata.name'
}

has_brokers() { # CONFIGURATION COUNT
  local running
  running=$(brokers "$1") || return 1
  [ "$(wc -w <<<"$running")" = "$2" ]
}

# What makes running brokers the same: their containers and how often they were started.
containers() {
  kubectl get pods -l akri.sh/configuration -o json |
    jq -r '.items[] | "\(.metadata.name) \(.metadata.uid) \(.status.containerStatuses[0].containerID) \(.status.containerStatuses[0].restartCount)"' | sort
}

uids() {
  kubectl get instances.akri.sh -o json | jq -r '.items[] | "\(.metadata.name) \(.metadata.uid)"' | sort
}

# ---- on the node ----

plugin_sockets() { # NODE
  find "$CLUSTER_DIR/$1/var/lib/kubelet/device-plugins" -name '*.sock' ! -name kubelet.sock -printf '%f\n' | sort
}

agent_of() { # NODE: its Pod
  kubectl -n petiole get pods -o json | jq -r --arg n "$1" '.items[] | select(.spec.nodeName == $n and (.metadata.name | startswith("petiole-agent")) and .metadata.deletionTimestamp == null) | .metadata.name'
}

# The process of a node's agent, as the node has it.
agent_pid() { # NODE
  local there
  there=$(processes "$1" agent) && [ -n "$there" ] && echo "${there%%[^0-9]*}"
}

processes() { # NODE SUBCOMMAND; none is no error
  # shellcheck disable=SC2016 # expanded on the node
  cluster on "$1" sh -c 'for p in /proc/[0-9]*; do
    if [ "$(tr "\0" " " <$p/cmdline 2>/dev/null | cut -d" " -f1,2)" = "/petiole $1" ]; then echo ${p#/proc/}; fi; done' - "$2"
}

kill_agent() { # NODE SIGNAL
  cluster on "$1" kill "-$2" "$(agent_pid "$1")"
}

# ---- what was asked of the API server ----

# Requests of Petiole's ServiceAccounts since a mark, but for watches and the Lease; a line each: USER VERB RESOURCE SUBRESOURCE NAME
requests_since() { # MARK
  tail -n "+$(($1 + 1))" "$CLUSTER_DIR/log/audit.log" | jq -r 'select(.verb != "watch") |
    select(.user.username | contains(":petiole-")) | select(.objectRef.resource != "leases") |
    "\(.user.username | sub(".*:"; "")) \(.verb) \(.objectRef.resource) \(.objectRef.subresource // "-") \(.objectRef.name // "-")"'
}

mark() {
  wc -l <"$CLUSTER_DIR/log/audit.log"
}

# The longest of the bounds of a histogram below which 99 of 100 calls were.
allocate_p99() { # NODE [EARLIER]: of the calls since the counts in this file
  allocate_counts "$1" | awk '
    FILENAME != "-" { before[$1] = $2; next }
    { bound[++n] = $1; count[n] = $2 - before[$1] }
    END { for (i = 1; i <= n; i++) if (count[n] && count[i] >= 0.99 * count[n]) { print bound[i] " (" count[n] " calls)"; exit } }' "${2:-/dev/null}" -
}

allocate_counts() { # NODE: the bounds of the histogram, each with its count
  cluster on "$1" curl -s -m 10 http://127.0.0.1:9170/metrics | awk -F'[" ]' '/^petiole_allocate_duration_seconds_bucket/ { print $2, $NF }'
}

# ---- when a test fails ----

show() {
  kubectl get nodes,pods,configurations,instances -A -o wide 2>&1
  kubectl get instances,configurations -A -o yaml 2>&1 | tail -n 150
  kubectl get events -A --sort-by=.lastTimestamp 2>&1 | grep -v "node/node-" | tail -n 40
  entries
  local pod
  for pod in $(kubectl -n petiole get pods -o name); do
    echo "--- $pod"
    kubectl -n petiole logs "$pod" --tail=25 2>&1 | cut -c1-400
  done
}
