//! nginx: a server for each host, and an upstream for each backend that all of its hosts share.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::Pem;
use crate::cores;
use crate::http::Sites;

/// By default it closes a connection after a thousand requests.
const NEVER: &str = "1000000000";

pub(super) fn command(
    program: &Path,
    folder: &Path,
    door: SocketAddr,
    tls: Option<&Pem>,
    sites: Sites<'_>,
) -> anyhow::Result<Command> {
    let file = folder.join("nginx.conf");
    fs::write(&file, configuration(folder, door, tls, sites)?)?;
    let mut command = cores::pinned_proxy(program);
    command.arg("-p").arg(folder).arg("-c").arg(&file);
    Ok(command)
}

fn configuration(folder: &Path, door: SocketAddr, tls: Option<&Pem>, sites: Sites<'_>) -> anyhow::Result<String> {
    // One process does it all, so that its time and memory are one process'.
    let mut text = String::from("daemon off;\nmaster_process off;\nworker_processes 1;\nerror_log stderr error;\n");
    write!(text, "pid {}/pid;\nevents {{ worker_connections 4096; }}\nhttp {{\n  access_log off;\n", folder.display())?;
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(text, "  {kind}_temp_path {}/{kind};", folder.display())?;
    }
    writeln!(text, "  server_names_hash_max_size 8192;\n  server_names_hash_bucket_size 128;")?;
    writeln!(text, "  keepalive_requests {NEVER};\n  proxy_http_version 1.1;\n  proxy_set_header Connection \"\";")?;
    writeln!(text, "  proxy_set_header Host $host;\n  proxy_set_header X-Forwarded-Host $host;")?;
    writeln!(text, "  proxy_set_header X-Forwarded-For $remote_addr;\n  proxy_set_header X-Forwarded-Proto $scheme;")?;
    if let Some(Pem { certificate, key }) = tls {
        writeln!(text, "  http2 on;\n  ssl_protocols TLSv1.2 TLSv1.3;")?;
        writeln!(text, "  ssl_certificate {};\n  ssl_certificate_key {};", certificate.display(), key.display())?;
    }
    for (number, backend) in sites.backends.iter().enumerate() {
        writeln!(text, "  upstream b{number} {{ server {backend}; keepalive 128; keepalive_requests {NEVER}; }}")?;
    }
    let ssl = if tls.is_some() { " ssl" } else { "" };
    for (site, backend) in sites.each() {
        let name = site.name();
        writeln!(
            text,
            "  server {{ listen {door}{ssl}; server_name {name}; location / {{ proxy_pass http://b{backend}; }} }}"
        )?;
    }
    text.push_str("}\n");
    Ok(text)
}
