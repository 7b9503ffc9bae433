# The one home of every command: people call these, and so does .ci/run.

set shell := ["bash", "-euo", "pipefail", "-c"]

# The recipes
default:
    @just --list --unsorted

# What a change must pass that needs no root
check: static test chart

# What reads and compiles the sources, without running them
static: format lint docs scripts

# Formatting, unchanged
format:
    cargo fmt --all -- --check

# Clippy, as the default build and as the image's
lint:
    #!/usr/bin/env bash
    set -euo pipefail
    packages=(--workspace)
    # Its libFuzzer is C++.
    command -v "${CXX:-c++}" >/dev/null || packages+=(--exclude petiole-fuzz)
    cargo clippy --locked --all-targets --features petiole/fuzzing "${packages[@]}" -- -D warnings
    cargo clippy --locked --package petiole --lib --bins --no-default-features -- -D warnings

# Clippy of the program for people, as other systems compile it (rustup fetches their standard libraries)
platforms:
    #!/usr/bin/env bash
    set -euo pipefail
    for target in x86_64-pc-windows-gnu aarch64-apple-darwin; do
      if ! rustup target add "$target" >/dev/null 2>&1; then
        echo "SKIPPED $target: rustup cannot add it"
        continue
      fi
      # Nothing is linked, so the C of a dependency need not be compiled.
      export "CC_${target//-/_}=true" "AR_${target//-/_}=true"
      cargo clippy --locked --package petiole-people --lib --bins --target "$target" -- -D warnings
    done

# All tests that need neither root nor a network
test:
    cargo test

# Fuzzes for SECONDS (60), all targets or those named: `just fuzz 600 mdns`; `just fuzz FILE` runs a failed input again
fuzz *arguments:
    fuzz/run {{ arguments }}

# The krew manifest of a release, on stdout: version, address of its files, and the folder with kubectl-petiole-linux-{amd64,arm64}.tar.gz
krew version url folder:
    #!/usr/bin/env bash
    set -euo pipefail
    digest() { sha256sum "{{ folder }}/kubectl-petiole-linux-$1.tar.gz" | cut -d ' ' -f 1; }
    amd64=$(digest amd64) arm64=$(digest arm64)
    sed -e '/^#/d' -e 's|@VERSION@|{{ version }}|; s|@URL@|{{ url }}|' -e "s|@SHA256_AMD64@|$amd64|; s|@SHA256_ARM64@|$arm64|" deploy/krew/petiole.yaml

# What a kubelet still holds after a thousand registrations and ten thousand Allocates (1 to 3 minutes)
leaks:
    cargo test --locked --test leaks -- --ignored

# All properties with cases drawn at random, CASES of each; with the SEED that a failed run printed, the same cases again
properties cases="2000" seed="":
    #!/usr/bin/env bash
    set -euo pipefail
    seed={{ seed }}
    export PROPTEST_CASES={{ cases }} PROPTEST_RNG_SEED=${seed:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
    echo "just properties $PROPTEST_CASES $PROPTEST_RNG_SEED"
    cargo test --locked --lib -- --skip simulation

# A simulated cluster through N histories of faults: `just simulate --seeds 10000`, `just simulate --first 17 --seeds 1`
simulate *options:
    #!/usr/bin/env bash
    set -euo pipefail
    first=0 seeds=1000 goes_on=0
    set -- {{ options }}
    while [ $# -gt 0 ]; do
      case $1 in
        --first) first=$2; shift 2 ;;
        --seeds) seeds=$2; shift 2 ;;
        --all) goes_on=1; shift ;;
        *) echo "usage: just simulate [--first SEED] [--seeds COUNT] [--all]; --all goes on after a failure, and counts" >&2; exit 2 ;;
      esac
    done
    export SIMULATION_FIRST=$first SIMULATION_SEEDS=$seeds SIMULATION_GOES_ON=$goes_on
    cargo test --locked --lib simulation -- --ignored --nocapture

# The documentation of all crates, for those who work on it, without a broken link
docs:
    RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --no-deps --document-private-items

