//! * One request of an agent: who it is, whether that still holds, and what it asks for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::{Method, Request, Response};
use manifest::agents::{
    ClaimChanges, ClaimList, ClaimVerdict, ClusterView, EnrollRequest, JudgeRequest, JudgedClaims, Judgement, MAX_BODY,
    MAX_ENDPOINTS, MAX_KEY, MAX_OBJECTS, MAX_TOTAL, RenewRequest, VerdictList,
};
use manifest::kept::{ClaimChange, Owner};
use model::policy::rate;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tunnel::{Identity, Role};

use super::connection::Peer;
use super::credentials::{self, Token};
use super::limits::source;
use super::load;
use super::problem::{No, json};
use super::standing::{self, Content, Standing};
use super::{Counted, Door, unix_now};

/// A token and a request for a certificate; strangers send no more.
const MAX_SMALL_BODY: usize = 16 << 10;
/// Who is slower holds a place that others wait for.
const BODY_TIME: Duration = Duration::from_secs(30);
/// For what is left of a body that nobody wants any more.
const REST_TIME: Duration = Duration::from_secs(5);
/// How long a request waits for others' to be read.
const BUSY_TIME: Duration = Duration::from_secs(10);
/// The plan comes to a change within milliseconds; a hub may take longer, and then the verdicts follow by `/v1/verdicts`.
const VERDICT_TIME: Duration = Duration::from_secs(2);
/// How long a request for verdicts waits for others.
const NEWS_TIME: Duration = Duration::from_secs(30);
/// A request costs one, and one more for each of this many octets.
const OCTETS_PER_TOKEN: usize = 64 << 10;

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Enroll,
    Renew,
    Cluster,
    Claims,
    Change,
    Judge,
    Verdicts,
    Load,
}

impl Call {
    fn find(method: &Method, path: &str) -> Result<Self, No> {
        let (found, right) = match path {
            "/v1/enroll" => (Self::Enroll, Method::POST),
            "/v1/renew" => (Self::Renew, Method::POST),
            "/v1/cluster" => (Self::Cluster, Method::GET),
            "/v1/claims" if method == Method::POST => (Self::Change, Method::POST),
            "/v1/claims" => (Self::Claims, Method::GET),
            "/v1/judge" => (Self::Judge, Method::POST),
            "/v1/verdicts" => (Self::Verdicts, Method::GET),
            "/v1/load" => (Self::Load, Method::POST),
            _ => return Err(No::no_such_path()),
        };
        if method == right { Ok(found) } else { Err(No::wrong_method()) }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Enroll => "/v1/enroll",
            Self::Renew => "/v1/renew",
            Self::Cluster => "/v1/cluster",
            Self::Claims | Self::Change => "/v1/claims",
            Self::Judge => "/v1/judge",
            Self::Verdicts => "/v1/verdicts",
            Self::Load => "/v1/load",
        }
    }
}

pub(super) async fn answer(door: &Door, peer: &Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, mut body) = request.into_parts();
    let call = Call::find(&head.method, head.uri.path());
    let path = call.as_ref().map_or("other", |call| call.path());
    let lasts = matches!(call, Ok(Call::Load));
    let answer = match call {
        Ok(call) => decide(door, peer, call, head.uri.query(), &mut body).await,
        Err(no) => Err(no),
    };
    if answer.is_err() {
        // What is left of it would end the connection, before the agent has read why.
        let most = if peer.identity.is_some() { 2 * MAX_BODY } else { MAX_SMALL_BODY };
        let rest = async move { timeout(REST_TIME, discard(&mut body, most)).await };
        if lasts {
            // It does not end by itself: whoever sends it is told meanwhile.
            drop(tokio::spawn(rest));
        } else {
            let _ = rest.await;
        }
    }
    door.metrics.count(path, answer.as_ref().map_or_else(|no| no.code, |_| "Ok"));
    answer.map_or_else(Into::into, json)
}

async fn decide(door: &Door, peer: &Peer, call: Call, query: Option<&str>, body: &mut Incoming) -> Result<Vec<u8>, No> {
    if call == Call::Enroll {
        return enroll(door, peer, body).await;
    }
    let (identity, standing) = admit(door, peer).await?;
    match call {
        Call::Enroll => unreachable!("answered above"),
        Call::Renew => renew(door, &identity, body).await,
        Call::Cluster => {
            let (cluster, snapshot) = (identity.cluster.to_string(), door.snapshot.load());
            Ok(to_json(&ClusterView { cluster, suffixes: standing::suffixes(&snapshot, &standing) }))
        }
        Call::Claims => claims(door, &standing).await,
        Call::Change => change(door, &standing, body).await,
        Call::Judge => judge(door, &standing, body).await,
        Call::Verdicts => verdicts(door, &standing, query).await,
        Call::Load => load::receive(door, peer, &standing.owner, body).await.map(|summary| to_json(&summary)),
    }
}

