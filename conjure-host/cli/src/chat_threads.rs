//! The thread that a chat goes on with: the newest, or one that is picked; and which model it talks
//! to where none is named.

use conjure_core::log::EntryBody;
use conjure_store::{Log as _, SavedSession, Store, Thread, ThreadId};
use conjure_terminal::{Choice, Picker, pick};

use super::chat_face::has_colors;
use super::error::CliError;
use super::exit::Exit;
use super::spent::count;
use super::thread_list::time;

/// What the list of them is called.
pub(crate) const THREADS: &str = "threads";
/// The most threads that are offered.
const MOST: u64 = 1000;

/// The provider and the model that answered last in a thread.
pub(crate) struct Answerer {
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) auth: Option<String>,
}

/// The threads in which something was said, the one that grew last first.
async fn threads(store: &Store) -> Result<Vec<Thread>, CliError> {
    let mut threads = store.thread_page(None, MOST).await?;
    threads.retain(|thread| thread.last_seq > 0);
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.updated_at_ms));
    Ok(threads)
}

/// The thread that grew last.
///
/// # Errors
/// When there is none.
pub(crate) async fn newest(store: &Store) -> Result<ThreadId, CliError> {
    let newest = threads(store).await?.into_iter().next();
    newest.map(|thread| thread.id).ok_or_else(|| {
        CliError::usage("there is no conversation to go on with").hint("`conjure chat` begins one")
    })
}

/// The thread that the person picks; nothing where the list is left.
///
/// # Errors
/// When there is none.
pub(crate) async fn picked(store: &Store, letters: &str) -> Result<Option<ThreadId>, CliError> {
    let Some(picker) = list(store).await? else {
        return newest(store).await.map(Some);
    };
    let picked = pick(picker.searching(letters), has_colors()).await;
    match picked.map_err(CliError::host_from)? {
        Some(id) => Ok(Some(super::thread::id(&id)?)),
        None => Ok(None),
    }
}

/// The list of them; nothing where there is none.
pub(crate) async fn list(store: &Store) -> Result<Option<Picker>, CliError> {
    let threads = threads(store).await?;
    if threads.is_empty() {
        return Ok(None);
    }
    let choices = threads
        .iter()
        .map(|thread| Choice {
            id: thread.id.to_string(),
            label: match thread.label.as_str() {
                "" => "(no name)".to_owned(),
                label => label.to_owned(),
            },
            detail: format!(
                "{}, {}",
                time(thread.updated_at_ms),
                count(thread.last_turn, "turn")
            ),
        })
        .collect();
    Ok(Some(Picker::new(THREADS, "Go on with", choices)))
}

/// The id of the saved session that goes on with a thread.
pub(crate) async fn session_of(
    store: &Store,
    thread: &ThreadId,
) -> Result<Option<String>, CliError> {
    let mut after: Option<String> = None;
    loop {
        let page = store.sessions(after.as_deref(), 100).await?;
        let Some(last) = page.last() else {
            return Ok(None);
        };
        after = Some(last.id.clone());
        let is_on = |row: &SavedSession| row.chat_thread_id.as_deref() == Some(thread.as_str());
        if let Some(row) = page.into_iter().find(is_on) {
            return Ok(Some(row.name.unwrap_or(row.id)));
        }
    }
}

/// Who answered last in a thread.
pub(crate) async fn answerer(
    store: &Store,
    thread: &ThreadId,
) -> Result<Option<Answerer>, CliError> {
    let entries = store.read_entries(thread).await?;
    Ok(entries
        .into_iter()
        .rev()
        .find_map(|entry| match entry.body {
            EntryBody::Message { message } => message.meta.map(|meta| Answerer {
                provider: meta.provider,
                model: meta.model,
                auth: meta.auth_name,
            }),
            _ => None,
        }))
}

/// Who answered last in any thread.
pub(crate) async fn last_answerer(store: &Store) -> Result<Option<Answerer>, CliError> {
    for thread in threads(store).await?.into_iter().take(20) {
        if let Some(answerer) = answerer(store, &thread.id).await? {
            return Ok(Some(answerer));
        }
    }
    Ok(None)
}

/// What to do where nothing says which model is to answer.
pub(crate) fn no_model() -> CliError {
    CliError::new(
        Exit::Usage,
        "nothing says which model is to answer, and none has answered before",
    )
    .hint("name one: `conjure chat --provider anthropic --model claude-sonnet-4-5`")
    .hint("`conjure auth add` saves a key, `conjure models` lists what there is")
}
