//! Markdown as lines of a terminal.
//!
//! Reads with comrak and writes lines of at most so many columns. Knows nothing of streams: what
//! comes in pieces is [`crate::stream`]'s affair.

use comrak::nodes::{ListType, Node, NodeList, NodeValue};
use comrak::{Arena, Options, parse_document};

use crate::highlight::CodeLines;
use crate::table;
use crate::text::{Color, Line, Style};

/// The narrowest that text is set to.
const LEAST_COLUMNS: usize = 16;
/// Blocks in blocks, and styles in styles; of what goes deeper the plain text is shown.
const DEEPEST: usize = 32;

/// A text's top-level blocks.
pub(crate) struct MarkdownBlock {
    /// The line of the source that it begins on, counted from 0.
    pub(crate) starts_at: usize,
    /// Its lines.
    pub(crate) lines: Vec<Line>,
}

/// Renders Markdown into lines of at most so many columns.
pub(crate) fn render(text: &str, columns: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for block in blocks(text, columns, &mut CodeLines::default()) {
        if !lines.is_empty() {
            lines.push(Line::new());
        }
        lines.extend(block.lines);
    }
    lines
}

/// Renders each top-level block on its own; `code` is what is known of the code that was read last.
pub(crate) fn blocks(text: &str, columns: usize, code: &mut CodeLines) -> Vec<MarkdownBlock> {
    let columns = columns.max(LEAST_COLUMNS);
    let arena = Arena::new();
    let document = parse_document(&arena, text, &options());
    let mut blocks = Vec::new();
    for node in document.children() {
        let mut writer = Writer {
            columns,
            lines: Vec::new(),
            prefix: Line::new(),
            first: None,
            depth: 0,
            code: &mut *code,
        };
        writer.block(node);
        let starts_at = node.data().sourcepos.start.line.saturating_sub(1);
        blocks.push(MarkdownBlock {
            starts_at,
            lines: writer.lines,
        });
    }
    blocks
}

fn options() -> Options<'static> {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.strikethrough = true;
    options.extension.tasklist = true;
    options
}

/// Writes blocks below each other.
struct Writer<'a> {
    columns: usize,
    lines: Vec<Line>,
    /// What every line begins with: bars of quotes, the indentation of items.
    prefix: Line,
    /// What the next line begins with in place of that: an item's mark.
    first: Option<Line>,
    /// How many blocks the one is in that is written.
    depth: usize,
    code: &'a mut CodeLines,
}

impl Writer<'_> {
    fn block(&mut self, node: Node<'_>) {
        match &node.data().value {
            NodeValue::Paragraph => self.paragraph(node, Style::PLAIN),
            NodeValue::Heading(heading) => self.heading(node, heading.level),
            NodeValue::ThematicBreak => {
                let width = self.columns.saturating_sub(self.prefix.width()).min(40);
                self.line(&Line::of("─".repeat(width), Style::DIM));
            }
            NodeValue::CodeBlock(code) => self.code(&code.info, &code.literal),
            NodeValue::HtmlBlock(html) => self.code("html", &html.literal),
            NodeValue::BlockQuote => {
                let before = self.prefix.clone();
                self.prefix.push("│ ", Style::DIM);
                if let Some(first) = &mut self.first {
                    first.push("│ ", Style::DIM);
                }
                self.blocks(node, true);
                self.prefix = before;
            }
            NodeValue::List(list) => self.list(node, list),
            NodeValue::Table(aligned) => {
                let columns = self.columns.saturating_sub(self.prefix.width());
                for line in table::render(&rows(node), &aligned.alignments, columns) {
                    self.line(&line);
                }
            }
            _ => self.blocks(node, true),
        }
    }

    /// The blocks within a block, with a line between them where it is loose.
    fn blocks(&mut self, node: Node<'_>, is_loose: bool) {
        for (at, child) in node.children().enumerate() {
            if at > 0 && is_loose {
                self.lines.push(self.prefix.clone());
            }
            self.depth += 1;
            if self.depth < DEEPEST {
                self.block(child);
            } else {
                self.wrapped(&Line::of(plain(child), Style::PLAIN));
            }
            self.depth -= 1;
        }
    }

    fn paragraph(&mut self, node: Node<'_>, style: Style) {
        for text in inlines(node, style) {
            self.wrapped(&text);
        }
    }

    fn heading(&mut self, node: Node<'_>, level: u8) {
        let style = Style {
            bold: true,
            underline: level == 1,
            color: (level > 1).then_some(Color::Blue),
            ..Style::PLAIN
        };
        self.paragraph(node, style);
    }

    fn code(&mut self, info: &str, code: &str) {
        let mut indented = self.prefix.clone();
        indented.push("  ", Style::PLAIN);
        let mut first = self.first.take();
        if let Some(first) = &mut first {
            first.push("  ", Style::PLAIN);
        }
        for line in self.code.of(info, code) {
            let first = first.take().unwrap_or_else(|| indented.clone());
            let lines = line.chunks(self.columns, &first, &indented);
            self.lines.extend(lines);
        }
    }

    fn list(&mut self, node: Node<'_>, list: &NodeList) {
        let before = self.prefix.clone();
        for (at, item) in node.children().enumerate() {
            if at > 0 && !list.tight {
                self.lines.push(before.clone());
            }
            let mark = match &item.data().value {
                NodeValue::TaskItem(task) => match task.symbol {
                    Some(_) => "☑ ".to_owned(),
                    None => "☐ ".to_owned(),
                },
                _ if list.list_type == ListType::Ordered => {
                    format!("{}. ", list.start + at)
                }
                _ => "• ".to_owned(),
            };
            let mut first = self.first.take().unwrap_or_else(|| before.clone());
            first.push(&mark, Style::DIM);
            let width = Line::of(&mark, Style::PLAIN).width();
            self.first = Some(first);
            self.prefix.push(" ".repeat(width), Style::PLAIN);
            self.blocks(item, !list.tight);
            // An item with nothing in it shows its mark.
            if let Some(first) = self.first.take() {
                self.lines.push(first);
            }
            self.prefix.clone_from(&before);
        }
    }

    fn wrapped(&mut self, text: &Line) {
        let first = self.first.take().unwrap_or_else(|| self.prefix.clone());
        let lines = text.wrap(self.columns, &first, &self.prefix);
        self.lines.extend(lines);
    }

    fn line(&mut self, line: &Line) {
        let mut whole = self.first.take().unwrap_or_else(|| self.prefix.clone());
        whole.extend(line);
        self.lines.push(whole);
    }
}

