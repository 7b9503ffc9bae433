# A kubelet without a cluster, containerd, and the standalone agent beside it: avahi announces, the agent renders static Pods,
# and what is validated is the kubelet's own word (`/pods`, pod resources) and what containerd runs.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

EDGE=$CLUSTER_DIR/edge
STATE=$EDGE/var/lib/akri
PLUGINS=$EDGE/var/lib/kubelet/device-plugins
MANIFESTS=$EDGE/etc/kubernetes/manifests
CONFIGURATIONS=$EDGE/var/lib/akri-configurations
RELEASES=$SUITE/releases
URL=http://198.51.100.101:8080 # the camera has them

set_up() {
  cluster standalone
  cluster avahi camera
  mkdir -p "$CONFIGURATIONS"
  load_busybox localhost/busybox:1
}

# An agent without a past, no service on the LAN, no Pod.
fresh() {
  stop_all
  rm -rf "${STATE:?}"/* "${CONFIGURATIONS:?}"/* "${MANIFESTS:?}"/*
  within 60 "no Pod of a test before is left" has_no_pods
  # The uid of a static Pod is the digest of its manifest: the kubelet would take the log of a test before for this Pod's.
  rm -rf "${EDGE:?}"/var/log/pods/*
  cat >"$CONFIGURATIONS/cameras.yaml" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: cameras}
spec:
  discoveryHandler: {name: zeroconf, discoveryDetails: "kind: _rtsp._tcp"}
  gracePeriodSeconds: 8
  brokerProperties: {SITE: e2e}
  brokerSpec:
    brokerPodSpec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: broker
          image: localhost/busybox:1
          imagePullPolicy: Never
          command: [/bin/sh, -c, "env | sort; exec sleep 2147483647"]
          resources: {limits: {"{{PLACEHOLDER}}": 1}}
X
  begin_agent
}

begin_agent() {
  begin agent edge "$PETIOLE" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" \
    --render-brokers /etc/kubernetes/manifests
}

# ---- what the kubelet says ----

pods() {
  (cluster on edge curl -fsk --max-time 5 https://127.0.0.1:10250/pods)
}

has_no_pods() {
  pods | jq -e '.items | length == 0' && is_empty tasks -q
}

tasks() { # ARGS of ctr
  (cluster on edge ctr -n k8s.io tasks list "$@" 2>/dev/null)
}

pod_of() { # SERVICE: the Pod that its Instance was rendered as
  local instance
  instance=$(instance_name_of "$1") && pods | jq -ce --arg i "$instance" '.items[] | select(.metadata.labels["akri.sh/instance"] == $i)'
}

status_is() { # SERVICE JQ-EXPRESSION of its Pod's status
  pod_of "$1" | jq -e ".status | $2"
}

is_running() {
  status_is "$1" '.phase == "Running" and .containerStatuses[0].state.running != null'
}

status_has_health() { # SERVICE HEALTH of the device in its container's status
  status_is "$1" "[.containerStatuses[0].allocatedResourcesStatus[].resources[].health] == [\"$2\"]"
}

container_of() { # SERVICE: one that was started again is another
  pod_of "$1" | jq -r '.status.containerStatuses[0].containerID'
}

printed() { # SERVICE TEXT: a whole line of what its broker printed, since it was started last
  local log
  # By age: another Pod of that name has another folder.
  log=$(find "$EDGE/var/log/pods" -path "*$(instance_name_of "$1")*/broker/*.log" -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
  [ -n "$log" ] && sed 's/^[^ ]* [^ ]* [^ ]* //' "$log" | grep -xF "$2"
}

ask_kubelet() { # METHOD of the pod resources API
  (cluster on edge grpcurl -plaintext -unix -import-path "$E2E/../../crates/petiole-kubelet-api/proto" -proto podresources_v1.proto \
    /var/lib/kubelet/pod-resources/kubelet.sock "v1.PodResourcesLister/$1")
}

is_allocatable() { # SERVICE: one slot of it
  local instance
  instance=$(instance_name_of "$1") && ask_kubelet GetAllocatableResources |
    jq -e --arg i "$instance" '[.devices[] | select(.resourceName == "akri.sh/" + $i) | .deviceIds[]] == [$i + "-0"]'
}

holds_its_device() { # SERVICE: by the kubelet's books its container has the slot
  local resource
  resource=akri.sh/$(instance_name_of "$1") && ask_kubelet List |
    jq -e --arg r "$resource" '[.podResources[].containers[].devices[]? | select(.resourceName == $r)] | length == 1'
}

# ---- one camera, as the tests begin ----

run_a_broker() {
  fresh
  announce camera cam-1 _rtsp._tcp 554 path=/live
  within 10 "cam-1 is an Instance" is_healthy cam-1
  within 30 "its static Pod runs" is_running cam-1
}

# What must be true of a broker, whatever was started again: it runs, and it has its device.
has_a_whole_broker() { # SERVICE
  is_running "$1" && holds_its_device "$1" && printed "$1" "AKRI_ZEROCONF_DEVICE_NAME=$1"
}

# What the kubelet has refused to run since the machine began.
refused() {
  grep -c UnexpectedAdmissionError "$CLUSTER_DIR/log/edge-kubelet.log" || true
}

describe() { # SERVICE: its Pod in a line, for the report
  pod_of "$1" | jq -r '.status | "\(.phase) \(.reason // "-") \(.message // "-")"'
}

# ---- tests ----

test_a_service_becomes_a_static_pod_with_its_environment() {
  fresh
  announce camera cam-1 _rtsp._tcp 554 path=/live model=A1
  within 10 "cam-1 is an Instance" is_healthy cam-1
  note "announced -> Instance: $TOOK s"
  within 10 "the kubelet has its slot to give" is_allocatable cam-1
  note "Instance -> allocatable in the kubelet: $TOOK s"
  within 30 "its static Pod runs" is_running cam-1
  note "then -> static Pod Running: $TOOK s"
  local suffix expected
  suffix=$(instance_name_of cam-1)
  suffix=${suffix##*-}
  for expected in AKRI_ZEROCONF=zeroconf AKRI_ZEROCONF_DEVICE_KIND=_rtsp._tcp AKRI_ZEROCONF_DEVICE_NAME=cam-1 \
    AKRI_ZEROCONF_DEVICE_HOST=camera.local AKRI_ZEROCONF_DEVICE_ADDR=198.51.100.101 AKRI_ZEROCONF_DEVICE_PORT=554 \
    AKRI_ZEROCONF_DEVICE_PATH=/live AKRI_ZEROCONF_DEVICE_MODEL=A1 SITE=e2e \
    "AKRI_ZEROCONF_DEVICE_ADDR_${suffix^^}=198.51.100.101"; do
    within 5 "the broker printed $expected" printed cam-1 "$expected"
  done
  holds_its_device cam-1 || fail "the kubelet's books do not say that the broker has the slot"
  announce camera cam-2 _rtsp._tcp 555
  within 40 "a second camera gets a broker of its own" has_a_whole_broker cam-2
}

look_once() { # FORMAT
  cluster on edge "$PETIOLE" agent --standalone --once --node-name edge --configurations "$CONFIGURATIONS" -o "$1"
}

test_one_look_names_the_device_and_leaves_the_agent_and_the_broker_alone() {
  run_a_broker
  local container
  container=$(container_of cam-1)
  look_once name >"$SUITE/looked" || fail "it failed: $(cat "$SUITE/looked")"
  equal "what it printed" "instance.akri.sh/$(instance_name_of cam-1)" "$(cat "$SUITE/looked")"
  sed 's/name: zeroconf/name: zeroConf/; s/name: cameras/name: wrong/' "$CONFIGURATIONS/cameras.yaml" >"$CONFIGURATIONS/wrong.yaml"
  ! look_once name >"$SUITE/looked" 2>"$SUITE/problems" || fail "a wrong Configuration is no failure"
  grep -q "^petiole: wrong.yaml: UnknownHandler: " "$SUITE/problems" || fail "it said $(cat "$SUITE/problems")"
  equal "what it printed then" "instance.akri.sh/$(instance_name_of cam-1)" "$(cat "$SUITE/looked")"
  is_healthy cam-1 || fail "the agent's Instance is not healthy"
  equal "the container" "$container" "$(container_of cam-1)"
}

test_a_goodbye_shows_in_the_status_of_the_pod_and_a_return_too() {
  run_a_broker
  local container
  container=$(container_of cam-1)
  within 15 "its device is Healthy" status_has_health cam-1 Healthy
  goodbye cam-1
  within 8 "its device is Unhealthy, before the grace period is over" status_has_health cam-1 Unhealthy
  note "goodbye -> Unhealthy in /pods: $TOOK s"
  is_unhealthy cam-1 || fail "the Instance went first"
  announce camera cam-1 _rtsp._tcp 554 path=/live
  within 15 "its device is Healthy again" status_has_health cam-1 Healthy
  note "announced again -> Healthy in /pods: $TOOK s"
  equal "the container" "$container" "$(container_of cam-1)"
}

test_a_static_pod_goes_with_its_instance() {
  run_a_broker
  goodbye cam-1
  within 90 "the Instance goes after its grace period, once its broker has ended" has_no_instance cam-1
  within 5 "its manifest goes" is_empty find "$MANIFESTS" -type f
  within 30 "its Pod and its containers go" has_no_pods
  note "manifest removed -> Pod and containers gone: $TOOK s"
}

test_a_kubelet_restart_leaves_the_broker_alone() {
  run_a_broker
  local container before
  container=$(container_of cam-1)
  before=$(refused)
  cluster kubelet edge restart
  within 30 "the kubelet has the slot to give again" is_allocatable cam-1
  within 30 "the broker is whole" has_a_whole_broker cam-1
  for_all_of 12 "and stays so" has_a_whole_broker cam-1
  within 15 "its device is Healthy" status_has_health cam-1 Healthy
  equal "the container" "$container" "$(container_of cam-1)"
  equal "Pods refused" "$before" "$(refused)"
}

test_an_agent_restart_leaves_the_broker_alone() {
  run_a_broker
  local container before signal
  container=$(container_of cam-1)
  before=$(refused)
  for signal in TERM KILL; do
    stop agent $signal
    begin_agent
    within 10 "the kubelet has the slot to give after SIG$signal" is_allocatable cam-1
    for_all_of 5 "the broker is whole after SIG$signal" has_a_whole_broker cam-1
    within 15 "its device is Healthy after SIG$signal" status_has_health cam-1 Healthy
    equal "the container after SIG$signal" "$container" "$(container_of cam-1)"
  done
  equal "Pods refused" "$before" "$(refused)"
}

test_a_kubelet_that_restarts_while_the_agent_is_away_does_not_lose_the_broker() {
  run_a_broker
  local container before
  container=$(container_of cam-1)
  before=$(refused)
  stop agent
  cluster kubelet edge restart
  within 30 "the kubelet is back and knows its Pod" is_running cam-1
  sleep 5 # what the kubelet would do wrong without the plugin it does in these seconds
  note "without the agent: $(describe cam-1)"
  begin_agent
  within 30 "the broker is whole" has_a_whole_broker cam-1
  within 15 "its device is Healthy" status_has_health cam-1 Healthy
  equal "the container" "$container" "$(container_of cam-1)"
  equal "Pods refused" "$before" "$(refused)"
}

# The manifests stay, and no container runs that the next kubelet could take over.
cut_the_power() {
  stop agent KILL
  cluster kubelet edge stop
  end_containers
}

end_containers() {
  local container
  for container in $(tasks -q); do
    (cluster on edge ctr -n k8s.io tasks kill -s KILL "$container" 2>/dev/null)
  done
  within 10 "no container runs" no_container_runs
}

no_container_runs() {
  local list
  list=$(tasks) && [[ $list != *RUNNING* ]]
}

# The kubelet reads the manifests while the agent registers: who comes first is chance.
test_when_all_starts_at_once_the_broker_gets_its_device() {
  run_a_broker
  local round
  for round in 1 2 3; do
    cut_the_power
    begin_agent
    cluster kubelet edge start
    gets_its_device "$round"
  done
}

test_when_kubelet_and_broker_die_together_the_broker_gets_its_device() {
  run_a_broker
  local round
  for round in 1 2 3 4 5; do
    cluster kubelet edge stop
    end_containers
    cluster kubelet edge start
    gets_its_device "$round"
  done
}

gets_its_device() { # ROUND
  within 10 "the kubelet has its slot to give, round $1" is_allocatable cam-1
  within 20 "the kubelet has validated its Pod, round $1" is_judged cam-1
  echo "round $1: $(describe cam-1)"
  within 20 "the broker is whole, round $1" has_a_whole_broker cam-1
  note "round $1: slot to give -> broker whole: $TOOK s"
}

test_when_the_kubelet_starts_long_before_the_agent_the_broker_gets_its_device() {
  run_a_broker
  cut_the_power
  the_kubelet_comes_first
}

the_kubelet_comes_first() {
  cluster kubelet edge start
  within 30 "the kubelet has validated its Pod" is_judged cam-1
  note "before the agent is there: $(describe cam-1)"
  begin_agent
  within 10 "the kubelet has its slot to give" is_allocatable cam-1
  within 30 "the broker is whole" has_a_whole_broker cam-1
  note "then -> broker whole: $TOOK s"
}

# As after five minutes without the agent: the kubelet leaves a resource that it does not know out of what a Pod asks for.
test_when_the_kubelet_has_forgotten_the_resource_the_broker_gets_its_device() {
  run_a_broker
  cut_the_power
  rm "$PLUGINS/kubelet_internal_checkpoint"
  the_kubelet_comes_first
}

is_judged() { # SERVICE
  status_is "$1" '.phase == "Failed" or .containerStatuses[0].state.running != null'
}

# ---- install.sh, on machines of their own ----

# What .ci/release makes for such machines, of the program under test, for `installs`.
serve_release() {
  local root=$E2E/../..
  if [ ! -e "$RELEASES/good/SHA256SUMS" ]; then
    strip -o "$SUITE/petiole" "$PETIOLE"
    SOURCE_DATE_EPOCH=1700000000 DEB_COMPRESSION=none "$root/.ci/standalone" "$SUITE/petiole" "$(dpkg --print-architecture)" "$RELEASES/good"
    (cd "$RELEASES/good" && sha256sum -- * >SHA256SUMS)
  fi
  stop releases
  begin releases camera busybox httpd -f -p 8080 -h "$RELEASES"
  within 5 "the release is served" cluster on camera curl -fs -o /dev/null "$URL/good/SHA256SUMS"
}

# A release with another first byte of one file, beside the good one.
change_byte() { # FILE
  rm -rf "$RELEASES/changed"
  cp -rs "$RELEASES/good" "$RELEASES/changed"
  rm "$RELEASES/changed/$1"
  { printf X && tail -c +2 "$RELEASES/good/$1"; } >"$RELEASES/changed/$1"
}

# A machine with the files of this one, whose changes are in a tmpfs. systemctl and systemd-tmpfiles only note what they are asked.
begin_machine() { # NAME
  # shellcheck disable=SC2016 # expanded by the inner shell
  cluster device "$1" bash -euc '
    mkdir /run/above /run/work /run/root
    mount -t overlay overlay -o lowerdir=/,upperdir=/run/above,workdir=/run/work /run/root
    cd /run/root
    mount -t proc proc proc
    mount --rbind /dev dev
    mount -t tmpfs tmpfs run
    mkdir -p run/systemd/system run/tmp usr/local/sbin
    for name in systemctl systemd-tmpfiles; do
      printf "#!/bin/sh\necho %s \"\$*\" >>/run/asked\n[ \"\$1\" != is-active ]\n" $name >usr/local/sbin/$name
      chmod 755 usr/local/sbin/$name
    done
    touch run/ready
    exec sleep infinity'
  within 5 "$1 has its root" cluster on "$1" test -e /run/root/run/ready
}

on_root() { # MACHINE CMD…
  local machine=$1
  shift
  cluster on "$machine" chroot /run/root env TMPDIR=/run/tmp PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# As docs/standalone.md does it. What it printed is in $SUITE/installed.
installs() { # MACHINE good|changed [ARGUMENTS of install.sh]
  # shellcheck disable=SC2016 # expanded by the inner shell
  on_root "$1" sh -euc 'address=$1; shift; curl -fsSL -o /run/install.sh "$address/install.sh"; sh /run/install.sh --allow-http "$@" "$address"' \
    - "$URL/$2" "${@:3}" >"$SUITE/installed" 2>&1
}

changes_of() { # MACHINE
  cluster on "$1" find /run/above -printf '%p %y %s %T@\n' | sort
}

# A second run replaces a program that another has broken.
installs_twice() { # MACHINE PROGRAM
  local times
  for times in 1 2; do
    installs "$1" good || fail "install.sh failed: $(cat "$SUITE/installed")"
    equal "the version" "$("$PETIOLE" --version)" "$(on_root "$1" petiole --version)"
    grep -qxF "installed: $2, $("$PETIOLE" --version)" "$SUITE/installed" || fail "it said $(cat "$SUITE/installed")"
    grep -q "^next: systemctl enable --now petiole-agent petiole-kubelet " "$SUITE/installed" || fail "it said $(cat "$SUITE/installed")"
    equal "restarts of running units" "$times" "$(on_root "$1" grep -c "^systemctl try-restart petiole-kubelet.service petiole-agent.service" /run/asked)"
    is_empty on_root "$1" ls /run/tmp || fail "it left files in its temporary folder"
    on_root "$1" test -d /etc/petiole/configurations
    on_root "$1" cp --remove-destination /bin/false "$2"
  done
}

test_install_sh_installs_the_package_and_again() {
  serve_release
  begin_machine debian
  installs_twice debian /usr/bin/petiole
  on_root debian dpkg-query --show petiole || fail "dpkg does not know the package"
  on_root debian sh /run/install.sh --uninstall
  on_root debian test ! -e /usr/bin/petiole -a -d /etc/petiole/configurations || fail "--uninstall left the program, or took the folder"
  cluster kill debian
}

test_install_sh_installs_program_and_units_where_dpkg_is_not() {
  serve_release
  begin_machine other
  on_root other rm /usr/bin/dpkg
  installs_twice other /usr/local/bin/petiole
  local unit
  for unit in agent kubelet; do
    on_root other grep -q "^ExecStart=/usr/local/bin/petiole $unit" "/etc/systemd/system/petiole-$unit.service" || fail "the unit of the $unit starts something else"
  done
  on_root other cmp /etc/tmpfiles.d/petiole.conf - <"$E2E/../../packaging/petiole.tmpfiles"
  on_root other sh /run/install.sh --uninstall
  is_empty cluster on other find /run/above -name '*petiole*' -type f || fail "--uninstall left $(cluster on other find /run/above -name '*petiole*')"
  on_root other rm -f /usr/local/sbin/systemctl /usr/bin/systemctl
  installs other good || fail "install.sh failed without systemd: $(cat "$SUITE/installed")"
  grep -q "^next: /usr/local/bin/petiole agent --standalone " "$SUITE/installed" || fail "it said $(cat "$SUITE/installed")"
  on_root other test ! -e /etc/systemd/system/petiole-agent.service || fail "it has units without systemd"
  cluster kill other
}

test_install_sh_refuses_a_changed_byte_and_changes_nothing() {
  serve_release
  begin_machine wary
  local file before
  for file in "$RELEASES"/good/*.deb "$RELEASES"/good/*-linux-* "$RELEASES/good/petiole-kubelet.service"; do
    file=${file##*/}
    # From the second file on dpkg is not there.
    [[ $file == *.deb ]] || on_root wary rm -f /usr/bin/dpkg
    change_byte "$file"
    before=$(changes_of wary)
    ! installs wary changed || fail "it installed a release with another $file"
    grep -qF "install.sh: $URL/changed/$file is not the file of the release: " "$SUITE/installed" || fail "it said $(cat "$SUITE/installed")"
    grep -q "Nothing was changed.$" "$SUITE/installed" || fail "it said $(cat "$SUITE/installed")"
    equal "the files of the machine after another $file" "$before" "$(changes_of wary)"
    is_empty on_root wary ls /run/tmp || fail "it left files in its temporary folder"
  done
  cluster kill wary
}

