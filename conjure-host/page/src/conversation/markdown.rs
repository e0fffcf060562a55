//! Text of a model as HTML: Markdown rendered and sanitised here, whole and block by block.
//!
//! HTML in it is shown as text. Links say where they lead and tell that place nothing; images are
//! links, since fetching one would tell somebody. What comes out went through a list of the elements
//! and attributes that this file makes, so that a mistake of the renderer shows nothing more.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};
use comrak::nodes::{AstNode, NodeValue};
use comrak::{Arena, Options, format_html, parse_document};
use conjure_core::foreign_text::clean;
use maud::{Markup, PreEscaped, html};

use super::code;

/// Longer texts are shown as they are: nobody reads them as prose.
const MAX_BYTES: usize = 512 * 1024;
/// Blocks in blocks; a text that goes deeper is shown as it is.
const MAX_DEPTH: usize = 32;

static OPTIONS: LazyLock<Options<'static>> = LazyLock::new(|| {
    let mut options = Options::default();
    options.extension.strikethrough = true;
    options.extension.table = true;
    options.extension.autolink = true;
    options.extension.tasklist = true;
    options.extension.math_dollars = true;
    options.extension.math_latex = true;
    options.render.escape = true;
    options.render.ignore_empty_links = true;
    options
});

static SANITISER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let tags = [
        "a",
        "blockquote",
        "br",
        "button",
        "code",
        "del",
        "div",
        "em",
        "figcaption",
        "figure",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "input",
        "li",
        "ol",
        "p",
        "pre",
        "span",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ];
    let attributes = HashMap::from([
        ("a", HashSet::from(["href"])),
        ("button", HashSet::from(["type", "data-copy", "aria-label"])),
        ("input", HashSet::from(["type", "checked", "disabled"])),
        ("ol", HashSet::from(["start"])),
        ("td", HashSet::from(["align"])),
        ("th", HashSet::from(["align"])),
        ("div", HashSet::from(["tabindex"])),
        ("pre", HashSet::from(["tabindex"])),
    ]);
    let classes = HashMap::from([
        ("figure", HashSet::from(["code"])),
        ("button", HashSet::from(["plain"])),
        ("code", HashSet::from(["math"])),
        ("div", HashSet::from(["scroll"])),
        ("table", HashSet::from(["table"])),
        (
            "span",
            HashSet::from_iter(code::CLASSES.into_iter().chain(["host"])),
        ),
    ]);
    let mut builder = Builder::empty();
    builder
        .tags(HashSet::from(tags))
        .clean_content_tags(HashSet::from(["script", "style"]))
        .tag_attributes(attributes)
        .allowed_classes(classes)
        .generic_attributes(HashSet::new())
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .set_tag_attribute_value("a", "target", "_blank")
        .set_tag_attribute_value("input", "type", "checkbox")
        .set_tag_attribute_value("input", "disabled", "")
        .link_rel(Some("noopener noreferrer nofollow"));
    builder
});

/// The whole of a text.
pub(crate) fn render(text: &str) -> Markup {
    let text = clean(text);
    if text.len() > MAX_BYTES || is_deep(&text) {
        return plain(&text);
    }
    let arena = Arena::new();
    let root = parse_document(&arena, &text, &OPTIONS);
    prepare(&arena, root);
    let mut out = String::new();
    if format_html(root, &OPTIONS, &mut out).is_err() {
        return plain(&text);
    }
    // A character may also have been written as its number.
    PreEscaped(clean(&sanitise(&out)).into_owned())
}

/// HTML without what this file does not make.
pub(crate) fn sanitise(html: &str) -> String {
    SANITISER.clean(html).to_string()
}

/// A text as it is.
pub(crate) fn plain(text: &str) -> Markup {
    html! { pre.wrap { (clean(text)) } }
}

/// How many bytes of a text that goes on are blocks which stay as they are, whatever comes behind
/// them.
pub(crate) fn finished_bytes(text: &str) -> usize {
    // What a line is, is known at its end.
    let text = text
        .rfind('\n')
        .map_or("", |end| text.get(..=end).unwrap_or_default());
    if text.len() > MAX_BYTES || is_deep(text) {
        return 0;
    }
    let arena = Arena::new();
    let root = parse_document(&arena, text, &OPTIONS);
    let Some(last) = root.last_child() else {
        return 0;
    };
    let line = last.data().sourcepos.start.line;
    let before = text.split_inclusive('\n').take(line.saturating_sub(1));
    before.map(str::len).sum()
}

/// Whether a line of a text opens more blocks in one another than anybody would.
fn is_deep(text: &str) -> bool {
    let marks = |line: &str| {
        let mut marks = 0;
        for c in line.chars() {
            match c {
                '>' | '-' | '*' | '+' | '.' | ')' => marks += 1,
                ' ' | '\t' | '0'..='9' => {}
                _ => break,
            }
        }
        // A line of dashes is a rule.
        let is_rule = line.trim().chars().all(|c| matches!(c, '-' | '*' | ' '));
        if is_rule { 0 } else { marks }
    };
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let is_listed = |line: &str| line.trim_start().starts_with(['-', '*', '+', '>']);
    text.lines()
        .any(|line| marks(line) > MAX_DEPTH || (indent(line) > MAX_DEPTH * 4 && is_listed(line)))
}

