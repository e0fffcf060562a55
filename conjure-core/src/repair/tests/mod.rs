//! What can be sent, checked from the outside.

pub(crate) mod checker;
pub(crate) mod random;

use serde_json::{Value, json};

use super::*;
use crate::chat::{
    ArtifactRef, Content, FunctionCall, FunctionCallOutput, Meta, OutputPart, Part, Role, Sidecar,
};

const MODEL: &str = "claude-sonnet-4-5-20250929";
const FAMILY: &str = "claude-sonnet-4-5";

fn target() -> RepairTarget {
    RepairTarget::new("anthropic", MODEL)
}

fn repaired(messages: &[Message]) -> Vec<Message> {
    let sendable = repair(messages.to_vec(), &target());
    checker::check(&sendable, &target());
    sendable.messages().to_vec()
}

fn assistant(parts: Vec<Part>) -> Message {
    Message::new(Role::Assistant, parts)
}

fn results(parts: Vec<Part>) -> Message {
    Message::new(Role::Tool, parts)
}

fn call(id: &str) -> Part {
    Content::FunctionCall(FunctionCall {
        call_id: id.to_owned(),
        name: "t".to_owned(),
        arguments: json!({}),
        arguments_text: None,
    })
    .into()
}

fn result(id: &str, text: &str) -> Part {
    Content::FunctionCallOutput(FunctionCallOutput::text(id, text, false)).into()
}

fn unknown(id: &str) -> Part {
    Content::FunctionCallOutput(FunctionCallOutput::text(id, notes::NO_RESULT, true)).into()
}

fn thought(text: &str, provider: &str, family: &str) -> Part {
    Part {
        content: Content::Reasoning {
            text: text.to_owned(),
        },
        sidecar: Some(Sidecar {
            provider: provider.to_owned(),
            model_family: family.to_owned(),
            data: json!({"type": "thinking", "signature": "s"}),
        }),
    }
}

fn item(provider: &str, item: Value) -> Part {
    Content::ServerItem {
        provider: provider.to_owned(),
        item,
    }
    .into()
}

fn server_use(id: &str) -> Part {
    item(
        "anthropic",
        json!({"type": "server_tool_use", "id": id, "name": "code_execution", "input": {}}),
    )
}

fn server_result(id: &str) -> Part {
    item(
        "anthropic",
        json!({"type": "code_execution_tool_result", "tool_use_id": id, "content": {}}),
    )
}

fn with_meta(mut message: Message, change: impl FnOnce(&mut Meta)) -> Message {
    let mut meta = Meta {
        provider: "anthropic".to_owned(),
        model: MODEL.to_owned(),
        ..Meta::default()
    };
    change(&mut meta);
    message.meta = Some(meta);
    message
}

fn paused(parts: Vec<Part>) -> Message {
    with_meta(assistant(parts), |meta| {
        meta.stop_reason = Some("pause_turn".to_owned());
    })
}

#[test]
fn what_can_be_sent_stays_as_it_is() {
    let conversation = [
        Message::user("q"),
        with_meta(
            assistant(vec![
                thought("hm", "anthropic", FAMILY),
                Part::text("I look."),
                call("a"),
                server_use("x"),
                server_result("x"),
                call("b"),
            ]),
            |_| {},
        ),
        results(vec![result("a", "1"), result("b", "2")]),
        assistant(vec![Part::text("done")]),
        Message::user("thanks"),
    ];
    assert_eq!(repaired(&conversation), conversation);
}

#[test]
fn a_call_without_a_result_gets_one_that_says_so() {
    assert_eq!(
        repaired(&[
            Message::user("q"),
            assistant(vec![call("a"), call("b")]),
            results(vec![result("b", "2")]),
        ])[2],
        results(vec![unknown("a"), result("b", "2")])
    );
}

#[test]
fn results_move_behind_their_calls_and_orphans_go() {
    assert_eq!(
        repaired(&[
            results(vec![result("z", "before any call")]),
            Message::user("q"),
            assistant(vec![call("a"), call("b")]),
            Message::user("meanwhile"),
            results(vec![
                result("b", "2"),
                result("b", "again"),
                result("x", "x")
            ]),
            Message::new(Role::User, vec![result("a", "1"), Part::text("more")]),
        ]),
        [
            Message::user("q"),
            assistant(vec![call("a"), call("b")]),
            results(vec![result("a", "1"), result("b", "2")]),
            Message::new(
                Role::User,
                vec![Part::text("meanwhile"), Part::text("more")]
            ),
        ]
    );
}

