//! The clusters that serve an entry: who is chosen, and why the others are not.

use std::sync::Arc;

use dns::{Chosen, ChosenMember, Guides};
use model::Cidr;
use model::network::Location;
use model::steering::{Known, Reason, Situation};
use serde_json::{Value, json};
use web::explain::{Choice, Load, Prospect};

/// As a gateway chooses for a request.
pub(super) fn of_gateway(choice: &Choice) -> Value {
    let place = choice.place.as_ref();
    let chosen = choice.chosen().map(|chosen| &chosen.member.uid);
    let members = choice.members.iter().map(|prospect| {
        let Prospect { member, reason, known, in_flight, addresses, links, load } = prospect;
        let mut shown = of_member(reason, known, &member.location, place);
        shown["cluster"] = member.cluster.as_str().into();
        shown["chosen"] = (chosen == Some(&member.uid)).into();
        shown["inFlight"] = (*in_flight).into();
        shown["load"] = load.as_ref().map(of_load).unwrap_or_default();
        shown["addresses"] = addresses.iter().map(ToString::to_string).collect();
        shown["links"] = (*links).into();
        if addresses.is_empty() {
            shown["reason"] = json!({ "code": "NoAddress", "message": "has no address that is asked" });
        }
        shown
    });
    let members: Vec<Value> = members.collect();
    json!({
        "by": "gateway",
        "situation": situation(choice.situation),
        "client": place.map(of_place),
        "informed": choice.is_informed,
        "overflow": choice.overflow.as_ref().map(|overflow| json!({
            "home": overflow.home.as_ref().map(model::ClusterName::as_str),
            "demand": overflow.demand,
            "shed": overflow.shed,
        })),
        "members": members,
    })
}

/// What the measured load says of it.
fn of_load(load: &Load) -> Value {
    json!({
        "share": load.share,
        "reason": { "code": load.code, "message": load.text },
        "rate": load.rate,
        "basis": { "code": load.basis.code(), "message": load.basis.to_string() },
    })
}

/// As DNS chooses among addresses of one type.
pub(super) fn of_dns(chosen: &Chosen, network: Option<Cidr>, guides: &Guides) -> Value {
    let places: Option<Arc<geo::Map>> = guides.places.load_full();
    // By its first address (docs/steering.md).
    let located = places.as_ref().zip(network).map(|(places, network)| places.locate(network.network()));
    let place = located.filter(|_| chosen.is_by_place).and_then(|located| located.place);
    let members = chosen.members.iter().map(|member| {
        let ChosenMember { cluster, location, known, reason, addresses, is_told } = member;
        let mut shown = of_member(reason, known, location, place);
        shown["cluster"] = cluster.as_str().into();
        shown["chosen"] = (*is_told).into();
        shown["addresses"] = addresses.iter().map(ToString::to_string).collect();
        if addresses.is_empty() {
            let message = format!("has no address of type {}", chosen.rtype);
            shown["reason"] = json!({ "code": "NoAddress", "message": message });
        }
        shown
    });
    let members: Vec<Value> = members.collect();
    json!({
        "by": "dns",
        "type": chosen.rtype.to_string(),
        "situation": situation(chosen.situation),
        "scope": chosen.scope,
        "client": place.map(of_place),
        "members": members,
    })
}

fn of_member(reason: &Reason, known: &Known, location: &Location, client: Option<&geo::Place>) -> Value {
    let coordinates = client.and_then(|client| client.coordinates).zip(location.coordinates);
    json!({
        "reason": { "code": reason.code(), "message": reason.to_string() },
        "unhealthy": known.unhealthy.map(model::steering::Unhealthy::as_str),
        "full": known.full,
        "share": match reason {
            Reason::Share { share } | Reason::NotDrawn { share } | Reason::Weighted { share } => Some(*share),
            _ => None,
        },
        "roundTripMs": known.round_trip.map(|rtt| rounded(rtt.as_secs_f64() * 1e3)),
        "distanceKm": coordinates.map(|(client, member)| client.distance_km(&member).round()),
        "region": location.region,
        "provider": location.provider,
    })
}

fn of_place(place: &geo::Place) -> Value {
    json!({
        "latitude": place.coordinates.map(|place| place.latitude()),
        "longitude": place.coordinates.map(|place| place.longitude()),
        "region": place.region,
    })
}

fn situation(situation: Situation) -> &'static str {
    match situation {
        Situation::Usual => "Usual",
        Situation::AllFull => "AllFull",
        Situation::Panic => "Panic",
    }
}

/// To tenths: more was not measured.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
