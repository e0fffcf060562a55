//! What a chat on a terminal shows in 60, 100 and 160 columns: answers, reasoning, calls, approvals,
//! lists, menus and the status. What must be there is looked for, whole and in its place; exact screens
//! are in the other tests.

use conjure_kit::{Model, Tmux};
use conjure_mock_llm::{Message, Position, Reply};
use serde_json::json;

use crate::stage::{LOCAL, workspace};
use crate::terminal::{decides, says, started};

/// The columns in which everything is tried.
const WIDTHS: [u16; 3] = [60, 100, 160];
const ROWS: u16 = 50;

/// Prose that fits into no line of a narrow terminal.
const PROSE: &str = "The directory has three files and a long line of words that has to be broken \
                     where the terminal ends, whichever width that terminal may have today.";

/// A screen of so many columns.
struct ShownScreen {
    columns: u16,
    text: String,
}

impl ShownScreen {
    /// The screen, once it is so.
    fn once(tmux: &Tmux, columns: u16, what: &str, is_so: impl Fn(&str) -> bool) -> Self {
        let text = tmux.wait_until(what, is_so).unwrap();
        Self::of(tmux, columns, text)
    }

    /// The screen as it is, checked to fit.
    fn of(tmux: &Tmux, columns: u16, text: String) -> Self {
        let screen = Self { columns, text };
        screen.assert_fits(tmux);
        screen
    }

    /// The program broke every line itself: what the terminal has to break is torn within words.
    fn assert_fits(&self, tmux: &Tmux) {
        for line in tmux.unwrapped().unwrap().lines() {
            let width = line.chars().count();
            assert!(width <= usize::from(self.columns), "{line:?}\n{self}");
        }
    }

    /// Every word of a text stands there, and none is torn.
    fn assert_words(&self, text: &str) {
        for word in text.split_whitespace() {
            let mut shown = self.text.split_whitespace();
            assert!(shown.any(|shown| shown == word), "{word:?}\n{self}");
        }
    }

    /// Asserts that this stands on one line.
    fn assert_has(&self, part: &str) {
        assert!(
            self.text.lines().any(|line| line.contains(part)),
            "{part:?}\n{self}"
        );
    }

    fn assert_has_not(&self, part: &str) {
        assert!(!self.text.contains(part), "{part:?}\n{self}");
    }

    /// The lines that begin so.
    fn beginning_with<'a>(&'a self, begin: &'a str) -> impl Iterator<Item = &'a str> {
        self.text
            .lines()
            .filter(move |line| line.starts_with(begin))
    }
}

impl std::fmt::Display for ShownScreen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "in {} columns:\n{}", self.columns, self.text)
    }
}

#[test]
fn an_answer_with_a_table_code_and_a_link_is_whole_above_a_status() {
    let answer = format!(
        "# Findings\n\n{PROSE}\n\nSee the [page](https://example.org/page) on it.\n\n```rust\n\
         fn main() {{\n    println!(\"Hello\"); // says hello\n}}\n```\n\n\
         | name | size | what it is |\n|:--|--:|---|\n| notes.txt | 120 | notes of a meeting |\n\
         | data.csv | 45000 | numbers that nobody has looked at for a long time |\n\nThe end."
    );
    for columns in WIDTHS {
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        model.says(Message::new().text(&answer).deltas(3));
        let tmux = started(&workspace, &model, "", columns, ROWS);
        says(&tmux, "What is here?", "The end.");
        let is_whole = |screen: &str| screen.ends_with("tokens");
        let screen = ShownScreen::once(&tmux, columns, "the status", is_whole);
        screen.assert_words(PROSE);
        screen.assert_words("numbers that nobody has looked at for a long time");
        for part in [
            "› What is here?",
            "page (https://example.org/page) on it.",
            "      println!(\"Hello\"); // says hello",
            "notes.txt │   120 │ notes of a meeting",
            "data.csv  │ 45000 │ numbers that nobody",
        ] {
            screen.assert_has(part);
        }
        for raw in ["# Findings", "```", "|:--", "](https"] {
            screen.assert_has_not(raw);
        }
        let status = screen.text.lines().last().unwrap();
        assert!(status.starts_with("anthropic/a-model · ~/work"), "{screen}");
    }
}

