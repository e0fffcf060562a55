//! The estimate of tokens against what providers counted of recorded requests.

use conjure_core::request::request_tokens;
use conjure_core::wire::Wire;

use crate::recordings::exchanges;
use crate::said::decode;

/// Shorter requests are mostly framing, which no two models count alike.
const LEAST: u64 = 200;

#[test]
fn nine_of_ten_requests_are_estimated_within_a_third() {
    let mut ratios = Vec::new();
    for wire in Wire::ALL {
        let Some(exchanges) = exchanges(wire) else {
            return;
        };
        let mut own = Vec::new();
        for recorded in exchanges {
            if recorded.exchange.then.status != 200 {
                continue;
            }
            let reply = recorded.exchange.reply().as_bytes();
            let counted = decode(&recorded, &[reply]).0.response.usage.prompt_tokens();
            let body = recorded.exchange.when.body.as_deref().unwrap_or_default();
            // What the provider brings in itself cannot be known before: results of its own tools,
            // and 1,500 tokens of instructions for one model.
            let hosted = [
                "web_search",
                "code_execution",
                "googleSearch",
                "file_id",
                "container",
                "urlContext",
                "codeExecution\":{",
                "gpt-5.6",
            ];
            if counted >= LEAST && !hosted.iter().any(|tool| body.contains(tool)) {
                let told = request_tokens(wire, body.as_bytes());
                own.push(told as f64 / counted as f64);
            }
        }
        own.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            own.get(own.len().saturating_sub(1) * percent / 100)
                .copied()
        };
        println!(
            "{wire}: {} requests, p5 {:?}, median {:?}, p95 {:?}",
            own.len(),
            at(5),
            at(50),
            at(95)
        );
        ratios.extend(own);
    }
    assert!(
        ratios.len() > 20,
        "only {} requests were looked at",
        ratios.len()
    );
    let near = ratios
        .iter()
        .filter(|ratio| (0.65..=1.35).contains(*ratio))
        .count();
    println!("{near} of {} within 35 %", ratios.len());
    assert!(near * 10 >= ratios.len() * 9, "{near} of {}", ratios.len());
}
