# The one home of every command: people call these, and so does .ci/run.

set shell := ["bash", "-euo", "pipefail", "-c"]

# The recipes
default:
    @just --list --unsorted

# Everything a change must pass, root or not
check: format lint test docs scripts

# Formatting, unchanged
format:
    cargo fmt --all -- --check

# Clippy, as the default build and as the image's
lint:
    cargo clippy --locked --all-targets -- -D warnings
    cargo clippy --locked --all-targets --no-default-features -- -D warnings

# The README's test command
test:
    cargo test

# The documentation of the whole crate, for those who work on it, without a broken link
docs:
    RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --no-deps --document-private-items

# Shell scripts
scripts:
    shellcheck -x .ci/run tests/e2e/run tests/e2e/*.sh tests/e2e/cluster/{cluster,control,lan,node}

# Licenses, duplicate versions and sources of dependencies (needs `cargo install cargo-deny`)
deny:
    cargo deny --locked check bans licenses sources

# End to end, against real avahi and a real Kubernetes (Linux, root); patterns choose tests
e2e *patterns:
    cargo build --release --locked
    tests/e2e/run {{ patterns }}

# Measures against the budget and writes docs/performance.md; fails over budget
perf:
    cargo bench --bench node -- --report docs/performance.md --check
