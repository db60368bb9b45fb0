//! `dig`, as tests ask with it.

use std::io;
use std::process::{Command, Output};

/// What it says when it has heard its own question.
const OWN_VOICE: &str = "Warning: query response not set";
/// More would be no accident.
const ATTEMPTS: usize = 3;

/// What it prints. It shares its port with whoever wants that, and so do the sockets of Fleetgate's DNS: where nobody chose
/// either port, the kernel may give it the very port of the server on this machine that it asks. Then it hears itself, and is
/// asked again.
pub fn dig(command: &mut Command) -> io::Result<Output> {
    let mut output = command.output()?;
    for _ in 1..ATTEMPTS {
        if !String::from_utf8_lossy(&output.stdout).contains(OWN_VOICE) {
            break;
        }
        output = command.output()?;
    }
    Ok(output)
}
