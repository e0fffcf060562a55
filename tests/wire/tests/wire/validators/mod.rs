//! Strict readers of requests, one a wire, written from the providers' rules.
//!
//! The readers share no code with the wires. Each rule has a name; a reader gives back the names of
//! the rules that a request breaks.

mod anthropic;
mod chat;
mod gemini;
mod mutations;
mod responses;

use conjure_core::wire::Wire;
use serde_json::Value;

use crate::recordings::exchanges;

/// The names of broken rules.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Broken(pub(crate) Vec<&'static str>);

impl Broken {
    /// A rule, and whether it holds.
    fn rule(&mut self, name: &'static str, holds: bool) {
        if !holds && !self.0.contains(&name) {
            self.0.push(name);
        }
    }
}

/// What the provider would refuse in a request to this model.
pub(crate) fn broken(wire: Wire, provider: &str, model: &str, body: &Value) -> Vec<&'static str> {
    let mut broken = Broken::default();
    match wire {
        Wire::Anthropic => anthropic::check(body, model, &mut broken),
        Wire::OpenaiResponses => responses::check(body, &mut broken),
        Wire::OpenaiChat => chat::check(body, provider, &mut broken),
        Wire::Gemini => gemini::check(body, model, &mut broken),
    }
    broken.0
}

/// The list in a field; empty where there is none.
fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn is_legal(text: &Value, most: usize) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.as_str()
        .is_some_and(|text| !text.is_empty() && text.len() <= most && text.chars().all(legal))
}

/// Whether a text is a JSON object.
fn is_object(text: &Value) -> bool {
    let value = text.as_str().map(serde_json::from_str::<Value>);
    value.is_some_and(|value| value.is_ok_and(|value| value.is_object()))
}

#[test]
fn every_recorded_request_that_was_taken_breaks_no_rule() {
    for wire in Wire::ALL {
        let Some(exchanges) = exchanges(wire) else {
            return;
        };
        let mut seen = 0;
        for recorded in &exchanges {
            if recorded.exchange.then.status != 200 {
                continue;
            }
            let body = recorded.exchange.request();
            let model = recorded.endpoint().model.unwrap_or_default();
            let broken = broken(wire, recorded.provider, &model, &body);
            let name = format!("{} #{}", recorded.name, recorded.index);
            assert_eq!(broken, [] as [&str; 0], "{name}: {body:#}");
            seen += 1;
        }
        println!("{wire}: {seen} recorded requests read");
        assert!(seen > 0);
    }
}
