//! The difference between two texts, line by line.

use crate::text::{Color, Line, Style};

/// The most lines of a side that are compared; longer ones are told as taken away and added.
const MAX_LINES: usize = 400;
/// How many lines that stay are shown around those that change, where not all are.
pub(crate) const CONTEXT_LINES: usize = 2;

/// A line of both texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change<'a> {
    Unchanged(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// What changes, in colours and with `-` and `+` before it, and so many lines around it that stay.
pub(crate) fn lines(before: &str, after: &str, around: usize) -> Vec<Line> {
    let changes = changes(before, after);
    let is_near = |at: usize| {
        let from = at.saturating_sub(around);
        let near = changes
            .iter()
            .skip(from)
            .take(at.saturating_add(around).saturating_add(1) - from);
        near.into_iter()
            .any(|change| !matches!(change, Change::Unchanged(_)))
    };
    let mut lines = Vec::new();
    let mut is_left_out = false;
    for (at, change) in changes.iter().enumerate() {
        let line = match change {
            Change::Unchanged(_) if !is_near(at) => {
                if !std::mem::replace(&mut is_left_out, true) {
                    lines.push(Line::of("  ⋮", Style::DIM));
                }
                continue;
            }
            Change::Unchanged(text) => Line::of("  ", Style::DIM).with(text, Style::DIM),
            Change::Removed(text) => {
                Line::of("- ", Style::of(Color::Red)).with(text, Style::of(Color::Red))
            }
            Change::Added(text) => {
                Line::of("+ ", Style::of(Color::Green)).with(text, Style::of(Color::Green))
            }
        };
        is_left_out = false;
        lines.push(line);
    }
    lines
}

fn changes<'a>(before: &'a str, after: &'a str) -> Vec<Change<'a>> {
    let before: Vec<&str> = before.lines().collect();
    let after: Vec<&str> = after.lines().collect();
    if before.len() > MAX_LINES || after.len() > MAX_LINES {
        let gone = before.into_iter().map(Change::Removed);
        return gone.chain(after.into_iter().map(Change::Added)).collect();
    }
    // How long the longest common part of what is left is, from each pair of lines on.
    let width = after.len() + 1;
    let mut common = vec![0_u32; (before.len() + 1) * width];
    let at = |i: usize, j: usize| i * width + j;
    for (i, old) in before.iter().enumerate().rev() {
        for (j, new) in after.iter().enumerate().rev() {
            let longest = if old == new {
                value(&common, at(i + 1, j + 1)) + 1
            } else {
                value(&common, at(i + 1, j)).max(value(&common, at(i, j + 1)))
            };
            if let Some(place) = common.get_mut(at(i, j)) {
                *place = longest;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut changes = Vec::new();
    loop {
        match (before.get(i), after.get(j)) {
            (Some(old), Some(new)) if old == new => {
                changes.push(Change::Unchanged(old));
                (i, j) = (i + 1, j + 1);
            }
            (Some(old), new)
                if new.is_none()
                    || value(&common, at(i + 1, j)) >= value(&common, at(i, j + 1)) =>
            {
                changes.push(Change::Removed(old));
                i += 1;
            }
            (_, Some(new)) => {
                changes.push(Change::Added(new));
                j += 1;
            }
            (_, None) => return changes,
        }
    }
}

fn value(common: &[u32], at: usize) -> u32 {
    common.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_shown_only_around_what_changes() {
        let before = "a\nb\nc\nd\ne\nf\ng";
        let after = "a\nb\nc\nd\nE\nf\ng\nh";
        let lines: Vec<String> = lines(before, after, CONTEXT_LINES)
            .iter()
            .map(Line::plain)
            .collect();
        assert_eq!(
            lines,
            ["  ⋮", "  c", "  d", "- e", "+ E", "  f", "  g", "+ h"]
        );
    }

    #[test]
    fn both_texts_are_in_their_difference() {
        for (before, after) in [("", "x\ny"), ("x\ny", ""), ("a\nb", "b\na"), ("", "")] {
            let changes = changes(before, after);
            let side = |wanted: fn(&Change<'_>) -> Option<String>| {
                changes
                    .iter()
                    .filter_map(wanted)
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            let old = side(|change| match change {
                Change::Unchanged(text) | Change::Removed(text) => Some((*text).to_owned()),
                Change::Added(_) => None,
            });
            let new = side(|change| match change {
                Change::Unchanged(text) | Change::Added(text) => Some((*text).to_owned()),
                Change::Removed(_) => None,
            });
            assert_eq!((old.as_str(), new.as_str()), (before, after));
        }
    }
}
