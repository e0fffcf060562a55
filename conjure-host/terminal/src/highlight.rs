//! Code in its lines.

use crate::text::{Line, Style};

/// The lines of a piece of code, in the language that its fence names.
pub(crate) fn lines(_info: &str, code: &str) -> Vec<Line> {
    crate::text::lines_of(code, Style::PLAIN)
}
