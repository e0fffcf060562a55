//! Search over what was said in all threads.
//!
//! The index is brought up to date when somebody searches, so that appending to a thread costs
//! nothing. It holds words, not texts: what is shown of a hit is read from the entry. What is
//! cleared or removed takes its words with it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::{Message, Role};
use conjure_core::log::EntryBody;
use unicode_normalization::UnicodeNormalization as _;

use crate::database::Transaction;
use crate::lineage::VisibleEntries;
use crate::row::{column, number, text};
use crate::sql::{DatabaseKind, DatabaseRow, Value};
use crate::{Store, StoreError, ThreadId, body};

const SEARCHING: &str = "search a thread";
const INDEXING: &str = "bring the index of the search up to date";
/// Entries that are told to the index in one transaction.
const INDEX_BATCH: u64 = 500;
/// The most bytes of an entry that are told to the index.
const MAX_INDEXED_BYTES: usize = 100_000;
/// The most words of a question; further ones are not looked for.
const MAX_QUERY_WORDS: usize = 12;
/// Characters that are shown before a hit, and behind it.
const EXCERPT_BEFORE: usize = 40;
const EXCERPT_AFTER: usize = 160;

/// Something that was said and has the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    /// The thread that has the entry. Forks of it show it, too.
    pub thread: ThreadId,
    /// Label of the thread; empty where it has none.
    pub label: String,
    /// The session that last spoke in it, by its id.
    pub session: Option<String>,
    /// The entry.
    pub seq: u64,
    /// Whether a person said it, or the model.
    pub role: Role,
    /// Time of the entry, in milliseconds since 1970.
    pub at_ms: i64,
    /// The words with what stands around them.
    pub excerpt: Vec<Excerpt>,
}

/// A piece of an excerpt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The text, in one line.
    pub text: String,
    /// Whether the piece is a word of the question.
    pub is_hit: bool,
}

impl Store {
    /// What was said with all of these words, in any order and in upper or lower case; the last word
    /// may go on. The newest first, at most `limit`. Nothing is found without a word. Where the index
    /// cannot be written, such as on a full disk, what it has is searched.
    ///
    /// # Errors
    /// What the database says.
    #[boxed]
    pub async fn search(&self, words: &str, limit: u64) -> Result<Vec<SearchHit>, StoreError> {
        let words = query_words(words);
        if words.is_empty() {
            return Ok(Vec::new());
        }
        self.index_all().await?;
        let backend = self.db().backend();
        let values = [match_query(&words, backend).into(), limit.into()];
        let within = "AND h.removed = FALSE AND t.seq > h.cleared_upto";
        let rows = self.all(&search_sql(backend, within), values).await?;
        rows.iter().map(|row| search_hit(row, &words)).collect()
    }

    /// Like [`Self::search`], in what one thread shows, also what it keeps of ancestors that are cleared
    /// or removed.
    ///
    /// # Errors
    /// [`StoreError::NoThread`], and what the database says.
    #[boxed]
    pub async fn search_in(
        &self,
        thread: &ThreadId,
        words: &str,
        limit: u64,
    ) -> Result<Vec<SearchHit>, StoreError> {
        let words = query_words(words);
        if words.is_empty() {
            return Ok(Vec::new());
        }
        self.index_all().await?;
        let backend = self.db().backend();
        let sql = search_sql(
            backend,
            "AND t.thread_id = $3 AND t.seq > $4 AND t.seq <= $5",
        );
        let tx = self.db().snapshot(SEARCHING).await?;
        let mut hits = Vec::new();
        for stretch in VisibleEntries::read(&tx, thread).await?.stretches {
            let values: [Value; 5] = [
                match_query(&words, backend).into(),
                limit.into(),
                stretch.thread.as_str().into(),
                stretch.after_seq.into(),
                stretch.last_seq.into(),
            ];
            let rows = tx.all(&sql, values.into()).await;
            for row in rows.map_err(StoreError::of(SEARCHING))? {
                hits.push(search_hit(&row, &words)?);
            }
        }
        hits.sort_by_key(|hit| Reverse((hit.at_ms, hit.seq)));
        hits.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(hits)
    }

