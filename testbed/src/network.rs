//! A host in the middle and others around it, as a hub and the networks of its tenants are.

use crate::host::{Host, NoHost};
use crate::installed::or_skip;
use crate::work_dir::WorkDir;
use std::fs;
use std::path::PathBuf;

/// A hub that nobody is joined to yet. `None` means that the test should return. It then counts as passed, so this says
/// loudly that it was skipped.
///
/// # Panics
/// If `CI=true`: there a test that did not run must not look like one that passed.
pub fn network() -> Option<Network> {
    or_skip(Network::make())
}

/// Each of the others has a cable to the hub and none to another, and nobody passes packets on: two may have the same
/// addresses inside. All have a resolv.conf of their own, so that programs resolve names as they would there.
pub struct Network {
    pub hub: Host,
    joined: usize,
    folder: WorkDir,
}

/// A host around the hub.
#[derive(Clone)]
pub struct Outpost {
    pub host: Host,
    hub: Host,
    /// What the hub calls the cable to it.
    cable: String,
    resolv_conf: PathBuf,
}

impl Network {
    fn make() -> Result<Self, NoHost> {
        let folder = WorkDir::create().map_err(NoHost::ResolvConf)?;
        let resolv_conf = folder.path().join("hub.resolv.conf");
        fs::write(&resolv_conf, "").map_err(NoHost::ResolvConf)?;
        Ok(Self { hub: Host::alone(Some(&resolv_conf))?, joined: 0, folder })
    }

    /// A host with a cable to the hub. `addresses` are the hub's and its own on that cable, as in [`crate::hosts`];
    /// `inside` are addresses that it alone knows of, and `resolv_conf` is the file.
    pub fn join(&mut self, addresses: [&str; 2], inside: &[&str], resolv_conf: &str) -> Result<Outpost, NoHost> {
        self.joined += 1;
        let cable = format!("cable{}", self.joined);
        let file = self.folder.path().join(format!("{cable}.resolv.conf"));
        fs::write(&file, resolv_conf).map_err(NoHost::ResolvConf)?;
        let host = self.hub.another(Some(&file))?;
        let [hub, own] = addresses;
        self.hub.join([&cable, "cable"], &host, [&[hub], &[own]])?;
        for address in inside {
            host.ip(&format!("address add {address} dev lo\n"))?;
        }
        Ok(Outpost { host, hub: self.hub.clone(), cable, resolv_conf: file })
    }
}

impl Outpost {
    /// Nothing comes through any more, and nobody is told: packets are lost as by a cable that was pulled.
    pub fn cut(&self) -> Result<(), NoHost> {
        self.hub.ip(&format!("link set {} down", self.cable))
    }

    /// Returns once it carries again.
    pub fn mend(&self) -> Result<(), NoHost> {
        self.hub.ip(&format!("link set {} up", self.cable))?;
        self.hub.wait_for_cable(&self.cable)?;
        self.host.wait_for_cable("cable")
    }

    /// Another resolv.conf. Programs that run see it as soon as they look again.
    pub fn resolve_by(&self, resolv_conf: &str) -> Result<(), NoHost> {
        // Written in place: the host has this very file, not its name.
        fs::write(&self.resolv_conf, resolv_conf).map_err(NoHost::ResolvConf)
    }
}
