//! Code in its lines, with the colours of its language.

use conjure_highlight::{CodeKind, Highlighter};

use crate::text::{Color, Line, Style};

/// The lines of a piece of code that grows. What was read once is not read again.
#[derive(Debug, Clone, Default)]
pub(crate) struct CodeLines {
    language: String,
    reader: Option<Highlighter>,
    done: Vec<(String, Line)>,
}

impl CodeLines {
    /// The lines of a piece of code, in the language that its fence names.
    pub(crate) fn of(&mut self, info: &str, code: &str) -> Vec<Line> {
        let language = info.split([' ', ',', '{']).next().unwrap_or_default();
        let whole = code.matches('\n').count();
        let is_known = self.language == language
            && self.done.len() <= whole
            && self
                .done
                .iter()
                .zip(code.lines())
                .all(|((text, _), line)| text == line);
        if !is_known {
            *self = Self {
                language: language.to_owned(),
                ..Self::default()
            };
        }
        let reader = self
            .reader
            .get_or_insert_with(|| Highlighter::new(language));
        for line in code.lines().take(whole).skip(self.done.len()) {
            self.done.push((line.to_owned(), color_line(reader, line)));
        }
        let mut lines: Vec<Line> = self.done.iter().map(|(_, line)| line.clone()).collect();
        // A line that is not whole is read again when it is.
        if let Some(last) = code.lines().nth(whole) {
            lines.push(color_line(&mut reader.clone(), last));
        }
        lines
    }
}

/// The lines of a whole piece of code.
pub(crate) fn lines(language: &str, code: &str) -> Vec<Line> {
    CodeLines::default().of(language, code)
}

fn color_line(reader: &mut Highlighter, line: &str) -> Line {
    let mut colored = Line::new();
    for piece in reader.line(line) {
        colored.push(piece.text, style(piece.kind));
    }
    colored
}

fn style(kind: CodeKind) -> Style {
    match kind {
        CodeKind::Comment => Style::DIM,
        CodeKind::Keyword | CodeKind::Tag => Style::of(Color::Magenta),
        CodeKind::String => Style::of(Color::Green),
        CodeKind::Escape | CodeKind::Number | CodeKind::Constant => Style::of(Color::Cyan),
        CodeKind::Function => Style::of(Color::Blue),
        CodeKind::Type | CodeKind::Attribute => Style::of(Color::Yellow),
        CodeKind::Heading => Style::BOLD,
        CodeKind::Inserted => Style::of(Color::Green),
        CodeKind::Deleted => Style::of(Color::Red),
        _ => Style::PLAIN,
    }
}
