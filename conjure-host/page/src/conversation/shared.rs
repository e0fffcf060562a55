//! A chat as one HTML file that can be given to others: all that was said and done, to be read and
//! nothing else. No script, its style and its pictures in it, nothing that is fetched.
//!
//! What is in it is rendered as the page renders it. It has what the chat shows, so what a person or
//! a tool said of secrets is in it too; credentials of the host are in no chat.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_core::chat::ArtifactRef;
use conjure_core::foreign_text::clean;
use conjure_store::{ArtifactRow, Store, StoreError, Thread, ThreadId};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::address::{ConversationAddress, SharedPictures};
use super::context;
use super::figures;
use super::model;
use super::render;
use super::threads::label;
use crate::assets;

/// The most bytes of a picture that is in the file, and of all of them together.
const MAX_PICTURE_BYTES: u64 = 2 * 1024 * 1024;
const MAX_TOTAL_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of a picture that are read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// How many files are made at the same time; others wait for their turn.
static EXPORT_PERMITS: Semaphore = Semaphore::const_new(2);

/// The file's styles beside those of the page.
const STYLE: &str = "\
main { margin: 0 auto; max-width: 54rem; padding: 1.5rem 1rem 3rem; }\n\
[data-copy] { display: none; }\n\
.shared { color: var(--muted); font-size: .875rem; border-bottom: 1px solid var(--line); margin-bottom: 1.5rem; }\n\
details.rest { margin: 0 .8rem .8rem; }\n";

/// A chat as an HTML file. Pictures of at most 2 MiB are in it, and 16 MiB of them in all, the
/// first ones; of other files it has the names.
///
/// # Errors
/// [`StoreError::NoThread`], and what the database says.
#[boxed]
pub async fn shared_html(store: &Store, thread: &ThreadId) -> Result<String, StoreError> {
    // A chat is in memory as a whole while its file is made.
    let turn = EXPORT_PERMITS
        .acquire()
        .await
        .map_err(|_| StoreError::Closed)?;
    let about = store.thread(thread).await?;
    let entries = context::entries_after(store, thread, 0).await?;
    let pictures = pictures(store, thread).await?;
    let address = ConversationAddress {
        session: String::new(),
        name: String::new(),
        thread: Some(thread.clone()),
        shared: Some(Arc::new(pictures)),
    };
    // All of a long chat takes a while, in which the thread would serve nobody else.
    let made = tokio::task::spawn_blocking(move || {
        // It goes on also where nobody waits for it any more.
        let _turn = turn;
        let items = render::items(&address, &model::items(&entries));
        document(&label(&about), &facts(&about, entries.len()), &items)
    });
    made.await.map_err(|_| StoreError::Closed)
}

/// What is said of a chat before it begins.
fn facts(about: &Thread, entries: usize) -> Markup {
    html! {
        p.shared {
            (entries) @if entries == 1 { " entry, " } @else { " entries, " }
            (about.last_turn) @if about.last_turn == 1 { " turn" } @else { " turns" }
            @if about.totals.usage.total() > 0 { ", " (figures::tokens(&about.totals.usage)) " tokens" }
            ". A copy to read, made by Conjure."
        }
    }
}

fn document(title: &str, facts: &Markup, items: &Markup) -> String {
    let style = format!("{}{STYLE}", assets::styles());
    let hash = STANDARD.encode(Sha256::digest(style.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; \
         form-action 'none'"
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body {
                main {
                    h1 { (title) }
                    (facts)
                    (items)
                }
            }
        }
    };
    page.into_string()
}

/// The pictures of a thread that are here and small enough.
async fn pictures(store: &Store, thread: &ThreadId) -> Result<SharedPictures, StoreError> {
    let mut pictures = HashMap::new();
    let mut left = MAX_TOTAL_BYTES;
    for file in store.artifacts(thread).await? {
        let about = ArtifactRef {
            id: file.id.clone(),
            name: file.name.clone(),
            media_type: file.media_type.clone(),
            size: file.size,
        };
        if !render::is_image(&about) || left == 0 {
            continue;
        }
        let most = MAX_PICTURE_BYTES.min(left);
        let Some(bytes) = read_picture(store, &file, most).await? else {
            continue;
        };
        left = left.saturating_sub(bytes.len() as u64);
        let address = format!(
            "data:{};base64,{}",
            file.media_type,
            STANDARD.encode(&bytes)
        );
        pictures.insert(file.id, address);
    }
    Ok(pictures)
}

