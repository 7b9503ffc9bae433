# The recipes of docs/recipes.md: each file of examples/recipes is applied as it is, except that images of registries become busybox, with
# the programs of this machine. A recipe whose program Debian has runs its own command; the others open the device that they were given, or
# say the address.
#
# The devices are device nodes of this machine (fuse, tun, kvm, a terminal), /dev/null by other names in a /dev that only the node has, with
# a fake sysfs and a fake database of udev for the agent, and servers of Debian on the LAN.
# shellcheck shell=bash disable=SC2016,SC2119,SC2153 # expanded in Pods; SUITE is set by run
# shellcheck source=tests/e2e/lib_cluster.sh
. "$E2E/lib_cluster.sh"

RECIPES=$EXAMPLES/recipes
SERVERS=$CLUSTER_BIN/servers
LIBRARIES=$SERVERS/usr/lib/x86_64-linux-gnu:$SERVERS/lib/x86_64-linux-gnu
# What the agent sees as /sys; the agent has this folder of the node.
SYSFS=$CLUSTER_DIR/node-1/var/lib/akri/sysfs
PACKAGES=(mosquitto mosquitto-clients libmosquitto1 libcjson1 libdlt2 libwrap0 libnsl2 libtirpc3
  cups-ipp-utils libcups2 nut-server nut-client libupsclient6)

set_up() {
  [ -e "$IMAGE" ] || { echo "no image at $IMAGE: just image"; return 1; }
  unpack_servers
  cluster up 1
  make_device_nodes
  make_sysfs
  load_busybox docker.io/library/busybox:stable
  cluster load "$IMAGE"
  install --set udev.enabled=true --set 'udev.subsystems={tty,usb,apex,video4linux,tpmrm}' --set cdi.write=true \
    --set 'paths.allow={/dev/snd,/dev/dri,/dev/kvm,/dev/fuse,/dev/net/tun,/dev/gpiochip0}'
  show_sysfs
  cluster avahi lan >"$SUITE/address"
}

# Not installed: their installation would start them on this machine.
unpack_servers() {
  [ ! -e "$SERVERS/ready" ] || return 0
  local package
  mkdir -p "$SERVERS/packages"
  if ! (cd "$SERVERS/packages" && { download || { apt-get update -qq && download; }; }); then
    echo "a package of Debian 12 cannot be had here: ${PACKAGES[*]}"
    exit 77
  fi
  for package in "$SERVERS"/packages/*.deb; do dpkg -x "$package" "$SERVERS"; done
  rm -r "$SERVERS/packages"
  touch "$SERVERS/ready"
}

download() {
  apt-get -o APT::Sandbox::User=root download -qq "${PACKAGES[@]}"
}

# A /dev of the node's own: nothing of it is this machine's, and it goes with the node.
make_device_nodes() {
  cluster on node-1 sh -ec '
    new=$(mktemp -d) && mount -t tmpfs -o mode=755 tmpfs "$new"
    cp -ax /dev/. "$new"
    for folder in pts shm mqueue; do [ ! -d "/dev/$folder" ] || mount --bind "/dev/$folder" "$new/$folder"; done
    mount --move "$new" /dev && rmdir "$new"
    mkdir -p /dev/bus/usb/001 /dev/dri /dev/snd /dev/net
    for node in bus/usb/001/002 bus/usb/001/003 bus/usb/001/004 video0 tpmrm0 dri/card0 dri/renderD128 gpiochip0 \
      snd/controlC0 snd/pcmC0D0c snd/pcmC0D0p fuse net/tun kvm; do
      [ -e "/dev/$node" ] || mknod "/dev/$node" c 1 3
    done
    # The last virtual terminal: a line that can be set up as a serial one.
    if (: <>/dev/tty63) 2>/dev/null; then mknod /dev/ttyUSB0 c 4 63; else mknod /dev/ttyUSB0 c 1 3; fi
  '
}

# plug SUBSYSTEM DEVPATH UEVENT [ATTRIBUTE=VALUE…]: SUBSYSTEM as class/tty or bus/usb. With a device node its entry in udev's database is
# $ENTRY.
plug() {
  local subsystem=$1 devpath=$2 uevent=$3 folder=$SYSFS$2 major minor attribute
  shift 3
  mkdir -p "$folder" "$SYSFS/$subsystem"
  ln -s "../$subsystem" "$folder/subsystem"
  case $subsystem in
    class/*) ln -s "../..$devpath" "$SYSFS/$subsystem/${devpath##*/}" ;;
    *) mkdir -p "$SYSFS/$subsystem/devices" && ln -s "../../..$devpath" "$SYSFS/$subsystem/devices/${devpath##*/}" ;;
  esac
  tr ' ' '\n' <<<"$uevent" >"$folder/uevent"
  for attribute in "$@"; do echo "${attribute#*=}" >"$folder/${attribute%%=*}"; done
  major=$(sed -n 's/^MAJOR=//p' "$folder/uevent") minor=$(sed -n 's/^MINOR=//p' "$folder/uevent")
  # shellcheck disable=SC2016 # expanded on the node
  [ -z "$major" ] || cluster on node-1 sh -c 'printf "$2\n" >"/run/udev/data/$1"' - "c$major:$minor" "${ENTRY:-V:1}"
}

