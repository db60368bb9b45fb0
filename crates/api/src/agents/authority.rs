//! The hub's private authority: it is made at the first start, kept, and followed by another one long before its end. It signs
//! the certificates of agents and control planes and those of their doors, and nothing else.
//!
//! An agent holds on to the authorities that it was told when it was issued its credential, for at most [`MAX_VALID`]. So a
//! new one is trusted and told for longer than that before anything is signed with it, and both are trusted meanwhile.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use manifest::agents::Certificate;
use manifest::kept::{self, Authorities};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::RootCertStore;
use rustls::crypto::ring::sign;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use tunnel::Identity;

const DAY: u64 = 24 * 3600;
/// How long a credential may be valid at most.
pub const MAX_VALID: Duration = Duration::from_secs(365 * DAY);
/// An authority's whole life.
const LIFE: u64 = 10 * 365 * DAY;
/// The next one is made at this age: its overlap and a credential's whole life fit into what remains.
const SUCCEEDED: u64 = 7 * 365 * DAY;
/// For this long a new one is only trusted and told, so that no credential is left that does not know of it.
const OVERLAP: u64 = 400 * DAY;
/// An agent that was cut off, or whose credential was revoked, is out after this at the latest, whatever else fails.
const AGENT_LIFE: u64 = 3600;
/// The door's own: made anew from day 20 on, so that an agent whose clock is some days off still trusts it.
const DOOR_LIFE: u64 = 30 * DAY;
pub(super) const DOOR_RENEWAL: u64 = 20 * DAY;
/// Clocks differ.
const SKEW: u64 = 300;
/// A request for a P-256 key has some 500 octets.
const MAX_CSR: usize = 8 << 10;
/// Uncompressed (SEC 1, 2.3.3).
const P256_KEY: usize = 65;

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the authority that is kept cannot be read; delete it for a new one, and issue all credentials anew")]
    Unreadable,
    #[error("no authority is valid at the moment; is the clock right?")]
    NoneValid,
    #[error("a certificate could not be signed")]
    Signing(#[source] rcgen::Error),
}

/// What is wrong with a certificate signing request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the csr is no certificate signing request in PEM form, or its signature is wrong")]
    Malformed,
    #[error("the csr's key must be of ECDSA P-256 or Ed25519")]
    Key,
    #[error("the certificate could not be signed")]
    Signing,
}

/// The authorities of a moment.
pub struct Signer {
    issuer: Issuer<'static, KeyPair>,
    pub(super) roots: Arc<RootCertStore>,
    /// All that are trusted, in PEM form.
    pub(super) trusted: String,
}

/// What should be kept at a moment, where that is something else than what is.
pub fn due(kept: Option<&Authorities>, now: u64) -> Result<Option<Authorities>, AuthorityError> {
    let Some(Authorities(kept)) = kept else { return Ok(Some(Authorities(vec![make(now)?]))) };
    let mut next: Vec<kept::Authority> = kept.iter().filter(|authority| is_valid(authority, now)).cloned().collect();
    if next.iter().all(|authority| authority.made.saturating_add(SUCCEEDED) <= now) {
        next.push(make(now)?);
    }
    Ok((next != *kept).then_some(Authorities(next)))
}

fn is_valid(authority: &kept::Authority, now: u64) -> bool {
    now < authority.made.saturating_add(LIFE)
}

fn make(now: u64) -> Result<kept::Authority, AuthorityError> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Signing)?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Fleetgate agents' authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    limit(&mut params, now, LIFE);
    let certificate = params.self_signed(&key).map_err(AuthorityError::Signing)?.pem();
    Ok(kept::Authority { made: now, certificate, key: key.serialize_pem() })
}

