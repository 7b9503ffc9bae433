#!/bin/sh
# Installs a released Petiole on one Linux machine: the Debian package where dpkg is there, otherwise the static program and the
# systemd units. The machine is changed only after every needed file was downloaded and has the checksum of the release. Of a signed
# release the checksums must have the signature of its publisher, if cosign is installed.
#
# Needs: sha256sum and awk, and curl or wget if the release is not a folder. `--help` prints the arguments.
set -eu
# dpkg wants ldconfig; `su` on Debian leaves these out.
PATH=$PATH:/usr/sbin:/sbin

usage() {
  cat <<'USAGE'
Installs a released Petiole on one Linux machine (amd64, arm64), or upgrades it.

  sh install.sh [--prefix DIR] [--allow-http] [ADDRESS]
  sh install.sh --uninstall [--prefix DIR]

  ADDRESS        where the files of the release are: an address that begins with https://, or a folder.
                 The variable PETIOLE_URL can name it instead
  --prefix DIR   install only the program, as DIR/bin/petiole: without root, without systemd units
  --allow-http   take an address that begins with http://, too: anyone on the way can replace the program
  --uninstall    remove what was installed; Configurations and state stay
  --help         print this text

With dpkg the Debian package is installed. Otherwise these are: the static program as /usr/local/bin/petiole, and where systemd is,
its units in /etc/systemd/system and /etc/tmpfiles.d/petiole.conf. No unit is enabled. Units that run are restarted.
USAGE
}

units="petiole-agent.service petiole-kubelet.service"
unit_folder=/etc/systemd/system tmpfiles=/etc/tmpfiles.d/petiole.conf
configurations=/etc/petiole/configurations
unchanged=" Nothing was changed." work='' program=''

die() {
  echo "install.sh: $*.$unchanged" >&2
  exit 1
}

warn() {
  echo "install.sh: warning: $*" >&2
}

clean() {
  [ -z "$work" ] || rm -rf "$work"
  {
    [ -z "$program" ] || rm -f "$program.new"
    for unit in $units; do rm -f "$unit_folder/$unit.new"; done
    rm -f "$tmpfiles.new"
  } 2>/dev/null || true # without root, of folders of root
}

has() {
  command -v "$1" >/dev/null 2>&1
}

# The last line that a failed command has written; of curl, the line that has its error: advice follows one about certificates.
said() {
  sed '/^ *$/d; s/[.]$//' "$work/said" | awk '{ last = $0 } /^curl: [(]/ { error = $0 } END { print error ? error : last }'
}

# ---- the release ----

# The workflow whose signature a release has: .ci/standalone writes it here. Without one the release is not signed.
signer=
issuer=https://token.actions.githubusercontent.com

download() { # FILE
  if has curl; then
    curl --proto "=$schemes" --proto-redir "=$schemes" --fail --silent --show-error --location --connect-timeout 20 \
      --speed-limit 1 --speed-time 60 --retry 2 --output "$work/$1" "$address/$1" 2>"$work/said"
    return
  fi
  # It has no option against that, and says where it was led.
  wget -S -t 3 -O "$work/$1" "$address/$1" 2>"$work/said" || return
  [ "$schemes" != https ] || ! grep -qi '^ *location: *http:' "$work/said" ||
    die "$address/$1 leads to an address with http://, where anyone on the way can replace it. Give the address where the files are"
}

# Copies a file of the release into the temporary folder.
fetch() { # FILE
  case $address in
    *://*) download "$1" ;;
    *) cp "$address/$1" "$work/$1" 2>"$work/said" ;;
  esac || die "cannot read $address/$1: $(said). Check the address and the space in ${TMPDIR:-/tmp}"
}

# Compares the checksums with the publisher's signature.
check_signature() {
  [ -n "$signer" ] || return 0
  if ! has cosign; then
    warn "cosign is not installed: only the checksums are compared, which are from the same address as the files"
    return
  fi
  file=$(name_of "petiole-[0-9A-Za-z.+~-]+-linux-$architecture" "program")
  version=${file#petiole-}
  identity=$signer@refs/tags/v${version%-linux-*}
  fetch SHA256SUMS.sigstore.json
  cosign verify-blob --bundle "$work/SHA256SUMS.sigstore.json" --certificate-identity "$identity" \
    --certificate-oidc-issuer "$issuer" "$work/SHA256SUMS" >"$work/said" 2>&1 </dev/null ||
    die "$address/SHA256SUMS has no signature of $identity: $(said). cosign 3 or newer is needed; if it is, do not use these files"
}

# Prints the name in SHA256SUMS that matches a pattern of awk.
name_of() { # PATTERN WHAT
  awk -v pattern="^$1\$" '{ sub(/^\*/, "", $2) } $2 ~ pattern { print $2 }' "$work/SHA256SUMS" >"$work/names"
  case $(wc -l <"$work/names") in
    1) cat "$work/names" ;;
    0) die "$address/SHA256SUMS has no $2 for $architecture. Give the address of a release that has it" ;;
    *) die "$address/SHA256SUMS has more than one $2 for $architecture. Give the address of one release" ;;
  esac
}