make_sysfs() {
  local usb=/devices/pci0000:00/usb1
  mkdir -p "$SYSFS/devices" "$SYSFS/bus" "$SYSFS/class"
  cluster on node-1 sh -c 'mkdir -p /run/udev/data && : >/run/udev/control'
  plug bus/usb $usb/1-1 "MAJOR=189 MINOR=4 DEVNAME=bus/usb/001/005 DEVTYPE=usb_device" \
    idVendor=10c4 idProduct=ea60 "product=Sonoff Zigbee 3.0 USB Dongle Plus" serial=0001
  ENTRY='S:serial/by-id/usb-Zigbee-if00\nE:ID_SERIAL=Sonoff_0001\nE:ID_SERIAL_SHORT=0001\nV:1' \
    plug class/tty $usb/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0 "MAJOR=188 MINOR=0 DEVNAME=ttyUSB0"
  plug bus/usb $usb/1-2 "MAJOR=189 MINOR=1 DEVNAME=bus/usb/001/002 DEVTYPE=usb_device" idVendor=051d idProduct=0002 serial=4B16
  plug bus/usb $usb/1-3 "MAJOR=189 MINOR=2 DEVNAME=bus/usb/001/003 DEVTYPE=usb_device" idVendor=18d1 idProduct=9302
  plug bus/usb $usb/1-4 "MAJOR=189 MINOR=3 DEVNAME=bus/usb/001/004 DEVTYPE=usb_device" idVendor=03f0 idProduct=132a
  plug bus/usb $usb/1-4/1-4:1.0 "DEVTYPE=usb_interface" bInterfaceClass=07
  ENTRY='E:ID_V4L_CAPABILITIES=:capture:\nV:1' \
    plug class/video4linux $usb/1-5/1-5:1.0/video4linux/video0 "MAJOR=81 MINOR=0 DEVNAME=video0"
  plug class/tpmrm /devices/platform/MSFT0101:00/tpmrm/tpmrm0 "MAJOR=253 MINOR=65536 DEVNAME=tpmrm0"
}

# The agent's /sys becomes that folder. Its image has no program that could do so.
show_sysfs() {
  cp "$(command -v busybox)" "${SYSFS%/*}/busybox"
  cluster on node-1 nsenter -t "$(agent_pid node-1)" -m /var/lib/akri/busybox mount --bind /var/lib/akri/sysfs /sys
}