impl Signer {
    pub fn load(Authorities(kept): &Authorities, now: u64) -> Result<Self, AuthorityError> {
        let valid = || kept.iter().filter(|authority| is_valid(authority, now));
        // The newest that everybody knows of; at first there is but one, which nobody has to hear of first.
        let known = valid().rfind(|authority| authority.made.saturating_add(OVERLAP) <= now);
        let signs = known.or_else(|| valid().next()).ok_or(AuthorityError::NoneValid)?;
        let key = KeyPair::from_pem(&signs.key).map_err(|_| AuthorityError::Unreadable)?;
        let issuer = Issuer::from_ca_cert_pem(&signs.certificate, key).map_err(|_| AuthorityError::Unreadable)?;
        let mut roots = RootCertStore::empty();
        for authority in valid() {
            let certificate = CertificateDer::from_pem_slice(authority.certificate.as_bytes());
            let certificate = certificate.map_err(|_| AuthorityError::Unreadable)?;
            roots.add(certificate).map_err(|_| AuthorityError::Unreadable)?;
        }
        let trusted = valid().map(|authority| authority.certificate.as_str()).collect();
        Ok(Self { issuer, roots: Arc::new(roots), trusted })
    }

    /// Of the request only the key counts.
    pub fn sign_agent(&self, csr: &str, identity: &Identity, now: u64) -> Result<Certificate, RequestError> {
        self.sign(csr, identity, now, AGENT_LIFE)
    }

    /// For as long as its credential is valid: kube-apiserver does not read its certificate again. What lasts so long is trusted to its end, as
    /// an authority stops to sign more than [`MAX_VALID`] before its own.
    pub fn sign_control_plane(
        &self,
        csr: &str,
        identity: &Identity,
        now: u64,
        valid: Duration,
    ) -> Result<Certificate, RequestError> {
        self.sign(csr, identity, now, valid.min(MAX_VALID).as_secs())
    }

    fn sign(&self, csr: &str, identity: &Identity, now: u64, life: u64) -> Result<Certificate, RequestError> {
        let request = read_request(csr)?;
        let key = &request.public_key;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, identity.cluster.as_str());
        let uri = identity.to_string().try_into().map_err(|_| RequestError::Signing)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (valid_from, expires) = limit(&mut params, now, life);
        leaf(&mut params);
        let signed = params.signed_by(key, &self.issuer).map_err(|_| RequestError::Signing)?;
        Ok(Certificate { certificate: signed.pem(), ca: self.trusted.clone(), valid_from, expires })
    }

    /// For the doors of another of the hub's processes, which has no authority; of the request only the key counts.
    pub(super) fn sign_gateway(&self, csr: &str, names: &[String], now: u64) -> Result<Certificate, RequestError> {
        let request = read_request(csr)?;
        let mut params = CertificateParams::new(names).map_err(|_| RequestError::Signing)?;
        params.distinguished_name.push(DnType::CommonName, "Fleetgate agents' door");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (valid_from, expires) = limit(&mut params, now, DOOR_LIFE);
        leaf(&mut params);
        let signed = params.signed_by(&request.public_key, &self.issuer).map_err(|_| RequestError::Signing)?;
        Ok(Certificate { certificate: signed.pem(), ca: self.trusted.clone(), valid_from, expires })
    }

    /// For the door itself.
    pub(super) fn sign_door(
        &self,
        names: &[String],
        addresses: &[IpAddr],
        now: u64,
    ) -> Result<CertifiedKey, AuthorityError> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(AuthorityError::Signing)?;
        let mut params = CertificateParams::new(names).map_err(AuthorityError::Signing)?;
        params.subject_alt_names.extend(addresses.iter().copied().map(SanType::IpAddress));
        params.distinguished_name.push(DnType::CommonName, "Fleetgate agents' door");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        limit(&mut params, now, DOOR_LIFE);
        leaf(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).map_err(AuthorityError::Signing)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = sign::any_ecdsa_type(&key).map_err(|_| AuthorityError::Unreadable)?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
    }
}