#[test]
fn reasoning_is_one_line_and_opens_with_whole_words() {
    let thought = "The person wants a number. ".repeat(12);
    for columns in WIDTHS {
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        model.says(Message::new().reasoning(&thought).text("It is 7."));
        let tmux = started(&workspace, &model, "", columns, ROWS);
        let screen = ShownScreen::of(&tmux, columns, says(&tmux, "Which?", "It is 7."));
        let folded: Vec<&str> = screen.beginning_with("∴ ").collect();
        assert_eq!(folded.len(), 1, "{screen}");
        assert!(folded[0].starts_with("∴ Thought"), "{screen}");
        assert!(folded[0].ends_with("(Ctrl-T: the last turn's)"), "{screen}");
        tmux.press(&["C-t"]).unwrap();
        let is_open = |screen: &str| {
            let shown = screen.lines().filter_map(|line| line.strip_prefix("∴ "));
            let shown = shown.filter(|line| !line.starts_with("Thought"));
            shown.collect::<Vec<_>>().join(" ") == thought.trim()
        };
        ShownScreen::once(&tmux, columns, "the reasoning", is_open);
    }
}

#[test]
fn a_call_grows_with_what_it_says_and_folds_when_it_is_over() {
    let command = "for n in 1 2 3 4 5; do echo line $n of what the command says; done; \
                   until [ -e gate ]; do sleep 0.1; done";
    for columns in WIDTHS {
        let workspace = workspace(&[LOCAL]);
        let model = Model::start().unwrap();
        let call = json!({ "command": command, "description": "" });
        model.calls("toolu_1", "local_bash_tool", call);
        model.says(Message::new().text("It is over."));
        let args = "--executor local --allow local_*";
        let tmux = started(&workspace, &model, args, columns, ROWS);
        tmux.types("Run it.").unwrap();
        tmux.press(&["Enter"]).unwrap();
        let grows = |screen: &str| screen.contains("┊ line 5 of what the command says");
        let screen = ShownScreen::once(&tmux, columns, "what it says", grows);
        screen.assert_has("local_bash_tool for n in 1 2");
        assert_eq!(
            screen.text.matches("local_bash_tool").count(),
            1,
            "{screen}"
        );
        workspace.write("gate", "").unwrap();
        let is_over = |screen: &str| screen.contains("It is over.") && screen.ends_with("tokens");
        let screen = ShownScreen::once(&tmux, columns, "the end of it", is_over);
        let calls: Vec<&str> = screen.beginning_with("✓ local_bash_tool ").collect();
        assert_eq!(calls.len(), 1, "{screen}");
        screen.assert_has("line 1 of what the command says");
        screen.assert_has_not("┊");
    }
}

#[test]
fn an_approval_shows_the_difference_and_every_choice() {
    for columns in WIDTHS {
        let workspace = workspace(&[LOCAL]);
        let model = Model::start().unwrap();
        workspace.write("a.txt", "one\nold\n").unwrap();
        let text = format!("one\nnew\n{PROSE}\n");
        let input = json!({ "path": "a.txt", "file_text": text, "description": "" });
        model.calls("toolu_1", "local_create_file", input);
        model.says(Message::new().text("It is written."));
        let tmux = started(&workspace, &model, "--ask *", columns, ROWS);
        tmux.types("Write it.").unwrap();
        tmux.press(&["Enter"]).unwrap();
        let is_asked =
            |screen: &str| screen.contains("It waits for you.") && screen.ends_with("~/work");
        let screen = ShownScreen::once(&tmux, columns, "the question", is_asked);
        screen.assert_words("local_create_file wants to run");
        for part in [
            "│ It overwrites the file that is there:",
            "│   one",
            "│ - old",
            "│ + new",
            "  y  yes, once",
            "  n  no, and why",
        ] {
            screen.assert_has(part);
        }
        let written = decides(&tmux, "y", "It is written.");
        let screen = ShownScreen::of(&tmux, columns, written);
        screen.assert_has("↳ yes, once");
        assert_eq!(screen.beginning_with("✓ local_create_file").count(), 1);
    }
}

