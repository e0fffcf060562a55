//! What a person said in a thread, to be picked and said otherwise in a fork. Of a long thread only the
//! part that is listed is read.

use conjure_core::chat::{Content, Message, Role};
use conjure_core::log::{Entry, EntryBody};
use conjure_store::{Store, StoreError, ThreadId, Window};
use conjure_terminal::{Picker, PickerItem};

use super::chat_session::ChatSession;
use super::chat_shell::strip_command_output;
use super::error::CliError;
use super::shorten::one_line;

/// What the list of them is called.
pub(crate) const MESSAGES: &str = "messages";
/// Messages per page; with the entry for earlier ones, 40 choices.
const MESSAGES_PER_PAGE: usize = 39;
/// Most messages that a search lists.
const MAX_SEARCH_RESULTS: usize = 40;
/// Hits that a search reads first: those of the model are among them.
const FIRST_HITS: u64 = 40;
/// Entries that are read at once.
const PAGE: u64 = 200;
/// What the id of the choice for earlier messages begins with; the number of a message follows.
const EARLIER: &str = "before ";

/// The messages of a thread, the newest first; nothing where it has none.
///
/// # Errors
/// What the database says.
pub(crate) async fn list(store: &Store, thread: &ThreadId) -> Result<Option<Picker>, StoreError> {
    message_items(store, thread, Window::Last).await
}

/// The list of those before a message, where that is what was picked.
///
/// # Errors
/// What the database says.
pub(crate) async fn earlier_messages(
    store: &Store,
    thread: &ThreadId,
    picked: &str,
) -> Result<Option<Picker>, StoreError> {
    let seq = picked
        .strip_prefix(EARLIER)
        .and_then(|seq| seq.parse().ok());
    match seq {
        Some(seq) => message_items(store, thread, Window::Before(seq)).await,
        None => Ok(None),
    }
}

async fn message_items(
    store: &Store,
    thread: &ThreadId,
    mut window: Window,
) -> Result<Option<Picker>, StoreError> {
    let mut choices: Vec<PickerItem> = Vec::new();
    loop {
        let page = store.entries(thread, window, PAGE).await?;
        for item in page.entries.iter().rev().filter_map(item) {
            if choices.len() < MESSAGES_PER_PAGE {
                choices.push(item);
                continue;
            }
            let last = choices.last().map_or("", |last| last.id.as_str());
            choices.push(PickerItem {
                id: format!("{EARLIER}{last}"),
                label: "… what was said before that".to_owned(),
                detail: String::new(),
            });
            return Ok(Some(picker(choices)));
        }
        match page.entries.first() {
            Some(first) if page.has_earlier() => window = Window::Before(first.seq),
            _ => return Ok((!choices.is_empty()).then(|| picker(choices))),
        }
    }
}

fn picker(choices: Vec<PickerItem>) -> Picker {
    let title = "Say it otherwise, in a fork that ends before";
    Picker::new(MESSAGES, title, choices).with_search()
}

/// The messages of a thread that have these words, the newest first.
///
/// # Errors
/// What the database says.
pub(crate) async fn search_messages(
    store: &Store,
    thread: &ThreadId,
    words: &str,
) -> Result<Vec<PickerItem>, StoreError> {
    let mut limit = FIRST_HITS;
    let hits = loop {
        let mut hits = store.search_in(thread, words, limit).await?;
        let is_all = (hits.len() as u64) < limit;
        hits.retain(|hit| hit.role == Role::User);
        if is_all || hits.len() >= MAX_SEARCH_RESULTS {
            break hits;
        }
        limit = limit.saturating_mul(4);
    };
    let mut items = Vec::new();
    for hit in hits.into_iter().take(MAX_SEARCH_RESULTS) {
        let entry = entry(store, thread, hit.seq).await?;
        items.extend(entry.as_ref().and_then(item));
    }
    Ok(items)
}

/// Goes on with a fork that ends before a message, and gives back its text.
///
/// # Errors
/// When the message is not there any more, and what stood in the way of the fork.
pub(crate) async fn fork_before(chat: &mut ChatSession, seq: &str) -> Result<String, CliError> {
    let gone = || CliError::usage("the thread has no such entry any more");
    let thread = chat.thread().await?;
    let seq = seq.parse::<u64>().map_err(|_| gone())?;
    let chosen = entry(chat.store(), &thread, seq).await?;
    let chosen = chosen.ok_or_else(gone)?;
    let before = last_before(chat.store(), &thread, &chosen).await?;
    match before {
        Some(seq) => chat.fork(Some(seq)).await?,
        None => chat.start_thread().await?,
    }
    Ok(match &chosen.body {
        EntryBody::Message { message } => message_texts(message).join("\n"),
        _ => String::new(),
    })
}

