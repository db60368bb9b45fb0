use std::os::unix::fs::PermissionsExt as _;

use rcgen::{BasicConstraints, IsCa, Issuer};
use tempfile::TempDir;

use super::*;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    Authority { issuer: Issuer::new(params, key), pem }
}

impl Authority {
    fn sign(&self, key: &str, expires: u64) -> Certificate {
        let key = KeyPair::from_pem(key).unwrap();
        let certificate = CertificateParams::default().signed_by(&key, &self.issuer).unwrap();
        Certificate { certificate: certificate.pem(), ca: self.pem.clone(), valid_from: 0, expires }
    }
}

fn write_bootstrap(folder: &TempDir, token: &str, ca: &str) -> PathBuf {
    let path = folder.path().join("bootstrap.json");
    let bootstrap = Bootstrap { token: token.into(), server_name: "agents.fleet.example".into(), ca: ca.into() };
    fs::write(&path, serde_json::to_vec(&bootstrap).unwrap()).unwrap();
    path
}

#[test]
fn an_identity_outlives_the_process_and_goes_with_its_token() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), authority());
    let state = || Some((folder.path().join("state"), "sync"));
    let bootstrap = write_bootstrap(&folder, "fleetgate.a.secret", &authority.pem);
    let store = Store::open(bootstrap.clone(), state()).unwrap();
    assert!(store.recall(1000).is_none());
    let (key, _) = key_and_request().unwrap();
    store.keep(&store.identity(&key, &authority.sign(&key, 4000), 1000).unwrap());

    let file = folder.path().join("state/sync.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().contains("secret"), "the token is not kept");
    let again = Store::open(bootstrap, state()).unwrap();
    assert_eq!(again.recall(3999).unwrap().expires(), 4000);
    assert!(again.recall(4000).is_none(), "it is over");

    write_bootstrap(&folder, "fleetgate.b.secret", &authority.pem);
    assert!(again.recall(1000).is_none(), "it may speak for another cluster");
    fs::write(&file, "{").unwrap();
    write_bootstrap(&folder, "fleetgate.a.secret", &authority.pem);
    assert!(again.recall(1000).is_none());
}

#[test]
fn a_certificate_is_renewed_when_two_thirds_of_its_time_are_over() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), authority());
    let store = Store::open(write_bootstrap(&folder, "t", &authority.pem), None).unwrap();
    let (key, _) = key_and_request().unwrap();
    let identity = store.identity(&key, &authority.sign(&key, 4000), 1000).unwrap();
    for (now, wait) in [(1000, Some(2000)), (2999, Some(1)), (3000, None), (5000, None), (10, None)] {
        assert_eq!(identity.until_renewal(now), wait.map(Duration::from_secs), "{now}");
    }
    // By the hub's clock it is later than by ours: what counts is how long it lasts.
    let certificate = Certificate { valid_from: 3400, ..authority.sign(&key, 4000) };
    let identity = store.identity(&key, &certificate, 1000).unwrap();
    assert_eq!(identity.until_renewal(1000), Some(Duration::from_secs(400)));
    assert_eq!(identity.until_renewal(1400), None);
}

#[test]
fn what_cannot_be_used_is_said_without_the_secret() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), authority());
    let path = folder.path().join("bootstrap.json");
    let open = || Store::open(path.clone(), None).map(drop).unwrap_err().to_string();
    assert!(open().contains("No such file"), "{}", open());
    for (content, expected) in [
        ("\"fleetgate.a.secret\"", "no bootstrap file (line 1"),
        ("{\"token\":\"fleetgate.a.secret\"}", "no bootstrap file"),
        ("{\"token\":\"secret\",\"serverName\":\"agents.test\",\"ca\":\"\"}", "ca has no certificates"),
        ("{\"token\":\"secret\",\"serverName\":\"a b\",\"ca\":\"\"}", "serverName"),
    ] {
        fs::write(&path, content).unwrap();
        let error = open();
        assert!(error.contains(expected) && !error.contains("secret"), "{content}: {error}");
    }
    let store = Store::open(write_bootstrap(&folder, "t", &authority.pem), None).unwrap();
    let ((key, _), (other, _)) = (key_and_request().unwrap(), key_and_request().unwrap());
    for (key, certificate, now) in [
        (&other, authority.sign(&key, 4000), 1000),
        (&key, authority.sign(&key, 4000), 4000),
        (&key, Certificate { certificate: "none".into(), ..authority.sign(&key, 4000) }, 1000),
        (&key, Certificate { ca: "none".into(), ..authority.sign(&key, 4000) }, 1000),
    ] {
        assert!(matches!(store.identity(key, &certificate, now), Err(LinkError::Garbled(_))));
    }
}

#[test]
fn an_authority_that_was_told_of_is_believed_when_enrolling_anew() {
    let (folder, old, new) = (tempfile::tempdir().unwrap(), authority(), authority());
    let store = Store::open(write_bootstrap(&folder, "t", &old.pem), None).unwrap();
    let (key, _) = key_and_request().unwrap();
    store.keep(&store.identity(&key, &new.sign(&key, 4000), 1000).unwrap());
    assert_eq!(store.read_kept().unwrap().ca, new.pem);
    assert!(store.newcomer().is_ok());
}
