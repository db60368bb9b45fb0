//! Envoy: a virtual host for each host, and a cluster for each backend.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::cores;
use crate::http::Sites;

pub(super) fn command(program: &Path, folder: &Path, door: SocketAddr, sites: Sites<'_>) -> anyhow::Result<Command> {
    let file = folder.join("envoy.json");
    fs::write(&file, serde_json::to_string_pretty(&configuration(door, sites))?)?;
    let mut command = cores::pinned_proxy(program);
    command.arg("--config-path").arg(&file);
    // A base id of its own: others may run an Envoy too.
    command.args(["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warn"]);
    Ok(command)
}

fn configuration(door: SocketAddr, sites: Sites<'_>) -> Value {
    let hosts = sites.each().map(|(site, backend)| {
        json!({
            "name": site.name(), "domains": [site.name()],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": format!("b{backend}")}}],
        })
    });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "door",
        "use_remote_address": true,
        // Others make none either.
        "generate_request_id": false,
        "route_config": {
            "virtual_hosts": hosts.collect::<Value>(),
            "request_headers_to_add": [{
                "header": {"key": "x-forwarded-host", "value": "%REQ(:authority)%"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }],
        },
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
        }],
    });
    let clusters = sites.backends.iter().enumerate().map(|(number, backend)| cluster(&format!("b{number}"), *backend));
    json!({"static_resources": {
        "listeners": [{
            "name": "door",
            "address": socket_address(door),
            "filter_chains": [{"filters": [
                {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager},
            ]}],
        }],
        "clusters": clusters.collect::<Value>(),
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

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip(), "port_value": address.port()}})
}
