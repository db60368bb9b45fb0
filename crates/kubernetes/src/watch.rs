//! One kind of objects, followed: listed, watched, and listed again when the watch cannot go on.
//!
//! The stream of `kube` resumes by itself and lists anew after `410 Gone`; here it is turned into whole lists and single
//! changes, and slowed down while the hub is away.

use std::time::Duration;

use futures_util::StreamExt as _;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::resource::Watched;
use crate::seen::{Key, Seen};

/// The pause after the first failure, doubled with each further one. Every pause is cut short by up to a half at random,
/// so that the replicas of a hub that comes back do not all ask at once.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// A hub that is back is noticed within this.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A hub that was put back to an earlier state refuses versions that it has not come to yet, for ever: after as many times
/// everything is listed again. A hub that is merely away is not asked for that.
pub(crate) const REJECTIONS: u32 = 3;
/// A watch is resumed without a word. One that has not failed again for so long is taken for resumed; longer than it takes
/// to find out that nobody is there.
const RESUMED: Duration = Duration::from_secs(10);
/// Objects per page of a list: some megabytes.
pub(crate) const PAGE: u32 = 500;
/// Seconds after which a watch is ended by the server and resumed where it was. Kept below what load balancers in front
/// of API servers take for idle.
pub(crate) const WATCH_FOR: u32 = 240;

/// What a watch tells; the number is the watch's own.
#[derive(Debug)]
pub(crate) enum Message {
    /// Everything that there is.
    Listed(usize, Vec<Seen>),
    Changed(usize, Box<Seen>),
    Gone(usize, Key),
    /// It cannot be read at the moment, and why.
    Away(usize, String),
    /// It is read again, and there is nothing to tell.
    Back(usize),
}

/// Follows one kind until told to stop, or until nobody listens any more.
pub(crate) async fn follow(
    client: Client,
    number: usize,
    watched: Watched,
    messages: Sender<Message>,
    stop: CancellationToken,
) {
    let _ = stop.run_until_cancelled(tell(client, number, watched, messages)).await;
}

/// Ends when nobody listens any more.
async fn tell(client: Client, number: usize, watched: Watched, messages: Sender<Message>) {
    let resource = watched.resource;
    let mut config = watcher::Config::default().page_size(PAGE).timeout(WATCH_FOR);
    config.field_selector.clone_from(&watched.fields);
    let api_resource = resource.api();
    let api: Api<DynamicObject> = match &watched.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &api_resource),
        None => Api::all_with(client, &api_resource),
    };
    let mut stream = watcher::watcher(api.clone(), config.clone()).boxed();
    let mut listing = Vec::new();
    let (mut pause, mut rejected) = (FIRST_PAUSE, 0);
    // Whether everything has been listed, so that there is a watch to resume; and whether it failed and nothing came since.
    let (mut listed, mut away) = (false, false);
    loop {
        let next = stream.next();
        let heard = if away && listed { timeout(RESUMED, next).await } else { Ok(next.await) };
        let Ok(event) = heard else {
            away = false;
            if messages.send(Message::Back(number)).await.is_err() {
                return;
            }
            continue;
        };
        let Some(event) = event else { return };
        let message = match event {
            Ok(Event::Init) => {
                listing.clear();
                listed = false;
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listing.extend(Seen::of(resource, object));
                continue;
            }
            Ok(Event::InitDone) => {
                listed = true;
                Message::Listed(number, std::mem::take(&mut listing))
            }
            Ok(Event::Apply(object)) => match Seen::of(resource, object) {
                Some(seen) => Message::Changed(number, seen.into()),
                None => continue,
            },
            Ok(Event::Delete(object)) => match object.metadata.name {
                Some(name) => Message::Gone(number, Key { resource, namespace: object.metadata.namespace, name }),
                None => continue,
            },
            Err(error) if resource.may_be_absent() && is_not_found(&error) => {
                if messages.send(Message::Listed(number, Vec::new())).await.is_err() {
                    return;
                }
                away = false;
                // Somebody may install it one day; nobody waits for that.
                tokio::time::sleep(LONGEST_PAUSE).await;
                continue;
            }
            Err(error) => {
                if messages.send(Message::Away(number, reason(&error))).await.is_err() {
                    return;
                }
                away = true;
                tokio::time::sleep(pause.mul_f64(1.0 - fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                rejected = if is_rejected(&error) { rejected + 1 } else { 0 };
                if rejected == REJECTIONS {
                    (rejected, listed) = (0, false);
                    stream = watcher::watcher(api.clone(), config.clone()).boxed();
                }
                continue;
            }
        };
        (pause, rejected, away) = (FIRST_PAUSE, 0, false);
        if messages.send(message).await.is_err() {
            return;
        }
    }
}

/// Whether the server is there and does not take up the watch where it was.
pub(crate) fn is_rejected(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(_)) | watcher::Error::WatchError(_))
}

pub(crate) fn is_not_found(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    matches!(error, InitialListFailed(kube::Error::Api(status)) | WatchStartFailed(kube::Error::Api(status)) if status.code == 404)
}

/// What the server says, or else the whole chain of what went wrong on the way to it.
pub(crate) fn reason(error: &watcher::Error) -> String {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    match error {
        WatchError(status)
        | InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => format!("{} ({})", status.message, status.code),
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => chain(error),
        NoResourceVersion => error.to_string(),
    }
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let told = cause.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        source = cause.source();
    }
    text
}
