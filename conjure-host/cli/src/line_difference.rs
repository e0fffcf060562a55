//! The lines that two texts do not have in common.

/// The most pairs of lines that are compared; of longer texts all lines between the first and the last
/// other one count as changed.
const PAIRS: usize = 4_000_000;

/// The lines that only one of two texts has, in their order: `-` of the old one, `+` of the new one.
pub(crate) fn changed_lines<'a>(old: &'a str, new: &'a str) -> Vec<(char, &'a str)> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let both = old.iter().zip(&new);
    let begin = both.take_while(|(one, other)| one == other).count();
    let (old, new) = (
        old.get(begin..).unwrap_or_default(),
        new.get(begin..).unwrap_or_default(),
    );
    let ends = old.iter().rev().zip(new.iter().rev());
    let end = ends.take_while(|(one, other)| one == other).count();
    let (old, new) = (
        old.get(..old.len() - end).unwrap_or_default(),
        new.get(..new.len() - end).unwrap_or_default(),
    );
    let common = match old.len().checked_mul(new.len()) {
        Some(pairs) if pairs <= PAIRS => common(old, new),
        _ => Vec::new(),
    };
    let mut changed = Vec::new();
    let (mut old, mut new) = (old.iter(), new.iter());
    for line in common.into_iter().map(Some).chain([None]) {
        let is_other = |it: &&&str| Some(**it) != line;
        changed.extend(old.by_ref().take_while(is_other).map(|it| ('-', *it)));
        changed.extend(new.by_ref().take_while(is_other).map(|it| ('+', *it)));
    }
    changed
}

/// A longest sequence of lines that both have.
fn common<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<&'a str> {
    // How many lines two rests have in common, by where they begin.
    let width = new.len() + 1;
    let mut lengths = vec![0_u32; (old.len() + 1) * width];
    let length = |lengths: &[u32], one: usize, other: usize| {
        let found = lengths.get(one * width + other);
        found.copied().unwrap_or_default()
    };
    for (one, old) in old.iter().enumerate().rev() {
        for (other, new) in new.iter().enumerate().rev() {
            let longest = match old == new {
                true => length(&lengths, one + 1, other + 1) + 1,
                false => length(&lengths, one + 1, other).max(length(&lengths, one, other + 1)),
            };
            if let Some(place) = lengths.get_mut(one * width + other) {
                *place = longest;
            }
        }
    }
    let (mut one, mut other) = (0, 0);
    let mut lines = Vec::new();
    while let (Some(old), Some(new)) = (old.get(one), new.get(other)) {
        if old == new {
            lines.push(*old);
            one += 1;
            other += 1;
        } else if length(&lengths, one + 1, other) >= length(&lengths, one, other + 1) {
            one += 1;
        } else {
            other += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(old: &str, new: &str) -> String {
        let lines = changed_lines(old, new).into_iter();
        let lines = lines.map(|(sign, line)| format!("{sign}{line}"));
        lines.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_lines_that_one_text_has_are_told() {
        assert_eq!(changed("a\nb\nc", "a\nb\nc"), "");
        assert_eq!(changed("", "a\nb"), "+a +b");
        assert_eq!(changed("a\nb", ""), "-a -b");
        assert_eq!(changed("a\nb\nc\nd", "a\nx\nc\ny\nd"), "-b +x +y");
        assert_eq!(changed("a\na\nb", "a\nb\na"), "-a +a");
        assert_eq!(changed("x\ny", "y\nx"), "-x +x");
    }

    #[test]
    fn of_long_texts_all_between_the_first_and_the_last_other_line_is_told() {
        let text = |name: &str| -> String {
            let middle = (0..2_100).map(|number| format!("{name}{number}\n"));
            format!("a\n{}z\n", middle.collect::<String>())
        };
        let lines = changed(&text("x"), &text("y"));
        assert_eq!(lines.split(' ').count(), 4_200);
    }
}
