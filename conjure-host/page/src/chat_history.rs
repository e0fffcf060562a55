//! The chat history of a session's form: which chat the session goes on with, a new one, one that
//! there is, or a fork of one.
//!
//! The dialogs that create a session and that configure it both have it; in the latter a session may
//! also keep the chat that it has, and does unless the person says otherwise.

use conjure_core::foreign_text::clean;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::PageState;
use crate::client::ApiProblem;
use crate::forms::Field;
use crate::saved::{
    FormData, FormProblem, ListPage, SessionInfo, ThreadInfo, fetch_first, invalid_at,
};

/// How many chats there are to choose from, the newest first; about as many.
const THREADS: usize = 1_000;
/// What is said where there are more.
const OLDER: &str =
    "The newest ones. An older one is found by searching: open it, and fork it there";
/// The choice of the chat that a session has.
const KEEP: &str = "keep";
const NEW: &str = "new";
const EXISTING: &str = "existing";
const FORK: &str = "fork";

/// The chats that a form chooses from.
pub(crate) struct ChatChoices {
    threads: ListPage<ThreadInfo>,
}

impl ChatChoices {
    pub(crate) async fn read(app: &PageState) -> Result<Self, ApiProblem> {
        Ok(Self {
            threads: fetch_first(&app.api, "/api/v1/threads", THREADS).await?,
        })
    }

    /// The fields, with ids that begin so. `kept`: the session whose form it is, where there is one.
    pub(crate) fn show(
        &self,
        prefix: &str,
        sent: &FormData,
        kept: Option<&SessionInfo>,
        wrong: &FormProblem<'_>,
    ) -> Markup {
        let chosen = match sent.text("history") {
            kind if !kind.is_empty() => kind,
            _ if kept.is_some() => KEEP.to_owned(),
            _ => NEW.to_owned(),
        };
        let keep = kept.map(|session| (KEEP, current_chat_text(session)));
        let others = [(NEW, "New"), (EXISTING, "Existing"), (FORK, "Fork")];
        let others = others.map(|(value, words)| (value, words.to_owned()));
        let has_none = self.threads.items.is_empty();
        html! {
            fieldset.history {
                legend { "Chat history" }
                div.row {
                    @for (value, words) in keep.into_iter().chain(others) {
                        label.choice {
                            input id={ (prefix) "-history-" (value) } type="radio" name="history" value=(value)
                                checked[chosen == value] disabled[has_none && matches!(value, EXISTING | FORK)];
                            " " (words)
                        }
                    }
                }
                (self.thread_fields(prefix, sent, kept, wrong))
            }
        }
    }

    /// Fields for the chat that a form names, and for the entry behind which that is forked.
    fn thread_fields(
        &self,
        prefix: &str,
        sent: &FormData,
        kept: Option<&SessionInfo>,
        wrong: &FormProblem<'_>,
    ) -> Markup {
        let hint = match self.threads.next {
            Some(_) => OLDER,
            None => "",
        };
        let named = self.threads.items.iter().map(|one| {
            let words = format!("{} ({} entries)", one.shown_name(), one.last_seq);
            (one.id.clone(), words)
        });
        let mut named: Vec<(String, String)> = named.collect();
        let chosen = match sent.text("thread") {
            thread if thread.is_empty() => kept.and_then(active).unwrap_or_default().to_owned(),
            thread => thread,
        };
        // Without it the browser would choose the first one, which may be anybody's.
        if !chosen.is_empty() && named.iter().all(|(id, _)| *id != chosen) {
            named.insert(0, (chosen.clone(), older_chat_text(&chosen, kept)));
        }
        let (thread, upto) = (format!("{prefix}-thread"), format!("{prefix}-upto"));
        html! {
            div.of-thread {
                (Field::new(&thread, "thread", "Chat").hint(hint).error(wrong.for_field("thread"))
                    .select(&chosen, &named))
            }
            div.of-fork {
                (Field::new(&upto, "upto", "Fork behind entry").hint("Nothing: behind the newest")
                    .input("number", &sent.text("upto")))
            }
        }
    }
}

/// A chat that is none of the newest, in words: its name where it is the session's own.
fn older_chat_text(id: &str, kept: Option<&SessionInfo>) -> String {
    let own = kept.and_then(|session| session.thread.as_ref());
    match own.filter(|own| own.id == id && !own.label.is_empty()) {
        Some(own) => clean(&own.label).into_owned(),
        None => clean(id).into_owned(),
    }
}

/// The chat that a session has, in words.
fn current_chat_text(session: &SessionInfo) -> String {
    match &session.thread {
        Some(thread) if thread.label.is_empty() => "As it is".to_owned(),
        Some(thread) => format!("As it is: {}", clean(&thread.label)),
        None => "As it is: none".to_owned(),
    }
}

/// The id of the chat that a session has.
fn active(session: &SessionInfo) -> Option<&str> {
    session.thread.as_ref().map(|thread| thread.id.as_str())
}

