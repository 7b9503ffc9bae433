# No cluster: one machine with our agent and our kubelet, and devices that any machine can make: compressed disks (zram),
# loop devices, network interfaces and macvtap.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

HOME_OF_NODE=$SUITE/edge
ROOT=$HOME_OF_NODE/kubelet
STATE=$HOME_OF_NODE/state
CONFIGURATIONS=$HOME_OF_NODE/configurations
MANIFESTS=$HOME_OF_NODE/manifests
# The devices that a test has made, to be removed whatever happens: they are this machine's.
MADE=$SUITE/made

# The promises are 0.5 s and 0.3 s; a look by `petiole get` alone takes a tenth, and the machine may be busy with other suites.
ALLOCATABLE=${ALLOCATABLE:-1.5}
UNHEALTHY=${UNHEALTHY:-1}

set_up() {
  if [ ! -e /sys/class/zram-control/hot_add ]; then
    echo "this kernel has no zram"
    exit 77
  fi
  cluster lan
  # The machine's own network devices are in the sysfs that is mounted there.
  # shellcheck disable=SC2016 # expanded by the inner shell
  cluster device edge sh -c 'mount -t sysfs sysfs /sys && exec sleep infinity'
}

# A node without a past, with these rules.
fresh() { # RULE [FIELD OF THE DETAILS…]
  stop_all
  remove_made
  rm -rf "$HOME_OF_NODE"
  mkdir -p "$ROOT" "$STATE" "$CONFIGURATIONS" "$MANIFESTS"
  configure "$@"
  begin kubelet edge "$PETIOLE" kubelet --root-dir "$ROOT" --manifests "$MANIFESTS" --node-name edge
  within 10 "the kubelet answers" get node
  begin_agent
  within 10 "the agent has looked" grep -rqs . "$STATE/configurations"
}

configure() { # RULE [FIELD…], with INSTANCE_NAME for spec.instanceName
  local rule=$1
  shift
  {
    cat <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: found}
spec:
  gracePeriodSeconds: 300
  ${INSTANCE_NAME:+instanceName: "'$INSTANCE_NAME'"}
  discoveryHandler:
    name: udev
    discoveryDetails: |
      udevRules: ['$rule']
X
    [ $# = 0 ] || printf '      %s\n' "$@"
  } >"$CONFIGURATIONS/found.yaml"
}

begin_agent() {
  begin agent edge "$PETIOLE" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" \
    --state "$STATE" --kubelet-dir "$ROOT"
}

get() {
  cluster on edge "$PETIOLE" get "$@" --root-dir "$ROOT" --state "$STATE" -o json
}

# The kubelet's word, not the agent's.
node_holds() { # capacity|allocatable AMOUNT [RESOURCE]
  get node | jq -e --arg n "$2" ".status.$1[\"akri.sh/${3:-found}\"] // \"0\" | . == \$n"
}

