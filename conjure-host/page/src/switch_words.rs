//! What a switch would change, in sentences for the page.

use std::collections::BTreeMap;

use conjure_core::switch::{CacheFate, Fate, Modality, PartKind, SwitchReport};
use serde_json::Value;

/// A report of the API in sentences.
pub(crate) fn words(report: &Value) -> Vec<String> {
    match serde_json::from_value::<SwitchReport>(report.clone()) {
        Ok(report) => sentences(&report),
        Err(_) => vec![report.to_string()],
    }
}

fn sentences(report: &SwitchReport) -> Vec<String> {
    let mut said = Vec::new();
    if report.is_clean() {
        said.push("The whole conversation goes along as it is".to_owned());
    }
    for (fate, what) in [
        (Fate::Dropped, "Left out"),
        (Fate::Recast, "Told in another form"),
        (Fate::Unsigned, "Sent without what their maker signed"),
    ] {
        let parts = parts(report, fate);
        if !parts.is_empty() {
            said.push(format!("{what}: {parts}"));
        }
    }
    if !report.ids.is_empty() {
        said.push(format!(
            "{} with another id on the wire",
            count(report.ids.len(), "call")
        ));
    }
    if !report.results_added.is_empty() {
        let calls = count(report.results_added.len(), "call");
        said.push(format!(
            "{calls} with a result that says that none is known"
        ));
    }
    if !report.results_dropped.is_empty() {
        let results = count(report.results_dropped.len(), "result");
        said.push(format!("{results} left out, since the calls are not there"));
    }
    said.extend(report.unsupported.iter().map(|modality| match modality {
        Modality::Images => "The model cannot look at images".to_owned(),
        Modality::Files => "The model cannot read attached files".to_owned(),
    }));
    let tools = report.tools_quarantined.iter();
    said.extend(
        tools.map(|tool| format!("The tool {} is not offered: {}", tool.tool, tool.reason)),
    );
    said.extend(report.notes.iter().cloned());
    said.push(format!("About {} tokens of input", report.tokens));
    said.push(match &report.cache {
        CacheFate::None => "Nothing is in a prompt cache yet".to_owned(),
        CacheFate::Kept => "The prompt cache can still be read".to_owned(),
        CacheFate::Lost { tokens, last } => {
            format!(
                "The prompt cache is lost: {tokens} tokens that {last} read are paid in full again"
            )
        }
    });
    said
}

/// `2 thoughts, 1 image`.
fn parts(report: &SwitchReport, fate: Fate) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for part in report.parts.iter().filter(|part| part.fate == fate) {
        *kinds.entry(name(part.kind)).or_default() += 1;
    }
    let said: Vec<String> = kinds
        .iter()
        .map(|(kind, times)| count(*times, kind))
        .collect();
    said.join(", ")
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn name(kind: PartKind) -> &'static str {
    match kind {
        PartKind::Text => "text",
        PartKind::Reasoning => "thought",
        PartKind::FunctionCall => "call",
        PartKind::FunctionCallOutput => "result",
        PartKind::Image => "image",
        PartKind::File => "file",
        PartKind::ServerItem => "provider's item",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_says_what_is_lost() {
        let report = json!({
            "parts": [
                { "message": 1, "part": 0, "kind": "reasoning", "fate": "dropped" },
                { "message": 3, "part": 0, "kind": "reasoning", "fate": "dropped" },
            ],
            "ids": [], "results_added": [], "results_dropped": [], "unsupported": ["images"],
            "tools_quarantined": [], "notes": [], "tokens": 1200,
            "cache": { "cache": "lost", "tokens": 900, "last": "claude" },
        });
        let said = words(&report);
        assert_eq!(
            said,
            [
                "Left out: 2 thoughts",
                "The model cannot look at images",
                "About 1200 tokens of input",
                "The prompt cache is lost: 900 tokens that claude read are paid in full again",
            ]
        );
    }
}
