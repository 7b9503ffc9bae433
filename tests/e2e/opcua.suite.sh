# OPC UA servers of four stacks in four languages, in a network of their own.
# shellcheck shell=bash

set_up() {
  [ -n "${OPCUA_STACKS:-}" ] || { echo "it builds servers with the tools of four languages: just e2e-long"; exit 77; }
  local folder ready
  folder=$("$E2E/opcua_servers/build")
  ready=$({ ls "$folder"/{python,javascript,java}/ready "$folder/gopcua" 2>/dev/null || true; } | wc -l)
  if [ "$ready" = 0 ]; then
    echo "no OPC UA stack can be installed here"
    exit 77
  fi
  note "$ready of 4 stacks"
}

test_servers_of_four_stacks_are_found() {
  "$E2E/opcua_servers/judge" "$PETIOLE" >"$SUITE/judged" 2>&1 || fail "$(cat "$SUITE/judged")"
  note "$(tail -n 1 "$SUITE/judged")"
}
