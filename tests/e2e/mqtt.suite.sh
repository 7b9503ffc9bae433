# Real MQTT brokers and publishers of other languages, on loopback.
# shellcheck shell=bash

set_up() {
  [ -n "${MQTT_STACKS:-}" ] || { echo "it installs brokers and publishers of other languages: just e2e-long"; exit 77; }
  command -v mosquitto >/dev/null || { echo "mosquitto is not installed: apt-get install mosquitto"; exit 77; }
  local folder
  folder=$("$E2E/mqtt_brokers/build")
  if [ ! -e "$folder/home-assistant/ready" ] || [ ! -e "$folder/sparkplug/ready" ]; then
    echo "no publisher can be installed here"
    exit 77
  fi
}

test_devices_of_three_brokers_are_found_and_their_last_wills_count_at_once() {
  "$E2E/mqtt_brokers/judge.py" "$PETIOLE" "$("$E2E/mqtt_brokers/build")" >"$SUITE/judged" 2>&1 || fail "$(cat "$SUITE/judged")"
  note "$(tail -n 1 "$SUITE/judged")"
}