fn read_request(csr: &str) -> Result<CertificateSigningRequestParams, RequestError> {
    if csr.len() > MAX_CSR {
        return Err(RequestError::Malformed);
    }
    let request = CertificateSigningRequestParams::from_pem(csr).map_err(|_| RequestError::Malformed)?;
    let key = &request.public_key;
    // The library goes by the signature's algorithm, which does not tell the curve.
    let is_p256 = *key.algorithm() == rcgen::PKCS_ECDSA_P256_SHA256 && key.der_bytes().len() == P256_KEY;
    if !is_p256 && *key.algorithm() != rcgen::PKCS_ED25519 {
        return Err(RequestError::Key);
    }
    Ok(request)
}

fn leaf(params: &mut CertificateParams) {
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
}

/// Returns its beginning and its end, and gives it a number of its own.
fn limit(params: &mut CertificateParams, now: u64, life: u64) -> (u64, u64) {
    let at = |seconds| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    let (from, until) = (now.saturating_sub(SKEW), now.saturating_add(life));
    params.not_before = at(from);
    params.not_after = at(until);
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).expect("the operating system has random octets");
    // RFC 5280 4.1.2.2: positive.
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    (from, until)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::UnixTime;
    use rustls::server::WebPkiClientVerifier;

    use super::*;

    const START: u64 = 1_800_000_000;

    fn identity() -> Identity {
        Identity {
            role: tunnel::Role::Agent,
            cluster: "c1".parse().unwrap(),
            uid: "u-1".into(),
            credential: "0123456789abcdef".into(),
        }
    }

    fn csr(algorithm: &'static rcgen::SignatureAlgorithm) -> String {
        let key = KeyPair::generate_for(algorithm).unwrap();
        CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap()
    }

    fn signed(signer: &Signer, now: u64) -> CertificateDer<'static> {
        let certificate = signer.sign_agent(&csr(&rcgen::PKCS_ECDSA_P256_SHA256), &identity(), now).unwrap();
        CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap()
    }

    fn trusts(signer: &Signer, certificate: &CertificateDer<'_>, now: u64) -> bool {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&signer.roots), provider).build().unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        verifier.verify_client_cert(certificate, &[], now).is_ok()
    }

    #[test]
    fn an_authority_is_made_once_and_succeeded_in_time() {
        let first = due(None, START).unwrap().unwrap();
        assert_eq!(due(Some(&first), START + SUCCEEDED - 1).unwrap(), None);
        let both = due(Some(&first), START + SUCCEEDED).unwrap().unwrap();
        assert_eq!((both.0.len(), &both.0[0]), (2, &first.0[0]));
        let last = START + LIFE;
        let one = due(Some(&both), last).unwrap().unwrap();
        assert_eq!(one.0, both.0[1..], "one that has expired goes");
        assert_eq!(due(Some(&one), last).unwrap(), None);
    }

    /// Whatever was signed is trusted until its end, by those who know both and by those who know the first alone, as long as
    /// a credential that knows only that may be valid.
    #[test]
    fn a_change_of_authority_leaves_no_gap() {
        let first = due(None, START).unwrap().unwrap();
        let change = START + SUCCEEDED;
        let both = due(Some(&first), change).unwrap().unwrap();
        let (old, new) =
            (Signer::load(&first, START).unwrap(), Signer::load(&Authorities(both.0[1..].to_vec()), change));
        let new = new.unwrap();
        let before = Signer::load(&both, change + MAX_VALID.as_secs()).unwrap();
        assert_eq!(before.trusted.matches("BEGIN CERTIFICATE").count(), 2);
        let certificate = signed(&before, change);
        assert!(trusts(&old, &certificate, change) && trusts(&before, &certificate, change));
        assert!(!trusts(&new, &certificate, change), "the new one has signed nothing yet");
        let after = Signer::load(&both, change + OVERLAP).unwrap();
        let certificate = signed(&after, change + OVERLAP);
        assert!(trusts(&after, &certificate, change + OVERLAP) && trusts(&new, &certificate, change + OVERLAP));
        assert!(!trusts(&old, &certificate, change + OVERLAP));
    }

    #[test]
    fn certificates_of_agents_are_short_and_say_who_they_are() {
        let signer = Signer::load(&due(None, START).unwrap().unwrap(), START).unwrap();
        let certificate = signed(&signer, START);
        assert_eq!(Identity::of(&certificate).as_ref().map(|(identity, _)| identity), Some(&identity()));
        assert!(trusts(&signer, &certificate, START + AGENT_LIFE - 1));
        assert!(!trusts(&signer, &certificate, START + AGENT_LIFE + 1));
        let other = Signer::load(&due(None, START).unwrap().unwrap(), START).unwrap();
        assert!(!trusts(&other, &certificate, START), "another hub's");
        let door = signer.sign_door(&["agents.fleet.example".into()], &[], START).unwrap();
        assert!(!trusts(&signer, &door.cert[0], START), "the door's own is no agent's");
        let names = ["agents.fleet.example".into(), "egress.fleetgate".into()];
        let gateway = signer.sign_gateway(&csr(&rcgen::PKCS_ECDSA_P256_SHA256), &names, START).unwrap();
        let certificate = CertificateDer::from_pem_slice(gateway.certificate.as_bytes()).unwrap();
        assert!(!trusts(&signer, &certificate, START), "neither is a gateway's");
        assert_eq!((gateway.expires, &gateway.ca), (START + DOOR_LIFE, &signer.trusted));
        let server = rustls::server::ParsedCertificate::try_from(&certificate).unwrap();
        for name in ["agents.fleet.example", "egress.fleetgate"] {
            let name = rustls::pki_types::ServerName::try_from(name).unwrap();
            rustls::client::verify_server_name(&server, &name).unwrap();
        }
        assert_eq!(signer.sign_gateway("x", &names, START), Err(RequestError::Malformed));
    }

    /// The last that an authority signs for a control plane is over before the authority is.
    #[test]
    fn certificates_of_control_planes_last_as_long_as_they_may() {
        let both = due(Some(&due(None, START).unwrap().unwrap()), START + SUCCEEDED).unwrap().unwrap();
        let last = START + SUCCEEDED + OVERLAP - 1;
        let signer = Signer::load(&both, last).unwrap();
        let identity = Identity { role: tunnel::Role::ControlPlane, ..identity() };
        let valid = 2 * MAX_VALID;
        let issued = signer.sign_control_plane(&csr(&rcgen::PKCS_ECDSA_P256_SHA256), &identity, last, valid).unwrap();
        assert_eq!(issued.expires, last + MAX_VALID.as_secs(), "never longer than a credential may be valid");
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        assert_eq!(Identity::of(&certificate), Some((identity, issued.expires)));
        let end = issued.expires - 1;
        assert!(trusts(&Signer::load(&both, end).unwrap(), &certificate, end), "until its end");
    }

    #[test]
    fn only_good_requests_are_signed() {
        let signer = Signer::load(&due(None, START).unwrap().unwrap(), START).unwrap();
        let sign = |csr: &str| signer.sign_agent(csr, &identity(), START).map(drop);
        assert_eq!(sign(&csr(&rcgen::PKCS_ED25519)), Ok(()));
        assert_eq!(sign(&csr(&rcgen::PKCS_ECDSA_P384_SHA384)), Err(RequestError::Key));
        let good = csr(&rcgen::PKCS_ECDSA_P256_SHA256);
        let octets = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap();
        let mut changed = octets.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert!(CertificateSigningRequestParams::from_der(&changed.into()).is_err(), "its signature counts");
        for bad in
            ["", "x", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", &good[..200]]
        {
            assert_eq!(sign(bad), Err(RequestError::Malformed), "{bad:?}");
        }
        assert_eq!(sign(&format!("{good}{}", "x".repeat(MAX_CSR))), Err(RequestError::Malformed));
    }
}
