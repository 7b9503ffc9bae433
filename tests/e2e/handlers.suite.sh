# No cluster: one machine with our agent and our kubelet, and the discovery handlers of examples/ as they are, in Python, Go and
# Rust. Each finds those of some addresses that accept TCP connections.
# shellcheck shell=bash disable=SC2153 # SUITE is set by run

HOME_OF_NODE=$SUITE/edge
ROOT=$HOME_OF_NODE/kubelet
STATE=$HOME_OF_NODE/state
CONFIGURATIONS=$HOME_OF_NODE/configurations
MANIFESTS=$HOME_OF_NODE/manifests
FOLDER=$HOME_OF_NODE/akri

set_up() {
  local bin
  bin=$("$E2E/handlers/build")
  if ! ls "$bin"/reachable-* >/dev/null; then
    echo "no handler of examples/ can be built here"
    exit 77
  fi
  echo "$bin" >"$SUITE/bin"
  cluster lan
  cluster device edge sleep infinity
  begin camera-1 edge python3 -m http.server --bind 127.0.0.1 8551
  begin camera-2 edge python3 -m http.server --bind 127.0.0.1 8552
}

languages() {
  local program
  for program in "$(cat "$SUITE/bin")"/reachable-*; do echo "${program##*-}"; done
}

# A node without a past: the handlers run, and two cameras.
fresh() {
  local language
  for language in $(languages); do stop "$language"; done
  stop agent
  stop kubelet
  rm -rf "$HOME_OF_NODE" "$SUITE/log/agent"
  mkdir -p "$ROOT" "$STATE" "$CONFIGURATIONS" "$MANIFESTS" "$FOLDER"
  begin_kubelet
  begin_agent
  for language in $(languages); do
    begin_handler "$language"
    configure "$language" '{"addresses": ["127.0.0.1:8551", "127.0.0.1:8552", "127.0.0.1:8559"]}'
  done
  for language in $(languages); do
    within 20 "the kubelet offers what the handler in $language finds" holds "$language" allocatable 2
    note "handler in $language: started -> allocatable: $TOOK s"
  done
}

begin_kubelet() {
  begin kubelet edge "$PETIOLE" kubelet --root-dir "$ROOT" --manifests "$MANIFESTS" --node-name edge
}

begin_agent() {
  begin agent edge "$PETIOLE" agent --standalone --node-name edge --configurations "$CONFIGURATIONS" \
    --state "$STATE" --kubelet-dir "$ROOT" --handlers-dir "$FOLDER"
}

begin_handler() { # LANGUAGE
  begin "$1" edge env DISCOVERY_HANDLERS_DIRECTORY="$FOLDER" "$(cat "$SUITE/bin")/reachable-$1"
}

configure() { # LANGUAGE DETAILS
  cat >"$CONFIGURATIONS/.$1" <<X
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: $1}
spec:
  gracePeriodSeconds: 5
  discoveryHandler: {name: reachable-$1, discoveryDetails: '$2'}
X
  mv "$CONFIGURATIONS/.$1" "$CONFIGURATIONS/$1.yaml"
}

# The kubelet's word, not the agent's.
holds() { # LANGUAGE capacity|allocatable AMOUNT
  (cluster on edge "$PETIOLE" get node --root-dir "$ROOT" --state "$STATE" -o json) |
    jq -e --arg r "akri.sh/$1" --arg n "$3" ".status.$2[\$r] // \"0\" | . == \$n"
}

all_hold() { # AMOUNT
  local language
  for language in $(languages); do holds "$language" allocatable "$1" || return 1; done
}

status_says() { # LANGUAGE TEXT
  grep -rqsF "$2" "$STATE"/configurations/*"$1"*
}

identities() {
  grep -hE '^ *(uid|creationTimestamp):' "$STATE"/instances/*.yaml | sort
}

show() {
  tail -n 30 "$SUITE"/log/*
  cat "$STATE"/configurations/* 2>/dev/null | tail -n 80
}

# ---- tests ----

test_handlers_register_and_what_they_find_is_allocatable_gone_and_back() {
  fresh
  grep -rq 'PORT: *.8551' "$STATE/instances" || fail "no Instance has the property"
  stop camera-2
  within 20 "the one that is off is not allocatable" all_hold 1
  begin camera-2 edge python3 -m http.server --bind 127.0.0.1 8552
  within 20 "and it is back" all_hold 2
}

test_nothing_is_lost_when_agent_and_kubelet_restart_though_handlers_register_once() {
  local before language
  fresh
  before=$(identities)
  stop agent
  begin_agent
  within 20 "after the agent ended, all is there" all_hold 2
  for_all_of 20 "it stays" all_hold 2
  stop agent KILL
  sleep 8 # longer than gracePeriodSeconds
  begin_agent
  within 20 "after the agent was killed, all is there" all_hold 2
  stop kubelet
  begin_kubelet
  within 20 "after the kubelet ended, all is there" all_hold 2
  for_all_of 60 "for a minute nothing goes" all_hold 2
  equal "the Instances" "$before" "$(identities)"
  stop camera-1
  within 20 "the handlers are followed" all_hold 1
  begin camera-1 edge python3 -m http.server --bind 127.0.0.1 8551
  within 20 "both are back" all_hold 2
  for language in $(languages); do
    equal "registrations of $language" 1 "$(grep -c "discovery handler registered handler=\"reachable-$language\"" "$SUITE/log/agent")"
  done
}

test_a_handler_that_is_killed_keeps_its_devices_and_is_dialled_again() {
  local language before
  fresh
  before=$(identities)
  for language in $(languages); do stop "$language" KILL; done
  for language in $(languages); do
    within 5 "the Configuration says why" status_says "$language" DiscoveryFailed
  done
  for_all_of 15 "the devices stay" all_hold 2
  for language in $(languages); do begin_handler "$language"; done
  for language in $(languages); do
    within 40 "the Configuration is all right again" status_says "$language" Working
  done
  for_all_of 10 "the devices stay" all_hold 2
  equal "the Instances" "$before" "$(identities)"
}

test_wrong_details_are_shown_with_the_words_of_the_handler_and_end_nothing() {
  local language
  fresh
  for language in $(languages); do
    configure "$language" '{"adresses": []}'
    within 10 "the Configuration says why" status_says "$language" 'no list of host:port in'
    status_says "$language" BadDiscoveryDetails || fail "another reason"
  done
  for_all_of 10 "what ran goes on" all_hold 2
}

test_a_handler_is_tried_without_an_agent() {
  local language found
  fresh
  stop agent
  echo '{"addresses": ["127.0.0.1:8551"]}' >"$SUITE/details"
  for language in $(languages); do
    found=$(cluster on edge "$PETIOLE" discover "reachable-$language" --endpoint "unix://$FOLDER/reachable-$language.sock" \
      --details "$SUITE/details" -o json)
    equal "the device that $language finds" "127.0.0.1:8551" "$(jq -r '.[].id' <<<"$found")"
  done
}
