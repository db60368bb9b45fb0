use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use super::*;

/// A certificate and its key, each as PEM in base64.
fn certificate() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["c1.example".to_owned()]).unwrap().self_signed(&key).unwrap();
    (base64(certificate.pem().as_bytes()), base64(key.serialize_pem().as_bytes()))
}

fn base64(octets: &[u8]) -> String {
    serde_json::to_value(ByteString(octets.to_vec())).unwrap().as_str().unwrap().to_owned()
}

fn good() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {},
        "current-context": "c1",
        "contexts": [{"name": "c1", "context": {"cluster": "c1", "user": "reader", "namespace": "default"}}],
        "clusters": [{"name": "c1", "cluster": {"server": "https://10.0.0.7:6443", "certificate-authority-data": certificate().0}}],
        "users": [{"name": "reader", "user": {"token": "t0p-s3cret"}}],
    })
}

/// The good one with other fields in its cluster and its user; null takes a field away.
fn with(cluster: &Value, user: &Value) -> String {
    let mut file = good();
    for (entry, change) in [("/clusters/0/cluster", cluster), ("/users/0/user", user)] {
        let entry = file.pointer_mut(entry).unwrap().as_object_mut().unwrap();
        for (field, value) in change.as_object().unwrap() {
            entry.insert(field.clone(), value.clone());
        }
    }
    serde_saphyr::to_string(&file).unwrap()
}

fn secret() -> SecretKey {
    SecretKey { namespace: "fleetgate-system".into(), name: "c1".into(), key: "kubeconfig".into() }
}

fn fault_of(text: &str) -> Fault {
    match read(&secret(), text.as_bytes(), Policy::default()) {
        Ok(server) => panic!("{server:?} should be refused"),
        Err(refusal) => refusal.fault,
    }
}

#[test]
fn what_is_needed_is_taken() {
    let server = read(&secret(), with(&json!({}), &json!({})).as_bytes(), Policy::default()).unwrap();
    assert_eq!(server.host, Host::Address("10.0.0.7".parse().unwrap()));
    assert_eq!((server.port, server.prefix.as_str()), (6443, ""));
    assert_eq!(server.authority, "10.0.0.7:6443");
    assert_eq!(server.name, ServerName::try_from("10.0.0.7").unwrap());
    let authorization = server.authorization.clone().unwrap();
    assert_eq!(authorization, "Bearer t0p-s3cret");
    assert!(authorization.is_sensitive());
    assert!(!format!("{server:?}").contains("s3cret"));
}

#[test]
fn servers_with_names_paths_and_other_families() {
    for (address, host, port, prefix) in [
        ("https://api.c1.example", "api.c1.example", 443, ""),
        ("https://api.c1.example/", "api.c1.example", 443, ""),
        ("https://hub.example:8443/k8s/clusters/c-1/", "hub.example", 8443, "/k8s/clusters/c-1"),
        ("https://[2001:db8::7]:6443", "2001:db8::7", 6443, ""),
    ] {
        let text = with(&json!({"server": address, "tls-server-name": "kubernetes.default"}), &json!({}));
        let server = read(&secret(), text.as_bytes(), Policy::default()).unwrap();
        let expected = host.parse().map_or_else(|_| Host::Name(host.to_owned()), Host::Address);
        assert_eq!((&server.host, server.port, server.prefix.as_str()), (&expected, port, prefix), "{address}");
        assert_eq!(server.name, ServerName::try_from("kubernetes.default").unwrap());
    }
}

#[test]
fn a_client_certificate_is_a_credential_too() {
    let (certificate, key) = certificate();
    let wrapped: Vec<&str> = key.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let user = json!({"token": null, "client-certificate-data": certificate, "client-key-data": wrapped.join("\n")});
    let server = read(&secret(), with(&json!({}), &user).as_bytes(), Policy::default()).unwrap();
    assert!(server.tls.client_auth_cert_resolver.has_certs() && server.authorization.is_none());
}

