//! `conjure plugin list`, `inspect` and `check`.

use std::fs;
use std::path::Path;

use conjure_kit::{Cli, Model, Redactor, Workspace, build_plugin, conjure_bin};
use conjure_mock_llm::Message;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::stage::{CACHE, LOCAL, asks, conjure, json, workspace};

fn library(workspace: &Workspace, package: &str) -> String {
    workspace.add_plugin(package).unwrap().display().to_string()
}

/// What differs from one compiler and one build to another.
fn redact(workspace: &Workspace) -> Redactor {
    Redactor::for_workspace(workspace)
        .pattern(r"rustc \d[^\n\x22]*", "rustc [VERSION]")
        .pattern(r"\d+(\.\d+)? MB", "[SIZE]")
        .pattern(r#""size": \d+"#, r#""size": 0"#)
}

#[test]
fn the_list_shows_what_is_loaded_and_what_failed() {
    let workspace = workspace(&[CACHE, LOCAL]);
    fs::write(workspace.plugins().join("libbroken.so"), "no library").unwrap();
    let output = conjure(&workspace, "plugin list").run().unwrap();
    assert_snapshot!(output.snapshot(), @r#"
    exit code 0
    --- stdout
    PLUGIN         VERSION  KIND      STATE   RUNS        WHY THERE     TOOLS  FILE
    cache-manager  0.1.0    skill     loaded  process     not trusted   2      [WORKSPACE]/plugins/libconjure_skill_cache_manager.so
    local          0.1.0    executor  loaded  in-process  trusted file  -      [WORKSPACE]/plugins/libconjure_backend_local.so
    -              -        -         failed  -           -             -      [WORKSPACE]/plugins/libbroken.so

    failed: [WORKSPACE]/plugins/libbroken.so: is a text file, and a plugin is an ELF shared library. Name a library that was built with `crate-type = ["cdylib"]`
    --- stderr
     WARN plugin: not loaded: [WORKSPACE]/plugins/libbroken.so: is a text file, and a plugin is an ELF shared library. Name a library that was built with `crate-type = ["cdylib"]`
    "#);
}

#[test]
fn a_trusted_plugin_runs_in_the_host_where_others_do_not() {
    let workspace = workspace(&[CACHE]);
    let run = |args: &str| conjure(&workspace, args).run().unwrap();
    let isolation = || {
        let list = conjure(&workspace, "plugin list --json").env("CONJURE_ISOLATION", "process");
        let plugin = &json(&list.run().unwrap())["plugins"][0];
        let because = plugin["isolation_reason"].as_str().unwrap();
        format!("{}: {because}", plugin["isolation"].as_str().unwrap())
    };
    let file = workspace
        .plugins()
        .join("libconjure_skill_cache_manager.so");
    let file = file.display();
    assert_eq!(isolation(), "process: not trusted");
    assert_eq!(
        run("plugin trust").stdout,
        "No plugin is trusted beside those that come with the program.\n"
    );
    let trusted = run(&format!("plugin trust {file}"));
    assert!(
        trusted.stdout.starts_with("cache-manager 0.1.0 (")
            && trusted
                .stdout
                .ends_with("): runs in the host's process from when it is loaded next\n"),
        "{trusted:?}"
    );
    let again = run(&format!("plugin trust {file}"));
    assert!(again.stdout.contains("was trusted already"), "{again:?}");
    assert_eq!(isolation(), "in-process: trusted file");
    let listed = json(&run("plugin trust --json"));
    assert_eq!(listed["trusted"][0]["name"], "cache-manager 0.1.0");
    let digest = listed["trusted"][0]["sha256"].as_str().unwrap().to_owned();
    let removed = run(&format!("plugin untrust {}", &digest[..8]));
    assert!(removed.stdout.contains("is trusted no more"), "{removed:?}");
    assert_eq!(isolation(), "process: not trusted");
    let unknown = run(&format!("plugin untrust {digest}"));
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("is not one of the trusted plugins"));
    let missing = run("plugin trust Cargo.toml");
    assert_eq!(missing.code, Some(2), "{missing:?}");
}

#[test]
fn what_lies_in_plugins_beside_the_program_is_trusted_and_what_lies_beside_it_alone_is_not() {
    let workspace = workspace(&[]);
    let installed = workspace.root().join("installed");
    fs::create_dir_all(installed.join("plugins")).unwrap();
    let program = installed.join("conjure");
    fs::copy(conjure_bin().unwrap(), &program).unwrap();
    let library = build_plugin(CACHE).unwrap();
    let isolation = |dir: &Path| {
        let file = dir.join(library.file_name().unwrap());
        fs::copy(&library, &file).unwrap();
        let file = file.display().to_string();
        let listed = Cli::program(&program, ["plugin", "list", "--json", "--plugin", &file])
            .workspace(&workspace)
            .env("CONJURE_ISOLATION", "process")
            .run()
            .unwrap();
        fs::remove_file(&file).unwrap();
        let plugin = &json(&listed)["plugins"][0];
        plugin["isolation"].as_str().unwrap().to_owned()
    };
    assert_eq!(isolation(&installed), "process");
    assert_eq!(isolation(&installed.join("plugins")), "in-process");
}

#[test]
fn a_plugin_is_added_removed_and_put_back_while_a_conversation_runs() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    let mut chat = asks(&workspace, &model, "chat --json --allow *", "")
        .start()
        .unwrap();
    model.says(Message::new().text("after nothing"));
    chat.send_line("Hi.").unwrap();
    chat.wait_for_stdout("after nothing").unwrap();
    let run = |args: &str| conjure(&workspace, args).run().unwrap();
    let said = |args: &str, what: &str| {
        let output = run(args);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stdout.contains(what), "{output:?}");
    };
    let library = build_plugin(CACHE).unwrap();
    let add = format!("plugin add {}", library.display());
    said("plugin history", "No plugin was added here yet");
    said(&add, "cache-manager 0.1.0 is new");
    chat.wait_for_stdout("new: cache-manager_execute, cache-manager_read")
        .unwrap();
    said(&add, "this very build is installed already");
    said("plugin remove cache-manager", "0.1.0 removed");
    chat.wait_for_stdout("gone: cache-manager_execute, cache-manager_read")
        .unwrap();
    let unknown = run("plugin remove cache-manager");
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(
        unknown.stderr.contains("installed are: none"),
        "{unknown:?}"
    );
    said("plugin rollback cache-manager", "0.1.0 is back");
    let is_back = |seen: &str| seen.matches("new: cache-manager_execute").count() == 2;
    chat.wait_until_stdout("that it is back", is_back).unwrap();
    said("plugin reload cache-manager", "is loaded again");
    model.calls(
        "toolu_1",
        "cache-manager_execute",
        json!({ "command": "set k v" }),
    );
    model.says(Message::new().text("after the call"));
    chat.send_line("Go on.").unwrap();
    chat.wait_for_stdout("after the call").unwrap();
    assert_eq!(
        model.last_request().tool_result_text("toolu_1").unwrap(),
        "stored"
    );
    let listed = json(&run("plugin history cache-manager --json"));
    let changes = listed["changes"].as_array().unwrap();
    let actions: Vec<&Value> = changes.iter().map(|change| &change["action"]).collect();
    assert_eq!(actions, ["add", "remove", "rollback"]);
    let table = run("plugin history").stdout;
    assert_eq!(table.lines().count(), 4, "{table}");
    let missing = run("plugin add Cargo.toml");
    assert_eq!(missing.code, Some(2), "{missing:?}");
    chat.close_stdin();
    assert_eq!(chat.wait().unwrap().code, Some(0));
}

