//! Traefik: a router for each host, and a service for each backend, out of a file that it does not watch.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::cores;
use crate::http::Sites;

/// JSON is YAML.
pub(super) fn command(program: &Path, folder: &Path, door: SocketAddr, sites: Sites<'_>) -> anyhow::Result<Command> {
    let (file, routes) = (folder.join("traefik.yaml"), folder.join("routes.yaml"));
    let settings = json!({
        "global": {"checkNewVersion": false, "sendAnonymousUsage": false},
        "log": {"level": "ERROR"},
        "entryPoints": {"door": {"address": door.to_string()}},
        "providers": {"file": {"filename": routes, "watch": false}},
    });
    fs::write(&file, serde_json::to_string_pretty(&settings)?)?;
    fs::write(&routes, serde_json::to_string_pretty(&configuration(sites))?)?;
    let mut command = cores::pinned_proxy(program);
    command.arg(format!("--configFile={}", file.display())).env("GOMAXPROCS", "1");
    Ok(command)
}

fn configuration(sites: Sites<'_>) -> Value {
    let routers = sites.each().map(|(site, backend)| {
        let rule = format!("Host(`{}`)", site.name());
        (format!("h{}", site.0), json!({"rule": rule, "service": format!("b{backend}"), "entryPoints": ["door"]}))
    });
    let services = sites.backends.iter().enumerate().map(|(number, backend)| {
        (format!("b{number}"), json!({"loadBalancer": {"servers": [{"url": format!("http://{backend}")}]}}))
    });
    json!({"http": {"routers": Value::Object(routers.collect()), "services": Value::Object(services.collect())}})
}
