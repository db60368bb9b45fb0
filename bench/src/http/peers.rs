//! The proxies that are measured, each with the same hosts: one worker, no log of requests, connections to backends kept,
//! and who asked told to the backend.

mod envoy;
mod haproxy;
mod nginx;
mod traefik;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Sites;
use crate::proxies::{Proxy, free_address};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Nginx,
    HAProxy,
    Envoy,
    Traefik,
}

/// A peer that this machine has.
#[derive(Debug, Clone)]
pub struct Found {
    pub peer: Peer,
    /// With its version.
    pub title: String,
    program: PathBuf,
}

/// A chain and its key, as PEM files.
#[derive(Debug, Clone)]
pub struct Pem {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Peer {
    pub const ALL: [Self; 4] = [Self::Nginx, Self::HAProxy, Self::Envoy, Self::Traefik];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::HAProxy => "HAProxy",
            Self::Envoy => "Envoy",
            Self::Traefik => "Traefik",
        }
    }

    /// Asks it for its version, which fetches it should it not be there. `testbed` is the folder with what runs them.
    pub fn find(self, testbed: &Path) -> anyhow::Result<Found> {
        let (program, option) = match self {
            Self::Nginx => (testbed.join("nginx"), "-v"),
            Self::HAProxy => (testbed::haproxy().context("run testbed/install")?.program().into(), "-v"),
            Self::Envoy => (testbed.join("envoy"), "--version"),
            Self::Traefik => (testbed.join("traefik"), "version"),
        };
        let output = Command::new(&program).arg(option).output();
        let output = output.with_context(|| format!("running {}", program.display()))?;
        // Some write it here, some there.
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let version = version_in(&text).with_context(|| format!("it says no version, but {}", text.trim()))?;
        let title = format!("{} {version}", self.name());
        Ok(Found { peer: self, title, program: program.canonicalize()? })
    }
}

impl Found {
    /// On plain HTTP; keeps its configuration in `folder`.
    pub fn start(&self, folder: &Path, sites: Sites<'_>) -> anyhow::Result<Proxy> {
        let folder = &folder.join(self.peer.name());
        fs::create_dir_all(folder)?;
        let door = free_address()?;
        let command = match self.peer {
            Peer::Nginx => nginx::command(&self.program, folder, door, None, sites)?,
            Peer::HAProxy => haproxy::command(&self.program, folder, door, sites)?,
            Peer::Envoy => envoy::command(&self.program, folder, door, sites)?,
            Peer::Traefik => traefik::command(&self.program, folder, door, sites)?,
        };
        Proxy::start(self.peer.name(), door, &command)
    }
}

/// nginx on TLS, for both versions of HTTP.
pub fn start_nginx_tls(nginx: &Found, folder: &Path, pem: &Pem, sites: Sites<'_>) -> anyhow::Result<Proxy> {
    let folder = &folder.join("nginx-tls");
    fs::create_dir_all(folder)?;
    let door = free_address()?;
    Proxy::start("nginx", door, &nginx::command(&nginx.program, folder, door, Some(pem), sites)?)
}

/// The first word that looks like one: 1.26.3, whatever stands around it.
fn version_in(text: &str) -> Option<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '.'));
    words.into_iter().find(|word| {
        word.split('.').count() == 3
            && word.split('.').all(|part| part.bytes().next().is_some_and(|first| first.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_they_are_told() {
        for (text, expected) in [
            ("nginx version: nginx/1.26.3\n", Some("1.26.3")),
            ("HAProxy version 3.0.11-1+deb13u3 2026/05/20 - https://haproxy.org/", Some("3.0.11")),
            ("envoy  version: 0a1b/1.40.0/Clean/RELEASE/BoringSSL", Some("1.40.0")),
            ("Version:      3.7.15\nCodename:     langres\nGo version:   go1.26.9\n", Some("3.7.15")),
            ("command not found", None),
        ] {
            assert_eq!(version_in(text), expected, "{text}");
        }
    }
}