#[test]
fn lists_of_conversations_and_models_have_a_line_for_each() {
    for columns in WIDTHS {
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        model.says(Message::new().text("An answer."));
        let tmux = started(&workspace, &model, "", columns, ROWS);
        says(&tmux, "A question.", "An answer.");
        for (command, title, chosen) in [
            ("/resume", "Go on with: ", "▸ Question"),
            ("/model", "Go on with the model: ", "▸ anthropic/"),
        ] {
            tmux.types(command).unwrap();
            tmux.press(&["Enter"]).unwrap();
            let is_listed = |screen: &str| {
                screen.contains(chosen) && screen.contains("Enter picks, Esc leaves")
            };
            let screen = ShownScreen::once(&tmux, columns, command, is_listed);
            screen.assert_has(title.trim_end());
            screen.assert_has("; type to search, Enter picks, Esc leaves");
            assert_eq!(screen.beginning_with("▸ ").count(), 1, "{screen}");
            tmux.press(&["Escape"]).unwrap();
            let is_left =
                |screen: &str| !screen.contains("Esc leaves") && screen.contains("/ for commands");
            tmux.wait_until("no list", is_left).unwrap();
        }
    }
}

#[test]
fn what_is_queued_has_a_line_each_however_long_it_is() {
    for columns in WIDTHS {
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        let story = Message::new().text("Once upon a time there was a cat.");
        let story = Reply::from(story.deltas(4));
        model.says(story.hold(Position::Event(5), "middle"));
        model.says(Message::new().text("The second."));
        model.says(Message::new().text("The third."));
        let tmux = started(&workspace, &model, "", columns, ROWS);
        tmux.types("Tell me.").unwrap();
        tmux.press(&["Enter"]).unwrap();
        model.mock().wait_for_gate_blocking("middle").unwrap();
        for text in ["first", PROSE] {
            tmux.types(text).unwrap();
            tmux.press(&["Enter"]).unwrap();
        }
        let hint = "  waits for the answer (Up takes it back)";
        let is_queued = |screen: &str| screen.matches("⧗ ").count() == 2 && screen.contains(hint);
        let screen = ShownScreen::once(&tmux, columns, "the queue", is_queued);
        screen.assert_has("⧗ first");
        screen.assert_has("⧗ The directory has three files");
        let long = screen.beginning_with("⧗ The").next().unwrap();
        let is_cut = PROSE.len() + 2 > usize::from(columns);
        assert_eq!(long.ends_with('…'), is_cut, "{screen}");
        model.mock().release("middle");
        let is_over = |screen: &str| screen.contains("The third.") && !screen.contains('⧗');
        ShownScreen::once(&tmux, columns, "all answers", is_over);
    }
}

#[test]
fn menus_have_a_line_for_each_choice() {
    for columns in WIDTHS {
        let workspace = workspace(&[]);
        let model = Model::start().unwrap();
        for name in ["notes.txt", "notes-of-a-meeting-with-a-long-name.txt"] {
            workspace.write(name, "the notes\n").unwrap();
        }
        let tmux = started(&workspace, &model, "", columns, ROWS);
        for (typed, chosen) in [("/", "▸ /"), ("@notes", "▸ @notes")] {
            tmux.types(typed).unwrap();
            let is_offered = |screen: &str| screen.contains(chosen);
            let screen = ShownScreen::once(&tmux, columns, typed, is_offered);
            assert_eq!(screen.beginning_with(chosen).count(), 1, "{screen}");
            let other = chosen.replace('▸', " ");
            let others = screen.beginning_with(&other).count();
            assert!(others > 0, "the others are offered too: {screen}");
            screen.assert_has(&format!("› {typed}"));
            tmux.press(&["C-u"]).unwrap();
            let is_free = |screen: &str| screen.contains("/ for commands");
            tmux.wait_until("nothing offered", is_free).unwrap();
        }
    }
}