/// The bytes of a file that is here and has at most so many.
async fn read_picture(
    store: &Store,
    file: &ArtifactRow,
    most: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(blob) = &file.blob else {
        let path = file.location.as_deref().map(PathBuf::from);
        let path = path.filter(|path| path.is_absolute());
        let read = tokio::task::spawn_blocking(move || read_from_disk(&path?, most)).await;
        return Ok(read.unwrap_or(None));
    };
    // One whose bytes were deleted is shown by its name.
    let Ok(blob) = store.blob(blob).await else {
        return Ok(None);
    };
    if blob.size > most {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    loop {
        let at = bytes.len() as u64;
        let piece = store.read_blob(&blob.sha256, at, CHUNK_BYTES).await?;
        if piece.is_empty() {
            return Ok(Some(bytes));
        }
        bytes.extend(piece);
    }
}

/// The bytes of a file in the working directory; `None` where it is larger or cannot be read.
fn read_from_disk(path: &std::path::Path, most: u64) -> Option<Vec<u8>> {
    let (file, size, _) = conjure_config::fs::open_no_follow(path).ok()?;
    if size > most {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The name of the file that a chat is saved as.
pub fn shared_file_name(label: &str, thread: &ThreadId) -> String {
    let mut name = String::new();
    for letter in clean(label).chars().take(60) {
        match letter {
            letter if letter.is_ascii_alphanumeric() => name.push(letter.to_ascii_lowercase()),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    let name = name.trim_end_matches('-');
    match name {
        "" => format!("{thread}.html"),
        name => format!("{name}.html"),
    }
}

#[cfg(test)]
mod tests {
    use conjure_core::chat::{Message, Usage};
    use conjure_core::log::{Entry, EntryBody, TurnOutcome};
    use conjure_store::{Location, Log as _, Options, Record};

    use super::*;

    fn record(seq: u64, body: EntryBody) -> Record {
        Record::Entry(Entry {
            seq,
            turn: 1,
            at_ms: 5,
            body,
        })
    }

    #[tokio::test]
    async fn a_shared_chat_is_whole_and_has_nothing_that_does_anything() {
        let store = Store::open(&Location::Memory, &Options::default()).await;
        let store = store.unwrap();
        let thread = ThreadId::parse("t").unwrap();
        let turn_id = "turn".to_owned();
        let mut log = store.open(&thread).await.unwrap();
        let message = |message| EntryBody::Message { message };
        let records = [
            record(1, EntryBody::TurnStarted { turn_id }),
            record(
                2,
                message(Message::user("</style><script>alert(1)</script>")),
            ),
            record(
                3,
                message(Message::assistant(
                    "It is **fine** ![x](http://a.example/x.png).",
                )),
            ),
            record(
                4,
                EntryBody::TurnEnded {
                    turn_id: "turn".to_owned(),
                    outcome: TurnOutcome::Completed,
                    usage: Usage::default(),
                    stop_reason: None,
                },
            ),
        ];
        log.append(&records, true).await.unwrap();
        store.rename_thread(&thread, "<b>A name</b>").await.unwrap();
        let shown = shared_html(&store, &thread).await.unwrap();
        assert!(shown.contains("<strong>fine</strong>"), "{shown}");
        assert!(
            shown.contains("&lt;b&gt;A name&lt;/b&gt;</title>"),
            "{shown}"
        );
        for wrong in [
            "<script",
            "<button",
            "<form",
            "<link",
            "<img",
            "<b>",
            "/api/",
            "/sessions/",
        ] {
            assert!(!shown.contains(wrong), "{wrong} in {shown}");
        }
        let policy = "default-src &#39;none&#39;; style-src &#39;sha256-";
        let policy = [policy.to_owned(), policy.replace("&#39;", "'")];
        assert!(
            policy.iter().any(|policy| shown.contains(policy)),
            "{shown}"
        );
        assert_eq!(shared_file_name("A “name”: ../x", &thread), "a-name-x.html");
        assert_eq!(shared_file_name("…", &thread), "t.html");
    }
}