#[test]
fn fields_that_reach_beyond_the_file_are_refused() {
    let cases = [
        (json!({"certificate-authority": "/etc/ssl/ca.crt"}), json!({}), "certificate-authority"),
        (json!({"insecure-skip-tls-verify": true}), json!({}), "insecure-skip-tls-verify"),
        (json!({"proxy-url": "http://10.0.0.1:3128"}), json!({}), "proxy-url"),
        (json!({"server": "http://10.0.0.7:6443"}), json!({}), "server"),
        (json!({}), json!({"exec": {"command": "sh", "args": ["-c", "id"]}}), "exec"),
        (json!({}), json!({"exec": {}}), "exec"),
        (json!({}), json!({"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (json!({}), json!({"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}), "tokenFile"),
        (json!({}), json!({"client-certificate": "/a"}), "client-certificate"),
        (json!({}), json!({"client-key": "/a"}), "client-key"),
        (json!({}), json!({"username": "admin", "password": "p"}), "username"),
        (json!({}), json!({"password": "p"}), "password"),
        (json!({}), json!({"as": "system:admin"}), "as"),
        (json!({}), json!({"as-uid": "0"}), "as-uid"),
        (json!({}), json!({"as-groups": ["system:masters"]}), "as-groups"),
        (json!({}), json!({"as-user-extra": {"a": ["b"]}}), "as-user-extra"),
    ];
    for (cluster, user, expected) in cases {
        let Fault::Refused { field, .. } = fault_of(&with(&cluster, &user)) else { panic!("{cluster} {user}") };
        assert_eq!(field.rsplit('.').next(), Some(expected));
    }
}

#[test]
fn what_says_nothing_is_not_refused() {
    let cluster =
        json!({"certificate-authority": "", "insecure-skip-tls-verify": false, "proxy-url": null, "extensions": []});
    let user = json!({"exec": null, "tokenFile": "", "as": "", "auth-provider": null, "username": null});
    read(&secret(), with(&cluster, &user).as_bytes(), Policy::default()).unwrap();
}

#[test]
fn an_entry_that_is_not_used_is_refused_all_the_same() {
    let mut file = good();
    file["users"].as_array_mut().unwrap().push(json!({"name": "other", "user": {"exec": {"command": "sh"}}}));
    assert!(matches!(fault_of(&file.to_string()), Fault::Refused { field: "users[].user.exec", .. }));
}

#[test]
fn hosts_that_are_not_an_api_servers() {
    for (server, reach) in [
        ("https://169.254.169.254", Reach::LinkLocal),
        ("https://[fe80::1]:6443", Reach::LinkLocal),
        ("https://[::ffff:169.254.169.254]", Reach::LinkLocal),
        ("https://127.0.0.1:6443", Reach::Loopback),
        ("https://[::1]:6443", Reach::Loopback),
        ("https://0.0.0.0:6443", Reach::Unspecified),
        ("https://[::]:6443", Reach::Unspecified),
        ("https://224.0.0.1:6443", Reach::Multicast),
        ("https://[fd00:ec2::254]", Reach::Metadata),
    ] {
        assert_eq!(fault_of(&with(&json!({"server": server}), &json!({}))), Fault::Destination(reach), "{server}");
    }
    let loopback = with(&json!({"server": "https://127.0.0.1:6443"}), &json!({}));
    read(&secret(), loopback.as_bytes(), Policy { loopback: true }).unwrap();
    let link_local = with(&json!({"server": "https://169.254.169.254"}), &json!({}));
    assert!(read(&secret(), link_local.as_bytes(), Policy { loopback: true }).is_err());
}

