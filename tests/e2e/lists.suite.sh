# The lists of devices, on a cluster of two nodes: over HTTP for those who may read them, for this machine's Prometheus, and as a
# file in a Pod. And the names of devices in the cluster, as Services with EndpointSlices.
# shellcheck shell=bash disable=SC2119,SC2153 # SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

set_up() {
  up_with_images
  install --set deviceLists.enabled=true,deviceLists.configMaps=true \
    --set 'deviceServices.networks={198.51.100.0/24},deviceServices.clusterNetworks={203.0.113.0/24,192.0.0.0/24}'
  cluster avahi camera
  kubectl create serviceaccount reader >/dev/null
  kubectl create serviceaccount stranger >/dev/null
  kubectl apply -f - >/dev/null <<X
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules:
  - {apiGroups: [akri.sh], resources: [configurations/devices], resourceNames: [cams], verbs: [get]}
X
  kubectl create rolebinding reader --role reader --serviceaccount default:reader >/dev/null
}

server() {
  echo "http://$(kubectl -n petiole get service petiole-devices -o 'jsonpath={.spec.clusterIP}')/v1/namespaces/default/configurations"
}

token_of() { # ACCOUNT [AUDIENCE]
  kubectl create token "$1" --audience "${2:-petiole}"
}

# Prints the status of the answer; the body is in $SUITE/answer.
ask() { # PATH [TOKEN]
  cluster on node-1 curl -s -m 5 -o "$SUITE/answer" -w '%{http_code}' ${2:+-H "Authorization: Bearer $2"} "$(server)/$1"
}

lists() { # TOKEN COUNT, of healthy devices
  [ "$(ask cams/devices "$1")" = 200 ] && jq -e --argjson n "$2" '[.devices[] | select(.healthy)] | length == $n' "$SUITE/answer"
}

names_both() { # TOKEN
  lists "$1" 1 && [ "$(jq -r '.devices[0].nodes | sort | join(",")' "$SUITE/answer")" = node-1,node-2 ]
}

test_a_list_is_given_to_those_who_may_read_it() {
  clean
  announce camera door _rtsp._tcp 554
  configure cams 'kind: _rtsp._tcp'
  local reader address replica began
  reader=$(token_of reader)
  # Each node sees it at its own time.
  within 20 "the device is in the list with both nodes" names_both "$reader"
  address=$(cluster on camera ip -4 -o addr show scope global | awk 'NR == 1 { sub("/.*", "", $4); print $4 }')
  equal "the address" "$address:554" "$(jq -r '.devices[0].address' "$SUITE/answer")"
  equal "without a token" 401 "$(ask cams/devices)"
  equal "with a token for the API server" 401 "$(ask cams/devices "$(kubectl create token reader)")"
  equal "with a token for another server" 401 "$(ask cams/devices "$(token_of reader other)")"
  equal "with a forged token" 401 "$(ask cams/devices "${reader}x")"
  equal "with an account without the right" 403 "$(ask cams/devices "$(token_of stranger)")"
  equal "of another Configuration" 403 "$(ask other/devices "$reader")"
  # Every replica answers, also those that do not lead.
  for replica in $(kubectl -n petiole get pods -l app.kubernetes.io/component=controller -o 'jsonpath={.items[*].status.podIP}'); do
    cluster on node-1 curl -sf -m 5 -o "$SUITE/answer" -H "Authorization: Bearer $reader" \
      "http://$replica:8080/v1/namespaces/default/configurations/cams/devices" || fail "the replica $replica does not answer"
    equal "the devices that $replica knows" 1 "$(jq '.devices | length' "$SUITE/answer")"
  done
  began=$EPOCHREALTIME
  goodbye door
  within 4 "the device is not healthy in the list" lists "$reader" 0
  note "goodbye -> not healthy in the list: $(since "$began") s (a goodbye counts after 1 s)"
}

has_targets() { # COUNT, of Prometheus
  cluster on node-1 curl -sf -m 5 'http://127.0.0.1:9090/api/v1/targets?state=active' |
    jq -e --argjson n "$1" '.data.activeTargets | length == $n and all(.labels.device | startswith("cams-"))'
}

