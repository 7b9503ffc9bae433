# WS-Discovery programs and cameras of others, in two networks of their own.
# shellcheck shell=bash

set_up() {
  [ -n "${ONVIF_STACKS:-}" ] || { echo "it installs programs of other languages: just e2e-long"; exit 77; }
  PATH=$PATH:/usr/sbin command -v wsdd >/dev/null || { echo "wsdd is not installed: apt-get install wsdd"; exit 77; }
  local folder
  folder=$("$E2E/onvif/build")
  [ -e "$folder/python/ready" ] || { echo "WSDiscovery cannot be installed here"; exit 77; }
}

test_cameras_are_found_at_once_and_their_credentials_are_digests() {
  local folder
  folder=$("$E2E/onvif/build")
  "$folder/python/bin/python" "$E2E/onvif/judge.py" "$PETIOLE" "$folder" >"$SUITE/judged" 2>&1 || fail "$(cat "$SUITE/judged")"
  note "$(grep -E 'are found:|at rest|peak' "$SUITE/judged" | paste -sd';')"
}