#[test]
fn values_that_are_none() {
    let (_, other_key) = certificate();
    let malformed = |field| move |fault| matches!(fault, Fault::Malformed { field: found, .. } if found == field);
    let check = |cluster: Value, user: Value, expected: &dyn Fn(Fault) -> bool| {
        let fault = fault_of(&with(&cluster, &user));
        assert!(expected(fault), "{cluster} {user}: {fault:?}");
    };
    for server in [
        "c1.example:6443",
        "https://",
        "https://u:p@c1.example",
        "https://c1.example:0",
        "ftp://c1.example",
        "https://a b",
        "https://c1?x=1",
        "https://[c1]:1",
    ] {
        check(json!({"server": server}), json!({}), &malformed(SERVER));
    }
    check(json!({"server": null}), json!({}), &|fault| fault == Fault::Missing(SERVER));
    check(json!({"tls-server-name": "no name"}), json!({}), &malformed(SERVER_NAME));
    check(json!({"certificate-authority-data": null}), json!({}), &|fault| fault == Fault::Missing(AUTHORITY));
    for data in ["%%%", "bm8gUEVN", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="]
    {
        check(json!({"certificate-authority-data": data}), json!({}), &malformed(AUTHORITY));
    }
    check(json!({}), json!({"token": null}), &|fault| fault == Fault::NoCredential);
    check(json!({}), json!({"token": "two\nlines"}), &malformed(TOKEN));
    let certificate = certificate().0;
    check(json!({}), json!({"client-certificate-data": certificate}), &|fault| fault == Fault::Missing(KEY));
    check(json!({}), json!({"client-key-data": other_key}), &|fault| fault == Fault::Missing(CERTIFICATE));
    check(json!({}), json!({"client-certificate-data": certificate, "client-key-data": "bm8="}), &malformed(KEY));
    check(json!({}), json!({"client-certificate-data": certificate, "client-key-data": other_key}), &|fault| {
        fault == Fault::KeyMismatch
    });
}

#[test]
fn files_that_are_no_kubeconfig() {
    let text = with(&json!({}), &json!({}));
    assert_eq!(fault_of(&format!("{text}\n---\n{text}")), Fault::SeveralDocuments);
    assert_eq!(fault_of(&format!("{text}\n#{}", " ".repeat(MOST_OCTETS))), Fault::TooLarge);
    assert!(matches!(fault_of("users: [{name: a, user: {token: s3cret"), Fault::Unreadable { .. }));
    assert!(matches!(fault_of("users: s3cret"), Fault::Unreadable { line: 1, .. }));
    assert!(matches!(
        fault_of("a: 1\nusers:\n- name: a\n  user: {token: [s3cret]}\n"),
        Fault::Unreadable { line: 4, .. }
    ));
    assert_eq!(fault_of("{}"), Fault::Missing("current-context"));
    assert!(read(&secret(), b"\xff\xfe", Policy::default()).is_err_and(|refusal| refusal.fault == Fault::NotText));
    // Every alias doubles what stands before it.
    let laughs: Vec<String> = (1..40).map(|i| format!("a{i}: &a{i} [*a{0}, *a{0}]", i - 1)).collect();
    assert!(matches!(fault_of(&format!("a0: &a0 [ha]\n{}", laughs.join("\n"))), Fault::Unreadable { .. }));

    for (place, value, expected) in [
        ("/current-context", json!("c2"), Fault::Unknown { field: "current-context", list: "contexts" }),
        ("/current-context", json!(""), Fault::Missing("current-context")),
        ("/contexts/0/context/user", json!("x"), Fault::Unknown { field: "contexts[].context.user", list: "users" }),
        ("/clusters/0/name", json!("x"), Fault::Unknown { field: "contexts[].context.cluster", list: "clusters" }),
        ("/clusters", json!([{"name": "c1"}, {"name": "c1"}]), Fault::Twice("clusters")),
        ("/users", Value::Null, Fault::Unknown { field: "contexts[].context.user", list: "users" }),
    ] {
        let mut file = good();
        *file.pointer_mut(place).unwrap() = value;
        assert_eq!(fault_of(&file.to_string()), expected, "{place}");
    }
}

#[test]
fn a_refusal_says_where_and_what_to_do() {
    let refusal = read(&secret(), with(&json!({}), &json!({"exec": {}})).as_bytes(), Policy::default()).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the kubeconfig in key kubeconfig of Secret fleetgate-system/c1 uses `users[].user.exec`, which is refused: the \
         controller runs no programs of a tenant's"
    );
}

proptest! {
    /// Whatever a file says, wherever it says it and however it is broken, a refusal repeats none of it.
    #[test]
    fn no_refusal_repeats_what_was_in_the_file(
        said in "[a-zA-Z0-9]{12,24}",
        field in 0..17_usize,
        quoting in 0..4_usize,
        cut in 0..4000_usize,
        noise in proptest::collection::vec((0..4000_usize, any::<u8>()), 0..4),
    ) {
        let (cluster, user): (&[&str], &[&str]) = (
            &["server", "certificate-authority-data", "tls-server-name", "certificate-authority", "insecure-skip-tls-verify", "proxy-url"],
            &["token", "client-certificate-data", "client-key-data", "tokenFile", "username", "password", "exec", "as", "as-groups", "auth-provider", "as-user-extra"],
        );
        let value = match quoting {
            0 => json!(said),
            1 => json!([said]),
            2 => json!({"config": said.clone(), said.clone(): 1}),
            _ => json!(format!("https://{said}:{said}@{said}")),
        };
        let mut changes = [serde_json::Map::new(), serde_json::Map::new()];
        match cluster.get(field) {
            Some(name) => changes[0].insert((*name).to_owned(), value),
            None => changes[1].insert(user[field - cluster.len()].to_owned(), value),
        };
        let [of_cluster, of_user] = changes.map(Value::Object);
        let mut octets = with(&of_cluster, &of_user).into_bytes();
        if cut < octets.len() {
            octets.truncate(cut);
        }
        for (at, octet) in noise {
            if let Some(place) = octets.get_mut(at) {
                *place = octet;
            }
        }
        if let Err(refusal) = read(&secret(), &octets, Policy::default()) {
            for shown in [refusal.to_string(), format!("{refusal:?}"), format!("{refusal:#?}")] {
                prop_assert!(!shown.contains(&said) && !shown.contains("t0p-s3cret"), "{}", shown);
            }
        }
    }
}