fetch_checked() { # FILE
  fetch "$1"
  expected=$(awk -v file="$1" '{ sub(/^\*/, "", $2) } $2 == file { print $1; exit }' "$work/SHA256SUMS")
  [ -n "$expected" ] || die "$address/SHA256SUMS does not name $1. Give the address of a release of Petiole"
  found=$(sha256sum <"$work/$1" | cut -d ' ' -f 1)
  [ "$found" = "$expected" ] ||
    die "$address/$1 is not the file of the release: its SHA-256 is $found, and SHA256SUMS has $expected. Try again; if this stays, do not use these files"
}

architecture_of_machine() {
  [ "$(uname -s)" = Linux ] || die "this machine runs $(uname -s): Petiole needs Linux"
  case $(uname -m) in
    x86_64 | amd64) echo amd64 ;;
    aarch64 | arm64) echo arm64 ;;
    *) die "the architecture $(uname -m) has no release: Petiole has amd64 and arm64. Build it from source" ;;
  esac
}

# ---- the machine ----

# Whether packages of this architecture can be installed: a 32-bit system can have a 64-bit kernel.
takes_packages() {
  has dpkg && [ "$(dpkg --print-architecture 2>/dev/null)" = "$architecture" ]
}

is_package_installed() {
  # dpkg expands it, not the shell.
  # shellcheck disable=SC2016
  has dpkg-query && [ "$(dpkg-query --show --showformat='${db:Status-Status}' petiole 2>/dev/null)" = installed ]
}

is_systemd_running() {
  [ -d /run/systemd/system ] && has systemctl
}

# Runs a command whose failure is not one of the installation.
attempt() {
  "$@" >"$work/said" 2>&1 </dev/null || warn "$* failed: $(said). Run it again"
}

# Root writes into no folder that another user can change: a link there would lead to any file.
check_owners() { # FOLDER
  folder=$1
  while [ "$(id -u)" = 0 ]; do
    if [ -e "$folder" ]; then
      owner=$(stat -L -c %u "$folder")
      [ "$owner" = 0 ] || die "$folder belongs to user $owner. Run this as that user, or give a folder of root"
    fi
    [ "$folder" != / ] || break
    folder=$(dirname "$folder")
  done
}

# Copies a file beside its target, so that a rename replaces the target in one step. A link that is there is not followed.
stage() { # FILE MODE TARGET
  { mkdir -p "${3%/*}" && rm -f "$3.new" && cp "$work/$1" "$3.new" && chmod "$2" "$3.new"; } 2>"$work/said" || die "cannot write $3: $(said)"
}

place() { # TARGET
  mv -f "$1.new" "$1" 2>"$work/said" || die "cannot replace $1: $(said)"
}

install_package() {
  package=$(name_of "petiole_[0-9A-Za-z.+~-]+_${architecture}[.]deb" "Debian package")
  fetch_checked "$package"
  unchanged=" Mend that, and run this again."
  dpkg --install "$work/$package" >"$work/said" 2>&1 </dev/null || {
    cat "$work/said" >&2
    die "dpkg cannot install $package: the reason is above"
  }
}

# Stages the program, and starts it there once: a program that does not run here replaces nothing.
stage_program() {
  file=$(name_of "petiole-[0-9A-Za-z.+~-]+-linux-$architecture" "program")
  fetch_checked "$file"
  stage "$file" 755 "$program"
  "$program.new" --version >"$work/said" 2>&1 </dev/null || die "$file does not run on this machine: $(said)"
}

install_program() {
  stage_program
  unchanged=" Run this again."
  place "$program"
}

# Everything is fetched before anything is staged, and staged before anything is replaced.
install_program_and_units() {
  program=/usr/local/bin/petiole
  if ! has systemctl; then
    install_program
    attempt mkdir -p "$configurations"
    return
  fi
  for file in $units petiole.tmpfiles; do fetch_checked "$file"; done
  for unit in $units; do
    sed "s|/usr/bin/petiole|$program|" "$work/$unit" >"$work/$unit.here"
  done
  stage_program
  for unit in $units; do stage "$unit.here" 644 "$unit_folder/$unit"; done
  stage petiole.tmpfiles 644 "$tmpfiles"
  mkdir -p "$configurations" 2>"$work/said" || die "cannot make $configurations: $(said)"
  unchanged=" Run this again."
  for unit in $units; do place "$unit_folder/$unit"; done
  place "$tmpfiles"
  place "$program"
  if is_systemd_running; then
    attempt systemd-tmpfiles --create "$tmpfiles"
    attempt systemctl daemon-reload
    attempt systemctl try-restart petiole-kubelet.service petiole-agent.service
  fi
}

