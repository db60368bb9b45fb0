use super::*;

fn name(text: &str) -> DnsName {
    text.parse().unwrap()
}

fn port(name: &str, protocol: &str, port: u16) -> PortView {
    PortView { name: name.into(), protocol: protocol.into(), port }
}

fn endpoint(address: &str, hostname: Option<&str>) -> EndpointView {
    let hostname = hostname.map(Into::into);
    EndpointView { address: address.parse().unwrap(), hostname, ports: vec![port("peer", "TCP", 12380)] }
}

fn view(kind: &str) -> ServiceView {
    match kind {
        "cluster" => ServiceView {
            cluster_ips: vec!["10.10.3.7".parse().unwrap(), "fd00:10::7".parse().unwrap()],
            ports: vec![port("https", "TCP", 443), port("", "TCP", 80), port("dns", "UDP", 53)],
            ..ServiceView::default()
        },
        "headless" => ServiceView {
            ports: vec![port("peer", "TCP", 2380)],
            endpoints: vec![
                endpoint("10.20.0.2", Some("etcd-1")),
                endpoint("10.20.0.1", Some("Etcd-0")),
                endpoint("fd00:20::3", None),
            ],
            ..ServiceView::default()
        },
        "empty" => ServiceView { ports: vec![port("peer", "TCP", 2380)], ..ServiceView::default() },
        "external" => ServiceView { external_name: Some(name("db.example.org")), ..ServiceView::default() },
        _ => panic!("no kind of Service: {kind}"),
    }
}

/// All records of a name, or the kind of the no.
fn told(kind: &str, asked: &str) -> String {
    let domain = name("cluster.local");
    let full = domain.prepend(asked).unwrap();
    let Some(Asked::Service { namespace, name, part }) = read(&full, &domain) else { panic!("no Service: {asked}") };
    let answer = records(&view(kind), &namespace, &name, &part, &domain);
    assert!(answer.records.iter().all(|record| record.name == full && record.ttl == 5), "{answer:?}");
    if answer.records.is_empty() {
        return if answer.exists { "nothing".into() } else { "no such name".into() };
    }
    let record = |record: &Record| match &record.data {
        RecordData::Address(address) => address.to_string(),
        RecordData::Alias(target) => format!("-> {target}"),
        RecordData::Server { port, target } => format!("{target}:{port}").replace(".web.shop.svc.cluster.local", ""),
        RecordData::Text(text) => text.clone(),
    };
    answer.records.iter().map(record).collect::<Vec<_>>().join(" ")
}

/// Section by section of the specification.
#[test]
fn services_have_records() {
    for (kind, asked, expected) in [
        // 2.3.1 and 2.3.2: with a cluster IP.
        ("cluster", "web.shop.svc", "10.10.3.7 fd00:10::7"),
        ("cluster", "_https._tcp.web.shop.svc", "web.shop.svc.cluster.local:443"),
        ("cluster", "_HTTPS._TCP.web.shop.svc", "web.shop.svc.cluster.local:443"),
        ("cluster", "_dns._udp.web.shop.svc", "web.shop.svc.cluster.local:53"),
        ("cluster", "_https._udp.web.shop.svc", "no such name"),
        ("cluster", "_tcp.web.shop.svc", "nothing"),
        ("cluster", "10-10-3-7.web.shop.svc", "no such name"),
        // 2.4.1 and 2.4.2: headless.
        ("headless", "web.shop.svc", "10.20.0.1 10.20.0.2 fd00:20::3"),
        ("headless", "etcd-0.web.shop.svc", "10.20.0.1"),
        ("headless", "fd00-20--3.web.shop.svc", "fd00:20::3"),
        ("headless", "etcd-2.web.shop.svc", "no such name"),
        ("headless", "_peer._tcp.web.shop.svc", "etcd-1:12380 etcd-0:12380 fd00-20--3:12380"),
        ("empty", "web.shop.svc", "no such name"),
        ("empty", "_peer._tcp.web.shop.svc", "no such name"),
        // 2.5: external.
        ("external", "web.shop.svc", "-> db.example.org"),
        ("external", "_https._tcp.web.shop.svc", "no such name"),
    ] {
        assert_eq!(told(kind, asked).replace("org.", "org"), expected, "{kind}: {asked}");
    }
}

#[test]
fn names_are_read() {
    let domain = name("cluster.local");
    let asked = |text: &str| read(&name(text), &domain);
    assert_eq!(asked("dns-version.cluster.local"), Some(Asked::Version));
    for between in ["cluster.local", "svc.cluster.local", "shop.svc.cluster.local"] {
        assert_eq!(asked(between), Some(Asked::Between), "{between}");
    }
    // A Service says nothing about these, and a name that no object can have is asked of nobody.
    for other in [
        "example.org",
        "10-20-0-1.shop.pod.cluster.local",
        "a.b.c.web.shop.svc.cluster.local",
        "a.b.web.shop.svc.cluster.local",
        "x.cluster.local",
        "w_b.shop.svc.cluster.local",
        "web.sh\\032op.svc.cluster.local",
        "web.-x.svc.cluster.local",
        "w\\255b.shop.svc.cluster.local",
    ] {
        assert_eq!(asked(other), None, "{other}");
    }
}

#[test]
fn the_api_server_is_the_first_of_its_services() {
    let ranges = ["10.10.0.0/16", "fd00:10::/108"].map(|range| range.parse().unwrap());
    let view = api_server(&ranges).unwrap();
    assert_eq!(view.cluster_ips, ["10.10.0.1".parse::<IpAddr>().unwrap(), "fd00:10::1".parse().unwrap()]);
    assert_eq!(api_server(&[]), None);
}
