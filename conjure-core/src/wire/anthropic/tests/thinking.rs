//! When a request asks for thoughts, and which of those that are there it holds.

use serde_json::{Value, json};

use super::super::encode;
use super::*;

#[test]
fn w01_thoughts_go_back_unmodified_before_the_call() {
    let signed = json!({"type": "thinking", "signature": "s+/=", "new_field": {"x": 1}});
    let mut request = request(vec![
        Message::user("q"),
        assistant(vec![
            thought(" keep  me\n", signed),
            thought("", json!({"type": "redacted_thinking", "data": "d"})),
            call("toolu_1", "t", json!({})),
        ]),
        results(vec![result("toolu_1", "r")]),
    ]);
    request.thinking_tokens = Some(2000);
    let encoded = encode(&request);
    assert_eq!(
        messages_of(&encoded)[1]["content"],
        json!([
            {"type": "thinking", "thinking": " keep  me\n", "signature": "s+/=",
             "new_field": {"x": 1}},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}},
        ])
    );
}

/// The `thinking` field, the thoughts that are sent, and the notes, at a model with this budget.
fn thinks(model: &str, budget: Option<u32>, messages: Vec<Message>) -> (Value, Value, Vec<String>) {
    let mut request = request(messages);
    request.model = model.to_owned();
    request.thinking_tokens = budget;
    let encoded = encode(&request);
    let sent: Vec<Value> = messages_of(&encoded)
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap())
        .filter(|block| block["type"].as_str().unwrap().ends_with("thinking"))
        .map(|block| block["signature"].clone())
        .collect();
    (
        body(&encoded)["thinking"]["type"].clone(),
        sent.into(),
        encoded.notes,
    )
}

/// A reply with a call, signed or another provider's, and its result.
fn step(id: &str, signature: Option<&str>) -> Vec<Message> {
    let thought = signature
        .map(|signature| thought("hm", json!({"type": "thinking", "signature": signature})));
    let parts = thought.into_iter().chain([call(id, "t", json!({}))]);
    vec![assistant(parts.collect()), results(vec![result(id, "r")])]
}

const BEGAN_WITHOUT: &str =
    "thinking is off until the next message: this turn did not begin with thoughts of this model";
const LEFT_OUT: &str = "the thoughts of this turn are left out: thinking is off in it now";

#[test]
fn w02_a_turn_thinks_with_a_budget_when_it_began_with_a_thought() {
    let ask = || vec![Message::user("q")];
    let foreign = [ask(), step("a", None)].concat();
    let none: Vec<String> = Vec::new();
    let off = (Value::Null, json!([]), vec![BEGAN_WITHOUT.to_owned()]);
    assert_eq!(thinks(MODEL, Some(2000), foreign.clone()), off);
    // The next turn thinks again.
    let answered = [foreign.clone(), vec![assistant(vec![Part::text("a")])]].concat();
    let next = [answered, ask()].concat();
    let on = |thoughts: Value| (json!("enabled"), thoughts, none.clone());
    assert_eq!(thinks(MODEL, Some(2000), next), on(json!([])));
    // One that began at home goes on, whoever called in between, and whether or not the model
    // thought between its own calls.
    let home = [ask(), step("a", Some("s1")), step("b", None)].concat();
    assert_eq!(thinks(MODEL, Some(2000), home.clone()), on(json!(["s1"])));
    let back = [home.clone(), step("c", Some("s2")), step("d", None)].concat();
    assert_eq!(thinks(MODEL, Some(2000), back), on(json!(["s1", "s2"])));
    // Who decides itself asks for nothing.
    let adaptive = (json!("adaptive"), json!([]), none.clone());
    assert_eq!(thinks("claude-opus-4-7", Some(2000), foreign), adaptive);
}