# The pages as a book that can be searched, in target/book/html (needs `cargo install mdbook`)
book:
    #!/usr/bin/env bash
    set -euo pipefail
    command -v mdbook >/dev/null || { echo "mdbook is not installed: cargo install --locked mdbook" >&2; exit 1; }
    rm -rf target/book
    mkdir -p target/book/src
    # The layout of the repository, so that a link works here and there.
    cp -r --parents README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE docs examples charts/petiole/{README.md,values.yaml} crates/*/{README.md,examples} src/lib.rs target/book/src
    mv target/book/src/docs/book.toml target/book
    sed -e 's,](,](docs/,' -e 's,](docs/\.\./,](,' docs/SUMMARY.md >target/book/src/SUMMARY.md
    rm target/book/src/docs/SUMMARY.md
    mdbook build target/book
    echo "open target/book/html/index.html"

# Shell scripts
scripts:
    #!/usr/bin/env bash
    set -euo pipefail
    command -v shellcheck >/dev/null || { echo "SKIPPED scripts: shellcheck is not installed"; exit 0; }
    shellcheck -x .ci/run .ci/tools .ci/image .ci/release .ci/oci .ci/deb .ci/standalone deploy/install.sh packaging/{postinst,prerm,postrm} fuzz/run fuzz/rustc-with-coverage tests/e2e/run tests/e2e/soak tests/e2e/performance tests/e2e/scale tests/e2e/publishers/{build,resolved} tests/e2e/opcua_servers/{build,judge} tests/e2e/{mqtt_brokers,probe_servers}/build tests/e2e/*.sh tests/e2e/cluster/{cluster,control,lan,node.sh}

# The chart, where helm is installed (the end-to-end tests keep one)
chart:
    #!/usr/bin/env bash
    set -euo pipefail
    PATH=$PATH:${CLUSTER_BIN:-$HOME/.cache/cluster-bin}
    if command -v helm >/dev/null; then
      helm lint --strict --quiet charts/petiole
    else
      echo "SKIPPED chart: helm is not installed"
    fi

# The page of `petiole web` in a headless Chromium (Debian: chromium); `just web --pictures` makes those of docs/images
web *options:
    tests/web/run {{ options }}

# Writes the files that tests compare with: the definitions, what the page's test shows, the rendered chart, docs/configuration.md, docs/limits.md
regenerate:
    PETIOLE_UPDATE_GOLDEN=1 cargo test --test architecture limits
    PETIOLE_UPDATE_GOLDEN=1 cargo test --package petiole-model --lib crds
    PETIOLE_UPDATE_GOLDEN=1 cargo test --package petiole-people --lib the_page_is_tested
    PETIOLE_UPDATE_GOLDEN=1 cargo test --test it chart_renders
    PETIOLE_UPDATE_GOLDEN=1 cargo test --test it pages

# Functions with equal code are one, where rustc links with its own lld: a hundredth of the image. Nothing here compares the
# addresses of functions, which Rust does not promise to differ.
fold := if arch() == "x86_64" { "-C link-arg=-Wl,--icf=all -C link-arg=-Wl,-O2" } else { "" }

# The container image, static, as target/image/petiole.tar (localhost/petiole:dev): needs buildah
image:
    RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs {{ fold }} --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=" cargo build --release --locked --package petiole --no-default-features --target {{ arch() }}-unknown-linux-gnu
    .ci/image target/{{ arch() }}-unknown-linux-gnu/release/petiole

# A release in target/release-VERSION, built twice and compared: static programs for amd64 and arm64, image and chart as OCI archives,
# Debian packages, install.sh with the units, SBOMs, provenance, checksums (`--once`, `--architectures amd64` for a try)
release version *options:
    .ci/release {{ version }} {{ options }}

# Licenses, duplicate versions and sources of dependencies (needs `.ci/tools cargo-deny`)
deny:
    cargo deny --locked check bans licenses sources

# Known vulnerabilities and withdrawn versions of dependencies, by RustSec's database, which it fetches (needs `.ci/tools cargo-deny`)
advisories:
    cargo deny --locked check advisories

# End to end, against real avahi and a real Kubernetes (Linux, root); patterns choose tests
e2e *patterns: image
    cargo build --locked
    tests/e2e/run {{ patterns }}

# The image of an older version, for the suite `skew` (SKEW_IMAGE, SKEW_COMMIT): prints its path; the first time takes as long as `just image`
old-image commit="cd0d31e9":
    #!/usr/bin/env bash
    set -euo pipefail
    folder=$PWD/target/old/{{ commit }}
    image=$folder/target/image/petiole.tar
    if [ ! -e "$image" ]; then
      mkdir -p "$folder"
      git archive {{ commit }} | tar -x -C "$folder"
      (cd "$folder" && {{ just_executable() }} image >&2)
    fi
    echo "$image"

# What takes too long for CI: all mDNS libraries on one LAN for SECONDS, a release build against a hostile host, all bounds together, a soak
e2e-long seconds="1000": image
    cargo build --locked
    cargo build --locked --release
    MDNS_QUIET={{ seconds }} tests/e2e/run "mdns: all libraries"
    HOSTILE_SECONDS=60 PETIOLE_OPTIMISED="$PWD/target/release/petiole" tests/e2e/run hostile:
    TOGETHER_SECONDS=120 tests/e2e/run together:
    RACE_ROUNDS=20 tests/e2e/run claims_speed:
    OPCUA_STACKS=yes tests/e2e/run opcua:
    MQTT_STACKS=yes tests/e2e/run mqtt:
    PROBE_STACKS=yes tests/e2e/run probe:
    TIDY_WAITS=yes tests/e2e/run "lifecycle: waiting for tidy"
    SKEW_IMAGE=$({{ just_executable() }} old-image) tests/e2e/run skew:
    ONVIF_STACKS=yes tests/e2e/run onvif:
    tests/e2e/soak {{ seconds }}

# The suites that use the API or the kubelet, on each version of Kubernetes or on those named (building one takes 12 minutes, once)
matrix *versions: image
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --locked
    versions=({{ versions }})
    [ ${#versions[@]} != 0 ] || mapfile -t versions < <(tests/e2e/cluster/cluster versions)
    for version in "${versions[@]}"; do
      K8S=$version tests/e2e/cluster/cluster build
      echo "Kubernetes $version"
      K8S=$version tests/e2e/run cluster: cdi: lifecycle: lists: promises: real_kubelet: restarts: rights: stories: why:
    done

# A cluster under chaos, for SECONDS: devices that flap, everything killed and cut off at random, memory and slots watched
soak seconds="3600": image
    cargo build --locked
    tests/e2e/soak {{ seconds }}

# An agent within the chart's memory limit, with everything at its bound (root on Linux)
limits:
    cargo bench --bench node -- --memory-limit 192

# How the cost of a cluster grows from 50 to 500 agents, and docs/scale.md anew (root on Linux, 20 minutes)
scale *flags: image
    #!/usr/bin/env bash
    set -euo pipefail
    bench=$(cargo bench --locked --bench scale --no-run --message-format=json | jq -r 'select(.target.name == "scale" and .executable) | .executable')
    tests/e2e/scale "$bench" --report "$PWD/docs/scale.md" {{ flags }}

# Measures against the budget and writes docs/performance.md and, as root on Linux with an image, docs/performance-cluster.md; fails over budget
perf: image
    cargo bench --bench node -- --report docs/performance.md --check
    cargo build --locked
    tests/e2e/performance docs/performance-cluster.md
