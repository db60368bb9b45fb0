//! Envoy. The listener filter for PROXY headers keeps TLV 0x20, and a network filter makes it the name of the cluster
//! that the TCP proxy connects to: one lookup. That was the quickest of the ways that Envoy has, ahead of the same
//! through dynamic metadata, and of a filter chain per cluster with a match on the TLV.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Clusters, Proxy, free_address};
use crate::cores;

/// The 24 hours of the other proxies.
const IDLE: &str = "86400s";

/// What `testbed/envoy` says it is, once it is there.
pub fn version(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("--version").output().context("running it")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    // PROGRAM version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.rsplit_once("version: ").and_then(|(_, version)| version.split('/').nth(1));
    Ok(version.context("it does not say its version")?.into())
}

/// Keeps its configuration in `folder`.
pub fn start(program: &Path, folder: &Path, clusters: Clusters<'_>) -> anyhow::Result<Proxy> {
    let door = free_address()?;
    let file = folder.join("envoy.json");
    fs::write(&file, serde_json::to_string_pretty(&configuration(door, clusters))?)?;
    let mut command = cores::pinned_proxy(program);
    command.arg("--config-path").arg(&file);
    // A base id of its own: others may run an Envoy too.
    command.args(["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warn"]);
    Proxy::start("Envoy", door, &command)
}

fn configuration(door: SocketAddr, clusters: Clusters<'_>) -> Value {
    json!({"static_resources": {
        "listeners": [{
            "name": "door",
            "address": socket_address(door),
            "listener_filters": [extension("listener.proxy_protocol", "ProxyProtocol", json!({
                "rules": [{"tlv_type": 0x20, "on_tlv_present": {"key": "cluster"}}],
                "tlv_location": "FILTER_STATE",
            }))],
            "filter_chains": [{"filters": [
                extension("network.set_filter_state", "Config", json!({"on_new_connection": [{
                    "object_key": "envoy.tcp_proxy.cluster",
                    "format_string": {"text_format_source": {
                        "inline_string": "%FILTER_STATE(envoy.network.proxy_protocol.tlv:FIELD:cluster)%",
                    }},
                }]})),
                // There is no such cluster: who sends no TLV, or one that nobody has, is refused.
                extension("network.tcp_proxy", "TcpProxy", json!({
                    "stat_prefix": "door", "cluster": "nobody", "idle_timeout": IDLE,
                })),
            ]}],
        }],
        "clusters": clusters.members().map(|(member, backend)| cluster(&member.name(), backend)).collect::<Value>(),
    }})
}

fn cluster(name: &str, backend: SocketAddr) -> Value {
    json!({
        "name": name, "type": "STATIC", "connect_timeout": "10s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket_address(backend)}}]}],
        },
    })
}

/// A filter: `kind` is what its name ends with, and `message` its type of configuration.
fn extension(kind: &str, message: &str, mut configuration: Value) -> Value {
    configuration["@type"] = format!("type.googleapis.com/envoy.extensions.filters.{kind}.v3.{message}").into();
    json!({"name": format!("envoy.filters.{kind}"), "typed_config": configuration})
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip(), "port_value": address.port()}})
}
