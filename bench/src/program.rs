//! The binary that is measured.

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;

/// Which one.
#[derive(Debug, Args)]
pub struct Program {
    /// The release binary; the one beside this program by default
    #[arg(long, value_name = "PATH")]
    fleetgate: Option<PathBuf>,
}

impl Program {
    pub fn find(&self) -> anyhow::Result<PathBuf> {
        let program = match &self.fleetgate {
            Some(program) => program.clone(),
            None => env::current_exe().context("finding this program")?.with_file_name("fleetgate"),
        };
        ensure!(program.is_file(), "there is no {}: cargo build --release -p fleetgate", program.display());
        Ok(program)
    }
}
