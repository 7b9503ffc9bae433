# The image: one static program and nothing else.
#
#   docker build -t petiole .                                     builds the program here (needs a registry for `rust`)
#   docker build --target prebuilt --build-arg BINARY=petiole -t petiole DIR -f Dockerfile
#                                                                 takes the static program DIR/petiole as it is
# `just image` does the second without a daemon and without a registry.
FROM scratch AS base
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="petiole" \
      org.opencontainers.image.description="Joins leaf devices (cameras, sensors, printers, services on the LAN) to Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# Most of an agent's memory beside its code is buffers of connections. The allocator (mallopt(3)) has one heap instead of one for each
# thread, grows it in small steps, gives back what is free at its end, and maps the buffers for which it would have to grow.
ENV MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=8192 MALLOC_TOP_PAD_=8192 MALLOC_TRIM_THRESHOLD_=65536
# Only the agent needs root, because the kubelet's folders and sockets are root's: the chart's DaemonSet asks for it.
USER 65532:65532
ENTRYPOINT ["/petiole"]

FROM base AS prebuilt
ARG BINARY=petiole
COPY --chmod=0755 $BINARY /petiole

# As rust-toolchain.toml, or cargo fetches that one.
FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS builder
WORKDIR /src
COPY . .
# With an explicit target the flags are not for build scripts and procedural macros, which cannot be static. Packed
# relocations are a megabyte less.
RUN target="$(uname -m)-unknown-linux-gnu" \
 && RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs" \
    cargo build --release --locked --package petiole --no-default-features --target "$target" \
 && mv "target/$target/release/petiole" /petiole

FROM base
COPY --from=builder /petiole /petiole