    /// Brings the index up to date as far as there is room.
    async fn index_all(&self) -> Result<(), StoreError> {
        if self.is_read_only() {
            return Ok(());
        }
        loop {
            match self.index_more().await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(
                    error @ (StoreError::Full { .. }
                    | StoreError::ReadOnly { .. }
                    | StoreError::Disk { .. }),
                ) => {
                    tracing::warn!(%error, "what was said last is not searched");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells the index of more entries. Whether there may be others still.
    async fn index_more(&self) -> Result<bool, StoreError> {
        let behind = "SELECT t.id, t.last_seq, COALESCE(s.upto, 0) AS upto FROM threads t \
                      LEFT JOIN searched_threads s ON s.thread_id = t.id \
                      WHERE t.last_seq > COALESCE(s.upto, 0) \
                      ORDER BY t.id LIMIT $1";
        // Most searches find nothing new, and write nothing.
        let some = self.all(behind, [1u64.into()]).await?;
        if some.is_empty() {
            return Ok(false);
        }
        let tx = self.db().begin(false, INDEXING).await?;
        let mut left = INDEX_BATCH;
        for row in tx.all(behind, [INDEX_BATCH.into()]).await? {
            let thread: String = column(&row, "id")?;
            let (upto, last) = (number(&row, "upto")?, number(&row, "last_seq")?);
            let read = index(&tx, &thread, upto, last, left).await?;
            left = left.saturating_sub(read);
            if left == 0 {
                break;
            }
        }
        tx.commit().await?;
        Ok(true)
    }
}

/// The statement that finds hits, the newest first. `within` says of which entries, from `$3` on.
fn search_sql(backend: DatabaseKind, within: &str) -> String {
    let (hits, has_words) = match backend {
        DatabaseKind::Sqlite => (
            "entry_words w JOIN entry_texts t ON t.id = w.rowid",
            "entry_words MATCH $1",
        ),
        DatabaseKind::Postgres => ("entry_texts t", "t.words @@ to_tsquery('simple', $1)"),
    };
    format!(
        "SELECT t.thread_id, t.seq, t.at_ms, h.thread_label, e.body, \
         (SELECT r.session_id FROM runs r WHERE r.thread_id = t.thread_id \
          AND r.session_id IS NOT NULL ORDER BY r.queued_at_ms DESC, r.id DESC LIMIT 1) \
         AS session_id \
         FROM {hits} JOIN threads h ON h.id = t.thread_id \
         JOIN entries e ON e.thread_id = t.thread_id AND e.seq = t.seq \
         WHERE {has_words} {within} \
         ORDER BY t.at_ms DESC, t.thread_id, t.seq DESC LIMIT $2"
    )
}

/// Tells the index of entries of a thread behind `upto`, and of at most `limit`. How many there were.
async fn index(
    tx: &Transaction<'_>,
    thread: &str,
    upto: u64,
    last: u64,
    limit: u64,
) -> Result<u64, StoreError> {
    let sql = "SELECT seq, at_ms, body FROM entries WHERE thread_id = $1 AND seq > $2 \
               AND kind = 'message' ORDER BY seq LIMIT $3";
    let rows = tx
        .all(sql, [thread.into(), upto.into(), limit.into()])
        .await?;
    let read = rows.len() as u64;
    let mut newest = upto;
    for row in &rows {
        let seq = number(row, "seq")?;
        newest = seq;
        // One that cannot be read is told by the check of the database.
        let Ok(Some(said)) = message(row, thread, seq).map(|message| searchable_text(&message))
        else {
            continue;
        };
        let at_ms: i64 = column(row, "at_ms")?;
        index_entries(tx, thread, seq, at_ms, &said).await?;
    }
    // One entry more takes the place of what a fork shows of its ancestors.
    let upto = if read < limit { last } else { newest };
    let sql = "INSERT INTO searched_threads (thread_id, upto) VALUES ($1, $2) \
               ON CONFLICT (thread_id) DO UPDATE SET upto = excluded.upto";
    tx.execute(sql, [thread.into(), upto.into()]).await?;
    Ok(read.max(1))
}

async fn index_entries(
    tx: &Transaction<'_>,
    thread: &str,
    seq: u64,
    at_ms: i64,
    said: &str,
) -> Result<(), StoreError> {
    let words = said.to_owned().into();
    let entry = [thread.into(), seq.into(), at_ms.into()];
    match tx.backend() {
        DatabaseKind::Sqlite => {
            let sql = "INSERT INTO entry_texts (thread_id, seq, at_ms) VALUES ($1, $2, $3) \
                       ON CONFLICT DO NOTHING RETURNING id";
            let Some(row) = tx.one(sql, entry).await? else {
                return Ok(());
            };
            let id: i64 = column(&row, "id")?;
            let sql = "INSERT INTO entry_words (rowid, words) VALUES ($1, $2)";
            tx.execute(sql, [id.into(), words]).await?;
        }
        DatabaseKind::Postgres => {
            let sql = "INSERT INTO entry_texts (thread_id, seq, at_ms, words) VALUES ($1, $2, $3, \
                       to_tsvector('simple', $4)) ON CONFLICT DO NOTHING";
            let [thread, seq, at_ms] = entry;
            tx.execute(sql, [thread, seq, at_ms, words]).await?;
        }
    }
    Ok(())
}

fn message(row: &DatabaseRow, thread: &str, seq: u64) -> Result<Message, StoreError> {
    let whose = || format!("entry {seq} of {thread}");
    match body::read(column(row, "body")?, whose)? {
        EntryBody::Message { message } => Ok(message),
        _ => Err(StoreError::Corrupt {
            what: INDEXING,
            reason: format!("{} is no message", whose()),
        }),
    }
}

/// The words of a message, with nothing between them that one database takes for a part of a word
/// and the other does not.
fn searchable_text(message: &Message) -> Option<String> {
    let mut said = String::new();
    for word in texts(message).flat_map(split_words) {
        if said.len() + word.len() > MAX_INDEXED_BYTES {
            break;
        }
        said.push_str(word);
        said.push(' ');
    }
    (!said.is_empty()).then_some(said)
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    let is_said = matches!(message.role, Role::User | Role::Assistant);
    let parts = message.content.iter().filter(move |_| is_said);
    parts.filter_map(|part| part.as_text())
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && !is_accent(letter));
    words.filter(|word| word.contains(char::is_alphanumeric))
}

/// Whether this stands above or below the letter before it.
fn is_accent(letter: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&letter)
}

/// A word as the index of SQLite has it: in small letters, those of the Latin alphabet without
/// accents. That of PostgreSQL keeps accents: there more is marked than was looked for.
fn fold_word(word: &str) -> String {
    let small = word.to_lowercase();
    let letters = small.chars().filter(|letter| !is_accent(*letter));
    let plain = letters.map(|letter| {
        let mut parts = std::iter::once(letter).nfd();
        let first = parts.next().filter(char::is_ascii_alphabetic);
        first.filter(|_| parts.all(is_accent)).unwrap_or(letter)
    });
    plain.collect()
}

/// The words that are looked for, in lower case, each once.
fn query_words(question: &str) -> Vec<String> {
    let mut known = BTreeSet::new();
    let words = split_words(question).map(str::to_lowercase);
    let words = words.filter(|word| known.insert(word.clone()));
    words.take(MAX_QUERY_WORDS).collect()
}

/// The words as the database asks for them. They are letters, digits and accents, so
/// nothing else is said.
fn match_query(words: &[String], backend: DatabaseKind) -> String {
    let (between, last) = match backend {
        DatabaseKind::Sqlite => (" ", "*"),
        DatabaseKind::Postgres => (" & ", ":*"),
    };
    let quoted: Vec<String> = words
        .iter()
        .map(|word| match backend {
            DatabaseKind::Sqlite => format!("\"{word}\""),
            DatabaseKind::Postgres => format!("'{word}'"),
        })
        .collect();
    quoted.join(between) + last
}

fn search_hit(row: &DatabaseRow, words: &[String]) -> Result<SearchHit, StoreError> {
    let thread: String = column(row, "thread_id")?;
    let seq = number(row, "seq")?;
    let message = message(row, &thread, seq)?;
    let text_of_it = texts(&message).collect::<Vec<_>>().join(" ");
    Ok(SearchHit {
        label: column(row, "thread_label")?,
        session: text(row, "session_id")?,
        seq,
        role: message.role,
        at_ms: column(row, "at_ms")?,
        excerpt: excerpt(&text_of_it, words),
        thread: ThreadId::stored(thread),
    })
}

/// Excerpts around the first of the words, with all words marked.
fn excerpt(message_text: &str, words: &[String]) -> Vec<Excerpt> {
    // White space is one space each, so that the excerpt is a line.
    let line = message_text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let hits = hits(&line, words);
    let first = hits.first().map_or(0, |hit| hit.start);
    let begin = step_back(&line, first, EXCERPT_BEFORE);
    let end = step_forward(&line, first, EXCERPT_AFTER);
    let mut pieces = Vec::new();
    let mut push = |text: &str, is_hit| {
        if !text.is_empty() {
            pieces.push(Excerpt {
                text: text.to_owned(),
                is_hit,
            });
        }
    };
    if begin > 0 {
        push("…", false);
    }
    let mut at = begin;
    for hit in hits.iter().filter(|hit| hit.end <= end) {
        push(line.get(at..hit.start).unwrap_or_default(), false);
        push(line.get(hit.clone()).unwrap_or_default(), true);
        at = hit.end;
    }
    push(line.get(at..end).unwrap_or_default(), false);
    if end < line.len() {
        push("…", false);
    }
    pieces
}

/// Ranges of a text that are words of the question.
fn hits(line: &str, words: &[String]) -> Vec<std::ops::Range<usize>> {
    let begins = line.as_ptr() as usize;
    let words: Vec<String> = words.iter().map(|word| fold_word(word)).collect();
    let ranges = split_words(line).map(|word| {
        let start = word.as_ptr() as usize - begins;
        (fold_word(word), start..start + word.len())
    });
    let is_hit = |word: &str| {
        let last = words.last();
        words.iter().any(|wanted| wanted == word) || last.is_some_and(|last| word.starts_with(last))
    };
    let hits = ranges.filter(|(word, _)| is_hit(word));
    hits.map(|(_, range)| range).collect()
}

/// The place so many characters before another one.
fn step_back(line: &str, from: usize, characters: usize) -> usize {
    let before = line.get(..from).unwrap_or_default();
    let mut places = before.char_indices().rev().take(characters);
    places.by_ref().last().map_or(from, |(at, _)| at)
}

/// The place so many characters behind another one.
fn step_forward(line: &str, from: usize, characters: usize) -> usize {
    let behind = line.get(from..).unwrap_or_default();
    let place = behind.char_indices().nth(characters);
    place.map_or(line.len(), |(at, _)| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_words_and_nothing_else() {
        let words = query_words("The \"LAMP\" OR the-lamp; NEAR(x, 1) \0' :* & | !");
        assert_eq!(words, ["the", "lamp", "or", "near", "x", "1"]);
        let asked = match_query(&words, DatabaseKind::Sqlite);
        assert_eq!(asked, "\"the\" \"lamp\" \"or\" \"near\" \"x\" \"1\"*");
        let asked = match_query(&words, DatabaseKind::Postgres);
        assert_eq!(asked, "'the' & 'lamp' & 'or' & 'near' & 'x' & '1':*");
        assert_eq!(query_words("  -- !").len(), 0);
    }

    #[test]
    fn words_are_marked_whatever_accents_they_have() {
        let marked = |said: &str, question: &str| -> Vec<String> {
            let pieces = excerpt(said, &query_words(question));
            let hits = pieces.into_iter().filter(|piece| piece.is_hit);
            hits.map(|piece| piece.text).collect()
        };
        let said = "Es geht ÜBER den Fluß, u\u{308}ber die Überführung";
        for question in ["uber", "über", "u\u{308}ber"] {
            let hits = marked(said, question);
            assert_eq!(hits, ["ÜBER", "u\u{308}ber", "Überführung"], "{question}");
        }
        assert_eq!(marked("Tiếng Việt", "tieng viet"), ["Tiếng", "Việt"]);
        assert_eq!(marked("한글 하", "하"), ["하"], "no letter is taken apart");
    }

    #[test]
    fn an_excerpt_shows_the_words_and_what_is_around_them() {
        let said = format!(
            "{}the Lamp\n is  lit, and lamps {}",
            "é ".repeat(60),
            "x ".repeat(200)
        );
        let pieces = excerpt(&said, &["lit".to_owned(), "lam".to_owned()]);
        let hits: Vec<&str> = pieces
            .iter()
            .filter(|p| p.is_hit)
            .map(|p| &*p.text)
            .collect();
        assert_eq!(hits, ["Lamp", "lit", "lamps"]);
        let whole: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
        assert!(whole.starts_with("…é é"), "{whole}");
        assert!(whole.contains("the Lamp is lit, and lamps x x"), "{whole}");
        assert!(
            whole.ends_with('…') && whole.chars().count() < 220,
            "{whole}"
        );
    }
}
