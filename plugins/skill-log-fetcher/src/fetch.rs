//! Carries out the command: read, keep the newest, write, and say what came of it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::PathBuf;

use conjure_skill_sdk::protocol::ToolResult;
use conjure_skill_sdk::{Cx, Error, Result};
use serde_json::{Map, Value, json};

use crate::command::FetchCommand;
use crate::entry::{LogEntry, LogSeverity};
use crate::reader::{self, ReadReport};
use crate::{output, source};

/// The most bytes of entries that are kept, whatever the limit is.
const MAX_ENTRIES_BYTES: usize = 64 * 1024 * 1024;
/// Number of entries that stay for `read recent`.
const MAX_RECENT: usize = 1_000;

/// What was fetched last, for `read`.
#[derive(Debug)]
pub(crate) struct LastFetch {
    structured: Value,
    source: String,
    /// The newest entries, the newest last.
    recent: Vec<LogEntry>,
}

/// Runs the command.
pub(crate) fn run(
    cx: &Cx,
    command: &FetchCommand,
    roots: &[PathBuf],
) -> Result<(ToolResult, LastFetch)> {
    let dir = source::working_dir(cx)?.to_owned();
    let opened = source::open(cx, &command.source, roots)?;
    let mut kept = NewestEntries::new(command);
    let report =
        reader::read(opened, || cx.check(), |entry| kept.push(entry)).map_err(|error| {
            Error::with_code(
                error.code(),
                format!("`{}` cannot be read: {}", command.source, error.message()),
            )
        })?;
    let file = output::write(&dir, kept.entries.iter())?;
    let structured = kept.structured(&file.name, &report);
    let text = kept.summary(command, &file.name, &report);
    let fetched = LastFetch {
        structured: structured.clone(),
        source: command.source.clone(),
        recent: kept.into_recent(),
    };
    let result = ToolResult {
        structured: Some(structured),
        ..ToolResult::text(text)
    };
    Ok((result.with_file(file), fetched))
}

impl LastFetch {
    pub(crate) fn stats(&self) -> Result<Value> {
        let mut stats = self.structured.clone();
        let object = stats
            .as_object_mut()
            .ok_or_else(|| Error::new("the figures are no object"))?;
        object.insert("source".to_owned(), json!(self.source));
        Ok(stats)
    }

    /// A page of the newest entries, one a line, in their order.
    pub(crate) fn recent(&self, offset: u64, limit: u64) -> String {
        let clamp = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let end = self.recent.len().saturating_sub(clamp(offset));
        let begin = end.saturating_sub(clamp(limit));
        let entries = self.recent.get(begin..end).unwrap_or_default();
        let lines: Vec<String> = entries
            .iter()
            .filter_map(|entry| serde_json::to_string(entry).ok())
            .collect();
        match lines.is_empty() {
            true => format!(
                "no entries there; {} are kept for reading",
                self.recent.len()
            ),
            false => lines.join("\n"),
        }
    }
}

/// The newest entries that fit the command.
struct NewestEntries {
    entries: VecDeque<LogEntry>,
    bytes: usize,
    limit: usize,
    level: Option<LogSeverity>,
    /// Number of entries of the level, kept or not.
    matching: u64,
}

impl NewestEntries {
    fn new(command: &FetchCommand) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            limit: command.limit,
            level: command.level,
            matching: 0,
        }
    }

    fn push(&mut self, entry: LogEntry) {
        if self.level.is_some() && entry.level < self.level {
            return;
        }
        self.matching += 1;
        self.bytes += entry.size();
        self.entries.push_back(entry);
        while self.entries.len() > self.limit || self.bytes > MAX_ENTRIES_BYTES {
            match self.entries.pop_front() {
                Some(oldest) => self.bytes -= oldest.size(),
                None => break,
            }
        }
    }

    /// Number of entries of each level, and of none.
    fn levels(&self) -> ([(LogSeverity, usize); 5], usize) {
        let count = |level| self.entries.iter().filter(|e| e.level == level).count();
        (
            LogSeverity::ALL.map(|level| (level, count(Some(level)))),
            count(None),
        )
    }

    fn time_range(&self) -> Option<(&str, &str)> {
        let mut times = self.entries.iter().filter_map(|e| e.timestamp.as_deref());
        let first = times.next()?;
        Some((first, times.next_back().unwrap_or(first)))
    }

    fn structured(&self, file: &str, report: &ReadReport) -> Value {
        let (levels, without) = self.levels();
        let mut counts = Map::new();
        for (level, count) in levels {
            counts.insert(level.as_str().to_owned(), json!(count));
        }
        if without > 0 {
            counts.insert("NONE".to_owned(), json!(without));
        }
        let mut structured = json!({
            "count": self.entries.len(),
            "levels": counts,
            "file": file,
            "skipped": report.skipped,
            "read": report.entries,
        });
        if let (Some((first, last)), Some(object)) = (self.time_range(), structured.as_object_mut())
        {
            object.insert("from".to_owned(), json!(first));
            object.insert("to".to_owned(), json!(last));
        }
        structured
    }

    fn summary(&self, command: &FetchCommand, file: &str, report: &ReadReport) -> String {
        let mut text = format!(
            "Kept {} of {} entries from {}",
            self.entries.len(),
            report.entries,
            command.source
        );
        if let Some(level) = command.level {
            let and_more = if level == LogSeverity::Error {
                ""
            } else {
                " and more severe"
            };
            let _ = write!(
                text,
                " ({} of level {}{and_more})",
                self.matching,
                level.as_str()
            );
        }
        if self.matching > self.entries.len() as u64 {
            let why = if self.entries.len() < self.limit {
                "as many as fit into memory".to_owned()
            } else {
                format!("--limit {}", self.limit)
            };
            let _ = write!(text, ", the newest ones ({why})");
        }
        text.push_str(".\n");
        let (levels, without) = self.levels();
        let mut counts: Vec<String> = levels
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(level, count)| format!("{} {count}", level.as_str()))
            .collect();
        if without > 0 {
            counts.push(format!("without a level {without}"));
        }
        if !counts.is_empty() {
            let _ = writeln!(text, "Levels: {}.", counts.join(", "));
        }
        if let Some((first, last)) = self.time_range() {
            let _ = writeln!(text, "Time: {first} to {last}.");
        }
        if report.skipped > 0 {
            let _ = writeln!(text, "{}", report.unreadable().trim_start());
        }
        let _ = write!(
            text,
            "Written to {file} in the working directory, one JSON object a line."
        );
        text
    }

    fn into_recent(self) -> Vec<LogEntry> {
        let skip = self.entries.len().saturating_sub(MAX_RECENT);
        self.entries.into_iter().skip(skip).collect()
    }
}