/// The cells of a table, its head first.
fn rows(node: Node<'_>) -> Vec<Vec<Line>> {
    let cells = |row: Node<'_>| {
        let cells = row.children();
        cells
            .map(|cell| {
                let mut text = Line::new();
                for part in inlines(cell, Style::PLAIN) {
                    text.extend(&part);
                }
                text
            })
            .collect()
    };
    node.children().map(cells).collect()
}

/// What stands in a paragraph: a line for each that the writer broke himself.
fn inlines(node: Node<'_>, style: Style) -> Vec<Line> {
    let mut lines = vec![Line::new()];
    for child in node.children() {
        inline(child, style, 0, &mut lines);
    }
    lines
}

/// The text of a node and of everything in it.
fn plain(node: Node<'_>) -> String {
    let mut text = String::new();
    for node in node.descendants() {
        match &node.data().value {
            NodeValue::Text(part) => text.push_str(part),
            NodeValue::Code(code) => text.push_str(&code.literal),
            NodeValue::HtmlInline(html) | NodeValue::Raw(html) => text.push_str(html),
            NodeValue::CodeBlock(code) => text.push_str(&code.literal),
            NodeValue::HtmlBlock(html) => text.push_str(&html.literal),
            NodeValue::SoftBreak | NodeValue::LineBreak => text.push(' '),
            // What stands in blocks of its own is no one word.
            value if value.block() && !text.is_empty() => text.push(' '),
            _ => {}
        }
    }
    text
}

fn inline(node: Node<'_>, style: Style, depth: usize, lines: &mut Vec<Line>) {
    let mut push = |text: &str, style| {
        if let Some(line) = lines.last_mut() {
            line.push(text, style);
        }
    };
    if depth >= DEEPEST {
        return push(&plain(node), style);
    }
    let inner = match &node.data().value {
        NodeValue::Text(text) => return push(text, style),
        NodeValue::SoftBreak => return push(" ", style),
        NodeValue::LineBreak => return lines.push(Line::new()),
        NodeValue::Code(code) => {
            let code_style = Style {
                color: Some(Color::Cyan),
                ..style
            };
            return push(&code.literal, code_style);
        }
        NodeValue::HtmlInline(html) | NodeValue::Raw(html) => return push(html, style),
        NodeValue::Emph => Style {
            italic: true,
            ..style
        },
        NodeValue::Strong => Style {
            bold: true,
            ..style
        },
        NodeValue::Strikethrough => Style {
            strike: true,
            ..style
        },
        NodeValue::Link(link) | NodeValue::Image(link) => {
            let url = link.url.clone();
            let shown = Style {
                underline: true,
                ..style
            };
            let before = lines.last().map(Line::plain).unwrap_or_default().len();
            for child in node.children() {
                inline(child, shown, depth + 1, lines);
            }
            let text = lines.last().map(Line::plain).unwrap_or_default();
            let text = text.get(before..).unwrap_or_default();
            // Where a link leads is said: a terminal shows no more than this.
            if text != url && !url.is_empty() && url.trim_start_matches("mailto:") != text {
                let dim = Style { dim: true, ..style };
                let url = match text {
                    "" => url,
                    _ => format!(" ({url})"),
                };
                if let Some(line) = lines.last_mut() {
                    line.push(url, dim);
                }
            }
            return;
        }
        _ => style,
    };
    for child in node.children() {
        inline(child, inner, depth + 1, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders on a stack that is no larger than a thread's of the runtime.
    fn rendered(text: String) -> Vec<String> {
        let render = move || {
            let lines = render(&text, 80);
            lines.iter().map(Line::plain).collect()
        };
        let thread = std::thread::Builder::new().stack_size(512 * 1024);
        thread.spawn(render).unwrap().join().unwrap()
    }

    #[test]
    fn what_is_nested_deeper_than_anybody_reads_is_text() {
        let quotes = rendered(format!("{} deep", ">".repeat(20_000)));
        assert!(quotes.concat().contains("deep"), "{quotes:?}");
        let lists = rendered(format!("{}deep *text*", "- ".repeat(2000)));
        assert!(lists.concat().contains("deep"), "{lists:?}");
        let styles = rendered(format!("{}deep{}", "*_".repeat(5000), "_*".repeat(5000)));
        assert!(styles.concat().contains("deep"));
        let links = rendered(format!("{}deep{}", "![".repeat(5000), "](x)".repeat(5000)));
        assert!(links.concat().contains("deep"));
    }
}