# ---- what the caller reads ----

say_next() {
  "$program" --version >"$work/said" 2>&1 </dev/null || die "$program does not run: $(said)"
  echo "installed: $program, $(said)"
  found=$(command -v petiole || true)
  [ "$(readlink -f "${found:-/}")" = "$(readlink -f "$program")" ] ||
    warn "the command petiole is ${found:-not found}: put ${program%/*} first in PATH"
  if [ -n "$prefix" ]; then
    echo "next: $program demo"
  elif ! has systemctl; then
    echo "next: $program agent --standalone --node-name $(uname -n) --render-brokers /run/petiole/pods"
  elif is_systemd_running && systemctl is-active --quiet petiole-agent.service; then
    echo "next: journalctl -u petiole-agent -f"
  else
    echo "next: systemctl enable --now petiole-agent petiole-kubelet   # petiole-agent alone beside another kubelet"
  fi
}

uninstall() {
  if [ -n "$prefix" ]; then
    program=$prefix/bin/petiole
    [ -e "$program" ] || die "there is no $program"
    rm -f "$program" 2>"$work/said" || die "cannot remove $program: $(said)"
    echo "removed: $program"
    return
  fi
  program=/usr/local/bin/petiole
  if is_package_installed; then
    unchanged=''
    dpkg --remove petiole </dev/null >&2 || die "dpkg cannot remove the package petiole: its reason is above"
    echo "removed: the package petiole"
  elif [ -e "$program" ] || [ -e "$unit_folder/petiole-agent.service" ]; then
    ! is_systemd_running || attempt systemctl disable --now petiole-agent.service petiole-kubelet.service
    for unit in $units; do rm -f "$unit_folder/$unit"; done
    # Another kubelet would keep the brokers of its manifests running.
    rm -f "$program" "$tmpfiles" /run/petiole/pods/petiole-*.yaml
    ! is_systemd_running || attempt systemctl daemon-reload
    echo "removed: $program and its units"
  else
    die "there is neither the package petiole nor $program"
  fi
  echo "next: rm -r /etc/petiole /var/lib/akri   # Configurations and state, which were left"
}

# Refuses an address that cannot be read here, and one where anybody can answer.
check_address() {
  case $address in
    '') die "no release is named. Give its address or folder as the argument, or set PETIOLE_URL" ;;
    http://* | https://*) has curl || has wget || die "neither curl nor wget is installed. Install one, or copy the release into a folder and name it" ;;
    *://*) die "$address is no address of a release. It must begin with https://, or be a folder" ;;
    *) [ -d "$address" ] || die "$address is no folder. Give the folder or the address of a release" ;;
  esac
  case $schemes,$address in
    https,http://*) die "anyone on the way to $address can replace the program. Give an address that begins with https://, or --allow-http" ;;
    # It looks at no certificate.
    https,https://*) has curl || case $(wget --help 2>&1) in *BusyBox*) die "BusyBox's wget does not check who answers. Install curl, or copy the release into a folder and name it" ;; esac ;;
  esac
}

arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
      --help | -h) usage && exit ;;
      --uninstall) action=uninstall ;;
      --allow-http) schemes=http,https ;;
      --prefix)
        [ -n "${2:-}" ] || die "--prefix has no folder. See --help"
        prefix=$2
        shift
        ;;
      -*) die "$1 is no argument. See --help" ;;
      *)
        [ -z "$given" ] || die "there are two addresses, $given and $1. Give one"
        given=$1
        ;;
    esac
    shift
  done
}

main() {
  action=install prefix='' given='' address='' schemes=https
  arguments "$@"
  case $prefix in '' | /*) ;; *) prefix=$PWD/$prefix ;; esac
  [ -n "$prefix" ] || [ "$(id -u)" = 0 ] || die "without root only --prefix DIR works. Run this as root, or give --prefix ~/.local"
  umask 022
  trap clean EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  work=$(mktemp -d "${TMPDIR:-/tmp}/petiole.XXXXXX") || die "cannot make a folder in ${TMPDIR:-/tmp}. Set TMPDIR to a folder with 100 MB"
  if [ $action = uninstall ]; then
    uninstall
    return
  fi
  address=${given:-${PETIOLE_URL:-}}
  address=${address%/}
  check_address
  for tool in sha256sum awk; do
    has "$tool" || die "$tool is not installed. Install it"
  done
  architecture=$(architecture_of_machine)
  fetch SHA256SUMS
  check_signature
  if [ -n "$prefix" ]; then
    program=$prefix/bin/petiole
    check_owners "${program%/*}"
    install_program
  elif takes_packages; then
    install_package
    program=/usr/bin/petiole
  else
    install_program_and_units
  fi
  say_next
}

# The last line, so that a script of which a part is missing does nothing.
main "$@"
