//! Where the door keeps what must outlive it: the database of a folder, or a hub.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use manifest::kept::{Authorities, ClaimChange, Credential, KeptClaims, Owner};
use model::ObjectRef;
use store::{Database, DatabaseError};

/// It takes a while.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, HomeError>> + Send + 'a>>;

/// Which generation of an object there is now; `None` where it is gone.
pub type Changed = Vec<(ObjectRef, Option<i64>)>;

#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("another process is taking over")]
    HandingOver,
    /// The reason is for the log alone.
    #[error("what agents need could not be read or written")]
    Away(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// For whoever claims it.
    #[error("{0}")]
    Rejected(String),
}

pub trait Home: Send + Sync {
    fn authorities(&self) -> Answer<'_, Option<Authorities>>;
    /// Keeps `next` if what is kept is still `known`; says what is kept now.
    fn keep_authorities(&self, known: Option<Authorities>, next: Authorities) -> Answer<'_, Authorities>;
    /// For every request: quick, and never older than what this process itself did.
    fn credential<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Credential>>;
    /// As it is where it is kept: before anything is signed.
    fn confirm<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Credential>>;
    fn credentials(&self) -> Answer<'_, Vec<Credential>>;
    fn issue(&self, credential: Credential) -> Answer<'_, ()>;
    /// Whether there was one.
    fn revoke<'a>(&'a self, id: &'a str) -> Answer<'a, bool>;
    fn claims<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<KeptClaims>>;
    /// Returns once they are safely kept.
    fn change<'a>(&'a self, owner: &'a Owner, changes: Vec<ClaimChange>) -> Answer<'a, Changed>;
}

/// The database of a folder; away while another process takes over.
pub struct FolderHome(pub Arc<ArcSwapOption<Database>>);

impl FolderHome {
    /// Within the time of a read, which is microseconds.
    fn read<T: Send + 'static>(&self, read: impl FnOnce(&Database) -> Result<T, DatabaseError>) -> Answer<'_, T> {
        let database = self.0.load_full().ok_or(HomeError::HandingOver);
        let answer = database.and_then(|database| read(&database).map_err(away));
        Box::pin(std::future::ready(answer))
    }

    /// In a thread that may wait for the disk.
    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Database) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Answer<'_, T> {
        let database = self.0.load_full();
        Box::pin(async move {
            let database = database.ok_or(HomeError::HandingOver)?;
            let written = tokio::task::spawn_blocking(move || write(&database)).await;
            written.map_err(|error| HomeError::Away(Box::new(error)))?.map_err(away)
        })
    }
}

fn away(error: DatabaseError) -> HomeError {
    HomeError::Away(Box::new(error))
}

impl Home for FolderHome {
    fn authorities(&self) -> Answer<'_, Option<Authorities>> {
        self.read(Database::authorities)
    }

    fn keep_authorities(&self, known: Option<Authorities>, next: Authorities) -> Answer<'_, Authorities> {
        self.write(move |database| database.keep_authorities(known.as_ref(), &next))
    }

    fn credential<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Credential>> {
        self.read(|database| database.credential(id))
    }

    fn confirm<'a>(&'a self, id: &'a str) -> Answer<'a, Option<Credential>> {
        self.credential(id)
    }

    fn credentials(&self) -> Answer<'_, Vec<Credential>> {
        self.read(Database::credentials)
    }

    fn issue(&self, credential: Credential) -> Answer<'_, ()> {
        self.write(move |database| database.keep_credential(&credential))
    }

    fn revoke<'a>(&'a self, id: &'a str) -> Answer<'a, bool> {
        let id = id.to_owned();
        self.write(move |database| database.drop_credential(&id))
    }

    fn claims<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<KeptClaims>> {
        let owner = owner.clone();
        // Ten thousand of them take a while.
        self.write(move |database| database.claims(&owner))
    }

    fn change<'a>(&'a self, owner: &'a Owner, changes: Vec<ClaimChange>) -> Answer<'a, Changed> {
        let owner = owner.clone();
        self.write(move |database| database.change_claims(&owner, changes))
    }
}
