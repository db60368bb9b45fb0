//! What goes in and comes back, but for objects (`resources`) and explanations (`explained`).
//!
//! Handlers write their answers as they go; a field that is there and not here, or the other way round, fails the tests.
#![allow(dead_code)] // Only described.

use schemars::JsonSchema;

use super::MAX_VALID_SECONDS;
use super::resources::AnyObject;

/// A no.
#[derive(JsonSchema)]
pub(super) struct Failure {
    /// What is wrong.
    error: FailureReason,
}

/// What is wrong, for programs and for people.
#[derive(JsonSchema)]
pub(super) struct FailureReason {
    /// A fixed word, which stays as it is.
    #[schemars(regex(pattern = "^[A-Z][A-Za-z]+$"))]
    code: String,
    /// A sentence, which may change.
    message: String,
}

/// As Kubernetes lists.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct ObjectList {
    /// Kubernetes' own.
    #[schemars(extend("const" = "v1"))]
    api_version: String,
    /// That it is a list.
    #[schemars(extend("const" = "List"))]
    kind: String,
    /// The objects.
    items: Vec<AnyObject>,
}

/// Everything that is refused.
#[derive(JsonSchema)]
pub(super) struct Refusals {
    /// Why the folder itself cannot be read.
    folder: Option<String>,
    /// Mistakes in files, whose last good state is served on.
    files: Vec<RefusedFile>,
    /// Objects, and parts of objects that are served otherwise.
    objects: Vec<RefusedObject>,
}

/// A mistake in a file.
#[derive(JsonSchema)]
pub(super) struct RefusedFile {
    /// Its path.
    file: String,
    /// Where, counted from 1.
    line: u32,
    /// Where in the line, counted from 1.
    column: u32,
    /// What is wrong.
    message: String,
}

/// An object that is refused, or a part of one.
#[derive(JsonSchema)]
pub(super) struct RefusedObject {
    /// Its kind.
    kind: String,
    /// Its namespace, where it is in one.
    namespace: Option<String>,
    /// Its name.
    name: String,
    /// The endpoint, path, certificate or member; absent where all of the object is refused.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "String")]
    part: Option<String>,
    /// A code of docs/refusals.md.
    code: String,
    /// Why, in a sentence.
    message: String,
}

/// What is in DNS.
#[derive(JsonSchema)]
pub(super) struct Records {
    /// In the order of their names.
    sets: Vec<RecordSet>,
}

/// Records of one name and type.
#[derive(JsonSchema)]
pub(super) struct RecordSet {
    /// Whose they are.
    name: String,
    /// Their type, or `TYPE` and its number (RFC 3597).
    #[schemars(rename = "type", regex(pattern = "^[A-Z0-9-]+$"))]
    record_type: String,
    /// For how many seconds they may be kept.
    ttl: u32,
    /// As people write them.
    records: Vec<String>,
}

/// What has changed of late.
#[derive(JsonSchema)]
pub(super) struct History {
    /// The newest first.
    items: Vec<HistoricChange>,
}

/// One change of one object.
#[derive(JsonSchema)]
pub(super) struct HistoricChange {
    /// When it was published.
    #[schemars(extend("format" = "date-time"))]
    at: String,
    /// The kind of the object.
    kind: String,
    /// Its namespace, where it is in one.
    namespace: Option<String>,
    /// Its name.
    name: String,
    /// A sentence.
    what: String,
}

/// Ways in.
#[derive(JsonSchema)]
pub(super) struct RouteList {
    /// Those of this page.
    items: Vec<WayIn>,
    /// What the next page is asked for by; null where this is the last.
    #[schemars(rename = "continue")]
    after: Option<String>,
    /// How many come after this page.
    remaining: u64,
}

