//! What the table alone decides about a connection and a request, in the order in which it is decided. Real ones and
//! `explain` come here alike.

use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use http::header::HeaderValue;
use http::uri::PathAndQuery;
use model::ingress::PathMatch;
use model::routes::{Entry, Host, HostRule, HttpTable};
use model::{DnsName, ObjectName};
use rustls::ServerConfig;

use crate::authority::Asked;
use crate::certificates::Certificates;
use crate::head;
use crate::refusal::Refusal;

/// Where a request goes, and by which path.
pub(crate) struct Found<'t> {
    /// The default backend has none.
    pub(crate) path: Option<&'t PathMatch>,
    pub(crate) entry: &'t Arc<Entry>,
}

/// The host that a TLS hello is for, and how its handshake is done.
pub(crate) fn secure<'t>(
    table: &'t HttpTable,
    certificates: &Certificates,
    name: Option<&DnsName>,
) -> Result<(&'t Arc<Host>, Arc<ServerConfig>), Refusal> {
    let name = name.ok_or(Refusal::NoServerName)?;
    let host = table.host(name);
    let secured = host.and_then(|host| Some((host, certificates.config(host.certificate.as_deref()?)?)));
    secured.ok_or_else(|| Refusal::UnknownServerName(name.clone()))
}

/// `shown` is whose certificate the connection was shown. Without a client everybody may ask.
pub(crate) fn find_entry<'t>(
    table: &'t HttpTable,
    asked: &Asked,
    path: &str,
    shown: Option<&ObjectName>,
    client: Option<IpAddr>,
) -> Result<Found<'t>, Refusal> {
    let found = asked.name.as_ref().and_then(|name| table.find(name)).ok_or(Refusal::NoRoute)?;
    let host = found.host;
    // RFC 9110 7.4: a connection stands for its server name's owner alone. TLS for an `apps` wildcard ends in its cluster, so that
    // no connection whose TLS ended here was made for it.
    if shown.is_some_and(|tenant| found.by == HostRule::Apps || *tenant != host.tenant) {
        return Err(Refusal::Misdirected);
    }
    if client.is_some_and(|client| !host.admits(client)) {
        return Err(Refusal::SourceNotAllowed);
    }
    let (path, entry) = host.find(path).ok_or(Refusal::NoRoute)?;
    Ok(Found { path, entry })
}

/// Whether plain HTTP is answered with the way to HTTPS.
pub(crate) fn is_redirected(entry: &Entry, is_https: bool) -> bool {
    entry.options.redirect_to_https && !is_https
}

/// The port of HTTPS.
const USUAL: u16 = 443;

/// The way to HTTPS; at the usual port, if none is given.
pub(crate) fn redirect(port: Option<u16>, asked: &Asked, target: &Uri) -> Result<HeaderValue, Refusal> {
    let port = port.filter(|port| *port != USUAL).map(|port| format!(":{port}")).unwrap_or_default();
    let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
    let location = format!("https://{}{port}{path}", asked.without_port());
    HeaderValue::try_from(location).map_err(|_| Refusal::MalformedRequest(head::Malformed::Target))
}
