//! Random conversations: whatever happened in a thread, what is sent is acceptable.

use proptest::prelude::*;

use super::*;

fn any_part() -> impl Strategy<Value = Part> {
    let id = || prop_oneof![Just(""), Just("a"), Just("a_2"), Just("b"), Just("c.d")];
    let server_id = || prop_oneof![Just("x"), Just("y")];
    let artifact = || ArtifactRef {
        id: "f".to_owned(),
        name: "f".to_owned(),
        media_type: "image/png".to_owned(),
        size: None,
    };
    prop_oneof![
        3 => prop_oneof![Just(""), Just(" \n"), Just("text"), Just("more")].prop_map(Part::text),
        1 => Just(Content::Reasoning { text: "unsigned".to_owned() }.into()),
        2 => prop_oneof![Just(FAMILY), Just("claude-opus-5")]
            .prop_map(|family| thought("t", "anthropic", family)),
        1 => Just(thought("t", "openai", "gpt-5")),
        4 => id().prop_map(call),
        5 => id().prop_map(|id| result(id, "r")),
        1 => (id(), any::<bool>()).prop_map(|(id, is_error)| {
            Content::FunctionCallOutput(FunctionCallOutput::text(id, " ", is_error)).into()
        }),
        1 => Just(Content::Image { artifact: artifact() }.into()),
        1 => Just(Content::File { artifact: artifact() }.into()),
        3 => server_id().prop_map(server_use),
        3 => server_id().prop_map(server_result),
        1 => Just(item("openai", json!({"type": "web_search_call"}))),
        1 => Just(item("anthropic", json!({"type": "container_upload", "file_id": "f"}))),
        1 => Just(item("anthropic", json!("odd"))),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        2 => Just(Role::User),
        4 => Just(Role::Assistant),
        3 => Just(Role::Tool),
        1 => Just(Role::System),
    ];
    let meta = (
        prop_oneof![3 => Just("anthropic"), 1 => Just("openai")],
        prop_oneof![Just(None), Just(Some("end_turn")), Just(Some("pause_turn"))],
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(provider, stop, partial, superseded)| Meta {
            provider: provider.to_owned(),
            stop_reason: stop.map(str::to_owned),
            partial,
            superseded,
            ..Meta::default()
        });
    (
        role,
        prop::collection::vec(any_part(), 0..5),
        prop::option::of(meta),
    )
        .prop_map(|(role, content, meta)| Message {
            role,
            content,
            meta,
        })
}

pub(crate) fn any_conversation() -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(any_message(), 0..8)
}

fn any_target() -> impl Strategy<Value = RepairTarget> {
    (
        prop_oneof![
            3 => Just(target()),
            1 => Just(RepairTarget::new("openai", "gpt-5")),
            1 => Just(RepairTarget::new("gemini", "gemini-3-pro")),
            1 => Just(RepairTarget::new("deepseek", "deepseek-chat")),
            1 => Just(RepairTarget::new("anthropic", "claude-opus-5")),
        ],
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(target, images, files)| RepairTarget {
            images,
            files,
            ..target
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_repaired_can_be_sent_and_repairing_it_again_changes_nothing(
        conversation in any_conversation(),
        target in any_target(),
    ) {
        let once = repair(conversation, &target);
        super::checker::check(&once, &target);
        let twice = repair(once.messages().to_vec(), &target);
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn every_way_of_switching_providers_ends_sendable_and_sidecars_come_home(
        conversation in any_conversation(),
        path in prop::collection::vec(any_target(), 1..5),
    ) {
        // The log keeps the conversation; each switch repairs it anew.
        for target in &path {
            super::checker::check(&repair(conversation.clone(), target), target);
        }
        let home = repair(conversation.clone(), &target());
        let originals: Vec<&Part> = conversation.iter().flat_map(|m| &m.content).collect();
        for part in home.messages().iter().flat_map(|m| &m.content) {
            if part.sidecar.is_some() {
                prop_assert!(originals.contains(&part), "changed: {part:?}");
            }
        }
    }

    #[test]
    fn what_a_person_said_is_never_lost(conversation in any_conversation()) {
        let said = |messages: &[Message]| -> Vec<String> {
            messages
                .iter()
                .filter(|m| m.role == Role::User)
                .filter(|m| !m.meta.as_ref().is_some_and(|meta| meta.superseded))
                .flat_map(|m| &m.content)
                .filter_map(|part| part.as_text().map(str::to_owned))
                .filter(|text| !text.trim().is_empty())
                .collect()
        };
        let sent = said(repair(conversation.clone(), &target()).messages());
        let mut rest = sent.iter();
        for text in said(&conversation) {
            prop_assert!(rest.any(|sent| *sent == text), "{text} is lost");
        }
    }
}
