//! Texts that others wrote, cut to what a person reads of them.

use super::output::clean;

/// A text of at most so many characters, and how many more there are.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    match text.chars().count().saturating_sub(most) {
        0 => text.to_owned(),
        more => {
            let begin: String = text.chars().take(most).collect();
            format!("{begin} … ({more} characters more)")
        }
    }
}

/// The first lines of a text, each cut to a terminal's width, and how many more there are.
pub(crate) fn first_lines(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|l| one_line(l, 110))
        .collect();
    if lines.len() > most {
        let more = lines.len() - most;
        lines.truncate(most);
        lines.push(format!("… {more} more lines"));
    }
    lines
}

/// A text on one line, without what would steer a terminal.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let clean: String = clean(&text.replace('\n', " "))
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(most + 1)
        .collect();
    if clean.chars().count() > most {
        let cut: String = clean.chars().take(most).collect();
        format!("{cut}…")
    } else {
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(shorten("Größe", 5), "Größe");
        assert_eq!(shorten("Größen", 5), "Größe … (1 characters more)");
    }
}
