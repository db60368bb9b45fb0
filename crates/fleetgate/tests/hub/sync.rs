//! From a tenant's cluster to a hub and back, both of them real: `DNSEndpoint`s become records, and verdicts come back, whoever
//! is killed at whichever step.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{ApiServer, Kubernetes, Process, Registry};

use crate::agents::client::Bootstrap;
use crate::agents::{admin_credential, claim, controller, issue, objects};
use crate::fixture::{
    PATIENCE, Server, ZONE, eventually, field, fleetgate, given_cluster, hub, prepare_tenant, wait_for_answer,
};

const WEB: &str = "web.c1.fleet.example";
const MORE: &str = "more.c1.fleet.example";
/// What the wildcard of c1 leads to, where nothing else is.
const NODE: &str = "198.51.100.1";
/// By somebody else than the agent, and none of its business.
const THEIRS: [&str; 3] = ["by-hand.c1.fleet.example", "other.c1.fleet.example", "elsewhere.c1.fleet.example"];
const KEYS: [&str; 4] = ["", "other/thing", "sync/elsewhere/thing", "sync/shop/stays"];
const BY_HAND: &str = "\
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: by-hand, namespace: acme}
spec: {endpoints: [{dnsName: by-hand.c1.fleet.example, recordType: A, targets: [198.51.100.1]}]}
";

/// Two clusters of a tenant that may point at documentation addresses.
fn fleet() -> String {
    let zone = ZONE.replace("  publish: [authoritative, dnsEndpoint]\n", "");
    // More names come and go here than a tenant's should in a few minutes.
    let zone = zone.replace("withdrawal: {grace: 1s}", "withdrawal: {grace: 1s, maxShare: 1}");
    let tenant = "spec: {namespace: acme}";
    assert!(zone.contains(tenant));
    let zone = zone.replace(tenant, "spec: {namespace: acme, targets: {allow: [203.0.113.0/24]}}");
    [zone, given_cluster("c1", 1), given_cluster("c2", 2)].join("---\n")
}

/// What is between the two API servers.
struct Between {
    hub: ApiServer,
    tenant: ApiServer,
    folder: TempDir,
    admin: PathBuf,
    /// With where the door of each is.
    controllers: Vec<(SocketAddr, Server)>,
    dns: Server,
}