test_prometheus_scrapes_a_service_that_announces_itself_and_forgets_it() {
  command -v prometheus >/dev/null || { note "no prometheus on this machine: not tried"; return 0; }
  clean
  configure cams 'kind: _rtsp._tcp'
  token_of reader >"$SUITE/token"
  mkdir -p "$SUITE/prometheus"
  cat >"$SUITE/prometheus.yaml" <<X
scrape_configs:
  - job_name: devices
    scrape_interval: 1s
    scrape_timeout: 1s
    http_sd_configs:
      - url: $(server)/cams/http_sd
        refresh_interval: 1s
        authorization: {type: Bearer, credentials_file: $SUITE/token}
    relabel_configs:
      - {source_labels: [__meta_petiole_healthy], regex: "true", action: keep}
      - {source_labels: [__meta_petiole_instance], target_label: device}
X
  promtool check config "$SUITE/prometheus.yaml" >/dev/null || fail "promtool refuses the configuration"
  begin prometheus node-1 prometheus --config.file "$SUITE/prometheus.yaml" --storage.tsdb.path "$SUITE/prometheus" \
    --web.listen-address 127.0.0.1:9090
  within 20 "Prometheus has no target" has_targets 0
  announce camera door _rtsp._tcp 554
  within 20 "the service is a target" has_targets 1
  note "announced -> target of Prometheus: $TOOK s"
  goodbye door
  within 20 "the service is no target any more" has_targets 0
  note "goodbye -> no target: $TOOK s"
  announce camera door _rtsp._tcp 554
  within 20 "the service is a target again" has_targets 1
  kubectl delete configuration cams >/dev/null
  within 20 "a Configuration that is gone has no target" has_targets 0
  stop prometheus
}

in_file() { # JQ, of the file in the Pod
  kubectl exec lister -- cat /devices/devices.json | jq -e "$1"
}

in_config_map() { # JQ
  kubectl get configmap cams-devices -o json | jq -re '.data["devices.json"]' | jq -e "$1"
}

test_a_pod_has_all_devices_in_a_file() {
  clean
  announce camera door _rtsp._tcp 554
  configure cams 'kind: _rtsp._tcp' 'gracePeriodSeconds: 5, deviceList: true'
  within 20 "the ConfigMap has the device" in_config_map '.devices | length == 1 and .[0].healthy'
  kubectl apply -f - >/dev/null <<X
apiVersion: v1
kind: Pod
metadata: {name: lister}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: devices, configMap: {name: cams-devices}}]
  containers:
    - name: main
      image: docker.io/library/busybox:stable
      command: [/bin/sh, -c, exec sleep 2147483647]
      volumeMounts: [{name: devices, mountPath: /devices}]
X
  within 20 "the Pod runs" is_running lister
  in_file '.devices | length == 1' >/dev/null || fail "the file has no device"
  announce camera gate _rtsp._tcp 555
  within 8 "the ConfigMap has both" in_config_map '.devices | length == 2'
  note "announced -> ConfigMap: $TOOK s"
  # The kubelet writes the file when it looks at the Pod: once a minute, and when the Pod has changed.
  kubectl annotate pod lister looked-at=yes >/dev/null
  within 120 "the file has both" in_file '.devices | length == 2'
  note "then, the Pod being annotated -> file of the Pod: $TOOK s"
  # Somebody else's change is undone with the next change of a device.
  kubectl patch configmap cams-devices --type merge -p '{"data":{"devices.json":"{}"}}' >/dev/null
  goodbye gate
  within 8 "the ConfigMap is right again" in_config_map '[.devices[] | select(.healthy)] | length == 1'
  kubectl patch configuration cams --type merge -p '{"spec":{"deviceList":false}}' >/dev/null
  within 10 "the ConfigMap is deleted" is_empty kubectl get configmap cams-devices --ignore-not-found
}

test_a_config_map_of_somebody_else_stays() {
  clean
  kubectl create configmap cams-devices --from-literal mine=yes >/dev/null
  configure cams 'kind: _rtsp._tcp' 'gracePeriodSeconds: 5, deviceList: true'
  within 40 "the Configuration says so" has_event cams 'ConfigMap cams-devices exists and is not of this Configuration'
  equal "its data" '{"mine":"yes"}' "$(kubectl get configmap cams-devices -o json | jq -c .data)"
  kubectl delete configmap cams-devices >/dev/null
  within 40 "it is made when the name is free" in_config_map '.devices == []'
  kubectl delete configuration cams >/dev/null
  within 30 "the garbage collector removes it" is_empty kubectl get configmap cams-devices --ignore-not-found
}

# refused TEXT ARGS… of kubectl: it is refused with this text.
refused() {
  local text=$1
  shift
  if kubectl "$@" >"$SUITE/said" 2>&1; then fail "this should be refused: $*"; fi
  grep -qF "$text" "$SUITE/said" || fail "$* is refused, but: $(cat "$SUITE/said")"
}

