# No cluster: a standalone agent, an honest responder, and a hostile host on the same LAN. Its services must not become
# devices, must not change the honest ones, and its packets must cost little.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

HOME_OF_NODE=$SUITE/edge
STATE=$HOME_OF_NODE/state
CONFIGURATIONS=$HOME_OF_NODE/configurations
METRICS=127.0.0.1:9199
# How long each attack lasts.
ATTACK=${HOSTILE_SECONDS:-8}
# A release build (`just e2e-long` makes it). The figures of any other are told, and not checked.
OPTIMISED=${PETIOLE_OPTIMISED:-}

set_up() {
  cluster lan
  cluster device edge >"$SUITE/address"
  cluster device evil
  # Addresses that are in no network of the LAN, and the ones that an attack claims to come from.
  cluster on evil ip route add local 203.0.112.0/21 dev lo
  cluster on evil ip -6 route add local 2001:db8:7::/64 dev lo
  cluster on evil ip -6 addr add 2001:db8:1::66/64 dev eth0 nodad
  cluster on edge ip -6 addr add 2001:db8:1::2/64 dev eth0 nodad
  cluster on evil ip addr add 203.0.113.5/32 dev lo
  begin_responder responder honest "$(cluster device honest)"
}

responder() {
  respond_as responder "$@"
}

evil() {
  cluster on evil python3 "$E2E/hostile.py" "$@"
}

