//! The tokens of service accounts: what a role or a tenant's kubeconfig holds.

use crate::access::KubectlError;
use crate::api_server::ApiServer;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use std::fs;
use std::time::{Duration, SystemTime};

/// As long as any test lasts.
const LIFETIME: Duration = Duration::from_hours(1);

/// Kubernetes takes a token for so long after its end.
const CLOCKS_DIFFER: Duration = Duration::from_mins(1);

impl ApiServer {
    /// A token that the server itself gave out. It refuses a lifetime under 10 minutes.
    pub fn service_account_token(
        &self,
        namespace: &str,
        name: &str,
        lifetime: Duration,
    ) -> Result<String, KubectlError> {
        let duration = format!("--duration={}s", lifetime.as_secs());
        let token = self.kubectl(&["create", "token", name, "--namespace", namespace, &duration])?;
        Ok(token.trim_end().to_owned())
    }

    /// A token that is taken no longer than you like, signed with the server's own key. The server looks at a token that
    /// it knows every 10 seconds, so that it may be taken for as long beyond that.
    pub fn expiring_token(&self, namespace: &str, name: &str, taken_for: Duration) -> Result<String, KubectlError> {
        let of_account = ["get", "serviceaccount", name, "--namespace", namespace];
        let uid = self.kubectl(&[&of_account[..], &["--output=jsonpath={.metadata.uid}"]].concat())?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ends = (now + taken_for).saturating_sub(CLOCKS_DIFFER).as_secs();
        let begins = ends.min(now.as_secs());
        let issuer = Self::TOKEN_ISSUER;
        let whose = format!(r#"{{"namespace":"{namespace}","serviceaccount":{{"name":"{name}","uid":"{uid}"}}}}"#);
        let claims =
            format!(r#"{{"iss":"{issuer}","aud":["{issuer}"],"sub":"system:serviceaccount:{namespace}:{name}","#)
                + &format!(r#""iat":{begins},"nbf":{begins},"exp":{ends},"kubernetes.io":{whose}}}"#);
        let signed = [r#"{"alg":"ES256"}"#, &claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part)).join(".");
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(self.sign_token(signed.as_bytes()))))
    }

    /// The kubeconfig of a service account, to run a role with exactly its rights.
    pub fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> Result<String, KubectlError> {
        Ok(self.kubeconfig_with_token(&self.service_account_token(namespace, name, LIFETIME)?))
    }

    fn sign_token(&self, text: &[u8]) -> Vec<u8> {
        let pem = fs::read_to_string(self.work_dir().join("token-signing.key")).expect("it was written at the start");
        let key = KeyPair::from_pem(&pem).expect("it was made by the same library").serialize_der();
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &random)
            .expect("keys are of P-256 unless one asks for others");
        key.sign(&random, text).expect("this machine has random bytes").as_ref().to_vec()
    }
}
