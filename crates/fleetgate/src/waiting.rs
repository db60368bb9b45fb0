//! A line that moves while somebody waits at a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Who waits for less does not wonder.
const UNNOTICED: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(250);
/// Back to the beginning of the line, and nothing behind it.
const CLEAR: &str = "\r\x1b[K";
/// Of a bar.
const WIDTH: u64 = 24;

/// Somebody waits for as long as it lives. From two seconds on what for, for how long and how far it is stand on standard error,
/// where that is a terminal, and nowhere else.
pub(crate) struct Waiting {
    state: Arc<(Mutex<State>, Condvar)>,
    line: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// How many of how many.
    progress: Option<(u64, u64)>,
    is_over: bool,
}

impl Waiting {
    pub(crate) fn on(what: impl Into<String>) -> Self {
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let what = what.into();
        let line = std::io::stderr().is_terminal().then(|| {
            let state = Arc::clone(&state);
            std::thread::spawn(move || show(&what, &state))
        });
        Self { state, line }
    }

    pub(crate) fn advance(&self, done: u64, all: u64) {
        lock(&self.state.0).progress = Some((done, all));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.state.0).is_over = true;
        self.state.1.notify_one();
        // The line is gone before anything else is printed.
        if let Some(line) = self.line.take() {
            _ = line.join();
        }
    }
}

fn show(what: &str, (state, changed): &(Mutex<State>, Condvar)) {
    let begun = Instant::now();
    let mut patience = UNNOTICED;
    let mut is_shown = false;
    let mut state = lock(state);
    loop {
        let waited = changed.wait_timeout_while(state, patience, |state| !state.is_over);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.is_over {
            break;
        }
        let line = line(what, begun.elapsed(), state.progress);
        // Whatever else is written, such as a line of the log, takes its place. Nobody is told where nobody looks any more.
        _ = write!(std::io::stderr(), "{CLEAR}{line}\r");
        (is_shown, patience) = (true, STEP);
    }
    if is_shown {
        _ = write!(std::io::stderr(), "{CLEAR}");
    }
}

fn line(what: &str, time: Duration, progress: Option<(u64, u64)>) -> String {
    let seconds = time.as_secs();
    match progress.filter(|(_, all)| *all > 0) {
        None => format!("{what} ({seconds} s)"),
        Some((done, all)) => {
            let full = (done.min(all) * WIDTH).checked_div(all).unwrap_or(WIDTH);
            let bar: String = (0..WIDTH).map(|step| if step < full { '#' } else { '.' }).collect();
            format!("{what} [{bar}] {done} of {all} ({seconds} s)")
        }
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        let time = Duration::from_millis(2999);
        for (progress, expected) in [
            (None, "asking (2 s)".to_owned()),
            (Some((0, 0)), "asking (2 s)".to_owned()),
            (Some((0, 8)), format!("asking [{}] 0 of 8 (2 s)", ".".repeat(24))),
            (Some((6, 8)), format!("asking [{}{}] 6 of 8 (2 s)", "#".repeat(18), ".".repeat(6))),
            (Some((9, 8)), format!("asking [{}] 9 of 8 (2 s)", "#".repeat(24))),
        ] {
            assert_eq!(line("asking", time, progress), expected);
        }
    }
}
