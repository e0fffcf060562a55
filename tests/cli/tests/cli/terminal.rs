//! `conjure chat` on a terminal: what a person sees and types, in tmux.

use std::time::Duration;

use conjure_kit::{Cli, Model, Tmux, Workspace};
use conjure_mock_llm::{Message, Position, Reply};
use insta::assert_snapshot;
use serde_json::json;

use crate::stage::{CACHE, asks, workspace};

const ANSWER: &str = "# Findings

The directory has **three** files and a long line of words that has to be broken where the \
terminal ends, with `inline code` and a [link](https://example.org/page).

1. Read `notes.txt`.
2. Run this:

```rust
fn main() {
    println!(\"Hello\"); // says hello
}
```

| name | size | what it is |
|:-----|-----:|------------|
| notes.txt | 120 | notes of the last meeting |
| data.csv | 45000 | numbers that nobody has looked at for a long time |

> A quote that is
> two lines long.

- [x] done
- [ ] open
  - inner

The end.";

/// A chat in a workspace.
pub(crate) fn chat(workspace: &Workspace, model: &Model, args: &str) -> Cli {
    asks(workspace, model, &format!("chat {args}"), "").env("HOME", workspace.root().as_os_str())
}

/// A chat that waits for what is typed.
pub(crate) fn started(
    workspace: &Workspace,
    model: &Model,
    args: &str,
    columns: u16,
    rows: u16,
) -> Tmux {
    let tmux = Tmux::start(chat(workspace, model, args), columns, rows).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    tmux
}

/// Says something, and waits for the end of the answer.
pub(crate) fn says(tmux: &Tmux, text: &str, answer: &str) -> String {
    tmux.types(text).unwrap();
    tmux.press(&["Enter"]).unwrap();
    let is_over = |screen: &str| {
        screen.contains(answer)
            && screen.contains("/ for commands")
            && !screen.contains("Esc stops")
    };
    tmux.wait_until(answer, is_over).unwrap()
}

/// What a screen shows of an answer in so many columns.
fn rendered(columns: u16) -> String {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text(ANSWER).deltas(3));
    let tmux = started(&workspace, &model, "", columns, 50);
    says(&tmux, "What is here?", "The end.");
    tmux.wait_for("tokens").unwrap()
}

