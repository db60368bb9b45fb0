//! The certificate that the API server finds us by, and how one follows another without a gap.
//!
//! Each comes from an authority of its own, whose key is thrown away once it has signed: there is nothing at rest that could
//! sign another. A new one is first prepared, with its authority beside the old one in what the API server trusts; then it
//! is served; then the old authority goes. All of it stands in one Secret, so that whoever leads next goes on from there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use ring::rand::{Random, SystemRandom, generate};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// How long one is good for, and from when on another follows it: a month to notice that none does.
const LIFE: Duration = Duration::from_hours(90 * 24);
const RENEW_BEFORE: Duration = Duration::from_hours(30 * 24);
/// An API server whose clock is behind ours takes it all the same.
const SKEW: Duration = Duration::from_hours(1);
/// API servers watch what they trust and know of a change within a second or so.
const UNTIL_TRUSTED: Duration = Duration::from_secs(10);
/// All replicas look every few seconds, and serve the new one by then.
const UNTIL_SERVED: Duration = Duration::from_mins(1);
const END: &str = "-----END CERTIFICATE-----";

/// The keys of the Secret.
const AUTHORITIES: &str = "ca.crt";
const CURRENT: (&str, &str) = ("tls.crt", "tls.key");
const NEXT: (&str, &str) = ("next.crt", "next.key");
const TOKEN: &str = "token";

/// What the Secret holds.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// What the API server is to trust, each in PEM.
    pub(super) authorities: Vec<String>,
    current: Pair,
    /// Not served before its authority is trusted everywhere.
    next: Option<Pair>,
    /// The last part of the path that is asked for: only the API server knows it, so that nobody else in the hub's network
    /// asks what a tenant may have, or spends its changes.
    pub(super) token: String,
}

/// A certificate with its authority below it, and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    certificate: String,
    key: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Rest,
    /// What is there is good for nothing: all anew, at once.
    Replace,
    /// Another is made and shown to the API server, but not served yet.
    Prepare,
    /// The prepared one is served.
    Swap,
    /// The authority of the one before is not trusted any more.
    Trim,
}

/// Why a Secret is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it has no {0}")]
    Missing(&'static str),
    #[error("its {0} cannot be read")]
    Unreadable(&'static str),
}

impl Kept {
    pub(super) fn new(names: &[String], now: SystemTime) -> Result<Self, rcgen::Error> {
        let (authority, current) = Pair::issue(names, now)?;
        Ok(Self { authorities: vec![authority], current, next: None, token: new_token()? })
    }

    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, Unusable> {
        let text = |key: &'static str| {
            let octets = data.get(key).ok_or(Unusable::Missing(key))?;
            String::from_utf8(octets.0.clone()).map_err(|_| Unusable::Unreadable(key))
        };
        let pair = |(certificate, key)| -> Result<Pair, Unusable> {
            let pair = Pair { certificate: text(certificate)?, key: text(key)? };
            pair.certified().map(|_| pair).ok_or(Unusable::Unreadable(certificate))
        };
        let token = text(TOKEN)?;
        if token.len() < 32 || !token.bytes().all(|octet| octet.is_ascii_alphanumeric()) {
            return Err(Unusable::Unreadable(TOKEN));
        }
        let authorities: Vec<String> =
            text(AUTHORITIES)?.split_inclusive(END).map(one_line_end).filter(|one| one.ends_with(END)).collect();
        if authorities.is_empty() {
            return Err(Unusable::Unreadable(AUTHORITIES));
        }
        let next = data.contains_key(NEXT.0).then(|| pair(NEXT)).transpose()?;
        Ok(Self { authorities, current: pair(CURRENT)?, next, token })
    }

    pub(super) fn to_data(&self) -> BTreeMap<&'static str, ByteString> {
        let octets = |text: &str| ByteString(text.as_bytes().to_vec());
        let mut data = BTreeMap::from([
            (AUTHORITIES, octets(&self.bundle())),
            (CURRENT.0, octets(&self.current.certificate)),
            (CURRENT.1, octets(&self.current.key)),
            (TOKEN, octets(&self.token)),
        ]);
        if let Some(next) = &self.next {
            data.extend([(NEXT.0, octets(&next.certificate)), (NEXT.1, octets(&next.key))]);
        }
        data
    }

    /// What the API server is to trust.
    pub(super) fn bundle(&self) -> String {
        self.authorities.join("\n") + "\n"
    }

    /// What is to be done next; `standing` is for how long the API server has been told to trust exactly this.
    pub(super) fn step(&self, names: &[String], now: SystemTime, standing: Option<Duration>) -> Step {
        let stood = |long: Duration| standing.is_some_and(|standing| standing >= long);
        if !self.is_good(&self.current, names, now) {
            return Step::Replace;
        }
        match &self.next {
            Some(next) if !self.is_good(next, names, now) => Step::Prepare,
            Some(_) if stood(UNTIL_TRUSTED) => Step::Swap,
            None if !self.is_good(&self.current, names, now + RENEW_BEFORE) => Step::Prepare,
            None if stood(UNTIL_SERVED) && self.trimmed() != *self => Step::Trim,
            _ => Step::Rest,
        }
    }

    pub(super) fn prepared(&self, names: &[String], now: SystemTime) -> Result<Self, rcgen::Error> {
        let (authority, next) = Pair::issue(names, now)?;
        let mut kept = self.trimmed();
        kept.authorities.push(authority);
        Ok(Self { next: Some(next), ..kept })
    }

    pub(super) fn swapped(&self) -> Self {
        let current = self.next.clone().unwrap_or_else(|| self.current.clone());
        Self { current, next: None, ..self.clone() }
    }

    /// With the authority of what is served alone.
    pub(super) fn trimmed(&self) -> Self {
        let mut kept = Self { next: None, ..self.clone() };
        // It stands below the certificate. Where somebody else's hand was at work, all stay.
        kept.authorities.retain(|authority| self.current.certificate.contains(authority));
        if kept.authorities.is_empty() {
            kept.authorities.clone_from(&self.authorities);
        }
        kept
    }

    pub(super) fn is_good_now(&self, names: &[String], now: SystemTime) -> bool {
        self.is_good(&self.current, names, now)
    }

    /// Whether an API server that is told to trust our authorities would take it for these names at that time.
    fn is_good(&self, pair: &Pair, names: &[String], at: SystemTime) -> bool {
        let at = at.duration_since(SystemTime::UNIX_EPOCH).map(UnixTime::since_unix_epoch);
        at.is_ok_and(|at| pair.is_taken(&self.authorities, names, at))
    }
}