/// The last entry before the turn of this one: a turn begins before what is said in it.
async fn last_before(
    store: &Store,
    thread: &ThreadId,
    chosen: &Entry,
) -> Result<Option<u64>, StoreError> {
    let mut window = Window::Before(chosen.seq);
    loop {
        let page = store.entries(thread, window, PAGE).await?;
        let mut newest_first = page.entries.iter().rev();
        if let Some(before) = newest_first.find(|entry| entry.turn < chosen.turn) {
            return Ok(Some(before.seq));
        }
        match page.entries.first() {
            Some(first) if page.has_earlier() => window = Window::Before(first.seq),
            _ => return Ok(None),
        }
    }
}

/// The entry of this number.
async fn entry(store: &Store, thread: &ThreadId, seq: u64) -> Result<Option<Entry>, StoreError> {
    let behind = Window::After(seq.saturating_sub(1));
    let page = store.entries(thread, behind, 1).await?;
    Ok(page.entries.into_iter().find(|entry| entry.seq == seq))
}

/// A message of the person's in the list.
fn item(entry: &Entry) -> Option<PickerItem> {
    match &entry.body {
        EntryBody::Message { message } if message.role == Role::User => Some(PickerItem {
            id: entry.seq.to_string(),
            label: one_line(&message_texts(message).join(" "), 60),
            detail: format!("turn {}", entry.turn),
        }),
        _ => None,
    }
}

/// The texts of a message, without what the person's own commands said.
fn message_texts(message: &Message) -> Vec<&str> {
    let texts = message
        .content
        .iter()
        .filter_map(|part| match &part.content {
            Content::Text { text } => Some(strip_command_output(text)),
            _ => None,
        });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use conjure_store::{Log as _, Record};

    use super::super::thread_directories::tests::store;
    use super::*;

    /// Writes a thread of so many turns, each of which says its number in three entries.
    async fn thread_of(store: &Store, turns: u64) -> ThreadId {
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).await.unwrap();
        let bodies = (1..=turns).flat_map(|turn| {
            let message = |message| EntryBody::Message { message };
            [
                EntryBody::TurnStarted {
                    turn_id: format!("t{turn}"),
                },
                message(Message::user(format!("question{turn}"))),
                message(Message::assistant(format!("answer{turn}"))),
            ]
        });
        let entries = (1..).zip(bodies).map(|(seq, body)| Entry {
            seq,
            turn: u64::div_ceil(seq, 3),
            at_ms: 0,
            body,
        });
        let records: Vec<Record> = entries.map(Record::Entry).collect();
        if !records.is_empty() {
            open.append(&records, false).await.unwrap();
        }
        thread
    }

    #[tokio::test]
    async fn the_messages_are_listed_page_by_page_and_found_on_all_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let thread = thread_of(&store, 100).await;
        let mut picker = list(&store, &thread).await.unwrap().unwrap();
        let mut labels = Vec::new();
        loop {
            let ids: Vec<&str> = picker.choices.iter().map(|it| it.id.as_str()).collect();
            let next = ids.last().copied().unwrap_or_default().to_owned();
            let messages = picker
                .choices
                .iter()
                .filter(|it| !it.id.starts_with(EARLIER));
            labels.extend(messages.map(|it| it.label.clone()));
            match earlier_messages(&store, &thread, &next).await.unwrap() {
                Some(earlier) => picker = earlier,
                None => break,
            }
        }
        let all: Vec<String> = (1..=100)
            .rev()
            .map(|turn| format!("question{turn}"))
            .collect();
        assert_eq!(labels, all);
        let found = search_messages(&store, &thread, "question7").await.unwrap();
        assert!(
            found
                .iter()
                .any(|it| it.label == "question7" && it.detail == "turn 7"),
            "{found:?}"
        );
        assert!(
            super::search_messages(&store, &thread, "answer7")
                .await
                .unwrap()
                .is_empty()
        );
    }

    #[tokio::test]
    async fn a_message_is_found_behind_any_number_of_answers_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let thread = ThreadId::fresh();
        let mut open = store.open(&thread).await.unwrap();
        let answers = (0..200).map(|_| Message::assistant("the lamp is lit"));
        let said = std::iter::once(Message::user("light the lamp")).chain(answers);
        let records: Vec<Record> = (1..)
            .zip(said)
            .map(|(seq, message)| {
                Record::Entry(Entry {
                    seq,
                    turn: 1,
                    at_ms: 0,
                    body: EntryBody::Message { message },
                })
            })
            .collect();
        open.append(&records, false).await.unwrap();
        let found = search_messages(&store, &thread, "lamp").await.unwrap();
        let labels: Vec<&str> = found.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(labels, ["light the lamp"]);
    }

    #[tokio::test]
    async fn a_thread_in_which_nothing_was_said_has_no_list() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let thread = thread_of(&store, 0).await;
        assert!(list(&store, &thread).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_fork_ends_before_the_turn_of_the_message() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path()).await;
        let thread = thread_of(&store, 3).await;
        for (seq, before) in [(2, None), (5, Some(3)), (8, Some(6))] {
            let chosen = entry(&store, &thread, seq).await.unwrap().unwrap();
            let found = last_before(&store, &thread, &chosen).await.unwrap();
            assert_eq!(found, before);
        }
        assert_eq!(entry(&store, &thread, 10).await.unwrap(), None);
    }
}
