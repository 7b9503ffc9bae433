# Real servers of other languages that announce nothing, in a network of their own.
# shellcheck shell=bash

set_up() {
  [ -n "${PROBE_STACKS:-}" ] || { echo "it installs servers of other languages: just e2e-long"; exit 77; }
  local folder program
  for program in snmpd nginx openssl; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || { echo "$program is not installed: apt-get install $program"; exit 77; }
  done
  folder=$("$E2E/probe_servers/build")
  [ -e "$folder/python/ready" ] || { echo "pymodbus cannot be installed here"; exit 77; }
}

test_devices_that_announce_nothing_are_found_and_gone_after_three_rounds() {
  unshare --net "$E2E/probe_servers/judge.py" "$PETIOLE" "$("$E2E/probe_servers/build")" >"$SUITE/judged" 2>&1 || fail "$(cat "$SUITE/judged")"
  note "$(tail -n 1 "$SUITE/judged")"
}
