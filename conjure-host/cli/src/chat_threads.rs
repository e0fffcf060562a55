//! The thread that a chat goes on with: the newest of its directory, or one that is picked; and which
//! model it talks to where none is named.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use conjure_core::log::EntryBody;
use conjure_core::numerals::count;
use conjure_store::{Store, StoreError, Thread, ThreadId, Window};
use conjure_terminal::{Picker, PickerItem, pick};

use super::args::{SessionArgs, home_relative};
use super::error::CliError;
use super::exit::Exit;
use super::output::clean;
use super::shorten::one_line;
use super::terminal_support::has_colors;
use super::thread_directories::{self, ThreadDirectories};
use super::thread_list::time;

/// What the list of them is called.
pub(crate) const THREADS: &str = "threads";
/// The most threads that are offered.
const MAX_THREADS: u64 = 1000;
/// How many threads are looked at first for the newest of a directory.
const FIRST_BATCH: u64 = 100;
/// Entries of a thread that are read at once.
const PAGE: u64 = 20;
/// How many threads are looked at for who answered last.
const ANSWERER_LOOKBACK: u64 = 20;
/// The most places in texts that are looked at.
const MAX_HITS: u64 = 200;

/// The provider and the model that answered last in a thread.
pub(crate) struct Answerer {
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) auth: Option<String>,
}

impl Answerer {
    /// Sets the provider, the model and the auth that options leave open.
    pub(crate) fn apply_to(self, options: &mut SessionArgs) {
        let auth = self.auth.and_then(|auth| auth.parse().ok());
        options.set_answerer(self.provider, self.model, auth);
    }
}

/// The threads in which something was said, the one that grew last first.
async fn threads(store: &Store) -> Result<Vec<Thread>, CliError> {
    Ok(store.latest_threads(MAX_THREADS).await?)
}

/// The thread that grew last of those at home in a directory.
///
/// # Errors
/// When there is none.
pub(crate) async fn newest(store: &Store, here: &Path) -> Result<ThreadId, CliError> {
    let here = thread_directories::resolve_links(here);
    if let Some(thread) = newest_of(store, &here, FIRST_BATCH).await? {
        return Ok(thread);
    }
    if store.latest_threads(1).await?.is_empty() {
        return Err(no_threads_error());
    }
    let message = format!(
        "there is no conversation of {} to go on with",
        clean(&home_relative(&here))
    );
    Err(CliError::usage(message)
        .hint("`conjure --resume` lists those of other directories")
        .hint("`conjure chat` begins one"))
}

/// Finds the thread of [`newest`] for a resolved directory: among so many threads first, and then among
/// ever more.
async fn newest_of(
    store: &Store,
    here: &Path,
    mut limit: u64,
) -> Result<Option<ThreadId>, StoreError> {
    let looked_at = ThreadDirectories::default();
    loop {
        let threads = store.latest_threads(limit).await?;
        let dirs = looked_at.of_all(store, &threads).await?;
        let is_here = |thread: &&Thread| dirs.get(&thread.id).is_some_and(|dir| dir == here);
        if let Some(thread) = threads.iter().find(is_here) {
            return Ok(Some(thread.id.clone()));
        }
        if (threads.len() as u64) < limit {
            return Ok(None);
        }
        limit = limit.saturating_mul(10);
    }
}

fn no_threads_error() -> CliError {
    CliError::usage("there is no conversation to go on with").hint("`conjure chat` begins one")
}

