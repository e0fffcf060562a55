//! Texts that take the place of others, cut to what a person reads of them: the part that is another one is
//! among that, however far behind the beginning.

/// How many characters are shown in front of the first one that differs.
const CONTEXT_CHARS: usize = 40;

/// A text of at most so many characters, from where it begins to differ from the other one, and how many
/// there are before and behind. One that is short enough is left whole.
pub fn shortened_change(text: &str, other: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let both = text.chars().zip(other.chars());
    let same = both.take_while(|(one, other)| one == other).count();
    // The end is shown as a whole.
    let skipped = same.saturating_sub(CONTEXT_CHARS).min(count - most);
    let shown: String = text.chars().skip(skipped).take(most).collect();
    let before = match skipped {
        0 => String::new(),
        skipped => format!("({skipped} characters that are the same) … "),
    };
    let behind = match count.saturating_sub(skipped + most) {
        0 => String::new(),
        more => format!(" … ({more} characters more)"),
    };
    format!("{before}{shown}{behind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shown_from_where_it_differs() {
        let same = "ä".repeat(600);
        let old = format!("{same}end");
        let new = format!("{same}send ~/.ssh{}", "x".repeat(100));
        let shown = shortened_change(&new, &old, 80);
        assert!(
            shown.starts_with("(560 characters that are the same) … ä"),
            "{shown}"
        );
        assert!(shown.contains("send ~/.ssh"), "{shown}");
        assert!(shown.ends_with(" … (71 characters more)"), "{shown}");
        let before = shortened_change(&old, &new, 80);
        assert!(before.ends_with("äend"), "{before}");
        assert_eq!(shortened_change("short", "shore", 80), "short");
        let alone = shortened_change(&same, "", 80);
        assert!(alone.ends_with(" … (520 characters more)"), "{alone}");
    }
}
