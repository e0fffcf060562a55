//! Choice of the thread that a session goes on with.

use async_recursion::async_recursion as boxed;

use super::remote::RemoteRequest;
use super::requests::ActorRequest;
use super::view::ThreadChoice;
use super::{Manager, ManagerError, SessionView, lock};
use crate::session::{CompactError, SessionError, UnfoldError};
use conjure_store::{StoreError, ThreadId};

impl Manager {
    /// Goes on with a fresh thread. A turn that runs comes to its end where it was begun.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's.
    #[boxed]
    pub async fn start_thread(&self, session: &str) -> Result<SessionView, ManagerError> {
        self.switch_thread(session, &ThreadChoice::New).await
    }

    /// Goes on with a thread that there is. Where another session writes it, the next turn waits
    /// for that.
    ///
    /// # Errors
    /// As [`Manager::start_thread`].
    #[boxed]
    pub async fn choose_thread(
        &self,
        session: &str,
        thread: &ThreadId,
    ) -> Result<SessionView, ManagerError> {
        let thread = thread.clone();
        self.switch_thread(session, &ThreadChoice::Existing { thread })
            .await
    }

    /// Goes on with a fork of a thread, behind one of its entries, the newest where none is named.
    /// Both branches stay.
    ///
    /// # Errors
    /// As [`Manager::start_thread`], and when the thread has no such entry.
    #[boxed]
    pub async fn fork_thread(
        &self,
        session: &str,
        thread: &ThreadId,
        upto: Option<u64>,
    ) -> Result<SessionView, ManagerError> {
        let thread = thread.clone();
        self.switch_thread(session, &ThreadChoice::Fork { thread, upto })
            .await
    }

    async fn switch_thread(
        &self,
        session: &str,
        choice: &ThreadChoice,
    ) -> Result<SessionView, ManagerError> {
        let session = self.id_of(session).await?;
        let thread = self.thread_of(choice).await?;
        let row = self
            .ask(&session, |done| ActorRequest::Choose {
                thread: thread.clone(),
                done,
            })
            .await??;
        self.view(row).await
    }

    /// What became of a session that was to go on with the thread of a choice. A thread that was made
    /// for one that is refused goes again; after any other failure it may have been saved all the same.
    pub(super) async fn with_thread<T>(
        &self,
        created: Result<T, ManagerError>,
        choice: &ThreadChoice,
        thread: &ThreadId,
    ) -> Result<T, ManagerError> {
        let is_made = !matches!(choice, ThreadChoice::Existing { .. });
        let is_refused = matches!(
            &created,
            Err(ManagerError::NotFound { .. }
                | ManagerError::Invalid { .. }
                | ManagerError::Auth(_)
                | ManagerError::Store(StoreError::NameTaken { .. } | StoreError::BadName { .. }))
        );
        if is_made && is_refused {
            // Nothing is lost if it stays: it is empty, or shows what stands elsewhere.
            let _ = self.inner.store.remove_thread(thread).await;
        }
        created
    }

    /// The thread of a choice, made where it is to be.
    pub(super) async fn thread_of(&self, choice: &ThreadChoice) -> Result<ThreadId, ManagerError> {
        let store = &self.inner.store;
        match choice {
            ThreadChoice::New => {
                let thread = ThreadId::fresh();
                store.create_thread(&thread, "").await?;
                Ok(thread)
            }
            ThreadChoice::Existing { thread } => Ok(store.thread(thread).await?.id),
            ThreadChoice::Fork { thread, upto } => {
                let upto = match upto {
                    Some(upto) => *upto,
                    None => store.thread(thread).await?.last_seq,
                };
                let fork = ThreadId::fresh();
                store.fork(thread, upto, &fork).await?;
                Ok(fork)
            }
        }
    }

    /// Deletes what a thread shows for good, except for what forks of it show. A turn that runs on
    /// it is ended first.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], and the store's, also when another process writes it.
    #[boxed]
    pub async fn clear_thread(&self, thread: &ThreadId) -> Result<(), ManagerError> {
        self.leave(thread).await?;
        Ok(self.inner.store.clear_thread(thread).await?)
    }

    /// Clears a thread and takes it away. Sessions that chose it have none then, until they begin
    /// another one.
    ///
    /// # Errors
    /// As [`Manager::clear_thread`].
    #[boxed]
    pub async fn remove_thread(&self, thread: &ThreadId) -> Result<(), ManagerError> {
        self.leave(thread).await?;
        Ok(self.inner.store.remove_thread(thread).await?)
    }

