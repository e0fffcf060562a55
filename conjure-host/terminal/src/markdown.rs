//! Markdown as lines of a terminal.
//!
//! Reads with comrak and writes lines of at most so many columns. Knows nothing of streams: what
//! comes in pieces is [`crate::stream`]'s affair.

use std::borrow::Cow;
use std::ops::Range;

use comrak::nodes::{ListType, Node, NodeList, NodeValue, TableAlignment};
use comrak::{Arena, Options, parse_document};

use crate::flushed::{BlockLayout, BlockLayouts, FlushedText, RenderedLine, TextPosition};
use crate::highlight::CodeLines;
use crate::table::{self, TableLayout};
use crate::text::{Color, Line, Style};

/// The narrowest that text is set to.
const MIN_COLUMNS: usize = 16;
/// Blocks in blocks, and styles in styles; of what goes deeper the plain text is shown.
const MAX_DEPTH: usize = 32;

/// One of a text's top-level blocks.
pub(crate) struct MarkdownBlock {
    /// The line of the source that it begins on, counted from 0.
    pub(crate) starts_at: usize,
    /// Lines that the block is rendered into.
    pub(crate) lines: Vec<RenderedLine>,
}

/// Renders Markdown into lines of at most so many columns.
pub(crate) fn render(text: &str, columns: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let flushed = FlushedText::default();
    let text = with_line_feeds(text);
    let (blocks, _) = blocks(&text, columns, &mut CodeLines::default(), &flushed);
    for block in blocks {
        if !lines.is_empty() {
            lines.push(Line::new());
        }
        lines.extend(block.lines.into_iter().map(|rendered| rendered.line));
    }
    lines
}

