//! What `/v1/explain` answers.
#![allow(dead_code)] // Only described.

use schemars::JsonSchema;

/// By what was asked for.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(super) enum Explained {
    Url(Box<ExplainedUrl>),
    Name(Box<ExplainedName>),
    Id(Box<ExplainedId>),
}

/// A connection by cluster id.
#[derive(JsonSchema)]
pub(super) struct ExplainedId {
    /// What was asked for.
    asked: AskedId,
    /// What would become of it.
    connection: ConnectionVerdict,
    /// Who wants the same id and may not have it, at most ten.
    refused: Vec<RefusedRival>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct AskedId {
    /// The id.
    cluster_id: String,
    /// Whether a good proof comes with it.
    proof: bool,
    /// The client's address.
    from: Option<String>,
}

/// A query, and a connection by server name.
#[derive(JsonSchema)]
pub(super) struct ExplainedName {
    /// What was asked for.
    asked: AskedName,
    /// What DNS would answer.
    dns: DnsAnswer,
    /// What would become of a connection.
    connection: ConnectionVerdict,
    /// Who wants the same name and may not have it, at most ten.
    refused: Vec<RefusedRival>,
}

#[derive(JsonSchema)]
struct AskedName {
    /// The name.
    name: String,
    /// The client's address.
    from: Option<String>,
}

/// A request, from the name to the cluster.
#[derive(JsonSchema)]
pub(super) struct ExplainedUrl {
    /// What was asked for.
    asked: AskedUrl,
    /// What would become of it.
    verdict: RequestVerdict,
    /// The door that it comes to; null where DNS leads past our gateways.
    gateway: Option<Gateway>,
    /// The rule of an Ingress that has it.
    route: Option<RequestRoute>,
    /// The clusters that serve it, and who is chosen.
    choice: Option<MemberChoice>,
    /// Of TLS that is passed through.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "ConnectionVerdict")]
    connection: Option<ConnectionVerdict>,
    /// Whose a host is that nobody serves.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "HostOwner")]
    owner: Option<HostOwner>,
    /// What who asks may not expect.
    remarks: Vec<String>,
    /// What DNS would answer, where the host is a name.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "DnsAnswer")]
    dns: Option<DnsAnswer>,
    /// Who wants the same host and may not have it, at most ten.
    #[schemars(default, skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedRival>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct AskedUrl {
    /// The URL.
    url: String,
    /// The name in the TLS hello, where it is another.
    server_name: Option<String>,
    /// The client's address.
    from: Option<String>,
}

/// What would become of a connection.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct ConnectionVerdict {
    /// The door that it comes to.
    #[schemars(extend("enum" = ["apiserver", "sni", "node"]))]
    door: String,
    /// Whether this process has that door.
    served: bool,
    /// Whether the client has to speak for others, so that another address than its own counts.
    trusted_proxy: bool,
    /// What becomes of it.
    #[schemars(extend("enum" = ["Established", "Doubtful", "Terminated", "Refused"]))]
    verdict: String,
    /// As metrics would count it.
    code: String,
    /// Whose move it is.
    #[schemars(extend("enum" = ["client", "author", "backend", "us", null]))]
    blame: Option<String>,
    /// In a sentence.
    reason: String,
    /// The field of the object that decides.
    rule: String,
    /// The cluster that has the id or name; this and what follows is absent where nobody has it.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "String")]
    cluster: Option<String>,
    /// Its tenant.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "String")]
    tenant: Option<String>,
    /// What of its control plane.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "String")]
    service: Option<String>,
    /// Whether the client may come.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "SourceCheck")]
    source: Option<SourceCheck>,
    /// Of a cluster id: whether a proof is asked for.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "ProofCheck")]
    proof: Option<ProofCheck>,
    /// How much room there is.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "RoomLeft")]
    limits: Option<RoomLeft>,
    /// The addresses, in the order in which they would be tried.
    #[schemars(default, skip_serializing_if = "Vec::is_empty")]
    upstreams: Vec<Upstream>,
    /// Of what goes through the tunnel.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "TunnelWay")]
    tunnel: Option<TunnelWay>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct SourceCheck {
    /// Null where no address was given.
    allowed: Option<bool>,
    /// The first range that it is in.
    allowed_by: Option<String>,
    /// All of them.
    allowed_sources: Vec<String>,
}

#[derive(JsonSchema)]
struct ProofCheck {
    /// Whether there must be one.
    required: bool,
    /// How many keys may have made it.
    keys: u32,
    /// Whether one that comes is looked at.
    checked: bool,
}

#[derive(JsonSchema)]
struct RoomLeft {
    /// Of the cluster.
    cluster: Fullness,
    /// Of its tenant.
    tenant: Fullness,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct Fullness {
    /// Connections that are open now.
    open: u32,
    /// How many there may be.
    connections: Option<u32>,
    /// How many more may come at once.
    new_left: Option<u32>,
    /// How many may come in a second.
    new_connections_per_second: Option<u32>,
}

#[derive(JsonSchema)]
struct Upstream {
    /// Address and port.
    address: String,
    /// What checks say.
    #[schemars(extend("enum" = ["Unknown", "Healthy", "Unhealthy"]))]
    health: String,
    /// Whether clients could not reach it of late.
    ejected: bool,
    /// Connections that are open or being opened.
    open: u32,
}

#[derive(JsonSchema)]
struct TunnelWay {
    /// What is reached inside the cluster.
    targets: Vec<String>,
    /// By how many ways the cluster is reached now.
    links: u32,
}

/// What DNS would answer.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct DnsAnswer {
    /// As RFC 1035 and its successors call it.
    rcode: String,
    /// The Zone that holds the name.
    zone: Option<String>,
    /// The apex of what answers.
    apex: Option<String>,
    /// The network that a resolver would name for the client (RFC 7871).
    client_subnet: Option<String>,
    /// The answer to A and AAAA.
    records: Vec<DnsRecord>,
    /// Where addresses are chosen: how, for each type.
    steered: Vec<MemberChoice>,
    /// What is wrong with the names of clusters, where it is about this one.
    remarks: Vec<String>,
    /// Who asked for this very name of late, at most ten.
    recent: Vec<RecentQuery>,
}

#[derive(JsonSchema)]
struct DnsRecord {
    /// Whose it is.
    name: String,
    /// In seconds.
    ttl: u32,
    /// Its type.
    #[schemars(rename = "type")]
    record_type: String,
    /// As people write it.
    data: String,
    /// The object that it comes from.
    from: Option<String>,
}

#[derive(JsonSchema)]
struct RecentQuery {
    /// When.
    #[schemars(extend("format" = "date-time"))]
    at: String,
    /// Who asked.
    client: String,
    /// How.
    #[schemars(extend("enum" = ["udp", "tcp"]))]
    transport: String,
    /// For what.
    #[schemars(rename = "type")]
    query_type: String,
    /// What was answered.
    rcode: String,
    /// Why.
    reason: String,
    /// Whether the client was sent to TCP.
    truncated: bool,
}

/// An object that wants the same and may not have it.
#[derive(JsonSchema)]
pub(super) struct RefusedRival {
    /// Its kind.
    kind: String,
    /// Its namespace, where it is in one.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "String")]
    namespace: Option<String>,
    /// Its name.
    name: String,
    /// A code of docs/refusals.md.
    code: String,
    /// Why, in a sentence.
    message: String,
}

/// What would become of a request.
#[derive(JsonSchema)]
pub(super) struct RequestVerdict {
    /// What becomes of it.
    #[schemars(extend("enum" = ["Forwarded", "Doubtful", "Redirected", "Refused", "PassedThrough", "Straight"]))]
    kind: String,
    /// As metrics would count it.
    code: String,
    /// Whose move it is.
    #[schemars(extend("enum" = ["client", "author", "backend", "us", null]))]
    blame: Option<String>,
    /// The status of an answer of ours.
    #[schemars(range(min = 100, max = 599))]
    status: Option<u16>,
    /// Where a redirect leads to.
    location: Option<String>,
    /// In a sentence.
    reason: String,
    /// What of which object decides.
    rule: String,
}

/// The door that a request comes to.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct Gateway {
    /// Which.
    #[schemars(extend("enum" = ["http", "https", "sni"]))]
    door: String,
    /// Whether this process has it.
    served: bool,
    /// Where it listens.
    address: Option<String>,
    /// Whether `--sni` listens there, too.
    #[schemars(rename = "sharedWithSni")]
    shared_with_sni: bool,
    /// What becomes of TLS.
    #[schemars(extend("enum" = ["None", "Terminated", "PassedThrough", "Refused"]))]
    tls: String,
    /// The certificate that clients see.
    certificate: Option<ShownCertificate>,
    /// Why there is none, line by line.
    no_certificate: Option<Vec<String>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
struct ShownCertificate {
    /// The Secret that it is from.
    secret: Option<String>,
    /// Whose it is.
    tenant: String,
    /// The names that it is for, at most twenty.
    names: Vec<String>,
    /// Until when it is good.
    #[schemars(extend("format" = "date-time"))]
    not_after: Option<String>,
}

/// The rule of an Ingress.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct RequestRoute {
    /// Of which.
    ingress: String,
    /// Whose it is.
    tenant: String,
    /// Its host.
    host: String,
    /// How the host was found.
    #[schemars(extend("enum" = ["Name", "Wildcard", "AnyHost", "Apps"]))]
    host_rule: String,
    /// How its path is compared.
    #[schemars(extend("enum" = ["Exact", "Prefix", "DefaultBackend"]))]
    path_type: String,
    /// Its path.
    path: Option<String>,
    /// The Service behind it.
    service: String,
    /// The number or the name of its port.
    port: PortOfService,
    /// Where clients meet it.
    #[schemars(extend("enum" = ["vip", "dns"]))]
    entry: String,
    /// How members are chosen.
    #[schemars(extend("enum" = ["geo", "latency", "weighted", "failover", "roundRobin"]))]
    steering: String,
    /// Whether plain HTTP is led to HTTPS.
    redirect_to_https: bool,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
enum PortOfService {
    Number(u16),
    Name(String),
}

/// The clusters that serve a request or a name: who is chosen, and why the others are not.
#[derive(JsonSchema)]
pub(super) struct MemberChoice {
    /// Who chooses.
    #[schemars(extend("enum" = ["gateway", "dns"]))]
    by: String,
    /// Of DNS: the type of addresses.
    #[schemars(default, skip_serializing_if = "Option::is_none", rename = "type", with = "String")]
    record_type: Option<String>,
    /// What all members have in common.
    #[schemars(extend("enum" = ["Usual", "AllFull", "Panic"]))]
    situation: String,
    /// Of DNS: how much of the client's network the answer is for (RFC 7871).
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "u8")]
    scope: Option<u8>,
    /// Where the client is, if that matters and is known.
    client: Option<ClientPlace>,
    /// Of a gateway: whether anything is known of the members yet.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "bool")]
    informed: Option<bool>,
    /// Of a gateway: what the table for the backend says.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    overflow: Option<OverflowHere>,
    /// In the order in which they are ranked.
    members: Vec<RankedMember>,
}

