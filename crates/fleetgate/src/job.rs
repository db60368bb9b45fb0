//! What a process is to do, whichever command said so.

use std::path::PathBuf;

use kubernetes::resource::Roles;

use crate::arguments::{
    AdmissionOptions, AgentsOptions, AnswerOptions, ControllerOptions, DnsOptions, DoorOptions, GatewayOptions,
    HubOptions, MemberOptions, PeersOptions, ReaderOptions, ServeOptions, StateOptions, ViewOptions,
};

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) home: JobHome,
    pub(crate) state: StateOptions,
    pub(crate) take_over: bool,
    pub(crate) admission: AdmissionOptions,
    pub(crate) peers: PeersOptions,
    pub(crate) answers: AnswerOptions,
    pub(crate) doors: DoorOptions,
    pub(crate) agents: AgentsOptions,
    pub(crate) members: MemberOptions,
    pub(crate) views: ViewOptions,
}

/// Where the facts come from.
#[derive(Debug, Clone)]
pub(crate) enum JobHome {
    Folder(PathBuf),
    Hub { access: HubOptions, roles: Roles },
}

/// Nothing on disk.
const NO_STATE: StateOptions = StateOptions { data: None, data_key: None };

impl From<ServeOptions> for Job {
    fn from(options: ServeOptions) -> Self {
        let ServeOptions {
            fleet,
            hub: _,
            access,
            admission,
            peers,
            state,
            take_over,
            answers,
            doors,
            agents,
            members,
            views,
        } = options;
        let home = match fleet {
            Some(fleet) => JobHome::Folder(fleet),
            None => JobHome::Hub { access, roles: Roles::ALL },
        };
        Self { home, state, take_over, admission, peers, answers, doors, agents, members, views }
    }
}

impl From<ControllerOptions> for Job {
    /// A controller begins with what the hub says: there is nothing else that it could write back.
    fn from(ControllerOptions { access, agents, admission, peers, views }: ControllerOptions) -> Self {
        let home = JobHome::Hub { access, roles: Roles { controller: true, ..Roles::default() } };
        let (answers, doors, members) = (AnswerOptions::default(), DoorOptions::default(), MemberOptions::default());
        Self { home, state: NO_STATE, take_over: false, admission, peers, answers, doors, agents, members, views }
    }
}

impl From<DnsOptions> for Job {
    fn from(DnsOptions { answers, reader }: DnsOptions) -> Self {
        let ReaderOptions { access, state, members, views } = reader;
        let home = JobHome::Hub { access, roles: Roles { dns: true, ..Roles::default() } };
        let (doors, agents) = (DoorOptions::default(), AgentsOptions::default());
        let (admission, peers) = (AdmissionOptions::default(), PeersOptions::default());
        Self { home, state, take_over: false, admission, peers, answers, doors, agents, members, views }
    }
}

impl From<GatewayOptions> for Job {
    fn from(GatewayOptions { doors, reader }: GatewayOptions) -> Self {
        let ReaderOptions { access, state, members, views } = reader;
        let home = JobHome::Hub { access, roles: Roles { gateway: true, ..Roles::default() } };
        let (answers, agents) = (AnswerOptions::default(), AgentsOptions::default());
        let (admission, peers) = (AdmissionOptions::default(), PeersOptions::default());
        Self { home, state, take_over: false, admission, peers, answers, doors, agents, members, views }
    }
}