# give NAME [CHECK]: applies a recipe. Without CHECK the container runs the recipe's own command, else this one.
give() {
  kubectl create --dry-run=client --validate=strict -o json -f "$RECIPES/$1.yaml" |
    jq --arg check "${2:+set -ex; $2; echo works; exec sleep 2147483647}" --arg servers "$SERVERS" --arg libraries "$LIBRARIES" '
      ([["/usr", "/usr"], ["/lib", "/usr/lib"], ["/lib64", "/usr/lib64"], [$servers, $servers]]
        | to_entries | map({name: "machine-\(.key)", at: .value[0], path: .value[1]})) as $folders |
      (if .kind == "List" then .items[] else . end) |
      if .kind != "Deployment" then . else .spec.template.spec |= (
        .terminationGracePeriodSeconds = 0
        | .tolerations = [{operator: "Exists"}]
        | .volumes += [$folders[] | {name, hostPath: {path}}]
        | .containers[0] |= (.image = "docker.io/library/busybox:stable"
          | .volumeMounts += [$folders[] | {name, mountPath: .at, readOnly: true}]
          | .env += [{name: "PATH", value: "/bin:\($servers)/usr/bin:/usr/bin:/usr/sbin"}, {name: "LD_LIBRARY_PATH", value: $libraries}]
          | if $check == "" then . else .command = ["/bin/sh", "-c", $check] | del(.args) end))
      end' | kubectl apply -f - >/dev/null
}

# works NAME [TEXT]: each Pod of the recipe says it.
works() {
  within 60 "$1: its Pods run, and say ${2:-works}" all_say "$1" "${2:-works}"
}

all_say() { # NAME TEXT
  local pod pods
  kubectl rollout status "deployment/$1" --timeout=1s >/dev/null || return 1
  pods=$(kubectl get pods -l "app=$1" -o name) && [ -n "$pods" ] || return 1
  for pod in $pods; do logs_have "$pod" "$2" || return 1; done
}

tells() { # TEXT ARGS… of petiole
  cluster on control "$PETIOLE" "${@:2}" 2>&1 | matches -F "$1"
}

opened() { # PATH: a command for Pods
  echo "exec 3<>$1"
}

has_rights() { # PATH "MODE UID GID": a command for Pods
  echo "[ \"\$(stat -c '%a %u %g' $1)\" = '$2' ]"
}