impl Between {
    fn start(kubernetes: &Kubernetes) -> Self {
        let (hub, tenant) = (hub(kubernetes), ApiServer::start(kubernetes).unwrap());
        prepare_tenant(&tenant);
        hub.kubectl_apply(&fleet()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let admin = admin_credential(folder.path());
        let controllers = (0..2).map(|_| controller(&hub, &admin, "127.0.0.1:0"));
        let controllers = controllers.map(|server| (server.address("agents"), server)).collect();
        let dns = Server::start_informed(hub.kubeconfig_path(), &["dns", "--dns", "127.0.0.1:0"]);
        Self { hub, tenant, folder, admin, controllers, dns }
    }

    /// Starts an agent for c1, which finds either controller.
    fn agent(&self, role: &str, more: &[&str]) -> Agent {
        let bootstrap = self.folder.path().join("bootstrap.json");
        if !bootstrap.exists() {
            let Bootstrap { token, server_name, ca, .. } = issue(&self.controllers[0].1, &self.admin, "c1");
            let printed = json!({ "token": token, "serverName": server_name, "ca": ca });
            fs::write(&bootstrap, printed.to_string()).unwrap();
        }
        let state = self.folder.path().join("state");
        let mut command = vec!["agent".to_owned(), role.to_owned(), "--log-format=json".to_owned()];
        command.extend(self.controllers.iter().map(|(address, _)| format!("--hub={address}")));
        command.push(format!("--bootstrap={}", bootstrap.display()));
        command.push(format!("--state={}", state.display()));
        command.extend(more.iter().map(|&word| word.to_owned()));
        let (process, started) = Agent::run(&command);
        Agent { command, process, started }
    }

    /// With the rights that `deploy/agent` gives, and no others.
    fn kubeconfig(&self, namespace: &str, account: &str) -> PathBuf {
        let path = self.folder.path().join(account);
        fs::write(&path, self.tenant.kubeconfig_for_service_account(namespace, account).unwrap()).unwrap();
        path
    }

    /// The one that has led last: whoever loses the Lease without being killed has led before.
    fn kill_leader(&mut self) -> usize {
        let led_at = |server: &Server| {
            let log = server.process.log();
            let line = log.lines().rfind(|line| line.contains("leading: writes to the hub"))?;
            serde_json::from_str::<Value>(line).ok()?["timestamp"].as_str().map(str::to_owned)
        };
        let leader = eventually("somebody leads", || {
            let led =
                self.controllers.iter().enumerate().filter_map(|(number, (_, server))| Some((led_at(server)?, number)));
            led.max().map(|(_, number)| number)
        });
        self.controllers[leader].1.process.end();
        leader
    }

    fn start_controller(&mut self, number: usize) {
        let address = self.controllers[number].0;
        self.controllers[number].1 = controller(&self.hub, &self.admin, &address.to_string());
    }

    /// Waits until the hub has exactly these keys, each once, for c1 and owned by it.
    fn wait_for_keys(&self, expected: &[&str]) {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let items = eventually(&format!("the hub has {expected:?}"), || {
            let items = objects(&self.hub);
            let mut keys: Vec<&str> = items.iter().map(key).collect();
            keys.sort_unstable();
            (keys == expected).then_some(items)
        });
        let uid = field(&self.hub, &["clusters.fleetgate.dev", "c1"], ".metadata.uid");
        for item in items.iter().filter(|item| !key(item).is_empty()) {
            let metadata = &item["metadata"];
            assert_eq!(metadata["labels"]["fleetgate.dev/cluster"], "c1");
            let name = metadata["name"].as_str().unwrap();
            assert!(name.starts_with("c1.") && name.len() == 3 + 16, "{name}");
            let owners = metadata["ownerReferences"].as_array().unwrap();
            assert_eq!(owners.len(), 1, "{metadata}");
            assert_eq!((&owners[0]["kind"], &owners[0]["uid"]), (&"Cluster".into(), &uid.as_str().into()));
        }
    }

    /// Waits until the Verdict of an object is about what the object is now, with as many parts published and refused.
    fn wait_for_verdict(&self, name: &str, published: &str, refused: &str) {
        eventually(&format!("{name}: {published} published, {refused} refused"), || {
            let of = |path: &str| field(&self.tenant, &["-n", "shop", "verdicts.fleetgate.dev", name], path);
            let generation = field(&self.tenant, &["-n", "shop", "dnsendpoint", name], ".metadata.generation");
            let counts = of(".spec.published") == published && of(".spec.refused") == refused;
            (counts && of(".spec.object.generation") == generation).then_some(())
        });
    }
}

/// The agent's word for an object; none where no agent made it.
fn key(object: &Value) -> &str {
    object["metadata"]["annotations"]["fleetgate.dev/agent-key"].as_str().unwrap_or_default()
}

/// Its command line, so that it can be started again.
struct Agent {
    command: Vec<String>,
    process: Process,
    started: Value,
}

impl Agent {
    fn run(command: &[String]) -> (Process, Value) {
        let mut process = Process::start(fleetgate().args(command)).unwrap();
        let line = process.wait_for_line("\"message\":\"started\"", PATIENCE).unwrap();
        (process, serde_json::from_str(&line).unwrap())
    }

    fn start_again(&mut self) {
        (self.process, self.started) = Self::run(&self.command);
    }
}

/// An object in `shop`, with an A record for each name.
fn dns_endpoint(name: &str, records: &[&str], target: &str) -> String {
    let record =
        |name: &&str| format!("  - {{dnsName: {name}, recordType: A, recordTTL: 60, targets: ['{target}']}}\n");
    format!(
        "apiVersion: externaldns.k8s.io/v1alpha1\n\
         kind: DNSEndpoint\n\
         metadata: {{name: {name}, namespace: shop}}\n\
         spec:\n  endpoints:\n{}",
        records.iter().map(record).collect::<String>()
    )
}

/// Who dies, and whether before a change or right after it.
#[derive(Debug, Clone, Copy)]
struct Death {
    agent: bool,
    leader: bool,
    after: bool,
}

#[test]
fn records_and_verdicts_survive_any_death_at_every_step() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut between = Between::start(&kubernetes);
    between.hub.kubectl_apply(BY_HAND).unwrap();
    let mut somebody = issue(&between.controllers[0].1, &between.admin, "c1").agent();
    for (key, name) in [("other/thing", THEIRS[1]), ("sync/elsewhere/thing", THEIRS[2])] {
        assert_eq!(somebody.post("/v1/claims", &claim(key, name)).status, 200);
    }
    let kubeconfig = between.kubeconfig("fleetgate-sync", "sync");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let mut agent = between.agent("sync", &["--namespace=shop", "--kubeconfig", kubeconfig]);
    // So that no list is ever empty.
    let stays = dns_endpoint("stays", &["stays.c1.fleet.example"], "203.0.113.99");
    between.tenant.kubectl_apply(&stays).unwrap();
    between.wait_for_keys(&KEYS);
    between.wait_for_verdict("stays", "1", "0");

