//! What was said before, as it is shown when a conversation goes on.

use crate::conversation::Said;
use crate::text::{Color, Line, Style};
use crate::{markdown, transcript};

/// It in lines of so many columns.
pub(crate) fn lines(said: &[Said], columns: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut is_call = false;
    for said in said {
        let call = matches!(said, Said::Call { .. });
        let goes_on = call && is_call;
        if !lines.is_empty() && !goes_on {
            lines.push(Line::new());
        }
        is_call = call;
        match said {
            Said::Person(text) => lines.extend(transcript::said(text, columns)),
            Said::Model(text) => lines.extend(markdown::render(text, columns)),
            Said::Call {
                name,
                summary,
                is_error,
            } => {
                let (mark, color) = if *is_error {
                    ("✗ ", Color::Red)
                } else {
                    ("✓ ", Color::Green)
                };
                let line = Line::of(mark, Style::of(color))
                    .with(name, Style::BOLD)
                    .with(format!(" {summary}"), Style::PLAIN);
                lines.push(line.cut(columns));
            }
            Said::Note(text) => lines.push(Line::of(text, Style::DIM).cut(columns)),
        }
    }
    lines
}
