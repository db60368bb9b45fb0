//! Who asks for what is not theirs is refused, is told why, and stands in the audit log.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testbed::Outpost;

use crate::fixture::{A, ADMIN, AGENTS, B, Carried, EGRESS, PATIENCE, Place, World, eventually, printed};
use crate::tenant::{SHOP, Tenant, control_plane_credential, programs, start_agent, start_proxy};

/// The hub's own, its cloud's, and what an agent is not to dial.
const FORBIDDEN: [&str; 9] = [
    "169.254.169.254:80",
    "[::ffff:169.254.169.254]:80",
    "[fe80::1]:80",
    "127.0.0.1:9630",
    "[::1]:9630",
    "0.0.0.0:9630",
    "224.0.0.1:80",
    // The hub as the tenant sees it, and as the control plane does: neither is in what an agent may reach.
    "198.18.1.1:9640",
    "198.18.11.1:9641",
];

#[test]
fn forbidden_targets_are_refused_with_a_reason_and_audited() {
    let (Some(programs), Some(mut world)) = (programs(), World::start()) else { return };
    let a = Tenant::start(&mut world, &programs, A);
    for target in FORBIDDEN {
        let refused = a.connect(target).err().unwrap_or_else(|| panic!("{target} is connected"));
        assert_eq!(refused.status, 403, "{target}: {refused:?}");
        assert!(!refused.code.is_empty() && !refused.reason.is_empty(), "{target}: {refused:?}");
        let line = world.wait_for_audit(target, |line| line["destination"] == target && line["identity"].is_string());
        assert_eq!((&line["cluster"], &line["code"]), (&"a".into(), &refused.code.into()), "{line}");
    }
    // What is allowed still is.
    assert_eq!(a.connect(&format!("{SHOP}:80")).unwrap().ask().unwrap(), a.greeting());
}

/// Both at once have the same addresses, and every door knows whose a certificate is.
#[test]
fn a_credential_leads_to_its_own_cluster_and_opens_no_other_door() {
    let (Some(programs), Some(mut world)) = (programs(), World::start()) else { return };
    let [a, b] = [A, B].map(|place| Tenant::start(&mut world, &programs, place));
    for (tenant, asking_for) in [(&a, "b"), (&b, "a")] {
        let own = Shown::control_plane(&tenant.credential);
        let asked = own.ask_egress(tenant, &["--proxy-header", &format!("fleetgate-cluster: {asking_for}")]);
        assert_eq!(asked, Ok(tenant.greeting()), "whatever else it says");
    }

    // An agent's certificate is for links, and a control plane's is not.
    let agent = Shown::agent(&world, A);
    let asked = agent.ask_egress(&a, &[]);
    assert!(asked.as_ref().is_err_and(|complaint| complaint.contains("403")), "{asked:?}");
    let line = world.wait_for_audit("an agent at the egress door", |line| line["code"] == "NotAControlPlane");
    assert_eq!(line["cluster"], "a", "{line}");

    let links = world.links(A);
    let control_plane = Shown::control_plane(&a.credential);
    control_plane.knock(&a.inside, &format!("{}:{AGENTS}", A.hub()));
    let line = world.wait_for_audit("a control plane at the agents' door", |line| line["code"] == "NotAnAgent");
    assert_eq!((&line["event"], &line["cluster"]), (&"link".into(), &"a".into()), "{line}");
    assert_eq!(world.links(A), links, "it has become a link");
}

