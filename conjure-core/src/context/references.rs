//! What a person refers to or puts into a message, where an editor or another program says it as
//! data: a file or page by its address, or the text of one.

/// A reference to something that is read elsewhere, such as a file that the tools can open.
#[must_use]
pub fn reference(name: &str, address: &str) -> String {
    if name.is_empty() || name == address {
        return format!("`{address}`");
    }
    format!("`{name}` (at `{address}`)")
}

/// The text of something, under where it is from. It is fenced by more backticks than it has itself.
#[must_use]
pub fn embedded_text(place: &str, text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("Contents of `{place}`:\n{fence}\n{text}{end}{fence}")
}

/// The most backticks in a row.
fn longest_run(text: &str) -> usize {
    let others = text.split(|letter| letter != '`');
    others.map(str::len).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_the_place() {
        assert_eq!(reference("a.rs", "/w/a.rs"), "`a.rs` (at `/w/a.rs`)");
        assert_eq!(reference("", "/w/a.rs"), "`/w/a.rs`");
    }

    #[test]
    fn a_text_cannot_leave_its_fence() {
        assert_eq!(
            embedded_text("/w/a.md", "```\ncode\n```\n"),
            "Contents of `/w/a.md`:\n````\n```\ncode\n```\n````"
        );
        assert_eq!(embedded_text("x", "one"), "Contents of `x`:\n```\none\n```");
    }
}
