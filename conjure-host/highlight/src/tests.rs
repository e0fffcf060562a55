//! Texts of several languages, and texts that nobody should be able to do harm with.

use proptest::prelude::*;

use super::{CodeKind, CodePiece, Highlighter, MAX_LINE_BYTES, has_grammar, highlight};

/// Kinds and texts, without those that are plain or space.
fn kinds<'a>(lines: &[Vec<CodePiece<'a>>]) -> Vec<(CodeKind, &'a str)> {
    let pieces = lines.iter().flatten();
    let told =
        pieces.filter(|piece| !matches!(piece.kind, CodeKind::Plain | CodeKind::Punctuation));
    told.map(|piece| (piece.kind, piece.text.trim()))
        .filter(|(_, text)| !text.is_empty())
        .collect()
}

fn whole(lines: &[Vec<CodePiece<'_>>]) -> String {
    let line = |line: &Vec<CodePiece<'_>>| line.iter().map(|piece| piece.text).collect::<String>();
    lines.iter().map(|pieces| line(pieces) + "\n").collect()
}

#[test]
fn words_of_rust_are_what_they_are() {
    let told = highlight(
        "rust",
        "// why\nfn main() {\n    let x = \"a\\n\"; // b\n    f(12, true)\n}",
    );
    let told = kinds(&told);
    for expected in [
        (CodeKind::Comment, "// why"),
        (CodeKind::Keyword, "fn"),
        (CodeKind::Function, "main"),
        (CodeKind::String, "\"a"),
        (CodeKind::Escape, "\\n"),
        (CodeKind::Number, "12"),
        (CodeKind::Constant, "true"),
    ] {
        assert!(told.contains(&expected), "{expected:?} is not in {told:?}");
    }
}

#[test]
fn a_line_knows_what_the_lines_before_it_began() {
    let lines = highlight("python", "a = \"\"\"one\ntwo\n\"\"\" + 3");
    assert_eq!(kinds(&lines[1..2]), [(CodeKind::String, "two")]);
    assert!(kinds(&lines[2..]).contains(&(CodeKind::Number, "3")));
}

#[test]
fn keys_are_told_from_values() {
    for (language, text) in [
        ("json", "{\"port\": \"80\"}"),
        ("toml", "port = \"80\""),
        ("yaml", "port: \"80\""),
    ] {
        let told = kinds(&highlight(language, text));
        let key = told.iter().find(|(_, text)| text.contains("port"));
        assert_eq!(
            key.map(|(kind, _)| *kind),
            Some(CodeKind::Attribute),
            "{language}: {told:?}"
        );
        let value = told.iter().find(|(_, text)| text.contains("80"));
        assert_eq!(
            value.map(|(kind, _)| *kind),
            Some(CodeKind::String),
            "{language}: {told:?}"
        );
    }
}

#[test]
fn a_difference_says_what_comes_and_what_goes() {
    let lines = highlight("diff", "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same");
    assert_eq!(kinds(&lines[3..4]), [(CodeKind::Deleted, "-old")]);
    assert_eq!(kinds(&lines[4..5]), [(CodeKind::Inserted, "+new")]);
    assert_eq!(kinds(&lines[5..]), []);
}

#[test]
fn languages_have_the_names_that_people_write() {
    let names = "rust rs Rust rust,ignore {.rust} python py js javascript ts typescript tsx jsx go \
                 golang c cpp c++ java kotlin swift ruby php cs c# sh bash console zsh fish \
                 json jsonc yaml yml toml xml html css scss sql dockerfile makefile \
                 nix elixir haskell lua r diff patch markdown md ini nginx terraform zig";
    let unknown: Vec<_> = names.split(' ').filter(|name| !has_grammar(name)).collect();
    assert_eq!(unknown, [""; 0]);
    let long = "x".repeat(100);
    for name in ["", "text", "plain", "no-such-language", "a b c", &long] {
        assert!(!has_grammar(name), "{name}");
    }
}

#[test]
fn what_is_too_long_is_plain_and_whole() {
    let line = "let x = 1; ".repeat(MAX_LINE_BYTES / 11 + 1);
    let text = format!("let a = 1;\n{line}\nlet b = 2;\n");
    let lines = highlight("rust", &text);
    assert_eq!(whole(&lines), text);
    assert!(!kinds(&lines[..1]).is_empty());
    assert_eq!(kinds(&lines[1..]), []);

    let mut highlighter = Highlighter::new("rust");
    highlighter.remaining = 3 * "let a = 1;\n".len();
    for known in [true, true, true, false, false] {
        let pieces = highlighter.line("let a = 1;");
        assert_eq!(
            pieces.iter().any(|piece| piece.kind == CodeKind::Keyword),
            known
        );
        assert_eq!(whole(&[pieces]), "let a = 1;\n");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_is_lost_or_added(
        language in prop::sample::select(vec!["rust", "html", "bash", "markdown", "json", "python", "js"]),
        text in "([a-z<>{}()\\[\\]\"'`$#/*!&;=| \u{e9}\u{1F600}\u{202e}\u{0}]{0,40}\n){0,12}",
    ) {
        prop_assert_eq!(whole(&highlight(language, &text)), text);
    }
}
