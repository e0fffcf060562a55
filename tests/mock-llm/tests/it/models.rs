//! Lists of models, each provider's in its form.

use conjure_mock_llm::{Matcher, MockLlm, Reply, Request, Script, Step, Wire};
use serde_json::{Value, json};

use crate::client::{Response, ask_of, exchange_of};

fn get(mock: &MockLlm, wire: Wire, path: &str, query: &str) -> Response {
    let mut request = Request::to(wire, "", Value::Null);
    request.method = "GET".to_owned();
    request.path = path.to_owned();
    request.query = query.to_owned();
    exchange_of(mock, &request)
}

fn three() -> MockLlm {
    MockLlm::start_blocking(Script::new().models(["a", "b", "c"])).unwrap()
}

#[test]
fn one_path_is_anthropics_or_openais_by_the_header() {
    let mock = three();
    let openai = get(&mock, Wire::Chat, "/v1/models", "").json();
    let ids: Vec<&Value> = openai["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert_eq!(
        (&openai["object"], ids),
        (&json!("list"), vec![&json!("a"), &json!("b"), &json!("c")])
    );
    let anthropic = get(&mock, Wire::Anthropic, "/v1/models", "limit=2").json();
    assert_eq!(anthropic["data"][0]["type"], "model");
    assert_eq!(
        [
            &anthropic["first_id"],
            &anthropic["last_id"],
            &anthropic["has_more"]
        ],
        [&json!("a"), &json!("b"), &json!(true)]
    );
    let rest = get(&mock, Wire::Anthropic, "/v1/models", "limit=2&after_id=b").json();
    assert_eq!(
        [&rest["first_id"], &rest["has_more"]],
        [&json!("c"), &json!(false)]
    );
    assert_eq!(mock.unexpected(), []);
}

#[test]
fn geminis_list_has_pages_too() {
    let mock = three();
    let first = get(&mock, Wire::Gemini, "/v1beta/models", "pageSize=2").json();
    let names: Vec<&Value> = first["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["models/a", "models/b"]);
    let token = first["nextPageToken"].as_str().unwrap();
    let second = get(
        &mock,
        Wire::Gemini,
        "/v1beta/models",
        &format!("pageToken={token}"),
    )
    .json();
    assert_eq!(second["models"][0]["name"], "models/c");
    assert_eq!(second.get("nextPageToken"), None);
}

#[test]
fn one_model_is_told_or_is_not_there_in_the_providers_words() {
    let mock = three();
    assert_eq!(get(&mock, Wire::Chat, "/v1/models/b", "").json()["id"], "b");
    let missing = get(&mock, Wire::Gemini, "/v1beta/models/z", "");
    assert_eq!(
        (missing.status, &missing.json()["error"]["status"]),
        (404, &json!("NOT_FOUND"))
    );
    let missing = get(&mock, Wire::Chat, "/v1/models/z", "");
    assert_eq!(missing.json()["error"]["code"], "model_not_found");
}

#[test]
fn a_list_needs_a_credential() {
    let mock = three();
    for (wire, path) in [
        (Wire::Anthropic, "/v1/models"),
        (Wire::Chat, "/v1/models"),
        (Wire::Gemini, "/v1beta/models"),
    ] {
        let mut request = Request::to(wire, "", Value::Null);
        request.method = "GET".to_owned();
        request.path = path.to_owned();
        request
            .headers
            .retain(|(name, _)| name == "anthropic-version");
        assert_eq!(exchange_of(&mock, &request).status, 401, "{wire}");
    }
}

#[test]
fn a_list_uses_up_no_step_and_a_step_for_its_path_comes_first() {
    let script = Script::new()
        .reply(Reply::text("Hello"))
        .step(Step::new(Reply::error(503)).when(Matcher::any().path("/v1/models")));
    let mock = MockLlm::start_blocking(script).unwrap();
    assert_eq!(get(&mock, Wire::Chat, "/v1/models", "").status, 503);
    assert_eq!(get(&mock, Wire::Chat, "/v1/models", "").status, 200);
    assert_eq!(exchange_of(&mock, &ask_of(Wire::Chat, false)).status, 200);
}
