//! In which order a connection would try the addresses of a route. Looking gives nobody's turn or trial away, and puts
//! nothing into the table.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use model::snapshot::Route;

use super::{Health, UpstreamState, Upstreams, rank_of, since_turn};

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prospect {
    pub address: SocketAddr,
    pub health: Health,
    /// Clients could not reach it of late, and nobody has found it back yet.
    pub ejected: bool,
    /// Connections that are open or being opened.
    pub open: u32,
}

impl Upstreams {
    /// The addresses in the order that [`Upstreams::order`] would return; a property holds them together.
    pub fn outlook(&self, route: &Route, now: Instant) -> Vec<Prospect> {
        let states = route.upstreams.iter().map(|address| {
            let known = self.states.lock(address).get(address).cloned();
            known.unwrap_or_else(|| UpstreamState::new(*address).into())
        });
        let states: Vec<_> = states.collect();
        let turn = states.first().map_or(0, |first| first.turns.load(Ordering::Relaxed));
        let mut trial_given = false;
        let mut ranked: Vec<_> = (0..)
            .zip(&states)
            .map(|(position, state)| {
                let standing = |may_try| state.trouble().clone().standing(now, may_try);
                let rank = rank_of(state.health(), standing, &mut trial_given);
                ((rank, state.open(), since_turn(position, turn, states.len())), state)
            })
            .collect();
        ranked.sort_unstable_by_key(|(key, _)| *key);
        ranked.into_iter().map(|(_, state)| Prospect::of(state)).collect()
    }
}

impl Prospect {
    fn of(state: &UpstreamState) -> Self {
        let (address, health) = (state.address(), state.health());
        Self { address, health, ejected: state.is_ejected(), open: state.open() }
    }

    /// Whether nothing speaks against it.
    pub fn is_good(&self) -> bool {
        self.health != Health::Unhealthy && !self.ejected
    }
}
