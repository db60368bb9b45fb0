//! What became of a `DNSEndpoint`, as an Event: for clusters without the kind Verdict.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use model::identity::Kind;

use super::{AGENT, Source, WriteError};

/// The API's own bound on a message.
const LONGEST_NOTE: usize = 1024;
/// And on a reason.
const LONGEST_REASON: usize = 128;
const REPORTER: &str = "fleetgate.dev/agent";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub is_warning: bool,
    /// A fixed word.
    pub reason: String,
    pub message: String,
    /// What is told: the same is told once, by however many processes.
    pub id: String,
}

pub(super) async fn tell(client: &Client, source: &Source, notice: &Notice) -> Result<(), WriteError> {
    let api: Api<Event> = Api::namespaced(client.clone(), &source.place.namespace);
    match api.create(&PostParams::default(), &event(source, notice)).await {
        // Told before.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        told => told.map(drop).map_err(WriteError::of),
    }
}

fn event(source: &Source, notice: &Notice) -> Event {
    // Names are at most 253 characters, and none ends with anything but letters and digits.
    let name = &source.place.name[..source.place.name.floor_char_boundary(200)];
    let cut = |text: &str, longest: usize| text[..text.floor_char_boundary(longest)].to_owned();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", name.trim_end_matches(['-', '.']), notice.id)),
            namespace: Some(source.place.namespace.clone()),
            ..ObjectMeta::default()
        },
        regarding: Some(ObjectReference {
            api_version: Some(Kind::DnsEndpoint.api_version().into()),
            kind: Some(Kind::DnsEndpoint.as_str().into()),
            name: Some(source.place.name.clone()),
            namespace: Some(source.place.namespace.clone()),
            uid: Some(source.uid.clone()),
            ..ObjectReference::default()
        }),
        type_: Some(if notice.is_warning { "Warning" } else { "Normal" }.into()),
        reason: Some(cut(&notice.reason, LONGEST_REASON)),
        note: Some(cut(&notice.message, LONGEST_NOTE)),
        action: Some("Publish".into()),
        event_time: Some(MicroTime(Timestamp::now())),
        reporting_controller: Some(REPORTER.into()),
        reporting_instance: Some(AGENT.into()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Place;

    #[test]
    fn an_event_keeps_to_the_bounds_of_its_kind() {
        let place = Place { namespace: "shop".into(), name: "z".repeat(253) };
        let source = Source { place, uid: "u".into(), generation: 1, endpoints: Ok(Vec::new()) };
        let (reason, message) = ("R".repeat(200), "ü".repeat(600));
        let event = event(&source, &Notice { is_warning: true, reason, message, id: "0123456789abcdef".into() });
        assert!(event.note.unwrap().len() <= LONGEST_NOTE && event.reason.unwrap().len() <= LONGEST_REASON);
        assert!(event.metadata.name.unwrap().len() <= 253);
        assert_eq!(event.metadata.namespace.as_deref(), Some("shop"));
    }
}
