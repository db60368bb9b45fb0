//! What is told of a connection beforehand is what becomes of it.

use gateway::explain::{Verdict, Wanted};
use gateway::limits::Fullness;
use gateway::{DoorKind, Refusal};
use model::resource::Limits;
use model::{Proof, ProofKey};
use tokio::io::AsyncWriteExt;

use crate::fleet::{Fleet, Member, Settings, backend, expect, expect_closed, header, nobody, snapshot};

fn id(text: &str) -> Wanted {
    Wanted::ClusterId { id: text.into(), proof: false }
}

fn name(text: &str) -> Wanted {
    Wanted::ServerName(text.parse().unwrap())
}

/// One cluster for each rule, all of whose connections come from this machine.
async fn fleet() -> Fleet {
    let target = backend("up").await;
    let limits = |connections, new_connections_per_second| Limits { connections, new_connections_per_second };
    let proof = |required| Proof { required, keys: vec![ProofKey::parse(&[7; 32]).unwrap()] };
    Fleet::start(
        DoorKind::ClusterId,
        snapshot([
            Member::new("open", target),
            Member { allowed: &["192.0.2.0/24", "2001:db8::/32"], ..Member::new("closed", target) },
            Member { proof: proof(true), ..Member::new("proven", target) },
            Member { proof: proof(false), ..Member::new("keyed", target) },
            Member { limits: limits(Some(0), None), ..Member::new("full", target) },
            Member { limits: limits(None, Some(0)), ..Member::new("fast", target) },
            Member { allowed: &[], proof: proof(true), limits: limits(Some(0), Some(0)), ..Member::new("all", target) },
            Member { upstreams: vec![nobody(), nobody()], ..Member::new("gone", nobody()) },
        ]),
    )
}

#[tokio::test]
async fn what_is_told_is_what_comes() {
    let fleet = fleet().await;
    // Bad until somebody finds it back: the rows below ask after that.
    for _ in 0..3 {
        expect_closed(&mut fleet.select("id-gone").await).await;
    }
    for (asked, code, rule) in [
        ("id-open", "Established", "clusterID of Cluster open"),
        ("id-closed", "SourceNotAllowed", "allowedSources of Cluster closed"),
        ("id-proven", "ProofMissing", "proof.required of Cluster proven"),
        ("id-keyed", "Established", "clusterID of Cluster keyed"),
        ("id-full", "ClusterConnections", "limits.connections of Cluster full"),
        ("id-fast", "ClusterRate", "limits.newConnectionsPerSecond of Cluster fast"),
        ("id-all", "SourceNotAllowed", "allowedSources of Cluster all"),
        ("id-gone", "Unreachable", "controlPlane of Cluster gone: no address of kube-apiserver is good"),
        ("id-open ", "UnknownClusterId", "no Cluster that is served has this clusterID"),
        ("ID-OPEN", "UnknownClusterId", "no Cluster that is served has this clusterID"),
        ("", "UnknownClusterId", "no Cluster that is served has this clusterID"),
        ("ü\n", "UnknownClusterId", "no Cluster that is served has this clusterID"),
    ] {
        let told = fleet.explain(id(asked), Some("127.0.0.1"));
        assert_eq!((told.verdict.code(), told.rule.as_str()), (code, rule), "{asked:?}");
        assert_eq!(told.verdict.blame().is_none(), code == "Established", "{asked:?}");
        assert!(told.is_served && !told.is_trusted_proxy);
        assert_eq!(told.way.is_none(), code == "UnknownClusterId", "{asked:?}");

        let before = fleet.outcomes("apiserver", code);
        let mut client = fleet.select(asked).await;
        if code == "Established" {
            expect(&mut client, "up").await;
        } else {
            expect_closed(&mut client).await;
        }
        assert_eq!(fleet.outcomes("apiserver", code), before + 1, "{asked:?}");
    }
}