test_what_is_plugged_into_a_node() {
  give zigbee "$(opened /dev/zigbee); [ ! -t 3 ] || stty -F /dev/zigbee raw; $(has_rights /dev/zigbee '660 1000 1000')
    [ \"\$UDEV_DEVNODE\" = /dev/ttyUSB0 ]; $(opened /dev/ttyUSB0); $(opened /dev/serial/by-id/usb-Zigbee-if00)
    grep -q 'CapEff:.0000000000000000' /proc/self/status"
  give webcam "$(opened /dev/webcam); [ \"\$UDEV_DEVNODE\" = /dev/video0 ]"
  give coral '[ "$UDEV_DEVNODE" = /dev/bus/usb/001/003 ]; exec 3<>"$UDEV_DEVNODE"; grep -q edgetpu /config/config.yml'
  give tpm '[ "$UDEV_DEVNODE" = /dev/tpmrm0 ]; exec 3<>"$UDEV_DEVNODE"'
  give printer-usb '[ "$UDEV_DEVNODE" = /dev/bus/usb/001/004 ]; exec 3<>"$UDEV_DEVNODE"'
  # NUT itself, with its driver for tests.
  give ups "$(has_rights '"$UDEV_DEVNODE"' '666 0 0'); exec 3<>\"\$UDEV_DEVNODE\"
    echo root:x:0:0::/: >/etc/passwd; export NUT_CONFPATH=/nut NUT_STATEPATH=/nut NUT_ALTPIDPATH=/nut; mkdir -m 700 /nut; cd /nut
    printf '[ups]\n driver = dummy-ups\n port = ups.dev\n' >ups.conf
    echo 'ups.status: OL' >ups.dev; echo 'LISTEN 0.0.0.0' >upsd.conf; : >upsd.users
    $SERVERS/lib/nut/dummy-ups -a ups -u root; $SERVERS/lib/nut/upsd -u root
    until $SERVERS/bin/upsc ups ups.status; do sleep 0.2; done"
  local name
  for name in zigbee webcam coral tpm printer-usb; do works $name; done
  works ups OL
  within 10 "why says where the container has the stick" tells '/dev/ttyUSB0, also at /dev/zigbee and at the links of udev' why deployment/zigbee
  tells '/dev/zigbee' devices -o wide || fail "devices does not say it"
}

test_device_nodes_that_every_machine_has() {
  give sound "$(opened /dev/snd/controlC0); $(opened /dev/snd/pcmC0D0p); $(opened /dev/snd/pcmC0D0c)"
  give gpu "[ \"\$DEVICE_PATH\" = /dev/dri/renderD128 ]; $(opened /dev/dri/renderD128); [ ! -e /dev/dri/card0 ]
    $(has_rights /dev/dri/renderD128 '660 1000 1000')"
  give kvm "$(opened /dev/kvm); $(has_rights /dev/kvm '660 1001 1001')"
  give fuse "$(opened /dev/fuse); $(if_real /dev/fuse a:e5 'mkdir /data; busybox mount -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none /data')"
  give tun "$(opened /dev/net/tun); $(if_real /dev/net/tun a:c8 '/usr/bin/ip tuntap add dev tun9 mode tun')"
  give gpio "$(opened /dev/gpiochip0); [ \"\$DEVICE_PATH\" = /dev/gpiochip0 ]"
  local name
  for name in sound gpu kvm fuse tun gpio; do works $name; done
  tells 'akri.sh/kvm, have no Instances (spec.instances is false): node-1 has 1000 (2 in use)' devices || fail "devices does not say who has /dev/kvm"
}

if_real() { # PATH MAJOR:MINOR COMMAND: a command for Pods
  echo "[ \"\$(stat -c %t:%T $1)\" != $2 ] || { $3; }"
}

test_what_announces_itself_on_the_lan() {
  local lan
  lan=$(cat "$SUITE/address")
  mkdir -p "$SUITE/www/rpc" "$SUITE/spool"
  echo '{"sys": {"mac": "A0B1C2D3E4F5"}}' >"$SUITE/www/rpc/Shelly.GetStatus"
  printf 'listener 1883\nallow_anonymous true\nuser root\n' >"$SUITE/mosquitto.conf"
  begin shelly lan busybox httpd -f -p 80 -h "$SUITE/www"
  begin mosquitto lan env LD_LIBRARY_PATH="$LIBRARIES" "$SERVERS/usr/sbin/mosquitto" -c "$SUITE/mosquitto.conf"
  # It announces itself.
  begin printer lan env LD_LIBRARY_PATH="$LIBRARIES" "$SERVERS/usr/sbin/ippeveprinter" -d "$SUITE/spool" -p 8631 Office
  announce lan shellyplus1pm-a0b1c2d3e4f5 _shelly._tcp 80 gen=2 app=Plus1PM
  announce lan Hall _mqtt._tcp 1883
  announce lan boiler _esphomelib._tcp 6053 version=2025.6.0 mac=a0b1c2d3e4f5 platform=ESP32
  announce lan Chromecast-1 _googlecast._tcp 8009 fn=Hall md=Chromecast ca=201221
  give shelly
  give mqtt
  give printer-ipp "ipptool -tv \"ipp://\$AKRI_ZEROCONF_DEVICE_ADDR:\$AKRI_ZEROCONF_DEVICE_PORT/\$AKRI_ZEROCONF_DEVICE_RP\" \
    $SERVERS/usr/share/cups/ipptool/get-printer-attributes.test"
  give esphome "[ \"\$AKRI_ZEROCONF_DEVICE_ADDR:\$AKRI_ZEROCONF_DEVICE_PORT\" = $lan:6053 ]; [ \"\$AKRI_ZEROCONF_DEVICE_VERSION\" = 2025.6.0 ]"
  give chromecast "[ \"\$AKRI_ZEROCONF_DEVICE_ADDR:\$AKRI_ZEROCONF_DEVICE_PORT\" = $lan:8009 ]; [ \"\$AKRI_ZEROCONF_DEVICE_MD\" = Chromecast ]"
  works shelly A0B1C2D3E4F5
  works mqtt '$SYS/broker/version mosquitto'
  works printer-ipp
  works esphome
  works chromecast
}

show() {
  kubectl get pods,configurations,instances -o wide
  kubectl get events | grep -v Normal
  local pod
  for pod in $(kubectl get pods -o name); do
    echo "--- $pod"
    kubectl logs "$pod" --tail=15
  done
  kubectl -n petiole logs daemonset/petiole-agent --tail=20 | cut -c1-400
}