/// What a connection or a request is found by, and where it leads.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct WayIn {
    /// By what it is found.
    #[schemars(extend("enum" = ["ClusterId", "ServerName", "AppsTls", "AppsHttp", "Host", "AnyHost"]))]
    by: String,
    /// The id or the name, `*.` before what names must lie under.
    #[schemars(rename = "match")]
    pattern: String,
    /// The path of a rule of an Ingress.
    path: Option<String>,
    /// How the path counts; `DefaultBackend` for all that no rule has.
    #[schemars(extend("enum" = ["Exact", "Prefix", "DefaultBackend", null]))]
    path_type: Option<String>,
    /// Through which doors.
    doors: Vec<String>,
    /// Whose it is; null where it is the agents' door.
    tenant: Option<String>,
    /// Where it leads, of connections.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// What it leads to: of connections the service of the control plane, of requests the Service and its port.
    service: String,
    /// Addresses, of connections.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "Vec<String>")]
    upstreams: Option<Vec<String>>,
    /// What is reached from inside the cluster, through the tunnel, of connections.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "Vec<String>")]
    inside: Option<Vec<String>>,
    /// The Ingress or Cluster that a host comes from.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "String")]
    object: Option<String>,
    /// How clients meet it: by our gateways, or by DNS straight at members.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "String", extend("enum" = ["vip", "dns"]))]
    entry: Option<String>,
    /// The clusters that serve a host.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "Vec<WayToMember>")]
    members: Option<Vec<WayToMember>>,
    /// From where it may be used; null is from everywhere.
    allowed_sources: Option<Vec<String>>,
    /// Whether the id alone is not enough.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "bool")]
    proof_required: Option<bool>,
    /// Whether plain HTTP is answered with the way to HTTPS.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "bool")]
    redirect_to_https: Option<bool>,
    /// Of connections or of requests.
    limits: WayLimits,
}

/// A cluster that serves a host.
#[derive(JsonSchema)]
pub(super) struct WayToMember {
    /// Its name.
    cluster: String,
    /// Where it is reached.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "Vec<String>")]
    upstreams: Option<Vec<String>>,
    /// Where it is reached from inside, through the tunnel.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "Vec<String>")]
    inside: Option<Vec<String>>,
}

/// How much there may be.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum WayLimits {
    OfConnections(LimitsOfConnections),
    OfRequests(LimitsOfRequests),
}

/// Of connections.
#[derive(JsonSchema)]
pub(super) struct LimitsOfConnections {
    /// Of all ways to the cluster together.
    cluster: ConnectionLimits,
    /// Of all clusters of the tenant together.
    tenant: ConnectionLimits,
}

/// Null is no limit.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct ConnectionLimits {
    /// At once.
    connections: Option<u32>,
    /// New ones.
    new_connections_per_second: Option<u32>,
}

/// Of requests.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct LimitsOfRequests {
    /// From the last octet of a request to the first of its response.
    #[schemars(range(min = 0.0))]
    request_timeout_seconds: f64,
    /// Of a request's body; null is no limit.
    body_octets: Option<u64>,
}

/// What agents say of the load.
#[derive(JsonSchema)]
pub(super) struct LoadList {
    /// The latest report of each service.
    items: Vec<LoadReport>,
}

/// What an agent said of a service.
#[derive(JsonSchema)]
pub(super) struct LoadReport {
    /// The cluster that the agent is in.
    cluster: String,
    /// The namespace of the Service.
    namespace: String,
    /// The name of the Service.
    name: String,
    /// Requests per second that were answered.
    #[schemars(range(min = 0.0))]
    served: f64,
    /// How busy the pods are: 1 is all that they can do.
    #[schemars(range(min = 0.0))]
    utilization: f64,
    /// Pods that take requests.
    ready: u32,
    /// When.
    #[schemars(extend("format" = "date-time"))]
    reported: String,
}

/// The tables that requests and names go by.
#[derive(JsonSchema)]
pub(super) struct OverflowList {
    /// In the order of namespaces, Ingresses, Services and ports.
    items: Vec<OverflowTable>,
}

/// Where requests of one backend go.
#[derive(JsonSchema)]
pub(super) struct OverflowTable {
    /// The namespace of the Ingress.
    namespace: Option<String>,
    /// The Ingress.
    ingress: String,
    /// The Service behind it.
    service: String,
    /// The number or the name of its port.
    port: String,
    /// When the table was made.
    #[schemars(extend("format" = "date-time"))]
    made: String,
    /// What each cluster can take.
    clusters: Vec<OverflowRoom>,
    /// What each edge sends where.
    rows: Vec<OverflowRow>,
}

