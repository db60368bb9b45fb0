//! What the leader keeps on the hub: the Secret with the certificate, and the `ValidatingWebhookConfiguration` and, where pods of
//! control planes ask a resolver, the `MutatingWebhookConfiguration` that send the API server here. Looked at every few seconds and
//! put right: it takes two or three requests to see that all is well.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, GetParams, Patch, PatchParams};
use kube::core::Resource as _;
use kube::core::request::Request;
use kube::{Client, Error};
use manifest::pod_dns::CONTROL_PLANE_LABEL;
use model::identity::Kind;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::certificate::{Kept, Step};
use super::{Admission, POLL, Place, Pods, SECRET};
use crate::apply::{Failure, MANAGED_BY, MANAGER, PUBLISH_NAMESPACE, send_within};
use crate::lease::Term;

/// The name of the `ValidatingWebhookConfiguration`, and of the mutating one.
pub const CONFIGURATION: &str = "fleetgate";
/// What the API server calls us when it says no.
const WEBHOOK: &str = "dnsendpoints.fleetgate.dev";
const PODS_WEBHOOK: &str = "pods.fleetgate.dev";
/// What the API server waits for an answer that takes milliseconds.
const ANSWER_WITHIN: u16 = 5;
/// As long for what is asked of it.
const WITHIN: Duration = Duration::from_secs(2);
/// A configuration that goes while a release is uninstalled must not come back by the hand of a controller that is about to
/// end: it would refuse everything for ever. One that was merely deleted does.
const GONE_FOR: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the hub did not answer in time")]
    Late,
    #[error("the hub cannot be read: {0}")]
    Read(Error),
    #[error("not written: {0}")]
    Write(#[from] Failure),
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
}

/// Until the term is lost.
pub(super) async fn keep(admission: &Admission, client: Client, term: Term) {
    let secrets = Api::namespaced(client.clone(), &admission.settings.namespace);
    let mut registrations = vec![Registration::of(Hook::Validating)];
    registrations.extend(admission.settings.pods.is_some().then(|| Registration::of(Hook::Mutating)));
    let mut keeper = Keeper { admission, client, term, secrets, registrations, standing: None };
    let mut told = None;
    loop {
        let trouble = keeper.round().await.err().map(|trouble| trouble.to_string());
        if trouble.is_some() && trouble != told {
            tracing::warn!(error = trouble, "the admission webhook cannot be kept up; trying again");
        }
        told = trouble;
        if keeper.term.lost().run_until_cancelled(tokio::time::sleep(POLL)).await.is_none() {
            break;
        }
    }
    admission.metrics.registered.set(0);
}

#[derive(Debug, Clone, Copy)]
enum Hook {
    Validating,
    Mutating,
}

impl Hook {
    fn kind(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        }
    }

    fn path(self) -> Request {
        Request::new(match self {
            Self::Validating => ValidatingWebhookConfiguration::url_path(&(), None),
            Self::Mutating => MutatingWebhookConfiguration::url_path(&(), None),
        })
    }
}

/// What has the API server ask.
struct Registration {
    hook: Hook,
    /// Since when there has been none.
    gone_since: Option<Instant>,
    /// There was nothing when we came: it is made at once.
    founding: bool,
}

impl Registration {
    fn of(hook: Hook) -> Self {
        Self { hook, gone_since: None, founding: false }
    }
}

struct Keeper<'a> {
    admission: &'a Admission,
    client: Client,
    term: Term,
    secrets: Api<Secret>,
    registrations: Vec<Registration>,
    /// Since when the API server has been told to trust this version of the Secret, wherever it asks.
    standing: Option<(String, Instant)>,
}

