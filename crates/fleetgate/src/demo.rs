//! `fleetgate demo`: a small fleet on loopback to look at.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

use crate::arguments::{
    AdmissionOptions, AgentsOptions, AnswerOptions, DEFAULT_ADMIN, DemoOptions, DoorOptions, EndOptions, MemberOptions,
    PeersOptions, StateOptions, ViewOptions,
};
use crate::job::{Job, JobHome};
use crate::replicas::RelayOptions;
use crate::serve::{Server, Signals};
use crate::stand_in::{self, Authority};
use crate::telemetry;
use crate::wiring::{HubDomainOptions, WiringOptions};

const ZONE: &str = "fleet.example";
const CLUSTERS: [DemoCluster; 3] = [
    DemoCluster { name: "c1", region: "eu-west", place: [53.35, -6.26], nodes: ["192.0.2.11", "2001:db8:1::11"] },
    DemoCluster { name: "c2", region: "us-east", place: [39.04, -77.49], nodes: ["198.51.100.21", "2001:db8:2::21"] },
    DemoCluster { name: "c3", region: "ap-south", place: [19.08, 72.88], nodes: ["203.0.113.31", "2001:db8:3::31"] },
];

/// DNS, the doors by cluster id and by server name, and the admin interface.
const USUAL: [&str; 4] = ["127.0.0.1:5300", "127.0.0.1:6443", "127.0.0.1:8443", DEFAULT_ADMIN];
const ANY: &str = "127.0.0.1:0";
/// Its folder among the temporary ones.
const FOLDER: &str = "fleetgate-demo";
/// Whoever ends a demo does not want to wait for it.
const DRAIN: Duration = Duration::from_secs(1);

struct DemoCluster {
    name: &'static str,
    region: &'static str,
    /// Degrees north and east.
    place: [f64; 2],
    nodes: [&'static str; 2],
}

pub(crate) fn run(options: &DemoOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let folder = make_folder()?;
        let fleet = folder.path().join("fleet");
        write_fleet(folder.path(), &fleet).await?;
        let job = |[dns, apiserver, sni, admin]: [&str; 4]| Job {
            home: JobHome::Folder(fleet.clone()),
            state: StateOptions { data: Some(folder.path().join("data")), data_key: None },
            take_over: false,
            admission: AdmissionOptions::default(),
            peers: PeersOptions::default(),
            relay: RelayOptions::default(),
            wiring: WiringOptions::default(),
            hub_domain: HubDomainOptions::default(),
            resolver: crate::resolver::ResolverOptions::default(),
            answers: AnswerOptions { dns: Some(address(dns)), ..AnswerOptions::default() },
            doors: DoorOptions {
                apiserver: Some(address(apiserver)),
                sni: Some(address(sni)),
                end: EndOptions { drain: DRAIN },
                ..DoorOptions::default()
            },
            agents: AgentsOptions::default(),
            egress: crate::egress::EgressOptions::default(),
            members: MemberOptions::default(),
            views: ViewOptions { admin: Some(address(admin)), metrics: None, log: options.log.clone() },
        };
        // The usual ports, so that commands can be typed from memory; any others where one of them is taken.
        let signals = Signals::listen()?;
        let server = match Server::start(&job(USUAL)).await {
            Ok(server) => server,
            Err(_) => Server::start(&job([ANY; 4])).await?,
        };
        print_commands(&server, folder.path(), &fleet);
        server.until_told_to_stop(signals).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The usual one, so that commands can be typed from memory; another where that is there already, whosever it is.
fn make_folder() -> anyhow::Result<tempfile::TempDir> {
    let usual = tempfile::Builder::new().prefix(FOLDER).rand_bytes(0).tempdir();
    let any = |_| tempfile::Builder::new().prefix(&format!("{FOLDER}-")).tempdir();
    usual.or_else(any).context("making a folder")
}

async fn write_fleet(folder: &Path, fleet: &Path) -> anyhow::Result<()> {
    fs::create_dir(fleet).with_context(|| format!("making {}", fleet.display()))?;
    let authority = Authority::new().context("making the demo's certificates")?;
    authority.write(&folder.join("ca.pem"))?;
    let write = |file: &str, text: String| {
        let path = fleet.join(file);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("zone.yaml", zone_manifest())?;
    for cluster in CLUSTERS {
        let address = stand_in::start(&authority, cluster.name, &format!("api.{}.{ZONE}", cluster.name)).await?;
        write(&format!("{}.yaml", cluster.name), cluster_manifest(&cluster, address))?;
    }
    Ok(())
}

fn zone_manifest() -> String {
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {{name: main}}
spec:
  domain: {ZONE}
  nameservers: [{{name: ns1.{ZONE}, addresses: [127.0.0.1]}}]
  gateway: {{addresses: [127.0.0.1]}}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {{name: acme}}
spec: {{}}
"
    )
}

fn cluster_manifest(cluster: &DemoCluster, address: SocketAddr) -> String {
    let DemoCluster { name, region, place: [latitude, longitude], nodes: [v4, v6] } = cluster;
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: acme
  zone: main
  location: {{region: {region}, latitude: {latitude}, longitude: {longitude}}}
  controlPlane:
    kubeApiserver: {{addresses: [\"{address}\"]}}
  nodes:
  - {{name: {name}-n1, addresses: [{v4}, \"{v6}\"], ready: true}}
"
    )
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("the demo's addresses are addresses")
}

fn print_commands(server: &Server, folder: &Path, fleet: &Path) {
    let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port());
    let (dns, sni) = (port(server.addresses.dns), port(server.addresses.sni));
    let admin = server.addresses.admin.map(|address| address.to_string()).unwrap_or_default();
    let (fleet, folder) = (fleet.display(), folder.display());
    // As it was started, so that the line can be pasted before anything has been installed.
    let program = std::env::args().next().unwrap_or_else(|| "fleetgate".into());
    println!(
        "
This is a demo: three clusters on loopback, with small TLS servers in the place of their API servers.
Everything else is real. Try from another shell:

  dig @127.0.0.1 -p {dns} +short api.c1.{ZONE}
  dig @127.0.0.1 -p {dns} +short shop.c2.{ZONE} AAAA
  curl --cacert {folder}/ca.pem --resolve api.c3.{ZONE}:{sni}:127.0.0.1 https://api.c3.{ZONE}:{sni}/
  {program} get clusters --admin {admin}
  {program} explain api.c1.{ZONE} --admin {admin}

The dashboard is at http://{admin}/
Connections with a PROXY v2 header are taken on {}, by the ids c1, c2 and c3.
The manifests are in {fleet}: change one, and ask again.
Ctrl-C ends the demo and removes them.
",
        server.addresses.apiserver.map(|address| address.to_string()).unwrap_or_default()
    );
}
