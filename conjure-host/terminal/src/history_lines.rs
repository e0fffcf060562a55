//! What was said before, as it is shown when a conversation goes on.

use crate::conversation::{PastCallEnd, PastItem};
use crate::text::{Color, Line, Style};
use crate::{markdown, transcript};

/// Renders past items as lines of at most `columns` columns.
pub(crate) fn lines(said: &[PastItem], columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut is_call = false;
    for said in said {
        let call = matches!(said, PastItem::Call { .. });
        let goes_on = (call && is_call) || matches!(said, PastItem::File(_));
        if !lines.is_empty() && !goes_on {
            lines.push(Line::new());
        }
        is_call = call;
        match said {
            PastItem::Person(text) => lines.extend(transcript::message_lines(text, columns)),
            PastItem::File(name) => {
                let line = Line::of(format!("  + {name}"), Style::DIM);
                lines.push(line.truncate(columns));
            }
            PastItem::Model(text) => lines.extend(markdown::render(text, columns)),
            PastItem::Call { name, summary, end } => {
                lines.push(call_line(name, summary, *end, columns));
            }
            PastItem::Note(text) => lines.push(Line::of(text, Style::DIM).truncate(columns)),
        }
    }
    lines
}

/// A call on a line, with how it ended.
fn call_line(name: &str, summary: &str, end: PastCallEnd, columns: usize) -> Line {
    let (mark, color) = match end {
        PastCallEnd::Worked => ("✓ ", Color::Green),
        PastCallEnd::Failed => ("✗ ", Color::Red),
        PastCallEnd::Unknown => ("? ", Color::Yellow),
    };
    let mut line = Line::of(mark, Style::of(color))
        .with(name, Style::BOLD)
        .with(" ", Style::PLAIN);
    let words = Line::of(end.description(), Style::DIM);
    let room = columns.saturating_sub(line.width() + words.width());
    line.extend(&Line::of(summary, Style::PLAIN).truncate(room));
    line.extend(&words);
    line.truncate(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_marked_by_how_it_ended() {
        let call = |end| PastItem::Call {
            name: "sh".to_owned(),
            summary: "make all".to_owned(),
            end,
        };
        let ends = [
            PastCallEnd::Worked,
            PastCallEnd::Failed,
            PastCallEnd::Unknown,
        ];
        let lines = lines(&ends.map(call), 60);
        let shown: Vec<String> = lines.iter().map(Line::plain).collect();
        let expected = [
            "✓ sh make all",
            "✗ sh make all",
            "? sh make all  no result was seen",
        ];
        assert_eq!(shown, expected);
    }
}