#[tokio::test]
async fn proofs_and_sources_are_as_the_question_has_them() {
    let fleet = fleet().await;
    let proven = |id: &str| Wanted::ClusterId { id: id.into(), proof: true };
    for (wants, from, code, checks_proof) in [
        (proven("id-proven"), None, "Established", true),
        (proven("id-keyed"), None, "Established", true),
        (proven("id-open"), None, "Established", false),
        (id("id-proven"), Some("192.0.2.7"), "ProofMissing", false),
        (id("id-closed"), None, "Established", false),
        (id("id-closed"), Some("192.0.2.7"), "Established", false),
        (id("id-closed"), Some("::ffff:192.0.2.7"), "Established", false),
        (id("id-closed"), Some("2001:db8::7"), "Established", false),
        (id("id-closed"), Some("198.51.100.7"), "SourceNotAllowed", false),
        // Names need no proof.
        (name("api.proven.fleet.example"), None, "Established", false),
        (name("API.Closed.fleet.example."), Some("198.51.100.7"), "SourceNotAllowed", false),
        (name("api.full.fleet.example"), None, "ClusterConnections", false),
    ] {
        let told = fleet.explain(wants.clone(), from);
        assert_eq!(told.verdict.code(), code, "{wants:?} from {from:?}");
        assert_eq!(told.way.unwrap().checks_proof, checks_proof, "{wants:?}");
    }
    let told = fleet.explain(id("id-closed"), Some("2001:db8::7"));
    assert_eq!(told.way.unwrap().allowed_by.unwrap().to_string(), "2001:db8::/32");

    let told = fleet.explain(name("nothing.fleet.example"), None);
    assert!(matches!(&told.verdict, Verdict::Refused(Refusal::UnknownServerName(_))), "{told:?}");
    assert!(!told.is_served, "there is no door for names here");
    let told = fleet.explain(name("api.open.fleet.example"), None);
    assert_eq!(told.rule, "the API name of Cluster open");
    assert_eq!(told.reason(), "it is carried to kube-apiserver of Cluster open");
    assert!(!format!("{:?}", fleet.explain(proven("id-proven"), None)).contains("[7, 7"), "keys are never shown");
}

#[tokio::test]
async fn asking_takes_nothing_and_sees_what_others_took() {
    let limits = Limits { connections: Some(2), new_connections_per_second: Some(2) };
    let (first, second) = (backend("up").await, nobody());
    let member = Member { upstreams: vec![second, first], limits, ..Member::new("c1", first) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([member]));
    let fullness = |open, left| Fullness { open, new_left: Some(left), limits };
    for _ in 0..5 {
        let way = fleet.explain(id("id-c1"), None).way.unwrap();
        assert_eq!(way.limits.cluster, fullness(0, 2));
        assert_eq!(way.upstreams.iter().map(|upstream| upstream.address).collect::<Vec<_>>(), [second, first]);
    }
    let mut client = fleet.select("id-c1").await;
    expect(&mut client, "up").await;
    let told = fleet.explain(id("id-c1"), None);
    let way = told.way.unwrap();
    // A token comes back after half a second.
    assert_eq!((way.limits.cluster.open, way.limits.tenant.open), (1, 1));
    assert!(way.limits.cluster.new_left >= Some(1));
    assert_eq!(way.limits.tenant.new_left, None);
    let taken = way.upstreams.iter().find(|upstream| upstream.address == first).unwrap();
    assert_eq!(taken.open, 1);
}

#[tokio::test]
async fn a_trusted_proxy_speaks_for_others() {
    let settings = Settings { trusted_proxies: &["127.0.0.0/8"], ..Settings::default() };
    let member = Member { allowed: &["192.0.2.0/24"], ..Member::new("c1", backend("c1").await) };
    let fleet = Fleet::start_with(DoorKind::ClusterId, snapshot([member]), &settings);
    let told = fleet.explain(id("id-c1"), Some("127.0.0.1"));
    assert_eq!((told.is_trusted_proxy, told.verdict.code()), (true, "SourceNotAllowed"));
    let told = fleet.explain(id("id-c1"), Some("192.0.2.7"));
    assert_eq!((told.is_trusted_proxy, told.verdict.code()), (false, "Established"));
    let mut client = fleet.connect().await;
    client.write_all(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n").await.unwrap();
    client.write_all(&header("id-c1")).await.unwrap();
    expect(&mut client, "c1").await;
}