/// Whoever has the secret of a credential whose cluster is still the same.
async fn enroll(door: &Door, peer: &Peer, body: &mut Incoming) -> Result<Vec<u8>, No> {
    let EnrollRequest { token, csr } = read(body, MAX_SMALL_BODY).await?;
    let token = Token::parse(&token);
    let from = (source(peer.address.ip()), token.as_ref().map_or("", |token| token.id).to_owned());
    door.attempts.check(&from).map_err(No::too_fast)?;
    let credential = match token {
        Some(token) => door.home.credential(token.id).await?.filter(|credential| token.opens(credential)),
        None => None,
    };
    let Some(credential) = credential else {
        door.attempts.spend(&from, 1);
        return Err(No::bad_token());
    };
    let now = unix_now();
    if now >= credential.expires {
        return Err(No::token_expired());
    }
    let cluster = credential.cluster.parse().map_err(|_| No::cluster_gone())?;
    let identity =
        Identity { role: Role::Agent, cluster, uid: credential.uid.into(), credential: credential.id.into() };
    door.rates.take(&identity.cluster).map_err(No::too_fast)?;
    standing_of(door, &identity)?;
    confirm(door, &identity).await?;
    tracing::info!(cluster = %identity.cluster, credential = &*identity.credential, "an agent has enrolled");
    sign(door, &csr, &identity, now)
}

/// Whether a certificate that was good when it came is good now.
async fn admit(door: &Door, peer: &Peer) -> Result<(Identity, Standing), No> {
    let Some((identity, expires)) = &peer.identity else { return Err(No::no_certificate()) };
    door.rates.take(&identity.cluster).map_err(No::too_fast)?;
    Ok((identity.clone(), admit_still(door, identity, *expires).await?))
}

/// The same again, of somebody who has been let in.
pub(super) async fn admit_still(door: &Door, identity: &Identity, expires: u64) -> Result<Standing, No> {
    if unix_now() >= expires {
        return Err(No::expired());
    }
    let credential = door.home.credential(&identity.credential).await?;
    if !credential.is_some_and(|credential| credentials::is_of(&credential, identity)) {
        return Err(No::revoked());
    }
    standing_of(door, identity)
}

/// What is signed outlives what is believed.
async fn confirm(door: &Door, identity: &Identity) -> Result<(), No> {
    let credential = door.home.confirm(&identity.credential).await?;
    if credential.is_some_and(|credential| credentials::is_of(&credential, identity)) {
        Ok(())
    } else {
        Err(No::revoked())
    }
}

fn standing_of(door: &Door, identity: &Identity) -> Result<Standing, No> {
    let standing = standing::of(&door.snapshot.load(), &identity.cluster);
    let is_known = door.informed.load(Ordering::Acquire);
    let standing = standing.filter(|standing| standing.owner.uid == identity.uid);
    // Before all of the fleet has been read nobody is gone.
    standing.ok_or_else(|| if is_known { No::cluster_gone() } else { No::uninformed() })
}

async fn renew(door: &Door, identity: &Identity, body: &mut Incoming) -> Result<Vec<u8>, No> {
    let RenewRequest { csr } = read(body, MAX_SMALL_BODY).await?;
    confirm(door, identity).await?;
    sign(door, &csr, identity, unix_now())
}

fn sign(door: &Door, csr: &str, identity: &Identity, now: u64) -> Result<Vec<u8>, No> {
    let keys = door.keys.load_full().ok_or_else(No::no_keys)?;
    let certificate = keys.signer.sign_agent(csr, identity, now).map_err(|error| No::malformed(error.to_string()))?;
    Ok(to_json(&certificate))
}

async fn claims(door: &Door, standing: &Standing) -> Result<Vec<u8>, No> {
    let kept = door.home.claims(&standing.owner).await?;
    let snapshot = door.snapshot.load_full();
    let claims = kept.into_iter().map(|kept| {
        let content = Content::of(&kept.endpoints);
        let verdicts = standing::verdicts(&snapshot, &standing.owner.object(kept.name), &content);
        JudgedClaims { key: kept.key, endpoints: kept.endpoints, digest: content.digest.to_string(), verdicts }
    });
    Ok(to_json(&ClaimList { claims: claims.collect() }))
}