test_nobody_gets_rights_on_config_maps_by_the_controller() {
  clean
  local controller=system:serviceaccount:petiole:petiole-controller
  # Who may write Configurations and no ConfigMaps.
  kubectl create rolebinding stranger --clusterrole petiole-edit --serviceaccount default:stranger >/dev/null
  cat >"$SUITE/theirs.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: theirs}
spec: {discoveryHandler: {name: zeroconf, discoveryDetails: "kind: _rtsp._tcp"}, deviceList: true}
X
  refused 'may not create configmaps' --as system:serviceaccount:default:stranger create -f "$SUITE/theirs.yaml"
  sed -i 's/deviceList: true/deviceList: false/' "$SUITE/theirs.yaml"
  kubectl --as system:serviceaccount:default:stranger create -f "$SUITE/theirs.yaml" >/dev/null
  # The controller's account, stolen.
  kubectl create configmap foreign-devices >/dev/null
  refused 'only ConfigMaps <configuration>-devices' --as "$controller" create configmap any
  printf '%s\n' 'apiVersion: v1' 'kind: ConfigMap' 'metadata: {name: foreign-devices}' 'data: {devices.json: "{}"}' >"$SUITE/foreign.yaml"
  refused 'only ConfigMaps <configuration>-devices' --as "$controller" apply --server-side -f "$SUITE/foreign.yaml"
  refused 'only ConfigMaps <configuration>-devices' --as "$controller" delete configmap foreign-devices
  refused 'cannot get resource' --as "$controller" get configmap foreign-devices
  # A patch that changes nothing would return it.
  sed '/^data/d' "$SUITE/foreign.yaml" >"$SUITE/empty.yaml"
  refused 'only ConfigMaps <configuration>-devices' --as "$controller" apply --server-side -f "$SUITE/empty.yaml"
  sed "s/^metadata: .*/metadata: {name: x-devices, labels: {grafana_dashboard: '1'}, ownerReferences: [{apiVersion: akri.sh\/v0, kind: Configuration, name: x, uid: u, controller: true}]}/" \
    "$SUITE/foreign.yaml" >"$SUITE/labeled.yaml"
  refused 'one owner, its own label' --as "$controller" create -f "$SUITE/labeled.yaml"
  kubectl delete configmap foreign-devices >/dev/null
}

# The endpoints of a Service: a line each, "ADDRESS:PORT READY".
endpoints() { # SERVICE
  kubectl get endpointslices -l "kubernetes.io/service-name=$1" -o json |
    jq -r '.items[] | .ports[0].port as $p | .endpoints[]? | "\(.addresses[0]):\($p) \(.conditions.ready)"'
}

has_endpoint() { # SERVICE "ADDRESS:PORT READY"
  [ "$(endpoints "$1")" = "$2" ]
}

address_of_camera() {
  cluster on camera ip -4 -o addr show scope global | awk 'NR == 1 { sub("/.*", "", $4); print $4 }'
}

# Runs a program of the node in the network of a Pod, whose image has none of its kind.
in_network_of() { # POD NODE COMMAND…
  local id pid node=$2
  id=$(kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].containerID}')
  pid=$(cluster on "$node" ctr -n k8s.io tasks list | awk -v id="${id#*://}" '$1 == id { print $2 }')
  shift 2
  cluster on "$node" nsenter -t "$pid" -n "$@"
}

