//! How many chats are replayed at the same time, and what the last replays found, which other pages of
//! their steps show without another replay.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_runtime::replay::OtherModel;
use conjure_store::ThreadId;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};

use super::replay_steps::ReplayedChat;

/// Sessions whose backends are opened for replays at the same time.
const MAX_OPENINGS: usize = 4;
/// Chats that are replayed at the same time: all requests of each are in memory.
const MAX_REPLAYS: usize = 1;
/// How long the backends of a session may take to open.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a replay waits for others.
const ROOM_TIMEOUT: Duration = Duration::from_secs(30);
/// Replays that are kept, and how long: what the key of one does not have may change meanwhile.
const MAX_CACHED: usize = 2;
const CACHE_LIFETIME: Duration = Duration::from_secs(60);

/// What a replay was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReplayKey {
    pub(super) session: String,
    pub(super) thread: ThreadId,
    /// The thread's newest entry.
    pub(super) last_seq: u64,
    /// When the session's settings were changed.
    pub(super) settings: i64,
    /// The plugins, by their registry's generation.
    pub(super) generation: u64,
    /// What is held: see [`held_mark`](crate::held_tools::held_mark).
    pub(super) held: u64,
    pub(super) to: Option<OtherModel>,
}

/// Why a replay did not come about.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayRoomError {
    #[error("other chats are being replayed; try again when they are done")]
    Full,
    #[error("backends of other sessions are still being made ready; try again when they are")]
    OpeningsFull,
    #[error(
        "the session's backends were not ready within {} s; Routes of the session says how they are",
        OPENING_TIMEOUT.as_secs()
    )]
    NotReady,
    #[error("it broke: {0}")]
    Broken(#[from] JoinError),
}

/// Room for replays. Cloning it is cheap.
#[derive(Clone)]
pub(crate) struct ReplayRooms {
    openings: Arc<Semaphore>,
    replays: Arc<Semaphore>,
    cache: Arc<Mutex<VecDeque<CachedReplay>>>,
}

struct CachedReplay {
    key: ReplayKey,
    made_at: Instant,
    chat: Arc<ReplayedChat>,
}

impl Default for ReplayRooms {
    fn default() -> Self {
        Self {
            openings: Arc::new(Semaphore::new(MAX_OPENINGS)),
            replays: Arc::new(Semaphore::new(MAX_REPLAYS)),
            cache: Arc::default(),
        }
    }
}

impl ReplayRooms {
    /// What was found a moment ago by a replay that was made of the same.
    pub(super) fn cached(&self, key: &ReplayKey) -> Option<Arc<ReplayedChat>> {
        let mut kept = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|replay| replay.made_at.elapsed() < CACHE_LIFETIME);
        let found = kept.iter().find(|replay| replay.key == *key);
        found.map(|replay| Arc::clone(&replay.chat))
    }

    /// Keeps what a replay found, in place of the oldest.
    pub(super) fn insert(&self, key: ReplayKey, chat: &Arc<ReplayedChat>) {
        let mut kept = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|replay| replay.key != key);
        while kept.len() >= MAX_CACHED {
            kept.pop_front();
        }
        kept.push_back(CachedReplay {
            key,
            made_at: Instant::now(),
            chat: Arc::clone(chat),
        });
    }

    /// Opens the backends of a session. What takes too long goes on by itself to its end, so that what
    /// it opened is closed again, and holds up no replay meanwhile.
    ///
    /// # Errors
    /// [`ReplayRoomError`].
    pub(super) async fn open<T: Send + 'static>(
        &self,
        opening: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ReplayRoomError> {
        let room = timeout(ROOM_TIMEOUT, Arc::clone(&self.openings).acquire_owned()).await;
        let Ok(Ok(room)) = room else {
            return Err(ReplayRoomError::OpeningsFull);
        };
        let opening = tokio::spawn(async move {
            let opened = opening.await;
            drop(room);
            opened
        });
        match timeout(OPENING_TIMEOUT, opening).await {
            Ok(opened) => Ok(opened?),
            Err(_) => Err(ReplayRoomError::NotReady),
        }
    }

    /// Replays a chat in its turn. It goes on also where nobody waits for it any more, and keeps its
    /// turn.
    ///
    /// # Errors
    /// [`ReplayRoomError`].
    pub(super) async fn replay<T: Send + 'static>(
        &self,
        replaying: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ReplayRoomError> {
        let turn = timeout(ROOM_TIMEOUT, Arc::clone(&self.replays).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(ReplayRoomError::Full);
        };
        let replaying = tokio::spawn(async move {
            let replayed = replaying.await;
            drop(turn);
            replayed
        });
        Ok(replaying.await?)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn key(last_seq: u64) -> ReplayKey {
        ReplayKey {
            session: "s".to_owned(),
            thread: ThreadId::fresh(),
            last_seq,
            settings: 0,
            generation: 1,
            held: 0,
            to: None,
        }
    }

    fn chat() -> Arc<ReplayedChat> {
        Arc::new(ReplayedChat {
            steps: Vec::new(),
            entries: 0,
            requests: 0,
            calls: 0,
            notes: Vec::new(),
            unreplayed: Vec::new(),
            other_wire: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_backend_that_hangs_holds_up_no_other_replay() {
        let rooms = ReplayRooms::default();
        let hung = rooms.open(pending::<()>()).await;
        assert!(matches!(hung, Err(ReplayRoomError::NotReady)), "{hung:?}");
        assert_eq!(rooms.openings.available_permits(), MAX_OPENINGS - 1);
        assert_eq!(rooms.open(async { "opened" }).await.unwrap(), "opened");
        assert_eq!(
            rooms.replay(async { "replayed" }).await.unwrap(),
            "replayed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_waits_for_another_one_only_so_long() {
        let rooms = ReplayRooms::default();
        let _turn = rooms.replays.acquire().await.unwrap();
        let waited = rooms.replay(async {}).await;
        assert!(matches!(waited, Err(ReplayRoomError::Full)), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_kept_for_a_moment_and_while_nothing_changes() {
        let rooms = ReplayRooms::default();
        let (mine, other) = (key(3), key(4));
        rooms.insert(mine.clone(), &chat());
        assert!(rooms.cached(&mine).is_some());
        assert!(rooms.cached(&other).is_none());
        rooms.insert(other.clone(), &chat());
        rooms.insert(key(5), &chat());
        assert!(rooms.cached(&mine).is_none(), "the oldest is kept");
        assert!(rooms.cached(&other).is_some());
        tokio::time::advance(CACHE_LIFETIME).await;
        assert!(rooms.cached(&other).is_none());
    }
}