impl Keeper<'_> {
    async fn round(&mut self) -> Result<(), Trouble> {
        let Some((kept, version)) = self.certificates().await? else { return Ok(()) };
        let (mut right, mut trouble) = (true, Ok(()));
        for number in 0..self.registrations.len() {
            // One that cannot be kept is no reason to let the other go.
            match self.register(number, &kept).await {
                Ok(registered) => right &= registered,
                Err(failed) => (right, trouble) = (false, Err(failed)),
            }
        }
        self.admission.metrics.registered.set(right.into());
        if !right {
            self.standing = None;
        } else if self.standing.as_ref().is_none_or(|(standing, _)| *standing != version) {
            self.standing = Some((version, Instant::now()));
        }
        trouble
    }

    /// Whether it is there as it should be.
    async fn register(&mut self, number: usize, kept: &Kept) -> Result<bool, Trouble> {
        let registration = &mut self.registrations[number];
        let hook = registration.hook;
        let wanted = configuration(hook, &self.admission.settings, kept);
        let found = found(&self.client, hook).await?;
        if found.as_ref().is_some_and(|found| covers(found, &wanted)) {
            (registration.gone_since, registration.founding) = (None, false);
            return Ok(true);
        }
        // What was trusted before is not any more, or not yet.
        self.standing = None;
        if found.is_none() && !registration.founding {
            let since = *registration.gone_since.get_or_insert_with(Instant::now);
            if since.elapsed() < GONE_FOR {
                return Ok(false);
            }
        }
        let apply = PatchParams::apply(MANAGER).force();
        let write = || hook.path().patch(CONFIGURATION, &apply, &Patch::Apply(&wanted));
        send_within(&self.client, &self.term, write).await?;
        // From now on one that goes was deleted by somebody.
        (registration.gone_since, registration.founding) = (None, false);
        tracing::info!(name = CONFIGURATION, "the {} is as it should be", hook.kind());
        Ok(true)
    }

    /// The certificates as they stand in the Secret, and its version; `None` if they have to be looked at again first.
    async fn certificates(&mut self) -> Result<Option<(Kept, String)>, Trouble> {
        let names = &self.admission.names;
        let now = SystemTime::now();
        let Some(secret) = within(self.secrets.get_opt(SECRET)).await? else {
            // What is served stays good until the new one is trusted.
            let served = self.admission.live.kept().filter(|kept| kept.is_good_now(names, now));
            let kept = match &served {
                Some(kept) => kept.prepared(names, now)?,
                None => Kept::new(names, now)?,
            };
            tracing::info!(secret = SECRET, "there is no certificate for the admission webhook: making one");
            for registration in &mut self.registrations {
                registration.founding = served.is_none();
            }
            return self.write(kept, None).await.map(Some);
        };
        let version = secret.metadata.resource_version.unwrap_or_default();
        let kept = Kept::read(&secret.data.unwrap_or_default());
        let standing = self.standing.as_ref().filter(|(standing, _)| *standing == version).map(|(_, at)| at.elapsed());
        let kept = match kept {
            Ok(kept) => kept,
            Err(unusable) => {
                tracing::warn!(secret = SECRET, "the Secret cannot be used: {unusable}; its content is made anew");
                return self.write(Kept::new(names, now)?, Some(version)).await.map(Some);
            }
        };
        let next = match kept.step(names, now, standing) {
            Step::Rest => {
                self.admission.serve_with(&kept);
                return Ok(Some((kept, version)));
            }
            Step::Replace => Kept::new(names, now)?,
            Step::Prepare => kept.prepared(names, now)?,
            Step::Swap => kept.swapped(),
            Step::Trim => kept.trimmed(),
        };
        self.write(next, Some(version)).await.map(Some)
    }

    /// Over the version that was read, or where nothing is.
    async fn write(&mut self, kept: Kept, version: Option<String>) -> Result<(Kept, String), Trouble> {
        let apply = PatchParams::apply(MANAGER);
        // What nobody else has made, nobody else's hand is in.
        let apply = if version.is_some() { apply.force() } else { apply };
        let namespace = &self.admission.settings.namespace;
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": SECRET,
                "namespace": namespace,
                "resourceVersion": version,
                "labels": { MANAGED_BY: MANAGER },
            },
            "type": "Opaque",
            "data": kept.to_data(),
        });
        let path = Request::new(Secret::url_path(&(), Some(namespace)));
        let written =
            send_within(&self.client, &self.term, || path.patch(SECRET, &apply, &Patch::Apply(&body))).await?;
        self.admission.serve_with(&kept);
        let version = written["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        tracing::info!(secret = SECRET, authorities = kept.authorities.len(), "the certificates have changed");
        Ok((kept, version))
    }
}

async fn found(client: &Client, hook: Hook) -> Result<Option<Value>, Trouble> {
    let request = hook.path().get(CONFIGURATION, &GetParams::default());
    let request = request.map_err(|error| Trouble::Read(Error::BuildRequest(error)))?;
    match within(client.request(request)).await {
        Err(Trouble::Read(Error::Api(status))) if status.code == 404 => Ok(None),
        found => found.map(Some),
    }
}

