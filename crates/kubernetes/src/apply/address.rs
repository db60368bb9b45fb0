//! `Address` objects: who has which. Only whoever knows what stands there replaces it, and creating one is left to the hub to
//! refuse: that no address is given twice does not depend on who leads.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manifest::address::{self, AddressSpec};
use model::address::AddressName;
use model::identity::Kind;
use model::{ObjectName, ObjectRef, Snapshot};
use serde_json::{Value, json};

use super::wanted::Write;
use super::{MANAGED_BY, MANAGER};

/// One as the hub has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenAddress {
    pub(super) uid: String,
    pub(super) version: String,
    /// `None` if it cannot be read.
    spec: Option<AddressSpec>,
}

impl SeenAddress {
    pub(super) fn read(meta: &ObjectMeta, spec: &Value) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
            spec: serde_json::from_value(spec.clone()).ok(),
        }
    }
}

pub(super) fn object(address: IpAddr) -> ObjectRef {
    ObjectRef::cluster_scoped(Kind::Address, AddressName(address).to_object_name())
}

/// What is to be written, if the plan was made from what the hub has.
pub(super) fn wanted(name: &ObjectName, plan: &Snapshot, there: Option<&SeenAddress>) -> Option<Write> {
    let entry = plan.address(address::of_name(name).ok()?)?;
    let spec = |allocation: &Option<_>| allocation.as_ref().map(AddressSpec::from);
    let (known, wanted) = (spec(&entry.actual), spec(&entry.wanted));
    let on_hub = there.map(|there| there.spec.clone());
    if known == wanted || on_hub != known.map(Some) {
        return None;
    }
    let name = name.clone();
    Some(match (there, wanted) {
        (None, Some(spec)) => Write::Allocate { name, spec },
        (Some(SeenAddress { uid, version, .. }), Some(spec)) => {
            Write::Reallocate { name, uid: uid.clone(), version: version.clone(), spec }
        }
        (Some(SeenAddress { uid, version, .. }), None) => {
            Write::Free { name, uid: uid.clone(), version: version.clone() }
        }
        (None, None) => return None,
    })
}

/// What is written; of an object that is there, with what it has to be for the hub to take it.
pub(super) fn body(name: &ObjectName, there: Option<(&str, &str)>, spec: &AddressSpec) -> Value {
    let mut body = json!({
        "apiVersion": Kind::Address.api_version(),
        "kind": Kind::Address.as_str(),
        "metadata": { "name": name.as_str(), "labels": { MANAGED_BY: MANAGER } },
        "spec": spec,
    });
    if let Some((uid, version)) = there {
        body["metadata"]["uid"] = uid.into();
        body["metadata"]["resourceVersion"] = version.into();
    }
    body
}