#[test]
fn an_answer_is_rendered_in_60_columns() {
    assert_snapshot!(rendered(60), @r#"
    Conjure 0.1.0  /help tells the commands

    › What is here?

    Findings

    The directory has three files and a long line of words that
    has to be broken where the terminal ends, with inline code
    and a link (https://example.org/page).

    1. Read notes.txt.
    2. Run this:

      fn main() {
          println!("Hello"); // says hello
      }

    name      │  size │ what it is
    ──────────┼───────┼────────────────────────────────────────
    notes.txt │   120 │ notes of the last meeting
    data.csv  │ 45000 │ numbers that nobody has looked at for a
              │       │ long time

    │ A quote that is two lines long.

    ☑ done
    ☐ open
      • inner

    The end.

    › Ask something, or / for commands
    anthropic/a-model · ~/work · 15 tokens
    "#);
}

#[test]
fn an_answer_is_rendered_in_100_columns() {
    assert_snapshot!(rendered(100), @r#"
    Conjure 0.1.0  /help tells the commands

    › What is here?

    Findings

    The directory has three files and a long line of words that has to be broken where the terminal
    ends, with inline code and a link (https://example.org/page).

    1. Read notes.txt.
    2. Run this:

      fn main() {
          println!("Hello"); // says hello
      }

    name      │  size │ what it is
    ──────────┼───────┼──────────────────────────────────────────────────
    notes.txt │   120 │ notes of the last meeting
    data.csv  │ 45000 │ numbers that nobody has looked at for a long time

    │ A quote that is two lines long.

    ☑ done
    ☐ open
      • inner

    The end.

    › Ask something, or / for commands
    anthropic/a-model · ~/work · 15 tokens
    "#);
}

#[test]
fn an_answer_is_rendered_in_160_columns() {
    assert_snapshot!(rendered(160), @r#"
    Conjure 0.1.0  /help tells the commands

    › What is here?

    Findings

    The directory has three files and a long line of words that has to be broken where the terminal ends, with inline code and a link (https://example.org/page).

    1. Read notes.txt.
    2. Run this:

      fn main() {
          println!("Hello"); // says hello
      }

    name      │  size │ what it is
    ──────────┼───────┼──────────────────────────────────────────────────
    notes.txt │   120 │ notes of the last meeting
    data.csv  │ 45000 │ numbers that nobody has looked at for a long time

    │ A quote that is two lines long.

    ☑ done
    ☐ open
      • inner

    The end.

    › Ask something, or / for commands
    anthropic/a-model · ~/work · 15 tokens
    "#);
}

#[test]
fn code_has_colours_unless_none_are_wanted() {
    for (no_color, is_colored) in [("", true), ("1", false)] {
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        model.says(Message::new().text("```rust\nfn f() {}\n```\n\nDone."));
        let cli = chat(&workspace, &model, "").env("NO_COLOR", no_color);
        let tmux = Tmux::start(cli, 80, 20).unwrap();
        tmux.wait_for("/ for commands").unwrap();
        says(&tmux, "code", "Done.");
        let keyword = "\u{1b}[35mfn";
        assert_eq!(
            tmux.colors().unwrap().contains(keyword),
            is_colored,
            "{no_color:?}"
        );
    }
}

#[test]
fn an_answer_that_is_longer_than_the_terminal_is_all_in_its_scrollback() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let lines: String = (1..=200)
        .map(|n| format!("line number {n} of the code\n"))
        .collect();
    model.says(
        Message::new()
            .text(format!("```\n{lines}```\n\nThe end."))
            .deltas(7),
    );
    let tmux = started(&workspace, &model, "", 60, 20);
    says(&tmux, "A long one.", "The end.");
    let all = tmux.scrollback().unwrap();
    let shown: Vec<&str> = all
        .lines()
        .filter(|line| line.contains("line number"))
        .collect();
    let expected: Vec<String> = (1..=200)
        .map(|n| format!("  line number {n} of the code"))
        .collect();
    assert_eq!(shown, expected, "each line once, in order");
}

#[test]
fn reasoning_is_a_line_that_a_key_opens() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let thought = "The person wants a number. ".repeat(12);
    model.says(Message::new().reasoning(thought).text("It is 7."));
    let tmux = started(&workspace, &model, "", 60, 24);
    assert_snapshot!(says(&tmux, "Which?", "It is 7."), @r"
    Conjure 0.1.0  /help tells the commands

    › Which?

    ∴ Thought: The person wants a nu… (Ctrl-T: the last turn's)

    It is 7.

    › Ask something, or / for commands
    anthropic/a-model · ~/work · 15 tokens
    ");
    tmux.press(&["C-t"]).unwrap();
    let is_shown = |screen: &str| {
        screen.contains("∴ person wants a number. The person") && screen.ends_with("tokens")
    };
    let screen = tmux.wait_until("the reasoning", is_shown).unwrap();
    let shown = screen
        .lines()
        .filter(|line| line.starts_with("∴ ") && !line.contains("Thought"));
    let shown: Vec<&str> = shown.map(|line| line.trim_start_matches("∴ ")).collect();
    let thought = "The person wants a number. ".repeat(12);
    assert_eq!(shown.join(" "), thought.trim(), "{screen}");
}

const TOOL: &str = "cache-manager_execute";

#[test]
fn a_call_shows_what_would_run_and_only_an_answer_is_an_answer() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    model.calls("toolu_1", TOOL, json!({ "command": "set city Lyon" }));
    model.says(Message::new().text("It is stored."));
    let tmux = started(&workspace, &model, "", 100, 30);
    tmux.types("Remember Lyon.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    let is_whole = |screen: &str| screen.contains("It waits for you") && screen.ends_with("~/work");
    assert_snapshot!(tmux.wait_until("the question", is_whole).unwrap(), @r"
    Conjure 0.1.0  /help tells the commands

    › Remember Lyon.

    ? cache-manager_execute wants to run (ask by default for a tool with effects `write`)
      │ set city Lyon
    · cache-manager_execute set city Lyon  waits

      y  yes, once
      s  yes, and in this session: cache-manager_execute(set *)
      a  yes, and always: writes the rule cache-manager_execute(set *)
      n  no, and why
    It waits for you. Ctrl-C stops the turn.
    anthropic/a-model · ~/work
    ");
    decides(&tmux, "/", "That is no answer");
    tmux.types("help").unwrap();
    tmux.press(&["Enter"]).unwrap();
    // What comes behind Enter is still asked about.
    decides(&tmux, "n", "Why not?");
    tmux.press(&["Escape"]).unwrap();
    tmux.wait_for("It waits for you").unwrap();
    assert_eq!(model.requests().len(), 1, "nothing was decided");
    tmux.types("y").unwrap();
    let is_over = |screen: &str| {
        screen.contains("It is stored.")
            && screen.contains("/ for commands")
            && screen.ends_with("tokens")
    };
    let screen = tmux.wait_until("the answer", is_over).unwrap();
    for shown in [
        "\n  ↳ yes, once\n",
        "\n✓ cache-manager_execute set city Lyon  native, ",
        "\n  stored\n\nIt is stored.\n",
    ] {
        assert!(screen.contains(shown), "{shown:?}: {screen}");
    }
}

/// Presses a key at a call that waits, until this is seen. A key that comes right after the question
/// is taken for one that was meant for the text.
pub(crate) fn decides(tmux: &Tmux, key: &str, seen: &str) -> String {
    const TYPING: &str = "You are typing";
    loop {
        tmux.types(key).unwrap();
        let heeded = |screen: &str| screen.contains(seen) || screen.contains(TYPING);
        let screen = tmux.wait_until(seen, heeded).unwrap();
        if screen.contains(seen) {
            return screen;
        }
        tmux.press(&["C-u"]).unwrap();
        let cleared = |screen: &str| !screen.contains(TYPING);
        tmux.wait_until("nothing is typed", cleared).unwrap();
        // A key right after one that was typed is still the text's.
        std::thread::sleep(Duration::from_millis(400));
    }
}

#[test]
fn the_model_reads_why_a_call_is_not_to_run() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    model.calls("toolu_1", TOOL, json!({ "command": "set city Lyon" }));
    model.says(Message::new().text("I will not."));
    let tmux = started(&workspace, &model, "", 80, 30);
    tmux.types("Remember Lyon.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("It waits for you").unwrap();
    decides(&tmux, "n", "Why not?");
    tmux.types("use the other one").unwrap();
    tmux.wait_for("Why not? use the other one").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("I will not.").unwrap();
    let (said, is_error) = (
        model
            .last_request()
            .tool_result_text("toolu_1")
            .unwrap_or_default(),
        model.last_request().messages().len(),
    );
    assert!(said.contains("said: use the other one."), "{said}");
    assert_eq!(is_error, 3);
}

#[test]
fn always_writes_a_rule_that_holds_in_the_next_chat() {
    let workspace = workspace(&[CACHE]);
    let model = Model::start().unwrap();
    model.calls("toolu_1", TOOL, json!({ "command": "set city Lyon" }));
    model.says(Message::new().text("The first."));
    let tmux = started(&workspace, &model, "", 100, 30);
    tmux.types("Remember Lyon.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("It waits for you").unwrap();
    let screen = decides(&tmux, "a", "The first.");
    assert!(screen.contains("Written to"), "{screen}");
    assert!(
        screen.contains("allow = [\"cache-manager_execute(set *)\"]"),
        "{screen}"
    );
    drop(tmux);
    model.calls("toolu_2", TOOL, json!({ "command": "set town Nice" }));
    model.says(Message::new().text("The second."));
    let tmux = started(&workspace, &model, "", 100, 30);
    let screen = says(&tmux, "Remember Nice.", "The second.");
    assert!(!screen.contains("wants to run"), "{screen}");
}

#[test]
fn what_is_typed_meanwhile_waits_and_can_be_taken_back() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let story = Message::new()
        .text("Once upon a time there was a cat.")
        .deltas(4);
    model.says(Reply::from(story).hold(Position::Event(5), "middle"));
    model.says(Message::new().text("A second answer."));
    let tmux = started(&workspace, &model, "", 60, 24);
    tmux.types("Tell me.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    tmux.types("first").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.types("second").unwrap();
    tmux.press(&["Enter"]).unwrap();
    // What came of the answer is shown beside what waits.
    let both_wait = |screen: &str| {
        let shown = ["⧗ first", "⧗ second", "Once"];
        shown.into_iter().all(|shown| screen.contains(shown))
    };
    tmux.wait_until("both wait", both_wait).unwrap();
    tmux.press(&["Up"]).unwrap();
    tmux.wait_for("› second").unwrap();
    tmux.press(&["C-c"]).unwrap();
    model.mock().release("middle");
    let is_over =
        |screen: &str| screen.contains("A second answer.") && screen.contains("/ for commands");
    let screen = tmux.wait_until("both answers", is_over).unwrap();
    assert!(
        screen.contains("there was a cat.") && screen.contains("› first"),
        "{screen}"
    );
    assert_eq!(model.requests().len(), 2, "what was taken back is not said");
}

#[test]
fn escape_stops_and_control_c_twice_leaves_and_says_how_to_come_back() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let story = Message::new()
        .text("Once upon a time there was a cat.")
        .deltas(4);
    model.says(Reply::from(story).hold(Position::Event(5), "middle"));
    let tmux = started(&workspace, &model, "", 100, 24);
    tmux.types("Tell me.").unwrap();
    tmux.press(&["Enter"]).unwrap();
    model.mock().wait_for_gate_blocking("middle").unwrap();
    tmux.wait_for("Once").unwrap();
    tmux.press(&["Escape"]).unwrap();
    let screen = tmux.wait_for("Stopped. What came so far is kept.").unwrap();
    assert!(screen.contains("Once"), "{screen}");
    model.mock().release("middle");
    tmux.wait_for("/ for commands").unwrap();
    tmux.press(&["C-c"]).unwrap();
    tmux.wait_for("Ctrl-C once more leaves").unwrap();
    tmux.press(&["C-c"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let screen = tmux.screen().unwrap();
    let (_, thread) = screen
        .split_once("Go on with it: conjure chat --thread ")
        .unwrap();
    let thread = thread.trim().to_owned();
    drop(tmux);
    let tmux = started(&workspace, &model, &format!("--thread {thread}"), 100, 24);
    let is_shown = |screen: &str| screen.contains("› Tell me.") && screen.contains("Once");
    tmux.wait_until("what was said before", is_shown).unwrap();
}

#[test]
fn several_lines_a_long_paste_and_what_was_typed_before() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    for answer in ["One.", "Two.", "Three."] {
        model.says(Message::new().text(answer));
    }
    let tmux = started(&workspace, &model, "", 80, 24);
    tmux.types("a\\").unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.types("b").unwrap();
    tmux.press(&["M-Enter"]).unwrap();
    says(&tmux, "c", "One.");
    assert!(model.last_request().body.to_string().contains(r"a\nb\nc"));
    let pasted: String = (1..=30).map(|n| format!("pasted {n}\n")).collect();
    tmux.types("look: ").unwrap();
    tmux.paste(&pasted).unwrap();
    tmux.wait_for("look: [30 lines pasted]").unwrap();
    says(&tmux, "", "Two.");
    assert!(
        model
            .last_request()
            .body
            .to_string()
            .contains(r"pasted 29\npasted 30")
    );
    drop(tmux);
    let tmux = started(&workspace, &model, "", 80, 24);
    tmux.press(&["C-r"]).unwrap();
    tmux.types("b").unwrap();
    let screen = tmux.wait_for("search: b").unwrap();
    assert!(screen.contains("› a\n  b\n  c"), "{screen}");
    tmux.press(&["Escape"]).unwrap();
    tmux.press(&["Up", "Up"]).unwrap();
    tmux.wait_for("› a\n  b\n  c").unwrap();
    says(&tmux, "", "Three.");
}

#[test]
fn commands_and_files_are_completed_and_a_file_goes_with_the_message() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("I read it."));
    workspace.write("notes.txt", "the notes\n").unwrap();
    let tmux = started(&workspace, &model, "", 80, 24);
    tmux.types("/co").unwrap();
    let is_whole = |screen: &str| screen.contains("▸ /cost") && screen.ends_with("~/work");
    let screen = tmux.wait_until("what is offered", is_whole).unwrap();
    assert_snapshot!(screen, @r"
    Conjure 0.1.0  /help tells the commands

    › /co
    ▸ /cost     what it cost so far
      /compact  put a summary in place of the older part, as far as the model read…
    anthropic/a-model · ~/work
    ");
    tmux.press(&["Enter"]).unwrap();
    tmux.press(&["Enter"]).unwrap();
    tmux.wait_for("Nothing was spent yet.").unwrap();
    tmux.types("Read @no").unwrap();
    tmux.wait_for("▸ @notes.txt").unwrap();
    tmux.press(&["Tab"]).unwrap();
    tmux.wait_for("› Read @notes.txt").unwrap();
    says(&tmux, "now", "I read it.");
    assert!(model.last_request().body.to_string().contains("the notes"));
}

#[test]
fn a_command_of_the_persons_own_goes_with_the_next_message() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("I see."));
    let tmux = started(&workspace, &model, "", 80, 24);
    let screen = says(&tmux, "!echo own output; exit 3", "exit code 3");
    assert!(screen.contains("\nown output\n"), "{screen}");
    assert_eq!(model.requests().len(), 0);
    says(&tmux, "What was it?", "I see.");
    let said = model.last_request().body.to_string();
    assert!(
        said.contains("own output") && said.contains("What was it?"),
        "{said}"
    );
}

#[test]
fn what_would_steer_the_terminal_is_text() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let hostile =
        "before \u{1b}[2J\u{1b}]0;title\u{7} `\u{1b}[31mcode` \u{202e}after\r\n\nThe end.";
    model.says(Message::new().text(hostile));
    let tmux = started(&workspace, &model, "", 80, 24);
    let screen = says(&tmux, "Hello", "The end.");
    assert!(
        screen.contains("before [2J]0;title [31mcode after"),
        "{screen}"
    );
    assert!(screen.contains("› Hello"), "{screen}");
}