#[test]
fn w02_words_beside_results_leave_no_doubt_about_where_the_turn_began() {
    let ask = || vec![Message::user("q")];
    let off = (Value::Null, json!([]), vec![BEGAN_WITHOUT.to_owned()]);
    let interrupted = [ask(), step("a", None), ask()].concat();
    assert_eq!(thinks(MODEL, Some(2000), interrupted), off);
    let both = vec![BEGAN_WITHOUT.to_owned(), LEFT_OUT.to_owned()];
    let away = [ask(), step("a", Some("s1")), ask(), step("b", None)].concat();
    assert_eq!(
        thinks(MODEL, Some(2000), away),
        (Value::Null, json!([]), both)
    );
    let home = [ask(), step("a", Some("s1")), ask(), step("b", Some("s2"))].concat();
    let on = (json!("enabled"), json!(["s1", "s2"]), Vec::new());
    assert_eq!(thinks(MODEL, Some(2000), home), on);
}

#[test]
fn w02_a_turn_that_does_not_think_any_more_is_sent_without_its_thoughts() {
    let ask = || vec![Message::user("q")];
    let before = [
        ask(),
        step("a", Some("s1")),
        vec![assistant(vec![Part::text("x")])],
    ];
    let running = [step("b", Some("s2")), step("c", Some("s3"))];
    let whole = [before.concat(), ask(), running.concat()].concat();
    // What earlier turns thought may stay: it makes no difference, and the cache finds it.
    let off = (Value::Null, json!(["s1"]), vec![LEFT_OUT.to_owned()]);
    assert_eq!(thinks(MODEL, None, whole.clone()), off);
    let all = (json!("enabled"), json!(["s1", "s2", "s3"]), Vec::new());
    assert_eq!(thinks(MODEL, Some(2000), whole), all);
    // A later model, and one of another maker's, may think without being asked: theirs stay.
    for model in ["claude-opus-5", "other-model-9"] {
        let data = json!({"type": "thinking", "signature": "s"});
        let mut own = thought("hm", data);
        own.sidecar.as_mut().unwrap().model_family = model.to_owned();
        let mut request = request(ask());
        request.model = model.to_owned();
        request.messages = repair(
            [ask(), vec![assistant(vec![own, call("a", "t", json!({}))])]].concat(),
            &RepairTarget::new("anthropic", model),
        );
        let blocks = messages_of(&encode(&request));
        assert_eq!(blocks[1]["content"][0]["signature"], "s", "{model}");
    }
}

#[test]
fn thinking_is_asked_for_as_the_model_knows_it() {
    let thinking = |model: &str, max_tokens: u32, wanted: u32| {
        let mut request = request(vec![Message::user("q")]);
        request.model = model.to_owned();
        request.max_tokens = max_tokens;
        request.thinking_tokens = Some(wanted);
        body(&encode(&request)).get("thinking").cloned()
    };
    let budget = |tokens: u32| Some(json!({"type": "enabled", "budget_tokens": tokens}));
    let adaptive = Some(json!({"type": "adaptive", "display": "summarized"}));
    assert_eq!(thinking("claude-opus-4-7", 4096, 2000), adaptive);
    assert_eq!(thinking(MODEL, 4096, 10), budget(1024));
    assert_eq!(thinking(MODEL, 4096, 9000), budget(3072));
    assert_eq!(thinking(MODEL, 1000, 9000), None);
    assert_eq!(thinking(MODEL, 4096, 0), None);
}

#[test]
fn w17_a_forced_tool_switches_thinking_off() {
    let mut request = request(vec![Message::user("q")]);
    request.tools = vec![tool("t")];
    request.thinking_tokens = Some(2000);
    let mut seen = |choice: ToolChoice| {
        request.tool_choice = choice;
        let body = body(&encode(&request));
        (
            body.get("tool_choice").cloned(),
            body.get("thinking").is_some(),
        )
    };
    assert_eq!(seen(ToolChoice::Auto), (None, true));
    assert_eq!(
        seen(ToolChoice::None),
        (Some(json!({"type": "none"})), true)
    );
    assert_eq!(seen(ToolChoice::Any), (Some(json!({"type": "any"})), false));
    assert_eq!(
        seen(ToolChoice::Tool("t".to_owned())),
        (Some(json!({"type": "tool", "name": "t"})), false)
    );
    request.tools.clear();
    request.tool_choice = ToolChoice::Any;
    let body = body(&encode(&request));
    assert_eq!(body.get("tool_choice"), None);
    assert!(body.get("thinking").is_some());
}
