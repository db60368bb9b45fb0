//! What kube-apiserver is told (`--egress-selector-config-file`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::SERVER_NAME;
use crate::client::{AUTHORITY, CERTIFICATE, KEY};

/// How kube-apiserver reaches us.
#[derive(Debug, Clone)]
pub enum Transport {
    /// The socket of a proxy in its pod.
    Socket(PathBuf),
    /// The door itself; the folder is where kube-apiserver finds the credential.
    Tcp { url: String, folder: PathBuf },
}

/// What goes into the cluster (Services of webhooks and of aggregated APIs, kubelets) and what is called a control plane's (webhooks by URL)
/// goes through us, and etcd stays where it is.
pub fn to_yaml(cluster: &str, transport: &Transport) -> String {
    let mut text = format!(
        "# For the kube-apiserver of {cluster}: --egress-selector-config-file=THIS-FILE\n\
         apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"
    );
    for name in ["cluster", "controlplane"] {
        let _ = write!(text, "- name: {name}\n  connection:\n    proxyProtocol: HTTPConnect\n    transport:\n");
        let line = |text: &mut String, name: &str, value: &str| {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "          {name}: {}", quoted(value));
        };
        match transport {
            Transport::Socket(path) => {
                let _ = writeln!(text, "      uds:\n        udsName: {}", quoted(&path.display().to_string()));
            }
            Transport::Tcp { url, folder } => {
                let file = |name: &str| Path::new(folder).join(name).display().to_string();
                let _ = writeln!(text, "      tcp:\n        url: {}\n        tlsConfig:", quoted(url));
                line(&mut text, "caBundle", &file(AUTHORITY));
                line(&mut text, "clientCert", &file(CERTIFICATE));
                line(&mut text, "clientKey", &file(KEY));
                line(&mut text, "tlsServerName", SERVER_NAME);
            }
        }
    }
    text.push_str("- name: etcd\n  connection:\n    proxyProtocol: Direct\n");
    text
}

/// In YAML a text in double quotes is that of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_as_kube_apiserver_reads_it() {
        let uds = to_yaml("c1", &Transport::Socket("/run/fleetgate/egress.sock".into()));
        assert_eq!(
            uds,
            r#"# For the kube-apiserver of c1: --egress-selector-config-file=THIS-FILE
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: "/run/fleetgate/egress.sock"
- name: controlplane
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: "/run/fleetgate/egress.sock"
- name: etcd
  connection:
    proxyProtocol: Direct
"#
        );
        let tcp =
            to_yaml("c1", &Transport::Tcp { url: "https://hub.example:8443".into(), folder: "/etc/egress".into() });
        let expected = r#"    transport:
      tcp:
        url: "https://hub.example:8443"
        tlsConfig:
          caBundle: "/etc/egress/ca.crt"
          clientCert: "/etc/egress/tls.crt"
          clientKey: "/etc/egress/tls.key"
          tlsServerName: "egress.fleetgate"
"#;
        assert_eq!(tcp.matches(expected).count(), 2, "{tcp}");
    }

    #[test]
    fn odd_paths_stay_texts() {
        assert_eq!(quoted("/a b\"c\\d\u{1}"), r#""/a b\"c\\d\u0001""#);
    }
}
