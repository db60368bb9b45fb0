//! A kubeconfig as it is written: what is taken from it, and what must not be there.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Fault, MOST_OCTETS};

/// No `Debug` here: these hold credentials.
#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default, rename = "current-context")]
    current_context: Option<String>,
    #[serde(default)]
    contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) tls_server_name: Option<String>,
    certificate_authority: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) token: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key_data: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_key: Option<String>,
    username: Option<String>,
    password: Option<String>,
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
}

impl File {
    /// The parser's own message may quote the file; only the position is taken from it.
    pub(super) fn parse(octets: &[u8]) -> Result<Self, Fault> {
        if octets.len() > MOST_OCTETS {
            return Err(Fault::TooLarge);
        }
        let text = std::str::from_utf8(octets).map_err(|_| Fault::NotText)?;
        let options = serde_saphyr::options! { with_snippet: false, no_schema: true };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| match error.without_snippet() {
            serde_saphyr::Error::MultipleDocuments { .. } => Fault::SeveralDocuments,
            error => {
                let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
                Fault::Unreadable { line, column }
            }
        })
    }

    /// Looks at every entry, also at those that the current context does not name.
    pub(super) fn check(&self) -> Result<(), Fault> {
        self.clusters().try_for_each(|named| named.cluster.check())?;
        self.users().try_for_each(|named| named.user.check())?;
        unique("contexts", self.contexts().map(|named| named.name.as_str()))?;
        unique("clusters", self.clusters().map(|named| named.name.as_str()))?;
        unique("users", self.users().map(|named| named.name.as_str()))
    }

    pub(super) fn current(&self) -> Result<(&Cluster, &User), Fault> {
        let field = "current-context";
        let current = self.current_context.as_deref().filter(|name| !name.is_empty());
        let current = current.ok_or(Fault::Missing(field))?;
        let context = self.contexts().find(|named| named.name == current);
        let context = &context.ok_or(Fault::Unknown { field, list: "contexts" })?.context;
        let cluster = self.clusters().find(|named| named.name == context.cluster);
        let user = self.users().find(|named| named.name == context.user);
        Ok((
            &cluster.ok_or(Fault::Unknown { field: "contexts[].context.cluster", list: "clusters" })?.cluster,
            &user.ok_or(Fault::Unknown { field: "contexts[].context.user", list: "users" })?.user,
        ))
    }

    fn contexts(&self) -> impl Iterator<Item = &NamedContext> {
        self.contexts.iter().flatten()
    }

    fn clusters(&self) -> impl Iterator<Item = &NamedCluster> {
        self.clusters.iter().flatten()
    }

    fn users(&self) -> impl Iterator<Item = &NamedUser> {
        self.users.iter().flatten()
    }
}

/// Which of two is meant would be anybody's guess.
fn unique<'a>(list: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) { Err(Fault::Twice(list)) } else { Ok(()) }
}

const FILES: &str = "it names a file of the controller's machine; give the data itself";
const IMPERSONATION: &str = "the controller acts for nobody else; give the credential of who is meant";

impl Cluster {
    fn check(&self) -> Result<(), Fault> {
        refuse(&[
            (given(self.certificate_authority.as_ref()), "clusters[].cluster.certificate-authority", FILES),
            (
                self.insecure_skip_tls_verify == Some(true),
                "clusters[].cluster.insecure-skip-tls-verify",
                "whoever is in between would get the credential; give certificate-authority-data",
            ),
            (
                given(self.proxy_url.as_ref()),
                "clusters[].cluster.proxy-url",
                "the controller connects to the server itself",
            ),
        ])
    }
}

impl User {
    fn check(&self) -> Result<(), Fault> {
        let log_in = "Kubernetes has no log-in by password; give a token or a client certificate";
        refuse(&[
            (self.exec.is_some(), "users[].user.exec", "the controller runs no programs of a tenant's"),
            (
                self.auth_provider.is_some(),
                "users[].user.auth-provider",
                "the controller asks no other service; give a token or a client certificate",
            ),
            (given(self.token_file.as_ref()), "users[].user.tokenFile", FILES),
            (given(self.client_certificate.as_ref()), "users[].user.client-certificate", FILES),
            (given(self.client_key.as_ref()), "users[].user.client-key", FILES),
            (given(self.username.as_ref()), "users[].user.username", log_in),
            (given(self.password.as_ref()), "users[].user.password", log_in),
            (given(self.impersonate.as_ref()), "users[].user.as", IMPERSONATION),
            (given(self.as_uid.as_ref()), "users[].user.as-uid", IMPERSONATION),
            (self.as_groups.is_some(), "users[].user.as-groups", IMPERSONATION),
            (self.as_user_extra.is_some(), "users[].user.as-user-extra", IMPERSONATION),
        ])
    }
}

/// An empty text counts as absent, as for kubectl.
fn given(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn refuse(rules: &[(bool, &'static str, &'static str)]) -> Result<(), Fault> {
    match rules.iter().find(|(applies, ..)| *applies) {
        Some(&(_, field, why)) => Err(Fault::Refused { field, why }),
        None => Ok(()),
    }
}