#[test]
fn an_id_that_is_empty_or_taken_is_replaced_in_call_and_result() {
    let repaired = repaired(&[
        Message::user("q"),
        assistant(vec![call("a"), call(""), call("a_2")]),
        results(vec![
            result("", "empty"),
            result("a", "1"),
            result("a_2", "2"),
        ]),
        assistant(vec![call("a")]),
        results(vec![result("a", "3")]),
    ]);
    assert_eq!(
        repaired[2],
        results(vec![
            result("a", "1"),
            result("call_2", "empty"),
            result("a_2", "2")
        ])
    );
    assert_eq!(repaired[4], results(vec![result("a_3", "3")]));
}

#[test]
fn w07_blank_texts_and_empty_messages_go_and_neighbours_join() {
    assert_eq!(
        repaired(&[
            Message::user("a"),
            assistant(vec![Part::text(" \n"), Part::text("")]),
            Message::user("b"),
            assistant(vec![Part::text("c")]),
            assistant(vec![Part::text("d")]),
            Message::user("e"),
        ]),
        [
            Message::new(Role::User, vec![Part::text("a"), Part::text("b")]),
            assistant(vec![Part::text("c"), Part::text("d")]),
            Message::user("e"),
        ]
    );
}

#[test]
fn a_superseded_reply_is_left_out_with_its_calls() {
    let superseded = with_meta(assistant(vec![Part::text("half"), call("a")]), |meta| {
        meta.superseded = true;
    });
    assert_eq!(
        repaired(&[
            Message::user("q"),
            superseded,
            results(vec![result("a", "not run")]),
        ]),
        [Message::user("q")]
    );
}

#[test]
fn a_conversation_begins_with_the_person_and_never_ends_with_the_models_words() {
    assert_eq!(
        repaired(&[assistant(vec![Part::text("a")])]),
        [
            Message::user(notes::BEGINNING_MISSING),
            assistant(vec![Part::text("a")]),
            Message::user(notes::CONTINUE),
        ]
    );
    assert_eq!(repaired(&[]), [Message::user(notes::BEGINNING_MISSING)]);
}

#[test]
fn w10_only_a_paused_reply_of_the_same_provider_may_come_last() {
    let reply = paused(vec![server_use("x")]);
    let conversation = [Message::user("q"), reply];
    assert_eq!(repaired(&conversation), conversation);

    let elsewhere = RepairTarget::new("openai", "gpt-5");
    let sendable = repair(conversation.to_vec(), &elsewhere);
    checker::check(&sendable, &elsewhere);
    let last = sendable.messages().last().unwrap();
    assert_eq!(*last, Message::user(notes::CONTINUE));
}

#[test]
fn w14_a_deferred_server_use_stays_while_it_is_owed() {
    let mixed = [
        Message::user("q"),
        with_meta(assistant(vec![server_use("x"), call("a")]), |_| {}),
        results(vec![result("a", "1")]),
    ];
    assert_eq!(repaired(&mixed), mixed);

    let mut late = mixed.to_vec();
    late.extend([
        assistant(vec![server_result("x"), Part::text("done")]),
        Message::user("thanks"),
    ]);
    assert_eq!(repaired(&late), late);
}

#[test]
fn w14_what_the_next_reply_did_not_bring_is_not_owed_any_more() {
    let repaired = repaired(&[
        Message::user("q"),
        with_meta(assistant(vec![server_use("x"), call("a")]), |_| {}),
        results(vec![result("a", "1")]),
        // Of another provider, or cancelled before the result came.
        assistant(vec![call("b")]),
        results(vec![result("b", "2")]),
    ]);
    let told = repaired[1].content[0].as_text().unwrap();
    assert!(
        told.starts_with("[anthropic ran a tool of its own"),
        "{told}"
    );
}