# A node without a past, which looks for _rtsp._tcp. An Instance outlives its device by five minutes.
fresh() { # [DETAIL…]
  stop agent
  rm -rf "$HOME_OF_NODE"
  mkdir -p "$HOME_OF_NODE/kubelet/device-plugins" "$STATE" "$CONFIGURATIONS"
  {
    printf 'apiVersion: akri.sh/v0\nkind: Configuration\nmetadata: {name: cameras}\nspec:\n  gracePeriodSeconds: 300\n'
    printf '  discoveryHandler:\n    name: zeroconf\n    discoveryDetails: |\n      kind: _rtsp._tcp\n'
    [ $# = 0 ] || printf '      %s\n' "$@"
  } >"$CONFIGURATIONS/cameras.yaml"
  begin_agent
}

begin_agent() {
  begin agent edge "${OPTIMISED:-$PETIOLE}" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" --state "$STATE" \
    --kubelet-dir "$HOME_OF_NODE/kubelet" --http-address "$METRICS"
}

given_an_honest_service() { # [DETAIL…]
  responder gone cam
  fresh "$@"
  responder set cam _rtsp._tcp 554 version=1
  within 10 "it is found" is_healthy cam
  identity_of cam >"$SUITE/identity"
  losses >"$SUITE/losses"
}

is_the_same() {
  equal "the Instance" "$(cat "$SUITE/identity")" "$(identity_of cam)"
  is_healthy cam || fail "the honest service is not healthy"
  equal "how often it was gone" "$(cat "$SUITE/losses")" "$(losses)"
}

losses() { # of all starts of the agent, which have one log
  grep 'device .*health=gone' "$SUITE/log/agent" | grep -c "instance=default/$(instance_name_of cam)" || true
}

is_property() { # SERVICE KEY VALUE
  local instance
  instance=$(instance_of "$1") && grep -qE "^ *AKRI_ZEROCONF_DEVICE_$2: *[\"']?$3[\"']?\$" "$STATE/instances/$instance.yaml"
}

ignored() { # REASON: how many packets
  cluster on edge curl -sf "http://$METRICS/metrics" | awk -v what="what=\"$1\"" 'index($1, "petiole_mdns_packets_total") && index($1, what) { n = $2 } END { print n + 0 }'
}

has_ignored() { # REASON AT_LEAST
  [ "$(ignored "$1")" -ge "$2" ]
}

processor_time_of_agent() { # in hundredths of a second
  awk '{ print $14 + $15 }' "/proc/$(cat "$SUITE/pid/agent")/stat"
}

memory_of_agent() { # in kB
  awk '$1 == "VmRSS:" { print $2 }' "/proc/$(cat "$SUITE/pid/agent")/status"
}

at_most() { # WHAT LIMIT UNIT VALUE
  note "$1: $4 $3 (limit $2)"
  [ -z "$OPTIMISED" ] || awk "BEGIN { exit !($4 <= $2) }" || fail "$1: $4 $3, limit $2"
}

test_no_packet_that_is_not_of_the_lan_makes_a_device() {
  given_an_honest_service
  local edge before name pids=()
  edge=$(cat "$SUITE/address")
  # All at once: none of them changes what is expected of another.
  evil announce "other port" 198.51.100.9 from=40000 & pids+=($!)
  evil announce "other port, unicast" 198.51.100.9 from=40000 to="$edge" & pids+=($!)
  evil announce "off link" 198.51.100.9 source=203.0.113.5 to="$edge" & pids+=($!)
  evil announce "off link, its own" 203.0.113.5 source=203.0.113.5 to="$edge" host=far.local & pids+=($!)
  evil announce loopback 127.0.0.1 host=a.local & pids+=($!)
  evil announce metadata 169.254.169.254 host=b.local & pids+=($!)
  evil announce "the node's own" "$edge" host=i.local & pids+=($!)
  evil announce broadcast 255.255.255.255 host=c.local & pids+=($!)
  evil announce "class e" 240.0.0.1 host=d.local & pids+=($!)
  evil announce multicast 224.0.0.251 host=e.local & pids+=($!)
  evil announce "of no network here" 192.0.2.7 host=f.local & pids+=($!)
  evil announce "on the link" 198.51.100.9 host=g.local & pids+=($!)
  # An honest host's name with one more address, lower than its own.
  evil announce "second name" 198.51.100.2 host=cam.local only=A flush=no & pids+=($!)
  wait "${pids[@]}"
  within 5 "the one with a right address is found" is_healthy "on the link"
  for name in "other port" "other port, unicast" "off link" "off link, its own" loopback metadata "the node's own" broadcast "class e" multicast "of no network here"; do
    has_no_instance "$name" || fail "there is an Instance of $name"
  done
  is_property cam ADDR 198.51.100.103 || fail "the honest service has another address: $(cat "$STATE"/instances/*)"
  is_the_same
  within 5 "the Configuration says that services are left out" grep -q "services are left out" "$STATE"/configurations/*.yaml
  [ "$(ignored source_port)" -ge 10 ] || fail "$(ignored source_port) packets were ignored for their port"
  [ "$(ignored off_link)" -ge 10 ] || fail "$(ignored off_link) packets were ignored for their source"
  before=$(ignored malformed)
  evil short 50
  within 5 "they are counted" has_ignored malformed $((before + 50))
  sleep 0.5
  equal "the number of malformed packets" $((before + 50)) "$(ignored malformed)"
}

test_a_host_that_takes_the_name_of_a_pinned_service_gets_nothing() {
  given_an_honest_service "pin: true"
  # Its SRV record replaces the honest one, and so does its cache-flush bit.
  begin taker evil python3 "$E2E/hostile.py" announce cam 198.51.100.9 port=666 seconds=10
  within 10 "it is noticed" grep -q IdentityChanged "$STATE"/instances/*.yaml
  is_property cam ADDR 198.51.100.103 || fail "the Instance has moved"
  is_property cam PORT 554 || fail "the Instance has moved"
  within 20 "the honest one is back" is_healthy cam
  equal "the Instance" "$(cat "$SUITE/identity")" "$(identity_of cam)"
}

test_nobody_says_goodbye_for_another() {
  given_an_honest_service
  responder set cam-v1.2 _rtsp._tcp 555
  within 10 "the service with a dot is found" is_healthy cam-v1.2
  # An announced host of the same text, and its goodbye. The labels of its name are not those of the service.
  evil announce cam-v1.2 198.51.100.9 split=yes seconds=1
  evil announce cam-v1.2 198.51.100.9 split=yes seconds=1 ttl=0
  for _ in 1 2 3; do
    evil announce cam 198.51.100.9 only=PTR ttl=0 seconds=0.4
    for_all_of 3 "the honest service is healthy" is_healthy cam
  done
  for_all_of 3 "the service with a dot is healthy" is_healthy cam-v1.2
  is_the_same
  responder gone cam-v1.2
  within 3 "its own goodbye is believed" is_unhealthy cam-v1.2
  # It is searched for, so it need not announce its return.
  responder quiet cam-v1.2 _rtsp._tcp 555
  within 3 "it is found without an announcement" is_healthy cam-v1.2
  responder gone cam-v1.2
}

test_of_two_hosts_with_one_name_the_second_may_go() {
  local address
  [ -e "$CLUSTER_DIR/run/twin.pid" ] || cluster device twin >"$SUITE/twin_address"
  address=$(cat "$SUITE/twin_address")
  given_an_honest_service
  # Its standard input is empty, so that it says goodbye when it has announced the service.
  begin twin twin sh -c "(echo set cam _rtsp._tcp 554 version=1; sleep 15) | exec python3 -u '$E2E/responder.py' $address"
  sleep 14
  for_all_of 6 "the service of the first host is healthy" is_healthy cam
  equal "how often it was gone" "$(cat "$SUITE/losses")" "$(losses)"
}

test_a_host_that_fills_its_share_keeps_no_other_out() {
  given_an_honest_service
  evil filling _rtsp._tcp 5
  within 10 "the message names the host" grep -q "services of 198.51.100.* are left out" "$STATE"/configurations/*.yaml
  responder set late _rtsp._tcp 555
  within 10 "another host's new service is found" is_healthy late
  is_the_same
  responder gone late
}

test_a_flood_costs_little_and_hides_no_service() {
  given_an_honest_service
  sleep 2
  local edge before
  edge=$(cat "$SUITE/address")
  note "memory before: $(memory_of_agent) kB"
  evil unasked 1500 3
  at_most "memory after 300,000 records that nobody asked for" 25000 kB "$(memory_of_agent)"
  before=$(processor_time_of_agent)
  evil garbage "$edge" 5 10
  at_most "processor time of 10 MB of garbage a second" 20 % "$((($(processor_time_of_agent) - before) / 5))"
  at_most "memory after it" 25000 kB "$(memory_of_agent)"
  is_the_same
}

# The honest service stays, the agent costs little, and a new service is found, while WORDS… of hostile.py run.
under_attack() { # CLAIM WORDS…
  local claim=$1 new=new-$2-$RANDOM before times found
  shift
  before=$(processor_time_of_agent)
  begin attack evil python3 "$E2E/hostile.py" "$@" "$ATTACK"
  begin probes edge bash -c "while :; do curl -s -o /dev/null -w '%{time_total}\n' 'http://$METRICS/healthz'; sleep 0.2; done"
  sleep "$((ATTACK / 2))"
  responder set "$new" _rtsp._tcp 556
  within 10 "during $claim a new service is found" is_healthy "$new"
  found=$TOOK
  within "$((ATTACK + 20))" "$claim ends" grep -q "packets in" "$SUITE/log/attack"
  times=$(sort -n "$SUITE/log/probes" | awk '{ a[NR] = $1 } END { print a[int(NR * 0.99 + 0.5)] * 1000 }')
  note "$claim: $(tail -n 1 "$SUITE/log/attack"), a new service after $found s"
  at_most "processor time during $claim" 25 % "$((($(processor_time_of_agent) - before) / ATTACK))"
  at_most "memory after it" "$(($(cat "$SUITE/memory") + 25000))" kB "$(memory_of_agent)"
  at_most "the slowest hundredth of /healthz" 100 ms "$times"
  is_the_same
  stop probes
  rm "$SUITE/log/attack" "$SUITE/log/probes" "$SUITE/pid/attack"
  responder gone "$new"
}

test_packets_without_end_hide_no_service_and_stop_no_agent() {
  given_an_honest_service
  sleep 2
  memory_of_agent >"$SUITE/memory"
  local edge cam
  edge=$(cat "$SUITE/address")
  cam=198.51.100.103
  under_attack "20,000 packets a second from 2048 hosts of the LAN" sources 203.0.112.0/21 224.0.0.251 20000
  under_attack "the same from outside the LAN" sources 203.0.112.0/21 "$edge" 20000
  under_attack "the same by IPv6" sources 2001:db8:7::/64 2001:db8:1::2 20000
  under_attack "questions and known answers" questions _rtsp._tcp cam 40
  under_attack "names of many pointers" chains 40
  under_attack "addresses" addresses cam.local 40
  under_attack "questions to the agent alone" confirm cam _rtsp._tcp "$edge" 5
  under_attack "forged goodbyes" goodbyes cam _rtsp._tcp 20
  # The attacker has the honest host's address, too.
  cluster on evil ip route add local $cam dev lo
  under_attack "2,500 packets a second in the name of the honest host" sources $cam/32 224.0.0.251 2500
  cluster on evil ip route del local $cam dev lo
  # What it announces stays for a while: the last.
  under_attack "350 services of 8,700 bytes" large _rtsp._tcp 40
}

test_who_announces_most_keeps_no_other_out() {
  given_an_honest_service
  begin names evil python3 "$E2E/hostile.py" names _rtsp._tcp 6000 240
  # A host has half of what the others leave of `maxInstances`, which is 1000. One Instance is that of the honest host.
  within "$([ -n "$OPTIMISED" ] && echo 15 || echo 60)" "a host has its part of the Instances" has_instances 501
  # It begins after the flood, and the service after both.
  echo 'kind: _rtsp._tcp' >"$SUITE/details"
  begin finder edge "$PETIOLE" discover zeroconf --details "$SUITE/details"
  within "$([ -n "$OPTIMISED" ] && echo 15 || echo 60)" "one host has half of the services" has_found 2048
  responder set late _rtsp._tcp 555
  # A debug build is a tenth as fast, and other suites run beside it.
  within "$([ -n "$OPTIMISED" ] && echo 10 || echo 60)" "another host's is found" grep -q "late._rtsp._tcp" "$SUITE/log/finder"
  # A new agent finds the false services first.
  stop agent TERM
  begin_agent
  sleep 15
  is_the_same
  within 60 "what another host announces has an Instance beside them" grep -qr "device-id: late" "$STATE/instances"
  stop finder
  stop names
  responder gone late
}

instances() {
  find "$STATE/instances" -name '*.yaml' | wc -l
}

has_instances() {
  [ "$(instances)" = "$1" ]
}

has_found() {
  [ "$(grep -c '_rtsp._tcp.local' "$SUITE/log/finder")" -ge "$1" ]
}

show() {
  tail -n 40 "$STATE"/instances/*cam* "$STATE"/configurations/* 2>/dev/null || true
  find "$STATE/instances" | wc -l
  cluster on edge curl -s "http://$METRICS/metrics" | grep mdns
  for log in "$SUITE"/log/*; do
    echo "--- $log"
    tail -n 30 "$log"
  done
}