/// The thread of this id, if there is one: any plain word could be an id.
pub(crate) async fn of_id(store: &Store, text: &str) -> Result<Option<ThreadId>, CliError> {
    let Ok(id) = super::thread::id(text) else {
        return Ok(None);
    };
    match store.thread(&id).await {
        Ok(thread) => Ok(Some(thread.id)),
        Err(StoreError::NoThread { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The thread that the person picks; nothing where the list is left.
///
/// # Errors
/// When there is none.
pub(crate) async fn pick_thread(
    store: &Store,
    letters: &str,
    here: &Path,
) -> Result<Option<ThreadId>, CliError> {
    let dirs = &ThreadDirectories::default();
    let Some(picker) = list(store, letters, here, dirs).await? else {
        return Err(match letters {
            "" => no_threads_error(),
            words => no_match_error(words).hint("`conjure --resume` lists all of them"),
        });
    };
    // Those with it in their names are there also where what was said cannot be searched.
    let search = move |words: String| async move {
        let found = search_threads(store, &words, here, dirs).await;
        found.unwrap_or_default()
    };
    let picked = pick(picker, has_colors(), search).await;
    match picked.map_err(CliError::host_from)? {
        Some(id) => Ok(Some(super::thread::id(&id)?)),
        None => Ok(None),
    }
}

/// Error that no conversation has these words.
pub(crate) fn no_match_error(words: &str) -> CliError {
    CliError::usage(format!(
        "no conversation has `{}` in its name or its texts",
        clean(words)
    ))
}

/// The list of them, or of those with these words in their names or in what was said; nothing where
/// there is none. Those of this directory come first, and of the others it is said where they are.
pub(crate) async fn list(
    store: &Store,
    words: &str,
    here: &Path,
    dirs: &ThreadDirectories,
) -> Result<Option<Picker>, CliError> {
    let words = words.trim();
    let mut threads = threads(store).await?;
    let mut excerpts = BTreeMap::new();
    if !words.is_empty() {
        excerpts = self::excerpts(store, words).await?;
        let letters = words.to_lowercase();
        threads.retain(|thread| {
            excerpts.contains_key(&thread.id) || thread.label.to_lowercase().contains(&letters)
        });
    }
    if threads.is_empty() {
        return Ok(None);
    }
    let title = match words {
        "" => "Go on with".to_owned(),
        words => format!("Go on with (those with `{}`)", clean(words)),
    };
    let items = items(store, &threads, &excerpts, here, dirs).await?;
    Ok(Some(Picker::new(THREADS, title, items).with_search()))
}

/// Items of the threads in which these words were said, in the order of the list.
pub(crate) async fn search_threads(
    store: &Store,
    words: &str,
    here: &Path,
    dirs: &ThreadDirectories,
) -> Result<Vec<PickerItem>, CliError> {
    let excerpts = excerpts(store, words).await?;
    let mut threads = threads(store).await?;
    threads.retain(|thread| excerpts.contains_key(&thread.id));
    items(store, &threads, &excerpts, here, dirs).await
}

/// Excerpts where these words were said, one for each thread.
async fn excerpts(store: &Store, words: &str) -> Result<BTreeMap<ThreadId, String>, CliError> {
    let mut excerpts = BTreeMap::new();
    for found in store.search(words, MAX_HITS).await? {
        let excerpt = found.excerpt.iter().map(|piece| piece.text.as_str());
        let excerpt = excerpt.collect::<String>();
        excerpts.entry(found.thread).or_insert(excerpt);
    }
    Ok(excerpts)
}

async fn items(
    store: &Store,
    threads: &[Thread],
    excerpts: &BTreeMap<ThreadId, String>,
    here: &Path,
    dirs: &ThreadDirectories,
) -> Result<Vec<PickerItem>, CliError> {
    let here = thread_directories::resolve_links(here);
    let dirs = dirs.of_all(store, threads).await?;
    let is_here = |thread: &&Thread| dirs.get(&thread.id) == Some(&here);
    let (near, far): (Vec<&Thread>, Vec<&Thread>) = threads.iter().partition(is_here);
    let near = near.into_iter().map(|thread| (thread, None));
    let far = far
        .into_iter()
        .map(|thread| (thread, dirs.get(&thread.id).map(PathBuf::as_path)));
    let items = near.chain(far).map(|(thread, elsewhere)| {
        let excerpt = excerpts.get(&thread.id).map(String::as_str);
        item(thread, elsewhere, excerpt)
    });
    Ok(items.collect())
}

/// A thread in the list, with where it is at home if that is known and not here.
fn item(thread: &Thread, elsewhere: Option<&Path>, excerpt: Option<&str>) -> PickerItem {
    let turns = count(thread.last_turn, "turn");
    let mut detail = format!("{}, {turns}", time(thread.updated_at_ms));
    if let Some(dir) = elsewhere {
        detail = format!("in {}, {detail}", home_relative(dir));
    }
    if let Some(excerpt) = excerpt {
        detail += &format!(": {}", one_line(excerpt, 100));
    }
    PickerItem {
        id: thread.id.to_string(),
        label: match thread.label.as_str() {
            "" => "(no name)".to_owned(),
            label => label.to_owned(),
        },
        detail,
    }
}

/// The id of the saved session that goes on with a thread.
pub(crate) async fn session_of(
    store: &Store,
    thread: &ThreadId,
) -> Result<Option<String>, CliError> {
    let sessions = store.thread_sessions(thread).await?;
    let oldest = sessions.into_iter().next();
    Ok(oldest.map(|row| row.name.unwrap_or(row.id)))
}

/// The saved session that a thread goes on in, for options that name no provider. Where it is in none,
/// they are given whoever answered last in it.
///
/// # Errors
/// When the options have something that the session says itself, and what the database says.
pub(crate) async fn resumable_session(
    store: &Store,
    thread: &ThreadId,
    options: &mut SessionArgs,
) -> Result<Option<String>, CliError> {
    let saved = session_of(store, thread).await?;
    if let Some(saved) = &saved {
        options.check_for_saved(saved)?;
    } else if let Some(answerer) = answerer(store, thread).await? {
        answerer.apply_to(options);
    }
    Ok(saved)
}

/// Finds who answered last in a thread.
pub(crate) async fn answerer(
    store: &Store,
    thread: &ThreadId,
) -> Result<Option<Answerer>, CliError> {
    let mut window = Window::Last;
    loop {
        let page = store.entries(thread, window, PAGE).await?;
        let has_earlier = page.has_earlier();
        window = Window::Before(page.entries.first().map_or(0, |first| first.seq));
        let mut newest_first = page.entries.into_iter().rev();
        let answerer = newest_first.find_map(|entry| match entry.body {
            EntryBody::Message { message } => message.meta.map(|meta| Answerer {
                provider: meta.provider,
                model: meta.model,
                auth: meta.auth_name,
            }),
            _ => None,
        });
        if answerer.is_some() || !has_earlier {
            return Ok(answerer);
        }
    }
}

/// Finds who answered last in any thread.
pub(crate) async fn last_answerer(store: &Store) -> Result<Option<Answerer>, CliError> {
    for thread in store.latest_threads(ANSWERER_LOOKBACK).await? {
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
    .hint("`conjure auth create` saves a key, `conjure models` lists what there is")
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{Message, Meta};
    use conjure_core::log::Entry;
    use conjure_store::{Location, Log as _, Options, Record};

    use super::super::thread_directories::tests::{store, thread_in};
    use super::*;

    #[tokio::test]
    async fn a_word_is_a_thread_only_where_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let place = Location::File(dir.path().join("conjure.db"));
        let store = Store::open(&place, &Options::default()).await.unwrap();
        let thread = ThreadId::fresh();
        drop(store.open(&thread).await.unwrap());
        let found = of_id(&store, thread.as_str()).await.unwrap();
        assert_eq!(found, Some(thread));
        for word in ["hello", "two words", "../x", ""] {
            assert_eq!(of_id(&store, word).await.unwrap(), None, "{word}");
        }
    }

    #[tokio::test]
    async fn the_newest_conversation_is_that_of_the_directory_and_those_of_others_come_later() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let here = thread_directories::resolve_links(dir.path());
        let text = here.to_str().unwrap();
        let error = newest(&store, &here).await.unwrap_err().to_string();
        assert!(error.contains("no conversation to go on with"), "{error}");
        let old = thread_in(&store, &[text], 1).await;
        let moved_away = thread_in(&store, &[text, "/elsewhere"], 1).await;
        let nowhere = thread_in(&store, &[""], 1).await;
        assert_eq!(newest(&store, &here).await.unwrap(), old);
        let elsewhere = Path::new("/elsewhere");
        assert_eq!(newest(&store, elsewhere).await.unwrap(), moved_away);
        let error = newest(&store, Path::new("/none")).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains("no conversation of /none"), "{error}");
        let dirs = ThreadDirectories::default();
        let picker = list(&store, "", &here, &dirs).await.unwrap().unwrap();
        let first = picker.choices.first().unwrap();
        assert_eq!(first.id, old.to_string());
        assert!(!first.detail.contains(text), "{}", first.detail);
        let far = |id: &ThreadId| {
            let mut choices = picker.choices.iter();
            choices.find(|choice| choice.id == id.to_string())
        };
        let detail = &far(&moved_away).unwrap().detail;
        assert!(detail.starts_with("in /elsewhere, "), "{detail}");
        let detail = &far(&nowhere).unwrap().detail;
        assert!(!detail.starts_with("in "), "{detail}");
        let old_again = thread_in(&store, &[text], 2).await;
        assert_eq!(newest(&store, &here).await.unwrap(), old_again);
    }

    #[tokio::test]
    async fn the_newest_of_a_directory_is_found_behind_any_number_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let here = Path::new("/here");
        let old = thread_in(&store, &["/here"], 1).await;
        for _ in 0..12 {
            thread_in(&store, &["/elsewhere"], 1).await;
        }
        let found = newest_of(&store, here, 1).await.unwrap();
        assert_eq!(found, Some(old));
        let found = newest_of(&store, Path::new("/none"), 1).await.unwrap();
        assert_eq!(found, None);
    }

    #[tokio::test]
    async fn who_answered_last_is_found_however_long_ago_that_was() {
        let dir = tempfile::tempdir().unwrap();
        let place = Location::File(dir.path().join("conjure.db"));
        let store = Store::open(&place, &Options::default()).await.unwrap();
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).await.unwrap();
        assert!(answerer(&store, &thread).await.unwrap().is_none());
        let answer = |model: &str| Message {
            meta: Some(Meta {
                model: model.to_owned(),
                ..Meta::default()
            }),
            ..Message::assistant("An answer.")
        };
        let mut said = vec![answer("old"), answer("new")];
        said.resize(PAGE as usize * 3, Message::user("And?"));
        let entries = said.into_iter().zip(1..).map(|(message, seq)| Entry {
            seq,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Message { message },
        });
        let records: Vec<Record> = entries.map(Record::Entry).collect();
        open.append(&records, false).await.unwrap();
        let found = answerer(&store, &thread).await.unwrap();
        assert_eq!(found.map(|found| found.model).as_deref(), Some("new"));
    }
}
