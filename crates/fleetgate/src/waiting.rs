//! A line that moves while somebody waits at a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// Who waits for less does not wonder.
const UNNOTICED: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(250);
/// Back to the beginning of the line, and nothing behind it.
const CLEAR: &str = "\r\x1b[K";

/// Does the work; from two seconds on `what` and the time stand on standard error, where that is a terminal, until it is done.
pub(crate) async fn shown<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let begun = Instant::now();
    if !std::io::stderr().is_terminal() {
        return work.await;
    }
    if let Ok(done) = timeout(UNNOTICED, &mut work).await {
        return done;
    }
    let _line = Line;
    loop {
        // Nobody is told where nobody looks any more.
        let _ = write!(std::io::stderr(), "{CLEAR}{what} ({} s)", begun.elapsed().as_secs());
        if let Ok(done) = timeout(STEP, &mut work).await {
            return done;
        }
    }
}

/// The line goes with whoever waited.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        let _ = write!(std::io::stderr(), "{CLEAR}");
    }
}