#[test]
fn a_plugin_that_hosts_have_from_elsewhere_is_not_added_once_more() {
    let workspace = workspace(&[CACHE]);
    let library = build_plugin(CACHE).unwrap();
    let add = format!("plugin add {}", library.display());
    let refused = conjure(&workspace, &add).run().unwrap();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let there = "libconjure_skill_cache_manager.so already";
    assert!(refused.stdout.contains(there), "{refused:?}");
    let history = conjure(&workspace, "plugin history").run().unwrap();
    assert!(
        history.stdout.contains("No plugin was added"),
        "{history:?}"
    );
}

#[test]
fn programs_get_the_list_as_json() {
    let workspace = workspace(&[CACHE]);
    fs::write(workspace.plugins().join("libbroken.so"), "no library").unwrap();
    let output = conjure(&workspace, "plugin list --json").run().unwrap();
    let mut printed = json(&output);
    printed["plugins"][0]["tools"] = Value::from("…");
    // What the kernel of this machine lacks is another matter.
    printed["unconfined"] = Value::Array(Vec::new());
    let text = serde_json::to_string_pretty(&printed).unwrap();
    assert_snapshot!(redact(&workspace).apply(&text), @r#"
    {
      "plugins": [
        {
          "name": "cache-manager",
          "version": "0.1.0",
          "kind": "skill",
          "description": "Keeps values under keys for as long as the session lives.",
          "state": "loaded",
          "reason": null,
          "file": "[WORKSPACE]/plugins/libconjure_skill_cache_manager.so",
          "sha256": "[HASH]",
          "pinned": "in a directory of the user's own",
          "isolation": "process",
          "isolation_reason": "not trusted",
          "worker_ends": 0,
          "rustc": "rustc [VERSION]",
          "sdk": "0.1.0",
          "command": null,
          "permissions": {},
          "capabilities": [
            "conjure.ping/1",
            "stream/1",
            "skill.execute/1",
            "skill.read/1",
            "state.export/1",
            "state.import/1"
          ],
          "tools": "…",
          "needs_config": []
        }
      ],
      "failed": [
        {
          "file": "[WORKSPACE]/plugins/libbroken.so",
          "state": "failed",
          "reason": "[WORKSPACE]/plugins/libbroken.so: is a text file, and a plugin is an ELF shared library. Name a library that was built with `crate-type = [\"cdylib\"]`",
          "kept": null
        }
      ],
      "unconfined": []
    }
    "#);
}

#[test]
fn an_empty_list_says_where_it_looked() {
    let workspace = workspace(&[]);
    let output = conjure(&workspace, "plugin list --plugin-dir here")
        .run()
        .unwrap();
    let redact = Redactor::for_workspace(&workspace).pattern(
        r"\[REPO\]/target/\S*plugins|/\S+/debug/plugins",
        "[PROGRAM]/plugins",
    );
    assert_snapshot!(redact.apply(&output.snapshot()), @r"
    exit code 0
    --- stdout
    No plugins. Looked in:
      here
      [WORKSPACE]/plugins
      [PROGRAM]/plugins
      [WORKSPACE]/home/.local/share/conjure/plugins
    --- stderr
    ");
}

#[test]
fn a_file_is_inspected_without_running_it() {
    let workspace = workspace(&[]);
    let library = library(&workspace, "conjure-misbehaving");
    let touched = workspace.work().join("touched");
    let inspect = |more: &str| {
        conjure(&workspace, &format!("plugin show {library}{more}"))
            .env("CONJURE_MISBEHAVE_TOUCH", &touched)
            // A worker does not have the variable.
            .env("CONJURE_ISOLATION", "in-process")
            .run()
            .unwrap()
    };
    assert_snapshot!(redact(&workspace).apply(&inspect("").snapshot()), @r"
    exit code 0
    --- stdout
    misbehaving 0.1.0
      kind      skill
      file      [WORKSPACE]/plugins/libconjure_misbehaving.so
      size      [SIZE]
      sha256    [HASH]
      ABI       1.0
      SDK       0.1.0
      compiler  rustc [VERSION]
      The manifest is known once the plugin was loaded: `--load` (runs its code).
    --- stderr
    ");
    assert!(!touched.exists(), "no code of it ran");
    let loaded = inspect(" --load");
    assert!(
        loaded.stdout.contains("Capabilities") && touched.exists(),
        "{loaded:?}"
    );
    // From now on its manifest is known by its content.
    let known = inspect("");
    assert!(known.stdout.contains("Capabilities"), "{known:?}");
}

#[test]
fn a_plugin_that_must_be_configured_is_no_broken_one() {
    let workspace = workspace(&[]);
    let library = build_plugin("conjure-backend-ssh").unwrap();
    let run = |args: &str| conjure(&workspace, args).run().unwrap();
    let check = run(&format!("plugin check {}", library.display()));
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(
        check.stdout.contains("\n  config    must have `host`\n"),
        "{check:?}"
    );
    let added = run(&format!("plugin add {} --yes", library.display()));
    assert_eq!(added.code, Some(0), "{added:?}");
    let told = json(&run("plugin list --json"));
    assert_eq!(
        told["plugins"][0]["needs_config"],
        serde_json::json!(["host"])
    );
    let list = run("plugin list");
    assert!(
        list.stdout
            .ends_with("\nneeds configuration: ssh 0.1.0: `host`\n"),
        "{list:?}"
    );
    assert!(!list.stdout.contains("failed"), "{list:?}");
    let listed = json(&run("plugin list --json"));
    assert_eq!(listed["plugins"][0]["state"], "loaded");
    assert_eq!(listed["failed"], json!([]));
}

#[test]
fn programs_get_the_header_as_json() {
    let workspace = workspace(&[]);
    let library = library(&workspace, LOCAL);
    let output = conjure(&workspace, &format!("plugin show --json {library}"))
        .run()
        .unwrap();
    assert_snapshot!(redact(&workspace).apply(&output.stdout), @r#"
    {
      "file": "[WORKSPACE]/plugins/libconjure_backend_local.so",
      "sha256": "[HASH]",
      "size": 0,
      "header": {
        "kind": "executor",
        "name": "local",
        "version": "0.1.0",
        "abi": "1.0",
        "pointer_size": 8,
        "panic_unwind": true,
        "sdk": "0.1.0",
        "rustc": "rustc [VERSION]"
      },
      "description": null,
      "manifest": null
    }
    "#);
}

#[test]
fn a_plugin_is_checked() {
    let workspace = workspace(&[]);
    let mut story = String::new();
    for package in [CACHE, LOCAL] {
        let library = library(&workspace, package);
        let output = conjure(&workspace, &format!("plugin check {library}"))
            .run()
            .unwrap();
        story.push_str(&output.snapshot());
    }
    assert_snapshot!(redact(&workspace).apply(&story), @r"
    exit code 0
    --- stdout
    ok cache-manager 0.1.0 (skill): a host takes it
      tools     2, which every wire takes
      size      [SIZE], [SIZE] of it for debuggers
      exports   none but the two of the SDK
      ABI       1.0
      SDK       0.1.0
      compiler  rustc [VERSION]
      licence   not known: its crate is not around the file
    --- stderr
    exit code 0
    --- stdout
    ok local 0.1.0 (executor): a host takes it
      tools     those of every executor
      size      [SIZE], [SIZE] of it for debuggers
      exports   none but the two of the SDK
      ABI       1.0
      SDK       0.1.0
      compiler  rustc [VERSION]
      licence   not known: its crate is not around the file
    warning: size: it has [SIZE], [SIZE] of them for debuggers: build what you give away with `cargo build --release` and `strip = true` in `[profile.release]`
    --- stderr
    ");
}

#[test]
fn what_is_refused_is_told_with_the_remedy() {
    let workspace = workspace(&[]);
    workspace.write("text.so", "just text\n").unwrap();
    workspace.write("empty.so", "").unwrap();
    let whole = fs::read(library(&workspace, CACHE)).unwrap();
    workspace
        .write("half.so", &whole[..whole.len() / 2])
        .unwrap();
    std::os::unix::fs::symlink("text.so", workspace.work().join("link.so")).unwrap();
    let mut story = String::new();
    for file in ["text.so", "empty.so", "half.so", "link.so", "."] {
        let output = conjure(&workspace, &format!("plugin check {file}"))
            .run()
            .unwrap();
        assert_eq!(output.code, Some(1), "{file}: {output:?}");
        story.push_str(&format!("$ conjure plugin check {file}\n{}", output.stdout));
    }
    let redact = redact(&workspace)
        .pattern(r"\d{4,} bytes", "[N] bytes")
        .pattern(r"(needs|has) \d{4,}", "$1 [N]")
        .pattern(r"\d{6,}", "[N]");
    assert_snapshot!(redact.apply(&story), @r#"
    $ conjure plugin check text.so
    refused: text.so: is a text file, and a plugin is an ELF shared library. Name a library that was built with `crate-type = ["cdylib"]`
    $ conjure plugin check empty.so
    refused: empty.so: is empty, and a plugin is an ELF shared library. Name a library that was built with `crate-type = ["cdylib"]`
    $ conjure plugin check half.so
    refused: half.so: is not complete: Invalid ELF section header offset/size/alignment. Copy or build it again, best under another name that is then renamed
    $ conjure plugin check link.so
    refused: link.so: is a symbolic link, and a plugin is a regular file. Name the library file itself ([WORKSPACE]/work/text.so)
    $ conjure plugin check .
    refused: .: is a directory, and a plugin is a regular file. Name the library file itself
    "#);
}

#[test]
fn a_named_file_is_used_beside_the_directories() {
    let workspace = workspace(&[LOCAL]);
    let library = conjure_kit::build_plugin(CACHE).unwrap();
    let args = format!("plugin list --json --plugin {}", library.display());
    let printed = json(&conjure(&workspace, &args).run().unwrap());
    let pinned: Vec<String> = printed["plugins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|plugin| format!("{} {}", plugin["name"], plugin["pinned"]))
        .collect();
    assert_eq!(
        pinned,
        [
            "\"cache-manager\" \"named by --plugin\"",
            "\"local\" \"in a directory of the user's own\"",
        ]
    );
}
