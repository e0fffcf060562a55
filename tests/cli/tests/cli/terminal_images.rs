//! Images in a chat: shown where the terminal can, told in a line elsewhere, and pasted.

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_kit::{Model, ProgramHandle, Tmux, Workspace};
use conjure_mock_llm::Message;
use serde_json::json;

use crate::stage::{LOCAL, workspace};
use crate::terminal::{chat, says, started};

/// What kitty is told first of an image.
const KITTY: &str = "\u{1b}_Ga=T,f=100,C=1,";
const ITERM2: &str = "\u{1b}]1337;File=inline=1;";

/// The beginning of a PNG, which is as much as is looked at.
fn png() -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x06\0\0\0".to_vec();
    bytes.extend([7; 5000]);
    bytes
}

fn with_plan(plugins: &[&str]) -> Workspace {
    let workspace = workspace(plugins);
    std::fs::write(workspace.work().join("plan.png"), png()).unwrap();
    workspace
}

/// A chat on a terminal that says this of itself.
fn on_terminal(
    workspace: &Workspace,
    model: &Model,
    args: &str,
    says: &[(&str, &str)],
) -> ProgramHandle {
    let mut cli = chat(workspace, model, args);
    for (name, value) in says {
        cli = cli.env(*name, *value);
    }
    let running = cli.on_terminal().start().unwrap();
    running.wait_for_stdout("/ for commands").unwrap();
    running
}

/// What was written to the terminal until the answer was there.
fn shown(mut running: ProgramHandle, text: &str, answer: &str) -> String {
    running.send(&format!("{text}\r")).unwrap();
    running.wait_for_stdout(answer).unwrap()
}

/// The bytes that kitty was given.
fn given_to_kitty(written: &str) -> Vec<u8> {
    let (_, from) = written.split_once(KITTY).unwrap();
    let mut data = String::new();
    for piece in from.split("\u{1b}\\") {
        let (head, part) = piece.split_once(';').unwrap();
        data.push_str(part);
        if head.contains("m=0") {
            break;
        }
    }
    STANDARD.decode(data).unwrap()
}

#[test]
fn an_image_that_is_attached_is_drawn_where_the_terminal_can() {
    let workspace = with_plan(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("A plan."));
    let kitty = on_terminal(&workspace, &model, "", &[("TERM", "xterm-kitty")]);
    let written = shown(kitty, "See @plan.png now", "A plan.");
    assert!(written.contains("[image plan.png 640×480 png 5 KB]"));
    assert_eq!(given_to_kitty(&written), png());
    assert!(model.last_request().body.to_string().contains("image/png"));
    for (says, is_drawn) in [
        (
            &[("TERM", "xterm"), ("TERM_PROGRAM", "iTerm.app")][..],
            true,
        ),
        (&[("TERM", "xterm"), ("CONJURE_IMAGES", "iterm2")][..], true),
        (&[("TERM", "xterm")][..], false),
        (
            &[("TERM", "xterm-kitty"), ("CONJURE_IMAGES", "off")][..],
            false,
        ),
        (
            &[("TERM", "xterm-kitty"), ("TMUX", "/tmp/t,1,0")][..],
            false,
        ),
    ] {
        model.says(Message::new().text("A plan."));
        let terminal = on_terminal(&workspace, &model, "", says);
        let written = shown(terminal, "See @plan.png now", "A plan.");
        assert!(written.contains("[image plan.png 640×480 png 5 KB]"));
        assert_eq!(written.contains(ITERM2), is_drawn, "{says:?}");
        assert!(!written.contains("\u{1b}_G"), "{says:?}");
        if is_drawn {
            let (_, from) = written.split_once("doNotMoveCursor=1:").unwrap();
            let (data, _) = from.split_once('\u{7}').unwrap();
            assert_eq!(STANDARD.decode(data).unwrap(), png());
        }
    }
}

#[test]
fn an_image_that_a_call_made_is_drawn_too_and_its_name_steers_nothing() {
    let workspace = with_plan(&[LOCAL]);
    let model = Model::start().unwrap();
    let made = json!({
        "command": "cp plan.png \"$(printf 'a\\033]0;x\\007.png')\"", "description": "a copy",
    });
    model.calls("toolu_1", "local_bash_tool", made);
    model.says(Message::new().text("It is made."));
    let kitty = on_terminal(&workspace, &model, "--allow *", &[("TERM", "xterm-kitty")]);
    let written = shown(kitty, "Draw.", "It is made.");
    assert_eq!(given_to_kitty(&written), png());
    assert!(written.contains("640×480 png 5 KB]"), "{written:?}");
    assert!(!written.contains("\u{1b}]0;x"), "{written:?}");
}

#[test]
fn in_tmux_an_image_is_a_line_and_a_pasted_path_is_attached() {
    let workspace = with_plan(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("A plan."));
    let cli = chat(&workspace, &model, "").env("KITTY_WINDOW_ID", "1");
    let tmux = Tmux::start(cli, 160, 24).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    let path = workspace.work().join("plan.png");
    tmux.paste(&format!("'{}'", path.display())).unwrap();
    tmux.wait_for(&format!("› @{}", path.display())).unwrap();
    let screen = says(&tmux, "What is it?", "A plan.");
    assert!(
        screen.contains("[image plan.png 640×480 png 5 KB]"),
        "{screen}"
    );
    assert!(
        !screen.contains("AAAA") && !screen.contains("Ga=T"),
        "{screen}"
    );
    assert_eq!(screen.matches("[image plan.png").count(), 1, "{screen}");
    assert_eq!(screen.matches("\n  + ").count(), 1, "{screen}");
    assert!(model.last_request().body.to_string().contains("image/png"));
}

#[test]
fn the_clipboards_image_is_attached_with_a_program_that_gives_it() {
    let workspace = with_plan(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("A plan."));
    let programs = workspace.root().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let script = format!(
        "#!/bin/sh\nexec cat '{}/plan.png'\n",
        workspace.work().display()
    );
    let program = programs.join("wl-paste");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let cli = chat(&workspace, &model, "")
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("WAYLAND_DISPLAY", "wayland-0");
    let tmux = Tmux::start(cli, 160, 24).unwrap();
    tmux.wait_for("/ for commands").unwrap();
    tmux.press(&["C-v"]).unwrap();
    tmux.wait_for("conjure-pasted-").unwrap();
    let screen = says(&tmux, "What is it?", "A plan.");
    assert!(screen.contains("640×480 png 5 KB]"), "{screen}");
    assert!(model.last_request().body.to_string().contains("image/png"));
    // What was kept for it goes with the chat.
    tmux.press(&["C-d"]).unwrap();
    assert_eq!(tmux.wait_for_exit().unwrap(), 0);
    let kept = std::fs::read_dir(workspace.root().join("tmp")).unwrap();
    let kept: Vec<_> = kept.map(|file| file.unwrap().file_name()).collect();
    let is_pasted = |name: &&std::ffi::OsString| name.to_string_lossy().contains("pasted");
    assert_eq!(kept.iter().filter(is_pasted).count(), 0, "{kept:?}");
}

#[test]
fn where_no_program_gives_the_clipboards_image_that_is_said() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let tmux = started(&workspace, &model, "", 120, 24);
    tmux.press(&["C-v"]).unwrap();
    tmux.wait_for("is pasted with `wl-paste`, `xclip` or `pngpaste`")
        .unwrap();
}
