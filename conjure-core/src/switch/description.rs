//! What a switch would change, in sentences for people.

use std::collections::BTreeMap;

use super::{CacheFate, Fate, Modality, PartKind, SwitchReport};
use crate::numerals::{count, thousands};

/// A report in sentences; `window` is how many tokens the model takes.
#[must_use]
pub fn describe(report: &SwitchReport, window: Option<u64>) -> Vec<String> {
    let mut sentences = Vec::new();
    if report.is_clean() {
        sentences.push("every part of the conversation as it is".to_owned());
    }
    for (fate, what) in [
        (Fate::Dropped, "left out"),
        (Fate::Recast, "told in another form"),
        (Fate::Unsigned, "without what their maker signed"),
    ] {
        let parts = parts(report, fate);
        if !parts.is_empty() {
            sentences.push(format!("{what}: {parts}"));
        }
    }
    if let Some(first) = report.ids.first() {
        sentences.push(format!(
            "{} on the wire under another id, such as {} as {}",
            count(report.ids.len() as u64, "call"),
            first.from,
            first.to
        ));
    }
    for (ids, what) in [
        (
            &report.results_added,
            "with a result that says that none is known",
        ),
        (
            &report.results_dropped,
            "not there, so their results are left out",
        ),
    ] {
        if !ids.is_empty() {
            sentences.push(format!("{what}: {}", ids.join(", ")));
        }
    }
    for modality in &report.unsupported {
        sentences.push(match modality {
            Modality::Images => "it cannot look at images".to_owned(),
            Modality::Files => "it cannot read attached files".to_owned(),
        });
    }
    for left_out in &report.tools_quarantined {
        sentences.push(format!(
            "tool `{}` not offered: {}",
            left_out.tool, left_out.reason
        ));
    }
    sentences.extend(report.notes.iter().cloned());
    sentences.push(match window {
        Some(window) if report.tokens > window => format!(
            "about {} tokens of input, more than the {} that it takes: it would be summarised first",
            thousands(report.tokens),
            thousands(window)
        ),
        Some(window) => format!(
            "about {} tokens of input; it takes {}",
            thousands(report.tokens),
            thousands(window)
        ),
        None => format!("about {} tokens of input", thousands(report.tokens)),
    });
    sentences.push(match &report.cache {
        CacheFate::None => "nothing is in a prompt cache yet".to_owned(),
        CacheFate::Kept => "what the prompt cache holds can still be read".to_owned(),
        CacheFate::Lost { tokens, last } => format!(
            "the prompt cache is lost: the {} tokens that {last} read are read again at the full \
             price",
            thousands(*tokens)
        ),
    });
    sentences
}

/// `2 thoughts (messages 2 and 5), 1 image (message 4)`.
fn parts(report: &SwitchReport, fate: Fate) -> String {
    let mut kinds: BTreeMap<(&'static str, &'static str), Vec<usize>> = BTreeMap::new();
    for part in report.parts.iter().filter(|part| part.fate == fate) {
        kinds
            .entry(kind_names(part.kind))
            .or_default()
            .push(part.message + 1);
    }
    let of_kind = |((kind, whose), messages): (&(&str, &str), &Vec<usize>)| {
        let mut places = messages.clone();
        places.dedup();
        let shown: Vec<String> = places.iter().take(8).map(usize::to_string).collect();
        let more = if places.len() > shown.len() {
            ", …"
        } else {
            ""
        };
        let word = if places.len() == 1 {
            "message"
        } else {
            "messages"
        };
        format!(
            "{}{whose} ({word} {}{more})",
            count(messages.len() as u64, kind),
            shown.join(", ")
        )
    };
    kinds.iter().map(of_kind).collect::<Vec<_>>().join(", ")
}

/// What one of them is called, and what stands behind that, of several too.
fn kind_names(kind: PartKind) -> (&'static str, &'static str) {
    let name = match kind {
        PartKind::Text => "text",
        PartKind::Reasoning => "thought",
        PartKind::FunctionCall => "call",
        PartKind::FunctionCallOutput => "result",
        PartKind::Image => "image",
        PartKind::File => "file",
        PartKind::ServerItem => return ("item", " of a provider's own tools"),
    };
    (name, "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_says_what_is_lost() {
        let report: SwitchReport = serde_json::from_value(json!({
            "parts": [
                { "message": 1, "part": 0, "kind": "reasoning", "fate": "dropped" },
                { "message": 3, "part": 0, "kind": "reasoning", "fate": "dropped" },
                { "message": 1, "part": 1, "kind": "server_item", "fate": "recast" },
                { "message": 1, "part": 2, "kind": "server_item", "fate": "recast" },
            ],
            "ids": [], "results_added": [], "results_dropped": [], "unsupported": ["images"],
            "tools_quarantined": [], "notes": [], "tokens": 1200,
            "cache": { "cache": "lost", "tokens": 900, "last": "claude" },
        }))
        .unwrap();
        assert_eq!(
            describe(&report, Some(1_000)),
            [
                "left out: 2 thoughts (messages 2, 4)",
                "told in another form: 2 items of a provider's own tools (message 2)",
                "it cannot look at images",
                "about 1,200 tokens of input, more than the 1,000 that it takes: it would be \
                 summarised first",
                "the prompt cache is lost: the 900 tokens that claude read are read again at the \
                 full price",
            ]
        );
    }
}