# The Instance of a device node.
file_of() { # /dev/…
  grep -lE "^ *UDEV_DEVNODE: *[\"']?$1[\"']?\$" "$STATE"/instances/*.yaml 2>/dev/null | sed -n 1p | grep .
}

has_health() { # /dev/… HEALTH
  local file
  file=$(file_of "$1") || return
  # The status names a node only where something is wrong.
  case $2 in
    Healthy) ! grep -qE '^ *health:' "$file" ;;
    *) grep -qE "^ *health: *$2\$" "$file" ;;
  esac
}

has_no_instance() {
  ! ls "$STATE"/instances/*.yaml
}

# ---- devices ----

plug_zram() { # leaves its number in ZRAM
  ZRAM=$(cat /sys/class/zram-control/hot_add)
  echo "zram $ZRAM" >>"$MADE"
}

pull_zram() {
  echo "$1" >/sys/class/zram-control/hot_remove
  sed -i "/^zram $1\$/d" "$MADE"
}

plug_loop() { # leaves its node in LOOP
  truncate -s 1M "$SUITE/disk"
  LOOP=$(losetup --find --show "$SUITE/disk")
  echo "loop $LOOP" >>"$MADE"
}

pull_loop() {
  losetup --detach "$1"
  sed -i "\,^loop $1\$,d" "$MADE"
}

remove_made() {
  local kind device
  [ -e "$MADE" ] || return 0
  while read -r kind device; do
    case $kind in
      zram) echo "$device" >/sys/class/zram-control/hot_remove || true ;;
      loop) losetup --detach "$device" || true ;;
    esac
  done <"$MADE"
  rm -f "$MADE"
}

# A rule that takes all such disks but those that are there.
new_zram() {
  local own
  own=$(basename -a /sys/block/zram* 2>/dev/null | paste -sd '|')
  echo "SUBSYSTEM==\"block\", KERNEL==\"zram*\", KERNEL!=\"${own:-none}\""
}

# ---- tests ----

test_a_disk_that_is_plugged_is_allocatable_and_one_that_is_pulled_is_unhealthy_at_once() {
  fresh "$(new_zram)"
  within 5 "no device yet" has_no_instance
  plug_zram
  within "$ALLOCATABLE" "the kubelet offers /dev/zram$ZRAM" node_holds allocatable 1
  note "plugged -> allocatable, with a look at the kubelet: $TOOK s"
  within 2 "the Instance is healthy" has_health "/dev/zram$ZRAM" Healthy
  pull_zram "$ZRAM"
  within "$UNHEALTHY" "it is unhealthy" has_health "/dev/zram$ZRAM" Unhealthy
  note "pulled -> unhealthy: $TOOK s"
  within 2 "the kubelet offers it no more" node_holds allocatable 0
  node_holds capacity 1 || fail "the Instance is not kept through its grace period"
  local before=$ZRAM
  plug_zram
  equal "the number of the disk" "$before" "$ZRAM"
  within 2 "it is back as the same Instance" has_health "/dev/zram$ZRAM" Healthy
  pull_zram "$ZRAM"
}

test_a_loop_device_is_there_while_it_has_a_file() {
  fresh "SUBSYSTEM==\"block\", ATTR{loop/backing_file}==\"$SUITE/disk\"" "permissions: r"
  plug_loop
  within "$ALLOCATABLE" "the kubelet offers $LOOP" node_holds allocatable 1
  note "attached -> allocatable: $TOOK s"
  pull_loop "$LOOP"
  within "$UNHEALTHY" "it is unhealthy" has_health "$LOOP" Unhealthy
  note "detached -> unhealthy: $TOOK s"
}

test_a_network_interface_is_a_device_without_a_node_and_a_macvtap_has_one() {
  fresh 'SUBSYSTEM=="net", KERNEL=="leaf*"'
  (cluster on edge ip link add leaf0 type veth peer name other0)
  within "$ALLOCATABLE" "the kubelet offers leaf0" node_holds allocatable 1
  note "made -> allocatable: $TOOK s"
  grep -rq 'UDEV_DEVPATH: /devices/virtual/net/leaf0' "$STATE/instances" || fail "$(cat "$STATE"/instances/*)"
  (cluster on edge ip link del leaf0)
  within "$UNHEALTHY" "it is gone" node_holds allocatable 0
  configure 'SUBSYSTEM=="macvtap"'
  (cluster on edge ip link add link eth0 name leaf1 type macvtap)
  within 5 "the macvtap is offered" file_of '/dev/tap[0-9]*'
  (cluster on edge ip link del leaf1)
  within "$UNHEALTHY" "it is gone" node_holds allocatable 0
}

test_a_device_that_came_while_the_agent_was_away_is_found_and_one_that_went_is_unhealthy() {
  local stays
  fresh "$(new_zram)"
  plug_zram
  stays=$ZRAM
  within 5 "it has an Instance" has_health "/dev/zram$stays" Healthy
  stop agent KILL
  pull_zram "$stays"
  begin_agent
  within 5 "what went is unhealthy" has_health "/dev/zram$stays" Unhealthy
  stop agent KILL
  plug_zram
  begin_agent
  within 5 "what came is healthy" has_health "/dev/zram$ZRAM" Healthy
  pull_zram "$ZRAM"
}

test_disks_have_the_names_that_their_configuration_gives_and_of_two_that_want_one_the_first() {
  local first second
  INSTANCE_NAME='disk-{UDEV_DEVNODE}' fresh "$(new_zram)"
  plug_zram
  first=$ZRAM
  within "$ALLOCATABLE" "the kubelet offers the first disk by its name" node_holds allocatable 1 "disk-dev-zram$first"
  plug_zram
  second=$ZRAM
  within "$ALLOCATABLE" "and the second" node_holds allocatable 1 "disk-dev-zram$second"
  node_holds allocatable 2 || fail "the Configuration's resource does not give both"
  (cluster on edge "$PETIOLE" discover udev --details "$CONFIGURATIONS/found.yaml" --for 2s) >"$SUITE/discovered"
  grep -q "disk-dev-zram$first " "$SUITE/discovered" || fail "discover says $(cat "$SUITE/discovered")"
  # An edit renames nothing that lives, also where the agent begins anew.
  INSTANCE_NAME=disk configure "$(grep -o 'SUBSYSTEM.*"' "$CONFIGURATIONS/found.yaml")"
  within 5 "the status says that they keep their names" grep -rq InstanceNameNotGiven "$STATE/configurations"
  stop agent KILL
  begin_agent
  within 5 "both have their names" node_holds allocatable 1 "disk-dev-zram$second"
  equal "the Instances" 2 "$(find "$STATE/instances" -name '*.yaml' | wc -l)"
  pull_zram "$second"
  pull_zram "$first"
  INSTANCE_NAME=disk fresh "$(new_zram)"
  plug_zram
  first=$ZRAM
  within "$ALLOCATABLE" "the kubelet offers it as disk" node_holds allocatable 1 disk
  plug_zram
  within "$ALLOCATABLE" "the second is offered too" node_holds allocatable 2
  within 5 "the status says who has the name" grep -rq 'disk is the name of Instance' "$STATE/configurations"
  node_holds allocatable 1 disk || fail "two disks have one name"
  pull_zram "$ZRAM"
  pull_zram "$first"
}

# The agent has no network: it could not hear the kernel's messages.
test_udev_without_rights_takes_over_and_nothing_changes() {
  local first instance isolated=$SUITE/isolated
  fresh "$(new_zram)"
  plug_zram
  first=$ZRAM
  within 5 "it has an Instance" has_health "/dev/zram$first" Healthy
  instance=$(file_of "/dev/zram$first")
  grep -E '^ *(uid|creationTimestamp):' "$instance" >"$SUITE/identity"
  stop agent
  mkdir -p "$isolated/udev"
  chmod o+x "$WORK" "$SUITE" "$isolated"
  chgrp 65534 "$isolated/udev"
  chmod 0770 "$isolated/udev"
  install -m 0755 "$PETIOLE" "$SUITE/petiole"
  begin agent edge unshare --net "$PETIOLE" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" \
    --state "$STATE" --kubelet-dir "$ROOT" --isolate-handlers udev --isolated-dir "$isolated"
  begin udev edge setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \
    "$SUITE/petiole" handler udev --udev-subsystems block --handlers-dir "$isolated/udev"
  within 5 "the process serves" grep -q serving "$SUITE/log/udev"
  plug_zram
  within "$ALLOCATABLE" "the kubelet offers /dev/zram$ZRAM too" node_holds allocatable 2
  note "plugged -> allocatable: $TOOK s"
  pull_zram "$ZRAM"
  within "$UNHEALTHY" "it is unhealthy" has_health "/dev/zram$ZRAM" Unhealthy
  note "pulled -> unhealthy: $TOOK s"
  equal "the first Instance" "$(cat "$SUITE/identity")" "$(grep -E '^ *(uid|creationTimestamp):' "$instance")"
  configure 'KERNEL=="null", SUBSYSTEM=="mem"'
  within 5 "a subsystem that the process may not offer is refused" grep -rq 'mem.*--udev-subsystems' "$STATE/configurations"
  pull_zram "$first"
}

test_akris_details_find_devices_and_a_rule_that_is_no_match_is_refused_with_its_place() {
  fresh 'KERNEL=="null", SUBSYSTEM=="mem"' "groupRecursive: false" "permissions: rw"
  within 5 "/dev/null is offered" has_health /dev/null Healthy
  configure 'KERNEL="null"'
  within 5 "the status says what is wrong" grep -rq 'must come == or !=' "$STATE/configurations"
  has_health /dev/null Healthy || fail "a typing mistake ends what runs"
}

show() {
  tail -n 30 "$SUITE"/log/agent
  cat "$STATE"/configurations/* "$STATE"/instances/* 2>/dev/null | tail -n 80
  remove_made
}
