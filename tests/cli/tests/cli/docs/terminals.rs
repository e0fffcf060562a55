//! The page of chats on a terminal: each of its commands opens one, with a person at it, and what that
//! person allows for always is written as the page shows it.

use conjure_kit::Tmux;
use conjure_mock_llm::{Message, Script};
use serde_json::json;

use super::blocks::{Block, Check, checked_as};
use super::commands::{Place, commands, have};
use crate::terminal::{decides, says};

const PAGE: &str = "conjure-host/docs/terminal.md";
/// What stands in a chat that waits for what is typed.
const READY: &str = "/ for commands";

/// A terminal in which this was typed.
fn opens(place: &Place, command: &str) -> Tmux {
    Tmux::start(place.shell(command), 100, 40).unwrap()
}

/// Leaves a chat and its terminal.
fn leaves(chat: Tmux) {
    chat.press(&["C-d"]).unwrap();
    assert_eq!(chat.wait_for_exit().unwrap(), 0);
    drop(chat);
}

#[test]
fn terminal() {
    if !have(&["tmux"]) {
        return;
    }
    let place = Place::new();
    let [block]: [Block; 1] = commands(PAGE).try_into().unwrap();
    let lines: Vec<&str> = block.text.lines().collect();
    let [named, next_time, go_on, pick, find, saved] = lines.as_slice() else {
        panic!("{}: {lines:?}", block.place());
    };
    let (question, answer) = ("Where is the lamp?", "There are three files.");

    let chat = opens(&place, named);
    chat.wait_for(READY).unwrap();
    says(&chat, question, answer);
    leaves(chat);

    let chat = opens(&place, next_time);
    chat.wait_for(READY).unwrap();
    let screen = chat.wait_for("anthropic/claude-sonnet-4-5").unwrap();
    assert!(!screen.contains(question), "{screen}");
    leaves(chat);

    let chat = opens(&place, go_on);
    chat.wait_for(answer).unwrap();
    chat.wait_for(READY).unwrap();
    leaves(chat);

    for command in [pick, find] {
        let chat = opens(&place, command);
        let is_listed = |screen: &str| screen.contains("Go on with") && screen.contains("1 of 1;");
        chat.wait_until("the one conversation", is_listed).unwrap();
        chat.press(&["Enter"]).unwrap();
        chat.wait_for(answer).unwrap();
        chat.wait_for(READY).unwrap();
        leaves(chat);
    }

    place.auth("work", "anthropic");
    place.make("conjure session create work --auth work --model claude-sonnet-4-5");
    let chat = opens(&place, saved);
    chat.wait_for(READY).unwrap();
    says(&chat, question, answer);
    leaves(chat);
}

#[test]
fn what_a_person_allows_for_always_is_written_as_the_page_shows() {
    if !have(&["tmux"]) {
        return;
    }
    let tests = json!({ "command": "cargo test --workspace" });
    let script = Script::new()
        .reply(Message::new().tool_use("toolu_1", "local_bash_tool", tests))
        .reply(Message::new().text("That is what they say."));
    let place = Place::with_model(script);
    let [block]: [Block; 1] = checked_as(&Check::Rules).try_into().unwrap();
    let chat = opens(
        &place,
        "conjure chat --provider anthropic --model claude-sonnet-4-5",
    );
    chat.wait_for(READY).unwrap();
    chat.types("Run the tests.").unwrap();
    chat.press(&["Enter"]).unwrap();
    chat.wait_for("It waits for you").unwrap();
    decides(&chat, "a", "Written to");
    chat.wait_for("That is what they say.").unwrap();
    let rules = place.workspace.data_dir().join("always.toml");
    let written = place.workspace.read(rules).unwrap();
    let here = place.workspace.work().display().to_string();
    assert_eq!(written, block.text.replace("/home/ada/project", &here));
}
