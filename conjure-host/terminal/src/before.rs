//! What was said before, as it is shown when a conversation goes on.

use crate::conversation::PastItem;
use crate::text::{Color, Line, Style};
use crate::{markdown, transcript};

/// It in lines of so many columns.
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
            PastItem::Person(text) => lines.extend(transcript::said(text, columns)),
            PastItem::File(name) => {
                let line = Line::of(format!("  + {name}"), Style::DIM);
                lines.push(line.cut(columns));
            }
            PastItem::Model(text) => lines.extend(markdown::render(text, columns)),
            PastItem::Call {
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
            PastItem::Note(text) => lines.push(Line::of(text, Style::DIM).cut(columns)),
        }
    }
    lines
}
