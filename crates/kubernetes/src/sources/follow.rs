//! One kind of objects in one namespace, followed. What could not be listed is never taken for an empty list: neither a
//! server that is away, nor a kind that is not installed.

use futures_util::StreamExt as _;
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use super::Place;
use crate::watch::{FIRST_PAUSE, LONGEST_PAUSE, PAGE, REJECTIONS, WATCH_FOR, is_not_found, is_rejected, reason};

#[derive(Debug)]
pub enum Followed<T> {
    /// Everything that there is.
    Listed(Vec<T>),
    Changed(T),
    Gone(Place),
    /// It cannot be read at the moment, and why.
    Away(String),
    /// The kind is not installed.
    Absent,
}

/// Until told to stop, or until nobody listens any more.
pub(super) async fn follow<T, N>(
    api: Api<DynamicObject>,
    labels: Option<String>,
    read: fn(DynamicObject) -> Option<T>,
    tell: impl Fn(Followed<T>) -> N,
    news: Sender<N>,
    stop: CancellationToken,
) {
    let mut config = watcher::Config::default().page_size(PAGE).timeout(WATCH_FOR);
    config.label_selector = labels;
    stop.run_until_cancelled(tell_all(api, config, read, tell, news)).await;
}

async fn tell_all<T, N>(
    api: Api<DynamicObject>,
    config: watcher::Config,
    read: fn(DynamicObject) -> Option<T>,
    tell: impl Fn(Followed<T>) -> N,
    news: Sender<N>,
) {
    let mut stream = watcher::watcher(api.clone(), config.clone()).boxed();
    let mut listing = Vec::new();
    let (mut pause, mut rejected) = (FIRST_PAUSE, 0);
    while let Some(event) = stream.next().await {
        let (told, wait) = match event {
            Ok(Event::Init) => {
                listing.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listing.extend(read(object));
                continue;
            }
            Ok(Event::InitDone) => (Followed::Listed(std::mem::take(&mut listing)), None),
            Ok(Event::Apply(object)) => match read(object) {
                Some(read) => (Followed::Changed(read), None),
                None => continue,
            },
            Ok(Event::Delete(object)) => match (object.metadata.namespace, object.metadata.name) {
                (Some(namespace), Some(name)) => (Followed::Gone(Place { namespace, name }), None),
                _ => continue,
            },
            // Somebody may install it one day.
            Err(error) if is_not_found(&error) => (Followed::Absent, Some(LONGEST_PAUSE)),
            Err(error) => {
                rejected = if is_rejected(&error) { rejected + 1 } else { 0 };
                if rejected == REJECTIONS {
                    rejected = 0;
                    stream = watcher::watcher(api.clone(), config.clone()).boxed();
                }
                let wait = pause.mul_f64(1.0 - fastrand::f64() / 2.0);
                pause = (pause * 2).min(LONGEST_PAUSE);
                (Followed::Away(reason(&error)), Some(wait))
            }
        };
        if news.send(tell(told)).await.is_err() {
            return;
        }
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        } else {
            (pause, rejected) = (FIRST_PAUSE, 0);
        }
    }
}
