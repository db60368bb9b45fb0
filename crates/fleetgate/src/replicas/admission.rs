//! Whether somebody's certificate still counts, as the leader knows it: many questions go in one.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use egress::NotAdmitted;
use kubernetes::peers::{AskError, Asks, MAX_ASKED, No};
use model::Snapshot;
use tokio::sync::{mpsc, oneshot};
use tunnel::Identity;

/// Questions that wait: all links of a gateway ask every 5 s.
const WAITING: usize = 16_384;
/// Those that the leader has let in are remembered, for when it is away: of some thousand clusters each with a few credentials.
const REMEMBERED: usize = 65_536;
/// From one question to the leader to the next, so that what is asked in the meantime goes in one.
const PAUSE: Duration = Duration::from_millis(20);

/// What the leader said of one; nothing where it did not answer.
type Answered = Result<Option<No>, ()>;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admissions {
    questions: mpsc::Sender<(String, oneshot::Sender<Answered>)>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// Whether the snapshot is of all of the fleet as it is.
    informed: Arc<AtomicBool>,
    admitted: Arc<Mutex<HashSet<Identity>>>,
}

impl Admissions {
    /// Within a tokio runtime, where the questions go out.
    pub(crate) fn start(asks: Asks, snapshot: Arc<ArcSwap<Snapshot>>, informed: Arc<AtomicBool>) -> Self {
        let (questions, asked) = mpsc::channel(WAITING);
        tokio::spawn(answer(asks, asked));
        Self { questions, snapshot, informed, admitted: Arc::default() }
    }

    /// Of a certificate that was verified, and is valid until then in Unix seconds.
    pub(crate) async fn admit(&self, identity: &Identity, expires: u64) -> Result<(), NotAdmitted> {
        let out = |code, reason: &str| NotAdmitted::Out { code, reason: reason.to_owned() };
        if unix_now() >= expires {
            return Err(out("CertificateExpired", "the client certificate has expired; connect with a new one"));
        }
        let is_there = self.snapshot.load().cluster(&identity.cluster).map(|part| part.holding.uid == identity.uid);
        if is_there != Some(true) {
            // Before all of the fleet has been read nobody is gone.
            if !self.informed.load(Ordering::Acquire) {
                return Err(NotAdmitted::Unavailable);
            }
            let reason = "the cluster that this credential was issued for is gone, was made anew, or is refused";
            return Err(out("ClusterGone", reason));
        }
        match self.ask(identity).await {
            Ok(None) => {
                self.remember(identity);
                Ok(())
            }
            Ok(Some(no)) => {
                self.admitted().remove(identity);
                Err(out(known_code(&no.code), &no.reason))
            }
            // What was admitted stays, what was not is not.
            Err(()) if self.admitted().contains(identity) => Ok(()),
            Err(()) => Err(NotAdmitted::Unavailable),
        }
    }

    async fn ask(&self, identity: &Identity) -> Answered {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send((identity.to_string(), answer)).map_err(drop)?;
        answered.await.unwrap_or(Err(()))
    }

    fn remember(&self, identity: &Identity) {
        let mut admitted = self.admitted();
        if admitted.len() >= REMEMBERED {
            // Those that are still there ask again within seconds.
            admitted.clear();
        }
        admitted.insert(identity.clone());
    }

    fn admitted(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Labels of metrics are fixed, whatever a newer leader says.
fn known_code(code: &str) -> &'static str {
    let known = ["Revoked", "ClusterGone", "CertificateExpired", "Malformed"];
    known.into_iter().find(|known| *known == code).unwrap_or("NotAdmitted")
}

/// Until nobody asks any more.
async fn answer(asks: Asks, mut asked: mpsc::Receiver<(String, oneshot::Sender<Answered>)>) {
    let mut waiting: HashMap<String, Vec<oneshot::Sender<Answered>>> = HashMap::new();
    while let Some((identity, answer)) = asked.recv().await {
        waiting.entry(identity).or_default().push(answer);
        tokio::time::sleep(PAUSE).await;
        while waiting.len() < MAX_ASKED
            && let Ok((identity, answer)) = asked.try_recv()
        {
            waiting.entry(identity).or_default().push(answer);
        }
        let (identities, answers): (Vec<String>, Vec<_>) = waiting.drain().unzip();
        let answered = asks.admitted(identities).await;
        if let Err(error @ AskError::Refused { .. }) = &answered {
            tracing::error!(%error, "the leader does not say whose credential counts");
        }
        match answered {
            Ok(told) => {
                for (told, askers) in told.into_iter().zip(answers) {
                    tell(askers, &Ok(told));
                }
            }
            Err(_) => answers.into_iter().for_each(|askers| tell(askers, &Err(()))),
        }
    }
}

fn tell(askers: Vec<oneshot::Sender<Answered>>, answer: &Answered) {
    for asker in askers {
        // It may have given up.
        let _ = asker.send(answer.clone());
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
