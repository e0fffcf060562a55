//! The validators against recorded exchanges: what the providers accepted passes here.
//!
//! The recordings are not part of the project; `CONJURE_CASSETTES` names their folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use conjure_mock_llm::{Request, Rule, Wire, validate};
use serde::Deserialize;

#[derive(Deserialize)]
struct Exchange {
    when: When,
    then: Then,
}

#[derive(Deserialize)]
struct When {
    path: String,
    method: String,
    header: Vec<Header>,
    #[serde(default)]
    body: Option<String>,
}

#[derive(Deserialize)]
struct Then {
    status: u16,
    #[serde(default)]
    body: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

/// What was looked at on one wire.
#[derive(Debug, Default)]
struct Count {
    looked_at: usize,
    refused: usize,
    /// Requests that name a container or run code at the provider.
    hosted: usize,
    stricter: BTreeMap<Rule, usize>,
}

/// The rules that are stricter than what was recorded, as their documentation says.
const STRICTER: [Rule; 2] = [Rule::FirstIsUser, Rule::ToolResultOrder];

#[test]
fn every_recorded_request_is_judged_as_the_provider_judged_it() {
    let Some(folder) = std::env::var_os("CONJURE_CASSETTES").filter(|folder| !folder.is_empty())
    else {
        println!("LEFT OUT: cassettes: CONJURE_CASSETTES is not set");
        return;
    };
    let mut counts: BTreeMap<Wire, Count> = BTreeMap::new();
    let mut wrong = Vec::new();
    for file in yaml_files(&PathBuf::from(folder)) {
        for exchange in exchanges(&file) {
            let status = exchange.then.status;
            let said = exchange.then.body.unwrap_or_default();
            let Some((wire, request)) = request(exchange.when) else {
                continue;
            };
            // A request for a model that is not there is refused for that, whatever its form.
            let was_refused = status == 400 && !said.contains("model_not_found");
            let count = counts.entry(wire).or_default();
            count.looked_at += 1;
            count.refused += usize::from(was_refused);
            count.hosted += usize::from(is_hosted(&request));
            let (stricter, broken): (Vec<_>, Vec<_>) = validate(wire, &request)
                .into_iter()
                .partition(|violation| STRICTER.contains(&violation.rule));
            for violation in stricter {
                *count.stricter.entry(violation.rule).or_default() += 1;
            }
            if broken.is_empty() == was_refused {
                wrong.push((file.clone(), status, broken));
            }
        }
    }
    println!("looked at recorded requests: {counts:#?}");
    assert!(wrong.is_empty(), "judged otherwise: {wrong:#?}");
    assert_eq!(
        counts.keys().copied().collect::<Vec<_>>(),
        Wire::ALL,
        "CONJURE_CASSETTES is set, but a wire has no request"
    );
}

/// Whether a request uses what Anthropic hosts.
fn is_hosted(request: &Request) -> bool {
    let text = request.body.to_string();
    request.body.get("container").is_some() || text.contains("\"code_execution_2")
}

/// The request and its wire, if it asks a model.
fn request(when: When) -> Option<(Wire, Request)> {
    let mut headers: Vec<(String, String)> = when
        .header
        .into_iter()
        .map(|header| (header.name, header.value))
        .collect();
    // The recorder leaves credentials out.
    headers.push(("x-api-key".to_owned(), "left out".to_owned()));
    headers.push(("authorization".to_owned(), "left out".to_owned()));
    let mut request = Request {
        method: when.method,
        path: when.path,
        headers,
        ..Request::default()
    };
    let wire = request.wire()?;
    // The recorder has made ids alike; Mistral's have nine letters and digits.
    let body = when.body.unwrap_or_default();
    let mistral = body.replace("call_REDACTED_", "REDACTED");
    request.body = serde_json::from_str(&body).unwrap();
    if wire == Wire::Chat && request.model().contains("stral-") && !request.model().contains('/') {
        request.body = serde_json::from_str(&mistral).unwrap();
    }
    Some((wire, request))
}

fn exchanges(file: &Path) -> Vec<Exchange> {
    let text = fs::read_to_string(file).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(yaml_files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            files.push(path);
        }
    }
    files.sort();
    files
}