impl Pair {
    /// And the authority that vouches for it.
    fn issue(names: &[String], now: SystemTime) -> Result<(String, Self), rcgen::Error> {
        let (from, to) = (now - SKEW, now + LIFE);
        let mut params = CertificateParams::default();
        // No two have the same name: by that they are told apart.
        params.distinguished_name.push(DnType::CommonName, format!("fleetgate admission {}", new_token()?));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        (params.not_before, params.not_after) = (from.into(), to.into());
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "fleetgate admission");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (from.into(), to.into());
        let key = KeyPair::generate()?;
        let authority_text = one_line_end(&authority.pem());
        let certificate = format!("{}\n{authority_text}\n", one_line_end(&params.signed_by(&key, &authority)?.pem()));
        Ok((authority_text, Self { certificate, key: key.serialize_pem() }))
    }

    /// With a key that fits.
    fn certified(&self) -> Option<CertifiedKey> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).ok()?;
        CertifiedKey::from_der(vec![certificate], key, &provider()).ok()
    }

    fn is_taken(&self, authorities: &[String], names: &[String], at: UnixTime) -> bool {
        let verify = || {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                // Neither it nor what it vouches for counts.
                let _ = roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).ok()?);
            }
            let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider()).build().ok()?;
            let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).ok()?;
            for name in names {
                let name = ServerName::try_from(name.as_str()).ok()?;
                verifier.verify_server_cert(&certificate, &[], &name, &[], at).ok()?;
            }
            Some(())
        };
        verify().is_some()
    }
}

/// What is served, and where it is asked for: changed while connections go on.
#[derive(Default)]
pub(super) struct Live {
    kept: ArcSwapOption<Kept>,
    served: ArcSwapOption<CertifiedKey>,
}

impl Live {
    /// Whether that is another certificate than before.
    pub(super) fn take(&self, kept: &Kept) -> bool {
        let before = self.kept.swap(Some(Arc::new(kept.clone())));
        let changed = before.is_none_or(|before| before.current != kept.current);
        if changed && let Some(certified) = kept.current.certified() {
            self.served.store(Some(Arc::new(certified)));
        }
        changed
    }

    pub(super) fn kept(&self) -> Option<Arc<Kept>> {
        self.kept.load_full()
    }
}

impl std::fmt::Debug for Live {
    /// Never a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Live {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.served.load_full()
    }
}

