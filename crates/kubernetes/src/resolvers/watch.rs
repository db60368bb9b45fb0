//! What is on the hub of what the leader keeps, and the resolver's pods: three kinds of objects, followed by their labels.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use super::Settings;
use super::objects::CLUSTER_LABEL;
use crate::apply::{MANAGED_BY, MANAGER};
use crate::watch::{FIRST_PAUSE, LONGEST_PAUSE, PAGE, REJECTIONS, WATCH_FOR, is_rejected, reason};

/// Kubernetes' label by which the slices of a Service are found.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Debug)]
pub(super) enum Heard {
    Service(Box<Change<Service>>),
    Slice(Change<EndpointSlice>),
    Pods(Change<EndpointSlice>),
}

#[derive(Debug)]
pub(super) enum Change<K> {
    /// All that there are.
    Listed(Vec<K>),
    Changed(K),
    Gone(K),
}

/// Goes on until nobody listens any more.
pub(super) async fn follow(client: Client, settings: &Settings, heard: Sender<Heard>) {
    let ours = format!("{MANAGED_BY}={MANAGER},{CLUSTER_LABEL}");
    let (namespace, service) = &settings.pods;
    let pods = Api::namespaced(client.clone(), namespace.as_str());
    tokio::join!(
        tell(Api::all(client.clone()), ours.clone(), &heard, |change| Heard::Service(Box::new(change))),
        tell(Api::all(client.clone()), ours, &heard, Heard::Slice),
        tell(pods, format!("{SERVICE_NAME}={service}"), &heard, Heard::Pods),
    );
}

/// Those with these labels. Returns when nobody listens any more.
pub(super) async fn tell<K, M>(api: Api<K>, labels: String, heard: &Sender<M>, of: fn(Change<K>) -> M)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_FOR).labels(&labels);
    let mut stream = watcher::watcher(api.clone(), config.clone()).boxed();
    let mut listing = Vec::new();
    let (mut pause, mut rejected): (Duration, u32) = (FIRST_PAUSE, 0);
    let mut told = false;
    while let Some(event) = stream.next().await {
        let change = match event {
            Ok(Event::Init) => {
                listing.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listing.push(object);
                continue;
            }
            Ok(Event::InitDone) => Change::Listed(std::mem::take(&mut listing)),
            Ok(Event::Apply(object)) => Change::Changed(object),
            Ok(Event::Delete(object)) => Change::Gone(object),
            Err(error) => {
                if !told {
                    tracing::warn!(labels, error = reason(&error), "the resolver's objects cannot be followed");
                    told = true;
                }
                tokio::time::sleep(pause.mul_f64(1.0 - fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                rejected = if is_rejected(&error) { rejected + 1 } else { 0 };
                if rejected == REJECTIONS {
                    rejected = 0;
                    stream = watcher::watcher(api.clone(), config.clone()).boxed();
                }
                continue;
            }
        };
        (pause, rejected, told) = (FIRST_PAUSE, 0, false);
        if heard.send(of(change)).await.is_err() {
            return;
        }
    }
}
