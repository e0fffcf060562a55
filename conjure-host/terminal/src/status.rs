//! The line below what is typed: model, directory, tokens, money, and how much of the model's window
//! is used. What does not fit is left out, the directory first.

use crate::conversation::ConversationStatus;
use crate::numerals;
use crate::text::{Color, Line, Style};

/// The status in so many columns.
pub(crate) fn line(status: &ConversationStatus, columns: usize) -> Line {
    let mut parts: Vec<(u8, Line)> = Vec::new();
    let plain = |text: &str| Line::of(text, Style::DIM);
    if !status.model.is_empty() {
        parts.push((0, plain(&status.model)));
    }
    if !status.directory.is_empty() {
        parts.push((4, plain(&status.directory)));
    }
    if status.tokens > 0 {
        parts.push((
            2,
            plain(&format!("{} tokens", numerals::count(status.tokens))),
        ));
    }
    if status.usd > 0.0 {
        let usd = if status.usd < 0.01 {
            format!("${:.4}", status.usd)
        } else {
            format!("${:.2}", status.usd)
        };
        parts.push((1, plain(&usd)));
    }
    if let Some(window) = status
        .window
        .filter(|window| *window > 0 && status.context > 0)
    {
        let percent = (status.context * 100).div_ceil(window);
        let style = match percent {
            90.. => Style::of(Color::Red),
            70..90 => Style::of(Color::Yellow),
            _ => Style::DIM,
        };
        parts.push((3, Line::of(format!("{percent} % of the window"), style)));
    }
    let width = |parts: &[(u8, Line)]| {
        let between = 3 * parts.len().saturating_sub(1);
        parts.iter().map(|(_, part)| part.width()).sum::<usize>() + between
    };
    while width(&parts) > columns && parts.len() > 1 {
        let least = parts.iter().map(|(rank, _)| *rank).max();
        parts.retain(|(rank, _)| Some(*rank) != least);
    }
    let mut line = Line::new();
    for (at, (_, part)) in parts.iter().enumerate() {
        if at > 0 {
            line.push(" · ", Style::DIM);
        }
        line.extend(part);
    }
    line.truncate(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out() {
        let status = ConversationStatus {
            model: "openai/gpt-5".to_owned(),
            directory: "~/work/project".to_owned(),
            tokens: 12_345,
            usd: 0.123,
            context: 50_000,
            window: Some(200_000),
        };
        let at = |columns| line(&status, columns).plain();
        assert_eq!(
            at(100),
            "openai/gpt-5 · ~/work/project · 12.3k tokens · $0.12 · 25 % of the window"
        );
        assert_eq!(
            at(60),
            "openai/gpt-5 · 12.3k tokens · $0.12 · 25 % of the window"
        );
        assert_eq!(at(40), "openai/gpt-5 · 12.3k tokens · $0.12");
        assert_eq!(at(8), "openai/…");
    }
}
