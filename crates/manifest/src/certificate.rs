//! A Secret of type `kubernetes.io/tls`: a certificate, those that signed it, and its key. No text here repeats what is in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use model::ingress::Certificate;
use model::{Digest, ObjectName, Refusal};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The only type of Secret that certificates are read from.
pub const TLS_SECRET: &str = "kubernetes.io/tls";
/// Real chains have two to five.
const MOST_CERTIFICATES: usize = 16;

/// `None` for a Secret of another type, which is none of our business.
pub fn read(secret: &Secret) -> Option<Result<Arc<Certificate>, Refusal>> {
    if secret.type_.as_deref() != Some(TLS_SECRET) {
        return None;
    }
    Some(certificate(secret).map(Arc::new).map_err(|reason| {
        let name = secret.metadata.name.as_deref().and_then(|name| name.parse::<ObjectName>().ok());
        match name {
            Some(name) => Refusal::BadCertificate { name, reason },
            None => Refusal::Malformed { reason },
        }
    }))
}

fn certificate(secret: &Secret) -> Result<Certificate, String> {
    let data = secret.data.as_ref();
    let texts = secret.string_data.as_ref();
    let entry = |key: &str| {
        // As an API server has it: what stands in `stringData` is written over `data`.
        let text = texts.and_then(|texts: &BTreeMap<String, String>| texts.get(key)).map(String::as_bytes);
        let octets = || data.and_then(|data| data.get(key)).map(|octets| octets.0.as_slice());
        text.or_else(octets).ok_or_else(|| format!("it has no {key}"))
    };
    let chain = chain(entry("tls.crt")?).map_err(|reason| format!("tls.crt: {reason}"))?;
    let key = PrivateKeyDer::from_pem_slice(entry("tls.key")?)
        .map_err(|_| "tls.key: it is no private key in PEM form".to_owned())?;
    let key = key.secret_der().to_vec();
    let all: Vec<u8> = chain.iter().flatten().chain(&key).copied().collect();
    Ok(Certificate { digest: Digest::of_text(&all), chain, key })
}

/// One certificate or more, in PEM form.
pub(crate) fn chain(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut chain = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "it is no PEM".to_owned())?;
        let number = chain.len() + 1;
        if number > MOST_CERTIFICATES {
            return Err(format!("it has more than {MOST_CERTIFICATES} certificates"));
        }
        match x509_parser::parse_x509_certificate(&certificate) {
            Ok(([], _)) => chain.push(certificate.to_vec()),
            _ => return Err(format!("number {number} is no X.509 certificate")),
        }
    }
    if chain.is_empty() { Err("there is no certificate in PEM form".to_owned()) } else { Ok(chain) }
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    /// A certificate and its key, in PEM form.
    pub(crate) fn pair(host: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn secret(type_: &str, certificate: &str, key: &str) -> Secret {
        let entries = [("tls.crt", certificate), ("tls.key", key)].into_iter().filter(|(_, value)| !value.is_empty());
        let data = entries.map(|(name, value)| (name.to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        let metadata = ObjectMeta { name: Some("shop-tls".into()), ..ObjectMeta::default() };
        Secret { data: Some(data), metadata, type_: Some(type_.into()), ..Secret::default() }
    }

    #[test]
    fn certificates_are_read_or_refused_without_telling_what_is_in_them() {
        let (certificate, key) = pair("shop.test");
        let both = format!("{certificate}{}", pair("authority.test").0);
        let many = certificate.repeat(17);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (crt, tls_key, expected) in [
            (certificate.as_str(), key.as_str(), Ok(1)),
            (&both, &key, Ok(2)),
            (&many, &key, Err("tls.crt: it has more than 16 certificates")),
            ("", &key, Err("it has no tls.crt")),
            (&certificate, "", Err("it has no tls.key")),
            ("a certificate", &key, Err("tls.crt: there is no certificate in PEM form")),
            (&key, &key, Err("tls.crt: there is no certificate in PEM form")),
            (broken, &key, Err("tls.crt: number 1 is no X.509 certificate")),
            ("-----BEGIN CERTIFICATE-----\n", &key, Err("tls.crt: it is no PEM")),
            (&certificate, "a key", Err("tls.key: it is no private key in PEM form")),
            (&certificate, &certificate, Err("tls.key: it is no private key in PEM form")),
        ] {
            let found = read(&secret(TLS_SECRET, crt, tls_key)).unwrap();
            match (found, expected) {
                (Ok(found), Ok(count)) => assert_eq!(found.chain.len(), count),
                (Err(refusal), Err(reason)) => {
                    assert_eq!(refusal.to_string(), format!("Secret shop-tls cannot be used: {reason}"));
                }
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        }
        assert_eq!(read(&secret("Opaque", &certificate, &key)), None);
    }

    #[test]
    fn another_key_is_another_certificate() {
        let ((certificate, key), (_, other)) = (pair("shop.test"), pair("shop.test"));
        let read = |key: &str| read(&secret(TLS_SECRET, &certificate, key)).unwrap().unwrap();
        assert_ne!(read(&key).digest, read(&other).digest);
        assert_eq!(read(&key).digest, read(&key).digest);
        assert!(!format!("{:?}", read(&key)).contains("key"));
    }
}