    let (mut target, mut logs) = (0, String::new());
    let deaths = [(false, false), (true, false), (false, true), (true, true)];
    let deaths =
        [false, true].into_iter().flat_map(|after| deaths.map(|(agent, leader)| Death { agent, leader, after }));
    for death in deaths {
        let mut step = |between: &mut Between, agent: &mut Agent, change: &dyn Fn(&ApiServer)| {
            if death.after {
                change(&between.tenant);
            }
            let leader = death.leader.then(|| between.kill_leader());
            if death.agent {
                logs.push_str(&agent.process.log());
                agent.process.end();
            }
            if !death.after {
                change(&between.tenant);
            }
            if death.agent {
                agent.start_again();
            }
            if let Some(leader) = leader {
                between.start_controller(leader);
            }
        };
        // Created, then changed; with one that is another cluster's between the good ones.
        for _ in 0..2 {
            target += 1;
            let address = format!("203.0.113.{target}");
            let wishes = dns_endpoint("wishes", &[WEB, "web.c2.fleet.example", MORE], &address);
            step(&mut between, &mut agent, &|tenant| drop(tenant.kubectl_apply(&wishes).unwrap()));
            wait_for_answer(&between.dns, WEB, &[&address]);
            wait_for_answer(&between.dns, MORE, &[&address]);
            between.wait_for_verdict("wishes", "2", "1");
            between.wait_for_keys(&[&KEYS[..], &["sync/shop/wishes"]].concat());
            assert_eq!(between.dns.resolve("web.c2.fleet.example", "A"), ["198.51.100.2"], "{death:?}");
        }
        let verdict = ["-n", "shop", "verdicts.fleetgate.dev", "wishes"];
        assert_eq!(field(&between.tenant, &verdict, ".spec.parts[*].code"), "OtherCluster");
        step(&mut between, &mut agent, &|tenant| {
            drop(tenant.kubectl(&["delete", "dnsendpoint", "wishes", "-n", "shop"]).unwrap());
        });
        wait_for_answer(&between.dns, WEB, &[NODE]);
        wait_for_answer(&between.dns, MORE, &[NODE]);
        between.wait_for_keys(&KEYS);
        assert_eq!(between.dns.resolve("stays.c1.fleet.example", "A"), ["203.0.113.99"], "{death:?}");
        for name in THEIRS {
            assert_eq!(between.dns.resolve(name, "A"), [NODE], "{death:?} {name}");
        }
    }
    logs.push_str(&agent.process.log());
    // A controller that has just started knows no cluster, and says so instead of sending the agent away.
    assert!(!logs.contains("ClusterGone") && !logs.contains("does not take our credential"), "{logs}");
    assert_eq!(logs.matches("the hub gave us a certificate").count(), 1, "restarts need no enrolment");
    let managers = between.hub.kubectl(&[
        "get",
        "dnsendpoints",
        "-n",
        "acme",
        "-l",
        "fleetgate.dev/cluster=c1",
        "--show-managed-fields",
        "-o",
        "jsonpath={.items[*].metadata.managedFields[*].manager}",
    ]);
    assert!(managers.unwrap().split(' ').all(|manager| manager == "fleetgate-agents"));
}

#[test]
fn stock_external_dns_creates_and_deletes_on_a_hub() {
    let (Some(kubernetes), Some(program)) = (testbed::kubernetes(), testbed::external_dns()) else { return };
    let between = Between::start(&kubernetes);
    let mut agent = between.agent("external-dns", &["--listen=127.0.0.1:0", "--health=127.0.0.1:0"]);
    agent.process.wait_for_line("the hub knows us", PATIENCE).unwrap();
    let listen = agent.started["listen"].as_str().unwrap().parse().unwrap();
    let wishes = |names: &[&str]| between.tenant.kubectl_apply(&dns_endpoint("wishes", names, "203.0.113.1")).unwrap();
    wishes(&[WEB, "web.c2.fleet.example", MORE]);
    let owner = Registry::Txt { owner: "shop", prefix: "owner-%{record_type}-" };
    let kubeconfig = between.kubeconfig("external-dns", "external-dns");
    let mut external_dns = program.start_with_webhook(&kubeconfig, "shop", listen, owner).unwrap();
    wait_for_answer(&between.dns, WEB, &["203.0.113.1"]);
    wait_for_answer(&between.dns, MORE, &["203.0.113.1"]);
    let registry = || between.dns.resolve("owner-a-web.c1.fleet.example", "TXT");
    eventually("its registry is published", || registry().first().filter(|text| text.contains("owner=shop")).map(drop));
    let keys: Vec<String> = objects(&between.hub).iter().map(|object| key(object).to_owned()).collect();
    assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with("external-dns/")), "{keys:?}");

    wishes(&[MORE]);
    wait_for_answer(&between.dns, WEB, &[NODE]);
    eventually("its registry is gone", || registry().is_empty().then_some(()));
    assert_eq!(between.dns.resolve(MORE, "A"), ["203.0.113.1"]);
    external_dns.process().check_running().unwrap();
}
