//! Draws the figures of `bench/README.md` anew: `make plots`.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    bench::plots::write(Path::new("."))
}
