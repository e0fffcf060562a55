//! Calls that are over, held to be shown whole.

use std::collections::VecDeque;

use conjure_core::chat::CallOutput;
use serde_json::{Map, Value};

use crate::call::AnnouncedCall;
use crate::ended_call;
use crate::text::Line;

/// The most bytes of an output that are held.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// The most bytes of all calls.
const MAX_TOTAL_BYTES: usize = 16 * 1024 * 1024;
/// The most calls.
const MAX_CALLS: usize = 1024;

/// A call that is over.
#[derive(Debug)]
pub(crate) struct RecentCall {
    arguments: Value,
    /// What the file had that it wrote, where that is known.
    overwritten: Option<String>,
    result: CallOutput,
}

impl RecentCall {
    /// A call with its result. One that nobody announced has no arguments.
    pub(crate) fn new(announced: Option<&AnnouncedCall>, result: &CallOutput) -> Self {
        let mut result = result.clone();
        if result.output.len() > MAX_OUTPUT_BYTES {
            let cut = result.output.floor_char_boundary(MAX_OUTPUT_BYTES);
            result.output.truncate(cut);
            result.output.push_str("\n… more is not held here");
        }
        let arguments = announced.map(|call| call.arguments.clone());
        Self {
            arguments: arguments.unwrap_or_else(|| Value::Object(Map::new())),
            overwritten: announced.and_then(|call| call.overwritten.clone()),
            result,
        }
    }

    fn bytes(&self) -> usize {
        let overwritten = self.overwritten.as_ref().map_or(0, String::len);
        self.arguments.to_string().len() + overwritten + self.result.output.len()
    }

    /// All of it, below its line.
    fn lines(&self, columns: usize) -> Vec<Line> {
        let before = self.overwritten.as_deref();
        ended_call::full_lines(&self.arguments, before, &self.result, columns)
    }
}

/// The last calls of a conversation.
#[derive(Debug, Default)]
pub(crate) struct RecentCalls {
    /// The newest first, each with its bytes.
    calls: VecDeque<(RecentCall, usize)>,
    /// How many of them were shown since the newest came.
    shown_count: usize,
}

impl RecentCalls {
    /// Holds one more. The oldest ones go where there is no room.
    pub(crate) fn push(&mut self, call: RecentCall) {
        let bytes = call.bytes();
        self.calls.push_front((call, bytes));
        self.shown_count = 0;
        while self.calls.len() > 1
            && (self.calls.len() > MAX_CALLS || self.bytes() > MAX_TOTAL_BYTES)
        {
            self.calls.pop_back();
        }
    }

    fn bytes(&self) -> usize {
        self.calls.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The newest one whole, and each time it is asked for once more the one before it.
    ///
    /// # Errors
    /// Why there is none, in words; it begins with the newest again then.
    pub(crate) fn next(&mut self, columns: usize) -> Result<Vec<Line>, &'static str> {
        if let Some((call, _)) = self.calls.get(self.shown_count) {
            self.shown_count += 1;
            return Ok(call.lines(columns));
        }
        Err(match std::mem::take(&mut self.shown_count) {
            0 => "No call has had a result since this chat was opened.",
            _ => "No call before that has a result here. Ctrl-O begins with the last one again.",
        })
    }
}
