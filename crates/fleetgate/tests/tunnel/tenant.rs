//! What is in a tenant's cluster: its DNS, its webhook and a Service, all at the same addresses and names in each, and the
//! agent that dials out to the hub.

use std::fs;
use std::path::{Path, PathBuf};

use testbed::{Certificate, CoreDns, HAProxy, Outpost, Process, RunningCoreDns, RunningHAProxy};

use crate::fixture::{AGENTS, EGRESS, Place, World, eventually, fleetgate, run};
use crate::fixture::{Carried, Refused};

pub(crate) const DNS: &str = "10.10.10.10";
pub(crate) const WEBHOOK: &str = "10.10.0.50";
pub(crate) const EXTENSION: &str = "10.10.0.60";
pub(crate) const SHOP: &str = "10.10.0.70";
/// A pod of the shop's, as kubelets and headless Services have them.
pub(crate) const SHOP_POD: &str = "10.20.0.7";

/// `brief` is of little use beyond a second, so that a test need not wait for long until an answer is old.
const RECORDS: &str = "\
webhook.default.svc A 10.10.0.50
wardle.default.svc A 10.10.0.60
shop.default.svc A 10.10.0.70
brief.default.svc 1 A 10.10.0.70
";

/// The programs of tenants.
pub(crate) struct Programs {
    coredns: CoreDns,
    haproxy: HAProxy,
}

pub(crate) struct Tenant {
    pub(crate) place: Place,
    /// Its network, that nobody else is in.
    pub(crate) inside: Outpost,
    /// The host of its control plane, on the hub.
    pub(crate) control: Outpost,
    pub(crate) agent: Process,
    pub(crate) dns: RunningCoreDns,
    /// Of its webhook.
    pub(crate) certificate: Certificate,
    /// What its control plane shows at the egress door.
    pub(crate) credential: PathBuf,
    _applications: RunningHAProxy<0>,
    _proxy: Process,
    socket: PathBuf,
}

/// Those of this machine, or none, and then the test should return.
pub(crate) fn programs() -> Option<Programs> {
    testbed::program("nft")?;
    testbed::program("dig")?;
    Some(Programs { coredns: testbed::coredns()?, haproxy: testbed::haproxy()? })
}

impl Tenant {
    /// Returns once streams go into its cluster.
    pub(crate) fn start(world: &mut World, programs: &Programs, place: Place) -> Self {
        let inside = [DNS, WEBHOOK, EXTENSION, SHOP, SHOP_POD].map(|address| format!("{address}/32"));
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        let [inside, control] = world.join(place, &inside, &format!("nameserver {DNS}\n"));
        let dns = format!("{DNS}:53").parse().unwrap();
        let dns = programs.coredns.start_on_host(&inside.host, dns, "cluster.local", RECORDS).unwrap();
        let certificate =
            Certificate::for_server(&["webhook.default.svc", "webhook.default.svc.cluster.local"]).unwrap();
        let pem = world.path(&format!("webhook-{}.pem", place.name));
        fs::write(&pem, certificate.certificate.clone() + &certificate.key).unwrap();
        let applications = applications(place.name, &pem);
        let applications = programs.haproxy.start_on_host(&inside.host, &applications).unwrap();

        let agent = start_agent(world, place, &inside, &place.hub(), &world.path(&format!("state-{}", place.name)));
        let credential = control_plane_credential(world, place, "first");
        let (socket, proxy) = start_proxy(world, place, &control, &credential);
        let tenant = Self {
            place,
            inside,
            control,
            agent,
            dns,
            certificate,
            credential,
            _applications: applications,
            _proxy: proxy,
            socket,
        };
        tenant.wait_until_linked();
        tenant
    }

    fn wait_until_linked(&self) {
        eventually("streams go into the cluster", || {
            self.connect(&format!("{SHOP}:80")).map(drop).map_err(|refused| (refused, self.agent.log_tail()))
        });
    }

    /// A stream of its control plane's.
    pub(crate) fn connect(&self, target: &str) -> Result<Carried, Refused> {
        Carried::open(&self.socket, target)
    }

    /// Where the proxy of its control plane listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What its shop says of itself, and nobody else's.
    pub(crate) fn greeting(&self) -> String {
        format!("the shop of {}", self.place.name)
    }
}

/// With the token of `credential issue`, unless `state` has a certificate already.
pub(crate) fn start_agent(world: &World, place: Place, on: &Outpost, hub: &str, state: &Path) -> Process {
    let bootstrap = world.path(&format!("bootstrap-{}.json", place.name));
    if !bootstrap.exists() {
        fs::write(&bootstrap, world.issued(&["credential", "issue", place.name])).unwrap();
    }
    let mut command = fleetgate();
    command.args(["agent", "tunnel", "--hub", &format!("{hub}:{AGENTS}")]);
    command.arg("--bootstrap").arg(bootstrap).arg("--state").arg(state).args(["--log-format", "json"]);
    run(&on.host, &command, "started")
}

/// A folder with what a control plane shows.
pub(crate) fn control_plane_credential(world: &World, place: Place, name: &str) -> PathBuf {
    let folder = world.path(&format!("control-plane-{}-{name}", place.name));
    world.issued(&["egress", "credential", place.name, "--out", folder.to_str().unwrap()]);
    folder
}

/// The socket, and what listens there.
pub(crate) fn start_proxy(world: &World, place: Place, on: &Outpost, credential: &Path) -> (PathBuf, Process) {
    let name = credential.file_name().unwrap().to_str().unwrap();
    let socket = world.path(&format!("{name}.sock"));
    let mut command = fleetgate();
    command.args(["egress", "proxy", "--gateway", &format!("{}:{EGRESS}", place.gateway())]);
    command.arg("--socket").arg(&socket).arg("--credential").arg(credential).args(["--log-format", "json"]);
    let proxy = run(&on.host, &command, "ready");
    (socket, proxy)
}

/// What runs in the cluster: a webhook that refuses an object `forbidden-PATH` when it is asked at PATH and says whose it is,
/// and a shop that only says that, as a Service and as a pod.
fn applications(name: &str, pem: &Path) -> String {
    let answer = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{{"uid":"%[var(txn.uid)]","allowed":%[var(txn.allowed)],"status":{{"message":"the webhook of {name} says no"}}}}}}"#
    );
    format!(
        "defaults
 mode http
 timeout client 10m
 timeout http-keep-alive 10m
listen webhook
 bind {WEBHOOK}:443 ssl crt {pem}
 option http-buffer-request
 http-request set-var(txn.uid) req.body,json_query('$.request.uid')
 http-request set-var(txn.name) req.body,json_query('$.request.name')
 http-request set-var-fmt(txn.forbidden) \"forbidden-%[path,field(2,/)]\"
 http-request set-var(txn.allowed) str(false) if {{ var(txn.name),strcmp(txn.forbidden) eq 0 }}
 http-request set-var(txn.allowed,ifnotset) str(true)
 http-request return status 200 content-type application/json lf-string '{answer}'
listen shop
 bind {SHOP}:80
 bind {SHOP_POD}:8080
 http-request return status 200 content-type text/plain string \"the shop of {name}\"
",
        pem = pem.display()
    )
}
