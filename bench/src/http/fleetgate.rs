//! Fleetgate itself on a folder of manifests: a cluster for each backend, and for each cluster an Ingress with the hosts that it serves.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::peers::Pem;
use super::{DOMAIN, Sites};
use crate::cores;
use crate::proxies::{Proxy, free_address};

/// On plain HTTP, or on TLS. Keeps its manifests and its state below `folder`.
pub fn start(program: &Path, folder: &Path, sites: Sites<'_>, tls: Option<&Pem>) -> anyhow::Result<Proxy> {
    let folder = folder.join(if tls.is_some() { "fleetgate-tls" } else { "fleetgate" });
    let fleet = folder.join("fleet");
    fs::create_dir_all(&fleet)?;
    fs::write(fleet.join("fleet.yaml"), manifests(sites, tls)?)?;
    let door = free_address()?;
    let mut command = cores::pinned_proxy(program);
    command.arg("serve").arg("--fleet").arg(&fleet).arg("--data").arg(folder.join("data")).arg("--no-checks");
    // The others do not log requests either.
    command.args(["--log", "info,access=off"]);
    command.args([if tls.is_some() { "--https" } else { "--http" }, &door.to_string()]);
    Proxy::start("fleetgate", door, &command)
}

fn manifests(sites: Sites<'_>, tls: Option<&Pem>) -> anyhow::Result<String> {
    let mut text = format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {{name: main}}
spec:
  domain: {DOMAIN}
  nameservers: [{{name: ns1.{DOMAIN}, addresses: [127.0.0.1]}}]
  gateway: {{addresses: [127.0.0.1]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {{name: acme}}
spec: {{domains: [{DOMAIN}]}}
"
    );
    if let Some(Pem { certificate, key }) = tls {
        let indented = |path| anyhow::Ok(fs::read_to_string(path)?.trim().replace('\n', "\n    "));
        let (certificate, key) = (indented(certificate)?, indented(key)?);
        write!(
            text,
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: tls, namespace: acme}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    {certificate}\n  tls.key: |\n    {key}\n"
        )?;
    }
    for (number, backend) in sites.backends.iter().enumerate() {
        write!(
            text,
            "\
---
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: c{number}, labels: {{number: \"{number}\"}}}}
spec:
  tenant: acme
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: [\"{backend}\"]}}}}
  ingress: {{http: [\"{backend}\"]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {{name: p{number}}}
spec:
  placement: {{clusterSelector: {{matchLabels: {{number: \"{number}\"}}}}}}
  upstreamTLS: {{plainText: true}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: p{number}}}
spec:
  controller: fleetgate.dev/ingress
  parameters: {{apiGroup: fleetgate.dev, kind: FederationPolicy, name: p{number}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: i{number}, namespace: acme}}
spec:
  ingressClassName: p{number}
{}  rules:
",
            if tls.is_some() { "  tls: [{secretName: tls}]\n" } else { "" }
        )?;
        for (site, _) in sites.each().filter(|(_, backend)| *backend == number) {
            writeln!(
                text,
                "  - {{host: {}, http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: cart, port: {{number: 80}}}}}}}}]}}}}",
                site.name()
            )?;
        }
    }
    Ok(text)
}
