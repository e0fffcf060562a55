//! The words of an error of the store: what failed and why, and what can be done about it.
//!
//! Both are made apart, since the command line shows them apart. The text of an error is one behind the
//! other.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use super::StoreError;
use crate::ThreadId;

/// What can be done about an error, without a full stop.
enum Remedy {
    /// Follows the failure in the same sentence: `…; close it there`.
    Clause(Cow<'static, str>),
    /// Is a sentence of its own: `…. Try again`. It begins with a small letter here.
    Sentence(Cow<'static, str>),
}

impl Remedy {
    fn into_text(self) -> String {
        let (Self::Clause(text) | Self::Sentence(text)) = self;
        text.into_owned()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure())?;
        match self.remedy() {
            None => Ok(()),
            Some(Remedy::Clause(text)) => write!(f, "; {text}"),
            Some(Remedy::Sentence(text)) => write!(f, ". {}", capitalized(&text)),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl StoreError {
    /// What failed and why, and what can be done about it: the two parts of its text. An error that
    /// nobody can do anything about has one.
    #[must_use]
    pub fn failure_and_remedy(&self) -> (String, Option<String>) {
        (self.failure(), self.remedy().map(Remedy::into_text))
    }

    fn failure(&self) -> String {
        match self {
            Self::Changed { kind, name } => {
                format!("the {kind} `{name}` was changed by somebody else meanwhile")
            }
            Self::Full { what, reason } => format!(
                "cannot {what}: there is no space left for the database, or its file may not grow \
                 ({reason}); nothing was written"
            ),
            Self::ReadOnly { what, reason } => {
                format!("cannot {what}: the database is read-only ({reason}); nothing was written")
            }
            Self::Locked { what, reason } => format!(
                "cannot {what}: another program holds the database ({reason}); nothing was written"
            ),
            Self::Corrupt { what, reason } => {
                format!("cannot {what}: the database is damaged ({reason})")
            }
            Self::NothingReadable { path, reason } => format!(
                "nothing of `{}` can be read: {reason}. It is no database, or its beginning is \
                 damaged",
                path.display()
            ),
            Self::Disk { what, reason } | Self::Database { what, reason } => {
                format!("cannot {what}: the database says: {reason}")
            }
            Self::Unreachable { what, reason } => {
                format!("cannot {what}: the database cannot be reached ({reason})")
            }
            Self::Io { what, path, source } => {
                format!("the store cannot {what} `{}`: {source}", path.display())
            }
            Self::Damaged { path, line, reason } => {
                format!("`{}` is damaged in line {line}: {reason}", path.display())
            }
            Self::NoRecords { path } => {
                format!("`{}` holds no record of a thread", path.display())
            }
            Self::Busy { thread, owner } => format!("thread {thread} is open in {owner}"),
            Self::SessionBusy { session, pid } => {
                format!("the turns of session `{session}` run in process {pid}")
            }
            Self::Lost { thread } => format!(
                "thread {thread} was taken over by another process, since this one was silent for \
                 too long"
            ),
            Self::Gap {
                thread,
                kind,
                expected,
                found,
            } => format!(
                "thread {thread} goes on with {kind} {expected}, and {found} was appended: what is \
                 before it failed or was left out"
            ),
            Self::Behind { limit } => format!(
                "more than {limit} bytes wait to be written to the database, which is too slow; \
                 nothing was appended"
            ),
            Self::TooLarge { size, limit } => {
                format!("an append of {size} bytes is too large: {limit} are the most")
            }
            Self::NoThread { thread } => format!("there is no thread {thread}"),
            Self::ThreadExists { thread } => format!("there is a thread {thread} already"),
            Self::NoEntry {
                thread,
                seq,
                first,
                last,
            } => no_entry(thread, *seq, *first, *last),
            Self::BadId { id } => {
                format!("`{id}` is not a thread's id: 1 to 64 letters, digits, `-` and `_`")
            }
            Self::NotFound { kind, id } => format!("there is no {kind} `{id}`"),
            Self::NameTaken { kind, name } => format!("there is a {kind} named `{name}` already"),
            Self::BadName { kind, name, rule } => {
                format!("`{name}` cannot be the name of a {kind}: {rule}")
            }
            Self::InUse {
                name,
                sessions,
                names,
            } => format!(
                "the saved auth `{name}` is used by {}",
                users(sessions.len(), names)
            ),
            Self::Quota {
                owner: whose,
                size,
                used,
                limit,
            } => format!("cannot keep {size} bytes more: {whose} has {used} of {limit} bytes"),
            Self::Newer { migration } => format!(
                "the database was made by a newer Conjure (it has `{migration}`, which this one \
                 does not know)"
            ),
            Self::BadLocation { location, reason } => {
                format!("`{location}` is no place for a database: {reason}")
            }
            Self::Closed => "the store is closed; nothing was written".to_owned(),
        }
    }

    fn remedy(&self) -> Option<Remedy> {
        use Remedy::{Clause, Sentence};
        let remedy = match self {
            Self::Changed { .. } => Clause("read it anew, and change that".into()),
            Self::Damaged { .. } => Clause("move it away, or cut it before that line".into()),
            Self::NoRecords { .. } => {
                Clause("name a file that `conjure thread export` wrote".into())
            }
            Self::Busy { .. } => Clause("close it there, or fork it".into()),
            Self::SessionBusy { .. } => Clause("say it there, or when they are over".into()),
            Self::Lost { .. } => Clause("open it again".into()),
            Self::TooLarge { .. } => Clause("append less at once".into()),
            Self::NoThread { .. } => Clause("`conjure thread list` lists them".into()),
            Self::ThreadExists { .. } => Clause("choose another id".into()),
            Self::NameTaken { .. } => Clause("choose another name".into()),
            Self::InUse { .. } => Clause("give these another one, or remove them first".into()),
            Self::Newer { .. } => {
                Clause("use that one, or restore the backup from before it".into())
            }
            Self::NoEntry { first, last, .. } if first <= last => {
                Clause("choose one of these".into())
            }
            Self::NoEntry { .. } => Sentence("say something in it first".into()),
            Self::Full { .. } => Sentence("make space, then try again".into()),
            Self::ReadOnly { .. } => Sentence(
                "allow this user to write the file and its directory, then try again".into(),
            ),
            Self::Locked { .. } => {
                Sentence("end what that program does with it, then try again".into())
            }
            Self::Corrupt { .. } => Sentence(
                "`conjure db check` says where, and `conjure db backup` saves what can be read; \
                 then put a backup in its place"
                    .into(),
            ),
            Self::NothingReadable { .. } => {
                Sentence("move it away, and put a backup in its place".into())
            }
            Self::Disk { .. } => Sentence("see that its disk works and has room".into()),
            Self::Unreachable { .. } => Sentence(
                "see that its server runs and that its address is right, then try again".into(),
            ),
            Self::Gap { expected, .. } => {
                Sentence(format!("append it again from {expected} on").into())
            }
            Self::Behind { .. } => Sentence("try again when earlier appends are written".into()),
            Self::Quota { .. } => {
                Sentence("remove what is no longer needed, or raise the quota".into())
            }
            Self::Database { .. }
            | Self::Io { .. }
            | Self::BadId { .. }
            | Self::NotFound { .. }
            | Self::BadName { .. }
            | Self::BadLocation { .. }
            | Self::Closed => return None,
        };
        Some(remedy)
    }
}

/// The users of a saved auth: the first so many names are those of sessions, the others of MCP servers.
fn users(sessions: usize, names: &[String]) -> String {
    let (of_sessions, of_servers) = names.split_at(sessions.min(names.len()));
    let kinds = [
        ("the sessions", of_sessions),
        ("the MCP servers", of_servers),
    ];
    let named = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let users = named.map(|(kind, names)| format!("{kind} {}", names.join(", ")));
    users.collect::<Vec<_>>().join(" and ")
}

/// Says that a thread does not show an entry, and which it does.
fn no_entry(thread: &ThreadId, seq: u64, first: u64, last: u64) -> String {
    match first <= last {
        true => format!("thread {thread} has no entry {seq}: it shows {first} to {last}"),
        false => {
            format!("thread {thread} has no entry {seq}: it is empty, so there is nothing to fork")
        }
    }
}

fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_is_told_apart_and_both_parts_are_its_text() {
        let thread = ThreadId::fresh();
        let no_entry = |last| StoreError::NoEntry {
            thread: thread.clone(),
            seq: 9,
            first: 1,
            last,
        };
        for (error, remedy) in [
            (
                StoreError::NoThread {
                    thread: thread.clone(),
                },
                Some("`conjure thread list` lists them"),
            ),
            (no_entry(3), Some("choose one of these")),
            (no_entry(0), Some("say something in it first")),
            (
                StoreError::Corrupt {
                    what: "read",
                    reason: "page 3. It is torn; all of it".to_owned(),
                },
                Some(
                    "`conjure db check` says where, and `conjure db backup` saves what can be read; \
                     then put a backup in its place",
                ),
            ),
            (
                StoreError::Quota {
                    owner: "the store".to_owned(),
                    size: 1,
                    used: 2,
                    limit: 2,
                },
                Some("remove what is no longer needed, or raise the quota"),
            ),
            (
                StoreError::Damaged {
                    path: "t.jsonl".into(),
                    line: 3,
                    reason: "what; is. This".to_owned(),
                },
                Some("move it away, or cut it before that line"),
            ),
            (StoreError::Closed, None),
        ] {
            let text = error.to_string();
            let (failure, told) = error.failure_and_remedy();
            assert_eq!(told.as_deref(), remedy, "{text}");
            let length = failure.len() + remedy.map_or(0, |remedy| remedy.len() + 2);
            assert!(text.starts_with(&failure), "{text}");
            assert_eq!(text.len(), length, "{text}");
        }
    }
}