/// As it is compared: without what surrounds it, and with plain ends of lines.
fn one_line_end(pem: &str) -> String {
    pem.trim().replace('\r', "")
}

/// 128 bits that nobody guesses.
fn new_token() -> Result<String, rcgen::Error> {
    let random: Random<[u8; 16]> = generate(&SystemRandom::new()).map_err(|_| rcgen::Error::RingUnspecified)?;
    Ok(format!("{:032x}", u128::from_be_bytes(random.expose())))
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (own, now) = (names(&["a.b.svc", "127.0.0.1", "::1"]), SystemTime::now());
        let kept = Kept::new(&own, now).unwrap();
        for kept in [kept.prepared(&own, now).unwrap(), kept] {
            let data = kept.to_data().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            assert!(Kept::read(&data).unwrap() == kept);
            assert_eq!(kept.step(&own, now, None), Step::Rest);
        }
    }

    #[test]
    fn a_secret_that_was_tampered_with_is_of_no_use() {
        let (own, now) = (names(&["a.b.svc"]), SystemTime::now());
        let kept = Kept::new(&own, now).unwrap();
        let other = Kept::new(&own, now).unwrap();
        let good: BTreeMap<String, ByteString> =
            kept.to_data().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        for key in [AUTHORITIES, CURRENT.0, CURRENT.1, TOKEN] {
            let without: BTreeMap<_, _> = good.clone().into_iter().filter(|(name, _)| name != key).collect();
            assert!(Kept::read(&without).is_err(), "{key}");
            for wrong in [b"x".to_vec(), vec![0xff; 40], Vec::new()] {
                let mut data = good.clone();
                data.insert(key.into(), ByteString(wrong));
                assert!(Kept::read(&data).is_err(), "{key}");
            }
        }
        // A key of another certificate.
        let mut data = good.clone();
        data.insert(CURRENT.1.into(), ByteString(other.current.key.clone().into_bytes()));
        assert!(Kept::read(&data).is_err());
        // An authority that does not vouch for it.
        let strange = Kept { authorities: other.authorities, ..kept };
        assert_eq!(strange.step(&own, now, None), Step::Replace);
    }

    /// From the first day to the day after the next rotation; at each step the API server takes what is served.
    #[test]
    fn one_certificate_follows_another_without_a_gap() {
        let (own, start) = (names(&["a.b.svc"]), SystemTime::now());
        let (soon, long) = (Some(Duration::from_secs(5)), Some(Duration::from_mins(5)));
        let first = Kept::new(&own, start).unwrap();
        for (day, step) in
            [(0, Step::Rest), (59, Step::Rest), (61, Step::Prepare), (89, Step::Prepare), (91, Step::Replace)]
        {
            assert_eq!(first.step(&own, start + DAY * day, long), step, "day {day}");
        }
        let now = start + DAY * 61;

        let prepared = first.prepared(&own, now).unwrap();
        assert_eq!(prepared.authorities.len(), 2);
        assert!(prepared.current == first.current && prepared.token == first.token);
        for (standing, step) in [(None, Step::Rest), (soon, Step::Rest), (long, Step::Swap)] {
            assert_eq!(prepared.step(&own, now, standing), step);
        }
        let swapped = prepared.swapped();
        assert!(swapped.current != first.current && swapped.authorities == prepared.authorities);
        // A replica that still serves the old one is still trusted.
        assert!(swapped.is_good(&first.current, &own, now));
        for (standing, step) in [(None, Step::Rest), (soon, Step::Rest), (long, Step::Trim)] {
            assert_eq!(swapped.step(&own, now, standing), step);
        }
        let trimmed = swapped.trimmed();
        assert_eq!(trimmed.authorities.len(), 1);
        assert!(!trimmed.is_good(&first.current, &own, now));
        assert_eq!(trimmed.step(&own, now, long), Step::Rest);
    }

    #[test]
    fn another_name_wants_another_certificate() {
        let now = SystemTime::now();
        let kept = Kept::new(&names(&["a.b.svc"]), now).unwrap();
        assert_eq!(kept.step(&names(&["127.0.0.1"]), now, None), Step::Replace);
        // Prepared again and again, it never trusts more than two.
        let own = names(&["a.b.svc"]);
        let again = kept.prepared(&own, now).unwrap().prepared(&own, now).unwrap();
        assert_eq!(again.authorities.len(), 2);
        assert_eq!(again.swapped().step(&own, now, None), Step::Rest);
    }
}