test_install_sh_installs_the_program_for_a_user() {
  serve_release
  begin_machine user
  local before as_user=(chroot --userspec=65534:65534 /run/root env TMPDIR=/run/tmp)
  on_root user mkdir -m 777 /run/home
  on_root user chmod 777 /run/tmp
  before=$(changes_of user)
  on_root user curl -fsSL -o /run/install.sh "$URL/good/install.sh"
  ! cluster on user "${as_user[@]}" sh /run/install.sh --allow-http "$URL/good" 2>"$SUITE/installed" || fail "a user installed a system's program"
  grep -q "without root only --prefix DIR works" "$SUITE/installed" || fail "it said $(cat "$SUITE/installed")"
  cluster on user "${as_user[@]}" sh /run/install.sh --allow-http --prefix /run/home "$URL/good"
  equal "the version" "$("$PETIOLE" --version)" "$(cluster on user "${as_user[@]}" /run/home/bin/petiole --version)"
  equal "the files of the machine" "$before" "$(changes_of user)"
  cluster kill user
}

# The page has the text of --help.
test_install_sh_says_what_its_page_says() {
  local page=$E2E/../../docs/standalone.md help
  help=$("$E2E/../../deploy/install.sh" --help)
  equal "the text of the page" "$help" "$(awk '/^```$/ { on = 0 } on { print } /^```text$/ { on = 1 }' "$page" | sed -n '/^Installs a released/,$p')"
}

show() {
  pods | jq -c '.items[] | .metadata.name, .status' || true
  tasks
  ls -l "$PLUGINS" "$MANIFESTS"
  tail -n +1 "$MANIFESTS"/* "$STATE"/instances/* "$STATE"/*.error 2>/dev/null || true
  tail -n 30 "$EDGE"/var/log/pods/*/*/*.log || true
  echo "--- agent"
  tail -n 40 "$SUITE/log/agent"
  echo "--- kubelet"
  grep -iE 'plugin|device|akri|admi' "$CLUSTER_DIR/log/edge-kubelet.log" | tail -n 40
}