/// What a cluster can take.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct OverflowRoom {
    /// The cluster.
    cluster: String,
    /// Requests per second that it is filled to; null where it counts as unlimited.
    rate: Option<f64>,
    /// Requests per second that it can take at most; null where it counts as unlimited.
    most: Option<f64>,
    /// What that follows from.
    #[schemars(extend("enum" = ["Unknown", "Declared", "Measured", "Disagreed", "Silent"]))]
    basis: String,
    /// The same in words.
    basis_text: String,
    /// Why nothing is sent there.
    #[schemars(extend("enum" = ["Drained", "Unreachable", "Unhealthy", "NoReadyPods", null]))]
    out: Option<String>,
}

/// What one edge sends where.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct OverflowRow {
    /// The process that clients come to.
    edge: String,
    /// The cluster that is home to these requests.
    home: Option<String>,
    /// Requests per second that come.
    demand: f64,
    /// The share of them to be refused with 503.
    shed: f64,
    /// Why.
    #[schemars(extend("enum" = ["AllFull", "AllOut", null]))]
    why_shed: Option<String>,
    /// Cluster by cluster, in the order of `clusters`.
    shares: Vec<OverflowShare>,
}

/// What one edge sends to one cluster.
#[derive(JsonSchema)]
pub(super) struct OverflowShare {
    /// The cluster.
    cluster: String,
    /// How far it is, where the edge can send there: a smaller ring is nearer.
    ring: Option<u32>,
    /// Of the edge's requests, from 0 to 1.
    share: f64,
    /// Where the share moves to.
    target: f64,
    /// Requests per second that the edge may send there.
    quota: f64,
    /// Why.
    #[schemars(extend("enum" = ["Nearest", "Overflow", "InPlaceOf", "AllFull", "Returning", "NotNeeded", "Full", "Out", "NoWay"]))]
    reason: String,
    /// The same in words.
    text: String,
}

/// The links of agents.
#[derive(JsonSchema)]
pub(super) struct LinkList {
    /// In the order of their clusters, the oldest first.
    items: Vec<Link>,
}

/// A link of an agent.
#[derive(JsonSchema)]
pub(super) struct Link {
    /// The cluster that it leads into.
    cluster: String,
    /// What the agent calls itself.
    agent: String,
    /// The id of the credential that its certificate was bought with.
    credential: String,
    /// Since when, in Unix seconds.
    since: u64,
    /// Streams that are open now.
    streams: u32,
    /// Whether it does not answer at the moment.
    silent: bool,
}

/// Who is heard by whom. Where there is no hub only `items` is there.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Peers {
    /// Who is heard here, as this process leads.
    items: Vec<Peer>,
    /// The processes that bring each other streams.
    #[schemars(default, skip_serializing_if = "Vec::is_empty")]
    replicas: Vec<Replica>,
    /// Where the leader is met.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    /// Whether that is this process.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "bool")]
    leads: Option<bool>,
    /// Whether the leader hears this process.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "bool")]
    linked: Option<bool>,
    /// Since tables last came from the leader.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    tables_age_seconds: Option<f64>,
}

/// A process that is heard.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Peer {
    /// What it calls itself.
    name: String,
    /// What it does.
    role: String,
    /// The service account by which the API server knows it.
    account: String,
    /// Where it came from.
    from: String,
    /// For how long it has been heard.
    heard_for_seconds: u64,
}

/// A process that brings streams to others.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Replica {
    /// What it calls itself.
    name: String,
    /// What it does.
    role: String,
    /// Where others bring it streams.
    relay: Option<String>,
    /// Whether agents come to it.
    takes_links: bool,
    /// The clusters that it has a link to.
    clusters: Vec<String>,
}