    /// Takes a compaction of a thread back, the one that stands or that of an entry: from the next
    /// request on the model reads again what it hid. Gives back the compaction's entry, and how
    /// many tokens of the conversation that makes, about.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], [`SessionError::Unfold`] says what stands in the way, and the
    /// store's, also when another process writes the thread.
    #[boxed]
    pub async fn unfold(
        &self,
        thread: &ThreadId,
        fold: Option<u64>,
    ) -> Result<(u64, u64), ManagerError> {
        let remote = || RemoteRequest::Unfold {
            thread: thread.clone(),
            fold,
        };
        match self.at_writer(thread, remote).await? {
            Some(unfolded) => Ok(unfolded),
            None => self.unfold_here(thread, fold).await,
        }
    }

    pub(super) async fn unfold_here(
        &self,
        thread: &ThreadId,
        fold: Option<u64>,
    ) -> Result<(u64, u64), ManagerError> {
        if let Some(owner) = self.opener_of(thread) {
            let unfolded = self.ask_running(&owner, |done| ActorRequest::Unfold {
                thread: thread.clone(),
                fold,
                done,
            });
            match unfolded.await {
                // It was closed meanwhile.
                None | Some(Err(UnfoldError::Ended)) => {}
                Some(done) => return Ok(done.map_err(SessionError::from)?),
            }
        }
        self.inner.store.thread(thread).await?;
        Ok(self.inner.host.unfold(thread, fold).await?)
    }

    /// Puts a summary in place of the older part of a thread, as far as the model reads it: written
    /// by the model of the session that has the thread open, else of `session`, else of one that
    /// chose the thread. Gives back the compaction's entry, and how many tokens of the conversation
    /// the model reads now, about.
    ///
    /// # Errors
    /// [`ManagerError::NotFound`], [`ManagerError::Conflict`] where no session has the thread,
    /// [`SessionError::Compact`] says why nothing was summarised, and the store's.
    #[boxed]
    pub async fn compact(
        &self,
        thread: &ThreadId,
        session: Option<&str>,
    ) -> Result<(u64, u64), ManagerError> {
        let session = match session {
            Some(session) => Some(self.id_of(session).await?),
            None => None,
        };
        let remote = || RemoteRequest::Compact {
            thread: thread.clone(),
            session: session.clone(),
        };
        match self.at_writer(thread, remote).await? {
            Some(compacted) => Ok(compacted),
            None => self.compact_here(thread, session).await,
        }
    }

    pub(super) async fn compact_here(
        &self,
        thread: &ThreadId,
        session: Option<String>,
    ) -> Result<(u64, u64), ManagerError> {
        let owner = match (self.opener_of(thread), session) {
            (Some(owner), _) => owner,
            (None, Some(session)) => session,
            (None, None) => {
                let id = self.inner.store.thread(thread).await?.id;
                let sessions = self.inner.store.thread_sessions(&id).await?;
                let first = sessions.into_iter().next().map(|session| session.id);
                first.ok_or_else(|| ManagerError::Conflict {
                    message: "no session has chosen this thread: name one whose model is to \
                              summarise it"
                        .to_owned(),
                })?
            }
        };
        let summary = self
            .ask(&owner, |done| ActorRequest::Compact {
                thread: thread.clone(),
                done,
            })
            .await??;
        Ok(summary.await.unwrap_or(Err(CompactError::Ended))?)
    }

    /// Ends what runs on a thread, here or in another process, and closes it.
    async fn leave(&self, thread: &ThreadId) -> Result<(), ManagerError> {
        let remote = || RemoteRequest::Leave {
            thread: thread.clone(),
        };
        if self.at_writer::<()>(thread, remote).await?.is_none() {
            self.leave_here(thread).await;
        }
        Ok(())
    }

    pub(super) async fn leave_here(&self, thread: &ThreadId) {
        if let Some(owner) = self.opener_of(thread) {
            let left = self.ask_running(&owner, |done| ActorRequest::Leave {
                thread: thread.clone(),
                done,
            });
            let _ = left.await;
        }
    }

    /// The session that has a thread open here.
    fn opener_of(&self, thread: &ThreadId) -> Option<String> {
        let live = lock(&self.inner.active_threads);
        live.get(thread).map(|live| live.owner.clone())
    }
}
