//! Colours, for whoever looks at a terminal.

use std::io::IsTerminal;

use clap::ValueEnum;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Whether what is printed has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Colors {
    /// Where it goes to a terminal that shows them, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Wherever it goes
    Always,
    /// Nowhere
    Never,
}

/// Paints, or leaves everything as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    pub(crate) is_on: bool,
}

impl Paint {
    pub(crate) fn of(colors: Colors, place: &impl IsTerminal) -> Self {
        let is_wanted = || {
            // https://no-color.org: whatever it is set to, unless that is nothing.
            std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        };
        let is_on = match colors {
            Colors::Auto => place.is_terminal() && is_wanted(),
            Colors::Always => true,
            Colors::Never => false,
        };
        Self { is_on }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with(BOLD, text)
    }

    /// Well, or new.
    pub(crate) fn green(self, text: &str) -> String {
        self.with(GREEN, text)
    }

    /// Refused, or gone.
    pub(crate) fn red(self, text: &str) -> String {
        self.with(RED, text)
    }

    /// In doubt, or another than before.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.with(YELLOW, text)
    }

    fn with(self, colour: &str, text: &str) -> String {
        if self.is_on && !text.is_empty() { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }
}