async fn change(door: &Door, standing: &Standing, body: &mut Incoming) -> Result<Vec<u8>, No> {
    let owner = &standing.owner;
    let slot = door.slot(&owner.cluster);
    let mut counted = slot.writing.lock().await;
    let wanted: ClaimChanges = read_large(door, standing, body).await?;
    check_changes(&wanted)?;
    // What is kept is known again only once this has come to its end.
    let after = make_room(door, owner, counted.take(), &wanted).await?;
    let endpoints: usize = wanted.set.iter().map(|claims| claims.endpoints.len()).sum();
    // One for the request itself is gone already.
    door.rates.spend(&owner.cluster, rate::cost(endpoints) - 1);
    let told = wanted.set.iter().map(|claims| (claims.key.clone(), Content::of(&claims.endpoints)));
    let told: Vec<(String, Content)> = told.collect();
    let changed = door.home.change(owner, to_changes(owner, wanted)).await?;
    *counted = Some(after);
    // Those that are set come first.
    let contents = || told.iter().map(|(_, content)| Some(content)).chain(std::iter::repeat(None));
    let judged = || {
        let snapshot = door.snapshot.load();
        let mut changed = changed.iter().zip(contents());
        changed.all(|((object, generation), content)| standing::is_judged(&snapshot, object, content, *generation))
    };
    // Others' changes wait for what is planned: never for more than one request of a cluster's.
    door.verdicts.until(VERDICT_TIME, judged).await;
    drop(counted);
    // Before the snapshot: who asks for what is newer gets too much rather than too little.
    let revision = door.verdicts.revision(&owner.cluster);
    let snapshot = door.snapshot.load_full();
    let verdicts = told.iter().zip(&changed).map(|((key, content), (object, generation))| {
        let is_judged = standing::is_judged(&snapshot, object, Some(content), *generation);
        let verdicts = if is_judged { standing::verdicts(&snapshot, object, content) } else { Vec::new() };
        ClaimVerdict { key: key.clone(), digest: content.digest.to_string(), verdicts }
    });
    Ok(to_json(&VerdictList { revision, verdicts: verdicts.collect() }))
}

/// How much there will be, if that is not too much. On a hub other processes change it too, and the policy has its own
/// quotas: this only keeps anybody from filling the home.
async fn make_room(door: &Door, owner: &Owner, counted: Option<Counted>, wanted: &ClaimChanges) -> Result<Counted, No> {
    let counted = counted.filter(|counted| counted.uid == owner.uid);
    let mut after = if let Some(counted) = counted {
        counted
    } else {
        let kept = door.home.claims(owner).await?.into_iter().map(|kept| (kept.key, kept.endpoints.len()));
        Counted { uid: Arc::clone(&owner.uid), endpoints: kept.collect() }
    };
    for key in &wanted.delete {
        after.endpoints.remove(key);
    }
    after.endpoints.extend(wanted.set.iter().map(|claims| (claims.key.clone(), claims.endpoints.len())));
    if after.endpoints.len() > MAX_OBJECTS {
        return Err(No::too_large(format!("a cluster has at most {MAX_OBJECTS} keys")));
    }
    if after.endpoints.values().sum::<usize>() > MAX_TOTAL {
        return Err(No::too_large(format!("a cluster has at most {MAX_TOTAL} endpoints in all")));
    }
    Ok(after)
}

/// What is set, and then what is to be gone.
fn to_changes(owner: &Owner, wanted: ClaimChanges) -> Vec<ClaimChange> {
    let gone = wanted.delete.into_iter().map(|key| (key, None));
    let set = wanted.set.into_iter().map(|claims| (claims.key, Some(claims.endpoints)));
    let changes = set.chain(gone).map(|(key, endpoints)| {
        let name = standing::object_name(&owner.cluster, &key);
        ClaimChange { name, key, endpoints }
    });
    changes.collect()
}

/// Each key once, and of the right form.
fn check_changes(changes: &ClaimChanges) -> Result<(), No> {
    let mut keys = BTreeSet::new();
    for key in changes.set.iter().map(|claims| &claims.key).chain(&changes.delete) {
        let plain =
            |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || matches!(octet, b'.' | b'/' | b'-');
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(plain) {
            return Err(No::malformed(format!("a key has 1 to {MAX_KEY} of a-z, 0-9, `.`, `/` and `-`")));
        }
        if !keys.insert(key) {
            return Err(No::malformed(format!("the key {key} comes twice")));
        }
    }
    if keys.len() > MAX_OBJECTS {
        return Err(No::too_large(format!("at most {MAX_OBJECTS} keys in one request")));
    }
    match changes.set.iter().find(|claims| claims.endpoints.len() > MAX_ENDPOINTS) {
        Some(claims) => Err(No::too_large(format!("{} has more than {MAX_ENDPOINTS} endpoints", claims.key))),
        None => Ok(()),
    }
}