#[derive(JsonSchema)]
struct ClientPlace {
    /// Degrees north.
    latitude: Option<f64>,
    /// Degrees east.
    longitude: Option<f64>,
    /// As the map of places has it.
    region: Option<String>,
}

#[derive(JsonSchema)]
struct OverflowHere {
    /// The cluster that is home to this request.
    home: Option<String>,
    /// Requests per second that come here for it.
    demand: f64,
    /// The share of them that is refused with 503.
    shed: f64,
}

/// A cluster that serves it.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct RankedMember {
    /// Which.
    cluster: String,
    /// Whether it is the one, or one of those whose addresses are told.
    chosen: bool,
    /// Why it stands where it does.
    reason: CodeAndMessage,
    /// Why nothing is sent there.
    #[schemars(extend("enum" = ["failed checks", "ejected", "drained", "no ready endpoints", "not placed yet", null]))]
    unhealthy: Option<String>,
    /// Whether it has no room.
    full: bool,
    /// The part of requests or answers that it gets, where shares decide.
    share: Option<f64>,
    /// Measured from here.
    round_trip_ms: Option<f64>,
    /// From the client, where both places are known.
    distance_km: Option<f64>,
    /// Where it is.
    region: Option<String>,
    /// Who runs it.
    provider: Option<String>,
    /// Where it is asked, or what clients are told.
    addresses: Vec<String>,
    /// Of a gateway: requests that are under way there.
    #[schemars(default, skip_serializing_if = "Option::is_none", with = "u32")]
    in_flight: Option<u32>,
    /// Of a gateway: what the measured load says of it.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    load: Option<LoadOfMember>,
    /// Of a gateway: by how many ways it is reached through the tunnel, where that is the way.
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    links: Option<u32>,
}

#[derive(JsonSchema)]
struct LoadOfMember {
    /// The part of requests that it gets.
    share: f64,
    /// Why.
    reason: CodeAndMessage,
    /// Requests per second that it can take; null where it counts as unlimited.
    rate: Option<f64>,
    /// What that follows from.
    basis: CodeAndMessage,
}

#[derive(JsonSchema)]
struct CodeAndMessage {
    /// A fixed word.
    code: String,
    /// In words for people.
    message: String,
}

/// Whose a host is.
#[derive(JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub(super) struct HostOwner {
    /// The Zone that holds it.
    zone: Option<String>,
    /// The suffix by which tenants may have it.
    suffix: Option<String>,
    /// The cluster in whose subtree it is.
    cluster: Option<String>,
    /// The tenants that may have it.
    tenants: Vec<String>,
    /// The cluster whose control plane is called so.
    control_plane_of: Option<String>,
    /// The Zone that keeps it for us.
    reserved_by: Option<String>,
}
