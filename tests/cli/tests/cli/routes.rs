//! `conjure routes`: the routing table.

use conjure_kit::{MockMcp, Model};
use insta::assert_snapshot;

use crate::mcp::{place, program, script};
use crate::session::{done, stage};
use crate::stage::{CACHE, LOCAL, conjure, json, workspace};

#[test]
fn the_table_shows_who_runs_what() {
    let workspace = workspace(&[CACHE, LOCAL]);
    workspace
        .write_skill("notes", "notes", "Keeps notes.", "Body")
        .unwrap();
    let output = conjure(&workspace, "routes --skill notes").run().unwrap();
    let redact = conjure_kit::Redactor::for_workspace(&workspace)
        .pattern(r"(stateful|stateless)  \d+", "$1  [N]");
    assert_snapshot!(redact.apply(&output.snapshot()), @r"
    exit code 0
    --- stdout
    TOOL                   BACKEND  SKILL          PLUGIN               MODE      TOKENS
    cache-manager_execute  native   cache-manager  cache-manager 0.1.0  stateful  [N]
    cache-manager_read     native   cache-manager  cache-manager 0.1.0  stateful  [N]
    notes_bash_tool        local    notes          local 0.1.0          stateful  [N]
    notes_create_file      local    notes          local 0.1.0          stateful  [N]
    notes_str_replace      local    notes          local 0.1.0          stateful  [N]
    notes_view             local    notes          local 0.1.0          stateful  [N]
    --- stderr
    ");
}

#[test]
fn without_plugins_it_says_what_to_do() {
    let workspace = workspace(&[]);
    assert_snapshot!(conjure(&workspace, "routes").run().unwrap().snapshot(), @r"
    exit code 0
    --- stdout
    There are no tools. Put plugins into a plugin directory, or name one with `--plugin`.
    --- stderr
    ");
}

#[test]
fn servers_that_give_no_tools_are_told_with_the_reason_and_what_to_do() {
    let login = MockMcp::over_http(&["oauth"]).unwrap();
    let mut servers = vec![
        ("dead", script("exit 3")),
        ("o", format!("url = \"{}\"", login.url())),
    ];
    let told = [
        "MCP server `dead` of backend `mcp` is not connected",
        "it ended before the handshake was over",
        "what to do: run it by hand to see more: sh -c 'exit 3'",
        "MCP server `o` of backend `mcp` is not connected (needs_auth)",
        "what to do: conjure mcp login o",
    ];
    let workspace = place(&servers);
    let nothing = conjure(&workspace, "routes --config session.toml");
    let nothing = nothing.run().unwrap();
    assert_eq!(nothing.code, Some(0), "{nothing:?}");
    assert_eq!(nothing.stdout, "There are no tools.\n");
    servers.push(("good", program("")));
    let workspace = place(&servers);
    let beside = conjure(&workspace, "routes --config session.toml");
    let beside = beside.run().unwrap();
    assert!(beside.stdout.contains("good_echo"), "{beside:?}");
    for told in told {
        assert!(nothing.stderr.contains(told), "{told}: {nothing:?}");
        assert!(beside.stderr.contains(told), "{told}: {beside:?}");
    }
    assert!(!beside.stderr.contains("`good`"), "{beside:?}");
    let printed = conjure(&workspace, "routes --config session.toml --json");
    let printed = json(&printed.run().unwrap());
    let unavailable = printed["unavailable"].as_array().unwrap();
    assert_eq!(unavailable.len(), 2, "{printed}");
    let o = unavailable.iter().find(|it| it["server"] == "o").unwrap();
    assert_eq!(
        (&o["backend"], &o["state"]),
        (&"mcp".into(), &"needs_auth".into())
    );
    assert_eq!(o["remedy"], "conjure mcp login o");
}

#[test]
fn a_skill_folder_needs_an_executor() {
    let workspace = workspace(&[]);
    workspace
        .write_skill("notes", "notes", "Keeps notes.", "Body")
        .unwrap();
    let output = conjure(&workspace, "routes --skill notes").run().unwrap();
    assert_snapshot!(output.snapshot(), @r"
    exit code 2
    --- stdout
    --- stderr
    error: a skill folder needs an executor
    hint: name one with `--executor`, or put the plugin `local` into a plugin directory (`conjure plugin list` shows them)
    ");
}

#[test]
fn a_clash_names_both_and_the_way_out() {
    let workspace = workspace(&[LOCAL]);
    workspace
        .write_skill("notes", "notes", "Keeps notes.", "Body")
        .unwrap();
    let file = "[[backend]]\nkind = \"local\"\nskills = [\"notes\"]\nonly = [\"view\"]\n\
                [[backend]]\nkind = \"local\"\nname = \"second\"\nskills = [\"notes\"]\n\
                only = [\"view\"]\n";
    workspace.write("session.toml", file).unwrap();
    let output = conjure(&workspace, "routes --config session.toml")
        .run()
        .unwrap();
    assert_snapshot!(output.snapshot(), @r#"
    exit code 2
    --- stdout
    --- stderr
    error: 2 tools would have the public name `notes_view`: `view` of `notes` on backend `local` ([WORKSPACE]/work/notes) and `view` of `notes` on backend `second` ([WORKSPACE]/work/notes). Give one of them another name with the alias `{ backend = "second", skill = "notes", name = "notes-second" }`, or choose between the backends with `prefer = ["local", "second"]`.
    "#);
    let alias = "[[routing.aliases]]\nbackend = \"second\"\nskill = \"notes\"\nname = \"again\"\n";
    workspace
        .write("session.toml", format!("{file}{alias}"))
        .unwrap();
    let output = conjure(&workspace, "routes --config session.toml --json")
        .run()
        .unwrap();
    let printed = json(&output);
    let routes: Vec<String> = printed["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| format!("{} on {}", route["name"], route["backend"]))
        .collect();
    assert_eq!(
        routes,
        [
            "\"notes_view\" on \"local\"",
            "\"again_view\" on \"second\""
        ]
    );
}

#[test]
fn two_skill_folders_of_one_name_are_told_in_one_paragraph() {
    let workspace = workspace(&[LOCAL]);
    for dir in ["one/notes", "other/notes"] {
        workspace
            .write_skill(dir, "notes", "Keeps notes.", "Body")
            .unwrap();
    }
    let args = "routes --skill one/notes --skill other/notes";
    let output = conjure(&workspace, args).run().unwrap();
    assert_eq!(output.code, Some(2), "{output:?}");
    for part in ["one/notes", "other/notes", "such as `notes-2`"] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    assert!(!output.stderr.contains("plugin"), "{output:?}");
    assert_eq!(output.stderr.trim_end().lines().count(), 1, "{output:?}");
}

#[test]
fn programs_get_everything_as_json() {
    let workspace = workspace(&[CACHE]);
    let output = conjure(&workspace, "routes --json").run().unwrap();
    let redact = conjure_kit::Redactor::for_workspace(&workspace)
        .pattern(r#""schema_tokens": \d+"#, r#""schema_tokens": 0"#);
    assert_snapshot!(redact.apply(&output.snapshot()), @r#"
    exit code 0
    --- stdout
    {
      "version": 1,
      "routes": [
        {
          "name": "cache-manager_execute",
          "backend": "native",
          "kind": "native",
          "skill": "cache-manager",
          "tool": "execute",
          "operation": "skill.execute",
          "plugin": "cache-manager",
          "version": "0.1.0",
          "file": "[WORKSPACE]/plugins/libconjure_skill_cache_manager.so",
          "mode": "stateful",
          "effects": "write",
          "schema_tokens": 0,
          "description": "Runs a command. Grammar: clear | set K V | get K | delete K | list [PREFIX]",
          "input_schema": {
            "type": "object",
            "properties": {
              "command": {
                "type": "string",
                "description": "The command, in this skill's grammar"
              }
            },
            "required": [
              "command"
            ]
          }
        },
        {
          "name": "cache-manager_read",
          "backend": "native",
          "kind": "native",
          "skill": "cache-manager",
          "tool": "read",
          "operation": "skill.read",
          "plugin": "cache-manager",
          "version": "0.1.0",
          "file": "[WORKSPACE]/plugins/libconjure_skill_cache_manager.so",
          "mode": "stateful",
          "effects": "read",
          "schema_tokens": 0,
          "description": "Reads: `stats`: hits, misses, entries, bytes",
          "input_schema": {
            "type": "object",
            "properties": {
              "path": {
                "type": "string",
                "description": "What to read"
              },
              "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "How many units to skip"
              },
              "limit": {
                "type": "integer",
                "minimum": 0,
                "description": "How many units at the most"
              }
            },
            "required": [
              "path"
            ]
          }
        }
      ],
      "shadowed": [],
      "quarantined": [],
      "server_tools": [],
      "instructions": [],
      "left_out": [],
      "failed_backends": [],
      "unavailable": []
    }
    --- stderr
    "#);
}

#[test]
fn the_table_of_a_saved_session_is_that_of_its_next_request() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let tools = "[[backend]]\nkind = \"local\"\nname = \"shell\"\n";
    workspace.write("tools.toml", tools).unwrap();
    done(
        &workspace,
        "session create work --auth claude --model claude-sonnet-4-5 --tools tools.toml",
    );
    let shown = done(&workspace, "routes --session work");
    assert!(shown.stdout.contains("shell_bash_tool"), "{shown:?}");
    let printed = json(&done(&workspace, "routes --session work --json"));
    assert_eq!(printed["routes"][0]["backend"], "shell");
    assert_eq!(printed["unavailable"], serde_json::json!([]));
    // What it is made of is its own.
    let both = conjure(&workspace, "routes --session work --model another");
    let both = both.run().unwrap();
    assert_eq!(both.code, Some(2), "{both:?}");
    let unknown = conjure(&workspace, "routes --session nobodys");
    let unknown = unknown.run().unwrap();
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("nobodys"), "{unknown:?}");
}