#[test]
fn a_server_use_without_its_result_is_told_as_text_once_the_person_spoke() {
    let repaired = repaired(&[
        Message::user("q"),
        with_meta(assistant(vec![server_use("x"), call("a")]), |_| {}),
        results(vec![result("a", "cancelled")]),
        Message::user("never mind"),
        assistant(vec![server_result("x"), Part::text("ok")]),
        Message::user("next"),
    ]);
    let told = repaired[1].content[0].as_text().unwrap();
    assert!(
        told.starts_with("[anthropic ran a tool of its own: {"),
        "{told}"
    );
    assert!(repaired[4].content[0].as_text().is_some());
}

#[test]
fn a_server_use_that_was_cut_off_is_never_owed() {
    let cut = with_meta(paused(vec![Part::text("a"), server_use("x")]), |meta| {
        meta.stop_reason = Some("pause_turn".to_owned());
        meta.partial = true;
    });
    let repaired = repaired(&[Message::user("q"), cut]);
    assert!(repaired[1].content[1].as_text().is_some());
    assert_eq!(repaired[2], Message::user(notes::CONTINUE));
}

#[test]
fn w59_a_sidecar_goes_back_only_to_its_signer_and_comes_home_unchanged() {
    let own = thought("mine", "anthropic", FAMILY);
    let conversation = [
        Message::user("q"),
        assistant(vec![own.clone(), Part::text("a")]),
        Message::user("b"),
    ];
    for elsewhere in [
        RepairTarget::new("openai", MODEL),
        RepairTarget::new("anthropic", "claude-opus-4-1"),
    ] {
        let sendable = repair(conversation.to_vec(), &elsewhere);
        checker::check(&sendable, &elsewhere);
        assert_eq!(sendable.messages()[1].content, [Part::text("a")]);
    }
    assert_eq!(repaired(&conversation)[1].content[0], own);
}

#[test]
fn a_message_of_thoughts_only_is_no_message() {
    assert_eq!(
        repaired(&[
            Message::user("q"),
            assistant(vec![thought("hm", "anthropic", FAMILY)]),
            Message::user("well?"),
        ]),
        [Message::new(
            Role::User,
            vec![Part::text("q"), Part::text("well?")]
        )]
    );
}

#[test]
fn what_a_model_cannot_look_at_is_told() {
    let artifact = ArtifactRef {
        id: "f1".to_owned(),
        name: "a.png".to_owned(),
        media_type: "image/png".to_owned(),
        size: None,
    };
    let blind = RepairTarget {
        images: false,
        files: false,
        ..target()
    };
    let output = FunctionCallOutput {
        call_id: "a".to_owned(),
        output: vec![
            OutputPart::Text {
                text: " ".to_owned(),
            },
            OutputPart::Image {
                artifact: artifact.clone(),
            },
        ],
        is_error: false,
    };
    let sendable = repair(
        vec![
            Message::new(
                Role::User,
                vec![
                    Content::Image {
                        artifact: artifact.clone(),
                    }
                    .into(),
                    Content::File { artifact }.into(),
                ],
            ),
            assistant(vec![call("a")]),
            results(vec![Content::FunctionCallOutput(output).into()]),
        ],
        &blind,
    );
    checker::check(&sendable, &blind);
    let note = "[file: a.png, image/png, id f1] [this model cannot look at it]";
    assert_eq!(
        sendable.messages()[0].content,
        [Part::text(note), Part::text(note)]
    );
    assert_eq!(sendable.messages()[2].content, [result("a", note)]);
}

#[test]
fn what_the_host_says_is_told_as_a_note() {
    assert_eq!(
        repaired(&[
            Message::user("q"),
            Message::new(Role::System, vec![Part::text("The model changed.")]),
        ]),
        [Message::new(
            Role::User,
            vec![
                Part::text("q"),
                Part::text("[note of the host] The model changed.")
            ]
        )]
    );
}

#[test]
fn arguments_that_are_no_object_are_kept_as_text() {
    let mut odd = call("a");
    let Content::FunctionCall(function_call) = &mut odd.content else {
        panic!("no call");
    };
    function_call.arguments = json!([1]);
    let repaired = repaired(&[Message::user("q"), assistant(vec![odd])]);
    let call = repaired[1].calls().next().unwrap();
    assert_eq!(
        (&call.arguments, call.arguments_text.as_deref()),
        (&json!({}), Some("[1]"))
    );
}