async fn within<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Trouble> {
    timeout(WITHIN, request).await.map_err(|_| Trouble::Late)?.map_err(Trouble::Read)
}

fn configuration(hook: Hook, settings: &super::Settings, kept: &Kept) -> Value {
    let path = super::path(&kept.token);
    let bundle = k8s_openapi::ByteString(kept.bundle().into_bytes());
    let client = match &settings.place {
        Place::Service(name) => json!({
            "service": { "namespace": settings.namespace, "name": name, "path": path, "port": 443 },
            "caBundle": bundle,
        }),
        Place::Url { base, .. } => json!({ "url": format!("{base}{path}"), "caBundle": bundle }),
    };
    let mut webhook = match (hook, &settings.pods) {
        (Hook::Mutating, Some(pods)) => of_pods(pods),
        _ => of_records(settings),
    };
    webhook["admissionReviewVersions"] = json!(["v1"]);
    webhook["clientConfig"] = client;
    webhook["matchPolicy"] = "Equivalent".into();
    webhook["sideEffects"] = "None".into();
    webhook["timeoutSeconds"] = ANSWER_WITHIN.into();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": hook.kind(),
        "metadata": { "name": CONFIGURATION },
        "webhooks": [webhook],
    })
}

/// Tenants' objects, in namespaces that are not ours.
fn of_records(settings: &super::Settings) -> Value {
    let (group, version) = Kind::DnsEndpoint.api_version().split_once('/').unwrap_or_default();
    let ours = [settings.namespace.as_str(), PUBLISH_NAMESPACE];
    json!({
        "name": WEBHOOK,
        "failurePolicy": settings.failure_policy.as_str(),
        "namespaceSelector": { "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ours },
        ]},
        "objectSelector": {},
        "rules": [{
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": ["CREATE", "UPDATE"],
            "resources": [Kind::DnsEndpoint.plural()],
            "scope": "Namespaced",
        }],
    })
}

/// Pods that ask for it, wherever they are: what is in the wrong namespace is refused.
fn of_pods(pods: &Pods) -> Value {
    json!({
        "name": PODS_WEBHOOK,
        "failurePolicy": pods.failure_policy.as_str(),
        "namespaceSelector": {},
        "objectSelector": { "matchExpressions": [{ "key": CONTROL_PLANE_LABEL, "operator": "Exists" }] },
        "reinvocationPolicy": "Never",
        "rules": [{
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }],
    })
}

/// Whether all that is wanted is there. What others have added is theirs: of things with names, those of other names.
fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) if wanted.is_empty() => found.is_empty(),
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| found.get(key).is_some_and(|found| covers(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) if wanted.iter().all(|one| one.get("name").is_some()) => {
            let named = |wanted: &Value| found.iter().find(|found| found["name"] == wanted["name"]);
            wanted.iter().all(|wanted| named(wanted).is_some_and(|found| covers(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| covers(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_add_is_theirs_and_what_they_change_is_put_right() {
        let wanted = json!({ "webhooks": [{ "name": "a", "timeoutSeconds": 5, "rules": [{ "operations": ["CREATE"] }], "objectSelector": {} }] });
        for (found, right) in [
            (wanted.clone(), true),
            (json!({ "x": 1, "webhooks": [{ "name": "b" }, wanted["webhooks"][0]] }), true),
            (json!({ "webhooks": [] }), false),
            (json!({}), false),
            (
                json!({ "webhooks": [{ "name": "a", "timeoutSeconds": 6, "rules": [{ "operations": ["CREATE"] }], "objectSelector": {} }] }),
                false,
            ),
            (
                json!({ "webhooks": [{ "name": "a", "timeoutSeconds": 5, "rules": [{ "operations": [] }], "objectSelector": {} }] }),
                false,
            ),
            (
                json!({ "webhooks": [{ "name": "a", "timeoutSeconds": 5, "rules": [{ "operations": ["CREATE"] }], "objectSelector": { "matchLabels": { "a": "b" } } }] }),
                false,
            ),
        ] {
            assert_eq!(covers(&found, &wanted), right, "{found}");
        }
    }
}
