//! Everything that can be asked for.

use manifest::text::Written;
use model::identity::{Kind, MAX_CLUSTER_ID};
use model::{ClusterName, ObjectName};
use serde_json::{Map, Value, json};

use super::explained::Explained;
use super::operation::Operation;
use super::resources::AnyObject;
use super::shapes;

pub(super) const TAGS: [(&str, &str); 5] = [
    (PROCESS, "the process itself: probes, metrics, this description"),
    (FLEET, "the objects with their status, what is refused, and what is in DNS"),
    (WAYS, "where connections, queries and requests would go, and why"),
    (LIVE, "what changes every second: load, tables, links, other processes"),
    (ACTIONS, "what needs the admin credential"),
];

const PROCESS: &str = "process";
const FLEET: &str = "fleet";
const WAYS: &str = "ways";
const LIVE: &str = "live";
const ACTIONS: &str = "actions";

pub(super) fn all() -> Vec<Operation> {
    [process(), fleet(), ways(), live(), actions()].into_iter().flatten().collect()
}

fn process() -> Vec<Operation> {
    vec![
        Operation::probe(PROCESS, "/healthz", "healthz", "Whether the process answers")
            .says("On --metrics, too, and to every machine.")
            .answers_text("text/plain", "it does"),
        Operation::probe(PROCESS, "/readyz", "readyz", "Whether new work may be sent here")
            .says("On --metrics, too, and to every machine.")
            .answers_text("text/plain", "everything listens, and something is known of the fleet")
            .fails(503, &[]),
        Operation::get(PROCESS, "/metrics", "metrics", "The metrics, in OpenMetrics text")
            .says("On --metrics, too, and there to every machine; docs/metrics.md lists them.")
            .answers_text("application/openmetrics-text", "every metric of this process"),
        Operation::get(PROCESS, "/openapi.json", "openapi", "This description")
            .answers::<Map<String, Value>>("this document"),
    ]
}

fn fleet() -> Vec<Operation> {
    vec![
        Operation::get(FLEET, "/v1/objects/{kind}", "listObjects", "All objects of a kind, with their status")
            .variable("kind", KIND, kinds(Kind::ALL.to_vec()), "clusters")
            .query("namespace", "Only those in this namespace.", text::<ObjectName>(), "acme")
            .answers::<shapes::ObjectList>("the objects, in the order of their names")
            .fails(404, &["NoSuchKind"])
            .fails(500, &["Database"])
            .fails(503, &["HandingOver"]),
        Operation::get(FLEET, "/v1/objects/{kind}/{name}", "getObject", "One object that has no namespace")
            .variable("kind", KIND, kinds(scoped(false)), "clusters")
            .variable("name", "What the object is called.", text::<ObjectName>(), "c1")
            .answers::<AnyObject>("the object as it was written, and what is said of it")
            .fails(400, &["NamespaceMissing"])
            .fails(404, &["NoSuchKind", "NoSuchObject"])
            .fails(500, &["Database"])
            .fails(503, &["HandingOver"]),
        Operation::get(
            FLEET,
            "/v1/objects/{kind}/{namespace}/{name}",
            "getNamespacedObject",
            "One object that is in a namespace",
        )
        .variable("kind", KIND, kinds(scoped(true)), "ingresses")
        .variable("namespace", "The namespace.", text::<ObjectName>(), "acme")
        .variable("name", "What the object is called.", text::<ObjectName>(), "shop")
        .answers::<AnyObject>("the object as it was written, and what is said of it")
        .fails(400, &["NoNamespace"])
        .fails(404, &["NoSuchKind", "NoSuchObject"])
        .fails(500, &["Database"])
        .fails(503, &["HandingOver"]),
        Operation::get(FLEET, "/v1/refusals", "listRefusals", "Everything that is refused, and why")
            .answers::<shapes::Refusals>("files, objects, and parts of objects; docs/refusals.md explains the codes"),
        Operation::get(FLEET, "/v1/records", "listRecords", "What is in DNS, set by set")
            .query("under", "Only what is at this name or below it.", host(), "c1.fleet.example")
            .fails(400, &["BadName"])
            .answers::<shapes::Records>("the sets by name and type, without the zones' SOA"),
        Operation::get(FLEET, "/v1/history", "listHistory", "What has changed of late, and why")
            .says("As this process saw it since it began: the last 4,096 changes in all, and the last 64 of an object.")
            .query("kind", KIND, kinds(Kind::ALL.to_vec()), "clusters")
            .query("namespace", "Only of objects in this namespace.", text::<ObjectName>(), "acme")
            .query("name", "Only of the objects of this name; say of which kind, too.", text::<ObjectName>(), "c1")
            .answers::<shapes::History>("the newest first")
            .fails(400, &["KindMissing"])
            .fails(404, &["NoSuchKind"]),
    ]
}

