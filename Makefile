# Two commands are all there is to know: `make run` and `make test`.

# As in `testbed/install`.
cache = $(or $(FLEETGATE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fleetgate)

.PHONY: help run test fuzz check bench bench-plan bench-fleet bench-ingress bench-neighbours bench-tenants bench-dns bench-http bench-hub bench-tunnel simulate-overflow plots reference

help: ## Show this
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

run: ## Build Fleetgate and start a small fleet on loopback to look at
	cargo build --release --package fleetgate
	target/release/fleetgate demo

test: ## Everything: installs what it needs, real components included
	testbed/install
	cargo test --workspace

fuzz: ## Any bytes to everything that reads from the network, for a minute and a half
	fuzz/run

check: ## Format, lints, licences and sources
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	testbed/cargo-deny --all-features check licenses bans sources
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir $(cache)/fuzz/lints -- --deny warnings
	testbed/cargo-deny --manifest-path fuzz/Cargo.toml --config deny.toml check bans sources

bench: bench-plan bench-fleet bench-ingress bench-neighbours bench-tenants bench-dns bench-http bench-hub bench-tunnel ## All benchmarks of this machine

bench-plan: ## From a changed fact to the published snapshot
	cargo run --release --package fleetgate-bench --bin plan

bench-fleet: ## Start-up, memory and the way of a saved file, with the real binary
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin fleet

bench-ingress: ## The door by cluster id side by side with HAProxy and Envoy; needs two cores
	testbed/install
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin ingress

bench-neighbours: ## What a tenant at ten times its limit costs its neighbour; needs two cores
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin neighbours

bench-tenants: ## What a tenant that changes its records at full speed costs its neighbour
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin tenants

bench-dns: ## DNS side by side with Knot, NSD, BIND and PowerDNS; needs two cores
	-testbed/dns-peers knotd --version
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin dns

bench-http: ## HTTP side by side with nginx, HAProxy, Envoy and Traefik; needs two cores
	testbed/install
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin http

bench-hub: ## A hub with a thousand tenant clusters, on real API servers
	testbed/install
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin hub

bench-tunnel: ## Streams into a cluster side by side with OpenSSH, and what 100,000 of them leave; needs two cores
	testbed/install
	cargo build --release --package fleetgate
	cargo run --release --package fleetgate-bench --bin tunnel
	cargo test --release --package fleetgate-tunnel --test leaks -- --include-ignored --nocapture --test-threads 1

simulate-overflow: ## What overflow does beside other policies, as figures and as a drawing
	cargo run --package fleetgate-model --example overflow -- docs/overflow.svg

plots: ## Draw the figures of bench/README.md for docs/benchmarks.md
	cargo run --package fleetgate-bench --bin plots

reference: ## Write docs/reference from the kinds and the command line
	cargo run --package fleetgate -- reference --out docs/reference