/// The thief sits in another tenant's network and can only be what he stole; revoked, it is worth nothing.
#[test]
fn a_stolen_credential_is_worth_nothing_once_it_is_revoked() {
    let (Some(programs), Some(mut world)) = (programs(), World::start()) else { return };
    let [a, b] = [A, B].map(|place| Tenant::start(&mut world, &programs, place));

    let stolen = control_plane_credential(&world, A, "stolen");
    let (socket, _proxy) = start_proxy(&world, A, &a.control, &stolen);
    let shop = format!("{SHOP}:80");
    let mut stream = Carried::open(&socket, &shop).unwrap_or_else(|refused| panic!("{refused:?}"));
    assert_eq!(stream.ask().unwrap(), a.greeting());

    let id = Shown::control_plane(&stolen).credential_id();
    world.revoke(&id);
    // What is open ends too.
    let end = stream.wait_for_end();
    assert!(!matches!(end, Ok(1..)), "{end:?}");
    let refused = Carried::open(&socket, &shop).err().expect("it is revoked");
    assert_eq!(refused.status, 403, "{refused:?}");
    let line = world.wait_for_audit("a revoked control plane", |line| {
        line["identity"].as_str().is_some_and(|identity| identity.contains(&id)) && line["destination"] == shop.as_str()
    });
    assert_eq!((&line["cluster"], &line["code"]), (&"a".into(), &refused.code.into()), "{line}");

    // The agent's own, with which another agent has been started elsewhere.
    let state = world.path("stolen-state");
    fs::create_dir(&state).unwrap();
    for file in fs::read_dir(world.path("state-a")).unwrap().flatten() {
        fs::copy(file.path(), state.join(file.file_name())).unwrap();
    }
    let links = world.links(A);
    let _thief = start_agent(&world, A, &b.inside, &b.place.hub(), &state);
    eventually("the thief is linked", || {
        let now = world.links(A);
        if now > links { Ok(()) } else { Err(now) }
    });
    let id = Shown::agent(&world, A).credential_id();
    world.revoke(&id);
    let refused = eventually("nobody is linked for A", || match a.connect(&shop) {
        Err(refused) if refused.code == "NoLink" => Ok(refused),
        Err(refused) => Err(Some(refused)),
        Ok(_) => Err(None),
    });
    assert!((502..=504).contains(&refused.status), "{refused:?}");
    let line = world.wait_for_audit("a revoked agent", |line| line["credential"] == id.as_str());
    assert_eq!((&line["cluster"], &line["event"]), (&"a".into(), &"link".into()), "{line}");
    // It was A's alone.
    assert_eq!(b.connect(&shop).unwrap().ask().unwrap(), b.greeting());
}

/// What somebody shows at a door.
struct Shown {
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
}

impl Shown {
    fn control_plane(credential: &Path) -> Self {
        let [certificate, key, authority] = ["tls.crt", "tls.key", "ca.crt"].map(|name| credential.join(name));
        Self { certificate, key, authority }
    }

    /// What the agent of a cluster keeps.
    fn agent(world: &World, place: Place) -> Self {
        let kept = fs::read_dir(world.path(&format!("state-{}", place.name))).unwrap().flatten();
        let kept = kept.map(|file| file.path()).find(|path| path.extension().is_some_and(|end| end == "json"));
        let kept: Value = serde_json::from_slice(&fs::read(kept.unwrap()).unwrap()).unwrap();
        let [certificate, key, authority] = ["certificate", "key", "ca"].map(|field| {
            let path = world.path(&format!("agent-{}-{field}.pem", place.name));
            fs::write(&path, kept[field].as_str().unwrap()).unwrap();
            path
        });
        Self { certificate, key, authority }
    }

    /// As it stands in the certificate.
    fn credential_id(&self) -> String {
        let mut openssl = Command::new("openssl");
        openssl.args(["x509", "-noout", "-ext", "subjectAltName", "-in"]).arg(&self.certificate);
        let text = String::from_utf8(openssl.output().unwrap().stdout).unwrap();
        let (_, uri) = text.split_once("URI:").expect(&text);
        uri.trim().rsplit('/').next().unwrap().to_owned()
    }

    /// What the shop says to who comes through the egress door with this, as a client of an `HTTPS_PROXY` does.
    fn ask_egress(&self, tenant: &Tenant, more: &[&str]) -> Result<String, String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "60", "--proxytunnel", "--noproxy", ""]);
        curl.args(["--proxy", &format!("https://egress.fleetgate:{EGRESS}")]);
        curl.args(["--resolve", &format!("egress.fleetgate:{EGRESS}:{}", tenant.place.gateway())]);
        curl.arg("--proxy-cacert").arg(&self.authority).arg("--proxy-cert").arg(&self.certificate);
        curl.arg("--proxy-key").arg(&self.key).args(more).arg(format!("http://{SHOP}/"));
        printed(&tenant.control.host, &curl)
    }

    /// Asks to be a link, and waits until it is shown out.
    fn knock(&self, on: &Outpost, door: &str) {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", door, "-servername", "agents.fleet.example"]);
        openssl.args(["-alpn", "fleetgate-tunnel/1", "-cert"]).arg(&self.certificate).arg("-key").arg(&self.key);
        // It reads nothing from us, so that only the door can end it.
        let mut knocking = on.host.start(openssl.args(["-quiet", "-ign_eof"])).unwrap();
        knocking.wait_for_exit(PATIENCE).unwrap();
    }
}

impl World {
    /// How many links a cluster has.
    fn links(&self, place: Place) -> usize {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--noproxy", "*", &format!("http://{ADMIN}/v1/links")]);
        let links: Value = serde_json::from_str(&printed(&self.network.hub, &curl).unwrap()).unwrap();
        links["items"].as_array().unwrap().iter().filter(|link| link["cluster"] == place.name).count()
    }

    fn revoke(&self, id: &str) {
        let output = self.operator(&["credential", "revoke", id]);
        assert!(output.status.success(), "{output:?}");
    }
}
