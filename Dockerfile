# A small image: the program, the few libraries it needs, and no shell. Nothing in it is run as root.
#
#   docker build --tag REGISTRY/fleetgate:0.1.0 .
#
# Builds for the architecture of the builder; `docker build --platform` chooses another.

# Debian 12, with the toolchain that rust-toolchain.toml names.
ARG RUST=rust:1.95.0-slim-bookworm
FROM ${RUST} AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package fleetgate
RUN deploy/rootfs target/release/fleetgate /rootfs

FROM scratch
COPY --from=build /rootfs /
# By number, so that Kubernetes can see that it is not root.
USER 65532:65532
# DNS; by cluster id; by server name; metrics and probes.
EXPOSE 5353/udp 5353/tcp 6443/tcp 8443/tcp 9631/tcp
ENTRYPOINT ["/usr/bin/fleetgate"]