/// Puts in place of code, images, mathematics and links what is shown of them.
fn prepare<'a>(arena: &'a Arena<'a>, root: &'a AstNode<'a>) {
    let all: Vec<&AstNode<'_>> = root.descendants().collect();
    for node in all {
        let mut behind = None;
        {
            let mut data = node.data_mut();
            match &mut data.value {
                NodeValue::CodeBlock(block) => {
                    let shown = code::block(&block.info, &block.literal);
                    data.value = NodeValue::Raw(shown.into_string());
                }
                NodeValue::HtmlBlock(block) => {
                    let shown = html! { p { (block.literal.trim_end()) } };
                    data.value = NodeValue::Raw(shown.into_string());
                }
                NodeValue::Math(math) => {
                    let sign = if math.display_math { "$$" } else { "$" };
                    let shown = html! { code.math { (sign) (math.literal) (sign) } };
                    data.value = NodeValue::Raw(shown.into_string());
                }
                NodeValue::Image(link) => {
                    behind = Some(link_target(&link.url));
                    let link = NodeValue::Link(link.clone());
                    data.value = link;
                }
                NodeValue::Link(link) => behind = Some(link_target(&link.url)),
                _ => {}
            }
        }
        if let Some(place) = behind.filter(|place| !shows_target(node, place)) {
            let shown = html! { span.host { " (" (place) ")" } };
            let shown = NodeValue::Raw(shown.into_string());
            node.insert_after(arena.alloc(AstNode::from(shown)));
        }
    }
}

/// Where a link leads, as far as a person has to know.
fn link_target(url: &str) -> String {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else {
        let shown: String = url.chars().take(60).collect();
        return shown;
    };
    let host = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    // What is before an `@` is a name to log in with, and no place.
    let host = host.rsplit('@').next().unwrap_or_default();
    host.chars().take(100).collect()
}

/// Whether a link's own words are where it leads.
fn shows_target<'a>(link: &'a AstNode<'a>, place: &str) -> bool {
    let mut words = String::new();
    for node in link.descendants().skip(1) {
        match &node.data().value {
            NodeValue::Text(text) => words.push_str(text),
            NodeValue::Code(code) => words.push_str(&code.literal),
            _ => {}
        }
    }
    self::link_target(&words) == place && !place.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        render(text).into_string()
    }

    #[test]
    fn markdown_is_shown_as_html() {
        let shown = shown("# Title\n\nA *word*, `code` and ~~no~~.\n\n- [x] done\n\n1. one\n");
        for part in [
            "<h1>Title</h1>",
            "<em>word</em>",
            "<code>code</code>",
            "<del>no</del>",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(shown.contains("checkbox"), "{shown}");
        assert!(shown.contains("disabled"), "{shown}");
    }

    #[test]
    fn code_has_a_button_and_keeps_its_text() {
        let shown = shown("```rust\nlet a = \"<b>\";\n```");
        assert!(shown.contains("data-copy"), "{shown}");
        assert!(shown.contains("&lt;b&gt;"), "{shown}");
        assert!(!shown.contains("<b>"), "{shown}");
    }

    #[test]
    fn a_link_says_where_it_leads() {
        let link = shown("[good.example](https://evil.example/a)");
        assert!(link.contains("(evil.example)"), "{link}");
        assert!(
            link.contains("rel=\"noopener noreferrer nofollow\""),
            "{link}"
        );
        assert!(link.contains("target=\"_blank\""), "{link}");
        let own = shown("<https://good.example/a>");
        assert!(!own.contains("(good.example)"), "{own}");
        let name = shown("[https://good.example](https://good.example@evil.example/)");
        assert!(name.contains("(evil.example)"), "{name}");
    }

    #[test]
    fn an_image_is_a_link_and_is_not_fetched() {
        let image = shown("![a chart](https://evil.example/?q=secret)");
        assert!(!image.contains("<img"), "{image}");
        assert!(image.contains("a chart"), "{image}");
        assert!(image.contains("(evil.example)"), "{image}");
    }

    #[test]
    fn mathematics_is_readable() {
        let math = shown("So $a_1 < b_1$ and it costs $5 or $6.");
        assert!(
            math.contains("<code class=\"math\">$a_1 &lt; b_1$</code>"),
            "{math}"
        );
        assert!(math.contains("costs $5 or $6"), "{math}");
    }

    #[test]
    fn finished_blocks_are_all_but_the_last() {
        assert_eq!(finished_bytes(""), 0);
        assert_eq!(finished_bytes("one"), 0);
        assert_eq!(finished_bytes("one\n\ntwo"), 0);
        assert_eq!(finished_bytes("one\n\ntwo\n"), 5);
        assert_eq!(finished_bytes("one\n\n```\na\n\nb"), 5);
        let list = "one\n\n- a\n\n- b\n";
        assert_eq!(finished_bytes(list), 5);
        assert_eq!(finished_bytes("é\n\n# t\n\nx\ny"), "é\n\n# t\n\n".len());
    }

    #[test]
    fn blocks_one_by_one_say_what_the_whole_says() {
        let text = "# A\n\ntext *b*\n\n- one\n- two\n\n```\ncode\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend";
        let mut whole = String::new();
        let (mut done, mut seen) = (0, String::new());
        for c in text.chars() {
            seen.push(c);
            let more = finished_bytes(&seen[done..]);
            whole.push_str(&shown(&seen[done..done + more]));
            done += more;
        }
        whole.push_str(&shown(&seen[done..]));
        let plain = |html: &str| html.replace('\n', "");
        assert_eq!(plain(&whole), plain(&shown(text)));
    }

    #[test]
    fn a_text_of_many_blocks_in_one_another_is_shown_as_it_is() {
        let deep = "> ".repeat(20_000);
        assert!(shown(&format!("{deep}x")).starts_with("<pre"));
        let deep: String = (0..2_000)
            .map(|n| format!("{}- x\n", "  ".repeat(n)))
            .collect();
        assert!(shown(&deep).starts_with("<pre"));
        assert!(shown(&"[".repeat(50_000)).contains('['));
        assert!(shown(&"*a ".repeat(20_000)).contains('a'));
    }
}