test_a_pod_reaches_a_device_by_its_name_in_the_cluster() {
  clean
  local address instance pair began
  address=$(address_of_camera)
  announce camera door _rtsp._tcp 554
  begin door-server camera python3 -m http.server 554
  configure cams 'kind: _rtsp._tcp' 'gracePeriodSeconds: 60, deviceService: true'
  within 20 "the device is an endpoint of the Configuration's Service" has_endpoint cams-devices "$address:554 true"
  instance=$(instance_of door)
  within 5 "and of its own" has_endpoint "$instance-device" "$address:554 true"
  equal "the Services are headless" "None None" \
    "$(kubectl get service cams-devices "$instance-device" -o json | jq -r '[.items[].spec.clusterIP] | join(" ")')"
  pod reader node-1
  within 20 "a Pod runs" is_running reader
  # This cluster has no DNS: the Pod is told what the name stands for.
  pair=$(endpoints "$instance-device")
  within 20 "the Pod reaches the device at ${pair% *}" in_network_of reader node-1 curl -s -o /dev/null --max-time 5 "http://${pair% *}/"
  began=$EPOCHREALTIME
  goodbye door
  within 4 "the device is not ready" has_endpoint "$instance-device" "$address:554 false"
  note "goodbye -> not ready in the EndpointSlice: $(since "$began") s (a goodbye counts after 1 s)"
  within 2 "nor in the other" has_endpoint cams-devices "$address:554 false"
  announce camera door _rtsp._tcp 554
  within 10 "it is ready again" has_endpoint "$instance-device" "$address:554 true"
  # What somebody else writes is mended.
  kubectl patch endpointslice "$instance-device-ipv4-554-0" --type json \
    -p '[{"op": "replace", "path": "/endpoints/0/addresses/0", "value": "203.0.113.9"}]' >/dev/null
  within 10 "the address is the device's" has_endpoint "$instance-device" "$address:554 true"
  kubectl patch configuration cams --type merge -p '{"spec":{"deviceService":false}}' >/dev/null
  within 10 "the Services are deleted" is_empty kubectl get service cams-devices "$instance-device" --ignore-not-found -o name
  within 10 "and the EndpointSlices" is_empty kubectl get endpointslices -l akri.sh/configuration=cams -o name
  kubectl delete pod reader --now >/dev/null
  stop door-server
}

test_a_service_of_somebody_else_gets_no_endpoints() {
  clean
  announce camera door _rtsp._tcp 554
  kubectl create service clusterip cams-devices --clusterip None >/dev/null
  configure cams 'kind: _rtsp._tcp' 'gracePeriodSeconds: 5, deviceService: true'
  within 20 "the Configuration says so" has_event cams 'Service cams-devices exists and is not of this Configuration'
  is_empty endpoints cams-devices || fail "it has endpoints: $(endpoints cams-devices)"
  # The Service is looked for before the device is found.
  within 10 "the device is found" instance_of door
  within 10 "the device has its own name" has_endpoint "$(instance_of door)-device" "$(address_of_camera):554 true"
  kubectl delete service cams-devices >/dev/null
  within 70 "the name is taken when it is free" has_endpoint cams-devices "$(address_of_camera):554 true"
  kubectl delete configuration cams >/dev/null
  within 30 "the garbage collector removes it" is_empty kubectl get service cams-devices --ignore-not-found
}

# slice NAME SERVICE ADDRESS: an EndpointSlice as the controller writes it.
slice() {
  cat <<X
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: $1
  labels: {kubernetes.io/service-name: $2}
  ownerReferences: [{apiVersion: v1, kind: Service, name: $2, uid: u, controller: true}]
addressType: IPv4
endpoints: [{addresses: [$3], conditions: {ready: true}}]
ports: [{name: "", port: 80, protocol: TCP}]
X
}

test_nobody_redirects_a_service_by_the_controller() {
  clean
  local controller=system:serviceaccount:petiole:petiole-controller
  kubectl create rolebinding tenant --clusterrole petiole-edit --serviceaccount default:reader >/dev/null
  cat >"$SUITE/named.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: named}
spec: {discoveryHandler: {name: zeroconf, discoveryDetails: "kind: _rtsp._tcp"}, deviceService: true}
X
  refused 'may not create services' --as system:serviceaccount:default:reader create -f "$SUITE/named.yaml"
  # The controller's account, stolen.
  slice web-ipv4-80-0 web 198.51.100.7 >"$SUITE/slice.yaml"
  refused 'only EndpointSlices of the Services' --as "$controller" create -f "$SUITE/slice.yaml"
  slice x-device-ipv4-80-0 x-device 198.51.100.7 | sed 's/service-name: x-device/service-name: web/' >"$SUITE/slice.yaml"
  refused 'the Service that its label names' --as "$controller" create -f "$SUITE/slice.yaml"
  local address
  for address in 203.0.113.5 192.0.0.1 192.168.7.7; do
    slice x-device-ipv4-80-0 x-device "$address" >"$SUITE/slice.yaml"
    refused 'only endpoints in the networks' --as "$controller" create -f "$SUITE/slice.yaml"
  done
  # With an owner that does not exist it would be collected as garbage.
  slice web-ipv4-80-0 web 198.51.100.7 | sed '/ownerReferences/d' | kubectl create -f - >/dev/null
  refused 'only EndpointSlices of the Services' --as "$controller" delete endpointslice web-ipv4-80-0
  kubectl delete endpointslice web-ipv4-80-0 >/dev/null
}
