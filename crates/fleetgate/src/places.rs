//! `--geo`: where clients are, from a file of the operator's that is read again when it changes.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use arc_swap::ArcSwapOption;

/// How often the file is looked at: databases of places come out a few times a week.
const LOOK: Duration = Duration::from_secs(10);

/// Reads the file, and follows it in a thread that nobody waits for. One that cannot be read at the start is a mistake; later
/// what was read last stays.
pub(crate) fn follow(path: &Path, places: Arc<ArcSwapOption<geo::Map>>) -> anyhow::Result<()> {
    let mut seen = Seen::of(path);
    places.store(Some(Arc::new(read(path)?)));
    let path: PathBuf = path.into();
    let look = move || {
        loop {
            std::thread::sleep(LOOK);
            let now = Seen::of(&path);
            if now == seen {
                continue;
            }
            seen = now;
            match read(&path) {
                Ok(map) => places.store(Some(Arc::new(map))),
                Err(error) => tracing::error!("--geo: {error:#}; the places stay as they were"),
            }
        }
    };
    std::thread::Builder::new().name("geo".into()).spawn(look).context("following --geo")?;
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<geo::Map> {
    let shown = path.display();
    let octets = fs::read(path).with_context(|| format!("reading {shown}"))?;
    let map = geo::Map::parse(&octets).with_context(|| format!("understanding {shown}"))?;
    tracing::info!(file = %shown, stretches = map.stretches(), "knows where clients are");
    Ok(map)
}

/// What a file that is replaced or written anew has otherwise.
#[derive(Debug, PartialEq)]
struct Seen(Option<(SystemTime, u64)>);

impl Seen {
    fn of(path: &Path) -> Self {
        let of = |metadata: Metadata| Some((metadata.modified().ok()?, metadata.len()));
        Self(fs::metadata(path).ok().and_then(of))
    }
}
