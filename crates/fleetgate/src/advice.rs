//! What somebody can do about an error, told below it.

use std::fmt;
use std::io;
use std::path::Path;

/// An error with a next step.
#[derive(Debug)]
pub(crate) struct Advised {
    error: anyhow::Error,
    advice: String,
}

pub(crate) trait Advise<T> {
    fn advise(self, advice: impl FnOnce() -> String) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Advise<T> for Result<T, E> {
    fn advise(self, advice: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| Advised { error: error.into(), advice: advice() }.into())
    }
}

/// The next step of an error that has one, whatever it was wrapped into.
pub(crate) fn of(error: &anyhow::Error) -> Option<&str> {
    let given = error.chain().find_map(|cause| cause.downcast_ref::<Advised>()).map(|advised| advised.advice.as_str());
    given.or_else(|| error.chain().find_map(|cause| of_listener(cause.downcast_ref::<io::Error>()?.kind())))
}

/// Whichever door it is.
fn of_listener(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::AddrInUse => {
            Some("something else listens there: `ss -lntup` shows what; end it, or give another address")
        }
        io::ErrorKind::AddrNotAvailable => {
            Some("no interface of this machine has that address: `ip addr` lists those that it has")
        }
        _ => None,
    }
}

/// What to give instead of a folder that is none.
pub(crate) fn of_folder(fleet: &Path) -> String {
    match fleet.parent().filter(|_| fleet.is_file()) {
        Some(folder) if folder.as_os_str().is_empty() => "give the folder that the file is in: --fleet .".into(),
        Some(folder) => format!("give the folder that the file is in: --fleet {}", folder.display()),
        None if fleet.exists() => format!("see who may read it: `ls -ld {}`", fleet.display()),
        None => "give the folder with your manifests by --fleet DIR or FLEETGATE_FLEET; examples/fleet of the sources is one".into(),
    }
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // With its causes: nobody asks for them one by one.
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for Advised {}
