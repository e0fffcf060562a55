//! A chat in a terminal that changes its size: nothing is left behind, on the screen or in the
//! scrollback.

use conjure_kit::Model;
use conjure_mock_llm::{Message, Position, Reply};

use crate::stage::workspace;
use crate::terminal::started;

/// What stands where something is typed while a turn runs.
const BUSY: &str = "type what comes next";

#[test]
fn another_size_leaves_nothing_behind() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let story = Message::new()
        .text("Some words that are in the answer. ".repeat(6))
        .deltas(4);
    model.says(Reply::from(story).hold(Position::Event(20), "middle"));
    let tmux = started(&workspace, &model, "", 100, 24);
    tmux.types("Tell me.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    tmux.wait_for(BUSY).unwrap();
    for columns in [60, 45, 80, 120, 70] {
        tmux.resize(columns, 24).unwrap();
        let once = |screen: &str| screen.matches(BUSY).count() == 1;
        tmux.wait_until("one region", once).unwrap();
    }
    model.mock().release("middle");
    tmux.wait_for("/ for commands").unwrap();
    let all = tmux.scrollback().unwrap();
    assert_eq!(all.matches(BUSY).count(), 0, "{all}");
    assert_eq!(all.matches("› Tell me.").count(), 1, "{all}");
    let words = all.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words.matches("Some words that are in the answer.").count(),
        6,
        "{all}"
    );
}

#[test]
fn a_lower_terminal_has_each_line_once_in_its_scrollback() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let lines: String = (101..=180)
        .map(|n| format!("line number {n} of the code\n"))
        .collect();
    let story = Message::new()
        .text(format!("```\n{lines}```\n\nThe end."))
        .deltas(28);
    // By then more lines have come than the terminal has rows.
    model.says(Reply::from(story).hold(Position::Event(62), "middle"));
    let tmux = started(&workspace, &model, "", 100, 40);
    tmux.types("Tell me.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    tmux.wait_for("line number 159").unwrap();
    for rows in [30, 20] {
        tmux.resize(100, rows).unwrap();
        // A terminal that loses rows drops the last line, the status, first.
        let is_drawn = |screen: &str| {
            let status = screen.lines().last().unwrap_or_default();
            screen.matches(BUSY).count() == 1 && status.contains("a-model")
        };
        tmux.wait_until("the region with its status", is_drawn)
            .unwrap();
    }
    model.mock().release("middle");
    tmux.wait_for("/ for commands").unwrap();
    let all = tmux.scrollback().unwrap();
    assert_eq!(all.matches(BUSY).count(), 0, "{all}");
    assert_eq!(all.matches("› Tell me.").count(), 1, "{all}");
    let shown = all.lines().filter(|line| line.contains("line number"));
    let expected = (101..=180).map(|n| format!("  line number {n} of the code"));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        expected.collect::<Vec<_>>(),
        "each line once, in order"
    );
}