async fn judge(door: &Door, standing: &Standing, body: &mut Incoming) -> Result<Vec<u8>, No> {
    let slot = door.slot(&standing.owner.cluster);
    let _one_at_a_time = slot.writing.lock().await;
    let JudgeRequest { endpoints } = read_large(door, standing, body).await?;
    if endpoints.len() > MAX_TOTAL {
        return Err(No::too_large(format!("at most {MAX_TOTAL} endpoints in one request")));
    }
    Ok(to_json(&Judgement { verdicts: standing::judge(&door.snapshot.load(), standing, &endpoints) }))
}

async fn verdicts(door: &Door, standing: &Standing, query: Option<&str>) -> Result<Vec<u8>, No> {
    let cluster = &standing.owner.cluster;
    let known = match query.unwrap_or_default() {
        "" => None,
        query => {
            let number = query.strip_prefix("after=").and_then(|number| number.parse::<u64>().ok());
            Some(number.ok_or_else(|| No::malformed("after must be a number: /v1/verdicts?after=N"))?)
        }
    };
    if let Some(known) = known {
        door.verdicts.until(NEWS_TIME, || door.verdicts.revision(cluster) != known).await;
    }
    let revision = door.verdicts.revision(cluster);
    let kept = door.home.claims(&standing.owner).await?;
    let snapshot = door.snapshot.load_full();
    let verdicts = kept.into_iter().map(|kept| {
        let content = Content::of(&kept.endpoints);
        let verdicts = standing::verdicts(&snapshot, &standing.owner.object(kept.name), &content);
        ClaimVerdict { key: kept.key, digest: content.digest.to_string(), verdicts }
    });
    Ok(to_json(&VerdictList { revision, verdicts: verdicts.collect() }))
}

/// With a place among those that read as much, and counted by its size.
async fn read_large<T: DeserializeOwned>(door: &Door, standing: &Standing, body: &mut Incoming) -> Result<T, No> {
    let place = timeout(BUSY_TIME, door.bodies.acquire()).await;
    let _place = place.ok().and_then(Result::ok).ok_or_else(No::busy)?;
    let body = collect(body, MAX_BODY).await?;
    let cost = u32::try_from(body.len() / OCTETS_PER_TOKEN).unwrap_or(u32::MAX);
    door.rates.spend(&standing.owner.cluster, cost);
    parse(&body)
}

async fn read<T: DeserializeOwned>(body: &mut Incoming, most: usize) -> Result<T, No> {
    parse(&collect(body, most).await?)
}

async fn collect(body: &mut Incoming, most: usize) -> Result<Bytes, No> {
    let too_large = || No::too_large(format!("a body has at most {most} octets here"));
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let body = timeout(BODY_TIME, Limited::new(body, most).collect()).await;
    match body.map_err(|_| No::too_slow())? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(No::malformed("the body broke off")),
    }
}

/// Reads on without keeping anything.
async fn discard(body: &mut Incoming, most: usize) {
    let mut read = 0;
    while read <= most
        && let Some(Ok(frame)) = body.frame().await
    {
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// How deep it goes is bounded by the types, and by the reader where it is none of them.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, No> {
    // The reader would take a list for an object whose fields come without names.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(No::malformed("the body is no JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| No::malformed(format!("the body is not as it should be: {error}")))
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it is made of texts and numbers")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use arc_swap::{ArcSwap, ArcSwapOption};
    use prometheus_client::registry::Registry;

    use super::super::{FolderHome, Metrics};
    use super::*;

    /// A process that has just started would send every agent away.
    #[test]
    fn nobody_is_gone_before_the_fleet_is_known() {
        let informed = Arc::new(AtomicBool::new(false));
        let home = Arc::new(FolderHome(Arc::new(ArcSwapOption::empty())));
        let metrics = Metrics::register(&mut Registry::default());
        let fleet = (Arc::new(ArcSwap::default()), Arc::clone(&informed));
        let door = Door::new(home, fleet, Default::default(), metrics, [127, 0, 0, 1].into());
        let identity =
            Identity { role: Role::Agent, cluster: "c1".parse().unwrap(), uid: "u".into(), credential: "c".into() };
        let code = || standing_of(&door, &identity).map(|_| ()).unwrap_err().code;
        assert_eq!(code(), "Unavailable");
        informed.store(true, Ordering::Release);
        assert_eq!(code(), "ClusterGone");
    }
}