/// A text with a line feed for each line end. For the reader a carriage return alone ends a line too,
/// and its lines are counted here.
pub(crate) fn with_line_feeds(text: &str) -> Cow<'_, str> {
    if text.contains('\r') {
        Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Renders what was not given out of each top-level block on its own, and tells how blocks are laid
/// out; `code` is what is known of the code that was read last. The text's lines end with line feeds
/// alone.
pub(crate) fn blocks(
    text: &str,
    columns: usize,
    code: &mut CodeLines,
    flushed: &FlushedText,
) -> (Vec<MarkdownBlock>, BlockLayouts) {
    let columns = columns.max(MIN_COLUMNS);
    let arena = Arena::new();
    let document = parse_document(&arena, text, &options());
    let source: Vec<&str> = text.lines().collect();
    let mut writer = Writer {
        columns,
        lines: Vec::new(),
        prefix: Line::new(),
        first: None,
        depth: 0,
        code,
        flushed,
        layouts: BlockLayouts::new(),
    };
    let mut blocks = Vec::new();
    let mut behind = 0;
    for node in document.children() {
        let starts_at = line_of(node);
        blocks.extend(writer.definition_blocks(&source, &(behind..starts_at)));
        let leading = leading_definitions(&source, node);
        if leading.is_empty() {
            writer.block(node);
        } else {
            writer.definitions(&source, leading.clone());
            writer.text(leading.end, inlines(node, Style::PLAIN));
        }
        blocks.push(writer.take_block(starts_at));
        behind = node.data().sourcepos.end.line.max(starts_at + 1);
    }
    blocks.extend(writer.definition_blocks(&source, &(behind..source.len())));
    (blocks, writer.layouts)
}

/// The line of the source that a block begins on, counted from 0.
fn line_of(node: Node<'_>) -> usize {
    node.data().sourcepos.start.line.saturating_sub(1)
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
    lines: Vec<RenderedLine>,
    /// What every line begins with: bars of quotes, the indentation of items.
    prefix: Line,
    /// What the next line begins with in place of that: an item's mark.
    first: Option<Line>,
    /// How many blocks the one is in that is written.
    depth: usize,
    code: &'a mut CodeLines,
    flushed: &'a FlushedText,
    layouts: BlockLayouts,
}

impl Writer<'_> {
    /// Ends a top-level block.
    fn take_block(&mut self, starts_at: usize) -> MarkdownBlock {
        self.first = None;
        MarkdownBlock {
            starts_at,
            lines: std::mem::take(&mut self.lines),
        }
    }

    /// The definitions between two blocks.
    fn definition_blocks(&mut self, source: &[&str], between: &Range<usize>) -> Vec<MarkdownBlock> {
        let runs = definition_runs(source, between).into_iter();
        let blocks = runs.map(|run| {
            let starts_at = run.start;
            self.definitions(source, run);
            self.take_block(starts_at)
        });
        blocks.collect()
    }

    fn block(&mut self, node: Node<'_>) {
        match &node.data().value {
            NodeValue::Paragraph => self.paragraph(node, Style::PLAIN),
            NodeValue::Heading(heading) => self.heading(node, heading.level),
            NodeValue::ThematicBreak => {
                let width = self.columns.saturating_sub(self.prefix.width()).min(40);
                let rule = Line::of("─".repeat(width), Style::DIM);
                self.push_together(TextPosition::end(line_of(node)), &[rule]);
            }
            NodeValue::CodeBlock(code) => self.code(line_of(node), &code.info, &code.literal),
            NodeValue::HtmlBlock(html) => self.code(line_of(node), "html", &html.literal),
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
            NodeValue::Table(aligned) => self.table(node, &aligned.alignments),
            _ => self.blocks(node, true),
        }
    }

    /// The blocks within a block, with a line between them where it is loose.
    fn blocks(&mut self, node: Node<'_>, is_loose: bool) {
        for (at, child) in node.children().enumerate() {
            if at > 0 && is_loose {
                self.separator(line_of(child));
            }
            self.depth += 1;
            if self.depth < MAX_DEPTH {
                self.block(child);
            } else {
                self.text(line_of(child), vec![Line::of(plain(child), Style::PLAIN)]);
            }
            self.depth -= 1;
        }
    }

    fn paragraph(&mut self, node: Node<'_>, style: Style) {
        self.text(line_of(node), inlines(node, style));
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

    /// Code, each line of which is a place of its own.
    fn code(&mut self, at: usize, info: &str, code: &str) {
        let mut indented = self.prefix.clone();
        indented.push("  ", Style::PLAIN);
        let mut first = self.first.take();
        if let Some(first) = &mut first {
            first.push("  ", Style::PLAIN);
        }
        for (number, mut line) in self.code.of(info, code).into_iter().enumerate() {
            let mut first = first.take().unwrap_or_else(|| indented.clone());
            let mut end = TextPosition::begin(at + number);
            if let Some(until) = self.flushed.flushed_until().filter(|until| *until >= end) {
                if until.line() > at + number || until.characters() > line.plain().chars().count() {
                    continue;
                }
                line = line.skip_chars(until.characters());
                end = until;
                first.clone_from(&indented);
            }
            let chunks = line.chunks(self.columns, &first, &indented);
            let last = chunks.len().saturating_sub(1);
            let mut prefix = first.plain().chars().count();
            for (chunk, line) in chunks.into_iter().enumerate() {
                let characters = line.plain().chars().count().saturating_sub(prefix);
                // The end of the line is behind its last chunk.
                end.skip(characters + usize::from(chunk == last));
                self.lines.push(RenderedLine { line, end });
                prefix = indented.plain().chars().count();
            }
        }
    }

    /// A table, each row of which is shown whole or not at all.
    fn table(&mut self, node: Node<'_>, alignments: &[TableAlignment]) {
        let columns = self.columns.saturating_sub(self.prefix.width());
        let rows = rows(node);
        let begin = begin_of(node);
        let fitting = TableLayout::of(&rows, columns);
        let layout = match self.flushed.layout(begin) {
            Some(BlockLayout::Table(layout)) => layout.or_wider(fitting, columns),
            _ => fitting,
        };
        let rendered = table::render(&rows, alignments, columns, &layout);
        for (number, lines) in rendered.iter().enumerate() {
            self.push_together(TextPosition::end(line_of(node) + number), lines);
        }
        self.layouts.insert(begin, BlockLayout::Table(layout));
    }

    fn list(&mut self, node: Node<'_>, list: &NodeList) {
        let before = self.prefix.clone();
        let begin = begin_of(node);
        let is_tight = match self.flushed.layout(begin) {
            Some(BlockLayout::List { is_tight }) => *is_tight,
            _ => list.tight,
        };
        self.layouts.insert(begin, BlockLayout::List { is_tight });
        for (at, item) in node.children().enumerate() {
            if at > 0 && !is_tight {
                self.separator(line_of(item));
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
            self.blocks(item, !is_tight);
            // An item with nothing in it shows its mark.
            if self.first.is_some() {
                self.push_together(TextPosition::end(line_of(item)), &[Line::new()]);
            }
            self.prefix.clone_from(&before);
        }
    }

    /// Where links lead that are named elsewhere: what they are in is shown before that is known.
    fn definitions(&mut self, source: &[&str], at: Range<usize>) {
        for line in at {
            let text = source.get(line).copied().unwrap_or_default();
            self.text(line, vec![Line::of(text.trim(), Style::DIM)]);
        }
    }

    /// Text that is broken between words, a line for each that the writer broke himself.
    fn text(&mut self, at: usize, mut texts: Vec<Line>) {
        let mut end = TextPosition::begin(at);
        if let Some(until) = self.flushed.flushed_until().filter(|until| *until >= end) {
            // Its mark was given out with its first line.
            self.first = None;
            if until.line() > at {
                return;
            }
            texts = until.rest_of(texts);
            end = until;
        }
        for text in texts {
            let first = self.first.take().unwrap_or_else(|| self.prefix.clone());
            let mut prefix = first.plain().len();
            for line in text.wrap(self.columns, &first, &self.prefix) {
                end.advance(line.plain().get(prefix..).unwrap_or_default());
                self.lines.push(RenderedLine { line, end });
                prefix = self.prefix.plain().len();
            }
        }
    }

    /// Lines that are given out together.
    fn push_together(&mut self, end: TextPosition, lines: &[Line]) {
        if self.flushed.has(end) {
            self.first = None;
            return;
        }
        for line in lines {
            let mut whole = self.first.take().unwrap_or_else(|| self.prefix.clone());
            whole.extend(line);
            self.lines.push(RenderedLine { line: whole, end });
        }
    }

    /// An empty line above a block.
    fn separator(&mut self, below: usize) {
        let end = TextPosition::above(below);
        if !self.flushed.has(end) {
            let line = self.prefix.clone();
            self.lines.push(RenderedLine { line, end });
        }
    }
}

/// The line and the column of the source that a block begins on.
fn begin_of(node: Node<'_>) -> (usize, usize) {
    (line_of(node), node.data().sourcepos.start.column)
}

/// Runs of lines between two blocks that are definitions: of these the reader makes no block.
fn definition_runs(source: &[&str], between: &Range<usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let lines = source.iter().enumerate();
    for (at, line) in lines.take(between.end).skip(between.start) {
        let next = at + 1;
        match runs.last_mut().filter(|run| run.end == at) {
            // A title may stand on a line of its own.
            Some(run) if !line.trim().is_empty() => run.end = next,
            _ if definition_label(line).is_some() => runs.push(at..next),
            _ => {}
        }
    }
    runs
}

/// The lines that a paragraph begins with and that are definitions.
fn leading_definitions(source: &[&str], node: Node<'_>) -> Range<usize> {
    let starts_at = line_of(node);
    let is_candidate = source
        .get(starts_at)
        .is_some_and(|line| definition_label(line).is_some());
    if !is_candidate || !matches!(node.data().value, NodeValue::Paragraph) {
        return starts_at..starts_at;
    }
    let shown = strip_markup(&plain(node));
    let leading = source.iter().skip(starts_at).take_while(|line| {
        // What is shown is none, though it looks like one.
        definition_label(line).is_some_and(|label| !shown.starts_with(&strip_markup(label)))
    });
    starts_at..starts_at + leading.count()
}

/// What a line defines, with its brackets and its colon.
fn definition_label(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mut is_escaped = false;
    let ends_label = |c: char| {
        let ends = c == ']' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    };
    // Behind the first bracket that closes there is no label any more.
    let end = line.starts_with('[').then(|| line.find(ends_label))??;
    let behind = line.get(end + 1..)?;
    behind.starts_with(':').then(|| line.get(..end + 2))?
}

/// A text without what only says how it looks, which a label has and what is shown of it has not.
fn strip_markup(text: &str) -> String {
    text.chars().filter(|c| !"*_`~\\".contains(*c)).collect()
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
    if depth >= MAX_DEPTH {
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
    fn every_kind_of_line_end_is_one() {
        let text =
            "One\ntwo.\n\n[1]: https://example.com/page\n\n```\na\nb\n```\n\n- three\n\nEnd.";
        let shown = rendered(text.to_owned());
        assert_eq!(shown.last().map(String::as_str), Some("End."));
        for end in ["\r", "\r\n"] {
            assert_eq!(rendered(text.replace('\n', end)), shown, "{end:?}");
        }
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