fn ways() -> Vec<Operation> {
    vec![
        Operation::get(WAYS, "/v1/explain", "explain", "Where a connection, a query or a request would go, and why")
            .says(
                "Ask for one of `name`, `tlv` and `url`. Nothing is connected to, counted or taken by asking: those who would decide are asked \
                 what they would do.",
            )
            .query("name", "A host name, as DNS and the server name of TLS have it.", host(), "api.c1.fleet.example")
            .query("tlv", "A cluster id, as a PROXY header carries it.", json!({ "type": "string", "minLength": 1, "maxLength": MAX_CLUSTER_ID }), "c1")
            .query("url", "A whole URL; its port counts where it is one of a door's.", json!({ "type": "string", "format": "uri", "pattern": "^https?://", "minLength": 8, "maxLength": 8192 }), "https://www.shop.example/cart")
            .query("serverName", "Beside an https URL: another name in the TLS hello.", host(), "www.shop.example")
            .query("from", "The address of the client; without one, any that is allowed.", json!({ "type": "string", "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] }), "203.0.113.7")
            .query("proof", "Beside a cluster id: whether a good proof comes with it.", json!({ "type": "boolean", "default": false }), false)
            .answers::<Explained>("what would become of it, which field of which object decides, and who else wants the same; docs/explain.md")
            .fails(400, &["AskedTwice", "BadAddress", "BadClusterId", "BadName", "BadUrl", "NothingAsked", "ProofWithName", "ServerNameWithoutTls", "ServerNameWithoutUrl"])
            .fails(500, &["Database"])
            .fails(503, &["HandingOver", "NotReady"]),
        Operation::get(WAYS, "/v1/routes", "listRoutes", "Every way in, and where it leads")
            .query("under", "Only ways by names at this one or below it.", host(), "c1.fleet.example")
            .query("cluster", "Only ways to this cluster, by its name or id.", json!({ "type": "string", "minLength": 1, "maxLength": MAX_CLUSTER_ID }), "c1")
            .query("limit", "How many a page has.", json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 500 }), 500)
            .query("continue", "What the page before ended with.", json!({ "type": "string", "minLength": 1, "maxLength": 4096 }), "ClusterId c1")
            .answers::<shapes::RouteList>("a page of them, in an order that stays")
            .fails(400, &["BadClusterId", "BadContinue", "BadLimit", "BadName"]),
    ]
}

fn live() -> Vec<Operation> {
    vec![
        Operation::get(LIVE, "/v1/load", "listLoad", "What agents say of the load of their clusters")
            .query("cluster", "Of this one alone.", text::<ClusterName>(), "madrid")
            .answers::<shapes::LoadList>("the latest report of each service, of the last minute"),
        Operation::get(LIVE, "/v1/overflow", "listOverflow", "The tables that requests and names go by")
            .query("namespace", "Only of Ingresses in this namespace.", text::<ObjectName>(), "acme")
            .query("ingress", "Only of Ingresses of this name.", text::<ObjectName>(), "shop")
            .answers::<shapes::OverflowList>("a table for each backend of a federated Ingress that has some overflow"),
        Operation::get(LIVE, "/v1/links", "listLinks", "The links of clusters' agents that this process has")
            .answers::<shapes::LinkList>("link by link"),
        Operation::get(LIVE, "/v1/peers", "listPeers", "Who is heard by whom, among the processes of a hub")
            .answers::<shapes::Peers>("what this process knows of it; nothing but an empty list where there is no hub"),
        Operation::get(LIVE, "/v1/resolver", "showResolver", "Who asks the control planes' resolver")
            .answers::<shapes::ResolverView>("the settings, and what became of the questions of each cluster")
            .fails(404, &["NoResolver"]),
    ]
}

fn actions() -> Vec<Operation> {
    let id = json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" });
    let wish = json!({ "cluster": "c1", "validSeconds": 86_400 });
    let csr = "-----BEGIN CERTIFICATE REQUEST-----\n...\n-----END CERTIFICATE REQUEST-----\n";
    vec![
        Operation::get(ACTIONS, "/v1/credentials", "listCredentials", "The credentials of agents and control planes")
            .answers::<shapes::CredentialList>("without what they are made of: a token is told once, when it is issued")
            .fails(404, &["NoAgentsDoor"])
            .fails(503, &["HandingOver", "Unavailable"]),
        Operation::change("post", ACTIONS, "/v1/credentials", "issueCredential", "A token for the agents of a cluster")
            .takes::<shapes::CredentialWish>(wish)
            .answers::<shapes::IssuedCredential>("what an agent is started with; nobody is told it again")
            .fails(404, &["NoAgentsDoor", "NoSuchCluster"])
            .fails(409, &["TooManyCredentials"])
            .fails(503, &["HandingOver", "NoAuthority", "Unavailable"]),
        Operation::change(
            "post",
            ACTIONS,
            "/v1/credentials/control-plane",
            "issueCredentialToControlPlane",
            "A certificate for a control plane, whose key stays where it was made",
        )
        .takes::<shapes::ControlPlaneWish>(json!({ "cluster": "c1", "validSeconds": 86_400, "csr": csr }))
        .answers::<shapes::IssuedCertificate>("the certificate")
        .fails(404, &["NoAgentsDoor", "NoSuchCluster"])
        .fails(409, &["TooManyCredentials"])
        .fails(503, &["HandingOver", "NoAuthority", "Unavailable"]),
        Operation::change(
            "delete",
            ACTIONS,
            "/v1/credentials/{id}",
            "revokeCredential",
            "From now on it is good for nothing",
        )
        .says("Neither are the certificates that it bought; connections that stand upon them end.")
        .variable("id", "As the list has it.", id, "0123456789abcdef")
        .answers::<shapes::RevokedCredential>("it is revoked")
        .fails(404, &["NoAgentsDoor", "NoSuchCredential"])
        .fails(503, &["HandingOver", "Unavailable"]),
        Operation::change("post", ACTIONS, "/v1/release/{kind}/{name}", "release", "Lets go names that are held")
            .says("Names of a zone or a tenant that would have gone in a mass; docs/withdrawals.md.")
            .variable("kind", "In plural, or as manifests have it.", kinds(vec![Kind::Zone, Kind::Tenant]), "zones")
            .variable("name", "What the zone or the tenant is called.", text::<ObjectName>(), "main")
            .answers::<shapes::Release>("they are let go")
            .fails(400, &["NotReleasable"])
            .fails(404, &["NoSuchObject", "OnlyReads"])
            .fails(503, &["HandingOver", "Unavailable"]),
        Operation::change("post", ACTIONS, "/v1/drain/{cluster}", "drain", "Sends federated traffic to other clusters")
            .says("From the next request and DNS query on; what is under way ends in its own time. docs/federated-ingress.md.")
            .variable("cluster", "The name of the Cluster.", text::<ClusterName>(), "c1")
            .answers::<shapes::Drain>("it is drained")
            .fails(404, &["NoSuchObject", "OnlyReads"])
            .fails(503, &["HandingOver", "Unavailable"]),
        Operation::change("delete", ACTIONS, "/v1/drain/{cluster}", "undrain", "Has the traffic back")
            .variable("cluster", "The name of the Cluster.", text::<ClusterName>(), "c1")
            .answers::<shapes::Drain>("it is not drained")
            .fails(404, &["NoSuchObject", "OnlyReads"])
            .fails(409, &["DrainedByManifest"])
            .fails(500, &["Database"])
            .fails(503, &["HandingOver", "Unavailable"]),
    ]
}

const KIND: &str = "The kind in plural; its name as manifests have it will do, in any case.";

fn scoped(namespaced: bool) -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.is_namespaced() == namespaced).collect()
}

fn kinds(kinds: Vec<Kind>) -> Value {
    let plurals: Vec<&str> = kinds.into_iter().map(Kind::plural).collect();
    json!({ "type": "string", "enum": plurals })
}

/// As manifests have it.
fn text<T: Written>() -> Value {
    let mut schema: Value = T::schema().into();
    super::keep_what_all_read(&mut schema);
    schema
}

/// A name of 255 octets, each of them written as four (RFC 1035 5.1), is the longest; what else it must be is for DNS to say.
fn host() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 1004 })
}
