//! What a process is to do, whichever command said so.

use std::path::PathBuf;

use kubernetes::resource::Roles;

use crate::arguments::{
    AdmissionOptions, AgentsOptions, AnswerOptions, ControllerOptions, DnsOptions, DoorOptions, GatewayOptions,
    HubOptions, MemberOptions, PeersOptions, ReaderOptions, ServeOptions, StateOptions, ViewOptions,
};
use crate::egress::EgressOptions;
use crate::replicas::RelayOptions;
use crate::resolver::ResolverOptions;
use crate::wiring::{HubDomainOptions, WiringOptions};

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) home: JobHome,
    pub(crate) state: StateOptions,
    pub(crate) take_over: bool,
    pub(crate) admission: AdmissionOptions,
    pub(crate) peers: PeersOptions,
    pub(crate) relay: RelayOptions,
    pub(crate) wiring: WiringOptions,
    pub(crate) hub_domain: HubDomainOptions,
    pub(crate) resolver: ResolverOptions,
    pub(crate) answers: AnswerOptions,
    pub(crate) doors: DoorOptions,
    pub(crate) agents: AgentsOptions,
    pub(crate) egress: EgressOptions,
    pub(crate) members: MemberOptions,
    pub(crate) views: ViewOptions,
}

/// Where the facts come from.
#[derive(Debug, Clone)]
pub(crate) enum JobHome {
    Folder(PathBuf),
    Hub { access: HubOptions, roles: Roles },
}

impl Job {
    /// With nothing to do yet.
    fn of(home: JobHome, views: ViewOptions) -> Self {
        Self {
            home,
            // Nothing on disk.
            state: StateOptions { data: None, data_key: None },
            take_over: false,
            admission: AdmissionOptions::default(),
            peers: PeersOptions::default(),
            relay: RelayOptions::default(),
            wiring: WiringOptions::default(),
            hub_domain: HubDomainOptions::default(),
            resolver: ResolverOptions::default(),
            answers: AnswerOptions::default(),
            doors: DoorOptions::default(),
            agents: AgentsOptions::default(),
            egress: EgressOptions::default(),
            members: MemberOptions::default(),
            views,
        }
    }
}

impl From<ServeOptions> for Job {
    fn from(options: ServeOptions) -> Self {
        let ServeOptions {
            fleet,
            hub: _,
            access,
            admission,
            peers,
            relay,
            wiring,
            hub_domain,
            resolver,
            state,
            take_over,
            answers,
            doors,
            agents,
            egress,
            members,
            views,
        } = options;
        let home = match fleet {
            Some(fleet) => JobHome::Folder(fleet),
            None => JobHome::Hub { access, roles: Roles::ALL },
        };
        Self {
            home,
            state,
            take_over,
            admission,
            peers,
            relay,
            wiring,
            hub_domain,
            resolver,
            answers,
            doors,
            agents,
            egress,
            members,
            views,
        }
    }
}

impl From<ControllerOptions> for Job {
    /// A controller begins with what the hub says: there is nothing else that it could write back.
    fn from(options: ControllerOptions) -> Self {
        let ControllerOptions { access, agents, admission, peers, wiring, hub_domain, views } = options;
        let home = JobHome::Hub { access, roles: Roles { controller: true, ..Roles::default() } };
        Self { admission, peers, wiring, hub_domain, agents, ..Self::of(home, views) }
    }
}

impl From<DnsOptions> for Job {
    fn from(DnsOptions { command: _, answers, resolver, hub_domain, reader }: DnsOptions) -> Self {
        let ReaderOptions { access, state, members, views } = reader;
        let home = JobHome::Hub { access, roles: Roles { dns: true, ..Roles::default() } };
        Self { state, hub_domain, resolver, answers, members, ..Self::of(home, views) }
    }
}

impl From<GatewayOptions> for Job {
    fn from(GatewayOptions { doors, links, relay, egress, reader }: GatewayOptions) -> Self {
        let ReaderOptions { access, state, members, views } = reader;
        let home = JobHome::Hub { access, roles: Roles { gateway: true, ..Roles::default() } };
        let agents = AgentsOptions { agents: links.agents, admin_credential: None };
        Self { state, relay, doors, agents, egress, members, ..Self::of(home, views) }
    }
}
