//! The validator against recorded exchanges: what the provider accepted passes here.
//!
//! The recordings are not part of the project; `CONJURE_CASSETTES` names their folder.

use std::fs;
use std::path::{Path, PathBuf};

use conjure_mock_llm::{Request, Rule, validate};
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
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[test]
fn every_recorded_request_is_judged_as_the_provider_judged_it() {
    let Some(folder) = std::env::var_os("CONJURE_CASSETTES") else {
        println!("left out: CONJURE_CASSETTES is not set, so no recorded request was looked at");
        return;
    };
    let mut looked_at = 0;
    let mut refused = 0;
    let mut begins_with_assistant = 0;
    for file in yaml_files(&PathBuf::from(folder).join("anthropic")) {
        for exchange in exchanges(&file) {
            if exchange.when.path != "/v1/messages" {
                continue;
            }
            looked_at += 1;
            let was_refused = exchange.then.status == 400;
            let mut rules: Vec<Rule> = validate(&request(exchange.when))
                .into_iter()
                .map(|violation| violation.rule)
                .collect();
            // The one rule that is stricter than what was recorded, as its documentation says.
            let before = rules.len();
            rules.retain(|rule| *rule != Rule::FirstIsUser);
            begins_with_assistant += before - rules.len();
            refused += usize::from(was_refused);
            assert_eq!(
                !rules.is_empty(),
                was_refused,
                "{}: {rules:?}",
                file.display()
            );
        }
    }
    println!(
        "looked at {looked_at} recorded requests: {refused} were refused, {begins_with_assistant} begin with the assistant"
    );
    assert!(
        looked_at > 0,
        "CONJURE_CASSETTES is set, but its folder `anthropic` has no request"
    );
}

fn request(when: When) -> Request {
    let mut headers: Vec<(String, String)> = when
        .header
        .into_iter()
        .map(|header| (header.name, header.value))
        .collect();
    // The recorder leaves credentials out.
    headers.push(("x-api-key".to_owned(), "left out".to_owned()));
    Request {
        method: when.method,
        path: when.path,
        headers,
        body: serde_json::from_str(&when.body.unwrap_or_default()).unwrap(),
        ..Request::default()
    }
}

fn exchanges(file: &Path) -> Vec<Exchange> {
    let text = fs::read_to_string(file).unwrap();
    serde_norway::Deserializer::from_str(&text)
        .map(|document| Exchange::deserialize(document).unwrap())
        .collect()
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