/// The control planes' resolver.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct ResolverView {
    /// The domain of the hub's own Services.
    hub_domain: String,
    /// Who is asked for names outside.
    upstreams: Vec<String>,
    /// Who is asked for names of the hub.
    hub_servers: Vec<String>,
    /// Cluster by cluster.
    items: Vec<ResolverOfCluster>,
}

/// What became of the questions of one cluster's control plane.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct ResolverOfCluster {
    /// The cluster.
    cluster: String,
    /// The port that is its own.
    port: Option<u16>,
    /// Whether it is listened on.
    listening: bool,
    /// All that were asked.
    questions: u64,
    /// Those answered from the cache.
    cached: u64,
    /// Those answered with what was known before, as nobody could be asked.
    stale: u64,
    /// Those that failed.
    failed: u64,
    /// Those above the rate.
    limited: u64,
    /// Those being asked for now.
    under_way: u64,
    /// Answers that are kept.
    cache_entries: u64,
    /// The room that they take.
    cache_octets: u64,
}

/// The credentials that there are.
#[derive(JsonSchema)]
pub(super) struct CredentialList {
    /// Without what they are made of.
    items: Vec<Credential>,
}

/// A credential of an agent or a control plane.
#[derive(JsonSchema)]
pub(super) struct Credential {
    /// Public: it stands in certificates and in logs.
    id: String,
    /// Whose it is.
    cluster: String,
    /// The UID of the Cluster; made anew it has another, for which this one is good for nothing.
    uid: String,
    /// For whom.
    #[schemars(extend("enum" = ["agent", "control-plane"]))]
    holder: String,
    /// Since when.
    #[schemars(extend("format" = "date-time"))]
    issued: String,
    /// Until when.
    #[schemars(extend("format" = "date-time"))]
    expires: String,
}

/// For whom, and for how long.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CredentialWish {
    /// The name of a Cluster that is served.
    #[schemars(length(min = 1, max = 63))]
    cluster: String,
    /// For how long it is good.
    #[schemars(range(min = 1, max = MAX_VALID_SECONDS))]
    valid_seconds: u64,
}

/// A credential, with its secret.
#[derive(JsonSchema)]
pub(super) struct IssuedCredential {
    /// By which it is listed and revoked.
    id: String,
    /// What an agent is started with.
    bootstrap: Bootstrap,
}

/// What an agent is started with.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Bootstrap {
    /// The secret.
    token: String,
    /// The name in the certificate of the agents' door.
    server_name: String,
    /// The authority behind it, in PEM form.
    ca: String,
}

/// For which control plane, and for how long.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ControlPlaneWish {
    /// The name of a Cluster that is served.
    #[schemars(length(min = 1, max = 63))]
    cluster: String,
    /// For how long it is good.
    #[schemars(range(min = 1, max = MAX_VALID_SECONDS))]
    valid_seconds: u64,
    /// A certificate signing request in PEM form; only its key counts.
    csr: String,
}

/// A certificate of a control plane.
#[derive(JsonSchema)]
pub(super) struct IssuedCertificate {
    /// By which it is listed and revoked.
    id: String,
    /// In PEM form.
    certificate: String,
    /// The authority behind the door that it is shown to, in PEM form.
    ca: String,
    /// Until when.
    #[schemars(extend("format" = "date-time"))]
    expires: String,
}

/// A credential that is good for nothing any more.
#[derive(JsonSchema)]
pub(super) struct RevokedCredential {
    /// Its id.
    revoked: String,
}

/// What was let go.
#[derive(JsonSchema)]
pub(super) struct Release {
    /// `Zone` or `Tenant`.
    #[schemars(extend("enum" = ["Zone", "Tenant"]))]
    kind: String,
    /// Which.
    name: String,
    /// What was held until then is let go.
    #[schemars(extend("format" = "date-time"))]
    released: String,
    /// How many names that were.
    names: u64,
}

/// Whether federated traffic is sent to a cluster.
#[derive(JsonSchema)]
pub(super) struct Drain {
    /// Which.
    cluster: String,
    /// Since when none is; null where it is.
    #[schemars(extend("format" = "date-time"))]
    drained: Option<String>,
}