/// The chat that a form chose, as the API takes it; nothing where none was chosen, or where a session
/// keeps the one that it has.
pub(crate) fn thread_choice(
    sent: &FormData,
    kept: Option<&SessionInfo>,
) -> Result<Option<Value>, ApiProblem> {
    let kind = sent.text("history");
    let thread = sent.text("thread");
    let chosen = match kind.as_str() {
        "" | KEEP => return Ok(None),
        EXISTING | FORK if thread.is_empty() => {
            return Err(invalid_at("thread", "`thread`: choose a chat"));
        }
        EXISTING if kept.and_then(active) == Some(thread.as_str()) => return Ok(None),
        EXISTING => json!({ "kind": EXISTING, "thread": thread }),
        FORK => match fork_entry(&sent.line("upto"))? {
            Some(upto) => json!({ "kind": FORK, "thread": thread, "upto": upto }),
            None => json!({ "kind": FORK, "thread": thread }),
        },
        _ => json!({ "kind": NEW }),
    };
    Ok(Some(chosen))
}

/// The number of the entry that a fork begins behind; nothing for the newest.
fn fork_entry(text: &str) -> Result<Option<u64>, ApiProblem> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse::<u64>();
    number
        .map(Some)
        .map_err(|_| invalid_at("thread", "`thread`: an entry is a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(history: &str, thread: &str, upto: &str) -> FormData {
        FormData::from([
            ("history", history.to_owned()),
            ("thread", thread.to_owned()),
            ("upto", upto.to_owned()),
        ])
    }

    fn session() -> SessionInfo {
        let session = json!({
            "id": "s", "name": "site",
            "auth": { "id": "a", "provider": "openai", "name": "work" },
            "model": "m", "working_dir": "/", "memory": {}, "tools": {}, "mcps": {},
            "persona": { "name": "", "version": "", "persona_text": "" },
            "thread": { "id": "t", "label": "A <lamp>", "turns": 1, "updated_at_ms": 0 },
            "state": "idle", "queued": 0, "updated_at_ms": 0,
        });
        serde_json::from_value(session).unwrap()
    }

    fn choices() -> ChatChoices {
        let threads = json!([
            { "id": "u", "label": "Other", "last_seq": 7 },
            { "id": "t", "label": "A <lamp>", "last_seq": 3 },
        ]);
        ChatChoices {
            threads: ListPage {
                items: serde_json::from_value(threads).unwrap(),
                next: None,
            },
        }
    }

    #[test]
    fn a_session_keeps_its_chat_unless_another_one_is_chosen() {
        let session = session();
        let of =
            |history, thread, upto| thread_choice(&sent(history, thread, upto), Some(&session));
        for kept in [
            of("keep", "u", ""),
            of("", "u", ""),
            of("existing", "t", ""),
        ] {
            assert_eq!(kept.unwrap(), None);
        }
        assert_eq!(of("new", "u", "3").unwrap(), Some(json!({ "kind": "new" })));
        let existing = json!({ "kind": "existing", "thread": "u" });
        assert_eq!(of("existing", "u", "3").unwrap(), Some(existing));
        let fork = json!({ "kind": "fork", "thread": "t", "upto": 3 });
        assert_eq!(of("fork", "t", " 3 ").unwrap(), Some(fork));
        let newest = json!({ "kind": "fork", "thread": "t" });
        assert_eq!(of("fork", "t", "").unwrap(), Some(newest));
        for wrong in [
            of("fork", "t", "x"),
            of("fork", "", ""),
            of("existing", "", ""),
        ] {
            assert_eq!(wrong.unwrap_err().field(), Some("thread"));
        }
    }

    #[test]
    fn a_chat_that_is_none_of_the_newest_stays_chosen() {
        let (session, wrong) = (session(), FormProblem::of(None, &[]));
        let mut choices = choices();
        choices.threads.items.retain(|thread| thread.id != "t");
        let shown = choices.show("config", &FormData::default(), Some(&session), &wrong);
        let shown = shown.into_string();
        assert!(
            shown.contains("value=\"t\" selected>A &lt;lamp&gt;<"),
            "{shown}"
        );
        assert!(!shown.contains("value=\"u\" selected"), "{shown}");
        // The same where it was chosen in a form that was refused.
        let shown = choices.show("new", &sent("fork", "older", "x"), None, &wrong);
        let shown = shown.into_string();
        assert!(shown.contains("value=\"older\" selected"), "{shown}");
    }

    #[test]
    fn a_form_of_a_session_begins_with_the_chat_that_it_has() {
        let (session, wrong) = (session(), FormProblem::of(None, &[]));
        let shown = choices().show("config", &FormData::default(), Some(&session), &wrong);
        let shown = shown.into_string();
        assert!(shown.contains("value=\"keep\" checked"), "{shown}");
        assert!(shown.contains("As it is: A &lt;lamp&gt;"), "{shown}");
        assert!(shown.contains("value=\"t\" selected"), "{shown}");
        let shown = choices().show("new", &FormData::default(), None, &wrong);
        let shown = shown.into_string();
        assert!(shown.contains("value=\"new\" checked"), "{shown}");
        assert!(!shown.contains("keep"), "{shown}");
    }
}
